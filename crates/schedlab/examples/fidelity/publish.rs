//! The arguments of `fidelity measure` and `fidelity page`, and the page from a directory of measurements.

use crate::measure::{Options, read_plan, run};
use anyhow::{Context, Result, bail};
use schedlab_report::fidelity::measured::Measured;
use schedlab_report::fidelity::page::render;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// `measure --dir DIR --plan FILE --program FILE [--quick] [--continue] [--again] [--live-only] [--minutes N] [--only NAME] [--host-only] [--vm-only]`
pub fn measure(arguments: &[String]) -> Result<ExitCode> {
    let mut given = Given::default();
    given.read(arguments)?;
    run(Options {
        dir: given.dir.context("measure needs --dir DIR")?,
        plan: given.plan.context("measure needs --plan FILE")?,
        program: given.program.context("measure needs --program FILE")?,
        quick: given.quick,
        resume: given.resume,
        again: given.again,
        live_only: given.live_only,
        budget: given.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes)),
        only: given.only,
        vm: !given.host_only,
        host: !given.vm_only,
    })
}

/// `page --dir DIR --plan FILE --prose FILE`: the page on standard output.
pub fn page(arguments: &[String]) -> Result<ExitCode> {
    let mut given = Given::default();
    given.read(arguments)?;
    let (dir, plan) =
        (given.dir.context("page needs --dir DIR")?, given.plan.context("page needs --plan FILE")?);
    let plan = read_plan(&plan)?;
    let prose = given.prose.context("page needs --prose FILE")?;
    let prose = std::fs::read_to_string(&prose).with_context(|| prose.display().to_string())?;
    let measured = Measured {
        session: read(&dir, "session")?.unwrap_or_default(),
        loads: all(&dir, "load", plan.loads.iter().map(|load| &load.name))?,
        pairs: all(&dir, "pair", plan.pairs.iter().map(|pair| &pair.name))?,
    };
    if measured.loads.is_empty() && measured.pairs.is_empty() {
        bail!("{} holds no measurement: `cargo xtask fidelity` makes one", dir.display());
    }
    print!("{}", render(&plan, &measured, &prose));
    Ok(ExitCode::SUCCESS)
}

fn all<'a, T: DeserializeOwned>(
    dir: &Path,
    kind: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<Vec<T>> {
    names.filter_map(|name| read(dir, &format!("{kind}-{name}")).transpose()).collect()
}

/// A file of the measurement, if it is there.
fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>> {
    let path = dir.join(format!("{name}.json"));
    if !path.exists() {
        return Ok(None);
    }
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(Some(serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?))
}

#[derive(Default)]
struct Given {
    dir: Option<PathBuf>,
    plan: Option<PathBuf>,
    program: Option<PathBuf>,
    prose: Option<PathBuf>,
    quick: bool,
    resume: bool,
    again: bool,
    live_only: bool,
    minutes: Option<f64>,
    only: Vec<String>,
    host_only: bool,
    vm_only: bool,
}

impl Given {
    fn read(&mut self, arguments: &[String]) -> Result<()> {
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--dir" => self.dir = Some(value()?.into()),
                "--plan" => self.plan = Some(value()?.into()),
                "--program" => self.program = Some(value()?.into()),
                "--prose" => self.prose = Some(value()?.into()),
                "--minutes" => self.minutes = Some(value()?.parse().context("--minutes takes a number")?),
                "--only" => self.only.push(value()?.clone()),
                "--quick" => self.quick = true,
                "--continue" => self.resume = true,
                "--again" => self.again = true,
                "--live-only" => self.live_only = true,
                "--host-only" => self.host_only = true,
                "--vm-only" => self.vm_only = true,
                other => bail!("{other} is no argument of it"),
            }
        }
        Ok(())
    }
}
