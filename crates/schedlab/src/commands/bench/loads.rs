//! The loads of interbench that the player has no steps for: a process of their own each, started before the play and
//! ended with it.
//!
//! What they do is schedlab-host's `load`; which rows they belong to is told here, with the workload that is played beside.

use super::Row;
use crate::args::bench::LoadArgs;
use crate::failure::Failure;
use anyhow::anyhow;
use schedlab_host::load::{Load, end_with_parent};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What a load says when it has begun.
const READY: &str = "ready";

/// The real loads of a part `TASK/LOAD`, and the load of the workload that is played beside them.
pub fn of_part(part: &str) -> (&'static [Load], Option<&'static str>) {
    match part.split_once('/').map(|(_, load)| load) {
        Some("write") => (&[Load::Write], Some("none")),
        Some("read") => (&[Load::Read], Some("none")),
        Some("compile") => (&[Load::Write, Load::Read], Some("burn")),
        Some("memload") => (&[Load::Memory], Some("none")),
        _ => (&[], None),
    }
}

/// Processes that work until this is dropped.
pub struct Loads(Vec<Child>);

impl Drop for Loads {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended by itself is none to be ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Loads {
    /// Starts them, with their files in the current directory; why not, if there is no room for one here.
    pub fn start(loads: &[Load]) -> Result<Result<Loads, String>, Failure> {
        let directory = PathBuf::from(".");
        let mut started = Loads(Vec::new());
        for load in loads {
            let bytes = match load.size(&directory) {
                Ok(bytes) => bytes,
                Err(why) => return Ok(Err(format!("{} is left out: {why}", load.name()))),
            };
            started.0.push(start(*load, bytes, &directory)?);
        }
        Ok(Ok(started))
    }

    /// Says in the row if one did not last.
    pub fn check(&mut self, row: &mut Row) {
        for child in &mut self.0 {
            if let Ok(Some(status)) = child.try_wait() {
                row.notes.push(format!("the load of {} ended by itself ({status})", row.part));
                row.cut = true;
            }
        }
    }
}

fn start(load: Load, bytes: u64, directory: &Path) -> Result<Child, Failure> {
    let failed = |problem: String| Failure::Machine(anyhow!("the load {}: {problem}", load.name()));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["load", load.name(), &bytes.to_string()]).arg(directory).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let mut said = String::new();
    let out = child.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut said).map_err(|error| failed(error.to_string()))?;
    if said.trim_end() != READY {
        let status = child.wait().map_err(|error| failed(error.to_string()))?;
        return Err(failed(format!("it ended before it began ({status})")));
    }
    Ok(child)
}

/// Is one: works until it is killed.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    end_with_parent();
    let load = Load::ALL.into_iter().find(|load| load.name() == args.name);
    let load = load.ok_or_else(|| Failure::BadInput(anyhow!("no load is called '{}'", args.name)))?;
    let ready = || {
        let mut out = std::io::stdout();
        // Nobody may listen any more.
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    };
    let ended = load.run(&args.directory, args.bytes, ready);
    let error = ended.expect_err("it works for ever");
    Err(Failure::Machine(anyhow!("{}: {error}", args.name)))
}
