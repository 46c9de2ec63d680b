//! A play in processes of its own: one for all tasks that name the same process, and a leader who makes them and ends them.
//!
//! ```text
//! this process ── leader ─┬─ a process of the workload (its tasks are its threads)
//!                         ├─ another ── what its tasks fork
//!                         └─ the devices
//! ```
//! All below the leader are one process group. Nobody outlives the play: the leader kills the group when it is over or
//! when this process is gone, this process when the leader is, and a guard ([`super::watch`]) if both are.

use super::shared::state;
use super::stage::Stage;
use super::task::end_thread;
use super::watch::{self, Deaths};
use super::{Error, clock, futex, make, playable, start_devices, start_threads, starting_rows};
use crate::process::{set_timer_slack, timer_slack};
use schedlab_model::Nanos;
use schedlab_model::workload::Workload;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// The timer slack of tasks that nobody gave another, as the kernel's first has it.
const TIMER_SLACK_NS: u64 = 50_000;
/// How long tasks may take to be there.
const READY_NS_MAX: u64 = 20_000_000_000;
/// How often it is looked whether the play stands still.
const LOOK_NS: u64 = 250_000_000;
/// So many looks without any change, with everybody waiting, are the end.
const STILL_LOOKS: u32 = 8;
/// From the word to the beginning of the run: all tasks are up by then, asleep until their start.
const LEAD_NS: u64 = 2_000_000;
/// The last tasks get so long to leave before the rest is killed.
const LEAVE_NS: u64 = 5_000_000;

/// A play that is set up and waits for its begin, or runs.
pub struct Company {
    stage: Arc<Stage>,
    pub(super) leader: libc::pid_t,
    notes: Vec<String>,
    reaped: bool,
}

/// A task of a play that was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayedTask {
    /// Its row in the workload.
    pub row: usize,
    /// Its thread id.
    pub tid: i32,
    /// Whether it ended by itself.
    pub ended: bool,
    /// Its CPU time.
    pub cpu: Nanos,
    /// Switches that it wanted, and that it did not.
    pub switches: (u64, u64),
}

/// The end of a job. Times count from the begin of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// Whose: an index of [`Ended::tasks`].
    pub task: usize,
    /// On which CPU.
    pub cpu: u32,
    /// When.
    pub time: Nanos,
    /// When it was released.
    pub released: Nanos,
    /// When it had to be done; [`Nanos::MAX`] if it has no deadline.
    pub deadline: Nanos,
}

/// A play that is over.
#[derive(Clone, Debug)]
pub struct Ended {
    /// When it began (`CLOCK_MONOTONIC`, ns).
    pub origin_ns: u64,
    /// How long it took until the last target task ended, or the play was cut.
    pub wall: Nanos,
    /// Whether it was cut by its duration or by [`Company::stop`].
    pub cut: bool,
    /// Everybody who took part.
    pub tasks: Vec<PlayedTask>,
    /// Ends of jobs.
    pub jobs: Vec<JobEnd>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl Company {
    /// Sets the play up: all tasks are there and wait. `limit` cuts it, if the workload does not earlier. Call it before
    /// this process has other threads.
    pub fn gather(workload: &Workload, seed: u64, limit: Option<Nanos>) -> Result<Company, Error> {
        let limit = [limit, workload.duration].into_iter().flatten().min();
        playable::check_machine(workload)?;
        playable::check_tasks(workload, limit.is_some(), &super::attributes::affinity())?;
        let mut notes = Vec::new();
        let stage =
            Stage::new(workload, seed, false, &mut notes).map_err(Error::system("making the channels"))?;
        let stage = Arc::new(stage);
        let rows: Vec<(usize, usize)> =
            starting_rows(workload).map(|row| (row, stage.new_slot(row))).collect();
        let count = rows.len() + workload.devices.len();
        // SAFETY: the child goes on alone in its copy of the memory and ends with `_exit`.
        let (own, leader) = unsafe { (libc::getpid(), libc::fork()) };
        match leader {
            -1 => return Err(Error::system("forking")(std::io::Error::last_os_error())),
            0 => lead(&stage, own, &rows, limit),
            _ => stage.channels.close_own_ends(),
        }
        // SAFETY: a plain call on our child, so that the group is there whoever of us is first.
        unsafe { libc::setpgid(leader, leader) };
        let company = Company { stage, leader, notes, reaped: false };
        await_ready(&company.stage, count)?;
        Ok(company)
    }

    /// Processes of the tasks that are there before the begin.
    pub fn processes(&self) -> Vec<i32> {
        let tasks = self.tasks();
        let process = |task: &PlayedTask| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", task.tid)).ok()?;
            status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
        };
        let mut all: Vec<i32> = tasks.iter().filter_map(process).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Lets the run begin.
    pub fn begin(&self) {
        self.stage.begin(clock::now() + LEAD_NS);
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        let mut state = 0;
        // SAFETY: our child; its state is looked at, not collected.
        let gone = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            if libc::waitid(libc::P_PID, self.leader as libc::id_t, &raw mut info, options) == 0 {
                state = info.si_pid();
            }
            state == self.leader
        };
        self.reaped || gone || self.stage.head().over.load(Ordering::SeqCst) != 0
    }

    /// Waits until it is over.
    pub fn wait(&self, stop: &dyn Fn() -> bool) {
        while !self.is_over() && !stop() {
            futex::wait(&self.stage.head().over, 0, Some(clock::now() + LOOK_NS / 5));
        }
    }

    /// Ends it, if it is not over, and says how it went.
    pub fn end(mut self) -> Result<Ended, Error> {
        let gone = self.is_over();
        let over = self.stage.head().over.load(Ordering::SeqCst) != 0;
        let now = clock::now();
        self.kill();
        let head = self.stage.head();
        if let Some(text) = head.error() {
            return Err(match text.strip_prefix(STALLED) {
                Some(who) => Error::Stalled(who.to_owned()),
                None => Error::Task(text),
            });
        }
        if gone && !over {
            return Err(Error::Task(LEADER_GONE.to_owned()));
        }
        let origin = self.stage.origin();
        let cut = !over || head.over.load(Ordering::SeqCst) == CUT;
        let end = if over { head.end_ns.load(Ordering::SeqCst) } else { now };
        let mut notes = std::mem::take(&mut self.notes);
        let failed = head.forks_failed.load(Ordering::SeqCst);
        if failed > 0 {
            notes.push(format!("the kernel refused {failed} forks"));
        }
        let (marks, kept) = (head.marks.load(Ordering::SeqCst) as usize, self.stage.marks.len());
        if marks > kept {
            notes.push(format!("only the first {kept} of {marks} jobs were kept"));
        }
        let jobs = self.jobs(origin);
        let wall = Nanos(end.saturating_sub(origin));
        Ok(Ended { origin_ns: origin, wall, cut, tasks: self.tasks(), jobs, notes })
    }

    fn kill(&mut self) {
        if self.reaped {
            return;
        }
        // SAFETY: plain calls; the leader is not collected before, so its number is its own.
        unsafe {
            libc::kill(self.leader, libc::SIGTERM);
            let mut status = 0;
            libc::waitpid(self.leader, &raw mut status, 0);
            let group = self.stage.head().group.load(Ordering::SeqCst);
            if libc::WIFSIGNALED(status) && group > 0 {
                // Somebody killed it before it could end its group.
                libc::kill(-group, libc::SIGKILL);
            }
        }
        self.reaped = true;
    }

    /// Everybody who took part so far.
    pub fn tasks(&self) -> Vec<PlayedTask> {
        self.taken().map(|(_, task)| task).collect()
    }

    /// Slots whose task came to be, with it. A task that the kernel refused has no row.
    fn taken(&self) -> impl Iterator<Item = (usize, PlayedTask)> + '_ {
        let made = self.stage.head().slots.load(Ordering::SeqCst) as usize;
        let slots = self.stage.slots.iter().take(made).enumerate();
        let read = |row: usize, slot: &super::shared::Slot| PlayedTask {
            row,
            tid: slot.tid.load(Ordering::Relaxed),
            ended: slot.state.load(Ordering::Acquire) == state::ENDED,
            cpu: Nanos(slot.cpu_ns.load(Ordering::Relaxed)),
            switches: (slot.voluntary.load(Ordering::Relaxed), slot.involuntary.load(Ordering::Relaxed)),
        };
        slots.filter_map(move |(number, slot)| {
            let row = (slot.row.load(Ordering::Acquire) as usize).checked_sub(1)?;
            Some((number, read(row, slot)))
        })
    }

    /// Ends of jobs that were told by now, but for the first so many: in the order in which tasks told them, up to one
    /// whose task is just telling it. And how many that makes with those before.
    pub fn jobs_since(&self, known: usize) -> (Vec<JobEnd>, usize) {
        let made = (self.stage.head().marks.load(Ordering::SeqCst) as usize).min(self.stage.marks.len());
        let told = self.stage.marks[known.min(made)..made].iter();
        let whole = told.take_while(|mark| mark.time.load(Ordering::Acquire) > 0).count();
        let known = known.min(made);
        (self.jobs_of(known..known + whole, self.stage.origin()), known + whole)
    }

    fn jobs(&self, origin: u64) -> Vec<JobEnd> {
        let made = self.stage.head().marks.load(Ordering::SeqCst) as usize;
        self.jobs_of(0..made.min(self.stage.marks.len()), origin)
    }

    fn jobs_of(&self, marks: Range<usize>, origin: u64) -> Vec<JobEnd> {
        let places: BTreeMap<usize, usize> =
            self.taken().enumerate().map(|(place, (slot, _))| (slot, place)).collect();
        let whole = |mark: &&super::shared::Mark| mark.time.load(Ordering::Acquire) > 0;
        let since = |time: &std::sync::atomic::AtomicU64| match time.load(Ordering::Relaxed) {
            u64::MAX => Nanos::MAX,
            time => Nanos(time.saturating_sub(origin)),
        };
        let read = |mark: &super::shared::Mark| {
            Some(JobEnd {
                task: *places.get(&(mark.slot.load(Ordering::Relaxed) as usize))?,
                cpu: mark.cpu.load(Ordering::Relaxed),
                time: since(&mark.time),
                released: since(&mark.released),
                deadline: since(&mark.deadline),
            })
        };
        self.stage.marks[marks].iter().filter(whole).filter_map(read).collect()
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        self.kill();
    }
}

const LEADER_GONE: &str = "the process that leads the play (play-leader) was ended from outside before the play was over: \
                           nothing of the run counts; play it again";
const STALLED: &str = "stalled: ";
const CUT: u32 = 2;

/// Waits until everybody is there.
pub(super) fn await_ready(stage: &Stage, count: usize) -> Result<(), Error> {
    let end = clock::now() + READY_NS_MAX;
    loop {
        let ready = stage.head().ready.load(Ordering::SeqCst);
        if let Some(error) = stage.head().error() {
            return Err(Error::Task(error));
        }
        if ready as usize >= count {
            return Ok(());
        }
        if clock::now() > end {
            return Err(Error::Task(format!("only {ready} of {count} tasks were there after 20 s")));
        }
        futex::wait(&stage.head().ready, ready, Some(clock::now() + LOOK_NS));
    }
}

/// Waits until no target task is left, or until then; how many are left. `deaths` says who died, where tasks can.
pub(super) fn await_end(
    stage: &Stage,
    until: Option<u64>,
    mut deaths: Option<Deaths>,
) -> Result<usize, Error> {
    let (mut last, mut still) = (0, 0);
    loop {
        let news = stage.head().news.load(Ordering::SeqCst);
        let left = stage.head().targets_left.load(Ordering::SeqCst);
        if let Some(error) = stage.head().error() {
            return Err(Error::Task(error));
        }
        let now = clock::now();
        if left == 0 || until.is_some_and(|until| now >= until) {
            return Ok(left as usize);
        }
        if let Some(who) = deaths.as_mut().and_then(|deaths| deaths.look(stage)) {
            return Err(Error::Task(who));
        }
        let seen = stage.standstill();
        still = if seen.is_some() && seen == Some(last) { still + 1 } else { 0 };
        last = seen.unwrap_or(0);
        if still >= STILL_LOOKS && until.is_none() {
            return Err(Error::Stalled(stage.who_waits()));
        }
        // A process that plays itself stays out of its tasks' way, and nobody sees whether they stand still.
        let next = now + if stage.in_one_process { u64::from(u32::MAX) * 1_000 } else { LOOK_NS };
        futex::wait(&stage.head().news, news, Some(until.map_or(next, |until| until.min(next))));
    }
}

/// The group of the leader's processes, in the leader; 0 before there is one.
static GROUP: AtomicI32 = AtomicI32::new(0);
/// The leader's guard, in the leader; 0 before there is one.
static GUARD: AtomicI32 = AtomicI32::new(0);
/// How often the leader looks, a ms apart, whether those it killed are gone.
const GONE_LOOKS_MAX: u32 = 2_000;

/// In the leader: kills its group, collects everybody, and ends. What a signal to it means.
extern "C" fn end_group(_: libc::c_int) {
    let (group, guard) = (GROUP.load(Ordering::SeqCst), GUARD.load(Ordering::SeqCst));
    // SAFETY: async-signal-safe calls. Before there is a group there is nobody to kill.
    unsafe {
        if guard > 0 {
            libc::kill(guard, libc::SIGKILL);
        }
        let mut looks = 0;
        while looks < GONE_LOOKS_MAX {
            if group > 0 {
                libc::kill(-group, libc::SIGKILL);
            }
            match libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) {
                0 => {
                    libc::poll(std::ptr::null_mut(), 0, 1);
                    looks += 1;
                }
                -1 => break,
                _ => {}
            }
        }
        libc::_exit(0)
    }
}

/// The life of the leader whose parent is this; it does not return.
fn lead(stage: &Arc<Stage>, parent: libc::pid_t, rows: &[(usize, usize)], limit: Option<Nanos>) -> ! {
    // SAFETY: plain calls of this process about itself; the handler makes one async-signal-safe call.
    let own = unsafe {
        libc::setpgid(0, 0);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::signal(signal, end_group as *const () as libc::sighandler_t);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        if libc::getppid() != parent {
            // It was gone before its end could be told to us.
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_NAME, c"play-leader".as_ptr());
        libc::getpid()
    };
    if timer_slack() == 0 {
        // Whoever plays is real-time, as one that holds a scheduler: its tasks are ordinary ones.
        set_timer_slack(TIMER_SLACK_NS);
    }
    // What this process had open besides, or other plays of it: their readers would wait for our end.
    stage.close_other_descriptors();
    GUARD.store(watch::start_guard(stage, own), Ordering::SeqCst);
    let mut processes: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
    for &(row, slot) in rows {
        processes.entry(stage.workload.tasks[row].process).or_default().push((row, slot));
    }
    for members in processes.values() {
        fork_process(stage, own, || run_process(stage, members));
    }
    let mut devices = 0;
    if !stage.workload.devices.is_empty() {
        devices = fork_process(stage, own, || {
            start_devices(stage).map(|threads| threads.into_iter().for_each(|thread| drop(thread.join())))
        });
    }
    stage.channels.close_own_ends();
    let head = stage.head();
    while head.gate.load(Ordering::SeqCst) == 0 {
        futex::wait(&head.gate, 0, None);
    }
    let origin = stage.origin();
    let until = limit.map(|limit| origin + limit.0);
    match await_end(stage, until, Some(Deaths::new(devices))) {
        Ok(0) => {
            clock::sleep(LEAVE_NS);
            head.over.store(1, Ordering::SeqCst);
        }
        Ok(_) => {
            stage.look_at_those_cut();
            head.end_ns.store(until.unwrap_or_else(clock::now), Ordering::SeqCst);
            head.over.store(CUT, Ordering::SeqCst);
        }
        Err(error) => {
            match error {
                Error::Stalled(who) => head.fail(&format!("{STALLED}{who}")),
                error => head.fail(&error.to_string()),
            }
            head.over.store(CUT, Ordering::SeqCst);
        }
    }
    futex::wake(&head.over, u32::MAX);
    end_group(0);
    unreachable!("the leader has ended")
}

/// Forks a process of the leader that does `life`; its end comes with the leader's. Its number, or -1.
fn fork_process(stage: &Stage, leader: libc::pid_t, life: impl FnOnce() -> Result<(), Error>) -> libc::pid_t {
    // SAFETY: the leader has one thread, so the child may do everything; it does not return from here.
    unsafe {
        match libc::fork() {
            -1 => {
                stage.head().fail(&format!("forking: {}", std::io::Error::last_os_error()));
                -1
            }
            0 => {
                libc::setpgid(0, GROUP.load(Ordering::SeqCst));
                libc::signal(libc::SIGTERM, libc::SIG_DFL);
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != leader {
                    libc::_exit(0);
                }
                if let Err(error) = life() {
                    stage.head().fail(&error.to_string());
                }
                end_thread()
            }
            pid => {
                // The first is the group's; nobody is collected before the end, so its number stays its own.
                GROUP.compare_exchange(0, pid, Ordering::SeqCst, Ordering::SeqCst).ok();
                stage.head().group.store(GROUP.load(Ordering::SeqCst), Ordering::SeqCst);
                libc::setpgid(pid, GROUP.load(Ordering::SeqCst));
                pid
            }
        }
    }
}

/// One process of the workload: a task alone is the process, several are threads of it.
fn run_process(stage: &Arc<Stage>, members: &[(usize, usize)]) -> Result<(), Error> {
    let tasks: Result<Vec<_>, Error> = members.iter().map(|&(row, slot)| make(stage, row, slot)).collect();
    let mut tasks = tasks?;
    stage.channels.close_own_ends();
    if tasks.len() == 1 {
        let mut task = tasks.remove(0);
        task.become_it().map_err(Error::Task)?;
        task.run_from_gate();
    } else {
        let threads = start_threads(stage, tasks)?;
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
    Ok(())
}

/// Of so many tasks it is looked what they did when they are cut.
const CUT_LOOKS_MAX: usize = 4_096;

impl Stage {
    /// What tasks used that did not come to their end, as the kernel tells of them.
    fn look_at_those_cut(&self) {
        let made = (self.head().slots.load(Ordering::SeqCst) as usize).min(CUT_LOOKS_MAX);
        for slot in
            self.slots[..made].iter().filter(|slot| slot.state.load(Ordering::Acquire) != state::ENDED)
        {
            let directory = format!("/proc/{}", slot.tid.load(Ordering::Relaxed));
            let read =
                |name: &str| std::fs::read_to_string(format!("{directory}/{name}")).unwrap_or_default();
            let (times, status) = (read("schedstat"), read("status"));
            let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
            let line =
                |key: &str| number(status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("0"));
            slot.cpu_ns.store(number(times.split(' ').next().unwrap_or("0")), Ordering::Relaxed);
            slot.voluntary.store(line("voluntary_ctxt_switches:"), Ordering::Relaxed);
            slot.involuntary.store(line("nonvoluntary_ctxt_switches:"), Ordering::Relaxed);
        }
    }

    /// A number that changes as long as anybody does anything that matters; `None` while somebody runs, sleeps or will be
    /// handed something.
    fn standstill(&self) -> Option<u64> {
        let head = self.head();
        let made = head.slots.load(Ordering::SeqCst) as usize;
        if head.devices_left.load(Ordering::SeqCst) > 0 || made > self.slots.len() {
            return None;
        }
        let mut sum = 1;
        for slot in &self.slots[..made] {
            match slot.state.load(Ordering::Acquire) {
                state::WAITS => sum += 1 + slot.waits.load(Ordering::Relaxed),
                state::ENDED => {}
                _ => return None,
            }
        }
        Some(sum)
    }

    /// Who waits in which step, the first few.
    fn who_waits(&self) -> String {
        let made = (self.head().slots.load(Ordering::SeqCst) as usize).min(self.slots.len());
        let text = |slot: &super::shared::Slot| {
            let row = (slot.row.load(Ordering::Acquire) as usize).checked_sub(1)?;
            let step = slot.step.load(Ordering::Relaxed) as usize;
            let waits = slot.state.load(Ordering::Acquire) == state::WAITS;
            let name = playable::name(self.ops(row).get(step)?);
            waits.then(|| format!("'{}' in step {} ({name})", self.workload.tasks[row].name, step + 1))
        };
        let all: Vec<String> = self.slots[..made].iter().filter_map(text).take(4).collect();
        all.join(", ")
    }
}
