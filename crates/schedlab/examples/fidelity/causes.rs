//! A recording's wake-ups one by one: where each wakee was put, beside what, and how long until it ran.
//!
//! Means hide causes: the same mean run delay can come from other CPUs chosen and other waits there. Recordings
//! of the kernel and of the simulator go through the same code. Not judged here; the table is for eyes.

use schedlab_model::event::{Context, Event, EventKind, PrevState};
use schedlab_model::recording::Recording;
use schedlab_model::timeline::{StretchKind, Timelines};
use schedlab_model::{CpuId, Nanos, TaskId};
use std::collections::BTreeMap;

/// Longer idle than this before a wake-up is told apart: a guest's CPU has left the host's by then.
const LONG_IDLE: Nanos = Nanos::from_micros(50);

/// What a CPU did when the wake-up came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    JustIdle,
    LongIdle,
    Busy,
}

impl State {
    fn letter(self) -> char {
        match self {
            State::JustIdle => 'i',
            State::LongIdle => 'I',
            State::Busy => 'b',
        }
    }
}

/// Wake-ups that started alike and ended alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    context: &'static str,
    /// The CPU it ran on last, the waker's, and, on two CPUs, the other.
    prev: State,
    prev_is_here: bool,
    other: State,
    chosen: &'static str,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    kind: Kind,
    at: Nanos,
    on: CpuId,
    here: CpuId,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    current: TaskId,
    idle_since: Option<Nanos>,
}

/// The whole table.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    kinds: BTreeMap<Kind, Vec<u64>>,
    /// Delays of tasks put off their CPU while they could run.
    preempted: Vec<u64>,
    /// Wakees that ran at once in place of a running task.
    preempting: u64,
    balanced: u64,
    /// When, whom and from where, the first of them.
    moves: Vec<(Nanos, String, u32)>,
    /// Target's sleeps by state, what it did and what its waker did.
    sleeps: BTreeMap<String, u64>,
    idle_ns: Vec<u64>,
    /// Switches in each tenth of the recording, and tasks of the target that had ended by its end.
    tenths: [(u64, u64); 10],
}

impl Causes {
    /// Reads the target's wake-ups.
    pub fn of(recording: &Recording) -> Causes {
        let count = recording.machine.topology.cpu_count();
        let mut reader = Reader {
            recording,
            cpus: vec![Cpu { idle_since: Some(Nanos::ZERO), ..Cpu::default() }; count],
            open: BTreeMap::new(),
            off: BTreeMap::new(),
            out: Causes { idle_ns: vec![0; count], ..Causes::default() },
        };
        recording.events.iter().for_each(|event| reader.event(event));
        reader.sleeps();
        reader.out
    }

    /// Rows of both recordings beside each other.
    pub fn print(recorded: &Causes, simulated: &Causes) {
        println!(
            "  wake-ups: context, prev CPU (i just idle, I long idle, b busy), = waker's; other CPU; put on"
        );
        let kinds: std::collections::BTreeSet<_> =
            recorded.kinds.keys().chain(simulated.kinds.keys()).collect();
        for kind in kinds {
            let (a, b) = (recorded.kinds.get(kind), simulated.kinds.get(kind));
            if a.map_or(0, Vec::len) + b.map_or(0, Vec::len) < 5 {
                continue;
            }
            println!(
                "  {:7} {}{} {} -> {:5} | {} | {}",
                kind.context,
                kind.prev.letter(),
                if kind.prev_is_here { '=' } else { ' ' },
                kind.other.letter(),
                kind.chosen,
                summary(a),
                summary(b)
            );
        }
        for (name, causes) in [("recorded", recorded), ("simulated", simulated)] {
            let tell =
                |(time, name, from): &(Nanos, String, u32)| format!("{} {name} {from}", time.0 / 1_000_000);
            let told: Vec<String> = causes.moves.iter().map(tell).collect();
            println!("  switches and ends by tenth {name}: {:?}", causes.tenths);
            println!("  moves {name}: {}", told.join(", "));
            causes.sleeps.iter().for_each(|(what, count)| println!("  sleeps {name}: {count} {what}"));
        }
        let ms = |causes: &Causes| causes.idle_ns.iter().map(|ns| ns / 1_000_000).collect::<Vec<_>>();
        println!(
            "  preempted               | {} | {}",
            summary(Some(&recorded.preempted)),
            summary(Some(&simulated.preempted))
        );
        println!(
            "  wakees that preempted {} / {}; moved by balancing {} / {}; idle ms by CPU {:?} / {:?}",
            recorded.preempting,
            simulated.preempting,
            recorded.balanced,
            simulated.balanced,
            ms(recorded),
            ms(simulated)
        );
    }
}

/// Count, mean and percentiles in us.
fn summary(delays: Option<&Vec<u64>>) -> String {
    let mut sorted = delays.cloned().unwrap_or_default();
    if sorted.is_empty() {
        return format!("{:>6} {:>8} {:>8} {:>8} {:>8}", 0, "-", "-", "-", "-");
    }
    sorted.sort_unstable();
    let us = |ns: u64| ns as f64 / 1_000.0;
    let at = |percent: usize| us(sorted[(sorted.len() - 1) * percent / 100]);
    let mean = us(sorted.iter().sum::<u64>()) / sorted.len() as f64;
    format!("{:>6} {mean:>8.1} {:>8.1} {:>8.1} {:>8.1}", sorted.len(), at(50), at(90), at(99))
}

struct Reader<'a> {
    recording: &'a Recording,
    cpus: Vec<Cpu>,
    open: BTreeMap<TaskId, Open>,
    off: BTreeMap<TaskId, Nanos>,
    out: Causes,
}

impl Reader<'_> {
    fn sleeps(&mut self) {
        let timelines = Timelines::of(self.recording);
        for (task, stretches) in timelines.tasks.iter().enumerate() {
            if !self.recording.tasks[task].target {
                continue;
            }
            for stretch in stretches {
                if let StretchKind::Asleep { state, operation, wake } = stretch.kind {
                    let operation = operation.map(|open| open.operation);
                    let waker = wake.and_then(|wake| wake.operation).map(|(operation, _)| operation);
                    let context = wake.map(|wake| wake.context);
                    let name = format!("{state:?} in {operation:?}, woken by {context:?} in {waker:?}");
                    *self.out.sleeps.entry(name).or_default() += 1;
                }
            }
        }
    }

    fn state(&self, cpu: CpuId, now: Nanos) -> State {
        match self.cpus[cpu.index()].idle_since {
            Some(since) if now - since > LONG_IDLE => State::LongIdle,
            Some(_) => State::JustIdle,
            None => State::Busy,
        }
    }

    fn event(&mut self, event: &Event) {
        let Event { time, cpu, kind } = *event;
        match kind {
            EventKind::Waking { wakee, wakee_cpu, context, .. } if self.recording.task(wakee).target => {
                self.waking(time, cpu, wakee, wakee_cpu, context);
            }
            EventKind::Migrate { task, from, to } => {
                if self.recording.task(task).target && self.out.moves.len() < 60 {
                    let name = self.recording.task(task).name.clone();
                    self.out.moves.push((time, name, from.0));
                }
                if let Some(open) = self.open.get_mut(&task) {
                    if open.here == cpu && time - open.at < Nanos::from_micros(30) && open.on != to {
                        open.on = to;
                        open.kind.chosen = if to == cpu { "here" } else { "other" };
                    } else {
                        self.out.balanced += 1;
                    }
                } else if self.recording.task(task).target {
                    self.out.balanced += 1;
                }
            }
            EventKind::Switch { prev, prev_state, next } => {
                let tenth = (time.0 * 10 / self.recording.duration.0.max(1)).min(9) as usize;
                self.out.tenths[tenth].0 += 1;
                if prev_state == PrevState::Dead && self.recording.task(prev).target {
                    self.out.tenths[tenth].1 += 1;
                }
                self.switch(time, cpu, prev, prev_state, next);
            }
            _ => {}
        }
    }

    fn waking(&mut self, time: Nanos, cpu: CpuId, wakee: TaskId, prev: CpuId, context: Context) {
        let others = (0..self.cpus.len() as u32).map(CpuId).filter(|other| *other != prev);
        let kind = Kind {
            context: if context == Context::Task { "task" } else { "irq" },
            prev: self.state(prev, time),
            prev_is_here: prev == cpu,
            other: others.map(|other| self.state(other, time)).min().unwrap_or(State::Busy),
            chosen: "prev",
        };
        self.open.insert(wakee, Open { kind, at: time, on: prev, here: cpu });
    }

    fn switch(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, state: PrevState, next: TaskId) {
        if !prev.is_idle() && self.recording.task(prev).target && state == PrevState::Runnable {
            self.off.insert(prev, time);
        }
        if let Some(open) = self.open.remove(&next) {
            let delay = (time - open.at).0;
            if state == PrevState::Runnable && !prev.is_idle() && delay < 20_000 {
                self.out.preempting += 1;
            }
            self.out.kinds.entry(open.kind).or_default().push(delay);
        }
        if let Some(since) = self.off.remove(&next) {
            self.out.preempted.push((time - since).0);
        }
        let slot = &mut self.cpus[cpu.index()];
        if let Some(since) = slot.idle_since.take() {
            self.out.idle_ns[cpu.index()] += (time - since).0;
        }
        if next.is_idle() {
            slot.idle_since = Some(time);
        }
        slot.current = next;
    }
}
