//! CFS's arithmetic against values worked out by hand. One CPU, so latency 6 ms, granularities 0.75 and 1 ms.

use super::*;
use crate::fair::params::Generation;
use schedlab_model::machine::KernelVersion;

const MS: i64 = 1_000_000;

fn params(version: KernelVersion) -> FairParams {
    FairParams::new(version, 1)
}

/// A queue of entities (weight, vruntime), tasks 1, 2, ..., none of them current.
fn queue(rows: &[(u32, i64)]) -> (CfsRq, Vec<FairEntity>) {
    let params = params(KernelVersion::V5_7);
    let mut entities = vec![FairEntity::new(1, 0, &params)];
    let mut rq = CfsRq::new(Generation::Cfs);
    for (index, &(weight, vruntime)) in rows.iter().enumerate() {
        entities.push(FairEntity { vruntime, ..FairEntity::new(weight, 0, &params) });
        rq.account_enqueue(&mut entities, EntityId(index as u32 + 1));
        rq.nr_runnable += 1;
    }
    rq.update_min_vruntime(&entities);
    (rq, entities)
}

/// `sched_slice` on a queue without groups.
fn slice(rq: &CfsRq, asker: Asker, params: &FairParams) -> u64 {
    let queued = rq.nr_queued + u32::from(!asker.on_rq);
    rq.at_least_granularity(rq.share(asker, period(queued.into(), params)), asker.idle, params)
}

fn asker(weight: u32) -> Asker {
    Asker { weight, on_rq: true, idle: false }
}

/// Latency 6 ms, least 0.75 ms, wake-up 1 ms, times 1 + log2(CPUs up to 8); up to 6 / 0.75 = 8 tasks share a latency.
#[test]
fn knobs_scale_with_the_cpus_and_have_the_kernels_names() {
    let knobs = |version, cpus| -> Vec<(String, i64)> {
        let of = FairParams::new(version, cpus).knobs();
        of.into_iter().take(3).map(|knob| (knob.name, knob.default)).collect()
    };
    let named = |prefix: &str, factor: i64| {
        [("latency_ns", 6 * MS), ("min_granularity_ns", MS * 3 / 4), ("wakeup_granularity_ns", MS)]
            .map(|(name, value)| (format!("{prefix}{name}"), value * factor))
    };
    assert_eq!(knobs(KernelVersion::V5_7, 1), named("sched_", 1));
    assert_eq!(knobs(KernelVersion::V5_7, 4), named("sched_", 3));
    assert_eq!(knobs(KernelVersion::V6_1, 64), named("", 4));
    let mut changed = params(KernelVersion::V6_1);
    assert_eq!(changed.nr_latency(), 8);
    changed.set("min_granularity_ns", 4 * MS).expect("in bounds");
    assert_eq!(changed.nr_latency(), 2);
    assert!(changed.set("base_slice_ns", MS).is_err(), "EEVDF's knob");
    assert!(
        params(KernelVersion::V6_1).knows("GENTLE_FAIR_SLEEPERS")
            && !params(KernelVersion::V6_1).knows("RUN_TO_PARITY")
    );
}

/// Three of nice 0: the inverse of 3072 is ⌊(2^32−1)/3072⌋ = 1398101, 6 ms · 1024 · 1398101 >> 32 = 1999999.
/// Nice 0 and 5 (335 of 1359): 4520971 and 1479028. Nine of nice 0: a period of 9 · 0.75 ms, 749998 each.
#[test]
fn slices_are_shares_of_the_period() {
    let (rq, _) = queue(&[(1_024, 0); 3]);
    assert_eq!(slice(&rq, asker(1_024), &params(KernelVersion::V5_7)), 1_999_999);
    let (rq, _) = queue(&[(1_024, 0), (335, 0)]);
    assert_eq!(slice(&rq, asker(1_024), &params(KernelVersion::V5_7)), 4_520_971);
    assert_eq!(slice(&rq, asker(335), &params(KernelVersion::V5_7)), 1_479_028);
    let (rq, _) = queue(&[(1_024, 0); 9]);
    assert_eq!(slice(&rq, asker(1_024), &params(KernelVersion::V5_7)), 749_998);
}

/// SCHED_IDLE (weight 3) beside nice 0: 17526 ns of 6 ms; since 5.13 (BASE_SLICE) never less than a granularity.
#[test]
fn newer_kernels_give_no_slice_below_the_granularity() {
    let (mut rq, _) = queue(&[(1_024, 0), (3, 0)]);
    rq.nr_idle = 1;
    let idle = Asker { weight: 3, on_rq: true, idle: true };
    assert_eq!(slice(&rq, idle, &params(KernelVersion::V5_7)), 17_526);
    assert_eq!(slice(&rq, idle, &params(KernelVersion::V6_1)), 750_000);
}

/// The queue is at 100 ms. A sleeper gets half a latency of credit (GENTLE_FAIR_SLEEPERS), a whole one without; one
/// that slept shortly keeps its own. SCHED_IDLE gets half a granularity in 6.1. A new task starts a slice later:
/// half of 6 ms by 1024 of 2048, 2999998 in fixed point.
#[test]
fn sleepers_get_credit_and_new_tasks_a_debit() {
    let (rq, entities) = queue(&[(1_024, 100 * MS)]);
    let place = |vruntime: i64, initial: bool, idle: bool, params: &FairParams| {
        let mut entity = FairEntity { vruntime, on_rq: false, ..entities[1] };
        let asker = Asker { weight: 1_024, on_rq: false, idle };
        let debit = initial.then(|| slice(&rq, asker, params));
        rq.place_cfs(&mut entity, debit, idle, params);
        entity.vruntime
    };
    let mut old = params(KernelVersion::V5_7);
    assert_eq!(place(50 * MS, false, false, &old), 97 * MS);
    assert_eq!(place(98 * MS, false, false, &old), 98 * MS);
    assert_eq!(place(50 * MS, false, true, &params(KernelVersion::V6_1)), 100 * MS - 375_000);
    assert_eq!(place(0, true, false, &old), 100 * MS + 2_999_998);
    old.set("GENTLE_FAIR_SLEEPERS", 0).expect("a feature");
    assert_eq!(place(50 * MS, false, false, &old), 94 * MS);
    old.set("START_DEBIT", 0).expect("a feature");
    assert_eq!(place(0, true, false, &old), 100 * MS);
}

/// A woken task of nice 0 must be more than 1 ms behind, of nice 5 more than 3056716 ns.
#[test]
fn the_granularity_is_in_the_wakees_virtual_time() {
    let check = |weight: u32, behind: i64| {
        let (_, entities) = queue(&[(1_024, 10 * MS), (weight, 10 * MS - behind)]);
        wakeup_preempt_entity(&entities, EntityId(1), EntityId(2), &params(KernelVersion::V5_7))
    };
    assert_eq!([check(1_024, -1), check(1_024, 0)], [-1, -1]);
    assert_eq!([check(1_024, 1), check(1_024, MS), check(1_024, MS + 1)], [0, 0, 1]);
    let five = queue(&[(335, 0)]).1[1].load.virtual_time(MS as u64) as i64;
    assert_eq!(five, 3_056_716);
    assert_eq!([check(335, five), check(335, five + 1)], [0, 1]);
}

/// The smallest vruntime runs, unless it yielded and another is within the granularity; a buddy within it goes first.
#[test]
fn buddies_and_yields_bend_the_order() {
    let (mut rq, entities) = queue(&[(1_024, 0), (1_024, MS / 2), (1_024, 5 * MS)]);
    let pick = |rq: &CfsRq| rq.pick_cfs(&entities, &params(KernelVersion::V5_7));
    assert_eq!(pick(&rq), Some(EntityId(1)));
    rq.skip = Some(EntityId(1));
    assert_eq!(pick(&rq), Some(EntityId(2)));
    rq.next = Some(EntityId(3));
    assert_eq!(pick(&rq), Some(EntityId(2)), "a buddy 5 ms ahead waits");
    (rq.skip, rq.next, rq.last) = (None, None, Some(EntityId(2)));
    assert_eq!(pick(&rq), Some(EntityId(2)));
}

/// `min_vruntime` follows the smallest and never falls.
#[test]
fn the_queues_time_is_monotonic() {
    let (mut rq, mut entities) = queue(&[(1_024, 7), (1_024, 9)]);
    assert_eq!(rq.min_vruntime, 7);
    rq.account_dequeue(&mut entities, EntityId(1));
    rq.update_min_vruntime(&entities);
    assert_eq!(rq.min_vruntime, 9);
    entities[1].vruntime = 3;
    rq.account_enqueue(&mut entities, EntityId(1));
    rq.update_min_vruntime(&entities);
    assert_eq!(rq.min_vruntime, 9);
}
