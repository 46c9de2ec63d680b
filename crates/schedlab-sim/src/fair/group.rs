//! Groups of tasks (`struct task_group`): the tree, weights, and how much of its weight a group has on each CPU.
//!
//! Every cgroup that a workload names has a queue and an entity on each CPU ([`super::ids`] numbers them). Walking the
//! levels is in [`super::class`], quotas are in [`super::bandwidth`]. Names as in kernel/sched/fair.c; the root has no
//! entity, and without groups nothing here runs but [`Groups::is_flat`].

use super::ids::{EntityId, RqId};
use super::params::{FairParams, Generation};
use super::queue::FairEntity;
use super::weight::Load;
use super::{Fair, bandwidth, entity};
use crate::kernel::Kernel;
use schedlab_model::policy::WEIGHT_IDLE;
use schedlab_model::workload::change::{CgroupSettings, CgroupSpec};
use schedlab_model::{CpuId, TaskId};

/// `MIN_SHARES`, in the finer unit of `scale_load`.
const MIN_SHARES: u64 = 2;
/// `scale_load`: group weights are worked out in units of 1/1024.
const SCALE_SHIFT: u32 = 10;
/// A change of a queue's load below 1/64 is not told to its group.
const TOLERANCE_SHIFT: u32 = 6;
/// `update_tg_load_avg` tells a group at most once a millisecond (since 6.7).
const TELL_NS: u64 = 1_000_000;
/// Averages of CPUs without tick are brought up to date this often (`LOAD_AVG_PERIOD`).
const BLOCKED_NS: u64 = 32_000_000;

/// A group.
#[derive(Clone, Debug)]
pub(crate) struct TaskGroup {
    /// Its path, as [`crate::ext::cgroup::normal`] writes it.
    pub(crate) path: String,
    /// Row of the group above; the root's is its own.
    pub(crate) parent: usize,
    /// Its settings as asked for.
    pub(crate) settings: CgroupSettings,
    /// `tg->idle`.
    idle: bool,
    /// `tg->shares`, scaled down.
    shares: u64,
    /// `tg->load_avg`: Σ of the loads that its queues have told.
    load_avg: u64,
    /// `cpu.max`.
    pub(crate) bandwidth: bandwidth::Bandwidth,
}

/// What a group's queue on one CPU has besides what every queue has.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupQueue {
    /// `tg_load_avg_contrib`: what it told its group last.
    contribution: u64,
    /// When it did.
    told: u64,
    /// Its quota.
    pub(crate) quota: bandwidth::QueueQuota,
}

/// All groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Rows of the tables.
    pub(crate) layout: super::ids::Layout,
    /// Groups, the root first, parents before children.
    pub(crate) list: Vec<TaskGroup>,
    /// By queue, from the first group's on.
    queues: Vec<GroupQueue>,
    /// A group has a quota (`cfs_bandwidth_used`).
    pub(crate) bandwidth_used: bool,
    /// Number of CPUs.
    pub(crate) cpus: usize,
    /// When averages of CPUs without tick are looked after next (`nohz.next_blocked`).
    next_blocked: u64,
}

impl Groups {
    /// Groups of these specifications, parents before children.
    pub(crate) fn new(specs: &[CgroupSpec], cpus: usize) -> Groups {
        let layout = super::ids::Layout::new(specs.len(), cpus);
        let root = CgroupSpec { path: "/".to_owned(), settings: CgroupSettings::default() };
        let mut list: Vec<TaskGroup> = Vec::new();
        for spec in std::iter::once(&root).chain(specs) {
            let above = spec.path.rsplit_once('/').map_or("", |(above, _)| above);
            let parent = list.iter().position(|group| group.path == above).unwrap_or(0);
            list.push(TaskGroup {
                path: spec.path.clone(),
                parent,
                settings: CgroupSettings::default(),
                idle: false,
                shares: 1_024,
                load_avg: 0,
                bandwidth: bandwidth::Bandwidth::default(),
            });
        }
        let queues = vec![GroupQueue::default(); layout.group_entities()];
        Groups { layout, list, queues, bandwidth_used: false, cpus, next_blocked: 0 }
    }

    /// Whether there is none but the root.
    #[inline]
    pub(crate) fn is_flat(&self) -> bool {
        self.layout.is_flat()
    }

    /// A group's part of its queue; not of a root queue.
    #[inline]
    pub(crate) fn queue(&self, rq: RqId) -> &GroupQueue {
        &self.queues[rq.index() - self.cpus]
    }

    /// The same to change.
    #[inline]
    pub(crate) fn queue_mut(&mut self, rq: RqId) -> &mut GroupQueue {
        &mut self.queues[rq.index() - self.cpus]
    }

    /// The group of this path; the root if there is none.
    pub(crate) fn find(&self, path: &str) -> u32 {
        let path = crate::ext::cgroup::normal(path);
        self.list.iter().position(|group| group.path == path).unwrap_or(0) as u32
    }

    /// The CPU of a queue.
    pub(crate) fn cpu_of(&self, rq: RqId) -> CpuId {
        if self.is_flat() { CpuId(rq.0) } else { CpuId(rq.0 % self.cpus as u32) }
    }

    /// A group and those below it, itself first.
    pub(crate) fn subtree(&self, group: usize) -> Vec<usize> {
        let mut found = vec![group];
        for child in group + 1..self.list.len() {
            if found.contains(&self.list[child].parent) {
                found.push(child);
            }
        }
        found
    }
}

/// Entities of the groups, one a CPU each, in the order of the layout.
pub(crate) fn entities(groups: &Groups, params: &FairParams) -> Vec<FairEntity> {
    let mut rows = Vec::with_capacity(groups.layout.group_entities());
    for group in groups.list.iter().skip(1) {
        for cpu in (0..groups.cpus as u32).map(CpuId) {
            let rq = groups.layout.queue_of(group.parent as u32, cpu);
            let entity = FairEntity::new(1_024, 0, params);
            rows.push(FairEntity {
                rq,
                home: Some(rq),
                attached: Some(rq),
                average: super::pelt::Average::default(),
                ..entity
            });
        }
    }
    rows
}

/// Applies a cgroup's settings: `cpu.weight`, `cpu.idle` and `cpu.max`.
pub(crate) fn set(k: &mut Kernel, spec: &CgroupSpec) {
    let group = k.fair.groups.find(&spec.path) as usize;
    if group == 0 {
        return;
    }
    let before = std::mem::replace(&mut k.fair.groups.list[group].settings, spec.settings);
    let after = spec.settings;
    let idle = after.idle && k.fair.params.has_group_idle;
    if std::mem::replace(&mut k.fair.groups.list[group].idle, idle) != idle {
        set_idle(k, group, idle);
    }
    // `cpu.weight` in the unit of task weights; an idle group has the least.
    let shares = u64::from(if idle { WEIGHT_IDLE } else { after.shares() });
    set_shares(k, group, shares);
    if before.max != after.max {
        bandwidth::set(k, group, after.max);
    }
}

/// `sched_group_set_idle`: its queues, and what the queues above count as idle.
fn set_idle(k: &mut Kernel, group: usize, idle: bool) {
    for cpu in (0..k.fair.groups.cpus as u32).map(CpuId) {
        let layout = k.fair.groups.layout;
        let Fair { rqs, entities, .. } = &mut k.fair;
        let own = &mut rqs[layout.queue_of(group as u32, cpu).index()];
        own.idle = idle;
        let others = own.nr_runnable as i32 - own.nr_idle as i32;
        let change = if idle { others } else { -others };
        let mut level = layout.owner(layout.queue_of(group as u32, cpu));
        while let Some(owner) = level.filter(|owner| entities[owner.index()].on_rq) {
            let rq = &mut rqs[entities[owner.index()].rq.index()];
            rq.nr_idle = rq.nr_idle.wrapping_add_signed(change);
            if rq.idle {
                break;
            }
            level = layout.owner(entities[owner.index()].rq);
        }
    }
}

/// `sched_group_set_shares`: the weight, and the group's part of it on every CPU.
fn set_shares(k: &mut Kernel, group: usize, shares: u64) {
    if std::mem::replace(&mut k.fair.groups.list[group].shares, shares) == shares {
        return;
    }
    for cpu in (0..k.fair.groups.cpus as u32).map(CpuId) {
        let mut level = k.fair.groups.layout.owner(k.fair.groups.layout.queue_of(group as u32, cpu));
        while let Some(owner) = level {
            update_level(k, cpu, owner);
            level = k.fair.groups.layout.owner(k.fair.entities[owner.index()].rq);
        }
    }
}

/// What happens to a group's entity at every change below it: averages, then its weight.
pub(super) fn update_level(k: &mut Kernel, cpu: CpuId, entity: EntityId) {
    let rq = k.fair.entities[entity.index()].rq;
    entity::update_load_avg(k, rq, Some(entity));
    update_cfs_group(k, cpu, entity);
}

/// `update_tg_load_avg`: a queue tells its group how much load it has.
pub(super) fn tell_group(k: &mut Kernel, rq: RqId, now: u64) {
    let Fair { params, rqs, groups, .. } = &mut k.fair;
    let limited = params.generation == Generation::Eevdf;
    let load = rqs[rq.index()].average.load;
    let group = groups.layout.group_of(rq);
    let queue = groups.queue_mut(rq);
    if limited && now < queue.told + TELL_NS && queue.told > 0 {
        return;
    }
    if load.abs_diff(queue.contribution) > queue.contribution >> TOLERANCE_SHIFT {
        let before = std::mem::replace(&mut queue.contribution, load);
        queue.told = now;
        let total = &mut groups.list[group].load_avg;
        *total = (*total + load).saturating_sub(before);
    }
}

/// `calc_group_shares`: the group's weight by the CPU's part of its load, in units of `scale_load`.
fn calc_group_shares(fair: &Fair, rq: RqId) -> u64 {
    let group = &fair.groups.list[fair.groups.layout.group_of(rq)];
    let shares = group.shares << SCALE_SHIFT;
    let own = &fair.rqs[rq.index()];
    let load = own.load_weight.max(own.average.load);
    let total = group.load_avg.saturating_sub(fair.groups.queue(rq).contribution) + load;
    let part = if total > 0 {
        (u128::from(shares) * u128::from(load) / u128::from(total)) as u64
    } else {
        shares * load
    };
    part.clamp(MIN_SHARES, shares.max(MIN_SHARES))
}

/// `update_cfs_group`: gives a group's entity the weight that is its due on this CPU; one that is empty keeps its own.
pub(super) fn update_cfs_group(k: &mut Kernel, cpu: CpuId, entity: EntityId) {
    let Some(own) = k.fair.groups.layout.own_queue(entity) else { return };
    if k.fair.rqs[own.index()].load_weight == 0 {
        return;
    }
    // `scale_load_down`: virtual time knows whole units, and no less than two.
    let weight = (calc_group_shares(&k.fair, own) >> SCALE_SHIFT).max(2) as u32;
    if k.fair.entities[entity.index()].load.weight != weight {
        reweight_entity(k, cpu, entity, weight);
    }
}

/// `reweight_entity`: what a group is owed, and has still to get, stays the same in real time.
fn reweight_entity(k: &mut Kernel, cpu: CpuId, id: EntityId, weight: u32) {
    let rq_id = k.fair.entities[id.index()].rq;
    let on_rq = k.fair.entities[id.index()].on_rq;
    if on_rq {
        entity::update_curr(k, cpu, rq_id);
    }
    let tick = k.tick_ns;
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    let eevdf = params.generation == Generation::Eevdf;
    let is_curr = rq.curr == Some(id);
    let old = i64::from(entities[id.index()].load.weight);
    let rescale = |value: i64| (i128::from(value) * i128::from(old) / i128::from(weight)) as i64;
    let average = rq.avg_vruntime(entities);
    if on_rq {
        if eevdf {
            let lag = rq.entity_lag(entities, id, tick, params);
            entities[id.index()].vlag = lag;
        }
        if !is_curr {
            rq.remove(entities, id);
        }
        rq.load_weight -= old as u64;
    }
    let entity = &mut entities[id.index()];
    let protected = on_rq && is_curr && entity.protect_slice();
    let unscaled = (entity.deadline - average, entity.vprot - average);
    rq.average.reweight(&mut entity.average, u64::from(weight));
    entity.load = Load::new(weight);
    if eevdf {
        entity.vlag = rescale(entity.vlag);
        if !on_rq && entity.rel_deadline {
            entity.deadline = rescale(entity.deadline);
        }
    }
    if !on_rq {
        return;
    }
    if eevdf {
        entity.vruntime = average - entity.vlag;
        entity.deadline = average + rescale(unscaled.0);
        if protected {
            entity.vprot = average + rescale(unscaled.1);
        }
    }
    rq.load_weight += u64::from(weight);
    if !is_curr {
        rq.insert(entities, id);
    }
}

/// `propagate_entity_load_avg`: what a task brought to a queue (or took from it) counts in every queue above.
pub(super) fn propagate(fair: &mut Fair, mut rq: RqId, runnable_sum: i64) {
    while let Some(owner) = fair.groups.layout.owner(rq) {
        let above = fair.entities[owner.index()].rq;
        let (own, load_weight) = (fair.rqs[rq.index()].average, fair.rqs[rq.index()].load_weight);
        let entity = &mut fair.entities[owner.index()];
        let weight = u64::from(entity.load.weight);
        entity.average.follow(&own, load_weight, &mut fair.rqs[above.index()].average, weight, runnable_sum);
        rq = above;
    }
}

/// `task_h_load`: a task's load as the root queue of its CPU feels it.
pub(crate) fn task_h_load(fair: &Fair, task: TaskId) -> u64 {
    let entity = fair.entity(task);
    let mut load = entity.average.load;
    let mut rq = entity.rq;
    // Linux multiplies from the root down and remembers each queue's share for a tick; the product is the same.
    while let Some(owner) = fair.groups.layout.owner(rq) {
        let owner = &fair.entities[owner.index()];
        load = load * owner.average.load / (fair.rqs[rq.index()].average.load + 1);
        rq = owner.rq;
    }
    load
}

/// `sched_balance_update_blocked_averages`: queues that nothing is on fade, here and, now and then, on CPUs without tick.
pub(crate) fn update_blocked(k: &mut Kernel, cpu: CpuId) {
    if k.fair.groups.is_flat() {
        return;
    }
    update_blocked_on(k, cpu);
    if k.now >= k.fair.groups.next_blocked {
        k.fair.groups.next_blocked = k.now + BLOCKED_NS;
        for cpu in (0..k.fair.groups.cpus as u32).map(CpuId) {
            if k.is_idle_cpu(cpu) {
                update_blocked_on(k, cpu);
            }
        }
    }
}

fn update_blocked_on(k: &mut Kernel, cpu: CpuId) {
    for group in (1..k.fair.groups.list.len()).rev() {
        let rq = k.fair.groups.layout.queue_of(group as u32, cpu);
        entity::update_load_avg(k, rq, None);
        let owner = k.fair.groups.layout.owner(rq).expect("a group's queue has an owner");
        entity::update_load_avg(k, k.fair.entities[owner.index()].rq, Some(owner));
    }
}
