//! The fair class against what real kernels did with the scenarios of tests/conformance/fair: Debian's 6.1.0-50 and 7.2
//! under QEMU with a virtual clock, one CPU, HZ 250. docs/model.md has the commands and what was measured.

use schedlab_model::event::{Event, EventKind, NullSink, PrevState};
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::file;
use schedlab_model::{Nanos, TaskId};
use schedlab_sim::{Simulation, SimulationConfig};
use std::sync::Arc;

fn simulation(kernel: &str, text: &str) -> Simulation {
    let mut machine = MachineDescription::generic("vm", Topology::flat(1).expect("one CPU"));
    machine.hz = 250;
    let config = SimulationConfig {
        kernel: Some(kernel.parse::<KernelVersion>().expect("a version")),
        ..SimulationConfig::new(machine, Arc::new(file::parse(text).expect("the scenario")))
    };
    Simulation::new(config).expect("valid")
}

/// What tasks got between two times, in per mille; and lengths of their turns.
fn turns(events: &[Event], from: Nanos, to: Nanos) -> Vec<(TaskId, Nanos)> {
    let mut since = Nanos::ZERO;
    let mut turns = Vec::new();
    for event in events {
        let EventKind::Switch { prev, .. } = event.kind else { continue };
        if !prev.is_idle() && since >= from && event.time <= to {
            turns.push((prev, event.time - since));
        }
        since = event.time;
    }
    turns
}

/// 6.1, first second: a, b and c (nice 5) got 432, 428 and 140 per mille, each turn one tick. Then a sleeper wakes every
/// 30 ms: 66 times, each time it preempted at once; the shares were 414, 415, 137 and 34.
#[test]
fn cfs_shares_and_slices_are_those_of_6_1() {
    let mut events: Vec<Event> = Vec::new();
    let text = include_str!("../../../tests/conformance/fair/hogs.toml");
    simulation("6.1", text).run(&mut events).expect("runs");
    for (from, to, real) in [(0, 1_000, [432, 428, 140, 0]), (1_000, 3_000, [414, 415, 137, 34])] {
        let turns = turns(&events, Nanos::from_millis(from), Nanos::from_millis(to));
        let all: u64 = turns.iter().map(|(_, time)| time.0).sum();
        for (index, real) in real.into_iter().enumerate() {
            let own = turns.iter().filter(|(task, _)| task.index() == index + 1);
            let share = own.map(|(_, time)| time.0).sum::<u64>() * 1_000 / all;
            assert!(share.abs_diff(real) <= 12, "task {index} from {from}: {share}, really {real}");
        }
        if from == 0 {
            let tick = Nanos::from_millis(4);
            let whole = turns.iter().filter(|(_, time)| time.0.abs_diff(tick.0) < 500_000).count();
            assert!(whole * 100 >= turns.len() * 97, "{whole} of {} turns are a tick", turns.len());
        }
    }
    let sleeper = TaskId(4);
    let wakings =
        events.iter().filter(|e| matches!(e.kind, EventKind::Waking { wakee, .. } if wakee == sleeper));
    let (mut woken, mut at_once) = (0, 0);
    for waking in wakings {
        let runs = events.iter().find(|event| {
            event.time >= waking.time
                && matches!(event.kind, EventKind::Switch { next, .. } if next == sleeper)
        });
        let Some(runs) = runs else { continue };
        woken += 1;
        let preempted = matches!(runs.kind, EventKind::Switch { prev_state: PrevState::Runnable, .. });
        at_once += u32::from(preempted && runs.time - waking.time < Nanos::from_micros(100));
    }
    assert!(woken >= 60 && at_once + 1 >= woken, "{at_once} of {woken} wake-ups preempt at once, really all");
}

/// Per mille that a to d got, of 3 s: 225, 337, 336 and 102 on 6.1, 224, 337, 337 and 101 on 7.2.
#[test]
fn groups_share_as_on_6_1_and_7_2() {
    let text = include_str!("../../../tests/conformance/fair/groups.toml");
    for (kernel, real) in [("6.1", [225, 337, 336, 102]), ("7.2", [224, 337, 337, 101])] {
        let result = simulation(kernel, text).run(&mut NullSink).expect("runs");
        let all: u64 = result.accounts.iter().map(|account| account.cpu_time.0).sum();
        for (account, real) in result.accounts[1..].iter().zip(real) {
            let share = account.cpu_time.0 * 1_000 / all;
            assert!(share.abs_diff(real) <= 8, "{kernel}, task {}: {share}, really {real}", account.task.0);
        }
    }
}

/// 7.2 ends slices of 0.7 ms by a timer (`HRTICK`). Hogs that make no system calls had the turns of turns.txt there in 3 s
/// (a test of schedlab-host measures them again); a task that is picked again after its slice goes on to the tick, here and there.
#[test]
fn slices_of_7_2_end_between_ticks() {
    let text = include_str!("../../../tests/conformance/fair/groups.toml");
    let mut events: Vec<Event> = Vec::new();
    simulation("7.2", text).run(&mut events).expect("runs");
    let turns = turns(&events, Nanos::ZERO, Nanos::from_millis(2_985));
    for (index, line) in include_str!("../../../tests/conformance/fair/turns.txt").lines().enumerate() {
        let (task, (_, real)) = (index + 1, line.split_once(' ').expect("a hog and its turns"));
        let real: usize = real.parse().expect("a number");
        let found = turns.iter().filter(|(turn, _)| turn.index() == task).count();
        assert!(found.abs_diff(real) * 100 <= real * 15, "task {task}: {found} turns, really {real}");
    }
}
