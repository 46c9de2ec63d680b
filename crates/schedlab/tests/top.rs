//! `schedlab top` on the kernel under our feet: documents, tables, a screen on a real terminal, and what it refuses.

mod support;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{BINARY, can_record, public_directory, run, unprivileged};

#[test]
fn a_document_an_interval_has_this_process_and_every_cpu() {
    if !can_record() {
        return;
    }
    let hog = std::thread::Builder::new().name("a busy one".into()).spawn(|| {
        let end = std::time::Instant::now() + Duration::from_millis(1_500);
        while std::time::Instant::now() < end {}
    });
    let ended =
        run(&["top", "--json", "-", "--interval", "400ms", "--iterations", "2", "--sort", "pid"]).done();
    hog.expect("a thread").join().expect("it ends");
    let documents: Vec<serde_json::Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).expect("a document a line")).collect();
    assert_eq!(documents.len(), 2);
    for document in &documents {
        assert_eq!(document["schema_version"], 1);
        let interval = document["interval_ns"].as_u64().expect("a number");
        // Readings are due at fixed times: one that comes late shortens the interval after it.
        assert!((200_000_000..4_000_000_000).contains(&interval), "{interval}");
        let cpus = document["cpus"].as_array().expect("CPUs");
        assert_eq!(
            cpus.len(),
            std::thread::available_parallelism().map_or(1, |count| count.get()).max(cpus.len())
        );
        let tasks = document["tasks"].as_array().expect("tasks");
        let pids: Vec<i64> = tasks.iter().filter_map(|task| task["pid"].as_i64()).collect();
        // Not number 1: some clouds' kernels hide their agent from BPF.
        assert!(pids.is_sorted() && pids.contains(&i64::from(std::process::id())), "{pids:?}");
        let busy = tasks.iter().find(|task| task["name"] == "a busy one").expect("our thread");
        assert!(busy["cpu_share"].as_f64().is_some_and(|share| share > 0.1), "{busy}");
        assert!(busy["delay_ns"].is_u64() && busy["class"] != "rt", "{busy}");
        assert!(busy["rank"]["key"].is_i64() || busy["rank"]["key"].is_u64(), "{busy}");
        let ranks = ["eevdf", "cfs", "vtime", "level"];
        assert!(ranks.iter().any(|by| busy["rank"]["by"] == *by), "{busy}");
    }
}

#[test]
fn tables_are_filtered_and_bounded() {
    if !can_record() {
        return;
    }
    let own = std::process::id().to_string();
    let ended = run(&["top", "--plain", "--interval", "50ms", "--iterations", "1", "--filter", &own]).done();
    assert!(ended.out.contains("Rank: ") && ended.out.contains("queued"), "{}", ended.out);
    let tasks = ended.out.split("\n\n").nth(2).expect("the table of tasks");
    assert!(tasks.lines().count() >= 2 && tasks.contains("top-"), "this test's threads: {}", ended.out);
    let few = run(&["top", "--plain", "--interval", "50ms", "--iterations", "1", "--tasks", "2"]).done().out;
    assert!(few.contains("  and ") && few.contains(" more\n"), "{few}");
    // Whoever ends it cuts nothing short, unless a number of intervals was asked for.
    for (name, more, code) in
        [("INT", "", 0), ("TERM", "", 0), ("HUP", "", 0), ("INT", "--iterations 999", 130)]
    {
        let top = format!("{BINARY} top --plain --interval 50ms {more} >/dev/null");
        let line = format!("{top} & sleep 1; kill -{name} $!; wait $!");
        // A shell with job control, as in others children in the background ignore Ctrl-C.
        let ended = Command::new("sh").args(["-mc", &line]).output().expect("sh");
        assert_eq!(ended.status.code(), Some(code), "{name}: {ended:?}");
    }
    // A reader that goes away ends it.
    let line = format!("{BINARY} top --plain --interval 50ms | head -1");
    let piped = Command::new("sh").args(["-c", &line]).output().expect("sh");
    assert!(piped.status.success() && String::from_utf8_lossy(&piped.stdout).contains("over"));
}

#[test]
fn a_screen_gives_the_terminal_back() {
    if !can_record() {
        return;
    }
    for (keys, way) in [("?q", "q"), ("/cpu\r\u{3}", "Ctrl-C")] {
        // `script` gives it a terminal of its own.
        let line = format!("stty cols 120 rows 30; {BINARY} top --interval 100ms; echo code $?; stty -a");
        let mut script = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is part of bsdutils");
        std::thread::sleep(Duration::from_secs(2));
        for key in keys.chars() {
            script.stdin.as_mut().expect("piped").write_all(key.to_string().as_bytes()).expect("written");
            std::thread::sleep(Duration::from_millis(300));
        }
        let output = script.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (enter, leave) = (text.find("\u{1b}[?1049h"), text.rfind("\u{1b}[?1049l"));
        assert!(enter.is_some() && leave > enter, "{way}: {text}");
        let after = &text[leave.expect("found")..];
        assert!(after.contains("code 0"), "{way}: {after}");
        assert!(after.contains(" echo ") && after.contains(" icanon "), "raw mode is off, {way}: {after}");
        assert!(text.contains("queued") && text.contains("rank"), "{way}: {text}");
    }
}

#[test]
fn bad_input_and_missing_rights_name_the_remedy() {
    run(&["top", "--interval", "1ms"]).refused(2, &["at least 20ms"]);
    run(&["top", "--cgroup", "no such group", "--iterations", "1"])
        .refused(2, &["control group", "no such group"]);
    let directory = public_directory();
    if let Some(ended) = unprivileged(&directory, &["top", "--plain", "--iterations", "1"]) {
        ended.refused(3, &["root", "CAP_BPF"]);
    }
    std::fs::remove_dir_all(&directory).expect("own directory");
}
