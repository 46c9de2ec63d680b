// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler that inserts a task twice from enqueue. The kernel must end it with SCX_EXIT_ERROR.
 */
#include "../include/schedlab.bpf.h"

EXIT_RECORD(exit_record);

void SCHED_OP(double_insert_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 20000000, enq_flags);
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 20000000, enq_flags);
}

void SCHED_OP(double_insert_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(double_insert_ops,
	  .enqueue = (void *)double_insert_enqueue,
	  .exit = (void *)double_insert_exit,
	  .name = "double_insert");
