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
    write_pages(&command, "schedlab", directory)
}

/// The page of a command, then those of the commands below it.
fn write_pages(command: &clap::Command, name: &str, directory: &Path) -> Result<(), Failure> {
    // clap_mangen takes a static name for the page's title.
    let renamed = command.clone().name(&*Box::leak(name.to_owned().into_boxed_str()));
    write_file(&directory.join(format!("{name}.1")), &page(renamed)?)?;
    let mut below = command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set());
    below.try_for_each(|sub| write_pages(sub, &format!("{name}-{}", sub.get_name()), directory))
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text).map_err(Failure::input)?;
    Ok(text)
}
