//! Cuts one long recording into several by time, so that a comparison has more than one.
//!
//! Each block is a recording of its own: tasks that live at its beginning are there with the state and
//! attributes they had then.

use schedlab_model::event::{Event, EventKind, Operation, PrevState};
use schedlab_model::recording::{Recording, TaskInfo};
use schedlab_model::{CpuId, Nanos, TaskAttributes, TaskId};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct State {
    alive: bool,
    runnable: bool,
    cpu: CpuId,
    attributes: TaskAttributes,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    current: TaskId,
    /// Handlers that have begun and not ended.
    interrupts: Vec<EventKind>,
}

/// Cuts into `count` blocks of equal length. One block is the recording itself.
pub fn blocks(recording: &Recording, count: u32) -> Vec<Recording> {
    let count = u64::from(count.max(1));
    if count == 1 {
        return vec![recording.clone()];
    }
    let mut states: Vec<State> = recording.tasks.iter().map(initial).collect();
    let mut cpus: BTreeMap<CpuId, Cpu> = BTreeMap::new();
    let mut events = recording.events.iter().peekable();
    let mut made = Vec::new();
    for block in 0..count {
        let start = Nanos(recording.duration.0 * block / count);
        let end = Nanos(recording.duration.0 * (block + 1) / count);
        let last = block + 1 == count;
        let mut cut = Recording {
            tasks: snapshot(recording, &states),
            events: if block > 0 { running(&cpus) } else { Vec::new() },
            provenance: recording.provenance.clone(),
            machine: recording.machine.clone(),
            channels: recording.channels.clone(),
            cpu_sets: recording.cpu_sets.clone(),
            duration: end - start,
        };
        while let Some(event) = events.next_if(|event| last || event.time < end) {
            follow(recording, &mut states, &mut cpus, event);
            cut.events.push(shifted(event, start));
        }
        made.push(cut);
    }
    made
}

/// What happened from `start` until before `end`, with times counted from `start`. What was recorded without interruption
/// stays so: tasks are there with the state and the attributes they had at `start`.
pub fn cut(recording: &Recording, start: Nanos, end: Nanos) -> Recording {
    let mut states: Vec<State> = recording.tasks.iter().map(initial).collect();
    let mut cpus: BTreeMap<CpuId, Cpu> = BTreeMap::new();
    let first = recording.events.partition_point(|event| event.time < start);
    let after = recording.events.partition_point(|event| event.time < end);
    for event in &recording.events[..first] {
        follow(recording, &mut states, &mut cpus, event);
    }
    let mut events = running(&cpus);
    events.extend(recording.events[first..after.max(first)].iter().map(|event| shifted(event, start)));
    Recording {
        tasks: snapshot(recording, &states),
        events,
        provenance: recording.provenance.clone(),
        machine: recording.machine.clone(),
        channels: recording.channels.clone(),
        cpu_sets: recording.cpu_sets.clone(),
        duration: end.min(recording.duration).saturating_sub(start),
    }
}

fn initial(task: &TaskInfo) -> State {
    State {
        alive: task.existed,
        runnable: task.start_runnable,
        cpu: task.start_cpu,
        attributes: task.attributes.clone(),
    }
}

fn snapshot(recording: &Recording, states: &[State]) -> Vec<TaskInfo> {
    let row = |(task, state): (&TaskInfo, &State)| TaskInfo {
        existed: state.alive,
        start_runnable: state.runnable,
        start_cpu: state.cpu,
        attributes: state.attributes.clone(),
        ..task.clone()
    };
    recording.tasks.iter().zip(states).map(row).collect()
}

/// Says who runs and which interrupts are open at the cut, also where nothing follows.
fn running(cpus: &BTreeMap<CpuId, Cpu>) -> Vec<Event> {
    let mut events = Vec::new();
    for (&cpu, state) in cpus {
        let mut say = |kind| events.push(Event { time: Nanos::ZERO, cpu, kind });
        if !state.current.is_idle() {
            let (prev, prev_state) = (TaskId::IDLE, PrevState::Runnable);
            say(EventKind::Switch { prev, prev_state, next: state.current });
        }
        state.interrupts.iter().for_each(|&kind| say(kind));
    }
    events
}

fn follow(recording: &Recording, states: &mut [State], cpus: &mut BTreeMap<CpuId, Cpu>, event: &Event) {
    match event.kind {
        EventKind::Switch { prev, prev_state, next } => {
            cpus.entry(event.cpu).or_default().current = next;
            let left = &mut states[prev.index()];
            left.runnable = prev_state == PrevState::Runnable;
            left.alive &= prev_state != PrevState::Dead;
            let entered = &mut states[next.index()];
            (entered.runnable, entered.alive, entered.cpu) = (true, true, event.cpu);
        }
        EventKind::IrqEnter { .. } | EventKind::SoftirqEnter { .. } => {
            cpus.entry(event.cpu).or_default().interrupts.push(event.kind);
        }
        EventKind::IrqExit { .. } | EventKind::SoftirqExit { .. } => {
            cpus.entry(event.cpu).or_default().interrupts.pop();
        }
        EventKind::Waking { wakee, .. } => states[wakee.index()].runnable = true,
        EventKind::WakeupNew { task, target_cpu } => {
            let state = &mut states[task.index()];
            (state.runnable, state.alive, state.cpu) = (true, true, target_cpu);
        }
        EventKind::Migrate { task, to, .. } => states[task.index()].cpu = to,
        EventKind::AttributesChanged { task, policy, nice, rt_priority } => {
            let attributes = &mut states[task.index()].attributes;
            (attributes.policy, attributes.nice, attributes.rt_priority) = (policy, nice, rt_priority);
        }
        EventKind::AffinityChanged { task, set } => {
            states[task.index()].attributes.affinity = recording.cpu_sets[set as usize];
        }
        EventKind::SliceChanged { task, slice } => {
            states[task.index()].attributes.slice = (slice > Nanos::ZERO).then_some(slice);
        }
        _ => {}
    }
}

/// The event with every time in it counted from `start`.
fn shifted(event: &Event, start: Nanos) -> Event {
    let move_back = |time: Nanos| if time == Nanos::MAX { time } else { time.saturating_sub(start) };
    let kind = match event.kind {
        EventKind::TimerExpire { task, due } => EventKind::TimerExpire { task, due: move_back(due) },
        EventKind::OperationEnter { task, operation: Operation::SleepAbsolute, channel, amount } => {
            let amount = move_back(Nanos(amount)).0;
            EventKind::OperationEnter { task, operation: Operation::SleepAbsolute, channel, amount }
        }
        EventKind::Job { task, released, deadline } => {
            EventKind::Job { task, released: move_back(released), deadline: move_back(deadline) }
        }
        kind => kind,
    };
    Event { time: event.time - start, cpu: event.cpu, kind }
}
