//! The simulated kernel: clock, CPUs, scheduling classes, behaviours. Pure and deterministic.
//!
//! It reads no clock, file, environment or thread; the same inputs and seed give the same events. Read
//! [`kernel`] for the state and the seam between classes, [`core`] for when what is called, [`fair`], [`rt`]
//! and [`ext`] for the classes.

pub(crate) mod ahead;
pub(crate) mod behaviour;
pub mod config;
pub(crate) mod core;
pub mod error;
#[allow(dead_code, reason = "constants and offsets mirror the kernel's tables, whole")]
pub mod ext;
pub(crate) mod fair;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod queue;
pub mod record;
pub mod replay;
pub(crate) mod rt;
pub(crate) mod schedulers;
pub mod simulation;
pub(crate) mod trace;

pub use config::{
    Attachable, Bound, Scheduler, SimulationConfig, SimulationResult, TaskAccount, apply_to_targets,
};
pub use error::SimError;
pub use ext::ExtScheduler;
pub use simulation::Simulation;

/// Whether the fair class of a kernel has a knob of this name; every other knob is a scheduler object's.
pub fn is_kernel_knob(kernel: schedlab_model::machine::KernelVersion, name: &str) -> bool {
    fair::FairParams::new(kernel, 1).knows(name)
}
