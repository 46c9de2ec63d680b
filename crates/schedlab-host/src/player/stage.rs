//! What all tasks of a play have in common, in whichever process they are.

use super::burn::Speed;
use super::channel::Channels;
use super::futex;
use super::shared::{Head, Mark, SharedSlice, Slot};
use crate::process::close_range;
use schedlab_model::cpu_set::CPUS_MAX;
use schedlab_model::workload::{Op, TimerRef, Workload};
use schedlab_model::{ChannelId, CpuSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tasks that can be told apart, forked ones included; later ones run, but are not named.
const SLOTS_MAX: usize = 1 << 20;
/// Jobs whose ends are kept.
const MARKS_MAX: usize = 3 << 20;
/// Of both where nobody asks for them: less memory, so that the kernel need not make room for it.
const FEW: usize = 1 << 10;

/// The workload, its channels and the shared memory.
pub struct Stage {
    /// What is played.
    pub workload: Workload,
    /// Its channels.
    pub channels: Channels,
    /// Seed of what is random in it.
    pub seed: u64,
    /// Every task is a thread of the calling process.
    pub in_one_process: bool,
    /// CPUs that tasks without a restriction may use.
    pub cpus: CpuSet,
    /// Speeds of the CPUs.
    pub speeds: SharedSlice<Speed>,
    /// Tasks.
    pub slots: SharedSlice<Slot>,
    /// Ends of jobs.
    pub marks: SharedSlice<Mark>,
    /// Shared timers: when each expired last, 0 if it did not.
    pub timers: SharedSlice<AtomicU64>,
    head: SharedSlice<Head>,
}

impl Stage {
    /// Makes the channels and measures the CPUs.
    pub fn new(
        workload: &Workload,
        seed: u64,
        in_one_process: bool,
        notes: &mut Vec<String>,
    ) -> io::Result<Stage> {
        let ops = workload.programs.iter().flat_map(|program| &program.ops);
        let shared_timer = |op: &Op| match op {
            Op::Timer { timer: TimerRef::Shared(number), .. } => Some(*number as usize + 1),
            _ => None,
        };
        let timers = ops.filter_map(shared_timer).max().unwrap_or(0);
        let stage = Stage {
            channels: Channels::new(workload, notes)?,
            workload: workload.clone(),
            seed,
            in_one_process,
            cpus: super::attributes::affinity(),
            speeds: SharedSlice::new(CPUS_MAX)?,
            slots: SharedSlice::new(if in_one_process { FEW } else { SLOTS_MAX })?,
            marks: SharedSlice::new(if in_one_process { FEW } else { MARKS_MAX })?,
            timers: SharedSlice::new(timers)?,
            head: SharedSlice::new(1)?,
        };
        super::burn::measure(&stage.speeds);
        Ok(stage)
    }

    /// How it stands.
    pub fn head(&self) -> &Head {
        &self.head[0]
    }

    /// The steps of a row.
    pub fn ops(&self, row: usize) -> &[Op] {
        &self.workload.programs[self.workload.tasks[row].program.0 as usize].ops
    }

    /// Channels that a row sends to, or that templates it forks send to: it holds their ends open.
    pub fn sends_to(&self, row: usize) -> Vec<ChannelId> {
        let (mut rows, mut sends) = (vec![row], Vec::new());
        let mut next = 0;
        while next < rows.len() {
            for op in self.ops(rows[next]) {
                match op {
                    Op::Send { channel, .. } if !sends.contains(channel) => sends.push(*channel),
                    Op::Fork { spec } if !rows.contains(&(spec.0 as usize)) => rows.push(spec.0 as usize),
                    _ => {}
                }
            }
            next += 1;
        }
        sends
    }

    /// A task of this row is made: its slot.
    pub fn new_slot(&self, row: usize) -> usize {
        if self.workload.tasks[row].target {
            self.head().targets_left.fetch_add(1, Ordering::SeqCst);
        }
        self.head().slots.fetch_add(1, Ordering::SeqCst) as usize
    }

    /// A task of this row is gone.
    pub fn task_ended(&self, row: usize) {
        if !self.workload.tasks[row].target {
            return;
        }
        self.head().end_ns.fetch_max(super::clock::now(), Ordering::SeqCst);
        if self.head().targets_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.head().wake_leader();
        }
    }

    /// Says that a task waits for the begin, and waits for it; when the run begins (`CLOCK_MONOTONIC`, ns).
    pub fn await_begin(&self) -> u64 {
        self.head().ready.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.head().ready, u32::MAX);
        while self.head().gate.load(Ordering::SeqCst) == 0 {
            futex::wait(&self.head().gate, 0, None);
        }
        self.origin()
    }

    /// The run begins at this instant.
    pub fn begin(&self, origin: u64) {
        self.head().origin_ns.store(origin, Ordering::SeqCst);
        self.head().gate.store(1, Ordering::SeqCst);
        futex::wake(&self.head().gate, u32::MAX);
    }

    /// When the run began.
    pub fn origin(&self) -> u64 {
        self.head().origin_ns.load(Ordering::Relaxed)
    }

    /// In a process that was forked: closes what belongs to the parent and its tasks, but for standard input and output.
    pub fn close_other_descriptors(&self) {
        let mut kept = self.channels.kept();
        kept.extend([0, 1, 2]);
        kept.sort_unstable();
        let mut from = 0;
        for fd in kept {
            close_range(from, fd - 1);
            from = fd + 1;
        }
        close_range(from, i32::MAX);
    }
}
