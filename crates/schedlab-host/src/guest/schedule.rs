//! The guest's commands around a scheduler: `try`, `load`, `callbacks`, `instructions`, and `stress` and `play` for the
//! work under it.
//!
//! Results are JSON on standard output, so that a test on the host reads them without knowing the machine. The work is
//! done by [`crate::live`].

use crate::live::callbacks::CallbackLog;
use crate::live::{self, Attached, Error};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// What was asked for.
struct Options {
    object: Vec<u8>,
    knobs: Vec<(String, i64)>,
    repeat: u32,
    /// Variables to print at the end.
    report: Vec<String>,
    /// Programs to run once the scheduler is attached.
    programs: Vec<String>,
    stress: Duration,
    command: Vec<String>,
}

/// Runs `try`, `load`, `callbacks` or `instructions`; `None` if the arguments are wrong.
pub fn main(arguments: &[String]) -> Option<ExitCode> {
    let (verb, rest) = arguments.split_first()?;
    let options = Options::parse(rest)?;
    let result = match verb.as_str() {
        "try" => try_object(&options),
        "load" => load(&options),
        "callbacks" => callbacks(&options),
        "instructions" => instructions(&options),
        _ => return None,
    };
    Some(result.unwrap_or_else(|error| {
        eprintln!("{verb}: {error}");
        ExitCode::from(if matches!(error, Error::NoSchedExt | Error::Privilege) { 3 } else { 1 })
    }))
}

/// Runs the stress of `try` alone; `None` if the arguments are wrong.
pub fn stress(arguments: &[String]) -> Option<ExitCode> {
    let [length] = arguments else { return None };
    let kinds = live::churn::run(Duration::from_millis(length.parse().ok()?), libc::SCHED_OTHER);
    print_line(&serde_json::json!({"stress": kinds}));
    Some(ExitCode::SUCCESS)
}

/// Plays a workload file; `None` if the arguments are wrong.
pub fn play(arguments: &[String]) -> Option<ExitCode> {
    let [path] = arguments else { return None };
    let text = std::fs::read_to_string(path).map_err(|error| eprintln!("{path}: {error}")).ok()?;
    let workload = schedlab_model::workload::file::parse(&text);
    let workload = workload.map_err(|error| eprintln!("{path}: {error}")).ok()?;
    match crate::player::play(&workload) {
        Ok(played) => {
            print_line(&serde_json::json!({"played": {
                "tgid": std::process::id(),
                "origin_ns": played.origin_ns,
                "wall_s": played.wall.as_secs_f64(),
                "tasks_ended": played.ended,
                "tasks_cut": played.cut,
            }}));
            Some(ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("{path}: {error}");
            Some(ExitCode::from(1))
        }
    }
}

impl Options {
    fn parse(words: &[String]) -> Option<Self> {
        let (path, rest) = words.split_first()?;
        let object = std::fs::read(path).map_err(|error| eprintln!("{path}: {error}")).ok()?;
        let mut options = Self {
            object,
            knobs: Vec::new(),
            repeat: 1,
            report: Vec::new(),
            programs: Vec::new(),
            stress: Duration::from_secs(10),
            command: Vec::new(),
        };
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--set" => {
                    let (name, value) = words.next()?.split_once('=')?;
                    options.knobs.push((name.to_string(), value.parse().ok()?));
                }
                "--report" => options.report.push(words.next()?.clone()),
                "--run" => options.programs.push(words.next()?.clone()),
                "--stress-ms" => options.stress = Duration::from_millis(words.next()?.parse().ok()?),
                "--repeat" => options.repeat = words.next()?.parse().ok()?,
                "--" => {
                    options.command = words.cloned().collect();
                    break;
                }
                _ => return None,
            }
        }
        Some(options)
    }

    fn knobs(&self) -> Vec<(&str, i64)> {
        self.knobs.iter().map(|(name, value)| (name.as_str(), *value)).collect()
    }

    fn load(&self) -> Result<live::Loaded, Error> {
        live::load(&self.object, &self.knobs())
    }

    /// Runs the command as often as asked for; the exit code of the last run or of the first that failed.
    fn run_command(&self) -> i32 {
        (0..self.repeat).map(|_| self.run_once()).find(|code| *code != 0).unwrap_or(0)
    }

    fn run_once(&self) -> i32 {
        let Some((program, arguments)) = self.command.split_first() else { return 0 };
        match Command::new(program).args(arguments).status() {
            Ok(status) => status.code().unwrap_or(1),
            Err(error) => {
                eprintln!("{program}: {error}");
                127
            }
        }
    }
}

/// Prints the whole trial; the exit code says only that there is one.
fn try_object(options: &Options) -> Result<ExitCode, Error> {
    let enabled = || print_line(&serde_json::json!({"stage": super::ENABLED}));
    let trial = live::trial::run(&options.object, &options.knobs(), options.stress, enabled)?;
    print_line(&serde_json::to_value(trial).expect("a trial is plain data"));
    Ok(ExitCode::SUCCESS)
}

/// Runs the command under the scheduler and says how both ended.
fn load(options: &Options) -> Result<ExitCode, Error> {
    let mut attached = options.load()?.attach()?;
    let state = attached.state();
    options.programs.iter().try_for_each(|program| attached.run(program))?;
    let code = options.run_command();
    Ok(finish(attached, &state, code, &options.report))
}

fn finish(mut attached: Attached, state: &str, code: i32, report: &[String]) -> ExitCode {
    let state_at_end = attached.state();
    attached.unregister();
    let exit = attached.exit();
    let value = |name: &String| (name.clone(), attached.get(name));
    let report: BTreeMap<String, Option<i64>> = report.iter().map(value).collect();
    print_line(&serde_json::json!({
        "state_while_attached": state,
        "state_at_end": state_at_end,
        "state_after_detach": live::state(),
        "command_code": code,
        "exit": exit,
        "report": report,
    }));
    let enabled = state == "enabled" && state_at_end == "enabled";
    ExitCode::from(if enabled { u8::try_from(code).unwrap_or(1) } else { 1 })
}

/// Prints every callback while the command runs, then what `load` prints.
fn callbacks(options: &Options) -> Result<ExitCode, Error> {
    let loaded = options.load()?;
    let log = CallbackLog::start(&loaded)?;
    let attached = loaded.attach()?;
    let state = attached.state();
    let code = options.run_command();
    let calls = log.take()?;
    let dropped = log.dropped();
    for call in calls {
        print_line(&serde_json::to_value(call).expect("a call is plain data"));
    }
    if dropped > 0 {
        eprintln!("callbacks: {dropped} calls did not fit in the buffer");
    }
    Ok(finish(attached, &state, code, &options.report))
}

fn instructions(options: &Options) -> Result<ExitCode, Error> {
    let loaded = options.load()?;
    for (program, instructions) in loaded.instructions() {
        let words: Vec<String> =
            instructions.iter().map(|bytes| format!("{:016x}", u64::from_be_bytes(*bytes))).collect();
        print_line(&serde_json::json!({"program": program, "instructions": words}));
    }
    Ok(ExitCode::SUCCESS)
}

/// A closed pipe of the reader ends the output, not the program's work.
fn print_line(value: &serde_json::Value) {
    let _ = writeln!(std::io::stdout().lock(), "{value}");
}
