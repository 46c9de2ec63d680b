//! Bypass: tasks pass the scheduler by, in queues of the kernel's own, while it comes, goes, or the machine is suspended.
//!
//! Since 6.19 every CPU has such a queue, slices are 5 ms, and a balancer moves tasks between the queues of a node; before,
//! the global queue served all with its usual slice.

use super::consts::*;
use super::dispatch::may_move;
use super::dsq::NIL;
use super::enqueue::{dequeue_again, enqueue_again, insert, unlink};
use super::host::{Cx, EventCount, Host};
use super::mask::next_wrapping;

/// `SCX_BYPASS_LB_DFL_INTV_US`: how often the balancer runs.
pub(crate) const BALANCE_NS: u64 = 500_000_000;
/// `SCX_BYPASS_LB_DONOR_PCT`: what a queue may have before it gives away, in percent of an even share.
const DONOR_PERCENT: u32 = 125;
/// `SCX_BYPASS_LB_MIN_DELTA_DIV`: tasks are moved only if those too many take this part of the interval to run.
const MIN_DELTA_DIV: u64 = 4;

/// `scx_bypass(true)`: every waiting task is taken from the scheduler into the bypass queues. Whether it was not
/// bypassed already.
pub(crate) fn begin(cx: &mut Cx<'_>) -> bool {
    let host = cx.host();
    host.bypass_depth += 1;
    if host.bypass_depth != 1 {
        return false;
    }
    host.bypass = true;
    host.count(EventCount::BypassActivate);
    host.bypass_since = host.now;
    cycle_waiting(cx);
    true
}

/// `scx_bypass(false)`: they go back to the scheduler, once this was said as often as the other. Whether they do. Said once
/// more (by the end of a suspend that began before the scheduler came), the next bypass is none, as in Linux, which warns.
pub(crate) fn end(cx: &mut Cx<'_>) -> bool {
    let host = cx.host();
    host.bypass_depth -= 1;
    if host.bypass_depth != 0 {
        return false;
    }
    host.bypass = false;
    host.events[EventCount::BypassDuration as usize] += (host.now - host.bypass_since) as i64;
    cycle_waiting(cx);
    true
}

/// Takes every waiting task off its queue and puts it back, last come first, on each CPU.
fn cycle_waiting(cx: &mut Cx<'_>) {
    for cpu in 0..cx.host().nr_cpus {
        let waiting = cx.host().tasks.iter().enumerate().filter(|(_, task)| task.runnable && task.cpu == cpu);
        let mut waiting: Vec<(u64, u32)> =
            waiting.map(|(number, task)| (task.runnable_seq, number as u32)).collect();
        waiting.sort_unstable();
        for (_, task) in waiting.into_iter().rev() {
            dequeue_again(cx, cpu, task, DEQUEUE_SAVE | ENQUEUE_MOVE);
            enqueue_again(cx, cpu, task, ENQUEUE_RESTORE | ENQUEUE_MOVE, 0);
        }
    }
}

impl Host {
    /// Whether each CPU has a queue of its own while the scheduler is bypassed, and slices are shorter.
    #[inline]
    pub(crate) fn bypasses_by_cpu(&self) -> bool {
        self.at_least(6, 19)
    }

    /// Tasks in a CPU's bypass queue.
    fn bypassed(&self, cpu: u32) -> u32 {
        self.dsqs.get(self.bypass_dsq(cpu)).nr
    }
}

/// `scx_bypass_lb_timerfn`: evens out the bypass queues of each node.
pub(crate) fn balance(cx: &mut Cx<'_>) {
    for node in 0..cx.host().topology.nodes().len() as u32 {
        let host = cx.host();
        let inside = |cpu: &u32| host.is_online(*cpu) && host.node_of(*cpu) == node;
        let cpus: Vec<u32> = (0..host.nr_cpus).filter(inside).collect();
        balance_node(cx, &cpus);
    }
}

/// `bypass_lb_node`.
fn balance_node(cx: &mut Cx<'_>, cpus: &[u32]) {
    let host = cx.host();
    let waiting: u32 = cpus.iter().map(|cpu| host.bypassed(*cpu)).sum();
    let target = waiting.div_ceil(cpus.len().max(1) as u32);
    let most = (target * DONOR_PERCENT).div_ceil(100);
    let mut takers: Vec<u32> = cpus.iter().copied().filter(|cpu| host.bypassed(*cpu) < target).collect();
    let mut took: Vec<u32> = Vec::new();
    for cpu in cpus {
        if !takers.contains(cpu) && cx.host().bypassed(*cpu) > most {
            give_away(cx, *cpu, &mut takers, &mut took, (most, target));
        }
    }
    took.sort_unstable();
    took.dedup();
    took.into_iter().for_each(|cpu| cx.host().resched(cpu));
}

/// `bypass_lb_cpu`: moves waiting tasks to CPUs that have less than an even share.
fn give_away(
    cx: &mut Cx<'_>,
    from: u32,
    takers: &mut Vec<u32>,
    took: &mut Vec<u32>,
    (most, target): (u32, u32),
) {
    let host = cx.host();
    let donor = host.bypass_dsq(from);
    let too_many = u64::from(host.bypassed(from) - most);
    if too_many < (BALANCE_NS / MIN_DELTA_DIV).div_ceil(SCX_SLICE_BYPASS) {
        return;
    }
    let mut next = host.dsqs.get(donor).first;
    while next != NIL && !takers.is_empty() && cx.host().bypassed(from) > most {
        let task = next;
        next = cx.host().task(task).next;
        if cx.host().task(task).cpu != from {
            // An earlier pass put it here from another CPU, whose run queue it is still on.
            continue;
        }
        let Some(taker) = taker_of(cx, task, takers) else { continue };
        if !may_move(cx, task, taker, false) {
            continue;
        }
        unlink(cx.host(), task, donor);
        let queue = cx.host().bypass_dsq(taker);
        insert(cx, from, queue, task, 0);
        took.push(taker);
        if cx.host().bypassed(taker) >= target {
            takers.retain(|other| *other != taker);
        }
    }
}

/// `cpumask_any_and_distribute` of those that take tasks and where the task may run.
fn taker_of(cx: &mut Cx<'_>, task: u32, takers: &[u32]) -> Option<u32> {
    let here = cx.cpu();
    let (host, memory) = cx.parts();
    let allowed = host.allowed(task);
    let bits = |index: u32| {
        takers.iter().filter(|cpu| **cpu / 64 == index).fold(0, |word, cpu| word | 1 << (cpu % 64))
    };
    let found = next_wrapping(host.nr_cpus, host.rq(here).distribute, |index| {
        bits(index) & allowed.word(memory, index)
    })?;
    host.rq_mut(here).distribute = found;
    Some(found)
}
