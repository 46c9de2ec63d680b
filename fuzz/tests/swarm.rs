//! The swarm of random whole simulations: seeds that once failed, and a canary. `cargo xtask fuzz simulation` goes on
//! for longer, from a kept corpus.

use schedlab_fuzz::source::Source;
use schedlab_fuzz::swarm::{check, generator, spoilt};

/// Seeds that once failed. 353: a task that changed from ext to real-time while it ran was charged twice.
const KEPT: &[u64] = &[353];

/// How many cases there are beside those, from seed 1.
const SHORT: u64 = 400;

#[test]
fn random_simulations_keep_what_is_promised() {
    for seed in KEPT.iter().copied().chain(1..=SHORT) {
        let case = generator::case(&mut Source::seeded(seed));
        if let Err(broken) = check(&case) {
            let (kernel, cpus) = (case.machine.kernel, case.machine.topology.cpu_count());
            panic!("seed {seed} ({:?}, kernel {kernel}, {cpus} CPUs): {broken}", case.object);
        }
    }
}

/// The canary: each kind of mistake in the stream of events must be found in nearly every case.
#[test]
fn spoilt_runs_are_found() {
    for kind in 0..4 {
        let (mut reached, mut found) = (0, 0);
        for seed in 1..60 {
            if let Some(broken) = spoilt(&generator::case(&mut Source::seeded(seed)), kind) {
                reached += 1;
                found += u32::from(broken.is_some());
            }
        }
        assert!(reached > 20, "kind {kind}: only {reached} runs were long enough");
        assert!(found * 10 >= reached * 9, "kind {kind}: {found} of {reached} found");
    }
}
