//! Facts of the simulated machine that a set-up file can name, and its loops over parts of the machine.
//!
//! User halves see the CPUs that are online (`scx_utils::Topology`) and, of the others, how many numbers there are.

use schedlab_model::CpuId;
use schedlab_model::cpu_set::CpuSet;
use schedlab_model::topology::{CpuInfo, Topology};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a part of a set-up file is repeated for. Only CPUs that are online count, and what has one; rounds have their
/// own number, `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Each {
    /// Every CPU: `cpu`, `core`, `llc`, `node`, `sibling`, `thread`, `capacity`.
    Cpu,
    /// Every physical core: `core`, `cpu` (its first), `llc`, `node`.
    Core,
    /// Every last-level cache: `llc`, `cpu` (its first), `node`, `count` (its CPUs).
    Llc,
    /// Every NUMA node: `node`, `cpu` (its first), `count` (its CPUs).
    Node,
}

type Variables = BTreeMap<String, i128>;

/// A machine.
#[derive(Clone, Debug)]
pub struct Facts {
    /// CPUs that are online. Their cores and caches are numbered without gaps, as user halves do; their nodes have
    /// the kernel's numbers, which programs see.
    online: BTreeMap<u32, CpuInfo>,
    whole: Variables,
}

impl Facts {
    /// The facts of a machine.
    pub fn new(topology: &Topology) -> Facts {
        let online = numbered(topology);
        let whole = of_machine(topology, &online);
        Facts { online, whole }
    }

    /// Facts of the whole machine; `mask_0` to `mask_15` hold its CPUs, 64 in each.
    pub fn variables(&self) -> Variables {
        self.whole.clone()
    }

    /// The variables of each round of a loop; one round without a loop.
    pub fn each(&self, each: Option<Each>) -> Vec<Variables> {
        let mut rounds: Vec<Variables> = match each {
            None => return vec![self.variables()],
            Some(Each::Cpu) => self.online.keys().map(|cpu| self.cpu(*cpu)).collect(),
            Some(Each::Core) => self.parts(|cpu| cpu.core),
            Some(Each::Llc) => self.parts(|cpu| cpu.llc),
            Some(Each::Node) => {
                let mut nodes = self.parts(|cpu| cpu.node);
                nodes.iter_mut().for_each(|node| node.retain(|name, _| name != "llc"));
                nodes
            }
        };
        for (index, round) in rounds.iter_mut().enumerate() {
            round.insert("index".to_owned(), index as i128);
        }
        rounds
    }

    fn cpu(&self, cpu: u32) -> Variables {
        let mut variables = self.variables();
        let info = self.online[&cpu];
        let siblings =
            || self.online.iter().filter(|(_, other)| other.core == info.core).map(|(cpu, _)| *cpu);
        let sibling = siblings().find(|other| *other != cpu).unwrap_or(cpu);
        let thread = siblings().position(|other| other == cpu).unwrap_or(0);
        for (name, value) in [
            ("cpu", cpu),
            ("core", info.core),
            ("llc", info.llc),
            ("node", info.node),
            ("capacity", info.capacity),
            ("sibling", sibling),
            ("thread", thread as u32),
        ] {
            variables.insert(name.to_owned(), value.into());
        }
        add_mask(&mut variables, &[CpuId(cpu)].into_iter().collect());
        variables
    }

    /// The variables of each set of CPUs with the same number: those of its first CPU, and the set.
    fn parts(&self, number: fn(&CpuInfo) -> u32) -> Vec<Variables> {
        let mut parts: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for (cpu, info) in &self.online {
            parts.entry(number(info)).or_insert(CpuSet::EMPTY).insert(CpuId(*cpu));
        }
        parts.values().filter_map(|cpus| Some(self.part(cpus.iter().next()?, cpus))).collect()
    }

    fn part(&self, first: CpuId, cpus: &CpuSet) -> Variables {
        let mut variables = self.cpu(first.0);
        variables.insert("count".to_owned(), cpus.len() as i128);
        variables.retain(|name, _| !matches!(name.as_str(), "sibling" | "thread"));
        add_mask(&mut variables, cpus);
        variables
    }
}

/// The CPUs that are online, their cores and caches numbered without gaps.
fn numbered(topology: &Topology) -> BTreeMap<u32, CpuInfo> {
    let cpus = topology.all();
    let rows = || cpus.iter().map(|cpu| topology.cpu(cpu));
    let cores: BTreeSet<u32> = rows().map(|cpu| cpu.core).collect();
    let llcs: BTreeSet<u32> = rows().map(|cpu| cpu.llc).collect();
    let place = |numbers: &BTreeSet<u32>, number| numbers.range(..number).count() as u32;
    let row = |cpu: CpuId| {
        let info = *topology.cpu(cpu);
        (cpu.0, CpuInfo { core: place(&cores, info.core), llc: place(&llcs, info.llc), ..info })
    };
    cpus.iter().map(row).collect()
}

fn of_machine(topology: &Topology, online: &BTreeMap<u32, CpuInfo>) -> Variables {
    let count = |number: fn(&CpuInfo) -> u32| online.values().map(number).collect::<BTreeSet<u32>>().len();
    let last_node = online.values().map(|cpu| cpu.node).max().unwrap_or(0);
    let mut variables: Variables = [
        ("nr_cpus", topology.cpu_count()),
        ("nr_online_cpus", online.len()),
        ("nr_cores", count(|cpu| cpu.core)),
        ("nr_llcs", count(|cpu| cpu.llc)),
        ("nr_nodes", last_node as usize + 1),
        ("nr_threads", most(online.iter().map(|(cpu, info)| (info.core, *cpu)))),
        ("nr_cores_of_llc", most(online.values().map(|cpu| (cpu.llc, cpu.core)))),
        ("nr_llcs_of_node", most(online.values().map(|cpu| (cpu.node, cpu.llc)))),
        ("smt", topology.has_smt().into()),
    ]
    .map(|(name, value)| (name.to_owned(), value as i128))
    .into();
    add_mask(&mut variables, &topology.all());
    variables
}

/// How many different members the largest of some groups has, of pairs of group and member.
fn most(pairs: impl Iterator<Item = (u32, u32)>) -> usize {
    let mut groups: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (group, member) in pairs {
        groups.entry(group).or_default().insert(member);
    }
    groups.values().map(BTreeSet::len).max().unwrap_or(0)
}

fn add_mask(variables: &mut Variables, cpus: &CpuSet) {
    let mut words = [0_u64; 16];
    for cpu in cpus.iter() {
        words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }
    for (index, word) in words.into_iter().enumerate() {
        variables.insert(format!("mask_{index}"), word.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_facts_and_parts() {
        let facts = Facts::new(&Topology::uniform(2, 1, 2, 2).unwrap());
        let all = facts.variables();
        let wanted = [("nr_cpus", 8), ("nr_cores", 4), ("nr_llcs", 2), ("nr_nodes", 2), ("nr_threads", 2)];
        for (name, value) in wanted {
            assert_eq!(all[name], value, "{name}");
        }
        assert_eq!(all["mask_0"], 0xff);
        let cpus = facts.each(Some(Each::Cpu));
        assert_eq!(cpus.len(), 8);
        assert_eq!((cpus[5]["cpu"], cpus[5]["mask_0"]), (5, 1 << 5));
        let siblings = cpus.iter().map(|cpu| cpu["sibling"] != cpu["cpu"]);
        assert!(siblings.into_iter().all(|other| other), "every CPU has another thread beside it");
        assert_eq!(facts.each(Some(Each::Core)).len(), 4);
        let llcs = facts.each(Some(Each::Llc));
        assert_eq!((llcs[1]["llc"], llcs[1]["count"]), (1, 4));
        assert_eq!(facts.each(None).len(), 1);
    }

    fn with_offline(topology: Topology, cpus: &str) -> Facts {
        Facts::new(&topology.with_offline(cpus.parse().unwrap()).unwrap())
    }

    fn counts_are(facts: &Facts, wanted: [i128; 5]) {
        let (names, all) =
            (["nr_cpus", "nr_online_cpus", "nr_cores", "nr_llcs", "nr_nodes"], facts.variables());
        assert_eq!(names.map(|name| all[name]), wanted, "{names:?}");
    }

    /// The values of some variables in each round.
    fn of_rounds(facts: &Facts, each: Each, names: [&str; 4]) -> Vec<[i128; 4]> {
        facts.each(Some(each)).iter().map(|round| names.map(|name| round[name])).collect()
    }

    #[test]
    fn what_has_no_cpu_online_is_left_out() {
        let facts = with_offline(Topology::uniform(2, 1, 2, 1).unwrap(), "2-3");
        counts_are(&facts, [4, 2, 2, 1, 1]);
        for (each, number) in [(Each::Llc, "llc"), (Each::Node, "node")] {
            assert_eq!(
                of_rounds(&facts, each, [number, "cpu", "count", "mask_0"]),
                [[0, 0, 2, 3]],
                "{each:?}"
            );
        }
        assert_eq!((facts.each(Some(Each::Cpu)).len(), facts.each(Some(Each::Core)).len()), (2, 2));
    }

    #[test]
    fn cores_and_caches_are_numbered_without_those_offline_and_nodes_with_them() {
        let facts = with_offline(Topology::uniform(3, 1, 2, 1).unwrap(), "1-3");
        let all = facts.variables();
        counts_are(&facts, [6, 3, 3, 2, 3]);
        assert_eq!((all["nr_cores_of_llc"], all["nr_llcs_of_node"], all["nr_threads"]), (2, 1, 1));
        let cpus = of_rounds(&facts, Each::Cpu, ["index", "cpu", "core", "llc"]);
        assert_eq!(cpus, [[0, 0, 0, 0], [1, 4, 1, 1], [2, 5, 2, 1]]);
        let nodes = of_rounds(&facts, Each::Node, ["index", "node", "cpu", "mask_0"]);
        assert_eq!(nodes, [[0, 0, 0, 1], [1, 2, 4, 0b11_0000]]);
    }
}
