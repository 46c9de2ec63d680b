//! `top`: what happened between two looks at a machine, task by task and CPU by CPU.
//!
//! Plain functions over two [`MachineNow`]; [`document`] is the same as JSON, [`table`] as lines of text. Not here:
//! looking (schedlab-host), the terminal (the program).

pub mod document;
pub mod table;

use schedlab_model::Nanos;
use schedlab_model::tasks_now::{Activity, Class, CpuNow, MachineNow, SchedulerNow, TaskNow};
use std::cmp::Reverse;
use std::collections::HashMap;

/// A task over an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    /// What it is at the interval's end.
    pub now: TaskNow,
    /// Share of one CPU that it got.
    pub cpu_share: f64,
    /// How long it was runnable without running in the interval; none if the kernel does not count it.
    pub delay: Option<Nanos>,
    /// Switches away from it in the interval, of its own accord and not.
    pub switches: [u64; 2],
}

/// A CPU over an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuRow {
    /// What it is at the interval's end.
    pub now: CpuNow,
    /// Share of the interval in which it did not idle; none if the kernel does not tell.
    pub busy_share: Option<f64>,
    /// Switches in the interval.
    pub switches: u64,
}

/// A machine over an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// When it ends, since the first look.
    pub time: Nanos,
    /// Its length.
    pub interval: Nanos,
    /// Who schedules.
    pub scheduler: SchedulerNow,
    /// Tasks that are there at its end.
    pub tasks: Vec<TaskRow>,
    /// CPUs.
    pub cpus: Vec<CpuRow>,
}

/// By what tasks are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Who runs sooner comes first: running, then waiting by class and rank, then who sleeps.
    Rank,
    /// The longest run delay first.
    Delay,
    /// The largest share of a CPU first.
    #[default]
    Cpu,
    /// By number.
    Pid,
}

/// Which tasks are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Part of the name, or the number of a task or process.
    pub text: String,
    /// Numbers of control groups; none is all.
    pub cgroups: Option<Vec<u64>>,
    /// Only tasks that ran or waited in the interval.
    pub active: bool,
}

impl Frame {
    /// What happened between two looks. A task that was not there at the first counts from its beginning.
    pub fn between(before: &MachineNow, now: &MachineNow) -> Frame {
        let interval = Nanos(now.time.0.saturating_sub(before.time.0));
        let old: HashMap<(i32, u64), &TaskNow> =
            before.tasks.iter().map(|task| ((task.pid, task.start_ns), task)).collect();
        let row = |task: &TaskNow| task_row(task, old.get(&(task.pid, task.start_ns)).copied(), interval);
        let old_cpu = |cpu: &CpuNow| before.cpus.iter().find(|old| old.cpu == cpu.cpu);
        Frame {
            time: now.time,
            interval,
            scheduler: now.scheduler.clone(),
            tasks: now.tasks.iter().map(row).collect(),
            cpus: now.cpus.iter().map(|cpu| cpu_row(cpu, old_cpu(cpu))).collect(),
        }
    }

    /// The tasks that a filter lets through, sorted.
    pub fn sorted(&self, sort: Sort, filter: &Filter) -> Vec<&TaskRow> {
        let mut rows: Vec<&TaskRow> = self.tasks.iter().filter(|row| filter.shows(row)).collect();
        match sort {
            Sort::Rank => rows.sort_by_key(|row| (rank_order(&row.now), row.now.pid)),
            Sort::Delay => rows.sort_by_key(|row| (Reverse(row.delay), row.now.pid)),
            Sort::Cpu => rows.sort_by(|a, b| {
                b.cpu_share
                    .total_cmp(&a.cpu_share)
                    .then(b.delay.cmp(&a.delay))
                    .then(a.now.pid.cmp(&b.now.pid))
            }),
            Sort::Pid => rows.sort_by_key(|row| row.now.pid),
        }
        rows
    }
}

impl Filter {
    /// Whether a task is shown.
    pub fn shows(&self, row: &TaskRow) -> bool {
        let task = &row.now;
        let number = |number: i32| self.text.parse() == Ok(number);
        let named = self.text.is_empty()
            || number(task.pid)
            || number(task.tgid)
            || task.name.to_lowercase().contains(&self.text.to_lowercase());
        let grouped = self.cgroups.as_ref().is_none_or(|groups| groups.contains(&task.cgroup));
        let active = !self.active || is_active(row);
        named && grouped && active
    }
}

fn is_active(row: &TaskRow) -> bool {
    row.cpu_share > 0.0
        || row.delay.is_some_and(|delay| delay > Nanos::ZERO)
        || matches!(row.now.activity, Activity::Running | Activity::Waiting)
}

/// Running tasks, waiting ones and others; within each the strongest class, then who runs sooner.
fn rank_order(task: &TaskNow) -> (u8, Class, (bool, i128)) {
    let activity = match task.activity {
        Activity::Running => 0,
        Activity::Waiting => 1,
        _ => 2,
    };
    let last = (true, i128::MAX);
    (activity, task.class, task.rank.map_or(last, |rank| rank.order()))
}

fn task_row(now: &TaskNow, before: Option<&TaskNow>, interval: Nanos) -> TaskRow {
    let ran = now.ran.0.saturating_sub(before.map_or(0, |before| before.ran.0));
    let delay = now.delay.map(|delay| {
        // The wait that goes on is an estimate by the queue's clock: it may shrink when the task runs.
        let before = before.and_then(|before| before.delay).unwrap_or(Nanos::ZERO);
        Nanos(delay.0.saturating_sub(before.0).min(interval.0))
    });
    let switches = before.map_or([0, 0], |before| before.switches);
    TaskRow {
        cpu_share: share(ran, interval.0),
        delay,
        switches: [0, 1].map(|kind| now.switches[kind].saturating_sub(switches[kind])),
        now: now.clone(),
    }
}

fn cpu_row(now: &CpuNow, before: Option<&CpuNow>) -> CpuRow {
    let times = now.idle.zip(before.and_then(|before| before.idle));
    let busy = times.and_then(|((idle, all), (idle_before, all_before))| {
        let all = all.0.saturating_sub(all_before.0);
        let idle = idle.0.saturating_sub(idle_before.0).min(all);
        (all > 0).then(|| share(all - idle, all))
    });
    CpuRow {
        busy_share: busy,
        switches: before.map_or(0, |before| now.switches.saturating_sub(before.switches)),
        now: now.clone(),
    }
}

/// Of one CPU; clocks are read one after the other, so it may come out a little above the whole.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use schedlab_model::CpuId;
    use schedlab_model::tasks_now::Rank;

    /// A task of the fair class.
    pub(crate) fn task(pid: i32, name: &str, ran_ms: u64, delay_ms: u64) -> TaskNow {
        TaskNow {
            pid,
            tgid: pid,
            start_ns: 7,
            name: name.to_owned(),
            kernel: false,
            cgroup: pid as u64,
            class: Class::Fair,
            policy: 0,
            nice: 0,
            prio_static: 120,
            prio: 120,
            activity: Activity::Waiting,
            cpu: CpuId(0),
            rank: Some(Rank::Eevdf { lag_ns: 10, deadline_ns: i64::from(pid), vruntime_ns: -10 }),
            slice_left: Some(Nanos(700_000)),
            ran: Nanos(ran_ms * 1_000_000),
            delay: Some(Nanos(delay_ms * 1_000_000)),
            switches: [ran_ms, delay_ms],
        }
    }

    /// A machine of one CPU that idled for so long of so much.
    pub(crate) fn machine(ms: u64, idle_ms: u64, tasks: Vec<TaskNow>) -> MachineNow {
        let cpu = CpuNow {
            cpu: CpuId(0),
            queued: tasks.len() as u32,
            by_class: [0, 0, tasks.len() as u32, 0],
            current: tasks.first().map_or(0, |task| task.pid),
            current_name: "hog".to_owned(),
            class: Class::Fair,
            switches: ms,
            idle: Some((Nanos(idle_ms * 1_000_000), Nanos(ms * 1_000_000))),
        };
        MachineNow {
            time: Nanos(ms * 1_000_000),
            tasks,
            cpus: vec![cpu],
            scheduler: SchedulerNow { name: "fair".into(), rank_words: "virtual deadline".into() },
        }
    }

    fn frame() -> Frame {
        let before = machine(1_000, 500, vec![task(1, "hog", 100, 0), task(2, "waiter", 50, 50)]);
        let mut late = task(2, "waiter", 60, 450);
        late.start_ns = 8;
        let now = machine(2_000, 600, vec![task(1, "hog", 850, 200), late, task(3, "fresh", 20, 0)]);
        Frame::between(&before, &now)
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let frame = frame();
        assert_eq!(frame.interval, Nanos(1_000_000_000));
        let hog = &frame.tasks[0];
        assert!((hog.cpu_share - 0.75).abs() < 1e-9, "{hog:?}");
        assert_eq!((hog.delay, hog.switches), (Some(Nanos(200_000_000)), [750, 200]));
        let reused = &frame.tasks[1];
        assert_eq!(reused.delay, Some(Nanos(450_000_000)), "another task of the same number counts from 0");
        let cpu = &frame.cpus[0];
        assert!((cpu.busy_share.expect("told") - 0.9).abs() < 1e-9 && cpu.switches == 1_000, "{cpu:?}");
    }

    #[test]
    fn tasks_are_sorted_as_asked() {
        let mut frame = frame();
        let pids = |frame: &Frame, sort| {
            let rows = frame.sorted(sort, &Filter::default());
            rows.iter().map(|row| row.now.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(&frame, Sort::Cpu), [1, 2, 3]);
        assert_eq!(pids(&frame, Sort::Delay), [2, 1, 3]);
        frame.tasks[0].now.activity = Activity::Sleeping;
        frame.tasks[2].now.class = Class::Rt;
        frame.tasks[2].now.rank = Some(Rank::Rt { priority: 5 });
        assert_eq!(pids(&frame, Sort::Rank), [3, 2, 1], "rt before fair, sleepers last");
        assert_eq!(pids(&frame, Sort::Pid), [1, 2, 3]);
    }

    #[test]
    fn a_filter_takes_names_numbers_and_groups() {
        let frame = frame();
        let shown = |filter: Filter| frame.sorted(Sort::Pid, &filter).len();
        let text = |text: &str| Filter { text: text.to_owned(), ..Filter::default() };
        assert_eq!((shown(text("HOG")), shown(text("3")), shown(text("nobody"))), (1, 1, 0));
        assert_eq!(shown(Filter { cgroups: Some(vec![1, 3]), ..Filter::default() }), 2);
        assert_eq!(shown(Filter { active: true, ..Filter::default() }), 3);
    }
}
