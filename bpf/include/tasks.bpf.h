/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The data that a priority scheduler of 2.6 keeps of each task, and who forked whom.
 *
 * To be included after arrays.bpf.h and after the scheduler has defined its `struct task`, whose first member
 * is `struct entity entity`.
 */
#ifndef SCHEDLAB_TASKS_BPF_H
#define SCHEDLAB_TASKS_BPF_H

/* TASK_UNINTERRUPTIBLE of p->__state. */
#define UNINTERRUPTIBLE 2
#define ENOMEM 12

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

EXIT_RECORD(exit_record);

static __always_inline struct task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}

/* SCHED_IDLE is newer than these schedulers and treated like SCHED_BATCH. */
static __always_inline bool is_batch(const struct task_struct *p)
{
	return p->policy == SCHED_BATCH || p->policy == SCHED_IDLE;
}

/* From select_cpu, which runs where the waker does. */
static __always_inline void note_waker(struct task *task, u64 wake_flags)
{
	task->entity.sync = !!(wake_flags & KERNEL_CONST(scx_wake_flags, SCX_WAKE_SYNC));
	task->entity.woken_by_interrupt = !bpf_get_current_task_btf()->pid;
}

/* Makes the data of a task, with the priority of its nice value; `forker` is that of the task that forked it. */
static __always_inline struct task *make_task(struct task_struct *p, bool fork, struct task **forker)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct task *task = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	*forker = NULL;
	if (!task)
		return NULL;
	task->entity.static_prio = static_prio_of(p);
	task->entity.prio = static_prio_of(p);
	task->entity.since = clock_ns();
	task->entity.place = PLACE_TAIL;
	if (!fork)
		return task;
	*forker = task_of(parent);
	if (!*forker)
		return task;
	task->entity.is_new = 1;
	task->entity.parent_pid = parent->pid;
	task->entity.parent_start = parent->start_time;
	return task;
}

/*
 * 2.6's wake_up_new_task(): whether a new task runs before its parent, which has just forked it on this CPU.
 * Threads do not. If so, the data of the parent.
 */
static __always_inline struct task *runs_before(struct task_struct *p, const struct task *task)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	s32 cpu = scx_bpf_task_cpu(p);

	if (parent->pid != task->entity.parent_pid || p->tgid == parent->tgid)
		return NULL;
	if (cpu != (s32)bpf_get_smp_processor_id() || runqueue_of(cpu)->curr_prio == PRIO_NONE)
		return NULL;
	return task_of(parent);
}

/* The task that forked this one, to be released, or NULL if it is gone. */
static __always_inline struct task_struct *parent_of(const struct task *task)
{
	struct task_struct *parent;

	if (!task->entity.parent_pid)
		return NULL;
	parent = bpf_task_from_pid(task->entity.parent_pid);
	if (parent && parent->start_time != task->entity.parent_start) {
		bpf_task_release(parent);
		return NULL;
	}
	return parent;
}

/* Into the run queue; a task without data, which no init_task left, into the global one. */
static __always_inline void enqueue_task(struct task_struct *p, u64 enq_flags)
{
	struct task *task = task_of(p);

	if (task)
		queue_task(p, &task->entity, enq_flags);
	else
		dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), RUN_ON_NS, enq_flags);
}

/* From another class: with the priority of its nice value, as after sched_setscheduler(). */
static __always_inline void enable_task(struct task_struct *p)
{
	struct task *task = task_of(p);

	if (!task)
		return;
	if (!task->entity.is_new)
		set_prio(p, &task->entity, static_prio_of(p), CAUSE_NONE);
	task->entity.static_prio = static_prio_of(p);
	set_dsq_vtime(p, place_of(&task->entity, scx_bpf_task_cpu(p)));
}

#endif
