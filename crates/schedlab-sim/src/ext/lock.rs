//! Locks of shared dispatch queues: what it costs that CPUs take turns at one queue.
//!
//! Linux guards each queue with a spinlock. A CPU that had the lock last has its lines in its own cache; for any
//! other they come from there, and meanwhile nobody else gets on. So a queue costs nothing more while one CPU uses
//! it, and the more CPUs use it and the farther apart they are, the longer each waits for its turn. CPUs spin, which
//! is time of the task or wake-up at hand. Not here: the lock of a run queue and with it of its local queue, fairness
//! of the lock (`qspinlock` queues waiters, as here), lines that other fields share.

use super::dsq::{Dsq, DsqIndex, NIL};
use super::host::Host;
use crate::kernel::{CostKind, Kernel};
use schedlab_model::CpuId;
use schedlab_model::topology::CpuInfo;

/// What it costs to get a queue's lock from another CPU, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockCosts {
    cache: u64,
    node: u64,
    remote: u64,
}

impl LockCosts {
    /// Of this machine.
    pub(crate) fn of(k: &Kernel) -> LockCosts {
        LockCosts {
            cache: k.typical_cost(CostKind::DsqLockCache),
            node: k.typical_cost(CostKind::DsqLockNode),
            remote: k.typical_cost(CostKind::DsqLockRemote),
        }
    }

    /// Between two CPUs that are not the same.
    #[inline]
    fn between(self, a: &CpuInfo, b: &CpuInfo) -> u64 {
        if a.llc == b.llc {
            self.cache
        } else if a.node == b.node {
            self.node
        } else {
            self.remote
        }
    }
}

impl Host {
    /// `cpu` takes the lock of a queue and gives it back; local queues have none of their own.
    #[inline]
    pub(crate) fn lock_queue(&mut self, dsq: DsqIndex, cpu: u32) {
        if dsq.0 >= self.nr_cpus && self.dsqs.get(dsq).locked_by != cpu {
            self.lock_from_other(dsq, cpu);
        }
    }

    #[inline]
    fn lock_from_other(&mut self, dsq: DsqIndex, cpu: u32) {
        let queue = self.dsqs.get_mut(dsq);
        let cost = match queue.locked_by {
            NIL => 0,
            last => self.lock_costs.between(self.topology.cpu(CpuId(last)), self.topology.cpu(CpuId(cpu))),
        };
        let at = self.now + self.lock_ns;
        self.lock_ns += take(queue, cpu, at, cost);
    }
}

/// How long `cpu` is at it from `at` on: until the lock is free, and until its lines have come.
#[inline]
fn take(queue: &mut Dsq, cpu: u32, at: u64, cost: u64) -> u64 {
    let end = queue.locked_until.max(at) + cost;
    (queue.locked_by, queue.locked_until) = (cpu, end);
    end - at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext::dsq::Dsqs;

    /// Three CPUs at the same time wait for one another; later each pays for its own turn only.
    #[test]
    fn turns_at_one_queue_follow_one_another() {
        let mut dsqs = Dsqs::new(std::iter::once(1));
        let queue = dsqs.get_mut(DsqIndex(0));
        let waits = [(0, 1_000), (1, 1_000), (2, 1_000), (0, 5_000), (1, 5_050)]
            .map(|(cpu, at)| take(queue, cpu, at, 100));
        assert_eq!(waits, [100, 200, 300, 100, 150]);
    }
}
