//! The memory of one instance: a contiguous region that is all a BPF program can reach.
//!
//! An address is an offset into the region, so pointer values repeat from run to run. Every access takes
//! `base mod size + offset` with a signed 16-bit offset; guard bytes on both sides make that confined by
//! construction, for native code and interpreter alike. The first and the last [`ZERO_BYTES`] are never
//! handed out and never stored to: a load through NULL (plus any field offset) reads 0, as the kernel's
//! fault-tolerant loads do, and a store through it is a fault.
//!
//! Not here: what lies where (`layout`), maps (`maps`), code (`exec`, `jit`).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;

use crate::exec::RawContext;

/// Bytes at either end of a region that read as zero and cannot be stored to.
pub const ZERO_BYTES: u64 = 64 << 10;
/// Bytes in front of the guard for the context of the instance, which native code reaches by the same register.
pub(crate) const ROOM_BYTES: usize = size_of::<RawContext>().next_multiple_of(64);
/// Bytes around the region that the signed 16-bit offset of an access can reach.
pub(crate) const GUARD_BYTES: usize = (32 << 10) + 64;
/// Alignment of the region in this process, so that an object's alignment holds there too.
const REGION_ALIGN: usize = 4096;
/// Bytes of a large page, and the alignment of a region that is to have such.
const LARGE_PAGE: usize = 2 << 20;
/// From this size on, as a power of two, a region is for the objects of thousands of tasks, more pages than the processor
/// remembers translations of.
const LARGE_LOG2: u32 = 27;
/// Alignment asked of the allocator: a larger one would make it clear the memory by hand.
const ALLOCATION_ALIGN: usize = 16;

/// Asks the system for large pages where memory is touched first. A wish only: nothing depends on it.
fn prefer_large_pages(start: NonNull<u8>, size: u64) {
    #[cfg(target_os = "linux")]
    // SAFETY: the pages are our own, and their content stays what it is.
    unsafe {
        libc::madvise(start.as_ptr().cast(), size as usize, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, size);
}

/// The region of one instance and the allocator of its heap.
pub struct Memory {
    /// Start of the region itself, past the guard in front of it.
    base: NonNull<u8>,
    /// What was allocated: guards, region and slack for alignment.
    allocation: NonNull<u8>,
    size: u64,
    /// The size less one: what an address is cut to.
    mask: u64,
    heap: Heap,
}

// SAFETY: the allocation belongs to this value alone; the pointer is not shared with another thread.
unsafe impl Send for Memory {}

impl Memory {
    /// A zeroed region of `2^size_log2` bytes whose heap begins at `heap_start`, and in front of it, guard between,
    /// room for what belongs to it.
    ///
    /// # Panics
    /// If the size is not between 2^18 and 2^31, or the heap does not begin inside the region.
    #[must_use]
    pub fn new(size_log2: u32, heap_start: u64) -> Memory {
        assert!((18..=31).contains(&size_log2), "a region has 2^18 to 2^31 bytes");
        let size = 1_u64 << size_log2;
        assert!(heap_start >= ZERO_BYTES && heap_start <= size - ZERO_BYTES, "the heap begins inside");
        let (layout, align) = (Memory::layout(size), Memory::align(size));
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(allocation) = NonNull::new(start) else { handle_alloc_error(layout) };
        let front = start.addr() + ROOM_BYTES + GUARD_BYTES;
        let slack = front.next_multiple_of(align) - start.addr();
        // SAFETY: the slack is less than room, guard and alignment, which the allocation has in front.
        let base = unsafe { allocation.add(slack) };
        if align == LARGE_PAGE {
            prefer_large_pages(base, size);
        }
        Memory {
            base,
            allocation,
            size,
            mask: size - 1,
            heap: Heap { next: heap_start, end: size - ZERO_BYTES, free: BTreeMap::new() },
        }
    }

    fn layout(size: u64) -> Layout {
        let bytes =
            usize::try_from(size).expect("at most 2^31") + ROOM_BYTES + 2 * GUARD_BYTES + Memory::align(size);
        Layout::from_size_align(bytes, ALLOCATION_ALIGN).expect("a valid layout")
    }

    /// Alignment of a region of this size.
    fn align(size: u64) -> usize {
        if size >> LARGE_LOG2 == 0 { REGION_ALIGN } else { LARGE_PAGE }
    }

    /// Start of the region in this process.
    #[must_use]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The room in front of the guard: `ROOM_BYTES`, a multiple of a cache line's from the region.
    pub(crate) fn room(&self) -> NonNull<u8> {
        // SAFETY: the allocation has room and guard in front of the region.
        unsafe { self.base.sub(GUARD_BYTES + ROOM_BYTES) }
    }

    /// Bytes of the region, a power of two.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where an access through `base` plus `offset` goes: the confinement rule.
    #[inline]
    fn place(&self, base: u64, offset: i16) -> *mut u8 {
        let inside = (base & self.mask) as isize;
        // SAFETY: 0 <= inside < size and |offset| <= 32 KiB stay within region and guards, with eight
        // bytes to spare.
        unsafe { self.base.as_ptr().offset(inside + isize::from(offset)) }
    }

    /// Whether a store through `base` is allowed, whatever its 16-bit offset: the base lies inside the region and
    /// not in its zero pages.
    #[inline]
    #[must_use]
    pub fn can_store(&self, base: u64) -> bool {
        base.wrapping_sub(ZERO_BYTES) < self.size - 2 * ZERO_BYTES
    }

    /// Loads `bytes` (1, 2, 4 or 8) through `base` plus `offset`, zero-extended.
    #[inline]
    #[must_use]
    pub fn load(&self, base: u64, offset: i16, bytes: u8) -> u64 {
        let at = self.place(base, offset);
        // SAFETY: `place` leaves eight readable, initialised bytes; unaligned reads are allowed.
        unsafe {
            match bytes {
                1 => u64::from(at.read()),
                2 => u64::from(at.cast::<u16>().read_unaligned()),
                4 => u64::from(at.cast::<u32>().read_unaligned()),
                _ => at.cast::<u64>().read_unaligned(),
            }
        }
    }

    /// Stores the low `bytes` (1, 2, 4 or 8) of `value`; `false` if the place is not to be stored to.
    #[inline]
    #[must_use]
    pub fn store(&mut self, base: u64, offset: i16, bytes: u8, value: u64) -> bool {
        if !self.can_store(base) {
            return false;
        }
        let at = self.place(base, offset);
        // SAFETY: as for `load`; the region is owned by this value.
        unsafe {
            match bytes {
                1 => at.write(value as u8),
                2 => at.cast::<u16>().write_unaligned(value as u16),
                4 => at.cast::<u32>().write_unaligned(value as u32),
                _ => at.cast::<u64>().write_unaligned(value),
            }
        }
        true
    }

    /// Reads one byte. Any address is allowed.
    #[inline]
    #[must_use]
    pub fn read_u8(&self, address: u64) -> u8 {
        self.load(address, 0, 1) as u8
    }

    /// Reads two bytes, little-endian. Any address is allowed.
    #[inline]
    #[must_use]
    pub fn read_u16(&self, address: u64) -> u16 {
        self.load(address, 0, 2) as u16
    }

    /// Reads four bytes, little-endian. Any address is allowed.
    #[inline]
    #[must_use]
    pub fn read_u32(&self, address: u64) -> u32 {
        self.load(address, 0, 4) as u32
    }

    /// Reads eight bytes, little-endian. Any address is allowed.
    #[inline]
    #[must_use]
    pub fn read_u64(&self, address: u64) -> u64 {
        self.load(address, 0, 8)
    }

    /// Writes at an address the host allocated: inside the region in any case.
    #[inline]
    fn write<T>(&mut self, address: u64, value: T) {
        debug_assert!(self.can_store(address), "a write to {address:#x}");
        // SAFETY: as for `store`: at most eight bytes.
        unsafe { self.place(address, 0).cast::<T>().write_unaligned(value) };
    }

    /// Writes one byte at an address the host allocated.
    ///
    /// # Panics
    /// Where assertions are checked, if the address lies in the zero pages: the host's own mistake, as for
    /// all `write_*`.
    #[inline]
    pub fn write_u8(&mut self, address: u64, value: u8) {
        self.write(address, value);
    }

    /// Writes two bytes, little-endian. Panics as [`Memory::write_u8`].
    #[inline]
    pub fn write_u16(&mut self, address: u64, value: u16) {
        self.write(address, value);
    }

    /// Writes four bytes, little-endian. Panics as [`Memory::write_u8`].
    #[inline]
    pub fn write_u32(&mut self, address: u64, value: u32) {
        self.write(address, value);
    }

    /// Writes eight bytes, little-endian. Panics as [`Memory::write_u8`].
    #[inline]
    pub fn write_u64(&mut self, address: u64, value: u64) {
        self.write(address, value);
    }

    /// The bytes from `address` on, or `None` if they do not lie inside the region. Zero pages included.
    #[inline]
    #[must_use]
    pub fn bytes(&self, address: u64, len: u64) -> Option<&[u8]> {
        if len > self.size || address > self.size - len {
            return None;
        }
        // SAFETY: the range was checked to lie inside the initialised region, which `&self` keeps still.
        Some(unsafe { std::slice::from_raw_parts(self.place(address, 0), len as usize) })
    }

    /// The bytes from `address` on for writing, or `None` if they are not all outside the zero pages.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self, address: u64, len: u64) -> Option<&mut [u8]> {
        let end = self.size - ZERO_BYTES;
        if address < ZERO_BYTES || len > end || address > end - len {
            return None;
        }
        // SAFETY: as for `bytes`; `&mut self` makes the borrow the only one.
        Some(unsafe { std::slice::from_raw_parts_mut(self.place(address, 0), len as usize) })
    }

    /// Reserves `size` zeroed bytes at a multiple of `align`; `None` when the region is full.
    ///
    /// # Panics
    /// If `align` is not a power of two up to 4096.
    #[must_use]
    pub fn alloc(&mut self, size: u64, align: u64) -> Option<u64> {
        assert!(align.is_power_of_two() && align <= 4096, "alignment {align}");
        let class = Heap::class(size, align);
        if let Some(address) = self.heap.free.get_mut(&class).and_then(Vec::pop) {
            self.bytes_mut(address, class.0).expect("freed memory lies inside").fill(0);
            return Some(address);
        }
        let address = self.heap.next.next_multiple_of(class.1);
        let end = address.checked_add(class.0).filter(|end| *end <= self.heap.end)?;
        self.heap.next = end;
        Some(address)
    }

    /// Gives back what [`Memory::alloc`] returned for the same `size` and `align`. The last freed is the
    /// first reused.
    pub fn free(&mut self, address: u64, size: u64, align: u64) {
        self.heap.free.entry(Heap::class(size, align)).or_default().push(address);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the allocation made by `new`, with the same layout.
        unsafe { dealloc(self.allocation.as_ptr(), Memory::layout(self.size)) }
    }
}

/// Bump allocation with a free list for each size class.
struct Heap {
    next: u64,
    end: u64,
    free: BTreeMap<(u64, u64), Vec<u64>>,
}

impl Heap {
    /// Size and alignment that are really reserved.
    fn class(size: u64, align: u64) -> (u64, u64) {
        let rounded = match size {
            0..=16 => 16,
            17..=1024 => size.next_multiple_of(16),
            _ => size.next_multiple_of((size.next_power_of_two() / 8).max(16)),
        };
        (rounded, align.max(8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        Memory::new(18, ZERO_BYTES)
    }

    #[test]
    fn null_reads_zero_and_refuses_stores() {
        let mut memory = memory();
        assert_eq!(memory.load(0, 32767, 8), 0);
        assert_eq!(memory.load(0, -32768, 8), 0);
        assert!(!memory.store(0, 8, 8, 1));
        assert!(!memory.store(ZERO_BYTES - 1, 0, 1, 1));
        assert!(!memory.store((1 << 18) - ZERO_BYTES, 0, 1, 1));
    }

    #[test]
    fn loads_wrap_into_the_region_and_wild_stores_are_refused() {
        let mut memory = memory();
        assert!(!memory.store(0xdead_0000_0000_0000 | (ZERO_BYTES + 8), 0, 4, 0x1122_3344));
        assert!(memory.store(ZERO_BYTES + 8, 0, 4, 0x1122_3344));
        assert_eq!(memory.read_u32(0xdead_0000_0000_0000 | (ZERO_BYTES + 8)), 0x1122_3344);
    }

    #[test]
    fn freed_memory_is_reused_last_in_first_out_and_zeroed() {
        let mut memory = memory();
        let first = memory.alloc(40, 8).unwrap();
        let second = memory.alloc(40, 8).unwrap();
        memory.write_u64(second, 7);
        memory.free(first, 40, 8);
        memory.free(second, 40, 8);
        assert_eq!(memory.alloc(40, 8), Some(second));
        assert_eq!(memory.read_u64(second), 0);
        assert_eq!(memory.alloc(40, 8), Some(first));
    }

    #[test]
    fn a_full_region_says_so() {
        assert_eq!(memory().alloc(1 << 18, 8), None);
    }

    #[test]
    fn large_regions_begin_at_large_pages_and_are_zero() {
        let mut memory = Memory::new(LARGE_LOG2, ZERO_BYTES);
        assert_eq!(memory.base().addr() % LARGE_PAGE, 0);
        let end = (1 << LARGE_LOG2) - ZERO_BYTES - 8;
        assert_eq!((memory.read_u64(end), memory.store(end, 0, 8, 7), memory.read_u64(end)), (0, true, 7));
    }

    #[test]
    fn slices_stay_inside() {
        let mut memory = memory();
        assert!(memory.bytes((1 << 18) - 4, 8).is_none());
        assert!(memory.bytes(u64::MAX, 8).is_none());
        assert!(memory.bytes_mut(8, 8).is_none());
        assert!(memory.bytes_mut(ZERO_BYTES, 8).is_some());
    }
}
