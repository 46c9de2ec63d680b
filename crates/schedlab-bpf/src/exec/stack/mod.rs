//! Refuses programs whose stack overflows, when they are linked: accesses outside a frame's 512 bytes, and chains of
//! functions whose frames together are larger.
//!
//! Only what is certain is refused: pointers at a constant distance from a frame pointer (`value`), on paths that
//! control may take (`walk`), and what callees are known to do with them (`callees`). The kernel's verifier knows
//! more, ranges of numbers above all, and refuses more; what it accepts is accepted here, unless stack is used where
//! only ranges show that control never comes. `chain` adds frames up. Not here: accesses by r10 itself, which `link`
//! checks in all code, because the engines rely on them.

mod callees;
mod chain;
#[cfg(test)]
mod tests;
mod value;
mod walk;

use super::fault::{BpfError, located};
use super::layout::STACK_BYTES_FRAME;
use super::link::Function;
use super::op::{Op, Operand};
use crate::image::{ObjectImage, ProgramImage};
use chain::Frames;
use walk::{Event, Subject};

/// Which programs have frames of their own ("private stacks") where frames are not small. Those count to no chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrivateStacks {
    /// None: Linux up to 6.12.
    Nobody,
    /// Programs that trace: Linux 6.13 and later.
    Tracing,
    /// Those and `sched_ext_ops.dispatch()`, which sub-schedulers enter again: Linux 7.1 and later.
    #[default]
    Dispatch,
}

/// Checks a program whose instructions and calls are valid, before its references are resolved.
///
/// # Errors
/// The first access outside of a frame, or chain of functions that is too large.
pub(super) fn check(
    image: &ObjectImage,
    program: &ProgramImage,
    ops: &[Op],
    functions: &[Function],
    private: PrivateStacks,
) -> Result<(), BpfError> {
    let subject = Subject { image, ops, functions };
    let spills = spills_around_calls(ops);
    let mut frames = Frames::new(functions.len());
    let mut outside = None;
    let exception =
        program.exception.filter(|start| functions.iter().any(|function| function.start == *start));
    subject.tell(exception, |insn, event| match event {
        Event::Touches { function, at, bytes, register, callee } => {
            let end = at.saturating_add_unsigned(bytes);
            if at < -(STACK_BYTES_FRAME as i64) || end > 0 {
                let owner = (function != subject.function_of(insn)).then_some(function);
                let owner = owner.map(|owner| functions[owner as usize].name.as_str());
                let what = beyond(at, bytes, register, callee.as_deref(), owner);
                outside.get_or_insert((insn, what));
            } else if !spills[insn as usize] {
                frames.uses(function, at.unsigned_abs());
            }
        }
        Event::Calls { function, directly } => {
            frames.calls(subject.function_of(insn), insn, function, directly);
        }
        Event::GivesAway { function, later } => frames.given_away(function, later),
        Event::TailCall => frames.tail_calls(subject.function_of(insn), insn),
        Event::Reaches(..) => {}
    });
    if let Some(exception) = exception {
        frames.given_away(subject.function_of(exception), true);
    }
    let too_large = || frames.too_large(image, functions, has_private_stack(image, program, private));
    match outside.or_else(too_large) {
        Some((insn, what)) => Err(overflow(program, insn, what)),
        None => Ok(()),
    }
}

/// The error for an instruction at which a stack overflows.
pub(super) fn overflow(program: &ProgramImage, insn: u32, what: String) -> BpfError {
    BpfError::Stack { program: program.name.clone(), place: located(&program.lines, insn), insn, what }
}

/// What is wrong with an access outside of a frame.
pub(super) fn beyond(at: i64, bytes: u64, register: u8, callee: Option<&str>, owner: Option<&str>) -> String {
    let verb = match callee {
        None => format!("accesses {bytes} bytes"),
        Some(callee) => format!("gives {callee} {bytes} bytes"),
    };
    let owner = owner.map_or_else(String::new, |owner| format!(" of {owner}()"));
    format!(
        "{verb} at r10{at:+}{owner} in r{register}, outside the frame's {STACK_BYTES_FRAME} bytes below r10; \
         stay within the local variable, or keep what is larger in a map"
    )
}

/// Whether the kernel gives frames of a program memory of their own (`bpf_enable_priv_stack`).
fn has_private_stack(image: &ObjectImage, program: &ProgramImage, private: PrivateStacks) -> bool {
    const TRACING: &[&str] = &[
        "kprobe",
        "kretprobe",
        "ksyscall",
        "kretsyscall",
        "uprobe",
        "uretprobe",
        "usdt",
        "tracepoint",
        "tp",
        "perf_event",
        "raw_tp",
        "raw_tracepoint",
        "tp_btf",
        "fentry",
        "fexit",
        "fmod_ret",
        "fsession",
        "lsm",
    ];
    let kind = program.section.trim_start_matches('?').split(['/', '.', '+']).next().unwrap_or_default();
    let dispatches = || {
        let mut callbacks = image.struct_ops.iter().flat_map(|ops| &ops.callbacks);
        callbacks.any(|(member, index)| {
            let same = image.programs.get(*index).is_some_and(|found| found.name == program.name);
            same && matches!(&**member, "dispatch" | "sub_caps_updated")
        })
    };
    TRACING.contains(&kind) && private >= PrivateStacks::Tracing
        || private >= PrivateStacks::Dispatch && dispatches()
}

/// Registers saved just before a call and restored just after it, which do not count to a frame: the kernel removes
/// them where the callee leaves registers alone (`bpf_fastcall`), which it alone knows.
fn spills_around_calls(ops: &[Op]) -> Vec<bool> {
    let mut spills = vec![false; ops.len()];
    for (call, op) in ops.iter().enumerate() {
        if !matches!(op, Op::CallHelper { .. } | Op::CallKfunc { .. }) {
            continue;
        }
        for distance in 1..=5 {
            let (Some(before), after) = (call.checked_sub(distance), call + distance) else { break };
            match (ops[before], ops.get(after)) {
                (
                    Op::Store { dst: 10, src: Operand::Reg(saved @ 0..=5), off, bytes: 8 },
                    Some(Op::Load { dst, src: 10, off: from, bytes: 8, signed: false }),
                ) if *dst == saved && *from == off => {
                    (spills[before], spills[after]) = (true, true);
                }
                _ => break,
            }
        }
    }
    spills
}
