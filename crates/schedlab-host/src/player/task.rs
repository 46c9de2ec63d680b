//! One task of a play: its steps, each the system call that a program would make.
//!
//! Steps are those of the simulator's interpreter (schedlab-sim, `behaviour`), on a real thread. Buffers are made before
//! the start, so that a step makes no other system call than its own.

use super::channel::{poll, read_once, write_all};
use super::shared::{Mark, state};
use super::stage::Stage;
use super::{attributes, burn, clock, playable};
use schedlab_model::rng::Rng;
use schedlab_model::workload::draw::task_stream;
use schedlab_model::workload::{Late, Op, TimerRef};
use schedlab_model::{ChannelId, TaskAttributes};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

const LINE_BYTES: usize = 64;
/// Marks whose pages a task that makes some has before the run begins, 2 MiB: a fault within a job would be part of it.
const MARKS_NEAR: usize = 1 << 16;

/// A task with everything it needs to run.
pub struct Task {
    pub(super) stage: Arc<Stage>,
    row: usize,
    slot: usize,
    rng: Rng,
    receive: BTreeMap<ChannelId, File>,
    send: BTreeMap<ChannelId, File>,
    buffer: Vec<u8>,
    touched: Vec<u8>,
    attributes: TaskAttributes,
    timers: BTreeMap<u32, u64>,
    job: Option<(u64, u64)>,
    waits: u64,
    threads: Vec<JoinHandle<()>>,
    processes: Vec<libc::pid_t>,
}

impl Task {
    /// Makes a task of a row of the workload, with ends of its own of the pipes that it uses. `inherited` are the
    /// attributes of the thread that will run it.
    pub fn new(stage: Arc<Stage>, row: usize, slot: usize, inherited: TaskAttributes) -> io::Result<Task> {
        let mut task = Task {
            row,
            slot,
            rng: Rng::new(stage.seed, task_stream(stage.workload.tasks[row].stream, slot as u32 + 1)),
            receive: BTreeMap::new(),
            send: BTreeMap::new(),
            buffer: Vec::new(),
            touched: Vec::new(),
            attributes: inherited,
            timers: BTreeMap::new(),
            job: None,
            waits: 0,
            threads: Vec::new(),
            processes: Vec::new(),
            stage: Arc::clone(&stage),
        };
        let (mut largest, mut touched) = (0, 0);
        for op in stage.ops(row) {
            match op {
                Op::Receive { channel, bytes } | Op::ReceiveAll { channel, bytes } => {
                    task.open(*channel, false)?;
                    largest = largest.max(*bytes);
                }
                Op::Send { bytes, .. } => largest = largest.max(*bytes),
                Op::WaitAny { channels, .. } => {
                    channels.iter().try_for_each(|channel| task.open(*channel, false))?;
                }
                Op::Touch { bytes } => touched = touched.max(*bytes),
                _ => {}
            }
        }
        for channel in stage.sends_to(row) {
            task.open(channel, true)?;
        }
        (task.buffer, task.touched) = (vec![0; largest as usize], vec![0; touched as usize]);
        Ok(task)
    }

    fn open(&mut self, channel: ChannelId, sends: bool) -> io::Result<()> {
        let ends = if sends { &mut self.send } else { &mut self.receive };
        if !ends.contains_key(&channel) {
            ends.extend(self.stage.channels.open_end(channel, sends)?.map(|end| (channel, end)));
        }
        Ok(())
    }

    /// On the thread that is to be the task: takes its name and attributes and says who it is.
    pub fn become_it(&mut self) -> Result<(), String> {
        let spec = &self.stage.workload.tasks[self.row];
        let name = std::ffi::CString::new(spec.name.replace('\0', " ")).expect("no NUL is left");
        // SAFETY: the kernel copies at most 16 bytes of a text that ends with NUL.
        let tid = unsafe {
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
            libc::gettid()
        };
        if let Some(slot) = self.stage.slots.get(self.slot) {
            slot.tid.store(tid, Ordering::Relaxed);
            slot.row.store(self.row as u32 + 1, Ordering::Release);
        }
        let wanted = &spec.attributes;
        attributes::change(&self.attributes, wanted, &self.stage.cpus)
            .map_err(|refused| format!("task '{}': {refused}", spec.name))?;
        self.attributes = wanted.clone();
        Ok(())
    }

    /// Waits for the run's begin and the task's start, then plays to the end.
    pub fn run_from_gate(mut self) {
        if self.stage.ops(self.row).iter().any(|op| matches!(op, Op::Timer { .. } | Op::JobStart { .. })) {
            self.stage.marks.prefault(MARKS_NEAR);
        }
        let origin = self.stage.await_begin();
        let start = self.stage.workload.tasks[self.row].start.0;
        self.told(state::SLEEPS);
        clock::sleep_until(origin + start);
        self.told(state::RUNS);
        self.run();
    }

    /// Plays the steps to the end.
    pub fn run(&mut self) {
        let stage = Arc::clone(&self.stage);
        let ops = stage.ops(self.row);
        let mut loops: Vec<(usize, u32)> = Vec::new();
        let mut at = 0;
        while let Some(op) = ops.get(at) {
            if let Some(slot) = stage.slots.get(self.slot) {
                slot.step.store(at as u32, Ordering::Relaxed);
            }
            at += 1;
            match op {
                Op::Exit => break,
                Op::LoopStart { count } => loops.push((at, *count)),
                Op::LoopEnd => {
                    let (start, left) = loops.last_mut().expect("a validated program closes what it opened");
                    if *left == 1 {
                        loops.pop();
                    } else {
                        *left = left.saturating_sub(1);
                        at = *start;
                    }
                }
                op => {
                    if let Err(error) = self.step(op) {
                        let (task, step) = (&stage.workload.tasks[self.row].name, playable::name(op));
                        stage.head().fail(&format!("task '{task}', step {at} ({step}): {error}"));
                        break;
                    }
                }
            }
        }
        self.end();
    }

    fn step(&mut self, op: &Op) -> io::Result<()> {
        let stage = Arc::clone(&self.stage);
        match op {
            Op::Run(amount) => burn::burn(amount.draw(&mut self.rng).0, &stage.speeds),
            Op::Spin { time, piece } => {
                let end = clock::now() + time.0;
                while clock::now() < end {
                    burn::burn(piece.0, &stage.speeds);
                }
            }
            Op::Sleep(amount) => {
                let time = amount.draw(&mut self.rng).0;
                self.asleep(|_| clock::sleep(time));
            }
            Op::SleepUntil(time) => self.sleep_until(stage.origin() + time.0),
            Op::WaitDevice { time, .. } => self.asleep(|_| clock::sleep(time.0)),
            Op::Timer { timer, from_start, period, deadline, late } => {
                self.end_job();
                loop {
                    let release = self.release(*timer, *from_start, period.0, *late);
                    self.job = Some((release, release.saturating_add(deadline.0)));
                    self.sleep_until(release);
                    if !late.is_over(release, clock::now(), period.0) {
                        break;
                    }
                }
            }
            Op::Yield => std::thread::yield_now(),
            Op::SetAttributes(wanted) => {
                attributes::change(&self.attributes, wanted, &self.stage.cpus).map_err(io::Error::other)?;
                self.attributes = (**wanted).clone();
            }
            Op::Touch { bytes } => {
                for line in self.touched[..*bytes as usize].chunks_mut(LINE_BYTES) {
                    line[0] = std::hint::black_box(line[0].wrapping_add(1));
                }
            }
            Op::JobStart { deadline } => {
                let now = clock::now();
                self.job = Some((now, deadline.map_or(u64::MAX, |deadline| now.saturating_add(deadline.0))));
            }
            Op::JobEnd => self.end_job(),
            Op::Fork { spec } => self.fork(spec.0 as usize),
            Op::WaitChildren => self.wait_children(),
            op => return self.channel_step(op),
        }
        Ok(())
    }

    fn channel_step(&mut self, op: &Op) -> io::Result<()> {
        let stage = Arc::clone(&self.stage);
        let channels = &stage.channels;
        let until = |timeout: &Option<schedlab_model::Nanos>| timeout.map(|time| clock::now() + time.0);
        match op {
            Op::Send { channel, bytes } => {
                let Some(end) = self.send.get(channel).map(AsRawFd::as_raw_fd) else { return Ok(()) };
                self.waiting(|task| write_all(end, &task.buffer[..*bytes as usize]))?;
            }
            Op::Receive { channel, bytes } => drop(self.receive(*channel, *bytes)?),
            Op::ReceiveAll { channel, bytes } => {
                let mut left = *bytes;
                while left > 0 {
                    match self.receive(*channel, left)? {
                        0 => break,
                        got => left -= got,
                    }
                }
            }
            Op::WaitAny { channels: list, timeout } => {
                let descriptor = |channel: &ChannelId| {
                    let pipe = self.receive.get(channel).map(AsRawFd::as_raw_fd);
                    pipe.or_else(|| channels.eventfd(*channel))
                };
                let all: Vec<RawFd> = list.iter().filter_map(descriptor).collect();
                let until = until(timeout);
                self.waiting_until(until, |_| poll(&all, until))?;
            }
            Op::Close { channel } => drop(self.send.remove(channel)),
            Op::Post { channel, tokens } => channels.post(*channel, *tokens)?,
            Op::Take { channel, timeout } => {
                let until = until(timeout);
                if let Some(condition) = channels.condition(*channel) {
                    let ticket = condition.enlist()?;
                    self.waiting_until(until, |_| condition.await_wake(ticket, until));
                } else {
                    self.waiting_until(until, |_| channels.take(*channel, until))?;
                }
            }
            Op::WakeWaiters { channel, count } => {
                if let Some(condition) = channels.condition(*channel) {
                    condition.wake(*count);
                }
            }
            Op::Lock { channel } => self.waiting(|_| channels.word(*channel).lock()),
            Op::Unlock { channel } => channels.word(*channel).unlock(),
            Op::ConditionWait { condition, lock } => {
                let Some(condition) = channels.condition(*condition) else { return Ok(()) };
                let lock = channels.word(*lock);
                let ticket = condition.enlist()?;
                lock.unlock();
                self.waiting(|_| {
                    condition.await_wake(ticket, None);
                    lock.lock();
                });
            }
            Op::Barrier { channel } => {
                let parties = stage.workload.channels[channel.index()].capacity;
                self.waiting(|_| channels.word(*channel).arrive(u32::try_from(parties).unwrap_or(1)));
            }
            _ => {}
        }
        Ok(())
    }

    fn receive(&mut self, channel: ChannelId, bytes: u32) -> io::Result<u32> {
        let Some(end) = self.receive.get(&channel).map(AsRawFd::as_raw_fd) else { return Ok(0) };
        let got = self.waiting(|task| read_once(end, &mut task.buffer[..bytes as usize]))?;
        Ok(u32::try_from(got).expect("no more than was asked for"))
    }

    fn told(&self, state: u32) {
        if let Some(slot) = self.stage.slots.get(self.slot) {
            slot.waits.store(self.waits, Ordering::Relaxed);
            slot.state.store(state, Ordering::Release);
        }
    }

    fn waiting<T>(&mut self, wait: impl FnOnce(&mut Task) -> T) -> T {
        self.waiting_until(None, wait)
    }

    fn waiting_until<T>(&mut self, until: Option<u64>, wait: impl FnOnce(&mut Task) -> T) -> T {
        self.waits += 1;
        self.told(if until.is_some() { state::SLEEPS } else { state::WAITS });
        let value = wait(self);
        self.told(state::RUNS);
        value
    }

    fn asleep(&mut self, wait: impl FnOnce(&mut Task)) {
        self.waiting_until(Some(0), wait);
    }

    fn sleep_until(&mut self, instant: u64) {
        if instant > clock::now() {
            self.asleep(|_| clock::sleep_until(instant));
        }
    }

    /// When the timer lets the task go on: a period after its last expiry; moves it on.
    fn release(&mut self, timer: TimerRef, from_start: bool, period: u64, late: Late) -> u64 {
        let now = clock::now();
        let start = self.stage.workload.tasks[self.row].start.0;
        let first = if from_start { self.stage.origin() + start } else { now };
        let next = |last: u64| late.release(if last == 0 { first } else { last } + period, now, period);
        match timer {
            TimerRef::Own(number) => {
                let last = self.timers.entry(number).or_default();
                *last = next(*last);
                *last
            }
            TimerRef::Shared(number) => {
                let last: &AtomicU64 = &self.stage.timers[number as usize];
                let moved = last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(next(last)));
                next(moved.expect("it is always moved"))
            }
        }
    }

    fn end_job(&mut self) {
        let Some((released, deadline)) = self.job.take() else { return };
        let now = clock::now();
        let number = self.stage.head().marks.fetch_add(1, Ordering::Relaxed) as usize;
        let Some(mark) = self.stage.marks.get(number) else { return };
        let Mark { slot, cpu, time, released: at, deadline: due } = mark;
        // SAFETY: a plain call; errors are negative.
        cpu.store(u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0), Ordering::Relaxed);
        slot.store(self.slot as u32, Ordering::Relaxed);
        at.store(released, Ordering::Relaxed);
        due.store(deadline, Ordering::Relaxed);
        time.store(now, Ordering::Release);
    }

    /// Makes a task of a template: a thread where the template names the parent's process, else a process. A kernel that
    /// refuses leaves the parent without that child, as in the simulator.
    fn fork(&mut self, row: usize) {
        let stage = Arc::clone(&self.stage);
        let slot = stage.new_slot(row);
        let inherited = self.attributes.clone();
        let tasks = &stage.workload.tasks;
        let made = if stage.in_one_process || tasks[row].process == tasks[self.row].process {
            let body = move |stage: Arc<Stage>| run_child(stage, row, slot, inherited);
            let copy = Arc::clone(&stage);
            let thread = std::thread::Builder::new().spawn(move || body(copy));
            thread.map(|thread| self.threads.push(thread))
        } else {
            // SAFETY: the child goes on alone in its copy of the memory; the C library keeps its own locks usable.
            match unsafe { libc::fork() } {
                -1 => Err(io::Error::last_os_error()),
                0 => {
                    stage.close_other_descriptors();
                    run_child(stage, row, slot, inherited);
                    end_thread()
                }
                pid => {
                    if let Some(slot) = stage.slots.get(slot) {
                        slot.tid.store(pid, Ordering::Relaxed);
                    }
                    self.processes.push(pid);
                    Ok(())
                }
            }
        };
        if made.is_err() {
            stage.head().forks_failed.fetch_add(1, Ordering::Relaxed);
            if let Some(slot) = stage.slots.get(slot) {
                slot.state.store(state::ENDED, Ordering::Release);
            }
            stage.task_ended(row);
        }
    }

    fn wait_children(&mut self) {
        let (threads, mut processes) =
            (std::mem::take(&mut self.threads), std::mem::take(&mut self.processes));
        self.waiting(|_| {
            // Whichever ends first, as programs wait. Children of a thread that has ended may be among them.
            while !processes.is_empty() {
                // SAFETY: only this thread's own children, for whom nobody else waits.
                match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WNOTHREAD) } {
                    -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                    -1 => break,
                    ended => processes.retain(|pid| *pid != ended),
                }
            }
            threads.into_iter().for_each(|thread| drop(thread.join()));
        });
    }

    /// The task is done: closes its ends and says what it used.
    fn end(&mut self) {
        self.send.clear();
        self.receive.clear();
        if let Some(slot) = self.stage.slots.get(self.slot) {
            // SAFETY: filled by the kernel.
            let usage = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
                usage
            };
            slot.cpu_ns.store(clock::cpu_time(), Ordering::Relaxed);
            slot.voluntary.store(usage.ru_nvcsw as u64, Ordering::Relaxed);
            slot.involuntary.store(usage.ru_nivcsw as u64, Ordering::Relaxed);
        }
        self.told(state::ENDED);
        self.stage.task_ended(self.row);
    }
}

/// Ends the calling thread alone: its process goes on with the threads that its tasks forked, and ends with the last.
pub(super) fn end_thread() -> ! {
    // SAFETY: nothing of this thread is used by others, and what belongs to the parent of its process is not run.
    unsafe {
        libc::syscall(libc::SYS_exit, 0);
        libc::_exit(0)
    }
}

/// A child, on its own thread.
fn run_child(stage: Arc<Stage>, row: usize, slot: usize, inherited: TaskAttributes) {
    let name = stage.workload.tasks[row].name.clone();
    let made = Task::new(Arc::clone(&stage), row, slot, inherited);
    let made = made.map_err(|error| format!("task '{name}': opening its channels: {error}"));
    let ready = made.and_then(|mut task| task.become_it().map(|()| task));
    match ready {
        Ok(mut task) => task.run(),
        Err(error) => {
            stage.head().fail(&error);
            stage.task_ended(row);
        }
    }
}
