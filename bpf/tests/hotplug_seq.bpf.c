// SPDX-License-Identifier: GPL-2.0-only
/* Expects seven hotplug events to have happened before it is attached. */
#include "../include/schedlab.bpf.h"

EXIT_RECORD(exit_record);

void SCHED_OP(hotplug_seq_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(hotplug_seq_ops,
	  .exit = (void *)hotplug_seq_exit,
	  .hotplug_seq = 7,
	  .name = "hotplug_seq");
