//! Makes a recording out of a run, so that simulated and live recordings are the same type.

use crate::config::SimulationResult;
use schedlab_model::Event;
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::{Provenance, Recording};

/// The recording of a run: its result, the events its sink took (as a `Vec<Event>`), the machine it ran on
/// and the name of the scheduler (`fair`, or a sched_ext scheduler's).
pub fn recording(
    result: &SimulationResult,
    events: Vec<Event>,
    machine: &MachineDescription,
    scheduler: &str,
) -> Recording {
    Recording {
        provenance: Provenance {
            origin: "simulated".to_owned(),
            kernel_release: machine.kernel.to_string(),
            scheduler: scheduler.to_owned(),
            partial: result.cut,
            groups: Some(result.cgroups.clone()),
            ..Provenance::default()
        },
        machine: machine.clone(),
        tasks: result.tasks.clone(),
        channels: result.channels.clone(),
        cpu_sets: Vec::new(),
        events,
        duration: result.report.simulated,
    }
}
