//! Time in nanoseconds, and how people write it.
//!
//! One type for instants since the start of a run and for durations, as the kernel's `u64 ns`. No clock.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

/// Nanoseconds: an instant since the start of a run or recording, or a duration.
///
/// In text: `250us`, `1.5ms`, `3s`, `800ns`; a bare number is refused because its unit would be a guess.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

/// A duration that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a duration: write a number and a unit, e.g. 250us, 1.5ms, 3s, 800ns")]
pub struct ParseNanosError(String);

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than everything.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// From microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Nanos(us * 1_000)
    }

    /// From milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Nanos(ms * 1_000_000)
    }

    /// From seconds.
    pub const fn from_secs(s: u64) -> Self {
        Nanos(s * 1_000_000_000)
    }

    /// As a number of nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In seconds, for display and statistics only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// In microseconds, for display and statistics only.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Difference, zero if `other` is later.
    #[inline]
    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }

    /// Sum, stopping at [`Nanos::MAX`].
    #[inline]
    pub const fn saturating_add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    #[inline]
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    #[inline]
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl SubAssign for Nanos {
    #[inline]
    fn sub_assign(&mut self, other: Nanos) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, factor: u64) -> Nanos {
        Nanos(self.0 * factor)
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(values: I) -> Nanos {
        values.fold(Nanos::ZERO, Add::add)
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits in the unit that suits: `850 ns`, `12.3 µs`, `4.00 ms`, `1.25 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "µs"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        write!(f, "{value:.digits$} {unit}")
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

impl FromStr for Nanos {
    type Err = ParseNanosError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseNanosError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).ok_or_else(fail)?;
        let (number, unit) = trimmed.split_at(split);
        let scale = match unit.trim() {
            "ns" => 1_u64,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "min" => 60_000_000_000,
            _ => return Err(fail()),
        };
        let number = number.replace('_', "");
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        let whole: u64 = whole.parse().map_err(|_| fail())?;
        let mut total = whole.checked_mul(scale).ok_or_else(fail)?;
        let mut place = scale;
        for digit in fraction.chars() {
            place /= 10;
            let step = u64::from(digit.to_digit(10).ok_or_else(fail)?) * place;
            total = total.checked_add(step).ok_or_else(fail)?;
        }
        Ok(Nanos(total))
    }
}

impl Serialize for Nanos {
    /// A string with a unit where people read (TOML, JSON with a human format), a number elsewhere.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Nanos {
    /// A string with a unit, or a whole number of nanoseconds as [`Serialize`] writes it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Nanos;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with a unit, e.g. \"250us\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Nanos, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Nanos, E> {
                Ok(Nanos(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Nanos, E> {
                u64::try_from(value).map(Nanos).map_err(|_| E::custom("a duration cannot be negative"))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit_only() {
        for (text, ns) in
            [("250us", 250_000), ("1.5ms", 1_500_000), ("3 s", 3_000_000_000), ("0.1us", 100), ("7ns", 7)]
        {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
        for text in ["", "12", "ms", "1.2.3ms", "-1ms", "99999999999999999s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text} must be refused");
        }
    }

    #[test]
    fn display_keeps_three_digits() {
        let shown: Vec<String> =
            [850, 12_345, 4_000_000, 1_250_000_000].map(|ns| Nanos(ns).to_string()).to_vec();
        assert_eq!(shown, ["850 ns", "12.3 µs", "4.00 ms", "1.25 s"]);
    }
}
