//! What the priority schedulers do under load: a fork bomb beside an interactive task, and what a decision costs.

// A test may read files; the simulator may not.
#![allow(clippy::disallowed_methods)]

mod ext_runs;
mod priority_runs;

use ext_runs::Run;
use priority_runs::shared::{MS, Waits, scenario, waits};
use priority_runs::{free, run, run_seeded, run_with};
use schedlab_model::event::{Event, EventKind, NullSink};
use schedlab_model::machine::{Cost, Costs};
use schedlab_sim::Simulation;

/// Mean and longest wait of the editor in µs while the bomb is there, and how many of its 300 periods it ran in.
fn beside_bomb(scheduler: &str, knobs: &[(&str, i64)]) -> (u64, u64, u64) {
    let ran = run(scheduler, &scenario("fork-bomb"), 1, knobs);
    let waits = ran.waits(1, 1_000 * MS);
    let (mean, longest) = (waits.mean_ns() / 1000, waits.longest_ns / 1000);
    let jobs = ran.result.accounts[1].voluntary_switches;
    eprintln!("{scheduler} {knobs:?}: mean wait {mean} us, longest {longest} us, {jobs} jobs");
    (mean, longest, jobs)
}

#[test]
fn a_fork_bomb_leaves_an_interactive_task_alone_where_sleep_or_forks_count() {
    for scheduler in ["ingosched", "nicksched", "staircase"] {
        let (mean, longest, jobs) = beside_bomb(scheduler, &[]);
        assert!(mean < 10 && longest < 1_000 && jobs == 300, "{scheduler}: {mean}, {longest}, {jobs}");
    }
    // Strict priorities alone have the editor wait for 250 slices; with controlled forks most of them are below it.
    let (_, without, _) = beside_bomb("fixed_priority", &[("fork_control", 0)]);
    let (_, with, _) = beside_bomb("fixed_priority", &[]);
    assert!(with * 4 < without, "{with} us, {without} us without control of forks");
}

/// Under ingo_ll the average of the waits, each of which counts 15/16 of the next, begins with none, so that the first counts as a
/// sixteenth of itself: who wakes fast is taken for one who needs no bonus, and the bomb's children, who wait, come before it.
/// 250 ticks in a second, none of which finds this editor at work, as each would be charged to it whole.
#[test]
fn under_ingo_ll_an_editor_whose_wake_ups_take_10_us_fares_better_beside_a_fork_bomb() {
    let text = scenario("fork-bomb");
    // Longest wait in ms, and how often it slept beside the bomb: the middle ones of five seeds.
    let editor = |costs: Costs| {
        let run = Run { knobs: &[("hz", 250)], costs, ..Run::new("ingo_ll", &text, 1) };
        let waits = |seed| waits(&run_seeded(&run, 250, seed).events, 1, 1_000 * MS);
        let found: Vec<Waits> = (1..=5).map(waits).collect();
        let middle = |mut values: Vec<u64>| {
            values.sort_unstable();
            values[2]
        };
        let longest = found.iter().map(|waits| waits.longest_ns / MS).collect();
        (middle(longest), middle(found.iter().map(|waits| waits.sleeps).collect()))
    };
    // Where nothing takes time its waits cost it all of its bonus.
    let (longest, sleeps) = editor(free());
    assert!((2_000..5_000).contains(&longest) && sleeps < 100, "{longest}, {sleeps}");
    // About 3.5 us: the first two averages are below a 256th of the limit, 0.59 us, and cost it two points, until it has waited once.
    let (longest, sleeps) = editor(Costs::default());
    assert!((100..500).contains(&longest) && sleeps > 200, "{longest}, {sleeps}");
    // A sixteenth of 10 us costs nothing.
    let (longest, sleeps) = editor(Costs { wakeup: Cost::assumed(8_000, 0), ..Costs::default() });
    assert!(longest < 1 && sleeps > 245, "{longest}, {sleeps}");
}

/// Seven tasks that began with long sleeps count as interactive and want more than the CPU; what has used up its slice waits for
/// them for the limit times the tasks that can run, at most, and then for what they have left of their slices.
#[test]
fn an_expired_task_waits_for_the_starvation_limit_at_most() {
    let text = &scenario("starvation");
    for scheduler in ["ingosched", "ingo_ll"] {
        let longest = |limit| {
            let ran = run(scheduler, text, 1, &[("starvation_limit_ms", limit)]);
            ran.waits(1, 2_000 * MS).longest_ns
        };
        let [short, long] = [100, 1_000].map(longest);
        assert!(short <= (8 * 100 + 700) * MS, "{scheduler}: {short}");
        assert!(long <= (8 * 1_000 + 700) * MS, "{scheduler}: {long}");
        // Under ingo_ll nobody is interactive for so long.
        assert!(scheduler == "ingo_ll" || 2 * short < long, "{scheduler}: {short} {long}");
    }
}

#[test]
fn a_mark_goes_first_but_earns_no_time() {
    let text = "name = \"marked\"\nduration = \"4s\"\n[[task]]\nname = \"player\"\nnice = 0\n\
        steps = [{ loop = { steps = [{ run = \"2ms\" }, { sleep = \"18ms\" }] } }]\n\
        [[task]]\nname = \"hog\"\nnice = 0\ncount = 4\nsteps = [{ run = \"60s\" }]\n";
    let wait = |knobs: &[(&str, i64)], text: &str| {
        let ran = run("fixed_priority", text, 1, knobs);
        let player = &ran.result.accounts[1];
        (player.run_delay.0 / player.voluntary_switches.max(1), player.cpu_time.0)
    };
    let hogs_below = text.replace("name = \"hog\"\nnice = 0", "name = \"hog\"\nnice = 1");
    // Marked: nice 0 and better. The hogs are one level below in either case.
    let (marked, _) = wait(&[("interactive_nice", 0)], &hogs_below);
    let (unmarked, _) = wait(&[], text);
    assert!(marked < 100_000 && unmarked > 10 * MS, "{marked} and {unmarked}");
    // All are marked and want all they can get: a mark is used up after a slice of 4 ms, and then they take turns.
    let greedy = text.replace("{ run = \"2ms\" }, { sleep = \"18ms\" }", "{ run = \"60s\" }");
    let (_, time) = wait(&[("interactive_nice", 0)], &greedy);
    assert!(time < 1_000 * MS, "a fifth of 4 s is its share: {time}");
}

/// BPF instructions and callbacks for each switch between tasks.
fn cost(scheduler: &str, cpus: u32) -> (u64, u64) {
    let workload = "name = \"pairs\"\nduration = \"500ms\"\n[channels]\nto = { type = \"bytes\", count = 8 }\n\
        fro = { type = \"bytes\", count = 8 }\n[[task]]\nname = \"ping\"\ncount = 8\n\
        steps = [{ loop = { steps = [{ run = \"20us\" }, { send = { channel = \"to{i}\", bytes = 10 } }, { receive = { channel = \"fro{i}\", bytes = 10 } }] } }]\n\
        [[task]]\nname = \"pong\"\ncount = 8\n\
        steps = [{ loop = { steps = [{ receive = { channel = \"to{i}\", bytes = 10 } }, { run = \"20us\" }, { send = { channel = \"fro{i}\", bytes = 10 } }] } }]\n";
    let config = Run { costs: free(), ..Run::new(scheduler, workload, cpus) }.config();
    let mut simulation = Simulation::new(config).expect("valid");
    simulation.log_callbacks();
    let result = simulation.run(&mut NullSink).expect("runs");
    assert_eq!(result.scheduler_exit, None, "{scheduler}");
    let switches = result.report.context_switches.max(1);
    let callbacks = simulation.take_callbacks().records.len() as u64;
    let (instructions, calls) = (result.report.bpf_instructions / switches, callbacks * 10 / switches);
    eprintln!("{scheduler} on {cpus}: {instructions} instructions, {calls} tenths of a callback a switch");
    (instructions, calls)
}

#[test]
fn fixed_priorities_cost_less_than_dynamic_ones() {
    for cpus in [1, 4] {
        let (fixed, _) = cost("fixed_priority", cpus);
        cost("fifo", cpus);
        for scheduler in ["ingosched", "ingo_ll", "nicksched", "staircase"] {
            let (dynamic, _) = cost(scheduler, cpus);
            assert!(fixed * 10 < dynamic * 7, "{scheduler} on {cpus}: {dynamic}, fixed priorities {fixed}");
        }
    }
}

/// A dozen children, one of which ends at once, take turns with each other until they end.
const DOZEN: &str = "name = \"dozen\"\nduration = \"9s\"\n\
    [[task]]\nname = \"parent\"\nsteps = [{ fork = \"short\" }, { loop = { count = 11, steps = [{ fork = \"long\" }] } }, { sleep = \"5s\" }, { run = \"60s\" }]\n\
    [[task]]\nname = \"short\"\ntemplate = true\nsteps = [{ run = \"5ms\" }]\n\
    [[task]]\nname = \"long\"\ntemplate = true\nsteps = [{ run = \"400ms\" }]\n\
    [[task]]\nname = \"late\"\nstart = \"5100ms\"\nsteps = [{ run = \"60s\" }]\n";

#[test]
fn no_child_starves_those_that_queued_up_before_a_sibling_ended() {
    let ran = run("fixed_priority", DOZEN, 1, &[]);
    let last_ran = |task: u32| {
        let ended = |event: &&Event| matches!(event.kind, EventKind::Switch { prev, .. } if prev.0 == task);
        ran.events.iter().rev().find(ended).expect("it ran").time.0 / MS
    };
    let ends: Vec<u64> = (4..15).map(last_ran).collect();
    let (first, last) = (*ends.iter().min().expect("eleven"), *ends.iter().max().expect("eleven"));
    // A turn is 20 ms: eleven of them. Who rose by one level would keep the CPU for all of its 400 ms.
    assert!(last - first <= 240, "the eleven end at {ends:?} ms");
}

#[test]
fn a_debt_is_forgiven_with_the_end_of_the_last_child() {
    let ran = run("fixed_priority", DOZEN, 1, &[]);
    // All of the dozen have ended after 4.4 s; from 5.1 s on the parent and a stranger share the CPU.
    let parent = ran.result.accounts[1].cpu_time.0 / MS;
    assert!((1_800..=2_200).contains(&parent), "{parent} ms of 4 s");
}

/// The best priority that a task of nice 0 reaches under staircase v15 which works for 5 ms of each 20 ms in this step.
fn best_priority_of(step: &str) -> u8 {
    let text = format!(
        "name = \"worker\"\nduration = \"4s\"\n[channels]\nsink = {{ type = \"bytes\", capacity = 1000000 }}\n\
         [[task]]\nname = \"worker\"\nsteps = [{{ loop = {{ steps = [{step}, {{ sleep = \"15ms\" }}] }} }}]\n"
    );
    let costs = Costs { pipe_call: Cost::assumed(5 * MS, 0), ..free() };
    let run = Run { knobs: &[("log_changes", 1)], costs, ..Run::new("staircase", &text, 1) };
    let changes = run_with(&run, 1000).changes();
    changes.iter().map(|change| change.after).min().unwrap_or(120)
}

/// v15 counts time in calls as run twice over and takes it off the sleep: 15 ms asleep for 5 ms in calls are less sleep than
/// run, and 15 ms for 5 ms of the program's own are three times as much.
#[test]
fn ticks_that_find_a_task_in_a_call_are_system_time() {
    let own = best_priority_of("{ run = \"5ms\" }");
    let in_calls = best_priority_of("{ send = { channel = \"sink\", bytes = 1 } }");
    assert!(own <= 118, "{own}");
    assert!(in_calls >= 120, "{in_calls}");
}
