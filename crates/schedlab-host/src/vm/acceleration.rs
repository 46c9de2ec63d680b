//! Whether KVM works here: found out by booting, because `/dev/kvm` may open and yet not boot a stock kernel.
//!
//! The answer is kept for as long as this host kernel runs. Emulation is always possible.

use super::{Error, Kernel, Machine, cache_directory};
use std::fs::File;
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
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return false;
    }
    // What cannot be remembered is tried again next time.
    let _ = std::fs::create_dir_all(cache_directory());
    remembered(&memory(), &boot_id(), &kernel.release, || match probe(kernel, guest) {
        Ok(()) => Some(true),
        Err(Error::Died { .. } | Error::TimeLimit { .. }) => Some(false),
        // That says nothing of KVM.
        Err(_) => None,
    })
}

/// What is in the file of this kernel since this boot, else what `try_it` says. One tries at a time: others, who may start
/// with it, wait for its answer instead of making it slower.
fn remembered(file: &Path, boot: &str, release: &str, try_it: impl FnOnce() -> Option<bool>) -> bool {
    let lock = File::create(file.with_extension("lock")).and_then(|lock| lock.lock().map(|()| lock));
    let key = format!("{boot} {release} ");
    let known = std::fs::read_to_string(file).unwrap_or_default();
    if let Some(answer) = known.lines().find_map(|line| line.strip_prefix(&key)) {
        return answer == "works";
    }
    let Some(works) = try_it() else { return false };
    let of_this_boot = known.lines().filter(|line| line.starts_with(boot));
    let lines: String = of_this_boot.map(|line| format!("{line}\n")).collect();
    let answer = if works { "works" } else { "fails" };
    let _ = std::fs::write(file, format!("{lines}{key}{answer}\n"));
    drop(lock);
    works
}

/// Boots and does nothing.
fn probe(kernel: &Kernel, guest: &Path) -> Result<(), Error> {
    let mut machine = Machine::new(kernel.clone(), guest);
    machine.acceleration(Acceleration::Kvm).time_limit(PROBE_LIMIT);
    machine.run(&["true"]).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn those_who_start_together_try_once() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (file, tries) = (directory.path().join("kvm-probe"), AtomicU32::new(0));
        let try_it = || {
            tries.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            Some(true)
        };
        std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..4).map(|_| scope.spawn(|| remembered(&file, "boot", "7.2", try_it))).collect();
            assert!(all.into_iter().all(|one| one.join().expect("no panic")));
        });
        assert_eq!(tries.load(Ordering::Relaxed), 1);
        assert!(!remembered(&file, "boot", "6.12", || Some(false)), "another kernel");
        assert!(!remembered(&file, "boot", "6.1", || None), "an answer that says nothing");
        assert!(remembered(&file, "boot", "7.2", || Some(false)), "as it was");
        assert!(!remembered(&file, "later", "7.2", || Some(false)), "after the next boot");
        let kept = std::fs::read_to_string(&file).expect("a file");
        assert_eq!(kept, "later 7.2 fails\n", "earlier boots are forgotten");
    }
}
