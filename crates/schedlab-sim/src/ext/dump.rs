//! The debug dump that the kernel writes when a scheduler errs: state of CPUs and tasks, and what `ops.dump()`
//! and its like add by `scx_bpf_dump()`.
//!
//! Lines and their order are those of `scx_dump_state` in 7.2. Left out: backtraces, and `ksync`. The text goes
//! to `ops.exit()` in its `scx_exit_info` and into the result of the run.

use super::call::{Op, call};
use super::exit::{ExitInfo, reason};
use super::host::{BOOT_NS, CurrClass, Cx, EVENT_COUNTS, Host};
use super::task::Entity;
use schedlab_bpf::memory::Memory;
use std::fmt::Write as _;

/// `scx_bpf_dump()` writes here while one of the dump callbacks runs.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    /// What was written so far.
    text: String,
    /// What a callback has not ended by a newline yet.
    line: String,
    /// Set before each line of a callback.
    prefix: &'static str,
    /// Nothing came from the callback yet.
    first: bool,
}

/// Names of the counters in `struct scx_event_stats`, in its order.
pub(crate) const EVENT_NAMES: [&str; EVENT_COUNTS] = [
    "SCX_EV_SELECT_CPU_FALLBACK",
    "SCX_EV_DISPATCH_LOCAL_DSQ_OFFLINE",
    "SCX_EV_DISPATCH_KEEP_LAST",
    "SCX_EV_ENQ_SKIP_EXITING",
    "SCX_EV_ENQ_SKIP_MIGRATION_DISABLED",
    "SCX_EV_REENQ_IMMED",
    "SCX_EV_REENQ_LOCAL_REPEAT",
    "SCX_EV_REFILL_SLICE_DFL",
    "SCX_EV_BYPASS_DURATION",
    "SCX_EV_BYPASS_DISPATCH",
    "SCX_EV_BYPASS_ACTIVATE",
    "SCX_EV_INSERT_NOT_OWNED",
    "SCX_EV_SUB_BYPASS_DISPATCH",
];

/// What the kernel puts at the end of a dump that does not fit.
const TRUNCATED: &str = "\n\n~~~~ TRUNCATED ~~~~\n";

impl Dump {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// `scx_bpf_dump()`: text of a callback, which goes out line by line.
    pub(crate) fn add(&mut self, text: &str) {
        self.line.push_str(text);
        if self.line.ends_with('\n') {
            self.flush();
        }
    }

    /// `ops_dump_flush`.
    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return;
        }
        if std::mem::take(&mut self.first) {
            self.line("");
        }
        let prefix = self.prefix;
        line.trim_end_matches('\n').split('\n').for_each(|line| self.line(&format!("{prefix}{line}")));
    }
}

/// `scx_dump_state`: the text for this exit, cut to what the scheduler asked for.
pub(crate) fn state(cx: &mut Cx<'_>, info: &ExitInfo) -> String {
    let room = cx.host().ops.exit_dump_len as usize;
    let Some(context) = new_context(cx, info) else { return String::new() };
    cx.host().dump = Some(Box::default());
    heading(cx, info);
    if cx.host().has_op(Op::Dump) {
        callback(cx, "", Op::Dump, None, [0, 0], &[context]);
    }
    write(cx, "");
    write(cx, "CPU states");
    write(cx, "----------");
    let first = u32::try_from(info.cpu).ok();
    let others = (0..cx.host().nr_cpus).filter(|cpu| Some(*cpu) != first);
    for cpu in first.into_iter().chain(others.collect::<Vec<u32>>()) {
        dump_cpu(cx, context, cpu);
    }
    if cx.host().at_least(6, 15) {
        counters(cx);
    }
    let size = cx.host().layout.dump_size;
    cx.memory().free(context, size, 8);
    let text = cx.host().dump.take().map_or_else(String::new, |dump| dump.text);
    cut(text, room)
}

/// A dump that does not fit says so at its end.
fn cut(mut text: String, room: usize) -> String {
    if text.len() < room || room <= TRUNCATED.len() {
        text.truncate((0..=room.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0));
        return text;
    }
    let end = room - TRUNCATED.len() - 1;
    text.truncate((0..=end).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0));
    text + TRUNCATED
}

fn write(cx: &mut Cx<'_>, line: &str) {
    if let Some(dump) = cx.host().dump.as_deref_mut() {
        dump.line(line);
    }
}

/// A `struct scx_dump_ctx` in the region.
fn new_context(cx: &mut Cx<'_>, info: &ExitInfo) -> Option<u64> {
    let (host, memory) = cx.parts();
    let (size, at) = (host.layout.dump_size, &host.layout.dump);
    let context = memory.alloc(size, 8)?;
    memory.write_u32(context + at.kind, info.kind);
    memory.write_u64(context + at.exit_code, info.code as u64);
    memory.write_u64(context + at.reason, 0);
    memory.write_u64(context + at.at_ns, host.now + BOOT_NS);
    memory.write_u64(context + at.at_jiffies, (host.now + BOOT_NS) / host.tick_ns);
    Some(context)
}

fn heading(cx: &mut Cx<'_>, info: &ExitInfo) {
    let here = cx.cpu();
    let (host, memory) = cx.parts();
    let name = host.at_least(7, 1).then(|| format!("{}: root", host.ops.name));
    let who = host.label(memory, host.rq(here).curr);
    let place = if info.cpu >= 0 { format!(" on CPU {}", info.cpu) } else { String::new() };
    if let Some(name) = name {
        write(cx, &name);
    }
    write(cx, &format!("{who} triggered exit kind {}{place}:", info.kind));
    write(cx, &format!("  {} ({})", reason(info.kind), info.message));
}

/// Runs one of the dump callbacks with `scx_bpf_dump()` open.
fn callback<const N: usize>(
    cx: &mut Cx<'_>,
    prefix: &'static str,
    op: Op,
    locked: Option<u32>,
    subjects: [u32; 2],
    arguments: &[u64; N],
) {
    if let Some(dump) = cx.host().dump.as_deref_mut() {
        (dump.prefix, dump.first) = (prefix, true);
    }
    cx.host().dumping = true;
    call(cx, op, locked, subjects, arguments);
    cx.host().dumping = false;
    if let Some(dump) = cx.host().dump.as_deref_mut() {
        dump.flush();
    }
}

/// `scx_dump_cpu`: an idle CPU is only shown if the scheduler has something to say about it.
fn dump_cpu(cx: &mut Cx<'_>, context: u64, cpu: u32) {
    let host = cx.host();
    let waiting = waiting(host, cpu);
    let rq = host.rq(cpu);
    let idle = waiting.is_empty() && rq.curr_class == CurrClass::Idle;
    if idle && !host.has_op(Op::DumpCpu) {
        return;
    }
    let before = host.dump.as_ref().map_or(0, |dump| dump.text.len());
    let (curr, class) = (rq.curr, rq.curr_class);
    let lines = cpu_lines(host, cpu);
    let (host, memory) = cx.parts();
    let curr_label = host.label(memory, curr);
    lines.iter().for_each(|line| write(cx, line));
    write(cx, &format!("          curr={curr_label} class={}", class_name(class)));
    let plain = cx.host().dump.as_ref().map_or(0, |dump| dump.text.len());
    if cx.host().has_op(Op::DumpCpu) {
        let arguments = [context, cpu.into(), idle.into()];
        callback(cx, "  ", Op::DumpCpu, Some(cpu), [0, 0], &arguments);
    }
    if let Some(dump) = cx.host().dump.as_deref_mut().filter(|dump| idle && dump.text.len() == plain) {
        dump.text.truncate(before);
        return;
    }
    if class == CurrClass::Ext {
        dump_task(cx, context, cpu, curr, '*');
    }
    waiting.into_iter().for_each(|task| dump_task(cx, context, cpu, task, ' '));
}

fn cpu_lines(host: &Host, cpu: u32) -> [String; 2] {
    let rq = host.rq(cpu);
    let online = u32::from(host.is_online(cpu));
    let released = u32::from(rq.released);
    let head = format!("CPU {cpu:<4}: nr_run={} flags=0x{online:x} cpu_rel={released}", rq.nr_running);
    [String::new(), head]
}

fn class_name(class: CurrClass) -> &'static str {
    match class {
        CurrClass::Idle => "idle_sched_class",
        CurrClass::Ext => "ext_sched_class",
        CurrClass::Above(0) => "rt_sched_class",
        CurrClass::Above(_) => "fair_sched_class",
    }
}

/// Tasks that wait on the CPU, in the order of its list.
fn waiting(host: &Host, cpu: u32) -> Vec<u32> {
    let on = |(_, task): &(usize, &Entity)| task.runnable && task.cpu == cpu;
    let mut tasks: Vec<(u64, u32)> = host
        .tasks
        .iter()
        .enumerate()
        .filter(on)
        .map(|(number, task)| (task.runnable_seq, number as u32))
        .collect();
    tasks.sort_unstable();
    tasks.into_iter().map(|(_, task)| task).collect()
}

/// `scx_dump_task`.
fn dump_task(cx: &mut Cx<'_>, context: u64, cpu: u32, task: u32, marker: char) {
    let (host, memory) = cx.parts();
    let lines = task_lines(host, memory, task, marker);
    let address = host.task(task).address;
    lines.iter().for_each(|line| write(cx, line));
    if cx.host().has_op(Op::DumpTask) {
        callback(cx, "    ", Op::DumpTask, Some(cpu), [task, 0], &[context, address]);
    }
}

fn task_lines(host: &Host, memory: &Memory, task: u32, marker: char) -> Vec<String> {
    let entity = host.task(task);
    let at = &host.layout.task;
    let since_ms = (entity.runnable_at as i64 - host.now as i64) / 1_000_000;
    let owner = if host.at_least(7, 1) { " *root" } else { "" };
    let dsq = entity.dsq.map_or_else(|| "(n/a)".to_owned(), |dsq| format!("0x{:x}", host.dsqs.get(dsq).id));
    let word = |offset| memory.read_u64(entity.address + offset);
    let weight = memory.read_u32(entity.address + at.weight);
    let mut cpus = String::new();
    for index in (0..host.nr_cpus.div_ceil(64)).rev() {
        let _ = write!(cpus, "{:x}", host.allowed(task).word(memory, index));
    }
    vec![
        String::new(),
        format!(" {marker}R {}{owner} {since_ms:+}ms", host.label(memory, task)),
        format!(
            "      scx_state/flags={}/0x{:x} dsq_flags=0x{:x} ops_state/qseq={}/{}",
            entity.life as u32,
            entity.flags,
            u32::from(entity.on_priq),
            entity.ops_state as u32,
            entity.qseq
        ),
        format!("      sticky/holding_cpu={}/-1 dsq_id={dsq}", entity.sticky_cpu),
        format!("      dsq_vtime={} slice={} weight={weight}", word(at.dsq_vtime), word(at.slice)),
        format!("      cpus={cpus} no_mig=0"),
    ]
}

fn counters(cx: &mut Cx<'_>) {
    write(cx, "");
    write(cx, "Event counters");
    write(cx, "--------------");
    let counts = cx.host().events;
    for (name, count) in EVENT_NAMES.iter().zip(counts) {
        write(cx, &format!("{name:>40}: {count:>16}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_that_does_not_fit_says_so() {
        assert_eq!(cut("short".to_owned(), 100), "short");
        let text = cut("x".repeat(200), 100);
        assert!(text.len() < 100 && text.ends_with(TRUNCATED), "{text}");
        assert_eq!(cut("x".repeat(200), 8), "x".repeat(8), "no room for the mark");
    }

    #[test]
    fn lines_of_a_callback_get_its_prefix_and_a_blank_line_before() {
        let mut dump = Dump { prefix: "  ", first: true, ..Dump::default() };
        dump.add("one ");
        dump.add("line\nand two\n");
        dump.add("open");
        dump.flush();
        assert_eq!(dump.text, "\n  one line\n  and two\n  open\n");
    }
}
