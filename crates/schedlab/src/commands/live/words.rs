//! Live schedulers in words: what runs, how it ended, how a probation went, who holds what.

use schedlab_host::live::canary::Delays;
use schedlab_host::live::control::{Held, Load, Probed, Taken};
use schedlab_host::live::dump::Waiting;
use schedlab_host::live::hold::End;
use schedlab_host::live::journal::Repaired;
use schedlab_host::live::programs::RunningProgram;
use schedlab_model::Nanos;
use schedlab_report::units;
use std::time::Duration;

/// Tasks of a dump that are named: those that waited longest.
const WAITING_SHOWN: usize = 5;

/// What was left behind and is undone now.
pub fn repaired(repaired: &Repaired) -> String {
    let who = repaired.owner.as_ref().map_or("a command".to_owned(), ToString::to_string);
    format!("{who} ended without undoing its changes; undone now: {}", repaired.undone.join("; "))
}

/// Whom a scheduler is given.
pub fn scope(partial: bool) -> &'static str {
    if partial { "only tasks that ask for SCHED_EXT" } else { "all tasks of the machine" }
}

/// Knobs as `NAME`, `VALUE`; of an array of which several elements were set only that they were.
pub fn knobs<'a>(knobs: impl Iterator<Item = (&'a String, &'a i64)>) -> Vec<(String, String)> {
    let knobs: Vec<_> = knobs.collect();
    let array = |name: &str| name.split_once('[').map(|(array, _)| array.to_owned());
    let mut shown: Vec<(String, String)> = Vec::new();
    for (name, value) in &knobs {
        let of = array(name);
        let same = knobs.iter().filter(|(other, _)| of.is_some() && array(other) == of).count();
        match of {
            Some(array) if same > 1 => {
                if shown.iter().all(|(name, _)| *name != array) {
                    shown.push((array, format!("{same} values")));
                }
            }
            _ => shown.push(((*name).clone(), value.to_string())),
        }
    }
    shown
}

/// Name and knobs.
pub fn name(load: &Load) -> String {
    let shown = knobs(load.knobs.iter().map(|(name, value)| (name, value)));
    let knobs = shown.into_iter().map(|(name, value)| format!("{name}={value}"));
    std::iter::once(load.name.clone()).chain(knobs).collect::<Vec<_>>().join(" ")
}

/// What runs, and how long it took.
pub fn runs(held: &Held, taken: &Taken) -> String {
    let (load, enable) = (micros(taken.load_us), micros(taken.enable_us));
    let mut text = format!("Runs       {} for {}\n", held.name, scope(held.partial));
    for (name, value) in knobs(held.knobs.iter()) {
        text += &format!("Knob       {name} = {value}\n");
    }
    text + &format!("Took       {load} to load, {enable} to enable\n")
}

/// What the scheduler's own programs cost, the dearest first.
pub fn costs(costs: &[RunningProgram], wall: Duration) -> String {
    let all: u64 = costs.iter().map(|cost| cost.run_time.0).sum();
    let mut text = String::new();
    for cost in costs.iter().filter(|cost| cost.runs > 0) {
        let each = cost.run_time.0 as f64 / cost.runs as f64;
        text += &format!(
            "Cost       {:<15} {:>10} runs of {each:.0} ns, {} in all\n",
            cost.name,
            units::grouped(cost.runs as i64),
            cost.run_time
        );
    }
    let share = all as f64 / wall.as_nanos().max(1) as f64;
    text + &format!("Cost       {} of scheduler code, {} of one CPU\n", Nanos(all), units::percent(share, 2))
}

/// How a probation went.
pub fn probed(probed: &Probed) -> String {
    let mut text = format!("Canaries   {}\n", delays(&probed.delays));
    if let Some(trip) = &probed.trip {
        let seconds = probed.length_ms as f64 / 1_000.0;
        text += &format!("Guard      {} tripped after {seconds:.1} s: {}\n", trip.guard, trip.measured);
        let now = probed.now.as_deref().unwrap_or("the kernel's own scheduler");
        text += &match &probed.lost {
            Some(why) => format!("Not rolled back: {why}; {now} has all tasks\n"),
            None => format!("Rolled back to {now}\n"),
        };
    }
    if let Some(cut) = &probed.cut {
        let seconds = probed.length_ms as f64 / 1_000.0;
        text += &format!("Cut short  after {seconds:.1} s: {cut}\n");
    }
    text
}

/// Wake-up delays.
pub fn delays(delays: &Delays) -> String {
    let time = |ns: u64| units::time(ns as f64);
    format!(
        "{} wake-ups, delayed by {} on average, 99 % by at most {}, the worst by {}",
        units::grouped(i64::try_from(delays.count).unwrap_or(i64::MAX)),
        time(delays.mean_ns),
        time(delays.p99_ns),
        time(delays.max_ns)
    )
}

/// How it ended: the reason, the way to a mistake, and what the kernel's log says.
pub fn end(end: &End) -> String {
    let mut text = format!("Ended      {}\n", end.words());
    for frame in &end.backtrace {
        let kind = if frame.program { "its" } else { "the kernel's" };
        let line = frame.line.iter().fold(String::new(), |_, line| format!(", {line}"));
        text += &format!("Backtrace  {kind} {}{line}\n", frame.function);
    }
    let is_error = end.exit.as_ref().is_none_or(schedlab_host::live::Exit::is_error);
    let waiting: Vec<&Waiting> = end.waiting.iter().filter(|task| !task.running).collect();
    for task in waiting.iter().filter(|_| is_error).take(WAITING_SHOWN) {
        let cpu = task.cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
        text += &format!("Waiting    {} could run for {}{cpu}\n", task.task, micros(task.waits_ms * 1_000));
    }
    if is_error && waiting.len() > WAITING_SHOWN {
        text += &format!("Waiting    {} more tasks\n", waiting.len() - WAITING_SHOWN);
    }
    for line in end.log.iter().filter(|line| is_error && line.starts_with("sched_ext:")) {
        text += &format!("Kernel     {line}\n");
    }
    text
}

/// What was undone, a line each.
pub fn undone(undone: &[String]) -> String {
    undone.iter().map(|what| format!("Undone     {what}\n")).collect()
}

fn micros(us: u64) -> String {
    units::time(us as f64 * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_an_array_are_told_together() {
        let set =
            |names: &[&str]| names.iter().zip(1..).map(|(name, value)| ((*name).to_owned(), value)).collect();
        let all: Vec<(String, i64)> = set(&["slice_ns", "w[0]", "w[1]", "v[7]", "first"]);
        let told = knobs(all.iter().map(|(name, value)| (name, value)))
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>();
        assert_eq!(told, ["slice_ns=1", "w=2 values", "v[7]=4", "first=5"]);
    }
}
