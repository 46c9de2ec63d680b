//! The commonest switch in one pass: the current task goes to sleep and another of the class, or nobody, comes.
//!
//! It is the sum of `dequeue_task`, `pick_task`, `put_prev_task` and `set_next_task` of [`super::class`], in
//! their order and with what each would do; entering the scheduler's context once saves a fifth of a switch.
//! Not here: any other switch.

use super::call::{Op, call_known};
use super::class::{Attached, Ext};
use super::consts::{ENQUEUE_NOCLOCK, SCX_DEQ_SLEEP};
use super::dsq::NIL;
use super::host::{CurrClass, Cx, Host};
use super::objects::refill_slice;
use super::{dispatch, enqueue};
use crate::ahead;
use crate::kernel::Kernel;
use schedlab_model::{CpuId, TaskId};

impl Ext {
    /// Brings near what a CPU's next switch touches.
    pub(crate) fn fetch_cpu(&mut self, cpu: CpuId) {
        if let Some(ext) = self.attached() {
            ahead::fetch_row(&ext.host.rqs, cpu.index());
            ext.host.dsqs.fetch(ext.host.local_dsq(cpu.0));
        }
    }

    /// The first task of the queue of which one was taken last.
    pub(crate) fn head(&mut self) -> Option<TaskId> {
        let head = self.attached()?.host.head;
        (head != NIL).then_some(TaskId(head))
    }

    /// Brings near what is known of a task.
    pub(crate) fn fetch_task(&mut self, task: TaskId) {
        if let Some(ext) = self.attached() {
            ahead::fetch_row(&ext.host.tasks, task.index());
        }
    }

    /// Brings near what programs see of a task and of its CPU; the rows of both are near.
    pub(crate) fn fetch_structs(&mut self, cpu: CpuId, task: TaskId) {
        if let Some(ext) = self.attached() {
            if let Some(entity) = ext.host.tasks.get(task.index()) {
                ext.fetch_task_struct(entity.address);
            }
            let current = ext.host.rq(cpu.0).address + ext.host.layout.rq.curr;
            ext.instance.memory().bytes(current, 1).into_iter().for_each(ahead::fetch_bytes);
        }
    }

    /// Brings near what is known of a task and what programs see of it.
    pub(crate) fn fetch_whole_task(&mut self, task: TaskId) {
        if let Some(ext) = self.attached() {
            ahead::fetch_row(&ext.host.tasks, task.index());
            ext.fetch_task_struct(ext.host.address_of(task.0));
        }
    }
}

impl Attached {
    /// Of a `struct task_struct`, what lies between these two places is of no interest to most schedulers.
    #[inline]
    fn fetch_task_struct(&mut self, address: u64) {
        for place in [address + self.host.at.cpu, address + self.host.at.sum_exec_runtime] {
            self.instance.memory().bytes(place, 1).into_iter().for_each(ahead::fetch_bytes);
        }
    }

    /// The current task, `prev`, sleeps; the task that runs from now on is returned. What callbacks left to be done is
    /// done by [`Ext::end_switch`].
    #[inline(never)]
    pub(super) fn replace_sleeper(&mut self, k: &mut Kernel, cpu: CpuId, prev: TaskId) -> Option<TaskId> {
        self.update_curr(k, cpu);
        k.add_nr_running(cpu, -1);
        let (state, voluntary) = (k.task(prev).sleep_state(), k.task(prev).nvcsw + 1);
        self.choosing = Some(cpu);
        let mut cx = self.begin(k);
        let address = sleep(&mut cx, cpu.0, prev.0, (state, voluntary));
        let next = choose(&mut cx, cpu.0);
        let (host, memory) = cx.parts();
        memory.write_u8(address + host.at.on_cpu, 0);
        if let Some(next) = next {
            dispatch::set_next_task(&mut cx, cpu.0, next);
        }
        self.apply_move(k);
        self.choosing = None;
        if self.host.rq(cpu.0).kick_sync_pending {
            self.wait_for_kicked(k, cpu);
        }
        if k.trace.detail {
            self.publish(k, cpu, prev);
        }
        if next.is_some() && (self.host.callbacks != 0 || self.host.lock_ns != 0) {
            self.charge_hot(k, cpu);
        }
        next.map(TaskId)
    }
}

/// [`dispatch::pick_task`] without a task that could go on: `ops.dispatch()` at once where there is nothing else to look
/// at before, which is nearly always so.
#[inline(always)]
fn choose(cx: &mut Cx<'_>, cpu: u32) -> Option<u32> {
    let host = cx.host();
    let local = host.local_dsq(cpu);
    let asks = host.has_op(Op::Dispatch) && !host.bypass;
    let Host { rqs, dsqs, tasks, .. } = &mut *host;
    let rq = &mut rqs[cpu as usize];
    let empty = dsqs.get(local).nr == 0 && dsqs.get(rq.global).first == NIL;
    if !(asks && empty && rq.online && !rq.released && rq.curr_class == CurrClass::Ext) {
        return dispatch::pick_task(cx, cpu, None);
    }
    rq.in_balance = true;
    rq.kick_sync += 1;
    rq.nr_dispatched = 0;
    let address = tasks[rq.curr as usize].address;
    call_known(cx, Op::Dispatch, Some(cpu), [0, 0], &[u64::from(cpu), address]);
    let (host, memory) = cx.parts();
    let Host { rqs, dsqs, .. } = &mut *host;
    let (rq, queue) = (&mut rqs[cpu as usize], dsqs.get(local));
    if queue.nr == 0 || rq.nr_immed > 0 || !rq.batch.is_empty() {
        return dispatch::pick_after_dispatch(cx, cpu);
    }
    rq.in_balance = false;
    let next = queue.first;
    if host.slice(memory, next) == 0 {
        refill_slice(cx, next);
    }
    Some(next)
}

/// The current task leaves its run queue; its address.
#[inline(always)]
fn sleep(cx: &mut Cx<'_>, cpu: u32, task: u32, (state, voluntary): (u32, u64)) -> u64 {
    let (host, memory) = cx.parts();
    let (address, at) = (host.task(task).address, &host.at);
    memory.write_u32(address + at.state, state);
    memory.write_u64(address + at.nvcsw, voluntary);
    enqueue::dequeue_task(cx, cpu, task, ENQUEUE_NOCLOCK | SCX_DEQ_SLEEP);
    address
}
