//! Built-in tracking and choice of idle CPUs, as kernel/sched/ext/idle.c does it.
//!
//! The masks lie in the region, where programs that ask for them can read them. The choice prefers whole idle
//! cores, then the CPU at hand, its sibling, its cache, its node, any. Differs from Linux: an idle mask is
//! exact here, Linux's may lag behind by a race.

use super::consts::{SCX_PICK_IDLE_CORE, SCX_PICK_IDLE_IN_NODE, SCX_WAKE_SYNC};
use super::host::{CurrClass, Cx, Host};
use super::mask::{Mask, next_wrapping};
use schedlab_bpf::memory::Memory;
use schedlab_model::CpuId;
use schedlab_model::topology::Topology;

/// Idle CPUs, and CPUs whose whole core is idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleMasks {
    pub cpu: Mask,
    pub smt: Mask,
}

/// State of the built-in tracking.
#[derive(Clone, Debug)]
pub(crate) struct Idle {
    /// `scx_builtin_idle_enabled`.
    pub enabled: bool,
    /// Masks a node instead of one pair for all.
    pub per_node: bool,
    /// The pair for all, then one a node.
    pub masks: Vec<IdleMasks>,
    pub smt_active: bool,
    /// Whether caches and nodes are looked at (`scx_selcpu_topo_*`).
    pub topo_llc: bool,
    pub topo_numa: bool,
    /// An empty mask.
    pub none: Mask,
    /// Threads of each CPU's core, itself included.
    pub siblings: Vec<Box<[u32]>>,
}

impl Idle {
    /// `scx_idle_update_selcpu_topology`.
    pub(crate) fn set_topology(&mut self, topology: &Topology) {
        let online = topology.all();
        let (all, first) = (online.len(), topology.cpu(online.first_cpu().unwrap_or(CpuId(0))));
        let llc = topology.llcs()[first.llc as usize].len();
        self.topo_llc = llc > 1 && llc < all;
        let node = topology.nodes()[first.node as usize].len();
        let mismatch = online
            .iter()
            .map(|cpu| topology.cpu(cpu))
            .any(|cpu| topology.llcs()[cpu.llc as usize].len() != topology.nodes()[cpu.node as usize].len());
        self.topo_numa = !self.per_node && node < all && mismatch;
        self.smt_active = topology.has_smt();
        let threads = |cpu| topology.siblings(CpuId(cpu)).iter().map(|cpu| cpu.0).collect();
        self.siblings = (0..topology.cpu_count() as u32).map(threads).collect();
    }

    /// Whether any CPU counts as idle.
    #[inline]
    fn any(&self, memory: &Memory, nr_cpus: u32) -> bool {
        let used = if self.per_node { &self.masks[1..] } else { &self.masks[..1] };
        used.iter().any(|masks| !masks.cpu.is_empty(memory, nr_cpus))
    }

    /// `scx_cpu_node_if_enabled`, as an index of [`Idle::masks`].
    #[inline]
    fn node_index(&self, topology: &Topology, cpu: u32) -> usize {
        if self.per_node { 1 + topology.cpu(CpuId(cpu)).node as usize } else { 0 }
    }
}

/// `reset_idle_masks`: every CPU that is online counts as idle; it corrects itself.
pub(crate) fn reset(cx: &mut Cx<'_>) {
    let (host, memory) = cx.parts();
    for (index, masks) in host.idle.masks.iter().enumerate() {
        for cpu in 0..host.nr_cpus {
            let inside = match index {
                0 => !host.idle.per_node,
                node => host.idle.per_node && host.node_of(cpu) as usize == node - 1,
            };
            let inside = inside && host.is_online(cpu);
            masks.cpu.assign(memory, cpu, inside);
            masks.smt.assign(memory, cpu, inside);
        }
    }
}

/// `update_builtin_idle`.
pub(crate) fn update(host: &Host, memory: &mut Memory, cpu: u32, idle: bool) {
    let masks = host.idle.masks[host.idle.node_index(&host.topology, cpu)];
    masks.cpu.assign(memory, cpu, idle);
    if !host.idle.smt_active {
        return;
    }
    let siblings = &host.idle.siblings[cpu as usize];
    if idle && !siblings.iter().all(|sibling| masks.cpu.contains(memory, *sibling)) {
        return;
    }
    for sibling in siblings {
        masks.smt.assign(memory, *sibling, idle);
    }
}

/// `scx_idle_test_and_clear_cpu`: claims an idle CPU.
pub(crate) fn test_and_clear(host: &Host, memory: &mut Memory, cpu: u32) -> bool {
    let masks = host.idle.masks[host.idle.node_index(&host.topology, cpu)];
    if host.idle.smt_active {
        for sibling in &host.idle.siblings[cpu as usize] {
            masks.smt.assign(memory, *sibling, false);
        }
    }
    masks.cpu.take(memory, cpu)
}

/// Part of the machine that a choice is limited to.
#[derive(Clone, Copy)]
pub(crate) enum Within {
    All,
    Llc(u32),
    Node(u32),
}

/// CPUs among which is chosen: `p->cpus_ptr` (or what the program gave), cut to a set.
#[derive(Clone, Copy)]
struct Among {
    allowed: Mask,
    also: Mask,
    within: Within,
}

impl Among {
    /// Whether the CPU is allowed, in whatever part of the machine.
    #[inline]
    fn contains(&self, memory: &Memory, cpu: u32) -> bool {
        self.allowed.contains(memory, cpu) && self.also.contains(memory, cpu)
    }

    #[inline]
    fn word(&self, topology: &Topology, memory: &Memory, index: u32) -> u64 {
        let both = self.allowed.word(memory, index) & self.also.word(memory, index);
        let set = match self.within {
            Within::All => return both,
            Within::Llc(llc) => &topology.llcs()[llc as usize],
            Within::Node(node) => &topology.nodes()[node as usize],
        };
        both & set.words()[index as usize]
    }
}

/// `pick_idle_cpu_in_node`.
fn pick_in(
    host: &mut Host,
    memory: &mut Memory,
    this_cpu: u32,
    node: usize,
    among: Among,
    flags: u64,
) -> Option<u32> {
    let masks = host.idle.masks[node];
    let nr_cpus = host.nr_cpus;
    loop {
        let previous = host.rq(this_cpu).distribute;
        let topology = &*host.topology;
        let find = |mask: Mask, memory: &Memory| {
            let word = |index| mask.word(memory, index) & among.word(topology, memory, index);
            next_wrapping(nr_cpus, previous, word)
        };
        let whole = if host.idle.smt_active { find(masks.smt, memory) } else { None };
        let found = match whole {
            Some(cpu) => cpu,
            None if host.idle.smt_active && flags & SCX_PICK_IDLE_CORE != 0 => return None,
            None => find(masks.cpu, memory)?,
        };
        host.rq_mut(this_cpu).distribute = found;
        if test_and_clear(host, memory, found) {
            return Some(found);
        }
    }
}

/// `scx_pick_idle_cpu`: in the node first, then in the others by distance.
fn pick(
    host: &mut Host,
    memory: &mut Memory,
    this_cpu: u32,
    node: usize,
    among: Among,
    flags: u64,
) -> Option<u32> {
    let found = pick_in(host, memory, this_cpu, node, among, flags);
    if found.is_some() || node == 0 || flags & SCX_PICK_IDLE_IN_NODE != 0 {
        return found;
    }
    (1..host.idle.masks.len())
        .filter(|other| *other != node)
        .find_map(|other| pick_in(host, memory, this_cpu, other, among, flags))
}

/// `scx_bpf_pick_idle_cpu`: among the CPUs of a mask; `node` as an index of the masks.
pub(crate) fn pick_among(cx: &mut Cx<'_>, allowed: Mask, node: usize, flags: u64) -> Option<u32> {
    let this_cpu = cx.cpu();
    let (host, memory) = cx.parts();
    let among = Among { allowed, also: allowed, within: Within::All };
    pick(host, memory, this_cpu, node, among, flags)
}

/// `cpumask_any_distribute`: any CPU of a mask.
pub(crate) fn any_among(cx: &mut Cx<'_>, allowed: Mask, within: Within) -> Option<u32> {
    let this_cpu = cx.cpu();
    let (host, memory) = cx.parts();
    let among = Among { allowed, also: allowed, within };
    let previous = host.rq(this_cpu).distribute;
    let word = |index| among.word(&host.topology, memory, index);
    let found = next_wrapping(host.nr_cpus, previous, word)?;
    host.rq_mut(this_cpu).distribute = found;
    Some(found)
}

/// `scx_select_cpu_dfl`: an idle CPU for the task, claimed; `cpus_allowed` narrows the task's own mask.
#[inline(always)]
pub(crate) fn select_cpu_dfl(
    cx: &mut Cx<'_>,
    task: u32,
    prev_cpu: u32,
    wake_flags: u64,
    cpus_allowed: Option<Mask>,
    flags: u64,
) -> Option<u32> {
    let (host, memory) = cx.parts();
    if !host.idle.any(memory, host.nr_cpus) {
        return None;
    }
    search(cx, task, prev_cpu, wake_flags, cpus_allowed, flags)
}

/// The same where at least one CPU idles.
#[inline(never)]
fn search(
    cx: &mut Cx<'_>,
    task: u32,
    prev_cpu: u32,
    wake_flags: u64,
    cpus_allowed: Option<Mask>,
    flags: u64,
) -> Option<u32> {
    let this_cpu = cx.cpu();
    let (host, memory) = cx.parts();
    let own = host.allowed(task);
    let among = Among { allowed: own, also: cpus_allowed.unwrap_or(own), within: Within::All };
    let node = host.idle.node_index(&host.topology, prev_cpu);
    let prev_allowed = among.contains(memory, prev_cpu);
    let info = host.topology.cpu(CpuId(prev_cpu));
    let llc = host.idle.topo_llc.then_some(Within::Llc(info.llc));
    let numa = host.idle.topo_numa.then_some(Within::Node(info.node));
    let mut search = Search { host, memory, this_cpu, node, among, flags };
    if wake_flags & SCX_WAKE_SYNC != 0
        && let Some(cpu) = search.beside_waker(prev_cpu, prev_allowed)
    {
        return Some(cpu);
    }
    if search.host.idle.smt_active {
        let whole = search.host.idle.masks[node].smt.contains(search.memory, prev_cpu);
        if prev_allowed && whole && test_and_clear(search.host, search.memory, prev_cpu) {
            return Some(prev_cpu);
        }
        if let Some(cpu) = search.near(llc, numa, SCX_PICK_IDLE_CORE) {
            return Some(cpu);
        }
        if flags & SCX_PICK_IDLE_CORE != 0 {
            return None;
        }
    }
    if prev_allowed && test_and_clear(search.host, search.memory, prev_cpu) {
        return Some(prev_cpu);
    }
    if let Some(cpu) = search.sibling(prev_cpu) {
        return Some(cpu);
    }
    search.near(llc, numa, 0)
}

/// The steps of one choice.
struct Search<'a> {
    host: &'a mut Host,
    memory: &'a mut Memory,
    this_cpu: u32,
    node: usize,
    among: Among,
    flags: u64,
}

impl Search<'_> {
    /// A synchronous waker: the previous CPU if idle and near, else the waker's own if the machine has room.
    fn beside_waker(&mut self, prev_cpu: u32, prev_allowed: bool) -> Option<u32> {
        let here = self.this_cpu;
        let topology = &self.host.topology;
        let near = topology.cpu(CpuId(here)).llc == topology.cpu(CpuId(prev_cpu)).llc;
        if prev_allowed && near && test_and_clear(self.host, self.memory, prev_cpu) {
            return Some(prev_cpu);
        }
        let waker_node = self.host.idle.node_index(&self.host.topology, here);
        let local = self.host.local_dsq(here);
        let room = self.host.dsqs.get(local).nr == 0
            && (self.flags & SCX_PICK_IDLE_IN_NODE == 0 || waker_node == self.node)
            && !self.host.idle.masks[waker_node].cpu.is_empty(self.memory, self.host.nr_cpus);
        let allowed = self.among.contains(self.memory, here);
        if room && allowed {
            test_and_clear(self.host, self.memory, here);
            return Some(here);
        }
        None
    }

    /// In the cache, in the node, anywhere.
    fn near(&mut self, llc: Option<Within>, numa: Option<Within>, extra: u64) -> Option<u32> {
        for within in [llc, numa].into_iter().flatten() {
            let among = Among { within, ..self.among };
            let found = pick_in(self.host, self.memory, self.this_cpu, self.node, among, extra);
            if found.is_some() {
                return found;
            }
        }
        pick(self.host, self.memory, self.this_cpu, self.node, self.among, self.flags | extra)
    }

    /// An idle thread of the previous CPU's core; since 6.18.
    fn sibling(&mut self, prev_cpu: u32) -> Option<u32> {
        if !self.host.idle.smt_active || !self.host.at_least(6, 18) {
            return None;
        }
        for index in 0..self.host.idle.siblings[prev_cpu as usize].len() {
            let cpu = self.host.idle.siblings[prev_cpu as usize][index];
            if cpu != prev_cpu
                && self.among.contains(self.memory, cpu)
                && test_and_clear(self.host, self.memory, cpu)
            {
                return Some(cpu);
            }
        }
        None
    }
}

/// `__scx_update_idle` at a true transition of the CPU.
pub(crate) fn transition(cx: &mut Cx<'_>, cpu: u32, idle: bool) {
    use super::call::{Op, call};
    let (host, memory) = cx.parts();
    // 6.12 tells the scheduler before it changes the masks, later kernels after.
    let masks_first = host.at_least(6, 13);
    if host.idle.enabled && masks_first {
        update(host, memory, cpu, idle);
    }
    if host.has_op(Op::UpdateIdle) && !host.bypass {
        call(cx, Op::UpdateIdle, Some(cpu), [0, 0], &[u64::from(cpu), u64::from(idle)]);
    }
    let (host, memory) = cx.parts();
    if host.idle.enabled && !masks_first {
        update(host, memory, cpu, idle);
    }
    if idle {
        let address = host.task(0).address;
        memory.write_u64(host.rq(cpu).address + host.layout.rq.curr, address);
        let rq = host.rq_mut(cpu);
        (rq.curr, rq.curr_class) = (0, CurrClass::Idle);
    }
}
