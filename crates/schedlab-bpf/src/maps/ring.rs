//! Ring buffer: records that programs reserve, fill and submit, and the host consumes in order.
//!
//! Records live on the region's heap instead of in one mapped ring; what programs can observe (space left,
//! order, busy records hold back later ones) is kept.

use std::collections::VecDeque;

use crate::memory::Memory;

/// Bytes of a record's header in the kernel's ring, counted against its size.
const HEADER_BYTES: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Busy,
    Submitted,
    Discarded,
}

#[derive(Clone, Debug)]
struct Record {
    address: u64,
    bytes: u64,
    phase: Phase,
}

/// The records of one ring buffer map.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    capacity: u64,
    used: u64,
    produced: u64,
    consumed: u64,
    records: VecDeque<Record>,
}

fn footprint(bytes: u64) -> u64 {
    (bytes + HEADER_BYTES).next_multiple_of(8)
}

impl Ring {
    pub(crate) fn new(capacity: u32) -> Ring {
        Ring { capacity: capacity.into(), used: 0, produced: 0, consumed: 0, records: VecDeque::new() }
    }

    /// Reserves a record; 0 if the ring is full.
    pub(crate) fn reserve(&mut self, memory: &mut Memory, bytes: u64) -> u64 {
        if bytes > self.capacity || self.used + footprint(bytes) > self.capacity {
            return 0;
        }
        let Some(address) = memory.alloc(bytes.max(1), 8) else { return 0 };
        self.used += footprint(bytes);
        self.produced += footprint(bytes);
        self.records.push_back(Record { address, bytes, phase: Phase::Busy });
        address
    }

    /// Finishes a reserved record; `false` if there is none at this address.
    pub(crate) fn finish(&mut self, address: u64, discard: bool) -> bool {
        let busy = |record: &&mut Record| record.address == address && record.phase == Phase::Busy;
        let Some(record) = self.records.iter_mut().rev().find(busy) else { return false };
        record.phase = if discard { Phase::Discarded } else { Phase::Submitted };
        true
    }

    /// Takes the oldest record if it is submitted, skipping discarded ones.
    pub(crate) fn consume(&mut self, memory: &mut Memory) -> Option<Vec<u8>> {
        while self.records.front().is_some_and(|record| record.phase != Phase::Busy) {
            let record = self.records.pop_front()?;
            let content = memory.bytes(record.address, record.bytes).map(<[u8]>::to_vec);
            memory.free(record.address, record.bytes.max(1), 8);
            self.used -= footprint(record.bytes);
            self.consumed += footprint(record.bytes);
            if record.phase == Phase::Submitted {
                return content;
            }
        }
        None
    }

    /// `bpf_ringbuf_query()`: 0 bytes waiting, 1 size, 2 consumer position, 3 producer position.
    pub(crate) fn query(&self, what: u64) -> u64 {
        match what {
            0 => self.used,
            1 => self.capacity,
            2 => self.consumed,
            3 => self.produced,
            _ => 0,
        }
    }
}
