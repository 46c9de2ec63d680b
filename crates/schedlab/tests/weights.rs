//! Weight tables and characters as a user meets them: comparisons whose answer is known, the paper's experiments, recordings
//! of known character, and tables and nice values that cannot be.

mod support;

use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{BINARY, Ended, file, recording, run, run_in, scratch};

/// `compare` on one CPU, with ten seeds and no perturbed costs, of this objective.
fn compare(work: &str, candidates: &str, objective: &str) -> Value {
    let words = ["compare", work, "-s", candidates, "--objective", objective, "--cpus", "1", "--runs", "6"];
    run(&[&words[..], &["--perturbed", "2", "-q", "--json", "-"]].concat()).done().json()
}

fn row<'a>(result: &'a Value, candidate: &str) -> &'a Value {
    let rows = result["comparison"]["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["candidate"] == candidate).unwrap_or_else(|| panic!("{candidate}: {result}"))
}

/// Tasks of nice 0 share alike under every table.
#[test]
fn weights_make_no_difference_to_tasks_of_one_nice_value() {
    let tables = ["group:2", "group:40", "refine:60"].map(|table| format!("fair:weights={table}"));
    for objective in ["fairness", "run_delay_mean"] {
        let candidates = format!("fair,{}", tables.join(","));
        let result = compare("hogs:count=3,nice=0,duration=2s", &candidates, objective);
        for table in &tables {
            assert_eq!(row(&result, table)["verdict"]["is"], "no_difference", "{objective}: {result}");
        }
        assert_eq!(result["comparison"]["overall"]["is"], "keep_default", "{objective}");
    }
}

/// Under one group of all 40, nice 0 and nice 5 weigh the same: half a CPU each instead of three quarters and one. By
/// Linux's weights (1024 and 335) that is unfair: (1 + 3.057)^2 / (2 · (1 + 3.057^2)) = 0.796.
#[test]
fn one_group_of_all_weights_takes_the_difference_of_nice_values_away() {
    let result = compare("hogs:count=2,nice=5,duration=4s", "fair,fair:weights=group:40", "fairness");
    let [linux, one] = ["fair", "fair:weights=group:40"].map(|name| row(&result, name));
    let value = |row: &Value| row["value"].as_f64().expect("a value");
    assert!((value(linux) - 1.0).abs() < 0.001 && (value(one) - 0.796).abs() < 0.005, "{linux} {one}");
    assert_eq!(one["verdict"]["is"], "worse", "{one}");
    assert_eq!(result["comparison"]["overall"]["is"], "keep_default");
    let candidates = result["candidates"].as_array().expect("candidates");
    let needs = candidates.iter().find(|one| one["name"] == "fair:weights=group:40").expect("it is there");
    assert!(needs["usable_here"].to_string().contains("a kernel built with these weights"), "{needs}");
}

/// The other levers: nice and policy of the whole target change nothing where it is alone with itself.
#[test]
fn levers_without_an_effect_are_not_recommended() {
    let levers = ["fair:nice=5", "fair:policy=batch", "fair:slice=3ms"];
    let result =
        compare("hogs:count=2,nice=0,duration=2s", &format!("fair,{}", levers.join(",")), "fairness");
    for lever in levers {
        assert_eq!(row(&result, lever)["verdict"]["is"], "no_difference", "{result}");
    }
    assert_eq!(result["comparison"]["overall"]["is"], "keep_default");
}

#[test]
fn tables_and_nice_values_that_cannot_be() {
    let directory = scratch("weight-tables");
    let many = (0..65).map(|_| "1024\n").collect::<String>();
    for (name, text, says) in [
        ("zero.txt", "1024\n0\n", "zero.txt:2: '0' is no weight: whole numbers from 1"),
        ("negative.txt", "1024 -5\n", "negative.txt:1: '-5' is no weight"),
        ("unsorted.txt", "100\n200\n", "unsorted.txt:2: weight 200 after 100: weights must not rise"),
        ("many.txt", many.as_str(), "has 65 weights: 1 to 64 are possible"),
        ("none.txt", "# nothing\n", "has 0 weights: 1 to 64 are possible"),
        ("words.txt", "a lot\n", "'a' is no weight"),
        ("first.txt", "first = 5\n1024\n", "so that it has nice 0"),
        ("huge.txt", "99999999999999999999\n", "is no weight"),
    ] {
        let path = file(&directory, name, text);
        for words in [&["simulate", "hogs"][..], &["compare", "hogs"]] {
            run(&[words, &["--weights", &path]].concat()).refused(2, &[name, says]);
        }
        let candidate = format!("fair:weights={path}");
        run(&["simulate", "hogs", "-s", &candidate]).refused(2, &[name, says]);
    }
    for (table, says) in [
        ("group:0", "take 1 to 40 of Linux's 40 together"),
        ("group:41", "take 1 to 40"),
        ("group:-1", "take 1 to 40"),
        ("group:", "take 1 to 40"),
        ("refine:40", "refine takes 41 to 64"),
        ("refine:65", "refine takes 41 to 64"),
        ("group:2:wide", "linux, group:N, group:N:shrink, refine:COUNT, or the path of a file"),
        ("nothing", "is no weight table"),
        ("./absent.txt", "cannot read the weight table ./absent.txt"),
    ] {
        run(&["simulate", "hogs", "--weights", table]).refused(2, &["weights", says]);
        run(&["compare", "hogs", "--weights", table]).refused(2, &["weights", says]);
    }
}

#[test]
fn nice_values_outside_of_the_table() {
    let outside = |words: &[&str], says: &str| run(words).refused(2, &["nice", says]);
    outside(&["simulate", "hogs", "-s", "fair:nice=20"], "-20 (strongest) to 19");
    outside(&["simulate", "hogs", "-s", "fair:nice=30", "--weights", "refine:60"], "-30 (strongest) to 29");
    outside(&["compare", "hogs", "-s", "fair:nice=4:weights=group:5:shrink"], "-4 (strongest) to 3");
    outside(&["simulate", "hogs:nice=25"], "-20 to 19");
    outside(&["simulate", "hogs:nice=30", "--weights", "refine:60"], "-30 to 29");
    outside(&["simulate", "hogs:nice=40", "--weights", "refine:60"], "-20 (strongest) to 19");
    outside(&["compare", "hogs:nice=25", "-s", "fair,vtime"], "-20 to 19");
    outside(&["play", "hogs", "--set", "nice=25", "--bare"], "25");
    let words = ["simulate", "hogs:nice=25,duration=50ms", "--weights", "refine:60", "-s", "fair:nice=29"];
    run(&words).done();
}

/// A millisecond has no turns at all, 100 ms too few; how long it takes is said. Other levers need no turns.
#[test]
fn runs_that_end_before_shares_show_say_how_long_they_need() {
    let said = |duration: &str, lever: &str| {
        let work = format!("hogs:count=2,duration={duration}");
        let words = ["compare", &work, "-s", &format!("fair,{lever}"), "--cpus", "1", "--perturbed", "0"];
        run(&[&words[..], &["--objective", "fairness", "-q"]].concat()).done().out
    };
    let short = said("1ms", "fair:weights=group:2");
    assert!(short.contains("preempted 0 times") && short.contains("run for about 2.50 s"), "{short}");
    let some = said("100ms", "fair:nice=5");
    assert!(some.contains("show over about 100; work that competes") && !some.contains(" 0 times"), "{some}");
    assert!(!said("3s", "fair:weights=group:2").contains("show over about"));
    assert!(!said("1ms", "fair:slice=3ms").contains("show over about"));
}

/// Characters by group of a recording.
fn characters(path: &str) -> Vec<(String, String)> {
    let value = run(&["show", path, "--character", "--json", "-"]).done().json();
    let all = value["characters"].as_array().expect("groups");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    all.iter().map(|group| (text(&group["name"]), text(&group["kind"]))).collect()
}

#[track_caller]
fn has(all: &[(String, String)], name: &str, kind: &str) {
    assert!(all.iter().any(|(a, b)| a == name && b == kind), "{name} is {kind}: {all:?}");
}

/// mixed.c: two hogs, a task every 10 ms, and a ping-pong over pipes whose one side sleeps.
#[test]
fn the_repositorys_recordings_have_the_characters_of_their_sources() {
    let mixed = characters(&recording("mixed.slrec"));
    has(&mixed, "hog", "batch");
    has(&mixed, "periodic", "periodic");
    has(&mixed, "pong", "communicating");
    let hackbench = characters(&recording("hackbench-g1-l50.slrec"));
    assert_eq!(hackbench[0].0, "hackbench", "{hackbench:?}");
    has(&hackbench, "hackbench", "communicating");
    let text = run(&["show", &recording("mixed.slrec"), "--character"]).done().out;
    for says in ["10.0 ms apart", "Cache footprint: not recorded", "docs/character.md", "schedlab compare"] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

const KNOWN: &str = r#"
name = "known"
duration = "2s"
[channels]
ball = { type = "tokens", initial = 1 }
back = { type = "tokens" }
[[task]]
name = "compiler"
steps = [{ loop = { steps = [{ run = { uniform = ["10ms", "30ms"] } }, { sleep = "1ms" }] } }]
[[task]]
name = "player"
steps = [{ loop = { steps = [{ timer = { period = "20ms" } }, { run = "2ms" }] } }]
[[task]]
name = "user"
steps = [{ loop = { steps = [{ sleep = { exponential = "15ms" } }, { run = { exponential = "500us" } }] } }]
[[task]]
name = "left"
steps = [{ loop = { steps = [{ take = { channel = "ball" } }, { run = "200us" }, { post = { channel = "back" } }] } }]
[[task]]
name = "right"
steps = [{ loop = { steps = [{ take = { channel = "back" } }, { run = "200us" }, { post = { channel = "ball" } }] } }]
"#;

#[test]
fn simulated_recordings_have_the_characters_they_were_made_with() {
    let directory = scratch("characters");
    let known = file(&directory, "known.toml", KNOWN);
    let path = directory.join("known.slrec").display().to_string();
    for cpus in ["1", "4"] {
        run(&["simulate", &known, "--cpus", cpus, "--record", &path]).done();
        let found = characters(&path);
        has(&found, "compiler", "batch");
        has(&found, "player", "periodic");
        has(&found, "user", "interactive");
        has(&found, "left", "communicating");
        has(&found, "right", "communicating");
    }
    run(&["simulate", &known, "--cpus", "4", "--duration", "60ms", "--record", &path]).done();
    let text = run(&["show", &path, "--character"]).done().out;
    assert!(text.contains("cannot tell") && text.contains("record for about 0."), "{text}");
    run(&["show", &known, "--character"]).refused(2, &["is no recording", "--record FILE"]);
    run(&["show", &known, "--html", "none.html"])
        .refused(2, &["is no recording", "schedulers of the library only"]);
    for flag in [&["--character"][..], &["--perfetto", "none.pftrace"]] {
        for what in ["vtime", "fair"] {
            run(&[&["show", what], flag].concat())
                .refused(2, &["is no recording", flag[0], "schedlab record"]);
        }
    }
}

/// Tables as derived, picks, shares, programs, and every claim with its verdict; the same with any number of threads.
#[test]
fn the_paper_is_reproduced_in_one_command() {
    let directory = scratch("cfs-weights");
    let words = ["reproduce", "cfs-weights-2021", "--quick", "-q"];
    let ended = run_in(&directory, &words).done();
    for text in ["Table 1.", "Table 5.", "88761", "59913", "827181", "Figure 3.", "Table 7", "reproduced"] {
        assert!(ended.out.contains(text), "{text}: {}", ended.out);
    }
    let all =
        |jobs: &str| run_in(&directory, &[&words[..], &["--jobs", jobs, "--json", "-"]].concat()).done();
    let (one, two) = (all("1"), all("3"));
    assert_eq!(one.out, two.out, "results do not depend on threads");
    let value = one.json();
    for of in value["vruntimes"].as_array().expect("paces") {
        let number = |part: &Value| part.as_f64().expect("a number");
        let (found, by_weight) = (number(&of["found"]["estimate"]), number(&of["by_weight"]));
        assert!((found / by_weight - 1.0).abs() < 0.001, "vruntime grows by 1024 / weight: {of}");
    }
    let picks = value["picks"].as_array().expect("scenes");
    for of in picks {
        let all_equal = of["equal"] == of["seeds"];
        assert_eq!(of["picks_equal"] == of["picks"], all_equal, "{of}");
        let explained = of["first"].is_object() && of["because"].is_string();
        assert!(all_equal != explained, "what differs is explained: {of}");
        // Within -20 to 19 the refined table is Linux's.
        assert!(all_equal || of["table"] != "refine:60", "{of}");
    }
    let alike: Vec<&Value> = picks.iter().filter(|of| of["alike"] == true).collect();
    let equal: u64 = alike.iter().map(|of| of["equal"].as_u64().expect("a count")).sum();
    for of in &alike {
        let count = |part: &str| of[part].as_u64().expect("a count");
        let explained = count("equal") + count("by_turn") + count("by_rounding");
        assert_eq!(explained, count("seeds"), "every difference has its cause: {of}");
    }
    assert!(alike.len() == 6 && equal >= 20, "of 24 runs: {alike:?}");
    let group = |of: &&Value| of["table"] == "group:2" && of["scene"] == "none sleeps, nice 0, 1, 0";
    let differs = picks.iter().find(group).expect("a scene");
    assert!(differs["first"]["pick"].as_u64() > Some(1) && differs["because"].is_string(), "{differs}");
    let shares = value["shares"].as_array().expect("shares");
    assert!(shares.iter().filter(|of| of["by_weights"].is_f64()).count() >= 12);
    let claims = value["claims"].as_array().expect("claims");
    for claim in claims {
        let explained = claim["reproduced"] == true || claim["because"].is_string();
        assert!(explained && claim["found"].is_string(), "{claim}");
    }
}

#[test]
fn a_reproduction_refuses_what_it_has_not_and_ends_at_ctrl_c() {
    let set = ["reproduce", "cfs-weights-2021", "--set", "hz=1000"];
    run(&set).refused(2, &["--set hz=1000", "has no knob", "--weights"]);
    run(&["reproduce", "cfs-weights-2020"]).refused(2, &["cfs-weights-2021"]);
    let mut command = Command::new(BINARY);
    command.args(["reproduce", "cfs-weights-2021", "-q"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("starts");
    std::thread::sleep(Duration::from_secs(2));
    // The shell's own: there may be no program `kill`.
    let status = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status();
    assert!(status.expect("sh runs").success());
    let ended = Ended::of(child.wait_with_output().expect("ends"));
    assert_eq!((ended.code, ended.out.as_str()), (130, ""), "{ended:?}");
    assert!(ended.err.contains("interrupted"), "{ended:?}");
}
