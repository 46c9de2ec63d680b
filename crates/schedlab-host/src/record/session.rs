//! One recording from start to end: attach, snapshot, poll, write.
//!
//! The reader sleeps between polls, so that it wakes rarely and disturbs the target little; it measures its
//! own CPU time. Whether operations are told or counted is decided here, from their rate.

use super::governor::Governor;
use super::kernel::{Kernel, Telling};
use super::raw::RawRecord;
use super::target::{Child, processes};
use super::translate::Translator;
use super::{Detail, Progress, RecordError, RecordOptions, RecordSummary, Status, Target, groups, snapshot};
use crate::machine::{self, now_unix_s};
use schedlab_model::Nanos;
use schedlab_model::recording::codec::{self, RecordingWriter};
use schedlab_model::recording::{Provenance, Recording};
use std::io::Write;
use std::time::Duration;

/// The kernel half's clock and ours agree better than this.
const CLOCK_MARGIN_NS: u64 = 1_000_000;
/// The file is flushed at least this often.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// How long the last record of a CPU is waited for.
const LAST_RECORDS: Nanos = Nanos(1_000_000_000);

fn clock(id: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid; both clocks always exist.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn monotonic() -> Nanos {
    clock(libc::CLOCK_MONOTONIC)
}

/// Raises this thread above normal tasks while it reads, so that full rings are emptied in time.
struct Priority {
    before: i32,
}

impl Priority {
    fn raise() -> Priority {
        // SAFETY: plain system calls on this thread.
        unsafe {
            let before = libc::getpriority(libc::PRIO_PROCESS, 0);
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
            Priority { before }
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.before) };
    }
}

/// Records into `out` as it goes.
pub fn record<W: Write>(
    options: &RecordOptions,
    out: W,
    progress: &mut dyn Progress,
) -> Result<RecordSummary, RecordError> {
    let mut child = match &options.target {
        Target::Command(command) => Some(Child::prepare(command)?),
        _ => None,
    };
    let mut targets = processes(&options.target)?;
    targets.extend(child.as_ref().map(Child::pid));
    let machine = options.machine.clone().unwrap_or_else(machine::describe);
    let cpus = machine::possible_cpus();
    let mut kernel = Kernel::load(cpus)?;
    let priority = Priority::raise();
    let cpu_before = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    kernel.attach(&targets, options.detail)?;
    let start = monotonic();
    let mut existing = snapshot::tasks();
    existing.iter_mut().for_each(|task| task.target = targets.contains(&task.tgid));
    let mut provenance = provenance(options);
    provenance.groups = Some(groups::settings(&existing));
    let writer = RecordingWriter::new(out, &provenance, &machine).map_err(RecordError::Write)?;
    let mut translator = Translator::new(writer, start.0, existing);
    translator.counting = options.detail == Detail::Counted;
    if let Some(child) = &mut child {
        child.start()?;
    }
    let mut session = Session {
        kernel,
        translator,
        start,
        end: Nanos::ZERO,
        pending: Vec::new(),
        flushed: start,
        governor: Governor::new(start, machine.topology.cpu_count()),
        counted_from: (options.detail == Detail::Counted).then_some(Nanos::ZERO),
        unread: vec![0; cpus],
    };
    session.run(options, child.as_mut(), progress)?;
    drop(priority);
    if let Some(child) = &mut child {
        provenance.exit_code = child.ended();
        if provenance.exit_code.is_none() {
            child.stop();
        }
    }
    session.finish(provenance, cpu_before)
}

/// Records into memory and reads it back.
pub fn record_in_memory(
    options: &RecordOptions,
    progress: &mut dyn Progress,
) -> Result<(Recording, RecordSummary), RecordError> {
    let mut bytes = Vec::new();
    let summary = record(options, &mut bytes, progress)?;
    Ok((codec::decode(&bytes)?, summary))
}

fn provenance(options: &RecordOptions) -> Provenance {
    let (command, target) = match &options.target {
        Target::Command(command) => (command.clone(), String::new()),
        other => (Vec::new(), other.to_string()),
    };
    Provenance {
        origin: "live".to_owned(),
        command,
        target,
        kernel_release: machine::kernel_release(),
        scheduler: machine::running_scheduler(),
        started_unix_s: now_unix_s(),
        ..Provenance::default()
    }
}

struct Session<W: Write> {
    kernel: Kernel,
    translator: Translator<W>,
    start: Nanos,
    /// When the recording ended: not yet while it is zero.
    end: Nanos,
    pending: Vec<RawRecord>,
    flushed: Nanos,
    governor: Governor,
    counted_from: Option<Nanos>,
    /// Records that were still not whole at the end, for each CPU.
    unread: Vec<u64>,
}

impl<W: Write> Session<W> {
    fn run(
        &mut self,
        options: &RecordOptions,
        mut child: Option<&mut Child>,
        progress: &mut dyn Progress,
    ) -> Result<(), RecordError> {
        let limit = options.duration.map(|duration| Nanos(duration.as_nanos() as u64));
        loop {
            match &child {
                Some(child) => child.rest(options.poll),
                None => std::thread::sleep(options.poll),
            }
            let ended = child.as_mut().is_some_and(|child| child.ended().is_some());
            let elapsed = monotonic() - self.start;
            let over = ended || progress.stop() || limit.is_some_and(|limit| elapsed >= limit);
            if over {
                self.end = monotonic();
                self.kernel.detach();
            }
            self.poll(over)?;
            progress.update(&self.status(elapsed));
            if over {
                return Ok(());
            }
            if options.detail == Detail::Adaptive && self.kernel.can_count() {
                self.adapt()?;
            }
        }
    }

    /// Tells less where telling costs the target too much.
    fn adapt(&mut self) -> Result<(), RecordError> {
        let Some(telling) = self.governor.judge(monotonic(), self.kernel.rings.counters()) else {
            return Ok(());
        };
        self.kernel.tell(telling)?;
        self.counted_from.get_or_insert(monotonic() - self.start);
        self.translator.counting = matches!(telling, Telling::Sends { receives: false });
        Ok(())
    }

    /// Reads the rings and writes what is certainly complete; with `last` all there is up to the end. Programs
    /// are detached one after the other, which takes time in which only some of them tell.
    fn poll(&mut self, last: bool) -> Result<(), RecordError> {
        let now = monotonic();
        let mut held_up = self.kernel.rings.drain(&mut self.pending);
        // A CPU that its hypervisor stopped within a program finishes its record when it runs again.
        while last && held_up.is_some() && monotonic() - now < LAST_RECORDS {
            std::thread::sleep(Duration::from_millis(1));
            held_up = self.kernel.rings.drain(&mut self.pending);
        }
        if last && held_up.is_some() {
            self.unread = self.kernel.rings.unread();
        }
        let until = if last { self.end.0 } else { held_up.unwrap_or(now.0).min(now.0 - CLOCK_MARGIN_NS) };
        // Nearly sorted already: one rising run for each CPU.
        self.pending.sort_by_key(|record| record.time);
        let complete = self.pending.partition_point(|record| record.time < until);
        for record in &self.pending[..complete] {
            self.translator.record(record).map_err(RecordError::Write)?;
        }
        self.pending.drain(..complete);
        if last || now - self.flushed >= Nanos(FLUSH_EVERY.as_nanos() as u64) {
            self.translator.writer().flush().map_err(RecordError::Write)?;
            self.flushed = now;
        }
        Ok(())
    }

    fn status(&mut self, elapsed: Nanos) -> Status {
        let dropped = self.kernel.rings.dropped().iter().sum();
        let writer = self.translator.writer();
        Status { elapsed, events: writer.event_count(), bytes: writer.byte_count(), dropped }
    }

    fn finish(self, mut provenance: Provenance, cpu_before: Nanos) -> Result<RecordSummary, RecordError> {
        let duration = (self.end - self.start).max(self.translator.last());
        let dropped = self.kernel.rings.dropped();
        let dropped_per_cpu: Vec<u64> = dropped.iter().zip(&self.unread).map(|(a, b)| a + b).collect();
        let gaps = self.translator.gaps();
        let writer = self.translator.into_writer();
        provenance.dropped = dropped_per_cpu.iter().sum();
        provenance.dropped_per_cpu = dropped_per_cpu.clone();
        provenance.counted_from = self.counted_from;
        provenance.recorder_cpu = clock(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_before;
        let (events, bytes) = (writer.event_count(), writer.byte_count());
        writer.finish(&provenance, duration).map_err(RecordError::Write)?;
        Ok(RecordSummary {
            started_ns: self.start.0,
            exit_code: provenance.exit_code,
            events,
            bytes,
            dropped_per_cpu,
            recorder_cpu: provenance.recorder_cpu,
            duration,
            counted_from: self.counted_from,
            gaps,
        })
    }
}
