//! The disk that pages go to: one request after the other, in the order in which they come.

use schedlab_model::memory::MachineMemory;

/// What the disk's head did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Nothing,
    Read,
    Write,
}

/// When the disk is done with what it was told. Written pages follow each other, as swap is given out in order; each read is
/// elsewhere.
#[derive(Debug)]
pub(super) struct Disk {
    seek: u64,
    page: u64,
    until: u64,
    last: Last,
}

impl Disk {
    pub(super) fn new(machine: &MachineMemory) -> Disk {
        Disk { seek: machine.disk_seek.0, page: machine.disk_page.0, until: 0, last: Last::Nothing }
    }

    /// When so many pages that are written from now on are.
    pub(super) fn write(&mut self, now: u64, pages: u64) -> u64 {
        let seek = if self.last == Last::Write { 0 } else { self.seek };
        self.last = Last::Write;
        self.takes(now, seek + pages * self.page)
    }

    /// When so many pages that lie together have been read.
    pub(super) fn read(&mut self, now: u64, pages: u64) -> u64 {
        self.last = Last::Read;
        self.takes(now, self.seek + pages * self.page)
    }

    fn takes(&mut self, now: u64, time: u64) -> u64 {
        self.until = self.until.max(now).saturating_add(time);
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Nanos;

    #[test]
    fn the_head_moves_between_writes_and_to_each_read() {
        let (find_page, disk_seek, disk_page) = (Nanos(0), Nanos(1_000), Nanos(10));
        let mut disk = Disk::new(&MachineMemory { kib: 0, find_page, disk_seek, disk_page });
        assert_eq!(disk.write(0, 1), 1_010);
        assert_eq!(disk.write(5, 1), 1_020, "it follows the first");
        assert_eq!(disk.read(5_000, 3), 6_030, "the disk was idle, and the pages lie elsewhere");
        assert_eq!(disk.read(5_000, 1), 7_040);
        assert_eq!(disk.write(5_000, 1), 8_050);
    }
}
