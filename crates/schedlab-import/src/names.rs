//! What a task's name tells: whether it is a thread of the kernel, which CPU it is bound to, whether it records.
//!
//! Traces do not tell who has no memory of his own, so kernel threads are known by the names the kernel gives them.

use crate::Format;

/// `kthreadd`: parent of all kernel threads.
pub(crate) const KTHREADD: i32 = 2;

/// Programs that make traces of a format; what they start is the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorders(&'static [&'static str]);

impl Recorders {
    /// Those of that format. `perf-exec` is what `perf record` has forked and not yet let start its program.
    pub fn of(format: Format) -> Recorders {
        Recorders(match format {
            Format::Perf => &["perf", "perf-exec"],
            Format::TraceCmd => &["trace-cmd"],
            Format::Perfetto => &["perfetto", "tracebox"],
        })
    }

    /// Whether a task of that name records, or is about to become what a recorder was asked to start.
    pub fn has(self, name: &str) -> bool {
        // Some distributions name the program after a kernel version, perf_6.1.
        let name = if name.starts_with("perf_") { "perf" } else { name };
        self.0.contains(&name)
    }
}

/// Threads of the kernel by the names it gives them: traces do not tell who has no memory of his own.
pub(crate) fn is_kernel_thread(pid: i32, name: &str) -> bool {
    const STARTS: [&str; 13] = [
        "kworker/",
        "ksoftirqd/",
        "migration/",
        "cpuhp/",
        "rcu_",
        "rcuc/",
        "rcuop/",
        "rcuos/",
        "rcuog/",
        "idle_inject/",
        "irq/",
        "jbd2/",
        "watchdog/",
    ];
    const NAMES: [&str; 11] = [
        "kthreadd",
        "kswapd0",
        "kcompactd0",
        "khugepaged",
        "ksmd",
        "kauditd",
        "oom_reaper",
        "kdevtmpfs",
        "khungtaskd",
        "pool_workqueue_",
        "rcub/0",
    ];
    pid == KTHREADD || STARTS.iter().any(|start| name.starts_with(start)) || NAMES.contains(&name)
}

/// The CPU that a kernel thread's name binds it to: `ksoftirqd/3`, `kworker/3:1H`.
pub(crate) fn own_cpu(name: &str) -> Option<u32> {
    let (kind, rest) = name.split_once('/')?;
    let rest = match kind {
        "ksoftirqd" | "migration" | "cpuhp" | "rcuc" | "idle_inject" | "watchdog" => rest,
        "kworker" => rest.split_once(':')?.0,
        _ => return None,
    };
    rest.parse().ok()
}
