//! Entering programs: levels of nested calls, stacks, budget, and what happens after a fault.

use super::context::Faulted;
use super::context::{RawContext, raise};
use super::fault::{Fault, FaultKind};
use super::interp;
use super::layout::{ARGUMENTS_MAX, LEVELS_MAX, frame_pointer};

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
        let value = enter(raw, entry, &[at, 0, 0, 0, 0]);
        if outermost {
            (*raw).state.executed += (*raw).state.budget.wrapping_sub((*raw).fuel as u64);
        }
        if (*raw).fault != 0 { Err(take_fault(raw, outermost)) } else { Ok(value) }
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
            return if context.fault == 0 { Ok(value) } else { Err(boxed_fault(raw)) };
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
unsafe fn boxed_fault(raw: *mut RawContext) -> Box<Fault> {
    // SAFETY: passed on to the caller.
    unsafe { Box::new(take_fault(raw, true)) }
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
