//! A toy scheduler that makes event streams for examples and tests of the report: periodic tasks with
//! deadlines and helpers that they wake, beside hogs, under one queue.
//!
//! It models nothing: the simulated kernel is in schedlab-sim, on which this crate must not depend.

#![allow(dead_code, reason = "each user takes a part")]

use schedlab_model::event::{Context, Event, EventKind, PrevState};
use schedlab_model::ids::{CpuId, TaskId};
use schedlab_model::policy::TaskAttributes;
use schedlab_model::recording::TaskInfo;
use schedlab_model::time::Nanos;
use schedlab_model::topology::Topology;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which task is picked from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come.
    Fifo,
    /// Least CPU time so far; preempts on wake-up.
    Vtime,
}

/// What to make.
#[derive(Clone, Copy, Debug)]
pub struct Toy {
    pub order: Order,
    pub cpus: u32,
    pub periodic: u32,
    pub hogs: u32,
    pub slice: Nanos,
    pub length: Nanos,
    pub seed: u64,
}

impl Default for Toy {
    fn default() -> Toy {
        Toy {
            order: Order::Fifo,
            cpus: 2,
            periodic: 3,
            hogs: 3,
            slice: Nanos::from_millis(4),
            length: Nanos::from_millis(400),
            seed: 1,
        }
    }
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Made {
    pub tasks: Vec<TaskInfo>,
    pub topology: Topology,
    pub events: Vec<Event>,
    pub length: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Periodic { helper: usize },
    Helper,
    Hog,
}

struct Task {
    kind: Kind,
    left: u64,
    service: u64,
    released: u64,
    cpu: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Release(usize),
    /// The CPU takes up a task after the interrupt that told it to.
    Dispatch(usize),
    /// End of a stay on a CPU, if it is still the same stay.
    Stay(usize, u64),
}

struct State {
    toy: Toy,
    tasks: Vec<Task>,
    queue: Vec<usize>,
    current: Vec<usize>,
    since: Vec<u64>,
    stay: Vec<u64>,
    told: Vec<bool>,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    events: Vec<Event>,
    random: u64,
}

const PERIOD_NS: u64 = 5_000_000;
const SWITCH_NS: u64 = 1_500;

impl Toy {
    /// Makes the events.
    pub fn make(self) -> Made {
        let mut state = State::new(self);
        while let Some(Reverse((now, due))) = state.due.pop() {
            if now > self.length.0 {
                break;
            }
            match due {
                Due::Release(task) => state.release(now, task),
                Due::Stay(cpu, stay) if state.stay[cpu] == stay => state.end_of_stay(now, cpu),
                Due::Stay(..) => {}
                Due::Dispatch(cpu) => state.take_up(now, cpu),
            }
        }
        Made {
            tasks: state.table(),
            topology: Topology::flat(self.cpus).expect("a small machine"),
            events: state.events,
            length: self.length,
        }
    }
}

impl State {
    fn new(toy: Toy) -> State {
        let (periodic, hogs) = (toy.periodic as usize, toy.hogs as usize);
        let task = |kind| Task { kind, left: 0, service: 0, released: 0, cpu: 0 };
        let mut tasks = vec![task(Kind::Hog)];
        tasks.extend((0..periodic).map(|index| task(Kind::Periodic { helper: 1 + periodic + index })));
        tasks.extend((0..periodic).map(|_| task(Kind::Helper)));
        tasks.extend((0..hogs).map(|_| task(Kind::Hog)));
        let cpus = toy.cpus as usize;
        let mut state = State {
            toy,
            tasks,
            queue: Vec::new(),
            current: vec![0; cpus],
            since: vec![0; cpus],
            stay: vec![0; cpus],
            told: vec![false; cpus],
            due: BinaryHeap::new(),
            events: Vec::new(),
            random: toy.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        for index in 1..=periodic {
            let offset = state.jitter(PERIOD_NS / 2);
            state.due.push(Reverse((offset, Due::Release(index))));
        }
        for hog in 1 + 2 * periodic..state.tasks.len() {
            state.tasks[hog].left = u64::MAX / 2;
            let kind = EventKind::WakeupNew { task: TaskId(hog as u32), target_cpu: CpuId(0) };
            state.emit(0, 0, kind);
            state.enqueue(0, hog);
        }
        state
    }

    fn jitter(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn emit(&mut self, time: u64, cpu: usize, kind: EventKind) {
        self.events.push(Event { time: Nanos(time), cpu: CpuId(cpu as u32), kind });
    }

    fn release(&mut self, now: u64, task: usize) {
        let jitter = self.jitter(20_000);
        self.due.push(Reverse((now + PERIOD_NS + jitter, Due::Release(task))));
        if self.tasks[task].left > 0 {
            return;
        }
        self.tasks[task].released = now;
        self.tasks[task].left = 300_000 + self.jitter(150_000);
        self.wake(now, self.tasks[task].cpu, TaskId::IDLE, task);
    }

    fn wake(&mut self, now: u64, cpu: usize, waker: TaskId, task: usize) {
        let context = if waker.is_idle() { Context::HardIrq } else { Context::Task };
        let wakee_cpu = CpuId(self.tasks[task].cpu as u32);
        let waker = TaskId(if waker.is_idle() { self.current[cpu] as u32 } else { waker.0 });
        self.emit(now, cpu, EventKind::Waking { waker, context, wakee: TaskId(task as u32), wakee_cpu });
        // A sleeper keeps at most a little of what it did not use.
        let least = self.queue.iter().chain(&self.current).filter(|&&t| t != 0);
        let least = least.map(|&t| self.tasks[t].service).min().unwrap_or(0);
        self.tasks[task].service = self.tasks[task].service.max(least.saturating_sub(1_000_000));
        self.enqueue(now, task);
    }

    fn enqueue(&mut self, now: u64, task: usize) {
        let key = self.tasks[task].service as i64;
        let cpu = self.tasks[task].cpu;
        self.emit(now, cpu, EventKind::Rank { task: TaskId(task as u32), key });
        self.queue.push(task);
        if let Some(idle) = (0..self.current.len()).find(|&cpu| self.current[cpu] == 0 && !self.told[cpu]) {
            self.tell(now, idle);
            return;
        }
        if self.toy.order == Order::Vtime {
            let key =
                |cpu: &usize| self.tasks[self.current[*cpu]].service + now.saturating_sub(self.since[*cpu]);
            let untold = (0..self.current.len()).filter(|&cpu| !self.told[cpu]);
            let victim = untold.max_by_key(key);
            if let Some(victim) = victim.filter(|cpu| key(cpu) > self.tasks[task].service + 100_000) {
                self.tell(now, victim);
            }
        }
    }

    fn tell(&mut self, now: u64, cpu: usize) {
        self.told[cpu] = true;
        let latency = 2_000 + self.jitter(3_000);
        self.due.push(Reverse((now + latency, Due::Dispatch(cpu))));
    }

    fn take_up(&mut self, now: u64, cpu: usize) {
        if !std::mem::take(&mut self.told[cpu]) {
            return;
        }
        if self.current[cpu] != 0 {
            self.account(now, cpu);
            self.queue.push(self.current[cpu]);
        }
        self.dispatch(now, cpu, PrevState::Runnable);
    }

    fn account(&mut self, now: u64, cpu: usize) {
        let (task, ran) = (self.current[cpu], now.saturating_sub(self.since[cpu]));
        self.tasks[task].left = self.tasks[task].left.saturating_sub(ran);
        self.tasks[task].service += ran;
        let key = self.tasks[task].service as i64;
        self.emit(now, cpu, EventKind::Rank { task: TaskId(task as u32), key });
    }

    fn end_of_stay(&mut self, now: u64, cpu: usize) {
        self.account(now, cpu);
        let task = self.current[cpu];
        if self.tasks[task].left > 0 {
            self.queue.push(task);
            self.dispatch(now, cpu, PrevState::Runnable);
            return;
        }
        let id = TaskId(task as u32);
        if let Kind::Periodic { helper } = self.tasks[task].kind {
            let (released, deadline) = (self.tasks[task].released, self.tasks[task].released + PERIOD_NS / 2);
            let kind = EventKind::Job { task: id, released: Nanos(released), deadline: Nanos(deadline) };
            self.emit(now, cpu, kind);
            if self.tasks[helper].left == 0 {
                self.tasks[helper].left = 100_000 + self.jitter(50_000);
                self.wake(now, cpu, id, helper);
            }
        }
        self.dispatch(now, cpu, PrevState::Interruptible);
    }

    fn dispatch(&mut self, now: u64, cpu: usize, prev_state: PrevState) {
        let best = match self.toy.order {
            Order::Fifo => (!self.queue.is_empty()).then_some(0),
            Order::Vtime => (0..self.queue.len()).min_by_key(|&at| self.tasks[self.queue[at]].service),
        };
        let prev = self.current[cpu];
        let next = best.map_or(0, |at| self.queue.remove(at));
        self.stay[cpu] += 1;
        self.current[cpu] = next;
        self.since[cpu] = now + SWITCH_NS;
        if next != prev {
            let (prev, next_id) = (TaskId(prev as u32), TaskId(next as u32));
            let from = CpuId(self.tasks[next].cpu as u32);
            if next != 0 && from.index() != cpu {
                let kind = EventKind::Migrate { task: next_id, from, to: CpuId(cpu as u32) };
                self.emit(now, cpu, kind);
                self.tasks[next].cpu = cpu;
            }
            self.emit(now, cpu, EventKind::Switch { prev, prev_state, next: next_id });
        }
        if next != 0 {
            let length = self.tasks[next].left.min(self.toy.slice.0);
            self.due.push(Reverse((self.since[cpu] + length, Due::Stay(cpu, self.stay[cpu]))));
        }
    }

    fn table(&self) -> Vec<TaskInfo> {
        let row = |(index, task): (usize, &Task)| TaskInfo {
            pid: if index == 0 { 0 } else { 1_000 + index as i32 },
            tgid: if index == 0 { 0 } else { 1_000 },
            name: match task.kind {
                _ if index == 0 => "swapper".to_owned(),
                Kind::Periodic { .. } => format!("video<{index}>"),
                Kind::Helper => format!("audio & {index}"),
                Kind::Hog => format!("batch\"{index}"),
            },
            parent: TaskId::IDLE,
            attributes: TaskAttributes::default(),
            target: index != 0,
            existed: !matches!(task.kind, Kind::Hog),
            start_cpu: CpuId(0),
            start_runnable: false,
        };
        self.tasks.iter().enumerate().map(row).collect()
    }
}
