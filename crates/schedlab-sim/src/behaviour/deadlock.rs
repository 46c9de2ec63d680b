//! Says who waits for whom when nothing can happen any more.

use super::actor::Wait;
use crate::error::SimError;
use crate::kernel::TaskState;
use crate::simulation::Simulation;
use schedlab_model::workload::ChannelType;
use schedlab_model::{ChannelId, TaskId};

/// Lines a deadlock report has at most.
const LINES_MAX: usize = 20;

impl Simulation {
    /// The error that describes the present waits.
    pub(crate) fn deadlock(&self) -> SimError {
        let ids = (1..self.core.k.tasks.len()).map(|index| TaskId(index as u32));
        let sleeping = ids.filter(|task| self.core.k.task(*task).state == TaskState::Sleeping);
        let mut waits: Vec<String> = sleeping.map(|task| self.describe_wait(task)).collect();
        if waits.len() > LINES_MAX {
            let more = waits.len() - LINES_MAX;
            waits.truncate(LINES_MAX);
            waits.push(format!("... and {more} more"));
        }
        SimError::Deadlock { time: self.core.k.now_nanos(), waits }
    }

    fn describe_wait(&self, task: TaskId) -> String {
        let name = self.task_name(task);
        let channel = |channel: ChannelId| &self.work.workload.channels[channel.index()];
        let what = match self.work.actors[task.index()].wait {
            Wait::Take(id) => {
                let noun = if channel(id).kind == ChannelType::Bytes { "data from" } else { "a token of" };
                format!("{noun} '{}', {}", channel(id).name, self.senders_of(id))
            }
            Wait::Room(id) => format!("room in '{}', which nobody empties", channel(id).name),
            Wait::Lock(id) => {
                let holder = self.work.channels[id.index()].holder;
                let holder =
                    holder.map_or("nobody".to_owned(), |holder| format!("'{}'", self.task_name(holder)));
                format!("lock '{}', held by {holder}", channel(id).name)
            }
            Wait::Condition(id) => format!("condition '{}', which nobody signals", channel(id).name),
            Wait::Barrier(id) => {
                let (here, all) = (self.work.channels[id.index()].level, channel(id).capacity);
                format!("barrier '{}', where {here} of {all} are", channel(id).name)
            }
            Wait::Any(list) => {
                let list = &self.work.code.lists[list as usize];
                let names: Vec<&str> = list.iter().map(|id| channel(*id).name.as_str()).collect();
                format!("any of '{}'", names.join("', '"))
            }
            Wait::Children => {
                format!("its {} children", self.work.actors[task.index()].children)
            }
            Wait::Timer | Wait::Device(_) | Wait::None => "nothing known".to_owned(),
        };
        format!("'{name}' waits for {what}")
    }

    fn senders_of(&self, channel: ChannelId) -> String {
        let holds = |task: &TaskId| {
            self.is_alive(*task) && self.work.actors[task.index()].sends_to.contains(&channel)
        };
        let ids = (1..self.core.k.tasks.len()).map(|index| TaskId(index as u32));
        let names: Vec<String> =
            ids.filter(holds).take(3).map(|task| format!("'{}'", self.task_name(task))).collect();
        if names.is_empty() {
            "which nobody gives".to_owned()
        } else {
            format!("which {} could give", names.join(", "))
        }
    }
}
