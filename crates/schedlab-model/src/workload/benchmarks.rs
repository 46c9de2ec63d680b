//! Generators of the benchmarks of the slides of 2006: hackbench and the wake-up benchmark.
//!
//! Not here: their parameters ([`super::builtin`]), what is measured of them (`schedlab bench`).

use super::builder::Builder;
use super::builtin::{BuiltinError, Parameters, repeat, run};
use super::{Amount, ChannelType, Late, Op, TaskSpecId, TimerRef, Workload};
use crate::ids::ChannelId;
use crate::memory::MemoryNeeds;
use crate::policy::{Policy, TaskAttributes};
use crate::time::Nanos;

/// What a pipe holds.
const PIPE_BYTES: u64 = 65_536;
/// The most that a socket may hold.
const BUFFER_MAX: u32 = 100_000_000;

/// As in rt-tests: the parent forks every worker, waits until all are ready, lets them go, and waits for all. Workers
/// `poll()` for a byte that nobody reads: one write wakes them all, who came last first.
pub(super) fn hackbench(p: &Parameters) -> Result<Workload, BuiltinError> {
    let loops = p.positive("loops", 1_000_000)?;
    let mut b = Builder::new("hackbench", "groups of senders and receivers over sockets");
    hackbench_workers(&mut b, p, loops, true)?;
    Ok(b.finish(None)?)
}

/// Parent and workers. As background (no target) they are not waited for: they begin anew when they are done, or for 0
/// loops never are. The byte that lets workers go is still there in later rounds, whose workers begin at once, as in
/// interbench's hackbench.
fn hackbench_workers(b: &mut Builder, p: &Parameters, loops: u32, target: bool) -> Result<(), BuiltinError> {
    let groups = p.positive("groups", 100)?;
    let (fds, bytes) = (p.positive("fds", 100)?, p.positive("bytes", 60_000)?);
    if p.positive("buffer", BUFFER_MAX)? < bytes {
        return Err(p.error(
            "buffer",
            &format!("no message of {bytes} bytes would ever fit: write {bytes} to {BUFFER_MAX}"),
        ));
    }
    let (send, receive) = (p.cpu_time("send")?, p.cpu_time("receive")?);
    let (fork, begin) = (p.cpu_time("fork")?, p.cpu_time("start")?);
    let (ready, go) = (ready(b, p)?, b.channel("go", ChannelType::Bytes, PIPE_BYTES, 0));
    b.memory(memory(p)?);
    let workers = groups * fds * 2;
    let mut parent = Vec::new();
    for spec in 0..workers {
        parent.extend([run(fork), Op::Fork { spec: TaskSpecId(spec) }]);
    }
    parent.extend(repeat(workers, vec![Op::Receive { channel: ready, bytes: 1 }]));
    parent.extend([Op::Send { channel: go, bytes: 1 }, Op::WaitChildren]);
    let wait_for_go = Op::WaitAny { channels: Box::new([go]), timeout: None };
    let start = [run(begin), Op::Send { channel: ready, bytes: 1 }, wait_for_go];
    for group in 0..groups {
        let pipes: Vec<_> =
            (0..fds).map(|fd| socket(b, &format!("socket{group}.{fd}"), p)).collect::<Result<_, _>>()?;
        let mut round = Vec::new();
        for &channel in &pipes {
            round.extend([run(send), Op::Send { channel, bytes }]);
        }
        let sender = b.program(start.iter().cloned().chain(repeat(loops, round)).collect());
        for (fd, &channel) in pipes.iter().enumerate() {
            let body = vec![Op::ReceiveAll { channel, bytes }, run(receive)];
            let ops = start.iter().cloned().chain(repeat(loops * fds, body)).collect();
            let name = format!("receiver{group}.{fd}");
            let task = b.task(&name, &name, TaskAttributes::default(), ops);
            (task.template, task.target) = (true, target);
        }
        for fd in 0..fds {
            let name = format!("sender{group}.{fd}");
            let task = b.task_with(&name, &name, TaskAttributes::default(), sender);
            (task.template, task.target) = (true, target);
        }
    }
    if !target {
        parent = repeat(0, parent);
    }
    b.task("hackbench", "hackbench", TaskAttributes::default(), parent).target = target;
    Ok(())
}

/// What workers and messages take of memory, within the bounds that files have.
fn memory(p: &Parameters) -> Result<MemoryNeeds, BuiltinError> {
    let (kept_kib, message) = (p.whole("kept")?, [p.whole("message_data")?, p.whole("message_header")?]);
    let (pages, idle_pages) = (p.whole("pages")?, p.whole("idle_pages")?);
    let none = MemoryNeeds::default();
    // Each alone, so that the one that is too large is named.
    for (name, part) in [
        ("kept", MemoryNeeds { kept_kib, ..none }),
        ("pages", MemoryNeeds { pages, ..none }),
        ("idle_pages", MemoryNeeds { pages, idle_pages, ..none }),
        ("message_data", MemoryNeeds { message: [message[0], 0], ..none }),
        ("message_header", MemoryNeeds { message: [0, message[1]], ..none }),
    ] {
        part.check().map_err(|problem| p.error(name, problem))?;
    }
    Ok(MemoryNeeds { kept_kib, pages, idle_pages, message })
}

fn socket(b: &mut Builder, name: &str, p: &Parameters) -> Result<ChannelId, BuiltinError> {
    let (bytes, resume) = (p.positive("buffer", BUFFER_MAX)?, p.count("resume", BUFFER_MAX)?);
    Ok(socket_of(b, name, bytes.into(), resume.into(), resume > 0))
}

/// A socket by which workers say that they are ready, a byte each. The parent reads only when it has forked all of them:
/// of many workers those who come late wait for room, and so sleep once more than the first.
fn ready(b: &mut Builder, p: &Parameters) -> Result<ChannelId, BuiltinError> {
    let messages = u64::from(p.positive("ready", BUFFER_MAX)?);
    let (bytes, resume) = (p.positive("buffer", BUFFER_MAX)?, p.count("resume", BUFFER_MAX)?);
    // The same part of its memory has to be free.
    let part = messages * u64::from(resume) / u64::from(bytes);
    Ok(socket_of(b, "ready", messages, part, resume > 0))
}

/// A socket, or a pipe in its place.
fn socket_of(b: &mut Builder, name: &str, bytes: u64, room_to_resume: u64, is_socket: bool) -> ChannelId {
    let channel = b.channel(name, ChannelType::Bytes, bytes, 0);
    let spec = b.channel_mut(channel);
    // Of a smaller buffer there is never more room than all of it.
    spec.room_to_resume = room_to_resume.min(bytes);
    spec.is_socket = is_socket;
    channel
}

/// The benchmark of the slides of 2006: `waker` wakes `woken` by a condition; the time from before the broadcast until
/// `woken` has come back from its wait, with the mutex, is a sample. Both ends are told by jobs: the waker's begins before
/// the broadcast, the woken one's is over as it begins. So is how late the waker is after its timer, by a job that has a
/// deadline. No broadcast is lost: the mutex is free only when `woken` waits, or is about to be `ready`.
pub(super) fn wakeup(p: &Parameters) -> Result<Workload, BuiltinError> {
    let (samples, time) = (p.positive("samples", 1_000_000)?, p.cpu_time("run")?);
    let loops = p.count("loops", 1_000_000)?;
    let mut b = Builder::new("wakeup", "an RT thread wakes a thread beside hackbench");
    hackbench_workers(&mut b, p, loops, false)?;
    let condition = b.channel("condition", ChannelType::Condition, 0, 0);
    let lock = b.channel("lock", ChannelType::Mutex, 0, 0);
    let ready = b.channel("ready", ChannelType::Tokens, 0, 0);
    let real_time =
        |rt_priority| TaskAttributes { policy: Policy::Fifo, rt_priority, ..TaskAttributes::default() };
    let of_woken = if p.count("rt", 1)? == 1 { real_time(80) } else { TaskAttributes::default() };
    let begin = Op::JobStart { deadline: None };
    let mut wait = vec![Op::Post { channel: ready, tokens: 1 }, Op::ConditionWait { condition, lock }];
    let cold = p.cpu_time("cold")?;
    if cold > Nanos(0) {
        wait.push(Op::Run(Amount::Exponential(cold)));
    }
    wait.extend([begin.clone(), Op::JobEnd, run(time)]);
    let woken = [vec![Op::Lock { channel: lock }], repeat(0, wait)].concat();
    let settle = p.time_within("settle", "0s", "1440min")?;
    let row = b.task("woken", "wakeup", of_woken, woken);
    (row.target, row.start) = (false, settle);
    let period = p.time_within("period", "1us", "60min")?;
    let timer =
        Op::Timer { timer: TimerRef::Own(0), from_start: false, period, deadline: period, late: Late::Skip };
    let broadcast = vec![
        Op::Take { channel: ready, timeout: None },
        timer,
        Op::JobEnd,
        run(time),
        // Who is ready holds the lock until it waits.
        Op::Lock { channel: lock },
        Op::Unlock { channel: lock },
        begin,
        Op::WakeWaiters { channel: condition, count: u32::MAX },
        Op::JobEnd,
    ];
    // The last answer is waited for, too.
    let waker = [repeat(samples, broadcast), vec![Op::Take { channel: ready, timeout: None }]].concat();
    b.task("waker", "wakeup", real_time(90), waker).start = settle;
    Ok(b.finish(None)?)
}
