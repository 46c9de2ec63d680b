//! The same benchmarks on a real kernel: Linux 7.2 in virtual machines of one CPU whose clock counts instructions.
//!
//! So the host does not matter, only the kernel's own code and the objects'. Each part has a machine of its own, and some run
//! at a time. Times are not the board's, ratios can be compared.

use super::board::KNOBS_INGO_LL;
use super::printed::PLUGSCHED;
use super::{Ours, Place, Run, Tell, of_reader, plain, quick};
use crate::args::bench::Bench;
use crate::args::reproduce::ReproduceArgs;
use crate::commands::bench::Row;
use crate::commands::{Context, vm};
use crate::failure::Failure;
use crate::progress;
use anyhow::{Context as _, anyhow};
use schedlab_host::vm::initramfs::find_program;
use schedlab_host::vm::{Acceleration, Error, Kernel, KernelChoice, KernelName, Machine, Topology};
use schedlab_report::bench::{BenchDocument, Line, Rows};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// hackbench takes a quarter of what it takes on the slides, so broadcasts come a quarter of the time apart, and the threads run for
/// a quarter. As on the page they begin with the load.
const WAKEUP: [&str; 5] = ["groups=10", "loops=100", "period=8ms", "run=12us", "settle=0ms"];

/// What the slides show an excerpt of, for 10 s.
const INTERBENCH: [&str; 3] = ["task=video", "load=x", "length=10s"];

/// hackbench 30 has 1,200 processes.
const MEMORY_MIB: u32 = 2048;

/// No part has taken a fifth of it so far; under a scheduler that starves it none would end.
const TIME_LIMIT: Duration = Duration::from_secs(1500);

/// One machine's work.
struct Part {
    bench: Bench,
    schedulers: Vec<&'static str>,
    sets: Vec<String>,
    kind: Kind,
}

/// Which of the results its rows are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hackbench,
    Wakeup,
    Unrated,
    Interbench,
    RealTime,
}

impl Kind {
    /// Name of the list in the document.
    fn name(self) -> &'static str {
        match self {
            Kind::Hackbench => "hackbench",
            Kind::Wakeup => "wakeup",
            Kind::Unrated => "wakeup_unrated",
            Kind::Interbench => "interbench",
            Kind::RealTime => "interbench_rt",
        }
    }
}

/// Boots as many machines as there are parts.
pub fn measure(
    args: &ReproduceArgs,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<Ours, Failure> {
    let kernel = Kernel::choose(&KernelChoice::Named(KernelName::V7_2)).map_err(vm::failure)?;
    let own = std::env::current_exe().context("the program does not find itself")?;
    let guest = Guest { kernel, own, interrupted, seed: args.seed };
    let parts = parts(args);
    let bar = progress::bar(context.quiet, parts.len() as u64, "machines");
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || -> Result<(), Failure> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(index) else { return Ok(()) };
            // What comes after a failure would be lost: nobody begins with it.
            let rows = guest.run(part).inspect_err(|_| next.store(parts.len(), Ordering::Relaxed))?;
            rows.iter().try_for_each(|row| tell(part.kind.name(), args.seed, Line::Run(row.clone())))?;
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(index, rows);
            bar.inc(1);
        }
    };
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let at_a_time = args.jobs.map_or_else(available, |jobs| jobs as usize).min(parts.len());
    let ended: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_a_time).map(|_| scope.spawn(work)).collect();
        let panicked = |_| Err(Failure::Machine(anyhow!("what waits for a machine panicked")));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    bar.finish_and_clear();
    // What is there is kept if somebody ended it.
    let is_error = |error: &Failure| !matches!(error, Failure::Interrupted);
    if let Some(error) = ended.into_iter().filter_map(Result::err).find(is_error) {
        return Err(error);
    }
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut of = |kind: Kind| -> Vec<Row> {
        let is_of = |(index, _): &(usize, &Part)| parts[*index].kind == kind;
        parts
            .iter()
            .enumerate()
            .filter(is_of)
            .flat_map(|(index, _)| found.remove(&index).unwrap_or_default())
            .collect()
    };
    let wakeup = of(Kind::Wakeup);
    Ok(Ours {
        place: Place::VirtualMachine,
        interbench: of(Kind::Interbench),
        interbench_rt: of(Kind::RealTime),
        // Nothing is fitted there.
        wakeup_unfitted: wakeup.clone(),
        first: Run {
            seed: args.seed,
            hackbench: of(Kind::Hackbench),
            wakeup,
            wakeup_unrated: of(Kind::Unrated),
        },
        code: None,
        again: Vec::new(),
    })
}

/// Each scheduler's hackbench and wake-ups, those with the other rating, and the video of all.
fn parts(args: &ReproduceArgs) -> Vec<Part> {
    let all = PLUGSCHED.map(|paper| paper.name);
    let part = |kind: Kind, schedulers: &[&'static str], more: &[&str]| {
        let (bench, own): (_, &[&str]) = match kind {
            Kind::Hackbench => (Bench::Hackbench, &["groups=30"]),
            Kind::Wakeup | Kind::Unrated => (Bench::Wakeup, &WAKEUP),
            Kind::Interbench | Kind::RealTime => (Bench::Interbench, &INTERBENCH),
        };
        let knobs: &[&str] = if schedulers.contains(&"ingo_ll") { &KNOBS_INGO_LL } else { &[] };
        let sets = [own, quick(args, bench), knobs, more].concat().into_iter().map(str::to_owned);
        Part {
            kind,
            bench,
            schedulers: schedulers.to_vec(),
            sets: sets.chain(of_reader(args, bench)).collect(),
        }
    };
    // The longest first.
    let wakeups = all.iter().map(|name| part(Kind::Wakeup, &[name], &[]));
    let hackbench = all.iter().map(|name| part(Kind::Hackbench, &[name], &[]));
    let unrated = [part(Kind::Unrated, &["ingosched"], &["child_penalty=0", "run_by_bonus=0"])];
    // A live scheduler takes knobs of its own only.
    let video = all.iter().map(|name| part(Kind::Interbench, &[name], &[]));
    let real_time = all.iter().map(|name| part(Kind::RealTime, &[name], &["rt=1"]));
    wakeups.chain(unrated).chain(video).chain(real_time).chain(hackbench).collect()
}

/// What every machine has.
struct Guest<'a> {
    kernel: Kernel,
    own: PathBuf,
    interrupted: &'a Arc<AtomicBool>,
    seed: u64,
}

impl Guest<'_> {
    fn run(&self, part: &Part) -> Result<Vec<Row>, Failure> {
        let mut machine = Machine::new(self.kernel.clone(), &self.own);
        machine.topology(Topology::flat(1)).memory_mib(MEMORY_MIB).time_limit(TIME_LIMIT);
        machine.acceleration(Acceleration::InstructionCount).interrupted(Arc::clone(self.interrupted));
        if part.kind == Kind::Hackbench {
            let program = find_program("hackbench");
            machine.program(&program.ok_or_else(|| vm::failure(Error::NoProgram("hackbench".to_owned())))?);
        }
        let (name, seed) = (part.bench.name(), self.seed.to_string());
        let schedulers = part.schedulers.join(",");
        let mut command = vec!["schedlab", "bench", name, "--live", "--json", "-", "--seed", &seed];
        command.extend(["--scheduler", &schedulers]);
        command.extend(part.sets.iter().flat_map(|set| ["--set", set]));
        let run = machine.run(&command).map_err(vm::failure)?;
        if run.code != 0 {
            let said = String::from_utf8_lossy(&run.stderr);
            return Err(Failure::Machine(anyhow!(
                "{name} under {schedulers} ended with code {}: {}",
                run.code,
                said.trim()
            )));
        }
        let document = BenchDocument::read(&run.text()).map_err(|error| {
            Failure::Machine(anyhow!("what {name} under {schedulers} wrote cannot be read: {error}"))
        })?;
        match document.rows {
            Rows::Samples(rows) => Ok(plain(rows)),
            Rows::Programs(_) => unreachable!("none of the slides' benchmarks counts programs"),
        }
    }
}
