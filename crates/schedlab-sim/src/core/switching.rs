//! Schedulers from BPF come and go while tasks run: the core's part of `scx_root_enable_workfn` and
//! `scx_root_disable`. The class's own part is in [`crate::ext`].
//!
//! Differs from Linux: all of it happens at one instant, where Linux takes milliseconds with the tasks in bypass.

use super::{Core, flags};
use crate::ext::{Ext, existing_tasks};
use crate::kernel::{Class, TaskState};
use schedlab_model::TaskId;

impl Core {
    /// A scheduler comes; none is there. If it fails on the way, it has claimed its exit afterwards.
    /// `names` are the tasks' names.
    pub(crate) fn attach(&mut self, ext: Ext, names: Vec<String>) {
        self.k.this_cpu = self.k.first_online();
        let group_of = |row: usize| {
            let id = self.k.fair.groups.layout.entity_of(TaskId(row as u32));
            let group = self.k.fair.entities[id.index()].group;
            self.k.fair.groups.list[group as usize].path.clone()
        };
        let names = names.into_iter().enumerate().map(|(row, name)| (name, group_of(row))).collect();
        self.ext.replace(ext);
        self.ext.enable(&mut self.k, names);
        if self.ext.has_exit() {
            return;
        }
        let tasks: Vec<TaskId> = existing_tasks(&self.k).collect();
        for task in tasks {
            if self.ext.is_ready(task) {
                self.switch_class(task);
            }
        }
        self.ext.enabled(&mut self.k);
    }

    /// A task goes to the class that its policy now means.
    fn switch_class(&mut self, task: TaskId) {
        let state = self.k.task(task);
        let (before, policy) = (state.class, state.policy);
        let joins = before == Class::Fair && self.ext.takes(policy);
        let how = flags::MOVE | if joins { flags::CLASS } else { 0 };
        self.change_task(task, how, |core| {
            core.ext.refresh_slice(task);
            if joins {
                core.k.task_mut(task).class = Class::Ext;
            }
        });
    }

    /// The ext scheduler ended: every task of it goes on in the fair class.
    pub(crate) fn disable_ext(&mut self) {
        for index in 1..self.k.tasks.len() {
            let task = TaskId(index as u32);
            if self.k.task(task).class == Class::Ext && self.k.task(task).state != TaskState::Dead {
                let how = flags::MOVE | flags::CLASS;
                self.change_task(task, how, |core| core.k.task_mut(task).class = Class::Fair);
            }
            self.ext.give_up(&mut self.k, task);
        }
        self.ext.disabled(&mut self.k);
    }
}
