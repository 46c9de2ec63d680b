//! What of a workload can be played on a live kernel. The rest is refused by name before anything starts.

use super::Error;
use schedlab_model::Policy;
use schedlab_model::workload::change::Change;
use schedlab_model::workload::{ChannelType, Op, TaskSpec, Workload};
use schedlab_model::{CpuSet, TaskAttributes};

/// Refuses what would change the machine for others.
pub fn check_machine(workload: &Workload) -> Result<(), Error> {
    let refused = |what: String, why: &str| Err(Error::NotPlayable { what, why: why.to_owned() });
    if !workload.offline.is_empty() {
        return refused("`offline`".to_owned(), "it would take CPUs from everybody on this machine");
    }
    if let Some(group) = workload.cgroups.first() {
        return refused(
            format!("[[cgroup]] {}", group.path),
            "the player makes no control groups; leave the group out, or use the simulator",
        );
    }
    if let Some(event) = workload.changes.first() {
        let what = match &event.change {
            Change::Cpu { .. } | Change::Suspend(_) => "it changes the machine for everybody",
            Change::Cgroup(_) => "the player makes no control groups",
            Change::Knob { .. } => "it changes the kernel's settings for everybody",
            Change::Scheduler(_) | Change::EndScheduler { .. } => "it changes the scheduler for everybody",
        };
        return refused(format!("[[event]] at {}", event.time), what);
    }
    Ok(())
}

/// Refuses tasks that have no live form. `cpus` are those that tasks may use here; `limited` is whether the play is cut.
pub fn check_tasks(workload: &Workload, limited: bool, cpus: &CpuSet) -> Result<(), Error> {
    check_channels(workload)?;
    workload.tasks.iter().try_for_each(|spec| check_task(workload, spec, limited))?;
    match workload.misplaced(cpus) {
        Some(stray) => Err(Error::NotPlayable {
            what: stray.to_string(),
            why: format!("none of the CPUs {} can be used here, only {cpus}", stray.affinity),
        }),
        None => Ok(()),
    }
}

/// A pipe or socket cannot begin with more than it holds: the model's channel can.
fn check_channels(workload: &Workload) -> Result<(), Error> {
    for spec in workload.channels.iter().filter(|spec| spec.kind == ChannelType::Bytes) {
        // One without a limit becomes the smallest pipe.
        let holds = if spec.capacity == 0 { PIPE_BYTES_MIN } else { spec.capacity };
        if spec.initial > holds {
            return Err(Error::NotPlayable {
                what: format!("channel '{}', initial = {}", spec.name, spec.initial),
                why: format!("it holds {holds} bytes: give it more `capacity`, or less `initial`"),
            });
        }
    }
    Ok(())
}

/// The least a pipe holds: a page.
const PIPE_BYTES_MIN: u64 = 4096;

fn check_task(workload: &Workload, spec: &TaskSpec, limited: bool) -> Result<(), Error> {
    check_attributes(&spec.name, "its attributes", &spec.attributes)?;
    let ops = &workload.programs[spec.program.0 as usize].ops;
    for (number, op) in ops.iter().enumerate() {
        let place = format!("task '{}', step {} ({})", spec.name, number + 1, name(op));
        match op {
            Op::SetAttributes(attributes) => check_attributes(&spec.name, &place, attributes)?,
            Op::LoopStart { count: 0 } if spec.target && !limited => {
                return Err(Error::NotPlayable {
                    what: place,
                    why:
                        "a target task for ever, and the workload has no duration: give it one, or --duration"
                            .to_owned(),
                });
            }
            Op::Close { channel } if workload.channels[channel.index()].is_socket => {
                return Err(Error::NotPlayable {
                    what: place,
                    why: "the play keeps the ends of sockets for tasks that are forked, so nobody would be told: give the \
                          channel the type \"bytes\""
                        .to_owned(),
                });
            }
            op if name(op) == UNKNOWN => {
                return Err(Error::NotPlayable {
                    what: format!("task '{}', step {} ({op:?})", spec.name, number + 1),
                    why: "only the simulator has it".to_owned(),
                });
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_attributes(task: &str, place: &str, attributes: &TaskAttributes) -> Result<(), Error> {
    let refused = |why: String| Err(Error::NotPlayable { what: format!("task '{task}', {place}"), why });
    if !attributes.cgroup.is_empty() && attributes.cgroup != "/" {
        return refused(format!("the player moves no task to a control group ({})", attributes.cgroup));
    }
    if attributes.policy == Policy::Deadline {
        return refused("SCHED_DEADLINE is not part of the model".to_owned());
    }
    Ok(())
}

const UNKNOWN: &str = "unknown";

/// A step as the file spells it; [`UNKNOWN`] for what is not played.
pub fn name(op: &Op) -> &'static str {
    match op {
        Op::Run(_) => "run",
        Op::Spin { .. } => "spin",
        Op::Sleep(_) => "sleep",
        Op::SleepUntil(_) => "sleep_until",
        Op::WaitDevice { .. } => "wait_device",
        Op::Timer { .. } => "timer",
        Op::Send { .. } => "send",
        Op::Receive { .. } | Op::ReceiveAll { .. } => "receive",
        Op::WaitAny { .. } => "wait_any",
        Op::Close { .. } => "close",
        Op::Post { .. } => "post",
        Op::Take { .. } => "take",
        Op::WakeWaiters { .. } => "wake",
        Op::Lock { .. } => "lock",
        Op::Unlock { .. } => "unlock",
        Op::ConditionWait { .. } => "condition_wait",
        Op::Barrier { .. } => "barrier",
        Op::Fork { .. } => "fork",
        Op::WaitChildren => "wait_children",
        Op::Yield => "yield",
        Op::SetAttributes(_) => "set",
        Op::Touch { .. } => "touch",
        Op::JobStart { .. } => "job_start",
        Op::JobEnd => "job_end",
        Op::LoopStart { .. } | Op::LoopEnd => "loop",
        Op::Exit => "exit",
        _ => UNKNOWN,
    }
}
