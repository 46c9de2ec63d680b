//! Built-in workloads: the benchmarks every scheduler is tried on, as generators with parameters.
//!
//! `NAME` or `NAME:KEY=VALUE,...`, e.g. `hackbench:groups=4,loops=500`; programs run beside each other by `+`. Own time of programs is
//! stated with each generator, assumed from a recent x86 machine, and can be set; calls are costs of the machine.

use super::builder::{BuildError, Builder};
use super::{Amount, ChannelType, Late, Op, TimerRef, Workload};
use super::{benchmarks, interbench, programs};
use crate::cpu_set::CpuSet;
use crate::ids::CpuId;
use crate::policy::{Nice, TaskAttributes};
use crate::time::Nanos;
use std::collections::BTreeMap;

/// A parameter: name, default, meaning.
pub type Parameter = (&'static str, &'static str, &'static str);

/// One built-in workload.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Name.
    pub name: &'static str,
    /// One sentence.
    pub description: &'static str,
    /// What can be set of it.
    pub parameters: &'static [Parameter],
    pub(super) make: fn(&Parameters) -> Result<Workload, BuiltinError>,
}

/// A built-in workload that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuiltinError {
    /// No such parameter.
    #[error("{workload} has no parameter '{name}'; it has: {known}")]
    UnknownParameter {
        /// Which workload.
        workload: String,
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A value that cannot be read or is out of range.
    #[error("{workload}: {name}={value}: {problem}")]
    Value {
        /// Which workload.
        workload: String,
        /// Which parameter.
        name: String,
        /// The value given.
        value: String,
        /// What is wrong, with what is right.
        problem: String,
    },
    /// Not everything runs beside others.
    #[error("'{part}' cannot run beside others by '+': {known} can. Put other tasks into a workload file")]
    NotBeside {
        /// What was asked for.
        part: String,
        /// What can.
        known: String,
    },
    /// The result cannot run.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Of hackbench, alone and as the load of the wake-up benchmark.
const FDS: Parameter = ("fds", "20", "senders and receivers of a group");
const BYTES: Parameter = ("bytes", "100", "bytes of a message");
const READY: Parameter =
    ("ready", "278", "messages of a byte that the socket holds by which workers say that they are ready");
const SEND: Parameter =
    ("send", "100ns", "CPU time of the program for one write, beside what the call costs the machine");
const RECEIVE: Parameter = ("receive", "100ns", "CPU time of the program for one read, beside the call");
const RESUME: Parameter = (
    "resume",
    "20900",
    "bytes of room before senders that wait are woken, and then all: three quarters of a socket's memory; 0: one, for its message",
);
const FORK: Parameter = ("fork", "0ns", "CPU time of the parent for a fork, beside the call");
const START: Parameter = ("start", "20us", "CPU time of a worker before it is ready");

/// What it takes of a machine's memory that can run short.
const KEPT: Parameter =
    ("kept", "34", "KiB of a worker that stay in memory: kernel stack, page tables, the kernel's records");
const PAGES: Parameter = ("pages", "2", "pages of its own that a worker uses whenever it runs");
const IDLE_PAGES: Parameter =
    ("idle_pages", "5", "pages of its own that a worker writes to when it begins, and never again");
const MESSAGE_DATA: Parameter =
    ("message_data", "512", "bytes of memory for the bytes of a message in its socket");
const MESSAGE_HEADER: Parameter = ("message_header", "192", "bytes of memory for its header (`sk_buff`)");

/// Every built-in workload.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "hackbench",
        description: "Groups of 20 senders that each write to 20 receivers through sockets or pipes",
        parameters: &[
            ("groups", "1", "groups of 40 tasks"),
            ("loops", "100", "messages from each sender to each receiver"),
            FDS,
            BYTES,
            (
                "buffer",
                "27800",
                "bytes a socket holds, a message at least: 212992 of memory at 766 for a 100-byte message",
            ),
            READY,
            SEND,
            RECEIVE,
            RESUME,
            FORK,
            START,
            KEPT,
            PAGES,
            IDLE_PAGES,
            MESSAGE_DATA,
            MESSAGE_HEADER,
        ],
        make: benchmarks::hackbench,
    },
    Builtin {
        name: "wakeup",
        description: "A real-time thread wakes another by a condition's broadcast, again and again, beside hackbench without end",
        parameters: &[
            ("samples", "1000", "broadcasts"),
            ("rt", "1", "1: the thread that is woken is real-time too, 0: it is not"),
            (
                "period",
                "10ms",
                "time between broadcasts; a thread that has not come back by then misses some",
            ),
            ("run", "5us", "CPU time of a broadcast, and of the woken thread until it waits again"),
            ("groups", "10", "groups of 40 tasks of the load"),
            ("loops", "0", "rounds of messages until the load ends and is begun anew; 0: it never ends"),
            FDS,
            BYTES,
            ("buffer", "27800", "bytes a socket holds"),
            READY,
            SEND,
            RECEIVE,
            RESUME,
            FORK,
            START,
            KEPT,
            PAGES,
            IDLE_PAGES,
            MESSAGE_DATA,
            MESSAGE_HEADER,
            ("settle", "0ms", "time from the start of the load to the first broadcast"),
            (
                "cold",
                "0ms",
                "CPU time that the woken thread needs more until it is back, in the mean (exponential): caches that the load has filled",
            ),
        ],
        make: benchmarks::wakeup,
    },
    Builtin {
        name: "interbench",
        description: "A task of a desktop with its frames beside a load, as in interbench 0.31",
        parameters: &[
            ("task", "video", "audio, video, x or gaming"),
            ("load", "burn", "none, video, x, burn, write, read, ring, compile or memload"),
            ("rt", "0", "1: the task is real-time, audio and video only (-r of interbench)"),
            ("length", "30s", "time that is measured"),
            ("lead", "1s", "time of the load alone before"),
            ("threads", "4", "threads of burn, compile and ring, which has two at least"),
            ("copy", "100us", "CPU time of a block that is written or read"),
            ("disk", "1ms", "mean time until the disk has written or read it"),
            ("mib", "100us", "CPU time of memload for a MiB"),
            ("swap", "5ms", "mean time until the swap has brought a MiB back"),
            ("turn", "100us", "CPU time of a thread of ring before it wakes the next"),
        ],
        make: interbench::interbench,
    },
    Builtin {
        name: "ping-pong",
        description: "Two tasks that pass one byte to and fro through pipes",
        parameters: &[
            ("rounds", "10000", "times to and fro"),
            ("run", "2us", "CPU time of one turn"),
            ("pinned", "0", "1: both on CPU 0"),
        ],
        make: ping_pong,
    },
    Builtin {
        name: "periodic",
        description: "A task that must run every period, beside hogs that always want to",
        parameters: &[
            ("period", "10ms", "period, and the deadline of each job"),
            ("run", "2ms", "CPU time of a job"),
            ("hogs", "4", "tasks that never sleep"),
            ("duration", "5s", "length of the run"),
        ],
        make: periodic,
    },
    Builtin {
        name: "hogs",
        description: "Tasks that never sleep, with nice values, pinned or not",
        parameters: &[
            ("count", "3", "how many; the last one has the nice value"),
            ("nice", "5", "nice value of the last one"),
            ("pinned", "1", "1: all on CPU 0"),
            ("duration", "5s", "length of the run"),
        ],
        make: hogs,
    },
    Builtin {
        name: "mix",
        description: "A service of short requests and a periodic player beside batch work and a forking shell",
        parameters: &[
            ("workers", "4", "request workers"),
            ("hogs", "4", "batch tasks at nice 5"),
            ("duration", "3s", "length of the run"),
        ],
        make: mix,
    },
    programs::FIBO,
    programs::PRIMES,
    programs::RAYS,
    programs::LINPACK,
    programs::FFT,
    programs::SYSBENCH_THREADS,
];

/// Finds and makes a built-in workload from `NAME[:KEY=VALUE,...]`, or programs beside each other from several such joined
/// by `+`; `None` if there is none of that name.
///
/// # Errors
/// [`BuiltinError`] for parameters.
pub fn make(text: &str) -> Option<Result<Workload, BuiltinError>> {
    if let Some(together) = programs::together(text) {
        return Some(together);
    }
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let builtin = BUILTINS.iter().find(|builtin| builtin.name == name)?;
    Some(Parameters::parse(builtin, parameters).and_then(|parameters| (builtin.make)(&parameters)))
}

pub(super) struct Parameters {
    workload: &'static str,
    values: BTreeMap<&'static str, String>,
}

impl Parameters {
    pub(super) fn parse(builtin: &Builtin, text: &str) -> Result<Parameters, BuiltinError> {
        let mut values: BTreeMap<_, _> =
            builtin.parameters.iter().map(|(name, default, _)| (*name, (*default).to_owned())).collect();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let slot = values.iter_mut().find(|(known, _)| **known == name).ok_or_else(|| {
                BuiltinError::UnknownParameter {
                    workload: builtin.name.to_owned(),
                    name: name.to_owned(),
                    known: builtin.parameters.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", "),
                }
            })?;
            *slot.1 = value.to_owned();
        }
        Ok(Parameters { workload: builtin.name, values })
    }

    pub(super) fn name(&self) -> &'static str {
        self.workload
    }

    pub(super) fn value(&self, name: &str) -> &str {
        &self.values[name]
    }

    pub(super) fn error(&self, name: &str, problem: &str) -> BuiltinError {
        let value = self.values[name].clone();
        // Knobs of schedulers have colons between them.
        let problem = match value.split_once(':') {
            Some((first, rest)) if rest.contains('=') => {
                format!("write a comma between parameters: {name}={first},{rest}")
            }
            _ => problem.to_owned(),
        };
        BuiltinError::Value { workload: self.workload.to_owned(), name: name.to_owned(), value, problem }
    }

    pub(super) fn count(&self, name: &'static str, max: u32) -> Result<u32, BuiltinError> {
        let value = self.values[name].parse().ok().filter(|value| *value <= max);
        value.ok_or_else(|| self.error(name, &format!("write a whole number, 0 to {max}")))
    }

    /// Of what there must be one.
    pub(super) fn positive(&self, name: &'static str, max: u32) -> Result<u32, BuiltinError> {
        let value = self.count(name, max).ok().filter(|value| *value > 0);
        value.ok_or_else(|| self.error(name, &format!("write a whole number, 1 to {max}")))
    }

    pub(super) fn choice<'a>(
        &self,
        name: &'static str,
        choices: &[&'a str],
    ) -> Result<&'a str, BuiltinError> {
        let found = choices.iter().find(|choice| **choice == self.values[name]);
        found.copied().ok_or_else(|| self.error(name, &format!("choose one of {}", choices.join(", "))))
    }

    /// A whole number whose bounds somebody else knows.
    pub(super) fn whole(&self, name: &'static str) -> Result<u32, BuiltinError> {
        self.values[name].parse().map_err(|_| self.error(name, "write a whole number"))
    }

    /// CPU time of one step, none too. More of them than a run has still fit into the simulated clock.
    pub(super) fn cpu_time(&self, name: &'static str) -> Result<Nanos, BuiltinError> {
        self.time_within(name, "0s", "60s")
    }

    /// A time of at least and at most so long.
    pub(super) fn time_within(
        &self,
        name: &'static str,
        least: &'static str,
        most: &'static str,
    ) -> Result<Nanos, BuiltinError> {
        let bounds = [least, most].map(|bound| bound.parse::<Nanos>().expect("bounds are well-formed"));
        let time = self.time(name)?;
        if (bounds[0]..=bounds[1]).contains(&time) {
            return Ok(time);
        }
        Err(self.error(name, &format!("write a time from {least} to {most}")))
    }

    pub(super) fn time(&self, name: &'static str) -> Result<Nanos, BuiltinError> {
        self.values[name]
            .parse()
            .map_err(|error: crate::time::ParseNanosError| self.error(name, &error.to_string()))
    }
}

pub(super) fn run(time: Nanos) -> Op {
    Op::Run(Amount::Fixed(time))
}

pub(super) fn repeat(count: u32, body: Vec<Op>) -> Vec<Op> {
    let mut ops = vec![Op::LoopStart { count }];
    ops.extend(body);
    ops.push(Op::LoopEnd);
    ops
}

/// Pinned to CPU 0 or free.
fn pinned(yes: bool) -> TaskAttributes {
    let affinity = if yes { CpuSet::single(CpuId(0)) } else { CpuSet::ALL };
    TaskAttributes { affinity, ..TaskAttributes::default() }
}

fn ping_pong(p: &Parameters) -> Result<Workload, BuiltinError> {
    let (rounds, time) = (p.count("rounds", 100_000_000)?.max(1), p.time("run")?);
    let attributes = pinned(p.count("pinned", 1)? == 1);
    let mut b = Builder::new("ping-pong", "two tasks and two pipes");
    let ping = b.channel("ping", ChannelType::Bytes, 65_536, 0);
    let pong = b.channel("pong", ChannelType::Bytes, 65_536, 0);
    let turn = |first: Op, second: Op| repeat(rounds, vec![first, run(time), second]);
    let send = |channel| Op::Send { channel, bytes: 1 };
    let receive = |channel| Op::Receive { channel, bytes: 1 };
    b.task("ping", "ping-pong", attributes.clone(), turn(send(ping), receive(pong)));
    b.task("pong", "ping-pong", attributes, turn(receive(ping), send(pong)));
    Ok(b.finish(None)?)
}

/// A hog; chunks keep one operation from hiding how far it came.
fn hog() -> Vec<Op> {
    repeat(0, vec![run(Nanos::from_millis(100))])
}

fn periodic(p: &Parameters) -> Result<Workload, BuiltinError> {
    let period = p.time("period")?;
    let mut b = Builder::new("periodic", "a periodic task beside hogs");
    let steps = repeat(
        0,
        vec![
            Op::Timer {
                timer: TimerRef::Own(0),
                from_start: false,
                period,
                deadline: period,
                late: Late::CatchUp,
            },
            run(p.time("run")?),
        ],
    );
    b.task("periodic", "periodic", TaskAttributes::default(), steps);
    for i in 0..p.count("hogs", 10_000)? {
        let name = format!("hog{i}");
        b.task(&name, &name, TaskAttributes::default(), hog()).target = false;
    }
    Ok(b.finish(Some(p.time("duration")?))?)
}

fn hogs(p: &Parameters) -> Result<Workload, BuiltinError> {
    let count = p.count("count", 10_000)?.max(1);
    let nice = p.values["nice"].parse::<i64>().ok().and_then(|nice| Nice::widened(nice).ok());
    let nice = nice
        .ok_or_else(|| p.error("nice", "write -20 (strongest) to 19, or up to -32 to 31 with --weights"))?;
    let pin = p.count("pinned", 1)? == 1;
    let mut b = Builder::new("hogs", "tasks that never sleep");
    for i in 0..count {
        let nice = if i + 1 == count { nice } else { Nice::ZERO };
        let name = format!("hog{i}");
        b.task(&name, &name, TaskAttributes { nice, ..pinned(pin) }, hog());
    }
    Ok(b.finish(Some(p.time("duration")?))?)
}

/// A little of everything: requests from a client, a player with deadlines, batch work, a shell that forks.
fn mix(p: &Parameters) -> Result<Workload, BuiltinError> {
    let workers = p.count("workers", 1_000)?.max(1);
    let mut b = Builder::new("mix", "requests and a player beside batch work and forks");
    let requests = b.channel("requests", ChannelType::Tokens, 0, 0);
    let table = b.channel("table", ChannelType::Mutex, 0, 0);
    let command = b.declare("command", true);
    let us = Nanos::from_micros;
    b.task("command", "shell", TaskAttributes::default(), vec![Op::Run(Amount::Exponential(us(3_000)))])
        .template = true;
    let client = vec![
        Op::Sleep(Amount::Exponential(us(2_000))),
        run(us(20)),
        Op::Post { channel: requests, tokens: 1 },
    ];
    b.task("client", "client", TaskAttributes::default(), repeat(0, client));
    let serve = vec![
        Op::Take { channel: requests, timeout: None },
        Op::JobStart { deadline: Some(us(10_000)) },
        Op::Run(Amount::Exponential(us(300))),
        Op::Lock { channel: table },
        run(us(50)),
        Op::Unlock { channel: table },
        Op::Run(Amount::Exponential(us(200))),
        Op::JobEnd,
    ];
    let serve = b.program(repeat(0, serve));
    for i in 0..workers {
        b.task_with(&format!("worker{i}"), "service", TaskAttributes::default(), serve);
    }
    let period = us(16_666);
    let frame = vec![
        Op::Timer {
            timer: TimerRef::Own(0),
            from_start: false,
            period,
            deadline: period,
            late: Late::CatchUp,
        },
        run(us(4_000)),
    ];
    b.task("player", "player", TaskAttributes::default(), repeat(0, frame));
    let shell =
        vec![run(us(500)), Op::Fork { spec: command }, Op::WaitChildren, Op::Sleep(us(20_000).into())];
    b.task("shell", "shell", TaskAttributes::default(), repeat(0, shell)).target = false;
    let nice = Nice::new(5).expect("5 is in range");
    for i in 0..p.count("hogs", 10_000)? {
        let name = format!("batch{i}");
        b.task(&name, &name, TaskAttributes { nice, ..TaskAttributes::default() }, hog()).target = false;
    }
    Ok(b.finish(Some(p.time("duration")?))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_can_be_made_with_its_defaults() {
        for builtin in BUILTINS {
            let workload = make(builtin.name).expect(builtin.name).expect(builtin.name);
            assert!(!workload.tasks.is_empty(), "{}", builtin.name);
        }
    }

    #[test]
    fn hackbench_has_forty_workers_a_group_and_a_parent() {
        let workload = make("hackbench:groups=4,loops=5").expect("known").expect("makes");
        assert_eq!(workload.tasks.len(), 4 * 40 + 1);
        assert_eq!(workload.tasks.iter().filter(|task| task.template).count(), 160);
    }

    /// hackbench polls for the byte that starts it, and reads it nowhere: a second round finds it there.
    #[test]
    fn nobody_takes_the_byte_that_lets_hackbench_go() {
        for text in ["hackbench:groups=2", "wakeup:groups=2,loops=3"] {
            let workload = make(text).expect("known").expect(text);
            let go = workload.channels.iter().position(|channel| channel.name == "go").expect("a channel");
            let is_go = |channel: &crate::ids::ChannelId| channel.index() == go;
            let ops = || workload.programs.iter().flat_map(|program| &program.ops);
            let polls =
                ops().filter(|op| matches!(op, Op::WaitAny { channels, .. } if channels.iter().all(is_go)));
            // One program for each receiver, and one for all senders of a group.
            assert_eq!(polls.count(), 2 * 20 + 2, "{text}");
            let reads = |op: &Op| match op {
                Op::Receive { channel, .. } | Op::ReceiveAll { channel, .. } => is_go(channel),
                _ => false,
            };
            assert!(!ops().any(reads), "{text}");
            let sends = |op: &&Op| matches!(op, Op::Send { channel, bytes: 1 } if is_go(channel));
            assert_eq!(ops().filter(sends).count(), 1, "{text}");
        }
    }

    #[test]
    fn wrong_parameters_are_named() {
        let error = |text: &str| make(text).expect("known").expect_err(text).to_string();
        assert_eq!(
            error("hogs:size=3"),
            "hogs has no parameter 'size'; it has: count, nice, pinned, duration"
        );
        assert!(error("hogs:nice=50").contains("-20 (strongest) to 19"));
        assert!(error("periodic:period=10").contains("a number and a unit"));
        for name in ["groups", "loops", "fds", "bytes", "buffer", "ready"] {
            let error = error(&format!("hackbench:{name}=0"));
            assert!(error.contains(name) && error.contains("a whole number, 1 to"), "{error}");
        }
        for text in ["wakeup:samples=0", "interbench:threads=0,load=none"] {
            assert!(error(text).contains("a whole number, 1 to"), "{text}");
        }
        for text in
            ["wakeup:period=0s", "wakeup:cold=2min", "interbench:length=0s", "interbench:turn=0s,load=none"]
        {
            assert!(error(text).contains("write a time from"), "{text}");
        }
        assert!(error("hackbench:bytes=200,buffer=100").contains("write 200 to"));
        assert!(error("hackbench:pages=200,idle_pages=57").contains("idle_pages=57: memory: pages"));
        assert!(error("hackbench:message_header=4097").contains("message_header=4097: memory:"));
        assert!(make("hackbench:pages=200,idle_pages=56").expect("known").is_ok());
        assert!(error("hackbench:groups=1:loops=5").contains("a comma between parameters: groups=1,loops=5"));
        assert!(make("no-such").is_none());
    }
}
