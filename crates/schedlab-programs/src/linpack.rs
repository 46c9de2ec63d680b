//! A dense system of linear equations by elimination with row pivots; checked by what is left when the solution is put in.
//!
//! The right side is made so that every unknown is 1. Operations are counted as the benchmark of this name counts them:
//! 2/3 n^3 + 2 n^2, whatever the program really did.

use super::{Answer, Numbers, timed};

pub(super) fn run(size: usize) -> Answer {
    let (matrix, right_side) = system(size);
    let (mut eliminated, mut solution) = (matrix.clone(), right_side.clone());
    let ((), elapsed) = timed(|| solve(&mut eliminated, &mut solution));
    let residual = residual(&matrix, &right_side, &solution);
    let n = size as f64;
    Answer {
        answer: format!("residual {residual:.2}"),
        // The bound of the benchmark's own check.
        right: residual.is_finite() && residual < 16.0,
        elapsed,
        flops: Some(2.0 / 3.0 * n * n * n + 2.0 * n * n),
    }
}

/// Rows of the matrix, and their sums.
fn system(size: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
    let mut numbers = Numbers(1_325);
    let row = |_| (0..size).map(|_| numbers.next()).collect::<Vec<f64>>();
    let matrix: Vec<Vec<f64>> = (0..size).map(row).collect();
    let sums = matrix.iter().map(|row| row.iter().sum()).collect();
    (matrix, sums)
}

/// Leaves the solution where the right side was.
fn solve(matrix: &mut [Vec<f64>], side: &mut [f64]) {
    let size = side.len();
    for column in 0..size {
        let largest = |a: &usize, b: &usize| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs());
        let pivot = (column..size).max_by(largest).expect("a column has rows");
        matrix.swap(column, pivot);
        side.swap(column, pivot);
        let (above, below) = matrix.split_at_mut(column + 1);
        let pivot_row = &above[column];
        let inverse = 1.0 / pivot_row[column];
        let pivot_side = side[column];
        for (row, side) in below.iter_mut().zip(&mut side[column + 1..]) {
            let factor = row[column] * inverse;
            *side -= factor * pivot_side;
            for (value, above) in row[column..].iter_mut().zip(&pivot_row[column..]) {
                *value -= factor * above;
            }
        }
    }
    for column in (0..size).rev() {
        let known: f64 =
            matrix[column][column + 1..].iter().zip(&side[column + 1..]).map(|(a, x)| a * x).sum();
        side[column] = (side[column] - known) / matrix[column][column];
    }
}

/// What is left of the equations, in the rounding errors that a matrix of this size may have.
fn residual(matrix: &[Vec<f64>], side: &[f64], solution: &[f64]) -> f64 {
    let largest = |values: &[f64]| values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let left = matrix.iter().zip(side).map(|(row, side)| {
        let sum: f64 = row.iter().zip(solution).map(|(a, x)| a * x).sum();
        (sum - side).abs()
    });
    let left = left.fold(0.0_f64, |most, value| if value.is_nan() { f64::INFINITY } else { most.max(value) });
    let norm = matrix.iter().map(|row| largest(row)).fold(0.0, f64::max);
    left / (side.len() as f64 * norm * largest(solution) * f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved_by_hand_and_by_the_program() {
        // 2x + y = 5, x + 3y = 10.
        let (mut matrix, mut side) = (vec![vec![2.0, 1.0], vec![1.0, 3.0]], vec![5.0, 10.0]);
        solve(&mut matrix, &mut side);
        assert!((side[0] - 1.0).abs() < 1e-12 && (side[1] - 3.0).abs() < 1e-12, "{side:?}");
        // Without a pivot this one divides by zero.
        let (mut matrix, mut side) = (vec![vec![0.0, 1.0], vec![1.0, 0.0]], vec![2.0, 3.0]);
        solve(&mut matrix, &mut side);
        assert_eq!(side, [3.0, 2.0]);
    }

    #[test]
    fn every_unknown_is_one_and_a_wrong_solution_is_seen() {
        let (matrix, side) = system(60);
        let (mut eliminated, mut solution) = (matrix.clone(), side.clone());
        solve(&mut eliminated, &mut solution);
        assert!(solution.iter().all(|x| (x - 1.0).abs() < 1e-9), "{solution:?}");
        assert!(residual(&matrix, &side, &solution) < 16.0);
        solution[7] += 1e-6;
        assert!(residual(&matrix, &side, &solution) > 16.0);
        solution[7] = f64::NAN;
        assert!(residual(&matrix, &side, &solution) > 16.0);
    }
}
