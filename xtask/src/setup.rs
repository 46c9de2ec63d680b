//! Installs the system packages that a step needs, on Debian, when they are missing.
//!
//! A need is looked for by what is really used (a command, a header), not by asking the package manager, so it is
//! quick and works where the thing came from elsewhere. Without root it prints the one line to run. Rust itself is
//! expected: without it this program does not run.

use crate::sys;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// How to tell that a need is met.
enum Probe {
    Command(&'static str),
    File(&'static str),
    Python(&'static str),
}

/// One thing a step uses, and the Debian package that brings it.
pub struct Need {
    probe: Probe,
    package: &'static str,
    reason: &'static str,
}

/// To build every crate: the BPF objects and libbpf.
const BUILD: &[Need] = &[
    Need { probe: Probe::Command("clang-19"), package: "clang-19", reason: "compiles the BPF schedulers" },
    Need { probe: Probe::File("/usr/include/gelf.h"), package: "libelf-dev", reason: "libbpf reads ELF" },
    Need { probe: Probe::File("/usr/include/zlib.h"), package: "zlib1g-dev", reason: "libelf needs it" },
    Need { probe: Probe::Command("pkg-config"), package: "pkg-config", reason: "libbpf's build asks it" },
    Need { probe: Probe::Command("make"), package: "make", reason: "builds libbpf" },
    Need { probe: Probe::Command("gcc"), package: "gcc", reason: "builds libbpf" },
    Need { probe: Probe::File("/usr/include/stdio.h"), package: "libc6-dev", reason: "headers for gcc" },
];

/// Beyond that, to run all tests.
const TEST: &[Need] = &[
    Need {
        probe: Probe::Command("qemu-system-x86_64"),
        package: "qemu-system-x86",
        reason: "boots the kernels of the virtual machine tests",
    },
    Need { probe: Probe::Command("busybox"), package: "busybox-static", reason: "shell inside the machine" },
    Need { probe: Probe::Command("hackbench"), package: "rt-tests", reason: "a workload of the tests" },
    Need { probe: Probe::Command("stress-ng"), package: "stress-ng", reason: "a workload of the tests" },
    Need {
        probe: Probe::Python("import ensurepip, venv"),
        package: "python3-venv",
        reason: "checks traces with the perfetto package",
    },
    Need { probe: Probe::Command("node"), package: "nodejs", reason: "runs perfetto's trace processor" },
];

/// Beyond [`BUILD`], to run the fuzz targets.
const FUZZ: &[Need] = &[Need { probe: Probe::Command("g++"), package: "g++", reason: "compiles libFuzzer" }];

/// Beyond [`BUILD`], the loads of the fidelity page and the virtual machines of its pairs.
const FIDELITY: &[Need] = &[
    Need { probe: Probe::Command("hackbench"), package: "rt-tests", reason: "a load" },
    Need { probe: Probe::Command("cyclictest"), package: "rt-tests", reason: "a load" },
    Need { probe: Probe::Command("sysbench"), package: "sysbench", reason: "a load" },
    Need { probe: Probe::Command("stress-ng"), package: "stress-ng", reason: "a load" },
    Need { probe: Probe::Command("qemu-system-x86_64"), package: "qemu-system-x86", reason: "boots kernels" },
    Need { probe: Probe::Command("busybox"), package: "busybox-static", reason: "shell inside the machine" },
];

/// What a step needs of the system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Build and run the programs.
    Build,
    /// Run every test.
    Test,
    /// Run the fuzz targets.
    Fuzz,
    /// Measure fidelity.
    Fidelity,
}

/// Makes sure that everything of `level` is there. `Err` is the exit code to end with; the remedy is printed.
pub fn ensure(level: Level) -> Result<(), ExitCode> {
    let missing = missing(level);
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        eprintln!("setup: {} is missing: {}", need.package, need.reason);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let line = format!("apt-get update && apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !is_root() {
        eprintln!(
            "setup: installing needs root. Run this once, then this command again:\n\n    sudo sh -c '{line}'\n"
        );
        return Err(ExitCode::from(3));
    }
    if !sys::has_command("apt-get") {
        eprintln!(
            "setup: this is no Debian (no apt-get). Install the equivalents of: {}",
            packages.join(" ")
        );
        return Err(ExitCode::from(3));
    }
    install(&packages).map_err(|what| {
        eprintln!("setup: {what}. Mend it, or install by hand:\n\n    {line}\n");
        ExitCode::from(3)
    })
}

/// The needs of `level` that are not met, each package once.
pub fn missing(level: Level) -> Vec<&'static Need> {
    let mut found: Vec<&Need> = Vec::new();
    // The lints of `test` look at every feature, also at the one that compiles libFuzzer.
    let (test, fuzz) = match level {
        Level::Build => (&[][..], &[][..]),
        Level::Test => (TEST, FUZZ),
        Level::Fuzz => (&[][..], FUZZ),
        Level::Fidelity => (FIDELITY, &[][..]),
    };
    for need in BUILD.iter().chain(test).chain(fuzz) {
        if !is_met(&need.probe) && !found.iter().any(|other| other.package == need.package) {
            found.push(need);
        }
    }
    found
}

fn is_met(probe: &Probe) -> bool {
    match probe {
        Probe::Command(name) => sys::has_command(name),
        Probe::File(path) => Path::new(path).exists(),
        Probe::Python(script) => Command::new("python3")
            .args(["-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success()),
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Refreshes the package lists and installs; the error says which of the two failed.
fn install(packages: &[&str]) -> Result<(), String> {
    eprintln!("setup: installing {}", packages.join(" "));
    let updated = apt_get(&["update", "-q"]);
    if !updated {
        eprintln!(
            "setup: apt-get update failed (no network, or a source that is gone); trying the old lists"
        );
    }
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    if apt_get(&arguments) {
        return Ok(());
    }
    Err(if updated {
        "apt-get install failed, its own message is above".to_string()
    } else {
        "apt-get update failed and the packages are not in the old lists: is there a network, and are the sources \
         in /etc/apt reachable"
            .to_string()
    })
}

fn apt_get(arguments: &[&str]) -> bool {
    Command::new("apt-get")
        .args(["-o", "DPkg::Lock::Timeout=300"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_command_file_and_module_are_each_noticed() {
        assert!(!is_met(&Probe::Command("no-such-command-anywhere")));
        assert!(!is_met(&Probe::File("/usr/include/no-such-header.h")));
        assert!(!is_met(&Probe::Python("import no_such_module_anywhere")));
        assert!(is_met(&Probe::Command("cargo")));
    }

    #[test]
    fn demo_needs_no_virtual_machine() {
        assert!(BUILD.iter().all(|need| need.package != "qemu-system-x86"));
        assert!(TEST.iter().any(|need| need.package == "qemu-system-x86"));
    }
}
