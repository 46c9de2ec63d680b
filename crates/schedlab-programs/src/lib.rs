//! Small real programs with known answers: work for schedulers that says how long it took and whether it was done right.
//!
//! Each takes a size, does an amount of work that depends on nothing else, and checks its own answer: against another
//! way to get it where there is one, against itself where not. Only the work is timed, not the check. Not here: nice
//! values, output, other people's programs (`schedlab program`).

mod fft;
mod fibo;
mod linpack;
mod primes;
mod rays;

use std::time::{Duration, Instant};

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The Fibonacci number of an index, by the recursion that defines it: calls and additions, no memory.
    Fibo,
    /// How many primes there are up to a bound, by trial division, as sysbench's cpu test: divisions, no memory.
    Primes,
    /// A picture of spheres that mirror each other, so many pixels wide and high, as c-ray: square roots, threads.
    Rays,
    /// A dense system of so many linear equations, by elimination with pivots: multiplications, memory in rows.
    Linpack,
    /// Fourier transforms of so many points, there and back: multiplications, memory in strides.
    Fft,
}

/// Every program.
pub const ALL: [Program; 5] = [Program::Fibo, Program::Primes, Program::Rays, Program::Linpack, Program::Fft];

/// What a program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Its size; see [`Program::meaning`].
    pub size: u64,
    /// Threads that share the work.
    pub threads: u32,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The number, or a sum of it, as text.
    pub answer: String,
    /// Whether it is right.
    pub right: bool,
    /// How long the work took.
    pub elapsed: Duration,
    /// Floating-point operations, where they are what counts.
    pub flops: Option<f64>,
}

impl Answer {
    /// Millions of floating-point operations a second.
    pub fn mflops(&self) -> Option<f64> {
        self.flops.map(|flops| flops / self.elapsed.as_secs_f64().max(1e-9) / 1e6)
    }
}

/// Work that a program does not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The size is too small or too large.
    #[error("{program}: --size {size} ({meaning}) must lie between {least} and {most}")]
    Size {
        /// Which.
        program: &'static str,
        /// The size given.
        size: u64,
        /// What it is.
        meaning: &'static str,
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// The size has a wrong form.
    #[error("fft: --size {0} must be a power of two, e.g. {1}")]
    PowerOfTwo(u64, u64),
    /// It cannot share its work.
    #[error("{0} is the work of one thread: leave --threads out; primes and rays share theirs")]
    OneThread(&'static str),
    /// Too many threads, or none.
    #[error("--threads {0} must lie between 1 and {THREADS_MAX}")]
    Threads(u32),
}

/// Most threads of a program.
pub const THREADS_MAX: u32 = 1_024;

impl Program {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Program::Fibo => "fibo",
            Program::Primes => "primes",
            Program::Rays => "rays",
            Program::Linpack => "linpack",
            Program::Fft => "fft",
        }
    }

    /// What its size is.
    pub const fn meaning(self) -> &'static str {
        match self {
            Program::Fibo => "index of the number",
            Program::Primes => "largest number that is tried",
            Program::Rays => "pixels on each side",
            Program::Linpack => "equations",
            Program::Fft => "points, a power of two",
        }
    }

    /// The size that takes about a second on a machine of 2020, and the smallest and the largest.
    pub const fn sizes(self) -> (u64, u64, u64) {
        match self {
            Program::Fibo => (41, 1, 60),
            Program::Primes => (2_000_000, 2, 1_000_000_000),
            Program::Rays => (640, 8, 16_384),
            Program::Linpack => (1_000, 2, 20_000),
            Program::Fft => (1 << 18, 2, 1 << 26),
        }
    }

    /// Whether threads can share its work.
    pub const fn has_threads(self) -> bool {
        matches!(self, Program::Primes | Program::Rays)
    }

    /// Whether it does this work.
    ///
    /// # Errors
    /// [`ProgramError`] with what it would do.
    pub fn check(self, work: Work) -> Result<(), ProgramError> {
        let (usual, least, most) = self.sizes();
        let Work { size, threads } = work;
        if !(least..=most).contains(&size) {
            let (program, meaning) = (self.name(), self.meaning());
            return Err(ProgramError::Size { program, size, meaning, least, most });
        }
        if self == Program::Fft && !size.is_power_of_two() {
            return Err(ProgramError::PowerOfTwo(size, usual));
        }
        match threads {
            1 => Ok(()),
            0 => Err(ProgramError::Threads(threads)),
            _ if threads > THREADS_MAX => Err(ProgramError::Threads(threads)),
            _ if !self.has_threads() => Err(ProgramError::OneThread(self.name())),
            _ => Ok(()),
        }
    }

    /// Does the work, then checks the answer.
    ///
    /// # Errors
    /// As [`Program::check`].
    pub fn run(self, work: Work) -> Result<Answer, ProgramError> {
        self.check(work)?;
        Ok(match self {
            Program::Fibo => fibo::run(work.size),
            Program::Primes => primes::run(work.size, work.threads),
            Program::Rays => rays::run(work.size as usize, work.threads as usize),
            Program::Linpack => linpack::run(work.size as usize),
            Program::Fft => fft::run(work.size as usize),
        })
    }
}

/// Times work.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let made = work();
    (made, began.elapsed())
}

/// The numbers of matrices and signals: the same on every machine, between -0.5 and 0.5.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        // Knuth's multiplier; the upper 53 bits are a double's.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_gives_its_known_answer() {
        let known = [
            (Program::Fibo, 20, 1, "6765"),
            (Program::Primes, 10_000, 1, "1229"),
            (Program::Primes, 10_000, 3, "1229"),
        ];
        for (program, size, threads, answer) in known {
            let made = program.run(Work { size, threads }).expect("a size it takes");
            assert!(made.right, "{program:?} {made:?}");
            assert_eq!(made.answer, answer, "{program:?}");
            assert_eq!(made.mflops(), None);
        }
    }

    #[test]
    fn scientific_programs_count_their_operations() {
        let linpack = Program::Linpack.run(Work { size: 100, threads: 1 }).expect("runs");
        assert!(linpack.right, "{linpack:?}");
        assert_eq!(linpack.flops, Some(2.0 / 3.0 * 1e6 + 2e4));
        let fft = Program::Fft.run(Work { size: 1_024, threads: 1 }).expect("runs");
        assert!(fft.right, "{fft:?}");
        assert!(fft.mflops().is_some_and(|mflops| mflops > 0.0));
    }

    #[test]
    fn what_a_program_does_not_do_is_said_with_what_it_does() {
        let error = |program: Program, size, threads| {
            program.run(Work { size, threads }).expect_err("refused").to_string()
        };
        assert_eq!(
            error(Program::Fibo, 61, 1),
            "fibo: --size 61 (index of the number) must lie between 1 and 60"
        );
        assert_eq!(error(Program::Fft, 1_000, 1), "fft: --size 1000 must be a power of two, e.g. 262144");
        assert!(error(Program::Linpack, 100, 2).contains("one thread"));
        assert!(error(Program::Rays, 64, 0).contains("between 1 and 1024"));
        assert!(error(Program::Rays, 64, 2_000).contains("between 1 and 1024"));
    }
}
