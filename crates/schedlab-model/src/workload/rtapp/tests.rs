//! rt-app files: what they become, and that nothing is dropped silently.

use super::*;
use crate::workload::{Amount, ChannelType, Late, Op, TimerRef};

fn ops<'a>(workload: &'a Workload, task: &str) -> &'a [Op] {
    let row = workload.tasks.iter().find(|row| row.name == task).expect(task);
    &workload.programs[row.program.0 as usize].ops
}

fn run(us: u64) -> Op {
    Op::Run(Amount::Fixed(Nanos::from_micros(us)))
}

const GOOD: &str = r#"{
    /* as in rt-app's tutorial */
    "tasks": {
        "worker": {
            "instance": 3, "loop": -1, "priority": 5, "cpus": [0, 2],
            "run": 2000, "sleep": 500, "run1": 100,
            "timer": { "ref": "unique", "period": 16667, "mode": "absolute" }
        },
        "loud": { "policy": "SCHED_FIFO", "loop": 2, "phases": {
            "one": { "loop": 4, "run": 10 }, "two": { "sleep": 20 } } }
    },
    "global": { "duration": 2, "calibration": "CPU0", "default_policy": "SCHED_OTHER", }
}"#;

#[test]
fn a_file_becomes_tasks_with_loops() {
    let workload = parse("tutorial", GOOD).expect("reads");
    assert_eq!(workload.duration, Some(Nanos::from_secs(2)));
    let names: Vec<_> = workload.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["worker-0", "worker-1", "worker-2", "loud"]);
    assert_eq!(workload.tasks[0].attributes.affinity.to_string(), "0,2");
    assert_eq!(workload.tasks[0].attributes.nice.get(), 5);
    assert_eq!(workload.tasks[3].attributes.rt_priority, 10);
    assert_eq!(ops(&workload, "loud").len(), 6, "two loops around a run, and a sleep");
    let period = Nanos::from_micros(16_667);
    let timer = Op::Timer {
        timer: TimerRef::Own(0),
        from_start: true,
        period,
        deadline: period,
        late: Late::CatchUp,
    };
    assert_eq!(ops(&workload, "worker-1")[4], timer);
}

#[test]
fn tasks_meet_by_the_names_of_their_resources() {
    let text = r#"{ "tasks": {
        "a": { "loop": 1, "lock": "m", "wait": { "ref": "c", "mutex": "m" }, "unlock": "m", "barrier": "b" },
        "b": { "instance": 2, "loop": 1, "lock": "m", "broad": "c", "unlock": "m", "barrier": "b" },
        "c": { "loop": 1, "suspend": "", "resume": "d", "sem_post": "s" },
        "d": { "loop": 1, "suspend": "d", "resume": "c", "sem_wait": "s" }
    } }"#;
    let workload = parse("meet", text).expect("reads");
    let channel = |name: &str, kind: ChannelType| {
        let found = workload.channels.iter().position(|spec| spec.name == name && spec.kind == kind);
        crate::ids::ChannelId(found.expect(name) as u32)
    };
    let (lock, condition) = (channel("m", ChannelType::Mutex), channel("c", ChannelType::Condition));
    assert_eq!(ops(&workload, "a")[1], Op::ConditionWait { condition, lock });
    assert_eq!(ops(&workload, "b-1")[1], Op::WakeWaiters { channel: condition, count: u32::MAX });
    let barrier = channel("b", ChannelType::Barrier);
    assert_eq!(workload.channels[barrier.index()].capacity, 3, "one of a and two of b");
    // Suspending is waiting under a mutex and a condition of the task's own name, which resume uses too.
    let own = channel("c", ChannelType::Mutex);
    assert_eq!(ops(&workload, "c")[0], Op::Lock { channel: own });
    assert_eq!(ops(&workload, "d")[3], Op::Lock { channel: own });
    assert_eq!(
        ops(&workload, "d")[6],
        Op::Take { channel: channel("s", ChannelType::Tokens), timeout: None }
    );
}

#[test]
fn phases_inherit_policy_and_group_but_not_cpus() {
    let text = r#"{ "tasks": { "a": { "cpus": [2], "loop": 3, "phases": {
        "p": { "run": 1 },
        "q": { "cpus": [0], "policy": "SCHED_BATCH", "priority": 7, "run": 2 },
        "r": { "taskgroup": "/tg1", "run": 3 }
    } } } }"#;
    let workload = parse("phases", text).expect("reads");
    let ops = ops(&workload, "a");
    let sets: Vec<_> = ops
        .iter()
        .filter_map(|op| match op {
            Op::SetAttributes(to) => {
                Some((to.policy, to.nice.get(), to.affinity.to_string(), to.cgroup.clone()))
            }
            _ => None,
        })
        .collect();
    let batch = |cpus: &str, group: &str| (Policy::Batch, 7, cpus.to_owned(), group.to_owned());
    // First round; then, in the later two, p stays BATCH in tg1 and needs no change.
    assert_eq!(sets, [batch("0", ""), batch("2", "tg1"), batch("0", "tg1"), batch("2", "tg1")]);
    let start = ops.iter().position(|op| matches!(op, Op::LoopStart { .. })).expect("a loop");
    assert_eq!(ops[start], Op::LoopStart { count: 2 });
    assert_eq!(ops[start + 1], run(1));
}

#[test]
fn a_forked_task_is_a_template_and_also_runs_if_it_has_instances() {
    let text = r#"{ "tasks": {
        "t1": { "loop": 1, "run": 10 },
        "t2": { "instance": 0, "loop": 1, "delay": 5, "run": 20 },
        "t3": { "loop": 1, "phases": { "p": { "fork": "t1", "run": 1 }, "q": { "fork": "t2", "run": 1 } } }
    } }"#;
    let workload = parse("forks", text).expect("reads");
    let rows: Vec<_> = workload.tasks.iter().map(|row| (row.name.as_str(), row.template)).collect();
    assert_eq!(rows, [("t1", false), ("t1-fork", true), ("t2-fork", true), ("t3", false)]);
    assert_eq!(ops(&workload, "t2-fork"), [Op::SleepUntil(Nanos::from_micros(5)), run(20)][..].as_ref());
    let error = parse("bad", r#"{"tasks":{"a":{"fork":"nobody"}}}"#).expect_err("no such task").to_string();
    assert!(error.contains("no task 'nobody'"), "{error}");
}

#[test]
fn timers_are_shared_unless_unique() {
    let text = r#"{ "tasks": { "a": { "phases": {
        "p": { "timer": { "ref": "tick", "period": 10 } },
        "q": { "timer": { "ref": "uniqueA", "period": 20 }, "timer": { "ref": "uniqueB", "period": 30 } }
    } }, "b": { "timer": { "ref": "tick", "period": 10, "mode": "absolute" } } } }"#;
    let workload = parse("timers", text).expect("reads");
    let timers = |task: &str| -> Vec<(TimerRef, bool)> {
        let timer = |op: &Op| match op {
            Op::Timer { timer, late, .. } => Some((*timer, *late == Late::Resync)),
            _ => None,
        };
        ops(&workload, task).iter().filter_map(timer).collect()
    };
    let shared = (TimerRef::Shared(0), false);
    assert_eq!(timers("a"), [shared, (TimerRef::Own(0), true), (TimerRef::Own(1), true)]);
    assert_eq!(timers("b"), [shared]);
}

#[test]
fn runtime_is_elapsed_time_and_dl_runtime_a_slice() {
    let text = r#"{ "tasks": { "a": { "dl-runtime": 3000, "runtime1": 1000 } } }"#;
    let workload = parse("times", text).expect("reads");
    assert_eq!(workload.tasks[0].attributes.slice, Some(Nanos::from_millis(3)));
    let spin = Op::Spin { time: Nanos::from_millis(1), piece: Nanos::from_micros(32) };
    assert_eq!(ops(&workload, "a")[1], spin);
}

#[test]
fn only_what_is_read_is_called_supported() {
    let error = parse("bad", "{\"tasks\":{\"a\":{\"phases\":{\"p\":{\"jump\":1}}}}}")
        .expect_err("no such key")
        .to_string();
    let (_, listed) = error.split_once("the events ").expect("a list");
    for event in listed.split(", ") {
        let text = format!("{{\"tasks\":{{\"a\":{{\"{event}\":\"a\"}}}}}}");
        let refused = parse("listed", &text).err().map_or(String::new(), |error| error.to_string());
        assert!(!refused.contains("not supported"), "{event}: {refused}");
    }
    assert!(listed.contains("sem_wait") && !listed.contains("mem"), "{listed}");
}

#[test]
fn what_is_not_supported_is_an_error_with_its_line() {
    let check = |text: &str, expected: &str| {
        let error = parse("bad", text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("{\n\"tasks\": {\n \"a\": {\n \"mem\": 5 } } }", "line 4: tasks.a.mem");
    check("{\"tasks\":{\"a\":{\"run\":-3}}}", "whole number");
    check("{\"tasks\":{\"a\":{\"run\":1.5}}}", "whole number");
    check("{\n\"tasks\":{\"a\":{\"run\":3", "line 2: ");
    check("{\"tasks\":{\"a\":{\"policy\":\"SCHED_DEADLINE\",\"run\":3}}}", "not supported");
    check("{\"tasks\":{\"a\":{\"util_min\":3,\"run\":3}}}", "util_min: is not supported");
    check("{\"tasks\":{\"a\":{\"run\":3,\"phases\":{\"p\":{\"run\":3}}}}}", "beside phases");
    check("{\"tasks\":{\"a\":{\"run\":3}},\"global\":{\"pi_enabled\":true}}", "priority inheritance");
    check("{\"tasks\":{\"a\":{\"run\":3}},\"resources\":2}", "before 2014");
    check("{\"tasks\":{}}", "no task that starts");
    check("{\"tasks\":{\"a\":{\"loop\":-1}}}", "has no event");
    check("{\"tasks\":{\"a\":{\"loop\":0,\"run\":3}}}", "never runs");
    check("", "empty");
    let many = "{ \"instance\": 60000, \"run\": 3 }";
    let expected = "line 3: tasks.b: with 'b' the workload has 120000 tasks: at most 100000";
    check(&format!("{{\"tasks\":{{\n\"a\":{many},\n\"b\":{many} }} }}"), expected);
}
