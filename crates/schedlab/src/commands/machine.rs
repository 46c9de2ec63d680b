//! `schedlab machine`: this machine, or one of the library, as a machine file.

use super::{Context, calibrate};
use crate::args::{MachineArgs, MachineChoice};
use crate::failure::Failure;
use crate::inputs::{machines, work};
use crate::output::{print_text, write_file};
use schedlab_sim::replay;
use std::path::Path;

/// Writes the machine file to standard output or a file.
pub fn run(args: &MachineArgs, context: Context) -> Result<(), Failure> {
    let machine = match (&args.name, &args.root) {
        (None, None) if args.calibrate => calibrate::this(usize::from(args.rounds), context)?,
        (Some(name), _) if name.ends_with(".slrec") => {
            replay::calibrated(&work::load_recording(Path::new(name))?)
        }
        (Some(name), _) => {
            let choice = MachineChoice { machine: Some(name.clone()), cpus: None, kernel: None };
            machines::resolve(&choice, None)?
        }
        (None, Some(root)) if root.is_dir() => {
            schedlab_host::machine::describe_at(root).map_err(Failure::input)?
        }
        (None, Some(root)) => {
            return Err(Failure::BadInput(anyhow::anyhow!(
                "{} is no directory: give a copy of / with sys and proc below it",
                root.display()
            )));
        }
        (None, None) => machines::this(),
    };
    if let Some(path) = &args.json {
        let mut text = serde_json::to_string_pretty(&machine).map_err(Failure::input)?;
        text.push('\n');
        return write_file(path, text.as_bytes());
    }
    let text = toml::to_string(&machine).map_err(Failure::input)?;
    match &args.output {
        // Beside a machine file there is no room for more.
        Some(path) if path.as_os_str() != "-" => {
            write_file(path, text.as_bytes())?;
            let (cpus, path) = (machine.topology.cpus_text(), path.display());
            let costs = if args.calibrate { calibrate::table(&machine) } else { String::new() };
            print_text(&format!("{path}: {cpus}, kernel {}, HZ {}\n{costs}", machine.kernel, machine.hz))
        }
        _ => print_text(&text),
    }
}
