//! Whether KVM works here: found out by booting, because `/dev/kvm` may open and yet not boot a stock kernel.
//!
//! The answer is kept for as long as this host kernel runs. Emulation is always possible.

use super::{Error, Kernel, Machine, cache_directory};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How QEMU executes the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceleration {
    /// On the CPU itself.
    Kvm,
    /// Emulated, one host thread for each virtual CPU.
    Emulation,
    /// Emulated, virtual CPUs take turns on one host thread: slower, but a kernel that patches its own code, as
    /// each loading of a scheduler makes it do, is safe (with a thread each, one CPU may trip over the patch of
    /// another).
    EmulationInTurns,
    /// Emulated with a virtual clock of 1 ns an instruction, which does not depend on the host; CPUs take turns.
    InstructionCount,
}

/// A boot under KVM takes about a second where it works.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

impl Acceleration {
    /// The fastest that works: KVM if a probe boots under it, else emulation.
    pub fn best(kernel: &Kernel, guest: &Path) -> Acceleration {
        if kvm_works(kernel, guest) { Acceleration::Kvm } else { Acceleration::Emulation }
    }

    /// The fastest that is safe for loading schedulers.
    pub fn best_for_loading(kernel: &Kernel, guest: &Path) -> Acceleration {
        match Self::best(kernel, guest) {
            Acceleration::Emulation => Acceleration::EmulationInTurns,
            other => other,
        }
    }

    /// The `-accel` argument and what belongs to it.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Acceleration::Kvm => &["-accel", "kvm", "-cpu", "host"],
            Acceleration::Emulation => &["-accel", "tcg,thread=multi", "-cpu", "max"],
            Acceleration::EmulationInTurns => &["-accel", "tcg,thread=single", "-cpu", "max"],
            Acceleration::InstructionCount => {
                &["-accel", "tcg", "-icount", "shift=0,sleep=off", "-cpu", "max"]
            }
        }
    }

    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Acceleration::Kvm => "kvm",
            Acceleration::Emulation => "emulation",
            Acceleration::EmulationInTurns => "emulation in turns",
            Acceleration::InstructionCount => "icount",
        }
    }
}

/// Whether KVM has booted a kernel since this host kernel started; `None` if it has not been tried.
pub fn kvm_as_tried() -> Option<bool> {
    let boot = boot_id();
    let known = std::fs::read_to_string(memory()).unwrap_or_default();
    let answers: Vec<&str> = known
        .lines()
        .filter(|line| line.starts_with(&boot))
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    (!answers.is_empty()).then(|| answers.contains(&"works"))
}

/// A line for each kernel that was tried: the host's boot, the guest's release, the answer.
fn memory() -> PathBuf {
    cache_directory().join("kvm-probe")
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn kvm_works(kernel: &Kernel, guest: &Path) -> bool {
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return false;
    }
    let boot = boot_id();
    let key = format!("{boot} {} ", kernel.release);
    let known = std::fs::read_to_string(memory()).unwrap_or_default();
    if let Some(answer) = known.lines().find_map(|line| line.strip_prefix(&key)) {
        return answer == "works";
    }
    let (works, answer) = match probe(kernel, guest) {
        Ok(()) => (true, "works"),
        Err(Error::Died { .. } | Error::TimeLimit { .. }) => (false, "fails"),
        // That says nothing of KVM.
        Err(_) => return false,
    };
    // A probe that cannot be remembered is made again next time.
    let _ = std::fs::create_dir_all(cache_directory());
    let of_this_boot = known.lines().filter(|line| line.starts_with(&boot));
    let lines: String = of_this_boot.map(|line| format!("{line}\n")).collect();
    let _ = std::fs::write(memory(), format!("{lines}{key}{answer}\n"));
    works
}

/// Boots and does nothing.
fn probe(kernel: &Kernel, guest: &Path) -> Result<(), Error> {
    let mut machine = Machine::new(kernel.clone(), guest);
    machine.acceleration(Acceleration::Kvm).time_limit(PROBE_LIMIT);
    machine.run(&["true"]).map(|_| ())
}
