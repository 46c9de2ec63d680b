//! Amounts of time, compiled. How one is drawn is the model's (`schedlab_model::workload::draw`), as the live player's.

use schedlab_model::Nanos;
use schedlab_model::rng::Rng;
use schedlab_model::workload::Amount;
use schedlab_model::workload::draw::{exponential, quantile};

/// A compiled amount; quantiles live in a table beside the code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draw {
    Fixed(u64),
    Uniform(u64, u64),
    Exponential(u64),
    Quantiles(u32),
}

impl Draw {
    /// Compiles; `table` takes the quantiles.
    pub(crate) fn new(amount: &Amount, table: &mut Vec<Box<[Nanos]>>) -> Result<Draw, String> {
        Ok(match amount {
            Amount::Fixed(time) => Draw::Fixed(time.0),
            Amount::Uniform(low, high) if low <= high => Draw::Uniform(low.0, high.0),
            Amount::Uniform(low, high) => {
                return Err(format!("uniform from {low} to {high} is empty: swap the two"));
            }
            Amount::Exponential(mean) => Draw::Exponential(mean.0),
            Amount::Quantiles(values) if values.len() >= 2 => {
                table.push(values.clone());
                Draw::Quantiles(table.len() as u32 - 1)
            }
            Amount::Quantiles(_) => return Err("quantiles need at least two values".to_owned()),
        })
    }

    /// One draw, in ns.
    #[inline(always)]
    pub(crate) fn draw(self, rng: &mut Rng, table: &[Box<[Nanos]>]) -> u64 {
        if let Draw::Fixed(time) = self { time } else { self.draw_random(rng, table) }
    }

    #[inline(never)]
    fn draw_random(self, rng: &mut Rng, table: &[Box<[Nanos]>]) -> u64 {
        match self {
            Draw::Fixed(time) => time,
            Draw::Uniform(low, high) => rng.between(low, high),
            Draw::Exponential(mean) => exponential(mean, rng.next_u64()),
            Draw::Quantiles(index) => quantile(&table[index as usize], rng.next_u64()),
        }
    }

    /// The mean (of quantiles the mean of their points), for bounds and estimates.
    pub(crate) fn mean(self, table: &[Box<[Nanos]>]) -> u64 {
        match self {
            Draw::Fixed(time) => time,
            Draw::Uniform(low, high) => low / 2 + high / 2,
            Draw::Exponential(mean) => mean,
            Draw::Quantiles(index) => {
                let values = &table[index as usize];
                values.iter().map(|value| value.0).sum::<u64>() / values.len() as u64
            }
        }
    }
}
