//! A Fibonacci number by the recursion that defines it; checked by adding up.

use super::{Answer, timed};
use std::hint::black_box;

pub(super) fn run(index: u64) -> Answer {
    let (number, elapsed) = timed(|| recursive(black_box(index)));
    Answer { answer: number.to_string(), right: number == added_up(index), elapsed, flops: None }
}

/// Two calls for each number: what the compiler cannot turn into a loop is the work.
fn recursive(index: u64) -> u64 {
    if index < 2 { index } else { recursive(index - 1) + recursive(index - 2) }
}

fn added_up(index: u64) -> u64 {
    (0..index).fold((0_u64, 1_u64), |(this, next), _| (next, this + next)).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_agree() {
        assert!((0..22).all(|index| recursive(index) == added_up(index)));
        assert_eq!(added_up(60), 1_548_008_755_920);
    }
}
