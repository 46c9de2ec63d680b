//! Reads rt-app's JSON task graphs (scheduler-tools/rt-app, doc/tutorial.txt) into a [`Workload`].
//!
//! This first import knows `run`, `sleep`, `timer`, `loop`, `phases`, `instance`, `delay`, `priority`,
//! `policy` and `cpus`; everything else is an error that names the line, never silently dropped. Times are
//! microseconds, as in rt-app.

use super::builder::Builder;
use super::file::WorkloadError;
use super::{Amount, Op, Workload};
use crate::cpu_set::{CPUS_MAX, CpuSet};
use crate::ids::CpuId;
use crate::policy::{Nice, Policy, TaskAttributes};
use crate::time::Nanos;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// JSON whose objects keep their order and may repeat a key, as rt-app files do (`run`, `sleep`, `run`).
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        struct JsonVisitor;
        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = Json;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Json, E> {
                Ok(Json::Bool(value))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Json, E> {
                Ok(Json::Number(value as f64))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Json, E> {
                Ok(Json::Number(value as f64))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Json, E> {
                Ok(Json::Number(value))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Json, E> {
                Ok(Json::Text(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
                let mut list = Vec::new();
                while let Some(value) = seq.next_element()? {
                    list.push(value);
                }
                Ok(Json::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut object = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    object.push(entry);
                }
                Ok(Json::Object(object))
            }
        }
        deserializer.deserialize_any(JsonVisitor)
    }
}

/// Where an error is: the text and the keys that lead there.
#[derive(Clone)]
struct Place<'a> {
    text: &'a str,
    path: Vec<&'a str>,
}

impl<'a> Place<'a> {
    fn at(&self, key: &'a str) -> Place<'a> {
        let mut path = self.path.clone();
        path.push(key);
        Place { text: self.text, path }
    }

    /// The line of the last key of the path, found by searching each key after the one before.
    fn line(&self) -> usize {
        let mut from = 0;
        for key in &self.path {
            match self.text[from..].find(&format!("\"{key}\"")) {
                Some(found) => from += found + 1,
                None => break,
            }
        }
        self.text[..from].matches('\n').count() + 1
    }

    fn error(&self, what: impl fmt::Display) -> WorkloadError {
        WorkloadError::RtApp(format!("line {}: {}: {what}", self.line(), self.path.join(".")))
    }

    fn object(&self, json: &'a Json) -> Result<&'a [(String, Json)], WorkloadError> {
        match json {
            Json::Object(object) => Ok(object),
            _ => Err(self.error("must be an object { ... }")),
        }
    }

    fn integer(&self, json: &Json, min: i64, max: i64) -> Result<i64, WorkloadError> {
        match json {
            Json::Number(n) if n.fract() == 0.0 && (min as f64..=max as f64).contains(n) => Ok(*n as i64),
            _ => Err(self.error(format!("must be a whole number, {min} to {max}"))),
        }
    }

    fn micros(&self, json: &Json) -> Result<Nanos, WorkloadError> {
        self.integer(json, 0, 1_000_000_000_000).map(|us| Nanos::from_micros(us as u64))
    }

    fn text(&self, json: &'a Json) -> Result<&'a str, WorkloadError> {
        match json {
            Json::Text(text) => Ok(text),
            _ => Err(self.error("must be a string")),
        }
    }

    fn policy(&self, json: &'a Json) -> Result<Policy, WorkloadError> {
        Ok(match self.text(json)? {
            "SCHED_OTHER" | "SCHED_NORMAL" => Policy::Normal,
            "SCHED_BATCH" => Policy::Batch,
            "SCHED_IDLE" => Policy::Idle,
            "SCHED_FIFO" => Policy::Fifo,
            "SCHED_RR" => Policy::Rr,
            other => {
                let known = "SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO, SCHED_RR";
                return Err(self.error(format!("policy {other} is not supported; supported: {known}")));
            }
        })
    }
}

/// Settings of the `global` object that matter here.
struct Global {
    duration: Option<Nanos>,
    policy: Policy,
}

/// Keys of `global` that only steer rt-app's own measuring and writing of files.
const GLOBAL_IGNORED: &[&str] = &[
    "calibration",
    "ftrace",
    "gnuplot",
    "logdir",
    "log_basename",
    "log_size",
    "lock_pages",
    "frag",
    "pi_enabled",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
];

/// Reads an rt-app file.
///
/// # Errors
/// [`WorkloadError::RtApp`] with the line of what cannot be read or is not supported.
pub fn parse(name: &str, text: &str) -> Result<Workload, WorkloadError> {
    let plain = strip_comments(text);
    let json: Json = serde_json::from_str(&plain).map_err(|error| WorkloadError::RtApp(error.to_string()))?;
    let root = Place { text: &plain, path: Vec::new() };
    let mut global = Global { duration: None, policy: Policy::Normal };
    let mut builder = Builder::new(name, "imported from an rt-app file");
    let mut tasks: &[(String, Json)] = &[];
    for (key, value) in root.object(&json)? {
        let place = root.at(key);
        match key.as_str() {
            "global" => global = read_global(&place, value)?,
            "tasks" => tasks = place.object(value)?,
            "resources" => return Err(place.error("resources are not supported")),
            _ => return Err(place.error("unknown; rt-app files have tasks, resources and global")),
        }
    }
    for (key, value) in tasks {
        read_task(&mut builder, &global, &root.at("tasks").at(key), key, value)?;
    }
    Ok(builder.finish(global.duration)?)
}

/// Blanks out `/* */` and `//` comments outside of strings, which rt-app accepts; lines stay where they are.
fn strip_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some(_)) if quoted => out.extend([c, rest.next().unwrap_or(' ')]),
            ('"', _) => {
                quoted = !quoted;
                out.push(c);
            }
            ('/', Some('/')) if !quoted => {
                while rest.peek().is_some_and(|c| *c != '\n') {
                    rest.next();
                }
            }
            ('/', Some('*')) if !quoted => {
                let mut last = ' ';
                rest.next();
                for c in rest.by_ref() {
                    if c == '\n' {
                        out.push(c);
                    }
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    last = c;
                }
            }
            _ => out.push(c),
        }
    }
    out
}

fn read_global(place: &Place<'_>, json: &Json) -> Result<Global, WorkloadError> {
    let mut global = Global { duration: None, policy: Policy::Normal };
    for (key, value) in place.object(json)? {
        let at = place.at(key);
        match key.as_str() {
            "duration" => {
                let seconds = at.integer(value, -1, 1_000_000)?;
                global.duration = u64::try_from(seconds).ok().map(Nanos::from_secs);
            }
            "default_policy" => global.policy = at.policy(value)?,
            key if GLOBAL_IGNORED.contains(&key) => {}
            _ => return Err(at.error("is not supported")),
        }
    }
    Ok(global)
}

/// What a task object says besides its events.
struct TaskHead {
    instance: u32,
    loops: i64,
    delay: Nanos,
    priority: Option<i64>,
    policy: Policy,
    cpus: CpuSet,
}

fn read_task(
    builder: &mut Builder,
    global: &Global,
    place: &Place<'_>,
    name: &str,
    json: &Json,
) -> Result<(), WorkloadError> {
    let object = place.object(json)?;
    let mut head = TaskHead {
        instance: 1,
        loops: -1,
        delay: Nanos::ZERO,
        priority: None,
        policy: global.policy,
        cpus: CpuSet::ALL,
    };
    let mut body = Vec::new();
    for (key, value) in object {
        let at = place.at(key);
        match key.as_str() {
            "instance" => head.instance = at.integer(value, 0, 100_000)? as u32,
            "loop" => head.loops = at.integer(value, -1, i64::from(u32::MAX))?,
            "delay" => head.delay = at.micros(value)?,
            "priority" => head.priority = Some(at.integer(value, -20, 99)?),
            "policy" => head.policy = at.policy(value)?,
            "cpus" => head.cpus = read_cpus(&at, value)?,
            "phases" => {
                for (phase, steps) in at.object(value)? {
                    read_phase(&at.at(phase), steps, &mut body)?;
                }
            }
            _ => body.push(read_event(&at, key, value)?),
        }
    }
    if body.is_empty() {
        return Err(place.error("has no event: give it at least a run, sleep or timer"));
    }
    if head.loops == 0 {
        return Err(place.error("loop 0 never runs: write -1 for ever, or the number of rounds"));
    }
    let mut ops = vec![Op::LoopStart { count: u32::try_from(head.loops).unwrap_or(0) }];
    ops.append(&mut body);
    ops.push(Op::LoopEnd);
    let attributes = attributes(place, &head)?;
    let program = builder.program(ops);
    for instance in 0..head.instance {
        let full = if head.instance == 1 { name.to_owned() } else { format!("{name}-{instance}") };
        builder.task_with(&full, "rt-app", attributes.clone(), program).start = head.delay;
    }
    Ok(())
}

fn attributes(place: &Place<'_>, head: &TaskHead) -> Result<TaskAttributes, WorkloadError> {
    let mut attributes =
        TaskAttributes { policy: head.policy, affinity: head.cpus, ..TaskAttributes::default() };
    if head.policy.is_realtime() {
        // rt-app's default priority for FIFO and RR.
        let priority = head.priority.unwrap_or(10);
        attributes.rt_priority = u8::try_from(priority)
            .map_err(|_| place.at("priority").error("must be 1 to 99 for SCHED_FIFO and SCHED_RR"))?;
    } else if let Some(priority) = head.priority {
        attributes.nice = Nice::new(priority).map_err(|error| place.at("priority").error(error))?;
    }
    Ok(attributes)
}

fn read_cpus(place: &Place<'_>, json: &Json) -> Result<CpuSet, WorkloadError> {
    let Json::List(list) = json else { return Err(place.error("must be a list of CPU numbers")) };
    list.iter().map(|cpu| place.integer(cpu, 0, CPUS_MAX as i64 - 1).map(|cpu| CpuId(cpu as u32))).collect()
}

fn read_phase(place: &Place<'_>, json: &Json, ops: &mut Vec<Op>) -> Result<(), WorkloadError> {
    let object = place.object(json)?;
    let mut loops = 1;
    let mut body = Vec::new();
    for (key, value) in object {
        let at = place.at(key);
        match key.as_str() {
            "loop" => loops = at.integer(value, -1, i64::from(u32::MAX))?,
            _ => body.push(read_event(&at, key, value)?),
        }
    }
    if loops == 0 {
        return Err(place.error("loop 0 never runs: write -1 for ever, or the number of rounds"));
    }
    if loops == 1 {
        ops.append(&mut body);
        return Ok(());
    }
    ops.push(Op::LoopStart { count: u32::try_from(loops).unwrap_or(0) });
    ops.append(&mut body);
    ops.push(Op::LoopEnd);
    Ok(())
}

/// An event: rt-app tells its kind by how the key begins, so that `run1` and `run2` can stand in one object.
fn read_event(place: &Place<'_>, key: &str, json: &Json) -> Result<Op, WorkloadError> {
    let is = |kind: &str| key.strip_prefix(kind).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
    if is("run") {
        return place.micros(json).map(|time| Op::Run(Amount::Fixed(time)));
    }
    if is("sleep") {
        return place.micros(json).map(|time| Op::Sleep(Amount::Fixed(time)));
    }
    if is("timer") {
        return read_timer(place, json);
    }
    let known = "run, sleep, timer, phases, loop, instance, delay, priority, policy, cpus";
    Err(place.error(format!("is not supported; supported: {known}")))
}

fn read_timer(place: &Place<'_>, json: &Json) -> Result<Op, WorkloadError> {
    let mut period = None;
    let mut resync = true;
    for (key, value) in place.object(json)? {
        let at = place.at(key);
        match key.as_str() {
            // Each task has its own timer here. rt-app shares a timer between tasks that name the same one
            // only in what name it prints: the next expiry is kept per thread for "unique" names.
            "ref" if at.text(value)?.starts_with("unique") => {}
            "ref" => return Err(at.error("only \"unique\" timers are supported")),
            "period" => period = Some(at.micros(value)?),
            "mode" => {
                resync = match at.text(value)? {
                    "absolute" => false,
                    "relative" => true,
                    _ => return Err(at.error("must be \"absolute\" or \"relative\"")),
                }
            }
            _ => return Err(at.error("is not supported in a timer")),
        }
    }
    let period = period.ok_or_else(|| place.error("needs a period"))?;
    Ok(Op::Timer { period, deadline: period, resync })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        "global": { "duration": 2, "calibration": "CPU0", "default_policy": "SCHED_OTHER" }
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
        let ops = &workload.programs[workload.tasks[3].program.0 as usize].ops;
        assert_eq!(ops.len(), 6, "two loops around a run, and a sleep: {ops:?}");
        assert_eq!(workload.programs[0].ops.len(), 6);
    }

    #[test]
    fn what_is_not_supported_is_an_error_with_its_line() {
        let check = |text: &str, expected: &str| {
            let error = parse("bad", text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("{\n\"tasks\": {\n \"a\": {\n \"barrier\": \"b\" } } }", "line 4: tasks.a.barrier");
        check("{\"tasks\":{\"a\":{\"run\":-3}}}", "whole number");
        check("{\"tasks\":{\"a\":{\"run\":3", "EOF");
        check("{\"tasks\":{\"a\":{\"policy\":\"SCHED_DEADLINE\",\"run\":3}}}", "not supported");
        check("{\"tasks\":{}}", "no task that starts");
        check("{\"tasks\":{\"a\":{\"loop\":-1}}}", "has no event");
    }
}
