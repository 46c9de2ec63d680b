//! The rows that the kernel half writes, byte for byte, and what they mean.
//!
//! Layout and numbers repeat bpf/include/top.bpf.h; tests hold them together. Not here: getting them ([`super`]).

use super::Scheduling;
use schedlab_model::tasks_now::{Activity, Class, CpuNow, Rank, TaskNow};
use schedlab_model::{CpuId, Nanos};

/// `enum top_known`.
mod known {
    pub const ELIGIBLE: u8 = 1;
    pub const VRUNTIME: u8 = 1 << 1;
    pub const DELAYED: u8 = 1 << 2;
    pub const ENTITY: u8 = 1 << 3;
    pub const KERNEL: u8 = 1 << 4;
    pub const DELAY: u8 = 1 << 5;
}

const POLICY_RR: u32 = 2;
const POLICY_EXT: u32 = 7;
/// A slice without end (`SCX_SLICE_INF`).
const ENDLESS: u64 = u64::MAX;
/// Weight of nice 0.
const WEIGHT_NICE_0: i128 = 1024;

/// `struct task_row`.
#[allow(dead_code, reason = "the layout is that of the kernel half, which tells more than is shown")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TaskRow {
    start_time: u64,
    cgroup: u64,
    ran: u64,
    delay: u64,
    voluntary: u64,
    involuntary: u64,
    lag: i64,
    vruntime: i64,
    deadline: i64,
    slice: u64,
    ext_vtime: u64,
    ext_slice: u64,
    ext_queue: u64,
    dl_runtime: i64,
    dl_deadline: u64,
    pid: i32,
    tgid: i32,
    prio: i32,
    static_prio: i32,
    rt_priority: u32,
    policy: u32,
    rr_ticks: u32,
    weight: u32,
    cpu: u32,
    ext_weight: u32,
    state: u32,
    level: u32,
    level_static: u32,
    level_slice: u32,
    on_rq: u8,
    on_cpu: u8,
    known: u8,
    unused: [u8; 5],
    comm: [u8; 16],
}

/// `struct cpu_row`.
#[allow(dead_code, reason = "as above")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuRow {
    clock: u64,
    switches: u64,
    running: u32,
    fair: u32,
    rt: u32,
    deadline: u32,
    ext: u32,
    current: i32,
    prio: i32,
    policy: u32,
    online: u32,
    pub(super) walk: u32,
    comm: [u8; 16],
}

pub(super) const TASK_ROW_BYTES: usize = size_of::<TaskRow>();
pub(super) const CPU_ROW_BYTES: usize = size_of::<CpuRow>();
const _: () = assert!(TASK_ROW_BYTES == 200 && CPU_ROW_BYTES == 72);

/// The rows among these bytes; what is not a whole row is left out.
pub(super) fn task_rows(bytes: &[u8]) -> impl Iterator<Item = TaskRow> {
    // SAFETY: a chunk has as many bytes as a row, and every bit pattern is one.
    bytes
        .chunks_exact(TASK_ROW_BYTES)
        .map(|chunk| unsafe { chunk.as_ptr().cast::<TaskRow>().read_unaligned() })
}

/// The row in these bytes.
pub(super) fn cpu_row(bytes: &[u8]) -> Option<CpuRow> {
    let bytes = bytes.get(..CPU_ROW_BYTES)?;
    // SAFETY: as above.
    Some(unsafe { bytes.as_ptr().cast::<CpuRow>().read_unaligned() })
}

fn text(bytes: &[u8; 16]) -> String {
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// The class that a priority and a policy belong to.
fn class_of(prio: i32, policy: u32, scheduling: &Scheduling) -> Class {
    match prio {
        ..0 => Class::Deadline,
        0..100 => Class::Rt,
        _ if scheduling.ext && (scheduling.switch_all || policy == POLICY_EXT) => Class::Ext,
        _ => Class::Fair,
    }
}

impl TaskRow {
    /// What it says.
    pub(super) fn task(&self, scheduling: &Scheduling) -> TaskNow {
        let class = class_of(self.prio, self.policy, scheduling);
        TaskNow {
            pid: self.pid,
            tgid: self.tgid,
            start_ns: self.start_time,
            name: text(&self.comm),
            kernel: self.knows(known::KERNEL),
            cgroup: self.cgroup,
            class,
            policy: self.policy,
            nice: self.static_prio - 120,
            prio_static: self.static_prio,
            prio: self.prio,
            activity: self.activity(),
            cpu: CpuId(self.cpu),
            rank: self.rank(class, scheduling),
            slice_left: self.slice_left(class, scheduling),
            ran: Nanos(self.ran),
            delay: self.knows(known::DELAY).then_some(Nanos(self.delay)),
            switches: [self.voluntary, self.involuntary],
        }
    }

    fn knows(&self, what: u8) -> bool {
        self.known & what != 0
    }

    /// The numbers of states are those since Linux 4.14.
    fn activity(&self) -> Activity {
        if self.on_cpu != 0 {
            return Activity::Running;
        }
        if self.on_rq != 0 && !self.knows(known::DELAYED) {
            return Activity::Waiting;
        }
        match self.state {
            state if state & (0x10 | 0x20 | 0x80) != 0 => Activity::Dead,
            state if state & (0x4 | 0x8 | 0x40) != 0 => Activity::Stopped,
            // A kernel thread that has nothing to do sleeps so, too (TASK_NOLOAD).
            state if state & 0x402 == 0x2 => Activity::Blocked,
            _ => Activity::Sleeping,
        }
    }

    fn is_runnable(&self) -> bool {
        matches!(self.activity(), Activity::Running | Activity::Waiting)
    }

    fn rank(&self, class: Class, scheduling: &Scheduling) -> Option<Rank> {
        match class {
            Class::Deadline => Some(Rank::Deadline { deadline_ns: self.dl_deadline }),
            Class::Rt => Some(Rank::Rt { priority: (99 - self.prio).max(0) as u32 }),
            // A sleeper is placed anew when it wakes.
            Class::Fair if !self.knows(known::VRUNTIME) || !self.is_runnable() => None,
            Class::Fair if self.knows(known::ELIGIBLE) => {
                Some(Rank::Eevdf { lag_ns: self.lag, deadline_ns: self.deadline, vruntime_ns: self.vruntime })
            }
            Class::Fair => Some(Rank::Cfs { vruntime_ns: self.vruntime }),
            Class::Ext if self.knows(known::ENTITY) => {
                Some(Rank::Level { level: self.level, level_static: self.level_static })
            }
            Class::Ext if scheduling.levels => {
                Some(Rank::Level { level: self.ext_vtime as u32, level_static: self.static_prio as u32 })
            }
            Class::Ext if scheduling.publishes_vtime => Some(Rank::Vtime { key: self.ext_vtime }),
            Class::Ext | Class::Idle => None,
        }
    }

    fn slice_left(&self, class: Class, scheduling: &Scheduling) -> Option<Nanos> {
        if !self.is_runnable() {
            return None;
        }
        match class {
            Class::Deadline => Some(Nanos(self.dl_runtime.max(0) as u64)),
            Class::Rt if self.policy == POLICY_RR => {
                Some(Nanos(u64::from(self.rr_ticks) * scheduling.tick_ns))
            }
            Class::Fair if self.knows(known::ELIGIBLE) => {
                // A request ends at its virtual deadline; virtual time is the slower the heavier the task.
                let virtual_left = i128::from(self.deadline - self.vruntime);
                let left = virtual_left * i128::from(self.weight.max(1)) / WEIGHT_NICE_0;
                Some(Nanos(left.clamp(0, i128::from(u64::MAX)) as u64))
            }
            Class::Ext if self.knows(known::ENTITY) => {
                Some(Nanos(u64::from(self.level_slice) * scheduling.jiffy_ns))
            }
            Class::Ext if self.ext_slice != ENDLESS => Some(Nanos(self.ext_slice)),
            _ => None,
        }
    }
}

impl CpuRow {
    /// What it says of a CPU.
    pub(super) fn cpu(
        &self,
        cpu: CpuId,
        idle: Option<(Nanos, Nanos)>,
        scheduling: &Scheduling,
    ) -> Option<CpuNow> {
        let class = match self.current {
            0 => Class::Idle,
            _ => class_of(self.prio, self.policy, scheduling),
        };
        (self.online != 0).then(|| CpuNow {
            cpu,
            queued: self.running,
            by_class: [self.deadline, self.rt, self.fair, self.ext],
            current: self.current,
            current_name: text(&self.comm),
            class,
            switches: self.switches,
            idle,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../../bpf/include/top.bpf.h");

    /// Members of a struct of the header, in order.
    fn members(name: &str) -> Vec<String> {
        let body = HEADER.split(&format!("struct {name} {{")).nth(1).expect("the struct");
        let body = body.split("\n};").next().expect("its end");
        let member = |line: &str| {
            let line = line.trim().strip_suffix(';')?;
            Some(line.split_whitespace().last()?.split('[').next()?.to_owned())
        };
        body.lines().filter_map(member).collect()
    }

    /// Members of a struct of this file, as Debug prints them, in order.
    fn printed(debug: &str) -> Vec<String> {
        let fields = debug.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':'));
        fields.filter(|(name, _)| !name.starts_with(' ')).map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn rows_have_the_members_of_the_header_in_its_order() {
        assert_eq!(members("task_row"), printed(&format!("{:#?}", TaskRow::default())));
        assert_eq!(members("cpu_row"), printed(&format!("{:#?}", CpuRow::default())));
        for (name, bit) in [("ELIGIBLE", 0), ("DELAYED", 2), ("ENTITY", 3), ("DELAY", 5)] {
            assert!(HEADER.contains(&format!("TOP_{name} = 1 << {bit},")), "{name}");
        }
        assert_eq!((known::ELIGIBLE, known::DELAYED, known::ENTITY, known::DELAY), (1, 4, 8, 32));
    }

    fn fair() -> Scheduling {
        Scheduling { tick_ns: 4_000_000, jiffy_ns: 1_000_000, ..Scheduling::default() }
    }

    #[test]
    fn a_fair_task_has_the_rest_of_its_request_left() {
        let row = TaskRow {
            prio: 120,
            static_prio: 120,
            on_rq: 1,
            weight: 2_048,
            known: known::ELIGIBLE | known::VRUNTIME,
            lag: -1_000,
            vruntime: 1_000,
            deadline: 501_000,
            ..TaskRow::default()
        };
        let task = row.task(&fair());
        assert_eq!((task.class, task.activity), (Class::Fair, Activity::Waiting));
        assert_eq!(
            task.slice_left,
            Some(Nanos(1_000_000)),
            "twice the weight of nice 0, half the virtual time"
        );
        assert_eq!(task.delay, None, "this kernel does not count it");
        let delayed = TaskRow { known: row.known | known::DELAYED, state: 1, ..row }.task(&fair());
        assert_eq!((delayed.activity, delayed.rank, delayed.slice_left), (Activity::Sleeping, None, None));
        let idle = TaskRow { on_rq: 0, state: 0x402, ..row }.task(&fair());
        let blocked = TaskRow { on_rq: 0, state: 0x2, ..row }.task(&fair());
        assert_eq!((idle.activity, blocked.activity), (Activity::Sleeping, Activity::Blocked));
    }

    #[test]
    fn who_schedules_a_task_follows_from_priority_policy_and_scheduler() {
        let ext = Scheduling { ext: true, switch_all: true, ..fair() };
        let some = Scheduling { switch_all: false, ..ext.clone() };
        assert_eq!(class_of(-1, 6, &fair()), Class::Deadline);
        assert_eq!(class_of(98, 0, &ext), Class::Rt, "a lent priority");
        assert_eq!(class_of(120, 0, &ext), Class::Ext);
        assert_eq!((class_of(120, 0, &some), class_of(120, 7, &some)), (Class::Fair, Class::Ext));
        assert_eq!(class_of(120, 7, &fair()), Class::Fair, "no scheduler is loaded");
        let row = TaskRow {
            prio: 120,
            on_cpu: 1,
            known: known::ENTITY,
            level: 115,
            level_slice: 7,
            ..Default::default()
        };
        let task = row.task(&ext);
        assert_eq!(task.slice_left, Some(Nanos(7_000_000)));
        assert_eq!(task.rank, Some(Rank::Level { level: 115, level_static: 0 }));
    }
}
