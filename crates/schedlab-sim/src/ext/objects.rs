//! Kernel objects in the region: reading and writing the fields of tasks and run queues.

use super::consts::{SCX_SLICE_BYPASS, SCX_SLICE_DFL};
use super::host::{Cx, Host};
use super::mask::Mask;
use schedlab_bpf::memory::Memory;

/// Bytes behind a `struct task_struct` where its task number lies, unseen by programs.
pub(crate) const TASK_NUMBER_BYTES: u64 = 8;

impl Host {
    /// The task at an address a program passed; none if there is no live task.
    #[inline]
    pub(crate) fn task_at(&self, memory: &Memory, address: u64) -> Option<u32> {
        // Mostly it is the task that the callback is about.
        let subject = self.call.subjects[0];
        if self.task(subject).address == address && address != 0 {
            return Some(subject);
        }
        let task = memory.read_u32(address.wrapping_add(self.layout.task_size));
        let known = self.tasks.get(task as usize)?;
        (known.address == address && address != 0).then_some(task)
    }

    /// `p->scx.slice`.
    #[inline]
    pub(crate) fn slice(&self, memory: &Memory, task: u32) -> u64 {
        memory.read_u64(self.task(task).address + self.at.slice)
    }

    #[inline]
    pub(crate) fn set_slice(&self, memory: &mut Memory, task: u32, slice: u64) {
        memory.write_u64(self.task(task).address + self.at.slice, slice);
    }

    /// `sch->slice_dfl`: shorter while the scheduler is bypassed.
    #[inline]
    pub(crate) fn default_slice(&self) -> u64 {
        if self.bypass && self.bypasses_by_cpu() { SCX_SLICE_BYPASS } else { SCX_SLICE_DFL }
    }

    /// `p->scx.dsq_vtime`.
    #[inline]
    pub(crate) fn dsq_vtime(&self, memory: &Memory, task: u32) -> u64 {
        memory.read_u64(self.task(task).address + self.at.dsq_vtime)
    }

    #[inline]
    pub(crate) fn set_dsq_vtime(&self, memory: &mut Memory, task: u32, vtime: u64) {
        memory.write_u64(self.task(task).address + self.at.dsq_vtime, vtime);
    }

    /// Sets `SCX_TASK_*` flags where the class and where programs see them.
    #[inline]
    pub(crate) fn set_flags(&mut self, memory: &mut Memory, task: u32, set: u32, clear: u32) {
        self.tasks[task as usize].set_flags(memory, &self.at, set, clear);
    }

    /// `p->cpus_ptr` to be read: one mask for all tasks that may run everywhere.
    #[inline]
    pub(crate) fn allowed(&self, task: u32) -> Mask {
        if self.task(task).nr_cpus_allowed == self.nr_cpus {
            return Mask(self.possible_mask);
        }
        self.own_mask(task)
    }

    /// The task's own mask.
    #[inline]
    pub(crate) fn own_mask(&self, task: u32) -> Mask {
        Mask(self.task(task).address + self.at.cpus_mask)
    }

    /// `set_task_cpu` as programs see it.
    #[inline]
    pub(crate) fn set_cpu(&mut self, memory: &mut Memory, task: u32, cpu: u32) {
        self.tasks[task as usize].cpu = cpu;
        memory.write_u32(self.tasks[task as usize].address + self.at.cpu, cpu);
    }

    /// `comm[pid]`, as the kernel's messages name a task.
    pub(crate) fn label(&self, memory: &Memory, task: u32) -> String {
        let address = self.task(task).address;
        format!("{}[{}]", self.comm(memory, task), memory.read_u32(address + self.at.pid))
    }

    /// The task's name.
    pub(crate) fn comm(&self, memory: &Memory, task: u32) -> String {
        let bytes = memory.bytes(self.task(task).address + self.at.comm, 16).unwrap_or(&[]);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// Sets `SCX_TASK_*` flags.
#[inline]
pub(crate) fn set_flags(cx: &mut Cx<'_>, task: u32, set: u32, clear: u32) {
    let (host, memory) = cx.parts();
    host.set_flags(memory, task, set, clear);
}

/// The slice of a task.
#[inline]
pub(crate) fn slice(cx: &mut Cx<'_>, task: u32) -> u64 {
    let (host, memory) = cx.parts();
    host.slice(memory, task)
}

/// Gives a task the default slice (`refill_task_slice_dfl`).
#[inline]
pub(crate) fn refill_slice(cx: &mut Cx<'_>, task: u32) {
    let (host, memory) = cx.parts();
    host.set_slice(memory, task, host.default_slice());
    host.count(super::host::EventCount::RefillSliceDfl);
}
