//! Live schedulers by the commands, in a real kernel: Linux 7.2 in QEMU. Ignored but by `cargo xtask test vm`.
//!
//! Each test boots once and runs a list of shell commands as root, each under a name; what they print comes out and is
//! judged here. CPUs are emulated in turns, because loading schedulers makes a kernel patch its own code.

use schedlab_host::vm::initramfs::find_program;
use schedlab_host::vm::{Kernel, KernelName, Machine, Run};
use schedlab_model::Nice;
use schedlab_model::weights::WeightTable;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// A name and a shell command.
type Step = (&'static str, &'static str);

/// What the commands printed, both outputs together.
struct Said(BTreeMap<String, String>);

impl Said {
    /// Of the step of that name.
    #[track_caller]
    fn of(&self, step: &str) -> &str {
        self.0.get(step).unwrap_or_else(|| panic!("no step {step:?}: {:#?}", self.0))
    }

    /// It says each of these.
    #[track_caller]
    fn says(&self, step: &str, texts: &[&str]) {
        for text in texts {
            assert!(self.of(step).contains(text), "{step} does not say {text:?}:\n{}", self.of(step));
        }
    }

    /// The JSON in it.
    #[track_caller]
    fn json(&self, step: &str) -> Value {
        let text = self.of(step);
        let from = text.find('{').unwrap_or_else(|| panic!("{step} has no JSON:\n{text}"));
        let mut values = serde_json::Deserializer::from_str(&text[from..]).into_iter();
        let value = values.next().expect("there is a brace");
        value.unwrap_or_else(|error| panic!("{step}: {error}\n{text}"))
    }
}

fn machine(limit_s: u64) -> Machine {
    let kernel = Kernel::get(KernelName::V7_2).expect("a kernel with sched_ext");
    let mut machine = Machine::new(kernel, Path::new(env!("CARGO_BIN_EXE_schedlab")));
    machine.safe_for_loading().time_limit(Duration::from_secs(limit_s));
    for name in ["stall", "double_insert", "garbage"] {
        let object = schedlab_objects::test_object(name).expect("a test object");
        machine.contents(object, &format!("{name}.bpf.o"));
    }
    machine.contents(schedlab_objects::scheduler("vtime").expect("a scheduler"), "vtime.bpf.o");
    for (name, script) in [("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)] {
        machine.contents(script.as_bytes(), &format!("systemd/{name}"));
    }
    for tool in ["prlimit", "setpriv"] {
        machine.program(&find_program(tool).unwrap_or_else(|| panic!("{tool} is missing (util-linux)")));
    }
    machine
}

fn run(machine: &mut Machine, script: &str) -> Run {
    let script = format!("ln -s /bin/schedlab-guest /bin/schedlab\nexec 2>&1\n{script}\n");
    machine.contents(script.as_bytes(), "script.sh");
    machine.run(&["sh", "/script.sh"]).expect("the machine runs")
}

/// Runs the steps in one boot; each says its exit code at its end.
fn steps(limit_s: u64, steps: &[Step]) -> Said {
    let line = |(name, command): &Step| format!("echo '== {name}'\n{command}\necho \"code $?\"\n");
    let script: String = steps.iter().map(line).collect();
    let run = run(&mut machine(limit_s), &script);
    let text = run.text();
    let parts = text.split("== ").skip(1).filter_map(|part| part.split_once('\n'));
    let said: BTreeMap<String, String> =
        parts.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
    assert_eq!(said.len(), steps.len(), "{text}\n{}", run.kernel_log);
    Said(said)
}

const LIFE: &[Step] = &[
    ("before", "schedlab status --json -"),
    (
        "run",
        "schedlab run vtime --set slice_ns=5ms --json /tmp/run -- sh -c 'cat /sys/kernel/sched_ext/root/ops; exit 3'",
    ),
    ("ran", "cat /tmp/run"),
    (
        "only command",
        "schedlab run vtime --only-command -- sh -c 'cut -d\" \" -f41 /proc/self/stat; cat /sys/kernel/sched_ext/switch_all'",
    ),
    (
        "nice",
        "for how in '-7 ' '5 --only-command'; do set -- $how; sh -c \"renice -n $1 -p \\$\\$; \
         exec schedlab -q run vtime $2 -- cut -d' ' -f19,41 /proc/self/stat\"; done",
    ),
    ("no such command", "schedlab run vtime -- no-such-command; cat /sys/kernel/sched_ext/enable_seq"),
    (
        "switch in a run",
        "schedlab -q run vtime --only-command -- sh -c 'schedlab -q switch fifo > /dev/null; \
         cat /sys/kernel/sched_ext/root/ops /sys/kernel/sched_ext/switch_all'",
    ),
    (
        "canary time in a run",
        "schedlab -q run vtime -- sh -c '(schedlab switch fifo --canary 100 --stall 60s; echo switch $?) \
         > /tmp/cut 2>&1 & sleep 5'; echo run $?; until grep -q '^switch' /tmp/cut; do sleep 0.1; done; cat /tmp/cut",
    ),
    (
        "stopped run",
        "schedlab run vtime -- sh -c ': > /tmp/runs; sleep 1000' & until [ -e /tmp/runs ]; do sleep 0.1; done; \
         schedlab stop; schedlab -q run fifo -- true; echo next $?; kill $(pidof sleep); wait",
    ),
    ("dry run", "schedlab run vtime --dry-run -- true; cat /sys/kernel/sched_ext/enable_seq"),
    ("start", "schedlab start vtime --set slice_ns=4ms --json -"),
    ("status", "schedlab status --json -"),
    ("words", "schedlab status"),
    ("set", "schedlab set slice_ns=3ms && schedlab status --json -"),
    ("bad set", "schedlab set no_such_knob=3"),
    ("two of us", "schedlab run fifo -- true"),
    ("switch", "schedlab switch fifo --json -"),
    ("refused", "schedlab switch /garbage.bpf.o"),
    ("goes on", "cat /sys/kernel/sched_ext/root/ops"),
    ("stop", "schedlab stop"),
    ("after", "schedlab status --json -; ls /run/schedlab"),
    ("stop nothing", "schedlab stop"),
    ("nothing to restore", "schedlab restore"),
    (
        "foreign",
        "schedlab-guest load /vtime.bpf.o -- sleep 4 > /dev/null & \
         until [ \"$(cat /sys/kernel/sched_ext/state)\" = enabled ]; do sleep 0.1; done; schedlab run fifo -- true",
    ),
    ("foreign status", "schedlab status; wait"),
];

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn a_scheduler_lives_and_goes_by_the_commands() {
    let said = steps(120, LIFE);
    assert_eq!(said.json("before")["kernel"]["state"], "disabled");
    said.says("run", &["Runs       vtime for all tasks of the machine", "\nvtime\n", "code 3\n"]);
    let ran = said.json("ran");
    assert_eq!((&ran["code"], &ran["knobs"]["slice_ns"]), (&3.into(), &5_000_000.into()));
    assert_eq!(ran["end"]["exit"]["kind"], 64, "SCX_EXIT_UNREG: {ran}");
    said.says("only command", &["only tasks that ask for SCHED_EXT", "\n7\n0\n", "code 0"]);
    // Nice value and policy, SCHED_NORMAL or SCHED_EXT: those of whoever called, though the holder is real-time.
    said.says("nice", &["-7 0\n", "5 7\n"]);
    said.says("no such command", &["'no-such-command' is no program that can be run", "\n4\ncode 0"]);
    said.says("switch in a run", &["fifo\n0\n", "code 0"]);
    said.says(
        "canary time in a run",
        &["run 0\n", "Cut short  after ", "the command that it ran for ended", "switch 1\n"],
    );
    said.says("stopped run", &["the command goes on under the kernel's own", "next 0\n"]);
    said.says("dry run", &["Nothing was changed", "1. take /run/schedlab/lock", "\n10\ncode 0"]);
    assert_eq!(said.json("start")["runs"]["held"]["knobs"]["slice_ns"], 4_000_000);
    let status = said.json("status");
    assert_eq!(
        (&status["kernel"]["scheduler"], &status["others"]),
        (&"vtime".into(), &serde_json::json!([]))
    );
    assert_eq!(status["schedlab"]["held"]["knobs"]["slice_ns"], 4_000_000);
    said.says(
        "words",
        &[
            "'vtime', enabled for all tasks",
            "Held by    schedlab: `schedlab start vtime",
            "slice_ns = 4000000",
        ],
    );
    assert_eq!(said.json("set")["schedlab"]["held"]["knobs"]["slice_ns"], 3_000_000);
    said.says("bad set", &["no_such_knob", "code 2"]);
    said.says("two of us", &["`schedlab start vtime", "schedlab stop", "code 3"]);
    let switched = said.json("switch");
    assert_eq!((&switched["runs"]["name"], &switched["before"]["kind"]), (&"fifo".into(), &64.into()));
    said.says("refused", &["R1 invalid mem access 'scalar'", "garbage_enqueue", "garbage.bpf.c:", "code 1"]);
    said.says("goes on", &["fifo\n"]);
    said.says("stop", &["taken out by the program that loaded it", "code 0"]);
    assert_eq!(said.json("after")["kernel"]["state"], "disabled");
    said.says("after", &["lock\n"]);
    assert!(!said.of("after").contains("journal") && !said.of("after").contains("control"));
    said.says("stop nothing", &["schedlab holds no scheduler", "code 3"]);
    said.says("nothing to restore", &["Nothing was left changed", "code 0"]);
    said.says("foreign", &["'vtime' is enabled by schedlab-guest (process ", "code 3"]);
    said.says("foreign status", &["Held by    'vtime' is enabled by schedlab-guest"]);
}

/// Kills every process of ours while a scheduler runs, in turns one that `start` left and one that runs a command; then
/// says how long the kernel took, and what the next command found and left.
const KILL: &str = r#"
ours() {
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        [ "$pid" != 1 ] && [ "$(readlink "$process/exe")" = /bin/schedlab-guest ] && echo "$pid"
    done
}
now() { cut -d' ' -f1 /proc/uptime; }
policy() { [ -z "$1" ] && echo 0 || cut -d' ' -f41 "/proc/$1/stat"; }
round=0
while [ $round -lt $ROUNDS ]; do
    round=$((round + 1))
    command=
    if [ $((round % 2)) = 0 ]; then
        schedlab -q run vtime --only-command -- sleep 1000 &
        # Those of earlier rounds may still be listed: nobody waits for them.
        until [ "$(policy $command)" = 7 ]; do command=$(pidof sleep | tr ' ' '\n' | sort -n | tail -n 1); done
    else
        schedlab -q start vtime > /dev/null
    fi
    held=$(policy $command)
    state=$(cat /sys/kernel/sched_ext/state)
    pids=$(ours)
    begin=$(now)
    kill -9 $pids
    until [ "$(cat /sys/kernel/sched_ext/state)" = disabled ]; do :; done
    end=$(now)
    journals=$(ls /run/schedlab | grep -c journal)
    said=$(schedlab status 2>&1 > /dev/null)
    echo "round $round $state $begin $end $held $(policy $command) $journals $(ls /run/schedlab | grep -c journal) $said"
    [ -z "$command" ] || kill $command
done
"#;

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn after_sigkill_the_kernel_is_on_its_own_and_nothing_is_left() {
    const ROUNDS: usize = 20;
    let run = run(&mut machine(200), &KILL.replace("$ROUNDS", &ROUNDS.to_string()));
    let text = run.text();
    let rounds: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("round "))
        .map(|line| line.splitn(10, ' ').collect())
        .collect();
    assert_eq!(rounds.len(), ROUNDS, "{text}\n{}", run.kernel_log);
    for (index, round) in rounds.iter().enumerate() {
        let seconds = |at: usize| round[at].parse::<f64>().expect("a time");
        assert_eq!(round[2], "enabled", "{text}");
        assert!(seconds(4) - seconds(3) <= 1.0, "the kernel took too long: {text}");
        let ran_command = index % 2 == 1;
        // SCHED_EXT while it ran, SCHED_NORMAL after the next command.
        assert_eq!((round[5], round[6]), (if ran_command { "7" } else { "0" }, "0"), "{text}");
        assert_eq!((round[7], round[8]), ("1", "0"), "a journal was there, and is gone: {text}");
        assert_eq!(round[9].contains("went from SCHED_EXT to SCHED_NORMAL"), ran_command, "{text}");
    }
}

/// What stress-ng does here, and of how many of these something must have come.
const STRESSORS: [&str; 7] = ["cpu", "switch", "futex", "fork", "pipe", "yield", "timer"];
const ENOUGH: usize = 5;

/// hackbench and stress-ng as Debian has them, under our schedulers in turn. An emulator's timers stop for seconds at
/// times, whoever schedules: where stressors came to nothing and nothing failed, they are run again. So they are where
/// stress-ng had to kill one that had not got a CPU in time, which it reports as a corrupted counter: the schedulers of
/// 2006 let interactive tasks (here the two ends of a pipe) keep others waiting for a second per runnable task.
const TOOLS: &str = r#"
for scheduler in $SCHEDULERS; do
    schedlab -q run $scheduler --json /tmp/end -- hackbench --groups 2 --loops 30 > /tmp/said 2>&1
    echo "hackbench $scheduler $?"; grep Time: /tmp/said || cat /tmp/said; tr -d '\n ' < /tmp/end; echo
    for try in 1 2 3; do
        schedlab -q run $scheduler --json /tmp/end -- stress-ng $EACH --timer-freq 1000 --timeout 4 \
            --metrics-brief > /tmp/said 2>&1
        code=$?; worked=0
        for name in $STRESSORS; do
            grep -qE "\] $name +[1-9][0-9]* " /tmp/said && worked=$((worked + 1))
        done
        if [ $code -ne 0 ]; then
            grep -q 'corrupted bogo-ops counter' /tmp/said || break
        elif [ $worked -ge $ENOUGH ]; then break; fi
    done
    echo "stress-ng $scheduler $code"; grep -E 'metr|fail|error' /tmp/said || cat /tmp/said; tr -d '\n ' < /tmp/end; echo
done
"#;

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn our_schedulers_survive_hackbench_and_stress_ng() {
    let mut machine = machine(420);
    for tool in ["hackbench", "stress-ng"] {
        let path =
            find_program(tool).unwrap_or_else(|| panic!("{tool} is missing: cargo xtask test installs it"));
        machine.program(&path);
    }
    let schedulers: Vec<&str> = schedlab_objects::SCHEDULERS.iter().map(|object| object.name).collect();
    let script = TOOLS.replace("$SCHEDULERS", &schedulers.join(" "));
    let each: Vec<String> = STRESSORS.iter().map(|name| format!("--{name} 1")).collect();
    let script = script
        .replace("$EACH", &each.join(" "))
        .replace("$STRESSORS", &STRESSORS.join(" "))
        .replace("$ENOUGH", &ENOUGH.to_string());
    let run = run(&mut machine, &script);
    let text = run.text();
    let ends: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(ends.len(), 2 * schedulers.len(), "{text}\n{}", run.kernel_log);
    for end in &ends {
        let (code, kind, trip) = (&end["code"], &end["end"]["exit"]["kind"], &end["trip"]);
        assert!(
            *code == 0 && *kind == 64 && trip.is_null(),
            "SCX_EXIT_UNREG and nothing else: {end}\n{text}"
        );
    }
    for scheduler in &schedulers {
        for tool in ["hackbench", "stress-ng"] {
            assert!(text.contains(&format!("{tool} {scheduler} 0\n")), "{text}");
        }
    }
    assert_eq!(text.matches("Time: ").count(), schedulers.len(), "hackbench tells its time: {text}");
    // Emulated CPUs that share their host may give one or two of them so little in 4 s that they come to nothing.
    let worked = stressors_that_worked(&text);
    assert_eq!(worked.len(), schedulers.len(), "stress-ng tells what it did: {text}");
    for (scheduler, worked) in schedulers.iter().zip(worked) {
        assert!(worked >= ENOUGH, "{scheduler}: {worked} of 7 stressors did anything: {text}");
    }
}

/// How many stressors did anything in each run of stress-ng, from lines as `stress-ng: metrc: [7] switch 12345 ...`.
fn stressors_that_worked(text: &str) -> Vec<usize> {
    let is_positive = |count: &str| count.parse::<u64>().is_ok_and(|count| count > 0);
    let mut worked: Vec<BTreeSet<&str>> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_once(']').map_or("", |(_, rest)| rest).split_whitespace();
        match (words.next(), words.next()) {
            (Some("stressor"), _) => worked.push(BTreeSet::new()),
            (Some(name), Some(count)) if STRESSORS.contains(&name) && is_positive(count) => {
                worked.last_mut().expect("below its heading").insert(name);
            }
            _ => (),
        }
    }
    worked.iter().map(BTreeSet::len).collect()
}

/// The JSON in a text, each value in a line or from a line with a brace to the next with its end.
fn values(text: &str) -> Vec<Value> {
    let mut values = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        if line == "{" {
            open = Some(String::new());
        }
        let whole = match &mut open {
            Some(begun) => {
                begun.push_str(line);
                if line == "}" { open.take() } else { None }
            }
            None => Some(line.to_owned()),
        };
        values.extend(whole.and_then(|whole| serde_json::from_str(&whole).ok()));
    }
    values
}

/// Our schedulers replace each other under load, until so many switches are done or the time is over.
const SWITCH: &str = r#"
schedlab -q start vtime > /dev/null || exit 1
(while [ ! -e /tmp/done ]; do schedlab-guest stress 10000; done > /tmp/stress) &
stress=$!
# fixed_priority lets whoever has a worse nice value starve, also the one who asks for the switch.
renice -n -20 -p $$
times=0
# Without programs: each would wait for its turn under load.
seconds() { read -r now rest < /proc/uptime; now=${now%%.*}; }
seconds; began=$now; end=$((began + $LIMIT_S))
while [ $times -lt $TIMES ] && [ $now -lt $end ]; do
    for scheduler in $SCHEDULERS; do
        schedlab -q switch $scheduler --json -
        times=$((times + 1))
        read -r runs < /sys/kernel/sched_ext/root/ops
        [ "$runs" = $scheduler ] || exit 1
    done
    seconds
done
echo "switches $times $((now - began))"
touch /tmp/done
schedlab stop
wait $stress
cat /tmp/stress
"#;

/// A hundred switches take about two minutes where CPUs are emulated in turns; SCHEDLAB_SWITCHES asks for another number.
#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn our_schedulers_replace_each_other_under_load() {
    let asked: Option<u32> =
        std::env::var("SCHEDLAB_SWITCHES").ok().map(|text| text.parse().expect("a number"));
    let times = asked.unwrap_or(100);
    // Only one that hangs takes so long.
    let limit_s = u64::from(times) * 10;
    let schedulers: Vec<&str> = schedlab_objects::SCHEDULERS.iter().map(|object| object.name).collect();
    let script = SWITCH
        .replace("$LIMIT_S", &limit_s.to_string())
        .replace("$TIMES", &times.to_string())
        .replace("$SCHEDULERS", &schedulers.join(" "));
    let run = run(&mut machine(limit_s + 120), &script);
    let text = run.text();
    let counted = text.lines().find_map(|line| line.strip_prefix("switches ")?.split_once(' '));
    let (count, seconds) = counted.unwrap_or_else(|| panic!("{text}\n{}", run.kernel_log));
    let count: u32 = count.parse().expect("a number");
    let switched = values(&text);
    let median = |key: &str| {
        let mut times: Vec<u64> = switched.iter().filter_map(|value| value["taken"][key].as_u64()).collect();
        times.sort_unstable();
        assert_eq!(times.len(), count as usize, "{text}");
        times[times.len() / 2]
    };
    let (load_us, enable_us) = (median("load_us"), median("enable_us"));
    eprintln!(
        "{count} switches in {seconds} s; in the median {load_us} µs to load, {enable_us} µs without a scheduler"
    );
    assert!(count >= times, "{count} switches: {text}");
    for value in switched.iter().filter(|value| value.get("before").is_some()) {
        assert_eq!(value["before"]["kind"], 64, "the one before had come to harm: {value}");
    }
    let stresses: Vec<&Vec<Value>> = switched.iter().filter_map(|value| value["stress"].as_array()).collect();
    let got_on = |stress: &&Vec<Value>| stress.iter().all(|kind| kind["operations"].as_u64() > Some(0));
    assert!(!stresses.is_empty() && stresses.iter().all(got_on), "{stresses:?}");
    assert!(text.contains("The kernel's own scheduler has all tasks."), "{text}");
}

const GUARDS: &[Step] = &[
    ("kept", "schedlab start vtime --canary 2 --stall 30s"),
    ("switch rolls back", "schedlab switch fifo --canary 2 --p99 1ns"),
    ("goes on", "cat /sys/kernel/sched_ext/root/ops; schedlab -q stop > /dev/null"),
    ("p99", "schedlab start vtime --canary 5 --p99 1ns --json -"),
    ("rolled back", "cat /sys/kernel/sched_ext/state; ls /run/schedlab"),
    ("stall", "schedlab start /stall.bpf.o --canary 20 --stall 500ms"),
    ("kernel", "schedlab run /stall.bpf.o -- sleep 4"),
    ("mistake", "schedlab run /double_insert.bpf.o -- sleep 2"),
    ("unseen", "schedlab -q start /double_insert.bpf.o; sleep 2; schedlab status"),
    (
        "trial of a command",
        "schedlab -q run vtime --trial --rounds 3 --stall 60s --json - -- sh -c 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done'",
    ),
    ("trial", "schedlab -q start fifo --trial --rounds 2 --round 1s --stall 60s --p99 60s --json -"),
    (
        "interrupted start",
        "schedlab -q start vtime --canary 60 --stall 60s & sleep 3; kill -TERM $!; wait $!",
    ),
    ("interrupted", "schedlab run vtime -- sleep 100 & sleep 3; kill -TERM $!; wait $!"),
    (
        "deaf",
        "schedlab run vtime -- sh -c \"trap '' TERM; : > /tmp/deaf; while [ -e /tmp/deaf ]; do sleep 0.2; done\" & \
         until [ -e /tmp/deaf ]; do sleep 0.1; done; kill -TERM $!; \
         until [ \"$(cat /sys/kernel/sched_ext/state)\" = disabled ]; do sleep 0.1; done; \
         schedlab -q run fifo -- true; echo next $?; rm /tmp/deaf; wait $!",
    ),
    ("at the end", "cat /sys/kernel/sched_ext/state; ls /run/schedlab; pidof sleep"),
];

/// What systemd does with a transient service, as far as it matters here: runs the command away from whoever asks, then
/// the command of ExecStopPost, however the first one ended. `@` divides the program's path from its name.
const SYSTEMD_RUN: &str = r#"#!/bin/sh
[ -e /tmp/refuse ] && { echo 'Failed to connect to bus' >&2; exit 1; }
while [ "$1" != -- ]; do
    case $1 in --property=ExecStopPost=*) post=${1#--property=ExecStopPost=} ;; esac
    shift
done
shift
(
    "$@" &
    echo $! > /run/unit
    wait $!
    echo "main $?" > /tmp/unit
    set -- $post
    path=$(printf %b "${1#@}") name=$2
    shift 2
    (exec -a "$name" "$path" "$@") >> /tmp/unit 2>&1
    echo "post $?" >> /tmp/unit
    rm /run/unit
) > /dev/null 2>&1 < /dev/null &
"#;

const SYSTEMCTL: &str = r#"#!/bin/sh
[ "$*" = 'stop schedlab-scheduler' ] || exit 1
kill -TERM $(cat /run/unit)
while [ -e /run/unit ]; do sleep 0.1; done
"#;

const REPAIRS: &[Step] = &[
    // Between the journal's begin and the enabling lies the loading, which takes a while.
    (
        "interrupted loading",
        "for how in 'run vtime -- sleep 100' 'start vtime'; do for i in 1 2 3 4 5; do \
         before=$(cat /sys/kernel/sched_ext/enable_seq); schedlab -q $how & \
         until [ -e /run/schedlab/journal ]; do :; done; kill -TERM $!; wait $!; \
         echo \"${how%% *} $? $(($(cat /sys/kernel/sched_ext/enable_seq) - before)) $(ls /run/schedlab)\"; done; done; \
         cat /sys/kernel/sched_ext/state",
    ),
    // The one that ran before needs more descriptors than its holder may have by then; the kernel ends the new one (S).
    (
        "no way back",
        "schedlab -q start vtime > /dev/null; holder=$(sed -n 's/.*\"pid\":\\([0-9]*\\).*/\\1/p' /run/schedlab/journal); \
         few=$(ls -l /proc/$holder/fd | grep -vc bpf); schedlab switch fifo --canary 60 --stall 60s & \
         until schedlab status | grep -q '^Phase *canary'; do sleep 0.1; done; \
         prlimit --pid $holder --nofile=$((few + 2)); echo S > /proc/sysrq-trigger; wait $!; echo \"switch $?\"; \
         while [ -e /run/schedlab/journal ]; do sleep 0.1; done; schedlab status",
    ),
    // Without CAP_SYS_NICE root may not change the tasks of others.
    (
        "not undone",
        "SUDO_UID=65534 SUDO_GID=65534 /bin/setpriv --bounding-set=-sys_nice \
         schedlab run vtime --only-command --canary 60 --stall 60s --p99 1ns -- \
         sh -c 'sleep 1000 & echo $! > /tmp/left; while [ -e /run/schedlab/control ]; do sleep 0.1; done'; echo \"run $?\"; \
         cat /sys/kernel/sched_ext/state; ls /run/schedlab; cut -d' ' -f41 /proc/$(cat /tmp/left)/stat",
    ),
    (
        "mended",
        "schedlab restore; echo \"restore $?\"; cut -d' ' -f41 /proc/$(cat /tmp/left)/stat; ls /run/schedlab; \
         kill $(cat /tmp/left)",
    ),
    (
        "no space",
        "mount -t tmpfs -o size=4k none /run/schedlab; dd if=/dev/zero of=/run/schedlab/fill bs=4k count=2 2> /dev/null; \
         schedlab run vtime -- true; echo \"full $?\"; rm /run/schedlab/fill; schedlab -q run vtime -- true; \
         echo \"room $?\"; umount /run/schedlab",
    ),
    // A place whose name means something to systemd, and a program of another name than its file's.
    (
        "unit",
        "mkdir -p /run/systemd/system '/opt/50 %'; cp /systemd/* /bin; chmod +x /bin/systemd-run /bin/systemctl; \
         own='/opt/50 %/schedlab'; ln /bin/schedlab-guest \"$own\"; \"$own\" start vtime; \
         tr '\\0' ' ' < /proc/$(cat /run/unit)/cmdline; kill -9 $(cat /run/unit); \
         while [ -e /run/unit ]; do sleep 0.1; done; cat /tmp/unit /sys/kernel/sched_ext/state; ls /run/schedlab",
    ),
    (
        "unit ends",
        "\"$own\" -q start vtime > /dev/null; \"$own\" stop; while [ -e /run/unit ]; do sleep 0.1; done; cat /tmp/unit; \
         \"$own\" -q start vtime --canary 60 --stall 60s & \
         until [ \"$(cat /sys/kernel/sched_ext/state)\" = enabled ]; do sleep 0.1; done; kill -TERM $!; wait $!; \
         echo \"start $?\"; cat /tmp/unit /sys/kernel/sched_ext/state; ls /run/schedlab",
    ),
    ("unit refused", ": > /tmp/refuse; \"$own\" start vtime; \"$own\" -q stop; rm -r /run/systemd"),
];

fn judge_repairs(said: &Said) {
    let loading = said.of("interrupted loading");
    for how in ["run", "start"] {
        let ends: Vec<&str> = loading.lines().filter(|line| line.starts_with(&format!("{how} "))).collect();
        assert!(
            ends.len() == 5 && ends.iter().all(|end| end.starts_with(&format!("{how} 130 "))),
            "{loading}"
        );
        assert!(ends.iter().all(|end| end.ends_with(" lock")), "nothing is left: {loading}");
        // Nothing was enabled if the signal came in time, as nearly every one does.
        assert!(ends.contains(&format!("{how} 130 0 lock").as_str()), "{loading}");
    }
    said.says("interrupted loading", &["disabled\ncode 0"]);
    said.says(
        "no way back",
        &[
            "Guard      kernel tripped",
            "Not rolled back: a guard tripped (kernel), and vtime could not be loaded again (",
            "the kernel's own scheduler has all tasks",
            "switch 1\n",
            "Scheduler  the kernel's own (sched_ext is disabled)",
            "Last       vtime\nEnded      a guard tripped (kernel), and vtime could not be loaded again (",
        ],
    );
    said.says(
        "not undone",
        &[
            "Guard      p99 tripped",
            "SCHED_EXT instead of SCHED_NORMAL could not be undone (Operation not permitted",
            "run `schedlab restore`",
            "run 3\ndisabled\njournal\nlast\nlock\n7\n",
        ],
    );
    said.says(
        "mended",
        &["1 tasks of the command went from SCHED_EXT to SCHED_NORMAL", "restore 0\n0\nlast\nlock\n"],
    );
    said.says("no space", &["No space left on device", "free some space there", "full 3\nroom 0\n"]);
    said.says(
        "unit",
        &[
            "Runs       vtime",
            "/opt/50 %/schedlab hold /run/schedlab/start-",
            "main 137\nNothing was left changed.\npost 0\ndisabled\nlock\n",
        ],
    );
    said.says(
        "unit ends",
        &[
            "The kernel's own scheduler has all tasks.\nmain 0\nNothing was left changed.\npost 0\n",
            "schedlab: interrupted\nstart 130\nmain 0\nNothing was left changed.\npost 0\ndisabled\nlock\n",
        ],
    );
    said.says(
        "unit refused",
        &["systemd-run refuses (Failed to connect to bus): a process of its own holds it instead", "code 0"],
    );
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn guards_trip_trials_compare_and_all_is_undone() {
    let said = steps(300, &[GUARDS, REPAIRS].concat());
    judge_repairs(&said);
    said.says("kept", &["Runs       vtime", "Canaries   ", "Next       ", "code 0"]);
    said.says(
        "switch rolls back",
        &["Guard      p99 tripped", "(bound 1 ns)", "Rolled back to vtime", "code 1"],
    );
    said.says("goes on", &["vtime\n"]);
    assert_eq!(said.json("p99")["probation"]["trip"]["guard"], "p99");
    said.says("p99", &["code 1"]);
    said.says("rolled back", &["disabled\nlock\n"]);
    // Which of the two comes first depends on how long the machine takes.
    let stall = said.of("stall");
    assert!(stall.contains("stall tripped") || stall.contains("the watchdog ended it"), "{stall}");
    said.says("stall", &["Rolled back to the kernel's own", "code 1"]);
    said.says(
        "kernel",
        &[
            "Ended      the watchdog ended it",
            "failed to run for",
            "Waiting    ",
            " could run for ",
            "code 1",
        ],
    );
    said.says("mistake", &["the kernel ended it for a mistake", "in its double_insert_", "line ", "code 1"]);
    said.says("unseen", &["Last       /double_insert.bpf.o", "the kernel ended it for a mistake"]);
    for (step, metric) in [("trial of a command", "wall_ns"), ("trial", "p99_ns")] {
        let trial = said.json(step);
        let row = &trial["rows"][0];
        assert_eq!(row["metric"], metric, "{trial}");
        assert!(
            row["low"].as_f64() <= row["ratio"].as_f64() && row["kernel"].as_f64() > Some(0.0),
            "{trial}"
        );
        let order = trial["rounds"].as_array().expect("rounds").iter().map(|round| round["on_trial"] == true);
        assert!(order.take(4).eq([false, true, true, false]), "{trial}");
    }
    said.says("interrupted start", &["schedlab: interrupted", "code 130"]);
    said.says("interrupted", &["schedlab: interrupted", "code 130"]);
    said.says("deaf", &["next 0\n", "schedlab: interrupted", "code 130"]);
    said.says("at the end", &["disabled\n", "lock\n", "code 1"]);
    assert!(!said.of("at the end").contains("journal"));
}

const WATCHED: &[Step] = &[
    ("fair", "schedlab top --json - --interval 500ms --iterations 1 --sort rank"),
    (
        "levels",
        "schedlab -q run ingosched -- sh -c '(while :; do :; done) & renice -n 5 -p $!; sleep 2; \
         schedlab top --json - --interval 1s --iterations 1 --sort cpu; kill $!'",
    ),
    (
        "virtual time",
        "schedlab -q run vtime --set slice_ns=7ms -- schedlab top --json - --interval 500ms --iterations 1",
    ),
    (
        "pictures",
        "schedlab run staircase --html /tmp/page.html --perfetto /tmp/trace --cost --json /tmp/run -- \
         sh -c 'sleep 0.3; sleep 0.3; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; \
         echo; grep -o '[0-9]* changes of [0-9]* tasks' /tmp/page.html; grep -o 'woke after sleep' /tmp/page.html | wc -l; \
         grep -o 'slice or interval over' /tmp/page.html | wc -l; wc -c < /tmp/trace",
    ),
    ("costs", "cat /tmp/run"),
    ("no log", "schedlab run vtime --html /tmp/none -- true; ls /tmp/none"),
];

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn a_live_scheduler_is_watched() {
    let said = steps(180, WATCHED);
    let fair = said.json("fair");
    assert_eq!((&fair["scheduler"], &fair["cpus"][0]["cpu"]), (&Value::from("fair"), &Value::from(0)));
    let ranks = |document: &Value| -> BTreeSet<String> {
        let tasks = document["tasks"].as_array().expect("tasks");
        tasks.iter().filter_map(|task| task["rank"]["by"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(ranks(&fair), ["eevdf".to_owned(), "rt".to_owned()].into());
    let levels = said.json("levels");
    assert_eq!(levels["scheduler"], "ingosched");
    assert!(ranks(&levels).contains("level"), "{:?}", ranks(&levels));
    let tasks = levels["tasks"].as_array().expect("tasks");
    let hog = tasks.iter().find(|task| task["nice"] == 5 && task["cpu_share"].as_f64() > Some(0.3));
    let hog = hog.unwrap_or_else(|| panic!("a hog at nice 5: {levels}"));
    // Who never sleeps is below its nice value, by five levels at most, and has 75 ms at most.
    let level = hog["prio_dynamic"].as_i64().expect("a level");
    assert!(hog["class"] == "ext" && (126..=130).contains(&level), "{hog}");
    assert!(hog["slice_left_ns"].as_u64().is_some_and(|left| left <= 75_000_000), "{hog}");
    let vtime = said.json("virtual time");
    assert!(vtime["scheduler"] == "vtime" && ranks(&vtime).contains("vtime"), "{:?}", ranks(&vtime));
    said.says(
        "pictures",
        &["Priorities ", " 0 lost", "Cost       staircase_", " of scheduler code, ", "code 0\n"],
    );
    let numbers = said.of("pictures").lines().filter_map(|line| line.trim().parse::<u64>().ok());
    let numbers: Vec<u64> = numbers.collect();
    assert!(numbers.len() == 3 && numbers[0] > 2 && numbers[1] > 2 && numbers[2] > 1_000, "{numbers:?}");
    let costs = said.json("costs")["costs"].clone();
    let names = costs.as_array().expect("costs").iter().filter_map(|cost| cost["name"].as_str());
    assert!(names.clone().any(|name| name.starts_with("staircase_enque")), "{costs}");
    said.says("no log", &["logs no changes of priority", "staircase and fixed_priority do", "/tmp/none"]);
}

/// Two hogs of these nice values on one CPU; CPU time of each in the last of so many seconds, in hundredths of a second.
const PAIR: &str = "cat > /tmp/pair <<'END'
spent() { set -- $(cat /proc/$1/stat); echo $((${14} + ${15})); }
taskset 1 sh -c \"renice -n $1 -p \\$\\$ > /dev/null; while :; do :; done\" & a=$!
taskset 1 sh -c \"renice -n $2 -p \\$\\$ > /dev/null; while :; do :; done\" & b=$!
sleep 1
a0=$(spent $a); b0=$(spent $b)
sleep ${3:-3}
echo times $(($(spent $a) - a0)) $(($(spent $b) - b0))
kill $a $b
END";

const WEIGHTS: &[Step] = &[
    ("script", PAIR),
    ("linux", "schedlab -q run cfs -- sh /tmp/pair 0 4"),
    ("wide", "schedlab -q run cfs --weights linux -- sh /tmp/pair -3 7"),
    ("groups", "schedlab -q run cfs --weights group:5 -- sh /tmp/pair 0 4"),
    ("vtime", "schedlab -q run vtime --weights group:5 -- sh /tmp/pair 0 4"),
    ("element", "schedlab -q run cfs --set weight_of_prio[24]=1024 -- sh /tmp/pair 0 4"),
    ("told", "schedlab run cfs --weights group:5 -- true"),
    ("no table", "schedlab run fifo --weights linux -- true"),
    ("too many", "schedlab run cfs --weights group:41 -- true"),
    (
        "ten pairs",
        "schedlab -q run cfs -- sh -c 'for pair in \"0 0\" \"0 1\" \"0 3\" \"0 5\" \"0 10\" \"-5 0\" \"-10 -5\" \"-10 5\" \
         \"5 10\" \"15 19\"; do echo $pair $(sh /tmp/pair $pair); done'",
    ),
    (
        "vruntime",
        "schedlab -q record --vruntime -o /tmp/v -- schedlab -q run cfs -- sh /tmp/pair 0 4 > /dev/null; \
         schedlab -q show /tmp/v --html /tmp/v.html > /dev/null; \
         grep -oE 'sh: [0-9.]+ m?s on CPU, [0-9.]+ m?s of virtual runtime' /tmp/v.html",
    ),
];

/// Part of both that the first had.
#[track_caller]
fn share(said: &Said, step: &str) -> f64 {
    let line = said.of(step).lines().find_map(|line| line.strip_prefix("times "));
    let line = line.unwrap_or_else(|| panic!("{step} has no times:\n{}", said.of(step)));
    let times: Vec<f64> = line.split(' ').map(|time| time.parse().expect("a number")).collect();
    times[0] / (times[0] + times[1])
}

/// Of each line of nice values and times: what the first had of both, and what it should by its weight.
fn shares_of_pairs(text: &str) -> Vec<[f64; 2]> {
    let table = WeightTable::parse("linux").expect("a table");
    let weight = |nice: f64| f64::from(table.weight(Nice::widened(nice as i64).expect("a nice value")));
    let numbers = |line: &str| {
        line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<f64>>().try_into().ok()
    };
    let lines = text.lines().filter_map(numbers);
    lines.map(|[a, b, x, y]: [f64; 4]| [x / (x + y), weight(a) / (weight(a) + weight(b))]).collect()
}

/// CPU time and advance of the virtual runtime of the two that computed most, s.
#[track_caller]
fn computed(said: &Said) -> [[f64; 2]; 2] {
    let second = |unit: &str| if unit == "ms" { 1e-3 } else { 1.0 };
    let numbers = |line: &str| -> [f64; 2] {
        let words: Vec<&str> = line.split(' ').collect();
        let pairs = words.windows(2).filter_map(|pair| Some(pair[0].parse::<f64>().ok()? * second(pair[1])));
        pairs.collect::<Vec<f64>>().try_into().expect("two numbers")
    };
    let lines = said.of("vruntime").lines().filter(|line| line.starts_with("sh: "));
    let mut all: Vec<[f64; 2]> = lines.map(numbers).collect();
    all.sort_by(|a, b| b[0].total_cmp(&a[0]));
    all.truncate(2);
    all.try_into().unwrap_or_else(|_| panic!("two hogs are in the page:\n{}", said.of("vruntime")))
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn nice_values_weigh_what_the_table_says() {
    let said = steps(500, WEIGHTS);
    let expected = [
        ("linux", 1_024.0 / (1_024.0 + 423.0)),
        ("wide", 1_991.0 / (1_991.0 + 215.0)),
        ("groups", 0.5),
        ("vtime", 0.5),
        ("element", 0.5),
    ];
    for (step, expected) in expected {
        let share = share(&said, step);
        assert!((share - expected).abs() < 0.03, "{step}: {share:.3} for {expected:.3}");
    }
    said.says("told", &["Knob       weight_of_prio = 64 values", "code 0"]);
    said.says("no table", &["takes no weight table: vtime and cfs do", "code 2"]);
    said.says("too many", &["1 to 40", "code 2"]);
    let pairs = shares_of_pairs(said.of("ten pairs"));
    eprintln!("{pairs:.3?}");
    assert!(pairs.len() == 10 && pairs.iter().all(|[had, due]| (had - due).abs() < 0.03), "{pairs:.3?}");
    let [heavy, light] = computed(&said);
    let weights = 1_024.0 / 423.0;
    assert!((heavy[0] / light[0] / weights - 1.0).abs() < 0.1, "CPU time by weight: {heavy:?} {light:?}");
    assert!((heavy[1] / heavy[0] - 1.0).abs() < 0.1, "of nice 0 it is CPU time: {heavy:?}");
    assert!((heavy[1] / light[1] - 1.0).abs() < 0.1, "virtual runtimes grow alike: {heavy:?} {light:?}");
}
