//! What things cost on the recorded machine, as the recording itself shows: from wake-up to switch on idle and
//! busy CPUs, interrupt handlers, lateness of timers; and when the ticks come.
//!
//! Each cost is what the simulator adds at the same place, so sums of costs are taken apart by difference. A cost
//! without samples enough keeps its value; one already measured is not touched, but for a switch that costs more under
//! this load ([`super::readers`], but no more than [`super::writers`] show that a switch back takes). Lost warmth after
//! moves cannot be seen in events and is not here.

use schedlab_model::event::{Context, Event, EventKind, IrqSource, Operation, PrevState};
use schedlab_model::machine::{Cost, Costs, MachineDescription, Origin, QUANTILES_PERMILLE};
use schedlab_model::recording::Recording;
use schedlab_model::{CpuId, Nanos, TaskId};
use std::collections::BTreeMap;

/// Fewer samples than this say nothing.
pub(super) const SAMPLES_MIN: usize = 20;
/// A wakee that runs within this took the CPU at once; later it waited for something else.
const AT_ONCE: Nanos = Nanos::from_micros(200);
/// A move this soon after a wake-up, by the same CPU, is the wake-up's placement.
const PLACED_WITHIN: Nanos = Nanos::from_micros(30);
/// Ticks are looked for in classes of this width.
const PHASE_BIN_NS: u64 = 20_000;

/// The recording's machine with every cost that the recording shows and that was not measured otherwise. A switch
/// costs at least what was measured, and more where the recorded tasks find less warm than the measuring ones did.
pub fn calibrated(recording: &Recording) -> MachineDescription {
    let mut machine = recording.machine.clone();
    costs_shown([recording], &mut machine.costs);
    let context_switch = &mut machine.costs.context_switch;
    if let Some(value) = wait_shown(recording) {
        let back = super::writers::switch_back(recording).map(|back| back.max(context_switch.value));
        let value = back.map_or(value, |back| value.min(back));
        if value > context_switch.value {
            // No scatter: it stays in the bursts, of which the replay takes just this.
            *context_switch = Cost { value, spread_percent: 0, quantiles: None, origin: Origin::Measured };
        }
    }
    machine
}

fn wait_shown(recording: &Recording) -> Option<Nanos> {
    super::readers::waits_shown([recording]).map(|waits| Nanos(waits[waits.len() / 2]))
}

/// What a wait costs more than the switch after it, where preempted tasks show that they pay less than those that waited:
/// the way into the sleep.
pub(super) fn sleep_beyond_switch(recording: &Recording) -> Nanos {
    let switch = recording.machine.costs.context_switch.value;
    match (wait_shown(recording), super::writers::switch_back(recording)) {
        (Some(wait), Some(_)) => wait.saturating_sub(switch),
        _ => Nanos::ZERO,
    }
}

/// Costs that several recordings of one machine show together, for those not measured before.
pub fn costs_shown<'a>(recordings: impl IntoIterator<Item = &'a Recording>, costs: &mut Costs) {
    Reader::read_all(recordings).fill(costs);
}

/// Whole latencies that several recordings of one machine show together, in ns, by name.
pub fn latencies_shown<'a>(
    recordings: impl IntoIterator<Item = &'a Recording>,
) -> [(&'static str, Vec<u64>); 6] {
    let seen = Reader::read_all(recordings);
    [
        ("wake_same_cpu", seen.wakeup),
        ("wake_other_busy_cpu", seen.remote_busy),
        ("wake_other_idle_cpu", seen.remote_idle),
        ("wake_by_interrupt_idle", seen.irq_idle),
        ("wake_by_interrupt_busy", seen.irq_busy),
        ("timer_late", seen.late),
    ]
}

/// Fewer wake-ups than this in one half of a recording do not tell whether the machine changed.
const DRIFT_SAMPLES_MIN: usize = 200;
/// Smaller differences say nothing.
const DRIFT_MIN_NS: u64 = 1_000;

/// What waking an idle CPU took in the earlier and in the later half of such wake-ups, medians in ns, if they differ by a
/// tenth or more: the machine (often the host of a virtual one) did not stay the same. Only wake-ups from the same idle state
/// are compared, the most frequent: to leave a deeper one takes longer.
pub(super) fn drift(recording: &Recording) -> Option<(u64, u64)> {
    let mut from: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (idled, latency) in Reader::read_all([recording]).remote_idled {
        let reached = recording.machine.idle_states.iter().filter(|state| state.target_residency.0 <= idled);
        from.entry(reached.count()).or_default().push(latency);
    }
    let mut seen = from.into_values().max_by_key(Vec::len)?;
    let middle = seen.len() / 2;
    let (earlier, later) = seen.split_at_mut(middle);
    if earlier.len() < DRIFT_SAMPLES_MIN {
        return None;
    }
    let median = |half: &mut [u64]| *half.select_nth_unstable(half.len() / 2).1;
    let (earlier, later) = (median(earlier), median(later));
    let apart = earlier.abs_diff(later);
    (apart >= DRIFT_MIN_NS && apart * 10 >= earlier.min(later)).then_some((earlier, later))
}

/// When ticks come, as remainder of the tick's length; `None` if the recording does not show it.
pub(super) fn tick_phase(recording: &Recording) -> Option<Nanos> {
    let tick = 1_000_000_000 / u64::from(recording.machine.hz.max(1));
    let mut times: Vec<u64> = Reader::read_all([recording]).ticks.iter().map(|time| time % tick).collect();
    times.sort_unstable();
    let window = |from: u64| times.partition_point(|at| *at < from);
    let counted = times.iter().map(|&at| (window(at + PHASE_BIN_NS) - window(at), at));
    let (count, from) = counted.max_by_key(|(count, at)| (*count, std::cmp::Reverse(*at)))?;
    let shows = count >= SAMPLES_MIN && count * 3 >= times.len();
    shows.then(|| Nanos(times[window(from) + count / 2]))
}

/// A wake-up whose wakee has not run yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    at: Nanos,
    context: Context,
    waker: TaskId,
    here: CpuId,
    target: CpuId,
    idle: bool,
    /// How long it had idled then.
    idled: Nanos,
    /// Switches of the target CPU so far: the wakee must be the next.
    switches: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    current: TaskId,
    switches: u64,
    /// When the current task began.
    since: Nanos,
    /// Begin of the timer interrupt in progress, and whether it did more than the tick.
    timer_irq: Option<(Nanos, bool)>,
    /// The tick just ended: its length so far and its end.
    tick: Option<(u64, Nanos)>,
    softirq: Option<Nanos>,
    /// The latest wake-up of the current task's operation, and whether it went to an idle CPU elsewhere.
    sent: Option<(Nanos, bool)>,
}

/// Samples in ns.
#[derive(Clone, Debug, Default)]
struct Seen {
    wakeup: Vec<u64>,
    irq_idle: Vec<u64>,
    irq_busy: Vec<u64>,
    remote_idle: Vec<u64>,
    /// The same with how long the CPU had idled before.
    remote_idled: Vec<(u64, u64)>,
    remote_busy: Vec<u64>,
    late: Vec<u64>,
    tick: Vec<u64>,
    /// From a wake-up to the end of its operation: for a wakee here that did not preempt, and one elsewhere.
    sent_here: Vec<u64>,
    sent_idle: Vec<u64>,
    /// Begins of ticks.
    ticks: Vec<u64>,
}

struct Reader {
    cpus: Vec<Cpu>,
    open: BTreeMap<TaskId, Open>,
    seen: Seen,
}

impl Reader {
    fn read_all<'a>(recordings: impl IntoIterator<Item = &'a Recording>) -> Seen {
        let mut reader = Reader { cpus: Vec::new(), open: BTreeMap::new(), seen: Seen::default() };
        for recording in recordings {
            (reader.cpus, reader.open) = Default::default();
            recording.events.iter().for_each(|event| reader.event(event));
        }
        reader.seen
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut Cpu {
        if self.cpus.len() <= cpu.index() {
            self.cpus.resize(cpu.index() + 1, Cpu::default());
        }
        &mut self.cpus[cpu.index()]
    }

    fn event(&mut self, event: &Event) {
        let Event { time, cpu, kind } = *event;
        match kind {
            EventKind::Waking { waker, context, wakee, wakee_cpu } => {
                let target = *self.cpu(wakee_cpu);
                let idle = target.current.is_idle();
                let open = Open {
                    at: time,
                    context,
                    waker,
                    here: cpu,
                    target: wakee_cpu,
                    idle,
                    idled: time.saturating_sub(target.since),
                    switches: target.switches,
                };
                self.open.insert(wakee, open);
                let state = self.cpu(cpu);
                state.sent = (context == Context::Task).then_some((time, cpu != wakee_cpu && idle));
                if let Some((_, more)) = &mut state.timer_irq {
                    *more = true;
                }
            }
            EventKind::Migrate { task, to, .. } => {
                let target = *self.cpu(to);
                if let Some(open) = self.open.get_mut(&task)
                    && open.here == cpu
                    && time - open.at < PLACED_WITHIN
                {
                    (open.target, open.switches, open.idle) = (to, target.switches, target.current.is_idle());
                    open.idled = time.saturating_sub(target.since);
                    self.cpu(cpu).sent = None;
                }
            }
            EventKind::Switch { prev, prev_state, next } => self.switch(time, cpu, prev, prev_state, next),
            EventKind::OperationExit { operation, .. } => {
                let giving = matches!(operation, Operation::PipeWrite | Operation::SocketSend);
                if let Some((at, idle)) = self.cpu(cpu).sent.take().filter(|_| giving) {
                    let samples = if idle { &mut self.seen.sent_idle } else { &mut self.seen.sent_here };
                    samples.push((time - at).0);
                }
            }
            EventKind::TimerExpire { task, due } => {
                if let Some((_, more)) = &mut self.cpu(cpu).timer_irq {
                    *more = true;
                }
                if !task.is_idle() && time > due {
                    self.seen.late.push((time - due).0);
                }
            }
            kind => self.interrupt(time, cpu, kind),
        }
    }

    fn interrupt(&mut self, time: Nanos, cpu: CpuId, kind: EventKind) {
        let state = self.cpu(cpu);
        match kind {
            EventKind::IrqEnter { source: IrqSource::Timer } => {
                state.timer_irq = Some((time, state.current.is_idle()));
            }
            EventKind::IrqExit { source: IrqSource::Timer } => {
                state.sent = None;
                if let Some((since, false)) = state.timer_irq.take() {
                    let before = state.tick.replace(((time - since).0, time));
                    self.seen.ticks.push(since.0);
                    self.seen.tick.extend(before.map(|(length, _)| length));
                }
            }
            EventKind::SoftirqEnter { .. } => {
                let follows = |(_, end): (u64, Nanos)| time - end < Nanos::from_micros(2);
                state.softirq = state.tick.is_some_and(follows).then_some(time);
            }
            EventKind::SoftirqExit { .. } => {
                if let (Some(since), Some((length, end))) = (state.softirq.take(), &mut state.tick) {
                    *length += (time - since).0;
                    *end = time;
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, state: PrevState, next: TaskId) {
        let before = self.cpu(cpu).switches;
        let on = self.cpu(cpu);
        (on.current, on.switches, on.since, on.sent) = (next, before + 1, time, None);
        let Some(open) = self.open.remove(&next).filter(|open| open.target == cpu && open.switches == before)
        else {
            return;
        };
        let delay = (time - open.at).0;
        let preempts = state == PrevState::Runnable && !prev.is_idle() && delay < AT_ONCE.0;
        let (task, here) = (open.context == Context::Task, open.here == open.target);
        let seen = &mut self.seen;
        match (task, here, open.idle) {
            (true, true, false) if preempts && prev == open.waker => seen.wakeup.push(delay),
            (false, true, true) => seen.irq_idle.push(delay),
            (false, true, false) if preempts => seen.irq_busy.push(delay),
            (true, false, true) => {
                seen.remote_idle.push(delay);
                seen.remote_idled.push((open.idled.0, delay));
            }
            (true, false, false) if preempts => seen.remote_busy.push(delay),
            _ => {}
        }
    }
}

impl Seen {
    fn fill(&self, costs: &mut Costs) {
        let set = |cost: &mut Cost, found: Option<Cost>| {
            if let Some(found) = found
                && cost.origin == Origin::Assumed
            {
                *cost = found;
            }
        };
        set(&mut costs.wakeup, typical(&self.wakeup));
        set(&mut costs.tick, typical(&self.tick));
        set(&mut costs.timer_latency, typical(&self.late));
        set(&mut costs.ipi, typical(&self.remote_busy));
        set(&mut costs.interrupt, less(typical(&self.irq_busy), costs.wakeup));
        let handled = Nanos(costs.interrupt.value.0 + costs.wakeup.value.0);
        let handled = Cost { value: handled, ..costs.interrupt };
        let by_task = typical(&self.remote_idle);
        set(&mut costs.idle_exit, self.idle_exit(handled, by_task));
        // Which part of them scatters is not seen: all of it is drawn with the first.
        let exit = Cost::assumed(costs.idle_exit.typical(), 0);
        set(&mut costs.ipi_idle, less(by_task, exit));
        let here = typical(&self.sent_here);
        set(&mut costs.ipi_send, here.and_then(|here| less(typical(&self.sent_idle), here)));
    }

    /// What leaving idle takes, by wake-ups from interrupts, of which `handled` is no part. Those can take longer than
    /// `by_task`, all that a task's wake-up of an idle CPU takes: timers end long sleeps, and a virtual CPU that idled
    /// for long has lost its own. Then the more frequent ones count, since one value stands for both.
    fn idle_exit(&self, handled: Cost, by_task: Option<Cost>) -> Option<Cost> {
        let by_interrupt = less(typical(&self.irq_idle), handled)?;
        let Some(sum) = by_task.filter(|_| self.irq_idle.len() < self.remote_idle.len()) else {
            return Some(by_interrupt);
        };
        if by_interrupt.value.0 <= sum.value.0 - sum.value.0 / 10 {
            return Some(by_interrupt);
        }
        let fastest = sum.quantiles.map_or(sum.value.0, |quantiles| quantiles[0]);
        Some(Cost {
            value: Nanos(fastest - fastest / 10),
            spread_percent: 0,
            quantiles: None,
            origin: Origin::Measured,
        })
    }
}

/// A cost by samples of it in ns; `None` if they are too few.
pub fn measured_cost(samples: &[u64]) -> Option<Cost> {
    typical(samples)
}

/// Mean between the 5th and 95th percentile, the scatter from the 10th to the 90th, and the quantiles.
fn typical(samples: &[u64]) -> Option<Cost> {
    if samples.len() < SAMPLES_MIN {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| (sorted.len() - 1) * percent / 100;
    let middle = &sorted[at(5)..=at(95)];
    let value = (middle.iter().sum::<u64>() / middle.len() as u64).max(1);
    let half = (sorted[at(90)] - sorted[at(10)]) * 10 / 16;
    let spread_percent = (100 * half / value).min(100) as u32;
    let quantiles = QUANTILES_PERMILLE.map(|permille| sorted[(sorted.len() - 1) * permille as usize / 1_000]);
    Some(Cost { value: Nanos(value), spread_percent, quantiles: Some(quantiles), origin: Origin::Measured })
}

/// What is left of a sum of costs without one of them; at least a tenth of the sum.
fn less(sum: Option<Cost>, known: Cost) -> Option<Cost> {
    let sum = sum?;
    let rest = |value: u64| value.saturating_sub(known.value.0).max(value / 10);
    let quantiles = sum.quantiles.map(|all| narrowed(all, known).map(rest));
    Some(Cost { value: Nanos(rest(sum.value.0)), quantiles, ..sum })
}

/// The quantiles of a sum drawn together around their median, so that their scatter and that of the known part, which
/// is drawn by itself, are the sum's again: variances add up.
fn narrowed(sum: [u64; 8], known: Cost) -> [u64; 8] {
    let width = |quantiles: [u64; 8]| quantiles[5].saturating_sub(quantiles[1]);
    let of_known = known.quantiles.map_or(known.value.0 * u64::from(known.spread_percent) * 2 / 100, width);
    let of_sum = width(sum).max(1);
    let left = (of_sum * of_sum).saturating_sub(of_known * of_known).isqrt().min(of_sum);
    let median = sum[3];
    sum.map(|value| {
        let distance = value.abs_diff(median) * left / of_sum;
        if value < median { median - distance } else { median + distance }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::machine::IdleState;
    use schedlab_model::topology::Topology;

    fn event(time: u64, kind: EventKind) -> Event {
        Event { time: Nanos(time), cpu: CpuId(0), kind }
    }

    fn recording(events: Vec<Event>) -> Recording {
        let topology = Topology::flat(1).expect("one CPU");
        Recording {
            provenance: Default::default(),
            machine: MachineDescription::generic("one", topology),
            tasks: Vec::new(),
            channels: Vec::new(),
            cpu_sets: Vec::new(),
            events,
            duration: Nanos(1_000_000_000),
        }
    }

    /// Task 1 wakes task 2, which takes the CPU 3 us later, 40 times; 1 us is within the assumed spread.
    #[test]
    fn a_wake_up_costs_what_lies_between_it_and_the_switch() {
        let (waker, wakee) = (TaskId(1), TaskId(2));
        let mut events = Vec::new();
        for round in 0..40 {
            let at = round * 1_000_000;
            let (prev_state, asleep) = (PrevState::Runnable, PrevState::Interruptible);
            events.push(event(at, EventKind::Switch { prev: TaskId::IDLE, prev_state, next: waker }));
            let context = Context::Task;
            events.push(event(at + 100, EventKind::Waking { waker, context, wakee, wakee_cpu: CpuId(0) }));
            events.push(event(at + 3_100, EventKind::Switch { prev: waker, prev_state, next: wakee }));
            let idle = TaskId::IDLE;
            events.push(event(at + 9_000, EventKind::Switch { prev: wakee, prev_state: asleep, next: idle }));
        }
        let costs = calibrated(&recording(events)).costs;
        assert_eq!((costs.wakeup.value, costs.wakeup.origin), (Nanos(3_000), Origin::Measured));
        assert_eq!(costs.ipi.origin, Origin::Assumed);
    }

    /// Timers' wake-ups of an idle CPU take 12 us, tasks' 6 to 7: a replay's must take that, too.
    #[test]
    fn what_a_wake_up_of_an_idle_cpu_takes_is_never_more_than_was_seen() {
        let mut seen = Seen { irq_idle: vec![12_000; 30], ..Seen::default() };
        seen.remote_idle = (0..1_000).map(|sample| 6_000 + sample).collect();
        let costs = |seen: &Seen| {
            let mut costs = Costs::default();
            seen.fill(&mut costs);
            costs
        };
        let Costs { idle_exit, ipi_idle, .. } = costs(&seen);
        let [slow, fast] = [7, 0].map(|at| idle_exit.typical() + ipi_idle.quantiles.map_or(0, |all| all[at]));
        assert!(fast >= 6_000 && (6_900..7_000).contains(&slow), "{fast} to {slow}");
        let sum = idle_exit.typical() + ipi_idle.typical();
        assert!((6_400..6_600).contains(&sum), "{sum}");
        // Where most are by timers, theirs count.
        seen.irq_idle = vec![12_000; 2_000];
        assert!(costs(&seen).idle_exit.typical() > 9_000);
    }

    /// What remains of 20 to 60 us without 10 to 20 us keeps a tail, and scatters less than before.
    #[test]
    fn a_difference_of_costs_keeps_its_tail() {
        let quantiles = Some([20, 22, 25, 30, 35, 42, 50, 60]);
        let sum = Cost { quantiles, ..Cost::assumed(31, 30) };
        let known = Cost { quantiles: Some([10, 10, 11, 12, 13, 16, 18, 20]), ..Cost::assumed(12, 30) };
        let rest = less(Some(sum), known).expect("there is a sum");
        assert_eq!(rest.value, Nanos(19));
        let rest = rest.quantiles.expect("quantiles stay");
        assert!(rest[3] == 18 && rest[7] > 44 && rest[7] < 48, "{rest:?}");
        assert!(rest[5] - rest[1] < 20, "{rest:?}");
    }

    /// Wake-ups of an idle CPU that take 20 us, and 23 from the middle on.
    #[test]
    fn a_machine_that_changed_is_told_from_one_that_did_not() {
        let (waker, wakee) = (TaskId(1), TaskId(2));
        let recorded = |later: u64, slower: u64| {
            let (prev_state, asleep) = (PrevState::Runnable, PrevState::Interruptible);
            let mut events = Vec::new();
            for round in 0..420 {
                let at = Nanos(1_000_000 * if round < 210 { round } else { 210 + (round - 210) * slower });
                let took = Nanos(if round < 210 { 20_000 } else { later } + round % 10);
                let (context, wakee_cpu) = (Context::Task, CpuId(1));
                let on = |time, kind| Event { time, cpu: CpuId(1), kind };
                events.push(Event {
                    time: at,
                    ..event(0, EventKind::Waking { waker, context, wakee, wakee_cpu })
                });
                events.push(on(at + took, EventKind::Switch { prev: TaskId::IDLE, prev_state, next: wakee }));
                let sleep = EventKind::Switch { prev: wakee, prev_state: asleep, next: TaskId::IDLE };
                events.push(on(at + took + took, sleep));
            }
            let deep = IdleState {
                name: "deep".to_owned(),
                exit_latency: Nanos(3_000),
                target_residency: Nanos(2_000_000),
                origin: Origin::Published,
            };
            let mut recording = recording(events);
            recording.machine.idle_states = vec![deep];
            recording
        };
        let changed = drift(&recorded(23_000, 1)).map(|(earlier, later)| (earlier / 10, later / 10));
        assert_eq!(changed, Some((2_000, 2_300)));
        assert_eq!(drift(&recorded(21_500, 1)), None);
        // Where CPUs are in a deeper idle state from then on, it is that.
        assert_eq!(drift(&recorded(23_000, 4)), None);
    }

    /// Ticks at 1.3 ms after every multiple of 4 ms, timers in between.
    #[test]
    fn ticks_are_told_from_timers_by_their_regularity() {
        let mut events = vec![event(
            0,
            EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Runnable, next: TaskId(1) },
        )];
        let source = IrqSource::Timer;
        for tick in 0..50 {
            for at in [tick * 4_000_000 + tick * 50_000, tick * 4_000_000 + 1_300_000 + tick % 3 * 1_000] {
                events.push(event(at, EventKind::IrqEnter { source }));
                events.push(event(at + 2_000, EventKind::IrqExit { source }));
            }
        }
        events.sort_by_key(|event| event.time);
        let phase = tick_phase(&recording(events)).expect("most are in one place").0;
        assert!((1_300_000..=1_302_000).contains(&phase), "{phase}");
    }
}
