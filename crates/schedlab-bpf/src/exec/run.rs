//! Entering programs: levels of nested calls, stacks, budget, and what happens after a fault.

use super::WORDS;
use super::context::{Answer, FAULTED, Faulted, NESTED, RawContext, raise};
use super::fault::{Fault, FaultKind};
use super::interp;
use super::layout::{ARGUMENTS_MAX, LEVELS_MAX, frame_pointer};

/// Tail calls in one run of a program, as the kernel's `MAX_TAIL_CALL_CNT`.
const TAIL_CALLS_MAX: u32 = 33;

/// Runs a function at the next level and returns r0; faults stay raised. `words` are the arguments of a
/// `struct_ops` member.
///
/// # Safety
/// `raw` must be the live context of an instance, with a live host, and nobody else may hold a reference
/// into either while this runs.
unsafe fn enter(raw: *mut RawContext, function: u32, args: &[u64; 5], words: Option<[u64; WORDS]>) -> u64 {
    // SAFETY: the pointer is live; the reference ends before native code or the interpreter starts.
    unsafe {
        let level = (*raw).level();
        if level >= LEVELS_MAX {
            raise(&mut *raw, FaultKind::Nested(LEVELS_MAX));
            return 0;
        }
        let levels = u64::from((*raw).pending != 0);
        run(raw, function, frame_pointer(level), args, words, levels)
    }
}

/// Runs a function within what runs, or as the outermost, and takes what it executes from the budget. `levels`
/// is 1 if it is called from a program whose frames are to be kept.
///
/// # Safety
/// As for [`enter`]; `frame` is the frame pointer of free stack.
unsafe fn run(
    raw: *mut RawContext,
    function: u32,
    frame: u64,
    args: &[u64; 5],
    words: Option<[u64; WORDS]>,
    levels: u64,
) -> u64 {
    // SAFETY: as for `enter`; the entry belongs to code the instance keeps alive.
    unsafe {
        let context = &mut *raw;
        let code: &super::compiled::Code = &context.state.code;
        let native = if context.state.native { code.native_entry(function) } else { None };
        let (mut args, mut values) = (*args, [0; WORDS]);
        if code.linked.functions[function as usize].main {
            // Both engines take a context for an address in the region.
            args[0] &= code.layout.size() - 1;
            let memory = &context.state.memory;
            values = words.unwrap_or_else(|| [0, 8, 16].map(|offset| memory.load(args[0], offset, 8)));
        }
        let pending = std::mem::take(&mut context.pending);
        let outer = std::mem::replace(&mut context.frame, frame);
        context.left = context.left.wrapping_sub(pending as i64);
        context.running = (context.running | NESTED) + levels;
        let ran = match native {
            Some(entry) => entry.call(raw, frame, &args, values),
            None => interp::run(raw, function, frame, args, values, 0),
        };
        let context = &mut *raw;
        context.running -= levels;
        context.left = context.left.wrapping_sub(ran.executed as i64).wrapping_add(pending as i64);
        context.pending = pending;
        context.frame = outer;
        ran.value
    }
}

/// Calls a program with the arguments of a `struct_ops` member.
///
/// # Safety
/// As for [`enter`].
#[inline]
pub(crate) unsafe fn call_program(
    raw: *mut RawContext,
    program: usize,
    arguments: &[u64],
) -> Result<u64, Fault> {
    assert!(arguments.len() <= ARGUMENTS_MAX, "at most {ARGUMENTS_MAX} arguments");
    // SAFETY: passed on to the caller; references end before the program runs.
    unsafe {
        let outermost = (*raw).level() == 0;
        if (*raw).faulted() {
            return Err(take_fault(raw, outermost));
        }
        let at = frame_pointer((*raw).level().min(LEVELS_MAX - 1));
        let code: &super::compiled::Code = &(*raw).state.code;
        let entry = code.linked.programs[program].entry;
        let slots = (*raw).base.add(at as usize).cast::<u64>();
        if code.linked.functions[entry as usize].array {
            // The slots lie inside the region: see `layout`.
            slots.copy_from_nonoverlapping(arguments.as_ptr(), arguments.len());
        }
        let mut words = [0; WORDS];
        for (word, argument) in words.iter_mut().zip(arguments) {
            *word = *argument;
        }
        // A run within another has its own tail calls.
        let outer = (!outermost).then(|| std::mem::replace(&mut (*raw).state.tail_calls, (u64::MAX, 0, 0)));
        let value = enter(raw, entry, &[at, 0, 0, 0, 0], Some(words));
        if let Some(outer) = outer {
            (*raw).state.tail_calls = outer;
        }
        finish(raw, Some(program), outermost, value)
    }
}

/// Calls the program bound to a slot with up to three arguments: from the host and in native code without further ado.
/// A fault becomes a value here, so that what went well need not be told from what did not a second time.
///
/// # Safety
/// As for [`enter`].
#[inline(always)]
pub(crate) unsafe fn call_slot(
    raw: *mut RawContext,
    slot: usize,
    [a, b, c]: [u64; WORDS],
    fault: impl FnOnce(Box<Fault>) -> u64,
) -> u64 {
    const AT: u64 = frame_pointer(0);
    // SAFETY: the pointer is live; the reference ends before native code starts. The entry belongs to code the
    // instance keeps alive, and writes the arguments to memory if it needs them there.
    unsafe {
        let context = &mut *raw;
        if let Some(entry) = context.slots[slot]
            && context.running | context.pending == 0
        {
            let ran = entry(raw, a, b, c, AT);
            let context = &mut *raw;
            context.executed += ran.executed;
            if context.running == 0 {
                return ran.value;
            }
            return end_slot(raw, slot, ran.value).unwrap_or_else(fault);
        }
        call_nested(raw, slot, a, b, c).unwrap_or_else(fault)
    }
}

/// Arguments come in registers: whoever has them there need not write them to memory.
///
/// # Safety
/// As for [`enter`].
#[cold]
unsafe fn call_nested(raw: *mut RawContext, slot: usize, a: u64, b: u64, c: u64) -> Result<u64, Box<Fault>> {
    // SAFETY: passed on to the caller.
    unsafe {
        let Some(program) = (*raw).bound[slot] else { return Ok(0) };
        call_program(raw, program as usize, &[a, b, c]).map_err(Box::new)
    }
}

/// The end of a call that called others or raised a fault; its own instructions are accounted for.
///
/// # Safety
/// As for [`enter`].
#[cold]
unsafe fn end_slot(raw: *mut RawContext, slot: usize, value: u64) -> Result<u64, Box<Fault>> {
    // SAFETY: passed on to the caller.
    unsafe {
        let program = (*raw).bound[slot].map(|program| program as usize);
        finish(raw, program, true, value).map_err(Box::new)
    }
}

/// What an ended call gives: its value, unless a fault is raised. The outermost settles the budget.
///
/// # Safety
/// As for [`enter`].
pub(crate) unsafe fn finish(
    raw: *mut RawContext,
    program: Option<usize>,
    outermost: bool,
    value: u64,
) -> Result<u64, Fault> {
    // SAFETY: passed on to the caller.
    unsafe {
        let value = if (*raw).faulted() { caught(raw, program) } else { Some(value) };
        if outermost {
            (*raw).settle();
        }
        value.ok_or_else(|| take_fault(raw, outermost))
    }
}

/// The value of a program that threw; `None` if another fault is raised, or one in its callback.
///
/// # Safety
/// As for [`enter`].
#[cold]
unsafe fn caught(raw: *mut RawContext, program: Option<usize>) -> Option<u64> {
    // SAFETY: passed on to the caller; references end before the callback runs.
    unsafe {
        let Some(FaultKind::Thrown(cookie)) = (*raw).state.fault else { return None };
        (*raw).running &= !FAULTED;
        (*raw).state.fault = None;
        (*raw).state.fault_place = None;
        let code: &super::compiled::Code = &(*raw).state.code;
        let callback = program.and_then(|program| code.linked.programs[program].exception);
        let Some(callback) = callback else { return Some(cookie) };
        let value = enter(raw, callback, &[cookie, 0, 0, 0, 0], None);
        (!(*raw).faulted()).then_some(value)
    }
}

/// `bpf_tail_call()`: runs the program in a slot of the map in the caller's place, and marks that in the
/// context; does nothing if the slot is empty or after too many tail calls.
///
/// # Safety
/// As for [`enter`]; `frame` is the caller's frame pointer.
pub(crate) unsafe extern "C" fn tail_call(
    raw: *mut RawContext,
    frame: u64,
    argument: u64,
    map: u64,
    slot: u64,
) -> Answer {
    // SAFETY: passed on to the caller.
    unsafe {
        let value = goes_on_in(raw, frame, argument, map, slot);
        if (*raw).faulted() { Answer::ends(raw) } else { Answer::goes_on(raw, value) }
    }
}

/// The value of [`tail_call`].
///
/// # Safety
/// As there.
unsafe fn goes_on_in(raw: *mut RawContext, frame: u64, argument: u64, map: u64, slot: u64) -> u64 {
    // SAFETY: passed on to the caller; references end before the program runs.
    unsafe {
        let context = &mut *raw;
        let code = std::sync::Arc::clone(&context.state.code);
        let Some(map) = code.layout.map_at(map) else {
            let what = format!("{map:#x} is no map");
            raise(context, FaultKind::Call { callee: "bpf_tail_call", what });
            return 0;
        };
        let Some(program) = context.state.maps.program(map, slot as u32) else { return 0 };
        let (executed, level) = (context.executed, context.level());
        let made = match context.state.tail_calls {
            (run, at, made) if (run, at) == (executed, level) => made,
            _ => 0,
        };
        if made == TAIL_CALLS_MAX || context.state.tail_calls_open == TAIL_CALLS_MAX {
            return 0;
        }
        context.state.tail_calls_open += 1;
        context.state.tail_calls = (executed, level, made + 1);
        let entry = code.linked.programs[program as usize].entry;
        let arguments = [argument, 0, 0, 0, 0];
        // Deep frames have no room for a whole program below them: it gets a level of its own.
        let value = if frame != frame_pointer(level.saturating_sub(1)) {
            enter(raw, entry, &arguments, None)
        } else {
            run(raw, entry, frame, &arguments, None, 0)
        };
        (*raw).state.tail_calls_open -= 1;
        let value = if (*raw).faulted() { caught(raw, Some(program as usize)).unwrap_or(0) } else { value };
        (*raw).tailed = u64::from(!(*raw).faulted());
        value
    }
}

/// Calls a function by the address a program knows it by.
///
/// # Safety
/// As for [`enter`].
pub(crate) unsafe fn call_function(
    raw: *mut RawContext,
    address: u64,
    arguments: [u64; 5],
) -> Result<u64, Faulted> {
    // SAFETY: passed on to the caller; references end before the function runs.
    unsafe {
        if (*raw).faulted() {
            return Err(Faulted);
        }
        let code: &super::compiled::Code = &(*raw).state.code;
        let Some(function) = code.linked.function_at(address) else {
            raise(&mut *raw, FaultKind::NoFunction(address));
            return Err(Faulted);
        };
        if (*raw).level() > 0 && (*raw).left <= (*raw).pending as i64 {
            // Loops of helpers jump nowhere back: they end here.
            let budget = (*raw).state.budget;
            raise(&mut *raw, FaultKind::Budget { budget });
            return Err(Faulted);
        }
        let value = enter(raw, function, &arguments, None);
        if (*raw).faulted() { Err(Faulted) } else { Ok(value) }
    }
}

/// Takes the raised fault out of the context, so that the instance can go on.
///
/// # Safety
/// As for [`enter`].
#[cold]
pub(crate) unsafe fn take_fault(raw: *mut RawContext, outermost: bool) -> Fault {
    // SAFETY: passed on to the caller.
    let context = unsafe { &mut *raw };
    context.running &= !FAULTED;
    let kind = context.state.fault.take().unwrap_or(FaultKind::Host("ended by the host".to_owned()));
    let place = context.state.fault_place.take();
    if outermost && let Some(payload) = context.state.panic.take() {
        std::panic::resume_unwind(payload);
    }
    context.state.code.linked.fault(kind, place)
}
