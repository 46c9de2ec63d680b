//! Entering programs: levels of nested calls, stacks, budget, and what happens after a fault.

use super::context::Faulted;
use super::context::{RawContext, raise};
use super::fault::{Fault, FaultKind};
use super::interp;
use super::layout::{ARGUMENTS_MAX, LEVELS_MAX, frame_pointer};

/// Tail calls in one run of a program, as the kernel's `MAX_TAIL_CALL_CNT`.
const TAIL_CALLS_MAX: u32 = 33;

/// Runs a function at the next level and returns r0; faults stay raised.
///
/// # Safety
/// `raw` must be the live context of an instance, with a live host, and nobody else may hold a reference
/// into either while this runs.
#[inline]
unsafe fn enter(raw: *mut RawContext, function: u32, args: &[u64; 5]) -> u64 {
    // SAFETY: the pointer is live; the references end before native code or the interpreter starts.
    let (frame, native) = unsafe {
        let level = (*raw).level;
        if level >= LEVELS_MAX {
            raise(&mut *raw, FaultKind::Nested(LEVELS_MAX));
            return 0;
        }
        (*raw).level = level + 1;
        let code: &super::compiled::Code = &(*raw).state.code;
        let native = if (*raw).state.native { code.native_entry(function) } else { None };
        (frame_pointer(level), native)
    };
    // SAFETY: passed on; the entry belongs to code the instance keeps alive.
    unsafe {
        let value = match native {
            Some(entry) => entry.call(raw, frame, args),
            None => interp::run(raw, function, frame, *args),
        };
        (*raw).level -= 1;
        value
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
        let outermost = (*raw).level == 0;
        if outermost {
            (*raw).fuel = (*raw).state.budget as i64;
        }
        if (*raw).fault != 0 {
            return Err(take_fault(raw, outermost));
        }
        let at = frame_pointer((*raw).level.min(LEVELS_MAX - 1));
        let slots = (*raw).base.add(at as usize).cast::<u64>();
        // The slots lie inside the region: see `layout`. Short lists are written word by word: most calls
        // have one, and a copy of unknown length would be a call of memcpy.
        match *arguments {
            [a] => slots.write(a),
            [a, b] => slots.cast::<[u64; 2]>().write([a, b]),
            [a, b, c] => slots.cast::<[u64; 3]>().write([a, b, c]),
            _ => slots.copy_from_nonoverlapping(arguments.as_ptr(), arguments.len()),
        }
        let code: &super::compiled::Code = &(*raw).state.code;
        let entry = code.linked.programs[program].entry;
        // A run within another has its own tail calls.
        let outer = (!outermost).then(|| std::mem::replace(&mut (*raw).state.tail_calls, (u64::MAX, 0, 0)));
        let value = enter(raw, entry, &[at, 0, 0, 0, 0]);
        if let Some(outer) = outer {
            (*raw).state.tail_calls = outer;
        }
        if outermost {
            (*raw).state.executed += (*raw).state.budget.wrapping_sub((*raw).fuel as u64);
        }
        if (*raw).fault != 0 { ended(raw, Some(program), outermost) } else { Ok(value) }
    }
}

/// Calls a program with up to three arguments: from the host and in native code without further ado.
///
/// # Safety
/// As for [`enter`].
#[inline(always)]
pub(crate) unsafe fn call_words(
    raw: *mut RawContext,
    program: usize,
    arguments: [u64; 3],
) -> Result<u64, Box<Fault>> {
    const AT: u64 = frame_pointer(0);
    // SAFETY: the pointer is live; the reference ends before native code starts. The slots lie inside the
    // region: see `layout`. The entry belongs to code the instance keeps alive.
    unsafe {
        let context = &mut *raw;
        if let Some(Some(entry)) = context.entries.get(program).copied()
            && context.level == 0
            && context.fault == 0
        {
            let budget = context.state.budget;
            context.fuel = budget as i64;
            context.level = 1;
            context.base.add(AT as usize).cast::<[u64; 3]>().write(arguments);
            let value = entry(raw, AT, AT);
            let context = &mut *raw;
            context.level = 0;
            context.state.executed += budget.wrapping_sub(context.fuel as u64);
            return if context.fault == 0 { Ok(value) } else { boxed_end(raw, program) };
        }
        call_nested(raw, program, &arguments)
    }
}

/// # Safety
/// As for [`enter`].
#[inline(never)]
unsafe fn call_nested(raw: *mut RawContext, program: usize, arguments: &[u64]) -> Result<u64, Box<Fault>> {
    // SAFETY: passed on to the caller.
    unsafe { call_program(raw, program, arguments).map_err(Box::new) }
}

/// # Safety
/// As for [`enter`].
#[cold]
unsafe fn boxed_end(raw: *mut RawContext, program: usize) -> Result<u64, Box<Fault>> {
    // SAFETY: passed on to the caller.
    unsafe { ended(raw, Some(program), true).map_err(Box::new) }
}

/// What an ended program gives: an exception its value, after its callback if it has one, all else a fault.
///
/// # Safety
/// As for [`enter`].
#[cold]
pub(crate) unsafe fn ended(
    raw: *mut RawContext,
    program: Option<usize>,
    outermost: bool,
) -> Result<u64, Fault> {
    // SAFETY: passed on to the caller.
    unsafe {
        let before = (*raw).fuel;
        let value = caught(raw, program);
        if outermost {
            (*raw).state.executed += before.wrapping_sub((*raw).fuel) as u64;
        }
        value.ok_or_else(|| take_fault(raw, outermost))
    }
}

/// The value of a program that threw; `None` if another fault is raised, or one in its callback.
///
/// # Safety
/// As for [`enter`].
unsafe fn caught(raw: *mut RawContext, program: Option<usize>) -> Option<u64> {
    // SAFETY: passed on to the caller; references end before the callback runs.
    unsafe {
        let Some(FaultKind::Thrown(cookie)) = (*raw).state.fault else { return None };
        (*raw).fault = 0;
        (*raw).state.fault = None;
        (*raw).state.fault_place = None;
        let code: &super::compiled::Code = &(*raw).state.code;
        let callback = program.and_then(|program| code.linked.programs[program].exception);
        let Some(callback) = callback else { return Some(cookie) };
        let value = enter(raw, callback, &[cookie, 0, 0, 0, 0]);
        ((*raw).fault == 0).then_some(value)
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
) -> u64 {
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
        let (executed, level) = (context.state.executed, context.level);
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
            enter(raw, entry, &arguments)
        } else {
            match code.native_entry(entry).filter(|_| context.state.native) {
                Some(native) => native.call(raw, frame, &arguments),
                None => interp::run(raw, entry, frame, arguments),
            }
        };
        (*raw).state.tail_calls_open -= 1;
        let value = if (*raw).fault == 0 { value } else { caught(raw, Some(program as usize)).unwrap_or(0) };
        (*raw).tailed = u64::from((*raw).fault == 0);
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
        if (*raw).fault != 0 {
            return Err(Faulted);
        }
        let code: &super::compiled::Code = &(*raw).state.code;
        let Some(function) = code.linked.function_at(address) else {
            raise(&mut *raw, FaultKind::NoFunction(address));
            return Err(Faulted);
        };
        let outermost = (*raw).level == 0;
        if outermost {
            (*raw).fuel = (*raw).state.budget as i64;
        } else if (*raw).fuel <= 0 {
            // Loops of helpers jump nowhere back: they end here.
            let budget = (*raw).state.budget;
            raise(&mut *raw, FaultKind::Budget { budget });
            return Err(Faulted);
        }
        let value = enter(raw, function, &arguments);
        if outermost {
            (*raw).state.executed += (*raw).state.budget.wrapping_sub((*raw).fuel as u64);
        }
        if (*raw).fault != 0 { Err(Faulted) } else { Ok(value) }
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
    context.fault = 0;
    let kind = context.state.fault.take().unwrap_or(FaultKind::Host("ended by the host".to_owned()));
    let place = context.state.fault_place.take();
    if outermost && let Some(payload) = context.state.panic.take() {
        std::panic::resume_unwind(payload);
    }
    context.state.code.linked.fault(kind, place)
}
