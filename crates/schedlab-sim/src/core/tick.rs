//! The periodic tick (`sched_tick`): the running class looks at its slice, balancing is considered.

use super::Core;
use crate::kernel::{Class, CostKind, CpuEvent, Slot};
use schedlab_model::CpuId;
use schedlab_model::event::{EventKind, IrqSource};

impl Core {
    /// A tick arrives on a CPU that runs a task.
    pub(crate) fn tick(&mut self, cpu: CpuId) {
        let k = &mut self.k;
        if k.cpu(cpu).curr.is_idle() {
            return;
        }
        let (now, tick) = (k.now, k.tick_ns);
        k.arm(Slot::Cpu(cpu, CpuEvent::Tick), now + tick);
        self.ext.account_tick(k, cpu);
        let cost = k.cost(CostKind::Tick);
        self.interrupt(cpu, IrqSource::Timer, cost);
        self.task_tick(cpu);
        let ext_waits = self.ext.waits(cpu);
        crate::rt::server_tick(&mut self.k, cpu, ext_waits);
        if !self.ext.has_switched_all() {
            crate::fair::balance::tick(&mut self.k, cpu);
            crate::fair::group::update_blocked(&mut self.k, cpu);
        }
        self.k.leave_kernel(cpu);
    }

    /// `hrtick`: the slice of the current fair task is over. Whether there was one, and an interrupt.
    pub(crate) fn hrtick(&mut self, cpu: CpuId) -> bool {
        if self.k.task(self.k.cpu(cpu).curr).class != Class::Fair {
            return false;
        }
        let cost = self.k.cost(CostKind::Interrupt);
        self.interrupt(cpu, IrqSource::Timer, cost);
        crate::fair::class::update_curr(&mut self.k, cpu);
        self.k.resched_curr(cpu);
        true
    }

    /// An interrupt handler of this length runs on the CPU; what it does happens at its start.
    pub(crate) fn interrupt(&mut self, cpu: CpuId, source: IrqSource, cost: u64) {
        self.note_interrupt(cpu, source, cost);
        self.k.charge(cpu, cost);
    }

    /// The same, but the caller charges it with what comes of it.
    #[inline(always)]
    pub(crate) fn note_interrupt(&mut self, cpu: CpuId, source: IrqSource, cost: u64) {
        let k = &mut self.k;
        let now = k.now;
        k.trace.emit_detail(now, cpu, || EventKind::IrqEnter { source });
        k.cpu_mut(cpu).overhead_time += cost;
        k.trace.emit_detail(now, cpu, || EventKind::IrqExit { source });
    }
}
