//! What the tasks and CPUs of a machine are at one moment: counters since their beginning, state, rank.
//!
//! Made by reading the live kernel; rates and shares come from two of these (schedlab-report, `top`).

use crate::ids::CpuId;
use crate::time::Nanos;
use serde::Serialize;

/// A scheduling class as the kernel orders them, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// SCHED_DEADLINE.
    Deadline,
    /// SCHED_FIFO and SCHED_RR, and who holds what such a task waits for.
    Rt,
    /// The kernel's own fair class.
    Fair,
    /// A sched_ext scheduler.
    Ext,
    /// Nobody: the CPU idles.
    Idle,
}

impl Class {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Class::Deadline => "deadline",
            Class::Rt => "rt",
            Class::Fair => "fair",
            Class::Ext => "ext",
            Class::Idle => "idle",
        }
    }
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It is on a CPU.
    Running,
    /// It could run, and waits for a CPU.
    Waiting,
    /// It sleeps and can be interrupted.
    Sleeping,
    /// It sleeps and cannot be interrupted.
    Blocked,
    /// It was stopped, or is traced.
    Stopped,
    /// It has ended.
    Dead,
}

impl Activity {
    /// One letter, as ps prints it; a waiting task is R there, too, and W here.
    pub fn letter(self) -> char {
        match self {
            Activity::Running => 'R',
            Activity::Waiting => 'W',
            Activity::Sleeping => 'S',
            Activity::Blocked => 'D',
            Activity::Stopped => 'T',
            Activity::Dead => 'Z',
        }
    }
}

/// By what a scheduler orders a task among others of its class. Lower runs sooner, but for `rt_priority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Rank {
    /// Real-time: the highest priority runs.
    Rt {
        /// 1 to 99.
        priority: u32,
    },
    /// SCHED_DEADLINE: the earliest runs.
    Deadline {
        /// On the kernel's clock.
        deadline_ns: u64,
    },
    /// EEVDF: the earliest virtual deadline of those whose lag is not below 0. Counted from the average of the queue.
    Eevdf {
        /// Above 0: it has got less than its share.
        lag_ns: i64,
        /// Virtual deadline.
        deadline_ns: i64,
        /// Virtual time.
        vruntime_ns: i64,
    },
    /// CFS: the least virtual time, counted from the least of the queue.
    Cfs {
        /// Virtual time.
        vruntime_ns: i64,
    },
    /// A scheduler with dynamic priorities.
    Level {
        /// Its dynamic priority.
        level: u32,
        /// That of its nice value.
        level_static: u32,
    },
    /// What a sched_ext scheduler put into `dsq_vtime`.
    Vtime {
        /// In the scheduler's own unit.
        key: u64,
    },
}

impl Rank {
    /// For sorting tasks of one class: lower runs sooner.
    pub fn order(&self) -> (bool, i128) {
        match *self {
            Rank::Rt { priority } => (false, -i128::from(priority)),
            Rank::Deadline { deadline_ns } => (false, i128::from(deadline_ns)),
            Rank::Eevdf { lag_ns, deadline_ns, .. } => (lag_ns < 0, i128::from(deadline_ns)),
            Rank::Cfs { vruntime_ns } => (false, i128::from(vruntime_ns)),
            Rank::Level { level, .. } => (false, i128::from(level)),
            Rank::Vtime { key } => (false, i128::from(key)),
        }
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskNow {
    /// Its number.
    pub pid: i32,
    /// Its process.
    pub tgid: i32,
    /// When it began; a number may be another's later.
    pub start_ns: u64,
    /// Its name.
    pub name: String,
    /// Whether it is the kernel's own.
    pub kernel: bool,
    /// Number of its control group.
    pub cgroup: u64,
    /// Its class.
    pub class: Class,
    /// Policy by the kernel's number.
    pub policy: u32,
    /// Nice value.
    pub nice: i32,
    /// Static priority: 120 is nice 0.
    pub prio_static: i32,
    /// The kernel's dynamic one: below 100 is real-time, also lent.
    pub prio: i32,
    /// What it does.
    pub activity: Activity,
    /// Where it is or was last.
    pub cpu: CpuId,
    /// Its rank; none if its scheduler publishes none.
    pub rank: Option<Rank>,
    /// What is left of its slice; none if it has no end or nobody tells.
    pub slice_left: Option<Nanos>,
    /// CPU time since it began.
    pub ran: Nanos,
    /// Time it could run and did not since it began; none if the kernel does not count it.
    pub delay: Option<Nanos>,
    /// Switches away since it began, of its own accord and not.
    pub switches: [u64; 2],
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuNow {
    /// Which.
    pub cpu: CpuId,
    /// Tasks that are running or waiting there.
    pub queued: u32,
    /// Of them, by class: deadline, rt, fair, ext. Those in a queue shared by CPUs count where they ran last.
    pub by_class: [u32; 4],
    /// Who runs; 0 if it idles.
    pub current: i32,
    /// Its name.
    pub current_name: String,
    /// Its class.
    pub class: Class,
    /// Switches since the kernel began.
    pub switches: u64,
    /// Time since the kernel began in which it idled, and in all; none if the kernel does not tell.
    pub idle: Option<(Nanos, Nanos)>,
}

/// Who schedules the tasks of the fair class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SchedulerNow {
    /// `fair`, or the name of the sched_ext scheduler.
    pub name: String,
    /// What its rank means, in words.
    pub rank_words: String,
}

/// A machine's tasks and CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineNow {
    /// When (`CLOCK_MONOTONIC`).
    pub time: Nanos,
    /// By number.
    pub tasks: Vec<TaskNow>,
    /// By number.
    pub cpus: Vec<CpuNow>,
    /// Who schedules.
    pub scheduler: SchedulerNow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_sooner_sorts_first() {
        let eevdf = |lag_ns, deadline_ns| Rank::Eevdf { lag_ns, deadline_ns, vruntime_ns: -lag_ns }.order();
        assert!(eevdf(1, 900) < eevdf(-1, 100), "who is not eligible comes after who is");
        assert!(eevdf(0, 100) < eevdf(5, 200));
        assert!(Rank::Rt { priority: 99 }.order() < Rank::Rt { priority: 1 }.order());
        let level = |level| Rank::Level { level, level_static: 120 }.order();
        assert!(level(115) < level(125));
        assert!(Class::Rt < Class::Fair && Class::Fair < Class::Ext && Class::Ext < Class::Idle);
    }
}
