//! `cargo xtask docs`: pages that are made from sources, so that they cannot drift from them.
//!
//! A scheduler's page is the essay on top of its file; the page of the command line is what the program says with
//! `--help`; that of sched_ext support is the simulator's own table. `--check` writes nothing and fails when a page is stale or
//! belongs to no source any more. Pages written by hand are not touched.

use crate::setup::{self, Level};
use crate::sys;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Directories whose every file is made by this program.
const MADE: &[&str] = &["docs/schedulers"];

/// With `--check`, only says which pages are stale.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    let check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => {
            eprintln!("usage: cargo xtask docs [--check]");
            return Ok(ExitCode::from(2));
        }
    };
    let root = sys::root();
    if let Err(code) = setup::ensure(Level::Build) {
        return Ok(code);
    }
    let mut pages = pages(&root)?;
    let products = sys::products()?;
    pages.insert(PathBuf::from("docs/cli.md"), command_line(help_of(products.join("schedlab")))?);
    pages
        .insert(PathBuf::from("docs/sched-ext-support.md"), support(&products.join("examples/ext_support"))?);
    let stale = stale(&root, &pages)?;
    for path in &stale {
        println!("{}: {}", path.display(), if check { "stale: run cargo xtask docs" } else { "made" });
    }
    if check {
        return Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    for path in stale {
        let full = root.join(&path);
        match pages.get(&path) {
            None => std::fs::remove_file(&full)?,
            Some(text) => {
                std::fs::create_dir_all(full.parent().expect("a page lies in a directory"))?;
                std::fs::write(&full, text)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of what the simulated sched_ext has: the simulator's own table.
fn support(example: &Path) -> Result<String> {
    let output = Command::new(example).stderr(std::process::Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the example ext_support fails; its message is above");
    Ok(String::from_utf8(output.stdout)?)
}

/// What a program says with the given words and `--help`, at a width that does not depend on the terminal.
fn help_of(program: PathBuf) -> impl Fn(&[&str]) -> Result<String> {
    move |words| {
        let mut command = Command::new(&program);
        let output = command.args(words).arg("--help").env("COLUMNS", "100").output()?;
        anyhow::ensure!(output.status.success(), "{command:?} failed");
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// The names in the list of commands of a help text; lines that go on are indented further.
fn commands(help: &str) -> impl Iterator<Item = &str> {
    let list =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = list.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help")
}

/// The page of the command line: the program's help, then that of each command.
fn command_line(help: impl Fn(&[&str]) -> Result<String>) -> Result<String> {
    let own = help(&[])?;
    let section = |title: &str, text: &str| {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        format!("\n## {title}\n\n```text\n{}\n```\n", lines.join("\n").trim_end())
    };
    let note = "<!-- Made from `schedlab --help` and `schedlab COMMAND --help` by `cargo xtask docs`. -->";
    let mut page = format!("# The command line\n\n{note}\n{}", section("schedlab", &own));
    for name in commands(&own) {
        let text = help(&[name])?;
        page += &section(&format!("schedlab {name}"), &text);
        for below in commands(&text) {
            page += &section(&format!("schedlab {name} {below}"), &help(&[name, below])?);
        }
    }
    anyhow::ensure!(page.matches("\n## ").count() > 1, "schedlab --help lists no commands");
    Ok(page)
}

/// All pages with their text that come from files.
fn pages(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut pages = BTreeMap::new();
    for source in files(&root.join("bpf/schedulers"))? {
        let file = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".bpf.c") else { continue };
        let text = std::fs::read_to_string(&source)?;
        let essay =
            essay(&text).with_context(|| format!("bpf/schedulers/{file} has no essay after its licence"))?;
        pages.insert(PathBuf::from(format!("docs/schedulers/{name}.md")), page(name, &file, &essay));
    }
    Ok(pages)
}

/// Pages that differ from what their source makes of them, and made pages without source.
fn stale(root: &Path, pages: &BTreeMap<PathBuf, String>) -> Result<Vec<PathBuf>> {
    let mut stale: Vec<PathBuf> = Vec::new();
    for (path, text) in pages {
        if std::fs::read_to_string(root.join(path)).ok().as_ref() != Some(text) {
            stale.push(path.clone());
        }
    }
    for directory in MADE {
        for file in files(&root.join(directory))? {
            let path = file.strip_prefix(root).unwrap_or(&file).to_path_buf();
            if !pages.contains_key(&path) {
                stale.push(path);
            }
        }
    }
    Ok(stale)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let entries: std::io::Result<Vec<_>> = std::fs::read_dir(directory)?.collect();
    let mut paths: Vec<PathBuf> = entries?.iter().map(std::fs::DirEntry::path).collect();
    paths.sort();
    Ok(paths)
}

fn page(name: &str, file: &str, essay: &str) -> String {
    format!(
        "# {name}\n\n<!-- Made from bpf/schedulers/{file} by `cargo xtask docs`: edit it there. -->\n\n{essay}\n"
    )
}

/// The first comment after the licence line, without its comment marks.
fn essay(source: &str) -> Option<String> {
    let rest = source.lines().skip_while(|line| line.starts_with("// SPDX-") || line.trim().is_empty());
    let rest: Vec<&str> = rest.collect();
    let lines: Vec<&str> = if rest.first()?.trim_start().starts_with("/*") {
        let end = rest.iter().position(|line| line.contains("*/"))?;
        rest[..=end].iter().map(|line| line.trim().trim_start_matches("/*").trim_end_matches("*/")).collect()
    } else {
        rest.iter().map(|line| line.trim()).take_while(|line| line.starts_with("//")).collect()
    };
    let strip = |line: &&str| {
        let line = line.trim_start_matches('/');
        let line = line.strip_prefix('*').unwrap_or(line);
        line.strip_prefix(' ').unwrap_or(line).trim_end().to_string()
    };
    let text: Vec<String> = lines.iter().map(strip).collect();
    let text = text.join("\n").trim().to_string();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_comment_forms_are_essays() {
        let block = "// SPDX-License-Identifier: GPL-2.0-only\n/*\n * Rule: first in, first out.\n *\n *  - a\n */\nint x;\n";
        assert_eq!(essay(block).as_deref(), Some("Rule: first in, first out.\n\n - a"));
        let lines =
            "// SPDX-License-Identifier: GPL-2.0-only\n//\n// Rule.\n//\n// State.\n#include <x.h>\n// no\n";
        assert_eq!(essay(lines).as_deref(), Some("Rule.\n\nState."));
        assert_eq!(essay("// SPDX-License-Identifier: GPL-2.0-only\nint x;\n"), None);
    }

    #[test]
    fn every_command_gets_a_section() {
        let help = |words: &[&str]| {
            Ok(match words {
                [] => "A tool.  \n\nCommands:\n  run   Runs\n        long\n  help  Helps\n\nOptions:\n  -q  Quiet\n"
                    .to_owned(),
                ["run"] => "Help of run.\n\nCommands:\n  far  Far\n".to_owned(),
                words => format!("Help of {}.\n", words.join(" ")),
            })
        };
        let page = command_line(help).expect("a page");
        let sections: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(sections, ["## schedlab", "## schedlab run", "## schedlab run far"]);
        assert!(page.contains("Help of run.") && page.contains("A tool.\n"), "{page}");
        assert!(command_line(|_| Ok("nothing".to_owned())).is_err());
    }

    #[test]
    fn stale_missing_and_orphaned_pages_are_found() {
        let root = std::env::temp_dir().join(format!("schedlab-docs-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            std::fs::write(path, text).expect("file");
        };
        write("bpf/schedulers/a.bpf.c", "// SPDX-License-Identifier: GPL-2.0-only\n// Essay.\n");
        let pages = pages(&root).expect("pages");
        let page = PathBuf::from("docs/schedulers/a.md");
        assert_eq!(
            stale(&root, &pages).expect("stale"),
            std::slice::from_ref(&page),
            "a missing page is stale"
        );
        write("docs/schedulers/a.md", &pages[&page]);
        assert!(stale(&root, &pages).expect("stale").is_empty());
        write("docs/schedulers/a.md", "edited by hand");
        write("docs/schedulers/b.md", "its source is gone");
        assert_eq!(stale(&root, &pages).expect("stale"), [page, "docs/schedulers/b.md".into()]);
        std::fs::remove_dir_all(&root).expect("scratch directory");
    }
}
