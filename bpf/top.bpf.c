// SPDX-License-Identifier: GPL-2.0-only
/*
 * What `schedlab top` shows: a row for every task and every CPU, read when somebody looks and never else.
 *
 * An iterator over all tasks writes packed rows. A CPU's run queue is found through its tasks, of which each CPU has
 * some of the kernel's own: kernels without CONFIG_KALLSYMS_ALL do not tell where `runqueues` lies. Nothing is
 * hooked, so what does not look costs nothing. Members are read without locks: a row may be torn between
 * two moments, as in every such tool. From Linux 5.15 to 7.2 only names of members differ (CO-RE).
 * Not here: what a rank is, rates, shares. See schedlab-host, top/, and schedlab-report, top/.
 */
#include "include/trace.bpf.h"
#include "include/entity.bpf.h"
#include "include/top.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct top_config {
	/* `tasks` is the map of one of the schedulers of 2006. */
	u32 has_entities;
};

const volatile struct top_config config SEC(".rodata.config");
/* How often tasks were walked; a CPU's row tells in which walk it was filled. */
u32 walks SEC(".bss.walks");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_row);
} cpus SEC(".maps");

/* The running scheduler's own if it is one of 2006; else empty. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct entity);
} tasks SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct load_weight {
	unsigned long weight;
};

struct sched_entity___top;
struct rq___top;

/* Names of one thing in turn: avg_vruntime (6.6), sum_w_vruntime (7.0); min_vruntime, zero_vruntime. */
struct cfs_rq___top {
	u64 min_vruntime;
	u64 zero_vruntime;
	s64 avg_vruntime;
	u64 avg_load;
	s64 sum_w_vruntime;
	u64 sum_weight;
	u32 sum_shift;
	unsigned int h_nr_running;
	unsigned int h_nr_queued;
	struct sched_entity___top *curr;
	struct rq___top *rq;
};

struct sched_entity___top {
	struct load_weight load;
	u64 deadline;
	u64 slice;
	u64 vruntime;
	u64 sum_exec_runtime;
	unsigned char on_rq;
	unsigned char sched_delayed;
	struct cfs_rq___top *cfs_rq;
};

struct sched_rt_entity___top {
	unsigned int time_slice;
};

struct sched_dl_entity___top {
	s64 runtime;
	u64 deadline;
};

struct sched_info___top {
	unsigned long long run_delay;
	unsigned long long last_queued;
};

struct scx_dispatch_q___top {
	u64 id;
};

struct sched_ext_entity___top {
	struct scx_dispatch_q___top *dsq;
	u64 slice;
	u64 dsq_vtime;
	u32 weight;
};

struct kernfs_node___top {
	u64 id;
};

struct cgroup___top {
	struct kernfs_node___top *kn;
};

struct css_set___top {
	struct cgroup___top *dfl_cgrp;
};

/* Unsigned, as only such members may change their size: both are bytes since 7.2, and were int. */
struct task_struct___top {
	unsigned int on_rq;
	unsigned int on_cpu;
	struct sched_entity___top se;
	struct sched_rt_entity___top rt;
	struct sched_dl_entity___top dl;
	struct sched_info___top sched_info;
	struct sched_ext_entity___top scx;
	struct css_set___top *cgroups;
};

struct rt_rq___top {
	unsigned int rt_nr_running;
};

struct dl_rq___top {
	unsigned int dl_nr_running;
};

struct scx_rq___top {
	u32 nr_running;
};

struct rq___top {
	unsigned int nr_running;
	u64 nr_switches;
	u64 clock;
	int online;
	int cpu;
	struct cfs_rq___top cfs;
	struct rt_rq___top rt;
	struct dl_rq___top dl;
	struct scx_rq___top scx;
	struct task_struct *curr;
};

struct seq_file;

struct bpf_iter_meta___top {
	struct seq_file *seq;
	u64 seq_num;
};

struct bpf_iter__task___top {
	struct bpf_iter_meta___top *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* The run queue of a task's CPU; none without CONFIG_FAIR_GROUP_SCHED, which every distribution has. */
static __always_inline const struct rq___top *rq_of(const struct task_struct___top *task)
{
	const struct cfs_rq___top *queue;

	if (!bpf_core_field_exists(task->se.cfs_rq))
		return NULL;
	queue = task->se.cfs_rq;
	return queue ? queue->rq : NULL;
}

/* Weights as the queue sums them. */
static __always_inline u64 summed_weight(const struct cfs_rq___top *queue, u64 weight)
{
	if (bpf_core_field_exists(queue->sum_shift)) {
		u64 shifted = weight >> (queue->sum_shift & 63);

		return shifted > 2 ? shifted : 2;
	}
	weight >>= 10;
	return weight > 2 ? weight : 2;
}

/* What a queue's weighted sum counts from. */
static __always_inline u64 queue_zero(const struct cfs_rq___top *queue)
{
	if (bpf_core_field_exists(queue->zero_vruntime))
		return queue->zero_vruntime;
	return queue->min_vruntime;
}

/* The average virtual time of a queue under EEVDF: its lag is 0 there. */
static __always_inline u64 average_vruntime(const struct cfs_rq___top *queue)
{
	const struct sched_entity___top *curr = queue->curr;
	u64 zero = queue_zero(queue), load;
	s64 sum;

	if (bpf_core_field_exists(queue->sum_w_vruntime)) {
		sum = queue->sum_w_vruntime;
		load = queue->sum_weight;
	} else {
		sum = queue->avg_vruntime;
		load = queue->avg_load;
	}
	/* Who runs is not in the sum. */
	if (curr && curr->on_rq) {
		u64 weight = summed_weight(queue, curr->load.weight);

		sum += (s64)(curr->vruntime - zero) * (s64)weight;
		load += weight;
	}
	if (!load)
		return zero;
	/* Rounded down, as the kernel has it. */
	return sum < 0 ? zero - ((u64)-sum + load - 1) / load : zero + (u64)sum / load;
}

static __always_inline bool has_eevdf(void)
{
	struct cfs_rq___top *queue = NULL;

	return bpf_core_field_exists(queue->sum_w_vruntime) || bpf_core_field_exists(queue->avg_vruntime);
}

static __always_inline void fill_fair(struct task_row *row, const struct task_struct___top *task,
				      const struct rq___top *rq)
{
	const struct cfs_rq___top *queue;
	u64 from;

	row->weight = task->se.load.weight >> 10;
	if (!rq)
		return;
	queue = task->se.cfs_rq;
	row->known |= TOP_VRUNTIME;
	if (!has_eevdf()) {
		row->vruntime = task->se.vruntime - queue->min_vruntime;
		return;
	}
	from = average_vruntime(queue);
	row->known |= TOP_ELIGIBLE;
	row->vruntime = task->se.vruntime - from;
	row->lag = from - task->se.vruntime;
	row->deadline = task->se.deadline - from;
	row->slice = task->se.slice;
}

static __always_inline void fill_ext(struct task_row *row, const struct task_struct___top *task)
{
	const struct scx_dispatch_q___top *queue;

	if (!bpf_core_field_exists(task->scx))
		return;
	row->ext_vtime = task->scx.dsq_vtime;
	row->ext_slice = task->scx.slice;
	row->ext_weight = task->scx.weight;
	queue = task->scx.dsq;
	row->ext_queue = queue ? queue->id : ~0ULL;
}

static __always_inline void fill_entity(struct task_row *row, struct task_struct *task)
{
	struct entity *entity;

	if (!config.has_entities)
		return;
	entity = bpf_task_storage_get(&tasks, task, 0, 0);
	if (!entity)
		return;
	row->known |= TOP_ENTITY;
	row->level = entity->prio;
	row->level_static = entity->static_prio;
	row->level_slice = entity->slice;
}

static __always_inline void fill_times(struct task_row *row, const struct task_struct___top *task,
				       const struct rq___top *rq)
{
	u64 queued;

	row->ran = task->se.sum_exec_runtime;
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return;
	row->known |= TOP_DELAY;
	row->delay = task->sched_info.run_delay;
	queued = task->sched_info.last_queued;
	/* The wait that goes on; the clock of a queue moves with its ticks. */
	if (queued && rq && !row->on_cpu && rq->clock > queued)
		row->delay += rq->clock - queued;
}

static __always_inline void fill_state(struct task_row *row, struct task_struct *task)
{
	const struct task_struct___top *top = (const void *)task;

	row->on_rq = top->on_rq;
	row->on_cpu = top->on_cpu;
	row->state = task->__state;
	if (bpf_core_field_exists(top->se.sched_delayed) && top->se.sched_delayed)
		row->known |= TOP_DELAYED;
	if (task->flags & PF_KTHREAD)
		row->known |= TOP_KERNEL;
}

/* A CPU's row, at the first of its tasks in a walk. */
static __always_inline void fill_cpu(const struct rq___top *rq)
{
	u32 cpu = rq->cpu;
	struct cpu_row *row = bpf_map_lookup_elem(&cpus, &cpu);
	struct task_struct *curr;

	if (!row || row->walk == walks)
		return;
	row->walk = walks;
	row->clock = rq->clock;
	row->switches = rq->nr_switches;
	row->running = rq->nr_running;
	row->fair = bpf_core_field_exists(rq->cfs.h_nr_queued) ? rq->cfs.h_nr_queued : rq->cfs.h_nr_running;
	row->rt = rq->rt.rt_nr_running;
	row->deadline = rq->dl.dl_nr_running;
	row->ext = bpf_core_field_exists(rq->scx) ? rq->scx.nr_running : 0;
	row->online = rq->online;
	curr = rq->curr;
	if (!curr)
		return;
	row->current = curr->pid;
	row->prio = curr->prio;
	row->policy = curr->policy;
	bpf_probe_read_kernel(row->comm, sizeof(row->comm), curr->comm);
}

SEC("iter/task")
int tell_tasks(struct bpf_iter__task___top *context)
{
	struct task_struct *task = context->task;
	const struct task_struct___top *top = (const void *)task;
	const struct rq___top *rq;
	struct task_row row = {};

	if (!task)
		return 0;
	if (!context->meta->seq_num)
		walks++;
	row.start_time = task->start_time;
	row.pid = task->pid;
	row.tgid = task->tgid;
	row.prio = task->prio;
	row.static_prio = task->static_prio;
	row.rt_priority = task->rt_priority;
	row.policy = task->policy;
	row.cpu = task_cpu(task);
	row.voluntary = task->nvcsw;
	row.involuntary = task->nivcsw;
	row.rr_ticks = top->rt.time_slice;
	row.dl_runtime = top->dl.runtime;
	row.dl_deadline = top->dl.deadline;
	row.cgroup = top->cgroups->dfl_cgrp->kn->id;
	bpf_probe_read_kernel(row.comm, sizeof(row.comm), task->comm);
	rq = rq_of(top);
	if (rq)
		fill_cpu(rq);
	fill_state(&row, task);
	fill_times(&row, top, rq);
	fill_fair(&row, top, rq);
	fill_ext(&row, top);
	fill_entity(&row, task);
	bpf_seq_write(context->meta->seq, &row, sizeof(row));
	return 0;
}
