//! What is known of a value while code is generated: bounds, as unsigned numbers.
//!
//! An address that is known to lie in the region needs no confinement, a branch whose outcome is known no test.
//! Bounds hold wherever the value exists; what a branch adds to them is `flow`'s.

use crate::exec::op::{AluOp, Cond};

/// A value is at least `low` and at most `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub low: u64,
    pub high: u64,
}

impl Range {
    pub const ALL: Range = Range { low: 0, high: u64::MAX };
    /// What 32-bit operations leave.
    pub const WORD: Range = Range::up_to(u32::MAX as u64);

    pub const fn exactly(value: u64) -> Range {
        Range { low: value, high: value }
    }

    pub const fn up_to(high: u64) -> Range {
        Range { low: 0, high }
    }

    /// The only value, if there is only one.
    pub fn known(self) -> Option<u64> {
        (self.low == self.high).then_some(self.low)
    }

    /// What satisfies both; where nothing does, no code will run, and either holds.
    pub fn and(self, other: Range) -> Range {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Range { low, high } } else { self }
    }

    /// What satisfies either.
    pub fn or(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The low 32 bits.
    pub fn word(self) -> Range {
        if self.low >> 32 == self.high >> 32 {
            Range { low: u64::from(self.low as u32), high: u64::from(self.high as u32) }
        } else {
            Range::WORD
        }
    }

    /// The result of an operation on 64 bits, or on 32 with zero extension.
    pub fn of(op: AluOp, wide: bool, a: Range, b: Range) -> Range {
        if wide { Range::wide(op, a, b, 63) } else { Range::wide(op, a.word(), b.word(), 31).word() }
    }

    /// `shifts` are the bits of a shift's amount that count.
    fn wide(op: AluOp, a: Range, b: Range, shifts: u64) -> Range {
        let found = match op {
            AluOp::Mov => Some(b),
            AluOp::Add => Range::contiguous(a.low.overflowing_add(b.low), a.high.overflowing_add(b.high)),
            AluOp::Sub => Range::contiguous(a.low.overflowing_sub(b.high), a.high.overflowing_sub(b.low)),
            AluOp::Mul => a.high.checked_mul(b.high).map(|high| Range { low: a.low * b.low, high }),
            AluOp::And => Some(Range::up_to(a.high.min(b.high))),
            AluOp::Or => Some(Range { low: a.low.max(b.low), high: ones(a.high | b.high) }),
            AluOp::Xor => Some(Range::up_to(ones(a.high | b.high))),
            AluOp::Lsh => b.known().and_then(|amount| {
                let amount = amount & shifts;
                let fits = u64::from(a.high.leading_zeros()) >= amount;
                fits.then(|| Range { low: a.low << amount, high: a.high << amount })
            }),
            AluOp::Rsh => b.known().map(|amount| {
                let amount = amount & shifts;
                Range { low: a.low >> amount, high: a.high >> amount }
            }),
            AluOp::Div => Some(match b.known() {
                Some(0) => Range::exactly(0),
                Some(divisor) => Range { low: a.low / divisor, high: a.high / divisor },
                None => Range::up_to(a.high),
            }),
            AluOp::Mod => Some(match b.known() {
                Some(0) => a,
                Some(divisor) => Range::up_to(a.high.min(divisor - 1)),
                None => Range::up_to(a.high),
            }),
            AluOp::Arsh | AluOp::Sdiv | AluOp::Smod => None,
        };
        found.unwrap_or(Range::ALL)
    }

    /// From least to greatest, if both wrapped round or neither did.
    fn contiguous((low, low_wraps): (u64, bool), (high, high_wraps): (u64, bool)) -> Option<Range> {
        (low_wraps == high_wraps).then_some(Range { low, high })
    }

    /// Whether the condition is known to hold, or not to; on values of the width that is compared.
    pub fn decides(cond: Cond, a: Range, b: Range) -> Option<bool> {
        let (yes, no) = match cond {
            Cond::Eq => (a.known().is_some() && a == b, a.high < b.low || a.low > b.high),
            Cond::Ne => (a.high < b.low || a.low > b.high, a.known().is_some() && a == b),
            Cond::Gt => (a.low > b.high, a.high <= b.low),
            Cond::Ge => (a.low >= b.high, a.high < b.low),
            Cond::Lt => (a.high < b.low, a.low >= b.high),
            Cond::Le => (a.high <= b.low, a.low > b.high),
            Cond::Set | Cond::Sgt | Cond::Sge | Cond::Slt | Cond::Sle => (false, false),
        };
        if yes { Some(true) } else { no.then_some(false) }
    }

    /// What is known of the left side where the condition held, or where it did not.
    pub fn refined(self, cond: Cond, held: bool, b: Range) -> Range {
        let below = |end: u64| end.checked_sub(1).map_or(self, |high| self.and(Range::up_to(high)));
        let above = |end: u64| match end.checked_add(1) {
            Some(low) => self.and(Range { low, high: u64::MAX }),
            None => self,
        };
        let from = |low: u64| self.and(Range { low, high: u64::MAX });
        match (cond, held) {
            (Cond::Eq, true) | (Cond::Ne, false) => self.and(b),
            (Cond::Eq, false) | (Cond::Ne, true) => match b.known() {
                Some(value) if value == self.low => above(value),
                Some(value) if value == self.high => below(value),
                _ => self,
            },
            (Cond::Gt, true) | (Cond::Le, false) => above(b.low),
            (Cond::Ge, true) | (Cond::Lt, false) => from(b.low),
            (Cond::Lt, true) | (Cond::Ge, false) => below(b.high),
            (Cond::Le, true) | (Cond::Gt, false) => self.and(Range::up_to(b.high)),
            _ => self,
        }
    }
}

/// The least number of the form 2^n - 1 that is not below `value`.
fn ones(value: u64) -> u64 {
    u64::MAX.checked_shr(value.leading_zeros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::interp::{alu32, alu64, holds};

    const OPS: [AluOp; 14] = [
        AluOp::Add,
        AluOp::Sub,
        AluOp::Mul,
        AluOp::Div,
        AluOp::Or,
        AluOp::And,
        AluOp::Lsh,
        AluOp::Rsh,
        AluOp::Mod,
        AluOp::Xor,
        AluOp::Mov,
        AluOp::Arsh,
        AluOp::Sdiv,
        AluOp::Smod,
    ];
    const CONDS: [Cond; 11] = [
        Cond::Eq,
        Cond::Gt,
        Cond::Ge,
        Cond::Set,
        Cond::Ne,
        Cond::Sgt,
        Cond::Sge,
        Cond::Lt,
        Cond::Le,
        Cond::Slt,
        Cond::Sle,
    ];

    /// Random ranges of every magnitude and values in them, from a fixed seed.
    struct Draw(crate::exec::state::Random);

    impl Draw {
        fn word(&mut self) -> u64 {
            let word = u64::from(self.0.next_u32()) << 32 | u64::from(self.0.next_u32());
            let edge = [0, 1, 31, 63, u64::from(u32::MAX), 1 << 32, u64::MAX, i64::MIN as u64];
            match self.0.next_u32() % 3 {
                0 => word >> (self.0.next_u32() % 64),
                1 => edge[self.0.next_u32() as usize % edge.len()],
                _ => edge[self.0.next_u32() as usize % edge.len()].wrapping_sub(word >> 60),
            }
        }

        fn range(&mut self) -> (Range, u64) {
            let (a, b) = (self.word(), self.word());
            let range = match self.0.next_u32() % 3 {
                0 => Range::exactly(a),
                _ => Range { low: a.min(b), high: a.max(b) },
            };
            let span = (range.high - range.low).wrapping_add(1);
            let inside = self.word();
            let value = match self.0.next_u32() % 3 {
                0 => range.low,
                1 => range.high,
                _ => range.low + if span == 0 { inside } else { inside % span },
            };
            (range, value)
        }
    }

    /// Two ranges, each with a value in it.
    fn many(seed: u64, mut check: impl FnMut((Range, u64), (Range, u64))) {
        let mut draw = Draw(crate::exec::state::Random(seed));
        (0..200_000).for_each(|_| check(draw.range(), draw.range()));
    }

    #[test]
    fn results_of_values_lie_within_results_of_their_ranges() {
        many(11, |(a, x), (b, y)| {
            for op in OPS {
                let (wide, word) = (alu64(op, x, y), u64::from(alu32(op, x as u32, y as u32)));
                for (width, value) in [(true, wide), (false, word)] {
                    let range = Range::of(op, width, a, b);
                    assert!(range.low <= value && value <= range.high, "{op:?} {width} {a:?} {b:?} {x} {y}");
                }
            }
        });
    }

    #[test]
    fn what_branches_tell_holds() {
        many(12, |(a, x), (b, y)| {
            for cond in CONDS {
                let held = holds(cond, true, x, y);
                assert!(Range::decides(cond, a, b).is_none_or(|known| known == held), "{cond:?} {a:?} {b:?}");
                let after = a.refined(cond, held, b);
                assert!(after.low <= x && x <= after.high, "{cond:?} {held} {a:?} {b:?} {x} {y}");
            }
        });
    }
}
