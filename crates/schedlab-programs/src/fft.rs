//! Fourier transforms of a signal, there and back again and again; checked by the signal that comes back.
//!
//! Radix 2, in place. Operations are counted as benchmarks of transforms do: 5 N log2 N for each, whatever the program
//! really did.

use super::{Answer, Numbers, timed};
use std::f64::consts::TAU;

/// How often there and back.
const PAIRS: u32 = 32;

/// A complex number.
type Point = (f64, f64);

pub(super) fn run(size: usize) -> Answer {
    let mut numbers = Numbers(271_828);
    let signal: Vec<Point> = (0..size).map(|_| (numbers.next(), numbers.next())).collect();
    let turns = turns(size);
    let mut points = signal.clone();
    let ((), elapsed) = timed(|| {
        for _ in 0..PAIRS {
            transform(&mut points, &turns);
            back(&mut points, &turns);
        }
    });
    let far = |(now, was): (&Point, &Point)| (now.0 - was.0).abs().max((now.1 - was.1).abs());
    let error = points
        .iter()
        .zip(&signal)
        .map(far)
        .fold(0.0_f64, |most, far| if far.is_nan() { f64::INFINITY } else { most.max(far) });
    let n = size as f64;
    Answer {
        answer: format!("error {error:.1e}"),
        // Rounding grows with the transforms, and slower than they do.
        right: error < 1e-15 * f64::from(2 * PAIRS) * n.log2().max(1.0),
        elapsed,
        flops: Some(f64::from(2 * PAIRS) * 5.0 * n * n.log2()),
    }
}

/// The roots of unity of the upper half circle, the first one first.
fn turns(size: usize) -> Vec<Point> {
    let turn = |index: usize| {
        let angle = -TAU * index as f64 / size as f64;
        (angle.cos(), angle.sin())
    };
    (0..size / 2).map(turn).collect()
}

/// The transform in place.
fn transform(points: &mut [Point], turns: &[Point]) {
    reorder(points);
    let size = points.len();
    let mut half = 1;
    while half < size {
        let stride = size / (2 * half);
        for block in points.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (index, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let (cos, sin) = turns[index * stride];
                let turned = (b.0 * cos - b.1 * sin, b.0 * sin + b.1 * cos);
                *b = (a.0 - turned.0, a.1 - turned.1);
                *a = (a.0 + turned.0, a.1 + turned.1);
            }
        }
        half *= 2;
    }
}

/// The signal from its transform: that of the mirrored one, mirrored and divided by its length.
fn back(points: &mut [Point], turns: &[Point]) {
    let scale = 1.0 / points.len() as f64;
    points.iter_mut().for_each(|point| point.1 = -point.1);
    transform(points, turns);
    points.iter_mut().for_each(|point| *point = (point.0 * scale, -point.1 * scale));
}

/// Each point to where its number lies with its bits turned round.
fn reorder(points: &mut [Point]) {
    let bits = points.len().trailing_zeros();
    for index in 0..points.len() {
        let other = index.reverse_bits() >> (usize::BITS - bits);
        if index < other {
            points.swap(index, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transformed(signal: &[f64]) -> Vec<Point> {
        let mut points: Vec<Point> = signal.iter().map(|value| (*value, 0.0)).collect();
        transform(&mut points, &turns(signal.len()));
        points
    }

    fn near(points: &[Point], wanted: &[Point]) -> bool {
        points.len() == wanted.len()
            && points.iter().zip(wanted).all(|(a, b)| (a.0 - b.0).abs() < 1e-12 && (a.1 - b.1).abs() < 1e-12)
    }

    #[test]
    fn transforms_are_those_of_the_books() {
        assert!(
            near(&transformed(&[1.0, 0.0, 0.0, 0.0]), &[(1.0, 0.0); 4]),
            "an impulse has every frequency"
        );
        assert!(near(&transformed(&[1.0; 4]), &[(4.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]));
        let one_turn = transformed(&[0.0, 1.0, 0.0, -1.0]);
        assert!(near(&one_turn, &[(0.0, 0.0), (0.0, -2.0), (0.0, 0.0), (0.0, 2.0)]), "{one_turn:?}");
    }

    #[test]
    fn it_is_the_sum_that_defines_it() {
        let mut numbers = Numbers(5);
        let signal: Vec<f64> = (0..16).map(|_| numbers.next()).collect();
        let slow = |frequency: usize| {
            let term = |(index, value): (usize, &f64)| {
                let angle = -TAU * (index * frequency) as f64 / 16.0;
                (value * angle.cos(), value * angle.sin())
            };
            signal.iter().enumerate().map(term).fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
        };
        let wanted: Vec<Point> = (0..16).map(slow).collect();
        assert!(near(&transformed(&signal), &wanted));
    }
}
