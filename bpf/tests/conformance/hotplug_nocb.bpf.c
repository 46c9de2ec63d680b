// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler without hotplug callbacks is ended when a CPU comes or goes, to be loaded again. */
#include "../../include/conformance.bpf.h"

void SCHED_OP(hotplug_nocb_exit, struct scx_exit_info *info)
{
	CHECK(info->kind == SCX_EXIT_UNREG_KERN);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(hotplug_nocb_ops,
	  .exit = (void *)hotplug_nocb_exit,
	  .timeout_ms = 1000,
	  .name = "hotplug_nocb");
