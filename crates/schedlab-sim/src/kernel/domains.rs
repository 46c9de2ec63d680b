//! Who shares what, precomputed from the topology: CPU masks, cache members, scheduling domains.
//!
//! Domains are nested as in Linux: SMT, MC (last-level cache), PKG (node), NUMA (all). A level that adds
//! no CPU is left out, as degenerate domains are in the kernel.

use schedlab_model::topology::{Distance, Topology};
use schedlab_model::{CpuId, CpuSet};
use std::collections::BTreeMap;

/// A set of CPUs, as long as the machine needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CpuMask(Box<[u64]>);

impl CpuMask {
    /// No CPU, room for `count`.
    pub(crate) fn new(count: usize) -> CpuMask {
        CpuMask(vec![0; count.div_ceil(64)].into_boxed_slice())
    }

    /// Makes room for `count` CPUs.
    pub(crate) fn grow(&mut self, count: usize) {
        if count.div_ceil(64) > self.0.len() {
            let mut words = self.0.to_vec();
            words.resize(count.div_ceil(64), 0);
            self.0 = words.into_boxed_slice();
        }
    }

    /// The CPUs of `set` below `count`.
    pub(crate) fn cut(set: &CpuSet, count: usize) -> CpuMask {
        let mut mask = CpuMask::new(count);
        set.iter().take_while(|cpu| cpu.index() < count).for_each(|cpu| mask.set(cpu));
        mask
    }

    /// Whether the CPU is in.
    #[inline]
    pub(crate) fn contains(&self, cpu: CpuId) -> bool {
        (self.0[cpu.index() / 64] >> (cpu.0 % 64)) & 1 == 1
    }

    /// Puts a CPU in.
    #[inline]
    pub(crate) fn set(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }

    /// Puts a CPU in or takes it out.
    #[inline]
    pub(crate) fn assign(&mut self, cpu: CpuId, value: bool) {
        let bit = 1 << (cpu.0 % 64);
        let word = &mut self.0[cpu.index() / 64];
        *word = if value { *word | bit } else { *word & !bit };
    }

    /// Puts in what is in the other set.
    fn unite(&mut self, other: &CpuMask) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    /// Keeps what is in the other set too.
    pub(crate) fn intersect(&mut self, other: &CpuMask) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
    }

    /// Whether no CPU is in.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Number of CPUs.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn extent(&self) -> Extent {
        let mut used = (0..self.0.len()).filter(|at| self.0[*at] != 0);
        let (first, second) = (used.next(), used.next());
        Extent { word: first.filter(|_| second.is_none()).map(|at| at as u32), cpus: self.len() as u32 }
    }

    /// CPUs in rising order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(CpuId(index as u32 * 64 + bit))
            })
        })
    }

    /// How many CPUs that are in both sets lie at or after `start` and before `end`, wrapping.
    pub(crate) fn count_common_between(&self, other: &CpuMask, start: CpuId, end: CpuId) -> usize {
        let below = |limit: CpuId| -> usize {
            let (word, bit) = (limit.index() / 64, limit.0 % 64);
            let common = self.0.iter().zip(&other.0).map(|(a, b)| a & b).enumerate();
            let kept = common
                .take(word + 1)
                .map(|(at, bits)| if at == word { bits & !(u64::MAX << bit) } else { bits });
            kept.map(|bits| bits.count_ones() as usize).sum()
        };
        let all =
            || -> usize { self.0.iter().zip(&other.0).map(|(a, b)| (a & b).count_ones() as usize).sum() };
        if end >= start { below(end) - below(start) } else { all() - below(start) + below(end) }
    }

    /// The first CPU, at or after `start` and wrapping, that is in all three sets (`for_each_cpu_wrap`).
    pub(crate) fn first_common_wrapping(&self, b: &CpuMask, c: &CpuMask, start: CpuId) -> Option<CpuId> {
        let count = self.0.len();
        let (word, bit) = (start.index() / 64, start.0 % 64);
        for step in 0..=count {
            let at = (word + step) % count;
            let mut common = b.0[at] & c.0[at];
            if common != 0 {
                common &= self.0[at];
            }
            if step == 0 {
                common &= u64::MAX << bit;
            } else if step == count {
                common &= !(u64::MAX << bit);
            }
            if common != 0 {
                return Some(CpuId(at as u32 * 64 + common.trailing_zeros()));
            }
        }
        None
    }

    /// The same where only this word of one of them has CPUs.
    #[inline]
    fn first_common_within(&self, b: &CpuMask, c: &CpuMask, start: CpuId, word: usize) -> Option<CpuId> {
        // A task's own mask is far away on a large machine, and there is no idle CPU more often than not.
        let mut common = b.0[word] & c.0[word];
        if common != 0 {
            common &= self.0[word];
        }
        let from = if start.index() / 64 == word { u64::MAX << (start.0 % 64) } else { u64::MAX };
        let bits = if common & from != 0 { common & from } else { common };
        (bits != 0).then(|| CpuId(word as u32 * 64 + bits.trailing_zeros()))
    }
}

/// What searches need of a span: most of a large machine lie within one word of its masks.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The only word with CPUs of it, if there is only one.
    word: Option<u32>,
    /// Its number of CPUs.
    cpus: u32,
}

/// One scheduling domain of one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    /// What its CPUs share.
    pub(crate) level: Distance,
    /// Position of its span in [`Domains::span`].
    pub(crate) span: usize,
    /// Its groups: spans of the level below, this CPU's own first.
    pub(crate) groups: Box<[usize]>,
}

/// The machine's topology as scheduling needs it.
pub(crate) struct Domains {
    topology: Topology,
    capacities: Vec<u32>,
    spans: Vec<CpuMask>,
    /// Of each span.
    extents: Vec<Extent>,
    by_cpu: Vec<Vec<Domain>>,
    llc_span: Vec<usize>,
    core_span: Vec<usize>,
    has_smt: bool,
    asymmetric: bool,
    priorities: bool,
    wide: bool,
}

impl Domains {
    /// Precomputes everything.
    pub(crate) fn new(topology: &Topology) -> Domains {
        let count = topology.cpu_count();
        let mut domains = Domains {
            capacities: topology.cpus().iter().map(|cpu| cpu.capacity).collect(),
            has_smt: topology.has_smt(),
            asymmetric: is_asymmetric(topology),
            priorities: false,
            wide: false,
            topology: topology.clone(),
            spans: Vec::new(),
            extents: Vec::new(),
            by_cpu: Vec::new(),
            llc_span: Vec::new(),
            core_span: Vec::new(),
        };
        let cpus = || (0..count).map(|cpu| CpuId(cpu as u32));
        let mut known = BTreeMap::new();
        let nested: Vec<[usize; 5]> = cpus().map(|cpu| domains.nested_spans(cpu, &mut known)).collect();
        domains.core_span = nested.iter().map(|spans| spans[1]).collect();
        domains.llc_span = nested.iter().map(|spans| spans[2]).collect();
        domains.by_cpu = cpus().map(|cpu| domains.build(cpu, &nested)).collect();
        let wide = |domain: &Domain| domain.groups.iter().any(|group| domains.spans[*group].len() > 1);
        domains.wide = domains.by_cpu.iter().flatten().any(wide);
        domains
    }

    /// Cores that differ and have threads are told apart by priorities (`sched_itmt_enabled`): `SD_ASYM_CPUCAPACITY` does
    /// not go with threads.
    pub(crate) fn use_priorities(&mut self) {
        if self.asymmetric && self.has_smt {
            (self.asymmetric, self.priorities) = (false, true);
        }
    }

    /// Whether some CPUs are preferred (`SD_ASYM_PACKING`).
    pub(crate) fn has_priorities(&self) -> bool {
        self.priorities
    }

    /// `arch_asym_cpu_priority`; of all equal without priorities.
    pub(crate) fn priority(&self, cpu: CpuId) -> u32 {
        if self.priorities { self.capacities[cpu.index()] } else { 0 }
    }

    /// `arch_scale_cpu_capacity` of a CPU of this capacity.
    pub(crate) fn scale(&self, capacity: u32) -> u32 {
        if self.priorities { 1_024 } else { capacity }
    }

    /// Whether groups of several CPUs are balanced: threads of cores, or caches.
    pub(crate) fn is_wide(&self) -> bool {
        self.wide
    }

    /// Spans around a CPU: itself, core, cache, node, all. Of machines of a thousand CPUs there are as many, so they are
    /// not searched one by one. A CPU that is offline is alone.
    fn nested_spans(&mut self, cpu: CpuId, known: &mut BTreeMap<CpuMask, usize>) -> [usize; 5] {
        let count = self.topology.cpu_count();
        let row = *self.topology.cpu(cpu);
        let sets = if self.topology.is_online(cpu) {
            [
                CpuSet::single(cpu),
                *self.topology.siblings(cpu),
                self.topology.llcs()[row.llc as usize],
                self.topology.nodes()[row.node as usize],
                self.topology.all(),
            ]
        } else {
            [CpuSet::single(cpu); 5]
        };
        sets.map(|set| {
            let mask = CpuMask::cut(&set, count);
            *known.entry(mask).or_insert_with_key(|mask| {
                self.extents.push(mask.extent());
                self.spans.push(mask.clone());
                self.spans.len() - 1
            })
        })
    }

    /// The domains of a CPU from what is nested around each.
    fn build(&self, cpu: CpuId, nested: &[[usize; 5]]) -> Vec<Domain> {
        let levels = [Distance::Smt, Distance::Cache, Distance::Node, Distance::Remote];
        let own = &nested[cpu.index()];
        let mut built = Vec::new();
        let mut below = 0;
        for (above, level) in (1..5).zip(levels) {
            if own[above] == own[below] {
                continue;
            }
            let span = &self.spans[own[above]];
            debug_assert!(span.contains(cpu));
            // Groups follow the CPU's own in a ring, as Linux links them.
            let after = span.iter().filter(|member| *member > cpu);
            let members = after.chain(span.iter().filter(|member| *member <= cpu));
            let mut groups = vec![own[below]];
            let mut covered = self.spans[own[below]].clone();
            for member in members {
                if !covered.contains(member) {
                    let group = nested[member.index()][below];
                    covered.unite(&self.spans[group]);
                    groups.push(group);
                }
            }
            built.push(Domain { level, span: own[above], groups: groups.into() });
            below = above;
        }
        built
    }

    /// CPUs that the machine has offline.
    pub(crate) fn offline(&self) -> &CpuSet {
        self.topology.offline()
    }

    /// Capacity of each CPU.
    pub(crate) fn capacities(&self) -> &[u32] {
        &self.capacities
    }

    /// A CPU's domains, smallest first.
    pub(crate) fn of(&self, cpu: CpuId) -> &[Domain] {
        &self.by_cpu[cpu.index()]
    }

    /// A span by number.
    pub(crate) fn span(&self, span: usize) -> &CpuMask {
        &self.spans[span]
    }

    /// Number of CPUs of a span.
    #[inline]
    pub(crate) fn weight(&self, span: usize) -> u32 {
        self.extents[span].cpus
    }

    /// The first CPU of a span, at or after `start` and wrapping, that is in both sets.
    #[inline]
    pub(crate) fn first_common(&self, span: usize, a: &CpuMask, b: &CpuMask, start: CpuId) -> Option<CpuId> {
        match self.extents[span].word {
            Some(word) => a.first_common_within(b, &self.spans[span], start, word as usize),
            None => a.first_common_wrapping(b, &self.spans[span], start),
        }
    }

    /// CPUs that share the last-level cache with this one.
    pub(crate) fn llc(&self, cpu: CpuId) -> &CpuMask {
        &self.spans[self.llc_span[cpu.index()]]
    }

    /// Number of the span of [`Domains::llc`].
    #[inline]
    pub(crate) fn llc_number(&self, cpu: CpuId) -> usize {
        self.llc_span[cpu.index()]
    }

    /// Every span.
    pub(crate) fn spans(&self) -> &[CpuMask] {
        &self.spans
    }

    /// Number of the span of [`Domains::core`].
    #[inline]
    pub(crate) fn core_number(&self, cpu: CpuId) -> usize {
        self.core_span[cpu.index()]
    }

    /// Threads of the CPU's core.
    pub(crate) fn core(&self, cpu: CpuId) -> &CpuMask {
        &self.spans[self.core_span[cpu.index()]]
    }

    /// `cpus_share_cache`.
    #[inline]
    pub(crate) fn share_cache(&self, a: CpuId, b: CpuId) -> bool {
        self.llc_span[a.index()] == self.llc_span[b.index()]
    }

    /// Whether cores have several threads.
    pub(crate) fn has_smt(&self) -> bool {
        self.has_smt
    }

    /// Whether capacities differ.
    #[inline]
    pub(crate) fn is_asymmetric(&self) -> bool {
        self.asymmetric
    }

    /// How far apart two CPUs are.
    pub(crate) fn distance(&self, a: CpuId, b: CpuId) -> Distance {
        self.topology.distance(a, b)
    }
}

/// Whether CPUs that are online differ in capacity.
fn is_asymmetric(topology: &Topology) -> bool {
    let online = topology.all();
    let mut capacities = online.iter().map(|cpu| topology.cpu(cpu).capacity);
    let first = capacities.next();
    capacities.any(|capacity| Some(capacity) != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_nest_and_degenerate_levels_are_left_out() {
        let domains = Domains::new(&Topology::uniform(2, 1, 2, 2).expect("8 CPUs"));
        let levels: Vec<Distance> = domains.of(CpuId(0)).iter().map(|domain| domain.level).collect();
        assert_eq!(levels, [Distance::Smt, Distance::Cache, Distance::Remote]);
        let sizes: Vec<usize> =
            domains.of(CpuId(0)).iter().map(|domain| domains.span(domain.span).len()).collect();
        assert_eq!(sizes, [2, 4, 8]);
        assert!(domains.of(CpuId(5)).iter().all(|domain| domain.groups.len() == 2));
        let single = Domains::new(&Topology::flat(1).expect("1 CPU"));
        assert!(single.of(CpuId(0)).is_empty());
    }

    #[test]
    fn search_wraps_around_within_all_sets() {
        let mask = |cpus: &[u32]| {
            let mut mask = CpuMask::new(130);
            cpus.iter().for_each(|&cpu| mask.set(CpuId(cpu)));
            mask
        };
        let (a, b, all) = (mask(&[1, 5, 70, 129]), mask(&[5, 70, 128]), CpuMask::cut(&CpuSet::ALL, 130));
        let find = |start| a.first_common_wrapping(&b, &all, CpuId(start)).map(|cpu| cpu.0);
        assert_eq!([find(0), find(6), find(71), find(128)], [Some(5), Some(70), Some(5), Some(5)]);
        assert_eq!(a.first_common_wrapping(&mask(&[2]), &all, CpuId(0)), None);
        let between = |start, end| a.count_common_between(&all, CpuId(start), CpuId(end));
        assert_eq!([between(0, 5), between(1, 71), between(70, 5), between(6, 6)], [1, 3, 3, 0]);
    }

    /// As many CPUs as there can be: a CPU's groups begin with its own and follow in a ring, each once.
    #[test]
    fn groups_are_a_ring_from_the_own_one() {
        let topology = Topology::flat(1_024).expect("CPUs");
        let domains = Domains::new(&topology);
        let [domain] = domains.of(CpuId(700)) else { panic!("one level: all share a cache") };
        assert_eq!(domains.weight(domain.span), 1_024);
        let first = |group: &usize| domains.span(*group).iter().next().map(|cpu| cpu.0);
        let ring: Vec<u32> = domain.groups.iter().filter_map(first).collect();
        assert_eq!(ring, (700..1_024).chain(0..700).collect::<Vec<u32>>());
    }
}
