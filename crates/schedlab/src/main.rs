//! schedlab: which scheduler, policy and settings serve this work best.
//!
//! Only the frame: parse, run the command, say how it ended. Commands are in [`commands`], the command line
//! in [`args`].

mod args;
mod commands;
mod failure;
mod inputs;
mod kept;
mod output;
mod progress;
mod setup;
mod simulator;

use args::Cli;
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The same program is what runs inside the virtual machines it boots.
    if let Some(code) = schedlab_host::guest::main_if_guest() {
        return code;
    }
    let cli = Cli::parse();
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Not eprintln!: a standard error that went away must not change the exit code.
            drop(writeln!(std::io::stderr(), "schedlab: {failure}"));
            ExitCode::from(failure.code())
        }
    }
}
