//! Primes up to a bound by trial division, as sysbench's cpu test does it; checked by a sieve.
//!
//! Threads take every so many-th number, so that each has as many large ones as the others.

use super::{Answer, timed};
use std::hint::black_box;
use std::thread;

pub(super) fn run(bound: u64, threads: u32) -> Answer {
    let (count, elapsed) = timed(|| {
        if threads == 1 {
            return count(2, bound, 1);
        }
        thread::scope(|scope| {
            let part = |first: u32| scope.spawn(move || count(2 + u64::from(first), bound, threads as usize));
            let parts: Vec<_> = (0..threads).map(part).collect();
            parts.into_iter().map(|part| part.join().expect("counting does not panic")).sum()
        })
    });
    Answer { answer: count.to_string(), right: count == sieved(bound), elapsed, flops: None }
}

/// Primes among every `step`-th number from `first` on.
fn count(first: u64, bound: u64, step: usize) -> u64 {
    (first..=bound).step_by(step).filter(|number| is_prime(black_box(*number))).count() as u64
}

fn is_prime(number: u64) -> bool {
    let mut divisor = 2;
    while divisor * divisor <= number {
        if number.is_multiple_of(divisor) {
            return false;
        }
        divisor += 1;
    }
    true
}

/// The same number by the sieve of Eratosthenes.
fn sieved(bound: u64) -> u64 {
    let bound = bound as usize;
    let mut composite = vec![false; bound + 1];
    let mut count = 0;
    for number in 2..=bound {
        if composite[number] {
            continue;
        }
        count += 1;
        (number * number..=bound).step_by(number).for_each(|multiple| composite[multiple] = true);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_tables() {
        for (bound, primes) in [(2, 1), (10, 4), (100, 25), (1_000, 168), (100_000, 9_592)] {
            assert_eq!((sieved(bound), count(2, bound, 1)), (primes, primes), "up to {bound}");
        }
    }

    #[test]
    fn threads_share_the_numbers_and_miss_none() {
        for threads in [1, 2, 3, 7, 64] {
            assert_eq!(run(1_000, threads).answer, "168", "{threads} threads");
        }
    }
}
