//! What can be wrong with a simulation's inputs, and a run that cannot end.

use schedlab_model::Nanos;
use schedlab_model::topology::cpus_text;

/// A simulation that cannot be made or cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// No task that ever starts.
    #[error("the workload '{0}' has no tasks: add at least one task that is not a template")]
    NoTasks(String),
    /// No target task.
    #[error("the workload '{0}' has no target task: mark at least one task as target")]
    NoTarget(String),
    /// A program that cannot be run as written.
    #[error("task '{task}', step {step}: {reason}")]
    Program {
        /// Name of a task that runs the program.
        task: String,
        /// Index of the step.
        step: usize,
        /// What is wrong and what to write.
        reason: String,
    },
    /// A task does endlessly many steps without using time.
    #[error(
        "task '{task}' did {steps} steps at {time} without using time: put a run or a sleep into its loop"
    )]
    NoProgress {
        /// The task.
        task: String,
        /// How many steps.
        steps: u32,
        /// When.
        time: Nanos,
    },
    /// All remaining tasks wait and nothing can wake them.
    #[error("deadlock at {time}: nothing can wake the waiting tasks\n{}", .waits.join("\n"))]
    Deadlock {
        /// When.
        time: Nanos,
        /// One line a waiting task: who waits for what, and who could end it.
        waits: Vec<String>,
    },
    /// Memory that a task needs, and that nobody can make.
    #[error(
        "out of memory at {time}: '{task}' needs more, and has looked for room in vain; the kernel would \
         kill somebody: give the machine more ([memory] kib), or the workload less"
    )]
    OutOfMemory {
        /// Who needs it.
        task: String,
        /// When.
        time: Nanos,
    },
    /// A setting the simulated kernel does not know or that is out of bounds.
    #[error("{name}: {reason}")]
    Setting {
        /// Name of the setting.
        name: String,
        /// Why, with the remedy.
        reason: String,
    },
    /// A scheduler object that cannot be attached.
    #[error("scheduler '{name}': {reason}")]
    Scheduler {
        /// Name.
        name: String,
        /// Why, with the remedy.
        reason: String,
    },
    /// A number of the machine that no machine has.
    #[error("machine {name}: {error}")]
    Machine {
        /// Its name.
        name: String,
        /// What is wrong.
        error: schedlab_model::machine::MachineError,
    },
    /// A kernel that is not modelled.
    #[error("kernel {0} is not modelled: choose one from 5.7 to 7.2, e.g. 5.7, 6.1, 6.12, 6.18 or 7.2")]
    Kernel(String),
    /// An event of a CPU the machine does not have.
    #[error("an event of the workload names cpu {cpu}, the machine has {}: choose a larger machine", cpus_text(*cpus))]
    NoCpu {
        /// The CPU.
        cpu: u32,
        /// How many there are.
        cpus: usize,
    },
    /// No CPU is left.
    #[error("of the machine's {} none is online at the start: leave one online", cpus_text(*cpus))]
    AllOffline {
        /// How many there are.
        cpus: usize,
    },
    /// A CPU that the machine has offline is to come online.
    #[error(
        "an event of the workload brings cpu {cpu} online, which is not there: the machine's topology has it offline; \
         take it out of `offline` there, and name it in the workload's"
    )]
    StaysOffline {
        /// The CPU.
        cpu: u32,
    },
    /// A sched_ext scheduler under a kernel without.
    #[error("kernel {0} has no sched_ext: choose 6.12 or newer, or the scheduler `fair`")]
    NoSchedExt(String),
    /// A task on a CPU the machine does not have.
    #[error("task '{task}' starts on cpu {cpu}, the machine has {}: choose a larger machine", cpus_text(*cpus))]
    StartCpu {
        /// The task.
        task: String,
        /// The CPU.
        cpu: u32,
        /// How many there are.
        cpus: usize,
    },
}
