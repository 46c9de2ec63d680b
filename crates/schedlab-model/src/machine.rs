//! A machine as the simulator and the report see it: kernel, topology, what things cost.
//!
//! Every cost says where it comes from; `schedlab machine` writes such a file. The `Machine` that a
//! control loop drives is in [`crate::outcome`].

use crate::calibration::Calibration;
use crate::memory::MachineMemory;
use crate::time::Nanos;
use crate::topology::Topology;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The kernel whose scheduler is meant: selects generation, defaults and BTF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KernelVersion {
    /// `6` of 6.18.
    pub major: u16,
    /// `18` of 6.18.
    pub minor: u16,
}

/// A kernel name that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a kernel version: write e.g. 6.18 or 7.2")]
pub struct ParseKernelVersionError(String);

impl KernelVersion {
    /// CFS, the oldest kernel modelled.
    pub const V5_7: KernelVersion = KernelVersion { major: 5, minor: 7 };
    /// CFS as in Debian 12.
    pub const V6_1: KernelVersion = KernelVersion { major: 6, minor: 1 };
    /// First kernel with sched_ext.
    pub const V6_12: KernelVersion = KernelVersion { major: 6, minor: 12 };
    /// EEVDF with `vprot`.
    pub const V6_18: KernelVersion = KernelVersion { major: 6, minor: 18 };
    /// The newest kernel modelled.
    pub const V7_2: KernelVersion = KernelVersion { major: 7, minor: 2 };
}

impl FromStr for KernelVersion {
    type Err = ParseKernelVersionError;
    /// Reads `6.18` and also a full release such as `6.18.44-cloud-amd64`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseKernelVersionError(text.to_owned());
        let mut parts = text.trim().trim_start_matches('v').split(['.', '-', '+']);
        let mut number = || parts.next().and_then(|part| part.parse().ok()).ok_or_else(fail);
        Ok(KernelVersion { major: number()?, minor: number()? })
    }
}

impl TryFrom<String> for KernelVersion {
    type Error = ParseKernelVersionError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<KernelVersion> for String {
    fn from(version: KernelVersion) -> String {
        version.to_string()
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Preemption model (`CONFIG_PREEMPT*`, `preempt=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preemption {
    /// No kernel preemption.
    None,
    /// At voluntary points.
    Voluntary,
    /// Anywhere.
    #[default]
    Full,
    /// Full for real-time, at the tick for fair tasks.
    Lazy,
}

/// Where a cost was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured on the machine.
    Measured,
    /// From a publication or a data sheet.
    Published,
    /// Chosen to be plausible; no source.
    #[default]
    Assumed,
}

/// Of how many of 1000 samples a quantile of [`Cost::quantiles`] is not exceeded.
///
/// Not the least: one sample far below the others (a CPU that had not halted yet) would stand for all between it and the
/// next quantile.
pub const QUANTILES_PERMILLE: [u32; 8] = [10, 50, 250, 500, 750, 950, 990, 999];

/// One cost: typical value and how much it scatters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Typical value: of measured ones the mean without the lowest and the highest twentieth.
    pub value: Nanos,
    /// Half the width of the scatter, in percent of the value; drawn uniformly from the seed.
    #[serde(default)]
    pub spread_percent: u32,
    /// What was measured at [`QUANTILES_PERMILLE`], in ns: drawn from instead of the spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<[u64; 8]>,
    /// Where it comes from.
    #[serde(default)]
    pub origin: Origin,
}

impl Cost {
    /// An assumed cost.
    pub const fn assumed(ns: u64, spread_percent: u32) -> Cost {
        Cost { value: Nanos(ns), spread_percent, quantiles: None, origin: Origin::Assumed }
    }

    /// Without scatter, in ns: the median where quantiles were measured.
    pub fn typical(&self) -> u64 {
        self.quantiles.map_or(self.value.0, |quantiles| quantiles[3])
    }

    /// Whether it was measured on the machine.
    pub fn is_measured(&self) -> bool {
        self.origin == Origin::Measured
    }
}

/// What things cost on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// Switching between two tasks, both directions counted once (`__schedule` and `switch_to`).
    pub context_switch: Cost,
    /// Waking a task, paid by the waker.
    pub wakeup: Cost,
    /// From sending a reschedule interrupt to its handler on a running CPU.
    pub ipi: Cost,
    /// The same to a CPU that is idle: a halted virtual CPU has to be started by its host first. Measured, it is what
    /// [`Costs::idle_exit`]'s typical value leaves of the way to the switch, with all of its scatter.
    pub ipi_idle: Cost,
    /// Sending it, paid by the sender: in a guest often an exit to the host.
    pub ipi_send: Cost,
    /// From the interrupt to running again, out of the idle loop.
    pub idle_exit: Cost,
    /// The tick's handler.
    pub tick: Cost,
    /// A device or timer interrupt's handler.
    pub interrupt: Cost,
    /// From a timer's expiry to its handler.
    pub timer_latency: Cost,
    /// Lost warmth after moving to another thread of the core.
    pub migration_smt: Cost,
    /// Lost warmth after moving within a last-level cache.
    pub migration_cache: Cost,
    /// Lost warmth after moving to another cache of the node.
    pub migration_node: Cost,
    /// Lost warmth after moving to another node.
    pub migration_remote: Cost,
    /// One pass of periodic or newidle balancing for each CPU looked at.
    pub balance_per_cpu: Cost,
    /// One thousand BPF instructions of a sched_ext scheduler.
    pub bpf_kilo_instructions: Cost,
    /// Entering and leaving a sched_ext callback.
    pub ext_callback: Cost,
    /// Taking the lock of a shared dispatch queue, and its lines, from a CPU of the same last-level cache that had
    /// it before; nobody else can take it so long.
    pub dsq_lock_cache: Cost,
    /// The same from a CPU of another cache of the node.
    pub dsq_lock_node: Cost,
    /// The same from a CPU of another node.
    pub dsq_lock_remote: Cost,
    /// A write to or a read from a pipe, besides waking and waiting.
    pub pipe_call: Cost,
    /// The same of a Unix socket; as of a pipe where the file does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_call: Option<Cost>,
    /// A futex call, besides waking and waiting.
    pub futex_call: Cost,
    /// What a call that waits takes beside the switches: joining a queue of waiters, leaving the run queue, going on.
    pub wait_call: Cost,
    /// Making another process, paid by the parent.
    pub fork_call: Cost,
    /// What being a process of its own takes until its own work begins, paid by the child.
    pub fork_child: Cost,
    /// What the end of a process takes, paid by it.
    pub exit_call: Cost,
    /// How much of `ipi` a running CPU stands still before the interrupt begins: a virtual CPU may be stopped by its
    /// host to be handed one; 0 on hardware.
    pub ipi_stall: Cost,
}

impl Costs {
    /// How many costs there are.
    pub const COUNT: usize = 27;

    /// Their names in a machine file, in the order of [`Costs::all`].
    pub const NAMES: [&str; Costs::COUNT] = [
        "context_switch",
        "wakeup",
        "ipi",
        "ipi_idle",
        "ipi_send",
        "idle_exit",
        "tick",
        "interrupt",
        "timer_latency",
        "migration_smt",
        "migration_cache",
        "migration_node",
        "migration_remote",
        "balance_per_cpu",
        "bpf_kilo_instructions",
        "ext_callback",
        "dsq_lock_cache",
        "dsq_lock_node",
        "dsq_lock_remote",
        "pipe_call",
        "futex_call",
        "wait_call",
        "fork_call",
        "fork_child",
        "exit_call",
        "ipi_stall",
        "socket_call",
    ];

    /// Nothing costs time: for runs that show a rule and not a machine.
    pub fn none() -> Costs {
        let free = Cost::assumed(0, 0);
        Costs {
            context_switch: free,
            wakeup: free,
            ipi: free,
            ipi_idle: free,
            ipi_send: free,
            idle_exit: free,
            tick: free,
            interrupt: free,
            timer_latency: free,
            migration_smt: free,
            migration_cache: free,
            migration_node: free,
            migration_remote: free,
            balance_per_cpu: free,
            bpf_kilo_instructions: free,
            ext_callback: free,
            dsq_lock_cache: free,
            dsq_lock_node: free,
            dsq_lock_remote: free,
            pipe_call: free,
            socket_call: None,
            futex_call: free,
            wait_call: free,
            fork_call: free,
            fork_child: free,
            exit_call: free,
            ipi_stall: free,
        }
    }

    /// Those that the machine has of its own, by name: not what is as another.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, Cost)> {
        let shared = usize::from(self.socket_call.is_none());
        Costs::NAMES.into_iter().zip(self.all()).take(Costs::COUNT - shared)
    }

    /// All of them, in the order of the simulator's `CostKind`.
    pub fn all(&self) -> [Cost; Costs::COUNT] {
        [
            self.context_switch,
            self.wakeup,
            self.ipi,
            self.ipi_idle,
            self.ipi_send,
            self.idle_exit,
            self.tick,
            self.interrupt,
            self.timer_latency,
            self.migration_smt,
            self.migration_cache,
            self.migration_node,
            self.migration_remote,
            self.balance_per_cpu,
            self.bpf_kilo_instructions,
            self.ext_callback,
            self.dsq_lock_cache,
            self.dsq_lock_node,
            self.dsq_lock_remote,
            self.pipe_call,
            self.futex_call,
            self.wait_call,
            self.fork_call,
            self.fork_child,
            self.exit_call,
            self.ipi_stall,
            self.socket_call.unwrap_or(self.pipe_call),
        ]
    }
}

impl Default for Costs {
    /// Plausible for a recent x86 server or virtual machine; every origin says `assumed`.
    fn default() -> Costs {
        Costs {
            context_switch: Cost::assumed(1_200, 20),
            wakeup: Cost::assumed(800, 20),
            ipi: Cost::assumed(1_500, 30),
            ipi_idle: Cost::assumed(1_500, 30),
            ipi_send: Cost::assumed(300, 30),
            idle_exit: Cost::assumed(1_500, 40),
            tick: Cost::assumed(1_500, 30),
            interrupt: Cost::assumed(1_500, 30),
            timer_latency: Cost::assumed(1_000, 50),
            migration_smt: Cost::assumed(500, 50),
            migration_cache: Cost::assumed(3_000, 50),
            migration_node: Cost::assumed(15_000, 50),
            migration_remote: Cost::assumed(30_000, 50),
            balance_per_cpu: Cost::assumed(150, 30),
            bpf_kilo_instructions: Cost::assumed(400, 20),
            ext_callback: Cost::assumed(30, 20),
            dsq_lock_cache: Cost::assumed(60, 0),
            dsq_lock_node: Cost::assumed(250, 0),
            dsq_lock_remote: Cost::assumed(500, 0),
            pipe_call: Cost::assumed(400, 20),
            socket_call: None,
            futex_call: Cost::assumed(250, 20),
            wait_call: Cost::assumed(300, 20),
            fork_call: Cost::assumed(60_000, 30),
            fork_child: Cost::assumed(20_000, 30),
            exit_call: Cost::assumed(40_000, 30),
            ipi_stall: Cost::assumed(0, 0),
        }
    }
}

/// An idle state of a CPU (`/sys/devices/system/cpu/cpu*/cpuidle/state*`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    /// Its name, e.g. `C6`.
    pub name: String,
    /// Hardware time to leave it, on top of [`Costs::idle_exit`].
    pub exit_latency: Nanos,
    /// A CPU that idles at least this long is in it, unless a deeper one's is met too.
    pub target_residency: Nanos,
    /// Where the times come from.
    #[serde(default)]
    pub origin: Origin,
}

/// A machine file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineDescription {
    /// Short name, as in `--machine NAME`.
    pub name: String,
    /// What it is and where the numbers come from.
    #[serde(default)]
    pub description: String,
    /// The kernel it runs.
    pub kernel: KernelVersion,
    /// Ticks a second (`CONFIG_HZ`).
    #[serde(default = "hz_default")]
    pub hz: u32,
    /// Preemption model.
    #[serde(default)]
    pub preemption: Preemption,
    /// Default timer slack of normal tasks.
    #[serde(default = "timer_slack_default")]
    pub timer_slack: Nanos,
    /// Not in mainline: guests booted with `sched_vcpu_pack` leave a wakee on its busy CPU while that has room,
    /// below so many percent of use, though others idle; 0 for kernels without. The rule is fitted from what one
    /// such kernel was seen to do.
    #[serde(default)]
    pub vcpu_pack_percent: u32,
    /// Idle states, the shallowest first; a measured `idle_exit` or `ipi_idle` holds their latencies
    /// already and leaves them out.
    #[serde(default, rename = "idle_state", skip_serializing_if = "Vec::is_empty")]
    pub idle_states: Vec<IdleState>,
    /// Its CPUs.
    pub topology: Topology,
    /// What things cost.
    #[serde(default)]
    pub costs: Costs,
    /// Its memory, where that is to run short; without, there is always enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MachineMemory>,
    /// How that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

fn hz_default() -> u32 {
    250
}

fn timer_slack_default() -> Nanos {
    Nanos::from_micros(50)
}

/// The longest that anything may cost, and the longest residency.
const LONGEST: Nanos = Nanos(10_000_000_000);

/// A number of a machine file that no machine has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Ticks a second.
    #[error("hz is {0}: give 10 to 10000")]
    Hz(u32),
    /// Its memory.
    #[error(
        "memory.kib is {0}: give 1024 to 4294967296, or leave [memory] out for a machine that always has enough"
    )]
    Memory(u64),
    /// A cost or latency.
    #[error("{name} is {value}: give at most 10s")]
    Long {
        /// Its name in the file.
        name: String,
        /// What it says.
        value: Nanos,
    },
}

impl MachineDescription {
    /// Whether its numbers are such as machines have.
    pub fn check(&self) -> Result<(), MachineError> {
        if !(10..=10_000).contains(&self.hz) {
            return Err(MachineError::Hz(self.hz));
        }
        let costs = self.costs.named().flat_map(|(name, cost)| {
            let quantiles = cost.quantiles.unwrap_or_default().map(Nanos);
            std::iter::once(cost.value).chain(quantiles).map(move |value| (format!("costs.{name}"), value))
        });
        let states = self.idle_states.iter().flat_map(|state| {
            [
                (format!("exit_latency of idle state {}", state.name), state.exit_latency),
                (format!("target_residency of idle state {}", state.name), state.target_residency),
            ]
        });
        if let Some(memory) = self.memory.filter(|memory| !(1_024..=1 << 32).contains(&memory.kib)) {
            return Err(MachineError::Memory(memory.kib));
        }
        let of_memory = self.memory.into_iter().flat_map(|memory| {
            [
                // Times the processes there are.
                (
                    "memory.find_page (times 10000)".to_owned(),
                    Nanos(memory.find_page.0.saturating_mul(10_000)),
                ),
                ("memory.disk_seek".to_owned(), memory.disk_seek),
                ("memory.disk_page".to_owned(), memory.disk_page),
            ]
        });
        let slack = std::iter::once(("timer_slack".to_owned(), self.timer_slack));
        match costs.chain(states).chain(of_memory).chain(slack).find(|(_, value)| *value > LONGEST) {
            Some((name, value)) => Err(MachineError::Long { name, value }),
            None => Ok(()),
        }
    }

    /// A machine with default costs, HZ 250 and kernel 6.18.
    pub fn generic(name: &str, topology: Topology) -> MachineDescription {
        MachineDescription {
            name: name.to_owned(),
            description: String::new(),
            kernel: KernelVersion::V6_18,
            hz: hz_default(),
            preemption: Preemption::default(),
            timer_slack: timer_slack_default(),
            vcpu_pack_percent: 0,
            idle_states: Vec::new(),
            topology,
            costs: Costs::default(),
            memory: None,
            calibration: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_machine_has_are_refused() {
        let machine = || MachineDescription::generic("test", Topology::flat(1).expect("one CPU"));
        assert_eq!(machine().check(), Ok(()));
        for hz in [0, 9, 2_000_000_000] {
            assert_eq!(MachineDescription { hz, ..machine() }.check(), Err(MachineError::Hz(hz)));
        }
        let mut slow = machine();
        slow.costs.ext_callback.value = Nanos(u64::MAX / 2);
        let error = slow.check().expect_err("too long").to_string();
        assert!(error.starts_with("costs.ext_callback is ") && error.ends_with("at most 10s"), "{error}");
        let mut deep = machine();
        let [exit_latency, target_residency] = [1, u64::MAX].map(Nanos);
        let origin = Origin::Assumed;
        deep.idle_states.push(IdleState { name: "C9".to_owned(), exit_latency, target_residency, origin });
        assert!(deep.check().expect_err("too long").to_string().contains("idle state C9"));
        let mut small = machine();
        let memory = MachineMemory { kib: 8, find_page: Nanos(1), disk_seek: Nanos(1), disk_page: Nanos(1) };
        small.memory = Some(memory);
        assert_eq!(small.check(), Err(MachineError::Memory(8)));
        small.memory = Some(MachineMemory { kib: 1_024, disk_seek: Nanos(u64::MAX), ..memory });
        assert!(small.check().expect_err("too long").to_string().starts_with("memory.disk_seek is "));
    }

    #[test]
    fn kernel_releases_are_read() {
        assert_eq!("6.18.44-cloud-amd64".parse(), Ok(KernelVersion::V6_18));
        assert_eq!("7.2".parse(), Ok(KernelVersion::V7_2));
        assert!("six".parse::<KernelVersion>().is_err());
        assert!(KernelVersion::V6_12 < KernelVersion::V6_18);
    }
}
