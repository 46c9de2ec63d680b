//! What happens to the machine and its cgroups during a run: CPUs go on and offline, the machine is suspended,
//! cgroups get other weights, knobs other values, schedulers come and go. Times are those of the run. The tasks know nothing of it.

use crate::ids::CpuId;
use crate::policy::Nice;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// Limit of a cgroup's CPU time (`cpu.max`, `cpu.max.burst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuMax {
    /// CPU time a period; `None` is no limit (`max`).
    pub quota: Option<Nanos>,
    /// The period.
    pub period: Nanos,
    /// Unused time that may be saved up.
    pub burst: Nanos,
}

impl CpuMax {
    /// `max_cfs_runtime`, 2^44 - 1 us: what quota and burst may be together.
    const MAX: Nanos = Nanos(((1 << 44) - 1) * 1_000);

    /// Whether Linux would take it (`tg_set_cfs_bandwidth`); the error says what it takes.
    pub fn check(&self) -> Result<(), &'static str> {
        let (ms, s) = (Nanos::from_millis(1), Nanos::from_millis(1_000));
        if !(ms..=s).contains(&self.period) {
            return Err("a period is 1ms to 1s");
        }
        let Some(quota) = self.quota else { return Ok(()) };
        if quota < ms {
            return Err("a quota is at least 1ms");
        }
        if self.burst > quota || quota.0.saturating_add(self.burst.0) > CpuMax::MAX.0 {
            return Err("a burst is at most the quota, and both together at most 203 days");
        }
        Ok(())
    }
}

impl Default for CpuMax {
    /// No limit, a period of 100 ms.
    fn default() -> CpuMax {
        CpuMax { quota: None, period: Nanos::from_millis(100), burst: Nanos(0) }
    }
}

/// Settings of a cgroup's cpu controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSettings {
    /// `cpu.weight`, 1 to 10000.
    pub weight: u32,
    /// `cpu.weight.nice`, or the nice value of an autogroup: the weight of a task of this nice value, which `weight`
    /// rounds.
    pub nice: Option<Nice>,
    /// `cpu.idle`.
    pub idle: bool,
    /// `cpu.max`.
    pub max: CpuMax,
}

impl Default for CgroupSettings {
    /// The kernel's defaults: weight 100, no limit.
    fn default() -> CgroupSettings {
        CgroupSettings { weight: 100, nice: None, idle: false, max: CpuMax::default() }
    }
}

impl CgroupSettings {
    /// The settings of a group with `cpu.weight.nice`.
    pub fn of_nice(nice: Nice) -> CgroupSettings {
        CgroupSettings {
            weight: ((nice.weight() * 100 + 512) / 1_024).max(1),
            nice: Some(nice),
            ..CgroupSettings::default()
        }
    }

    /// Whether Linux would take them; the error says what it takes.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(1..=10_000).contains(&self.weight) {
            return Err("a weight is 1 to 10000; 100 is the default");
        }
        self.max.check()
    }

    /// `tg->shares`: the group's weight beside tasks and other groups, where a task of nice 0 has 1024.
    pub fn shares(&self) -> u32 {
        self.nice.map_or((self.weight * 1_024 + 50) / 100, Nice::weight)
    }
}

/// A cgroup below the root. Those that only tasks name exist too, with default settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSpec {
    /// Its path from the root, e.g. `/web/workers`.
    pub path: String,
    /// Its settings at the start.
    pub settings: CgroupSettings,
}

/// What takes a scheduler from BPF away without its doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerEnd {
    /// Somebody presses SysRq-S.
    Sysrq,
    /// The soft lockup detector finds a CPU that does not schedule.
    SoftLockup,
    /// The hard lockup detector finds a CPU that takes no interrupts.
    HardLockup,
    /// RCU finds a CPU that does not get through a quiescent state.
    RcuStall,
    /// A tick finds that the watchdog's own work did not get a CPU within the watchdog's timeout.
    WatchdogStall,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A CPU goes on or offline.
    Cpu {
        /// Which.
        cpu: CpuId,
        /// Where to.
        online: bool,
    },
    /// The machine is being suspended, for this long: schedulers from BPF are bypassed.
    Suspend(Nanos),
    /// A cgroup gets other settings.
    Cgroup(CgroupSpec),
    /// A knob that can change while it runs gets another value: one of the kernel's fair class, or a variable of the
    /// scheduler's object.
    Knob {
        /// Its name.
        name: String,
        /// Its value from then on, in its own unit.
        value: i64,
    },
    /// A scheduler from BPF is attached in place of the one there is, by the name that the run knows it by; `None`
    /// only takes that one out, and its tasks go to the fair class.
    Scheduler(Option<String>),
    /// The kernel throws the scheduler from BPF out.
    EndScheduler {
        /// Why.
        by: SchedulerEnd,
        /// The CPU on which that was found.
        cpu: CpuId,
    },
}

/// A change at its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedChange {
    /// When.
    pub time: Nanos,
    /// What.
    pub change: Change,
}
