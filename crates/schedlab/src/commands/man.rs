//! Completions and manual pages, from the same types that parse the command line.

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::{print_bytes, write_file};
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

/// Prints a completion script.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "schedlab", &mut script);
    print_bytes(&script)
}

/// Prints the manual page, or writes one for each command into a directory.
pub fn pages(directory: Option<&Path>) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    let Some(directory) = directory else {
        return print_bytes(&page(command)?);
    };
    for sub in command.get_subcommands() {
        let name = format!("schedlab-{}", sub.get_name());
        // clap_mangen takes a static name for the page's title.
        let renamed = sub.clone().name(&*Box::leak(name.clone().into_boxed_str()));
        write_file(&directory.join(format!("{name}.1")), &page(renamed)?)?;
    }
    write_file(&directory.join("schedlab.1"), &page(command)?)
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text).map_err(Failure::input)?;
    Ok(text)
}
