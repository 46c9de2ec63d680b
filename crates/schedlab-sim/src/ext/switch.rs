//! The commonest switch in one pass: the current task goes to sleep and another of the class, or nobody, comes.
//!
//! It is the sum of `dequeue_task`, `pick_task`, `put_prev_task` and `set_next_task` of [`super::class`], in
//! their order and with what each would do; entering the scheduler's context once saves a fifth of a switch.
//! Not here: any other switch.

use super::class::Attached;
use super::consts::{ENQUEUE_NOCLOCK, SCX_DEQ_SLEEP};
use super::host::Cx;
use super::{dispatch, enqueue, reenq};
use crate::kernel::Kernel;
use schedlab_model::{CpuId, TaskId};

impl Attached {
    /// The current task, `prev`, sleeps; the task that runs from now on is returned.
    pub(super) fn replace_sleeper(&mut self, k: &mut Kernel, cpu: CpuId, prev: TaskId) -> Option<TaskId> {
        self.update_curr(k, cpu);
        k.add_nr_running(cpu, -1);
        let voluntary = k.task(prev).nvcsw + 1;
        self.choosing = Some(cpu);
        let next = self.enter(k, |cx| {
            sleep(cx, cpu.0, prev.0, voluntary);
            let next = dispatch::pick_task(cx, cpu.0, None);
            finish_deferred(cx);
            let (host, memory) = cx.parts();
            memory.write_u8(host.task(prev.0).address + host.layout.task.on_cpu, 0);
            if let Some(next) = next {
                host.rq_mut(cpu.0).exec_start = host.now;
                dispatch::set_next_task(cx, cpu.0, next);
            }
            next
        });
        self.choosing = None;
        if self.host.rq(cpu.0).kick_sync_pending {
            self.wait_for_kicked(k, cpu);
        }
        if k.trace.detail {
            self.publish(k, cpu, prev);
        }
        if next.is_some() {
            self.charge(k, cpu);
        }
        next.map(TaskId)
    }
}

#[inline]
fn sleep(cx: &mut Cx<'_>, cpu: u32, task: u32, voluntary: u64) {
    let (host, memory) = cx.parts();
    let (address, at) = (host.task(task).address, &host.layout.task);
    memory.write_u32(address + at.state, 1);
    memory.write_u64(address + at.nvcsw, voluntary);
    enqueue::dequeue_task(cx, cpu, task, ENQUEUE_NOCLOCK | SCX_DEQ_SLEEP);
    finish_deferred(cx);
}

#[inline]
fn finish_deferred(cx: &mut Cx<'_>) {
    if cx.host().deferred_work {
        reenq::run_deferred(cx);
    }
}
