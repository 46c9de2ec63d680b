/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The recorder's programs for interrupts, softirqs and timers. Included by recorder.bpf.c after its rings; what
 * a wake-up in an interrupt means is decided there.
 */
#ifndef SCHEDLAB_INTERRUPTS_BPF_H
#define SCHEDLAB_INTERRUPTS_BPF_H

/*
 * The kernel's own counter of interrupt depth is not reachable on every kernel: keep a flag. Handlers do not
 * nest, and a flag mends itself where the recorder starts within one.
 */
static __always_inline void enter(u8 kind, u8 op, u64 number, bool hard)
{
	struct ring *ring = this_ring();

	if (ring && hard)
		ring->in_hardirq = 1;
	else if (ring)
		ring->in_softirq = 1;
	tell(bpf_ktime_get_ns(), kind, op, 0, 0, number, 0);
}

static __always_inline void leave(u8 kind, u8 op, u64 number, bool hard)
{
	struct ring *ring = this_ring();

	tell(bpf_ktime_get_ns(), kind, op, 0, 0, number, 0);
	if (ring && hard)
		ring->in_hardirq = 0;
	else if (ring)
		ring->in_softirq = 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(device_enters, int irq, struct irqaction *action)
{
	enter(RECORD_IRQ_ENTER, 2, irq, true);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(device_exits, int irq, struct irqaction *action, int result)
{
	leave(RECORD_IRQ_EXIT, 2, irq, true);
	return 0;
}

#define VECTOR_HOOKS(point, source)                                                                \
	SEC("tp_btf/" #point "_entry") int BPF_PROG(point##_enters, int vector)                    \
	{                                                                                          \
		enter(RECORD_IRQ_ENTER, source, 0, true);                                  \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tp_btf/" #point "_exit") int BPF_PROG(point##_exits, int vector)                      \
	{                                                                                          \
		leave(RECORD_IRQ_EXIT, source, 0, true);                                        \
		return 0;                                                                          \
	}

/* x86 only; elsewhere timer and inter-processor interrupts are not seen apart. */
VECTOR_HOOKS(local_timer, 0)
VECTOR_HOOKS(reschedule, 1)
VECTOR_HOOKS(call_function, 1)
VECTOR_HOOKS(call_function_single, 1)

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_enters, unsigned int vector)
{
	enter(RECORD_SOFTIRQ_ENTER, vector, 0, false);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exits, unsigned int vector)
{
	leave(RECORD_SOFTIRQ_EXIT, vector, 0, false);
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(timer_expires, struct hrtimer *timer, void *now)
{
	struct task_struct *task;

	if (!bpf_ksym_exists(&hrtimer_wakeup) || timer->function != &hrtimer_wakeup)
		return 0;
	task = BPF_CORE_READ((struct hrtimer_sleeper *)timer, task);
	if (task)
		tell(bpf_ktime_get_ns(), RECORD_TIMER, 0, 0, 0, BPF_CORE_READ(task, pid), timer->node.expires - timer->base->offset);
	return 0;
}

#endif
