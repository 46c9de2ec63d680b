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

/// tests/priorities/steps.toml where all sleep for 2.75 s or more before: a scheduler that comes meanwhile knows the same of them in
/// the simulated kernel and in Linux. The hog wakes first, as else it would be a matter of microseconds who does.
pub fn steps_after_a_sleep() -> String {
    let mut text = scenario("steps");
    for (who, sleep) in [("hog", "2750ms"), ("A", "3s")] {
        let first = format!("name = \"{who}\"\nsteps = [");
        assert!(text.contains(&first), "{first}");
        text = text.replace(&first, &format!("{first}{{ sleep = \"{sleep}\" }},"));
    }
    text
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

/// How a task waited: was runnable without running.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// All of it, in ns.
    pub total_ns: u64,
    /// The longest at once.
    pub longest_ns: u64,
    /// How often it slept.
    pub sleeps: u64,
}

impl Waits {
    fn add(&mut self, wait_ns: u64) {
        self.total_ns += wait_ns;
        self.longest_ns = self.longest_ns.max(wait_ns);
    }

    /// ns for each sleep.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns / self.sleeps.max(1)
    }
}

/// How a task waited from then on; of a wait that had begun before, what is left.
pub fn waits(events: &[Event], task: u32, from_ns: u64) -> Waits {
    let (mut waits, mut since) = (Waits::default(), None);
    for event in events {
        let time = event.time.0;
        match event.kind {
            EventKind::Waking { wakee, .. } if wakee.0 == task => since = since.or(Some(time)),
            EventKind::Switch { next, .. } if next.0 == task => {
                waits.add(since.take().map_or(0, |since| time.max(from_ns) - since.max(from_ns)));
            }
            EventKind::Switch { prev, prev_state, .. } if prev.0 == task => match prev_state {
                PrevState::Runnable => since = Some(time),
                // Who was woken while it still ran did not sleep then, and waits from its next wake-up on.
                _ => {
                    since = None;
                    waits.sleeps += u64::from(time >= from_ns);
                }
            },
            _ => {}
        }
    }
    // Who never runs again waits to the end.
    let end = events.last().map_or(0, |event| event.time.0);
    waits.add(since.map_or(0, |since| end.max(from_ns) - since.max(from_ns)));
    waits
}
