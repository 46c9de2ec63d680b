//! The tasks and CPUs of the running kernel at one moment: an iterator in the kernel that is read when asked.
//!
//! Nothing is hooked; who does not ask pays nothing. What a scheduler keeps in its own maps (levels and slices of
//! the schedulers of 2006) is read through them. Not here: rates between two moments (schedlab-report, `top`).

mod raw;

use crate::live::programs::RunningPrograms;
use crate::live::status::KernelStatus;
use crate::{machine, verifier};
use libbpf_rs::{Btf, Iter, Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel};
use schedlab_model::tasks_now::{CpuNow, MachineNow, SchedulerNow};
use schedlab_model::{CpuId, Nanos};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// CPUs that the kernel half knows at most.
const CPUS_MAX: usize = 1024;
const NS_PER_S: u64 = 1_000_000_000;

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Not allowed to use BPF.
    #[error(
        "reading the scheduler's numbers of all tasks needs root, or CAP_BPF and CAP_PERFMON: run it with sudo"
    )]
    Privilege,
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no type information in /sys/kernel/btf/vmlinux: top needs a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y, as every larger distribution's is"
    )]
    NoBtf,
    /// The kernel refused something else.
    #[error(
        "{what} failed: {reason}; top needs Linux 5.15 or newer, and the kernel's log (dmesg) may say more"
    )]
    Kernel {
        /// What.
        what: &'static str,
        /// The kernel's words.
        reason: String,
    },
    /// Reading failed.
    #[error("reading the tasks failed: {0}")]
    Read(#[from] std::io::Error),
}

fn refused(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> TopError {
    move |error| match verifier::reason(&error) {
        None => TopError::Privilege,
        Some(reason) => TopError::Kernel { what, reason },
    }
}

/// Who schedules, as far as rows need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Scheduling {
    /// Name of the sched_ext scheduler; empty if none runs.
    name: String,
    /// How many the kernel has had.
    seq: u64,
    ext: bool,
    switch_all: bool,
    /// `dsq_vtime` is a level.
    levels: bool,
    publishes_vtime: bool,
    tick_ns: u64,
    /// By which the scheduler's own slices are counted.
    jiffy_ns: u64,
}

impl Scheduling {
    fn read(tick_ns: u64) -> Scheduling {
        let status = KernelStatus::read().unwrap_or_default();
        let ext = status.state == "enabled";
        let name = if ext { status.scheduler } else { String::new() };
        Scheduling {
            ext,
            switch_all: status.switch_all,
            seq: status.enable_seq,
            levels: name == "fixed_priority",
            publishes_vtime: name != "fifo",
            tick_ns,
            jiffy_ns: 0,
            name,
        }
    }

    /// What a rank means, in words.
    fn words(&self) -> &'static str {
        match self.name.as_str() {
            "" => "fair: virtual deadline from the queue's average, * if its lag lets it run; rt: priority",
            "ingosched" | "ingo_ll" | "staircase" => "dynamic priority, 100 best to 139; nice 0 is 120",
            "nicksched" => "dynamic priority, 100 best to 159; nice 0 is 130",
            "fixed_priority" => {
                "level: static priority, 0 to 39 marked as interactive, more for children owed"
            }
            "vtime" => "virtual time: CPU time by weight, the least runs",
            "cfs" => "virtual runtime on its CPU, by weight; the least runs",
            "fifo" => "none: in order of arrival",
            _ => "dsq_vtime as this scheduler sets it",
        }
    }
}

/// Reads the machine again and again.
pub struct Sampler {
    object: Object,
    link: Link,
    scheduling: Scheduling,
    began: Instant,
    tick_ns: u64,
    cpus: usize,
    bytes: Vec<u8>,
}

impl Sampler {
    /// Loads the kernel half.
    pub fn new() -> Result<Sampler, TopError> {
        verifier::listen(PrintLevel::Warn);
        Btf::from_vmlinux().map_err(|_| TopError::NoBtf)?;
        let tick_ns = NS_PER_S / u64::from(machine::describe().hz.max(1));
        let cpus = machine::possible_cpus().clamp(1, CPUS_MAX);
        let mut scheduling = Scheduling::read(tick_ns);
        let (object, link) = load(&mut scheduling, cpus)?;
        Ok(Sampler { object, link, scheduling, began: Instant::now(), tick_ns, cpus, bytes: Vec::new() })
    }

    /// The machine now.
    pub fn sample(&mut self) -> Result<MachineNow, TopError> {
        let scheduling = Scheduling::read(self.tick_ns);
        if (scheduling.seq, &scheduling.name) != (self.scheduling.seq, &self.scheduling.name) {
            // Another scheduler has other maps.
            self.scheduling = scheduling;
            (self.object, self.link) = load(&mut self.scheduling, self.cpus)?;
        } else {
            self.scheduling.switch_all = scheduling.switch_all;
        }
        let time = Nanos(self.began.elapsed().as_nanos() as u64);
        self.bytes.clear();
        let mut rows = Iter::new(&self.link).map_err(refused("walking the tasks"))?;
        rows.read_to_end(&mut self.bytes)?;
        let tasks = raw::task_rows(&self.bytes).map(|row| row.task(&self.scheduling)).collect();
        let cpus = self.cpus_now()?;
        let name = if self.scheduling.ext { &self.scheduling.name } else { "fair" };
        let scheduler =
            SchedulerNow { name: name.to_owned(), rank_words: self.scheduling.words().to_owned() };
        Ok(MachineNow { time, tasks, cpus, scheduler })
    }

    fn cpus_now(&self) -> Result<Vec<CpuNow>, TopError> {
        let map = self.object.maps().find(|map| map.name() == "cpus").expect("our object has this map");
        let idle = idle_times(&std::fs::read_to_string("/proc/stat").unwrap_or_default(), user_hz());
        let mut rows = Vec::new();
        for cpu in 0..self.cpus as u32 {
            let row = map.lookup(&cpu.to_ne_bytes(), MapFlags::ANY).map_err(refused("reading CPUs"))?;
            rows.extend(row.as_deref().and_then(raw::cpu_row).map(|row| (cpu, row)));
        }
        // A CPU that no task is on is off.
        let walk = rows.iter().map(|(_, row)| row.walk).max();
        let filled = rows.iter().filter(|(_, row)| Some(row.walk) == walk);
        let times =
            |cpu: u32| idle.iter().find(|(number, ..)| *number == cpu).map(|(_, idle, all)| (*idle, *all));
        Ok(filled.filter_map(|(cpu, row)| row.cpu(CpuId(*cpu), times(*cpu), &self.scheduling)).collect())
    }
}

/// Loads the object, with the running scheduler's own map of tasks if it is one of 2006.
fn load(scheduling: &mut Scheduling, cpus: usize) -> Result<(Object, Link), TopError> {
    let opening = ObjectBuilder::default().open_memory(schedlab_objects::TOP);
    let mut open = opening.map_err(refused("opening top's object"))?;
    let entities = entities(scheduling);
    configure(&mut open, cpus, entities.as_ref().map(AsFd::as_fd))?;
    let object = open.load().map_err(refused("loading top's kernel half"))?;
    let link = {
        let program = object.progs_mut().find(|program| program.name() == "tell_tasks");
        program
            .expect("our object has this program")
            .attach()
            .map_err(refused("attaching top's kernel half"))?
    };
    Ok((object, link))
}

/// The map of tasks of the running scheduler, if its values begin with `struct entity`.
fn entities(scheduling: &mut Scheduling) -> Option<libbpf_rs::MapHandle> {
    if !["ingosched", "ingo_ll", "nicksched", "staircase"].contains(&scheduling.name.as_str()) {
        return None;
    }
    let programs = RunningPrograms::find(&scheduling.name);
    let hz = programs.variable("hz").and_then(|hz| u64::try_from(hz).ok()).unwrap_or(0);
    scheduling.jiffy_ns = NS_PER_S / hz.max(1);
    programs.map(|map| map == "tasks")
}

fn configure(open: &mut OpenObject, cpus: usize, entities: Option<BorrowedFd<'_>>) -> Result<(), TopError> {
    for mut map in open.maps_mut() {
        match map.name().to_string_lossy().as_ref() {
            ".rodata.config" => {
                let value = map.initial_value_mut().expect("read-only data has a value");
                value[..4].copy_from_slice(&u32::from(entities.is_some()).to_ne_bytes());
            }
            "cpus" => map.set_max_entries(cpus as u32).map_err(refused("sizing the table of CPUs"))?,
            "tasks" => {
                if let Some(entities) = entities {
                    map.reuse_fd(entities).map_err(refused("reading the scheduler's own map"))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Numbers of the control groups whose path below /sys/fs/cgroup contains this text, and of all below them.
pub fn cgroups_named(text: &str) -> Vec<u64> {
    let root = Path::new("/sys/fs/cgroup");
    let mut numbers = Vec::new();
    add_cgroups(root, root, text.trim_matches('/'), &mut numbers);
    numbers
}

fn add_cgroups(root: &Path, directory: &Path, text: &str, numbers: &mut Vec<u64>) {
    let below = directory.strip_prefix(root).unwrap_or(directory);
    if below.to_string_lossy().contains(text) {
        numbers.extend(std::fs::metadata(directory).map(|metadata| metadata.ino()));
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        add_cgroups(root, &entry.path(), text, numbers);
    }
}

/// Ticks a second of what the kernel prints in /proc.
fn user_hz() -> u64 {
    // SAFETY: a plain question.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(hz).unwrap_or(100).max(1)
}

/// Of each CPU in `/proc/stat`, its number, how long it idled and for how long it has been counted.
fn idle_times(text: &str, user_hz: u64) -> Vec<(u32, Nanos, Nanos)> {
    let cpu = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        // user nice system idle iowait irq softirq steal; guest times are in user's already.
        let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let time = |ticks: u64| Nanos(ticks * (NS_PER_S / user_hz));
        Some((number, time(ticks.get(3)? + ticks.get(4)?), time(ticks.iter().sum())))
    };
    text.lines().filter(|line| !line.starts_with("cpu ")).map_while(cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_times_are_read_for_each_cpu() {
        let text = "cpu  9 9 9 9\ncpu0 10 0 5 80 5 0 0 0 3 0\ncpu2 100 0 0 0 0 0 0 0 0 0\nintr 1 2\n";
        let second = Nanos(NS_PER_S);
        assert_eq!(
            idle_times(text, 100),
            [(0, Nanos(850_000_000), second), (2, Nanos(0), second)],
            "iowait is idling, guest time is not counted twice"
        );
    }
}
