//! A trial on the running kernel: rounds under the kernel's own scheduler and under another in the order A B B A, then
//! a comparison with intervals.
//!
//! Neighbouring rounds are a pair, so what drifts slowly hits both alike; a ratio's interval comes from the pairs by the
//! statistics of [`schedlab_report::compare::stats`]. Nothing is kept that was not found better.

use super::{failure, guards_of, stopped, words};
use crate::args::live::RunArgs;
use crate::commands::common::text_options;
use crate::failure::Failure;
use crate::output::{print_text, write_json};
use schedlab_host::live::canary::{self, Canary, Guards, Trip};
use schedlab_host::live::command::Work;
use schedlab_host::live::control::{Load, Round, send};
use schedlab_host::live::hold::{Holder, LOOK_OFTEN, Wake};
use schedlab_report::compare::stats::{self, LogInterval};
use schedlab_report::text::Table;
use schedlab_report::units;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Two-sided error of intervals.
const ALPHA: f64 = 0.05;
/// A smaller change is none that matters, as in `compare`.
const EFFECT_MIN: f64 = 0.01;
/// A command that was asked to end and has not by then is killed.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Delays differ by less than this without any reason.
const FLOOR_NS: f64 = 5_000.0;

/// What is done in each round.
pub struct Plan {
    command: Vec<String>,
    round: Duration,
    rounds: u32,
    partial: bool,
    guards: Guards,
}

impl Plan {
    /// A command is run in each round.
    pub fn of_command(args: &RunArgs, partial: bool) -> Plan {
        let guards = guards_of(&args.guards);
        Plan { command: args.command.clone(), round: Duration::ZERO, rounds: args.rounds, partial, guards }
    }

    /// The running system is measured in each round, for so long.
    pub fn of_system(rounds: u32, round: Duration, partial: bool, guards: Guards) -> Plan {
        Plan { command: Vec::new(), round, rounds, partial, guards }
    }
}

/// How a trial went.
pub struct Tried {
    /// Its rounds, in order.
    pub rounds: Vec<Round>,
    /// The guard that ended it.
    pub trip: Option<Trip>,
}

/// Runs the rounds; afterwards the scheduler is out.
pub fn run(
    holder: &mut Holder,
    load: &Load,
    plan: &Plan,
    mut tell: impl FnMut(Round),
) -> Result<Tried, Failure> {
    // In every round, so that both arms have the same.
    holder.run_first();
    let mut tried = Tried { rounds: Vec::new(), trip: None };
    for number in 0..plan.rounds * 2 {
        let on_trial = matches!(number % 4, 1 | 2);
        holder.phase(format!("trial, round {} of {}", number + 1, plan.rounds * 2));
        if on_trial && holder.held().is_none() {
            holder.attach(load.clone()).map_err(failure)?;
        } else if !on_trial {
            holder.detach();
        }
        match round(holder, plan, on_trial)? {
            Ok(round) => {
                tell(round);
                tried.rounds.push(round);
            }
            Err(trip) => {
                tried.trip = Some(trip);
                break;
            }
        }
    }
    holder.detach();
    Ok(tried)
}

/// One round, or the guard that ended it.
fn round(holder: &mut Holder, plan: &Plan, on_trial: bool) -> Result<Result<Round, Trip>, Failure> {
    let canary = Canary::start(canary::policy(plan.partial));
    let mut work = match plan.command.is_empty() {
        true => None,
        false => Some(holder.start(&plan.command, plan.partial).map_err(failure)?),
    };
    let began = Instant::now();
    let descriptor: Option<RawFd> = work.as_ref().and_then(Work::descriptor);
    let wake = holder.serve(descriptor, LOOK_OFTEN, || {
        let code = match &mut work {
            Some(work) => work.ended().map(Some),
            None => (began.elapsed() >= plan.round).then_some(None),
        };
        let trip = canary.check(&plan.guards, code.is_some()).filter(|_| on_trial);
        trip.map(Err).or(code.map(Ok))
    });
    let wall_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let cut = match wake {
        Wake::Done(Ok(code)) => {
            let wall_ns = work.is_some().then_some(wall_ns);
            if let Some(code) = code.filter(|code| *code != 0) {
                return Err(Failure::Command(code));
            }
            return Ok(Ok(Round { on_trial, wall_ns, code, delays: canary.delays() }));
        }
        Wake::Done(Err(trip)) => Cut::Tripped(trip),
        Wake::Ended(end) => Cut::Tripped(Trip { guard: "kernel".to_owned(), measured: end.words() }),
        Wake::Stop(stream) => Cut::Asked(Some(stream)),
        Wake::Interrupted => Cut::Asked(None),
    };
    drop(canary);
    cut_short(holder, work, cut).map(Err)
}

/// What ended a round early.
enum Cut {
    Tripped(Trip),
    /// A signal, or whoever asked to stop and wants an answer.
    Asked(Option<UnixStream>),
}

/// Ends a round that is not to go on, and the trial with it. Others may change the machine again at once, however long the
/// command takes to end.
fn cut_short(holder: &mut Holder, work: Option<Work>, cut: Cut) -> Result<Trip, Failure> {
    let (end, undone) = holder.release();
    let undone = undone.map_err(|error| failure(error.into()));
    let ended = match cut {
        Cut::Tripped(trip) => Ok(trip),
        Cut::Asked(stream) => {
            if let Some(mut stream) = stream {
                // Whoever asked may be gone.
                let _ = send(&mut stream, &stopped(end, &undone, work.is_some()), &[]);
            }
            Err(Failure::Interrupted)
        }
    };
    if work.is_some_and(|mut work| work.end(END_PATIENCE)) {
        let seconds = END_PATIENCE.as_secs();
        eprintln!(
            "schedlab: the command did not end within {seconds} s when asked to (SIGTERM): it was killed"
        );
    }
    undone?;
    ended
}

/// A round in a line.
pub fn line(round: &Round) -> String {
    let who = if round.on_trial { "on trial" } else { "kernel's" };
    match round.wall_ns {
        Some(wall) => format!("Round      {who}: {}\n", units::time(wall as f64)),
        None => format!("Round      {who}: {}\n", words::delays(&round.delays)),
    }
}

/// One number of both arms.
struct Row {
    name: &'static str,
    key: &'static str,
    kernel: f64,
    on_trial: f64,
    interval: Option<LogInterval>,
    /// Whether all of the interval is too small a difference to have a reason.
    floor: bool,
}

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Better,
    Worse,
    Same,
    CannotTell,
}

impl Row {
    fn of(
        name: &'static str,
        key: &'static str,
        rounds: &[Round],
        value: impl Fn(&Round) -> Option<u64>,
    ) -> Option<Row> {
        let side = |on_trial: bool| -> Option<Vec<f64>> {
            let rounds = rounds.iter().filter(|round| round.on_trial == on_trial);
            rounds.map(|round| value(round).map(|value| value.max(1) as f64)).collect()
        };
        let (kernel, on_trial) = (side(false)?, side(true)?);
        let pairs: Vec<f64> = kernel.iter().zip(&on_trial).map(|(a, b)| (b / a).ln()).collect();
        let (kernel, on_trial) = (stats::mean(&kernel), stats::mean(&on_trial));
        let interval = stats::interval(&[pairs], ALPHA, 1);
        let within = |interval: LogInterval| kernel * interval.largest().exp_m1() < FLOOR_NS;
        let floor = key != "wall_ns" && interval.is_some_and(within);
        Some(Row { name, key, kernel, on_trial, interval, floor })
    }

    /// Less is better in every row.
    fn says(&self) -> Says {
        let Some(interval) = &self.interval else { return Says::CannotTell };
        let small = (1.0 + EFFECT_MIN).ln();
        if self.floor || interval.largest() < small {
            Says::Same
        } else if interval.low > 0.0 && interval.estimate > small {
            Says::Worse
        } else if interval.high < 0.0 && interval.estimate < -small {
            Says::Better
        } else {
            Says::CannotTell
        }
    }
}

/// The row that decides comes first: the command's time, else the tail of the canaries' delays.
fn rows(rounds: &[Round]) -> Vec<Row> {
    let wall = Row::of("time of the command", "wall_ns", rounds, |round| round.wall_ns);
    let tail = Row::of("wake-up delay, 99 %", "p99_ns", rounds, |round| Some(round.delays.p99_ns));
    let mean = Row::of("wake-up delay, mean", "mean_ns", rounds, |round| Some(round.delays.mean_ns));
    [wall, tail, mean].into_iter().flatten().collect()
}

/// Whether the trial found it better than the kernel's own.
pub fn is_better(rounds: &[Round]) -> bool {
    rows(rounds).first().is_some_and(|row| row.says() == Says::Better)
}

/// Shows the comparison; worse than the kernel's own is an answer of no.
pub fn conclude(tried: &Tried, load: &Load, json: Option<&Path>) -> Result<(), Failure> {
    let rows = rows(&tried.rounds);
    let says = rows.first().map_or(Says::CannotTell, Row::says);
    let value = serde_json::json!({"scheduler": load.name, "knobs": load.knobs, "rounds": tried.rounds,
        "trip": tried.trip, "says": format!("{says:?}").to_lowercase(),
        "rows": rows.iter().map(|row| serde_json::json!({"metric": row.key, "kernel": row.kernel,
            "on_trial": row.on_trial, "ratio": row.interval.map(|interval| interval.estimate.exp()),
            "low": row.interval.map(|interval| interval.low.exp()),
            "high": row.interval.map(|interval| interval.high.exp())})).collect::<Vec<_>>()});
    if !write_json(json, &value)? {
        print_text(&describe(&rows, tried, load))?;
    }
    match &tried.trip {
        Some(trip) => Err(Failure::AnswerIsNo(format!("{} was taken out: {trip}", load.name))),
        None if says == Says::Worse => {
            Err(Failure::AnswerIsNo(format!("{} is worse here than the kernel's own scheduler", load.name)))
        }
        None => Ok(()),
    }
}

fn describe(rows: &[Row], tried: &Tried, load: &Load) -> String {
    if let Some(trip) = &tried.trip {
        return format!(
            "Guard      {} tripped: {}\nRolled back to the kernel's own scheduler\n",
            trip.guard, trip.measured
        );
    }
    let mut table = Table::new(&["", "kernel's own", load.name.as_str(), "ratio", "95 % interval", ""]);
    table.right = vec![1, 2, 3, 4];
    for row in rows {
        let interval = row.interval.map_or("–".to_owned(), |interval| {
            format!("{} to {}", units::ratio(interval.low.exp()), units::ratio(interval.high.exp()))
        });
        let ratio = row.interval.map_or("–".to_owned(), |interval| units::ratio(interval.estimate.exp()));
        let says = match row.says() {
            Says::Better => "better",
            Says::Worse => "worse",
            Says::Same => "the same",
            Says::CannotTell => "cannot tell",
        };
        let (kernel, on_trial) = (units::time(row.kernel), units::time(row.on_trial));
        table.row(vec![row.name.to_owned(), kernel, on_trial, ratio, interval, says.to_owned()]);
    }
    let pairs = tried.rounds.len() / 2;
    let text =
        format!("\n{}\nFrom {pairs} pairs of rounds in turns (A B B A).\n", table.render(text_options()));
    match rows.first().map(Row::says) {
        Some(Says::CannotTell) | None => text + &format!("Next       --rounds {}\n", pairs * 4),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_host::live::canary::Delays;

    fn rounds(kernel: &[u64], on_trial: &[u64]) -> Vec<Round> {
        let round = |on_trial, wall: u64| Round {
            on_trial,
            wall_ns: Some(wall),
            code: Some(0),
            delays: Delays { count: 1_000, mean_ns: 50_000, p99_ns: 90_000, max_ns: 100_000 },
        };
        let pairs = kernel.iter().zip(on_trial);
        pairs.flat_map(|(kernel, trial)| [round(false, *kernel), round(true, *trial)]).collect()
    }

    #[test]
    fn better_worse_same_and_unclear_are_told_apart() {
        let says = |rounds: &[Round]| super::rows(rounds)[0].says();
        let kernel = [1_000_000, 1_010_000, 990_000, 1_005_000, 995_000];
        let scaled = |factor: f64| kernel.map(|value| (value as f64 * factor) as u64);
        assert_eq!(says(&rounds(&kernel, &scaled(0.8))), Says::Better);
        assert!(is_better(&rounds(&kernel, &scaled(0.8))) && !is_better(&rounds(&kernel, &scaled(1.001))));
        assert_eq!(says(&rounds(&kernel, &scaled(1.3))), Says::Worse);
        assert_eq!(says(&rounds(&kernel, &kernel)), Says::Same);
        assert_eq!(
            says(&rounds(&kernel, &[500_000, 2_000_000, 900_000, 1_500_000, 700_000])),
            Says::CannotTell
        );
        assert_eq!(says(&rounds(&kernel[..1], &kernel[..1])), Says::CannotTell, "one pair has no spread");
    }

    #[test]
    fn means_that_happen_to_agree_are_not_the_same() {
        let mut rounds = rounds(&[1; 2], &[1; 2]);
        let delays = [600_000, 200_000, 200_000, 600_000];
        rounds.iter_mut().zip(delays).for_each(|(round, delay)| round.delays.mean_ns = delay);
        assert_eq!(super::rows(&rounds)[2].says(), Says::CannotTell);
    }

    #[test]
    fn small_differences_of_delays_are_none() {
        let mut rounds = rounds(&[1; 3], &[1; 3]);
        rounds.iter_mut().filter(|round| round.on_trial).for_each(|round| round.delays.p99_ns = 94_000);
        assert_eq!(super::rows(&rounds)[1].says(), Says::Same);
        rounds.iter_mut().filter(|round| round.on_trial).for_each(|round| round.delays.p99_ns = 180_000);
        assert_eq!(super::rows(&rounds)[1].says(), Says::Worse);
    }
}
