//! The comparison loop: every candidate on every piece of work with every seed, in rounds.
//!
//! A round is one seed over all candidates and works, so that a loop that is stopped early still holds
//! pairs. Control runs (the baseline against itself with other seeds) give the noise floor. What the
//! numbers mean is not decided here.

use schedlab_model::lever::Candidate;
use schedlab_model::outcome::{Machine, MachineError, RunOutcome, RunRequest};
use std::ops::ControlFlow;

/// How much to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareOptions {
    /// Seeds for each candidate and work.
    pub seeds: u32,
    /// The first seed; others follow.
    pub seed_first: u64,
    /// Whether to run the baseline against itself.
    pub control: bool,
    /// Rounds with every modelled cost perturbed, one seed each; 0 leaves them out.
    pub perturbed_rounds: u32,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions { seeds: 5, seed_first: 1, control: true, perturbed_rounds: 0 }
    }
}

/// One run and what became of it.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Index of the candidate.
    pub candidate: usize,
    /// Index of the work.
    pub work: usize,
    /// Seed.
    pub seed: u64,
    /// Seed of the cost perturbation, if any.
    pub cost_seed: Option<u64>,
    /// The baseline against itself.
    pub control: bool,
    /// Its outcome, or why there is none.
    pub outcome: Result<RunOutcome, MachineError>,
}

/// All runs of a comparison.
#[derive(Clone, Debug, Default)]
pub struct CompareRuns {
    /// In the order they were asked for.
    pub cells: Vec<Cell>,
    /// Stopped before all rounds were done; whole rounds are kept.
    pub interrupted: bool,
}

/// Distance between the seeds of a run and of its control, so that the two never meet.
const CONTROL_SEED_OFFSET: u64 = 1 << 32;

/// Runs a comparison. The first candidate is the baseline. `progress` hears (runs done, runs in all) after
/// each round and can end the loop.
pub fn compare<M: Machine + ?Sized>(
    machine: &mut M,
    candidates: &[Candidate],
    options: &CompareOptions,
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> CompareRuns {
    let works = machine.work_count();
    let per_round = candidates.len() * works;
    let control = if options.control { works } else { 0 };
    let total =
        (per_round + control) * options.seeds as usize + per_round * options.perturbed_rounds as usize;
    let mut runs = CompareRuns::default();
    for round in 0..options.seeds + options.perturbed_rounds {
        let cost_seed = round.checked_sub(options.seeds).map(u64::from);
        let seed = options.seed_first + u64::from(cost_seed.map_or(round, |_| 0));
        let plan = round_plan(candidates.len(), works, seed, cost_seed, options.control);
        if !run_round(machine, candidates, &plan, &mut runs) || progress(runs.cells.len(), total).is_break() {
            runs.interrupted = round + 1 < options.seeds + options.perturbed_rounds;
            break;
        }
    }
    runs
}

/// One run to be made: (candidate, work, seed, cost seed, control).
type Planned = (usize, usize, u64, Option<u64>, bool);

fn round_plan(
    candidates: usize,
    works: usize,
    seed: u64,
    cost_seed: Option<u64>,
    control: bool,
) -> Vec<Planned> {
    let mut plan = Vec::new();
    for work in 0..works {
        plan.extend((0..candidates).map(|candidate| (candidate, work, seed, cost_seed, false)));
        if control && cost_seed.is_none() {
            plan.push((0, work, seed + CONTROL_SEED_OFFSET, None, true));
        }
    }
    plan
}

/// Runs one round; an interrupted one is thrown away as a whole. Returns whether to go on.
fn run_round<M: Machine + ?Sized>(
    machine: &mut M,
    candidates: &[Candidate],
    plan: &[Planned],
    runs: &mut CompareRuns,
) -> bool {
    let requests: Vec<RunRequest<'_>> = plan
        .iter()
        .map(|&(candidate, work, seed, cost_seed, _)| RunRequest {
            candidate: &candidates[candidate],
            work,
            seed,
            cost_seed,
        })
        .collect();
    let outcomes = machine.run_all(&requests);
    assert_eq!(outcomes.len(), plan.len(), "a machine answers every request");
    if outcomes.contains(&Err(MachineError::Interrupted)) {
        runs.interrupted = true;
        return false;
    }
    let cells = plan.iter().zip(outcomes).map(|(&(candidate, work, seed, cost_seed, control), outcome)| {
        Cell { candidate, work, seed, cost_seed, control, outcome }
    });
    runs.cells.extend(cells);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::metric::RunMetrics;
    use schedlab_model::outcome::Obtained;

    /// Answers every request; stops answering after `left` requests.
    struct FakeMachine {
        left: usize,
        seen: Vec<(String, usize, u64, Option<u64>)>,
    }

    impl Machine for FakeMachine {
        fn obtained(&self) -> Obtained {
            Obtained::Predicted
        }

        fn work_count(&self) -> usize {
            2
        }

        fn run_all(&mut self, requests: &[RunRequest<'_>]) -> Vec<Result<RunOutcome, MachineError>> {
            let mut run = |request: &RunRequest<'_>| {
                self.left = self.left.checked_sub(1).ok_or(MachineError::Interrupted)?;
                self.seen.push((
                    request.candidate.name.clone(),
                    request.work,
                    request.seed,
                    request.cost_seed,
                ));
                Ok(RunOutcome {
                    obtained: Obtained::Predicted,
                    metrics: RunMetrics::default(),
                    scheduler_exit: None,
                    failed_forks: None,
                    simulator: None,
                    cut: false,
                })
            };
            requests.iter().map(&mut run).collect()
        }
    }

    fn candidates() -> Vec<Candidate> {
        crate::standard_candidates(&[], schedlab_model::machine::KernelVersion::V6_18)
            .into_iter()
            .take(3)
            .collect()
    }

    #[test]
    fn every_candidate_meets_every_work_and_seed_once() {
        let mut machine = FakeMachine { left: usize::MAX, seen: Vec::new() };
        let options = CompareOptions { seeds: 4, perturbed_rounds: 2, ..CompareOptions::default() };
        let mut told = Vec::new();
        let runs = compare(&mut machine, &candidates(), &options, |done, total| {
            told.push((done, total));
            ControlFlow::Continue(())
        });
        assert_eq!(runs.cells.len(), (3 * 2 + 2) * 4 + 3 * 2 * 2);
        assert_eq!(told.last(), Some(&(runs.cells.len(), runs.cells.len())));
        assert!(!runs.interrupted);
        let mut seen = machine.seen.clone();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), machine.seen.len(), "no run is made twice");
        assert_eq!(runs.cells.iter().filter(|cell| cell.control).count(), 2 * 4);
        assert!(runs.cells.iter().filter(|cell| cell.control).all(|cell| cell.candidate == 0));
    }

    #[test]
    fn an_interrupted_round_is_thrown_away_whole() {
        let mut machine = FakeMachine { left: 20, seen: Vec::new() };
        let go_on = |_: usize, _: usize| ControlFlow::Continue(());
        let runs = compare(&mut machine, &candidates(), &CompareOptions::default(), go_on);
        assert!(runs.interrupted);
        assert_eq!(runs.cells.len(), 16, "two whole rounds of eight");
    }

    #[test]
    fn the_caller_can_end_the_loop() {
        let mut machine = FakeMachine { left: usize::MAX, seen: Vec::new() };
        let stop = |_: usize, _: usize| ControlFlow::Break(());
        let runs = compare(&mut machine, &candidates(), &CompareOptions::default(), stop);
        assert!(runs.interrupted);
        assert_eq!(runs.cells.len(), 8);
    }
}
