//! A ring recording: the last seconds in memory, written when a trigger fires.
//!
//! Records of the window are kept as they came. What is older has been told to a translator that writes nowhere, and so
//! is known as a state: which tasks there are, who runs, who could, what their sends look like. The file begins with that
//! state, so that every reader takes it for an ordinary recording. Not here: what fires ([`super::trigger`]).

use super::raw::{RawRecord, kind};
use super::session::{Look, Store};
use super::translate::Translator;
use super::trigger::{Fired, Late, Trigger, Watch};
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::codec::RecordingWriter;
use schedlab_model::recording::{Provenance, TaskInfo};
use schedlab_model::{CpuId, Nanos, TaskId};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

/// A ring recording's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// How much is kept.
    pub span: Duration,
    /// How long to go on after a trigger.
    pub after: Duration,
    /// What to wait for; the first that fires ends the recording.
    pub triggers: Vec<Trigger>,
    /// The most memory that kept records may take; then the window is shorter.
    pub bytes_max: usize,
}

impl RingOptions {
    /// Keeps so much until the recording ends or a signal comes.
    pub fn new(span: Duration) -> RingOptions {
        RingOptions {
            span,
            after: Duration::from_secs(1),
            triggers: vec![Trigger::Signal, Trigger::End],
            bytes_max: 512 << 20,
        }
    }
}

/// Dead tasks are forgotten when they are so many.
const DEAD_MAX: usize = 20_000;
/// And connections.
const PEERS_MAX: usize = 1 << 17;

/// In the window: from here on reads come as sums, or no longer (`op`).
const COUNTING: u8 = 250;

/// What a task does, as far as the past told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Life {
    runnable: bool,
    running: bool,
    /// Woken while it still ran.
    woken: bool,
    dead: bool,
    cpu: u32,
}

pub(super) struct Ring {
    options: RingOptions,
    /// When the recorder began, and the first moment of the window.
    started: u64,
    from: u64,
    window: VecDeque<RawRecord>,
    past: Translator<io::Sink>,
    lives: Vec<Life>,
    /// The task each CPU runs at the window's begin, by pid.
    running: Vec<Option<u32>>,
    watch: Watch,
    late: Option<Late>,
    fired: Option<Fired>,
    /// The latest moment that is told wholly.
    until: u64,
    dropped: u64,
    machine: MachineDescription,
    events: u64,
}

fn nowhere(machine: &MachineDescription) -> io::Result<RecordingWriter<io::Sink>> {
    RecordingWriter::new(io::sink(), &Provenance::default(), machine)
}

impl Ring {
    pub(super) fn new(
        options: RingOptions,
        machine: &MachineDescription,
        start: u64,
        existing: Vec<TaskInfo>,
    ) -> io::Result<Ring> {
        let watch = Watch::new(&options.triggers, &existing);
        let lives = lives(&existing);
        Ok(Ring {
            past: Translator::new(nowhere(machine)?, start, existing),
            lives,
            options,
            started: start,
            from: start,
            window: VecDeque::new(),
            running: Vec::new(),
            watch,
            late: None,
            fired: None,
            until: start,
            dropped: 0,
            machine: machine.clone(),
            events: 0,
        })
    }

    /// Lets go of what lies before the window, or beyond the memory.
    fn shorten(&mut self, now: u64) -> io::Result<()> {
        let last = self.fired_at().unwrap_or(now);
        let from = last.saturating_sub(self.options.span.as_nanos() as u64).max(self.from);
        let records_max = self.options.bytes_max / size_of::<RawRecord>();
        while let Some(first) = self.window.front()
            && (first.time < from || self.window.len() > records_max)
        {
            let first = *first;
            self.window.pop_front();
            self.from = self.from.max(first.time);
            self.forget(&first)?;
        }
        self.from = self.from.max(from);
        let many = self.past.rows().len() > DEAD_MAX || self.past.peer_count() > PEERS_MAX;
        let dead = || self.lives.iter().filter(|life| life.dead).count();
        if many && (self.past.peer_count() > PEERS_MAX || dead() > DEAD_MAX) {
            self.begin_past_anew()?;
        }
        Ok(())
    }

    fn fired_at(&self) -> Option<u64> {
        self.fired.as_ref().map(|fired| self.started + fired.after_start.0)
    }

    /// A record becomes part of the state.
    fn forget(&mut self, raw: &RawRecord) -> io::Result<()> {
        feed(&mut self.past, raw)?;
        self.lives.resize(self.past.rows().len(), Life::default());
        match raw.kind {
            kind::SWITCH => {
                if let Some(life) = self.life(raw.pid) {
                    life.runnable = raw.op == 0 || life.woken;
                    life.dead = raw.op == 4;
                    (life.running, life.woken) = (false, false);
                }
                let next = raw.a as u32;
                if let Some(life) = self.life(next) {
                    *life = Life { runnable: true, running: true, cpu: raw.cpu, ..Life::default() };
                }
                if self.running.len() <= raw.cpu as usize {
                    self.running.resize(raw.cpu as usize + 1, None);
                }
                self.running[raw.cpu as usize] = Some(next).filter(|&pid| pid != 0);
            }
            kind::WAKING | kind::WAKEUP_NEW => {
                if let Some(life) = self.life(raw.a as u32) {
                    if life.running {
                        life.woken = true;
                    } else {
                        (life.runnable, life.cpu) = (true, raw.b as u32);
                    }
                }
            }
            kind::MIGRATE => {
                if let Some(life) = self.life(raw.a as u32) {
                    life.cpu = (raw.b >> 32) as u32;
                }
            }
            kind::FORK => {
                if let Some(life) = self.life(raw.a as u32) {
                    *life = Life { cpu: raw.cpu, ..Life::default() };
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn life(&mut self, pid: u32) -> Option<&mut Life> {
        let id = self.past.known(pid).filter(|id| !id.is_idle())?;
        self.lives.get_mut(id.index())
    }

    /// The tasks that live where the window begins, as rows of a recording that begins there.
    fn alive(&self) -> Vec<TaskInfo> {
        let rows = self.past.rows().iter().zip(&self.lives).enumerate().skip(1);
        let alive = rows.filter(|(row, (task, life))| {
            // A row whose pid another task has now ended unseen.
            !life.dead && self.past.known(task.pid as u32) == Some(TaskId(*row as u32))
        });
        alive
            .map(|(row, (task, life))| TaskInfo {
                attributes: self.past.attributes_now(TaskId(row as u32)),
                parent: TaskId::IDLE,
                existed: true,
                start_cpu: CpuId(life.cpu),
                start_runnable: life.runnable,
                ..task.clone()
            })
            .collect()
    }

    /// Drops what is only known of the dead.
    fn begin_past_anew(&mut self) -> io::Result<()> {
        let alive = self.alive();
        let mut past = Translator::new(nowhere(&self.machine)?, self.from, alive);
        for raw in self.past.connections(self.from) {
            feed(&mut past, &raw)?;
        }
        past.counting = self.past.counting;
        let old: Vec<Life> = std::mem::take(&mut self.lives);
        let of = |task: &TaskInfo| {
            self.past.known(task.pid as u32).and_then(|id| old.get(id.index())).copied().unwrap_or_default()
        };
        self.lives = past.rows().iter().map(of).collect();
        self.past = past;
        Ok(())
    }

    /// What fired, if anything; `None` and nothing is to be written.
    pub(super) fn fired(&self) -> Option<&Fired> {
        self.fired.as_ref()
    }

    fn fire(&mut self, what: String, time: u64, late: Option<&Late>) {
        if self.fired.is_none() {
            self.fired = Some(Fired {
                what,
                at: Nanos::ZERO,
                after_start: Nanos(time.saturating_sub(self.started)),
                task: late.map(|late| (late.name.clone(), late.pid as i32)),
                delay: late.map(|late| late.delay),
            });
        }
    }

    fn has(&self, wanted: &Trigger) -> bool {
        self.options.triggers.contains(wanted)
    }

    /// Writes the window as a recording that begins at its first moment; gives the translator that wrote it, and what
    /// fired with its place in the file.
    pub(super) fn write<W: Write>(
        mut self,
        out: W,
        provenance: &Provenance,
        end: u64,
    ) -> io::Result<(Translator<W>, u64, Option<Fired>)> {
        self.shorten(end)?;
        let from = self.from;
        let writer = RecordingWriter::new(out, provenance, &self.machine)?;
        let mut translator = Translator::new(writer, from, self.alive());
        translator.counting = self.past.counting;
        for raw in self.past.connections(from) {
            feed(&mut translator, &raw)?;
        }
        for (cpu, pid) in self.running.iter().enumerate() {
            if let Some(pid) = pid {
                let next = u64::from(*pid);
                let raw = RawRecord {
                    time: from,
                    cpu: cpu as u32,
                    kind: kind::SWITCH,
                    a: next,
                    ..RawRecord::default()
                };
                feed(&mut translator, &raw)?;
            }
        }
        for raw in &self.window {
            feed(&mut translator, raw)?;
        }
        let fired = self.fired.map(|fired| {
            let time = self.started + fired.after_start.0;
            Fired { at: Nanos(time.saturating_sub(from)), ..fired }
        });
        Ok((translator, from, fired))
    }
}

fn lives(existing: &[TaskInfo]) -> Vec<Life> {
    let of =
        |task: &TaskInfo| Life { runnable: task.start_runnable, cpu: task.start_cpu.0, ..Life::default() };
    std::iter::once(Life::default()).chain(existing.iter().map(of)).collect()
}

fn feed<W: Write>(translator: &mut Translator<W>, raw: &RawRecord) -> io::Result<()> {
    if raw.kind == COUNTING {
        translator.counting = raw.op != 0;
        return Ok(());
    }
    translator.record(raw)
}

impl Store for Ring {
    fn record(&mut self, raw: &RawRecord) -> io::Result<()> {
        self.events += 1;
        if raw.time < self.started {
            feed(&mut self.past, raw)?;
            self.lives.resize(self.past.rows().len(), Life::default());
            return Ok(());
        }
        self.until = self.until.max(raw.time);
        if self.fired.is_none() && self.late.is_none() {
            self.late = self.watch.record(raw);
        }
        self.window.push_back(*raw);
        Ok(())
    }

    fn count(&mut self, counting: bool) {
        let time = self.window.back().map_or(self.until, |last| last.time);
        let op = u8::from(counting);
        self.window.push_back(RawRecord { time, kind: COUNTING, op, ..RawRecord::default() });
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self) -> (u64, u64) {
        (self.events, (self.window.len() * size_of::<RawRecord>()) as u64)
    }

    /// Triggers are to fire in time, and the window holds records better than the rings.
    fn is_waiting(&self) -> bool {
        true
    }

    fn looked(&mut self, look: &Look) -> io::Result<bool> {
        if look.dropped > self.dropped {
            self.dropped = look.dropped;
            self.watch.forget();
        }
        self.until = self.until.max(look.until);
        let late = self.late.take().or_else(|| self.watch.waiting(look.until));
        if let Some(late) = &late {
            let what = self.options.triggers[late.trigger].to_string();
            self.fire(what, late.time, Some(late));
        }
        if look.signalled && self.has(&Trigger::Signal) {
            self.fire("SIGUSR1".to_owned(), look.until, None);
        }
        if let Some(code) = look.exit.filter(|&code| code != 0 && self.has(&Trigger::ExitNonzero)) {
            self.fire(format!("exit code {code}"), look.until, None);
        }
        if look.stopped {
            self.fire("Ctrl-C".to_owned(), look.until, None);
        } else if look.last && self.has(&Trigger::End) {
            self.fire("the end".to_owned(), look.until, None);
        }
        self.shorten(look.until)?;
        let after = self.options.after.as_nanos() as u64;
        Ok(self.fired_at().is_some_and(|fired| look.until >= fired + after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::event::EventKind;
    use schedlab_model::recording::{Recording, codec};
    use schedlab_model::timeline::{StretchKind, Timelines};
    use schedlab_model::topology::Topology;
    use schedlab_model::{Nice, TaskAttributes};

    const MS: u64 = 1_000_000;

    fn task(pid: i32) -> TaskInfo {
        TaskInfo {
            pid,
            tgid: pid,
            name: format!("task-{pid}"),
            parent: TaskId::IDLE,
            attributes: TaskAttributes::default(),
            target: true,
            existed: true,
            start_cpu: CpuId(0),
            start_runnable: false,
        }
    }

    fn ring(triggers: &[&str], bytes_max: usize) -> Ring {
        let triggers = triggers.iter().map(|text| text.parse().expect("a trigger")).collect();
        let span = Duration::from_millis(10);
        let options = RingOptions { span, after: Duration::from_millis(2), triggers, bytes_max };
        let machine = MachineDescription::generic("test", Topology::flat(2).expect("two CPUs"));
        Ring::new(options, &machine, 1_000 * MS, vec![task(7), task(8)]).expect("in memory")
    }

    fn at(ms: u64, raw: RawRecord) -> RawRecord {
        RawRecord { time: (1_000 + ms) * MS, ..raw }
    }

    fn switch(ms: u64, cpu: u32, prev: u32, state: u8, next: u64) -> RawRecord {
        at(ms, RawRecord { cpu, kind: kind::SWITCH, pid: prev, op: state, a: next, ..RawRecord::default() })
    }

    fn waking(ms: u64, wakee: u64) -> RawRecord {
        at(ms, RawRecord { kind: kind::WAKING, a: wakee, b: 1, ..RawRecord::default() })
    }

    fn look(ms: u64) -> Look {
        Look { until: (1_000 + ms) * MS, ..Look::default() }
    }

    fn written(ring: Ring, end_ms: u64) -> (Recording, u64, Option<Fired>) {
        let end = (1_000 + end_ms) * MS;
        let (translator, from, fired) =
            ring.write(Vec::new(), &Provenance::default(), end).expect("in memory");
        let bytes =
            translator.into_writer().expect("in memory").0.finish(&Provenance::default(), Nanos(end - from));
        (codec::decode(&bytes.expect("in memory")).expect("a recording"), from, fired)
    }

    fn ran(recording: &Recording, pid: i32) -> u64 {
        let task = recording.tasks.iter().position(|task| task.pid == pid).expect("it is there");
        let stretches = &Timelines::of(recording).tasks[task];
        let ran = stretches.iter().filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
        ran.map(|stretch| stretch.length().0 / MS).sum()
    }

    #[test]
    fn the_file_holds_the_window_and_begins_with_who_runs() {
        let mut ring = ring(&["run-delay>3ms"], 1 << 20);
        // 7 runs on CPU 0 from long before the window to beyond its end; 8 is renamed, reniced and woken before it.
        for raw in [
            switch(1, 0, 0, 0, 7),
            at(
                2,
                RawRecord {
                    kind: kind::RENAME,
                    pid: 8,
                    a: u64::from_ne_bytes(*b"late\0\0\0\0"),
                    ..RawRecord::default()
                },
            ),
            at(2, RawRecord { kind: kind::ATTRIBUTES, pid: 8, a: 125, ..RawRecord::default() }),
            waking(95, 8),
        ] {
            ring.record(&raw).expect("in memory");
        }
        assert!(!ring.looked(&look(97)).expect("in memory"));
        ring.record(&switch(100, 1, 0, 0, 8)).expect("in memory");
        assert!(!ring.looked(&look(101)).expect("in memory"), "it goes on after the trigger");
        assert!(ring.looked(&look(102)).expect("in memory"));
        let (recording, from, fired) = written(ring, 102);
        assert_eq!(from, 1_090 * MS, "ten ms before the trigger");
        let fired = fired.expect("it fired");
        assert_eq!((fired.task, fired.delay), (Some(("late".to_owned(), 8)), Some(Nanos(5 * MS))));
        assert_eq!((fired.at, fired.after_start), (Nanos(10 * MS), Nanos(100 * MS)));
        assert_eq!((ran(&recording, 7), ran(&recording, 8)), (12, 2));
        let late = recording.tasks.iter().find(|task| task.pid == 8).expect("it is there");
        assert_eq!(late.name, "late");
        assert_eq!(
            late.attributes.nice,
            Nice::new(5).expect("a nice value"),
            "as it was at the window's begin"
        );
    }

    #[test]
    fn tasks_that_ended_before_the_window_are_not_in_the_file() {
        let mut ring = ring(&["end"], 1 << 20);
        let fork =
            at(1, RawRecord { kind: kind::FORK, pid: 7, a: 9 | 9 << 32, flags: 1, ..RawRecord::default() });
        for raw in [fork, switch(2, 0, 0, 0, 9), switch(3, 0, 9, 4, 0), switch(50, 0, 0, 0, 7)] {
            ring.record(&raw).expect("in memory");
        }
        ring.looked(&Look { last: true, ..look(55) }).expect("in memory");
        let (recording, ..) = written(ring, 55);
        let pids: Vec<i32> = recording.tasks.iter().map(|task| task.pid).collect();
        assert_eq!(pids, [0, 7, 8]);
        assert_eq!(ran(&recording, 7), 5);
    }

    #[test]
    fn memory_bounds_the_window_and_nothing_fires_without_a_reason() {
        let mut ring = ring(&["run-delay>3ms", "signal"], 40 * size_of::<RawRecord>());
        for ms in 0..100 {
            ring.record(&switch(ms, 0, if ms % 2 == 0 { 0 } else { 7 }, 1, if ms % 2 == 0 { 7 } else { 0 }))
                .expect("in memory");
            ring.record(&at(ms, RawRecord { kind: kind::IRQ_ENTER, ..RawRecord::default() }))
                .expect("in memory");
            assert!(!ring.looked(&look(ms)).expect("in memory"));
        }
        assert!(ring.window.len() <= 40 && ring.fired().is_none());
        ring.looked(&Look { signalled: true, ..look(99) }).expect("in memory");
        let (recording, _, fired) = written(ring, 99);
        assert_eq!(fired.expect("a signal").what, "SIGUSR1");
        let switches = recording.events.iter().filter(|event| matches!(event.kind, EventKind::Switch { .. }));
        assert!((10..=12).contains(&switches.count()));
    }

    #[test]
    fn the_dead_are_forgotten_in_the_end() {
        let mut ring = ring(&["end"], 1 << 20);
        for child in 0..2 * DEAD_MAX as u64 + 10 {
            let (pid, ms) = (100 + child % 30_000, 1 + child);
            let fork = at(
                ms,
                RawRecord { kind: kind::FORK, pid: 7, a: pid | pid << 32, flags: 1, ..RawRecord::default() },
            );
            for raw in [fork, switch(ms, 0, 7, 0, pid), switch(ms, 0, pid as u32, 4, 7)] {
                ring.record(&raw).expect("in memory");
            }
            if child % 100 == 0 {
                ring.looked(&look(ms)).expect("in memory");
            }
        }
        assert!(ring.past.rows().len() < 2 * DEAD_MAX, "{} rows", ring.past.rows().len());
        assert_eq!(ring.running, [Some(7)]);
        assert!(ring.alive().iter().any(|task| task.pid == 7 && task.start_runnable));
    }
}
