//! Plays a workload on the running kernel: one thread for each task, real pipes, timers and CPU time.
//!
//! The live arm of "one scenario, two arms": the simulator runs the same [`Workload`]. CPU time is burnt until the
//! thread's own CPU clock has advanced, so a step means the same on a fast host and in an emulated machine. What the
//! player cannot do faithfully it refuses before anything starts. [`task`] plays one task, [`channel`] is what they
//! share.

mod channel;
mod task;

use channel::Channels;
use schedlab_model::Nanos;
use schedlab_model::workload::{Op, Workload};
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Why a workload cannot be played here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step that has no live form yet.
    #[error(
        "task {task:?}: the step {step} cannot be played on a live kernel; use the simulator for this workload"
    )]
    Step {
        /// The task.
        task: String,
        /// The step.
        step: String,
    },
    /// The kernel refused an attribute, such as a real-time policy without rights.
    #[error(
        "task {task:?}: the kernel refuses its attributes: {source}. Negative nice and real-time need root"
    )]
    Attributes {
        /// The task.
        task: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Any other refusal of the kernel.
    #[error("{context}: {source}")]
    System {
        /// What was being done.
        context: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// How a played workload went.
#[derive(Debug)]
pub struct Played {
    /// `CLOCK_MONOTONIC` when the first task started, in ns.
    pub origin_ns: u64,
    /// From the start of the first task to the end of the last, or to the cut.
    pub wall: Duration,
    /// Tasks that ended by themselves.
    pub ended: usize,
    /// Tasks that were still at work when the workload's duration was over. Their threads go on until the process ends.
    pub cut: usize,
}

/// Plays `workload` to its end or its duration. Thread names are the tasks' names.
pub fn play(workload: &Workload) -> Result<Played, Error> {
    check(workload)?;
    let channels =
        Channels::open(workload).map_err(|source| Error::System { context: "opening channels", source })?;
    let (ready_sender, ready) = mpsc::channel();
    let (ended_sender, ended) = mpsc::channel();
    let mut starters = Vec::new();
    let templates = task::templates(workload);
    for (index, spec) in workload.tasks.iter().enumerate().filter(|(_, spec)| !spec.template) {
        let (start_sender, start) = mpsc::channel::<Instant>();
        let task = task::Task::new(workload, index, &channels, &templates)?;
        let (reports, ends) = (ready_sender.clone(), ended_sender.clone());
        let body = move || {
            let result = task.set_attributes();
            let failed = result.is_err();
            // The player waits for this message, so it is there to take it.
            let _ = reports.send(result);
            if failed {
                return;
            }
            if let Ok(origin) = start.recv() {
                task.run(origin);
            }
            let _ = ends.send(());
        };
        let thread = std::thread::Builder::new().name(spec.name.clone()).spawn(body);
        thread.map_err(|source| Error::System { context: "starting a thread", source })?;
        ready.recv().expect("the thread holds the sender until it has sent")?;
        starters.push((spec.start, start_sender));
    }
    // The tasks have their own ends; ours would keep pipes open.
    drop(channels);
    drop(ended_sender);
    starters.sort_by_key(|(start, _)| *start);
    let (origin, origin_ns) = (Instant::now(), monotonic_ns());
    for (start, starter) in &starters {
        sleep_until(origin + duration(*start));
        // A task that is gone has already reported why.
        let _ = starter.send(origin);
    }
    let count = wait(origin, workload.duration, starters.len(), &ended);
    Ok(Played { origin_ns, wall: origin.elapsed(), ended: count, cut: starters.len() - count })
}

/// How many tasks ended before all had, or the limit was reached.
fn wait(origin: Instant, limit: Option<Nanos>, tasks: usize, ended: &mpsc::Receiver<()>) -> usize {
    let mut count = 0;
    while count < tasks {
        let message = match limit {
            None => ended.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            Some(limit) => {
                ended.recv_timeout((origin + duration(limit)).saturating_duration_since(Instant::now()))
            }
        };
        if message.is_err() {
            break;
        }
        count += 1;
    }
    count
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}

fn sleep_until(instant: Instant) {
    let left = instant.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

/// Refuses what has no live form, before any task starts.
fn check(workload: &Workload) -> Result<(), Error> {
    for spec in &workload.tasks {
        let ops = &workload.programs[spec.program.0 as usize].ops;
        let can_play = if spec.template { task::child_can_play } else { task::can_play };
        if let Some(op) = ops.iter().find(|op| !can_play(op)) {
            return Err(Error::Step { task: spec.name.clone(), step: format!("{op:?}") });
        }
        if ops.iter().any(|op| matches!(op, Op::LoopStart { count: 0 })) && workload.duration.is_none() {
            return Err(Error::Step {
                task: spec.name.clone(),
                step: "endless loop without a duration".into(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::workload::file::parse;

    #[test]
    fn a_pipe_carries_a_message_and_its_end() {
        let workload = parse(
            r#"
name = "pair"
[channels]
pipe = { type = "bytes", capacity = 4096 }
bell = { type = "tokens" }
[[task]]
name = "a"
steps = [{ run = "1ms" }, { send = { channel = "pipe", bytes = 8 } }, { take = { channel = "bell" } }]
[[task]]
name = "b"
steps = [{ receive = { channel = "pipe", bytes = 8 } }, { run = "1ms" }, { post = { channel = "bell" } },
         { receive = { channel = "pipe", bytes = 8 } }]
"#,
        )
        .expect("reads");
        let played = play(&workload).expect("plays");
        assert_eq!((played.ended, played.cut), (2, 0), "b's last receive ends because a is gone");
        assert!(played.wall >= Duration::from_millis(2), "b runs after a: {:?}", played.wall);
    }

    #[test]
    fn a_task_forks_and_waits_for_its_children() {
        let text = "name = \"f\"\n[[task]]\nname = \"a\"\n\
                    steps = [{ loop = { count = 3, steps = [{ fork = \"c\" }] } }, { wait_children = true }]\n\
                    [[task]]\nname = \"c\"\ntemplate = true\nsteps = [{ sleep = \"20ms\" }]";
        let played = play(&parse(text).expect("reads")).expect("plays");
        assert_eq!((played.ended, played.cut), (1, 0));
        assert!(played.wall >= Duration::from_millis(20), "it waits: {:?}", played.wall);
    }

    #[test]
    fn an_endless_task_is_cut() {
        let text = "name = \"e\"\nduration = \"30ms\"\n[[task]]\nname = \"a\"\nsteps = [{ loop = { steps = [{ sleep = \"5ms\" }] } }]";
        let played = play(&parse(text).expect("reads")).expect("plays");
        assert_eq!((played.ended, played.cut), (0, 1));
        assert!(played.wall >= Duration::from_millis(30));
    }

    #[test]
    fn what_has_no_live_form_is_refused_by_name() {
        let text = "name = \"m\"\n[channels]\nm = { type = \"mutex\" }\n[[task]]\nname = \"a\"\nsteps = [{ lock = \"m\" }, { unlock = \"m\" }]";
        let error = play(&parse(text).expect("reads")).unwrap_err().to_string();
        assert!(error.contains("Lock") && error.contains("\"a\""), "{error}");
    }
}
