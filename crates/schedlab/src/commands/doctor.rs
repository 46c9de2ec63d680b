//! `schedlab doctor`: what this machine permits, what is missing and how to get it, who else tunes it.
//!
//! Only words; what is looked at is in [`schedlab_host::doctor`].

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::output::{print_text, write_file};
use schedlab_host::doctor::{Examination, Standing, examine};
use schedlab_report::text::Table;

/// Shows it as text or JSON. Finding something missing is no failure: it was asked for.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let examination = examine();
    match &args.json {
        Some(path) => {
            let value = serde_json::to_value(&examination).expect("findings are plain data");
            write_file(path, format!("{value:#}\n").as_bytes())
        }
        None => print_text(&describe(&examination)),
    }
}

fn describe(examination: &Examination) -> String {
    let mut jobs = Table::new(&["to", "here", "because"]);
    for job in &examination.jobs {
        let here = if job.possible { "yes" } else { "no" };
        jobs.row(vec![job.job.to_owned(), here.to_owned(), job.why.clone()]);
    }
    let mut text = format!("Linux {}\n\n{}\n", examination.kernel, jobs.render(Default::default()));
    for finding in &examination.findings {
        let mark = match finding.standing {
            Standing::Good => "  ",
            Standing::Note => "- ",
            Standing::Missing => "! ",
        };
        text += &format!("{mark}{:<11} {}\n", finding.subject, finding.fact);
        if let Some(remedy) = &finding.remedy {
            text += &format!("{:14}remedy: {remedy}\n", "");
        }
    }
    text += "\n";
    if examination.tuners.is_empty() {
        return text + "Nobody else tunes this machine, as far as is known by name.\n";
    }
    text +=
        "Who else tunes this machine (stop them before you measure, or they are part of what is measured):\n";
    for tuner in &examination.tuners {
        text += &format!("  {} (process {}): {}\n", tuner.program, tuner.pid, tuner.changes);
    }
    text
}
