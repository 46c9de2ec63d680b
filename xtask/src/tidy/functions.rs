//! Function length: at most 70 lines from signature to closing brace, in Rust, C and Python.
//!
//! Rust is parsed by `syn`. C is read by a brace scanner that knows strings and comments; Python by indentation.
//! Macro bodies are not functions. What does not parse is a breach too, so that the rule cannot be dodged.

use super::{Breach, Source};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FUNCTION_LINES_MAX: usize = 70;

/// Every function of `source` that is too long.
pub fn check(source: &Source) -> Vec<Breach> {
    let spans = match source.extension() {
        "rs" => rust(&source.text),
        "c" | "h" => Ok(c(&source.text)),
        "py" => Ok(python(&source.text)),
        _ => return Vec::new(),
    };
    match spans {
        Err(error) => vec![source.breach(1, format!("does not parse: {error}"))],
        Ok(spans) => spans
            .iter()
            .filter(|span| span.lines() > FUNCTION_LINES_MAX)
            .map(|span| span.breach(source))
            .collect(),
    }
}

/// First and last line of a function, counted from 1.
struct Span {
    first: usize,
    last: usize,
}

impl Span {
    fn lines(&self) -> usize {
        self.last + 1 - self.first
    }

    fn breach(&self, source: &Source) -> Breach {
        source.breach(
            self.first,
            format!("function of {} lines; at most {FUNCTION_LINES_MAX}: split it", self.lines()),
        )
    }
}

fn rust(text: &str) -> Result<Vec<Span>, syn::Error> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder { spans: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.spans)
}

struct Finder {
    spans: Vec<Span>,
}

impl Finder {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let last = block.span().end().line;
        self.spans.push(Span { first, last });
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Blocks at depth 0 that follow a closing parenthesis are function bodies. A signature is counted from the line
/// after the last `;`, `}` or preprocessor line.
fn c(text: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut depth = 0_usize;
    let mut previous = ' ';
    let mut signature: Option<usize> = None;
    let mut open: Option<usize> = None;
    for (index, line) in without_strings_and_comments(text).lines().enumerate() {
        if line.trim_start().starts_with('#') && depth == 0 {
            signature = None;
            continue;
        }
        for c in line.chars().filter(|c| !c.is_whitespace()) {
            if depth == 0 && signature.is_none() && c != ';' && c != '}' {
                signature = Some(index + 1);
            }
            match c {
                '{' if depth == 0 && previous == ')' => open = signature,
                '}' if depth == 1 => spans.extend(open.take().map(|first| Span { first, last: index + 1 })),
                _ => {}
            }
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(c, ';' | '}') {
                signature = None;
            }
            previous = c;
        }
    }
    spans
}

/// The same lines with the contents of strings, characters and comments blanked.
fn without_strings_and_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match &bytes[at..] {
            [b'/', b'*', ..] => text[at + 2..].find("*/").map_or(bytes.len(), |length| at + length + 4),
            [b'/', b'/', ..] => text[at..].find('\n').map_or(bytes.len(), |length| at + length),
            [quote @ (b'"' | b'\''), ..] => end_of_quoted(bytes, at, *quote),
            _ => {
                out.push(char::from(bytes[at]));
                at += 1;
                continue;
            }
        };
        let newlines = bytes[at..end].iter().filter(|byte| **byte == b'\n').count();
        out.push(' ');
        out.push_str(&"\n".repeat(newlines));
        at = end;
    }
    out
}

fn end_of_quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// A `def` ends before the next line that is indented no deeper; blank lines at its end do not count.
fn python(text: &str) -> Vec<Span> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut spans = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let start = line.trim_start();
        if !(start.starts_with("def ") || start.starts_with("async def ")) {
            continue;
        }
        let body = lines[index + 1..].iter().take_while(|next| {
            next.trim().is_empty() || indent(next) > indent(line) || next.trim_start().starts_with(')')
        });
        let length = body.clone().count();
        let blank = body.collect::<Vec<_>>().iter().rev().take_while(|next| next.trim().is_empty()).count();
        spans.push(Span { first: index + 1, last: index + 1 + length - blank });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(path: &str, text: &str) -> bool {
        let breaches = check(&Source { path: path.into(), text: text.into() });
        breaches.iter().any(|breach| breach.what.contains("at most 70"))
    }

    #[test]
    fn rust_functions_are_measured() {
        let body = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines));
        assert!(long("a.rs", &body(69)), "71 lines must be refused");
        assert!(!long("a.rs", &body(68)), "70 lines are allowed");
        assert!(long("a.rs", &format!("impl A {{\n{}}}\n", body(69))));
        assert!(long("a.rs", &format!("trait A {{\n{}}}\n", body(69))));
        assert!(long("a.rs", &format!("mod a {{\n{}}}\n", body(69))));
    }

    #[test]
    fn braces_in_strings_do_not_end_a_rust_function() {
        let text = format!("fn f() {{\n    g(\"}}\");\n{}}}\n", "    g();\n".repeat(69));
        assert!(long("a.rs", &text));
    }

    #[test]
    fn rust_that_does_not_parse_is_refused() {
        let breaches = check(&Source { path: "a.rs".into(), text: "fn f( {\n".into() });
        assert_eq!(breaches.len(), 1);
    }

    #[test]
    fn c_functions_are_measured() {
        let body = |lines: usize| {
            format!("int f(void)\n{{\n{}}}\n", "\tg('{', \"}\"); /* } */ // }\n".repeat(lines))
        };
        assert!(long("a.c", &body(68)), "71 lines must be refused");
        assert!(!long("a.c", &body(67)), "70 lines are allowed");
        let table = format!("int a[] = {{\n{}}};\n", "\t1,\n".repeat(100));
        assert!(!long("a.c", &table), "a table is no function");
        assert!(long("a.bpf.c", &format!("s32 BPF_STRUCT_OPS(init)\n{{\n{}}}\n", "\tg();\n".repeat(70))));
    }

    #[test]
    fn python_functions_are_measured() {
        let body = |lines: usize| format!("def f():\n{}\n\nx = 1\n", "    g()\n".repeat(lines));
        assert!(long("a.py", &body(70)), "71 lines must be refused");
        assert!(!long("a.py", &body(69)), "70 lines are allowed");
    }
}
