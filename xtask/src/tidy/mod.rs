//! Rules about the sources that a program can check: file headers and lengths, function lengths, leftovers,
//! licences, and the methods that the pure crates may not call.
//!
//! Each rule is a function from a file to its breaches; `text` has those that need only lines, `functions` those that
//! need a parser, `purity` the lint configuration of the pure crates. `cargo test -p xtask` applies them to the
//! tree, and shows each rule a bad sample that it must refuse. Style that a program cannot judge is in STYLE.md.

mod functions;
mod purity;
mod text;

use std::path::{Path, PathBuf};

/// A source file, its path relative to the root.
pub struct Source {
    /// Path relative to the repository's root.
    pub path: PathBuf,
    /// The whole text.
    pub text: String,
}

/// Something that breaks a rule: where, and what to do.
#[derive(Debug)]
pub struct Breach {
    path: PathBuf,
    line: usize,
    what: String,
}

impl std::fmt::Display for Breach {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}: {}", self.path.display(), self.line, self.what)
    }
}

impl Source {
    fn extension(&self) -> &str {
        self.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    }

    fn breach(&self, line: usize, what: impl Into<String>) -> Breach {
        Breach { path: self.path.clone(), line, what: what.into() }
    }
}

/// Every breach in the tree below `root`, in the order of paths.
pub fn check_tree(root: &Path) -> std::io::Result<Vec<Breach>> {
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    paths.sort();
    let mut breaches = Vec::new();
    for path in paths {
        let bytes = std::fs::read(&path)?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let relative = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
        breaches.extend(check(&Source { path: relative, text }));
    }
    breaches.extend(purity::check_tree(root)?);
    Ok(breaches)
}

/// Every breach in one file.
pub fn check(source: &Source) -> Vec<Breach> {
    let mut breaches = text::check(source);
    breaches.extend(functions::check(source));
    breaches
}

/// Files below `directory` that people write: no products, no hidden directories but `.ci` and `.cargo`.
fn collect(directory: &Path, into: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
        // Inputs of the fuzz targets are as a machine made them.
        let product = matches!(&*name, "target" | "node_modules" | "__pycache__" | "venv" | "corpus");
        if hidden || product {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), into)?;
        } else if entry.file_type()?.is_file() {
            into.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let breaches = check_tree(&crate::sys::root()).expect("the tree can be read");
        let lines: Vec<String> = breaches.iter().map(Breach::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn the_walk_finds_this_file_and_no_products() {
        let mut paths = Vec::new();
        collect(&crate::sys::root(), &mut paths).expect("the tree can be read");
        assert!(paths.iter().any(|path| path.ends_with("xtask/src/tidy/mod.rs")));
        assert!(!paths.iter().any(|path| path.components().any(|part| part.as_os_str() == "target")));
    }
}
