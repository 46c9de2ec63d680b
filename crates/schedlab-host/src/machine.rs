//! The machine under our feet, described: kernel, CPUs and what they share, ticks, preemption.
//!
//! Read from sysfs and procfs, here or from a copied tree. Costs are assumed until measured; each says so.

use schedlab_model::cpu_set::{CPUS_MAX, ParseCpuSetError};
use schedlab_model::machine::{IdleState, KernelVersion, MachineDescription, Origin, Preemption};
use schedlab_model::topology::{CpuInfo, Topology};
use schedlab_model::{CpuId, CpuSet, Nanos};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Between what was seen to stay and to leave under `sched_vcpu_pack=15`.
const VCPU_PACK_PERCENT: u32 = 68;

/// Which CPUs are online.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Why a copied tree does not tell a machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list of CPUs is not there.
    #[error("{}: {error}. Copy it too: it tells which CPUs the machine has", file.display())]
    Unreadable {
        /// The list.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The list of CPUs is none.
    #[error("{}: {error}", file.display())]
    NoList {
        /// The list.
        file: PathBuf,
        /// Why, and the remedy.
        error: ParseCpuSetError,
    },
    /// No CPU is online.
    #[error("{} names no CPU: write those that are online, e.g. 0-3,8", .0.display())]
    NoCpu(PathBuf),
}

/// Describes the running machine. Where sysfs does not tell its CPUs, or tells more than can be described, it has as many as
/// this program may use.
pub fn describe() -> MachineDescription {
    let tree = Tree::new(Path::new("/"));
    let usable = || std::thread::available_parallelism().map_or(1, usize::from).min(CPUS_MAX);
    let online = tree.online().unwrap_or_else(|_| CpuSet::first(usable()));
    tree.describe("this", &online)
}

/// Describes the machine whose `/sys`, `/proc` and `/boot` were copied below `root`. Needs the list of CPUs that are
/// online; what else is missing is assumed.
pub fn describe_at(root: &Path) -> Result<MachineDescription, Error> {
    let tree = Tree::new(root);
    let online = tree.online()?;
    Ok(tree.describe("copied", &online))
}

/// Seconds of Unix time.
pub fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Release of the running kernel, as `uname -r` prints it.
pub fn kernel_release() -> String {
    Tree::new(Path::new("/")).release()
}

/// Numbers of CPUs that may exist: one more than the highest.
pub fn possible_cpus() -> usize {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let set: CpuSet = list.trim().parse().unwrap_or(CpuSet::EMPTY);
    set.iter().last().map_or(1, |cpu| cpu.index() + 1)
}

/// Which scheduler runs normal tasks: `fair`, or the name of the sched_ext scheduler that is enabled.
pub fn running_scheduler() -> String {
    let state = fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default();
    let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    if state.trim() == "enabled" && !name.trim().is_empty() {
        name.trim().to_owned()
    } else {
        "fair".to_owned()
    }
}

/// A machine's sysfs and procfs, in place or copied below another root.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(crate) fn new(root: &Path) -> Tree {
        Tree { root: root.to_owned() }
    }

    /// Where this is.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// What the file says, without white space around it.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, path: &str) -> Option<u32> {
        self.text(path)?.parse().ok()
    }

    fn release(&self) -> String {
        self.text("/proc/sys/kernel/osrelease")
            .or_else(|| self.text("/proc/version")?.split_whitespace().nth(2).map(str::to_owned))
            .unwrap_or_else(|| "unknown".to_owned())
    }

    fn model_name(&self) -> String {
        let text = self.text("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("model name"));
        line.map_or("unknown processor", |line| line.trim_start_matches([' ', '\t', ':'])).to_owned()
    }

    /// CPUs that are online; at least one.
    fn online(&self) -> Result<CpuSet, Error> {
        let file = self.path(ONLINE);
        let list = match fs::read_to_string(&file) {
            Ok(list) => list,
            Err(error) => return Err(Error::Unreadable { file, error }),
        };
        match list.trim().parse::<CpuSet>() {
            Ok(set) if set.is_empty() => Err(Error::NoCpu(file)),
            Ok(set) => Ok(set),
            Err(error) => Err(Error::NoList { file, error }),
        }
    }

    fn describe(&self, name: &str, online: &CpuSet) -> MachineDescription {
        let release = self.release();
        let mut machine = MachineDescription::generic(name, self.topology(online));
        machine.description = format!("{}, Linux {release}", self.model_name());
        machine.kernel = release.parse().unwrap_or(KernelVersion::V6_18);
        let config = self.kernel_config(&release);
        machine.hz = config.as_deref().and_then(config_hz).unwrap_or(machine.hz);
        machine.preemption = self.preemption(config.as_deref());
        machine.vcpu_pack_percent = self.vcpu_pack_percent();
        machine.idle_states = self.idle_states(online.first_cpu().map_or(0, CpuId::index));
        machine
    }

    /// Rows up to the highest CPU online, as events name CPUs by their numbers. Those in between are offline.
    fn topology(&self, online: &CpuSet) -> Topology {
        let count = online.iter().last().map_or(1, |cpu| cpu.index() + 1);
        let rows = self.rows(online);
        let first = rows.values().next().copied();
        let mut before = first.unwrap_or(CpuInfo { core: 0, llc: 0, node: 0, capacity: 1024 });
        let mut cores = rows.values().map(|row| row.core + 1).max().unwrap_or(0);
        let mut offline = CpuSet::EMPTY;
        // Linux does not tell where a CPU is that is offline: it gets a core of its own beside its neighbour.
        let all = (0..count).map(|cpu| match rows.get(&cpu) {
            Some(row) => {
                before = *row;
                *row
            }
            None => {
                offline.insert(CpuId(cpu as u32));
                cores += 1;
                CpuInfo { core: cores - 1, ..before }
            }
        });
        let all = Topology::from_cpus(all.collect());
        let all = all.unwrap_or_else(|_| Topology::flat(count as u32).expect("1 to 1024 CPUs"));
        all.with_offline(offline).expect("the highest CPU is online")
    }

    /// Of each CPU that is online.
    fn rows(&self, online: &CpuSet) -> BTreeMap<usize, CpuInfo> {
        let nodes = self.nodes();
        let mut numbers = [BTreeMap::new(), BTreeMap::new()];
        let mut row = |cpu: usize| {
            let node = nodes.get(&cpu).copied().unwrap_or(0);
            let core = (node, self.shared(cpu, "topology/thread_siblings_list").unwrap_or(cpu));
            let llc = (node, self.last_level_cache(cpu).unwrap_or(usize::MAX));
            let [cores, llcs] = &mut numbers;
            let capacity = self.capacity(cpu);
            CpuInfo { core: dense(cores, core), llc: dense(llcs, llc), node, capacity }
        };
        online.iter().map(|cpu| (cpu.index(), row(cpu.index()))).collect()
    }

    fn capacity(&self, cpu: usize) -> u32 {
        let read = self.number(&format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity"));
        read.unwrap_or(1024).clamp(1, 1024)
    }

    /// The lowest CPU of a list in a CPU's directory: a name for what they share.
    fn shared(&self, cpu: usize, file: &str) -> Option<usize> {
        let list: CpuSet = self.text(&format!("/sys/devices/system/cpu/cpu{cpu}/{file}"))?.parse().ok()?;
        list.first_cpu().map(CpuId::index)
    }

    fn last_level_cache(&self, cpu: usize) -> Option<usize> {
        let level = |index: u32| {
            let directory = format!("cache/index{index}");
            let level = self.number(&format!("/sys/devices/system/cpu/cpu{cpu}/{directory}/level"))?;
            Some((level, self.shared(cpu, &format!("{directory}/shared_cpu_list"))?))
        };
        (0..16).map_while(level).max_by_key(|(level, _)| *level).map(|(_, first)| first)
    }

    fn nodes(&self) -> BTreeMap<usize, u32> {
        let mut nodes = BTreeMap::new();
        for node in 0..1024_u32 {
            let path = format!("/sys/devices/system/node/node{node}/cpulist");
            let Some(list) = self.text(&path).and_then(|list| list.parse::<CpuSet>().ok()) else { continue };
            list.iter().for_each(|cpu| {
                nodes.insert(cpu.index(), node);
            });
        }
        nodes
    }

    fn kernel_config(&self, release: &str) -> Option<String> {
        if let Ok(text) = fs::read_to_string(self.path(&format!("/boot/config-{release}"))) {
            return Some(text);
        }
        let mut text = String::new();
        let packed = fs::File::open(self.path("/proc/config.gz")).ok()?;
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// A vendor's boot option that packs tasks on few CPUs. What its number means is not public: with 15 a wakee
    /// stayed where use with it was 67 % and left where it was 71 %.
    fn vcpu_pack_percent(&self) -> u32 {
        let command_line = self.text("/proc/cmdline").unwrap_or_default();
        let mut words = command_line.split_whitespace();
        let number = words.find_map(|word| word.strip_prefix("sched_vcpu_pack=")?.parse::<u32>().ok());
        if number.is_some_and(|number| number > 0) { VCPU_PACK_PERCENT } else { 0 }
    }

    /// What the driver says of the states of the first CPU online; those that are switched off are left out.
    fn idle_states(&self, cpu: usize) -> Vec<IdleState> {
        let state = |index: u32| {
            let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}");
            let micros = |file: &str| {
                Some(Nanos::from_micros(self.text(&format!("{directory}/{file}"))?.parse().ok()?))
            };
            let state = IdleState {
                name: self.text(&format!("{directory}/name"))?,
                exit_latency: micros("latency")?,
                target_residency: micros("residency")?,
                origin: Origin::Published,
            };
            Some((state, self.number(&format!("{directory}/disable")).unwrap_or(0)))
        };
        let states = (0..16).map_while(state);
        states.filter(|(_, disabled)| *disabled == 0).map(|(state, _)| state).collect()
    }

    /// debugfs shows the model in brackets; where it may not be read, the command line and the configuration.
    fn preemption(&self, config: Option<&str>) -> Preemption {
        let named = |name: &str| match name {
            "none" => Some(Preemption::None),
            "voluntary" => Some(Preemption::Voluntary),
            "full" => Some(Preemption::Full),
            "lazy" => Some(Preemption::Lazy),
            _ => None,
        };
        let debugfs = self.text("/sys/kernel/debug/sched/preempt");
        let shown = debugfs.as_deref().and_then(|text| text.split(['(', ')']).nth(1)).and_then(named);
        let command_line = self.text("/proc/cmdline").unwrap_or_default();
        let option = command_line.split_whitespace().rev().find_map(|word| word.strip_prefix("preempt="));
        let has = |symbol: &str| config.is_some_and(|text| text.lines().any(|line| line == symbol));
        shown.or_else(|| option.and_then(named)).unwrap_or_else(|| {
            if has("CONFIG_PREEMPT_NONE=y") {
                Preemption::None
            } else if has("CONFIG_PREEMPT_VOLUNTARY=y") {
                Preemption::Voluntary
            } else if has("CONFIG_PREEMPT_LAZY=y") {
                Preemption::Lazy
            } else {
                Preemption::Full
            }
        })
    }
}

/// Dense numbers in order of appearance.
fn dense(numbers: &mut BTreeMap<(u32, usize), u32>, key: (u32, usize)) -> u32 {
    let next = numbers.len() as u32;
    *numbers.entry(key).or_insert(next)
}

fn config_hz(config: &str) -> Option<u32> {
    config.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok())
}

/// `uname -v`, e.g. `#1 SMP PREEMPT_DYNAMIC`.
pub fn kernel_build() -> String {
    // SAFETY: the struct is plain data that the call fills; its texts end with a zero.
    unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        if libc::uname(&raw mut names) != 0 {
            return String::new();
        }
        CStr::from_ptr(names.version.as_ptr()).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_its_cpus() {
        let machine = describe();
        assert_eq!(machine.topology.cpu_count(), possible_cpus().min(machine.topology.cpu_count()));
        assert!(machine.topology.cpu_count() >= 1 && (100..=1000).contains(&machine.hz));
        assert_ne!(kernel_release(), "unknown");
    }

    fn write_below(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("has one")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// A tree with this list of CPUs that are online, two threads a core.
    fn described(online: &str) -> Result<MachineDescription, Error> {
        let directory = tempfile::tempdir().expect("a place");
        write_below(directory.path(), ONLINE.trim_start_matches('/'), online);
        let set = online.parse().unwrap_or(CpuSet::EMPTY);
        for cpu in set.iter().map(|cpu| cpu.0) {
            // The kernel lists threads that are online only.
            let pair = [cpu & !1, cpu | 1].map(CpuId).into_iter().filter(|cpu| set.contains(*cpu));
            let list = format!("{}\n", pair.collect::<CpuSet>());
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            write_below(directory.path(), &file, &list);
        }
        describe_at(directory.path())
    }

    #[test]
    fn offline_cpus_are_no_threads_of_their_neighbours() {
        for (online, offline, threads, cores) in [
            ("0-3\n", "", true, vec![0, 0, 1, 1]),
            ("0,2-3\n", "1", true, vec![0, 2, 1, 1]),
            ("1\n", "0", false, vec![1, 0]),
            ("0,2,4\n", "1,3", false, vec![0, 3, 1, 4, 2]),
            ("3,5\n", "0-2,4", false, vec![2, 3, 4, 0, 5, 1]),
        ] {
            let topology = described(online).expect(online).topology;
            assert_eq!(topology.offline().to_string(), offline, "{online}");
            assert_eq!(topology.has_smt(), threads, "{online}");
            assert_eq!(topology.cpus().iter().map(|row| row.core).collect::<Vec<_>>(), cores, "{online}");
        }
    }

    #[test]
    fn a_tree_without_cpus_is_refused() {
        for (online, says) in [
            ("zebra\n", "'zebra' is not a CPU list: write e.g. 0-3,8"),
            ("0-2000\n", "CPUs below 1024"),
            ("\n", "names no CPU: write those that are online"),
            ("", "names no CPU"),
        ] {
            let error = described(online).expect_err("refused").to_string();
            assert!(error.contains(ONLINE) && error.contains(says), "{online:?}: {error}");
        }
        let empty = tempfile::tempdir().expect("a place");
        let error = describe_at(empty.path()).expect_err("refused").to_string();
        assert!(
            error.contains(ONLINE) && error.ends_with("Copy it too: it tells which CPUs the machine has")
        );
    }

    #[test]
    fn a_copied_tree_is_described() {
        let directory = tempfile::tempdir().expect("a place");
        let write = |path: &str, text: &str| write_below(directory.path(), path, text);
        write("proc/sys/kernel/osrelease", "6.12.1-test\n");
        write("boot/config-6.12.1-test", "CONFIG_HZ=1000\nCONFIG_PREEMPT_VOLUNTARY=y\n");
        write("sys/devices/system/cpu/online", "0-3\n");
        for cpu in 0..4 {
            let base = format!("sys/devices/system/cpu/cpu{cpu}");
            let pair = if cpu < 2 { "0-1" } else { "2-3" };
            write(&format!("{base}/topology/thread_siblings_list"), pair);
            write(&format!("{base}/cache/index0/level"), "1");
            write(&format!("{base}/cache/index0/shared_cpu_list"), pair);
            write(&format!("{base}/cache/index1/level"), "3");
            write(&format!("{base}/cache/index1/shared_cpu_list"), "0-3");
            write(&format!("{base}/cpu_capacity"), if cpu < 2 { "1024" } else { "446" });
        }
        for (index, [name, latency, residency, disable]) in
            [["C1", "1", "1", "0"], ["C1E", "4", "4", "1"], ["C6", "170", "600", "0"]].iter().enumerate()
        {
            let base = format!("sys/devices/system/cpu/cpu0/cpuidle/state{index}");
            write(&format!("{base}/name"), name);
            write(&format!("{base}/latency"), latency);
            write(&format!("{base}/residency"), residency);
            write(&format!("{base}/disable"), disable);
        }
        let machine = describe_at(directory.path()).expect("a machine");
        let states: Vec<_> = machine
            .idle_states
            .iter()
            .map(|state| (state.name.as_str(), state.exit_latency.0, state.target_residency.0))
            .collect();
        assert_eq!(states, [("C1", 1_000, 1_000), ("C6", 170_000, 600_000)], "C1E is switched off");
        assert_eq!((machine.hz, machine.preemption), (1000, Preemption::Voluntary));
        assert_eq!(machine.kernel, KernelVersion::V6_12);
        let rows: Vec<_> =
            machine.topology.cpus().iter().map(|row| (row.core, row.llc, row.capacity)).collect();
        assert_eq!(rows, [(0, 0, 1024), (0, 0, 1024), (1, 0, 446), (1, 0, 446)]);
    }
}
