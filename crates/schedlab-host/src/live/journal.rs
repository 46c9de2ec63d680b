//! The journal of what was changed on this machine: written before each change, undone at the end or by the next command.
//!
//! One directory (`/run/schedlab`) holds a lock, which the owner keeps as long as it lives, and the journal. A line is
//! a CRC-32C in hexadecimal, a space, and a record as JSON. A change is on disk before it is made, so whatever a crash
//! leaves behind is known; what was written but not made is undone without harm. The kernel frees the lock of a process
//! that dies, so a journal whose lock is free is one to repair. Not here: the scheduler itself, which no journal undoes:
//! its link is held by a process and goes with it ([`super::hold`]).

use super::tasks;
use crate::machine::now_unix_s;
use crate::process::ProcessDescriptor;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where journals are kept: empty after a boot, as what they undo is.
pub const DIRECTORY: &str = "/run/schedlab";
/// First line of a journal.
const HEADER: &str = "schedlab journal 1";
const JOURNAL: &str = "journal";
const LOCK: &str = "lock";

/// What can go wrong with a journal; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody of ours is at work.
    #[error("{owner} is at work on this machine's scheduler: wait for it, or end it with `schedlab stop`")]
    Busy {
        /// Who.
        owner: String,
    },
    /// The file is not what this version writes.
    #[error(
        "{path} is no journal that this version of schedlab reads ({why}): undo it with the version that wrote it, or look \
         into it and remove it"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A change could not be made.
    #[error("{what}: {source}")]
    Change {
        /// The change, in words.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A change could not be undone; it stays in the journal.
    #[error("{what} could not be undone ({source}): mend that, then run `schedlab restore`")]
    Undo {
        /// The change, in words.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The file system refused.
    #[error("{path}: {source}; {}", remedy(.source))]
    System {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// Who changes the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process.
    pub pid: i32,
    /// When that process began, in clock ticks after boot: tells it from a later one of the same number.
    pub started: u64,
    /// The boot that it belongs to.
    pub boot: String,
    /// Who asked for it.
    pub user: String,
    /// What it does, as typed.
    pub command: String,
    /// When it took the journal, in seconds of Unix time.
    pub since_unix_s: u64,
}

impl Owner {
    /// This process.
    pub fn this(command: impl Into<String>) -> Owner {
        let pid = std::process::id() as i32;
        let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        Owner {
            pid,
            started: tasks::started(pid).unwrap_or(0),
            boot: boot(),
            user: user.unwrap_or_else(|| "root".to_owned()),
            command: command.into(),
            since_unix_s: now_unix_s(),
        }
    }

    /// Whether the process still runs; one that nobody has waited for yet does not.
    pub fn is_alive(&self) -> bool {
        self.boot == boot() && tasks::started(self.pid) == Some(self.started)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = now_unix_s().saturating_sub(self.since_unix_s);
        write!(f, "`{}` (process {}, started by {} {seconds} s ago)", self.command, self.pid, self.user)
    }
}

/// A change of the machine, with what undoes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A file of the kernel's was written.
    File {
        /// Which.
        path: PathBuf,
        /// What it held.
        before: String,
        /// What was written.
        after: String,
    },
    /// A command was started under a policy; what descends from it has the policy too.
    Policy {
        /// The value of [`tasks::TAG`] in its environment.
        tag: String,
        /// The policy it was given.
        policy: i32,
        /// The policy that it would have had.
        before: i32,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::File { path, before, after } => {
                write!(f, "{}: '{}' instead of '{}'", path.display(), after.trim(), before.trim())
            }
            Change::Policy { policy, before, .. } => {
                let (policy, before) = (tasks::policy_name(*policy), tasks::policy_name(*before));
                write!(f, "the command's tasks: {policy} instead of {before}")
            }
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Owner(Owner),
    Change { number: u64, change: Change },
    Undone { number: u64 },
}

/// The owner's journal, and its lock.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    file: File,
    /// Changes not undone yet, oldest first.
    open: Vec<(u64, Change)>,
    next: u64,
    _lock: File,
}

/// What was left by an owner that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Who left it.
    pub owner: Option<Owner>,
    /// What was undone, in words; empty if nothing had to be.
    pub undone: Vec<String>,
}

impl Journal {
    /// Takes the lock and begins a journal; what a dead owner left is undone first.
    pub fn take(directory: &Path, owner: &Owner) -> Result<(Journal, Option<Repaired>), Error> {
        fs::create_dir_all(directory).map_err(system(directory))?;
        let lock = lock(directory)?.ok_or_else(|| Error::Busy { owner: owner_words(directory) })?;
        let repaired = undo_leftover(directory)?;
        let path = directory.join(JOURNAL);
        let mut options = OpenOptions::new();
        let file = options.append(true).read(true).create_new(true).mode(0o644).open(&path);
        let mut journal = Journal {
            directory: directory.to_owned(),
            file: file.map_err(system(&path))?,
            open: Vec::new(),
            next: 0,
            _lock: lock,
        };
        let first = format!("{HEADER}\n");
        journal.file.write_all(first.as_bytes()).map_err(system(&path))?;
        journal.write(&Record::Owner(owner.clone()))?;
        sync_directory(directory);
        Ok((journal, repaired))
    }

    /// Writes the change down, then makes it. If it cannot be made, it is not written as made.
    pub fn change(&mut self, change: Change, make: impl FnOnce() -> io::Result<()>) -> Result<(), Error> {
        let number = self.next;
        self.next += 1;
        self.write(&Record::Change { number, change: change.clone() })?;
        let what = change.to_string();
        self.open.push((number, change));
        make().map_err(|source| Error::Change { what, source })
    }

    /// Writes a file of the kernel's.
    pub fn write_file(&mut self, path: &Path, after: &str) -> Result<(), Error> {
        let before = fs::read_to_string(path).map_err(system(path))?;
        let change = Change::File { path: path.to_owned(), before, after: after.to_owned() };
        self.change(change, || fs::write(path, after))
    }

    /// Undoes every change, newest first; returns what was undone, in words.
    pub fn undo(&mut self) -> Result<Vec<String>, Error> {
        let mut undone = Vec::new();
        while let Some((number, change)) = self.open.last().cloned() {
            undone.extend(undo(&change)?);
            // Without it, as on a disk without space, the change may be undone once more, which does no harm.
            drop(self.write(&Record::Undone { number }));
            self.open.pop();
        }
        Ok(undone)
    }

    /// Undoes what is left, and ends the journal.
    pub fn close(mut self) -> Result<Vec<String>, Error> {
        let undone = self.undo()?;
        remove(&self.directory)?;
        Ok(undone)
    }

    fn write(&mut self, record: &Record) -> Result<(), Error> {
        let line = line_of(record);
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(system(&self.directory.join(JOURNAL)))
    }
}

/// Undoes what an owner that is gone left behind; `None` if nothing is left, or the owner lives.
pub fn repair(directory: &Path) -> Result<Option<Repaired>, Error> {
    if !directory.join(JOURNAL).exists() {
        return Ok(None);
    }
    let Some(_lock) = lock(directory)? else { return Ok(None) };
    undo_leftover(directory)
}

/// An owner that can be waited for, whoever gets its number later.
#[derive(Debug)]
pub struct Watched {
    owner: Owner,
    process: ProcessDescriptor,
}

impl Watched {
    /// `None` if it is gone.
    pub fn new(owner: Owner) -> Option<Watched> {
        let process = ProcessDescriptor::open(owner.pid)?;
        // Looked at after the descriptor was opened: the number was still its own then.
        owner.is_alive().then_some(Watched { owner, process })
    }

    /// Who it is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Waits until it is gone, and with it its lock and its link; false if it is not by then.
    pub fn wait_end(&self, limit: Duration) -> bool {
        self.process.wait_end(limit)
    }

    /// Kills one that does not answer and waits for its death; false if it is not dead by then.
    pub fn kill(&self, limit: Duration) -> Result<bool, Error> {
        match self.process.signal(libc::SIGKILL) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(system(&PathBuf::from(format!("/proc/{}", self.owner.pid)))(error))
            }
            _ => Ok(self.wait_end(limit)),
        }
    }
}

/// What a journal is to somebody who looks.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// There is none.
    Nothing,
    /// Its owner is at work: it has the lock.
    AtWork(Option<Owner>),
    /// Its owner is gone.
    Abandoned(Option<Owner>),
}

/// Whether a journal is there, and whether its owner still has the lock. Without the right to ask for that, whether the owner's
/// process lives.
pub fn look(directory: &Path) -> Result<Left, Error> {
    if !directory.join(JOURNAL).exists() {
        return Ok(Left::Nothing);
    }
    let owner = owner(directory);
    let is_free = match lock(directory) {
        Ok(lock) => lock.is_some(),
        Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            !owner.as_ref().is_some_and(Owner::is_alive)
        }
        Err(error) => return Err(error),
    };
    Ok(if is_free { Left::Abandoned(owner) } else { Left::AtWork(owner) })
}

/// Who has the journal now, if there is one; needs no rights.
pub fn owner(directory: &Path) -> Option<Owner> {
    read(&directory.join(JOURNAL)).ok()?.owner
}

fn owner_words(directory: &Path) -> String {
    // Between taking the lock and writing the first line there is no name yet.
    owner(directory).map_or_else(|| "another schedlab".to_owned(), |owner| owner.to_string())
}

/// With the lock held: undoes and removes a journal that is there.
fn undo_leftover(directory: &Path) -> Result<Option<Repaired>, Error> {
    let path = directory.join(JOURNAL);
    if !path.exists() {
        return Ok(None);
    }
    let contents = read(&path)?;
    let mut undone = Vec::new();
    // After a boot there is nothing to undo, and process numbers mean others.
    if contents.owner.as_ref().is_none_or(|owner| owner.boot == boot()) {
        for change in contents.open.iter().rev() {
            undone.extend(undo(change)?);
        }
    }
    // Nobody answers there any more.
    super::control::close(directory);
    remove(directory)?;
    Ok(Some(Repaired { owner: contents.owner, undone }))
}

/// Undoes one change, whether it was made or not; what was undone in words, `None` if there was nothing to do.
fn undo(change: &Change) -> Result<Option<String>, Error> {
    let failed = |source| Error::Undo { what: change.to_string(), source };
    match change {
        Change::File { path, before, after } => {
            let now = match fs::read_to_string(path) {
                Ok(now) => now,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(error)),
            };
            if now.trim() == before.trim() {
                return Ok(None);
            }
            if now.trim() != after.trim() {
                let (path, now) = (path.display(), now.trim());
                return Ok(Some(format!("{path} was left at '{now}': somebody else changed it meanwhile")));
            }
            fs::write(path, before).map_err(failed)?;
            Ok(Some(format!("{} is '{}' again", path.display(), before.trim())))
        }
        Change::Policy { tag, policy, before } => {
            let count = tasks::give_back(tag, *policy, *before).map_err(failed)?;
            let (policy, before) = (tasks::policy_name(*policy), tasks::policy_name(*before));
            Ok((count > 0).then(|| format!("{count} tasks of the command went from {policy} to {before}")))
        }
    }
}

/// The lock, if nobody has it.
fn lock(directory: &Path) -> Result<Option<File>, Error> {
    let path = directory.join(LOCK);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(system(&path))?;
    // SAFETY: a plain system call on a descriptor that is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(Some(file));
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(system(&path)(error)) }
}

/// What a journal holds.
#[derive(Debug, Default)]
struct Contents {
    owner: Option<Owner>,
    open: Vec<Change>,
}

/// Reads a journal. Its last line may be torn: then that change was never made.
fn read(path: &Path) -> Result<Contents, Error> {
    let mut bytes = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(system(path))?;
    let foreign = |why: &str| Error::Foreign { path: path.to_owned(), why: why.to_owned() };
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let torn = lines.pop_if(|line| !line.ends_with('\n'));
    let Some((header, records)) = lines.split_first() else {
        let begun = torn.is_none_or(|torn| HEADER.starts_with(torn));
        return if begun { Ok(Contents::default()) } else { Err(foreign("it does not begin as one")) };
    };
    if header.trim_end() != HEADER {
        return Err(foreign("it does not begin as one"));
    }
    let mut contents = Contents::default();
    let mut open: Vec<(u64, Change)> = Vec::new();
    for (index, line) in records.iter().enumerate() {
        match record_of(line) {
            Some(Record::Owner(owner)) => contents.owner = Some(owner),
            Some(Record::Change { number, change }) => open.push((number, change)),
            Some(Record::Undone { number }) => open.retain(|(open, _)| *open != number),
            // A crash of the machine may tear the last line after its end was written.
            None if index + 1 == records.len() => {}
            None => return Err(foreign(&format!("line {} is damaged", index + 2))),
        }
    }
    contents.open = open.into_iter().map(|(_, change)| change).collect();
    Ok(contents)
}

fn line_of(record: &Record) -> String {
    let json = serde_json::to_string(record).expect("records are plain data");
    format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()))
}

fn record_of(line: &str) -> Option<Record> {
    let (sum, json) = line.trim_end_matches('\n').split_once(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == crc32c::crc32c(json.as_bytes())).then(|| serde_json::from_str(json).ok())?
}

fn remove(directory: &Path) -> Result<(), Error> {
    let path = directory.join(JOURNAL);
    fs::remove_file(&path).map_err(system(&path))?;
    sync_directory(directory);
    Ok(())
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space there",
        io::ErrorKind::ReadOnlyFilesystem => "it must be writable",
        _ => "changing this machine's scheduler needs root",
    }
}

/// Some file systems cannot; then the name is written when they please.
fn sync_directory(directory: &Path) {
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
}

fn system(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::System { path, source }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Nanoseconds of Unix time.
pub(super) fn now_unix_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    const BEFORE: [&str; 2] = ["one\n", "two\n"];
    const AFTER: [&str; 2] = ["1\n", "2\n"];

    /// A directory with a journal's place and two files that are changed.
    struct Machine {
        root: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            let machine = Machine { root: tempfile::tempdir().expect("a directory") };
            fs::create_dir(machine.journal()).expect("a directory");
            machine.set(0..0);
            machine
        }

        fn journal(&self) -> PathBuf {
            self.root.path().join("journal")
        }

        fn knob(&self, index: usize) -> PathBuf {
            self.root.path().join(format!("knob{index}"))
        }

        /// The knobs of `changed` hold what was written, the others what they had.
        fn set(&self, changed: Range<usize>) {
            for index in 0..2 {
                let text = if changed.contains(&index) { AFTER[index] } else { BEFORE[index] };
                fs::write(self.knob(index), text).expect("writes");
            }
        }

        fn knobs(&self) -> [String; 2] {
            [0, 1].map(|index| fs::read_to_string(self.knob(index)).expect("reads"))
        }

        fn take(&self) -> Result<(Journal, Option<Repaired>), Error> {
            Journal::take(&self.journal(), &Owner::this("test"))
        }

        /// See [`repair_when_free`].
        fn take_when_free(&self) -> Result<(Journal, Option<Repaired>), Error> {
            for _ in 0..1_000 {
                match self.take() {
                    Err(Error::Busy { .. }) => std::thread::sleep(std::time::Duration::from_millis(10)),
                    taken => return taken,
                }
            }
            self.take()
        }

        fn write(&self, bytes: &[u8]) {
            fs::write(self.journal().join(JOURNAL), bytes).expect("writes");
        }
    }

    /// A journal of both changes, undone again, and where each of its records ends.
    fn whole(machine: &Machine) -> (Vec<u8>, Vec<usize>) {
        let path = machine.journal().join(JOURNAL);
        let length = || fs::metadata(&path).expect("is there").len() as usize;
        let (mut journal, _) = machine.take().expect("nobody has it");
        let mut ends = vec![length()];
        for (index, after) in AFTER.iter().enumerate() {
            journal.write_file(&machine.knob(index), after).expect("writes");
            ends.push(length());
        }
        assert_eq!(machine.knobs(), AFTER);
        assert_eq!(journal.undo().expect("undoes").len(), 2);
        assert_eq!(machine.knobs(), BEFORE);
        let bytes = fs::read(&path).expect("reads");
        journal.close().expect("ends");
        assert!(!path.exists());
        (bytes, ends)
    }

    /// Children that other tests of this process fork meanwhile have the lock, too, until they end or start a program.
    fn repair_when_free(directory: &Path) -> Result<Option<Repaired>, Error> {
        for _ in 0..1_000 {
            match repair(directory)? {
                None if directory.join(JOURNAL).exists() => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                repaired => return Ok(repaired),
            }
        }
        Ok(None)
    }

    #[test]
    fn a_crash_at_any_byte_is_undone() {
        let machine = Machine::new();
        let (bytes, ends) = whole(&machine);
        for cut in 0..=ends[2] {
            let written = ends[1..].iter().filter(|end| **end <= cut).count();
            // The last change that was written may not have been made.
            for made in [written, written.saturating_sub(1)] {
                machine.set(0..made);
                machine.write(&bytes[..cut]);
                let repaired = repair_when_free(&machine.journal())
                    .unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
                assert_eq!(machine.knobs(), BEFORE, "cut at {cut}, {made} changes made");
                let undone = repaired.expect("a journal was there").undone;
                assert_eq!(undone.len(), made, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_crash_while_undoing_is_undone_too() {
        let machine = Machine::new();
        let (bytes, ends) = whole(&machine);
        for cut in ends[2]..=bytes.len() {
            let lines = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
            let undone = lines.saturating_sub(4);
            // Undone but not yet written as undone, too.
            for left in [2 - undone, 1_usize.saturating_sub(undone)] {
                machine.set(0..left);
                machine.write(&bytes[..cut]);
                repair_when_free(&machine.journal()).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
                assert_eq!(machine.knobs(), BEFORE, "cut at {cut}, {left} changes left");
            }
        }
    }

    #[test]
    fn the_last_record_may_hold_anything_and_no_other() {
        let machine = Machine::new();
        let (bytes, ends) = whole(&machine);
        let mut last = bytes[..ends[2]].to_vec();
        last[ends[1] + 12] ^= 1;
        machine.set(0..1);
        machine.write(&last);
        repair_when_free(&machine.journal()).expect("the torn record was never made");
        assert_eq!(machine.knobs(), BEFORE);
        let mut middle = bytes[..ends[2]].to_vec();
        middle[ends[0] + 12] ^= 1;
        machine.write(&middle);
        let error = repair_when_free(&machine.journal()).expect_err("what it changed is unknown");
        assert!(error.to_string().contains("line 3 is damaged"), "{error}");
        assert!(machine.journal().join(JOURNAL).exists(), "it is kept for whoever looks");
    }

    #[test]
    fn foreign_journals_are_left_alone() {
        let machine = Machine::new();
        for text in ["schedlab journal 2\n", "{\"other\": 1}\n", "schedlabber", "\0\0\0\0\n"] {
            machine.write(text.as_bytes());
            let error = machine.take_when_free().expect_err("it is not ours");
            assert!(matches!(error, Error::Foreign { .. }), "{error}");
            assert_eq!(fs::read(machine.journal().join(JOURNAL)).expect("is there"), text.as_bytes());
        }
    }

    #[test]
    fn the_lock_names_its_owner_and_goes_with_it() {
        let machine = Machine::new();
        let (journal, repaired) = machine.take().expect("nobody has it");
        assert_eq!(repaired, None);
        let error = machine.take().expect_err("somebody has it").to_string();
        assert!(error.contains("`test`") && error.contains(&std::process::id().to_string()), "{error}");
        assert_eq!(repair(&machine.journal()).expect("reads"), None, "the owner lives");
        let owner = owner(&machine.journal()).expect("is named");
        assert!(owner.is_alive() && !Owner { started: 1, ..owner.clone() }.is_alive());
        assert!(Watched::new(owner.clone()).is_some_and(|owner| !owner.wait_end(Duration::ZERO)));
        assert_eq!(look(&machine.journal()).expect("reads"), Left::AtWork(Some(owner.clone())));
        // As after SIGKILL: the lock is free, the journal is there.
        drop(journal);
        // It lives, but has no lock: what counts is the lock.
        let abandoned = || look(&machine.journal()).expect("reads") == Left::Abandoned(Some(owner.clone()));
        // Children that other tests of this process fork meanwhile have the lock, too, until they end.
        let is_abandoned = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            abandoned()
        });
        assert!(is_abandoned && owner.is_alive());
        let (journal, repaired) = machine.take_when_free().expect("its owner is gone");
        assert_eq!(repaired.expect("a journal was there").owner, Some(owner.clone()));
        drop(journal.close());
        assert_eq!(look(&machine.journal()).expect("reads"), Left::Nothing);
    }

    #[test]
    fn what_others_changed_meanwhile_or_another_boot_is_left() {
        let machine = Machine::new();
        let (bytes, ends) = whole(&machine);
        machine.set(0..2);
        fs::write(machine.knob(1), "3\n").expect("writes");
        machine.write(&bytes[..ends[2]]);
        let undone = repair_when_free(&machine.journal()).expect("undoes").expect("a journal").undone;
        assert!(undone[0].contains("somebody else changed it"), "{undone:?}");
        assert_eq!(machine.knobs(), [BEFORE[0], "3\n"]);
        machine.set(0..2);
        let owner = Record::Owner(Owner { boot: "another".to_owned(), ..Owner::this("test") });
        let mut text = format!("{HEADER}\n{}", line_of(&owner)).into_bytes();
        text.extend(&bytes[ends[0]..ends[2]]);
        machine.write(&text);
        let repaired = repair_when_free(&machine.journal()).expect("reads").expect("a journal");
        assert_eq!((repaired.undone.len(), machine.knobs()), (0, AFTER.map(str::to_owned)));
    }
}
