//! Characters of small recordings that are known by construction.

use super::*;
use schedlab_model::event::{Context, Event, EventKind, PrevState};
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::{CacheCounting, Provenance, TaskInfo};
use schedlab_model::topology::Topology;
use schedlab_model::{CpuId, TaskId};

const A: TaskId = TaskId(1);
const B: TaskId = TaskId(2);

fn task(name: &str, target: bool) -> TaskInfo {
    TaskInfo {
        pid: 1,
        tgid: 1,
        name: name.to_owned(),
        parent: TaskId::IDLE,
        attributes: Default::default(),
        target,
        existed: true,
        start_cpu: CpuId(0),
        start_runnable: false,
    }
}

fn recording(events: Vec<(u64, EventKind)>, us: u64) -> Recording {
    let event = |(us, kind)| Event { time: Nanos::from_micros(us), cpu: CpuId(0), kind };
    Recording {
        provenance: Provenance::default(),
        machine: MachineDescription::generic("one", Topology::flat(1).expect("a CPU")),
        tasks: vec![task("idle", false), task("a1", true), task("b", true), task("never", true)],
        channels: Vec::new(),
        cpu_sets: Vec::new(),
        events: events.into_iter().map(event).collect(),
        duration: Nanos::from_micros(us),
    }
}

/// `who` is woken at each of these times and runs for so long at once.
fn woken(
    who: TaskId,
    waker: TaskId,
    context: Context,
    starts_us: &[u64],
    run_us: u64,
) -> Vec<(u64, EventKind)> {
    let idle = TaskId::IDLE;
    let of = |&at: &u64| {
        let timer = EventKind::TimerExpire { task: who, due: Nanos::from_micros(at) };
        let waking = EventKind::Waking { waker, context, wakee: who, wakee_cpu: CpuId(0) };
        let on = EventKind::Switch { prev: idle, prev_state: PrevState::Runnable, next: who };
        let off = EventKind::Switch { prev: who, prev_state: PrevState::Interruptible, next: idle };
        let all = [(at, timer), (at, waking), (at, on), (at + run_us, off)];
        all.into_iter().skip(usize::from(context == Context::Task || waker == B))
    };
    starts_us.iter().flat_map(of).collect()
}

fn only(events: Vec<(u64, EventKind)>, us: u64) -> Character {
    let all = of(&recording(events, us));
    assert_eq!(all.len(), 1, "tasks that did nothing are left out: {all:?}");
    all.into_iter().next().expect("one")
}

/// 1 ms of every 10: nine of ten parts asleep, 20 wake-ups by the timer, exactly 10 ms apart.
#[test]
fn a_timer_makes_it_periodic() {
    let starts: Vec<u64> = (1..=20).map(|n| n * 10_000).collect();
    let found = only(woken(A, TaskId::IDLE, Context::HardIrq, &starts, 1_000), 210_000);
    assert_eq!((found.kind, found.name.as_str(), found.tasks), (Kind::Periodic, "a*", 1), "{found:?}");
    let measures = &found.measures;
    assert_eq!((measures.period_ns, measures.period_spread), (Some(10_000_000), Some(0.0)));
    assert_eq!((measures.cpu_ns, measures.sleep_ns), (20_000_000, 190_000_000));
    assert_eq!((measures.bursts, measures.burst_median_ns), (20, Some(1_000_000)));
    assert_eq!((measures.by_timer, measures.by_tasks), (Some(1.0), Some(0.0)));
    assert!(found.because.contains("10.0 ms apart"), "{}", found.because);
}

/// The same at irregular times: a user.
#[test]
fn irregular_wake_ups_of_who_sleeps_much_are_interactive() {
    let starts: Vec<u64> = (1..=20).map(|n| n * 10_000 + (n * 7_919) % 6_000).collect();
    let found = only(woken(A, TaskId::IDLE, Context::HardIrq, &starts, 1_000), 220_000);
    assert_eq!(found.kind, Kind::Interactive, "{found:?}");
    assert!(found.measures.period_spread > Some(REGULAR), "{found:?}");
}

#[test]
fn who_is_woken_by_tasks_communicates_and_says_with_whom() {
    let starts: Vec<u64> = (1..=20).map(|n| n * 10_000).collect();
    let found = only(woken(A, B, Context::Task, &starts, 1_000), 210_000);
    assert_eq!(found.kind, Kind::Communicating, "{found:?}");
    assert_eq!(found.measures.wakers, [("b".to_owned(), 1.0)]);
}

/// 8 ms at a stretch, and 40 µs between: half of its time lies in long bursts. Preemption ends none.
#[test]
fn long_bursts_are_batch_work_whoever_ends_the_sleep() {
    let starts: Vec<u64> = (1..=20).map(|n| n * 8_040).collect();
    let found = only(woken(A, B, Context::Task, &starts, 8_000), 170_000);
    assert_eq!(found.kind, Kind::Batch, "{found:?}");
    let preempted = |at, prev, next| (at, EventKind::Switch { prev, prev_state: PrevState::Runnable, next });
    let idle = TaskId::IDLE;
    let waking = EventKind::Waking { waker: idle, context: Context::HardIrq, wakee: A, wakee_cpu: CpuId(0) };
    let events = vec![
        (0, waking),
        preempted(0, idle, A),
        preempted(3_000, A, idle),
        preempted(4_000, idle, A),
        preempted(8_000, A, idle),
    ];
    let found = only(events, 8_000);
    assert_eq!((found.kind, found.measures.burst_max_ns), (Kind::Batch, Some(7_000_000)), "{found:?}");
    assert_eq!(found.measures.run_delay_ns, 1_000_000);
}

/// Five wake-ups in 55 ms are half of what it takes: 110 ms.
#[test]
fn too_little_says_how_much_it_takes() {
    let starts: Vec<u64> = (1..=5).map(|n| n * 10_000).collect();
    let found = only(woken(A, TaskId::IDLE, Context::HardIrq, &starts, 1_000), 55_000);
    assert_eq!(found.kind, Kind::Unknown, "{found:?}");
    assert!(
        found.because.contains("5 of the 10 wake-ups that it takes were seen: record for about 0.1 s"),
        "{found:?}"
    );
    let idle = TaskId::IDLE;
    let ran = EventKind::Switch { prev: A, prev_state: PrevState::Dead, next: idle };
    let found = only(vec![(100, ran)], 200);
    assert_eq!(found.kind, Kind::Unknown, "{found:?}");
    assert!(found.because.contains("6.00 ms of CPU time at a stretch: record for longer"), "{found:?}");
}

#[test]
fn the_table_says_what_is_not_recorded() {
    let starts: Vec<u64> = (1..=20).map(|n| n * 10_000).collect();
    let all = of(&recording(woken(A, TaskId::IDLE, Context::HardIrq, &starts, 1_000), 210_000));
    let text = render(&all, None, TextOptions::default());
    assert!(text.contains("a*") && text.contains("periodic"), "{text}");
    assert!(text.contains("Cache footprint: not recorded"), "{text}");
}

/// Two bursts, the first in two stays: 30 and 10 misses of 64 bytes; the larger of the two is the upper median.
#[test]
fn what_bursts_bring_into_the_cache_is_summed_for_each() {
    let idle = TaskId::IDLE;
    let switch = |at, prev, prev_state, next| (at, EventKind::Switch { prev, prev_state, next });
    let uses = |at, references, misses| (at, EventKind::CacheUse { task: A, references, misses });
    let waking = |at| {
        (at, EventKind::Waking { waker: idle, context: Context::HardIrq, wakee: A, wakee_cpu: CpuId(0) })
    };
    let events = vec![
        waking(0),
        switch(0, idle, PrevState::Runnable, A),
        uses(1_000, 100, 20),
        switch(1_000, A, PrevState::Runnable, idle),
        switch(2_000, idle, PrevState::Runnable, A),
        uses(3_000, 50, 10),
        switch(3_000, A, PrevState::Interruptible, idle),
        waking(4_000),
        switch(4_000, idle, PrevState::Runnable, A),
        uses(5_000, 50, 10),
        switch(5_000, A, PrevState::Interruptible, idle),
    ];
    let mut recording = recording(events, 6_000);
    let counting = CacheCounting::Counted { line_bytes: 64 };
    recording.provenance.caches = Some(counting.clone());
    let all = of(&recording);
    let found = &all[0].measures;
    assert_eq!((found.cache_references, found.cache_misses), (Some(200), Some(40)), "{found:?}");
    assert_eq!(found.cache_footprint_bytes, Some(30 * 64));
    let text = render(&all, Some(&counting), TextOptions::default());
    assert!(text.contains("1.9 KiB") && text.contains("20 %") && text.contains("64 bytes a miss"), "{text}");
    let none = CacheCounting::Impossible { reason: "no counters here".to_owned() };
    let text = render(&all, Some(&none), TextOptions::default());
    assert!(text.contains("Cache footprint: unknown: no counters here") && !text.contains("KiB"), "{text}");
}
