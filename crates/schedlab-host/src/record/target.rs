//! Who is recorded: a command started for it, a process, or the processes of a control group.
//!
//! A command is forked at once but executed only when told, so that the recorder sees its first
//! instruction; it runs as the user who asked for the recording, not as root.

use super::{RecordError, snapshot};
use crate::process::ProcessDescriptor;
use schedlab_model::recording::TaskInfo;
use std::env;
use std::ffi::{CStr, CString, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A command and its arguments.
    Command(Vec<String>),
    /// A process by its id, with its threads and the children it makes.
    Pid(i32),
    /// The processes of a systemd unit, e.g. `nginx.service`.
    Unit(String),
    /// The processes of a control group, as a path below `/sys/fs/cgroup` or absolute.
    Cgroup(PathBuf),
    /// Several processes: what they are, and their ids.
    Processes(String, Vec<i32>),
    /// All of user space but the recorder.
    UserSpace,
    /// Nobody in particular: every task is background.
    Machine,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Command(command) => write!(f, "'{}'", command.join(" ")),
            Target::Pid(pid) => write!(f, "process {pid}"),
            Target::Unit(unit) => write!(f, "unit {unit}"),
            Target::Cgroup(path) => write!(f, "control group {}", path.display()),
            Target::Processes(what, _) => f.write_str(what),
            Target::UserSpace => f.write_str("all of user space"),
            Target::Machine => f.write_str("the whole machine"),
        }
    }
}

/// Whom to run a command as.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

/// The user behind `sudo`, else the real user.
fn invoking_user() -> Option<Identity> {
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    // SAFETY: these calls only read the process's own identity.
    let (real, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
    let (uid, gid) = match (number("SUDO_UID"), number("SUDO_GID")) {
        (Some(uid), Some(gid)) if effective == 0 => (uid, gid),
        // SAFETY: as above.
        _ => (real, unsafe { libc::getgid() }),
    };
    (uid != effective).then(|| Identity { uid, gid, groups: groups_of(uid, gid) })
}

/// Lets a command run as who asked for it, with the user's groups and home, if the process runs as somebody else.
pub fn run_as_invoking_user(command: &mut std::process::Command) {
    let Some(identity) = invoking_user() else { return };
    if let Some((name, home)) = name_and_home(identity.uid) {
        command.env("USER", &name).env("LOGNAME", name).env("HOME", home);
    }
    // SAFETY: between fork and exec only the three system calls of `drop_to` are made.
    unsafe {
        command.pre_exec(move || if drop_to(&identity) { Ok(()) } else { Err(io::Error::last_os_error()) });
    }
}

/// Ends a process group, e.g. one made by `CommandExt::process_group`; one that is gone is fine.
pub fn kill_group(leader: u32) {
    // SAFETY: a plain system call.
    unsafe { libc::kill(-(leader as libc::pid_t), libc::SIGKILL) };
}

/// Becomes another user for good; async-signal-safe.
fn drop_to(identity: &Identity) -> bool {
    // SAFETY: plain system calls on valid memory.
    unsafe {
        libc::setgroups(identity.groups.len(), identity.groups.as_ptr()) == 0
            && libc::setgid(identity.gid) == 0
            && libc::setuid(identity.uid) == 0
    }
}

/// What the user's entry says; `None` without one.
fn entry_of<T>(uid: libc::uid_t, read: impl FnOnce(&libc::passwd) -> T) -> Option<T> {
    // SAFETY: the entry is read before any other call that may overwrite it.
    unsafe { libc::getpwuid(uid).as_ref().map(read) }
}

fn name_and_home(uid: libc::uid_t) -> Option<(OsString, OsString)> {
    // SAFETY: an entry's texts are C strings.
    let text = |at| OsString::from_vec(unsafe { CStr::from_ptr(at) }.to_bytes().to_vec());
    entry_of(uid, |entry| (text(entry.pw_name), text(entry.pw_dir)))
}

/// Supplementary groups of a user; only the primary one if the user has no entry.
fn groups_of(uid: libc::uid_t, gid: libc::gid_t) -> Vec<libc::gid_t> {
    let groups = entry_of(uid, |entry| {
        let mut groups = vec![0; 256];
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name is a C string; the list has `count` places.
        let found =
            unsafe { libc::getgrouplist(entry.pw_name, gid, groups.as_mut_ptr(), &raw mut count) } >= 0;
        groups.truncate(count as usize);
        found.then_some(groups)
    });
    groups.flatten().unwrap_or_else(|| vec![gid])
}

/// A command that waits to be executed, then runs.
pub(super) struct Child {
    pid: libc::pid_t,
    start: Option<OwnedFd>,
    failure: OwnedFd,
    program: String,
    ended: Option<i32>,
    /// Becomes readable when it ends; none before Linux 5.3.
    alive: Option<OwnedFd>,
}

/// Both ends, which no executed command keeps.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

impl Child {
    /// Forks; the child waits.
    pub(super) fn prepare(command: &[String]) -> Result<Child, RecordError> {
        let system = |what| move |source| RecordError::System { what, source };
        let program = command.first().cloned().ok_or(RecordError::EmptyCommand)?;
        let texts: Result<Vec<CString>, _> = command.iter().map(|text| CString::new(text.as_str())).collect();
        let texts = texts.map_err(|_| RecordError::EmptyCommand)?;
        let mut arguments: Vec<*const libc::c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        arguments.push(std::ptr::null());
        let (wait, start) = pipe().map_err(system("making a pipe"))?;
        let (failure, report) = pipe().map_err(system("making a pipe"))?;
        let identity = invoking_user();
        let held = descriptors();
        // SAFETY: the child calls only async-signal-safe functions on memory prepared before the fork.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(system("forking")(io::Error::last_os_error())),
            0 => {
                // The parent's end must be closed here, or the read below would never end with the parent.
                drop(start);
                close_those_not_for_commands(&held, [wait.as_raw_fd(), report.as_raw_fd()]);
                become_command(&wait, &report, identity.as_ref(), &arguments)
            }
            _ => Ok(Child {
                pid,
                start: Some(start),
                failure,
                program,
                ended: None,
                alive: ProcessDescriptor::open(pid).map(ProcessDescriptor::into_inner),
            }),
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child execute the command; an error if it cannot be executed.
    pub(super) fn start(&mut self) -> Result<(), RecordError> {
        let start = self.start.take().expect("a child is started once");
        // SAFETY: one byte is read from a valid place.
        unsafe { libc::write(start.as_raw_fd(), [1_u8].as_ptr().cast(), 1) };
        let mut code = [0_u8; 4];
        // SAFETY: the buffer has four places. The pipe closes when the command is executed.
        let got = unsafe { libc::read(self.failure.as_raw_fd(), code.as_mut_ptr().cast(), 4) };
        if got != 4 {
            return Ok(());
        }
        self.wait(0);
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(code));
        Err(RecordError::Command { program: self.program.clone(), source })
    }

    /// Exit code if the command has ended; a signal is told as a shell does, 128 and its number.
    pub(super) fn ended(&mut self) -> Option<i32> {
        self.wait(libc::WNOHANG);
        self.ended
    }

    /// Sleeps for a time, or until the command ends.
    pub(super) fn rest(&self, time: Duration) {
        let Some(alive) = &self.alive else { return std::thread::sleep(time) };
        let mut waits = libc::pollfd { fd: alive.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor is waited for, and it is valid.
        unsafe { libc::poll(&raw mut waits, 1, time.as_millis() as libc::c_int) };
    }

    fn wait(&mut self, options: libc::c_int) {
        if self.ended.is_some() {
            return;
        }
        let mut status = 0;
        // SAFETY: `status` is valid; the child is ours and not yet waited for.
        if unsafe { libc::waitpid(self.pid, &raw mut status, options) } == self.pid {
            self.ended = Some(if libc::WIFSIGNALED(status) {
                128 + libc::WTERMSIG(status)
            } else {
                libc::WEXITSTATUS(status)
            });
        }
    }

    /// Asks a command that outlives the recording to end, and collects it if it does within a second.
    pub(super) fn stop(&mut self) {
        for _ in 0..100 {
            if self.ended().is_some() {
                return;
            }
            // SAFETY: the child is ours and not yet waited for, so the id is still its own.
            unsafe { libc::kill(self.pid, libc::SIGTERM) };
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Child {
    /// A child that was never started reads the end of its pipe and leaves.
    fn drop(&mut self) {
        if self.start.take().is_some() {
            self.wait(0);
        }
    }
}

/// Descriptors of this process beside standard input and outputs, as far as `/proc` tells.
fn descriptors() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect()
}

/// In the child, which may wait for long: what would be closed as the command is executed is closed now. The hooks of
/// another recorder of this process would stay attached with their descriptors. Only async-signal-safe calls.
fn close_those_not_for_commands(held: &[RawFd], kept: [RawFd; 2]) {
    for fd in held.iter().filter(|fd| !kept.contains(fd)) {
        // SAFETY: plain system calls; nothing in the child uses them any more, and one that is gone is an error.
        unsafe {
            let flags = libc::fcntl(*fd, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC != 0 {
                libc::close(*fd);
            }
        }
    }
}

/// In the child: waits for the word, drops privileges, executes. Only async-signal-safe calls.
fn become_command(
    wait: &OwnedFd,
    report: &OwnedFd,
    identity: Option<&Identity>,
    arguments: &[*const libc::c_char],
) -> ! {
    // SAFETY: plain system calls on valid memory; the process is replaced or ends here.
    unsafe {
        let mut word = 0_u8;
        if libc::read(wait.as_raw_fd(), (&raw mut word).cast(), 1) != 1 {
            libc::_exit(127);
        }
        if identity.is_none_or(drop_to) {
            // Rust ignores it; a command expects the default.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::execvp(arguments[0], arguments.as_ptr());
        }
        let code = (*libc::__errno_location()).to_ne_bytes();
        libc::write(report.as_raw_fd(), code.as_ptr().cast(), code.len());
        libc::_exit(127);
    }
}

/// Processes of a target that exists already.
pub(super) fn processes(target: &Target) -> Result<Vec<i32>, RecordError> {
    match target {
        Target::Command(_) | Target::Machine => Ok(Vec::new()),
        Target::Processes(_, all) => Ok(all.clone()),
        Target::Pid(pid) => {
            let process = snapshot::process_of(*pid).ok_or(RecordError::NoProcess(*pid))?;
            Ok(vec![process])
        }
        Target::UserSpace => {
            let own = std::process::id() as i32;
            let of_user = |task: &TaskInfo| task.pid == task.tgid && task.pid != own;
            let tasks = snapshot::tasks();
            let of_user = tasks.iter().filter(|task| of_user(task) && !task.attributes.kernel_thread);
            Ok(of_user.map(|task| task.pid).collect())
        }
        Target::Unit(_) | Target::Cgroup(_) => {
            let Some(directory) = group(target)? else { return Ok(Vec::new()) };
            members(&directory)
        }
    }
}

/// The directory of a target that is a control group.
pub(super) fn group(target: &Target) -> Result<Option<PathBuf>, RecordError> {
    match target {
        Target::Unit(unit) => unit_cgroup(unit).map(Some),
        Target::Cgroup(path) => cgroup_directory(path).map(Some),
        _ => Ok(None),
    }
}

/// Where control groups may be mounted: the unified hierarchy, hybrid systems, systemd's own.
const CGROUP_ROOTS: [&str; 5] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup/systemd",
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/pids",
];

fn cgroup_directory(path: &Path) -> Result<PathBuf, RecordError> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let absolute = path.starts_with("/sys/fs/cgroup").then(|| path.to_owned());
    let candidates =
        absolute.into_iter().chain(CGROUP_ROOTS.iter().map(|root| Path::new(root).join(relative)));
    candidates
        .into_iter()
        .find(|directory| directory.join("cgroup.procs").exists())
        .ok_or_else(|| RecordError::NoCgroup(path.to_owned()))
}

fn unit_cgroup(unit: &str) -> Result<PathBuf, RecordError> {
    if !Path::new("/run/systemd/system").exists() {
        return Err(RecordError::NoSystemd(unit.to_owned()));
    }
    let name = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    let output = std::process::Command::new("systemctl")
        .args(["show", "--property=ControlGroup", "--value", "--", &name])
        .output()
        .map_err(|_| RecordError::NoSystemd(unit.to_owned()))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(RecordError::Systemctl { unit: name, reason });
    }
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if path.is_empty() || path == "/" {
        return Err(RecordError::UnitNotRunning(name));
    }
    cgroup_directory(Path::new(&path)).map_err(|_| RecordError::UnitNotRunning(name))
}

/// Processes of a group and of the groups below it.
fn members(directory: &Path) -> Result<Vec<i32>, RecordError> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        found.extend(list.lines().filter_map(|line| line.trim().parse::<i32>().ok()));
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        pending.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    if found.is_empty() { Err(RecordError::EmptyCgroup(directory.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_in_words() {
        let texts =
            [Target::Command(vec!["sleep".to_owned(), "1".to_owned()]), Target::Unit("a.service".to_owned())]
                .map(|target| target.to_string());
        assert_eq!(texts, ["'sleep 1'", "unit a.service"]);
    }

    #[test]
    fn a_command_waits_for_the_word_and_keeps_its_exit_code() {
        let command = ["sh", "-c", "exit 7"].map(str::to_owned);
        let mut child = Child::prepare(&command).expect("fork works");
        assert_eq!(child.ended(), None);
        child.start().expect("sh exists");
        let code = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            child.ended()
        });
        assert_eq!(code, Some(7));
    }

    #[test]
    fn a_command_that_waits_holds_only_what_it_is_given() {
        let (end, ours) = pipe().expect("a pipe");
        let (given_end, given) = pipe().expect("a pipe");
        // SAFETY: a plain system call on a descriptor of ours.
        assert_eq!(unsafe { libc::fcntl(given.as_raw_fd(), libc::F_SETFD, 0) }, 0);
        // Not `>&N`: some shells know numbers of one digit only.
        let script = format!("printf word > /proc/self/fd/{}", given.as_raw_fd());
        let mut child = Child::prepare(&["sh".to_owned(), "-c".to_owned(), script]).expect("fork works");
        drop(ours);
        let mut rest = Vec::new();
        let ended = io::Read::read_to_end(&mut std::fs::File::from(end), &mut rest);
        assert_eq!(ended.expect("the child does not hold the other end"), 0);
        assert_eq!(child.ended(), None, "it still waits");
        child.start().expect("sh exists");
        drop(given);
        io::Read::read_to_end(&mut std::fs::File::from(given_end), &mut rest).expect("it writes, and ends");
        assert_eq!(rest, b"word");
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let mut child = Child::prepare(&["schedlab-no-such-program".to_owned()]).expect("fork works");
        let error = child.start().expect_err("it does not exist");
        assert!(error.to_string().contains("schedlab-no-such-program"), "{error}");
    }

    #[test]
    fn missing_targets_say_what_to_do() {
        assert!(matches!(processes(&Target::Pid(i32::MAX)), Err(RecordError::NoProcess(_))));
        let absent = Target::Cgroup(PathBuf::from("schedlab/no/such/group"));
        assert!(matches!(processes(&absent), Err(RecordError::NoCgroup(_))));
        let own = std::process::id() as i32;
        assert_eq!(processes(&Target::Pid(own)).expect("we exist"), vec![own]);
    }
}
