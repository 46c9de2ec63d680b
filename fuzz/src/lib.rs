//! Fuzz targets: what each does with bytes, and what must hold whatever they are.
//!
//! A target panics if something that must hold does not. libFuzzer drives the targets through `main.rs`
//! (`cargo xtask fuzz`, docs/fuzzing.md); `tests/round.rs` runs the kept corpus and a short round of changes to it
//! in every test run. Each target takes `planted`: then it has a fault on purpose, which a round must find (the canary).

pub mod mutate;
pub mod objects;
pub mod programs;
pub mod recordings;
pub mod source;
pub mod swarm;
pub mod traces;
pub mod work;

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name; its kept inputs lie in `fuzz/corpus/NAME`.
    pub name: &'static str,
    /// What it takes and what must hold.
    pub about: &'static str,
    /// Does it. The second argument plants the fault.
    pub run: fn(&[u8], bool),
    /// Inputs made from what the repository has, beside the kept ones.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of the format, which random changes may insert.
    pub words: &'static [&'static str],
    /// Changed inputs of a short round.
    pub short: u32,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "object",
        about: "object files and their types, damaged: loading ends with an image or an error; what loads compiles or \
                is refused; types that parse are written and parsed again to the same",
        run: objects::fuzz_object,
        seeds: objects::seeds,
        words: &[],
        short: 600,
    },
    Target {
        name: "program",
        about: "random programs and raw instructions: native code and interpreter do the same",
        run: programs::fuzz,
        seeds: || (0..8).map(|first| vec![first; 16]).collect(),
        words: &[],
        short: 500,
    },
    Target {
        name: "scheduler",
        about: "schedulers with damaged code attached to a simulation: it ends, the same way in both engines",
        run: objects::fuzz_scheduler,
        seeds: objects::seeds,
        words: &[],
        short: 60,
    },
    Target {
        name: "recording",
        about: "recordings, damaged with and without right checksums: read or refused; what is read is written and read \
                again to the same, triaged and replayed",
        run: recordings::fuzz,
        seeds: recordings::seeds,
        words: &[],
        short: 2_000,
    },
    Target {
        name: "trace",
        about: "traces of perf, trace-cmd and Perfetto, damaged: imported or refused; what is imported is a recording that \
                survives writing, and replays",
        run: traces::fuzz,
        seeds: traces::seeds,
        words: &[],
        short: 400,
    },
    Target {
        name: "workload",
        about: "workload files: parsed or refused; what is parsed survives JSON and simulates",
        run: work::fuzz_file,
        seeds: work::file_seeds,
        words: work::FILE_WORDS,
        short: 400,
    },
    Target {
        name: "rtapp",
        about: "rt-app files: the same",
        run: work::fuzz_rtapp,
        seeds: work::rtapp_seeds,
        words: work::RTAPP_WORDS,
        short: 2_000,
    },
    Target {
        name: "simulation",
        about: "whole simulations of random work on random machines: no task is lost, time is monotonic, accounting \
                adds up, work is conserved where the policy promises it",
        run: swarm::fuzz,
        seeds: || (0..8).map(|first| vec![first * 29; 24]).collect(),
        words: &[],
        short: 60,
    },
];

/// The target of a name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
