//! A running copy of a compiled object: region, maps, state.

use std::marker::PhantomData;
use std::sync::Arc;

use super::compiled::Code;
use super::context::{CallContext, RawContext, SLOTS};
use super::fault::Fault;
use super::layout::frame_pointer;
use super::state::{Log, Random, State};
use super::{Host, MapError};
use crate::maps::Maps;
use crate::memory::Memory;

/// One instance. It belongs to one thread at a time; different instances may run on different threads.
pub struct Instance<H> {
    /// Owned; it lies beside the region, and programs that run reach both by this pointer.
    raw: *mut RawContext,
    host: PhantomData<fn(&mut H)>,
}

// SAFETY: the context is owned by this value alone, everything in it is `Send`, and the host pointer in it is
// only used while `enter`'s borrow of a host lasts.
unsafe impl<H> Send for Instance<H> {}

impl<H> Drop for Instance<H> {
    fn drop(&mut self) {
        // SAFETY: written in `new` and dropped once. What it owns includes its own place, so it is moved out first.
        drop(unsafe { self.raw.read() });
    }
}

impl<H: Host> Instance<H> {
    pub(crate) fn new(code: &Arc<Code>, seed: u64) -> Instance<H> {
        let options = &code.options;
        let mut memory = Memory::new(options.memory_bytes_log2, code.layout.heap);
        let maps = Maps::new(&code.image.maps, &code.layout, options.nr_cpus, &mut memory);
        let (base, place) = (memory.base(), memory.room().cast::<RawContext>().as_ptr());
        let state = State {
            memory,
            code: Arc::clone(code),
            maps,
            native: code.is_native(),
            budget: options.budget,
            fault: None,
            fault_place: None,
            panic: None,
            random: Random(seed),
            log: Log::default(),
            timers: Default::default(),
            tail_calls: (0, 0, 0),
            tail_calls_open: 0,
            objects: Default::default(),
            percpu: Default::default(),
            cpumasks: Default::default(),
            collections: Default::default(),
            cpumask_previous: 0,
        };
        let raw = RawContext {
            base,
            frame: frame_pointer(0),
            running: 0,
            pending: 0,
            left: options.budget as i64,
            now: 0,
            cpu: 0,
            current: 0,
            host: std::ptr::null_mut(),
            executed: 0,
            nr_cpus: options.nr_cpus,
            tailed: 0,
            slots: [None; SLOTS],
            bound: [None; SLOTS],
            state,
        };
        // SAFETY: the room is large enough and aligned to cache lines, and lives as long as the memory in it.
        unsafe { place.write(raw) };
        Instance { raw: place, host: PhantomData }
    }

    #[inline]
    fn raw(&self) -> &RawContext {
        // SAFETY: owned; no program runs while `self` can be borrowed.
        unsafe { &*self.raw }
    }

    #[inline]
    fn state(&mut self) -> &mut State {
        // SAFETY: owned and exclusively borrowed; no program runs meanwhile.
        unsafe { &mut (*self.raw).state }
    }

    /// Begins calls on behalf of `host`: the context in which programs run and kfuncs are answered.
    #[inline]
    pub fn enter<'a>(&'a mut self, host: &'a mut H) -> CallContext<'a, H> {
        // SAFETY: owned, and both borrows last as long as the context.
        unsafe {
            (*self.raw).host = std::ptr::from_mut(host).cast();
            CallContext::from_raw(self.raw)
        }
    }

    /// Calls one program: [`Instance::enter`] and [`CallContext::call`] in one.
    ///
    /// # Errors
    /// A fault, after which the instance can be used further.
    #[inline]
    pub fn call(&mut self, program: usize, arguments: &[u64], host: &mut H) -> Result<u64, Fault> {
        self.enter(host).call(program, arguments)
    }

    /// Runs a program that takes a context in memory, as `SEC("syscall")` programs do: `bytes` is copied in,
    /// r1 points to it, and what the program left there is copied back.
    ///
    /// # Errors
    /// A fault; a region without room is one.
    pub fn call_with_bytes(&mut self, program: usize, bytes: &mut [u8], host: &mut H) -> Result<u64, Fault> {
        let size = bytes.len() as u64;
        let Some(address) = self.memory().alloc(size, 8) else {
            let linked = &self.raw().state.code.linked;
            return Err(linked.fault(super::FaultKind::OutOfMemory(size), None));
        };
        if let Some(place) = self.memory().bytes_mut(address, size) {
            place.copy_from_slice(bytes);
        }
        let result = self.enter(host).call_entry(program, [address, 0, 0, 0, 0]);
        if let Some(place) = self.memory().bytes(address, size) {
            bytes.copy_from_slice(place);
        }
        self.memory().free(address, size, 8);
        result
    }

    /// Runs with the interpreter even where native code exists.
    pub fn set_interpreted(&mut self, interpreted: bool) {
        let native = self.raw().state.code.is_native();
        self.state().native = native && !interpreted;
        self.find_slots();
    }

    /// Puts a program of the image into a slot, from which [`CallContext::call_slot`] calls it.
    ///
    /// # Panics
    /// If there is no such slot or program.
    pub fn bind(&mut self, slot: usize, program: usize) {
        assert!(program < self.raw().state.code.linked.programs.len(), "program {program} does not exist");
        // SAFETY: owned and exclusively borrowed; no program runs meanwhile.
        let raw = unsafe { &mut *self.raw };
        raw.bound[slot] = Some(program as u32);
        self.find_slots();
    }

    fn find_slots(&mut self) {
        // SAFETY: as in `bind`.
        let raw = unsafe { &mut *self.raw };
        let (code, native) = (&raw.state.code, raw.state.native);
        raw.slots = raw.bound.map(|program| code.main_entry(program.filter(|_| native)?));
    }

    /// Instructions executed so far.
    #[must_use]
    #[inline]
    pub fn executed(&self) -> u64 {
        self.raw().executed
    }

    /// The region.
    #[inline]
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.state().memory
    }

    /// What programs printed.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.raw().state.log
    }

    /// Address of the first value of an array or data section: where globals live. 0 for other maps.
    #[must_use]
    pub fn map_values(&self, map: usize) -> u64 {
        self.raw().state.code.layout.maps[map].values
    }

    /// The value for a key; for per-CPU maps the copies of all CPUs, one after another.
    ///
    /// # Errors
    /// The map has no keys, or they have another size.
    pub fn map_lookup(&mut self, map: usize, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
        let state = self.state();
        let Some(places) = state.maps.user_lookup(&state.memory, map, key)? else { return Ok(None) };
        let size = state.maps.maps[map].info.value_size;
        let copy = |place: u64| state.memory.bytes(place, size.into()).unwrap_or_default();
        Ok(Some(places.into_iter().flat_map(copy).copied().collect()))
    }

    /// Sets the value for a key, on all CPUs for per-CPU maps.
    ///
    /// # Errors
    /// A key or value of another size, or a map that is full.
    pub fn map_update(&mut self, map: usize, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        self.map_update_on(map, key, value, None)
    }

    /// The same, for per-CPU maps on one CPU only if one is given.
    ///
    /// # Errors
    /// As for [`Instance::map_update`]; a CPU that has no copy.
    pub fn map_update_on(
        &mut self,
        map: usize,
        key: &[u8],
        value: &[u8],
        cpu: Option<u32>,
    ) -> Result<(), MapError> {
        let state = self.state();
        let updated = state.maps.user_update(&mut state.memory, map, key, value, cpu);
        state.forget_freed();
        updated
    }

    /// Puts a program of the image into a slot of an array of programs; `false` if there is no such slot.
    pub fn set_program(&mut self, map: usize, slot: u32, program: usize) -> bool {
        self.state().maps.set_program(map, slot, program as u32)
    }

    /// Removes a key; `false` if it was absent.
    ///
    /// # Errors
    /// Arrays keep their elements; a key of another size.
    pub fn map_delete(&mut self, map: usize, key: &[u8]) -> Result<bool, MapError> {
        let state = self.state();
        let deleted = state.maps.user_delete(&mut state.memory, map, key);
        state.forget_freed();
        deleted
    }

    /// All keys of a map, in the order programs visit them.
    #[must_use]
    pub fn map_keys(&self, map: usize) -> Vec<Vec<u8>> {
        let state = &self.raw().state;
        state.maps.user_keys(&state.memory, map)
    }

    /// The key after `key`, or the first.
    #[must_use]
    pub fn map_next_key(&self, map: usize, key: Option<&[u8]>) -> Option<Vec<u8>> {
        let state = &self.raw().state;
        state.maps.user_next_key(&state.memory, map, key)
    }

    /// Takes the oldest submitted record of a ring buffer.
    pub fn ring_consume(&mut self, map: usize) -> Option<Vec<u8>> {
        let state = self.state();
        state.maps.ring(map)?.consume(&mut state.memory)
    }

    /// Puts a message into a user ring buffer, for `bpf_user_ringbuf_drain()`; `false` if the map is none.
    pub fn user_ring_push(&mut self, map: usize, message: &[u8]) -> bool {
        let messages = self.state().maps.user_ring(map);
        messages.is_some_and(|messages| {
            messages.push_back(message.to_vec());
            true
        })
    }

    /// Frees the storage that maps keep for a task or cgroup that is no more.
    pub fn owner_died(&mut self, address: u64) {
        let state = self.state();
        state.maps.owner_died(&mut state.memory, address);
        state.forget_freed();
    }
}
