//! Progress on standard error: a bar when it is a terminal and nobody asked for quiet, else nothing.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar for a known number of steps.
pub fn bar(quiet: bool, length: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), target(quiet));
    let style = ProgressStyle::with_template("{msg:<12} {wide_bar} {pos}/{len} {eta:>4}");
    bar.set_style(style.expect("the template is well-formed"));
    bar.set_message(what);
    bar
}

/// A spinner for something of unknown length.
pub fn spinner(quiet: bool, what: String) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target(quiet));
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    bar.set_style(style.expect("the template is well-formed"));
    bar.set_message(what);
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

fn target(quiet: bool) -> ProgressDrawTarget {
    if quiet || !std::io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    }
}
