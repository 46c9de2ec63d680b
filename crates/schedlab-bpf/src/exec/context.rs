//! The border between a running program and its host.
//!
//! [`CallContext`] is what helpers and kfuncs get: the host's state, the region, the maps, and a way to call
//! further programs of the same instance. Behind it is one raw context that native code reads. Aliasing rule:
//! nobody keeps a reference into the raw context or the host across a call into a program; every reference
//! is derived anew from the raw pointer through `&mut CallContext`, so the borrow checker enforces it on the
//! host's side, and the engine's side holds raw pointers only.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fault::{Fault, FaultKind};
use super::state::State;
use super::target::Entry;
use crate::memory::Memory;

/// What native code reads and writes directly. What every call touches comes first.
#[repr(C)]
pub(crate) struct RawContext {
    /// Start of the region.
    pub base: *mut u8,
    /// Frame pointer of the main function that runs on this level, or that begins next while nothing runs.
    pub frame: u64,
    /// What runs: [`LEVEL`], [`NESTED`], [`FAULTED`]. 0 if nothing does.
    pub running: u64,
    /// Instructions executed by what runs on this level, when it last called something; 0 before it did. So
    /// whoever is called from a program finds this or [`LEVEL`] not to be 0.
    pub pending: u64,
    /// Instructions left to what runs on this level, when it began. The budget while nothing runs.
    pub left: i64,
    pub now: u64,
    pub cpu: u64,
    pub current: u64,
    /// The host of the call in progress.
    pub host: *mut (),
    /// Instructions of finished calls from the host.
    pub executed: u64,
    pub nr_cpus: u32,
    /// Not zero when a tail call was taken: the function that made it must return what it got.
    pub tailed: u64,
    /// Native code of what is bound to each slot, where it is to be used.
    pub slots: [Option<MainEntry>; SLOTS],
    /// The programs bound to slots.
    pub bound: [Option<u32>; SLOTS],
    pub state: State,
}

/// How many programs can be bound to be called the short way.
pub const SLOTS: usize = 48;

/// From the context to the region of its instance.
pub(crate) const REGION_OFFSET: usize = crate::memory::ROOM_BYTES + crate::memory::GUARD_BYTES;
/// The calls in progress, in [`RawContext::running`].
pub(crate) const LEVEL: u64 = 0xffff;
/// Calls were counted in [`LEVEL`], in [`RawContext::running`]: there is something to settle.
pub(crate) const NESTED: u64 = 1 << 16;
/// The program has to end, in [`RawContext::running`].
pub(crate) const FAULTED: u64 = 1 << 32;
/// Where native code finds a 32-bit word that is not zero if the program has to end.
pub(crate) const FAULTED_OFFSET: i32 = std::mem::offset_of!(RawContext, running) as i32 + 4;

impl RawContext {
    /// Nested calls in progress.
    #[inline]
    pub(crate) fn level(&self) -> u32 {
        (self.running & LEVEL) as u32 + u32::from(self.pending != 0)
    }

    /// Whether the program has to end.
    #[inline]
    pub(crate) fn faulted(&self) -> bool {
        self.running & FAULTED != 0
    }

    /// Instructions executed so far.
    pub(crate) fn executed_now(&self) -> u64 {
        let before = self.executed.wrapping_add((self.state.budget as i64).wrapping_sub(self.left) as u64);
        before.wrapping_add(self.pending)
    }

    /// The outermost call is over: what was taken from the budget is accounted for.
    pub(crate) fn settle(&mut self) {
        let budget = self.state.budget as i64;
        self.executed = self.executed.wrapping_add(budget.wrapping_sub(self.left) as u64);
        self.left = budget;
        self.running &= FAULTED;
    }
}

/// What a function gave.
#[repr(C)]
pub(crate) struct Ran {
    /// r0.
    pub value: u64,
    /// Instructions executed.
    pub executed: u64,
}

/// The main function of a program: context, the first three words where r1 points, r1. Words that are handed on to a
/// host function lie where that one takes its first arguments.
pub(crate) type MainEntry = unsafe extern "C" fn(*mut RawContext, u64, u64, u64, u64) -> Ran;

/// What a host function gives back to native code.
#[repr(C)]
pub(crate) struct Answer {
    /// r0.
    pub value: u64,
    /// Address of the context, and [`ENDS`] if the program has to end. So native code needs no register that outlives
    /// the call to find the context again, and no access to memory to know whether it goes on.
    pub context: u64,
}

/// The program has to end, in [`Answer::context`]: a context lies at an even address.
pub(crate) const ENDS: u64 = 1;

impl Answer {
    /// The program goes on with this in r0.
    #[inline]
    pub(crate) fn goes_on(raw: *mut RawContext, value: u64) -> Answer {
        Answer { value, context: raw.expose_provenance() as u64 }
    }

    /// The program has to end: a fault has been raised.
    #[inline]
    pub(crate) fn ends(raw: *mut RawContext) -> Answer {
        Answer { value: 0, context: raw.expose_provenance() as u64 | ENDS }
    }

    /// Whether the program has to end.
    pub(crate) fn is_end(&self) -> bool {
        self.context & ENDS != 0
    }
}

/// Marks the running program as to be ended; the first reason stays.
pub(crate) fn raise(raw: &mut RawContext, kind: FaultKind) {
    raw.running |= FAULTED;
    raw.state.fault.get_or_insert(kind);
}

/// The host's side of a call: its state, the region and the maps.
pub struct CallContext<'a, H> {
    raw: *mut RawContext,
    host: PhantomData<&'a mut H>,
}

impl<'a, H: 'static> CallContext<'a, H> {
    /// # Safety
    /// `raw` must be valid and its `host` point to a live `H` for `'a`, with no other reference to either.
    pub(crate) unsafe fn from_raw(raw: *mut RawContext) -> CallContext<'a, H> {
        CallContext { raw, host: PhantomData }
    }

    #[inline]
    fn raw(&self) -> &RawContext {
        // SAFETY: valid for the lifetime of this value; shared while `self` is borrowed.
        unsafe { &*self.raw }
    }

    #[inline]
    pub(crate) fn raw_mut(&mut self) -> &mut RawContext {
        // SAFETY: valid for the lifetime of this value, and exclusive while `self` is borrowed.
        unsafe { &mut *self.raw }
    }

    #[inline]
    pub(crate) fn state(&mut self) -> &mut State {
        &mut self.raw_mut().state
    }

    /// Possible CPUs.
    #[inline]
    #[must_use]
    pub fn nr_cpus(&self) -> u32 {
        self.raw().nr_cpus
    }

    /// The host's own state.
    #[inline]
    pub fn host(&mut self) -> &mut H {
        // SAFETY: `from_raw` promised a live host; the borrow of `self` keeps it exclusive.
        unsafe { &mut *(*self.raw).host.cast::<H>() }
    }

    /// The region.
    #[inline]
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.state().memory
    }

    /// Host and region at once.
    #[inline]
    pub fn parts(&mut self) -> (&mut H, &mut Memory) {
        // SAFETY: as in `host`; host and region are different objects.
        unsafe { (&mut *(*self.raw).host.cast::<H>(), &mut (*self.raw).state.memory) }
    }

    /// Time as programs read it, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.raw().now
    }

    /// Sets the time programs read, in nanoseconds.
    #[inline]
    pub fn set_now(&mut self, nanos: u64) {
        self.raw_mut().now = nanos;
    }

    /// The current CPU.
    #[inline]
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.raw().cpu as u32
    }

    /// Sets the current CPU: what per-CPU maps and `bpf_get_smp_processor_id()` use.
    #[inline]
    pub fn set_cpu(&mut self, cpu: u32) {
        assert!(cpu < self.nr_cpus(), "CPU {cpu} is not among the possible ones");
        self.raw_mut().cpu = u64::from(cpu);
    }

    /// Address of the current task.
    #[inline]
    #[must_use]
    pub fn current(&self) -> u64 {
        self.raw().current
    }

    /// Sets the address of the current task.
    #[inline]
    pub fn set_current(&mut self, address: u64) {
        self.raw_mut().current = address;
    }

    /// Instructions this instance has executed so far.
    #[inline]
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.raw().executed_now()
    }

    /// Calls program `program` (an index into the image) with the arguments of a `struct_ops` member: r1
    /// points to an array of them. Kfuncs may call it while another program of the instance runs.
    ///
    /// # Errors
    /// A fault, after which the instance can be used further.
    #[inline]
    pub fn call(&mut self, program: usize, arguments: &[u64]) -> Result<u64, Fault> {
        // SAFETY: the context is live, and `&mut self` ends every other borrow of it and the host.
        unsafe { super::run::call_program(self.raw, program, arguments) }
    }

    /// The same for the program that [`Instance::bind`](super::Instance::bind) put into a slot, with up to three
    /// arguments, on the shortest way; what is left over of the three may be anything. 0 without a program, and what
    /// `fault` makes of a fault, after which the instance can be used further.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    pub fn call_slot(
        &mut self,
        slot: usize,
        arguments: [u64; 3],
        fault: impl FnOnce(&mut Self, &Fault) -> u64,
    ) -> u64 {
        // SAFETY: as for `call`.
        unsafe { super::run::call_slot(self.raw, slot, arguments, |raised| fault(self, &raised)) }
    }

    /// Calls a program's main function with r1 to r5.
    pub(crate) fn call_entry(&mut self, program: usize, arguments: [u64; 5]) -> Result<u64, Fault> {
        let entry = self.raw().state.code.linked.programs[program].entry;
        self.call_function(super::link::function_address(entry), arguments)
    }

    /// Calls a function a program handed out, as an entry of its own: its fault does not end the caller.
    pub(crate) fn call_function(&mut self, function: u64, arguments: [u64; 5]) -> Result<u64, Fault> {
        let outermost = self.raw().level() == 0;
        // SAFETY: as for `call`.
        unsafe {
            let value = super::run::call_function(self.raw, function, arguments).unwrap_or(0);
            super::run::finish(self.raw, None, outermost, value)
        }
    }

    /// Calls a function a program handed out (its address in a register), with r1 to r5.
    ///
    /// A fault in it ends the calling program as well: return at once after an error.
    ///
    /// # Errors
    /// The fault has been raised, or one was raised before.
    pub fn callback(&mut self, function: u64, arguments: [u64; 5]) -> Result<u64, Faulted> {
        let outermost = self.raw().level() == 0;
        // SAFETY: as for `call`.
        let result = unsafe { super::run::call_function(self.raw, function, arguments) };
        if outermost {
            self.raw_mut().settle();
        }
        result
    }

    /// Eight bytes that belong to the next nested call, for an argument passed by address.
    pub(crate) fn scratch(&mut self) -> u64 {
        super::layout::scratch(self.raw().level())
    }

    /// Ends the running program: it does not continue after the current helper or kfunc returns.
    #[cold]
    pub fn fault(&mut self, kind: FaultKind) -> Faulted {
        raise(self.raw_mut(), kind);
        Faulted
    }
}

/// A fault has been raised; what remains is to return, and to return this.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulted;

/// What a host function may return: the value of r0, nothing, or a fault.
pub trait Outcome {
    /// The value of r0.
    ///
    /// # Errors
    /// The program has to end: raises the fault if that has not been done.
    fn register<H: 'static>(self, context: &mut CallContext<'_, H>) -> Result<u64, Faulted>;
}

impl Outcome for u64 {
    #[inline]
    fn register<H: 'static>(self, _: &mut CallContext<'_, H>) -> Result<u64, Faulted> {
        Ok(self)
    }
}

impl Outcome for i64 {
    #[inline]
    fn register<H: 'static>(self, _: &mut CallContext<'_, H>) -> Result<u64, Faulted> {
        Ok(self as u64)
    }
}

impl Outcome for i32 {
    #[inline]
    fn register<H: 'static>(self, _: &mut CallContext<'_, H>) -> Result<u64, Faulted> {
        Ok(i64::from(self) as u64)
    }
}

impl Outcome for u32 {
    #[inline]
    fn register<H: 'static>(self, _: &mut CallContext<'_, H>) -> Result<u64, Faulted> {
        Ok(u64::from(self))
    }
}

impl Outcome for bool {
    #[inline]
    fn register<H: 'static>(self, _: &mut CallContext<'_, H>) -> Result<u64, Faulted> {
        Ok(u64::from(self))
    }
}

impl Outcome for () {
    #[inline]
    fn register<H: 'static>(self, _: &mut CallContext<'_, H>) -> Result<u64, Faulted> {
        Ok(0)
    }
}

impl<T: Outcome> Outcome for Result<T, FaultKind> {
    #[inline]
    fn register<H: 'static>(self, context: &mut CallContext<'_, H>) -> Result<u64, Faulted> {
        match self {
            Ok(value) => value.register(context),
            Err(kind) => Err(context.fault(kind)),
        }
    }
}

impl<T: Outcome> Outcome for Result<T, Faulted> {
    #[inline]
    fn register<H: 'static>(self, context: &mut CallContext<'_, H>) -> Result<u64, Faulted> {
        self?.register(context)
    }
}

/// A function or a closure without captures that programs can call: `fn(&mut CallContext<H>, u64, ...)`,
/// up to five `u64`, returning any [`Outcome`].
pub trait HostFn<H, Signature>: Copy + 'static {
    /// Its entry point for native code.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "only the engine calls it")]
    fn entry(self) -> Entry;
}

/// A value of a type that has exactly one, so that a function item can be named by type alone.
fn conjure<F: Copy + 'static>() -> F {
    const { assert!(size_of::<F>() == 0, "a host function must not capture anything") };
    // SAFETY: the type has no bytes, and a value of it existed when it was registered; it is `Copy`.
    unsafe { std::ptr::NonNull::<F>::dangling().read() }
}

/// Runs a host function's body; a panic ends the program and resumes when the outermost call returns.
///
/// # Safety
/// `raw` must be the live context of a call entered with a host of type `H`.
#[inline]
unsafe fn guard<H: 'static>(
    raw: *mut RawContext,
    body: impl FnOnce(&mut CallContext<'_, H>) -> Result<u64, Faulted>,
) -> Answer {
    // SAFETY: passed on to the caller; the context ends with this function.
    let mut context = unsafe { CallContext::<H>::from_raw(raw) };
    match catch_unwind(AssertUnwindSafe(|| body(&mut context))) {
        Ok(Ok(value)) => return Answer::goes_on(raw, value),
        Ok(Err(Faulted)) => {}
        Err(payload) => panicked(context.raw_mut(), payload),
    }
    Answer::ends(raw)
}

#[cold]
fn panicked(raw: &mut RawContext, payload: Box<dyn Any + Send>) {
    raw.state.panic.get_or_insert(payload);
    raise(raw, FaultKind::Host("the host panicked".to_owned()));
}

macro_rules! host_fn {
    ($variant:ident, $name:ident $(, $arg:ident: $ty:ty)*) => {
        unsafe extern "C" fn $name<H: 'static, F, R: Outcome>(raw: *mut RawContext $(, $arg: $ty)*) -> Answer
        where
            F: Fn(&mut CallContext<'_, H> $(, $ty)*) -> R + Copy + 'static,
        {
            // SAFETY: only the engine calls this, with its own live context.
            unsafe {
                guard::<H>(raw, |context| {
                    let value = conjure::<F>()(context $(, $arg)*);
                    value.register(context)
                })
            }
        }

        impl<H: 'static, F, R: Outcome> HostFn<H, fn($($ty),*) -> R> for F
        where
            F: Fn(&mut CallContext<'_, H> $(, $ty)*) -> R + Copy + 'static,
        {
            #[expect(private_interfaces, reason = "only the engine calls it")]
            fn entry(self) -> Entry {
                Entry::$variant($name::<H, F, R>)
            }
        }
    };
}

host_fn!(Args0, entry0);
host_fn!(Args1, entry1, a: u64);
host_fn!(Args2, entry2, a: u64, b: u64);
host_fn!(Args3, entry3, a: u64, b: u64, c: u64);
host_fn!(Args4, entry4, a: u64, b: u64, c: u64, d: u64);
host_fn!(Args5, entry5, a: u64, b: u64, c: u64, d: u64, e: u64);
