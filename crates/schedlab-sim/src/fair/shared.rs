//! What the CPUs of one cache know together (`struct sched_domain_shared`): whether one of their cores idles, and how many
//! CPUs a wake-up looks at.
//!
//! Both are hints that may be out of date, as in Linux: a core that idles is noticed when its last thread goes idle and
//! forgotten when a search finds none; the bound follows the use of the cache's CPUs at each periodic balancing. Who
//! searches: [`super::select`].

use super::params::Features;
use crate::kernel::{Domains, Kernel};
use schedlab_model::CpuId;

/// The hints of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    /// `has_idle_cores`.
    pub(super) has_idle_cores: bool,
    /// `nr_idle_scan`: so many CPUs are looked at.
    pub(super) nr_idle_scan: u32,
    /// CPUs of the cache.
    cpus: u32,
}

impl Shared {
    /// Of a machine that has idled for a while, by number of span.
    pub(crate) fn all(domains: &Domains) -> Vec<Shared> {
        let spans = domains.spans().iter().map(|span| span.len() as u32);
        spans.map(|cpus| Shared { has_idle_cores: true, nr_idle_scan: cpus, cpus }).collect()
    }

    /// Whether the search has a bound at all.
    pub(super) fn is_bounded(&self) -> bool {
        self.nr_idle_scan < self.cpus
    }
}

/// The hints of a CPU's cache.
pub(super) fn of(k: &mut Kernel, cpu: CpuId) -> &mut Shared {
    &mut k.fair.shared[k.domains.llc_number(cpu)]
}

/// `update_idle_core`: the CPU went idle; if its core's other threads do too, the cache has an idle core.
pub(crate) fn update_idle_core(k: &mut Kernel, cpu: CpuId) {
    if !k.domains.has_smt() || k.ideal || of(k, cpu).has_idle_cores {
        return;
    }
    if k.domains.core(cpu).iter().all(|sibling| k.idle_mask.contains(sibling)) {
        of(k, cpu).has_idle_cores = true;
    }
}

/// `update_idle_cpu_scan`, when a CPU balances its cache: the more its CPUs are used, the fewer are looked at.
pub(super) fn update_idle_scan(k: &mut Kernel, cpu: CpuId, imbalance_pct: u64) {
    if !k.fair.params.has(Features::SIS_UTIL) {
        return;
    }
    let util = |cpu: CpuId| k.fair.rqs[cpu.index()].average.util.min(u64::from(k.cpu(cpu).scale));
    let online = || k.domains.llc(cpu).iter().filter(|cpu| k.is_online(*cpu));
    let (sum, cpus): (u64, u64) = (online().map(util).sum(), online().count() as u64);
    of(k, cpu).nr_idle_scan = idle_scan(sum, cpus.max(1), imbalance_pct) as u32;
}

/// CPUs to look at where these many have this use together: all without use, none beyond 100/`imbalance_pct` of use,
/// and in between one less the square of their ratio.
fn idle_scan(util_sum: u64, cpus: u64, imbalance_pct: u64) -> u64 {
    let util = util_sum / cpus;
    let used = (util * util * imbalance_pct * imbalance_pct / (10_000 * 1_024)).min(1_024);
    (1_024 - used) * cpus / 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight CPUs. Half used: 512² · 117² / 10,240,000 = 350, (1024 − 350) · 8 / 1024 = 5. At 600: 481, 4. From
    /// 1024 · 100 / 117 = 875 on: 1023, none.
    #[test]
    fn the_more_a_cache_is_used_the_fewer_cpus_are_looked_at() {
        let scan = |util: u64| idle_scan(8 * util, 8, 117);
        assert_eq!([0, 100, 512, 600, 875, 1_024].map(scan), [8, 7, 5, 4, 0, 0]);
        // Two threads, 110 %: 512² · 110² / 10,240,000 = 309, (1024 − 309) · 2 / 1024 = 1.
        assert_eq!(idle_scan(1_024, 2, 110), 1);
    }
}
