//! Runs random programs in both engines and counts differences:
//! `cargo run --release -p schedlab-bpf --example differential -- 100000 [SEED]`.

#[path = "../tests/generator/mod.rs"]
mod generator;

#[expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a command line program")]
fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().ok());
    let (Some(programs), Some(seed)) =
        (arguments.next().unwrap_or(Some(100_000)), arguments.next().unwrap_or(Some(1)))
    else {
        println!("usage: differential [PROGRAMS [SEED]]");
        return std::process::ExitCode::from(2);
    };
    let totals = generator::run(programs, seed);
    for difference in totals.differences.iter().take(3) {
        println!("{difference}");
    }
    println!(
        "{} programs, {} instructions, {} faults, {} differences",
        totals.programs,
        totals.instructions,
        totals.faults,
        totals.differences.len()
    );
    if totals.differences.is_empty() {
        std::process::ExitCode::SUCCESS
    } else {
        std::process::ExitCode::FAILURE
    }
}
