//! Where a function ends soon, whatever happens: such instructions are translated again for each way there.
//!
//! Then what was executed before is a constant on each way and needs no register that outlives calls. Branches
//! count as straight on where what they compare is known from the few instructions before them: an alternative
//! for another kernel version, which relocation left in. Not here: the translation (`flow`).

use std::collections::{BTreeMap, BTreeSet};

use crate::exec::interp::holds;
use crate::exec::op::{AluOp, Op, Operand, Wide, written};

/// Instructions of an ending.
const INSNS_MAX: usize = 9;

/// The instructions executed from `target` on, if that ends the function soon and in one way, with at most one
/// call.
pub(super) fn ending(ops: &[Op], target: u32) -> Option<Vec<u32>> {
    let (mut way, mut at, mut calls) = (Vec::new(), target, 0);
    let mut known = [None; 11];
    while way.len() < INSNS_MAX {
        let op = *ops.get(at as usize)?;
        if op == Op::Slot {
            at += 1;
            continue;
        }
        way.push(at);
        let next = match op {
            Op::Exit => return Some(way),
            Op::Jump { target } => target,
            Op::Branch { target, .. } => {
                if decided(op, &known)? {
                    target
                } else {
                    at + 1
                }
            }
            Op::MayGoto { .. } | Op::CallLocal { .. } => return None,
            _ => at + 1,
        };
        if next <= at {
            return None;
        }
        calls += usize::from(matches!(op, Op::Call { .. }));
        if calls > 1 {
            return None;
        }
        learn(&mut known, op);
        at = next;
    }
    None
}

/// Whether ways of different lengths join in a function before its end, or control goes back in it.
pub(super) fn lengths_vary(ops: &[Op], start: u32, end: u32) -> bool {
    let targets: BTreeSet<u32> = (start..end).filter_map(|at| ops[at as usize].target()).collect();
    let (mut lengths, mut known) = (BTreeMap::new(), [None; 11]);
    // Instructions executed before the next one; none where control does not come.
    let mut length = Some(0_u32);
    for at in start..end {
        let op = ops[at as usize];
        if targets.contains(&at) {
            known = [None; 11];
            match (length, lengths.get(&at).copied()) {
                (Some(one), Some(other)) if one != other && ending(ops, at).is_none() => return true,
                (one, other) => length = one.or(other),
            }
        }
        let Some(before) = length.filter(|_| op != Op::Slot) else { continue };
        let after = before + 1;
        let decided = decided(op, &known);
        if let Some(target) = op.target().filter(|_| decided != Some(false)) {
            let new = ending(ops, target).is_none();
            if new && (target <= at || *lengths.entry(target).or_insert(after) != after) {
                return true;
            }
        }
        learn(&mut known, op);
        length = (!op.ends_flow() && decided != Some(true)).then_some(after);
    }
    false
}

/// Whether a branch is known to be taken.
fn decided(op: Op, known: &[Option<u64>; 11]) -> Option<bool> {
    let Op::Branch { cond, wide, dst, src, .. } = op else { return None };
    let right = match src {
        Operand::Imm(value) => Some(value as u64),
        Operand::Reg(register) => known[usize::from(register)],
    };
    Some(holds(cond, wide, known[usize::from(dst)]?, right?))
}

/// Notes the constant an instruction leaves in a register, and forgets what it overwrites.
fn learn(known: &mut [Option<u64>; 11], op: Op) {
    match op {
        Op::LoadImm { dst, value: Wide::Value(value) } => known[usize::from(dst)] = Some(value),
        Op::Alu { op: AluOp::Mov, wide, dst, src: Operand::Imm(value) } => {
            known[usize::from(dst)] = Some(if wide { value as u64 } else { u64::from(value as u32) });
        }
        Op::Call { .. } => known[..6].fill(None),
        Op::Argument { dst, .. } => known[usize::from(dst)] = None,
        Op::Atomic { src, .. } => (known[0], known[usize::from(src)]) = (None, None),
        _ => {
            if let Some(dst) = written(op) {
                known[usize::from(dst)] = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::op::Cond;

    fn mov(dst: u8, value: i64) -> Op {
        Op::Alu { op: AluOp::Mov, wide: true, dst, src: Operand::Imm(value) }
    }

    fn unless_equal(dst: u8, target: u32) -> Op {
        Op::Branch { cond: Cond::Ne, wide: true, dst, src: Operand::Imm(1), target }
    }

    #[test]
    fn a_branch_on_what_is_known_is_followed() {
        let ops = [mov(3, 1), unless_equal(3, 4), Op::Call { target: 0 }, Op::Exit, Op::Exit];
        assert_eq!(ending(&ops, 0), Some(vec![0, 1, 2, 3]));
        let ops = [mov(3, 0), unless_equal(3, 4), Op::Call { target: 0 }, Op::Exit, Op::Exit];
        assert_eq!(ending(&ops, 0), Some(vec![0, 1, 4]));
    }

    #[test]
    fn what_may_go_two_ways_or_back_or_on_for_long_is_no_ending() {
        let after_call = [mov(3, 1), Op::Call { target: 0 }, unless_equal(3, 4), Op::Exit, Op::Exit];
        assert_eq!(ending(&after_call, 0), None, "calls overwrite r3");
        assert_eq!(ending(&[mov(0, 0), Op::Jump { target: 0 }], 0), None);
        assert_eq!(ending(&[Op::Call { target: 0 }, Op::Call { target: 0 }, Op::Exit], 0), None);
        let mut long = vec![mov(0, 0); INSNS_MAX];
        long.push(Op::Exit);
        assert_eq!(ending(&long, 0), None);
        assert_eq!(ending(&long, 1).map(|way| way.len()), Some(INSNS_MAX));
    }
}
