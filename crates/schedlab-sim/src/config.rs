//! What a simulation is made from and what it yields.

use crate::behaviour::forks;
use crate::error::SimError;
use crate::ext::ExtScheduler;
use schedlab_model::lever::Setting;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::memory::Swapped;
use schedlab_model::outcome::{FailedForks, SchedulerExit, SimulatorReport};
use schedlab_model::recording::{ChannelInfo, TaskInfo};
use schedlab_model::weights::WeightTable;
use schedlab_model::workload::change::CgroupSpec;
use schedlab_model::workload::{Op, ProgramId, Workload};
use schedlab_model::{Nanos, Nice, Policy, TaskAttributes, TaskId};
use std::sync::Arc;

/// Who schedules normal tasks.
#[derive(Clone, Debug)]
pub enum Scheduler {
    /// The kernel's fair class.
    Kernel,
    /// A sched_ext scheduler.
    Ext(ExtScheduler),
    /// No waiting except what work conservation forces, no costs: a bound.
    Ideal,
}

/// A scheduler that may be attached during a run.
#[derive(Clone, Debug)]
pub struct Attachable {
    /// The name by which [`Change::Scheduler`] asks for it.
    ///
    /// [`Change::Scheduler`]: schedlab_model::workload::change::Change::Scheduler
    pub name: String,
    /// The scheduler.
    pub scheduler: ExtScheduler,
    /// Its variables to be set before it is attached.
    pub knobs: Vec<(String, i64)>,
}

/// One simulation to be made.
#[derive(Clone, Debug)]
pub struct SimulationConfig {
    /// The machine, its kernel and costs.
    pub machine: MachineDescription,
    /// Another kernel than the machine's; `None` keeps it.
    pub kernel: Option<KernelVersion>,
    /// The work.
    pub workload: Arc<Workload>,
    /// Who schedules.
    pub scheduler: Scheduler,
    /// Knobs and attributes of target tasks.
    pub settings: Vec<Setting>,
    /// Seed of everything random.
    pub seed: u64,
    /// Scale every cost by 50 % to 150 % from this seed.
    pub cost_seed: Option<u64>,
    /// Cut the run at this time, also if the workload says a later one or none.
    pub duration_limit: Option<Nanos>,
    /// Schedulers that the workload's changes may ask for.
    pub attachable: Vec<Attachable>,
    /// Attach a scheduler anew that ends with `SCX_ECODE_ACT_RESTART`, as its user half does.
    pub restart: bool,
    /// Where the workload does not tell it (a recording does), a run begins as live ones do, each seed another way: ticks
    /// come at any phase, and tasks sleep on some CPU until their start wakes them. Else ticks come at multiples of their
    /// length, and tasks start as if they were forked then, which spreads them evenly.
    pub begins_live: bool,
}

impl SimulationConfig {
    /// The kernel's own scheduler, seed 1, nothing set.
    pub fn new(machine: MachineDescription, workload: Arc<Workload>) -> SimulationConfig {
        SimulationConfig {
            machine,
            kernel: None,
            workload,
            scheduler: Scheduler::Kernel,
            settings: Vec::new(),
            seed: 1,
            cost_seed: None,
            duration_limit: None,
            attachable: Vec::new(),
            restart: false,
            begins_live: false,
        }
    }
}

impl SimulationConfig {
    /// Gives every scheduler room for the workload's tasks and those they may fork.
    pub(crate) fn make_room(&mut self) -> Result<(), SimError> {
        let (rows, with_forks) = (self.workload.tasks.len() as u64, forks::tasks_max(&self.workload));
        let first = match &mut self.scheduler {
            Scheduler::Ext(scheduler) => Some(scheduler),
            _ => None,
        };
        for scheduler in first.into_iter().chain(self.attachable.iter_mut().map(|other| &mut other.scheduler))
        {
            *scheduler = scheduler.with_room(rows, with_forks)?;
        }
        Ok(())
    }
}

/// Attributes that a run's settings force on target tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetSettings {
    pub(crate) weights: Option<WeightTable>,
    pub(crate) policy: Option<Policy>,
    pub(crate) nice: Option<Nice>,
    pub(crate) slice: Option<Nanos>,
    pub(crate) rt_priority: Option<u8>,
}

/// Custom slices are 0.1 to 100 ms, as `sched_setattr` clamps them.
const SLICE_RANGE: (Nanos, Nanos) = (Nanos(100_000), Nanos(100_000_000));

impl TargetSettings {
    /// Splits settings into those of target tasks and knobs.
    pub(crate) fn split(settings: &[Setting]) -> Result<(TargetSettings, Vec<(String, i64)>), SimError> {
        let (mut target, mut knobs) = (TargetSettings::default(), Vec::new());
        let fail = |name: &str, reason: String| SimError::Setting { name: name.to_owned(), reason };
        for setting in settings {
            match setting {
                Setting::Knob { name, value } => knobs.push((name.clone(), *value)),
                Setting::Policy(policy) => target.policy = Some(*policy),
                Setting::Nice(nice) => target.nice = Some(*nice),
                Setting::Weights(table) => target.weights = Some(table.clone()),
                Setting::RtPriority(priority @ 1..=99) => target.rt_priority = Some(*priority),
                Setting::RtPriority(priority) => {
                    return Err(fail("rt_priority", format!("{priority} is out of bounds: 1 to 99")));
                }
                Setting::Slice(slice) if (SLICE_RANGE.0..=SLICE_RANGE.1).contains(slice) => {
                    target.slice = Some(*slice);
                }
                Setting::Slice(slice) => {
                    return Err(fail("slice", format!("{slice} is out of bounds: 0.1 ms to 100 ms")));
                }
            }
        }
        Ok((target, knobs))
    }

    /// Attributes of a target task with these settings.
    pub(crate) fn applied(&self, attributes: &TaskAttributes) -> TaskAttributes {
        let mut changed = attributes.clone();
        if changed.policy == Policy::Normal {
            if let Some(policy) = self.policy {
                changed.policy = policy;
                if matches!(policy, Policy::Fifo | Policy::Rr) {
                    changed.rt_priority = self.rt_priority.unwrap_or(1);
                }
            }
            changed.slice = self.slice.or(changed.slice);
        }
        changed.nice = self.nice.unwrap_or(changed.nice);
        changed
    }
}

/// The workload as a run with these settings has it: attributes of target tasks, where they start and where they change
/// them. For who runs the workload elsewhere; a [`SimulationConfig`] takes the settings themselves. Knobs are none of it.
pub fn apply_to_targets(workload: &mut Workload, settings: &[Setting]) -> Result<(), SimError> {
    let (target, _) = TargetSettings::split(settings)?;
    let Workload { tasks, programs, .. } = workload;
    for task in tasks.iter_mut().filter(|task| task.target) {
        task.attributes = target.applied(&task.attributes);
        let mut program = programs[task.program.0 as usize].clone();
        let mut changes = false;
        for op in &mut program.ops {
            if let Op::SetAttributes(attributes) = op {
                **attributes = target.applied(attributes);
                changes = true;
            }
        }
        if changes {
            // Its own: background tasks may share the program.
            task.program = ProgramId(programs.len() as u32);
            programs.push(program);
        }
    }
    Ok(())
}

/// What one task did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TaskAccount {
    /// The task.
    pub task: TaskId,
    /// Time as a CPU's current task, kernel overhead on its account included.
    pub cpu_time: Nanos,
    /// Runnable but not running.
    pub run_delay: Nanos,
    /// Longest such wait.
    pub run_delay_max: Nanos,
    /// Switches away to sleep.
    pub voluntary_switches: u64,
    /// Switches away while runnable.
    pub involuntary_switches: u64,
    /// Moves between CPUs.
    pub migrations: u64,
    /// Of a task of the fair class: its `vruntime` when the run ended, in ns, as the queue counts that it was on.
    pub vruntime: Option<i64>,
}

/// Lower bounds on the makespan, of the ideal scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Makespan with a CPU for each task and no costs.
    pub critical_path: Nanos,
    /// CPU time of target tasks.
    pub target_work: Nanos,
    /// Target work spread evenly over the machine's CPUs.
    pub work_per_cpu: Nanos,
}

/// What a run yields besides its events. Under [`Scheduler::Ideal`] every task has a CPU of its own, so CPU
/// numbers are not the machine's and there is no run delay.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationResult {
    /// The simulator of itself; `wall_s` and memory are for the caller to fill in.
    pub report: SimulatorReport,
    /// Why an ext scheduler ended early, if it did.
    pub scheduler_exit: Option<SchedulerExit>,
    /// Other ends of ext schedulers: that the run asked for, or after which they were attached anew; and if several ended
    /// early, all but the first error or, without an error, but the first.
    pub detached: Vec<SchedulerExit>,
    /// Forks that failed because the scheduler refused the task.
    pub failed_forks: Option<FailedForks>,
    /// When the last target task ended, or the cut; under [`Scheduler::Ideal`] the larger of the two bounds.
    pub makespan: Nanos,
    /// The bounds, under [`Scheduler::Ideal`].
    pub bound: Option<Bound>,
    /// Whether the run was cut before all target tasks had ended.
    pub cut: bool,
    /// What went to the disk for lack of memory, on a machine whose memory can run short.
    pub swapped: Option<Swapped>,
    /// Groups of the fair class, as at the start.
    pub cgroups: Vec<CgroupSpec>,
    /// One row a task, row 0 idle.
    pub accounts: Vec<TaskAccount>,
    /// Task table of a recording of this run.
    pub tasks: Vec<TaskInfo>,
    /// Channel table of a recording of this run.
    pub channels: Vec<ChannelInfo>,
}
