//! `schedlab top`: tasks and CPUs of the running kernel, look by look.
//!
//! A screen where standard output is a terminal ([`terminal`], with the keys of [`screen`] and the layout of
//! [`view`]), lines of text or JSON elsewhere. What is looked at: [`schedlab_host::top`].

mod history;
mod screen;
mod terminal;
mod view;

use super::common::interrupt_flag;
use crate::args::live::{TopArgs, TopSort};
use crate::failure::Failure;
use crate::output::give_to_caller;
use anyhow::Context;
use schedlab_host::top::{Sampler, TopError, cgroups_named};
use schedlab_model::tasks_now::MachineNow;
use schedlab_report::top::document::TopDocument;
use schedlab_report::top::{Filter, Frame, Sort, table};
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tasks of a table of text.
const PLAIN_TASKS: usize = 40;
/// Looking more often would show little but itself.
const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Shows it until it is ended.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let interval = Duration::from_nanos(args.interval.0);
    if interval < INTERVAL_MIN {
        return Err(Failure::BadInput(anyhow::anyhow!("--interval must be at least 20ms")));
    }
    let filter = filter_of(args)?;
    let sampler = Sampler::new().map_err(failure)?;
    let sort = sort_of(args.sort);
    let is_plain = args.plain || args.json.is_some() || args.iterations.is_some();
    if is_plain || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return plain(sampler, args, interval, sort, &filter);
    }
    terminal::run(sampler, screen::Screen::new(sort, filter, args.cgroup.clone(), interval))
}

fn failure(error: TopError) -> Failure {
    Failure::Machine(error.into())
}

fn sort_of(sort: TopSort) -> Sort {
    match sort {
        TopSort::Rank => Sort::Rank,
        TopSort::Delay => Sort::Delay,
        TopSort::Cpu => Sort::Cpu,
        TopSort::Pid => Sort::Pid,
    }
}

fn filter_of(args: &TopArgs) -> Result<Filter, Failure> {
    let cgroups = args.cgroup.as_deref().map(cgroups_named);
    if let (Some(path), Some([])) = (&args.cgroup, cgroups.as_deref()) {
        return Err(Failure::BadInput(anyhow::anyhow!(
            "no control group below /sys/fs/cgroup has '{path}' in its path: 'systemd-cgls' lists them"
        )));
    }
    Ok(Filter { text: args.filter.clone(), cgroups, active: args.active })
}

/// Lines of text or JSON, until the last interval, Ctrl-C, or a reader that goes away.
fn plain(
    mut sampler: Sampler,
    args: &TopArgs,
    interval: Duration,
    sort: Sort,
    filter: &Filter,
) -> Result<(), Failure> {
    let interrupted = interrupt_flag();
    let mut out = open(args.json.as_deref())?;
    let mut before = sampler.sample().map_err(failure)?;
    let mut due = Instant::now() + interval;
    let mut shown = 0;
    while args.iterations.is_none_or(|iterations| shown < iterations) && wait(due, &interrupted) {
        let now = sampler.sample().map_err(failure)?;
        due = next(due, interval);
        match write_frame(out.as_mut(), &before, &now, args, sort, filter) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(Failure::Machine(anyhow::Error::new(error).context("cannot write"))),
            Ok(()) => {}
        }
        (before, shown) = (now, shown + 1);
    }
    // Without a number of intervals its end is whatever ends it, as of top(1).
    if args.iterations.is_some_and(|iterations| shown < iterations) {
        Err(Failure::Interrupted)
    } else {
        Ok(())
    }
}

fn open(json: Option<&Path>) -> Result<Box<dyn Write>, Failure> {
    let Some(path) = json.filter(|path| path.as_os_str() != "-") else { return Ok(Box::new(io::stdout())) };
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    give_to_caller(path);
    Ok(Box::new(file))
}

fn write_frame(
    out: &mut dyn Write,
    before: &MachineNow,
    now: &MachineNow,
    args: &TopArgs,
    sort: Sort,
    filter: &Filter,
) -> io::Result<()> {
    let frame = Frame::between(before, now);
    let text = match args.json {
        Some(_) => {
            let document = TopDocument::of(&frame, sort, filter, args.tasks.unwrap_or(usize::MAX));
            serde_json::to_string(&document)? + "\n"
        }
        None => table::render(&frame, sort, filter, args.tasks.unwrap_or(PLAIN_TASKS)) + "\n",
    };
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The next look after one that was due then; none is made up for.
fn next(due: Instant, interval: Duration) -> Instant {
    let now = Instant::now();
    let next = due + interval;
    if next > now { next } else { now + interval }
}

/// Sleeps until then; false if a signal came.
fn wait(due: Instant, interrupted: &AtomicBool) -> bool {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}
