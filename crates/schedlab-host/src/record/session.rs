//! One recording from start to end: attach, snapshot, poll, write.
//!
//! The reader sleeps between polls, so that it wakes rarely and disturbs the target little; it measures its
//! own CPU time. To make events of records takes about as much of it as the kernel half does, so records wait in
//! their rings while there is room: what a short command did is read when it has ended. Whether operations are told
//! or counted is decided here, from their rate.

use super::counters::{CacheCounters, cache_counting};
use super::governor::Governor;
use super::kernel::{Kernel, RingSize, Telling};
use super::raw::{RawRecord, Reading};
use super::ring::Ring;
use super::target::{Child, group, processes};
use super::translate::Translator;
use super::{
    Detail, Fired, Progress, RecordError, RecordOptions, RecordSummary, Status, Target, groups, snapshot,
};
use crate::machine::{self, now_unix_s};
use schedlab_model::Nanos;
use schedlab_model::recording::codec::{self, RecordingWriter};
use schedlab_model::recording::{Provenance, Recording, TriggerInfo};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// The kernel half's clock and ours agree better than this.
const CLOCK_MARGIN_NS: u64 = 1_000_000;
/// The file is flushed at most this often, and so often it is seen whether the control group is still there.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// Records wait at most so long to be read, which a recorder that is killed loses; so few of them, for each CPU and second,
/// that reading costs the target nothing to speak of wait no longer than until the file is flushed.
const WAIT_MAX: Duration = Duration::from_secs(5);
const FEW: u64 = 20_000;
/// How long the last record of a CPU is waited for.
const LAST_RECORDS: Nanos = Nanos(1_000_000_000);
/// The rings are looked at twice as often when more than this came to one, and half as often again when less came to all:
/// percent of the reserve.
const FILL_HIGH: u32 = 25;
const FILL_LOW: u32 = 5;
const POLL_MIN: Duration = Duration::from_millis(1);
/// The rate of switches is measured over this long at least.
const RATE_OVER: Duration = Duration::from_millis(10);

fn clock(id: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid; both clocks always exist.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn monotonic() -> Nanos {
    clock(libc::CLOCK_MONOTONIC)
}

fn passed(since: Nanos, time: Duration) -> bool {
    monotonic() - since >= Nanos(time.as_nanos() as u64)
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

/// What a look at the rings found, besides records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// All that happened before this is told.
    pub(super) until: u64,
    pub(super) dropped: u64,
    /// The command has ended, so.
    pub(super) exit: Option<i32>,
    /// The trigger's signal came.
    pub(super) signalled: bool,
    /// The user ended it.
    pub(super) stopped: bool,
    /// It is the last one.
    pub(super) last: bool,
}

/// Where records go.
pub(super) trait Store {
    /// The next record in time order.
    fn record(&mut self, raw: &RawRecord) -> io::Result<()>;
    /// From now on reads come as sums, or one by one.
    fn count(&mut self, counting: bool);
    fn flush(&mut self) -> io::Result<()>;
    /// Whether it wants records as soon as they come.
    fn is_waiting(&self) -> bool {
        false
    }
    /// Events and bytes so far.
    fn progress(&mut self) -> (u64, u64);
    /// After each look; whether it has all it wants.
    fn looked(&mut self, _look: &Look) -> io::Result<bool> {
        Ok(false)
    }
}

impl<W: Write> Store for Translator<W> {
    fn record(&mut self, raw: &RawRecord) -> io::Result<()> {
        Translator::record(self, raw)
    }

    fn count(&mut self, counting: bool) {
        self.counting = counting;
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    fn progress(&mut self) -> (u64, u64) {
        let writer = self.writer();
        (writer.event_count(), writer.byte_count())
    }
}

/// Switches of the whole machine since it started, and when they were read.
fn switches() -> (u64, Nanos) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok());
    (count.unwrap_or(0), monotonic())
}

/// Switches a second since an earlier look.
fn rate_since((before, since): (u64, Nanos)) -> u64 {
    let passed = Duration::from_nanos((monotonic() - since).0);
    if passed < RATE_OVER {
        std::thread::sleep(RATE_OVER - passed);
    }
    let (after, now) = switches();
    after.saturating_sub(before) * 1_000_000_000 / (now - since).0.max(1)
}

fn memory() -> u64 {
    // SAFETY: plain system calls; both values are known to every kernel.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}

/// Records into `out` as it goes; a ring recording when something fires, and else nothing.
pub fn record<W: Write>(
    options: &RecordOptions,
    out: W,
    progress: &mut dyn Progress,
) -> Result<RecordSummary, RecordError> {
    let earlier = switches();
    let mut child = match &options.target {
        Target::Command(command) => Some(Child::prepare(command)?),
        _ => None,
    };
    let mut targets = processes(&options.target)?;
    let group = group(&options.target)?;
    targets.extend(child.as_ref().map(Child::pid));
    let machine = options.machine.clone().unwrap_or_else(machine::describe);
    let cpus = machine::possible_cpus();
    let size = RingSize { cpus, switches: rate_since(earlier), memory: memory(), given: options.buffer };
    let counters = options.caches.map(CacheCounters::open);
    let opened = counters.as_ref().and_then(|counters| counters.as_ref().ok());
    let mut kernel = Kernel::load(size, options.vruntime, opened)?;
    let priority = Priority::raise();
    let cpu_before = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    kernel.attach(&targets, options.detail)?;
    let start = monotonic();
    let mut existing = snapshot::tasks();
    existing.iter_mut().for_each(|task| task.target = targets.contains(&task.tgid));
    let mut provenance = provenance(options);
    provenance.groups = Some(groups::settings(&existing));
    provenance.caches = counters.as_ref().map(cache_counting);
    let mut session = Session::new(kernel, start, [cpus, machine.topology.cpu_count()], group);
    let counting = options.detail == Detail::Counted;
    session.counted_from = counting.then_some(Nanos::ZERO);
    match &options.ring {
        None => {
            let writer = RecordingWriter::new(out, &provenance, &machine).map_err(RecordError::Write)?;
            let mut translator = Translator::new(writer, start.0, existing);
            translator.counting = counting;
            session.whole(options, &mut child, progress, &mut translator)?;
            drop(priority);
            provenance.exit_code = ended(&mut child);
            session.finish(translator, start.0, provenance, cpu_before)
        }
        Some(ring) => {
            let mut ring =
                Ring::new(ring.clone(), &machine, start.0, existing).map_err(RecordError::Write)?;
            ring.count(counting);
            session.whole(options, &mut child, progress, &mut ring)?;
            drop(priority);
            provenance.exit_code = ended(&mut child);
            if ring.fired().is_none() {
                return Ok(session.nothing_fired(&provenance));
            }
            let (translator, from, fired) =
                ring.write(out, &provenance, session.end.0).map_err(RecordError::Write)?;
            provenance.trigger = fired.as_ref().map(|fired| trigger_info(fired, &translator));
            let summary = session.finish(translator, from, provenance, cpu_before)?;
            Ok(RecordSummary { fired, ..summary })
        }
    }
}

/// What the file tells of the trigger.
fn trigger_info<W: Write>(fired: &Fired, translator: &Translator<W>) -> TriggerInfo {
    TriggerInfo {
        what: fired.what.clone(),
        at: fired.at,
        task: fired.task.as_ref().and_then(|(_, pid)| translator.known(*pid as u32)),
        delay: fired.delay,
    }
}

/// The command's exit code; one that outlives the recording is asked to end.
fn ended(child: &mut Option<Child>) -> Option<i32> {
    let child = child.as_mut()?;
    let code = child.ended();
    if code.is_none() {
        child.stop();
    }
    code
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

struct Session {
    kernel: Kernel,
    start: Nanos,
    /// When the recording ended: not yet while it is zero.
    end: Nanos,
    flushed: Nanos,
    governor: Governor,
    counted_from: Option<Nanos>,
    /// Records that were still not whole at the end, for each CPU.
    unread: Vec<u64>,
    /// All before this has been told.
    until: u64,
    /// When the rings were read.
    read: Nanos,
    cpus: u64,
    /// The control group that is recorded, when it was looked at, and when it was found to be gone.
    group: Option<PathBuf>,
    looked: Nanos,
    vanished: Option<Nanos>,
}

impl Session {
    /// A session that has read nothing yet, on a machine with so many CPUs possible and present.
    fn new(kernel: Kernel, start: Nanos, [possible, present]: [usize; 2], group: Option<PathBuf>) -> Session {
        Session {
            kernel,
            start,
            end: Nanos::ZERO,
            flushed: start,
            governor: Governor::new(start, present),
            counted_from: None,
            unread: vec![0; possible],
            until: start.0,
            read: start,
            cpus: present as u64,
            group,
            looked: start,
            vanished: None,
        }
    }

    /// From the target's start to the end.
    fn whole(
        &mut self,
        options: &RecordOptions,
        child: &mut Option<Child>,
        progress: &mut dyn Progress,
        store: &mut dyn Store,
    ) -> Result<(), RecordError> {
        if let Some(child) = child {
            child.start()?;
        }
        self.run(options, child.as_mut(), progress, store)
    }

    fn run(
        &mut self,
        options: &RecordOptions,
        mut child: Option<&mut Child>,
        progress: &mut dyn Progress,
        store: &mut dyn Store,
    ) -> Result<(), RecordError> {
        let limit = options.duration.map(|duration| Nanos(duration.as_nanos() as u64));
        let (mut rest, mut satisfied) = (options.poll, false);
        loop {
            match &child {
                Some(child) => child.rest(rest),
                None => std::thread::sleep(rest),
            }
            let exit = child.as_mut().and_then(|child| child.ended());
            let elapsed = monotonic() - self.start;
            let stopped = progress.stop();
            let over = satisfied || exit.is_some() || stopped || limit.is_some_and(|limit| elapsed >= limit);
            if over {
                self.end = monotonic();
                self.kernel.detach();
            }
            let (mut waiting, full) = self.kernel.rings.look();
            if over || full || store.is_waiting() || self.has_waited(waiting) {
                self.poll(over, store)?;
                waiting = 0;
            }
            self.look_at_group(over);
            let signalled = progress.signalled();
            let dropped = self.kernel.rings.dropped().iter().sum();
            let look = Look { until: self.until, dropped, exit, signalled, stopped, last: over };
            satisfied = store.looked(&look).map_err(RecordError::Write)?;
            let (events, bytes) = store.progress();
            progress.update(&Status { elapsed, events: events + waiting, bytes, dropped });
            if over {
                return Ok(());
            }
            rest = self.next_rest(rest, options.poll);
            if options.detail == Detail::Adaptive && self.kernel.can_count() {
                self.adapt(store)?;
            }
        }
    }

    /// Looks more often while rings fill fast.
    fn next_rest(&self, rest: Duration, longest: Duration) -> Duration {
        match self.kernel.rings.fill().0 {
            FILL_HIGH.. => (rest / 2).max(POLL_MIN.min(longest)),
            0..FILL_LOW => (rest * 2).min(longest),
            _ => rest,
        }
    }

    /// Whether so many records have waited long enough.
    fn has_waited(&self, records: u64) -> bool {
        let waited = monotonic() - self.read;
        let few = records.saturating_mul(1_000_000_000) <= waited.0.saturating_mul(FEW * self.cpus);
        waited >= Nanos((if few { FLUSH_EVERY } else { WAIT_MAX }).as_nanos() as u64)
    }

    /// Sees whether the control group is still there.
    fn look_at_group(&mut self, now: bool) {
        if self.vanished.is_none() && (now || passed(self.looked, FLUSH_EVERY)) {
            self.looked = monotonic();
            let gone = self.group.as_ref().is_some_and(|group| !group.exists());
            self.vanished = gone.then_some(self.looked - self.start);
        }
    }

    /// Tells less where telling costs the target too much.
    fn adapt(&mut self, store: &mut dyn Store) -> Result<(), RecordError> {
        let Some(telling) = self.governor.judge(monotonic(), self.kernel.rings.counters()) else {
            return Ok(());
        };
        // What was told otherwise is read as such, but for the last ms.
        self.poll(false, store)?;
        self.kernel.tell(telling)?;
        self.counted_from.get_or_insert(monotonic() - self.start);
        store.count(matches!(telling, Telling::Sends { receives: false }));
        Ok(())
    }

    /// Reads the rings and tells what is certainly complete; with `last` all there is up to the end. Programs
    /// are detached one after the other, which takes time in which only some of them tell.
    fn poll(&mut self, last: bool, store: &mut dyn Store) -> Result<(), RecordError> {
        let now = monotonic();
        let until = if last { self.end.0 } else { now.0 - CLOCK_MARGIN_NS };
        let mut reading = self.tell(until, store)?;
        // A CPU that its hypervisor stopped within a program finishes its record when it runs again.
        while last && reading.held_up && monotonic() - now < LAST_RECORDS {
            std::thread::sleep(Duration::from_millis(1));
            reading = self.tell(until, store)?;
        }
        while last && reading.held_up {
            let lost = self.kernel.rings.give_up();
            self.unread.iter_mut().zip(lost).for_each(|(all, lost)| *all += lost);
            reading = self.tell(until, store)?;
        }
        self.until = self.until.max(reading.until);
        // What is behind a record in the making has waited already.
        if !reading.held_up {
            self.read = now;
        }
        if last || passed(self.flushed, FLUSH_EVERY) {
            store.flush().map_err(RecordError::Write)?;
            self.flushed = now;
        }
        Ok(())
    }

    /// Tells what is whole and came before a time.
    fn tell(&mut self, until: u64, store: &mut dyn Store) -> Result<Reading, RecordError> {
        self.kernel.rings.read(until, |record| store.record(record)).map_err(RecordError::Write)
    }

    fn dropped_per_cpu(&self) -> Vec<u64> {
        self.kernel.rings.dropped().iter().zip(&self.unread).map(|(a, b)| a + b).collect()
    }

    /// Ends the file, which began at `from`.
    fn finish<W: Write>(
        self,
        translator: Translator<W>,
        from: u64,
        mut provenance: Provenance,
        cpu_before: Nanos,
    ) -> Result<RecordSummary, RecordError> {
        let duration = Nanos(self.end.0.saturating_sub(from)).max(translator.last());
        let dropped_per_cpu = self.dropped_per_cpu();
        let gaps = translator.gaps();
        let (writer, unseen_bytes) = translator.into_writer().map_err(RecordError::Write)?;
        // Where each is told, others than the target may have sent them.
        let unseen_bytes = if self.counted_from.is_some() { unseen_bytes } else { 0 };
        let later = Nanos(from) - self.start;
        provenance.dropped = dropped_per_cpu.iter().sum();
        provenance.dropped_per_cpu = dropped_per_cpu.clone();
        provenance.unseen_bytes = unseen_bytes;
        provenance.counted_from = self.counted_from.map(|counted| counted.saturating_sub(later));
        provenance.recorder_cpu = clock(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_before;
        let (events, bytes) = (writer.event_count(), writer.byte_count());
        writer.finish(&provenance, duration).map_err(RecordError::Write)?;
        Ok(RecordSummary {
            started_ns: from,
            exit_code: provenance.exit_code,
            events,
            bytes,
            dropped_per_cpu,
            unseen_bytes,
            recorder_cpu: provenance.recorder_cpu,
            duration,
            counted_from: provenance.counted_from,
            gaps,
            buffer_bytes: self.kernel.rings.ring_bytes(),
            buffer_fill_max: self.kernel.rings.fill().1,
            vanished: self.vanished,
            ..RecordSummary::default()
        })
    }

    /// A ring recording that ended without a reason to write it.
    fn nothing_fired(self, provenance: &Provenance) -> RecordSummary {
        RecordSummary {
            started_ns: self.start.0,
            exit_code: provenance.exit_code,
            dropped_per_cpu: self.dropped_per_cpu(),
            duration: self.end - self.start,
            nothing_fired: true,
            buffer_bytes: self.kernel.rings.ring_bytes(),
            buffer_fill_max: self.kernel.rings.fill().1,
            vanished: self.vanished,
            ..RecordSummary::default()
        }
    }
}
