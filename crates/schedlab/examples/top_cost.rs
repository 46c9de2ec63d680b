//! What `schedlab top` costs beside many tasks: the number in docs/top.md.
//!
//! `cargo run --release -p schedlab --example top_cost [TASKS] [SECONDS]` as root, after `cargo build --release`. Most
//! tasks sleep, one in fifty wakes every 10 ms. Not here: a bound that a test would check; machines differ.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One task in so many wakes now and then.
const AWAKE: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let tasks = numbers.next().transpose()?.unwrap_or(1_000);
    let seconds = numbers.next().transpose()?.unwrap_or(20) as u64;
    for number in 0..tasks {
        let awake = number % AWAKE == 0;
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || idle(awake))?;
    }
    let program = beside_us()?;
    println!("{tasks} tasks of this program, 1 in {AWAKE} wakes every 10 ms; interval 1 s, {seconds} s");
    let plain = ["--plain", "--iterations"];
    let json = ["--json", "-", "--iterations"];
    for (what, arguments) in [("text", &plain[..]), ("JSON", &json[..])] {
        let mut command = Command::new(&program);
        command.arg("top").args(arguments).arg(seconds.to_string()).stdout(Stdio::null());
        measured(what, command)?;
    }
    // `script` gives it a terminal; its own CPU time is counted, too.
    let line = format!("stty cols 180 rows 50; exec {} top", program.display());
    let mut screen = Command::new("script");
    screen.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
    measured_until(screen, seconds)
}

fn idle(awake: bool) {
    loop {
        std::thread::sleep(if awake { Duration::from_millis(10) } else { Duration::from_secs(3_600) });
        if awake {
            let sum: u64 = (0..20_000_u64).map(std::hint::black_box).sum();
            std::hint::black_box(sum);
        }
    }
}

/// The program, where this example lies.
fn beside_us() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let program = own.parent().and_then(Path::parent).map(|directory| directory.join("schedlab"));
    program
        .filter(|path| path.exists())
        .ok_or_else(|| "build the program first: cargo build --release".into())
}

fn measured(what: &str, mut command: Command) -> Result<(), Box<dyn Error>> {
    let (before, began) = (of_children(), Instant::now());
    let status = command.status()?;
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    report(what, of_children() - before, began.elapsed());
    Ok(())
}

fn measured_until(mut command: Command, seconds: u64) -> Result<(), Box<dyn Error>> {
    use std::io::Write;
    let (before, began) = (of_children(), Instant::now());
    let mut child = command.spawn()?;
    std::thread::sleep(Duration::from_secs(seconds));
    if let Some(keys) = &mut child.stdin {
        keys.write_all(b"q")?;
    }
    let status = child.wait()?;
    report("screen", of_children() - before, began.elapsed());
    if status.success() { Ok(()) } else { Err(format!("the screen ended with {status}").into()) }
}

fn report(what: &str, cpu: Duration, wall: Duration) {
    let share = cpu.as_secs_f64() / wall.as_secs_f64() * 100.0;
    println!(
        "{what:<7} {share:.2} % of one CPU ({:.0} ms in {:.1} s, its start included)",
        cpu.as_secs_f64() * 1e3,
        wall.as_secs_f64()
    );
}

/// CPU time of children that have ended, read from /proc to 10 ms.
fn of_children() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // cutime and cstime are fields 16 and 17; the first here is field 3.
    let ticks: u64 = [13, 14].iter().filter_map(|&at| fields.get(at)?.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
