//! Arguments of the commands that make recordings of others, and compare them.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Arguments of `import`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  perf sched record -- make -j4 && schedlab import perf.data -o make.slrec
  schedlab import board.dat -o board.slrec --target player --machine board.toml
  schedlab import trace.pftrace -o phone.slrec --target com.example.app
  schedlab import service.slrec -o for-others.slrec --anonymise

perf.data, trace-cmd's trace.dat (versions 6 and 7) and Perfetto traces hold who ran, woke and forked whom; what a
task waited for is not in them, so a replay wakes it when its waker gets as far. The commands that take a recording
take such a trace too.")]
pub struct ImportArgs {
    /// Trace or recording
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Recording to write
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Tasks the work consists of, with their descendants [default: what the recorder started, else all of user space]
    #[arg(long, value_name = "NAME|PID")]
    pub target: Option<String>,
    /// Machine it was recorded on: topology and costs, which traces do not hold
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: Option<String>,
    /// Replace names, ids, commands and paths
    #[arg(long)]
    pub anonymise: bool,
    /// Write what was found as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Arguments of `diff`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab diff before.slrec after.slrec
  schedlab diff old1.slrec,old2.slrec,old3.slrec new1.slrec,new2.slrec,new3.slrec
  schedlab diff monday.json friday.json --candidate vtime --json -
  schedlab diff ranked.json ranked.json --candidate fair,vtime

Several recordings of each side tell what differs by chance; results of compare and simulate hold their runs already.")]
pub struct DiffArgs {
    /// Recordings, traces or results (.json) of before, separated by commas
    #[arg(value_name = "BEFORE", value_delimiter = ',', num_args = 1, required = true, value_hint = ValueHint::FilePath)]
    pub before: Vec<PathBuf>,
    /// The same of after
    #[arg(value_name = "AFTER", value_delimiter = ',', num_args = 1, value_hint = ValueHint::FilePath, required = true)]
    pub after: Vec<PathBuf>,
    /// Candidate of results, one for both sides or one for each [default: the only one, else the first that both have; of
    /// one and the same result the first and the second]
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub candidate: Vec<String>,
    /// Write as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}
