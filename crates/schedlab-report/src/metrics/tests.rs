//! Metrics of streams small enough to be worked out by hand; times are in microseconds.

use super::*;
use schedlab_model::cpu_set::CpuSet;
use schedlab_model::metric::Metric;
use schedlab_model::policy::{Nice, TaskAttributes};

const A: TaskId = TaskId(1);
const B: TaskId = TaskId(2);
const IDLE: TaskId = TaskId::IDLE;
use PrevState::{Dead, Interruptible, Runnable};

fn info(name: &str, target: bool) -> TaskInfo {
    TaskInfo {
        pid: 0,
        tgid: 0,
        name: name.to_owned(),
        parent: IDLE,
        attributes: TaskAttributes::default(),
        target,
        existed: true,
        start_cpu: CpuId(0),
        start_runnable: false,
    }
}

fn table() -> Vec<TaskInfo> {
    vec![info("swapper", false), info("a", true), info("b", true)]
}

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

fn at(time_us: u64, cpu: u32, kind: EventKind) -> Event {
    Event { time: us(time_us), cpu: CpuId(cpu), kind }
}

fn switch(time_us: u64, cpu: u32, prev: TaskId, prev_state: PrevState, next: TaskId) -> Event {
    at(time_us, cpu, EventKind::Switch { prev, prev_state, next })
}

fn wake(time_us: u64, cpu: u32, waker: TaskId, wakee: TaskId, wakee_cpu: u32) -> Event {
    let context = if waker.is_idle() { Context::HardIrq } else { Context::Task };
    at(time_us, cpu, EventKind::Waking { waker, context, wakee, wakee_cpu: CpuId(wakee_cpu) })
}

fn metrics(tasks: &[TaskInfo], cpus: u32, events: &[Event], end_us: u64) -> RunMetrics {
    let topology = Topology::flat(cpus).expect("a few CPUs");
    let mut collector = MetricsCollector::new(tasks, &topology);
    events.iter().for_each(|event| collector.event(event));
    collector.finish(us(end_us))
}

#[track_caller]
fn check(run: &RunMetrics, metric: Metric, expected: f64) {
    let found = run.get(metric);
    assert!(found.is_some_and(|value| (value - expected).abs() < 1e-6), "{}: {found:?}", metric.key());
}

/// a wakes by interrupt, runs, is preempted by b, comes back, sleeps.
fn one_cpu() -> Vec<Event> {
    vec![
        wake(100, 0, IDLE, A, 0),
        switch(110, 0, IDLE, Runnable, A),
        wake(200, 0, A, B, 0),
        switch(230, 0, A, Runnable, B),
        switch(300, 0, B, Interruptible, A),
        switch(400, 0, A, Interruptible, IDLE),
    ]
}

#[test]
fn waits_slices_and_requests_are_told_apart() {
    let run = metrics(&table(), 1, &one_cpu(), 1_000);
    assert_eq!((run.wakeup_latency.count(), run.wakeup_latency.total()), (2, us(10 + 30)));
    assert_eq!((run.run_delay.count(), run.run_delay.total()), (3, us(10 + 30 + 70)));
    assert_eq!((run.slice_length.count(), run.slice_length.total()), (3, us(120 + 70 + 100)));
    // Only the interrupt's wake-up comes from outside: from 100 to the block at 400.
    assert_eq!((run.request.count(), run.request.total()), (1, us(300)));
    check(&run, Metric::RunDelayTotal, 110e3);
    check(&run, Metric::CpuTime, 290e3);
    check(&run, Metric::Switches, 4.0);
    check(&run, Metric::InvoluntarySwitches, 1.0);
    check(&run, Metric::Migrations, 0.0);
    check(&run, Metric::StarvationMax, 70e3);
    // 10 + 30 + 70 waiting task-microseconds in 1000.
    check(&run, Metric::QueueLengthMean, 0.11);
    check(&run, Metric::IdleWhileQueued, 0.0);
    // Two blocks in one millisecond: no jobs, so bursts count.
    check(&run, Metric::Throughput, 2_000.0);
    assert_eq!(run.get(Metric::Makespan), None, "nobody ended");
    assert_eq!(run.get(Metric::DeadlinesMet), None, "no deadlines");
    let a = &run.tasks[0];
    assert_eq!((a.cpu_time, a.run_delay, a.sleep), (us(220), us(80), us(100 + 600)));
}

#[test]
fn open_waits_are_not_extrapolated_but_starve() {
    let mut events = one_cpu();
    events.truncate(4);
    let run = metrics(&table(), 1, &events, 1_000);
    assert_eq!(run.run_delay.count(), 2, "the open wait of a is in no histogram");
    check(&run, Metric::StarvationMax, 770e3);
    check(&run, Metric::RunDelayTotal, (10 + 30 + 770) as f64 * 1e3);
    assert_eq!(run.slice_length.count(), 1, "the open stay of b is in no histogram");
    check(&run, Metric::CpuTime, (120 + 770) as f64 * 1e3);
}

#[test]
fn the_start_is_cut_off_too() {
    let mut tasks = table();
    tasks[1].start_runnable = true;
    tasks[2].start_runnable = true;
    let events = [switch(50, 0, A, Runnable, B), switch(80, 0, B, Interruptible, A)];
    let run = metrics(&tasks, 1, &events, 100);
    assert_eq!(run.run_delay.count(), 1, "only a's wait of 30 lies within");
    assert_eq!(run.slice_length.total(), us(30), "a's first stay began before the start");
    let (a, b) = (&run.tasks[0], &run.tasks[1]);
    assert_eq!((a.cpu_time, b.cpu_time), (us(50 + 20), us(30)));
    assert_eq!((a.run_delay, b.run_delay), (us(30), us(50)));
}

#[test]
fn a_task_that_never_switches_ran_throughout() {
    let mut tasks = table();
    tasks[1].start_runnable = true;
    let run = metrics(&tasks, 2, &[], 100);
    assert_eq!(run.tasks[0].cpu_time, us(100));
    check(&run, Metric::StarvationMax, 0.0);
}

#[test]
fn idle_while_queued_asks_whether_the_task_may_run_there() {
    // b waits on cpu0 behind a from 20 to 60 while cpu1 idles; then it moves.
    let events = [
        wake(0, 0, IDLE, A, 0),
        switch(10, 0, IDLE, Runnable, A),
        wake(20, 0, A, B, 0),
        at(60, 1, EventKind::Migrate { task: B, from: CpuId(0), to: CpuId(1) }),
        switch(65, 1, IDLE, Runnable, B),
    ];
    let run = metrics(&table(), 2, &events, 100);
    check(&run, Metric::IdleWhileQueued, 40e3);
    check(&run, Metric::Migrations, 1.0);
    check(&run, Metric::MigrationsCrossCache, 0.0);

    let mut pinned = table();
    pinned[2].attributes.affinity = CpuSet::single(CpuId(0));
    check(&metrics(&pinned, 2, &events[..3], 100), Metric::IdleWhileQueued, 0.0);
    let mut restricted = table();
    restricted[2].attributes.affinity = CpuSet::first(2);
    check(&metrics(&restricted, 3, &events, 100), Metric::IdleWhileQueued, 40e3);
}

#[test]
fn moves_between_caches_are_counted_apart() {
    let topology = Topology::uniform(1, 2, 2, 1).expect("4 CPUs, 2 caches");
    let mut collector = MetricsCollector::new(&table(), &topology);
    let mut time = 0;
    for cpu in [0, 1, 2, 3, 0] {
        collector.event(&wake(time, cpu, IDLE, A, cpu));
        collector.event(&switch(time + 1, cpu, IDLE, Runnable, A));
        collector.event(&switch(time + 2, cpu, A, Interruptible, IDLE));
        time += 10;
    }
    let run = collector.finish(us(100));
    check(&run, Metric::Migrations, 4.0);
    check(&run, Metric::MigrationsCrossCache, 2.0);
}

#[test]
fn jobs_count_as_throughput_and_by_their_deadline() {
    let job = |time, deadline| at(time, 0, EventKind::Job { task: A, released: us(0), deadline });
    let events = [job(10, us(10)), job(20, us(19)), job(30, us(40)), job(35, Nanos::MAX)];
    let run = metrics(&table(), 1, &events, 1_000);
    check(&run, Metric::DeadlinesMet, 2.0 / 3.0);
    check(&run, Metric::Throughput, 4_000.0);
}

#[test]
fn fairness_weighs_hogs_and_leaves_sleepers_out() {
    let mut tasks = table();
    tasks.push(info("sleeper", true));
    tasks[2].attributes.nice = Nice::new(5).expect("in range");
    for task in &mut tasks[1..3] {
        task.start_runnable = true;
    }
    // nice 0 has weight 1024, nice 5 has 335: service in that proportion is wholly fair.
    let events = [switch(1_024, 0, A, Runnable, B), switch(1_359, 0, B, Runnable, A)];
    let run = metrics(&tasks, 1, &events, 1_359);
    check(&run, Metric::Fairness, 1.0);
    let events = [switch(1_300, 0, A, Runnable, B)];
    let x = [1_300.0 / 1024.0, 59.0 / 335.0];
    let jain = (x[0] + x[1]) * (x[0] + x[1]) / (2.0 * (x[0] * x[0] + x[1] * x[1]));
    check(&metrics(&tasks, 1, &events, 1_359), Metric::Fairness, jain);
}

#[test]
fn makespan_runs_from_the_first_sign_to_the_last_end() {
    let mut tasks = table();
    tasks.iter_mut().for_each(|task| task.existed = false);
    tasks.truncate(2);
    let events = [
        at(100, 0, EventKind::WakeupNew { task: A, target_cpu: CpuId(0) }),
        switch(110, 0, IDLE, Runnable, A),
        // The child is beyond the table and inherits that it belongs to the target.
        at(120, 0, EventKind::Fork { parent: A, child: B }),
        at(121, 0, EventKind::WakeupNew { task: B, target_cpu: CpuId(0) }),
        at(150, 0, EventKind::Exit { task: A }),
        switch(151, 0, A, Dead, B),
        at(190, 0, EventKind::Exit { task: B }),
        switch(191, 0, B, Dead, IDLE),
    ];
    let run = metrics(&tasks, 1, &events, 300);
    check(&run, Metric::Makespan, 90e3);
    check(&run, Metric::CpuTime, 81e3);
    assert_eq!(run.wakeup_latency.count(), 0, "a birth is no wake-up");
    assert_eq!(run.run_delay.total(), us(10 + 30));
    assert_eq!(run.tasks[1].name, "a");
}

#[test]
fn a_wakeup_that_races_with_the_sleep_is_not_lost() {
    let events = [
        wake(0, 0, IDLE, A, 0),
        switch(10, 0, IDLE, Runnable, A),
        wake(19, 0, IDLE, A, 0),
        switch(20, 0, A, Interruptible, IDLE),
        switch(25, 0, IDLE, Runnable, A),
    ];
    let run = metrics(&table(), 1, &events, 100);
    assert_eq!((run.wakeup_latency.count(), run.wakeup_latency.total()), (2, us(10 + 5)));
}

#[test]
fn damaged_streams_are_survived() {
    let lost = TaskId(77);
    let events = [
        switch(5, 9, lost, Runnable, A),
        switch(6, 9, B, Dead, lost),
        wake(7, 9, lost, lost, 9),
        at(8, 9, EventKind::Migrate { task: lost, from: CpuId(9), to: CpuId(12) }),
        switch(9, 12, A, Interruptible, B),
        switch(10, 0, lost, Runnable, lost),
    ];
    let run = metrics(&table(), 2, &events, 20);
    check(&run, Metric::Switches, 4.0);
}

#[test]
fn a_table_told_row_by_row_gives_the_same_numbers() {
    let topology = Topology::flat(1).expect("one CPU");
    let mut collector = MetricsCollector::new(&[], &topology);
    for (index, row) in table().iter().enumerate() {
        EventSink::task(&mut collector, TaskId(index as u32), row);
    }
    one_cpu().iter().for_each(|event| collector.event(event));
    assert_eq!(collector.finish(us(1_000)), metrics(&table(), 1, &one_cpu(), 1_000));
}
