//! What a scheduler's own code does, measured by running it: slices at every nice value, instructions of each callback.
//!
//! No formula is repeated here: the object runs in small simulations without costs, and its turns are read off.

use crate::inputs::schedulers::Described;
use anyhow::{Result, anyhow};
use schedlab_model::event::{Event, EventKind, NullSink, PriorityCause};
use schedlab_model::ids::TaskId;
use schedlab_model::lever::Setting;
use schedlab_model::machine::{Costs, KernelVersion, MachineDescription};
use schedlab_model::outcome::SchedulerExit;
use schedlab_model::policy::Nice;
use schedlab_model::time::Nanos;
use schedlab_model::topology::Topology;
use schedlab_model::workload::file;
use schedlab_report::html::{CallbackCost, DecisionCost, SliceCurve};
use schedlab_report::units;
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By then tasks of the schedulers of 2006 have lost what bonus they began with: one stay counts as a quarter of a
/// second of history at most under nicksched.
const SETTLED_LATE_S: u64 = 100;
/// Others have nothing to forget.
const SETTLED_SOON_S: u64 = 2;
/// The best task comes so much later than the one that it keeps waiting: who hardly runs would keep a history of nothing.
const BEST_LATE_S: u64 = 40;
/// At least this many turns of the longest kind come after that.
const MEASURED_S: u64 = 12;
const BAR_MOST: f64 = 40.0;
/// The first kernel whose fair class is EEVDF.
const EEVDF_SINCE: KernelVersion = KernelVersion { major: 6, minor: 6 };
/// `sched_latency` of CFS on one CPU.
const CFS_LATENCY_NS: u64 = 6_000_000;

/// Slices of two equal tasks that never sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlicePoint {
    /// Their nice value.
    pub nice: i32,
    /// How long one runs before the other; none if nobody's turn ended.
    pub turn_ns: Option<u64>,
    /// How long one runs alone until its priority is what it was at first; none if running does not change it.
    pub slice_ns: Option<u64>,
    /// How long one runs before one of nice -20 that came later, if its scheduler changes priorities; none if it starved.
    pub behind_best_ns: Option<u64>,
    /// Of one beside a task of nice 0, under CFS's rules; none under others.
    pub beside: Option<Beside>,
}

/// The slice of a task of some nice value beside one of nice 0 that never sleeps either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// How long it runs before the other, on average; none if its turn never ended.
    pub turn_ns: Option<u64>,
    /// Its part of the latency by weight: equation 3 of the paper of 2021.
    pub equation_ns: u64,
}

/// Both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curves {
    /// At every nice value.
    pub slices: Vec<SlicePoint>,
    /// Of a decision; none of the kernel's own class, which is no object.
    pub decision: Option<DecisionCost>,
}

/// Measures a scheduler with its knobs as they are.
pub fn measure(described: &Described, kernel: KernelVersion) -> Result<Curves> {
    let one = Bench::new(described, kernel, 1)?;
    Ok(Curves { slices: slices(&one)?, decision: Some(decision(described, kernel, DECISION_CPUS)?) })
}

/// What a decision costs on so many CPUs, of one last-level cache.
pub fn decision(described: &Described, kernel: KernelVersion, cpus: u32) -> Result<DecisionCost> {
    Bench::new(described, kernel, cpus)?.decision()
}

/// How long a task that never sleeps runs before a better one of another nice value, in ns; none if its turn never ended.
pub fn turn_behind(
    described: &Described,
    kernel: KernelVersion,
    nice: i32,
    best: i32,
) -> Result<Option<u64>> {
    Bench::new(described, kernel, 1)?.behind(nice, best)
}

/// Measures the fair class of a kernel.
pub fn measure_fair(kernel: KernelVersion) -> Result<Curves> {
    Ok(Curves { slices: slices(&Bench::fair(kernel)?)?, decision: None })
}

fn slices(one: &Bench) -> Result<Vec<SlicePoint>> {
    std::thread::scope(|scope| {
        // Two threads: the simulations are independent.
        let half = |nices: std::ops::RangeInclusive<i32>| {
            scope.spawn(move || nices.map(|nice| one.slices_at(nice)).collect::<Result<Vec<_>>>())
        };
        let (low, high) = (half(-20..=-1), half(0..=19));
        let joined = |handle: std::thread::ScopedJoinHandle<'_, Result<Vec<SlicePoint>>>| {
            handle.join().map_err(|_| anyhow!("a simulation panicked"))?
        };
        let mut slices = joined(low)?;
        slices.extend(joined(high)?);
        Ok(slices)
    })
}

impl Curves {
    /// Whether what a task gets behind a better one is more than its own slice: worth a curve where it is not only the own.
    fn has_behind(&self) -> bool {
        let depends =
            |point: &SlicePoint| point.behind_best_ns.is_some_and(|turn| Some(turn) != point.turn_ns);
        self.slices.iter().any(depends)
    }

    /// Those that there are, to be drawn.
    pub fn drawn(&self) -> Vec<SliceCurve<'_>> {
        let curve = |label, of: &dyn Fn(&SlicePoint) -> Option<u64>| {
            let points = self.slices.iter().filter_map(|point| Some((point.nice, of(point)?))).collect();
            SliceCurve { label, points }
        };
        let mut all = vec![
            curve("turn of two equal tasks", &|point| point.turn_ns),
            curve("back to the first priority, alone", &|point| point.slice_ns),
            curve("turn beside a task of nice 0", &|point| point.beside?.turn_ns),
            curve("equation 3", &|point| Some(point.beside?.equation_ns)),
        ];
        if self.has_behind() {
            all.push(curve("turn behind a task of nice -20", &|point| point.behind_best_ns));
        }
        all.retain(|curve| !curve.points.is_empty());
        all
    }
}

/// The curves as text.
pub fn render(curves: &Curves) -> String {
    let slice = |point: &SlicePoint| point.slice_ns.or(point.turn_ns).unwrap_or(0);
    let most = curves.slices.iter().map(slice).max().unwrap_or(0).max(1) as f64;
    let has_slices = curves.slices.iter().any(|point| point.slice_ns.is_some());
    let has_behind = curves.has_behind();
    let time = |time: Option<u64>| time.map_or("-".to_owned(), |time| Nanos(time).to_string());
    let mut text = String::from("Slices     of tasks that never sleep, by nice value, from runs\n");
    let mut line = |nice: &str, slice: &str, turn: &str, behind: &str, bar: &str| {
        text += &format!("           {nice:>4}");
        for (cell, shown) in [(slice, has_slices), (turn, true), (behind, has_behind)] {
            text += &if shown { format!(" {cell:>10}") } else { String::new() };
        }
        text += &if bar.is_empty() { "\n".to_owned() } else { format!("  {bar}\n") };
    };
    line("nice", "slice", "turn", "behind -20", "");
    for point in &curves.slices {
        let bar = "█".repeat((slice(point) as f64 / most * BAR_MOST).round() as usize);
        let [slice, turn, behind] = [point.slice_ns, point.turn_ns, point.behind_best_ns].map(time);
        line(&point.nice.to_string(), &slice, &turn, &behind, &bar);
    }
    text += &besides(&curves.slices);
    let Some(decision) = &curves.decision else { return text };
    text += &format!(
        "Decision   {:.0} instructions of scheduler code for each switch (8 pairs on {DECISION_CPUS} CPUs)\n",
        decision.instructions_per_switch
    );
    for cost in &decision.callbacks {
        text += &format!(
            "           {:<12} {:>6.2} calls a switch, {:>5.0} instructions each, {} at most\n",
            cost.callback,
            cost.calls_per_switch,
            cost.instructions_mean,
            units::grouped(cost.instructions_max as i64)
        );
    }
    text
}

/// Slices beside a task of nice 0, as they are and as equation 3 has them.
fn besides(slices: &[SlicePoint]) -> String {
    let rows: Vec<String> = slices
        .iter()
        .filter_map(|point| {
            let beside = point.beside?;
            let turn = beside.turn_ns.map_or("-".to_owned(), |turn| Nanos(turn).to_string());
            let equation = Nanos(beside.equation_ns).to_string();
            Some(format!("           {:>4} {turn:>10} {equation:>14}\n", point.nice))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    "Beside     a task of nice 0: mean turn, and weight / weight of both * latency (equation 3); turns end at ticks\n     \x20          nice       turn     equation 3\n"
        .to_owned()
        + &rows.concat()
}

/// `SCX_EXIT_ERROR_STALL`: a task has waited for longer than the watchdog allows.
const STALL: u32 = 1026;

/// CPUs of the runs that measure decisions.
const DECISION_CPUS: u32 = 4;

/// Small simulations of one scheduler.
struct Bench {
    scheduler: Scheduler,
    machine: MachineDescription,
    /// In which each task shall run once, if it has CFS's rules.
    latency: Option<u64>,
    /// It can log its changes of priority.
    logs: bool,
}

impl Bench {
    fn new(described: &Described, kernel: KernelVersion, cpus: u32) -> Result<Bench> {
        let machine = machine(kernel, cpus)?;
        let scheduler =
            ExtScheduler::new(described.image.clone(), kernel, &machine.topology, ExtOptions::default())?;
        let knob = |name: &str| described.knobs.iter().find(|knob| knob.name == name);
        let logs = knob(super::pictures::LOG).is_some();
        let latency = knob("latency_ns").map(|knob| knob.default as u64);
        Ok(Bench { scheduler: Scheduler::Ext(scheduler), machine, latency, logs })
    }

    /// The kernel's own class on one CPU.
    fn fair(kernel: KernelVersion) -> Result<Bench> {
        let latency = (kernel < EEVDF_SINCE).then_some(CFS_LATENCY_NS);
        Ok(Bench { scheduler: Scheduler::Kernel, machine: machine(kernel, 1)?, latency, logs: false })
    }

    fn simulation(&self, workload: &str, logs: bool) -> Result<Simulation> {
        let workload = Arc::new(file::parse(workload)?);
        let mut config = SimulationConfig {
            scheduler: self.scheduler.clone(),
            ..SimulationConfig::new(self.machine.clone(), workload)
        };
        if logs {
            config.settings.push(Setting::Knob { name: super::pictures::LOG.to_owned(), value: 1 });
        }
        Ok(Simulation::new(config)?)
    }

    /// What hogs of these nice values do, once they have settled, and when that was.
    fn hogs(&self, nices: &[i32]) -> Result<(Vec<Event>, Nanos)> {
        match self.hogs_from(&nices.iter().map(|nice| (*nice, 0)).collect::<Vec<_>>())? {
            (_, _, Some(exit)) => Err(ended(&exit)),
            (events, from, None) => Ok((events, from)),
        }
    }

    /// The same, each beginning at its second, and why the scheduler ended, if it did.
    fn hogs_from(&self, hogs: &[(i32, u64)]) -> Result<(Vec<Event>, Nanos, Option<SchedulerExit>)> {
        let latest = hogs.iter().map(|(_, start)| *start).max().unwrap_or(0);
        let settled = latest + if self.logs { SETTLED_LATE_S } else { SETTLED_SOON_S };
        let length = settled + MEASURED_S;
        let hog = |(number, (nice, start)): (usize, &(i32, u64))| {
            format!(
                "[[task]]\nname = \"hog{number}\"\nnice = {nice}\nstart = \"{start}s\"\nsteps = [{{ run = \"600s\" }}]\n"
            )
        };
        let alone = hogs.len() == 1;
        let hogs: String = hogs.iter().enumerate().map(hog).collect();
        let text = format!("name = \"hogs\"\nduration = \"{length}s\"\n{hogs}");
        let mut events: Vec<Event> = Vec::new();
        let result = self.simulation(&text, self.logs && alone)?.run(&mut events)?;
        Ok((events, Nanos(settled * 1_000_000_000), result.scheduler_exit))
    }

    fn slices_at(&self, nice: i32) -> Result<SlicePoint> {
        let (events, from) = self.hogs(&[nice, nice])?;
        let turn_ns = turn(&events, from, |task| !task.is_idle());
        let slice_ns = if self.logs {
            let (events, from) = self.hogs(&[nice])?;
            round(&events, from)
        } else {
            None
        };
        let beside = self.latency.map(|latency| self.beside(nice, latency)).transpose()?;
        let behind_best_ns = if self.logs { self.behind(nice, -20)? } else { None };
        Ok(SlicePoint { nice, turn_ns, slice_ns, behind_best_ns, beside })
    }

    /// The usual turn of a task beside a better one; none if it starves, for which a watchdog ends the scheduler.
    fn behind(&self, nice: i32, best: i32) -> Result<Option<u64>> {
        let (events, from, exit) = self.hogs_from(&[(nice, 0), (best, BEST_LATE_S)])?;
        match exit {
            Some(exit) if exit.kind == STALL => Ok(None),
            Some(exit) => Err(ended(&exit)),
            None => Ok(turn(&events, from, |task| task == TaskId(1))),
        }
    }

    fn beside(&self, nice: i32, latency: u64) -> Result<Beside> {
        let (events, from) = self.hogs(&[nice, 0])?;
        // The first task of a workload is task 1.
        let stays = stays(&events, from, |task| task == TaskId(1));
        let turn_ns = (!stays.is_empty()).then(|| stays.iter().sum::<u64>() / stays.len() as u64);
        let own = u64::from(Nice::new(nice.into()).map_err(|error| anyhow!("{error}"))?.weight());
        let both = own + u64::from(Nice::ZERO.weight());
        Ok(Beside { turn_ns, equation_ns: latency * own / both })
    }

    fn decision(&self) -> Result<DecisionCost> {
        const PAIRS: &str = "name = \"pairs\"\nduration = \"500ms\"\n[channels]\n\
            to = { type = \"bytes\", count = 8 }\nfro = { type = \"bytes\", count = 8 }\n\
            [[task]]\nname = \"ping\"\ncount = 8\nsteps = [{ loop = { steps = [{ run = \"20us\" }, \
            { send = { channel = \"to{i}\", bytes = 10 } }, { receive = { channel = \"fro{i}\", bytes = 10 } }] } }]\n\
            [[task]]\nname = \"pong\"\ncount = 8\nsteps = [{ loop = { steps = [{ receive = { channel = \"to{i}\", bytes = 10 } }, \
            { run = \"20us\" }, { send = { channel = \"fro{i}\", bytes = 10 } }] } }]\n";
        let mut simulation = self.simulation(PAIRS, false)?;
        simulation.log_callbacks();
        let result = simulation.run(&mut NullSink)?;
        let switches = result.report.context_switches.max(1) as f64;
        let mut calls: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for record in simulation.take_callbacks().records {
            calls.entry(record.callback).or_default().push(record.instructions);
        }
        let cost = |(callback, instructions): (&str, Vec<u64>)| CallbackCost {
            callback: callback.to_owned(),
            calls_per_switch: instructions.len() as f64 / switches,
            instructions_mean: instructions.iter().sum::<u64>() as f64 / instructions.len() as f64,
            instructions_max: instructions.iter().copied().max().unwrap_or(0),
        };
        let total = |cost: &CallbackCost| cost.calls_per_switch * cost.instructions_mean;
        // What runs once for each task or each run is no part of a decision.
        let mut callbacks: Vec<CallbackCost> = calls.into_iter().map(cost).collect();
        callbacks.retain(|cost| cost.calls_per_switch >= 0.005);
        callbacks.sort_by(|a, b| total(b).total_cmp(&total(a)));
        Ok(DecisionCost { instructions_per_switch: callbacks.iter().map(total).sum(), callbacks })
    }
}

fn ended(exit: &SchedulerExit) -> anyhow::Error {
    anyhow!("it ended ({}): {}", exit.reason, exit.message)
}

fn machine(kernel: KernelVersion, cpus: u32) -> Result<MachineDescription> {
    let topology = Topology::flat(cpus).map_err(|error| anyhow!("{error}"))?;
    let mut machine = MachineDescription::generic("curves", topology);
    machine.kernel = kernel;
    machine.hz = 1000;
    machine.costs = Costs::none();
    Ok(machine)
}

/// Lengths of the stays on the CPU that began after `from`, of some tasks.
fn stays(events: &[Event], from: Nanos, of: impl Fn(TaskId) -> bool) -> Vec<u64> {
    let mut since: Option<Nanos> = None;
    let mut stays = Vec::new();
    for event in events {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        if let Some(start) = since.take().filter(|start| *start >= from && of(prev)) {
            stays.push(event.time.0 - start.0);
        }
        since = (!next.is_idle()).then_some(event.time);
    }
    stays
}

/// The usual length of a stay on the CPU that began after `from`, of some tasks.
fn turn(events: &[Event], from: Nanos, of: impl Fn(TaskId) -> bool) -> Option<u64> {
    let mut stays = stays(events, from, of);
    stays.sort_unstable();
    stays.get(stays.len() / 2).copied()
}

/// The time between two returns to the best priority of a task that only runs.
fn round(events: &[Event], from: Nanos) -> Option<u64> {
    let back = |event: &&Event| match event.kind {
        EventKind::Priority { before, after, cause, .. } => {
            event.time >= from && cause == PriorityCause::Ran && after < before
        }
        _ => false,
    };
    let times: Vec<u64> = events.iter().filter(back).map(|event| event.time.0).collect();
    let mut rounds: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    rounds.sort_unstable();
    rounds.get(rounds.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::schedulers;

    fn slices(name: &str, nices: &[i32]) -> Vec<(Option<u64>, Option<u64>)> {
        let kernel = KernelVersion::V7_2;
        let described = schedulers::describe_for(name, kernel).expect("ours");
        let bench = Bench::new(&described, kernel, 1).expect("loads");
        let point = |nice: &i32| {
            let point = bench.slices_at(*nice).expect("runs");
            (point.turn_ns.map(|ns| ns / 1_000_000), point.slice_ns.map(|ns| ns / 1_000_000))
        };
        nices.iter().map(point).collect()
    }

    #[test]
    fn slices_are_those_of_the_schedulers_sources() {
        let turns = |name: &str| slices(name, &[-20, -1, 0, 19]);
        let only = |turns: [u64; 4]| turns.map(|turn| (Some(turn), None)).to_vec();
        assert_eq!(turns("ingosched"), only([800, 420, 100, 5]));
        // Who comes up again to the top stair goes down all stairs before the other, which is at the bottom.
        assert_eq!(slices("staircase", &[0]), [(Some(120), Some(120))]);
    }

    #[test]
    fn turns_behind_a_better_task_are_those_of_the_slides() {
        let kernel = KernelVersion::V7_2;
        let behind = |name: &str, nice: i32, best: i32| {
            let described = schedulers::describe_for(name, kernel).expect("ours");
            turn_behind(&described, kernel, nice, best).expect("runs").map(|ns| ns / 1_000_000)
        };
        // (60 / (levels behind + 2))^2 (40 / (170 - best))^2 / 4.
        assert_eq!(
            [0, 1, 2, 5].map(|level| behind("nicksched", level - 20, -20)),
            [144, 64, 36, 12].map(Some)
        );
        assert_eq!(behind("ingosched", 0, -20), Some(100), "slices hang on the own nice value alone");
        assert_eq!(behind("fixed_priority", 0, -20), None, "it starves");
    }

    #[test]
    fn turns_beside_nice_0_are_near_equation_3() {
        let described = schedulers::describe_for("cfs", KernelVersion::V7_2).expect("ours");
        let cfs = Bench::new(&described, KernelVersion::V7_2, 1).expect("loads");
        let fair = Bench::fair(KernelVersion::V6_1).expect("simulates");
        // 6 ms * 1024 / 2048, 335 / 1359 and 3121 / 4145 of them.
        for (nice, slice) in [(0, 3_000_000), (5, 1_479_028), (-5, 4_517_732)] {
            for bench in [&cfs, &fair] {
                let beside = bench.slices_at(nice).expect("runs").beside.expect("CFS's rules");
                assert_eq!(beside.equation_ns, slice, "nice {nice}");
                let turn = beside.turn_ns.expect("turns end");
                // A turn ends at a tick, and a task that is still first then goes on.
                let near = slice / 2..=slice * 3 / 2 + 1_000_000;
                assert!(near.contains(&turn), "nice {nice}: {turn} ns, {slice} ns");
            }
        }
        let eevdf = Bench::fair(KernelVersion::V7_2).expect("simulates");
        assert_eq!(eevdf.slices_at(0).expect("runs").beside, None, "EEVDF has no latency to share");
    }

    #[test]
    fn a_decision_has_callbacks_and_a_price() {
        let kernel = KernelVersion::V7_2;
        let price = |name: &str| {
            let described = schedulers::describe_for(name, kernel).expect("ours");
            Bench::new(&described, kernel, DECISION_CPUS).expect("loads").decision().expect("runs")
        };
        let (fixed, dynamic) = (price("fixed_priority"), price("staircase"));
        assert!(fixed.instructions_per_switch > 10.0, "{fixed:?}");
        assert!(fixed.instructions_per_switch < dynamic.instructions_per_switch, "{fixed:?} {dynamic:?}");
        assert!(
            dynamic.callbacks.iter().any(|cost| cost.callback == "enqueue" && cost.instructions_mean > 5.0)
        );
    }
}
