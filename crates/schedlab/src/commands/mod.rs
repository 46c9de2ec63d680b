//! One module a command; this one only chooses.

mod bench;
mod calibrate;
pub(crate) mod common;
mod compare;
mod curves;
mod demo;
mod diff;
mod doctor;
mod examine;
mod import;
mod list;
mod live;
mod machine;
mod man;
mod metric_command;
mod pictures;
mod play;
mod program;
mod record;
mod reproduce;
mod show;
mod simulate;
mod top;
mod vm;

use crate::args::{Cli, Command};
use crate::failure::Failure;

/// What every command is told besides its own arguments.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// No progress.
    pub quiet: bool,
}

/// Runs the command that was given.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let context = Context { quiet: cli.quiet };
    live::repair_first(&cli.command);
    match cli.command {
        Command::Run(args) => live::run(&args, context),
        Command::Start(args) => live::start(&args, context),
        Command::Switch(args) => live::switch(&args, context),
        Command::Set(args) => live::set(&args, context),
        Command::Stop(args) => live::stop(&args, context),
        Command::Status(args) => live::status(&args),
        Command::Top(args) => top::run(&args),
        Command::Restore(args) => live::restore(&args),
        Command::Hold(args) => live::hold(&args),
        Command::Load(args) => bench::load(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::List(args) => list::run(&args),
        Command::Completions { shell } => man::completions(shell),
        Command::Man { out } => man::pages(out.as_deref()),
        Command::Compare(args) => compare::run(&args, context),
        Command::Simulate(args) => simulate::run(&args, context),
        Command::Play(args) => play::run(&args, context),
        Command::Bench(args) => bench::run(&args, context),
        Command::Program(args) => program::run(&args),
        Command::Reproduce(args) => reproduce::run(&args, context),
        Command::Record(args) => record::run(&args, context),
        Command::Import(args) => import::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Machine(args) => machine::run(&args, context),
        Command::Vm(args) => vm::run(&args, context),
        Command::Demo(args) => demo::run(&args, context),
    }
}
