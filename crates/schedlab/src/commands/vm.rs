//! `schedlab vm`: real kernels in virtual machines.
//!
//! The program puts itself into the machine. `try` asks one question, "is this scheduler safe on that kernel?", and
//! answers it with an exit code. Not here: QEMU and kernels ([`schedlab_host::vm`]), what is tried in the guest
//! ([`schedlab_host::live::trial`]).

use super::Context;
use super::common::interrupt_flag;
use crate::args::vm::{BootArgs, GuestChoice, TryArgs, VmArgs, VmCommand};
use crate::failure::Failure;
use crate::inputs::schedulers;
use crate::output::{print_text, write_file, write_json};
use crate::progress;
use anyhow::{Context as _, anyhow};
use schedlab_host::guest::{ENABLED, PROGRAM};
use schedlab_host::live::trial::Trial;
use schedlab_host::verifier::Refusal;
use schedlab_host::vm::{Error, Kernel, KernelName, Machine, Run};
use schedlab_model::topology::cpus_text;
use schedlab_report::text::Table;
use schedlab_report::units;
use std::path::Path;
use std::time::Duration;

/// Where an object lies in the guest.
const OBJECT: &str = "/schedlab/object.bpf.o";
/// Trials at most where the machine disturbs them.
const TRIES: u32 = 3;
/// Booting and packing take no longer than this, however slow the emulation.
const BESIDE_STRESS: Duration = Duration::from_secs(110);

/// Boots, tries or fetches.
pub fn run(args: &VmArgs, context: Context) -> Result<(), Failure> {
    match &args.command {
        VmCommand::Boot(args) => boot(args, context),
        VmCommand::Try(args) => try_object(args, context),
        VmCommand::Fetch { kernels, refresh } => fetch(kernels, *refresh, context),
    }
}

fn fetch(kernels: &[KernelName], refresh: bool, context: Context) -> Result<(), Failure> {
    let all = [KernelName::V6_1, KernelName::V6_12, KernelName::V7_2];
    for name in if kernels.is_empty() { &all[..] } else { kernels } {
        let bar = progress::spinner(context.quiet, format!("fetching kernel {}", name.name()));
        let kernel = if refresh { Kernel::refresh(*name) } else { Kernel::get(*name) };
        bar.finish_and_clear();
        let kernel = kernel.map_err(failure)?;
        print_text(&format!("{:<5} {:<32} {}\n", name.name(), kernel.release, kernel.image.display()))?;
    }
    Ok(())
}

/// A machine of that shape, with the kernel at hand.
fn machine(guest: &GuestChoice, context: Context) -> Result<Machine, Failure> {
    let bar = progress::spinner(context.quiet, "looking for the kernel".to_owned());
    let kernel = Kernel::choose(&guest.kernel).map_err(failure);
    bar.finish_and_clear();
    let own = std::env::current_exe().context("the program does not find itself")?;
    let mut machine = Machine::new(kernel?, &own);
    machine.topology(guest.topology()).memory_mib(guest.memory).parameters(&guest.parameters);
    machine.interrupted(interrupt_flag());
    if let Some(limit) = guest.time_limit {
        machine.time_limit(Duration::from_nanos(limit.0));
    }
    if let Some(acceleration) = guest.acceleration() {
        machine.acceleration(acceleration);
    }
    Ok(machine)
}

fn boot(args: &BootArgs, context: Context) -> Result<(), Failure> {
    let mut machine = machine(&args.guest, context)?;
    machine.pass_output(true);
    for name in &args.programs {
        let program = schedlab_host::vm::initramfs::find_program(name);
        let program = program.ok_or_else(|| failure(Error::NoProgram(name.clone())))?;
        machine.program(&program);
    }
    for pair in &args.files {
        let (host, guest) = pair.split_once('=').unwrap_or((pair, pair));
        machine.file(host.as_ref(), guest);
    }
    let collected: Vec<(&str, &str)> =
        args.collect.iter().map(|pair| pair.split_once('=').unwrap_or((pair, file_name(pair)))).collect();
    for (guest, _) in &collected {
        machine.collect(guest);
    }
    let command: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let run = machine.run(&command).map_err(failure)?;
    if let Some(path) = &args.kernel_log {
        write_file(path, run.kernel_log.as_bytes())?;
    }
    let mut missing = Vec::new();
    for (guest, host) in collected {
        match run.files.get(guest) {
            Some(bytes) => write_file(Path::new(host), bytes)?,
            None => missing.push(guest),
        }
    }
    if !context.quiet {
        let (boot, total) = (run.boot.as_secs_f64(), run.total.as_secs_f64());
        let how = run.acceleration.name();
        let again = if run.tripped {
            "; it booted twice, as with a thread for each CPU it tripped over its own patches"
        } else {
            ""
        };
        eprintln!("Linux {} by {how}: {boot:.1} s to boot, {total:.1} s in all{again}", machine.release());
    }
    match run.code {
        0 if missing.is_empty() => Ok(()),
        0 => Err(Failure::AnswerIsNo(format!("the command left no {}", missing.join(", no ")))),
        code => Err(Failure::Command(code)),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn try_object(args: &TryArgs, context: Context) -> Result<(), Failure> {
    let bytes = schedulers::bytes(&args.object)?;
    let stress = Duration::from_nanos(args.stress.0);
    let guest = &args.guest;
    let mut machine = machine(guest, context)?;
    if guest.time_limit.is_none() {
        machine.time_limit(stress * 2 + BESIDE_STRESS);
    }
    if guest.acceleration().is_none() {
        machine.safe_for_loading();
    }
    machine.contents(&bytes, OBJECT);
    let milliseconds = stress.as_millis().to_string();
    let mut command = vec![PROGRAM, "try", OBJECT, "--stress-ms", &milliseconds];
    let knobs: Vec<String> = args.knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    for knob in &knobs {
        command.extend(["--set", knob]);
    }
    let bar =
        progress::spinner(context.quiet, format!("trying {} on Linux {}", args.object, machine.release()));
    let tried = try_until_quiet(&machine, &command, &args.object);
    bar.finish_and_clear();
    let (run, trial) = tried?;
    let log = kernel_lines(&run.kernel_log);
    let mut text = describe(&trial, &args.object, guest, &run);
    let mut faults = trial.faults();
    faults.extend(complaints(&run.kernel_log));
    if faults.is_empty() {
        let seconds = stress.as_secs_f64();
        text += &format!(
            "Verdict    Linux {} takes it: it loads, gets through {seconds:.0} s of stress, and none of its programs is left.\n\
             Next       schedlab simulate hackbench --scheduler {}{}\n",
            trial.kernel,
            args.object,
            knobs.iter().map(|knob| format!(" --set {knob}")).collect::<String>()
        );
    } else {
        for line in &log {
            text += &format!("Kernel     {line}\n");
        }
        text += &format!("Verdict    Not safe on Linux {}: {}\n", trial.kernel, faults.join("; "));
    }
    let value = serde_json::json!({"object": args.object, "kernel": trial.kernel, "passed": faults.is_empty(),
        "faults": faults, "kernel_log": run.kernel_log, "boot_s": run.boot.as_secs_f64(),
        "total_s": run.total.as_secs_f64(), "execution": run.acceleration.name(), "trial": trial});
    if !write_json(args.json.as_deref(), &value)? {
        print_text(&text)?;
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Failure::AnswerIsNo(format!("{} is not safe on Linux {}", args.object, trial.kernel)))
    }
}

/// Tries again, on a machine booted anew, where waits told of the machine and not of the scheduler.
fn try_until_quiet(machine: &Machine, command: &[&str], object: &str) -> Result<(Run, Trial), Failure> {
    for _ in 1..TRIES {
        let (run, trial) = try_once(machine, command, object)?;
        if !trial.is_disturbed() || trial.faults().is_empty() {
            return Ok((run, trial));
        }
    }
    try_once(machine, command, object)
}

fn try_once(machine: &Machine, command: &[&str], object: &str) -> Result<(Run, Trial), Failure> {
    let run = machine.run(command).map_err(|error| died(error, object, machine.release()))?;
    let trial = trial_of(&run)?;
    Ok((run, trial))
}

/// What the guest found, or why it could not try.
fn trial_of(run: &Run) -> Result<Trial, Failure> {
    let said = String::from_utf8_lossy(&run.stderr);
    let said = said.trim().trim_start_matches("try: ");
    match run.code {
        0 => serde_json::from_str(run.text().lines().last().unwrap_or_default()).map_err(|error| {
            Failure::Machine(anyhow!("the guest's answer cannot be read ({error}): {said}"))
        }),
        3 => Err(Failure::Machine(anyhow!("{said}"))),
        1 | 2 => Err(Failure::BadInput(anyhow!("{said}"))),
        code => Err(Failure::Machine(anyhow!("the guest's program ended with {code}: {said}"))),
    }
}

/// A kernel that dies under a scheduler is the worst answer, not a machine that cannot.
fn died(error: Error, object: &str, release: &str) -> Failure {
    match error {
        Error::Died { said, console, .. } if said.contains(&format!("\"stage\":\"{ENABLED}\"")) => {
            let text = format!(
                "{object} is not safe on Linux {release}: the guest's kernel died while it ran; its console said last:\n{console}"
            );
            Failure::AnswerIsNo(text)
        }
        error @ Error::TimeLimit { .. } => Failure::Machine(anyhow!("{error}")),
        error => failure(error),
    }
}

/// What the kernel complained of since the scheduler was enabled.
fn complaints(log: &str) -> Vec<String> {
    const WORDS: &[&str] = &[
        "WARNING:",
        "BUG:",
        "Oops",
        "soft lockup",
        "hard LOCKUP",
        "detected stall",
        "blocked for more than",
    ];
    let since = log.lines().skip_while(|line| !(line.contains("sched_ext:") && line.contains("enabled")));
    let complaint = |line: &str| WORDS.iter().any(|word| line.contains(word));
    let found =
        since.filter(|line| complaint(line)).map(|line| format!("the kernel complains: {}", bare(line)));
    found.take(3).collect()
}

/// A line of the kernel's log without its time stamp.
fn bare(line: &str) -> &str {
    line.split_once("] ").map_or(line, |(_, text)| text)
}

/// What the kernel said about schedulers, without its time stamps.
fn kernel_lines(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains("sched_ext:"));
    lines.map(|line| bare(line).to_owned()).collect()
}

fn describe(trial: &Trial, object: &str, guest: &GuestChoice, run: &Run) -> String {
    let cpus = cpus_text(guest.topology().cpus() as usize);
    let how = run.acceleration.name();
    let mut text = format!("Object     {object} on Linux {}, {cpus} by {how}\n", trial.kernel);
    if let Some(refusal) = &trial.refused {
        return text + &refused(refusal);
    }
    let instructions: u64 = trial.programs.iter().map(|program| program.instructions).sum();
    text += &format!(
        "Loads      in {} ms: {} programs, {instructions} instructions\n\n",
        trial.load_ms,
        trial.programs.len()
    );
    text += &verifier_table(trial);
    if let Some(reason) = &trial.not_enabled {
        return text + &format!("Enabled    no: {reason}\n");
    }
    let callbacks = trial.callbacks.join(", ");
    text += &format!("\nEnabled    as '{}' in {} ms: {callbacks}\n\n", trial.scheduler, trial.enable_ms);
    text += &stress_table(trial);
    for (name, count) in &trial.events {
        text += &format!("Counted    {name} {}\n", number(*count));
    }
    if trial.is_disturbed() {
        let seconds = trial.standstill_ms as f64 / 1_000.0;
        text += &format!(
            "Disturbed  the machine's own timers stood still for {seconds:.1} s: pauses of tasks may come from that\n"
        );
    }
    let state = if trial.survived {
        "still enabled after the stress"
    } else {
        "ended by the kernel during the stress"
    };
    text += &format!("State      {state}\n");
    if let Some(exit) = trial.exit.as_ref().filter(|_| !trial.survived) {
        text += &format!("Exit       {} ({}): {}\n", exit.reason, exit.kind, exit.message);
    }
    let left = if trial.left_behind.is_empty() {
        "no program is left in the kernel".to_owned()
    } else {
        format!("left behind: {}", trial.left_behind.join(", "))
    };
    text + &format!("Gone       in {} ms, {left}\n", trial.disable_ms)
}

fn number(value: u64) -> String {
    units::grouped(i64::try_from(value).unwrap_or(i64::MAX))
}

fn verifier_table(trial: &Trial) -> String {
    let mut table = Table::new(&["program", "instructions", "walked by the verifier", "states", "time"]);
    table.right = vec![1, 2, 3, 4];
    let mut programs: Vec<_> = trial.programs.iter().collect();
    programs.sort_by_key(|program| std::cmp::Reverse(program.walked));
    for program in programs {
        table.row(vec![
            program.program.clone(),
            number(program.instructions),
            format!("{} of 1,000,000", number(program.walked)),
            number(program.states),
            program.time_us.map_or("–".to_owned(), |time| units::time(time as f64 * 1_000.0)),
        ]);
    }
    table.render(Default::default())
}

fn stress_table(trial: &Trial) -> String {
    let mut table =
        Table::new(&["stress", "threads", "operations", "longest pause", "under the kernel's own class"]);
    table.right = vec![1, 2, 3, 4];
    for kind in &trial.stress {
        let usual = trial.before.iter().find(|usual| usual.name == kind.name);
        table.row(vec![
            kind.name.clone(),
            kind.threads.to_string(),
            number(kind.operations),
            format!("{} ms", kind.longest_pause_ms),
            usual.map_or("–".to_owned(), |usual| format!("{} ms", usual.longest_pause_ms)),
        ]);
    }
    table.render(Default::default()) + "\n"
}

fn refused(refusal: &Refusal) -> String {
    let mut text = String::from("Loads      no\n");
    let mut line = |label: &str, value: &str| text += &format!("{label:<10} {value}\n");
    if !refusal.program.is_empty() {
        line("Program", &refusal.program);
    }
    if let Some(source) = &refusal.source {
        let code = refusal.code.iter().filter(|code| !code.is_empty());
        line("Source", &code.fold(source.clone(), |place, code| format!("{place}: {code}")));
    }
    if let Some(instruction) = &refusal.instruction {
        line("At", instruction);
    }
    line("Reason", &refusal.reason);
    if let Some(remedy) = &refusal.remedy {
        line("Remedy", remedy);
    }
    for (index, step) in refusal.steps.iter().enumerate() {
        line(if index == 0 { "Steps" } else { "" }, step);
    }
    text
}

/// What is wrong with the command line is told apart from what the machine cannot do.
/// What went wrong with a machine, as the program says it.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Interrupted => Failure::Interrupted,
        Error::NoProgram(_) | Error::Pack { .. } | Error::NoImage { .. } => {
            Failure::BadInput(anyhow!("{error}"))
        }
        Error::TimeLimit { booted: true, .. } => Failure::AnswerIsNo(error.to_string()),
        error => Failure::Machine(anyhow!("{error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_lines_about_schedulers_are_found() {
        let log =
            "[    1.0] Linux version\n[    2.4] sched_ext: BPF scheduler \"x\" disabled (runtime error)\n";
        assert_eq!(kernel_lines(log), ["sched_ext: BPF scheduler \"x\" disabled (runtime error)"]);
        assert_eq!(file_name("/tmp/a/b.txt"), "b.txt");
        let log = "[ 1.0] WARNING: at boot\n[ 2.0] sched_ext: BPF scheduler \"x\" enabled\n[ 3.0] WARNING: CPU: 1 at x\n";
        assert_eq!(complaints(log), ["the kernel complains: WARNING: CPU: 1 at x"]);
        let dead = |said: &str| {
            let (said, status, console) = (said.to_owned(), String::new(), "Kernel panic".to_owned());
            died(Error::Died { booted: true, said, status, console, tripped: false }, "x", "7.2").code()
        };
        assert_eq!((dead("{\"stage\":\"enabled\"}\n"), dead("")), (1, 3));
    }

    #[test]
    fn a_refusal_is_told_in_lines() {
        let refusal = Refusal {
            program: "enqueue".to_owned(),
            reason: "R0 invalid mem access".to_owned(),
            source: Some("x.c:3".to_owned()),
            code: Some("a = *b;".to_owned()),
            steps: vec!["1: x".to_owned(), "2: y".to_owned()],
            ..Refusal::default()
        };
        let text = refused(&refusal);
        assert!(
            text.contains("Source     x.c:3: a = *b;\n")
                && text.contains("Steps      1: x\n           2: y\n")
        );
    }
}
