//! Weight tables: which weight a nice value has in a fair scheduler.
//!
//! Linux has 40 weights, a quarter apart. Fewer (neighbours grouped) or more (a wider range of nice values) are the
//! experiment of "Task Priority Control Method based on the Characteristics of Applications in CFS" (Journal of the
//! Korea Contents Association 21(6), 2021). Its tables are printed as images; what is here follows its words: groups
//! are means of n neighbours, further levels are 1024/1.25^nice, and the range of nice values lies around 0 as the
//! kernel's macros put it (`DEFAULT_PRIO` is the middle of `NICE_WIDTH`).

use crate::policy::{Nice, WEIGHTS};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Most levels of a table: at nice 31 a weight by the formula is 1, and below 1 there is none.
pub const LEVELS_MAX: usize = 64;
/// The heaviest weight that a table may have: its inverse (2^32 / weight) still has 10 bits.
pub const WEIGHT_MAX: u32 = 1 << 22;

/// The weights of a range of nice values, the strongest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct WeightTable {
    name: String,
    first: i8,
    weights: Vec<u32>,
}

/// As it is written in documents.
#[derive(Deserialize)]
struct Raw {
    name: String,
    first: i8,
    weights: Vec<u32>,
}

impl TryFrom<Raw> for WeightTable {
    type Error = WeightsError;
    fn try_from(raw: Raw) -> Result<WeightTable, WeightsError> {
        WeightTable::new(&raw.name, raw.first, raw.weights)
    }
}

/// A table that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightsError {
    /// Not the name of a table, nor a file.
    #[error("'{0}' is no weight table: linux, group:N, group:N:shrink, refine:COUNT, or the path of a file")]
    Unknown(String),
    /// A group of no tasks, or of more than there are.
    #[error("groups of '{0}' weights: take 1 to 40 of Linux's 40 together")]
    Group(String),
    /// Too few or too many levels.
    #[error("'{0}' levels: refine takes 41 to 64 (at 65 the weakest would weigh nothing)")]
    Refine(String),
    /// The file cannot be read.
    #[error("cannot read the weight table {path}: {error}")]
    Unreadable {
        /// Path.
        path: String,
        /// What the system says.
        error: String,
    },
    /// Something in the file is not a weight.
    #[error(
        "{place}: '{text}' is no weight: whole numbers from 1 to {WEIGHT_MAX}, one for each nice value, the strongest first"
    )]
    NotAWeight {
        /// File and line.
        place: String,
        /// What is there.
        text: String,
    },
    /// A weaker nice value weighs more.
    #[error(
        "{place}: weight {weight} after {before}: weights must not rise from the strongest nice value to the weakest"
    )]
    Rises {
        /// File and line, or the name of the table and the level.
        place: String,
        /// The weight.
        weight: u32,
        /// The one before.
        before: u32,
    },
    /// None, or more than fit.
    #[error("{name} has {count} weights: 1 to {LEVELS_MAX} are possible")]
    Count {
        /// Of the table.
        name: String,
        /// How many.
        count: usize,
    },
    /// The range leaves out nice 0 or is too wide.
    #[error(
        "{name} begins at nice {first}: a table of {count} weights begins between {earliest} and 0, so that it has nice 0"
    )]
    First {
        /// Of the table.
        name: String,
        /// Strongest nice value.
        first: i8,
        /// How many weights.
        count: usize,
        /// The strongest it may be.
        earliest: i64,
    },
}

/// Whether grouped weights keep the 40 nice values or leave as many as there are groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// All 40: neighbours weigh the same.
    Keep,
    /// One nice value for each group, as the paper has it.
    Shrink,
}

impl Default for WeightTable {
    fn default() -> WeightTable {
        WeightTable::linux()
    }
}

impl WeightTable {
    /// Linux's: 40 weights, nice -20 to 19 (`sched_prio_to_weight`).
    pub fn linux() -> WeightTable {
        WeightTable { name: "linux".to_owned(), first: -20, weights: WEIGHTS.to_vec() }
    }

    /// A table of one's own: `weights` from nice `first` on.
    ///
    /// # Errors
    /// [`WeightsError`]: none or too many, a weight of 0 or over [`WEIGHT_MAX`], one that rises, or no nice 0.
    pub fn new(name: &str, first: i8, weights: Vec<u32>) -> Result<WeightTable, WeightsError> {
        let count = weights.len();
        if count == 0 || count > LEVELS_MAX {
            return Err(WeightsError::Count { name: name.to_owned(), count });
        }
        let place = |index: usize| format!("{name}, level {}", index + 1);
        if let Some(index) = weights.iter().position(|&weight| weight == 0 || weight > WEIGHT_MAX) {
            return Err(WeightsError::NotAWeight { place: place(index), text: weights[index].to_string() });
        }
        if let Some(index) = (1..count).find(|&index| weights[index] > weights[index - 1]) {
            let (weight, before) = (weights[index], weights[index - 1]);
            return Err(WeightsError::Rises { place: place(index), weight, before });
        }
        let earliest = 1 - count as i64;
        let earliest = earliest.max(i64::from(Nice::WIDEST.0));
        if first > 0 || i64::from(first) < earliest {
            return Err(WeightsError::First { name: name.to_owned(), first, count, earliest });
        }
        Ok(WeightTable { name: name.to_owned(), first, weights })
    }

    /// Each `size` neighbours of Linux's weights replaced by their mean, rounded to nearest; the last group may be
    /// shorter. A group of one is Linux's table.
    ///
    /// # Errors
    /// [`WeightsError::Group`] unless `size` is 1 to 40.
    pub fn grouped(size: usize, range: Range) -> Result<WeightTable, WeightsError> {
        if !(1..=WEIGHTS.len()).contains(&size) {
            return Err(WeightsError::Group(size.to_string()));
        }
        let groups: Vec<(usize, u32)> = WEIGHTS
            .chunks(size)
            .map(|group| {
                let (sum, count) =
                    (group.iter().map(|&weight| u64::from(weight)).sum::<u64>(), group.len() as u64);
                (group.len(), ((sum + count / 2) / count) as u32)
            })
            .collect();
        let (suffix, first, weights) = match range {
            Range::Keep => {
                ("", -20, groups.iter().flat_map(|&(count, mean)| std::iter::repeat_n(mean, count)).collect())
            }
            // NICE_WIDTH / 2 levels are stronger than nice 0, as in include/linux/sched/prio.h.
            Range::Shrink => (
                ":shrink",
                -((groups.len() / 2) as i8),
                groups.iter().map(|&(_, mean)| mean).collect::<Vec<u32>>(),
            ),
        };
        WeightTable::new(&format!("group:{size}{suffix}"), first, weights)
    }

    /// Linux's 40 weights, and further ones at both ends by 1024/1.25^nice: `count` levels in all, half of them
    /// stronger than nice 0.
    ///
    /// # Errors
    /// [`WeightsError::Refine`] unless `count` is 41 to [`LEVELS_MAX`].
    pub fn refined(count: usize) -> Result<WeightTable, WeightsError> {
        if !(WEIGHTS.len() + 1..=LEVELS_MAX).contains(&count) {
            return Err(WeightsError::Refine(count.to_string()));
        }
        let first = -((count / 2) as i32);
        let weight = |nice: i32| match usize::try_from(nice + 20) {
            Ok(index) if index < WEIGHTS.len() => WEIGHTS[index],
            _ => (1024.0 / 1.25_f64.powi(nice)).round() as u32,
        };
        let weights = (first..first + count as i32).map(weight).collect();
        WeightTable::new(&format!("refine:{count}"), first as i8, weights)
    }

    /// Reads `linux`, `group:N`, `group:N:shrink`, `refine:COUNT`, or a file: whole numbers, one for each nice
    /// value, the strongest first; `#` begins a comment. As many levels are stronger than nice 0 as half of them,
    /// unless a line `first = NICE` comes before.
    ///
    /// # Errors
    /// [`WeightsError`] says what is wrong, in which line.
    pub fn parse(text: &str) -> Result<WeightTable, WeightsError> {
        let mut parts = text.split(':');
        match (parts.next().unwrap_or_default(), parts.next(), parts.next(), parts.next()) {
            ("linux", None, None, None) => Ok(WeightTable::linux()),
            ("group", Some(size), range @ (None | Some("shrink")), None) => {
                let range = if range.is_some() { Range::Shrink } else { Range::Keep };
                let size = size.parse().map_err(|_| WeightsError::Group(size.to_owned()))?;
                WeightTable::grouped(size, range)
            }
            ("refine", Some(count), None, None) => {
                let count = count.parse().map_err(|_| WeightsError::Refine(count.to_owned()))?;
                WeightTable::refined(count)
            }
            _ if text.contains(['/', '.']) || Path::new(text).exists() => {
                let content = std::fs::read_to_string(text).map_err(|error| WeightsError::Unreadable {
                    path: text.to_owned(),
                    error: error.to_string(),
                })?;
                WeightTable::from_text(text, &content)
            }
            _ => Err(WeightsError::Unknown(text.to_owned())),
        }
    }

    /// Reads the content of a file of that name.
    ///
    /// # Errors
    /// As [`WeightTable::parse`].
    pub fn from_text(name: &str, content: &str) -> Result<WeightTable, WeightsError> {
        let (mut first, mut weights) = (None, Vec::new());
        for (number, line) in content.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let place = || format!("{name}:{}", number + 1);
            if let Some((key, value)) = line.split_once('=') {
                let nice =
                    value.trim().parse::<i8>().ok().filter(|_| key.trim() == "first" && first.is_none());
                first = Some(
                    nice.ok_or_else(|| WeightsError::NotAWeight { place: place(), text: line.to_owned() })?,
                );
                continue;
            }
            for word in line.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
                let weight = word.parse::<u32>().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
                let weight = weight
                    .ok_or_else(|| WeightsError::NotAWeight { place: place(), text: word.to_owned() })?;
                if let Some(&before) = weights.last().filter(|&&before| before < weight) {
                    return Err(WeightsError::Rises { place: place(), weight, before });
                }
                weights.push(weight);
            }
        }
        let first = first.unwrap_or(-((weights.len().min(LEVELS_MAX) / 2) as i8));
        WeightTable::new(name, first, weights)
    }

    /// How it was asked for: `linux`, `group:2`, a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The nice values it has, strongest and weakest.
    pub fn range(&self) -> (Nice, Nice) {
        (Nice(self.first), Nice((i32::from(self.first) + self.weights.len() as i32 - 1) as i8))
    }

    /// All weights, that of the strongest nice value first.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// The weight of a nice value; one that is out of its range has that of the nearest end.
    pub fn weight(&self, nice: Nice) -> u32 {
        let index = i32::from(nice.0) - i32::from(self.first);
        self.weights[index.clamp(0, self.weights.len() as i32 - 1) as usize]
    }

    /// Whether it has a weight of its own for a nice value.
    pub fn has(&self, nice: Nice) -> bool {
        let (strongest, weakest) = self.range();
        (strongest..=weakest).contains(&nice)
    }

    /// As the variables of a scheduler's object that takes a table (bpf/include/placement.bpf.h): the weights of as
    /// many nice values as the table has room for, the last repeated, and the `static_prio` of the first.
    pub fn variables(&self) -> ([u32; LEVELS_MAX], u32) {
        let mut weights = [*self.weights.last().expect("a table has a weight"); LEVELS_MAX];
        weights[..self.weights.len()].copy_from_slice(&self.weights);
        (weights, Nice(self.first).static_prio())
    }

    /// The same by the names of a variable each: `weight_of_prio[0]` and so on, and `weight_prio_first`.
    pub fn elements(&self) -> Vec<(String, i64)> {
        let (weights, first) = self.variables();
        let element =
            |(index, weight): (usize, &u32)| (format!("weight_of_prio[{index}]"), i64::from(*weight));
        let first = ("weight_prio_first".to_owned(), i64::from(first));
        weights.iter().enumerate().map(element).chain([first]).collect()
    }

    /// `sched_prio_to_wmult`: 2^32 / weight, rounded to nearest.
    pub fn inverse(&self, nice: Nice) -> u32 {
        let weight = u64::from(self.weight(nice));
        (((1_u64 << 32) + weight / 2) / weight).min(u64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests;
