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
    GENTLE_FAIR_SLEEPERS = 15;
    START_DEBIT = 16;
    LAST_BUDDY = 17;
    CACHE_HOT_BUDDY = 18;
    BASE_SLICE = 19;
    HRTICK = 20;
    NI_RATE = 21;
}

/// Which algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Completely Fair Scheduler, before 6.6.
    Cfs,
    /// Earliest Eligible Virtual Deadline First.
    #[default]
    Eevdf,
}

/// A kernel and what it brought: features from then on, and whether they are on.
type Brought = (u16, u16, Features, bool);

/// Features by the kernel that brought them; the oldest modelled is 5.7.
const BROUGHT: &[Brought] = &[
    (5, 7, Features::WAKEUP_PREEMPTION, true),
    (5, 7, Features::NEXT_BUDDY, false),
    (5, 7, Features::TTWU_QUEUE, true),
    (5, 7, Features::WA_IDLE, true),
    (5, 7, Features::WA_WEIGHT, true),
    (5, 7, Features::GENTLE_FAIR_SLEEPERS, true),
    (5, 7, Features::START_DEBIT, true),
    (5, 7, Features::LAST_BUDDY, true),
    (5, 7, Features::CACHE_HOT_BUDDY, true),
    (5, 13, Features::BASE_SLICE, true),
    (5, 19, Features::SIS_UTIL, true),
    (6, 6, Features::PLACE_LAG, true),
    (6, 6, Features::PLACE_DEADLINE_INITIAL, true),
    (6, 6, Features::RUN_TO_PARITY, true),
    (6, 12, Features::PLACE_REL_DEADLINE, true),
    (6, 12, Features::PREEMPT_SHORT, true),
    (6, 12, Features::DELAY_DEQUEUE, true),
    (6, 12, Features::DELAY_ZERO, true),
    (6, 12, Features::PICK_BUDDY, true),
    // 6.19, and 6.18 by its stable updates.
    (6, 18, Features::NI_RANDOM, true),
    (7, 2, Features::NI_RATE, true),
    // On where timers are rearmed late, as on x86.
    (7, 2, Features::HRTICK, true),
];

/// Features that went with CFS.
const OF_CFS: &[Features] =
    &[Features::GENTLE_FAIR_SLEEPERS, Features::START_DEBIT, Features::LAST_BUDDY, Features::BASE_SLICE];

/// Feature bits of a kernel: those it has, and those that are on.
fn features_of(version: KernelVersion, generation: Generation) -> (u32, u32) {
    let (mut known, mut on) = (0, 0);
    for (major, minor, feature, default) in BROUGHT {
        let gone = generation == Generation::Eevdf && OF_CFS.contains(feature);
        if version >= (KernelVersion { major: *major, minor: *minor }) && !gone {
            known |= feature.0;
            on |= if *default { feature.0 } else { 0 };
        }
    }
    (known, on)
}

/// Knobs of the fair class.
#[derive(Clone, Debug)]
pub(crate) struct FairParams {
    /// `base_slice_ns`, scaled for the number of CPUs.
    pub(crate) base_slice: u64,
    /// The same, unscaled.
    pub(crate) normalized_base_slice: u64,
    /// CFS `sched_latency_ns` (`latency_ns`): every task runs once in it, if they are few.
    pub(crate) latency: u64,
    /// CFS `sched_min_granularity_ns`: the least that a task runs before the tick looks for another.
    pub(crate) min_granularity: u64,
    /// CFS `idle_min_granularity_ns`: the same for SCHED_IDLE beside others (since 5.15).
    pub(crate) idle_min_granularity: u64,
    /// CFS `sched_wakeup_granularity_ns`: how far behind a woken task must be to preempt.
    pub(crate) wakeup_granularity: u64,
    /// CFS since 5.15: SCHED_IDLE sleepers are placed with less credit.
    pub(crate) idle_sleepers_get_less: bool,
    /// `migration_cost_ns`: a task that ran less than this ago is cache-hot.
    pub(crate) migration_cost: u64,
    /// `nr_migrate`: most tasks one balance pass looks at.
    pub(crate) nr_migrate: u64,
    /// Which algorithm.
    pub(crate) generation: Generation,
    /// Knobs of CFS have `sched_` before their names: sysctls before 5.13, debugfs files since.
    sysctls: bool,
    known: u32,
    /// `sched_vcpu_pack`, a vendor's: a wakee stays on its busy CPU while that has use of less than so many percent
    /// of its capacity with it, though others idle. 0 is mainline.
    pub(crate) vcpu_pack_percent: u64,
    features: u32,
    /// 7.2: lag is clamped by the longest slice on the queue, a delayed sleeper's lag never falls and is never
    /// positive, and whoever runs is charged before a delayed sleeper is put back.
    pub(crate) later_lag_rules: bool,
    /// Whether a woken task preempts is decided by a pick, which takes delayed sleepers off the queue; who is not preempted
    /// has its protection shortened; new tasks do not preempt. In 6.18 since its stable releases of May 2026, in 7.2 as
    /// released.
    pub(crate) picks_at_wakeup: bool,
    /// 7.2: `newidle_ratio` is at most 1024, and then every CPU that goes idle searches.
    pub(crate) bounds_newidle_ratio: bool,
    /// Balancing moves tasks that are not eligible only after a failure (`task_is_ineligible_on_dst_cpu`), and delayed
    /// sleepers only where load is evened out.
    pub(crate) spares_delayed: bool,
    /// CFS since 6.2: no slice is longer than the latency.
    pub(crate) limits_slice: bool,
    /// `cpu.idle` exists (since 5.15).
    pub(crate) has_group_idle: bool,
    /// Quotas throttle tasks on their return to user space (since 6.18), not the group's entity.
    pub(crate) throttles_tasks: bool,
    /// Periods of quotas start at a random phase (6.12; not 6.1).
    pub(crate) random_period_phase: bool,
    /// `sched_cfs_bandwidth_slice_us`: what a CPU takes from its group's quota at a time.
    bandwidth_slice_us: u64,
    /// `sched_autogroup_enabled`: groups of sessions are scheduled as groups.
    pub(crate) autogroup: u64,
    /// `sched_itmt_enabled`: cores that differ and have threads are preferred by their strength, as on x86.
    pub(crate) itmt: u64,
    /// EEVDF before `vprot` (6.12): the whole slice is protected from the pick on.
    pub(crate) protects_whole_slice: bool,
}

impl FairParams {
    /// Defaults of a kernel on a machine with this many CPUs.
    pub(crate) fn new(version: KernelVersion, cpus: usize) -> FairParams {
        let since = |major: u16, minor: u16| version >= KernelVersion { major, minor };
        let generation = if since(6, 6) { Generation::Eevdf } else { Generation::Cfs };
        let normalized = if since(6, 15) { 700_000 } else { 750_000 };
        let factor = 1 + u64::from(cpus.min(8).ilog2());
        let (known, features) = features_of(version, generation);
        FairParams {
            base_slice: normalized * factor,
            normalized_base_slice: normalized,
            latency: 6_000_000 * factor,
            min_granularity: 750_000 * factor,
            idle_min_granularity: 750_000,
            wakeup_granularity: 1_000_000 * factor,
            idle_sleepers_get_less: since(5, 15),
            migration_cost: 500_000,
            nr_migrate: 32,
            generation,
            sysctls: !since(5, 13),
            known,
            vcpu_pack_percent: 0,
            features,
            later_lag_rules: since(6, 19),
            picks_at_wakeup: since(6, 18),
            bounds_newidle_ratio: since(7, 2),
            spares_delayed: since(6, 14),
            limits_slice: since(6, 2),
            has_group_idle: since(5, 15),
            throttles_tasks: since(6, 18),
            random_period_phase: since(6, 7),
            bandwidth_slice_us: 5_000,
            autogroup: 1,
            itmt: 1,
            protects_whole_slice: !since(6, 17),
        }
    }

    /// `sched_nr_latency`: up to so many tasks share one latency.
    pub(crate) fn nr_latency(&self) -> u64 {
        self.latency.div_ceil(self.min_granularity)
    }

    /// `sched_cfs_bandwidth_slice`, in ns.
    pub(crate) fn bandwidth_slice(&self) -> u64 {
        self.bandwidth_slice_us * 1_000
    }

    /// Whether a feature is on.
    #[inline]
    pub(crate) fn has(&self, feature: Features) -> bool {
        self.features & feature.0 != 0
    }

    /// The knobs, with their defaults here.
    pub(crate) fn knobs(&self) -> Vec<Knob> {
        let mut knobs: Vec<Knob> = self.numbers().iter().map(|number| number.knob(self)).collect();
        knobs.extend(Features::NAMES.iter().filter(|(_, feature)| self.known & feature.0 != 0).map(
            |(name, feature)| Knob {
                name: (*name).to_owned(),
                unit: String::new(),
                min: 0,
                max: 1,
                default: i64::from(self.has(*feature)),
                live: true,
                meaning: "Scheduler feature: 0 off, 1 on.".to_owned(),
            },
        ));
        knobs
    }

    /// The knobs that are numbers.
    fn numbers(&self) -> &'static [Number] {
        match (self.generation, self.sysctls) {
            (Generation::Eevdf, _) => NUMBERS_OF_EEVDF,
            (Generation::Cfs, true) => SYSCTLS_OF_CFS,
            (Generation::Cfs, false) => NUMBERS_OF_CFS,
        }
    }

    /// Whether a knob of this name exists.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.knobs().iter().any(|knob| knob.name == name)
    }

    /// Whether a knob may get this value while it runs.
    pub(crate) fn check_live(&self, name: &str, value: i64) -> Result<(), SimError> {
        self.clone().set(name, value)?;
        if self.knobs().iter().any(|knob| knob.name == name && !knob.live) {
            let reason =
                "it decides what the machine is like: set it for the whole run with --set".to_owned();
            return Err(SimError::Setting { name: name.to_owned(), reason });
        }
        Ok(())
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
        if let Some(number) = self.numbers().iter().find(|number| number.name == name) {
            *(number.value)(self) = value as u64;
            return Ok(());
        }
        let found = Features::NAMES.iter().find(|(feature, _)| *feature == name);
        let (_, feature) = found.expect("every other knob is a feature");
        self.features = if value == 1 { self.features | feature.0 } else { self.features & !feature.0 };
        Ok(())
    }
}

/// A knob that is a number.
struct Number {
    name: &'static str,
    unit: &'static str,
    bounds: (i64, i64),
    meaning: &'static str,
    /// Whether it may change while it runs.
    live: bool,
    value: fn(&mut FairParams) -> &mut u64,
}

impl Number {
    fn knob(&self, params: &FairParams) -> Knob {
        Knob {
            name: self.name.to_owned(),
            unit: self.unit.to_owned(),
            min: self.bounds.0,
            max: self.bounds.1,
            default: *(self.value)(&mut params.clone()) as i64,
            live: self.live,
            meaning: self.meaning.to_owned(),
        }
    }
}

/// Bounds of the granularities, as in kernel/sysctl.c.
const GRANULARITY: (i64, i64) = (100_000, 1_000_000_000);

macro_rules! numbers {
    ($constant:ident, $latency:literal, $minimum:literal, $wakeup:literal, $migration:literal, $migrate:literal $(, $more:expr)*) => {
        const $constant: &[Number] = &[
            Number {
                name: $latency,
                unit: "ns",
                bounds: GRANULARITY,
                meaning: "Time in which every task runs once, while they are few.",
                live: true,
                value: |params| &mut params.latency,
            },
            Number {
                name: $minimum,
                unit: "ns",
                bounds: GRANULARITY,
                meaning: "Least time that a task runs before the tick looks for another.",
                live: true,
                value: |params| &mut params.min_granularity,
            },
            Number {
                name: $wakeup,
                unit: "ns",
                bounds: (0, GRANULARITY.1),
                meaning: "How far behind the current task a woken one must be to preempt it.",
                live: true,
                value: |params| &mut params.wakeup_granularity,
            },
            migration_cost($migration),
            nr_migrate($migrate),
            BANDWIDTH_SLICE,
            AUTOGROUP,
            ITMT,
            $($more),*
        ];
    };
}

const fn migration_cost(name: &'static str) -> Number {
    Number {
        name,
        unit: "ns",
        bounds: (0, 1_000_000_000),
        meaning: "A task that ran less than this ago is cache-hot and is not balanced.",
        live: true,
        value: |params| &mut params.migration_cost,
    }
}

const BANDWIDTH_SLICE: Number = Number {
    name: "sched_cfs_bandwidth_slice_us",
    unit: "us",
    bounds: (1, 1_000_000),
    meaning: "What a CPU takes from a group's quota at a time.",
    live: true,
    value: |params| &mut params.bandwidth_slice_us,
};

/// Something that is on or off for a whole run.
const fn switch(name: &'static str, meaning: &'static str, value: fn(&mut FairParams) -> &mut u64) -> Number {
    Number { name, unit: "", bounds: (0, 1), meaning, live: false, value }
}

const AUTOGROUP: Number = switch(
    "sched_autogroup_enabled",
    "Sessions without a cgroup of their own are groups: 0 off, 1 on.",
    |params| &mut params.autogroup,
);

const ITMT: Number = switch(
    "sched_itmt_enabled",
    "Where cores differ and have threads: 1 prefers the stronger, as x86 does; 0 goes by their capacities.",
    |params| &mut params.itmt,
);

const fn nr_migrate(name: &'static str) -> Number {
    Number {
        name,
        unit: "tasks",
        bounds: (1, 1_024),
        meaning: "Most tasks that one balance pass looks at.",
        live: true,
        value: |params| &mut params.nr_migrate,
    }
}

numbers!(
    SYSCTLS_OF_CFS,
    "sched_latency_ns",
    "sched_min_granularity_ns",
    "sched_wakeup_granularity_ns",
    "sched_migration_cost_ns",
    "sched_nr_migrate"
);
numbers!(
    NUMBERS_OF_CFS,
    "latency_ns",
    "min_granularity_ns",
    "wakeup_granularity_ns",
    "migration_cost_ns",
    "nr_migrate",
    Number {
        name: "idle_min_granularity_ns",
        unit: "ns",
        bounds: GRANULARITY,
        meaning: "The least time for SCHED_IDLE tasks beside others.",
        live: true,
        value: |params| &mut params.idle_min_granularity,
    }
);

const NUMBERS_OF_EEVDF: &[Number] = &[
    Number {
        name: "base_slice_ns",
        unit: "ns",
        bounds: GRANULARITY,
        meaning: "Slice of tasks without one of their own.",
        live: true,
        value: |params| &mut params.base_slice,
    },
    migration_cost("migration_cost_ns"),
    nr_migrate("nr_migrate"),
    BANDWIDTH_SLICE,
    AUTOGROUP,
    ITMT,
    Number {
        name: "vcpu_pack_percent",
        unit: "%",
        bounds: (0, 100),
        meaning: "A vendor's: a wakee stays on a busy CPU while its use with the wakee is below this; 0 is mainline.",
        live: true,
        value: |params| &mut params.vcpu_pack_percent,
    },
];
