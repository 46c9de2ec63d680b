//! Bad input: every kind ends with code 2 and a message that names the remedy. A truncated recording is still
//! used, and said to be.

mod support;

use support::{file, recording, run, run_in, scratch};

fn scheduler_object(name: &str) -> &'static [u8] {
    schedlab_objects::scheduler(name).expect("comes with the program")
}

#[test]
fn objects_that_cannot_be_loaded() {
    let directory = scratch("objects");
    let good = scheduler_object("vtime");
    let mut big_endian = good.to_vec();
    // EI_DATA, and e_machine in the other order.
    big_endian[5] = 2;
    big_endian.swap(18, 19);
    for (name, bytes, says) in [
        ("text.o", b"int main;".to_vec(), "clang -target bpf"),
        ("empty.o", Vec::new(), "clang -target bpf"),
        ("truncated.o", good[..good.len() / 2].to_vec(), "truncated or damaged"),
        ("big.o", big_endian, "-target bpfel"),
        ("host.o", std::fs::read(support::BINARY).expect("itself"), "not a BPF object"),
    ] {
        let path = file(&directory, name, bytes);
        run(&["show", &path]).refused(2, &[name, says]);
        run(&["simulate", "hogs", "--scheduler", &path]).refused(2, &[name, says]);
    }
    let path = file(&directory, "good.o", good);
    let words = ["simulate", "hogs:duration=50ms", "--cpus", "2", "--scheduler", &path];
    run(&words).done();
}

#[test]
fn names_that_nothing_has() {
    run(&["simulate", "hogs", "-s", "nope"]).refused(2, &["no scheduler 'nope'", "vtime", "object file"]);
    run(&["compare", "hogs", "-s", "fair,nope"]).refused(2, &["no scheduler 'nope'", "vtime"]);
    run(&["simulate", "nope"])
        .refused(2, &["no workload or file 'nope'", "hackbench", "schedlab compare --"]);
    run(&["simulate", "hogs:x=1"]).refused(2, &["no parameter 'x'", "count"]);
    run(&["simulate", "hogs", "--machine", "nope"]).refused(2, &["no machine 'nope'", "two-socket"]);
    run(&["compare", "hogs", "--objective", "speed"]).refused(2, &["no metric", "latency"]);
    run(&["compare", "hogs", "--guard", "throughput"]).refused(2, &["has no bound", "throughput>=-3%"]);
    run(&["list", "knobs"]).refused(2, &["schedulers, workloads, machines"]);
    run(&["show", "Cargo.lock"]).refused(2, &["unknown kind of file", ".slrec"]);
    run(&["simulate", "absent.toml"]).refused(2, &["cannot read absent.toml"]);
    run(&["frobnicate"]).refused(2, &["--help"]);
}

/// Refused before anything is fetched or booted.
#[test]
fn machines_that_cannot_be_booted() {
    run(&["vm", "boot", "--kernel", "6.13", "--", "true"]).refused(2, &["6.1, 6.12, 7.2 or running"]);
    run(&["vm", "boot", "--kernel", "./absent", "--", "true"]).refused(2, &["./absent cannot be booted"]);
    run(&["vm", "boot", "--kernel", "./Cargo.lock", "--", "true"]).refused(2, &["no bootable x86 image"]);
    run(&["vm", "boot", "--topology", "2:2", "--", "true"]).refused(2, &["SOCKETS:CORES:THREADS"]);
    run(&["vm", "boot", "--topology", "1:x:1:2", "--", "true"]).refused(2, &["SOCKETS:CORES:THREADS"]);
    run(&["vm", "try", "vtime", "--stress", "1ms"]).refused(2, &["less than 1s"]);
    run(&["vm", "boot"]).refused(2, &["COMMAND"]);
    run(&["vm", "try", "nope"]).refused(2, &["no scheduler 'nope'", "object file"]);
    run(&["vm", "try", "vtime", "--set", "slice_ns=much"]).refused(2, &["whole number"]);
    run(&["vm", "fetch", "5.4"]).refused(2, &["6.1, 6.12 and 7.2"]);
}

#[test]
fn knobs_out_of_bounds() {
    let bounds = "100000 to 1000000000 ns";
    run(&["simulate", "hogs", "-s", "vtime:slice_ns=1"]).refused(2, &["slice_ns = 1", bounds]);
    run(&["simulate", "hogs", "-s", "vtime", "--set", "slice_ns=1"]).refused(2, &["slice_ns = 1", bounds]);
    run(&["simulate", "hogs", "-s", "vtime", "--set", "nope=1"]).refused(2, &["schedlab list schedulers"]);
    run(&["simulate", "hogs", "-s", "fair:policy=best"]).refused(2, &["normal, batch, idle, fifo or rr"]);
    run(&["simulate", "hogs", "-s", "fair:slice=1s"]).refused(2, &["100us to 100ms"]);
}

#[test]
fn recordings_that_cannot_be_read() {
    let directory = scratch("recordings");
    let good = std::fs::read(recording("mixed.slrec")).expect("comes with the repository");
    let mut other_version = good.clone();
    other_version[8] = 99;
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 0xff;
    for (name, bytes, says) in [
        ("other.slrec", b"not this".to_vec(), "schedlab record -o FILE"),
        ("empty.slrec", Vec::new(), "schedlab record -o FILE"),
        ("version.slrec", other_version, "format version 99, this schedlab reads versions 1 to 4"),
        ("head.slrec", good[..100].to_vec(), "record it again"),
        ("start.slrec", good[..2000].to_vec(), "cut off before its first whole block"),
        ("damaged.slrec", damaged, "copy it again"),
    ] {
        let path = file(&directory, name, bytes);
        for command in ["show", "simulate", "compare"] {
            run(&[command, &path]).refused(2, &[name, says]);
        }
    }
}

#[test]
fn a_truncated_recording_is_used_and_said_to_be() {
    let directory = scratch("truncated");
    let good = std::fs::read(recording("mixed.slrec")).expect("comes with the repository");
    let path = file(&directory, "half.slrec", &good[..good.len() / 2]);
    let shown = run(&["show", &path]).done().out;
    assert!(shown.contains("ended early"), "{shown}");
    let compared = run(&["compare", &path, "-s", "fair,vtime", "--runs", "2"]).done().out;
    assert!(compared.contains("half.slrec ended early; it is used up to its last whole block"), "{compared}");
    assert!(compared.contains("Verdict"), "{compared}");
}

#[test]
fn a_recording_with_dropped_events_is_used_only_if_asked() {
    use schedlab_model::recording::codec::{decode, encode};
    let directory = scratch("drops");
    let mut lossy = decode(&std::fs::read(recording("mixed.slrec")).expect("ours")).expect("whole");
    lossy.provenance.dropped = 12_345;
    let path = file(&directory, "lossy.slrec", encode(&lossy).expect("memory"));
    assert!(run(&["show", &path]).done().out.contains("12345"), "it is shown");
    run(&["simulate", &path]).refused(2, &["lossy.slrec", "12345", "--allow-drops"]);
    run(&["simulate", &path, "--allow-drops"]).done();
}

#[test]
fn kernels_that_are_not_modelled_or_have_no_sched_ext() {
    run(&["simulate", "hogs", "--kernel", "4.19"]).refused(2, &["5.7 to 7.2"]);
    run(&["simulate", "hogs", "--kernel", "6.1", "-s", "vtime"])
        .refused(2, &["vtime", "no sched_ext", "6.12"]);
    run(&["simulate", "hogs", "--kernel", "6.1", "--set", "base_slice_ns=1000000"])
        .refused(2, &["base_slice_ns"]);
}

#[test]
fn workloads_that_cannot_run() {
    let directory = scratch("workloads");
    for (name, text, says) in [
        (
            "field.toml",
            "name = \"x\"\n[[task]]\nname = \"a\"\nnise = 3\nsteps = [{ run = \"1ms\" }]\n",
            &["line 4", "unknown field `nise`", "`nice`"][..],
        ),
        (
            "step.toml",
            "name = \"x\"\n[[task]]\nname = \"a\"\nsteps = [{ rum = \"1ms\" }]\n",
            &["rum", "`run`"],
        ),
        ("none.toml", "name = \"x\"\n", &["no task that starts", "[[task]]"]),
        ("steps.toml", "name = \"x\"\n[[task]]\nname = \"a\"\n", &["'a' has no steps", "run"]),
        (
            "channel.toml",
            "name = \"x\"\n[[task]]\nname = \"a\"\nsteps = [{ lock = \"m\" }]\n",
            &["'m' is not declared", "[channels.m]"],
        ),
        ("none.json", "{\"tasks\": {}}", &["no task that starts"]),
        (
            "key.json",
            "{\"tasks\": {\"a\": {\n\"mem\": 3}}}",
            &["line 2: tasks.a.mem", "write a run of the time"],
        ),
    ] {
        let path = file(&directory, name, text);
        run(&["simulate", &path]).refused(2, &[&[name][..], says].concat());
        run(&["compare", &path]).refused(2, says);
    }
}

#[test]
fn tasks_pinned_beside_the_machine() {
    let directory = scratch("pinned");
    let toml = |cpus: &str| {
        let steps = format!("{{ run = \"1ms\" }}, {{ set = {{ cpus = \"{cpus}\" }} }}, {{ run = \"1ms\" }}");
        format!("name = \"x\"\n[[task]]\nname = \"a\"\nsteps = [{steps}]\n")
    };
    let json = "{\"tasks\": {\"w\": {\"cpus\": [9], \"loop\": 3, \"run\": 100, \"sleep\": 100}}}";
    let graph = file(&directory, "graph.json", json);
    let set = file(&directory, "set.toml", toml("7"));
    let machine = ["none of the CPUs", "which has 4 CPUs (online: 0-3)", "--cpus", "--machine"];
    for command in ["simulate", "compare"] {
        let refused = |path: &str, says: &[&str]| {
            run(&[command, path, "--cpus", "4"]).refused(2, &[says, &machine].concat())
        };
        refused(&graph, &["graph.json", "task 'w', its attributes", "CPUs 9"]);
        refused(&set, &["set.toml", "task 'a', step 2 (set)", "CPUs 7"]);
    }
    run(&["simulate", &graph, "--cpus", "10"]).done();
    // A mask that lies on the machine in part is cut, as by Linux.
    let wide = file(&directory, "wide.toml", toml("3-1023"));
    run(&["simulate", &wide, "--cpus", "4"]).done();
}

#[test]
fn a_deadlock_says_who_waits_for_whom() {
    let directory = scratch("deadlock");
    let task = |name: &str, first: &str, second: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nsteps = [{{ lock = \"{first}\" }}, {{ sleep = \"1ms\" }}, \
             {{ lock = \"{second}\" }}, {{ run = \"1ms\" }}]\n"
        )
    };
    let text = format!(
        "name = \"dead\"\n[channels]\nleft = {{ type = \"mutex\" }}\nright = {{ type = \"mutex\" }}\n{}{}",
        task("one", "left", "right"),
        task("two", "right", "left")
    );
    file(&directory, "dead.toml", text);
    let says = [
        "deadlock at",
        "'one' waits for lock 'right', held by 'two'",
        "'two' waits for lock 'left', held by 'one'",
    ];
    run_in(&directory, &["simulate", "dead.toml"]).refused(2, &says);
    run_in(&directory, &["simulate", "dead.toml", "-s", "vtime"]).refused(2, &says);
    run_in(&directory, &["compare", "dead.toml", "-s", "fair,vtime", "--runs", "1"]).refused(2, &says);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(support::BINARY)
        .args(["list", "metrics"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
    let mut child = Command::new(support::BINARY)
        .args(["simulate", "nope"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(2), "the code does not depend on who reads");
}

/// Where nothing can be written any more: no mistake of the command line.
#[test]
fn a_full_disk_is_said_to_be_full() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = std::process::Command::new(support::BINARY).args(["list", "metrics"]).stdout(full).output();
    support::Ended::of(output.expect("the program starts"))
        .refused(3, &["No space left on device", "free some space there, or write elsewhere"]);
}

fn test_object(directory: &std::path::Path, name: &str) -> String {
    let bytes = schedlab_objects::test_object(name).expect("an object of bpf/tests");
    file(directory, &format!("{name}.o"), bytes)
}

#[test]
fn objects_that_need_what_the_kernel_lacks() {
    let directory = scratch("lacking");
    let externs = test_object(&directory, "externs");
    run(&["show", &externs]).refused(2, &["`test_present`", "use a newer kernel", "bpf_ksym_exists()"]);
    let unlinked = test_object(&directory, "unlinked");
    run(&["show", &unlinked]).refused(2, &["`defined_elsewhere`", "bpftool gen object"]);
}

#[test]
fn show_names_all_that_an_object_lacks_at_once() {
    let directory = scratch("lacking-all");
    let lacking = test_object(&directory, "lacking");
    let said = run(&["show", &lacking]).done().out;
    for words in [
        "helper bpf_d_path, which does not exist here",
        "helper bpf_find_vma, which does not exist here",
        "kfunc scx_bpf_of_tomorrow, which this kernel lacks",
        "kfunc scx_bpf_of_next_year, which this kernel lacks",
        "map devices: maps of type devmap do not exist here",
        "map processors: maps of type cpumap do not exist here",
    ] {
        assert!(said.contains(words), "`{words}` is missing in: {said}");
    }
    // What a kernel requires when it loads the object is told at once too.
    let externs = test_object(&directory, "externs");
    run(&["show", &externs]).refused(2, &["problems:", "1. ", "2. "]);
}

#[test]
fn a_callback_that_may_not_sleep_is_refused() {
    let directory = scratch("sleeps");
    let sleeps = test_object(&directory, "sleeps");
    let says = ["program sleeps_enqueue may sleep", "ops.enqueue()", "SEC(\"struct_ops/sleeps_enqueue\")"];
    run(&["simulate", "hogs", "--scheduler", &sleeps]).refused(2, &says);
}

#[test]
fn schedulers_that_the_kernel_would_end() {
    let directory = scratch("misbehaving");
    let [stall, twice, misbehave] =
        ["stall", "double_insert", "misbehave"].map(|n| test_object(&directory, n));
    let forbidden = format!("{misbehave}:mistake=5");
    for (work, scheduler, says) in [
        ("periodic:hogs=2,duration=3s", &stall, ["runnable task stall", "failed to run for"]),
        ("periodic:hogs=2,duration=300ms", &twice, ["runtime error", "already direct-dispatched"]),
        ("hogs:duration=300ms", &forbidden, ["runtime error", "target CPU 1 not allowed for hog0"]),
    ] {
        let ended = run(&["simulate", work, "--cpus", "2", "--scheduler", scheduler]);
        let ended = ended.refused(1, &[&says[..], &["the fair class took over"]].concat());
        assert!(ended.out.contains("throughput") || ended.out.contains("cpu_time"), "{ended:#?}");
    }
    let list = format!("fair,{twice}");
    let words = ["compare", "periodic:hogs=2,duration=300ms", "--cpus", "2", "--runs", "2", "-s", &list];
    let said = run(&words).done().out;
    assert!(said.contains("failed: runtime error") && said.contains("Keep the default"), "{said}");
}

#[test]
fn a_guard_that_every_candidate_breaks_is_a_no() {
    let words =
        ["compare", "periodic:hogs=4,duration=500ms", "--cpus", "2", "-s", "fair,fifo", "--runs", "2"];
    let guard = ["--objective", "latency", "--guard", "wakeup_latency_p99<=1us"];
    let ended = run(&[&words[..], &guard].concat()).refused(1, &["every candidate breaks a guard"]);
    assert!(ended.out.contains("BROKEN"), "{ended:#?}");
}

#[test]
fn live_schedulers_are_refused_before_anything_is_changed() {
    run(&["run", "no-such-scheduler", "--", "true"])
        .refused(2, &["no scheduler 'no-such-scheduler'", "vtime"]);
    run(&["run", "vtime", "--set", "no_such_knob=1", "--", "true"]).refused(2, &["no_such_knob"]);
    run(&["run", "vtime", "--set", "slice_ns=0", "--", "true"]).refused(2, &["slice_ns"]);
    run(&["run", "vtime"]).refused(2, &["COMMAND"]);
    run(&["start", "vtime", "--p99", "5ms"]).refused(2, &["--canary"]);
    run(&["start", "vtime", "--keep"]).refused(2, &["--trial"]);
    run(&["start", "vtime", "--stall", "1s"]).refused(2, &["--stall", "--canary"]);
    let knobs = "vtime:slice_ns=5ms:lag_limit_ns=1ms";
    for command in ["switch", "start"] {
        run(&[command, knobs]).refused(2, &["vtime --set slice_ns=5ms --set lag_limit_ns=1ms"]);
    }
    run(&["run", "vtime:slice_ns=5ms", "--", "true"]).refused(2, &["vtime --set slice_ns=5ms"]);
    run(&["switch", "vtime", "--stall", "1s"]).refused(2, &["--stall", "--canary"]);
    for nothing in
        [&["--canary", "0"][..], &["--canary", "9", "--p99", "0ms"], &["--canary", "9", "--stall", "0s"]]
    {
        run(&[&["start", "vtime"], nothing].concat()).refused(2, &["more than 0"]);
    }
    run(&["run", "vtime", "--trial", "--canary", "9", "--", "true"]).refused(2, &["--canary"]);
    run(&["run", "vtime", "--", "no-such-command-anywhere"])
        .refused(2, &["no-such-command-anywhere", "PATH"]);
    run(&["start", "vtime", "--trial", "--p99", "5ms", "--stall", "3s", "--dry-run"]).done();
    if std::path::Path::new("/sys/kernel/sched_ext").exists() {
        return;
    }
    for words in [
        &["run", "vtime", "--", "true"][..],
        &["start", "vtime"],
        &["switch", "vtime"],
        &["stop"],
        &["status"],
    ] {
        run(words).refused(3, &["no sched_ext", "CONFIG_SCHED_CLASS_EXT"]);
    }
    let plan = run(&["run", "vtime", "--dry-run", "--", "true"]).done().out;
    assert!(
        plan.contains("Nothing was changed") && plan.contains("In the way now: this kernel has no sched_ext"),
        "{plan}"
    );
    assert!(run(&["restore"]).done().out.contains("Nothing was left changed"));
}
