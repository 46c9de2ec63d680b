//! What the kernel dumps when it ends a scheduler for a mistake, and who was waiting then.
//!
//! bpf/dump_lines.bpf.c takes the lines of the tracepoint `sched_ext_dump`. The form of a task's line is that of
//! `scx_dump_task`, of a CPU's that of `scx_dump_state`, in the kernel's kernel/sched/ext/ext.c.

use super::object::{self, Opened};
use libbpf_rs::{Link, MapCore, Object, RingBufferBuilder};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// `LINE_BYTES` of bpf/dump_lines.bpf.c.
const LINE_BYTES: usize = 128;

/// Listens from now on.
pub struct DumpLog {
    object: Object,
    _link: Link,
}

/// A task that could run when the scheduler was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Name and number, as `sh[7]`.
    pub task: String,
    /// The CPU whose it was.
    pub cpu: Option<u32>,
    /// For how long it had been runnable, ms.
    pub waits_ms: u64,
    /// Whether it was on the CPU.
    pub running: bool,
}

impl DumpLog {
    /// Begins to listen; `None` where the kernel has no such tracepoint or refuses.
    pub fn listen() -> Option<DumpLog> {
        let object = Opened::new(schedlab_objects::DUMP_LINES).ok()?.load().ok()?;
        let program = object.progs_mut().find(|program| object::name_of(program.name()) == "on_line")?;
        let link = program.attach_trace().ok()?;
        Some(DumpLog { object, _link: link })
    }

    /// The lines since the last time.
    pub fn take(&self) -> Vec<String> {
        let lines: Rc<RefCell<Vec<String>>> = Rc::default();
        let Some(map) = self.object.maps().find(|map| map.name() == "lines") else { return Vec::new() };
        let mut builder = RingBufferBuilder::new();
        let into = Rc::clone(&lines);
        let keep = move |bytes: &[u8]| {
            let end = bytes.iter().take(LINE_BYTES).position(|byte| *byte == 0).unwrap_or(bytes.len());
            into.borrow_mut().push(String::from_utf8_lossy(&bytes[..end]).into_owned());
            0
        };
        // A dump that cannot be read is none: the exit record says the reason.
        if builder.add(&map, keep).is_ok()
            && let Ok(ring) = builder.build()
        {
            let _ = ring.poll(Duration::ZERO);
        }
        lines.take()
    }
}

/// Who could run, those that waited longest first.
pub fn waiting(dump: &[String]) -> Vec<Waiting> {
    let mut cpu = None;
    let mut found = Vec::new();
    for line in dump {
        if let Some(rest) = line.strip_prefix("CPU ") {
            cpu = rest.split([' ', ':']).next().and_then(|number| number.parse().ok());
        } else if let Some(task) = task(line, cpu) {
            found.push(task);
        }
    }
    found.sort_by_key(|task| (task.running, std::cmp::Reverse(task.waits_ms)));
    found
}

/// ` *R sh[7] *root -2310ms`: a mark for the running one, its state, who it is, its scheduler in newer kernels, since when
/// it is runnable.
fn task(line: &str, cpu: Option<u32>) -> Option<Waiting> {
    let rest = line.strip_prefix(' ')?;
    let running = rest.starts_with('*');
    let rest = rest.get(2..)?.strip_prefix(' ')?;
    let (task, after) = rest.split_at(rest.rfind("] ")? + 1);
    let since: i64 = after.split(' ').next_back()?.strip_suffix("ms")?.parse().ok()?;
    let is_task = task.contains('[') && !task.starts_with(' ');
    let waits_ms = u64::try_from(-since).unwrap_or(0);
    is_task.then(|| Waiting { task: task.to_owned(), cpu, waits_ms, running })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_read_from_a_dump() {
        let lines = [
            "stall[1130] triggered exit kind 1026:",
            "",
            "CPU states",
            "CPU 0   : nr_run=2 flags=0x1 cpu_rel=0 ops_qseq=8 ksync=9",
            "          curr=swapper/0[0] class=idle_sched_class",
            "",
            "  R my task[12] -310ms",
            "      scx_state/flags=3/0x9 dsq_flags=0x0 ops_state/qseq=2/34",
            "CPU 1   : nr_run=1 flags=0x1 cpu_rel=0 ops_qseq=8 ksync=9",
            " *R hog[7] -900ms",
            "  R sh[9] *root -2310ms",
        ];
        let found = waiting(&lines.map(str::to_owned));
        let rows: Vec<(&str, Option<u32>, u64, bool)> =
            found.iter().map(|task| (&*task.task, task.cpu, task.waits_ms, task.running)).collect();
        assert_eq!(
            rows,
            [
                ("sh[9]", Some(1), 2_310, false),
                ("my task[12]", Some(0), 310, false),
                ("hog[7]", Some(1), 900, true)
            ]
        );
        assert!(waiting(&[]).is_empty());
    }
}
