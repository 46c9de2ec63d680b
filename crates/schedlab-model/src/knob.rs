//! Knobs: what can be set on a scheduler or a kernel, with unit, bounds and meaning.

use serde::{Deserialize, Serialize};

/// One knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// Name as the scheduler or kernel spells it.
    pub name: String,
    /// Unit of the value: `ns`, `us`, `tasks`, `%`, or empty.
    pub unit: String,
    /// Smallest value allowed.
    pub min: i64,
    /// Largest value allowed.
    pub max: i64,
    /// Value if nobody sets it.
    pub default: i64,
    /// Whether it can change while the scheduler runs.
    pub live: bool,
    /// What it does, one sentence.
    pub meaning: String,
}

/// A value out of a knob's bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value} is out of bounds: {min} to {max} {unit}")]
pub struct KnobOutOfBounds {
    /// The knob.
    pub name: String,
    /// The value asked for.
    pub value: i64,
    /// Smallest allowed.
    pub min: i64,
    /// Largest allowed.
    pub max: i64,
    /// Unit.
    pub unit: String,
}

impl Knob {
    /// Whether the value is within bounds; the error names them.
    pub fn check(&self, value: i64) -> Result<(), KnobOutOfBounds> {
        if (self.min..=self.max).contains(&value) {
            return Ok(());
        }
        let Knob { name, min, max, unit, .. } = self.clone();
        Err(KnobOutOfBounds { name, value, min, max, unit })
    }
}
