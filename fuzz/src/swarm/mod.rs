//! Random whole simulations, watched by a checker: no task is lost or runs twice, time is monotonic, CPUs of a task are
//! respected, accounting adds up, and no CPU idles beside waiting work where the policy promises it.
//!
//! The target `simulation` and `tests/swarm.rs` run them.

pub mod checker;
pub mod generator;

use crate::source::Source;
use checker::Checker;
use generator::Case;
use schedlab_model::event::{Event, EventKind, EventSink, PrevState};
use schedlab_model::recording::TaskInfo;
use schedlab_model::{Nanos, TaskId};
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::{Scheduler, SimError, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

/// Runs a case.
///
/// # Errors
/// What the simulation says.
pub fn simulate(case: &generator::Case, sink: &mut impl EventSink) -> Result<SimulationResult, SimError> {
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
///
/// # Errors
/// What was promised and not kept.
pub fn check(case: &Case) -> Result<(), String> {
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
    let result = match simulate(case, &mut checker) {
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
    let again = simulate(case, &mut schedlab_model::event::NullSink).map_err(|error| error.to_string())?;
    if again.report.event_hash != result.report.event_hash {
        return Err("a second run differs".to_owned());
    }
    Ok(())
}

/// The target `simulation`: the case that the bytes make.
///
/// # Panics
/// If a promise is not kept. With `planted`, an event of the run is lost or spoilt.
pub fn fuzz(bytes: &[u8], planted: bool) {
    let case = generator::case(&mut Source::of(bytes));
    if planted {
        let kind = u32::from(bytes.first().copied().unwrap_or(0) % 4);
        if let Some(broken) = spoilt(&case, kind).flatten() {
            panic!("a planted mistake is found: {broken}");
        }
        return;
    }
    if let Err(broken) = check(&case) {
        let (kernel, cpus) = (case.machine.kernel, case.machine.topology.cpu_count());
        panic!("{:?}, kernel {kernel}, {cpus} CPUs: {broken}", case.object);
    }
}

/// Runs a case with a mistake of a kind (0 to 3) in its events: `None` if the run was too short for it, else what
/// the checker found.
#[must_use]
pub fn spoilt(case: &Case, kind: u32) -> Option<Option<String>> {
    let mut checker = Checker::new(case.machine.topology.cpu_count(), true, false, &[]);
    let mut spoiler = Spoiler { checker: &mut checker, kind, left: if kind == 1 { 5 } else { 40 } };
    let result = simulate(case, &mut spoiler).ok()?;
    let reached = spoiler.left == 0;
    checker.finish(&result);
    reached.then_some(checker.broken)
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
