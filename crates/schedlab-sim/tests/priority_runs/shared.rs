//! What the priority schedulers are tried with, what the slides of 2006 say, and what is read off the events of a run:
//! the same for the simulated kernel (here) and for Linux in a virtual machine (crates/schedlab/tests/priorities_vm.rs).

// Not every test binary asks for everything.
#![allow(dead_code)]

use schedlab_model::event::{Event, EventKind, PrevState};

/// ns.
pub const MS: u64 = 1_000_000;

/// A file of tests/priorities.
pub fn scenario(name: &str) -> String {
    let path = format!("{}/../../tests/priorities/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the scenario")
}

/// Tasks that never sleep, one for each nice value.
pub fn hogs(nices: &[i32], duration: &str) -> String {
    let mut text = format!("name = \"hogs\"\nduration = \"{duration}\"\n");
    for (index, nice) in nices.iter().enumerate() {
        let task =
            format!("[[task]]\nname = \"hog{index}\"\nnice = {nice}\nsteps = [{{ run = \"600s\" }}]\n");
        text += &task;
    }
    text
}

/// Slice of ingosched and ingo_ll, in ms.
pub fn o1_slice_ms(nice: i32) -> u64 {
    let rest = (140 - (120 + nice)) as u64;
    if nice < 0 { 20 * rest } else { 5 * rest }
}

/// Slice of nicksched, in ms, for a task so many levels from the best, which is at that level.
pub fn nicksched_slice_ms(distance: u64, best: u64) -> u64 {
    let (near, far) = ((distance + 2) as f64, (170 - best) as f64);
    ((60.0 / near).powi(2) * (40.0 / far).powi(2) / 4.0).round().max(1.0) as u64
}

/// Who had the CPU in turns, of these tasks, and for how long in ns, not counting whoever else ran in between.
pub fn turns(events: &[Event], tasks: &[u32]) -> Vec<(u32, u64)> {
    let mut turns: Vec<(u32, u64)> = Vec::new();
    let mut since = 0;
    for event in events {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        if let Some((task, ran)) = turns.last_mut()
            && *task == prev.0
        {
            *ran += event.time.0 - since;
        }
        since = event.time.0;
        if tasks.contains(&next.0) && turns.last().is_none_or(|turn| turn.0 != next.0) {
            turns.push((next.0, 0));
        }
    }
    turns
}

/// Holds that these tasks run in rounds, each once, in this order.
pub fn assert_rounds(order: &[u32], round: &[u32], rounds_min: usize, who: &str) {
    let start = order.iter().position(|task| *task == round[0]).expect("it runs");
    assert!(order.len() > rounds_min * round.len(), "{who}: {order:?}");
    for found in order[start..].chunks_exact(round.len()) {
        assert_eq!(found, round, "{who}: {order:?}");
    }
}

/// The longest time a task did not run, in ns, from then on.
pub fn longest_gap(events: &[Event], task: u32, from_ns: u64) -> u64 {
    let (mut longest, mut since) = (0, Some(from_ns));
    for event in events {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        if next.0 == task {
            longest = longest.max(since.take().map_or(0, |since| event.time.0.saturating_sub(since)));
        }
        if prev.0 == task && event.time.0 >= from_ns {
            since = Some(event.time.0);
        }
    }
    let end = events.last().map_or(0, |event| event.time.0);
    longest.max(since.map_or(0, |since| end - since))
}

/// How long a task was runnable without running, in ns, and how often it slept.
pub fn waits(events: &[Event], task: u32) -> (u64, u64) {
    let (mut waited, mut sleeps, mut since) = (0, 0, None);
    for event in events {
        match event.kind {
            EventKind::Waking { wakee, .. } if wakee.0 == task => since = since.or(Some(event.time.0)),
            EventKind::Switch { next, .. } if next.0 == task => {
                waited += since.take().map_or(0, |since| event.time.0 - since);
            }
            EventKind::Switch { prev, prev_state, .. } if prev.0 == task => match prev_state {
                PrevState::Runnable => since = Some(event.time.0),
                _ => sleeps += 1,
            },
            _ => {}
        }
    }
    // Who never runs again waits to the end.
    let end = events.last().map_or(0, |event| event.time.0);
    (waited + since.map_or(0, |since| end - since), sleeps)
}
