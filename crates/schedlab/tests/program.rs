//! `program` and `bench programs`: small programs with known answers, alone and beside each other.

mod support;

use support::{Ended, run};

fn program(words: &[&str]) -> Ended {
    run(&[&["program"], words].concat())
}

#[test]
fn programs_print_their_answer_on_one_line() {
    let line = |words: &[&str]| {
        let out = program(words).done().out;
        assert_eq!(out.lines().count(), 1, "{out}");
        out
    };
    assert!(line(&["fibo", "--size", "25"]).starts_with("fibo 25: 75025, right, "));
    assert!(
        line(&["primes", "--size", "100000", "--threads", "2"])
            .starts_with("primes 100000, 2 threads: 9592, right, ")
    );
    assert!(line(&["rays", "--size", "40", "--threads", "3"]).contains(", right, "));
    for scientific in [["linpack", "--size", "80"], ["fft", "--size", "512"]] {
        let said = line(&scientific);
        assert!(said.contains(" mflops, ") && said.contains(", right, "), "{said}");
    }
}

#[test]
fn a_result_is_json_too_and_the_nice_value_is_taken() {
    let result = program(&["fft", "--size", "1024", "--nice", "7", "--json", "-"]).done().json();
    assert_eq!((result["program"].as_str(), result["size"].as_u64()), (Some("fft"), Some(1024)), "{result}");
    assert!(result["right"].as_bool() == Some(true) && result["seconds"].as_f64().is_some(), "{result}");
    assert!(result["mflops"].as_f64().is_some_and(|mflops| mflops > 0.0), "{result}");
}

#[test]
fn what_programs_do_not_do_is_refused_with_what_they_do() {
    program(&["fft", "--size", "1000"]).refused(2, &["must be a power of two", "262144"]);
    program(&["fibo", "--size", "90"]).refused(2, &["index of the number", "between 1 and 60"]);
    program(&["linpack", "--threads", "2"]).refused(2, &["the work of one thread", "primes and rays"]);
    program(&["rays", "--threads", "0"]).refused(2, &["between 1 and 1024"]);
    program(&["fibo", "--nice", "20"]).refused(2, &["20", "--nice"]);
    program(&["fibonacci"]).refused(2, &["fibonacci", "fibo"]);
}

#[test]
fn the_real_sysbench_is_run_or_named_with_its_package() {
    let cpu = program(&["sysbench-cpu", "--size", "20", "--threads", "2"]);
    if cpu.code == 3 {
        assert!(cpu.err.contains("apt install sysbench"), "{cpu:#?}");
        eprintln!("SKIPPED: sysbench is not installed (Debian: sysbench)");
        return;
    }
    assert!(cpu.done().out.starts_with("sysbench-cpu 20, 2 threads: 20 events, right, "));
    let threads = program(&["sysbench-threads", "--size", "4", "--threads", "2"]).done().out;
    assert!(threads.starts_with("sysbench-threads 4, 2 threads: 4 events, right, "), "{threads}");
    program(&["sysbench-cpu", "--size", "0"]).refused(2, &["at least 1"]);
}

#[test]
fn models_of_programs_run_alone_and_beside_each_other() {
    let words = [
        "bench",
        "programs",
        "--quick",
        "--cpus",
        "1",
        "--nice",
        "0,5",
        "--program",
        "fibo,rays",
        "--json",
        "-",
    ];
    let result = run(&words).done().json();
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 * 2 * 2, "programs, nice values, alone and beside: {result}");
    let seconds = |program: &str, nice: i64, together: bool| {
        let row = rows
            .iter()
            .find(|row| row["program"] == program && row["nice"] == nice && row["together"] == together);
        let values = row.expect("a row")["seconds"].as_array().expect("rounds");
        assert_eq!(values.len(), 3, "rounds of --quick");
        values.iter().map(|value| value.as_f64().expect("s")).sum::<f64>() / values.len() as f64
    };
    // 100 ms of work on one CPU; beside it are four threads, and one of nice 5 has 335 of 335 + 4 * 1024 parts.
    assert!((seconds("fibo", 0, false) - 0.1).abs() < 0.005, "{result}");
    assert!((seconds("fibo", 5, false) - 0.1).abs() < 0.005, "nice means nothing alone: {result}");
    let (even, light) = (seconds("fibo", 0, true), seconds("fibo", 5, true));
    assert!((0.4..0.6).contains(&even), "one of five equal tasks: {even}");
    assert!((1.0..1.6).contains(&light), "a thirteenth of the CPU: {light}");
}

#[test]
fn a_bench_of_programs_that_says_nothing_is_refused() {
    let bench = |words: &[&str]| run(&[&["bench", "programs"], words].concat());
    bench(&["--program", "fibo"]).refused(2, &["nothing to run beside", "--program fibo,rays"]);
    bench(&["--program", "fibo,sysbench-cpu"]).refused(2, &["no model of its own", "primes", "--live"]);
    bench(&["--nice", "0,40"]).refused(2, &["40", "-20..=19"]);
    run(&["simulate", "fibo+hogs"]).refused(2, &["'hogs' cannot run beside others", "workload file"]);
}

#[test]
fn real_programs_run_alone_and_beside_each_other() {
    let words =
        ["bench", "programs", "--live", "--quick", "--rounds", "2", "--nice", "5", "--program", "fibo,fft"];
    let out = run(&words).done().out;
    assert!(out.contains("mflops alone") && out.contains("times as long"), "{out}");
    for program in ["fibo", "fft"] {
        let line = out.lines().find(|line| line.contains(program)).expect(program);
        assert!(line.contains(" to "), "an interval: {line}");
    }
}
