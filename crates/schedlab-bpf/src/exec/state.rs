//! What an instance owns besides its region: maps, timers, random numbers, log, and the fault in progress.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::compiled::Code;
use super::fault::FaultKind;
use crate::maps::{Freed, Maps};
use crate::memory::Memory;

/// Lines of `bpf_printk()` output that are kept; older ones are dropped and counted.
const LOG_LINES_MAX: usize = 1024;

/// The owned state of an instance.
pub(crate) struct State {
    pub memory: Memory,
    pub code: Arc<Code>,
    pub maps: Maps,
    pub native: bool,
    /// Instructions allowed to one call from the host, nested calls included.
    pub budget: u64,
    pub fault: Option<FaultKind>,
    /// Program and instruction of the fault.
    pub fault_place: Option<(u32, u32)>,
    pub panic: Option<Box<dyn Any + Send>>,
    pub random: Random,
    pub log: Log,
    pub timers: BTreeMap<u64, Timer>,
    /// Instructions before the run, level, and tail calls made in it: how many are left follows from it.
    pub tail_calls: (u64, u32, u32),
    /// Tail calls that have not returned, on all levels: each takes stack of the thread.
    pub tail_calls_open: u32,
    /// Objects of `bpf_percpu_obj_new()`: address of the first CPU's copy to the bytes of one.
    pub percpu: BTreeMap<u64, u64>,
    /// Objects of `bpf_obj_new()`: address to (bytes, references).
    pub objects: BTreeMap<u64, (u64, u32)>,
    /// Masks of `bpf_cpumask_create()` that are alive.
    pub cpumasks: BTreeSet<u64>,
    /// Lists and trees by the address of their head or root: node addresses in order.
    pub collections: BTreeMap<u64, VecDeque<u64>>,
    /// The last answer of `bpf_cpumask_any_distribute()`.
    pub cpumask_previous: u32,
}

impl State {
    /// Cleans up what map values gave up: timers, owned objects and masks, nodes of lists and trees.
    /// Returns timers that the host still has armed.
    #[must_use]
    pub(crate) fn settle_freed(&mut self) -> Vec<u64> {
        let mut armed = Vec::new();
        while let Some(freed) = self.maps.freed.pop() {
            match freed {
                Freed::Timer(at) => {
                    if self.timers.remove(&at).is_some_and(|timer| timer.armed) {
                        armed.push(at);
                    }
                }
                Freed::Pointer(pointer) => self.put_pointer(pointer),
                Freed::Collection(head) => {
                    for node in self.collections.remove(&head).unwrap_or_default() {
                        self.put_pointer(node);
                    }
                }
            }
        }
        armed
    }

    /// The same outside of a program: a timer that still fires at the host finds nobody.
    pub(crate) fn forget_freed(&mut self) {
        drop(self.settle_freed());
    }

    /// Drops a reference that a map value or collection held: to an object that holds the address, or a mask.
    /// The host's own objects are not counted.
    fn put_pointer(&mut self, pointer: u64) {
        let holds = |(start, (bytes, _)): (&u64, &(u64, u32))| pointer < start + bytes;
        if let Some((start, _)) = self.objects.range(..=pointer).next_back().filter(|entry| holds(*entry)) {
            let start = *start;
            self.drop_object(start);
        } else if self.cpumasks.contains(&pointer) {
            self.drop_cpumask(pointer);
        } else {
            self.drop_percpu(pointer);
        }
    }

    /// `bpf_obj_drop()`; `false` if there is no such object.
    pub(crate) fn drop_object(&mut self, object: u64) -> bool {
        match self.objects.get_mut(&object) {
            Some((_, references)) if *references > 1 => *references -= 1,
            Some((bytes, _)) => {
                self.memory.free(object, *bytes, 8);
                self.objects.remove(&object);
            }
            None => return false,
        }
        true
    }

    /// `bpf_percpu_obj_drop()`; `false` if there is no such object.
    pub(crate) fn drop_percpu(&mut self, object: u64) -> bool {
        let Some(bytes) = self.percpu.remove(&object) else { return false };
        self.memory.free(object, bytes * u64::from(self.code.options.nr_cpus), 8);
        true
    }

    /// `bpf_cpumask_release()`; `false` if there is no such mask.
    pub(crate) fn drop_cpumask(&mut self, mask: u64) -> bool {
        if !self.cpumasks.contains(&mask) {
            return false;
        }
        let bits = u64::from(self.code.options.nr_cpus.div_ceil(64)) * 8;
        let references = self.memory.read_u64(mask + bits);
        self.memory.write_u64(mask + bits, references.saturating_sub(1));
        if references <= 1 {
            self.cpumasks.remove(&mask);
            self.memory.free(mask, bits + 8, 8);
        }
        true
    }
}

/// A `struct bpf_timer` in a map value, known by its address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timer {
    /// Index of the map.
    pub map: usize,
    /// Address of the callback, 0 before `bpf_timer_set_callback`.
    pub callback: u64,
    /// Whether the host has it armed.
    pub armed: bool,
    /// A `struct bpf_wq`: the callback gets no key of its own thread, and starting it is at once.
    pub work: bool,
}

/// SplitMix64: the numbers of `bpf_get_prandom_u32()`, a function of the seed alone.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 32) as u32
    }
}

/// Bounded log of what programs print.
#[derive(Clone, Debug, Default)]
pub struct Log {
    lines: VecDeque<String>,
    dropped: u64,
}

impl Log {
    pub(crate) fn push(&mut self, line: String) {
        if self.lines.len() == LOG_LINES_MAX {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }

    /// The kept lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Lines dropped because the log was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
