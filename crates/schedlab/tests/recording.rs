//! `record` and `compare -- COMMAND` on this machine's kernel, and what they say without privileges. Needs
//! root: says so loudly where it is not there, and fails instead where CI is set.

mod support;

use support::{can_record, public_directory, run_in, scratch, unprivileged};

#[test]
fn a_command_is_recorded_and_can_be_used() {
    if !can_record() {
        return;
    }
    let directory = scratch("record");
    let words =
        ["record", "-o", "a.slrec", "--json", "facts.json", "--", "sh", "-c", "sleep 0.02; echo done"];
    let said = run_in(&directory, &words).done().out;
    assert!(said.contains("done") && said.contains("Recorded   a.slrec"), "{said}");
    let facts = std::fs::read_to_string(directory.join("facts.json")).expect("facts");
    let facts: serde_json::Value = serde_json::from_str(&facts).expect("JSON");
    assert_eq!((facts["exit_code"].as_i64(), facts["dropped"].as_u64()), (Some(0), Some(0)), "{facts}");
    let shown = run_in(&directory, &["show", "a.slrec"]).done().out;
    assert!(shown.contains("sleep 0.02"), "{shown}");
    run_in(&directory, &["simulate", "a.slrec"]).done();
}

#[test]
fn compare_records_a_command_and_leaves_every_output() {
    if !can_record() {
        return;
    }
    let directory = scratch("compare-command");
    let words = ["compare", "-s", "fair,vtime", "--runs", "2", "-o", "out", "--", "sleep", "0.02"];
    let said = run_in(&directory, &words).done().out;
    assert!(said.contains("Triage") && said.contains("Verdict"), "{said}");
    for name in ["recording.slrec", "report.html", "result.json", "trace.pftrace"] {
        let length = std::fs::metadata(directory.join("out").join(name)).expect(name).len();
        assert!(length > 100, "{name}: {length} bytes");
    }
}

#[test]
fn a_command_that_fails_passes_its_code_on_and_its_recording_is_kept() {
    if !can_record() {
        return;
    }
    let directory = scratch("failing");
    let shell = ["--", "sh", "-c", "echo out; echo err >&2; sleep 0.02; exit 7"];
    let ended = run_in(&directory, &[&["record", "-o", "f.slrec"][..], &shell].concat());
    let ended = ended.refused(7, &["err", "exited with code 7"]);
    assert!(ended.out.contains("out\n") && ended.out.contains("its recording is kept"), "{ended:#?}");
    assert!(run_in(&directory, &["show", "f.slrec"]).done().out.contains("exit 7"));
    let ended = run_in(&directory, &[&["compare", "-o", "out"][..], &shell].concat());
    ended.refused(7, &["recording is kept in out/recording.slrec", "exited with code 7"]);
    run_in(&directory, &["show", "out/recording.slrec"]).done();
}

#[test]
fn a_command_that_does_not_exist_costs_no_older_recording() {
    if !can_record() {
        return;
    }
    let directory = scratch("unknown-command");
    support::file(&directory, "old.slrec", "older");
    let words = ["record", "-o", "old.slrec", "--", "no-such-command-anywhere"];
    let ended =
        run_in(&directory, &words).refused(2, &["'no-such-command-anywhere'", "check its name and PATH"]);
    assert_eq!(ended.err.matches("No such file").count(), 1, "the cause is said once: {}", ended.err);
    assert_eq!(std::fs::read(directory.join("old.slrec")).expect("kept"), b"older");
    assert_eq!(std::fs::read_dir(&directory).expect("scratch").count(), 1, "nothing else is left");
}

#[test]
fn what_to_record_must_be_clear() {
    let directory = scratch("unclear");
    run_in(&directory, &["record"]).refused(2, &["nothing to record", "--pid"]);
    run_in(&directory, &["record", "--pid", "1"]).refused(2, &["--duration 10s"]);
    run_in(&directory, &["record", "--pid", "1", "--", "true"]).refused(2, &["cannot be used with"]);
    assert_eq!(std::fs::read_dir(&directory).expect("scratch").count(), 0);
    if can_record() {
        let words = ["record", "--pid", "99999999", "--duration", "1s"];
        run_in(&directory, &words).refused(2, &["no process 99999999", "ps -e"]);
    }
}

#[test]
fn without_privileges_recording_names_the_remedy_and_the_rest_works() {
    let directory = public_directory();
    let recording = ["record", "-o", "x.slrec", "--", "true"];
    if let Some(ended) = unprivileged(&directory, &recording) {
        ended.refused(3, &["recording needs root", "run it with sudo"]);
        assert!(!directory.join("x.slrec").exists() && !directory.join("x.slrec.part").exists());
    }
    if let Some(ended) = unprivileged(&directory, &["machine", "--calibrate", "-o", "m.toml"]) {
        ended.refused(3, &["recording needs root", "run it with sudo"]);
        assert!(!directory.join("m.toml").exists());
    }
    if let Some(ended) = unprivileged(&directory, &["compare", "--", "true"]) {
        ended.refused(3, &["recording needs root", "run it with sudo"]);
    }
    // Where nothing can be written either, another place would not help.
    for words in
        [["record", "-o", "/proc/none/x.slrec", "--", "true"], ["compare", "-o", "/proc/none", "--", "true"]]
    {
        if let Some(ended) = unprivileged(&directory, &words) {
            ended.refused(3, &["recording needs root", "run it with sudo"]);
        }
    }
    let words = ["simulate", "hogs:duration=50ms", "--cpus", "2", "-s", "vtime"];
    if let Some(ended) = unprivileged(&directory, &words) {
        ended.done();
    }
    std::fs::remove_dir_all(&directory).expect("own directory");
}
