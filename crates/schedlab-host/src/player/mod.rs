//! Plays a workload on the running kernel: real threads and processes, real pipes, sockets, timers and CPU time.
//!
//! The live arm of "one scenario, two arms": the simulator runs the same [`Workload`]. What the player cannot do
//! faithfully it refuses before anything starts ([`playable`]). [`Company`] plays in processes of its own, as the workload
//! says who shares one; [`play`] plays in threads of the calling process. [`task`] plays one task, [`stage`] is what all
//! share. What is seen of it is not told here: [`mod@crate::record`].

mod attributes;
mod burn;
mod channel;
mod clock;
mod company;
mod futex;
mod playable;
pub(crate) mod shared;
mod socket;
mod stage;
mod task;
mod watch;

pub use company::{Company, Ended, JobEnd, PlayedTask};

use schedlab_model::workload::Workload;
use schedlab_model::{Policy, TaskAttributes};
use stage::Stage;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use task::Task;

/// Why a workload cannot be played here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something in it has no live form.
    #[error("{what} cannot be played on a live kernel: {why}")]
    NotPlayable {
        /// What, by task and step.
        what: String,
        /// Why not.
        why: String,
    },
    /// A task could not go on, or not begin.
    #[error("{0}")]
    Task(String),
    /// Nobody can wake those who wait.
    #[error("every task waits for another, and nobody is left to wake them: {0}")]
    Stalled(String),
    /// Any other refusal of the kernel.
    #[error("{context}: {source}")]
    System {
        /// What was being done.
        context: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    fn system(context: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { context, source }
    }
}

/// How a workload went that was played in one process.
#[derive(Debug)]
pub struct Played {
    /// `CLOCK_MONOTONIC` when the first task started, in ns.
    pub origin_ns: u64,
    /// From the start of the first task to the end of the last, or to the cut.
    pub wall: Duration,
    /// Target tasks that ended by themselves.
    pub ended: usize,
    /// Target tasks that were still at work when the workload's duration was over. Their threads go on until the process
    /// ends.
    pub cut: usize,
}

/// Plays `workload` in threads of this process to its end or its duration. Thread names are the tasks' names. What the
/// workload says of the machine (CPUs that go offline, groups, knobs) is the caller's to do.
pub fn play(workload: &Workload) -> Result<Played, Error> {
    let limit = workload.duration.map(|duration| duration.0);
    playable::check_tasks(workload, limit.is_some(), &attributes::affinity())?;
    let stage =
        Stage::new(workload, 1, true, &mut Vec::new()).map_err(Error::system("making the channels"))?;
    let stage = Arc::new(stage);
    let rows: Vec<usize> = starting_rows(workload).collect();
    let count = rows.len() + workload.devices.len();
    let tasks: Result<Vec<Task>, Error> =
        rows.iter().map(|row| make(&stage, *row, stage.new_slot(*row))).collect();
    let tasks = tasks?;
    stage.channels.close_own_ends();
    start_threads(&stage, tasks)?;
    start_devices(&stage)?;
    company::await_ready(&stage, count)?;
    let origin = clock::now();
    let made = stage.head().targets_left.load(Ordering::SeqCst) as usize;
    stage.begin(origin);
    let left = company::await_end(&stage, limit.map(|limit| origin + limit), None)?;
    let wall = Duration::from_nanos(clock::now() - origin);
    Ok(Played { origin_ns: origin, wall, ended: made.saturating_sub(left), cut: left })
}

/// Rows that are no templates.
fn starting_rows(workload: &Workload) -> impl Iterator<Item = usize> + '_ {
    workload.tasks.iter().enumerate().filter(|(_, spec)| !spec.template).map(|(row, _)| row)
}

/// Makes the task of a row, to be run on a thread of this process.
fn make(stage: &Arc<Stage>, row: usize, slot: usize) -> Result<Task, Error> {
    Task::new(Arc::clone(stage), row, slot, attributes::own()).map_err(Error::system("opening a channel"))
}

/// One thread for each task; they wait for the begin.
fn start_threads(stage: &Arc<Stage>, tasks: Vec<Task>) -> Result<Vec<JoinHandle<()>>, Error> {
    let start = |mut task: Task| {
        let stage = Arc::clone(stage);
        let body = move || match task.become_it() {
            Ok(()) => task.run_from_gate(),
            Err(error) => stage.head().fail(&error),
        };
        std::thread::Builder::new().spawn(body).map_err(Error::system("starting a thread"))
    };
    tasks.into_iter().map(start).collect()
}

/// One thread for each device, in front of all tasks if the kernel permits: it stands for an interrupt.
fn start_devices(stage: &Arc<Stage>) -> Result<Vec<JoinHandle<()>>, Error> {
    let start = |index: usize| {
        let stage = Arc::clone(stage);
        let thread = std::thread::Builder::new().name("device".to_owned());
        thread.spawn(move || play_device(&stage, index)).map_err(Error::system("starting a thread"))
    };
    (0..stage.workload.devices.len()).map(start).collect()
}

fn play_device(stage: &Stage, index: usize) {
    let device = &stage.workload.devices[index];
    stage.head().devices_left.fetch_add(1, Ordering::SeqCst);
    let first = TaskAttributes { policy: Policy::Fifo, rt_priority: 99, ..attributes::own() };
    // Without the right to it arrivals may come late, which the recording shows.
    drop(attributes::change(&attributes::own(), &first, &stage.cpus));
    drop(attributes::pin(device.cpu.index()));
    let origin = stage.await_begin();
    for arrival in &device.arrivals {
        clock::sleep_until(origin + arrival.time.0);
        if let Err(error) = stage.channels.put(arrival.channel, arrival.amount) {
            stage.head().fail(&format!("device '{}': {error}", device.name));
        }
    }
    stage.head().devices_left.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(test)]
mod tests;
