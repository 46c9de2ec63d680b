//! Facts of the simulated machine that a set-up file can name, and its loops over parts of the machine.

use schedlab_model::CpuId;
use schedlab_model::cpu_set::CpuSet;
use schedlab_model::topology::Topology;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What a part of a set-up file is repeated for.
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

/// A machine.
#[derive(Clone, Debug)]
pub struct Facts {
    topology: Topology,
}

impl Facts {
    /// The facts of a machine.
    pub fn new(topology: &Topology) -> Facts {
        Facts { topology: topology.clone() }
    }

    /// Facts of the whole machine; `mask_0` to `mask_15` hold its CPUs, 64 in each.
    pub fn variables(&self) -> BTreeMap<String, i128> {
        let topology = &self.topology;
        let cpus = topology.cpus();
        let cores = cpus.iter().map(|cpu| cpu.core).max().map_or(0, |last| last + 1);
        let threads = (0..cpus.len() as u32).map(|cpu| topology.siblings(CpuId(cpu)).len());
        let within = |count: &dyn Fn(u32) -> usize, of: usize| (0..of as u32).map(count).max().unwrap_or(0);
        let cores_of = |llc: u32| count_of(cpus.iter().filter(|cpu| cpu.llc == llc).map(|cpu| cpu.core));
        let llcs_of = |node: u32| count_of(cpus.iter().filter(|cpu| cpu.node == node).map(|cpu| cpu.llc));
        let mut variables = BTreeMap::from([
            ("nr_cpus".to_owned(), cpus.len() as i128),
            ("nr_cores".to_owned(), cores.into()),
            ("nr_llcs".to_owned(), topology.llcs().len() as i128),
            ("nr_nodes".to_owned(), topology.nodes().len() as i128),
            ("nr_threads".to_owned(), threads.max().unwrap_or(1) as i128),
            ("nr_cores_of_llc".to_owned(), within(&cores_of, topology.llcs().len()) as i128),
            ("nr_llcs_of_node".to_owned(), within(&llcs_of, topology.nodes().len()) as i128),
            ("smt".to_owned(), topology.has_smt().into()),
        ]);
        add_mask(&mut variables, &topology.all());
        variables
    }

    /// The variables of each round of a loop; one round without a loop.
    pub fn each(&self, each: Option<Each>) -> Vec<BTreeMap<String, i128>> {
        let topology = &self.topology;
        let cores = topology.cpus().iter().map(|cpu| cpu.core).max().map_or(0, |last| last + 1);
        match each {
            None => vec![self.variables()],
            Some(Each::Cpu) => topology.all().iter().map(|cpu| self.cpu(cpu.0)).collect(),
            Some(Each::Core) => {
                let online = topology.all();
                let cpu_of = |core| online.iter().find(|cpu| topology.cpu(*cpu).core == core);
                let cpus = (0..cores).filter_map(cpu_of);
                cpus.map(|cpu| self.part(topology.siblings(cpu), "core")).collect()
            }
            Some(Each::Llc) => topology.llcs().iter().map(|cpus| self.part(cpus, "llc")).collect(),
            Some(Each::Node) => topology.nodes().iter().map(|cpus| self.part(cpus, "node")).collect(),
        }
    }

    fn cpu(&self, cpu: u32) -> BTreeMap<String, i128> {
        let mut variables = self.variables();
        let (info, siblings) = (self.topology.cpu(CpuId(cpu)), self.topology.siblings(CpuId(cpu)));
        let sibling = siblings.iter().find(|other| other.0 != cpu).map_or(cpu, |other| other.0);
        let thread = siblings.iter().position(|other| other.0 == cpu).unwrap_or(0);
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

    /// The variables of a set of CPUs: those of the first one, and the set.
    fn part(&self, cpus: &CpuSet, what: &str) -> BTreeMap<String, i128> {
        let first = cpus.iter().next().map_or(0, |cpu| cpu.0);
        let mut variables = self.cpu(first);
        variables.insert("count".to_owned(), cpus.iter().count() as i128);
        variables.retain(|name, _| !matches!(name.as_str(), "sibling" | "thread"));
        if what == "node" {
            variables.remove("llc");
        }
        add_mask(&mut variables, cpus);
        variables
    }
}

fn count_of(numbers: impl Iterator<Item = u32>) -> usize {
    numbers.collect::<std::collections::BTreeSet<u32>>().len()
}

fn add_mask(variables: &mut BTreeMap<String, i128>, cpus: &CpuSet) {
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
}
