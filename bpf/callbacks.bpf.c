// SPDX-License-Identifier: GPL-2.0-only
/*
 * Logs every callback of a sched_ext scheduler with its arguments, without touching the scheduler's object.
 *
 * One fentry or fexit program for each callback, attached to the scheduler's own program of that callback after it
 * was loaded and before it is attached; whoever loads this turns the others off. A callback that returns a value
 * is logged when it returns, all others when they are entered. A struct_ops program gets one argument, a pointer to
 * its arguments as 64-bit words, so they are read from there.
 *
 * Not here: which program implements which callback, and what the words mean; both are known in user space.
 */
#include "include/schedlab.bpf.h"

#define ARGS_MAX 3
#define NO_PID (-1)

/* Where a callback has its task; most have it first. */
enum task_at {
	TASK_FIRST = 0,
	TASK_SECOND = 1,
	TASK_NONE = 2,
};

/* Must match RawEvent in crates/schedlab-host/src/live/callbacks.rs. */
struct callback_event {
	u64 number;
	u64 time_ns;
	u64 args[ARGS_MAX];
	s64 returned;
	u64 slice_ns;
	u64 dsq_vtime;
	u32 callback;
	u32 cpu;
	s32 pid;
	s32 tgid;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} events SEC(".maps");

/* Order of all events over all CPUs. */
u64 next_number SEC(".data.order");
/* Events that did not fit. */
u64 dropped SEC(".data.order");

static __always_inline void log_callback(u32 callback, u64 *words, enum task_at at, s64 returned)
{
	u64 number = __sync_fetch_and_add(&next_number, 1);
	struct callback_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	struct task_struct *p = NULL;

	if (!event) {
		__sync_fetch_and_add(&dropped, 1);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->number = number;
	event->time_ns = bpf_ktime_get_ns();
	event->callback = callback;
	event->cpu = bpf_get_smp_processor_id();
	event->returned = returned;
	event->pid = NO_PID;
	bpf_probe_read_kernel(event->args, sizeof(event->args), words);
	if (at == TASK_FIRST)
		p = (void *)event->args[0];
	if (at == TASK_SECOND)
		p = (void *)event->args[1];
	if (p) {
		event->pid = BPF_CORE_READ(p, pid);
		event->tgid = BPF_CORE_READ(p, tgid);
		event->slice_ns = BPF_CORE_READ(p, scx.slice);
		event->dsq_vtime = BPF_CORE_READ(p, scx.dsq_vtime);
		BPF_CORE_READ_STR_INTO(&event->comm, p, comm);
	}
	bpf_ringbuf_submit(event, 0);
}

/* The numbers are those of CALLBACKS in crates/schedlab-host/src/live/callbacks.rs. */
#define ON_ENTRY(name, number, at)                                                                 \
	SEC("fentry") int BPF_PROG(on_##name, u64 *words)                                          \
	{                                                                                          \
		log_callback(number, words, at, 0);                                                \
		return 0;                                                                          \
	}

#define ON_RETURN(name, number, at)                                                                \
	SEC("fexit") int BPF_PROG(on_##name, u64 *words)                                           \
	{                                                                                          \
		u64 returned = 0;                                                                  \
												   \
		bpf_get_func_ret(ctx, &returned);                                                  \
		log_callback(number, words, at, (s32)returned);                                    \
		return 0;                                                                          \
	}

ON_RETURN(select_cpu, 0, TASK_FIRST)
ON_ENTRY(enqueue, 1, TASK_FIRST)
ON_ENTRY(dequeue, 2, TASK_FIRST)
ON_ENTRY(dispatch, 3, TASK_SECOND)
ON_ENTRY(tick, 4, TASK_FIRST)
ON_ENTRY(runnable, 5, TASK_FIRST)
ON_ENTRY(running, 6, TASK_FIRST)
ON_ENTRY(stopping, 7, TASK_FIRST)
ON_ENTRY(quiescent, 8, TASK_FIRST)
ON_RETURN(yield, 9, TASK_FIRST)
ON_RETURN(core_sched_before, 10, TASK_FIRST)
ON_ENTRY(set_weight, 11, TASK_FIRST)
ON_ENTRY(set_cpumask, 12, TASK_FIRST)
ON_ENTRY(update_idle, 13, TASK_NONE)
ON_RETURN(init_task, 14, TASK_FIRST)
ON_ENTRY(exit_task, 15, TASK_FIRST)
ON_ENTRY(enable, 16, TASK_FIRST)
ON_ENTRY(disable, 17, TASK_FIRST)
ON_ENTRY(cpu_online, 18, TASK_NONE)
ON_ENTRY(cpu_offline, 19, TASK_NONE)
ON_RETURN(init, 20, TASK_NONE)
ON_ENTRY(exit, 21, TASK_NONE)
