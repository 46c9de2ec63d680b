//! Whose tasks a trace is about: who is asked for, else what the recorder started, else every task of user space.
//!
//! Descendants belong to it. Not here: how it is known that a recorder started a task ([`crate::build`]).

use crate::ImportError;
use crate::names::Recorders;
use schedlab_model::TaskId;
use schedlab_model::recording::TaskInfo;
use std::collections::BTreeSet;

/// Names that are listed when the one asked for is not there.
const NAMES_SHOWN: usize = 12;

/// Marks the target.
pub(crate) fn choose(
    tasks: &mut [TaskInfo],
    asked: Option<&str>,
    recorder_started: BTreeSet<TaskId>,
    recorders: Recorders,
) -> Result<(), ImportError> {
    // A child bears its parent's name until it starts a program; helpers of the recorder keep it.
    // Recording `sleep` is how one records the whole machine for a time.
    let is_work = |task: &TaskId| {
        let name = &tasks[task.index()].name;
        !recorders.has(name) && name != "sleep"
    };
    let started: Vec<TaskId> = recorder_started.into_iter().filter(is_work).collect();
    if let Some(asked) = asked {
        let number: Option<i32> = asked.parse().ok();
        for task in tasks.iter_mut().skip(1) {
            task.target = number.map_or(task.name == asked, |pid| task.pid == pid || task.tgid == pid);
        }
        if !tasks.iter().any(|task| task.target) {
            let names: BTreeSet<&str> = tasks.iter().skip(1).map(|task| task.name.as_str()).collect();
            let names: Vec<&str> = names.into_iter().take(NAMES_SHOWN).collect();
            return Err(ImportError::NoTarget(asked.to_owned(), names.join(", ")));
        }
    } else if started.is_empty() {
        for task in tasks.iter_mut().skip(1) {
            task.target = !task.attributes.kernel_thread && !recorders.has(&task.name);
        }
    } else {
        for task in started {
            tasks[task.index()].target = true;
        }
    }
    for row in 1..tasks.len() {
        let parent = tasks[row].parent;
        tasks[row].target |= parent != TaskId::IDLE && parent.index() < row && tasks[parent.index()].target;
    }
    Ok(())
}
