//! A run as a Perfetto trace: ui.perfetto.dev opens it, trace_processor queries it.
//!
//! CPU scheduling goes in as ftrace events, so that `sched_slice` and `thread_state` fill; wake-ups as flows
//! from an instant on the waker's track to the wakee's next stay; run-queue lengths, rank keys, dynamic
//! priorities, CPU times and virtual runtimes as counters, the cause of each change of priority as an instant beside
//! its counter. Field numbers are those of perfetto's `protos/perfetto/trace/*.proto`.

mod priorities;
mod progress;
mod proto;

use crate::timeline::Timeline;
use proto::Message;
use schedlab_model::event::{Context, Event, EventKind, PrevState};
use schedlab_model::ids::{CpuId, TaskId};
use schedlab_model::machine::KernelVersion;
use schedlab_model::policy::{Policy, TaskAttributes};
use schedlab_model::recording::TaskInfo;
use schedlab_model::time::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Field numbers, by message.
mod field {
    pub const TRACE_PACKET: u32 = 1;
    pub mod packet {
        pub const FTRACE_EVENTS: u32 = 1;
        pub const PROCESS_TREE: u32 = 2;
        pub const TIMESTAMP: u32 = 8;
        pub const SEQUENCE_ID: u32 = 10;
        pub const TRACK_EVENT: u32 = 11;
        pub const SYSTEM_INFO: u32 = 45;
        pub const TRACK_DESCRIPTOR: u32 = 60;
    }
    pub mod ftrace {
        pub const CPU: u32 = 1;
        pub const EVENT: u32 = 2;
        pub const TIMESTAMP: u32 = 1;
        pub const PID: u32 = 2;
        pub const SCHED_SWITCH: u32 = 4;
        pub const SCHED_WAKING: u32 = 20;
        pub const SCHED_WAKEUP_NEW: u32 = 114;
    }
    pub mod descriptor {
        pub const UUID: u32 = 1;
        pub const NAME: u32 = 2;
        pub const PROCESS: u32 = 3;
        pub const THREAD: u32 = 4;
        pub const PARENT_UUID: u32 = 5;
        pub const COUNTER: u32 = 8;
    }
    pub mod event {
        pub const DEBUG_ANNOTATIONS: u32 = 4;
        pub const TYPE: u32 = 9;
        pub const TRACK_UUID: u32 = 11;
        pub const NAME: u32 = 23;
        pub const COUNTER_VALUE: u32 = 30;
        pub const FLOW_IDS: u32 = 47;
        pub const TERMINATING_FLOW_IDS: u32 = 48;
    }
    pub mod annotation {
        pub const UINT_VALUE: u32 = 3;
        pub const STRING_VALUE: u32 = 6;
        pub const NAME: u32 = 10;
    }
}

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Events of one CPU a bundle: keeps packets small enough to be buffered by readers.
const BUNDLE_EVENTS_MAX: usize = 512;

/// Kinds of tracks; with a number of their own they make unique identities.
#[derive(Clone, Copy)]
enum Track {
    Process(i32),
    Thread(TaskId),
    Interrupts(CpuId),
    Queue(CpuId),
    Rank(TaskId),
    Machine,
    Priority(TaskId),
    Causes(TaskId),
    CpuTime(TaskId),
    Vruntime(TaskId),
}

impl Track {
    fn uuid(self) -> u64 {
        let (kind, number) = match self {
            Track::Process(pid) => (1, u64::from(pid.unsigned_abs())),
            Track::Thread(task) => (2, u64::from(task.0)),
            Track::Interrupts(cpu) => (3, u64::from(cpu.0)),
            Track::Queue(cpu) => (4, u64::from(cpu.0)),
            Track::Rank(task) => (5, u64::from(task.0)),
            Track::Machine => (6, 0),
            Track::Priority(task) => (7, u64::from(task.0)),
            Track::Causes(task) => (8, u64::from(task.0)),
            Track::CpuTime(task) => (9, u64::from(task.0)),
            Track::Vruntime(task) => (10, u64::from(task.0)),
        };
        0x5c4e_d1ab << 32 | kind << 28 | number
    }
}

/// A run to be written.
#[derive(Clone, Copy, Debug)]
pub struct TraceInput<'a> {
    /// Its events, in time order.
    pub events: &'a [Event],
    /// Its tasks; row 0 is idle.
    pub tasks: &'a [TaskInfo],
    /// Number of CPUs.
    pub cpus: usize,
    /// Its length.
    pub length: Nanos,
    /// The kernel; readers decode task states by it.
    pub kernel: KernelVersion,
}

/// The bytes of a trace file (`.pftrace`).
pub fn trace(input: &TraceInput<'_>) -> Vec<u8> {
    let timeline = Timeline::new(input.events, input.tasks, input.cpus, input.length);
    let mut writer =
        Writer { input: *input, people: people(input.tasks, &timeline), out: Message::default() };
    writer.system_info();
    writer.descriptors(&timeline);
    writer.scheduling();
    writer.flows(&timeline);
    writer.counters(&timeline);
    writer.priorities(&timeline);
    writer.progress(&timeline);
    writer.out.into_bytes()
}

/// What a trace calls a task.
struct Person {
    tid: i32,
    pid: i32,
    name: String,
    priority: i64,
}

/// Kernel thread ids where the recording has them, numbers of our own where they are missing or double.
fn people(tasks: &[TaskInfo], timeline: &Timeline) -> Vec<Person> {
    let mut seen = BTreeSet::new();
    let usable = tasks.iter().skip(1).all(|task| task.pid > 0 && task.tgid > 0 && seen.insert(task.pid));
    let base = if usable { tasks.iter().map(|task| task.pid).max().unwrap_or(0) + 1 } else { 1_000 };
    let person = |(index, name): (usize, &String)| {
        let info = tasks.get(index);
        let given = info.filter(|_| usable);
        let own = base + index as i32;
        let (tid, pid) = given.map_or((own, own), |task| (task.pid, task.tgid));
        let (tid, pid) = if index == 0 { (0, 0) } else { (tid, pid) };
        let priority = info.map_or(120, |task| priority(&task.attributes));
        Person { tid, pid, name: if index == 0 { "swapper".to_owned() } else { name.clone() }, priority }
    };
    let people: Vec<Person> = timeline.names.iter().enumerate().map(person).collect();
    if people.is_empty() {
        return vec![Person { tid: 0, pid: 0, name: "swapper".to_owned(), priority: 120 }];
    }
    people
}

/// `task_struct::prio` as ftrace prints it.
fn priority(attributes: &TaskAttributes) -> i64 {
    match attributes.policy {
        Policy::Fifo | Policy::Rr => 99 - i64::from(attributes.rt_priority),
        _ => i64::from(attributes.nice.static_prio()),
    }
}

struct Writer<'a> {
    input: TraceInput<'a>,
    people: Vec<Person>,
    out: Message,
}

impl Writer<'_> {
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) {
        self.out.message(field::TRACE_PACKET, |packet| {
            packet.number(field::packet::SEQUENCE_ID, 1);
            fill(packet);
        });
    }

    fn person(&self, task: TaskId) -> &Person {
        self.people.get(task.index()).unwrap_or(&self.people[0])
    }

    /// Kernel version (task states changed their numbers over time) and who the threads are.
    fn system_info(&mut self) {
        let release = format!("{}.0", self.input.kernel);
        self.packet(|packet| {
            packet.message(field::packet::SYSTEM_INFO, |info| {
                info.message(1, |name| {
                    name.text(1, "Linux").text(3, &release);
                });
            });
        });
        let processes = self.processes();
        let threads: Vec<(i32, i32, String)> =
            self.people.iter().skip(1).map(|p| (p.tid, p.pid, p.name.clone())).collect();
        self.packet(|packet| {
            packet.number(field::packet::TIMESTAMP, 0);
            packet.message(field::packet::PROCESS_TREE, |tree| {
                for (pid, name) in processes {
                    tree.message(1, |process| {
                        process.number(1, pid as u64).number(2, 1).text(3, &name);
                    });
                }
                for (tid, pid, name) in threads {
                    tree.message(2, |thread| {
                        thread.number(1, tid as u64).text(2, &name).number(3, pid as u64);
                    });
                }
            });
        });
    }

    /// Processes with the name of their first thread.
    fn processes(&self) -> BTreeMap<i32, String> {
        let mut processes = BTreeMap::new();
        for person in self.people.iter().skip(1) {
            if person.tid == person.pid {
                processes.insert(person.pid, person.name.clone());
            } else {
                processes.entry(person.pid).or_insert_with(|| person.name.clone());
            }
        }
        processes
    }

    fn descriptor(&mut self, track: Track, fill: impl FnOnce(&mut Message)) {
        self.packet(|packet| {
            packet.message(field::packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.number(field::descriptor::UUID, track.uuid());
                fill(descriptor);
            });
        });
    }

    fn descriptors(&mut self, timeline: &Timeline) {
        use field::descriptor::{COUNTER, NAME, PARENT_UUID, PROCESS, THREAD};
        self.descriptor(Track::Machine, |machine| {
            machine.text(NAME, "schedlab");
        });
        for (pid, name) in self.processes() {
            self.descriptor(Track::Process(pid), |process| {
                process.message(PROCESS, |process| {
                    process.number(1, pid as u64).text(6, &name);
                });
            });
        }
        let people: Vec<(TaskId, i32, i32, String)> = (1_u32..)
            .zip(self.people.iter().skip(1))
            .map(|(task, p)| (TaskId(task), p.tid, p.pid, p.name.clone()))
            .collect();
        let mut ranked: Vec<TaskId> = timeline.ranks.iter().map(|rank| rank.of).collect();
        ranked.sort_unstable();
        ranked.dedup();
        for (task, tid, pid, name) in people {
            self.descriptor(Track::Thread(task), |thread| {
                thread.message(THREAD, |thread| {
                    thread.number(1, pid as u64).number(2, tid as u64).text(5, &name);
                });
            });
            if ranked.binary_search(&task).is_ok() {
                self.descriptor(Track::Rank(task), |rank| {
                    rank.number(PARENT_UUID, Track::Thread(task).uuid())
                        .text(NAME, &format!("rank of {name} (up runs sooner)"))
                        .message(COUNTER, |counter| {
                            counter.text(6, "negated key");
                        });
                });
            }
        }
        for cpu in (0..self.input.cpus as u32).map(CpuId) {
            self.descriptor(Track::Queue(cpu), |queue| {
                queue
                    .number(PARENT_UUID, Track::Machine.uuid())
                    .text(NAME, &format!("run queue of CPU {cpu}"))
                    .message(COUNTER, |counter| {
                        counter.text(6, "tasks waiting");
                    });
            });
            self.descriptor(Track::Interrupts(cpu), |interrupts| {
                interrupts
                    .number(PARENT_UUID, Track::Machine.uuid())
                    .text(NAME, &format!("interrupts of CPU {cpu}"));
            });
        }
    }

    /// Switches and wake-ups as the kernel's own tracepoints, bundled by CPU.
    fn scheduling(&mut self) {
        for cpu in (0..self.input.cpus as u32).map(CpuId) {
            let events: Vec<Event> =
                self.input.events.iter().filter(|event| event.cpu == cpu).copied().collect();
            let mut current = TaskId::IDLE;
            for bundle in events.chunks(BUNDLE_EVENTS_MAX) {
                let mut encoded = Message::default();
                encoded.number(field::ftrace::CPU, u64::from(cpu.0));
                for event in bundle {
                    self.ftrace_event(&mut encoded, event, &mut current);
                }
                let bytes = encoded.into_bytes();
                self.packet(|packet| {
                    packet.bytes(field::packet::FTRACE_EVENTS, &bytes);
                });
            }
        }
    }

    fn ftrace_event(&self, bundle: &mut Message, event: &Event, current: &mut TaskId) {
        use field::ftrace::{EVENT, PID, SCHED_SWITCH, SCHED_WAKEUP_NEW, SCHED_WAKING, TIMESTAMP};
        let Event { time, kind, .. } = *event;
        match kind {
            EventKind::Switch { prev, prev_state, next } => {
                *current = next;
                let (prev, next) = (self.person(prev), self.person(next));
                bundle.message(EVENT, |ftrace| {
                    ftrace.number(TIMESTAMP, time.0).number(PID, prev.tid as u64);
                    ftrace.message(SCHED_SWITCH, |switch| {
                        switch.text(1, &prev.name).signed(2, prev.tid.into()).signed(3, prev.priority);
                        switch.signed(4, state_number(prev_state));
                        switch.text(5, &next.name).signed(6, next.tid.into()).signed(7, next.priority);
                    });
                });
            }
            EventKind::Waking { waker, context, wakee, wakee_cpu } => {
                // An interrupt borrows whoever is current, as in the kernel.
                let waker = if context == Context::Task { waker } else { *current };
                let (waker, wakee) = (self.person(waker), self.person(wakee));
                bundle.message(EVENT, |ftrace| {
                    ftrace.number(TIMESTAMP, time.0).number(PID, waker.tid as u64);
                    ftrace.message(SCHED_WAKING, |waking| woken(waking, wakee, wakee_cpu));
                });
            }
            EventKind::WakeupNew { task, target_cpu } => {
                let (waker, wakee) = (self.person(*current), self.person(task));
                bundle.message(EVENT, |ftrace| {
                    ftrace.number(TIMESTAMP, time.0).number(PID, waker.tid as u64);
                    ftrace.message(SCHED_WAKEUP_NEW, |waking| woken(waking, wakee, target_cpu));
                });
            }
            _ => {}
        }
    }

    fn track_event(&mut self, time: Nanos, kind: u64, track: Track, fill: impl FnOnce(&mut Message)) {
        self.packet(|packet| {
            packet.number(field::packet::TIMESTAMP, time.0);
            packet.message(field::packet::TRACK_EVENT, |event| {
                event.number(field::event::TYPE, kind).number(field::event::TRACK_UUID, track.uuid());
                fill(event);
            });
        });
    }

    /// An instant for each wake-up, a slice for each stay, and a flow from one to the other.
    fn flows(&mut self, timeline: &Timeline) {
        for (index, wake) in timeline.wakes.iter().enumerate() {
            let track = wake.waker.map_or(Track::Interrupts(wake.cpu), Track::Thread);
            let name = format!("wakes {}", timeline.name(wake.wakee));
            self.track_event(wake.time, INSTANT, track, |event| {
                event.text(field::event::NAME, &name);
                if wake.ran.is_some() {
                    event.fixed(field::event::FLOW_IDS, index as u64 + 1);
                }
            });
        }
        for stay in &timeline.stays {
            let track = Track::Thread(stay.task);
            self.track_event(stay.start, SLICE_BEGIN, track, |event| {
                event.text(field::event::NAME, &format!("on CPU {}", stay.cpu));
                if let Some(wake) = stay.wake {
                    event.fixed(field::event::TERMINATING_FLOW_IDS, wake as u64 + 1);
                }
            });
            self.track_event(stay.end, SLICE_END, track, |_| {});
        }
    }

    fn counters(&mut self, timeline: &Timeline) {
        let value = |event: &mut Message, value: i64| {
            event.signed(field::event::COUNTER_VALUE, value);
        };
        for cpu in (0..self.input.cpus as u32).map(CpuId) {
            self.track_event(Nanos::ZERO, COUNTER, Track::Queue(cpu), |event| value(event, 0));
        }
        for point in &timeline.queues {
            self.track_event(point.time, COUNTER, Track::Queue(point.of), |event| value(event, point.value));
        }
        for point in &timeline.ranks {
            let negated = point.value.saturating_neg();
            self.track_event(point.time, COUNTER, Track::Rank(point.of), |event| value(event, negated));
        }
    }
}

fn woken(waking: &mut Message, wakee: &Person, cpu: CpuId) {
    waking.text(1, &wakee.name).signed(2, wakee.tid.into()).signed(3, wakee.priority);
    waking.signed(4, 1).signed(5, cpu.0.into());
}

/// `prev_state` as `sched_switch` prints it since 4.14: preempted is `TASK_REPORT_MAX`.
fn state_number(state: PrevState) -> i64 {
    match state {
        PrevState::Runnable => 0x100,
        PrevState::Interruptible => 1,
        PrevState::Uninterruptible => 2,
        PrevState::Stopped => 4,
        PrevState::Dead => 0x10,
    }
}
