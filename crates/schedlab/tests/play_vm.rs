//! `play` under kernels of their own, in virtual machines. Behind the feature `vm-tests`.

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
fn a_workload_is_played_and_recorded_under_other_kernels() {
    let directory = scratch("play-vm");
    let path = file(&directory, "w.toml", WORK);
    for kernel in ["6.12", "7.2"] {
        let files = format!("{path}=/w.toml");
        let command = ["schedlab", "play", "/w.toml", "--json", "-"];
        let mut words = vec!["vm", "boot", "--kernel", kernel, "--file", &files, "--"];
        words.extend(command);
        let output = Command::new(BINARY).args(&words).current_dir(&directory).output();
        let ended = Ended::of(output.expect("starts")).done();
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
