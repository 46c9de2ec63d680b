//! What runs inside a virtual machine: process 1, which runs one command and reports to the host.
//!
//! The program that boots the machine puts itself into it, so host and guest always speak the same frames. A binary
//! becomes usable as guest by calling [`main_if_init`] first. Not here: QEMU ([`crate::vm`]).

mod init;
pub mod run;
mod schedule;

use serde::{Deserialize, Serialize};

/// What the guest is to do; a file in its initramfs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// Files to send to the host when it has ended; absent ones are left out.
    pub collect: Vec<String>,
}

/// Where the job lies in the guest.
const JOB_PATH: &str = "/schedlab/job.json";

impl Job {
    /// As the guest reads it.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings always serialise")
    }
}

/// What `try` says as `stage` when the scheduler runs.
pub const ENABLED: &str = "enabled";

/// The guest program's name in the machine.
pub const PROGRAM: &str = "schedlab-guest";

/// Does what the guest program does, if this process was started under its name or is process 1 of a virtual machine; so
/// any program that calls this first can be put into one.
pub fn main_if_guest() -> Option<std::process::ExitCode> {
    main_if_init();
    let mut arguments = std::env::args();
    let name = arguments.next()?;
    let is_guest = std::path::Path::new(&name).file_name().is_some_and(|name| name == PROGRAM);
    is_guest.then(|| run::main(&arguments.collect::<Vec<_>>()))
}

/// Whether this process runs in a virtual machine of ours.
pub fn is_inside() -> bool {
    std::path::Path::new(JOB_PATH).exists()
}

/// If this process is process 1 of a virtual machine, does its work and powers the machine off; else returns.
pub fn main_if_init() {
    if std::process::id() == 1 && is_inside() {
        init::run();
    }
}
