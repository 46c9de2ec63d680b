//! PELT: averages of load and use that halve every 32 ms (kernel/sched/pelt.c), for tasks and for run queues.
//!
//! Time is cut into periods of 1024 µs; a period counts y times the next one, with y³² = ½. Integer arithmetic as
//! in Linux, so that averages grow and fade as there. Who uses them: [`super::select`], [`super::balance`].

/// yⁿ · 2³² for n below 32.
const Y_N_INVERSE: [u32; 32] = [
    0xffff_ffff,
    0xfa83_b2da,
    0xf525_7d14,
    0xefe4_b99a,
    0xeac0_c6e6,
    0xe5b9_06e6,
    0xe0cc_deeb,
    0xdbfb_b796,
    0xd744_fcc9,
    0xd2a8_1d91,
    0xce24_8c14,
    0xc9b9_bd85,
    0xc567_2a10,
    0xc12c_4cc9,
    0xbd08_a39e,
    0xb8fb_af46,
    0xb504_f333,
    0xb123_f581,
    0xad58_3ee9,
    0xa9a1_5ab4,
    0xa5fe_d6a9,
    0xa270_4302,
    0x9ef5_325f,
    0x9b8d_39b9,
    0x9837_f050,
    0x94f4_efa8,
    0x91c3_d373,
    0x8ea4_398a,
    0x8b95_c1e3,
    0x8898_0e80,
    0x85aa_c367,
    0x82cd_8698,
];
/// Periods in which a value halves.
const HALF_LIFE: u64 = 32;
/// Where a sum of full periods saturates: 1024 · Σ yⁿ.
const SUM_MAX: u64 = 47_742;
/// Length of a period in units of 1024 ns.
const PERIOD: u64 = 1_024;
/// Full use of the strongest CPU (`SCHED_CAPACITY_SCALE`).
pub(crate) const CAPACITY: u64 = 1_024;

/// Sums and averages of a task or a run queue (`struct sched_avg`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average {
    /// Up to when, in units of 1024 ns.
    updated: u64,
    /// How much of the current period has passed.
    contribution: u64,
    load_sum: u64,
    runnable_sum: u64,
    util_sum: u64,
    /// Weight, by the share of time runnable.
    pub(crate) load: u64,
    /// Tasks that were runnable, on average, times 1024.
    pub(crate) runnable: u64,
    /// Share of time running, of 1024.
    pub(crate) util: u64,
}

/// What counts from the last update to now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    /// Factor of the load sum: a queue's weight, or 1 for a task that is queued.
    pub(crate) load: u64,
    /// Tasks runnable.
    pub(crate) runnable: u64,
    /// Whether it had the CPU.
    pub(crate) running: bool,
    /// Factor of the load average: 1 for a queue, the weight for a task.
    pub(crate) weight: u64,
}

impl Average {
    /// A new task: as heavy as if it had always run (`init_entity_runnable_average`), no use yet.
    pub(crate) fn of_new_task(weight: u64) -> Average {
        Average { load: weight, load_sum: SUM_MAX - PERIOD, ..Average::default() }
    }

    /// Whether [`Average::update`] has anything to do at `now`.
    #[inline]
    pub(crate) fn is_behind(&self, now: u64) -> bool {
        now >> 10 > self.updated
    }

    /// Brings the averages to `now` in ns (`__update_load_avg_se`, `__update_load_avg_cfs_rq`).
    #[inline]
    pub(crate) fn update(&mut self, now: u64, activity: Activity) {
        let now = now >> 10;
        let passed = now.saturating_sub(self.updated);
        if passed > 0 {
            self.updated = now;
            self.accumulate(passed, activity);
        }
    }

    #[inline(always)]
    fn accumulate(&mut self, passed: u64, activity: Activity) {
        let total = passed + self.contribution;
        let periods = total / PERIOD;
        let mut weighted = passed;
        if periods > 0 {
            for sum in [&mut self.load_sum, &mut self.runnable_sum, &mut self.util_sum] {
                *sum = decayed(*sum, periods);
            }
            let begun = decayed(PERIOD - self.contribution, periods);
            weighted = begun + SUM_MAX - decayed(SUM_MAX, periods) - PERIOD + total % PERIOD;
        }
        self.contribution = total % PERIOD;
        if activity.load > 0 {
            self.load_sum += activity.load * weighted;
            self.runnable_sum += activity.runnable * weighted * CAPACITY;
            self.util_sum += u64::from(activity.running) * weighted * CAPACITY;
        }
        if periods > 0 {
            self.average(activity.weight);
        }
    }

    /// `___update_load_avg`: what a sum is of the most it could be.
    fn average(&mut self, weight: u64) {
        let most = self.most();
        self.load = weight * self.load_sum / most;
        self.runnable = self.runnable_sum / most;
        self.util = self.util_sum / most;
    }

    /// `get_pelt_divider`.
    fn most(&self) -> u64 {
        SUM_MAX - PERIOD + self.contribution
    }

    /// `post_init_entity_util_avg`: a new task is taken for half of what its CPU has to spare.
    pub(crate) fn guess_util(&mut self, queue: &Average, weight: u64, capacity: u64) {
        let spare = capacity.saturating_sub(queue.util) / 2;
        let like_others = queue.util * weight / (queue.load + 1);
        self.util = if queue.util > 0 { like_others.min(spare) } else { spare };
        self.util_sum = self.util * self.most();
        self.runnable = self.util;
        self.runnable_sum = self.util_sum;
    }

    /// A task that always ran.
    pub(crate) fn saturate(&mut self) {
        (self.util, self.runnable) = (CAPACITY, CAPACITY);
        (self.util_sum, self.runnable_sum) = (CAPACITY * self.most(), CAPACITY * self.most());
    }

    /// `attach_entity_load_avg`: the task comes to the queue.
    pub(crate) fn attach(&mut self, task: &Average) {
        self.load += task.load;
        self.util += task.util;
        self.runnable += task.runnable;
        self.resum();
    }

    /// `remove_entity_load_avg`: it leaves; here at once, in Linux with the queue's next update.
    pub(crate) fn detach(&mut self, task: &Average) {
        self.load = self.load.saturating_sub(task.load);
        self.util = self.util.saturating_sub(task.util);
        self.runnable = self.runnable.saturating_sub(task.runnable);
        self.resum();
    }

    /// Σ of the time that counted, unweighted for a task or a group.
    pub(crate) fn load_sum(&self) -> u64 {
        self.load_sum
    }

    /// `reweight_entity`'s part: an entity of this queue has another weight.
    pub(crate) fn reweight(&mut self, entity: &mut Average, weight: u64) {
        let load = weight * entity.load_sum / entity.most();
        let before = std::mem::replace(&mut entity.load, load);
        self.load = (self.load + load).saturating_sub(before);
        self.load_sum = self.load * self.most();
    }

    /// `update_tg_cfs_util`, `update_tg_cfs_runnable` and `update_tg_cfs_load` for a group's entity, `self`: it follows
    /// its `own` queue, of total weight `own_weight`, and the queue `above` follows it. `runnable_sum` is what joined
    /// (or left, negative) below.
    pub(crate) fn follow(
        &mut self,
        own: &Average,
        own_weight: u64,
        above: &mut Average,
        weight: u64,
        runnable_sum: i64,
    ) {
        above.util = (above.util + own.util).saturating_sub(self.util);
        above.runnable = (above.runnable + own.runnable).saturating_sub(self.runnable);
        (self.util, self.runnable) = (own.util, own.runnable);
        let most = self.most();
        (self.util_sum, self.runnable_sum) = (self.util * most, self.runnable * most);
        let sum = if runnable_sum >= 0 {
            (self.load_sum + runnable_sum as u64).min(most)
        } else {
            self.load_sum.min(own.load_sum.checked_div(own_weight).unwrap_or(0))
        };
        self.load_sum = sum.max(self.util_sum >> 10);
        let before = std::mem::replace(&mut self.load, weight * self.load_sum / most);
        above.load = (above.load + self.load).saturating_sub(before);
        above.resum();
    }

    fn resum(&mut self) {
        let most = self.most();
        self.load_sum = self.load * most;
        self.util_sum = self.util * most;
        self.runnable_sum = self.runnable * most;
    }
}

/// `decay_load`: the value after so many periods.
fn decayed(value: u64, periods: u64) -> u64 {
    if periods > HALF_LIFE * 63 {
        return 0;
    }
    let halved = value >> (periods / HALF_LIFE);
    ((u128::from(halved) * u128::from(Y_N_INVERSE[(periods % HALF_LIFE) as usize])) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_048_576;

    fn run(average: &mut Average, now: u64, running: bool) {
        let active = u64::from(running);
        average.update(now, Activity { load: active, runnable: active, running, weight: 1_024 });
    }

    /// Always running for a second: nearly all. Then asleep for 32 periods: half of it.
    #[test]
    fn averages_saturate_and_halve_in_32_periods() {
        let mut average = Average::default();
        run(&mut average, 1_000 * MS, true);
        assert!((1_020..=1_024).contains(&average.util), "{}", average.util);
        let before = average.util;
        run(&mut average, 1_032 * MS, false);
        assert!(average.util.abs_diff(before / 2) <= 1, "{}", average.util);
        assert!(average.load.abs_diff(512) <= 2, "{}", average.load);
    }

    /// A quarter of each 8 ms: about 256 of 1024, whatever the phase.
    #[test]
    fn a_part_of_the_time_is_that_part_of_capacity() {
        let mut average = Average::default();
        for round in 0..200 {
            run(&mut average, (round * 8 + 2) * MS, true);
            run(&mut average, (round * 8 + 8) * MS, false);
        }
        assert!((230..=256).contains(&average.util), "{}", average.util);
    }

    /// What a task takes along its old queue no longer has.
    #[test]
    fn a_move_takes_the_tasks_part_along() {
        let mut queue = Average::default();
        queue.update(1_000 * MS, Activity { load: 2_048, runnable: 2, running: true, weight: 1 });
        let before = (queue.load, queue.util);
        let mut task = Average::default();
        run(&mut task, 1_000 * MS, true);
        queue.attach(&task);
        queue.detach(&task);
        assert_eq!((queue.load, queue.util), before);
        assert!(before.0.abs_diff(2_048) <= 8, "{}", before.0);
    }
}
