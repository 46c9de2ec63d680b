//! A short round of every target: the seeds and kept inputs, then changes to them, always the same ones. The canaries
//! show that a round finds the fault that a target has when it is planted.

use schedlab_fuzz::mutate::mutate;
use schedlab_fuzz::source::Source;
use schedlab_fuzz::{TARGETS, Target};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Kept inputs by name: what an earlier run of libFuzzer found to reach something new, and all that ever failed.
fn kept(target: &Target) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let read = |path: std::path::PathBuf| (path.display().to_string(), std::fs::read(path).expect("a file"));
    files.into_iter().map(read).collect()
}

/// What went wrong first, with the input.
fn round(target: &Target, planted: bool) -> Option<String> {
    let run = |name: &str, input: &[u8]| {
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input, planted)));
        let shown: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        result.err().map(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            format!("{} {name}: {}\ninput: {shown}", target.name, text.unwrap_or_default())
        })
    };
    let seeds = (target.seeds)().into_iter().enumerate().map(|(at, seed)| (format!("seed {at}"), seed));
    let corpus: Vec<(String, Vec<u8>)> = seeds.chain(kept(target)).collect();
    let mut source = Source::seeded(1);
    let changed = (0..target.short).map(|number| {
        let (one, other) = (&corpus[source.below(corpus.len() as u64) as usize].1, source.pick(&[0, 1, 2]));
        let other = &corpus[other % corpus.len()].1;
        (format!("change {number}"), mutate(one, other, target.words, &mut source))
    });
    let changed: Vec<(String, Vec<u8>)> = changed.collect();
    corpus.iter().chain(&changed).find_map(|(name, input)| run(name, input))
}

fn holds(name: &str) {
    let target = schedlab_fuzz::target(name).expect("a target");
    if let Some(broken) = round(target, false) {
        panic!("{broken}");
    }
}

#[test]
fn object() {
    holds("object");
}

#[test]
fn program() {
    holds("program");
}

#[test]
fn scheduler() {
    holds("scheduler");
}

#[test]
fn recording() {
    holds("recording");
}

#[test]
fn trace() {
    holds("trace");
}

#[test]
fn workload() {
    holds("workload");
}

#[test]
fn rtapp() {
    holds("rtapp");
}

#[test]
fn simulation() {
    holds("simulation");
}

/// The canaries.
#[test]
fn planted_faults_are_found() {
    for target in TARGETS {
        assert!(
            round(target, true).is_some(),
            "the round of {} does not find its planted fault",
            target.name
        );
    }
}
