//! Whole runs with groups: shares by `cpu.weight`, `cpu.idle` and `cpu.max`, sessions as groups, in every kernel.

use schedlab_model::event::NullSink;
use schedlab_model::lever::Setting;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::file;
use schedlab_sim::{Simulation, SimulationConfig, SimulationResult};
use std::fmt::Write as _;
use std::sync::Arc;

const KERNELS: [&str; 5] = ["5.7", "6.1", "6.12", "6.18", "7.2"];

/// A workload of hogs; a task is its group, its CPUs and its nice value.
fn hogs(groups: &str, tasks: &[(&str, &str, i32)], more: &str) -> String {
    let mut text = format!("name = \"groups\"\nduration = \"4s\"\n{groups}");
    for (index, (group, cpus, nice)) in tasks.iter().enumerate() {
        let cgroup = if group.is_empty() { String::new() } else { format!("cgroup = \"{group}\"\n") };
        let steps = "steps = [{ loop = { steps = [{ run = \"10ms\" }] } }]";
        write!(text, "\n[[task]]\nname = \"t{index}\"\n{cgroup}cpus = \"{cpus}\"\nnice = {nice}\n{steps}\n")
            .expect("a string takes it");
    }
    text + more
}

fn run(kernel: &str, cpus: u32, text: &str, knobs: &[(&str, i64)]) -> SimulationResult {
    let machine = MachineDescription::generic("test", Topology::flat(cpus).expect("CPUs"));
    let settings =
        knobs.iter().map(|&(name, value)| Setting::Knob { name: name.to_owned(), value }).collect();
    let config = SimulationConfig {
        kernel: Some(kernel.parse::<KernelVersion>().expect("a version")),
        settings,
        ..SimulationConfig::new(machine, Arc::new(file::parse(text).expect("a workload")))
    };
    Simulation::new(config).expect("valid").run(&mut NullSink).expect("runs")
}

/// CPU time of each task in per mille of one CPU.
fn shares(kernel: &str, cpus: u32, text: &str, knobs: &[(&str, i64)]) -> Vec<u64> {
    let result = run(kernel, cpus, text, knobs);
    result.accounts[1..].iter().map(|account| account.cpu_time.0 * 1_000 / result.makespan.0).collect()
}

fn expect(kernel: &str, cpus: u32, text: &str, knobs: &[(&str, i64)], exact: &[u64], off: u64) {
    let found = shares(kernel, cpus, text, knobs);
    let near = found.iter().zip(exact).all(|(found, exact)| found.abs_diff(*exact) <= off);
    assert!(near, "{kernel}: {found:?}, not {exact:?}");
}

/// Weight 100 against 300: a quarter for the only task of one, three eighths for each of the two of the other.
#[test]
fn groups_share_by_weight_whatever_is_in_them() {
    let groups = "[[cgroup]]\npath = \"/a\"\n[[cgroup]]\npath = \"/b\"\nweight = 300\n";
    let text = hogs(groups, &[("/a", "0", 0), ("/b", "0", 0), ("/b", "0", 0)], "");
    for kernel in KERNELS {
        expect(kernel, 1, &text, &[], &[250, 375, 375], 12);
    }
}

/// Half for a task of nice 0 in the root, which weighs 1024 as a group of weight 100 does; of the other half a third
/// and two thirds for groups of 100 and 200 below it.
#[test]
fn levels_multiply() {
    let groups = "[[cgroup]]\npath = \"/a/x\"\n[[cgroup]]\npath = \"/a/y\"\nweight = 200\n";
    let text = hogs(groups, &[("", "0", 0), ("/a/x", "0", 0), ("/a/y", "0", 0)], "");
    for kernel in KERNELS {
        expect(kernel, 1, &text, &[], &[500, 167, 333], 15);
    }
}

/// `cpu.weight.nice` 5 is 335 of 1359; as `cpu.weight` it would be 33, that is 338.
#[test]
fn a_group_may_weigh_as_a_task() {
    let groups = "[[cgroup]]\npath = \"/a\"\nnice = 5\n";
    let text = hogs(groups, &[("", "0", 0), ("/a", "0", -20)], "");
    for kernel in KERNELS {
        expect(kernel, 1, &text, &[], &[753, 246], 8);
    }
    let both = text.replace("nice = 5", "nice = 5\nweight = 33");
    assert!(file::parse(&both).expect_err("twofold").to_string().contains("not both"));
}

/// An idle group weighs 3, the other 1024: 3 of 1027. Kernels before 5.15 have no `cpu.idle`.
#[test]
fn an_idle_group_gets_what_is_left() {
    let groups = "[[cgroup]]\npath = \"/a\"\nidle = true\n[[cgroup]]\npath = \"/b\"\n";
    let text = hogs(groups, &[("/a", "0", 0), ("/b", "0", 0)], "");
    for kernel in &KERNELS[1..] {
        expect(kernel, 1, &text, &[], &[3, 997], 4);
    }
    expect("5.7", 1, &text, &[], &[500, 500], 10);
}

/// Group a has a task on each CPU, b one on CPU 0, both weigh 100: on CPU 0 a has half of its weight, 512 against
/// 1024, a third; on CPU 1 it is alone.
#[test]
fn a_group_s_weight_is_divided_by_its_load_on_the_cpus() {
    let groups = "[[cgroup]]\npath = \"/a\"\n[[cgroup]]\npath = \"/b\"\n";
    let text = hogs(groups, &[("/a", "0", 0), ("/a", "1", 0), ("/b", "0", 0)], "");
    for kernel in KERNELS {
        expect(kernel, 2, &text, &[], &[333, 1_000, 667], 25);
    }
}

/// 20 ms of each 100 ms, for one task and for two on two CPUs; 4 s have 40 periods, and the last may be ahead by what
/// each CPU has taken, 5 ms, and runs over by up to a tick, 4 ms.
#[test]
fn a_quota_is_not_exceeded_and_is_used() {
    let groups = "[[cgroup]]\npath = \"/a\"\nquota = \"20ms\"\n";
    for kernel in KERNELS {
        let one = hogs(groups, &[("/a", "0", 0), ("", "0", 10)], "");
        expect(kernel, 1, &one, &[], &[200, 800], 6);
        let two = hogs(groups, &[("/a", "0", 0), ("/a", "1", 0)], "");
        let sum: u64 = shares(kernel, 2, &two, &[]).iter().sum();
        assert!((190..=208).contains(&sum), "{kernel}: {sum}");
    }
}

/// A quota above limits what is below: 10 ms of the 50 ms that the inner group may have.
#[test]
fn the_tighter_quota_counts() {
    let groups =
        "[[cgroup]]\npath = \"/a\"\nquota = \"10ms\"\n[[cgroup]]\npath = \"/a/x\"\nquota = \"50ms\"\n";
    let text = hogs(groups, &[("/a/x", "0", 0)], "");
    for kernel in KERNELS {
        expect(kernel, 1, &text, &[], &[100], 6);
    }
}

/// 20 ms of 100 for two tasks in a group below the limited one: both get their half of it, whoever runs when it is
/// used up.
#[test]
fn a_quota_above_counts_for_all_below() {
    let groups = "[[cgroup]]\npath = \"/a\"\nquota = \"20ms\"\n[[cgroup]]\npath = \"/a/b\"\n";
    let text = hogs(groups, &[("/a/b", "0", 0), ("/a/b", "0", 0), ("", "0", 0)], "");
    for kernel in KERNELS {
        expect(kernel, 1, &text, &[], &[100, 100, 800], 8);
    }
    let text = hogs(groups, &[("/a/b", "0", 0), ("/a/b", "0", 0)], "");
    for kernel in KERNELS {
        expect(kernel, 1, &text, &[], &[100, 100], 8);
    }
}

/// A quota that comes at 2 s and goes at 3 s, and a weight that changes meanwhile.
#[test]
fn settings_change_while_it_runs() {
    let groups = "[[cgroup]]\npath = \"/a\"\n";
    let change = |time: &str, how: &str| {
        format!("\n[[event]]\ntime = \"{time}\"\ncgroup = {{ path = \"/a\", {how} }}\n")
    };
    let more = change("2s", "quota = \"10ms\"") + &change("3s", "weight = 300");
    let text = hogs(groups, &[("/a", "0", 0), ("", "0", 0)], &more);
    // 2 s of half, 1 s of a tenth, 1 s of three quarters: 1 + 0.1 + 0.75 of 4 s.
    for kernel in KERNELS {
        expect(kernel, 1, &text, &[], &[462, 538], 12);
    }
}

/// Four tasks of a session beside one of another: a half for each session; one by one without autogroups.
#[test]
fn sessions_are_groups() {
    let text = hogs(
        "",
        &[
            ("/autogroup-1", "0", 0),
            ("/autogroup-1", "0", 0),
            ("/autogroup-1", "0", 0),
            ("/autogroup-1", "0", 0),
            ("/autogroup-2", "0", 0),
        ],
        "",
    );
    for kernel in KERNELS {
        expect(kernel, 1, &text, &[], &[125, 125, 125, 125, 500], 12);
        expect(kernel, 1, &text, &[("sched_autogroup_enabled", 0)], &[200; 5], 10);
    }
}

/// A task that sleeps 9 of 10 ms wakes beside hogs of another group: it runs soon, whatever their number.
#[test]
fn a_woken_group_preempts_another() {
    let sleeper = "\n[[task]]\nname = \"s\"\ncgroup = \"/b\"\ncpus = \"0\"\n\
                   steps = [{ loop = { steps = [{ run = \"500us\" }, { sleep = \"9500us\" }] } }]\n";
    let text = hogs("", &[("/a", "0", 0); 6], sleeper);
    for kernel in KERNELS {
        let result = run(kernel, 1, &text, &[]);
        let account = result.accounts.last().expect("the sleeper");
        let rounds = account.voluntary_switches;
        assert!(rounds >= 330, "{kernel}: {rounds} rounds of 400");
    }
}

/// 7.2: beside a sleeper that is delayed and wakes, a hog's turns end by the timer in a group as outside, and not at a tick
/// (4 ms): `h_nr_queued` of the root queue counts tasks of every level, delayed ones too.
#[test]
fn slices_end_between_ticks_beside_a_delayed_sleeper_of_the_group() {
    let text = |groups: &str, group: &str| {
        format!(
            r#"
            name = "delayed"
            duration = "2s"
            {groups}
            [[task]]
            name = "hog"
            {group}
            steps = [{{ loop = {{ steps = [{{ run = "100ms" }}] }} }}]
            [[task]]
            name = "sleeper"
            {group}
            steps = [{{ loop = {{ steps = [{{ run = "600us" }}, {{ sleep = "100us" }}] }} }}]
            "#
        )
    };
    let grouped = text("[[cgroup]]\npath = \"/a\"", "cgroup = \"/a\"");
    let counts = [text("", ""), grouped].map(|text| {
        let result = run("7.2", 1, &text, &[]);
        result.accounts[1..].iter().map(|account| account.involuntary_switches).collect::<Vec<_>>()
    });
    assert!(counts[0][0] > 500, "{counts:?}");
    assert_eq!(counts[0], counts[1]);
}
