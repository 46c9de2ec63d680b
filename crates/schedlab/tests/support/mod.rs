//! Runs the built program as a user would and says what came of it. Shared by the tests of the commands.

// Each test file uses what it needs.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_schedlab");

/// What a run left behind.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// Of a finished process.
    pub fn of(output: Output) -> Ended {
        Ended {
            code: output.status.code().expect("ended by itself, not by a signal"),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// It must have done what was asked.
    #[track_caller]
    pub fn done(self) -> Ended {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// It must have refused with this code and say each of these on standard error.
    #[track_caller]
    pub fn refused(self, code: i32, says: &[&str]) -> Ended {
        assert_eq!(self.code, code, "{self:#?}");
        for text in says {
            assert!(self.err.contains(text), "standard error does not say {text:?}: {self:#?}");
        }
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("no JSON ({error}): {self:#?}"))
    }
}

/// Runs the program in a directory of its own.
pub fn run_in<S: AsRef<OsStr>>(directory: &Path, arguments: &[S]) -> Ended {
    let output = Command::new(BINARY).args(arguments).current_dir(directory).output();
    Ended::of(output.expect("the program starts"))
}

/// Runs the program at the root of the repository.
pub fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Ended {
    run_in(&repository(), arguments)
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A recording that comes with the repository.
pub fn recording(name: &str) -> String {
    repository().join("recordings").join(name).display().to_string()
}

/// An empty directory of the test's own.
pub fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).expect("scratch can be emptied");
    }
    std::fs::create_dir_all(&path).expect("scratch can be made");
    path
}

/// Writes a file of the test and gives its name for the command line.
pub fn file(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = directory.join(name);
    std::fs::write(&path, bytes).expect("scratch can be written");
    path.display().to_string()
}

/// Whether this process has root's rights.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").expect("procfs").uid() == 0
}

/// Whether recording can be tested here; says so loudly if not, and fails where CI is set.
pub fn can_record() -> bool {
    let can = is_root() && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !can {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI must be able to record: run it as root on a kernel with BTF"
        );
        eprintln!("SKIPPED: recording needs root and /sys/kernel/btf/vmlinux");
    }
    can
}

/// The program as a user without any rights. Root starts it from a place that everybody can read.
pub fn unprivileged(directory: &Path, arguments: &[&str]) -> Option<Ended> {
    let mut command = if is_root() {
        let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
        if !has_setpriv {
            assert!(std::env::var_os("CI").is_none(), "CI needs setpriv (package util-linux)");
            eprintln!("SKIPPED: setpriv is missing (package util-linux)");
            return None;
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(directory.join("schedlab"));
        command
    } else {
        Command::new(BINARY)
    };
    let output = command.args(arguments).current_dir(directory).output();
    Some(Ended::of(output.expect("the program starts")))
}

/// Where nobody may read, execute and write; below the system's own directory, since the build's may be private.
pub fn public_directory() -> PathBuf {
    let directory = std::env::temp_dir().join(format!("schedlab-nobody-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("scratch can be made");
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).expect("own directory");
    std::fs::copy(BINARY, directory.join("schedlab")).expect("the program can be copied");
    directory
}
