//! Traces of other recorders, anonymous recordings and differences, by the commands a user would type.

mod support;

use support::{file, recording, run, run_in, scratch};

fn trace(name: &str) -> String {
    format!("{}/../schedlab-import/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_trace_is_imported_compared_and_replayed() {
    let directory = scratch("import");
    let told =
        run_in(&directory, &["import", &trace("perf.data"), "-o", "a.slrec", "--json", "-"]).done().json();
    assert_eq!((told["switches"].as_u64(), told["target_tasks"].as_u64()), (Some(609), Some(41)), "{told}");
    let shown = run_in(&directory, &["show", "a.slrec"]).done().out;
    assert!(shown.contains("imported from perf.data") && shown.contains("41 of the target"), "{shown}");
    let words =
        ["compare", "a.slrec", "--scheduler", "fair,vtime", "--runs", "2", "--perturbed", "0", "--quiet"];
    let ranked = run_in(&directory, &words).done().out;
    assert!(ranked.contains("vtime"), "{ranked}");
    // The same without a file in between.
    let direct = run(&["show", &trace("v7.dat")]).done().out;
    assert!(direct.contains("imported from trace-cmd"), "{direct}");
    let told = run_in(
        &directory,
        &[
            "import",
            &trace("compact.pftrace"),
            "-o",
            "b.slrec",
            "--target",
            "hackbench",
            "--machine",
            "two-socket",
        ],
    );
    let told = told.done().out;
    assert!(told.contains("41 of the target") && told.contains("two-socket"), "{told}");
}

#[test]
fn an_anonymous_recording_names_nobody_and_measures_the_same() {
    let directory = scratch("anonymous");
    let original = recording("mixed.slrec");
    run_in(&directory, &["import", &original, "-o", "anonymous.slrec", "--anonymise"]).done();
    let before = run(&["show", &original, "--json", "-"]).done().json();
    let after = run_in(&directory, &["show", "anonymous.slrec", "--json", "-"]).done().json();
    assert_eq!(before["metrics"]["values"], after["metrics"]["values"]);
    assert_eq!(before["triage"], after["triage"]);
    let tasks = |of: &serde_json::Value| of["tasks"].as_array().expect("a list").clone();
    let bytes = std::fs::read(directory.join("anonymous.slrec")).expect("written");
    for (old, new) in tasks(&before).iter().zip(tasks(&after)).skip(1) {
        let (old_name, new_name) =
            (old["name"].as_str().expect("a name"), new["name"].as_str().expect("a name"));
        let kernel = old["attributes"]["kernel_thread"] == true;
        assert!(kernel || old_name != new_name, "{old_name} became {new_name}");
        let bound = |name: &str| name.starts_with("ksoftirqd/") || name.starts_with("migration/");
        assert!(!bound(old_name) || old_name == new_name, "{old_name} became {new_name}");
        let left = bytes.windows(old_name.len()).any(|window| window == old_name.as_bytes());
        assert!(kernel || old_name.len() < 4 || !left, "'{old_name}' is still in the file");
    }
    assert_eq!(after["provenance"]["command"], serde_json::json!([]));
}

#[test]
fn a_difference_has_a_direction_and_needs_several_runs() {
    let directory = scratch("diff");
    for (name, scheduler) in [("fair.json", "fair"), ("fifo.json", "fifo:slice_ns=20000000")] {
        let words = ["compare", "periodic:hogs=4,duration=500ms", "--cpus", "2", "--scheduler", scheduler];
        let rest = ["--runs", "5", "--perturbed", "0", "--quiet", "--json", name];
        run_in(&directory, &[&words[..], &rest[..]].concat()).done();
    }
    let words = ["diff", "fair.json", "fifo.json", "--json", "-"];
    let candidate = run_in(&directory, &[&words[..], &["--candidate", "fair"][..]].concat()).done().json();
    let verdict = |of: &serde_json::Value, metric: &str| {
        let rows = of["metrics"].as_array().expect("a list");
        let row = rows.iter().find(|row| row["metric"] == metric).expect(metric).clone();
        row["verdict"].as_str().expect("a word").to_owned()
    };
    assert_eq!(verdict(&candidate, "wakeup_latency_mean"), "no_difference", "fair against itself");
    run_in(&directory, &["diff", "fair.json", "fifo.json", "--candidate", "nobody"])
        .refused(2, &["no candidate 'nobody'", "fair"]);
    let one = run(&["diff", &recording("mixed.slrec"), &trace("v7.dat")]).done().out;
    assert!(one.contains("cannot tell") && one.contains("separated by commas"), "{one}");
    assert!(one.contains("the work differs") && one.contains("the kernel differs"), "{one}");
    let chosen = run_in(&directory, &["diff", "fair.json", "fifo.json"]).done().out;
    assert!(
        chosen.contains("compared are fair of fair") && chosen.contains("--candidate names others"),
        "{chosen}"
    );
    let itself = run_in(&directory, &["diff", "fifo.json", "fifo.json"]).done().out;
    assert!(itself.contains("compared are fair of fair, fifo"), "{itself}");
    let words = ["diff", "fifo.json", "fifo.json", "--candidate", "fair,fair,fair"];
    run_in(&directory, &words).refused(2, &["one for each side", "given 3"]);
    let both = format!("{0},{0}", recording("mixed.slrec"));
    let same = run(&["diff", &both, &both]).done().out;
    assert!(same.contains("no difference seen") && !same.contains("worse"), "{same}");
}

#[test]
fn other_files_are_refused_with_what_to_do() {
    let directory = scratch("foreign");
    let text = file(&directory, "notes.txt", "nothing");
    run(&["import", &text, "-o", "/dev/null"]).refused(2, &["unknown kind of file", "perf.data"]);
    run(&["import", "/no/such/file", "-o", "/dev/null"]).refused(2, &["cannot read /no/such/file"]);
    let whole = std::fs::read(trace("v7.dat")).expect("in the repository");
    let cut = directory.join("cut.dat");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("a scratch file");
    let cut = cut.display().to_string();
    run(&["show", &cut]).refused(2, &["cut short", "copy it again"]);
    let words = ["import", &trace("v7.dat"), "-o", "x.slrec", "--machine", "arm9-board"];
    run_in(&directory, &words).refused(2, &[]);
    let result = file(&directory, "other.json", "{\"a\": 1}");
    run(&["diff", &result, &result]).refused(2, &["no result of compare or simulate"]);
    run(&["import", &recording("mixed.slrec"), "-o", "/dev/null", "--target", "nginx"])
        .refused(2, &["has its target already", "traces of other recorders"]);
    run(&["import", &trace("perf.data"), "-o", "x.slrec", "--target", "nginx"])
        .refused(2, &["'nginx'", "it has:"]);
}
