//! EEVDF's arithmetic against values worked out by hand. Virtual times in ns; nice 0 weighs 1024, nice 5 335.

use super::Fair;
use super::class;
use super::ids::EntityId;
use super::packing;
use super::params::{FairParams, Features};
use super::queue::{CfsRq, FairEntity};
use crate::core::flags;
use crate::kernel::{CostTable, Domains, Kernel, KernelParts, Task};
use crate::rt::Rt;
use schedlab_model::machine::{KernelVersion, Preemption};
use schedlab_model::rng::Rng;
use schedlab_model::topology::Topology;
use schedlab_model::{CpuId, CpuSet, TaskAttributes, TaskId};

const TICK: u64 = 4_000_000;
const CPU: CpuId = CpuId(0);

fn params() -> FairParams {
    FairParams::new(KernelVersion::V6_18, 1)
}

/// A queue of entities (weight, vruntime, deadline), tasks 1, 2, ...
fn queue(rows: &[(u32, i64, i64)]) -> (CfsRq, Vec<FairEntity>) {
    let mut entities = vec![FairEntity::new(1, 0, &params())];
    let mut rq = CfsRq::default();
    for (index, &(weight, vruntime, deadline)) in rows.iter().enumerate() {
        entities.push(FairEntity { vruntime, deadline, ..FairEntity::new(weight, 0, &params()) });
        rq.account_enqueue(&mut entities, EntityId(index as u32 + 1));
    }
    (rq, entities)
}

/// V = (1024·1000 + 2048·4000) / 3072 = 3000: the first is owed 2000, the second has 1000 too much;
/// weighted, 1024·2000 = 2048·1000.
#[test]
fn the_average_is_weighted_and_lags_cancel_out() {
    let (rq, entities) = queue(&[(1_024, 1_000, 5_000), (2_048, 4_000, 5_000)]);
    assert_eq!(rq.avg_vruntime(&entities), 3_000);
    assert_eq!(rq.entity_lag(&entities, EntityId(1), TICK, &params()), 2_000);
    assert_eq!(rq.entity_lag(&entities, EntityId(2), TICK, &params()), -1_000);
    assert!(rq.entity_eligible(&entities, EntityId(1)) && !rq.entity_eligible(&entities, EntityId(2)));
}

/// V = (−1 + 0) / 2 rounds down to −1, but eligibility compares exactly: 0·2048 > −1·1024, so not eligible.
#[test]
fn eligibility_is_exact_where_the_average_rounds() {
    let (rq, entities) = queue(&[(1_024, -1, 5), (1_024, 0, 5)]);
    assert_eq!(rq.avg_vruntime(&entities), -1);
    assert!(rq.entity_eligible(&entities, EntityId(1)) && !rq.entity_eligible(&entities, EntityId(2)));
}

/// The limit is max(2 · 0.7 ms, 4 ms) = 4 ms of real time: at weight 335 that is 4 ms · 1024/335 = 12.227 ms
/// of virtual time.
#[test]
fn lag_is_clamped_to_two_slices_or_a_tick() {
    let (rq, entities) = queue(&[(1_024, 0, 1), (1_024, 40_000_000, 1)]);
    assert_eq!(rq.entity_lag(&entities, EntityId(1), TICK, &params()), 4_000_000);
    assert_eq!(rq.entity_lag(&entities, EntityId(2), TICK, &params()), -4_000_000);
    let (rq, entities) = queue(&[(335, 0, 1), (1_024, 90_000_000, 1)]);
    assert!(rq.entity_lag(&entities, EntityId(1), TICK, &params()).abs_diff(12_226_866) < 10);
}

/// 7.2: the longest slice, here 3 ms, and a tick of 4 ms: 7 ms.
#[test]
fn lag_is_clamped_to_the_longest_slice_and_a_tick_since_7_2() {
    let params = FairParams::new(KernelVersion::V7_2, 1);
    let mut entities = vec![FairEntity::new(1, 0, &params)];
    let mut rq = CfsRq::default();
    for (task, (vruntime, slice)) in [(0, 0), (40_000_000, 3_000_000)].into_iter().enumerate() {
        entities.push(FairEntity { vruntime, ..FairEntity::new(1_024, slice, &params) });
        rq.account_enqueue(&mut entities, EntityId(task as u32 + 1));
    }
    assert_eq!(rq.entity_lag(&entities, EntityId(1), TICK, &params), 7_000_000);
}

/// Queue: one of weight 1024 at 10 ms. A new one of weight 1024 with lag 1 ms is placed with lag
/// 1 ms · (1024 + 1024) / 1024 = 2 ms, at 8 ms. Then V = 9 ms, and what is left of its lag is 1 ms.
#[test]
fn placement_inflates_lag_so_that_it_survives_the_own_weight() {
    let (mut rq, mut entities) = queue(&[(1_024, 10_000_000, 11_000_000)]);
    entities.push(FairEntity { vlag: 1_000_000, ..FairEntity::new(1_024, 0, &params()) });
    rq.place_entity(&mut entities, EntityId(2), false, &params());
    assert_eq!(entities[2].vruntime, 8_000_000);
    rq.account_enqueue(&mut entities, EntityId(2));
    assert_eq!(rq.avg_vruntime(&entities), 9_000_000);
    assert_eq!(rq.entity_lag(&entities, EntityId(2), TICK, &params()), 1_000_000);
}

/// Slice 0.7 ms (normalized, one CPU). Nice 0: 700000 later; nice 5: 700000 · 1024/335 = 2139701.5, in the
/// kernel's fixed point 700000 · 3282124032 >> 30 = 2139701. New tasks get half: 350000 and 1069850.
#[test]
fn deadlines_follow_weight_and_new_tasks_get_half_a_slice() {
    for (weight, whole, half) in [(1_024, 700_000, 350_000), (335, 2_139_701, 1_069_850)] {
        let (mut rq, mut entities) = queue(&[(1_024, 0, 700_000)]);
        entities.push(FairEntity::new(weight, 0, &params()));
        rq.place_entity(&mut entities, EntityId(2), false, &params());
        assert_eq!(entities[2].deadline - entities[2].vruntime, whole);
        rq.place_entity(&mut entities, EntityId(2), true, &params());
        assert_eq!(entities[2].deadline - entities[2].vruntime, half);
    }
}

/// Base slices: 0.70 ms since 6.15 and 0.75 before, times 1 + log2(CPUs up to 8): 1, 2, 4 on 1, 2, 8 CPUs.
#[test]
fn base_slices_are_those_of_the_kernels() {
    let slice = |version, cpus| FairParams::new(version, cpus).base_slice;
    assert_eq!(
        [1, 2, 8, 64].map(|cpus| slice(KernelVersion::V6_18, cpus)),
        [700_000, 1_400_000, 2_800_000, 2_800_000]
    );
    assert_eq!(slice(KernelVersion::V6_12, 4), 2_250_000);
}

/// Deadline 5 is the earliest eligible: V = (0 + 3 − 3)/3 = 0, the one with deadline 4 is at 3, ahead of V.
#[test]
fn the_pick_is_the_earliest_deadline_among_the_eligible() {
    let (rq, entities) = queue(&[(1_024, 0, 5), (1_024, 3, 4), (1_024, -3, 9)]);
    assert_eq!(rq.pick_eevdf(&entities, true, &params()), Some(EntityId(1)));
}

#[test]
fn equal_deadlines_are_served_first_come_first() {
    let (rq, entities) = queue(&[(1_024, 0, 5), (1_024, 0, 5)]);
    assert_eq!(rq.pick_eevdf(&entities, true, &params()), Some(EntityId(1)));
}

/// Random insertions and removals on short and long queues, with deadlines that are often equal.
#[test]
fn a_queue_of_any_length_keeps_deadlines_in_order_and_equals_as_they_came() {
    let (mut rng, mut rq, mut list) = (Rng::new(11, 0), CfsRq::default(), Vec::<(i64, u32)>::new());
    let mut entities = vec![FairEntity::new(1_024, 0, &params()); 50];
    for _ in 0..5_000 {
        let id = 1 + rng.below(49) as u32;
        match list.iter().position(|(_, other)| *other == id) {
            Some(at) => {
                rq.remove(&entities, EntityId(id));
                list.remove(at);
            }
            None => {
                let deadline = rng.below(20) as i64;
                entities[id as usize].deadline = deadline;
                rq.insert(&entities, EntityId(id));
                list.insert(list.partition_point(|(other, _)| *other <= deadline), (deadline, id));
            }
        }
        assert!(rq.queued().map(|id| id.0).eq(list.iter().map(|(_, id)| *id)));
    }
}

/// Makes task 1 current, as `set_next_task` does.
fn run_first(rq: &mut CfsRq, entities: &mut [FairEntity], params: &FairParams) {
    rq.remove(entities, EntityId(1));
    rq.curr = Some(EntityId(1));
    rq.set_protect_slice(entities, EntityId(1), params);
}

/// Alone with equals the whole slice is protected (deadline 700000). Beside a slice of 0.2 ms the protection
/// ends after 200000. Without RUN_TO_PARITY after the normalized base slice, here the deadline itself.
#[test]
fn protection_lasts_as_long_as_the_shortest_slice() {
    let (mut rq, mut entities) = queue(&[(1_024, 0, 700_000), (1_024, 0, 700_000)]);
    run_first(&mut rq, &mut entities, &params());
    assert_eq!(entities[1].vprot, 700_000);
    entities.push(FairEntity::new(1_024, 200_000, &params()));
    rq.account_enqueue(&mut entities, EntityId(3));
    rq.update_protect_slice(&mut entities, EntityId(1), &params());
    assert_eq!(entities[1].vprot, 200_000);
    rq.set_protect_slice(&mut entities, EntityId(1), &params());
    assert_eq!(entities[1].vprot, 200_000);
    let mut off = params();
    off.set("RUN_TO_PARITY", 0).expect("a feature");
    entities[1].slice = 3_000_000;
    entities[1].deadline = 3_000_000;
    rq.set_protect_slice(&mut entities, EntityId(1), &off);
    assert_eq!(entities[1].vprot, 700_000);
}

/// The current one is protected until 10 ms; a shorter, eligible one with deadline 1 ms wins only where the
/// protection is overridden (PREEMPT_SHORT).
#[test]
fn a_shorter_slice_wins_only_against_protection_that_is_overridden() {
    let (mut rq, mut entities) = queue(&[(1_024, 0, 10_000_000), (1_024, 0, 1_000_000)]);
    entities[1].slice = 10_000_000;
    run_first(&mut rq, &mut entities, &params());
    entities[1].vprot = 10_000_000;
    assert_eq!(rq.pick_eevdf(&entities, true, &params()), Some(EntityId(1)));
    assert_eq!(rq.pick_eevdf(&entities, false, &params()), Some(EntityId(2)));
    entities[1].cancel_protect_slice();
    assert_eq!(rq.pick_eevdf(&entities, true, &params()), Some(EntityId(2)));
}

/// A kernel with one CPU and this many nice-0 tasks of the given custom slices.
fn kernel(slices: &[u64]) -> Kernel {
    let mut k = kernel_on(1);
    for &slice in slices {
        let mut task = Task::new(&TaskAttributes::default(), 1024, TaskId::IDLE, 0);
        task.custom_slice = slice;
        let id = k.add_task(task, &CpuSet::ALL);
        class::enqueue_task(&mut k, CPU, id, 0);
    }
    k
}

fn kernel_on(cpus: u32) -> Kernel {
    let topology = Topology::flat(cpus).expect("CPUs");
    Kernel::new(KernelParts {
        preemption: Preemption::Full,
        hz: 250,
        costs: CostTable::zero(),
        domains: Domains::new(&topology),
        fair: Fair::new(params(), cpus as usize, &[]),
        rt: Rt::new(cpus as usize),
        device_count: 0,
        rng: Rng::new(1, 1),
    })
}

/// Tasks run on CPUs 0 and 1. While the one of CPU 0 is on its way to CPU 2, the other is not sent there too.
#[test]
fn one_running_task_at_a_time_is_pushed_to_a_cpu() {
    let mut k = kernel_on(4);
    for cpu in [CPU, CpuId(1)] {
        let id = k.add_task(Task::new(&TaskAttributes::default(), 1024, TaskId::IDLE, 0), &CpuSet::ALL);
        k.cpu_mut(cpu).curr = id;
    }
    assert!(packing::push(&mut k, CPU, CpuId(2)));
    assert!(!packing::push(&mut k, CpuId(1), CpuId(2)));
    assert!(packing::push(&mut k, CpuId(1), CpuId(3)));
}

fn switch_to(k: &mut Kernel, task: TaskId) {
    if let Some(prev) = k.fair.rqs[0].curr {
        class::put_prev_task(k, CPU, TaskId(prev.0), task);
    }
    class::set_next_task(k, task);
    k.cpu_mut(CPU).curr = task;
}

/// Two hogs start at 0. The first runs 2 ms: V = 1 ms, its lag is −1 ms, so its sleep is delayed. The other
/// runs 4 ms: V = (2 + 4)/2 = 3 ms, the sleeper is owed 1 ms by now; its turn comes, it is dequeued for
/// good, and DELAY_ZERO leaves it no credit.
#[test]
fn an_ineligible_sleeper_stays_queued_until_its_turn_and_keeps_no_credit() {
    let mut k = kernel(&[0, 0]);
    switch_to(&mut k, TaskId(1));
    k.now = 2_000_000;
    assert!(!class::dequeue_task(&mut k, CPU, TaskId(1), flags::DEQUEUE_SLEEP));
    assert_eq!((k.fair.rqs[0].nr_queued, k.fair.rqs[0].nr_runnable, k.cpu(CPU).nr_running), (2, 1, 1));
    assert_eq!(k.fair.entity(TaskId(1)).vlag, -1_000_000);
    switch_to(&mut k, TaskId(2));
    k.now = 6_000_000;
    assert_eq!(class::pick_task(&mut k, CPU), Some(TaskId(2)));
    assert_eq!(k.fair.rqs[0].nr_queued, 1);
    assert!(!k.fair.entity(TaskId(1)).on_rq && !k.fair.entity(TaskId(1)).sched_delayed);
    assert_eq!(k.fair.entity(TaskId(1)).vlag, 0);
}

/// Woken before its turn, the delayed sleeper only becomes runnable again. The other has run 2 ms that it is not
/// charged for yet: V is still 1 ms, the lag −1 ms, as when the sleeper went.
#[test]
fn a_delayed_sleeper_that_wakes_keeps_its_place() {
    let mut k = kernel(&[0, 0]);
    switch_to(&mut k, TaskId(1));
    k.now = 2_000_000;
    class::dequeue_task(&mut k, CPU, TaskId(1), flags::DEQUEUE_SLEEP);
    switch_to(&mut k, TaskId(2));
    k.now = 4_000_000;
    class::enqueue_task(&mut k, CPU, TaskId(1), flags::ENQUEUE_DELAYED);
    assert_eq!((k.fair.entity(TaskId(1)).vruntime, k.fair.entity(TaskId(1)).vlag), (2_000_000, -1_000_000));
    assert_eq!((k.fair.rqs[0].nr_runnable, k.cpu(CPU).nr_running), (2, 2));
}

/// The sleeper left at 2 ms with the other at 0; at 5 ms the tick charges the other 3 ms: V = 2.5 ms, the sleeper
/// is owed 0.5 ms. Woken at 6 ms it keeps no credit and is placed at 3 ms, where the other was charged last; then
/// the other is charged the 4th ms, is ahead of V = 3.5 ms, and its protection does not help it: preempted.
#[test]
fn a_delayed_sleeper_that_caught_up_preempts_who_ran_since_the_last_charge() {
    let mut k = kernel(&[0, 0]);
    switch_to(&mut k, TaskId(1));
    k.now = 2_000_000;
    class::dequeue_task(&mut k, CPU, TaskId(1), flags::DEQUEUE_SLEEP);
    switch_to(&mut k, TaskId(2));
    k.now = 5_000_000;
    class::update_curr(&mut k, CPU);
    k.cpu_mut(CPU).resched = crate::kernel::Resched::None;
    k.now = 6_000_000;
    class::enqueue_task(&mut k, CPU, TaskId(1), flags::ENQUEUE_DELAYED);
    assert_eq!(
        (k.fair.entity(TaskId(1)).vruntime, k.fair.entity(TaskId(2)).vruntime),
        (3_000_000, 3_000_000)
    );
    class::wakeup_preempt(&mut k, CPU, TaskId(1), 0);
    assert_eq!(k.fair.entity(TaskId(2)).vruntime, 4_000_000);
    assert_eq!(k.cpu(CPU).resched, crate::kernel::Resched::Now);
}

/// The same in 7.2: the other is charged first, 4 ms in all, the sleeper placed beside it at 4 ms without credit;
/// both are at V, the other is protected: no preemption. And a new task does not preempt at all (as in 6.18).
#[test]
fn since_7_2_a_delayed_sleeper_that_caught_up_waits_its_turn() {
    let mut k = kernel(&[0, 0]);
    k.fair.params = FairParams::new(KernelVersion::V7_2, 1);
    switch_to(&mut k, TaskId(1));
    k.now = 2_000_000;
    class::dequeue_task(&mut k, CPU, TaskId(1), flags::DEQUEUE_SLEEP);
    switch_to(&mut k, TaskId(2));
    k.now = 5_000_000;
    class::update_curr(&mut k, CPU);
    k.now = 6_000_000;
    k.fair.entities[2].vprot = 9_000_000;
    class::enqueue_task(&mut k, CPU, TaskId(1), flags::ENQUEUE_DELAYED);
    assert_eq!(
        (k.fair.entity(TaskId(1)).vruntime, k.fair.entity(TaskId(2)).vruntime),
        (4_000_000, 4_000_000)
    );
    k.cpu_mut(CPU).resched = crate::kernel::Resched::None;
    class::wakeup_preempt(&mut k, CPU, TaskId(1), 0);
    assert_eq!(k.cpu(CPU).resched, crate::kernel::Resched::None);
    k.fair.entities[2].vprot = 0;
    class::wakeup_preempt(&mut k, CPU, TaskId(1), flags::WF_FORK);
    assert_eq!(k.cpu(CPU).resched, crate::kernel::Resched::None);
}

/// Two start at 0. The first sleeps with a debt after 0.3 ms; the second runs 0.5 ms: V = 0.4 ms, where a third is placed
/// that wakes. The second is ahead of V; of those that are due the delayed sleeper (at 0.3 ms) has the earliest deadline.
/// Gives whether the third preempts, and how many are queued then.
fn wakes_beside_a_due_sleeper(version: KernelVersion) -> (crate::kernel::Resched, u32) {
    let mut k = kernel(&[0, 0]);
    k.fair.params = FairParams::new(version, 1);
    switch_to(&mut k, TaskId(1));
    k.now = 300_000;
    assert!(!class::dequeue_task(&mut k, CPU, TaskId(1), flags::DEQUEUE_SLEEP));
    switch_to(&mut k, TaskId(2));
    k.now = 800_000;
    let third = k.add_task(Task::new(&TaskAttributes::default(), 1024, TaskId::IDLE, 0), &CpuSet::ALL);
    class::enqueue_task(&mut k, CPU, third, 0);
    assert_eq!(k.fair.entity(third).vruntime, 400_000);
    k.cpu_mut(CPU).resched = crate::kernel::Resched::None;
    class::wakeup_preempt(&mut k, CPU, third, 0);
    (k.cpu(CPU).resched, k.fair.rqs[0].nr_queued)
}

/// 6.18's stable releases: the sleeper leaves the queue and the third is picked. 6.12: it would be the sleeper's turn, so
/// nobody preempts, though the sleeper will not run.
#[test]
fn a_delayed_sleeper_that_is_due_stands_in_nobodys_way_since_6_18() {
    assert_eq!(wakes_beside_a_due_sleeper(KernelVersion::V6_12), (crate::kernel::Resched::None, 3));
    assert_eq!(wakes_beside_a_due_sleeper(KernelVersion::V6_18), (crate::kernel::Resched::Now, 2));
    assert_eq!(wakes_beside_a_due_sleeper(KernelVersion::V7_2), (crate::kernel::Resched::Now, 2));
}

/// A request of 1 ms that is served at 1 ms starts the next at 1 ms with deadline 2 ms.
#[test]
fn a_served_request_starts_the_next_and_asks_for_a_reschedule() {
    let mut k = kernel(&[1_000_000, 1_000_000]);
    switch_to(&mut k, TaskId(1));
    k.now = 999_999;
    class::update_curr(&mut k, CPU);
    assert_eq!(k.cpu(CPU).resched, crate::kernel::Resched::None);
    k.now = 1_000_000;
    class::update_curr(&mut k, CPU);
    assert_eq!(k.fair.entity(TaskId(1)).deadline, 2_000_000);
    assert_eq!(k.cpu(CPU).resched, crate::kernel::Resched::Now);
}

/// At 0.3 ms both are at V or behind only if eligible: the current one ran ahead (0.3 > 0.15), so yielding
/// changes nothing; when it is the only one at V, it forfeits its slice: vruntime 0.7, deadline 1.4 ms.
#[test]
fn yield_forfeits_the_slice_of_an_eligible_task_only() {
    let mut k = kernel(&[0, 0]);
    switch_to(&mut k, TaskId(1));
    k.now = 300_000;
    class::yield_task(&mut k, CPU);
    assert_eq!(k.fair.entity(TaskId(1)).vruntime, 300_000);
    let mut k = kernel(&[0, 0]);
    switch_to(&mut k, TaskId(1));
    class::yield_task(&mut k, CPU);
    let entity = k.fair.entity(TaskId(1));
    assert_eq!((entity.vruntime, entity.deadline), (700_000, 1_400_000));
}

#[test]
fn unknown_knobs_and_values_out_of_bounds_are_refused_by_name() {
    let mut params = params();
    assert!(params.set("base_slice_ns", 3_000_000).is_ok());
    let error = params.set("base_slice_ns", 5).expect_err("too short").to_string();
    assert!(error.contains("100000 to 1000000000"), "{error}");
    let error = params.set("latency_ns", 5).expect_err("of CFS").to_string();
    assert!(error.contains("base_slice_ns"), "{error}");
    assert!(params.has(Features::RUN_TO_PARITY));
}
