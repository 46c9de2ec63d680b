// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recorder's kernel half: scheduling events of the whole machine and the operations of the target.
 *
 * An operation is told where it matters: when its task makes a wake-up or is switched away in it (ENTER,
 * found from the registers of the system call in progress), and when it returns (EXIT). So there is no hook
 * at the entry of system calls. Where even the hook at their return is too dear (`telling`), returns are
 * told by a hook in socket sends and by the kernel's own I/O accounting, summed up for each stretch; where
 * sends follow a pattern, by the accounting alone.
 *
 * Every CPU has a ring in shared memory. A record is reserved by one atomic addition, so programs in
 * interrupts may come between; where none can, at switches and wake-ups, by a plain one: an atomic one waits for
 * all that was written before to reach the cache. A full ring counts what it drops.
 * Not here: files, names of channels, time order. See schedlab-host, record/.
 */
#include "include/trace.bpf.h"
#include "include/recorder.bpf.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct recorder_config config SEC(".rodata.config");
volatile struct recorder_control control SEC(".bss.control");

#include "include/operation.bpf.h"
#include "include/pattern.bpf.h"

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
	u64 write_calls;
	u64 write_bytes;
	u64 slice;
	u64 cpus;
	u64 told_channel;	/* of the connection told latest */
	u32 static_prio;
	u32 policy_and_priority;
	u32 cpu_count;
	u8 open;		/* an operation is open */
	u8 op;
	u8 channel_kind;
	u8 read_op;
	u8 read_kind;
	u8 read_known;
	u8 reads_vary;		/* it reads from several channels */
	u8 attributes_known;
	u8 telling;		/* how its writes were told last */
	u8 advances;		/* what advances while it runs, enum clock */
	u32 phase;		/* of the recorder's control then */
	u64 vruntime;		/* of the fair class, when it came to its CPU */
	struct pattern pattern;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct target);
} targets SEC(".maps");

/* Connections whose two directions have been told: by the channel of one, that of the other. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u64);
} peers SEC(".maps");

/*
 * Appends a record. A hook reads the clock before its first record, so that order in the ring is order in
 * time but for interrupts in between.
 */
static __always_inline void tell(u64 time, u8 kind, u8 op, u8 flags, u32 pid, u64 a, u64 b)
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
	if (ring->alone) {
		at = ring->head;
		ring->head = at + 1;
	} else {
		at = __sync_fetch_and_add(&ring->head, 1);
	}
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
	__sync_fetch_and_add(&ring->expected, 0);
#endif
	*(volatile u8 *)&record->lap = (at >> config.ring_shift) + 1;
}

static __always_inline struct ring *this_ring(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&rings, &cpu);
}

#include "include/accounting.bpf.h"

/* ---- attributes ---- */

/*
 * Attributes are compared at each switch: whoever changed them, by whatever call, it is seen. A call that changes
 * them is seen at its return, too: a hog that pins itself may not be switched away for long.
 */
static __always_inline void check_attributes(u64 now, struct task_struct *task, struct target *target)
{
	u32 policy_and_priority = task->policy | task->rt_priority << 16;
	u64 cpus = task->cpus_mask.bits[0];
	u64 slice = 0;

	if (bpf_core_field_exists(TRACED(task)->se.custom_slice) && BPF_CORE_READ_BITFIELD(TRACED(task), se.custom_slice))
		slice = TRACED(task)->se.slice;
	if (target->static_prio != task->static_prio || target->policy_and_priority != policy_and_priority ||
	    target->slice != slice) {
		if (target->attributes_known)
			tell(now, RECORD_ATTRIBUTES, task->policy, task->rt_priority, task->pid, task->static_prio, slice);
		target->static_prio = task->static_prio;
		target->policy_and_priority = policy_and_priority;
		target->slice = slice;
	}
	if (target->cpus != cpus || target->cpu_count != task->nr_cpus_allowed) {
		if (target->attributes_known)
			tell(now, RECORD_AFFINITY, 0, 0, task->pid, cpus, task->nr_cpus_allowed);
		target->cpus = cpus;
		target->cpu_count = task->nr_cpus_allowed;
	}
	target->attributes_known = 1;
}

/* sched_setaffinity, setpriority and their like have returned: on the caller itself or on another task. */
static __always_inline int attributes_change(struct task_struct *task, struct pt_regs *regs, u8 class)
{
	u32 pid = class == CLASS_SET_PRIORITY ? REGS_ARG1(regs) : REGS_ARG0(regs);
	struct task_struct *other;
	struct target *target;

	/* Of a process group or a user there may be many: they are seen at their switches. */
	if (class == CLASS_SET_PRIORITY && REGS_ARG0(regs))
		return 0;
	if (!pid || pid == task->pid) {
		target = bpf_task_storage_get(&targets, task, 0, 0);
		if (target)
			check_attributes(bpf_ktime_get_ns(), task, target);
		return 0;
	}
	if (!bpf_ksym_exists(bpf_task_from_pid))
		return 0;
	other = bpf_task_from_pid(pid);
	if (!other)
		return 0;
	target = bpf_task_storage_get(&targets, other, 0, 0);
	if (target)
		check_attributes(bpf_ktime_get_ns(), other, target);
	bpf_task_release(other);
	return 0;
}

/* ---- operations of a task of the target ---- */

/* A send whose channel is seen must be the expected one; where it is not, the pattern goes on from it. */
static __always_inline void compare_with_pattern(struct pattern *pattern, const struct operation_info *info)
{
	u32 expected = pattern->expected;
	struct ring *ring = this_ring();

	if (pattern_has(pattern, expected) && pattern_at(pattern, expected)->channel == info->channel)
		return;
	pattern->expected = pattern_find(pattern, info->channel, info->amount);
	/* Those since the last look may have been others, too. */
	if (ring)
		ring->writes += 8;
}

/* Tells the two directions of a connection as one's, once; whether they are told. */
static __always_inline bool tell_peers(u64 now, struct target *target, const struct operation_info *info)
{
	u64 channel = info->channel, peer;
	u64 *known;

	if (!info->sk)
		return false;
	/* Most tasks go on with the connection that they had. */
	if (target->told_channel == channel)
		return true;
	peer = socket_channel(info->sk, info->op != OP_SOCKET_SEND);
	if (!peer || peer == channel)
		return false;
	target->told_channel = channel;
	known = bpf_map_lookup_elem(&peers, &channel);
	if (known && *known == peer)
		return true;
	bpf_map_update_elem(&peers, &channel, &peer, BPF_ANY);
	tell(now, RECORD_PEERS, 0, 0, 0, channel, peer);
	return true;
}

/* The same for the send that the task is in, which its pattern may know. */
static __always_inline void tell_peers_once(u64 now, struct target *target, const struct operation_info *info)
{
	struct pattern *pattern = &target->pattern;
	u32 at = pattern->expected;
	bool expected = pattern_has(pattern, at) && pattern_at(pattern, at)->channel == info->channel;

	if (expected && pattern_at(pattern, at)->joined)
		return;
	if (tell_peers(now, target, info) && expected)
		pattern_at(pattern, at)->joined = 1;
}

/* The current task waits or wakes within a system call: its operation becomes known, once. */
static __always_inline void open_operation(u64 now, struct task_struct *task, struct target *target, bool only_yield,
					   bool softirq)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u8 class = class_of(REGS_NUMBER(regs));
	struct operation_info info;

	if (control.telling) {
		struct ring *ring = this_ring();

		flush_sends(task, now, 0);
		settle(now, task, target);
		/* Its next send looks at what this was. */
		if (ring)
			ring->fast = 0;
	}
	if (target->open || class == CLASS_NONE || class >= CLASS_SET_ATTRIBUTES || (only_yield && class != CLASS_YIELD))
		return;
	resolve(&info, regs, class);
	/* A softirq on top of a task is its doing only in a send over the network stack: it may as well hit a call
	 * that has returned already. */
	if (softirq && (info.op != OP_SOCKET_SEND || !(info.channel >> 63)))
		return;
	target->op = info.op;
	target->amount = info.amount;
	target->channel = info.channel;
	target->channel_kind = info.channel_kind;
	target->open = 1;
	if (is_read(info.op))
		remember_read(target, info.op, info.channel_kind, info.channel);
	if (control.telling == TELLING_PATTERNS && info.op == OP_SOCKET_SEND)
		compare_with_pattern(&target->pattern, &info);
	if (info.op == OP_SOCKET_SEND)
		tell_peers_once(now, target, &info);
	else
		tell_peers(now, target, &info);
	tell(now, RECORD_OP_ENTER, info.op, info.channel_kind, task->pid, info.channel, info.amount);
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
	u64 now;

	if (class == CLASS_NONE || control.telling)
		return 0;
	task = bpf_get_current_task_btf();
	if (class >= CLASS_SET_ATTRIBUTES)
		return result ? 0 : attributes_change(task, regs, class);
	target = bpf_task_storage_get(&targets, task, 0, 0);
	ring = this_ring();
	if (!target || !ring)
		return 0;
	now = bpf_ktime_get_ns();
	ring->returns += 1;
	if (target->open) {
		info.op = target->op;
		info.channel = target->channel;
		info.channel_kind = target->channel_kind;
		tell_exit(now, target, task->pid, result);
	} else {
		resolve(&info, regs, class);
		tell_peers(now, target, &info);
		if (is_telling(info.op, result)) {
			if (info.op == OP_SLEEP_ABSOLUTE)
				tell(now, RECORD_OP_ENTER, info.op, info.channel_kind, task->pid, info.channel,
				     info.amount);
			tell(now, RECORD_OP_EXIT, info.op, info.channel_kind, task->pid, info.channel, result);
			if (is_read(info.op))
				remember_read(target, info.op, info.channel_kind, info.channel);
		}
		/* A wake-up in an interrupt just now may have found the call still in progress. */
		target->open = 0;
	}
	if (info.channel_kind == CHANNEL_SOCKET && class <= CLASS_WRITE_VECTOR)
		ring->sockets += 1;
	if (class == CLASS_WRITE || class == CLASS_WRITE_VECTOR) {
		ring->writes += 1;
		if (info.op == OP_SOCKET_SEND && result > 0)
			learn_send(target, ring, fits_accounting(task, target, 1, result, false), info.channel, result);
		else
			target->pattern.hits = 0;
	} else if (is_read(info.op) && result > 0 &&
		   (target->reads_vary || TRACED(task)->ioac.syscr == target->read_calls)) {
		ring->reads_unsure += 1;
	}
	remember_reads(task, target);
	remember_writes(task, target);
	return 0;
}

/* The inode of a UNIX socket's peer; 0 for other sockets. */
static __always_inline u64 peer_inode(struct sock *sk)
{
	struct sock *peer;

	if (sk->__sk_common.skc_family != FAMILY_UNIX)
		return 0;
	peer = LOAD(struct unix_sock, sk, peer);
	return peer ? socket_inode(peer) : 0;
}

/* A send by a task whose state has to be looked at. */
static __noinline int send_slowly(struct sock *sk, struct ring *ring, int result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct target *target = bpf_task_storage_get(&targets, task, 0, 0);
	u64 now, channel = 0;

	if (!target)
		return 0;
	now = bpf_ktime_get_ns();
	flush_sends(task, now, 0);
	if (target->open && target->op == OP_SOCKET_SEND) {
		channel = target->channel;
		tell_exit(now, target, task->pid, result);
		settle_unseen(now, task, target);
	} else if (result > 0) {
		settle(now, task, target);
		channel = socket_channel(sk, true);
		tell(now, RECORD_OP_EXIT, OP_SOCKET_SEND, CHANNEL_SOCKET, task->pid, channel, result);
	}
	if (result > 0) {
		bool fits = fits_accounting(task, target, 1, 0, true);

		target->write_bytes += result;
		ring->returns += 1;
		ring->writes += 1;
		learn_send(target, ring, fits, channel, result);
	}
	ring->read_calls = TRACED(task)->ioac.syscr;
	ring->fast = !target->open && target->read_calls == ring->read_calls;
	return 0;
}

/* Attached only while telling sends. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(socket_sends, struct sock *sk, int result, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ring *ring = this_ring();
	u64 channel;
	u32 at;

	if (control.telling != TELLING_SENDS || !ring)
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
		flush_sends(task, bpf_ktime_get_ns(), 1);
	return 0;
}

#define MESSAGE_PEEK 2

/* Attached only while telling sends, for targets whose reads accounting cannot tell. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(socket_receives, struct sock *sk, int result, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ring *ring = this_ring();
	struct target *target;
	u64 channel, now;

	if (!control.receives || !ring || flags & MESSAGE_PEEK)
		return 0;
	target = bpf_task_storage_get(&targets, task, 0, 0);
	if (!target)
		return 0;
	now = bpf_ktime_get_ns();
	flush_sends(task, now, 0);
	if (target->open && target->op == OP_SOCKET_RECEIVE) {
		tell_exit(now, target, task->pid, result);
		return 0;
	}
	if (result <= 0)
		return 0;
	settle(now, task, target);
	channel = socket_channel(sk, false);
	tell(now, RECORD_OP_EXIT, OP_SOCKET_RECEIVE, CHANNEL_SOCKET, task->pid, channel, result);
	remember_read(target, OP_SOCKET_RECEIVE, CHANNEL_SOCKET, channel);
	return 0;
}

/* ---- scheduling ---- */

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

/*
 * The virtual runtime of a task that comes to its CPU or has left it. Which of the two counts is seen from which has
 * advanced since it came: no symbol or constant tells the class of a task on every kernel.
 */
static __always_inline void tell_vruntime(u64 now, struct task_struct *task, struct target *target, bool left)
{
	u64 fair = TRACED(task)->se.vruntime;
	u64 ext = 0;

	if (bpf_core_field_exists(TRACED(task)->scx.dsq_vtime))
		ext = TRACED(task)->scx.dsq_vtime;
	if (!left)
		target->vruntime = fair;
	else if (target->vruntime != fair)
		target->advances = CLOCK_FAIR;
	else if (ext)
		target->advances = CLOCK_EXT;
	if (target->advances == CLOCK_FAIR || (target->advances == CLOCK_EXT && ext))
		tell(now, RECORD_VRUNTIME, target->advances, 0, task->pid, target->advances == CLOCK_FAIR ? fair : ext, 0);
}

/* Counters of every CPU, opened by the reader where the processor has them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, int);
	__type(value, u32);
} cache_references SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, int);
	__type(value, u32);
} cache_misses SEC(".maps");

/* What the task that leaves did to the cache since it came; from now on counts for the next one. */
static __always_inline void tell_cache_use(u64 now, struct ring *ring, struct task_struct *prev,
					   struct target *target)
{
	struct bpf_perf_event_value references = {}, misses = {};
	bool known = ring->caches_read;

	ring->caches_read = !bpf_perf_event_read_value(&cache_references, BPF_F_CURRENT_CPU, &references,
						       sizeof(references)) &&
			    !bpf_perf_event_read_value(&cache_misses, BPF_F_CURRENT_CPU, &misses, sizeof(misses));
	if (target && known && ring->caches_read)
		tell(now, RECORD_CACHE_USE, 0, 0, prev->pid, references.counter - ring->references,
		     misses.counter - ring->misses);
	ring->references = references.counter;
	ring->misses = misses.counter;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switches, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	u8 state = preempt ? 0 : state_of(prev_state);
	struct ring *ring = this_ring();
	struct target *target = NULL;
	u64 now = bpf_ktime_get_ns();

	if (!ring)
		return 0;
	/* Run queues are locked with interrupts off. */
	ring->alone = 1;
	flush_sends(prev, now, 0);
	ring->fast = 0;
	if (prev->pid)
		target = bpf_task_storage_get(&targets, prev, 0, 0);
	if (config.caches)
		tell_cache_use(now, ring, prev, target);
	if (target) {
		if (!preempt && state != 4)
			open_operation(now, prev, target, state == 0, false);
		else if (control.telling)
			settle(now, prev, target);
		check_attributes(now, prev, target);
	}
	ring->since = now;
	tell(now, RECORD_SWITCH, state, 0, prev->pid, next->pid, 0);
	if (!config.vruntime)
		goto out;
	/* One that is gone counts on the queue of another group: it has left its session's. */
	if (target && state != 4)
		tell_vruntime(now, prev, target, true);
	if (next->pid)
		target = bpf_task_storage_get(&targets, next, 0, 0);
	if (next->pid && target)
		tell_vruntime(now, next, target, false);
out:
	ring->alone = 0;
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(wakes, struct task_struct *wakee)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ring *ring = this_ring();
	u64 now = bpf_ktime_get_ns();
	u8 context = 0;

	if (!ring)
		return 0;
	context = ring->in_hardirq ? 1 : ring->in_softirq ? 2 : 0;
	/* So are wakees, but for a task that wakes itself before it has slept. */
	ring->alone = wakee != task;
	if (context != 1 && task->pid) {
		struct target *target = bpf_task_storage_get(&targets, task, 0, 0);

		/* While not every return is told a call that has returned already may seem to be in progress, and a kernel
		 * thread is woken on top of it by an interrupt rather than by it. */
		if (target && (control.telling ? !(wakee->flags & PF_KTHREAD) : !target->open))
			open_operation(now, task, target, false, context == 2);
	}
	tell(now, RECORD_WAKING, context, 0, task->pid, wakee->pid, task_cpu(wakee));
	ring->alone = 0;
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(wakes_new, struct task_struct *task)
{
	tell(bpf_ktime_get_ns(), RECORD_WAKEUP_NEW, 0, 0, 0, task->pid, task_cpu(task));
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(migrates, struct task_struct *task, int to)
{
	tell(bpf_ktime_get_ns(), RECORD_MIGRATE, 0, 0, 0, task->pid, task_cpu(task) | (u64)to << 32);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forks, struct task_struct *parent, struct task_struct *child)
{
	struct target *target = bpf_task_storage_get(&targets, parent, 0, 0);

	if (target) {
		struct target *of_child =
			bpf_task_storage_get(&targets, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

		/* What it inherits is known, so that its first own change is told; it has sent nothing. */
		if (of_child) {
			check_attributes(0, child, of_child);
			looked_at(of_child);
		}
	}
	tell(bpf_ktime_get_ns(), RECORD_FORK, 0, target != NULL, parent->pid, child->pid | (u64)child->tgid << 32, 0);
	return 0;
}

static __always_inline void tell_name(u8 kind, struct task_struct *task, const void *name)
{
	u64 text[2] = {};

	bpf_probe_read_kernel_str(text, sizeof(text), name);
	tell(bpf_ktime_get_ns(), kind, 0, 0, task->pid, text[0], text[1]);
}

/* A waiter of higher priority lends it to the holder of a lock: in force from now on, seen at no switch. */
SEC("tp_btf/sched_pi_setprio")
int BPF_PROG(inherits_priority, struct task_struct *task, struct task_struct *donor)
{
	u32 lender = 0;
	int prio = 0;

	/* Not every kernel tells its verifier that there may be none: read by calls, which then give 0. */
	if (donor) {
		lender = BPF_CORE_READ(donor, pid);
		prio = BPF_CORE_READ(donor, prio);
	}
	tell(bpf_ktime_get_ns(), RECORD_PRIORITY_LENT, 0, 0, task->pid, lender, lender ? prio : task->normal_prio);
	return 0;
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
	u64 now = bpf_ktime_get_ns();
	struct target *target = NULL;

	if (control.telling || config.vruntime)
		target = bpf_task_storage_get(&targets, task, 0, 0);
	if (control.telling) {
		flush_sends(task, now, 0);
		if (target)
			settle(now, task, target);
	}
	if (config.vruntime && target)
		tell_vruntime(now, task, target, true);
	tell(now, RECORD_EXIT, 0, 0, task->pid, 0, 0);
	return 0;
}

#include "include/interrupts.bpf.h"

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
	if (bpf_map_lookup_elem(&target_processes, &process)) {
		struct target *target = bpf_task_storage_get(&targets, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

		/* What it did before is not to be told. */
		if (target) {
			remember_reads(task, target);
			remember_writes(task, target);
		}
	}
	return 0;
}
