//! Memory that runs short: what a machine has of it, and what a workload's processes and messages take.

use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4_096;

/// Memory of a machine for what runs on it, and the disk that it swaps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineMemory {
    /// KiB that the kernel and programs that are not modelled leave.
    pub kib: u64,
    /// CPU time to look for a page in one address space: each page that is to leave is looked for in all processes of a
    /// family, half of them in the mean (`page_referenced`, `try_to_unmap`).
    pub find_page: Nanos,
    /// Until the disk reads or writes elsewhere than before.
    pub disk_seek: Nanos,
    /// To read or write a page.
    pub disk_page: Nanos,
}

/// What a workload's processes and messages take of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryNeeds {
    /// KiB of a process that stay in memory: kernel stack, page tables, the kernel's records of it.
    pub kept_kib: u32,
    /// Pages of its own that a process uses whenever it runs.
    pub pages: u32,
    /// Pages of its own that it writes to when it begins and never uses again.
    pub idle_pages: u32,
    /// Bytes of the two pieces of memory that a message in a socket takes: its bytes with what goes with them, and its header
    /// (`sk_buff`). 0 is none.
    pub message: [u32; 2],
}

impl MemoryNeeds {
    /// Pages of a process, and KiB that stay, at most: each page is followed.
    pub const PAGES_MAX: u32 = 256;
    /// See [`MemoryNeeds::PAGES_MAX`].
    pub const KEPT_KIB_MAX: u32 = 1_048_576;

    /// Whether they are within bounds; the error says what they are.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.kept_kib > MemoryNeeds::KEPT_KIB_MAX {
            return Err("memory: kept_kib is at most 1048576");
        }
        if self.pages.saturating_add(self.idle_pages) > MemoryNeeds::PAGES_MAX {
            return Err("memory: pages and idle_pages together are at most 256");
        }
        if self.message.iter().any(|bytes| u64::from(*bytes) > PAGE_BYTES) {
            return Err("memory: each of the two numbers of message is at most 4096");
        }
        Ok(())
    }
}

/// What went to the disk and came back in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Swapped {
    /// Pages written to the disk (`pswpout`).
    pub pages_out: u64,
    /// Pages read from it (`pswpin`).
    pub pages_in: u64,
    /// How often somebody who needed memory had to make room, once a request.
    pub stalls: u64,
    /// How often a page was looked for in the address spaces of its family for that.
    pub searches: u64,
}
