//! Arguments of `program`, and those of `bench programs`.

use clap::{Args, ValueEnum, ValueHint};
use schedlab_programs::Program;
use std::path::PathBuf;

/// A small program, ours or sysbench's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// A Fibonacci number by recursion; --size is its index
    Fibo,
    /// Primes by trial division, as sysbench cpu; --size is the largest number tried
    Primes,
    /// A picture by ray tracing, as c-ray; --size is its pixels on each side
    Rays,
    /// Linear equations, in mflops; --size is how many
    Linpack,
    /// Fourier transforms, in mflops; --size is their points, a power of two
    Fft,
    /// The real sysbench cpu; --size is its events, primes up to 10000 each
    SysbenchCpu,
    /// The real sysbench threads; --size is its events, 1000 locks and yields each
    SysbenchThreads,
}

impl Which {
    /// All of them.
    pub const ALL: [Which; 7] = [
        Which::Fibo,
        Which::Primes,
        Which::Rays,
        Which::Linpack,
        Which::Fft,
        Which::SysbenchCpu,
        Which::SysbenchThreads,
    ];

    /// Ours, if it is.
    pub fn own(self) -> Option<Program> {
        match self {
            Which::Fibo => Some(Program::Fibo),
            Which::Primes => Some(Program::Primes),
            Which::Rays => Some(Program::Rays),
            Which::Linpack => Some(Program::Linpack),
            Which::Fft => Some(Program::Fft),
            Which::SysbenchCpu | Which::SysbenchThreads => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Which::SysbenchCpu => "sysbench-cpu",
            Which::SysbenchThreads => "sysbench-threads",
            own => own.own().map_or("", Program::name),
        }
    }

    /// The size that takes about a second alone.
    pub fn usual_size(self) -> u64 {
        match self {
            Which::SysbenchCpu => 1_000,
            Which::SysbenchThreads => 500,
            own => own.own().map_or(1, |program| program.sizes().0),
        }
    }
}

/// Arguments of `program`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab program fibo
  schedlab program rays --threads 4 --nice 5
  schedlab program linpack --size 500 --json -
  sudo schedlab run cfs -- schedlab program primes --threads 2
  sudo schedlab record --vruntime -o rays.slrec -- schedlab program rays
  schedlab bench programs --live --nice 0,5,10     each alone and beside all others

Does a fixed amount of work, checks its answer, and prints one line: the answer and how long it took, or its millions of
floating-point operations a second. A wrong answer is exit code 1. Workloads of the same names are their models:
schedlab simulate fibo:nice=5+rays")]
pub struct ProgramArgs {
    /// Program
    #[arg(value_enum)]
    pub program: Which,
    /// How much work [default: about a second's]
    #[arg(long, value_name = "N")]
    pub size: Option<u64>,
    /// Threads that share the work (primes, rays, sysbench)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Nice value; below 0 needs root
    #[arg(long, value_name = "NICE", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-20..=19))]
    pub nice: Option<i8>,
    /// Write the result as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// What `bench programs` runs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Of programs")]
pub struct ProgramsChoice {
    /// Programs, separated by commas [default: all that are there]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub program: Vec<Which>,
    /// Nice values of the one that is measured, separated by commas; the others have 0 [default: 0,5,10]
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true, value_parser = clap::value_parser!(i8).range(-20..=19))]
    pub nice: Vec<i8>,
    /// Rounds, from which intervals come [default: 5; 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub rounds: Option<u32>,
}
