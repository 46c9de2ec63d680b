//! Set-up files and `--set`: an object that needs its user half runs with one, and mistakes are told with their
//! place.

mod support;

use support::{file, run, run_in, scratch};

const SETUP: &str = include_str!("../../../bpf/tests/user_half.setup.toml");
const WORDS: [&str; 5] = ["periodic:hogs=2,duration=100ms", "--cpus", "4", "--kernel", "7.2"];

fn object(directory: &std::path::Path) -> String {
    let bytes = schedlab_objects::test_object("user_half").expect("an object of bpf/tests");
    file(directory, "user_half.bpf.o", bytes)
}

fn simulate(scheduler: &str, more: &[&str]) -> support::Ended {
    run(&[&["simulate"], &WORDS[..], &["--scheduler", scheduler], more].concat())
}

/// Members can be set, so they are shown, and an error says which there are.
#[test]
fn members_of_structs_are_knobs_that_show_lists() {
    let directory = scratch("members");
    let object = object(&directory);
    let shown = run_in(&directory, &["show", &object]).done().out;
    for line in ["u64 config.slice_ns = 0", "u32 config.weights[4]", "enum mode config.mode = 0"] {
        assert!(shown.contains(&format!("Member     {line}\n")), "{line}: {shown}");
    }
    let json = run_in(&directory, &["show", &object, "--json", "-"]).done().json();
    let variables = json["details"]["variables"].as_array().expect("variables").iter();
    let config = variables.clone().find(|variable| variable["name"] == "config").expect("config");
    assert_eq!(config["members"][0]["name"], "config.slice_ns", "{config}");
    let set = |set: &str| run_in(&directory, &["simulate", "ping-pong", "-s", &object, "--set", set]);
    set("config.absent=1").refused(2, &["has no member `absent`; it has slice_ns, weights, mode"]);
    let two = format!("{object},vtime");
    let both = ["compare", "ping-pong", "-s", &two, "--set", "config.absent=1"];
    run_in(&directory, &both).refused(2, &["has no member `absent`; it has slice_ns"]);
    set("config.slicens=1").refused(2, &["did you mean slice_ns?"]);
}

#[test]
fn an_object_with_a_user_half_runs_with_its_set_up_file() {
    let directory = scratch("setup");
    let object = object(&directory);
    simulate(&object, &[]).refused(2, &["per_pair", "max_entries", "set-up file"]);
    let other = scratch("setup-elsewhere");
    let setup = file(&other, "given.toml", SETUP);
    simulate("fair", &["--setup", &setup]).refused(2, &["no scheduler here"]);
    let said = simulate(&object, &["--setup", &setup]).done().out;
    assert!(said.contains("is set up by"), "{said}");
    // Found beside the object too.
    file(&directory, "user_half.setup.toml", SETUP);
    simulate(&object, &[]).done();
    let list = format!("fair,{object}");
    let words = [&["compare"], &WORDS[..], &["--runs", "2", "--scheduler", &list]].concat();
    run(&words).done();
}

/// It is not ignored: who gives a file means it.
#[test]
fn a_set_up_file_that_no_object_takes_is_refused() {
    let directory = scratch("setup-unused");
    let object = object(&directory);
    let setup = file(&directory, "mine.toml", SETUP);
    let list = format!("fair,{object}");
    for (scheduler, switch) in [("vtime", None), ("fair", Some("10ms:vtime"))] {
        let more: Vec<&str> =
            ["--setup", &setup].into_iter().chain(switch.iter().flat_map(|at| ["--switch-at", at])).collect();
        simulate(scheduler, &more).refused(2, &["mine.toml", "it is for user_half.bpf.o", "--scheduler"]);
    }
    let words = |list: &str, setup: &str| {
        let words =
            [&["compare"], &WORDS[..], &["--runs", "2", "--scheduler", list, "--setup", setup]].concat();
        run(&words)
    };
    words("fair,vtime", &setup).refused(2, &["mine.toml"]);
    words(&list, &setup).done();
    let other = SETUP.replacen("user_half.bpf.o", "another.bpf.o", 1);
    let other = file(&directory, "other.toml", other);
    file(&directory, "user_half.setup.toml", SETUP);
    words(&list, &other).refused(2, &["other.toml", "it is for another.bpf.o"]);
    // What is switched to takes it as well.
    simulate("fair", &["--setup", &setup, "--switch-at", &format!("10ms:{object}")]).done();
}

#[test]
fn mistakes_in_a_set_up_file_are_told_with_their_line() {
    let directory = scratch("setup-mistakes");
    let object = object(&directory);
    for (wrong, right, says) in [
        ("nr_cpu_id = \"nr_cpus\"", "nr_cpu_ids = \"nr_cpus\"", "did you mean nr_cpu_ids"),
        ("\"config.mode\" = \"MODE_PAIR\"", "\"config.mode\" = \"MODE_PAIRED\"", "did you mean MODE_PAIRED"),
        ("\"config.label\" = \"much longer than it\"", "\"config.label\" = \"ok\"", "16 with its end"),
        ("\"config.strict\" = 2", "\"config.strict\" = true", "out of bounds: 0 to 1"),
        ("[maps.per_pairs]", "[maps.per_pair]", "did you mean per_pair"),
        ("run = \"sum_upp\"", "run = \"sum_up\"", "did you mean sum_up"),
        ("timeout = 5000", "timeout_ms = 5000", "did you mean timeout_ms"),
        ("name = \"pair_of[cpu + 1]\"", "name = \"pair_of[cpu]\"", "index 4 of 4 elements"),
        ("pair_off = \"nr_cpus\"", "pair_of = \"nr_cpus\"", "did you mean pair_of"),
        ("returns = 4", "returns = 3", "sum_up returned 3, not 4"),
        ("weightss = [11, 22]", "weights = [11, 22]", "did you mean weights"),
        ("frobnicate = 1", "run = \"sum_up\"", "unknown field"),
    ] {
        assert!(SETUP.contains(right), "{right}");
        let text = SETUP.replacen(right, wrong, 1);
        let setup = file(&directory, "wrong.toml", &text);
        let line = text[..text.find(wrong).expect("put there")].matches('\n').count() + 1;
        let ended = simulate(&object, &["--setup", &setup]).refused(2, &[says, "wrong.toml"]);
        let near = (line.saturating_sub(5)..=line).any(|line| {
            ended.err.contains(&format!("wrong.toml:{line}")) || ended.err.contains(&format!("line {line}"))
        });
        assert!(near, "line {line}: {}", ended.err);
    }
}

#[test]
fn a_member_that_a_program_does_not_take_is_told_with_its_own_line() {
    let directory = scratch("setup-member");
    let object = object(&directory);
    let (wrong, right) = ("node_idd = \"node\"", "node = \"node\"");
    assert!(SETUP.contains(right), "{right}");
    let text = SETUP.replacen(right, wrong, 1);
    let line = text[..text.find(wrong).expect("put there")].matches('\n').count() + 1;
    let setup = file(&directory, "wrong.toml", &text);
    let says = format!("wrong.toml:{line}: ");
    simulate(&object, &["--setup", &setup]).refused(2, &[&says, "has no member `node_idd`"]);
}

#[test]
fn flags_that_a_kernel_lacks_are_left_out_as_user_halves_do() {
    let directory = scratch("setup-flags");
    let object = object(&directory);
    let asked = "[ops]\nflags = \"SCX_OPS_ALWAYS_ENQ_IMMED\"\n";
    let setup = file(&directory, "flags.toml", SETUP.replacen("[ops]\n", asked, 1));
    let words = ["simulate", WORDS[0], "--cpus", "4", "-s", &object, "--setup", &setup, "--kernel"];
    let said = |kernel: &str| run(&[&words[..], &[kernel]].concat()).done().out;
    let old = said("6.18");
    assert!(old.contains("without what Linux 6.18 does not have: SCX_OPS_ALWAYS_ENQ_IMMED"), "{old}");
    assert!(!said("7.2").contains("does not have"));
}

#[test]
fn any_variable_can_be_set_by_name() {
    let directory = scratch("set");
    let object = object(&directory);
    file(&directory, "user_half.setup.toml", SETUP);
    let set = |text: &str| simulate(&object, &["--set", text]);
    for good in [
        "config.slice_ns=3ms",
        "config.weights[3]=0x5",
        "config.mode=MODE_PAIRED",
        "budget_us=2ms",
        "config.strict=yes",
    ] {
        set(good).done();
    }
    for (bad, says) in [
        ("config.slice=1", "did you mean slice_ns"),
        ("config.weights[4]=1", "index 4 of 4 elements"),
        ("config.weights[0]=-1", "out of bounds: 0 to 4294967295"),
        ("config.mode=MODE_PAIRS", "did you mean MODE_PAIRED"),
        ("budget=1", "did you mean budget_us"),
        ("budget_us=1ns", "no whole number of us"),
        ("config=1", "not a number"),
        ("budget_us", "NAME=VALUE"),
    ] {
        set(bad).refused(2, &[says]);
    }
    // Another value reaches the program: its init refuses it.
    set("config.mode=MODE_NONE").refused(1, &["ops.init() failed (-101)"]);
}
