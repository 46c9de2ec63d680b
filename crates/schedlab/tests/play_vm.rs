//! `play` and `machine --calibrate` under kernels of their own, in virtual machines. Ignored but by `cargo xtask test vm`.

mod support;

use serde_json::Value;
use std::process::Command;
use support::{BINARY, Ended, file, scratch};

const WORK: &str = r#"
name = "guest"
[channels]
pipe = { type = "bytes", capacity = 4096 }
[[task]]
name = "maker"
steps = [{ loop = { count = 50, steps = [{ run = "100us" }, { send = { channel = "pipe", bytes = 8 } }] } }, { fork = "child" },
         { wait_children = true }]
[[task]]
name = "taker"
policy = "fifo"
rt_priority = 3
steps = [{ loop = { count = 50, steps = [{ receive = { channel = "pipe", bytes = 8 } }] } }]
[[task]]
name = "child"
template = true
steps = [{ run = "1ms" }, { job_end = true }]
"#;

/// Recorded beneath the kernel's own BTF and measured there; the document comes out.
#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn a_workload_is_played_and_recorded_under_other_kernels() {
    let directory = scratch("play-vm");
    let path = file(&directory, "w.toml", WORK);
    for kernel in ["6.12", "7.2"] {
        let files = format!("{path}=/w.toml");
        let play = ["schedlab", "play", "/w.toml", "--json", "-"];
        let both =
            "schedlab play /w.toml --json - && schedlab machine --calibrate --rounds 1 --json /machine";
        let calibrates = kernel == "7.2";
        // The kernel patches itself while it boots, and with every round in which the recorder comes and goes: an emulator
        // whose CPUs have threads of their own trips over it now and then.
        let mut words = vec!["vm", "boot", "--kernel", kernel, "--turns", "--file", &files];
        if calibrates {
            words.extend(["--collect", "/machine=machine.json", "--", "sh", "-c", both]);
        } else {
            words.push("--");
            words.extend(play);
        }
        let output = Command::new(BINARY).args(&words).current_dir(&directory).output();
        let ended = Ended::of(output.expect("starts")).done();
        if calibrates {
            let text = std::fs::read_to_string(directory.join("machine.json")).expect("collected");
            judge_calibration(&serde_json::from_str(&text).expect("JSON"));
        }
        let result: Value = ended.json();
        assert_eq!(result["obtained"], "tried_in_vm", "{kernel}");
        assert!(
            result["environment"]["kernel"].as_str().is_some_and(|text| kernel.starts_with(text)),
            "{result}"
        );
        let tasks = result["runs"][0]["tasks"].as_array().expect("tasks");
        let cpu = |name: &str| {
            let task = tasks.iter().find(|task| task["name"] == name && task["target"] == true);
            task.and_then(|task| task["cpu_time_ns"].as_u64()).unwrap_or(0)
        };
        assert!(cpu("maker") >= 5_000_000 && cpu("child") >= 1_000_000, "{kernel}: {tasks:?}");
        assert!(cpu("taker") > 0, "{kernel}: {tasks:?}");
    }
}

/// A calibration from within: every cost is measured, with its quantiles, or there is a reason, and what holds on any machine
/// holds.
fn judge_calibration(machine: &Value) {
    assert!(machine["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("7.2")), "{machine}");
    let (costs, calibration) = (&machine["costs"], &machine["calibration"]);
    let reasons = calibration["not_measured"].as_object().expect("reasons");
    for (name, cost) in costs.as_object().expect("costs") {
        let measured = cost["origin"] == "measured";
        assert!(measured != reasons.contains_key(name), "{name}: {machine}");
        assert!(!measured || cost["quantiles"].is_array(), "{name}: {machine}");
    }
    for (name, says) in
        [("balance_per_cpu", "no event"), ("ext_callback", "sched_ext"), ("migration_node", "apart")]
    {
        assert!(reasons[name].as_str().is_some_and(|reason| reason.contains(says)), "{name}: {machine}");
    }
    // Emulated or not, and however busy the host: longer than an instruction takes, shorter than a time slice.
    for name in ["context_switch", "wakeup", "tick", "timer_latency"] {
        assert_eq!(costs[name]["origin"], "measured", "{name}: {machine}");
        let typical = costs[name]["value"].as_u64();
        assert!(typical.is_some_and(|ns| (20..20_000_000).contains(&ns)), "{name}: {machine}");
    }
    let rounds = |name: &str| calibration[name].as_u64().unwrap_or(0);
    assert_eq!((rounds("rounds"), rounds("rounds_used")), (1, 1), "{machine}");
    let median = |name: &str| calibration["seen"][name]["median"].as_u64().unwrap_or(0);
    // A trip to another task is two such writes and reads, and more; a sleep lasts at least as long as it was to.
    assert!(median("pipe_write_and_read") > 0 && median("futex_wake_of_nobody") > 0, "{machine}");
    assert!(median("pipe_trip_same_cpu") > median("pipe_write_and_read"), "{machine}");
    assert!(median("futex_trip_same_cpu") > median("futex_wake_of_nobody"), "{machine}");
    assert!(median("sleep_overshoot") > 10_000, "there is the timer slack alone: {machine}");
}
