//! Workload files: what is read, and how what is wrong is told.

use super::file::parse;
use super::{Amount, Op, change, file};
use crate::cpu_set::CpuSet;
use crate::ids::CpuId;
use crate::time::Nanos;

const GOOD: &str = r#"
name = "pipeline"
duration = "2s"

[channels]
queue = { type = "bytes", capacity = 4096 }
link = { type = "socket", capacity = 1000 }
ring = { type = "tokens", count = 3, initial = 1 }
table = { type = "mutex" }

[behaviours]
hog = [{ loop = { steps = [{ run = "10ms" }] } }]

[[task]]
name = "producer"
nice = -5
steps = [
    { fork = "helper" },
    { loop = { count = 100, steps = [
        { run = { uniform = ["50us", "150us"] } },
        { send = { channel = "queue", bytes = 64 } },
    ] } },
    { close = "queue" },
]

[[task]]
name = "link"
count = 3
steps = [{ loop = { count = 5, steps = [{ take = { channel = "ring{i}" } }, { run = "1ms" }, { post = { channel = "ring{next}" } }] } }]

[[task]]
name = "helper"
template = true
steps = [{ lock = "table" }, { run = { exponential = "1ms" } }, { unlock = "table" }]

[[task]]
name = "noise"
target = false
policy = "batch"
cpus = "0-1"
behaviour = "hog"
"#;

#[test]
fn a_file_becomes_a_workload() {
    let workload = parse(GOOD).expect("reads");
    assert_eq!(workload.tasks.len(), 6);
    assert_eq!(workload.duration, Some(Nanos::from_secs(2)));
    let ops = |task: usize| &workload.programs[workload.tasks[task].program.0 as usize].ops;
    assert_eq!(ops(0)[2], Op::Run(Amount::Uniform(Nanos::from_micros(50), Nanos::from_micros(150))));
    let Op::Post { channel, .. } = ops(3)[3] else { panic!("a post: {:?}", ops(3)) };
    assert_eq!(workload.channels[channel.index()].name, "ring0", "the last link closes the ring");
    assert!(workload.tasks[4].template && !workload.tasks[5].target);
    let channel =
        |name: &str| workload.channels.iter().find(|channel| channel.name == name).expect("declared");
    assert!(!channel("queue").is_socket && channel("link").is_socket);
    assert_eq!((channel("queue").room_to_resume, channel("link").room_to_resume), (0, 751));
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_remedy() {
    let task = |steps: &str| format!("name = \"w\"\n[[task]]\nname = \"a\"\nsteps = [{steps}]\n");
    let check = |text: &str, expected: &str| {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{expected:?} is not in: {error}");
    };
    check("name = \"w\"\n[[task]]\nname = \"a\"\nspeed = 3\n", "line 4");
    check("name = \"w\"\n[[task]]\nname = \"a\"\nspeed = 3\n", "unknown field `speed`");
    check("name = \"w\"", "no task that starts");
    check(&task(""), "has no steps");
    check(&task("{ run = \"1\" }"), "line 4");
    check(&task("{ walk = \"1ms\" }"), "unknown variant `walk`");
    check(&task("{ lock = \"m\" }"), "channel 'm' is not declared; declared: none");
    check(&task("{ fork = \"b\" }"), "no [[task]] of that name with template = true");
    check(&task("{ loop = { steps = [{ yield = false }] } }"), "no step that takes time");
    check(&task("{ set = { policy = \"fifo\" } }"), "fifo and rr need 1 to 99");
    check(&format!("[channels]\nm = {{ type = \"mutex\" }}\n{}", ""), "missing field `name`");
    let typed = "name = \"w\"\n[channels]\nm = { type = \"mutex\" }\n[[task]]\nname = \"a\"\n";
    check(
        &format!("{typed}steps = [{{ send = {{ channel = \"m\", bytes = 1 }} }}]"),
        "needs a channel of type bytes",
    );
    check(&format!("{typed}behaviour = \"x\""), "behaviour 'x' is not there; known: ");
    check(&format!("{typed}nice = 40\nsteps = [{{ run = \"1ms\" }}]"), "nice 40 is out of range");
    check(&format!("{typed}slice = \"1s\"\nsteps = [{{ run = \"1ms\" }}]"), "0.1 ms to 100 ms");
}

#[test]
fn counts_that_no_machine_could_hold_are_refused_before_anything_is_made() {
    let check = |rest: &str, expected: &str| {
        let error = parse(&format!("name = \"w\"\n{rest}")).expect_err(rest).to_string();
        assert!(error.contains(expected), "{expected:?} is not in: {error}");
    };
    let task = |name: &str, count: u64, steps: &str| {
        format!("[[task]]\nname = \"{name}\"\ncount = {count}\nsteps = [{steps}]\n")
    };
    let run = "{ run = \"1ms\" }, ";
    check(&task("a", 93_429_497, run), "count 93429497 is out of bounds: at most 100000 tasks");
    check(&task("a", 93_429_497, run), "line 4");
    check(&task("a", 1 << 40, run), "at most 100000 tasks");
    let two = [task("a", 60_000, run), task("b", 60_000, run)].concat();
    check(&two, "with 'b' the workload has 120000 tasks: at most 100000; lower a count");
    check(&task("a", 100_000, &run.repeat(41)), "with 'a' the workload has 4100000 steps: at most 4000000");
    let quantiles = format!("{{ run = {{ quantiles = [{}] }} }}", "\"1us\", ".repeat(50));
    check(&task("a", 100_000, &quantiles), "5100000 steps");
    check("[channels]\nc = { type = \"bytes\", count = 100001 }\n", "at most 100000 channels");
    let device = |count: u64, period: u64| {
        let device =
            format!("[[device]]\nname = \"d\"\nchannel = \"c\"\ncount = {count}\nperiod = {period}\n");
        [&task("a", 1, run), "[channels]\nc = { type = \"tokens\" }\n", &device].concat()
    };
    check(&device(4_000_001, 1), "count 4000001 is out of bounds: at most 4000000 arrivals");
    check(&device(4, i64::MAX as u64), "device 'd': its last arrival is later than 584 years");
}

#[test]
fn names_of_many_instances_are_found() {
    let text = "name = \"w\"\n[channels]\nc = { type = \"tokens\", count = 20000 }\n[[task]]\nname = \"a\"\n\
                count = 20000\nsteps = [{ take = { channel = \"c{i}\" } }, { post = { channel = \"c{next}\" } }]";
    let workload = parse(text).expect("reads");
    let ops = &workload.programs[workload.tasks[19_999].program.0 as usize].ops;
    let [Op::Take { channel: own, .. }, Op::Post { channel: next, .. }] = ops[..] else { panic!("{ops:?}") };
    assert_eq!([own, next].map(|id| workload.channels[id.index()].name.as_str()), ["c19999", "c0"]);
    let processes: std::collections::BTreeSet<_> = workload.tasks.iter().map(|task| task.process).collect();
    assert_eq!(processes.len(), 20_000, "each has a process of its own");
    let error = parse(&text.replace("c{i}", "x")).expect_err("no such channel").to_string();
    assert!(error.contains("c19 and 19980 more"), "{error}");
}

#[test]
fn cgroups_and_events_are_read() {
    let text = r#"
name = "x"
duration = "1s"
offline = "1,3"
[[cgroup]]
path = "/web"
weight = 200
quota = "20ms"
[[task]]
name = "a"
cgroup = "/web"
steps = [{ run = "1ms" }, { set = { cgroup = "/batch" } }, { run = "1ms" }]
[[event]]
time = "300ms"
cgroup = { path = "/web", weight = 50 }
[[event]]
time = "100ms"
cpu = 1
online = true
[[event]]
time = "200ms"
suspend = "50ms"
[[event]]
time = "400ms"
scheduler = "vtime"
[[event]]
time = "500ms"
end_scheduler = "hard-lockup"
cpu = 2
[[event]]
time = "600ms"
scheduler = "none"
"#;
    let workload = file::parse(text).expect("reads");
    assert_eq!(workload.offline, [CpuId(1), CpuId(3)]);
    assert_eq!((workload.cgroups[0].settings.weight, workload.cgroups[0].path.as_str()), (200, "/web"));
    assert_eq!(workload.cgroups[0].settings.max.quota, Some(Nanos::from_millis(20)));
    let times: Vec<u64> = workload.changes.iter().map(|change| change.time.0 / 1_000_000).collect();
    assert_eq!(times, [100, 200, 300, 400, 500, 600], "in order of time");
    let [attach, end, detach] = [3, 4, 5].map(|row: usize| workload.changes[row].change.clone());
    assert_eq!(attach, change::Change::Scheduler(Some("vtime".to_owned())));
    assert_eq!(end, change::Change::EndScheduler { by: change::SchedulerEnd::HardLockup, cpu: CpuId(2) });
    assert_eq!(detach, change::Change::Scheduler(None));
    assert_eq!(workload.changes[0].change, change::Change::Cpu { cpu: CpuId(1), online: true });
    for (wrong, said) in [
        (text.replace("weight = 200", "weight = 20000"), "1 to 10000"),
        (text.replace("path = \"/web\"\nweight", "path = \"web\"\nweight"), "begins with /"),
        (text.replace("online = true", ""), "must be one of"),
        (text.replace("scheduler = \"vtime\"", "scheduler = \"vtime\"\ncpu = 1"), "must be one of"),
        (text.replace("hard-lockup", "lockup"), "hard-lockup"),
    ] {
        let error = file::parse(&wrong).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn masks_beside_the_machine_are_found_at_the_start_and_in_steps() {
    let text = |own: &str, later: &str| {
        format!(
            "name = \"pinned\"\n[[task]]\nname = \"a\"\ncpus = \"{own}\"\nsteps = [\n\
             {{ run = \"1ms\" }}, {{ set = {{ cpus = \"{later}\" }} }}, {{ run = \"1ms\" }} ]\n"
        )
    };
    let cpus = CpuSet::first(4);
    let found = |own: &str, later: &str| {
        let workload = file::parse(&text(own, later)).expect("reads");
        workload.misplaced(&cpus).map(|stray| format!("{stray}: {}", stray.affinity))
    };
    assert_eq!(found("3-9", "0-1023"), None, "what lies outside is cut");
    assert_eq!(found("7", "0").as_deref(), Some("task 'a', its attributes: 7"));
    assert_eq!(found("0", "4-5").as_deref(), Some("task 'a', step 2 (set): 4-5"));
}
