//! The callbacks of a scenario's tasks as a sequence that two kernels can be compared by.
//!
//! A log of calls has pids, times and everybody else's tasks; the sequence has the scenario's own tasks by name, in order,
//! with arguments and return values, between two instants. A log in which somebody else's task took part while one of
//! the scenario's wanted the CPU is no answer and is refused: play it again. Pure; both arms use it.

use super::callbacks::Call;

/// Calls before this are the making of the tasks, which differs between a program and a simulation.
pub const START_NS: u64 = 20_000_000;

/// Why a log cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A task that is not of the scenario took part.
    #[error("{task} ({callback}) came between the scenario's tasks; play it again")]
    Disturbed {
        /// The other task.
        task: String,
        /// What was called for it.
        callback: String,
    },
    /// A stronger class took the CPU from a task.
    #[error("{task} was preempted by a stronger class; play it again")]
    Preempted {
        /// The task.
        task: String,
    },
    /// None of the tasks was seen.
    #[error("no callback of the scenario's tasks was logged")]
    Empty,
}

/// The calls about the tasks `names` of process `tgid`, from `origin_ns + START_NS` for `duration_ns` after the origin.
/// One line each: callback, task, arguments, and `-> value` where it returns one.
pub fn sequence(calls: &[Call], names: &[&str], span: Span) -> Result<Vec<String>, Unusable> {
    let within = |call: &&Call| {
        let since = call.time_ns.saturating_sub(span.origin_ns);
        (START_NS..span.duration_ns).contains(&since)
    };
    let mut runnable: Vec<&str> = Vec::new();
    let mut preempted: Option<&str> = None;
    let mut lines = Vec::new();
    for call in calls.iter().filter(within) {
        let own = names.iter().find(|name| call.tgid == span.tgid && call.comm == **name);
        let Some(name) = own else {
            let takes_part = matches!(call.callback.as_str(), "enqueue" | "running");
            if takes_part && !runnable.is_empty() {
                return Err(Unusable::Disturbed { task: call.comm.clone(), callback: call.callback.clone() });
            }
            continue;
        };
        match call.callback.as_str() {
            "running" if preempted == Some(name) => {
                return Err(Unusable::Preempted { task: (*name).to_string() });
            }
            "enqueue" | "running" => {
                runnable.retain(|other| other != name);
                runnable.push(name);
                preempted = None;
            }
            "stopping" if call.args == [0] => runnable.retain(|other| other != name),
            "stopping" => preempted = Some(name),
            _ => {}
        }
        lines.push(line(call, name));
    }
    if lines.is_empty() { Err(Unusable::Empty) } else { Ok(lines) }
}

/// What of a log belongs to one play of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The player's process.
    pub tgid: i32,
    /// When its first task started, on the log's clock.
    pub origin_ns: u64,
    /// How long after that the log counts.
    pub duration_ns: u64,
}

fn line(call: &Call, name: &str) -> String {
    let mut text = format!("{} {name}", call.callback);
    for argument in &call.args {
        text.push_str(&format!(" {argument}"));
    }
    if let Some(value) = call.ret {
        text.push_str(&format!(" -> {value}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { tgid: 7, origin_ns: 1_000, duration_ns: 2 * START_NS };

    fn call(time_ns: u64, callback: &str, comm: &str, args: &[i64]) -> Call {
        Call {
            n: time_ns,
            time_ns: SPAN.origin_ns + START_NS + time_ns,
            cpu: 0,
            callback: callback.into(),
            pid: 1,
            tgid: if comm == "other" { 1 } else { SPAN.tgid },
            comm: comm.into(),
            args: args.to_vec(),
            ret: (callback == "select_cpu").then_some(3),
            slice_ns: 0,
            dsq_vtime: 0,
        }
    }

    fn check(calls: &[Call]) -> Result<Vec<String>, Unusable> {
        sequence(calls, &["A", "B"], SPAN)
    }

    #[test]
    fn own_calls_become_lines_in_order() {
        let calls = [
            call(0, "select_cpu", "A", &[0, 8]),
            call(1, "enqueue", "A", &[9]),
            call(2, "running", "A", &[]),
            call(3, "stopping", "A", &[0]),
            call(4, "running", "other", &[]),
            call(START_NS, "running", "A", &[]),
        ];
        assert_eq!(
            check(&calls).unwrap(),
            ["select_cpu A 0 8 -> 3", "enqueue A 9", "running A", "stopping A 0"]
        );
    }

    #[test]
    fn disturbed_logs_are_refused() {
        let other = [call(0, "running", "A", &[]), call(1, "enqueue", "other", &[9])];
        assert!(matches!(check(&other), Err(Unusable::Disturbed { .. })));
        let class =
            [call(0, "running", "A", &[]), call(1, "stopping", "A", &[1]), call(2, "running", "A", &[])];
        assert!(matches!(check(&class), Err(Unusable::Preempted { .. })));
        assert_eq!(check(&[call(0, "running", "other", &[])]), Err(Unusable::Empty));
    }

    #[test]
    fn a_slice_that_ends_is_no_preemption() {
        let calls = [
            call(0, "running", "A", &[]),
            call(1, "stopping", "A", &[1]),
            call(2, "enqueue", "A", &[0]),
            call(3, "running", "A", &[]),
        ];
        assert_eq!(check(&calls).unwrap().len(), 4);
    }
}
