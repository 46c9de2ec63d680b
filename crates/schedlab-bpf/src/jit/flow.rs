//! Translation of control flow: blocks, jumps and branches, what is known where, the count of instructions.
//!
//! Blocks are translated in the order of the program. Where one begins, a number of instructions is pending that
//! does not depend on the way there: other ways add the difference to the count. The budget is checked where
//! control goes backwards, and at calls. Ways to the end of the function end it where they are.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};

use super::ending::ending;
use super::function::Translator;
use super::range::Range;
use crate::exec::op::{Cond, Op, Operand};

/// What is remembered of each kind at a place: it is copied at each branch.
const FACTS_MAX: usize = 64;

/// What holds at a place, besides what holds wherever a value exists. It may be less than what could be known: of much,
/// what is known of the newest values is kept.
#[derive(Clone, Default)]
pub(super) struct Facts {
    ranges: BTreeMap<Value, Range>,
    /// Addresses found fit for stores.
    storable: BTreeSet<Value>,
    /// The frame pointer of a main function, where it was read since the last call.
    pub frame: Option<Value>,
    /// Whether something may have been called, so that the context knows of this function.
    pub called: bool,
}

impl Facts {
    /// What is known of a value here.
    pub fn range(&self, value: Value) -> Range {
        self.ranges.get(&value).copied().unwrap_or(Range::ALL)
    }

    fn learn(&mut self, value: Value, range: Range) {
        if range == Range::ALL {
            return;
        }
        self.ranges.insert(value, range);
        if self.ranges.len() > FACTS_MAX {
            self.ranges.pop_first();
        }
    }

    /// Notes that an address was found fit for stores; `false` if that was known.
    pub fn learn_storable(&mut self, value: Value) -> bool {
        let new = self.storable.insert(value);
        if self.storable.len() > FACTS_MAX {
            self.storable.pop_first();
        }
        new
    }

    /// Keeps what holds on another way as well.
    fn meet(&mut self, other: &Facts) {
        self.called |= other.called;
        self.frame = self.frame.filter(|frame| other.frame == Some(*frame));
        self.storable.retain(|value| other.storable.contains(value));
        self.ranges.retain(|value, range| match other.ranges.get(value) {
            Some(there) => {
                *range = range.or(*there);
                *range != Range::ALL
            }
            None => false,
        });
    }
}

/// An instruction that control may come to from elsewhere than the one before it.
pub(super) struct Leader {
    block: Block,
    /// Whether control comes back to it: nothing is known there.
    back: bool,
    /// Instructions pending where it begins.
    pending: Option<i64>,
    /// What holds on all ways seen so far; none before the first.
    facts: Option<Facts>,
}

/// The condition of a branch.
#[derive(Clone, Copy)]
pub(super) struct Test {
    pub cond: Cond,
    pub wide: bool,
    pub dst: u8,
    pub src: Operand,
}

impl Translator<'_, '_> {
    pub(super) fn body(&mut self) {
        let function = &self.unit.linked.functions[self.index];
        let ops = &self.unit.linked.programs[function.program as usize].ops;
        self.find_leaders(ops, function.start, function.end);
        let mut open = true;
        for insn in function.start..function.end {
            let op = ops[insn as usize];
            if op == Op::Slot {
                continue;
            }
            if self.leaders.contains_key(&insn) {
                if open && insn != function.start {
                    self.go(insn);
                }
                open = self.begin(insn, insn == function.start);
            }
            if !open {
                continue;
            }
            self.insn = insn;
            self.pending += 1;
            self.op(op);
            open = !op.ends_flow() && op.target().is_none();
        }
    }

    fn find_leaders(&mut self, ops: &[Op], start: u32, end: u32) {
        let mut leaders = BTreeMap::from([(start, false)]);
        for insn in start..end {
            let op = ops[insn as usize];
            if let Some(target) = op.target() {
                *leaders.entry(target).or_default() |= target <= insn;
                if !op.ends_flow() {
                    leaders.entry(insn + 1).or_default();
                }
            }
        }
        for (insn, back) in leaders {
            let block = self.b.create_block();
            self.leaders.insert(insn, Leader { block, back, pending: None, facts: None });
        }
        let first = self.leaders[&start].block;
        self.b.ins().jump(first, &[]);
    }

    /// Begins a block; `false` if no way leads there.
    fn begin(&mut self, insn: u32, first: bool) -> bool {
        let leader = self.leaders.get_mut(&insn).expect("a leader");
        if !leader.back && !first && leader.facts.is_none() {
            // Seen to be no way, so no values are looked for on ways there.
            return false;
        }
        self.pending = *leader.pending.get_or_insert(0);
        let unknown = Facts { called: true, ..Facts::default() };
        self.facts = if leader.back { unknown } else { leader.facts.take().unwrap_or_default() };
        let (block, back) = (leader.block, leader.back);
        self.b.switch_to_block(block);
        if !back {
            self.b.seal_block(block);
        }
        true
    }

    /// Instructions executed up to here.
    pub(super) fn counted(&mut self) -> Value {
        let count = self.b.use_var(self.count);
        self.b.ins().iadd_imm_s(count, self.pending)
    }

    /// The block of an instruction, if control can go there as it is: forwards, with as many instructions
    /// pending as on other ways.
    fn direct(&mut self, target: u32) -> Option<Block> {
        if target <= self.insn || self.is_ending(target) {
            return None;
        }
        let leader = self.leaders.get_mut(&target).expect("a target is a leader");
        if *leader.pending.get_or_insert(self.pending) != self.pending {
            return None;
        }
        leader.arrive(&self.facts);
        Some(leader.block)
    }

    /// Ends the block by going to an instruction.
    pub(super) fn go(&mut self, target: u32) {
        if target <= self.insn {
            self.check_budget();
        }
        if let Some(way) = ending(self.ops(), target) {
            return self.end(way);
        }
        let leader = self.leaders.get_mut(&target).expect("a target is a leader");
        let more = self.pending - *leader.pending.get_or_insert(self.pending);
        leader.arrive(&self.facts);
        let block = leader.block;
        if more != 0 {
            let count = self.b.use_var(self.count);
            let count = self.b.ins().iadd_imm_s(count, more);
            self.b.def_var(self.count, count);
        }
        self.b.ins().jump(block, &[]);
    }

    fn ops(&self) -> &[Op] {
        let program = self.unit.linked.functions[self.index].program;
        &self.unit.linked.programs[program as usize].ops
    }

    /// Whether the function ends soon after an instruction, whatever happens.
    pub(super) fn is_ending(&self, target: u32) -> bool {
        ending(self.ops(), target).is_some()
    }

    /// Ends the function here with these instructions.
    fn end(&mut self, way: Vec<u32>) {
        let from = self.insn;
        for insn in way {
            let op = self.ops()[insn as usize];
            self.pending += 1;
            self.insn = insn;
            // Branches among them are decided.
            if op.target().is_none() {
                self.op(op);
            }
        }
        self.insn = from;
    }

    pub(super) fn branch(&mut self, test: Test, target: u32) {
        let (left, right) = (self.range(Operand::Reg(test.dst)), self.range(test.src));
        let decided = match test.wide {
            true => Range::decides(test.cond, left, right),
            false => Range::decides(test.cond, left.word(), right.word()),
        };
        if let Some(taken) = decided {
            return self.go(if taken { target } else { self.insn + 1 });
        }
        let taken = self.compare(test);
        // On 32 bits, what is learnt holds for the register only if the rest of it is known to be zero.
        let learns = test.wide || left.high <= Range::WORD.high;
        let value = self.get(test.dst);
        let right = if test.wide { right } else { right.word() };
        let learnt = |held: bool| learns.then(|| (value, left.refined(test.cond, held, right)));
        self.fork(taken, target, learnt(true), learnt(false));
    }

    fn compare(&mut self, Test { cond, wide, dst, src }: Test) -> Value {
        let (mut a, mut b) = (self.get(dst), self.operand(src));
        if !wide {
            a = self.b.ins().ireduce(types::I32, a);
            b = self.b.ins().ireduce(types::I32, b);
        }
        let code = match cond {
            Cond::Eq => IntCC::Equal,
            Cond::Ne | Cond::Set => IntCC::NotEqual,
            Cond::Gt => IntCC::UnsignedGreaterThan,
            Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Cond::Lt => IntCC::UnsignedLessThan,
            Cond::Le => IntCC::UnsignedLessThanOrEqual,
            Cond::Sgt => IntCC::SignedGreaterThan,
            Cond::Sge => IntCC::SignedGreaterThanOrEqual,
            Cond::Slt => IntCC::SignedLessThan,
            Cond::Sle => IntCC::SignedLessThanOrEqual,
        };
        if cond == Cond::Set {
            a = self.b.ins().band(a, b);
            b = self.b.ins().iconst(if wide { types::I64 } else { types::I32 }, 0);
        }
        self.b.ins().icmp(code, a, b)
    }

    /// Goes to the target if taken, else on, each with what is learnt of a value on that way.
    fn fork(
        &mut self,
        taken: Value,
        target: u32,
        learnt: Option<(Value, Range)>,
        learnt_else: Option<(Value, Range)>,
    ) {
        let (facts, pending, insn) = (self.facts.clone(), self.pending, self.insn);
        let ways = [(target, learnt), (insn + 1, learnt_else)];
        let blocks = ways.map(|(to, learnt)| {
            self.learn(&facts, learnt);
            self.direct(to).ok_or_else(|| self.b.create_block())
        });
        let [there, next] = blocks.map(|block| block.unwrap_or_else(|own| own));
        self.b.ins().brif(taken, there, &[], next, &[]);
        for ((to, learnt), block) in ways.into_iter().zip(blocks) {
            if let Err(own) = block {
                self.learn(&facts, learnt);
                self.pending = pending;
                self.b.seal_block(own);
                self.b.switch_to_block(own);
                self.go(to);
            }
        }
    }

    fn learn(&mut self, facts: &Facts, learnt: Option<(Value, Range)>) {
        self.facts.clone_from(facts);
        if let Some((value, range)) = learnt {
            self.facts.learn(value, range);
        }
    }

    pub(super) fn maybe_goto(&mut self, target: u32) {
        let (left, zero, one) = (self.b.use_var(self.may_goto), self.constant(0), self.constant(1));
        let done = self.b.ins().icmp(IntCC::Equal, left, zero);
        // Not below zero where the loop is left: the counter stays for later loops of the function.
        let less = self.b.ins().isub(left, one);
        let less = self.b.ins().select(done, zero, less);
        self.b.def_var(self.may_goto, less);
        self.fork(done, target, None, None);
    }
}

impl Leader {
    /// Control comes here, and this holds.
    fn arrive(&mut self, facts: &Facts) {
        match &mut self.facts {
            Some(known) => known.meet(facts),
            None => self.facts = Some(facts.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_has_a_limit_and_the_newest_stays() {
        let mut facts = Facts::default();
        for number in 0..1000 {
            let value = Value::from_u32(number);
            facts.learn(value, Range::up_to(number.into()));
            assert!(facts.learn_storable(value), "not known before");
            assert_eq!(facts.range(value), Range::up_to(number.into()));
            assert!(facts.ranges.len() <= FACTS_MAX && facts.storable.len() <= FACTS_MAX);
        }
        assert_eq!(facts.range(Value::from_u32(0)), Range::ALL, "forgotten");
        assert!(!facts.learn_storable(Value::from_u32(999)), "known");
    }

    #[test]
    fn ways_that_tell_nothing_together_leave_nothing() {
        let (mut above, mut below) = (Facts::default(), Facts::default());
        let value = Value::from_u32(1);
        above.learn(value, Range { low: 5, high: u64::MAX });
        below.learn(value, Range::up_to(4));
        above.meet(&below);
        assert!(above.ranges.is_empty());
    }
}
