//! `schedlab demo`: the main job on a recording that comes inside the program.

use super::Context;
use super::common::{self, Prepared};
use super::compare;
use crate::args::{CompareArgs, DemoArgs, MachineChoice, OutputChoice, RunChoice};
use crate::failure::Failure;
use crate::inputs::work;
use crate::output::{print_text, write_file};

/// A periodic task beside hogs and a ping-pong, recorded on a two-CPU machine.
const RECORDING: &[u8] = include_bytes!("../../../../recordings/mixed.slrec");

/// Compares the standard candidates for it.
pub fn run(args: &DemoArgs, context: Context) -> Result<(), Failure> {
    let path = args.output.join("mixed.slrec");
    write_file(&path, RECORDING)?;
    print_text(&format!(
        "This is what `schedlab compare` says for a recorded mixed load (kept in {}).\n\n",
        path.display()
    ))?;
    let out = OutputChoice {
        json: Some(args.output.join("result.json")),
        html: Some(args.output.join("report.html")),
        perfetto: Some(args.output.join("trace.pftrace")),
        parquet: None,
    };
    let machine = MachineChoice { machine: None, cpus: None, kernel: None };
    let compare_args = CompareArgs {
        work: vec![path.display().to_string()],
        command: Vec::new(),
        scheduler: vec!["all".to_owned()],
        objective: Some("latency".to_owned()),
        metric_command: None,
        metric_higher: false,
        guard: Vec::new(),
        set: Vec::new(),
        weights: None,
        setup: Vec::new(),
        blocks: 1,
        perturbed: 20,
        output: args.output.clone(),
        allow_drops: false,
        dry_run: false,
        machine: machine.clone(),
        run: RunChoice { seed: 1, runs: 5, jobs: args.jobs, duration: None },
        out,
    };
    let mut prepared = Prepared::default();
    let name = path.display().to_string();
    common::add_recording(&mut prepared, &name, work::decode_recording(RECORDING)?, &machine, false, 1)?;
    compare::run_prepared(&compare_args, prepared, &name, context)
}
