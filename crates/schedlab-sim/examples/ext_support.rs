//! Prints docs/sched-ext-support.md; `cargo xtask docs` runs it.

fn main() {
    #[allow(clippy::print_stdout, reason = "that is what it is for")]
    {
        print!("{}", schedlab_sim::ext::support::page());
    }
}
