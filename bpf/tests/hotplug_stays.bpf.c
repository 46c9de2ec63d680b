// SPDX-License-Identifier: GPL-2.0-only
/* Stays when CPUs come and go; can insist on a CPU that is gone; keeps the event counters. */
#include "../include/schedlab.bpf.h"
#include "../include/events.bpf.h"

#define SHARED_DSQ 0

KNOB_FIXED(u32, target, 0, cpu, 0, 1023, "CPU whose local queue every task goes to from dispatch; 0 is none.");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 8192);
	__type(value, s32);
} queue SEC(".maps");

u64 fell_back, bypasses, bypass_ns, bypass_dispatches, online, offline;

s32 SCHED_OP(hotplug_stays_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(hotplug_stays_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 pid = p->pid;

	if (target && !bpf_map_push_elem(&queue, &pid, 0))
		return;
	dsq_insert(p, SHARED_DSQ, 5000000, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KERNEL_CONST(scx_kick_flags, SCX_KICK_IDLE));
}

void SCHED_OP(hotplug_stays_dispatch, s32 cpu, struct task_struct *prev)
{
	struct scx_event_stats events = {};
	struct task_struct *p;
	s32 pid;

	scx_bpf_events(&events, sizeof(events));
	fell_back = events.SCX_EV_DISPATCH_LOCAL_DSQ_OFFLINE;
	bypasses = events.SCX_EV_BYPASS_ACTIVATE;
	bypass_ns = events.SCX_EV_BYPASS_DURATION;
	bypass_dispatches = events.SCX_EV_BYPASS_DISPATCH;
	if (dsq_move_to_local(SHARED_DSQ) || bpf_map_pop_elem(&queue, &pid))
		return;
	p = bpf_task_from_pid(pid);
	if (!p)
		return;
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | target, 5000000, 0);
	bpf_task_release(p);
}

void SCHED_OP_SLEEPABLE(hotplug_stays_cpu_online, s32 cpu)
{
	online++;
}

void SCHED_OP_SLEEPABLE(hotplug_stays_cpu_offline, s32 cpu)
{
	offline++;
}

s32 SCHED_OP_SLEEPABLE(hotplug_stays_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

SCHED_OPS(hotplug_stays_ops,
	  .select_cpu = (void *)hotplug_stays_select_cpu,
	  .enqueue = (void *)hotplug_stays_enqueue,
	  .dispatch = (void *)hotplug_stays_dispatch,
	  .cpu_online = (void *)hotplug_stays_cpu_online,
	  .cpu_offline = (void *)hotplug_stays_cpu_offline,
	  .init = (void *)hotplug_stays_init,
	  .name = "hotplug_stays");
