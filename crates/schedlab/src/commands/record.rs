//! `schedlab record`: a command, a process, a unit or a control group on the live kernel, into a file.

use super::Context;
use super::common;
use crate::args::RecordArgs;
use crate::failure::Failure;
use crate::inputs::{machines, work};
use crate::output::{give_to_caller, is_full, is_special, make_directory, print_text, write_json};
use crate::progress;
use anyhow::{Context as _, anyhow};
use indicatif::ProgressBar;
use schedlab_host::capability;
use schedlab_host::record::{
    self, CacheSource, Progress, RecordError, RecordOptions, RecordSummary, RingOptions, Status, Target,
    Trigger,
};
use schedlab_model::Nanos;
use schedlab_report::units;
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Records and says what came out.
pub fn run(args: &RecordArgs, context: Context) -> Result<(), Failure> {
    let target = target(args)?;
    if args.dry_run {
        let (what, file) = (target.to_string(), args.output.display());
        let ring = ring(args, &target)?.map(|ring| {
            let triggers: Vec<String> = ring.triggers.iter().map(ToString::to_string).collect();
            format!("the last {} of ", Nanos(ring.span.as_nanos() as u64)) + &triggers.join(" or ") + ": "
        });
        return print_text(&format!("would record {}{what} into {file}\n", ring.unwrap_or_default()));
    }
    let interrupted = common::interrupt_flag();
    let mut options = RecordOptions {
        duration: args.duration.map(|time| Duration::from_nanos(time.0)),
        ring: ring(args, &target)?,
        buffer: args.buffer_mib.map(|mib| mib << 20),
        vruntime: args.vruntime,
        caches: args.caches.then_some(CacheSource::Processor),
        ..RecordOptions::new(target)
    };
    if let Some(file) = &args.machine {
        options.machine = Some(machines::with_costs_of(machines::this(), file)?);
    }
    let summary = record_to(&args.output, options, Arc::clone(&interrupted), context)?;
    let interrupted = interrupted.load(Ordering::Relaxed);
    let mut facts = facts(&args.output, &summary);
    if interrupted {
        facts += "Ended      early, by a signal; what was recorded until then is whole\n";
    }
    let value = json!({
        "file": args.output, "events": summary.events, "bytes": summary.bytes,
        "dropped": summary.dropped_per_cpu.iter().sum::<u64>(),
        "unseen_bytes": summary.unseen_bytes, "duration_ns": summary.duration.0,
        "recorder_cpu_ns": summary.recorder_cpu.0, "exit_code": summary.exit_code,
        "counted_from_ns": summary.counted_from.map(|from| from.0), "gaps": summary.gaps,
        "interrupted": interrupted, "written": !summary.nothing_fired,
        "trigger": summary.fired.as_ref().map(|fired| json!({
            "what": fired.what, "at_ns": fired.at.0, "after_start_ns": fired.after_start.0,
            "task": fired.task.as_ref().map(|(name, _)| name), "pid": fired.task.as_ref().map(|(_, pid)| pid),
            "delay_ns": fired.delay.map(|delay| delay.0)})),
        "buffer_bytes": summary.buffer_bytes, "buffer_fill_percent": summary.buffer_fill_max,
        "group_vanished_ns": summary.vanished.map(|when| when.0),
    });
    if !write_json(args.json.as_deref(), &value)? {
        print_text(&facts)?;
    }
    match summary.exit_code {
        _ if interrupted => Err(Failure::Interrupted),
        Some(code) if code != 0 => Err(Failure::Command(code)),
        _ => Ok(()),
    }
}

fn target(args: &RecordArgs) -> Result<Target, Failure> {
    let existing = match (&args.pid, &args.unit, &args.cgroup) {
        (Some(pid), ..) => Some(Target::Pid(*pid)),
        (_, Some(unit), _) => Some(Target::Unit(unit.clone())),
        (.., Some(path)) => Some(Target::Cgroup(path.clone())),
        _ => None,
    };
    let endless = args.duration.is_none() && args.ring.is_none();
    match existing {
        Some(target) if !args.command.is_empty() => {
            Err(Failure::BadInput(anyhow::anyhow!("record either {target} or a command, not both")))
        }
        Some(target) if endless => Err(Failure::BadInput(anyhow::anyhow!(
            "{target} does not end by itself: say for how long to record, e.g. --duration 10s, or keep the last seconds, e.g. --ring 10s"
        ))),
        Some(target) => Ok(target),
        None if args.command.is_empty() && args.ring.is_some() => Ok(Target::UserSpace),
        None if args.command.is_empty() => Err(Failure::BadInput(anyhow::anyhow!(
            "nothing to record: give a command after --, or --pid, --unit or --cgroup"
        ))),
        None => Ok(Target::Command(args.command.clone())),
    }
}

/// The settings of a ring recording, if one is asked for.
fn ring(args: &RecordArgs, target: &Target) -> Result<Option<RingOptions>, Failure> {
    let Some(span) = args.ring else { return Ok(None) };
    let refuse = |text: &str| Err(Failure::BadInput(anyhow::anyhow!("{text}")));
    if !(RING_MIN..=RING_MAX).contains(&span) {
        return refuse(&format!("--ring keeps {RING_MIN} to {RING_MAX}, not {span}"));
    }
    if args.trigger.contains(&Trigger::ExitNonzero) && !matches!(target, Target::Command(_)) {
        return refuse("the trigger exit-nonzero needs a command to record: give one after --");
    }
    let mut ring = RingOptions::new(Duration::from_nanos(span.0));
    ring.after = Duration::from_nanos(args.after.0);
    if !args.trigger.is_empty() {
        ring.triggers.clone_from(&args.trigger);
    }
    Ok(Some(ring))
}

/// How much a ring may keep.
const RING_MIN: Nanos = Nanos(10_000_000);
const RING_MAX: Nanos = Nanos(600_000_000_000);

/// Shows how the recording stands and ends it at Ctrl-C.
struct Watch {
    bar: ProgressBar,
    what: String,
    interrupted: Arc<AtomicBool>,
    signalled: Option<Arc<AtomicBool>>,
}

impl Progress for Watch {
    fn update(&mut self, status: &Status) {
        let lost = if status.dropped > 0 { format!(", {} lost", status.dropped) } else { String::new() };
        self.bar.set_message(format!("recording {}: {} events{lost}", self.what, status.events));
    }

    fn stop(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn signalled(&self) -> bool {
        self.signalled.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// Records into a file as it goes, so that what was written survives whatever happens.
pub fn record_to(
    path: &Path,
    options: RecordOptions,
    interrupted: Arc<AtomicBool>,
    context: Context,
) -> Result<RecordSummary, Failure> {
    if is_special(path) {
        let problem = "is no file: a recording is written beside its file and then takes its place";
        return Err(Failure::BadInput(anyhow!("{} {problem}; name a file with -o", path.display())));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = parent.filter(|directory| !directory.exists());
    let what = options.target.to_string();
    // Beside the file until it is whole, so that a mistyped command does not cost an older recording.
    let partial = path.with_added_extension("part");
    let create = || -> Result<File, Failure> {
        parent.map_or(Ok(()), make_directory)?;
        Ok(File::create(&partial).with_context(|| format!("cannot write {}", path.display()))?)
    };
    let file = create().map_err(unless_forbidden)?;
    give_to_caller(&partial);
    let bar = progress::spinner(context.quiet, format!("recording {what}"));
    let signalled = options.ring.as_ref().map(|_| common::signal_flag()).transpose()?;
    let mut watch = Watch { bar, what, interrupted, signalled };
    let outcome = record::record(&options, BufWriter::new(file), &mut watch);
    watch.bar.finish_and_clear();
    // Of a disk that was full at once not even a block of events is there.
    let readable = || work::load_recording(&partial).is_ok();
    let kept = match &outcome {
        Ok(summary) if !summary.nothing_fired => std::fs::rename(&partial, path),
        Err(error) if !never_began(error) && readable() => std::fs::rename(&partial, path),
        _ => std::fs::remove_file(&partial).map(|()| {
            // A directory made for nothing would be in the way; it goes only if it is empty.
            drop(made.map(std::fs::remove_dir));
        }),
    };
    let summary = outcome.map_err(failure)?;
    kept.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(summary)
}

/// Where nobody may record, another place to write to is no remedy.
fn unless_forbidden(unwritten: Failure) -> Failure {
    if capability::probe().bpf {
        return unwritten;
    }
    failure(RecordError::Privilege { what: "a BPF program".to_owned() })
}

/// Errors after which there is no recording to keep.
fn never_began(error: &RecordError) -> bool {
    !matches!(error, RecordError::Write(_) | RecordError::System { .. } | RecordError::Kernel { .. })
}

/// What the machine cannot do is told apart from bad input.
pub fn failure(error: RecordError) -> Failure {
    // Its text already holds the cause's, which a chain of causes would repeat.
    let text = anyhow::anyhow!("{error}");
    match error {
        RecordError::Write(source) if is_full(&source) => Failure::Machine(anyhow::anyhow!(
            "{text}; whole parts of the recording that are there are kept: free some space there, or write elsewhere"
        )),
        RecordError::Privilege { .. }
        | RecordError::NoBtf
        | RecordError::NoTracepoint { .. }
        | RecordError::Kernel { .. }
        | RecordError::NoSystemd(_)
        | RecordError::Systemctl { .. } => Failure::Machine(text),
        _ => Failure::BadInput(text),
    }
}

fn facts(path: &Path, summary: &RecordSummary) -> String {
    let dropped: u64 = summary.dropped_per_cpu.iter().sum();
    if summary.nothing_fired {
        return format!(
            "Nothing    fired in {}; nothing was written ({dropped} events lost). --trigger end writes the last seconds\n",
            summary.duration
        );
    }
    let per_event = summary.bytes as f64 / summary.events.max(1) as f64;
    let mut text = format!(
        "Recorded   {} in {}: {} events, {:.1} bytes each, {dropped} lost\n",
        path.display(),
        summary.duration,
        summary.events,
        per_event
    );
    if let Some(fired) = &summary.fired {
        text += &format!("Trigger    {fired}\n");
    }
    if let Some(when) = summary.vanished {
        text += &format!(
            "Note       the control group was gone after {when}: its processes had ended or were moved; those moved are recorded on\n"
        );
    }
    text += &buffers(summary, dropped);
    if summary.unseen_bytes > 0 {
        text += &format!(
            "Received   {} bytes that no recorded send gave: others sent them, or before the start, or unseen\n",
            summary.unseen_bytes
        );
    }
    let share = summary.recorder_cpu.as_secs_f64() / summary.duration.as_secs_f64().max(1e-9);
    text += &format!(
        "Recorder   {} of CPU time, {} of one CPU\n",
        summary.recorder_cpu,
        units::percent(share, 1)
    );
    if let Some(code) = summary.exit_code.filter(|code| *code != 0) {
        text += &format!("Command    exited with code {code}; its recording is kept\n");
    }
    text += &format!("Next       schedlab compare {0}\n           schedlab show {0}\n", path.display());
    text
}

/// What to do about buffers that were too small, or nearly so.
fn buffers(summary: &RecordSummary, dropped: u64) -> String {
    let (fill, bytes) = (summary.buffer_fill_max, summary.buffer_bytes);
    if dropped == 0 && fill <= FILL_CALM {
        return String::new();
    }
    let (mib, more) = (bytes >> 20, (bytes >> 19).clamp(2, 512));
    format!(
        "Buffers    of {mib} MiB for each CPU: {fill} % of a reserve were full; with --buffer-mib {more} next time all is reserve, \
         twice as much\n"
    )
}

/// Buffers that were never fuller need no word, in percent.
const FILL_CALM: u32 = 60;

/// Reads back what was just recorded.
pub fn read_back(path: &Path) -> Result<schedlab_model::recording::Recording, Failure> {
    Ok(work::load_recording(path)?)
}
