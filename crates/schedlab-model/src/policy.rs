//! Scheduling policies, nice values and the attributes a task carries.

use crate::cpu_set::CpuSet;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// Scheduling policy, as in `sched(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// `SCHED_NORMAL` (`SCHED_OTHER`).
    #[default]
    Normal,
    /// `SCHED_BATCH`: does not preempt on wake-up.
    Batch,
    /// `SCHED_IDLE`: weight 3, yields to everything else.
    Idle,
    /// `SCHED_FIFO`: runs until it blocks.
    Fifo,
    /// `SCHED_RR`: FIFO with a time slice.
    Rr,
    /// `SCHED_EXT`: explicitly in the sched_ext class.
    Ext,
    /// `SCHED_DEADLINE`: recorded, not simulated.
    Deadline,
}

impl Policy {
    /// The kernel's number in `include/uapi/linux/sched.h`.
    pub const fn number(self) -> u32 {
        match self {
            Policy::Normal => 0,
            Policy::Fifo => 1,
            Policy::Rr => 2,
            Policy::Batch => 3,
            Policy::Idle => 5,
            Policy::Deadline => 6,
            Policy::Ext => 7,
        }
    }

    /// From the kernel's number; unknown numbers are `None`.
    pub const fn from_number(number: u32) -> Option<Policy> {
        Some(match number {
            0 => Policy::Normal,
            1 => Policy::Fifo,
            2 => Policy::Rr,
            3 => Policy::Batch,
            5 => Policy::Idle,
            6 => Policy::Deadline,
            7 => Policy::Ext,
            _ => return None,
        })
    }

    /// Whether the real-time class runs it.
    pub const fn is_realtime(self) -> bool {
        matches!(self, Policy::Fifo | Policy::Rr)
    }
}

/// A nice value: -20 (strongest) to 19 on every kernel, -32 to 31 where a weight table widens the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "i8", into = "i8")]
pub struct Nice(pub(crate) i8);

/// A nice value out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nice {0} is out of range: -20 (strongest) to 19")]
pub struct NiceOutOfRange(pub i64);

/// `sched_prio_to_weight`: 1024 · 1.25^-nice, rounded as the kernel's table has it, from nice -20 on.
pub const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];

/// Weight of a `SCHED_IDLE` task (`WEIGHT_IDLEPRIO`).
pub const WEIGHT_IDLE: u32 = 3;

impl Nice {
    /// nice 0.
    pub const ZERO: Nice = Nice(0);
    /// The strongest that any weight table may have.
    pub const WIDEST: Nice = Nice(-32);

    /// Checks the range.
    pub const fn new(nice: i64) -> Result<Nice, NiceOutOfRange> {
        if nice < -20 || nice > 19 { Err(NiceOutOfRange(nice)) } else { Ok(Nice(nice as i8)) }
    }

    /// Checks the widest range that a weight table may have, -32 to 31. A kernel takes what [`Nice::new`] takes.
    pub const fn widened(nice: i64) -> Result<Nice, NiceOutOfRange> {
        if nice < -32 || nice > 31 { Err(NiceOutOfRange(nice)) } else { Ok(Nice(nice as i8)) }
    }

    /// Whether kernels have it.
    pub const fn is_of_kernels(self) -> bool {
        self.0 >= -20 && self.0 <= 19
    }

    /// The number.
    pub const fn get(self) -> i32 {
        self.0 as i32
    }

    /// `static_prio`: 100 to 139, 88 to 151 in the widest range.
    pub const fn static_prio(self) -> u32 {
        (120 + self.get()) as u32
    }

    /// Weight in Linux's fair class, 15 to 88761; beyond -20 to 19 that of the nearest end.
    pub fn weight(self) -> u32 {
        WEIGHTS[(i32::from(self.0) + 20).clamp(0, WEIGHTS.len() as i32 - 1) as usize]
    }
}

impl TryFrom<i8> for Nice {
    type Error = NiceOutOfRange;
    fn try_from(nice: i8) -> Result<Nice, NiceOutOfRange> {
        Nice::widened(i64::from(nice))
    }
}

impl From<Nice> for i8 {
    fn from(nice: Nice) -> i8 {
        nice.0
    }
}

/// What the kernel knows of a task besides what it does.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskAttributes {
    /// Policy.
    pub policy: Policy,
    /// Nice value.
    pub nice: Nice,
    /// Real-time priority, 1 to 99 (higher is stronger); 0 outside the real-time class.
    pub rt_priority: u8,
    /// Custom slice (`sched_attr::sched_runtime`, EEVDF, 0.1 to 100 ms); `None` is the kernel's base slice.
    pub slice: Option<Nanos>,
    /// CPUs it may run on.
    pub affinity: CpuSet,
    /// Control group path; empty is the root.
    pub cgroup: String,
    /// Kernel thread.
    pub kernel_thread: bool,
}

impl TaskAttributes {
    /// Weight in Linux's fair class.
    pub fn weight(&self) -> u32 {
        if self.policy == Policy::Idle { WEIGHT_IDLE } else { self.nice.weight() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_kernels() {
        assert_eq!(Nice::ZERO.weight(), 1024);
        assert_eq!(Nice::new(-20).expect("in range").weight(), 88761);
        assert_eq!(Nice::new(19).expect("in range").weight(), 15);
        assert_eq!(Nice::new(20), Err(NiceOutOfRange(20)));
    }
}
