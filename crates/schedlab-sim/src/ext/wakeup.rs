//! A wake-up as the core sees it: a CPU is chosen for the task, and it goes into a queue there.
//!
//! Between the two neither the time nor the CPU whose code runs nor its current task changes, so that the scheduler's context
//! is set up once. Not here: what a scheduler is asked ([`super::select`], [`super::enqueue`]), when ([`crate::core::wakeup`]).

use super::class::{Attached, Ext};
use super::flags::enqueue_flags;
use super::{enqueue, reenq, select};
use crate::kernel::Kernel;
use schedlab_model::{CpuId, TaskId};

impl Ext {
    /// `select_task_rq`: a wake-up or fork chooses a CPU; called only for tasks with more than one allowed
    /// CPU. The core checks the answer against the affinity mask and falls back to an allowed CPU.
    #[inline(always)]
    pub(crate) fn select_task_rq(
        &mut self,
        k: &mut Kernel,
        task: TaskId,
        prev_cpu: CpuId,
        wake_flags: u32,
    ) -> CpuId {
        let Some(ext) = self.attached.as_deref_mut() else { return prev_cpu };
        let mut cx = ext.begin(k);
        let cpu = select::select_cpu(&mut cx, task.0, prev_cpu.0, wake_flags.into());
        reenq::finish(&mut cx);
        ext.apply_any(k);
        CpuId(cpu)
    }

    /// The same where it is rare.
    #[inline(never)]
    pub(crate) fn select_again(
        &mut self,
        k: &mut Kernel,
        task: TaskId,
        prev: CpuId,
        wake_flags: u32,
    ) -> CpuId {
        self.select_task_rq(k, task, prev, wake_flags)
    }

    /// The task becomes runnable on `cpu` (`Task::cpu` is set), or returns to the queue after a change. Counts
    /// `nr_running`.
    #[inline(always)]
    pub(crate) fn enqueue_task(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
        let Some(ext) = self.attached.as_deref_mut() else { return };
        ext.begin(k);
        ext.enqueue(k, cpu, task, flags);
    }

    /// The same for a wake-up for which [`Ext::select_task_rq`] was just asked: the context is this instant's already.
    #[inline(always)]
    pub(crate) fn enqueue_selected(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.enqueue(k, cpu, task, flags);
        }
    }

    /// The same where it is rare.
    #[inline(never)]
    pub(crate) fn enqueue_again(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
        self.enqueue_task(k, cpu, task, flags);
    }
}

impl Attached {
    /// [`Ext::enqueue_task`] in the context that was begun last.
    #[inline(always)]
    fn enqueue(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
        k.add_nr_running(cpu, 1);
        let mut cx = self.instance.enter(&mut self.host);
        let (host, memory) = cx.parts();
        let flags = enqueue_flags(host, task.0, flags);
        let entity = &mut host.tasks[task.index()];
        if entity.cpu != cpu.0 {
            entity.cpu = cpu.0;
            memory.write_u32(entity.address + host.at.cpu, cpu.0);
        }
        memory.write_u32(entity.address + host.at.state, 0);
        enqueue::enqueue_task(&mut cx, cpu.0, task.0, flags, 0);
        reenq::finish(&mut cx);
        self.apply_any(k);
        self.publish(k, cpu, task);
        let here = k.this_cpu;
        if self.host.callbacks != 0 || self.host.lock_ns != 0 {
            self.charge_hot(k, here);
        }
    }
}
