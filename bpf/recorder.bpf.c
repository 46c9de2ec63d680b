// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recorder's kernel half: scheduling events of the whole machine and the operations of the target.
 *
 * An operation is told where it matters: when its task makes a wake-up or is switched away in it (ENTER,
 * found from the registers of the system call in progress), and when it returns (EXIT). So there is no hook
 * at the entry of system calls. Where even the hook at their return is too dear (`counting`), returns are
 * told by a hook in socket sends and by the kernel's own I/O accounting, summed up for each stretch.
 *
 * Every CPU has a ring in shared memory. A record is reserved by one atomic addition, so programs in
 * interrupts may come between; a full ring counts what it drops.
 * Not here: files, names of channels, time order. See schedlab-host, record/.
 */
#include "include/trace.bpf.h"
#include "include/recorder.bpf.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct recorder_config config SEC(".rodata.config");
volatile struct recorder_control control SEC(".bss.control");

#include "include/operation.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct record);
} records SEC(".maps");

/* Processes that are targets when the recorder starts; their tasks are found by mark_targets. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u32);
} target_processes SEC(".maps");

/* What is known of a task of the target. */
struct target {
	u64 channel;		/* of the open operation */
	u64 amount;
	u64 read_channel;	/* of the latest read */
	u64 read_calls;		/* I/O accounting when last told */
	u64 read_bytes;
	u64 write_bytes;
	u64 slice;
	u64 cpus;
	u32 static_prio;
	u32 policy_and_priority;
	u32 cpu_count;
	u8 open;		/* an operation is open */
	u8 op;
	u8 channel_kind;
	u8 read_op;
	u8 read_kind;
	u8 read_known;
	u8 attributes_known;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct target);
} targets SEC(".maps");

static __always_inline void tell_at(u64 time, u8 kind, u8 op, u8 flags, u32 pid, u64 a, u64 b)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	struct record *record;
	u64 at;
	u32 slot;

	if (!ring)
		return;
	/* Programs in interrupts may reserve between the check and the addition: leave them room. */
	if (ring->head - *(volatile u64 *)&ring->tail >= config.ring_records - 64) {
		__sync_fetch_and_add(&ring->dropped, 1);
		return;
	}
	at = __sync_fetch_and_add(&ring->head, 1);
	slot = cpu * config.ring_records + (at & (config.ring_records - 1));
	record = bpf_map_lookup_elem(&records, &slot);
	if (!record)
		return;
	record->time = time;
	record->pid = pid;
	record->kind = kind;
	record->op = op;
	record->flags = flags;
	record->a = a;
	record->b = b;
#if defined(__TARGET_ARCH_x86)
	barrier();
#else
	__sync_fetch_and_add(&ring->pad[0], 0);
#endif
	*(volatile u8 *)&record->lap = (at >> config.ring_shift) + 1;
}

static __always_inline void tell(u8 kind, u8 op, u8 flags, u32 pid, u64 a, u64 b)
{
	/* Before the reservation, so that order in the ring is order in time but for interrupts in between. */
	tell_at(bpf_ktime_get_ns(), kind, op, flags, pid, a, b);
}

static __always_inline struct ring *this_ring(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&rings, &cpu);
}

/* Tells the current task's sends, two a record, spread over the time since the first. */
static __noinline int flush_sends(struct task_struct *task)
{
	struct ring *ring = this_ring();
	u64 now, step;
	u32 count;

	if (!ring || !ring->sends_count)
		return 0;
	count = ring->sends_count;
	ring->sends_count = 0;
	now = bpf_ktime_get_ns();
	step = (now - ring->sends_since) / (SENDS_MAX / 2);
	for (u32 i = 0; i < SENDS_MAX; i += 2) {
		u64 second = i + 1 < count ? ring->sends[i + 1] : 0;
		u64 time = i + 2 < count ? ring->sends_since + step * (i / 2) : now;

		if (i >= count)
			break;
		tell_at(time, RECORD_SENDS, 0, 0, task->pid, ring->sends[i], second);
	}
	return 0;
}

/* ---- operations of a task of the target ---- */

static __always_inline bool is_read(u8 op)
{
	return op == OP_PIPE_READ || op == OP_SOCKET_RECEIVE;
}

static __always_inline void remember_read(struct target *target, const struct operation_info *info)
{
	target->read_op = info->op;
	target->read_channel = info->channel;
	target->read_kind = info->channel_kind;
	target->read_known = 1;
}

/* A task that never waited: the system call that it is in, or has just left, may show what it reads. */
static __always_inline void learn_read(struct task_struct *task, struct target *target)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u8 class = class_of(REGS_NUMBER(regs));
	struct operation_info info;

	if (class != CLASS_READ && class != CLASS_READ_VECTOR)
		return;
	resolve(&info, regs, class);
	if (is_read(info.op))
		remember_read(target, &info);
}

static __always_inline void tell_exit(struct target *target, u32 pid, s64 result)
{
	tell(RECORD_OP_EXIT, target->op, target->channel_kind, pid, target->channel, result);
	target->open = 0;
}

static __always_inline void remember_accounting(struct task_struct *task, struct target *target)
{
	target->read_calls = TRACED(task)->ioac.syscr;
	target->read_bytes = TRACED(task)->ioac.rchar;
	target->write_bytes = TRACED(task)->ioac.wchar;
}

#define RESULT_UNKNOWN 0x7fffffffffffffffLL

/*
 * While counting: tells what the task's I/O accounting says has been read since last told, and closes an
 * operation that has returned. An open read that the accounting does not show yet is still in progress.
 */
static __always_inline void settle(struct task_struct *task, struct target *target)
{
	u64 calls = TRACED(task)->ioac.syscr - target->read_calls;
	u64 bytes = TRACED(task)->ioac.rchar - target->read_bytes;

	/* The hook in socket sends closes those. */
	if (target->open && target->op == OP_SOCKET_SEND)
		return;
	if (target->open && is_read(target->op)) {
		if (!calls)
			return;
		tell_exit(target, task->pid, bytes);
	} else {
		if (target->open) {
			u64 written = TRACED(task)->ioac.wchar - target->write_bytes;

			tell_exit(target, task->pid, target->op == OP_PIPE_WRITE ? written : RESULT_UNKNOWN);
		}
		if (bytes && !target->read_known)
			learn_read(task, target);
		/* Until it is known the sum grows. */
		if (bytes && !target->read_known)
			return;
		if (bytes)
			tell(RECORD_OP_EXIT, target->read_op, target->read_kind, task->pid, target->read_channel, bytes);
	}
	remember_accounting(task, target);
}

/* The current task waits or wakes within a system call: its operation becomes known, once. */
static __always_inline void open_operation(struct task_struct *task, struct target *target, bool only_yield,
					   bool softirq)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u8 class = class_of(REGS_NUMBER(regs));
	struct operation_info info;

	if (control.counting) {
		struct ring *ring = this_ring();

		flush_sends(task);
		settle(task, target);
		/* Its next send looks at what this was. */
		if (ring)
			ring->fast = 0;
	}
	if (target->open || class == CLASS_NONE || (only_yield && class != CLASS_YIELD))
		return;
	resolve(&info, regs, class);
	/* A softirq on top of a task is its doing only in a send over the network stack: it may as well hit a call
	 * that has returned already. */
	if (softirq && (info.op != OP_SOCKET_SEND || !(info.channel >> 63)))
		return;
	target->op = info.op;
	target->channel = info.channel;
	target->channel_kind = info.channel_kind;
	target->open = 1;
	if (is_read(info.op))
		remember_read(target, &info);
	tell(RECORD_OP_ENTER, info.op, info.channel_kind, task->pid, info.channel, info.amount);
}

/* Whether an operation that neither waited nor woke is worth telling. */
static __always_inline bool is_telling(u8 op, s64 result)
{
	return (op <= OP_SOCKET_SEND && result > 0) || (op == OP_WAIT_CHILD && result > 0) || op == OP_YIELD ||
	       op == OP_SLEEP_ABSOLUTE;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(system_call_returns, struct pt_regs *regs, long result)
{
	u8 class = class_of(REGS_NUMBER(regs));
	struct task_struct *task;
	struct operation_info info;
	struct target *target;
	struct ring *ring;
	u32 cpu;

	if (class == CLASS_NONE || control.counting)
		return 0;
	task = bpf_get_current_task_btf();
	target = bpf_task_storage_get(&targets, task, 0, 0);
	if (!target)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = bpf_map_lookup_elem(&rings, &cpu);
	if (ring)
		__sync_fetch_and_add(&ring->returns, 1);
	if (target->open) {
		if (target->channel_kind == CHANNEL_SOCKET && class <= CLASS_WRITE_VECTOR && ring)
			__sync_fetch_and_add(&ring->sockets, 1);
		tell_exit(target, task->pid, result);
	} else {
		resolve(&info, regs, class);
		if (info.channel_kind == CHANNEL_SOCKET && class <= CLASS_WRITE_VECTOR && ring)
			__sync_fetch_and_add(&ring->sockets, 1);
		if (is_telling(info.op, result)) {
			if (info.op == OP_SLEEP_ABSOLUTE)
				tell(RECORD_OP_ENTER, info.op, info.channel_kind, task->pid, info.channel, info.amount);
			tell(RECORD_OP_EXIT, info.op, info.channel_kind, task->pid, info.channel, result);
			if (is_read(info.op))
				remember_read(target, &info);
		}
		/* A wake-up in an interrupt just now may have found the call still in progress. */
		target->open = 0;
	}
	remember_accounting(task, target);
	return 0;
}

/* The inode of a UNIX socket's peer by plain loads; 0 if it takes the longer way. */
static __always_inline u64 peer_inode(struct sock *sk)
{
	struct unix_sock *unix_socket;

	if (sk->__sk_common.skc_family != FAMILY_UNIX)
		return 0;
	unix_socket = bpf_skc_to_unix_sock(sk);
	if (!unix_socket || !unix_socket->peer || !unix_socket->peer->sk_socket)
		return 0;
	return unix_socket->peer->sk_socket->file->f_inode->i_ino;
}

/* A send by a task whose state has to be looked at. */
static __noinline int send_slowly(struct sock *sk, struct ring *ring, int result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct target *target = bpf_task_storage_get(&targets, task, 0, 0);

	if (!target)
		return 0;
	flush_sends(task);
	if (target->open && target->op == OP_SOCKET_SEND) {
		tell_exit(target, task->pid, result);
	} else if (result > 0) {
		settle(task, target);
		tell(RECORD_OP_EXIT, OP_SOCKET_SEND, CHANNEL_SOCKET, task->pid, socket_channel(sk, true), result);
	}
	ring->read_calls = TRACED(task)->ioac.syscr;
	ring->fast = !target->open && target->read_calls == ring->read_calls;
	return 0;
}

/* Attached only while counting. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(socket_sends, struct sock *sk, int result, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ring *ring = this_ring();
	u64 channel;
	u32 at;

	if (!control.counting || !ring)
		return 0;
	at = ring->sends_count;
	channel = peer_inode(sk);
	if (!ring->fast || ring->read_calls != TRACED(task)->ioac.syscr || result <= 0 || !channel ||
	    channel >> 32 || at >= SENDS_MAX)
		return send_slowly(sk, ring, result);
	if (!at)
		ring->sends_since = bpf_ktime_get_ns();
	ring->sends[at & (SENDS_MAX - 1)] = channel << 32 | (u32)result;
	ring->sends_count = at + 1;
	if (at + 1 == SENDS_MAX)
		flush_sends(task);
	return 0;
}

/* ---- scheduling ---- */

/* Attributes are compared at each switch: whoever changed them, by whatever call, it is seen. */
static __always_inline void check_attributes(struct task_struct *task, struct target *target)
{
	u32 policy_and_priority = task->policy | task->rt_priority << 16;
	u64 cpus = task->cpus_mask.bits[0];
	u64 slice = 0;

	if (bpf_core_field_exists(TRACED(task)->se.custom_slice) && BPF_CORE_READ_BITFIELD(TRACED(task), se.custom_slice))
		slice = TRACED(task)->se.slice;
	if (target->static_prio != task->static_prio || target->policy_and_priority != policy_and_priority ||
	    target->slice != slice) {
		if (target->attributes_known)
			tell(RECORD_ATTRIBUTES, task->policy, task->rt_priority, task->pid, task->static_prio, slice);
		target->static_prio = task->static_prio;
		target->policy_and_priority = policy_and_priority;
		target->slice = slice;
	}
	if (target->cpus != cpus || target->cpu_count != task->nr_cpus_allowed) {
		if (target->attributes_known)
			tell(RECORD_AFFINITY, 0, 0, task->pid, cpus, task->nr_cpus_allowed);
		target->cpus = cpus;
		target->cpu_count = task->nr_cpus_allowed;
	}
	target->attributes_known = 1;
}

static __always_inline u8 state_of(unsigned int state)
{
	if (state & (0x10 | 0x20 | 0x80))	/* EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD */
		return 4;
	if (state & (0x4 | 0x8 | 0x40))		/* __TASK_STOPPED, __TASK_TRACED, TASK_PARKED */
		return 3;
	if (state & 0x1)
		return 1;
	return state & 0x2 ? 2 : 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switches, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	u8 state = preempt ? 0 : state_of(prev_state);
	struct target *target = NULL;

	if (control.counting) {
		struct ring *ring = this_ring();

		flush_sends(prev);
		if (ring)
			ring->fast = 0;
	}
	if (prev->pid)
		target = bpf_task_storage_get(&targets, prev, 0, 0);
	if (target) {
		if (!preempt && state != 4)
			open_operation(prev, target, state == 0, false);
		else if (control.counting)
			settle(prev, target);
		check_attributes(prev, target);
	}
	tell(RECORD_SWITCH, state, 0, prev->pid, next->pid, 0);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(wakes, struct task_struct *wakee)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	u8 context = 0;

	if (ring)
		context = ring->in_hardirq ? 1 : ring->in_softirq ? 2 : 0;
	if (context != 1 && task->pid) {
		struct target *target = bpf_task_storage_get(&targets, task, 0, 0);

		if (target && (!target->open || control.counting))
			open_operation(task, target, false, context == 2);
	}
	tell(RECORD_WAKING, context, 0, task->pid, wakee->pid, task_cpu(wakee));
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(wakes_new, struct task_struct *task)
{
	tell(RECORD_WAKEUP_NEW, 0, 0, 0, task->pid, task_cpu(task));
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(migrates, struct task_struct *task, int to)
{
	tell(RECORD_MIGRATE, 0, 0, 0, task->pid, task_cpu(task) | (u64)to << 32);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forks, struct task_struct *parent, struct task_struct *child)
{
	struct target *target = bpf_task_storage_get(&targets, parent, 0, 0);

	if (target) {
		struct target *of_child =
			bpf_task_storage_get(&targets, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

		/* What it inherits is known, so that its first own change is told. */
		if (of_child)
			check_attributes(child, of_child);
	}
	tell(RECORD_FORK, 0, target != NULL, parent->pid, child->pid | (u64)child->tgid << 32, 0);
	return 0;
}

static __always_inline void tell_name(u8 kind, struct task_struct *task, const void *name)
{
	u64 text[2] = {};

	bpf_probe_read_kernel_str(text, sizeof(text), name);
	tell(kind, 0, 0, task->pid, text[0], text[1]);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(executes, struct task_struct *task, pid_t old_pid, struct linux_binprm *program)
{
	tell_name(RECORD_EXEC, task, task->comm);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(renames, struct task_struct *task, const char *name)
{
	tell_name(RECORD_RENAME, task, name);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(exits, struct task_struct *task)
{
	tell(RECORD_EXIT, 0, 0, task->pid, 0, 0);
	return 0;
}

/* ---- interrupts and timers ---- */

/*
 * The kernel's own counter of interrupt depth is not reachable on every kernel: keep a flag. Handlers do not
 * nest, and a flag mends itself where the recorder starts within one.
 */
static __always_inline void enter(u8 kind, u8 op, u64 number, bool hard)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);

	if (ring && hard)
		ring->in_hardirq = 1;
	else if (ring)
		ring->in_softirq = 1;
	tell(kind, op, 0, 0, number, 0);
}

static __always_inline void leave(u8 kind, u8 op, u64 number, bool hard)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);

	tell(kind, op, 0, 0, number, 0);
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
		tell(RECORD_TIMER, 0, 0, 0, BPF_CORE_READ(task, pid), timer->node.expires - timer->base->offset);
	return 0;
}

/* ---- tasks that are there at the start ---- */

struct bpf_iter_meta;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

SEC("iter/task")
int mark_targets(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	u32 process;

	if (!task)
		return 0;
	process = task->tgid;
	if (bpf_map_lookup_elem(&target_processes, &process))
		bpf_task_storage_get(&targets, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}
