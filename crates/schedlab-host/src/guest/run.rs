//! The guest program's commands; the binary `schedlab-guest` hands its arguments here.
//!
//! On the host it boots a machine with itself inside (`vm`); in the guest it does what needs a kernel of its own.
//! The parts that do the work are in [`crate::vm`].

use crate::vm::{Acceleration, Kernel, KernelName, Machine, Topology};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: schedlab-guest vm [OPTIONS] -- COMMAND            run COMMAND in a virtual machine
       schedlab-guest try OBJECT [OPTIONS]                load it, stress it, unload it; what happened as JSON
       schedlab-guest load OBJECT [OPTIONS] [-- COMMAND]  run COMMAND under a scheduler; says how it ended
       schedlab-guest callbacks OBJECT [OPTIONS] -- COMMAND
                                                          the same, printing each callback as a JSON line
       schedlab-guest stress MS                          run tasks of all kinds for so long; how they fared as JSON
       schedlab-guest play WORKLOAD                       play a workload file with real threads
       schedlab-guest instructions OBJECT                 the programs as libbpf relocated them, as JSON

options of try, load and callbacks:
  --set NAME=VALUE        set a knob before loading
  --stress-ms MS          length of the stress of try (default 10000)
  --repeat N              run the command this often (default 1)
  --run PROGRAM           run this program of the object once the scheduler is attached (load only)
  --report NAME           say at the end what this variable of the object holds

options of vm:
  --kernel 6.1|6.12|7.2   which kernel (default 7.2, which has sched_ext)
  --cpus N                CPUs (default 2)
  --topology S:C:T        sockets, cores each, threads each
  --parameters TEXT       further kernel parameters
  --memory MIB            memory (default 1024)
  --kvm | --tcg | --icount   how to execute (default: KVM if it boots, else emulation)
  --time-limit SECONDS    kill it after this long (default 120)
  --file HOST=GUEST       put a file or directory into the machine
  --fetch-only            only fetch the kernel
  --refresh               look for a newer kernel of that line first
  --timing                say on standard error how long booting took
  --kernel-log            print the kernel's log on standard error afterwards
";

/// Runs the command that `arguments` name.
pub fn main(arguments: &[String]) -> ExitCode {
    match arguments.first().map(String::as_str) {
        Some("vm") => vm(&arguments[1..]),
        Some("stress") => super::schedule::stress(&arguments[1..]).unwrap_or_else(usage),
        Some("play") => super::schedule::play(&arguments[1..]).unwrap_or_else(usage),
        Some("try" | "load" | "callbacks" | "instructions") => {
            super::schedule::main(arguments).unwrap_or_else(usage)
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}

/// What `vm` was asked for.
struct Options {
    kernel: KernelName,
    topology: Topology,
    memory_mib: u32,
    acceleration: Option<Acceleration>,
    time_limit: Duration,
    files: Vec<(String, String)>,
    parameters: String,
    fetch_only: bool,
    refresh: bool,
    timing: bool,
    kernel_log: bool,
    command: Vec<String>,
}

fn vm(arguments: &[String]) -> ExitCode {
    let Some(options) = Options::parse(arguments) else { return usage() };
    match boot(&options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("vm: {error}");
            ExitCode::from(3)
        }
    }
}

fn boot(options: &Options) -> Result<ExitCode, crate::vm::Error> {
    let kernel =
        if options.refresh { Kernel::refresh(options.kernel)? } else { Kernel::get(options.kernel)? };
    if options.fetch_only {
        eprintln!("vm: kernel {} is at {}", kernel.release, kernel.image.display());
        return Ok(ExitCode::SUCCESS);
    }
    let own = std::env::current_exe().map_err(crate::vm::Error::system("finding the own program"))?;
    let mut machine = Machine::new(kernel.clone(), &own);
    machine
        .topology(options.topology)
        .memory_mib(options.memory_mib)
        .time_limit(options.time_limit)
        .pass_output(true);
    machine.parameters(&options.parameters);
    if let Some(acceleration) = options.acceleration {
        machine.acceleration(acceleration);
    }
    for (host, guest) in &options.files {
        machine.file(host.as_ref(), guest);
    }
    let command: Vec<&str> = options.command.iter().map(String::as_str).collect();
    let run = machine.run(&command)?;
    if options.kernel_log {
        eprint!("{}", run.kernel_log);
    }
    if options.timing {
        let (boot, total) = (run.boot.as_secs_f64(), run.total.as_secs_f64());
        eprintln!(
            "vm: {} under {}, {boot:.1} s to boot, {total:.1} s in all",
            kernel.release,
            run.acceleration.name()
        );
    }
    Ok(ExitCode::from(u8::try_from(run.code).unwrap_or(1)))
}

impl Options {
    fn parse(arguments: &[String]) -> Option<Options> {
        let mut options = Options {
            kernel: KernelName::V7_2,
            topology: Topology::flat(2),
            memory_mib: 1024,
            acceleration: None,
            time_limit: Duration::from_secs(120),
            files: Vec::new(),
            parameters: String::new(),
            fetch_only: false,
            refresh: false,
            timing: false,
            kernel_log: false,
            command: Vec::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--kernel" => options.kernel = KernelName::parse(words.next()?)?,
                "--cpus" => {
                    options.topology = Topology::flat(words.next()?.parse().ok().filter(|cpus| *cpus > 0)?)
                }
                "--topology" => options.topology = words.next()?.parse().ok()?,
                "--parameters" => options.parameters = words.next()?.clone(),
                "--memory" => options.memory_mib = words.next()?.parse().ok()?,
                "--kvm" => options.acceleration = Some(Acceleration::Kvm),
                "--tcg" => options.acceleration = Some(Acceleration::Emulation),
                "--icount" => options.acceleration = Some(Acceleration::InstructionCount),
                "--time-limit" => options.time_limit = Duration::from_secs(words.next()?.parse().ok()?),
                "--file" => {
                    let (host, guest) = words.next()?.split_once('=')?;
                    options.files.push((host.to_string(), guest.to_string()));
                }
                "--fetch-only" => options.fetch_only = true,
                "--refresh" => options.refresh = true,
                "--timing" => options.timing = true,
                "--kernel-log" => options.kernel_log = true,
                "--" => {
                    options.command = words.cloned().collect();
                    break;
                }
                _ => return None,
            }
        }
        (options.fetch_only || !options.command.is_empty()).then_some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Option<Options> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_are_read() {
        let options = parse(&["--topology", "2:4:2", "--icount", "--", "uname", "--", "-r"]).expect("valid");
        assert_eq!(options.topology.cpus(), 16);
        assert_eq!(options.acceleration, Some(Acceleration::InstructionCount));
        assert_eq!(options.command, ["uname", "--", "-r"]);
    }

    #[test]
    fn wrong_options_are_refused() {
        let wrong: &[&[&str]] = &[
            &[],
            &["--"],
            &["--cpus", "0", "--", "x"],
            &["--kernel", "9", "--", "x"],
            &["--topology", "1:2", "--", "x"],
            &["x"],
        ];
        for words in wrong {
            assert!(parse(words).is_none(), "{words:?} must be refused");
        }
    }
}
