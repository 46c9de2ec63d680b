// SPDX-License-Identifier: GPL-2.0-only
/*
 * Everything that bpf/include declares, each thing once: a kernel of today must have every function with
 * this prototype, every enumerator and every field. Only compared with such kernels, never run.
 */
#include "../include/schedlab.bpf.h"

volatile u64 found[2];

#define FUNC(name) found[0] = (u64)&name
#define VALUE(type, name) found[1] = bpf_core_enum_value_exists(enum type, name)
#define FIELD(type, member) found[1] = bpf_core_field_exists(struct type, member)
#define KNOWN(type) found[1] = bpf_core_type_exists(struct type)

SEC("syscall")
int functions(void *ctx)
{
	FUNC(scx_bpf_select_cpu_dfl);
	FUNC(scx_bpf_test_and_clear_cpu_idle);
	FUNC(scx_bpf_pick_idle_cpu);
	FUNC(scx_bpf_pick_any_cpu);
	FUNC(scx_bpf_get_idle_cpumask);
	FUNC(scx_bpf_get_idle_smtmask);
	FUNC(scx_bpf_put_idle_cpumask);
	FUNC(scx_bpf_create_dsq);
	FUNC(scx_bpf_destroy_dsq);
	FUNC(scx_bpf_dsq_nr_queued);
	FUNC(scx_bpf_dispatch_nr_slots);
	FUNC(scx_bpf_dispatch_cancel);
	FUNC(bpf_iter_scx_dsq_new);
	FUNC(bpf_iter_scx_dsq_next);
	FUNC(bpf_iter_scx_dsq_destroy);
	FUNC(scx_bpf_kick_cpu);
	FUNC(scx_bpf_task_running);
	FUNC(scx_bpf_task_cpu);
	FUNC(scx_bpf_nr_cpu_ids);
	FUNC(scx_bpf_get_possible_cpumask);
	FUNC(scx_bpf_get_online_cpumask);
	FUNC(scx_bpf_put_cpumask);
	FUNC(scx_bpf_task_cgroup);
	FUNC(scx_bpf_cpuperf_cap);
	FUNC(scx_bpf_cpuperf_cur);
	FUNC(scx_bpf_cpuperf_set);
	FUNC(scx_bpf_exit_bstr);
	FUNC(scx_bpf_error_bstr);
	FUNC(bpf_cpumask_create);
	FUNC(bpf_cpumask_release);
	FUNC(bpf_cpumask_set_cpu);
	FUNC(bpf_cpumask_clear_cpu);
	FUNC(bpf_cpumask_and);
	FUNC(bpf_cpumask_copy);
	FUNC(bpf_cpumask_test_cpu);
	FUNC(bpf_cpumask_first);
	FUNC(bpf_cpumask_weight);
	FUNC(bpf_cpumask_empty);
	FUNC(bpf_task_from_pid);
	FUNC(bpf_task_release);
	FUNC(bpf_cgroup_release);
	FUNC(bpf_rcu_read_lock);
	FUNC(bpf_rcu_read_unlock);
	return 0;
}

/* The newest form of each function in compat.bpf.h. */
SEC("syscall")
int newest_functions(void *ctx)
{
	FUNC(scx_bpf_dsq_insert___v2___compat);
	FUNC(__scx_bpf_dsq_insert_vtime);
	FUNC(scx_bpf_dsq_move_to_local___v2___compat);
	FUNC(__scx_bpf_select_cpu_and);
	FUNC(scx_bpf_task_set_slice);
	FUNC(scx_bpf_task_set_dsq_vtime);
	FUNC(scx_bpf_now);
	FUNC(scx_bpf_cpu_curr);
	FUNC(scx_bpf_dsq_peek);
	return 0;
}

SEC("syscall")
int enumerators(void *ctx)
{
	VALUE(scx_public_consts, SCX_SLICE_DFL);
	VALUE(scx_public_consts, SCX_SLICE_INF);
	VALUE(scx_dsq_id_flags, SCX_DSQ_GLOBAL);
	VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON);
	VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL_CPU_MASK);
	VALUE(scx_enq_flags, SCX_ENQ_WAKEUP);
	VALUE(scx_enq_flags, SCX_ENQ_HEAD);
	VALUE(scx_enq_flags, SCX_ENQ_CPU_SELECTED);
	VALUE(scx_enq_flags, SCX_ENQ_PREEMPT);
	VALUE(scx_enq_flags, SCX_ENQ_REENQ);
	VALUE(scx_enq_flags, SCX_ENQ_LAST);
	VALUE(scx_deq_flags, SCX_DEQ_SLEEP);
	VALUE(scx_deq_flags, SCX_DEQ_CORE_SCHED_EXEC);
	VALUE(scx_ops_flags, SCX_OPS_KEEP_BUILTIN_IDLE);
	VALUE(scx_ops_flags, SCX_OPS_ENQ_LAST);
	VALUE(scx_ops_flags, SCX_OPS_ENQ_EXITING);
	VALUE(scx_ops_flags, SCX_OPS_SWITCH_PARTIAL);
	VALUE(scx_kick_flags, SCX_KICK_IDLE);
	VALUE(scx_kick_flags, SCX_KICK_PREEMPT);
	VALUE(scx_kick_flags, SCX_KICK_WAIT);
	VALUE(scx_wake_flags, SCX_WAKE_FORK);
	VALUE(scx_wake_flags, SCX_WAKE_TTWU);
	VALUE(scx_wake_flags, SCX_WAKE_SYNC);
	VALUE(scx_pick_idle_cpu_flags, SCX_PICK_IDLE_CORE);
	VALUE(scx_exit_kind, SCX_EXIT_DONE);
	VALUE(scx_exit_kind, SCX_EXIT_ERROR_STALL);
	return 0;
}

SEC("syscall")
int fields(void *ctx)
{
	FIELD(sched_ext_entity, weight);
	FIELD(sched_ext_entity, selected_cpu);
	FIELD(sched_ext_entity, slice);
	FIELD(sched_ext_entity, dsq_vtime);
	FIELD(sched_ext_entity, disallow);
	FIELD(task_struct, __state);
	FIELD(task_struct, flags);
	FIELD(task_struct, on_cpu);
	FIELD(task_struct, recent_used_cpu);
	FIELD(task_struct, wake_cpu);
	FIELD(task_struct, prio);
	FIELD(task_struct, static_prio);
	FIELD(task_struct, normal_prio);
	FIELD(task_struct, rt_priority);
	FIELD(task_struct, policy);
	FIELD(task_struct, nr_cpus_allowed);
	FIELD(task_struct, cpus_ptr);
	FIELD(task_struct, cpus_mask);
	FIELD(task_struct, migration_disabled);
	FIELD(task_struct, mm);
	FIELD(task_struct, pid);
	FIELD(task_struct, tgid);
	FIELD(task_struct, real_parent);
	FIELD(task_struct, group_leader);
	FIELD(task_struct, utime);
	FIELD(task_struct, stime);
	FIELD(task_struct, nvcsw);
	FIELD(task_struct, nivcsw);
	FIELD(task_struct, start_time);
	FIELD(task_struct, comm);
	FIELD(task_struct, scx);
	FIELD(rq, nr_running);
	FIELD(rq, clock);
	FIELD(rq, curr);
	FIELD(rq, cpu);
	FIELD(scx_exit_info, kind);
	FIELD(scx_exit_info, exit_code);
	FIELD(scx_exit_info, reason);
	FIELD(scx_exit_info, msg);
	FIELD(scx_exit_info, dump);
	FIELD(scx_init_task_args, fork);
	FIELD(scx_init_task_args, cgroup);
	FIELD(scx_exit_task_args, cancelled);
	FIELD(bpf_cpumask, cpumask);
	FIELD(scx_bpf_dsq_insert_vtime_args, enq_flags);
	FIELD(scx_bpf_select_cpu_and_args, flags);
	KNOWN(bpf_iter_scx_dsq);
	return 0;
}
