//! Real kernels in virtual machines: fetch a kernel, pack an initramfs, boot it in QEMU, run one command, take the
//! results out.
//!
//! It is the way to try a scheduler against a given kernel before it touches the host. Nothing is installed; what is written
//! goes to the cache directory and, while a machine runs, its console to a temporary one. [`kernels`] fetches, [`initramfs`] packs, [`machine`] runs,
//! [`frames`] is what guest and host say to each other; the guest's side is [`crate::guest`].

pub mod acceleration;
pub mod frames;
pub mod initramfs;
pub mod kernels;
pub mod machine;

pub use acceleration::Acceleration;
pub use kernels::{Kernel, KernelChoice, KernelName};
pub use machine::{Machine, Run, Topology};

use std::path::PathBuf;

/// What can go wrong around a virtual machine; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program of the system is missing.
    #[error("{program} is missing: install the Debian package {package}")]
    Missing {
        /// The command.
        program: &'static str,
        /// The package that brings it.
        package: &'static str,
    },
    /// The kernel could not be fetched.
    #[error("kernel {kernel} could not be fetched: {what}. Kernels are fetched once and kept in {cache}")]
    Fetch {
        /// Which one.
        kernel: String,
        /// What failed.
        what: String,
        /// The cache directory.
        cache: PathBuf,
    },
    /// No kernel image there.
    #[error(
        "{path} cannot be booted: {why}; give the file of an image, or 6.1, 6.12 or 7.2 for one of Debian's"
    )]
    NoImage {
        /// Where it was looked for.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A file that was to go into the machine.
    #[error("{path} cannot go into the virtual machine: {source}")]
    Pack {
        /// The file on the host.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The command is nowhere on PATH.
    #[error("no program {0:?} on PATH; shells and small tools come from the Debian package busybox-static")]
    NoProgram(String),
    /// QEMU ended, or the guest's kernel died, before the command's result came.
    #[error("the virtual machine ended without a result ({status}); its console said last:\n{console}")]
    Died {
        /// Whether the guest's first process had said hello.
        booted: bool,
        /// What the command had written to standard output.
        said: String,
        /// QEMU's exit status.
        status: String,
        /// The last lines of the console.
        console: String,
        /// Whether the kernel met an instruction that it was just patching, as only emulated CPUs do.
        tripped: bool,
    },
    /// The caller stopped it.
    #[error("the virtual machine was stopped")]
    Interrupted,
    /// It ran too long and was killed.
    #[error(
        "the virtual machine was stopped after {seconds} s; its console said last:\n{console}\nGive it more with a \
         longer time limit"
    )]
    TimeLimit {
        /// Whether the guest's first process had said hello.
        booted: bool,
        /// The limit.
        seconds: u64,
        /// The last lines of the console.
        console: String,
    },
    /// Anything the host's system calls refuse.
    #[error("{context}: {source}")]
    System {
        /// What was being done.
        context: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps an error of the system with what was being done.
    pub(crate) fn system(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let context = context.into();
        move |source| Error::System { context, source }
    }
}

/// Where kernels and probe results are kept: `$XDG_CACHE_HOME/schedlab` or `~/.cache/schedlab`.
pub fn cache_directory() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("XDG_CACHE_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("schedlab")
}
