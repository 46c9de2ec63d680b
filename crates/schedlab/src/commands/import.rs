//! `schedlab import`: a trace that another recorder made, or a recording, as a recording of ours.

use crate::args::MachineChoice;
use crate::args::recordings::ImportArgs;
use crate::failure::Failure;
use crate::inputs::{machines, work};
use crate::output::{print_text, write_file, write_json};
use anyhow::Context as _;
use schedlab_import::ImportOptions;
use schedlab_model::event::EventKind;
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::{Recording, codec};
use schedlab_model::topology::cpus_text;
use schedlab_report::units;
use serde_json::json;

/// Imports and says what was found.
pub fn run(args: &ImportArgs) -> Result<(), Failure> {
    let options = ImportOptions { target: args.target.clone(), ..ImportOptions::default() };
    let mut recording = work::load_trace(&args.file, &options)?;
    if let Some(name) = &args.machine {
        let choice = MachineChoice { machine: Some(name.clone()), cpus: None, kernel: None };
        let machine = machines::resolve(&choice, None)?;
        let (has, needs) = (machine.topology.cpu_count(), recording.machine.topology.cpu_count());
        if has < needs {
            return Err(Failure::BadInput(anyhow::anyhow!(
                "machine '{}' has {}, the trace names {needs}: give the machine it was recorded on",
                machine.name,
                cpus_text(has)
            )));
        }
        let told = !recording.provenance.kernel_release.is_empty();
        let kernel = if told { recording.machine.kernel } else { machine.kernel };
        recording.machine = MachineDescription { kernel, ..machine };
    }
    if args.anonymise {
        recording.anonymise();
    }
    let bytes = codec::encode(&recording).context("cannot encode the recording")?;
    write_file(&args.output, &bytes)?;
    let facts = Facts::of(&recording);
    let value = json!({"file": args.output, "origin": recording.provenance.origin, "events": recording.events.len(),
        "bytes": bytes.len(), "dropped": recording.provenance.dropped, "duration_ns": recording.duration.0,
        "cpus": recording.machine.topology.online_count(), "kernel": recording.machine.kernel,
        "kernel_release": recording.provenance.kernel_release, "tasks": recording.tasks.len() - 1,
        "target_tasks": facts.target, "switches": facts.switches, "wakeups": facts.wakeups});
    if !write_json(args.json.as_deref(), &value)? {
        print_text(&facts.text(&recording, args))?;
    }
    Ok(())
}

struct Facts {
    switches: usize,
    wakeups: usize,
    target: usize,
}

impl Facts {
    fn of(recording: &Recording) -> Facts {
        let count =
            |is: fn(&EventKind) -> bool| recording.events.iter().filter(|event| is(&event.kind)).count();
        Facts {
            switches: count(|kind| matches!(kind, EventKind::Switch { .. })),
            wakeups: count(|kind| matches!(kind, EventKind::Waking { .. })),
            target: recording.tasks.iter().filter(|task| task.target).count(),
        }
    }

    fn text(&self, recording: &Recording, args: &ImportArgs) -> String {
        let number = |count: usize| units::grouped(count as i64);
        let (provenance, machine) = (&recording.provenance, &recording.machine);
        let mut text = format!(
            "Imported   {}, {}: {} events, {} lost\n",
            provenance.what(),
            recording.duration,
            number(recording.events.len()),
            number(provenance.dropped as usize)
        );
        text +=
            &format!("Heard      {} switches, {} wake-ups\n", number(self.switches), number(self.wakeups));
        let tasks = recording.tasks.len() - 1;
        text += &format!("Tasks      {} of the target, {tasks} in all\n", self.target);
        let release = &provenance.kernel_release;
        let kernel = match release.is_empty() {
            true => format!("unknown; {} is taken", machine.kernel),
            false => format!("{release}, simulated as {}", machine.kernel),
        };
        let cpus = machine.topology.cpus_text();
        text += &format!("Machine    {}, {cpus}, kernel {kernel}\n", machine.name);
        if args.machine.is_none() && provenance.origin.starts_with("imported") {
            text += "Note       the trace holds no topology and no costs: give --machine FILE for the machine it is of\n";
        }
        if self.wakeups == 0 {
            text += "Note       no wake-ups were recorded: a replay wakes tasks at the times they were seen to run\n";
        }
        let file = args.output.display();
        text + &format!("Next       schedlab compare {file}\n           schedlab show {file}\n")
    }
}
