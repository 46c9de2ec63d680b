//! What happens to the machine and its cgroups as the class sees it: hotplug, suspend, weights, moves.
//!
//! These are rare: each charges what the scheduler's callbacks took to the CPU whose code ran. What the core does of it
//! is in [`crate::core::machine`], bypass itself in [`super::bypass`].

use super::class::{Attached, Ext, TOKEN_BYPASS};
use super::{bypass, cgroup, lifecycle};
use crate::kernel::Kernel;
use schedlab_model::workload::change::CgroupSpec;
use schedlab_model::{CpuId, TaskId};

impl Ext {
    /// `handle_hotplug` and what programs see of it.
    pub(crate) fn hotplug(&mut self, k: &mut Kernel, cpu: CpuId, online: bool) {
        self.hotplug_seq += 1;
        let Some(ext) = self.attached.as_deref_mut() else { return };
        let live = ext.host.enabled != 0 && ext.host.exit.is_none();
        ext.enter(k, |cx| {
            if live {
                lifecycle::hotplug(cx, cpu.0, online);
            }
            lifecycle::set_online(cx, cpu.0, online);
        });
        ext.charge_here(k);
    }

    /// The machine is being suspended, or is back: `scx_pm_handler`. While several suspends overlap, the last one's end
    /// ends bypass.
    pub(crate) fn suspend(&mut self, k: &mut Kernel, suspended: bool) {
        let (depth, since) = self.suspends;
        self.suspends = match suspended {
            true => (depth + 1, if depth == 0 { k.now } else { since }),
            false => (depth - 1, since),
        };
        self.bypass(k, suspended);
    }

    /// Bypass of the scheduler there is begins, or ends.
    pub(super) fn bypass(&mut self, k: &mut Kernel, suspended: bool) {
        let live = |ext: &&mut Attached| ext.host.enabled != 0 && ext.host.exit.is_none();
        let Some(ext) = self.attached.as_deref_mut().filter(live) else { return };
        if !ext.enter(k, if suspended { bypass::begin } else { bypass::end }) {
            return;
        }
        if suspended {
            ext.arm_balancer(k);
        }
        ext.charge_here(k);
        (0..k.cpu_count() as u32).for_each(|cpu| k.resched_curr(CpuId(cpu)));
    }

    /// A cgroup has other settings.
    pub(crate) fn change_cgroup(&mut self, k: &mut Kernel, spec: &CgroupSpec) {
        let live = |ext: &&mut Attached| ext.host.enabled != 0 && ext.host.exit.is_none();
        if let Some(ext) = self.attached.as_deref_mut().filter(live) {
            ext.enter(k, |cx| cgroup::change(cx, spec));
            ext.charge_here(k);
        }
    }

    /// A task is to move to a cgroup (empty: it stays): where to, if it does and the scheduler agrees.
    pub(crate) fn prepare_move(&mut self, k: &mut Kernel, task: TaskId, path: &str) -> Option<usize> {
        let ext = self.of(task).filter(|_| !path.is_empty())?;
        let to = ext.host.find_cgroup(path);
        if to == ext.host.task(task.0).cgroup as usize {
            return None;
        }
        let agrees = ext.enter(k, |cx| cgroup::prepare_move(cx, task.0, to));
        ext.charge_here(k);
        agrees.then_some(to)
    }

    /// `account_process_tick`: the whole tick is time of the kernel or of the program, whichever it finds.
    pub(crate) fn account_tick(&mut self, k: &Kernel, cpu: CpuId) {
        let (task, in_kernel) = (k.cpu(cpu).curr, k.cpu(cpu).kernel_until > k.now);
        let Some(ext) = self.of(task) else { return };
        let at = if in_kernel { ext.host.at.stime } else { ext.host.at.utime };
        let (address, memory) = (ext.host.task(task.0).address + at, ext.instance.memory());
        memory.write_u64(address, memory.read_u64(address) + k.tick_ns);
    }

    /// Whether there is a scheduler that was told of the task.
    pub(crate) fn knows(&mut self, task: TaskId) -> bool {
        self.of(task).is_some()
    }

    /// The task moves, off its queue.
    pub(crate) fn move_task(&mut self, k: &mut Kernel, task: TaskId, to: usize) {
        if let Some(ext) = self.of(task) {
            ext.enter(k, |cx| cgroup::move_task(cx, task.0, to));
            ext.charge_here(k);
        }
    }
}

impl Attached {
    /// Starts the balancer of bypass, unless it runs from the bypass before (`enable_bypass_dsp`).
    pub(super) fn arm_balancer(&mut self, k: &mut Kernel) {
        if self.host.bypasses_by_cpu() && !k.has_ext_timer(TOKEN_BYPASS) {
            k.arm_ext_timer(TOKEN_BYPASS, k.now + bypass::BALANCE_NS);
        }
    }
}
