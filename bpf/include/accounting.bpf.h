/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel's I/O accounting says of a task of the target, told when the task is looked at: at its
 * switches, its wake-ups and its end. Included by recorder.bpf.c after its records and tasks; the hooks are
 * there.
 */
#ifndef SCHEDLAB_ACCOUNTING_BPF_H
#define SCHEDLAB_ACCOUNTING_BPF_H

static __always_inline bool is_read(u8 op)
{
	return op == OP_PIPE_READ || op == OP_SOCKET_RECEIVE;
}

static __always_inline bool is_write(u8 op)
{
	return op == OP_PIPE_WRITE || op == OP_SOCKET_SEND;
}

static __always_inline void remember_read(struct target *target, u8 op, u8 kind, u64 channel)
{
	target->reads_vary = target->read_known && target->read_channel != channel;
	target->read_op = op;
	target->read_channel = channel;
	target->read_kind = kind;
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
		remember_read(target, info.op, info.channel_kind, info.channel);
}

static __always_inline void tell_exit(u64 time, struct target *target, u32 pid, s64 result)
{
	tell(time, RECORD_OP_EXIT, target->op, target->channel_kind, pid, target->channel, result);
	target->open = 0;
}

static __always_inline void remember_reads(struct task_struct *task, struct target *target)
{
	target->read_calls = TRACED(task)->ioac.syscr;
	target->read_bytes = TRACED(task)->ioac.rchar;
}

static __always_inline void remember_writes(struct task_struct *task, struct target *target)
{
	target->write_calls = TRACED(task)->ioac.syscw;
	target->write_bytes = TRACED(task)->ioac.wchar;
}

#define RESULT_UNKNOWN 0x7fffffffffffffffLL

/*
 * While not every return is told: tells what the task's I/O accounting says has been read since last told, and
 * closes an operation that has returned. An open read that the accounting does not show yet is still in progress.
 */
static __always_inline void settle_reads(u64 now, struct task_struct *task, struct target *target, struct ring *ring)
{
	u64 calls = TRACED(task)->ioac.syscr - target->read_calls;
	u64 bytes = TRACED(task)->ioac.rchar - target->read_bytes;

	/* Those have their own ways to be closed. */
	if (target->open && (target->op == OP_SOCKET_SEND || (control.receives && target->op == OP_SOCKET_RECEIVE) ||
			     (is_write(target->op) && control.telling == TELLING_PATTERNS)))
		return;
	if (target->open && is_read(target->op)) {
		if (!calls)
			return;
		tell_exit(now, target, task->pid, bytes);
	} else {
		if (target->open) {
			u64 written = TRACED(task)->ioac.wchar - target->write_bytes;

			if (bytes && (target->op == OP_POLL || target->op == OP_EPOLL_WAIT))
				target->reads_vary = 1;
			tell_exit(now, target, task->pid, target->op == OP_PIPE_WRITE ? written : RESULT_UNKNOWN);
			if (target->op == OP_PIPE_WRITE)
				remember_writes(task, target);
		}
		if (bytes && !target->read_known)
			learn_read(task, target);
		/* Until it is known the sum grows. */
		if (bytes && !target->read_known)
			return;
		if (bytes && !(control.receives && target->read_op == OP_SOCKET_RECEIVE))
			tell(now, RECORD_OP_EXIT, target->read_op, target->read_kind, task->pid, target->read_channel,
			     bytes);
	}
	if (bytes && target->reads_vary && !control.receives)
		ring->reads_unsure += calls;
	remember_reads(task, target);
}

/* Tells those entries of the pattern that the reader does not know, and sees whether it is an even round. */
__noinline int tell_pattern(u64 now, u32 pid, struct pattern *pattern)
{
	u32 bytes;

	if (!pattern || !pattern->untold)
		return 0;
	pattern->untold = 0;
	bytes = pattern->entries[0].bytes;
	for (u32 i = 0; i < PATTERN_MAX; i++) {
		struct pattern_entry *entry = pattern_at(pattern, i);

		if (i >= pattern->count)
			break;
		if (entry->bytes != bytes || entry->next != (i + 1 < pattern->count ? i + 1 : 0))
			bytes = 0;
		if (entry->told)
			continue;
		entry->told = 1;
		tell(now, RECORD_PATTERN, i, entry->next, pid, entry->channel, entry->bytes);
	}
	pattern->even = bytes;
	return 0;
}

static __always_inline u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

/*
 * Tells sends as a run if so many with so many bytes follow the pattern; else it may be anywhere. Inlined: Linux up to
 * 6.12 adds the frames of all functions that are active, and allows 512 bytes.
 */
static __always_inline bool tell_run(u64 now, u32 pid, struct pattern *pattern, u64 sends, u64 bytes)
{
	struct ring *ring = this_ring();
	u32 first = pattern->expected;

	tell_pattern(now, pid, pattern);
	if (!ring || pattern_follow(pattern, sends) != sends || pattern->sum != bytes)
		return false;
	tell(now, RECORD_RUN, first, 0, pid, sends, ring->since);
	ring->expected += sends;
	return true;
}

/*
 * While telling by patterns: tells what the accounting says has been written since last told, as sends that
 * followed the pattern. What does not fit the pattern in number or bytes is told in sum, and counted for the reader to see.
 * `later` calls with `later_bytes` of them are told otherwise.
 */
static __noinline int settle_writes(u64 now, struct task_struct *task, struct target *target, u64 later, u64 later_bytes)
{
	struct ring *ring = this_ring();
	struct pattern *pattern = &target->pattern;
	u64 writes = TRACED(task)->ioac.syscw - target->write_calls - later;
	u64 bytes = TRACED(task)->ioac.wchar - target->write_bytes - later_bytes;
	u32 first = pattern->expected, count;

	if (!ring || !writes)
		return 0;
	if (writes > RUN_MAX) {
		remember_writes(task, target);
		return 0;
	}
	ring->returns += writes;
	ring->writes += writes;
	target->write_calls += writes;
	target->write_bytes += bytes;
	/* The next one that is seen does not follow the latest that was. */
	pattern->last = PATTERN_NONE;
	if (!pattern_holds(pattern))
		first = pattern->expected = PATTERN_NONE;
	if (target->open && is_write(target->op)) {
		u64 size = bytes;

		/* An exit of its own would be told behind what this CPU has told since it was. */
		if (pattern_has(pattern, first) && pattern_at(pattern, first)->channel == target->channel &&
		    tell_run(now, task->pid, pattern, writes, bytes)) {
			target->open = 0;
			return 0;
		}
		pattern->expected = first;
		count = pattern_follow(pattern, target->op == OP_SOCKET_SEND);
		/* Without a pattern it is what was asked for. */
		if (writes > 1)
			size = count ? pattern->sum : min_u64(target->amount, bytes);
		tell_exit(ring->since, target, task->pid, size);
		ring->expected += count;
		writes--;
		bytes -= size;
		if (!writes)
			return 0;
	}
	if (!tell_run(now, task->pid, pattern, writes, bytes)) {
		pattern_lose(pattern);
		tell(now, RECORD_REST, 0, 0, task->pid, ring->since, (bytes & ((1ULL << 40) - 1)) | writes << 40);
	}
	return 0;
}

/*
 * Sends of the task were told: they are learned if accounting shows them, and them alone. The latest is not
 * accounted yet if it is still in progress (`inside`). `told` are the bytes of those that are.
 */
static __always_inline bool fits_accounting(struct task_struct *task, struct target *target, u32 count, u64 told,
					    bool inside)
{
	u64 calls = TRACED(task)->ioac.syscw + inside;
	u64 bytes = TRACED(task)->ioac.wchar;
	bool fits = calls == target->write_calls + count;

	/* Loaded here, or compilers share one load between pointers of different types. */
	barrier_var(bytes);
	/* Those that came after a change to patterns are told next. */
	if (control.telling == TELLING_PATTERNS && calls > target->write_calls + count) {
		target->write_calls += count;
		target->write_bytes += told;
		return true;
	}
	target->write_calls = calls;
	target->write_bytes = bytes;
	return fits;
}

/*
 * Whether the task may have sent without a hook since it was last looked at. A task that had no CPU while telling by
 * patterns began may run, and be looked at for the first time when the hook is back.
 */
static __always_inline bool sent_unseen(struct target *target)
{
	return target->telling == TELLING_PATTERNS || target->phase != control.phase;
}

static __always_inline void looked_at(struct target *target)
{
	target->telling = control.telling;
	target->phase = control.phase;
}

/* Tells what the task sent without a hook; its sends by the hook are told. */
static __always_inline void settle_unseen(u64 now, struct task_struct *task, struct target *target)
{
	if (control.telling == TELLING_PATTERNS || sent_unseen(target))
		settle_writes(now, task, target, 0, 0);
	looked_at(target);
}

static __always_inline void learn_send(struct target *target, struct ring *ring, bool fits, u64 channel, u32 bytes)
{
	struct pattern *pattern = &target->pattern;

	/* Others may have come before it: it is not the one that followed the latest. */
	if (!fits)
		pattern_lose(pattern);
	if (pattern_learn(pattern, channel, bytes) && fits && pattern_holds(pattern))
		ring->expected += 1;
	if (!fits)
		pattern->hits = 0;
}

/* The current task's sends that its pattern does not explain: two a record, spread over the time since the first. */
static __always_inline void tell_sends(u64 now, u32 pid, struct target *target, struct ring *ring, u32 count, bool fits)
{
	u64 step = (now - ring->sends_since) / (SENDS_MAX / 2);

	for (u32 i = 0; i < SENDS_MAX; i += 2) {
		u64 first = ring->sends[i];
		u64 second = i + 1 < count ? ring->sends[i + 1] : 0;
		u64 time = i + 2 < count ? ring->sends_since + step * (i / 2) : now;

		if (i >= count)
			break;
		learn_send(target, ring, fits, first >> 32, first);
		if (second)
			learn_send(target, ring, fits, second >> 32, second);
		tell(time, RECORD_SENDS, 0, 0, pid, first, second);
	}
}

/* Tells the current task's sends: as a run of its pattern if each was the one that came next last time. */
static __noinline int flush_sends(struct task_struct *task, u64 now, u32 inside)
{
	struct ring *ring = this_ring();
	struct target *target;
	u64 bytes = 0;
	u32 count, first;
	bool fits;

	if (!ring || !ring->sends_count)
		return 0;
	count = ring->sends_count;
	ring->sends_count = 0;
	target = bpf_task_storage_get(&targets, task, 0, 0);
	if (!target)
		return 0;
	for (u32 i = 0; i < SENDS_MAX; i++)
		if (i + inside < count)
			bytes += (u32)ring->sends[i];
	if (control.telling == TELLING_SENDS && sent_unseen(target))
		settle_writes(ring->sends_since, task, target, count - inside, bytes);
	looked_at(target);
	fits = fits_accounting(task, target, count, bytes, inside);
	if (inside)
		target->write_bytes += (u32)ring->sends[(count - 1) & (SENDS_MAX - 1)];
	ring->returns += count;
	ring->writes += count;
	first = target->pattern.expected;
	if (!fits || !pattern_explains(&target->pattern, ring, count)) {
		tell_sends(now, task->pid, target, ring, count, fits);
		return 0;
	}
	ring->expected += count;
	tell_pattern(now, task->pid, &target->pattern);
	tell(now, RECORD_RUN, first, RUN_SEEN, task->pid, count, ring->sends_since);
	return 0;
}

/* The current task is looked at while not every return is told. */
static __always_inline void settle(u64 now, struct task_struct *task, struct target *target)
{
	struct ring *ring = this_ring();

	if (!ring)
		return;
	settle_unseen(now, task, target);
	settle_reads(now, task, target, ring);
	ring->since = now;
}

#endif
