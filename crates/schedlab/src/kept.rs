//! What a long command has measured so far, as JSON Lines that survive it however it ends: a line is written whenever a run
//! is over, and when all is written whole the file goes.
//!
//! `FILE.part` beside the document that `--json FILE` asks for. Not here: what the lines are (schedlab-report's `bench`;
//! those of `reproduce` with the command), which is told in docs/benchmarks.md.

use crate::failure::Failure;
use crate::output::{give_to_caller, is_special, make_directory, unwritten};
use anyhow::anyhow;
use schedlab_report::bench::{About, Line};
use serde::Serialize;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// How the first line of such a file begins.
const FIRST: &str = "{\"about\":";

/// A file of lines. It is left where it is when this is dropped, unless nothing has come.
#[derive(Debug)]
pub struct Kept(Option<Open>);

#[derive(Debug)]
struct Open {
    path: PathBuf,
    /// With the number of runs in it.
    file: Mutex<(File, u64)>,
}

impl Kept {
    /// Nowhere.
    pub fn nowhere() -> Kept {
        Kept(None)
    }

    /// Beside the file that is to hold all in the end, if there is one: not standard output, nor a device or pipe.
    ///
    /// # Errors
    /// It cannot be written, or another process writes it.
    pub fn beside(json: Option<&Path>, about: &impl Serialize) -> Result<Kept, Failure> {
        let file = json.filter(|path| path.as_os_str() != "-" && !is_special(path));
        match file {
            Some(path) => {
                if path.is_dir() {
                    return Err(Failure::BadInput(anyhow!(
                        "cannot write {}: it is a directory; name a file in it",
                        path.display()
                    )));
                }
                let followed = std::fs::canonicalize(path);
                Kept::at(followed.as_deref().unwrap_or(path).with_added_extension("part"), about)
            }
            None => Ok(Kept::nowhere()),
        }
    }

    /// In a file of this name. What another command has left there is moved aside.
    ///
    /// # Errors
    /// As of [`Kept::beside`].
    pub fn at(path: PathBuf, about: &impl Serialize) -> Result<Kept, Failure> {
        let failed = |error| unwritten(error, &format!("cannot write {}", path.display()));
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            make_directory(directory)?;
        }
        move_aside(&path)?;
        let file = File::options().append(true).create_new(true).open(&path).map_err(failed)?;
        // Where locks are not to be had nobody is told that it is being written.
        let _ = file.lock();
        give_to_caller(&path);
        let kept = Open { path, file: Mutex::new((file, 0)) };
        kept.write(&serde_json::json!({ "about": about }), true)?;
        Ok(Kept(Some(kept)))
    }

    /// A run is over. On the disk when this returns: the machine itself may stand still under the next scheduler.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, line: &impl Serialize) -> Result<(), Failure> {
        let Some(open) = &self.0 else { return Ok(()) };
        open.write(line, true)?;
        open.file.lock().expect("nobody panics while writing").1 += 1;
        Ok(())
    }

    /// What is there of a run that is under way: given to the kernel, whose disk is not made busy.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add_part(&self, line: &impl Serialize) -> Result<(), Failure> {
        self.0.as_ref().map_or(Ok(()), |open| open.write(line, false))
    }

    /// Whether there is a file.
    pub fn is_somewhere(&self) -> bool {
        self.0.is_some()
    }

    /// All of it has been written elsewhere: the file goes.
    pub fn done(mut self) {
        if let Some(open) = self.0.take() {
            drop(std::fs::remove_file(&open.path));
        }
    }
}

impl Open {
    fn write(&self, line: &impl Serialize, to_disk: bool) -> Result<(), Failure> {
        let text = serde_json::to_string(line).map_err(Failure::input)? + "\n";
        let file = &mut self.file.lock().expect("nobody panics while writing").0;
        // At once, so that a kill leaves whole lines.
        let written = file.write_all(text.as_bytes());
        // Some file systems cannot, and are none the worse for a process that is killed.
        let synced = if to_disk { file.sync_data() } else { Ok(()) };
        let synced = synced.or_else(|error| match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Unsupported => Ok(()),
            _ => Err(error),
        });
        let failed = |error| unwritten(error, &format!("cannot write {}", self.path.display()));
        written.and(synced).map_err(failed)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        let runs = open.file.lock().map_or(1, |file| file.1);
        if runs == 0 && is_empty(&open.path) {
            drop(std::fs::remove_file(&open.path));
            return;
        }
        say(&format!("what was measured so far is in {}: {}", open.path.display(), how_to_read(&open.path)));
    }
}

/// Not eprintln!: the terminal may be what went away.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "schedlab: {text}"));
}

/// The lines of a file, the first two of them.
fn first_lines(path: &Path) -> Vec<String> {
    let lines = File::open(path).map(|file| BufReader::new(file).lines().take(2));
    lines.into_iter().flatten().map_while(Result::ok).collect()
}

/// Whether it is one of ours with nothing but its first line.
fn is_empty(path: &Path) -> bool {
    matches!(&first_lines(path)[..], [first] if first.starts_with(FIRST))
}

/// What makes something of it.
fn how_to_read(path: &Path) -> String {
    let bench = first_lines(path).first().and_then(|first| match serde_json::from_str(first) {
        Ok(Line::About(About { bench, .. })) => Some(bench),
        _ => None,
    });
    match bench {
        Some(bench) => format!("`schedlab bench {bench} --from {}` shows it", path.display()),
        None => "JSON Lines, one for each run".to_owned(),
    }
}

/// What is left of a command that was killed gets another name, and that is said: nobody else has it.
fn move_aside(path: &Path) -> Result<(), Failure> {
    let failed = |error| unwritten(error, &format!("cannot write {}", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(Failure::BadInput(anyhow!(
            "another schedlab is writing {}: wait until it has ended, or write elsewhere",
            path.display()
        )));
    }
    if is_empty(path) {
        return std::fs::remove_file(path).map_err(failed);
    }
    let aside = (1_u32..).map(|number| path.with_added_extension(number.to_string()));
    let aside = aside.into_iter().find(|aside| !aside.exists()).expect("some number is free");
    std::fs::rename(path, &aside).map_err(failed)?;
    say(&format!(
        "{} is what a command that was killed had measured: moved to {}; {}",
        path.display(),
        aside.display(),
        how_to_read(&aside)
    ));
    Ok(())
}
