//! Small workloads, played; no recorder, no root.

use super::*;
use schedlab_model::Nanos;
use schedlab_model::workload::builtin;
use schedlab_model::workload::file::parse;

fn company(text: &str) -> Ended {
    company_of(&parse(text).expect("reads"))
}

fn company_of(workload: &Workload) -> Ended {
    let company = Company::gather(workload, 1, None).expect("gathers");
    company.begin();
    company.wait(&|| false);
    company.end().expect("plays")
}

const PAIR: &str = r#"
name = "pair"
[channels]
pipe = { type = "bytes", capacity = 4096 }
bell = { type = "tokens" }
[[task]]
name = "a"
steps = [{ run = "1ms" }, { send = { channel = "pipe", bytes = 8 } }, { take = { channel = "bell" } }]
[[task]]
name = "b"
steps = [{ receive = { channel = "pipe", bytes = 8 } }, { run = "1ms" }, { post = { channel = "bell" } },
         { receive = { channel = "pipe", bytes = 8 } }]
"#;

#[test]
fn a_pipe_carries_a_message_and_its_end() {
    let played = play(&parse(PAIR).expect("reads")).expect("plays");
    assert_eq!((played.ended, played.cut), (2, 0), "b's last receive ends because a is gone");
    assert!(played.wall >= Duration::from_millis(2), "b runs after a: {:?}", played.wall);
    let ended = company(PAIR);
    assert!(!ended.cut && ended.tasks.iter().all(|task| task.ended), "{ended:?}");
    assert!(ended.wall >= Nanos::from_millis(2), "{ended:?}");
}

/// Workers fork while the play runs, after it has begun to close what is the parent's.
#[test]
fn hackbench_sends_all_its_messages_over_sockets() {
    let workload = builtin::make("hackbench:groups=1,loops=20,fds=5").expect("known").expect("can be made");
    let ended = company_of(&workload);
    assert!(!ended.cut && ended.notes.is_empty(), "{ended:?}");
    assert_eq!(
        ended.tasks.iter().filter(|task| task.ended).count(),
        11,
        "ten workers and their parent: {ended:?}"
    );
}

#[test]
fn run_times_are_cpu_time_whoever_else_runs() {
    let ended = company(
        "name = \"hogs\"\n[[task]]\nname = \"a\"\ncount = 6\ncpus = \"0\"\n\
         steps = [{ loop = { count = 10, steps = [{ run = \"2ms\" }] } }]",
    );
    // Six tasks on one CPU, so the wall is six times as long; each used its 20 ms and what switches and ticks cost.
    for task in &ended.tasks {
        assert!((20_000_000..21_500_000).contains(&task.cpu.0), "{ended:?}");
    }
    assert!(ended.wall >= Nanos::from_millis(120), "{ended:?}");
}

#[test]
fn a_task_forks_processes_and_threads_and_waits_for_them() {
    for process in ["", "process = \"p\"\n"] {
        let text = format!(
            "name = \"f\"\n[[task]]\nname = \"a\"\n{process}\
             steps = [{{ loop = {{ count = 3, steps = [{{ fork = \"c\" }}] }} }}, {{ wait_children = true }}]\n\
             [[task]]\nname = \"c\"\n{process}template = true\nsteps = [{{ sleep = \"20ms\" }}]"
        );
        let ended = company(&text);
        assert_eq!(ended.tasks.iter().filter(|task| task.row == 1 && task.ended).count(), 3, "{ended:?}");
        assert!(ended.wall >= Nanos::from_millis(20), "it waits: {ended:?}");
    }
}

#[test]
fn an_endless_task_is_cut_and_nobody_is_left() {
    let text = "name = \"e\"\nduration = \"30ms\"\n[[task]]\nname = \"a\"\nsteps = [{ loop = { steps = [{ sleep = \"5ms\" }] } }]";
    let played = play(&parse(text).expect("reads")).expect("plays");
    assert_eq!((played.ended, played.cut), (0, 1));
    let ended = company(text);
    assert!(ended.cut && ended.wall == Nanos::from_millis(30), "{ended:?}");
    let gone = |tid: i32| {
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            !std::path::Path::new(&format!("/proc/{tid}")).exists()
        })
    };
    assert!(ended.tasks.iter().all(|task| gone(task.tid)), "{ended:?}");
}

#[test]
fn a_company_that_is_dropped_leaves_nobody() {
    let text = "name = \"e\"\nduration = \"1min\"\n[[task]]\nname = \"a\"\ncount = 3\n\
                steps = [{ fork = \"b\" }, { loop = { steps = [{ run = \"5ms\" }] } }]\n\
                [[task]]\nname = \"b\"\ntemplate = true\nsteps = [{ loop = { steps = [{ run = \"5ms\" }] } }]";
    let company = Company::gather(&parse(text).expect("reads"), 1, None).expect("gathers");
    company.begin();
    std::thread::sleep(Duration::from_millis(100));
    let tids: Vec<i32> = company.tasks().iter().map(|task| task.tid).collect();
    assert_eq!(tids.len(), 6);
    drop(company);
    let gone = |tid: i32| {
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            !std::path::Path::new(&format!("/proc/{tid}")).exists()
        })
    };
    assert!(tids.iter().all(|tid| gone(*tid)), "{tids:?}");
}

#[test]
fn locks_conditions_barriers_and_timers_do_what_they_say() {
    let ended = company(
        r#"
name = "all"
[channels]
m = { type = "mutex" }
c = { type = "condition" }
b = { type = "barrier", capacity = 3 }
t = { type = "tokens" }
u = { type = "tokens" }
[[task]]
name = "worker"
count = 3
process = "p"
steps = [
  { loop = { count = 20, steps = [{ lock = "m" }, { run = "50us" }, { unlock = "m" }, { barrier = "b" }] } },
  { post = { channel = "t" } },
  { timer = { period = "10ms" } }, { run = "1ms" }, { timer = { period = "10ms" } }, { run = "100us" }, { job_end = true },
]
[[task]]
name = "waiter"
steps = [{ lock = "m" }, { condition_wait = { condition = "c", lock = "m" } }, { unlock = "m" },
         { take = { channel = "c", timeout = "5ms" } }, { wait_any = { channels = ["t", "u"] } },
         { take = { channel = "t" } }, { take = { channel = "u", timeout = "2ms" } }]
[[task]]
name = "waker"
steps = [{ sleep = "30ms" }, { lock = "m" }, { wake = { channel = "c", count = 1 } }, { unlock = "m" }, { yield = true },
         { touch = 4096 }, { set = { nice = 5, cpus = "0" } }, { run = { uniform = ["10us", "20us"] } }]
[[device]]
name = "irq"
channel = "u"
period = "1ms"
count = 3
"#,
    );
    assert!(!ended.cut && ended.tasks.iter().all(|task| task.ended), "{ended:?}");
    assert_eq!(ended.jobs.len(), 6, "two timers end a job each, one step the last: {:?}", ended.jobs);
    let on_time = ended.jobs.iter().filter(|job| job.time <= job.deadline).count();
    assert!(on_time > 0, "{:?}", ended.jobs);
}

#[test]
fn a_process_lives_as_long_as_one_of_its_tasks() {
    for process in ["p", "q"] {
        let text = format!(
            "name = \"f\"\n[[task]]\nname = \"a\"\nprocess = \"p\"\nsteps = [{{ fork = \"b\" }}]\n\
             [[task]]\nname = \"b\"\nprocess = \"{process}\"\ntemplate = true\nsteps = [{{ fork = \"c\" }}]\n\
             [[task]]\nname = \"c\"\nprocess = \"{process}\"\ntemplate = true\n\
             steps = [{{ sleep = \"20ms\" }}, {{ run = \"1ms\" }}]"
        );
        let ended = company(&text);
        assert!(ended.tasks.len() == 3 && ended.tasks.iter().all(|task| task.ended), "{ended:?}");
        assert!(ended.wall >= Nanos::from_millis(21), "{ended:?}");
    }
}

#[test]
fn a_wake_up_is_for_who_waits_when_it_comes() {
    let ended = company(
        r#"
name = "tickets"
[channels]
c = { type = "condition" }
[[task]]
name = "a"
cpus = "0"
steps = [{ take = { channel = "c" } }, { sleep = "30ms" }, { wake = { channel = "c", count = 1 } }]
[[task]]
name = "w"
cpus = "0"
steps = [{ sleep = "50ms" }, { wake = { channel = "c", count = 1 } }, { take = { channel = "c" } }]
"#,
    );
    assert!(ended.tasks.iter().all(|task| task.ended), "{ended:?}");
    assert!(ended.wall >= Nanos::from_millis(80), "{ended:?}");
}

fn error_after(text: &str, kill: impl Fn(&Company) -> libc::pid_t) -> String {
    let company = Company::gather(&parse(text).expect("reads"), 1, None).expect("gathers");
    company.begin();
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: a process of our play, which is not collected yet.
    unsafe { libc::kill(kill(&company), libc::SIGKILL) };
    company.wait(&|| false);
    company.end().expect_err("it cannot go on").to_string()
}

#[test]
fn a_task_or_a_leader_that_is_killed_ends_the_play_as_an_error() {
    let text = "name = \"e\"\n[[task]]\nname = \"a\"\nsteps = [{ fork = \"b\" }, { sleep = \"1min\" }]\n\
                [[task]]\nname = \"b\"\ntemplate = true\nsteps = [{ run = \"1us\" }, { sleep = \"1min\" }]";
    let tid = |name: usize| {
        move |company: &Company| {
            let tasks = company.tasks();
            tasks.iter().find(|task| task.row == name).expect("it is there").tid
        }
    };
    let rows = parse(text).expect("reads").tasks;
    let row = |name: &str| rows.iter().position(|task| task.name == name).expect(name);
    let error = error_after(text, tid(row("a")));
    assert!(error.contains("task 'a' died") && error.contains("signal 9"), "{error}");
    let error = error_after(text, tid(row("b")));
    assert!(error.contains("task 'b' died") && error.contains("step 2"), "{error}");
    let error = error_after(text, |company| company.leader);
    assert!(error.contains("play-leader"), "{error}");
    // Nobody asks for the end of this one, so only the guard can end what a task forked.
    let company = Company::gather(&parse(text).expect("reads"), 1, None).expect("gathers");
    company.begin();
    std::thread::sleep(Duration::from_millis(100));
    let forked = tid(row("b"))(&company);
    // SAFETY: our own child.
    unsafe { libc::kill(company.leader, libc::SIGKILL) };
    let gone = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        let stat = std::fs::read_to_string(format!("/proc/{forked}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
    assert!(gone, "{forked} outlives its leader");
}

#[test]
fn a_deadlock_is_told_with_who_waits() {
    let text = "name = \"d\"\n[channels]\nt = { type = \"tokens\" }\n[[task]]\nname = \"a\"\nsteps = [{ take = { channel = \"t\" } }]";
    let company = Company::gather(&parse(text).expect("reads"), 1, None).expect("gathers");
    company.begin();
    company.wait(&|| false);
    let error = company.end().expect_err("nobody posts").to_string();
    assert!(error.contains("'a' in step 1 (take)"), "{error}");
}

#[test]
fn what_has_no_live_form_is_refused_by_name() {
    let check = |text: &str, expected: &[&str]| {
        let Err(error) = Company::gather(&parse(text).expect("reads"), 1, None) else {
            panic!("plays: {text}")
        };
        let error = error.to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    };
    let task = "[[task]]\nname = \"a\"\n";
    check(
        &format!("name = \"m\"\n{task}steps = [{{ run = \"1ms\" }}, {{ set = {{ cgroup = \"/x\" }} }}]"),
        &["task 'a'", "step 2 (set)", "/x"],
    );
    check(&format!("name = \"m\"\noffline = \"1\"\n{task}steps = [{{ run = \"1ms\" }}]"), &["`offline`"]);
    check(
        &format!(
            "name = \"m\"\n{task}steps = [{{ run = \"1ms\" }}]\n[[event]]\ntime = \"1ms\"\nsuspend = \"1ms\""
        ),
        &["[[event]] at 1.00 ms", "changes the machine"],
    );
    check(
        &format!(
            "name = \"m\"\n[channels]\nc = {{ type = \"bytes\", capacity = 4096, initial = 5000 }}\n\
             {task}steps = [{{ run = \"1ms\" }}]"
        ),
        &["channel 'c'", "4096", "`capacity`"],
    );
    check(
        &format!("name = \"m\"\n{task}cpus = \"1023\"\nsteps = [{{ run = \"1ms\" }}]"),
        &["task 'a'", "1023"],
    );
    check(
        &format!("name = \"m\"\n{task}steps = [{{ loop = {{ steps = [{{ run = \"1ms\" }}] }} }}]"),
        &["step 1 (loop)", "duration"],
    );
}
