//! The real programs on this machine: each run is a process of its own, those beside it are begun anew until it is done.
//!
//! Rounds go through all cases in turn, so that what changes on the machine meanwhile meets all of them.

use super::{Case, Plan, Row, Tell, threads};
use crate::args::bench::BenchArgs;
use crate::args::program::Which;
use crate::commands::live::under;
use crate::commands::program::Made;
use crate::commands::{Context, common};
use crate::failure::Failure;
use crate::inputs::machines;
use crate::progress;
use anyhow::{Context as _, anyhow};
use schedlab_host::guarded::{self, Guard};
use schedlab_host::guest;
use schedlab_host::record::kill_group;
use schedlab_model::outcome::Obtained;
use schedlab_report::bench::Line;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long the others run before the one that is measured begins.
const LEAD: Duration = Duration::from_millis(100);

/// Rows of every scheduler; those numbers that were made before `interrupted` was raised.
pub(super) fn rows(
    args: &BenchArgs,
    plan: &Plan,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<Vec<Row>, Failure> {
    // What is not known is said before anything runs.
    common::candidates(&args.scheduler, &args.set, machines::this().kernel)?;
    let program = std::env::current_exe().context("this program's own file cannot be found")?;
    let obtained = if guest::is_inside() { Obtained::TriedInVm } else { Obtained::MeasuredHere };
    let mut all: Vec<Vec<Row>> =
        args.scheduler.iter().map(|scheduler| plan.rows(scheduler, obtained)).collect();
    let runs = plan.cases.len() * args.scheduler.len() * plan.rounds as usize;
    let bar = progress::bar(context.quiet, runs as u64, "programs");
    'rounds: for _ in 0..plan.rounds {
        for (scheduler, rows) in args.scheduler.iter().zip(&mut all) {
            let mut round = || -> Result<(), Failure> {
                for (case, row) in plan.cases.iter().zip(rows.iter_mut()) {
                    if interrupted.load(Ordering::Relaxed) {
                        break;
                    }
                    let Some(made) = measured(&program, plan, *case, interrupted)? else { break };
                    tell(Line::Program(super::round(row, made.seconds, made.mflops)))?;
                    row.seconds.push(made.seconds);
                    row.mflops.extend(made.mflops);
                    bar.inc(1);
                }
                Ok(())
            };
            let ended = match scheduler.as_str() {
                "fair" => round().map(|()| None)?,
                other => under(other, &args.set, interrupted, round)?.1,
            };
            if ended.is_some() || interrupted.load(Ordering::Relaxed) {
                rows[0].ended = ended;
                break 'rounds;
            }
        }
    }
    bar.finish_and_clear();
    Ok(all.concat())
}

/// Runs the program of a case; nothing if it was interrupted.
fn measured(
    program: &Path,
    plan: &Plan,
    case: Case,
    interrupted: &AtomicBool,
) -> Result<Option<Made>, Failure> {
    let beside: Vec<Which> = plan.others(case.which).filter(|_| case.together).collect();
    let others = Others::start(program, plan, &beside);
    if case.together {
        thread::sleep(LEAD);
    }
    let output = guarded::output(&mut command(program, plan, case.which, case.nice), interrupted);
    drop(others);
    let output = output.context("this program cannot be run again")?;
    if interrupted.load(Ordering::Relaxed) {
        return Ok(None);
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let machine = output.status.code() == Some(3);
        let error = anyhow!("{}: {}", case.which.name(), said.trim_start_matches("schedlab: "));
        return Err(if machine {
            Failure::Machine(error)
        } else {
            Failure::AnswerIsNo(format!("{error:#}"))
        });
    }
    Ok(Some(serde_json::from_slice(&output.stdout).context("a program's result cannot be read")?))
}

/// The program as a process.
fn command(program: &Path, plan: &Plan, which: Which, nice: i8) -> Command {
    let size = if plan.quick { quick_size(which) } else { which.usual_size() };
    let mut command = Command::new(program);
    command.args(["program", which.name(), "--json", "-", "--size", &size.to_string()]);
    command.args(["--threads", &threads(which).to_string(), &format!("--nice={nice}")]);
    command
}

/// About a tenth of the usual work.
fn quick_size(which: Which) -> u64 {
    match which {
        Which::Fibo => 36,
        Which::Primes => 400_000,
        Which::Rays => 200,
        Which::Linpack => 450,
        Which::Fft => 1 << 15,
        Which::SysbenchCpu => 100,
        Which::SysbenchThreads => 50,
    }
}

/// Programs that are begun anew until this is dropped.
struct Others {
    stop: Arc<AtomicBool>,
    running: Vec<Arc<Mutex<Option<Child>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Others {
    fn start(program: &Path, plan: &Plan, others: &[Which]) -> Others {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut running, mut threads) = (Vec::new(), Vec::new());
        for which in others {
            let mut command = command(program, plan, *which, 0);
            // In a group of its own: sysbench is a process below it.
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
            let slot = Arc::new(Mutex::new(None));
            running.push(Arc::clone(&slot));
            let stop = Arc::clone(&stop);
            threads.push(thread::spawn(move || again(&mut command, &slot, &stop)));
        }
        Others { stop, running, threads }
    }
}

/// Runs a command again and again.
fn again(command: &mut Command, slot: &Mutex<Option<Child>>, stop: &AtomicBool) {
    loop {
        let _guard = {
            let mut running = slot.lock().expect("nobody panics while it holds a child");
            if stop.load(Ordering::Relaxed) {
                return;
            }
            // A machine that can start no more processes says so when the one that is measured is started.
            let Ok(child) = command.spawn() else { return };
            let guard = Guard::of(child.id());
            *running = Some(child);
            guard
        };
        loop {
            let mut running = slot.lock().expect("nobody panics while it holds a child");
            let ended = running.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended {
                *running = None;
                break;
            }
            drop(running);
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for slot in &self.running {
            if let Some(child) = slot.lock().expect("nobody panics while it holds a child").as_ref() {
                kill_group(child.id());
            }
        }
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}
