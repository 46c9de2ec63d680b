//! Which CPUs share what: threads of a core, cores of a cache, caches of a node.
//!
//! A table of CPUs, one row each, as `/sys/devices/system/cpu` tells it. CPUs may be offline from the start: they keep
//! their numbers and rows, and are in none of the sets. Costs live in [`crate::machine`].

use crate::cpu_set::{CPUS_MAX, CpuSet};
use crate::ids::CpuId;
use serde::{Deserialize, Serialize};

/// One logical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuInfo {
    /// Physical core, machine-wide.
    pub core: u32,
    /// Last-level cache domain, machine-wide.
    pub llc: u32,
    /// NUMA node.
    pub node: u32,
    /// Computing capacity, 1 to 1024; big cores have 1024 (`cpu_capacity`).
    pub capacity: u32,
}

/// How far apart two CPUs are, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// The same CPU.
    Same,
    /// Threads of one core.
    Smt,
    /// Cores of one last-level cache.
    Cache,
    /// Caches of one node.
    Node,
    /// Different nodes.
    Remote,
}

/// The CPUs of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TopologyText", into = "TopologyText")]
pub struct Topology {
    cpus: Vec<CpuInfo>,
    llcs: Vec<CpuSet>,
    nodes: Vec<CpuSet>,
    cores: Vec<CpuSet>,
    offline: CpuSet,
}

/// A topology that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// No CPU, or more than the limit.
    #[error("a machine has 1 to 1024 CPUs, this one {0}")]
    CpuCount(usize),
    /// A capacity out of range.
    #[error("cpu {cpu}: capacity {capacity} is out of range, 1 to 1024")]
    Capacity {
        /// The CPU.
        cpu: usize,
        /// Its capacity.
        capacity: u32,
    },
    /// A core spread over caches, or a cache over nodes.
    #[error("cpu {0}: a core lies in one cache and a cache in one node")]
    Nesting(usize),
    /// A CPU is offline that is not there.
    #[error("offline: the machine has no cpu {cpu}, it has {}: name one of 0 to {}", cpus_text(*.cpus), .cpus - 1)]
    NoSuchCpu {
        /// The CPU.
        cpu: u32,
        /// How many there are.
        cpus: usize,
    },
    /// No CPU is left.
    #[error("offline: all CPUs of the machine are: leave one online")]
    AllOffline,
}

/// How a topology is written: levels with equal shares, or a row for each CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyText {
    #[serde(default = "one", skip_serializing_if = "is_one")]
    nodes: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    caches_per_node: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    cores_per_cache: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    threads_per_core: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cpus: Vec<CpuInfo>,
    #[serde(default = "no_cpu", skip_serializing_if = "CpuSet::is_empty")]
    offline: CpuSet,
}

fn no_cpu() -> CpuSet {
    CpuSet::EMPTY
}

fn one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

impl Topology {
    /// From one row for each CPU, in CPU order.
    pub fn from_cpus(cpus: Vec<CpuInfo>) -> Result<Topology, TopologyError> {
        if cpus.is_empty() || cpus.len() > CPUS_MAX {
            return Err(TopologyError::CpuCount(cpus.len()));
        }
        for (cpu, info) in cpus.iter().enumerate() {
            if info.capacity == 0 || info.capacity > 1024 {
                return Err(TopologyError::Capacity { cpu, capacity: info.capacity });
            }
            let torn = |other: &CpuInfo| {
                (other.core == info.core && other.llc != info.llc)
                    || (other.llc == info.llc && other.node != info.node)
            };
            if cpus[..cpu].iter().any(torn) {
                return Err(TopologyError::Nesting(cpu));
            }
        }
        Ok(Topology::with_sets(cpus, CpuSet::EMPTY))
    }

    /// The same machine with these CPUs offline: they do no work, and no set has them.
    pub fn with_offline(self, offline: CpuSet) -> Result<Topology, TopologyError> {
        let cpus = self.cpus.len();
        if let Some(cpu) = offline.iter().find(|cpu| cpu.index() >= cpus) {
            return Err(TopologyError::NoSuchCpu { cpu: cpu.0, cpus });
        }
        if offline.len() == cpus {
            return Err(TopologyError::AllOffline);
        }
        Ok(Topology::with_sets(self.cpus, offline))
    }

    fn with_sets(cpus: Vec<CpuInfo>, offline: CpuSet) -> Topology {
        let sets = |key: fn(&CpuInfo) -> u32| {
            let count = cpus.iter().map(key).max().map_or(0, |max| max as usize + 1);
            let mut sets = vec![CpuSet::EMPTY; count];
            let online = |(cpu, _): &(CpuId, &CpuInfo)| !offline.contains(*cpu);
            let rows = cpus.iter().enumerate().map(|(cpu, info)| (CpuId(cpu as u32), info));
            rows.filter(online).for_each(|(cpu, info)| sets[key(info) as usize].insert(cpu));
            sets
        };
        let (llcs, nodes, cores) = (sets(|c| c.llc), sets(|c| c.node), sets(|c| c.core));
        Topology { cpus, llcs, nodes, cores, offline }
    }

    /// Equal cores: `nodes` × `caches` a node × `cores` a cache × `threads` a core. Threads of a core are
    /// numbered as x86 does: first every core's first thread, then the second threads.
    pub fn uniform(nodes: u32, caches: u32, cores: u32, threads: u32) -> Result<Topology, TopologyError> {
        let core_count = [nodes, caches, cores].iter().try_fold(1_u32, |product, n| product.checked_mul(*n));
        let total = core_count.and_then(|n| n.checked_mul(threads)).unwrap_or(u32::MAX);
        if total == 0 || total as usize > CPUS_MAX {
            return Err(TopologyError::CpuCount(total as usize));
        }
        let core_count = core_count.unwrap_or(0);
        let row = |cpu: u32| {
            let core = cpu % core_count;
            CpuInfo { core, llc: core / cores, node: core / (cores * caches), capacity: 1024 }
        };
        Topology::from_cpus((0..total).map(row).collect())
    }

    /// `count` equal CPUs under one cache.
    pub fn flat(count: u32) -> Result<Topology, TopologyError> {
        Topology::uniform(1, 1, count, 1)
    }

    /// Number of CPUs, those that are offline included: one more than the highest (`nr_cpu_ids`).
    #[inline]
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// Number of CPUs that are online.
    pub fn online_count(&self) -> usize {
        self.cpus.len() - self.offline.len()
    }

    /// All CPUs that are online.
    pub fn all(&self) -> CpuSet {
        (0..self.cpus.len() as u32).map(CpuId).filter(|cpu| self.is_online(*cpu)).collect()
    }

    /// CPUs that are offline.
    pub fn offline(&self) -> &CpuSet {
        &self.offline
    }

    /// Whether a CPU is online.
    #[inline]
    pub fn is_online(&self, cpu: CpuId) -> bool {
        !self.offline.contains(cpu)
    }

    /// How many CPUs work and how many do not, for people.
    pub fn cpus_text(&self) -> String {
        let online = cpus_text(self.online_count());
        if self.offline.is_empty() { online } else { format!("{online} and {} offline", self.offline.len()) }
    }

    /// One CPU's row.
    #[inline]
    pub fn cpu(&self, cpu: CpuId) -> &CpuInfo {
        &self.cpus[cpu.index()]
    }

    /// Every row, in CPU order.
    pub fn cpus(&self) -> &[CpuInfo] {
        &self.cpus
    }

    /// CPU sets of the last-level caches; an unused number, or one of offline CPUs only, is an empty set.
    pub fn llcs(&self) -> &[CpuSet] {
        &self.llcs
    }

    /// CPU sets of the nodes.
    pub fn nodes(&self) -> &[CpuSet] {
        &self.nodes
    }

    /// Threads of the same core that are online, the CPU itself included if it is.
    #[inline]
    pub fn siblings(&self, cpu: CpuId) -> &CpuSet {
        &self.cores[self.cpu(cpu).core as usize]
    }

    /// Whether any core has more than one thread.
    pub fn has_smt(&self) -> bool {
        self.cores.iter().any(|set| set.len() > 1)
    }

    /// How far apart two CPUs are.
    #[inline]
    pub fn distance(&self, a: CpuId, b: CpuId) -> Distance {
        let (x, y) = (self.cpu(a), self.cpu(b));
        if a == b {
            Distance::Same
        } else if x.core == y.core {
            Distance::Smt
        } else if x.llc == y.llc {
            Distance::Cache
        } else if x.node == y.node {
            Distance::Node
        } else {
            Distance::Remote
        }
    }
}

/// A number of CPUs, for people.
pub fn cpus_text(count: usize) -> String {
    format!("{count} CPU{}", if count == 1 { "" } else { "s" })
}

impl TryFrom<TopologyText> for Topology {
    type Error = TopologyError;
    fn try_from(text: TopologyText) -> Result<Topology, TopologyError> {
        let topology = if text.cpus.is_empty() {
            Topology::uniform(text.nodes, text.caches_per_node, text.cores_per_cache, text.threads_per_core)
        } else {
            Topology::from_cpus(text.cpus)
        };
        topology?.with_offline(text.offline)
    }
}

impl From<Topology> for TopologyText {
    fn from(topology: Topology) -> TopologyText {
        TopologyText {
            nodes: 1,
            caches_per_node: 1,
            cores_per_cache: 1,
            threads_per_core: 1,
            cpus: topology.cpus,
            offline: topology.offline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_follow_the_levels() {
        let topology = Topology::uniform(2, 2, 2, 2).expect("16 CPUs");
        assert_eq!(topology.cpu_count(), 16);
        let from_zero = |cpu| topology.distance(CpuId(0), CpuId(cpu));
        assert_eq!(from_zero(0), Distance::Same);
        assert_eq!(from_zero(8), Distance::Smt);
        assert_eq!(from_zero(1), Distance::Cache);
        assert_eq!(from_zero(2), Distance::Node);
        assert_eq!(from_zero(4), Distance::Remote);
        assert_eq!(topology.llcs().len(), 4);
    }

    #[test]
    fn impossible_machines_are_refused() {
        assert_eq!(Topology::flat(0), Err(TopologyError::CpuCount(0)));
        assert_eq!(Topology::flat(1025), Err(TopologyError::CpuCount(1025)));
        let torn = |llc| CpuInfo { core: 0, llc, node: 0, capacity: 1024 };
        assert_eq!(Topology::from_cpus(vec![torn(0), torn(1)]), Err(TopologyError::Nesting(1)));
        let offline = |cpus: &str| {
            let topology = Topology::flat(2).expect("2 CPUs");
            topology.with_offline(cpus.parse().expect("a list")).expect_err("refused").to_string()
        };
        assert_eq!(offline("1-2"), "offline: the machine has no cpu 2, it has 2 CPUs: name one of 0 to 1");
        assert_eq!(offline("0-1"), "offline: all CPUs of the machine are: leave one online");
    }

    #[test]
    fn offline_cpus_keep_their_numbers_and_share_nothing() {
        let topology = Topology::uniform(1, 1, 4, 2).expect("8 CPUs");
        let topology = topology.with_offline("4-7".parse().expect("a list")).expect("4 are left");
        assert_eq!((topology.cpu_count(), topology.online_count()), (8, 4));
        assert!(!topology.has_smt() && !topology.is_online(CpuId(4)));
        for set in [&topology.all(), &topology.llcs()[0], &topology.nodes()[0]] {
            assert_eq!(set.to_string(), "0-3");
        }
        assert_eq!(topology.cpus_text(), "4 CPUs and 4 offline");
        assert_eq!([1, 2].map(cpus_text), ["1 CPU", "2 CPUs"]);
    }

    #[test]
    fn a_file_names_offline_cpus_if_there_are_any() {
        let read = |text: &str| serde_json::from_str::<Topology>(text);
        let topology = read(r#"{"threads_per_core": 2, "offline": "1"}"#).expect("read");
        assert_eq!(topology.offline().to_string(), "1");
        let written = serde_json::to_string(&topology).expect("written");
        assert_eq!(read(&written).expect("read back"), topology);
        let whole = serde_json::to_string(&Topology::flat(2).expect("2 CPUs")).expect("written");
        assert!(!whole.contains("offline"), "{whole}");
        assert!(read(r#"{"threads_per_core": 2, "offline": "0-1"}"#).is_err());
    }
}
