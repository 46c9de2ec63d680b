//! Random whole simulations, watched by a checker: no task is lost or runs twice, time is monotonic, CPUs of a task are
//! respected, accounting adds up, and no CPU idles beside waiting work where the policy promises it.
//!
//! `SWARM_SECONDS=600 cargo test --release -p schedlab-sim --test swarm -- --nocapture swarm` runs for that long from a
//! new place; a seed that fails is printed and belongs into [`KEPT`].

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "how long a round runs is the caller's wish; the simulations know nothing of it"
)]

mod checker;
mod dice;
mod generator;

use checker::Checker;
use schedlab_model::event::{Event, EventKind, EventSink, PrevState};
use schedlab_model::recording::TaskInfo;
use schedlab_model::{Nanos, TaskId};
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::{Scheduler, SimError, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Seeds that once failed. 353: a task that changed from ext to real-time while it ran was charged twice.
const KEPT: &[u64] = &[353];

/// How many cases a short round has, from seed 1.
const SHORT: u64 = 400;

fn simulate(case: &generator::Case, sink: &mut impl EventSink) -> Result<SimulationResult, SimError> {
    let mut config = SimulationConfig::new(case.machine.clone(), Arc::new(case.workload.clone()));
    if let Some(name) = case.object {
        let bytes = schedlab_objects::scheduler(name).expect("an object");
        let topology = &case.machine.topology;
        let loaded = ExtScheduler::load(name, bytes, case.machine.kernel, topology, ExtOptions::default());
        config.scheduler = Scheduler::Ext(loaded.expect("the object loads"));
    }
    Simulation::new(config)?.run(sink)
}

/// Runs a case twice; what is wrong with it.
fn check(seed: u64) -> Result<(), String> {
    let case = generator::case(seed);
    let cpus = case.machine.topology.cpu_count();
    // One queue for all CPUs leaves no CPU idle, but for two cases: a task that a real-time one has driven out goes on
    // where it was, and who is woken through a pipe waits for its waker (SCX_WAKE_SYNC). Every class on one CPU.
    let realtime = case.workload.tasks.iter().any(|task| task.attributes.policy.is_realtime());
    let conserves =
        case.fixed_affinity && (case.object == Some("fifo") && !realtime && !case.pipes || cpus == 1);
    // Tasks that do not move to other groups, under the class that knows quotas.
    let limited = case.fixed_affinity && case.object.is_none();
    let cgroups = if limited { &case.workload.cgroups[..] } else { &[] };
    let mut checker = Checker::new(cpus, case.fixed_affinity, conserves, cgroups);
    let result = match simulate(&case, &mut checker) {
        Ok(result) => result,
        // Random programs may all wait for each other.
        Err(SimError::Deadlock { .. }) => return checker.broken.map_or(Ok(()), Err),
        Err(error) => return Err(format!("the run fails: {error}")),
    };
    checker.finish(&result);
    if let Some(broken) = checker.broken {
        return Err(broken);
    }
    if let Some(exit) = &result.scheduler_exit {
        return Err(format!("the scheduler ended: {} {}", exit.reason, exit.message));
    }
    let again = simulate(&case, &mut schedlab_model::event::NullSink).map_err(|error| error.to_string())?;
    if again.report.event_hash != result.report.event_hash {
        return Err("a second run differs".to_owned());
    }
    Ok(())
}

#[test]
fn swarm() {
    let seconds = std::env::var("SWARM_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = seconds.map(Duration::from_secs);
    let first = if limit.is_some() { u64::from(std::process::id()) << 32 } else { 1 };
    let begun = Instant::now();
    let goes_on = |done: u64| limit.map_or(done < SHORT, |limit| begun.elapsed() < limit);
    let fresh = (0..).take_while(|done| goes_on(*done)).map(|done| first + done);
    let mut done = 0_u64;
    for seed in KEPT.iter().copied().chain(fresh) {
        done += 1;
        if let Err(broken) = check(seed) {
            let case = generator::case(seed);
            let (kernel, cpus) = (case.machine.kernel, case.machine.topology.cpu_count());
            panic!("seed {seed} ({:?}, kernel {kernel}, {cpus} CPUs): {broken}", case.object);
        }
    }
    println!("{done} cases in {:?}", begun.elapsed());
}

/// Passes events on, but for one that it spoils.
struct Spoiler<'a> {
    checker: &'a mut Checker,
    kind: u32,
    left: u32,
}

impl EventSink for Spoiler<'_> {
    fn task(&mut self, task: TaskId, info: &TaskInfo) {
        self.checker.task(task, info);
    }

    fn event(&mut self, event: &Event) {
        let mut event = *event;
        let matches = match self.kind {
            0 | 2 => matches!(event.kind, EventKind::Waking { .. }),
            1 => {
                matches!(event.kind, EventKind::Switch { prev_state: PrevState::Runnable, prev, .. } if !prev.is_idle())
            }
            _ => matches!(event.kind, EventKind::Switch { prev, .. } if !prev.is_idle()),
        };
        self.left -= u32::from(matches && self.left > 0);
        if matches && self.left == 1 {
            self.left = 0;
            match (self.kind, &mut event.kind) {
                // A lost wake-up, a time that goes back, a task that sleeps without having said so, a lost switch.
                (0, _) | (3, _) => return,
                (1, EventKind::Switch { prev_state, .. }) => *prev_state = PrevState::Stopped,
                _ => event.time = event.time.saturating_sub(Nanos::from_millis(5)),
            }
        }
        self.checker.event(&event);
    }
}

/// The canary: each kind of mistake in the stream of events must be found in nearly every case.
#[test]
fn spoilt_runs_are_found() {
    for kind in 0..4 {
        let (mut spoilt, mut found) = (0, 0);
        for seed in 1..60 {
            let case = generator::case(seed);
            let mut checker = Checker::new(case.machine.topology.cpu_count(), true, false, &[]);
            let mut spoiler = Spoiler { checker: &mut checker, kind, left: if kind == 1 { 5 } else { 40 } };
            let Ok(result) = simulate(&case, &mut spoiler) else { continue };
            let reached = spoiler.left == 0;
            checker.finish(&result);
            spoilt += u32::from(reached);
            found += u32::from(reached && checker.broken.is_some());
        }
        assert!(spoilt > 20, "kind {kind}: only {spoilt} runs were long enough");
        assert!(found * 10 >= spoilt * 9, "kind {kind}: {found} of {spoilt} found");
    }
}
