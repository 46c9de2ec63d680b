//! `schedlab program`: one small real program, its answer checked, on one line.
//!
//! [`sysbench`] runs the real one and reads what it says. Not here: the programs (schedlab-programs), several of them
//! beside each other (`schedlab bench programs`).

mod sysbench;

use crate::args::program::{ProgramArgs, Which};
use crate::failure::Failure;
use crate::output::{print_text, write_json};
use anyhow::anyhow;
use schedlab_programs::Work;
use serde::{Deserialize, Serialize};

pub use sysbench::{is_installed as has_sysbench, why_not as why_no_sysbench};

/// What a program's run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// Which.
    pub program: String,
    /// How much work.
    pub size: u64,
    /// Threads that shared it.
    pub threads: u32,
    /// What came out.
    pub answer: String,
    /// Whether that is right.
    pub right: bool,
    /// How long the work took, in s.
    pub seconds: f64,
    /// Millions of floating-point operations a second, where they count.
    pub mflops: Option<f64>,
}

impl Made {
    fn line(&self) -> String {
        let Made { program, size, answer, seconds, .. } = self;
        let threads = if self.threads > 1 { format!(", {} threads", self.threads) } else { String::new() };
        let speed = self.mflops.map_or(String::new(), |mflops| format!("{mflops:.1} mflops, "));
        let right = if self.right { "right" } else { "WRONG" };
        format!("{program} {size}{threads}: {speed}{answer}, {right}, {seconds:.4} s\n")
    }
}

/// Runs it.
pub fn run(args: &ProgramArgs) -> Result<(), Failure> {
    let which = args.program;
    let work = Work { size: args.size.unwrap_or(which.usual_size()), threads: args.threads };
    if let Some(program) = which.own() {
        program.check(work).map_err(Failure::input)?;
    }
    if let Some(nice) = args.nice {
        schedlab_host::set_nice(nice).map_err(|error| {
            Failure::Machine(anyhow!(
                "nice {nice} was refused ({error}): run it as root, or choose 0 or more"
            ))
        })?;
    }
    let result = made(which, work)?;
    if !write_json(args.json.as_deref(), &serde_json::json!(result))? {
        print_text(&result.line())?;
    }
    if result.right {
        Ok(())
    } else {
        Err(Failure::AnswerIsNo(format!("{} computed a wrong answer", which.name())))
    }
}

fn made(which: Which, work: Work) -> Result<Made, Failure> {
    let Some(program) = which.own() else { return sysbench::run(which, work) };
    let made = program.run(work).map_err(Failure::input)?;
    Ok(Made {
        program: which.name().to_owned(),
        size: work.size,
        threads: work.threads,
        mflops: made.mflops(),
        seconds: made.elapsed.as_secs_f64(),
        answer: made.answer,
        right: made.right,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_one_line() {
        let result = |mflops, right| Made {
            program: "fft".into(),
            size: 8,
            threads: if right { 1 } else { 2 },
            answer: "error 0".into(),
            right,
            seconds: 0.25,
            mflops,
        };
        assert_eq!(result(Some(12.34), true).line(), "fft 8: 12.3 mflops, error 0, right, 0.2500 s\n");
        assert_eq!(result(None, false).line(), "fft 8, 2 threads: error 0, WRONG, 0.2500 s\n");
    }
}
