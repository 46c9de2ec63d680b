//! Which machine is simulated: a file, a name of the library, `this`, or so many equal CPUs.

use super::library;
use crate::args::MachineChoice;
use anyhow::{Context, Result, anyhow};
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::Topology;
use std::path::Path;

/// Reads a machine file.
pub fn parse(text: &str, origin: &str) -> Result<MachineDescription> {
    toml::from_str(text).with_context(|| format!("machine file {origin}"))
}

/// The machine asked for. Without a choice it is `own` (a recording's), or this machine.
pub fn resolve(choice: &MachineChoice, own: Option<&MachineDescription>) -> Result<MachineDescription> {
    let mut machine = match (&choice.machine, choice.cpus, own) {
        (Some(name), _, _) => by_name(name)?,
        (None, Some(cpus), own) => flat(cpus, own)?,
        (None, None, Some(own)) => own.clone(),
        (None, None, None) => this(),
    };
    if let Some(kernel) = choice.kernel {
        machine.kernel = kernel;
    }
    Ok(machine)
}

/// A machine with the costs of a calibrated machine file, which must be this machine's.
pub fn with_costs_of(machine: MachineDescription, file: &str) -> Result<MachineDescription> {
    let measured = by_name(file)?;
    if !is_same(&machine, &measured) {
        return Err(anyhow!(
            "{file} describes another machine ({}, kernel {}) than this one ({}, kernel {}): make one \
             with schedlab machine --calibrate",
            measured.topology.cpus_text(),
            measured.kernel,
            machine.topology.cpus_text(),
            machine.kernel
        ));
    }
    let MachineDescription { costs, calibration, .. } = measured;
    Ok(MachineDescription { costs, calibration, ..machine })
}

/// Whether two descriptions are of the same machine, but for what things cost.
pub fn is_same(a: &MachineDescription, b: &MachineDescription) -> bool {
    (a.kernel, a.hz) == (b.kernel, b.hz) && a.topology == b.topology
}

/// Equal CPUs under one cache; costs and kernel of the recording's machine if there is one.
fn flat(cpus: u32, own: Option<&MachineDescription>) -> Result<MachineDescription> {
    let topology = Topology::flat(cpus)?;
    let name = format!("flat-{cpus}");
    let base = own.cloned().unwrap_or_else(|| MachineDescription::generic(&name, topology.clone()));
    Ok(MachineDescription { name, topology, ..base })
}

/// This machine, as sysfs and procfs tell it.
pub fn this() -> MachineDescription {
    schedlab_host::machine::describe()
}

fn by_name(name: &str) -> Result<MachineDescription> {
    if name == "this" {
        return Ok(this());
    }
    if let Some(text) = library::find(library::MACHINES, name) {
        return parse(text, name);
    }
    if Path::new(name).exists() {
        let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
        return parse(&text, name);
    }
    let known = library::names(library::MACHINES);
    Err(anyhow!("there is no machine '{name}': name a file, this, or one of {known}"))
}
