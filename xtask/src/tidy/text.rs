//! The rules that need only a file's lines: header, length, leftovers, ignored tests, white space, licence.
//!
//! The words that are refused are put together from halves here, so that this file passes its own rules.

use super::{Breach, Source};

const FILE_LINES_MAX: usize = 800;

/// Words that mark unfinished work; matched as whole words.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Rust text that must not be left behind, and what to do instead.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("todo", "!("), "finish it or leave it out"),
    (concat!("unimplemented", "!("), "finish it or leave it out"),
    (concat!("dbg", "!("), "remove it"),
    (concat!("#[ign", "ore"), "a test that does not run tests nothing: mend or remove it"),
    (concat!("```ign", "ore"), "a doctest that does not run rots: make it compile, or use ```text"),
    (concat!("```rust,ign", "ore"), "a doctest that does not run rots: make it compile, or use ```text"),
];

/// Tests that another step of `cargo xtask test` runs are not left over.
const RUN_ELSEWHERE: &str = concat!("#[ign", "ore = \"boots a kernel: cargo xtask test vm\"]");

const BPF_LICENCE: &str = "// SPDX-License-Identifier: GPL-2.0-only";
/// The form that the kernel asks for in headers.
const BPF_HEADER_LICENCE: &str = "/* SPDX-License-Identifier: GPL-2.0-only */";

/// Every breach of a text rule.
pub fn check(source: &Source) -> Vec<Breach> {
    let code = matches!(source.extension(), "rs" | "c" | "h" | "py");
    let prose = matches!(source.extension(), "md" | "toml" | "json" | "yml");
    let mut breaches = Vec::new();
    if code {
        breaches.extend(header(source));
        breaches.extend(length(source));
        breaches.extend(leftovers(source));
    }
    if code || (prose && source.extension() != "json") {
        breaches.extend(white_space(source));
    }
    breaches.extend(licence(source));
    breaches
}

/// Every source file opens with a paragraph that says what it is.
fn header(source: &Source) -> Option<Breach> {
    let mut lines = source.text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut first = lines.next().unwrap_or_default();
    if first.starts_with("#!") && !first.starts_with("#![")
        || first.starts_with("// SPDX-")
        || first.starts_with("/* SPDX-")
    {
        first = lines.next().unwrap_or_default();
    }
    let opens: &[&str] = match source.extension() {
        "rs" => &["//!"],
        "py" => &["\"\"\"", "#"],
        _ => &["/*", "//"],
    };
    let words = first.trim_start_matches(['/', '*', '!', '#', '"']).trim();
    let second = lines.next().unwrap_or_default();
    let has_words = words.split_whitespace().count() >= 2 || (words.is_empty() && second.contains(' '));
    let ok = opens.iter().any(|open| first.starts_with(open)) && has_words && words != "placeholder";
    (!ok).then(|| {
        source.breach(1, "open the file with a paragraph: what it is, what it is not, where to go next")
    })
}

fn length(source: &Source) -> Option<Breach> {
    let lines = source.text.lines().count();
    (lines > FILE_LINES_MAX)
        .then(|| source.breach(lines, format!("{lines} lines; at most {FILE_LINES_MAX}: split it")))
}

fn leftovers(source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        for word in UNFINISHED {
            if has_word(line, word) {
                breaches
                    .push(source.breach(index + 1, format!("{word} left over: finish it or leave it out")));
            }
        }
        for (text, remedy) in LEFTOVERS {
            if line.contains(text) && line != RUN_ELSEWHERE {
                breaches.push(source.breach(index + 1, format!("{text} left over: {remedy}")));
            }
        }
    }
    breaches
}

fn has_word(line: &str, word: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_letter) && !after.is_some_and(is_letter)
    })
}

fn white_space(source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (index, line) in source.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            breaches.push(source.breach(index + 1, "white space at the end of the line"));
        }
    }
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        breaches.push(source.breach(source.text.lines().count(), "the last line does not end"));
    }
    breaches
}

/// What runs inside a kernel is GPL-2.0-only and says so; nothing else is.
fn licence(source: &Source) -> Option<Breach> {
    let is_source = matches!(source.extension(), "c" | "h" | "S");
    let in_bpf = source.path.starts_with("bpf");
    let first = source.text.lines().next().unwrap_or_default();
    let named = first == BPF_LICENCE || (source.extension() == "h" && first == BPF_HEADER_LICENCE);
    if is_source && in_bpf && !named {
        return Some(source.breach(1, format!("a file below bpf/ begins with `{BPF_LICENCE}`")));
    }
    let kernel_object = source.path.to_string_lossy().ends_with(".bpf.c");
    if kernel_object && !in_bpf && first != BPF_LICENCE {
        return Some(source.breach(1, format!("a BPF program begins with `{BPF_LICENCE}`")));
    }
    let gpl = concat!("SPDX-License-Identifier: G", "PL");
    let elsewhere = matches!(source.extension(), "rs" | "py")
        && source.text.lines().take(5).any(|line| line.contains(gpl));
    elsewhere.then(|| source.breach(1, "only bpf/ is GPL; this file is Apache-2.0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The breaches of `text` as a file at `path`, as one string.
    fn breaches(path: &str, text: &str) -> String {
        let found = check(&Source { path: path.into(), text: text.into() });
        found.iter().map(|breach| format!("{breach}\n")).collect()
    }

    #[track_caller]
    fn refused(path: &str, text: &str, because: &str) {
        let found = breaches(path, text);
        assert!(found.contains(because), "{path} must be refused with {because:?}, found {found:?}");
    }

    #[track_caller]
    fn accepted(path: &str, text: &str) {
        assert_eq!(breaches(path, text), "", "{path} must be accepted");
    }

    #[test]
    fn files_without_header_are_refused() {
        refused("a.rs", "fn f() {}\n", "open the file");
        refused("a.rs", "//! placeholder\nfn f() {}\n", "open the file");
        refused("a.rs", "", "open the file");
        refused("a.py", "import os\n", "open the file");
        refused("tests/a.c", "int x;\n", "open the file");
        refused("bpf/a.bpf.c", "// SPDX-License-Identifier: GPL-2.0-only\nint x;\n", "open the file");
        accepted("a.rs", "//! What this is.\nfn f() {}\n");
        accepted("a.py", "#!/usr/bin/env python3\n\"\"\"What this is.\"\"\"\n");
        accepted("bpf/a.bpf.c", "// SPDX-License-Identifier: GPL-2.0-only\n/*\n * What this is.\n */\n");
    }

    #[test]
    fn long_files_are_refused() {
        let long = format!("//! What this is.\n{}", "\n".repeat(FILE_LINES_MAX));
        refused("a.rs", &long, "at most 800");
        let just = format!("//! What this is.\n{}", "\n".repeat(FILE_LINES_MAX - 1));
        accepted("a.rs", &just);
    }

    #[test]
    fn leftovers_are_refused() {
        for word in UNFINISHED {
            refused("a.rs", &format!("//! What this is.\n// {word}: later\n"), "left over");
            accepted("a.rs", &format!("//! What this is.\n// A{word}S is another word.\n"));
        }
        for (text, _) in LEFTOVERS {
            refused("a.rs", &format!("//! What this is.\n{text}\n"), "left over");
        }
        accepted("a.rs", &format!("//! What this is.\n{RUN_ELSEWHERE}\n"));
    }

    #[test]
    fn loose_white_space_is_refused() {
        refused("a.rs", "//! What this is. \n", "white space");
        refused("a.md", "text\t\n", "white space");
        refused("a.toml", "a = 1\r\n", "white space");
        refused("a.rs", "//! What this is.", "does not end");
    }

    #[test]
    fn wrong_licences_are_refused() {
        refused("bpf/a.h", "// SPDX-License-Identifier: Apache-2.0\n// What this is.\n", "begins with");
        refused("bpf/a.bpf.c", "/* What this is. */\n", "begins with");
        refused(
            "bpf/a.bpf.c",
            "/* SPDX-License-Identifier: GPL-2.0-only */\n// What this is.\n",
            "begins with",
        );
        accepted("bpf/a.h", "/* SPDX-License-Identifier: GPL-2.0-only */\n/* What this is. */\n");
        refused("tests/vm/a.bpf.c", "/* What this is. */\n", "begins with");
        let gpl = concat!("//! What this is.\n// SPDX-License-Identifier: G", "PL-2.0\n");
        refused("crates/a.rs", gpl, "Apache-2.0");
    }
}
