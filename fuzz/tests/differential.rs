//! Native code against the interpreter on random programs: `cargo xtask fuzz program` goes on from bytes.

use schedlab_fuzz::programs;

#[test]
fn engines_agree_on_random_programs() {
    let totals = programs::run(3000, 1);
    assert!(totals.differences.is_empty(), "{}", totals.differences[0]);
    assert_eq!(totals.programs, 3000);
    assert!(totals.instructions > 100_000, "the programs do something: {totals:?}");
    assert!(totals.faults > 100, "some of them fault: {totals:?}");
}

#[test]
fn a_run_is_determined_by_its_seed() {
    let (one, again, other) = (programs::run(64, 7), programs::run(64, 7), programs::run(64, 8));
    assert_eq!(one.instructions, again.instructions);
    assert_ne!(one.instructions, other.instructions);
}
