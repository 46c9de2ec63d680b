//! cfs-weights-2021: weight tables of 8, 20, 40 and 60 weights under CFS of Linux 5.7, simulated.
//!
//! [`derived`] has tables 1 to 5, [`vruntimes`] figure 2 and [`picks`] what it is about, [`shares`] figure 3, [`programs`] table 7 and figure 4,
//! [`claims`] what the paper says and whether it comes out; [`works`] has the programs, [`lab`] makes the runs. The paper prints its tables and figures
//! as pictures, which are lost: no number of its own is known but those in its text.

mod claims;
mod derived;
mod lab;
mod numbers;
mod picks;
mod programs;
mod shares;
mod vruntimes;
mod works;

use crate::args::reproduce::ReproduceArgs;
use crate::commands::reproduce::About;
use crate::commands::{Context, common};
use crate::failure::Failure;
use crate::kept::Kept;
use crate::output::{print_text, write_file};
use anyhow::anyhow;
use lab::Lab;
use schedlab_report::text::Table;
use serde::Serialize;

/// Everything that was made.
#[derive(Debug, Serialize)]
struct Ours {
    tables: Vec<derived::Printed>,
    vruntimes: Vec<vruntimes::Pace>,
    picks: Vec<picks::Compared>,
    shares: Vec<shares::Share>,
    programs: programs::Programs,
    claims: Vec<claims::Claim>,
}

/// Runs it.
pub fn run(args: &ReproduceArgs, context: Context) -> Result<(), Failure> {
    if let Some(set) = args.set.first() {
        return Err(Failure::BadInput(anyhow!(
            "--set {set}: cfs-weights-2021 has no knob; `schedlab compare` and `simulate` take --weights and the knobs of CFS"
        )));
    }
    let interrupted = common::interrupt_flag();
    let kept = Kept::beside(args.json.as_deref(), &About::of(args))?;
    let lab = Lab::new(args, &interrupted, &kept, context.quiet)?;
    let vruntimes = vruntimes::run(&lab)?;
    let (picks, shares, programs) = (picks::run(&lab)?, shares::run(&lab)?, programs::run(&lab)?);
    lab.done();
    let claims = claims::all(&vruntimes, &picks, &shares, &programs);
    let ours = Ours { tables: derived::all(), vruntimes, picks, shares, programs, claims };
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&ours).map_err(Failure::input)?;
        write_file(path, (text + "\n").as_bytes())?;
    }
    let shown = match args.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        true => print_text(&render(&ours, &lab)),
        false => Ok(()),
    };
    kept.done();
    shown
}

fn render(ours: &Ours, lab: &Lab<'_>) -> String {
    let parts = [
        format!("{}\n", lab.describe()),
        derived::render(&ours.tables),
        vruntimes::render(&ours.vruntimes),
        picks::render(&ours.picks),
        shares::render(&ours.shares),
        programs::render(&ours.programs),
        claims::render(&ours.claims),
    ];
    parts.join("\n")
}

/// A table whose first `left` columns are flush left.
fn render_table(titles: &[&str], left: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new(titles);
    table.right = (left..titles.len()).collect();
    rows.into_iter().for_each(|row| table.row(row));
    table.render(common::text_options())
}
