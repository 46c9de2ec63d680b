//! Weights and the fixed-point division by them, bit for bit as `__calc_delta` does it.

/// `NICE_0_LOAD`, scaled down.
pub(crate) const NICE_0_WEIGHT: u32 = 1024;

/// A weight with its precomputed inverse: `calc_delta_fair` is one multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// The weight.
    pub(crate) weight: u32,
    factor: u32,
    shift: u32,
}

impl Load {
    /// Precomputes the inverse (`sched_prio_to_wmult` is 2^32 / weight, rounded to nearest).
    pub(crate) fn new(weight: u32) -> Load {
        let weight_nonzero = u64::from(weight.max(1));
        let inverse = ((1_u64 << 32) + weight_nonzero / 2) / weight_nonzero;
        let mut factor = u64::from(NICE_0_WEIGHT) * inverse;
        let mut shift = 32;
        let high = (factor >> 32) as u32;
        if high != 0 {
            let bits = 32 - high.leading_zeros();
            shift -= bits;
            factor >>= bits;
        }
        Load { weight, factor: factor as u32, shift }
    }

    /// `calc_delta_fair`: real time as virtual time of this weight, delta · 1024 / weight.
    #[inline]
    pub(crate) fn virtual_time(&self, delta: u64) -> u64 {
        if self.weight == NICE_0_WEIGHT {
            return delta;
        }
        ((u128::from(delta) * u128::from(self.factor)) >> self.shift) as u64
    }
}

/// `__calc_delta` for a queue's load, whose inverse is rounded down: delta · weight / total.
pub(crate) fn calc_delta(delta: u64, weight: u32, total: u64) -> u64 {
    let inverse = u64::from(u32::MAX) / total.clamp(1, u64::from(u32::MAX));
    let mut factor = u64::from(weight) * inverse;
    let mut shift = 32;
    while factor >> 32 != 0 {
        factor >>= 1;
        shift -= 1;
    }
    ((u128::from(delta) * u128::from(factor)) >> shift) as u64
}

#[cfg(test)]
mod tests {
    use super::Load;

    /// 1 ms · 1024 / weight; the kernel's fixed point is off by at most some tens of ns:
    /// nice 5 (335): 3056716.4; nice -5 (3121): 328099.9; nice 19 (15): 68266666.7; idle (3): 341333333.3.
    #[test]
    fn virtual_time_is_the_quotient_within_the_kernels_rounding() {
        for (weight, exact) in [(335, 3_056_716_u64), (3_121, 328_099), (15, 68_266_666), (3, 341_333_333)] {
            let found = Load::new(weight).virtual_time(1_000_000);
            assert!(exact.abs_diff(found) <= 70, "weight {weight}: {found} for {exact}");
        }
        assert_eq!(Load::new(1_024).virtual_time(123_456_789), 123_456_789);
    }

    /// By hand for nice 5: inverse = 2^32/335 = 12820798; · 1024 = 13128497152 = 0x3_0E83_3800, so high = 3,
    /// two bits: factor = 3282124288, shift = 30; 1000 · 3282124288 >> 30 = 3056.
    #[test]
    fn the_fixed_point_form_is_the_kernels() {
        let load = Load::new(335);
        assert_eq!((load.factor, load.shift), (3_282_124_288, 30));
        assert_eq!(load.virtual_time(1_000), 3_056);
    }
}
