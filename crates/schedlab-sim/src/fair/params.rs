//! The fair class's knobs and features, and their values in each kernel.

use crate::error::SimError;
use schedlab_model::knob::Knob;
use schedlab_model::machine::KernelVersion;

/// Scheduler features (`/sys/kernel/debug/sched/features`), as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features(u32);

macro_rules! features {
    ($($name:ident = $bit:literal;)*) => {
        #[allow(dead_code)]
        impl Features {
            $(pub(crate) const $name: Features = Features(1 << $bit);)*
            /// Every feature and its name.
            pub(crate) const NAMES: &'static [(&'static str, Features)] = &[$((stringify!($name), Features::$name)),*];
        }
    };
}

features! {
    PLACE_LAG = 0;
    PLACE_DEADLINE_INITIAL = 1;
    PLACE_REL_DEADLINE = 2;
    RUN_TO_PARITY = 3;
    PREEMPT_SHORT = 4;
    NEXT_BUDDY = 5;
    PICK_BUDDY = 6;
    DELAY_DEQUEUE = 7;
    DELAY_ZERO = 8;
    WAKEUP_PREEMPTION = 9;
    NI_RANDOM = 10;
    SIS_UTIL = 11;
    TTWU_QUEUE = 12;
    WA_IDLE = 13;
    WA_WEIGHT = 14;
}

/// Knobs of the fair class.
#[derive(Clone, Debug)]
pub(crate) struct FairParams {
    /// `base_slice_ns`, scaled for the number of CPUs.
    pub(crate) base_slice: u64,
    /// The same, unscaled.
    pub(crate) normalized_base_slice: u64,
    /// `migration_cost_ns`: a task that ran less than this ago is cache-hot.
    pub(crate) migration_cost: u64,
    /// `nr_migrate`: most tasks one balance pass looks at.
    pub(crate) nr_migrate: u32,
    features: u32,
    /// EEVDF before `vprot` (6.12): the whole slice is protected from the pick on.
    pub(crate) protects_whole_slice: bool,
}

impl FairParams {
    /// Defaults of a kernel on a machine with this many CPUs.
    pub(crate) fn new(version: KernelVersion, cpus: usize) -> FairParams {
        let normalized = if version < (KernelVersion { major: 6, minor: 15 }) { 750_000 } else { 700_000 };
        let factor = 1 + u64::from(cpus.min(8).ilog2());
        let on = [
            Features::PLACE_LAG,
            Features::PLACE_DEADLINE_INITIAL,
            Features::PLACE_REL_DEADLINE,
            Features::RUN_TO_PARITY,
            Features::PREEMPT_SHORT,
            Features::PICK_BUDDY,
            Features::DELAY_DEQUEUE,
            Features::DELAY_ZERO,
            Features::WAKEUP_PREEMPTION,
            Features::SIS_UTIL,
            Features::TTWU_QUEUE,
            Features::WA_IDLE,
            Features::WA_WEIGHT,
        ];
        let mut features = on.iter().fold(0, |bits, feature| bits | feature.0);
        if version >= (KernelVersion { major: 6, minor: 19 }) {
            features |= Features::NI_RANDOM.0;
        }
        FairParams {
            base_slice: normalized * factor,
            normalized_base_slice: normalized,
            migration_cost: 500_000,
            nr_migrate: 32,
            features,
            protects_whole_slice: version < KernelVersion { major: 6, minor: 17 },
        }
    }

    /// Whether a feature is on.
    #[inline]
    pub(crate) fn has(&self, feature: Features) -> bool {
        self.features & feature.0 != 0
    }

    /// The knobs, with their defaults here.
    pub(crate) fn knobs(&self) -> Vec<Knob> {
        let knob = |name: &str, unit: &str, (min, max): (i64, i64), default: u64, meaning: &str| Knob {
            name: name.to_owned(),
            unit: unit.to_owned(),
            min,
            max,
            default: default as i64,
            live: true,
            meaning: meaning.to_owned(),
        };
        let mut knobs = vec![
            knob(
                "base_slice_ns",
                "ns",
                (100_000, 1_000_000_000),
                self.base_slice,
                "Slice of tasks without one of their own.",
            ),
            knob(
                "migration_cost_ns",
                "ns",
                (0, 1_000_000_000),
                self.migration_cost,
                "A task that ran less than this ago is cache-hot and is not balanced.",
            ),
            knob(
                "nr_migrate",
                "tasks",
                (1, 1_024),
                u64::from(self.nr_migrate),
                "Most tasks that one balance pass looks at.",
            ),
        ];
        knobs.extend(Features::NAMES.iter().map(|(name, feature)| {
            knob(name, "", (0, 1), u64::from(self.has(*feature)), "Scheduler feature: 0 off, 1 on.")
        }));
        knobs
    }

    /// Whether a knob of this name exists.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.knobs().iter().any(|knob| knob.name == name)
    }

    /// Sets a knob by the kernel's name; features also by theirs.
    pub(crate) fn set(&mut self, name: &str, value: i64) -> Result<(), SimError> {
        let fail = |reason: String| SimError::Setting { name: name.to_owned(), reason };
        let knobs = self.knobs();
        let Some(knob) = knobs.iter().find(|knob| knob.name == name) else {
            let names: Vec<&str> = knobs.iter().map(|knob| knob.name.as_str()).collect();
            return Err(fail(format!("no such knob of the fair class: choose one of {}", names.join(", "))));
        };
        knob.check(value).map_err(|error| fail(error.to_string()))?;
        match name {
            "base_slice_ns" => self.base_slice = value as u64,
            "migration_cost_ns" => self.migration_cost = value as u64,
            "nr_migrate" => self.nr_migrate = value as u32,
            _ => {
                let found = Features::NAMES.iter().find(|(feature, _)| *feature == name);
                let (_, feature) = found.expect("every other knob is a feature");
                self.features =
                    if value == 1 { self.features | feature.0 } else { self.features & !feature.0 };
            }
        }
        Ok(())
    }
}
