//! Kicking CPUs: `scx_bpf_kick_cpu()` is carried out when the callback has returned, as Linux does it from an
//! interrupt work item (`kick_cpus_irq_workfn`).
//!
//! Under `SCX_KICK_WAIT` the kicking CPU waits in its next scheduling pass until the kicked ones have passed
//! theirs (`kick_sync_wait_bal_cb`). Here a kicked CPU reschedules at a time that is known, so the wait is a
//! cost: the time until then. CPUs that wait for each other in a ring do not block each other, as in Linux.

use super::class::{Attached, TOKEN_KICK};
use super::consts::{SCX_KICK_IDLE, SCX_KICK_PREEMPT, SCX_KICK_WAIT};
use crate::kernel::{Class, Kernel};
use schedlab_model::CpuId;

impl Attached {
    /// `kick_cpus_irq_workfn` for one CPU. A CPU that kicks itself while it chooses a task or switches to it is kicked
    /// after the switch: interrupts are off until then, and who is current is who comes.
    pub(super) fn kick(&mut self, k: &mut Kernel, cpu: CpuId, flags: u64) {
        if self.choosing == Some(cpu) {
            let rq = self.host.rq_mut(cpu.0);
            rq.kicked = Some(match rq.kicked {
                None => flags,
                Some(earlier) if earlier & flags & SCX_KICK_IDLE != 0 => SCX_KICK_IDLE,
                Some(earlier) => (earlier | flags) & !SCX_KICK_IDLE,
            });
            k.arm_ext_timer(TOKEN_KICK + cpu.0, k.now);
            return;
        }
        let here = k.this_cpu;
        if !self.host.is_online(cpu.0) && cpu != here {
            return;
        }
        let curr = k.cpu(cpu).curr;
        if flags & SCX_KICK_IDLE != 0 {
            if curr.is_idle() {
                k.resched_curr(cpu);
            }
            return;
        }
        let class = k.task(curr).class;
        if class > Class::Ext {
            return;
        }
        if flags & SCX_KICK_PREEMPT != 0 && class == Class::Ext {
            let host = &self.host;
            host.set_slice(self.instance.memory(), curr.0, 0);
        }
        k.resched_curr(cpu);
        if flags & SCX_KICK_WAIT != 0 && class == Class::Ext {
            let seen = self.host.rq(cpu.0).kick_sync;
            let rq = self.host.rq_mut(here.0);
            rq.cpus_to_sync.push((cpu.0, seen));
            rq.kick_sync_pending = true;
            k.resched_curr(here);
        }
    }

    /// `kick_sync_wait_bal_cb`: after the choice of the next task, until each kicked CPU has made one.
    #[cold]
    pub(super) fn wait_for_kicked(&mut self, k: &mut Kernel, cpu: CpuId) {
        let kicked = std::mem::take(&mut self.host.rq_mut(cpu.0).cpus_to_sync);
        self.host.rq_mut(cpu.0).kick_sync_pending = false;
        let late =
            kicked.iter().filter(|(other, seen)| *other != cpu.0 && self.host.rq(*other).kick_sync == *seen);
        let until = late.filter_map(|(other, _)| k.resched_time(CpuId(*other))).max().unwrap_or(0);
        if until > k.now {
            k.charge(cpu, until - k.now);
        }
    }
}
