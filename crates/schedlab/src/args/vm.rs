//! `schedlab vm`: arguments.

use clap::{Args, Subcommand, ValueHint};
use schedlab_host::vm::{Acceleration, KernelChoice, KernelName, Topology};
use schedlab_model::time::Nanos;
use std::path::PathBuf;

/// Arguments of `vm`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab vm boot -- uname -r                       a command under Linux 7.2, with its exit code
  schedlab vm boot --kernel 6.1 --topology 2:2:2 --with hackbench -- hackbench -g 4
  schedlab vm boot --collect /tmp/out.txt -- sh -c 'cat /proc/schedstat > /tmp/out.txt'
  schedlab vm try vtime                              is this scheduler safe on 7.2?
  schedlab vm try ./my.bpf.o --kernel ./bzImage --set slice_ns=5000000 --stress 30s

Kernels are Debian's, fetched once by apt with package lists of their own and kept in the cache
(~/.cache/schedlab); the system's packages and lists stay as they are. Nothing is left running.")]
pub struct VmArgs {
    /// What to do
    #[command(subcommand)]
    pub command: VmCommand,
}

/// What `vm` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum VmCommand {
    /// Boot a kernel, run one command there, bring out its output, files and exit code
    Boot(BootArgs),
    /// Is a scheduler safe on a kernel: does it load, at what cost, does it survive a stress
    Try(TryArgs),
    /// Fetch kernels into the cache
    Fetch {
        /// Which: 6.1, 6.12, 7.2 [default: all]
        #[arg(value_name = "KERNEL", value_parser = kernel_name)]
        kernels: Vec<KernelName>,
        /// Look for newer ones
        #[arg(long)]
        refresh: bool,
    },
}

/// The machine to boot.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Virtual machine")]
pub struct GuestChoice {
    /// Kernel: 6.1, 6.12 or 7.2 (Debian's), `running`, or the file of an image
    #[arg(long, value_name = "KERNEL", default_value = "7.2", value_hint = ValueHint::FilePath)]
    pub kernel: KernelChoice,
    /// Number of CPUs [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "topology", value_parser = clap::value_parser!(u32).range(1..=255))]
    pub cpus: Option<u32>,
    /// Sockets, cores of each, threads of each core
    #[arg(long, value_name = "S:C:T")]
    pub topology: Option<Topology>,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..=1_048_576))]
    pub memory: u32,
    /// By the CPU's virtualisation [default: if it boots this kernel, else emulation]
    #[arg(long, conflicts_with_all = ["tcg", "turns", "icount"])]
    pub kvm: bool,
    /// By emulation, one host thread for each CPU
    #[arg(long, conflicts_with_all = ["turns", "icount"])]
    pub tcg: bool,
    /// By emulation in which CPUs take turns: slower, and safe for commands that load schedulers
    #[arg(long, conflicts_with = "icount")]
    pub turns: bool,
    /// By emulation with a clock of 1 ns an instruction, independent of the host
    #[arg(long)]
    pub icount: bool,
    /// Further kernel parameters
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub parameters: String,
    /// Stop it after this long, boot included [default: 120s, for `try` more]
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Nanos>,
}

impl GuestChoice {
    /// The guest's CPUs.
    pub fn topology(&self) -> Topology {
        self.topology.unwrap_or_else(|| Topology::flat(self.cpus.unwrap_or(2)))
    }

    /// How to execute, if it was said.
    pub fn acceleration(&self) -> Option<Acceleration> {
        let choices = [
            (self.kvm, Acceleration::Kvm),
            (self.tcg, Acceleration::Emulation),
            (self.turns, Acceleration::EmulationInTurns),
            (self.icount, Acceleration::InstructionCount),
        ];
        choices.into_iter().find_map(|(chosen, how)| chosen.then_some(how))
    }
}

/// Arguments of `vm boot`.
#[derive(Clone, Debug, Args)]
pub struct BootArgs {
    #[command(flatten)]
    pub guest: GuestChoice,
    /// Bring a program along, with its libraries; can be given several times
    #[arg(long = "with", value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    pub programs: Vec<String>,
    /// Bring a file or directory along; can be given several times
    #[arg(long = "file", value_name = "HOST[=GUEST]")]
    pub files: Vec<String>,
    /// Take this file out when the command has ended; can be given several times
    #[arg(long = "collect", value_name = "GUEST[=HOST]")]
    pub collect: Vec<String>,
    /// Write the guest kernel's log
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kernel_log: Option<PathBuf>,
    /// Command to run; it is brought along from this machine, else busybox has it
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub command: Vec<String>,
}

/// Arguments of `vm try`.
#[derive(Clone, Debug, Args)]
pub struct TryArgs {
    /// Object file, or a scheduler of `schedlab list schedulers`
    #[arg(value_name = "OBJECT|SCHEDULER", value_hint = ValueHint::FilePath)]
    pub object: String,
    #[command(flatten)]
    pub guest: GuestChoice,
    /// Set a global before loading
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = knob)]
    pub knobs: Vec<(String, i64)>,
    /// Length of the stress, at least 1s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = stress)]
    pub stress: Nanos,
    /// Write the trial as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

fn stress(text: &str) -> Result<Nanos, String> {
    let length = text.parse::<Nanos>().map_err(|error| error.to_string())?;
    if length < Nanos::from_millis(1_000) {
        Err("less than 1s stresses nobody".to_owned())
    } else {
        Ok(length)
    }
}

fn kernel_name(text: &str) -> Result<KernelName, String> {
    KernelName::parse(text).ok_or_else(|| "known are 6.1, 6.12 and 7.2".to_owned())
}

fn knob(text: &str) -> Result<(String, i64), String> {
    super::parse_knob(text, "write NAME=VALUE, e.g. slice_ns=5000000")
}
