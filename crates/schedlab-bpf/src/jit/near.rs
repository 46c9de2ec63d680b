//! Memory for native code close to our own machine code. Processors predict calls and returns between places that
//! lie gigabytes apart worse than others, and what lies within 2 GiB can be called directly. Not here: what is
//! written there (the rest of `jit`).

use std::io;
use std::ptr::NonNull;

use cranelift_jit::{BranchProtection, JITMemoryKind, JITMemoryProvider};
use cranelift_module::{ModuleError, ModuleResult};

/// Bytes asked of the system at once, where no function is larger.
const CHUNK_BYTES: usize = 1 << 20;
/// Farthest that anything of a chunk may lie from any machine code of ours, well below what a direct call reaches.
const REACH_BYTES: usize = 1 << 30;

/// Executable memory within [`REACH_BYTES`] of this function, below our own code: what is above belongs to the heap.
pub(super) struct NearMemory {
    chunks: Vec<Chunk>,
}

/// Pages of our own; first writable, then executable.
struct Chunk {
    start: NonNull<u8>,
    bytes: usize,
    used: usize,
}

// SAFETY: the pages belong to this value alone, whichever thread has it.
unsafe impl Send for Chunk {}

impl NearMemory {
    /// `None` where the system has no such room, or the processor must be told of new code.
    pub(super) fn new() -> Option<NearMemory> {
        if cfg!(not(target_arch = "x86_64")) {
            return None;
        }
        Some(NearMemory { chunks: vec![Chunk::near(CHUNK_BYTES)?] })
    }
}

/// Whether code in [`NearMemory`] can call what lies there directly.
pub(super) fn is_near(code: *const u8) -> bool {
    code.addr().abs_diff(home()) < REACH_BYTES
}

/// Where our own machine code lies, about.
fn home() -> usize {
    is_near as *const () as usize
}

/// The name by which native code calls what lies at an address with so many arguments.
pub(super) fn symbol(code: *const u8, arguments: usize) -> String {
    format!("{arguments}@{}", code.expose_provenance())
}

/// What a [`symbol`] stands for.
pub(super) fn address(symbol: &str) -> Option<*const u8> {
    let (_, address) = symbol.split_once('@')?;
    Some(std::ptr::with_exposed_provenance(address.parse().ok()?))
}

impl JITMemoryProvider for NearMemory {
    fn allocate(&mut self, size: usize, align: u64, kind: JITMemoryKind) -> io::Result<*mut u8> {
        if !matches!(kind, JITMemoryKind::Executable) {
            return Err(io::Error::other("programs have no data here"));
        }
        let align = align as usize;
        if let Some(place) = self.chunks.last_mut().and_then(|chunk| chunk.take(size, align)) {
            return Ok(place);
        }
        let bytes = size.next_multiple_of(CHUNK_BYTES);
        let mut chunk = Chunk::near(bytes).ok_or_else(|| io::Error::other("no room near our own code"))?;
        let place = chunk.take(size, align).ok_or_else(|| io::Error::other("an alignment beyond a page"))?;
        self.chunks.push(chunk);
        Ok(place)
    }

    unsafe fn free_memory(&mut self) {
        self.chunks.clear();
    }

    fn finalize(&mut self, _: BranchProtection) -> ModuleResult<()> {
        let sealed = self.chunks.iter_mut().try_for_each(Chunk::seal);
        sealed.map_err(|err| ModuleError::Allocation { err })
    }
}

impl Chunk {
    /// The first free room below our own code.
    fn near(bytes: usize) -> Option<Chunk> {
        let highest = home() / CHUNK_BYTES * CHUNK_BYTES;
        let lowest = home().saturating_sub(REACH_BYTES);
        let places = (1..).map_while(|step| highest.checked_sub(step * CHUNK_BYTES + bytes));
        places.take_while(|place| *place > lowest).find_map(|place| Chunk::at(place, bytes))
    }

    /// Pages at an address, if they are free.
    fn at(place: usize, bytes: usize) -> Option<Chunk> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing is replaced: the pages are new, or there are none.
        let start = unsafe { libc::mmap(std::ptr::without_provenance_mut(place), bytes, access, how, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let chunk = Chunk { start: NonNull::new(start.cast())?, bytes, used: 0 };
        // A kernel before 4.17 takes the address for a mere wish.
        (start.addr() == place).then_some(chunk)
    }

    fn take(&mut self, size: usize, align: usize) -> Option<*mut u8> {
        let place = self.used.next_multiple_of(align);
        self.used = place.checked_add(size).filter(|end| *end <= self.bytes)?;
        // SAFETY: inside the pages, as was just seen.
        Some(unsafe { self.start.add(place) }.as_ptr())
    }

    /// From now on it can be executed and not written to.
    fn seal(&mut self) -> io::Result<()> {
        self.used = self.bytes;
        let access = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: our own pages.
        match unsafe { libc::mprotect(self.start.as_ptr().cast(), self.bytes, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: our own pages, which nobody uses any more: whoever frees code promises that.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn code_lies_near_our_own_and_apart_from_other_code_however_much_there_is() {
        let [mut one, mut other] = [0, 1].map(|_| NearMemory::new().expect("room near this test"));
        let mut places = Vec::new();
        for bytes in [3, CHUNK_BYTES / 2, CHUNK_BYTES, 2 * CHUNK_BYTES + 1, 5] {
            for memory in [&mut one, &mut other] {
                let place = memory.allocate(bytes, 32, JITMemoryKind::Executable).expect("room");
                assert!(is_near(place) && place.addr().is_multiple_of(32));
                places.push((place.addr(), bytes));
            }
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{places:x?}");
    }

    #[test]
    fn what_is_written_can_be_executed() {
        let mut memory = NearMemory::new().expect("room near this test");
        let place = memory.allocate(6, 16, JITMemoryKind::Executable).expect("room");
        // mov $7, %eax; ret
        let code = [0xb8, 7, 0, 0, 0, 0xc3];
        // SAFETY: six bytes of our own.
        unsafe { place.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        memory.finalize(BranchProtection::None).expect("sealed");
        // SAFETY: a function that takes nothing and returns a number, in memory that lives until the end.
        let seven = unsafe { std::mem::transmute::<*mut u8, extern "C" fn() -> u32>(place)() };
        assert_eq!(seven, 7);
    }

    #[test]
    fn a_symbol_stands_for_its_address() {
        let code = is_near as *const u8;
        assert_eq!(address(&symbol(code, 3)), Some(code));
        assert_ne!(symbol(code, 3), symbol(code, 2), "one name for each signature");
        assert_eq!(address("memcpy"), None);
    }

    #[test]
    fn there_is_no_data() {
        let mut memory = NearMemory::new().expect("room near this test");
        assert!(memory.allocate(8, 8, JITMemoryKind::Writable).is_err());
    }
}
