//! How many tasks a run can have at most, from what the programs say: for memory that is reserved before it begins.

use schedlab_model::workload::{Op, Workload};

/// Tasks of a run, forked ones included, each as if all were alive at once; `u64::MAX` if they have no bound.
pub(crate) fn tasks_max(workload: &Workload) -> u64 {
    let mut known = vec![None; workload.tasks.len()];
    let started = (0..workload.tasks.len()).filter(|row| !workload.tasks[*row].template);
    started.fold(0, |sum, row| sum.saturating_add(family(workload, row, &mut known)))
}

/// What is known of a row's family: being counted, or counted.
#[derive(Clone, Copy)]
enum Known {
    Begun,
    Counted(u64),
}

/// A task and all that it and its children may fork.
fn family(workload: &Workload, row: usize, known: &mut [Option<Known>]) -> u64 {
    match known.get(row) {
        Some(Some(Known::Counted(count))) => return *count,
        // A template that forks itself.
        Some(Some(Known::Begun)) => return u64::MAX,
        Some(None) => known[row] = Some(Known::Begun),
        None => return 1,
    }
    let program = workload.programs.get(workload.tasks[row].program.0 as usize);
    let mut rounds: Vec<u64> = vec![1];
    let mut count: u64 = 1;
    for op in program.iter().flat_map(|program| &program.ops) {
        let here = rounds.last().copied().unwrap_or(1);
        match op {
            Op::LoopStart { count: 0 } => rounds.push(u64::MAX),
            Op::LoopStart { count } => rounds.push(here.saturating_mul(u64::from(*count))),
            Op::LoopEnd => drop(rounds.pop()),
            Op::Fork { spec } => {
                let forked = family(workload, spec.0 as usize, known);
                count = count.saturating_add(forked.saturating_mul(here));
            }
            _ => {}
        }
    }
    known[row] = Some(Known::Counted(count));
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::workload::file::parse;

    fn most(tasks: &str) -> u64 {
        tasks_max(&parse(&format!("name = \"forks\"\nduration = \"1s\"\n{tasks}")).expect("a workload"))
    }

    fn task(name: &str, template: bool, steps: &str) -> String {
        format!("[[task]]\nname = \"{name}\"\ntemplate = {template}\nsteps = [{steps}]\n")
    }

    #[test]
    fn forks_count_by_rounds_and_generations() {
        let leaf = task("leaf", true, "{ run = \"1ms\" }");
        let middle = task("middle", true, "{ loop = { count = 3, steps = [{ fork = \"leaf\" }] } }");
        let root = task(
            "root",
            false,
            "{ fork = \"leaf\" }, { loop = { count = 5, steps = [{ loop = { count = 2, steps = [{ fork = \"middle\" }] } }] } }",
        );
        assert_eq!(most(&(leaf.clone() + &middle + &root)), 1 + 1 + 10 * (1 + 3));
        let server = task("server", false, "{ loop = { count = 0, steps = [{ fork = \"leaf\" }] } }");
        assert_eq!(most(&(leaf + &server)), u64::MAX);
        assert_eq!(most(&task("lone", false, "{ run = \"1ms\" }")), 1);
    }
}
