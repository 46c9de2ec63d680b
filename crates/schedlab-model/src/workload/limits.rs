//! How much a file may ask for: counts multiply, so that a short text could ask for more than a machine has.
//!
//! The bounds are far above what a simulation is used with (a recording of a thousand tasks is large). At each of them
//! alone a workload takes some hundred megabytes.

use super::builder::BuildError;
use serde::{Deserialize, Deserializer, de};

/// A bound, and of what.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    what: &'static str,
    pub(super) most: u32,
}

pub(super) const TASKS: Limit = Limit { what: "tasks", most: 100_000 };
pub(super) const CHANNELS: Limit = Limit { what: "channels", most: 100_000 };
/// Of all tasks together, with the values that steps list.
pub(super) const STEPS: Limit = Limit { what: "steps", most: 4_000_000 };
pub(super) const ARRIVALS: Limit = Limit { what: "arrivals", most: 4_000_000 };

/// Reads a count.
///
/// # Errors
/// Beyond the bound.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D, limit: Limit) -> Result<u32, D::Error> {
    let count = u64::deserialize(deserializer)?;
    let Limit { what, most } = limit;
    match u32::try_from(count) {
        Ok(count) if count <= most => Ok(count),
        _ => Err(de::Error::custom(format!("count {count} is out of bounds: at most {most} {what}"))),
    }
}

/// What is taken of a bound, one after the other.
pub(super) struct Room {
    limit: Limit,
    taken: u64,
}

impl Room {
    pub(super) fn new(limit: Limit) -> Room {
        Room { limit, taken: 0 }
    }

    /// Takes so many for what is called `name`.
    ///
    /// # Errors
    /// [`BuildError::TooMany`] beyond the bound.
    pub(super) fn take(&mut self, name: &str, count: u64) -> Result<(), BuildError> {
        self.taken += count;
        let Limit { what, most } = self.limit;
        if self.taken <= u64::from(most) {
            return Ok(());
        }
        Err(BuildError::TooMany { name: name.to_owned(), what, found: self.taken, most })
    }
}
