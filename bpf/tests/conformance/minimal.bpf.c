// SPDX-License-Identifier: GPL-2.0-only
/* A table with nothing but a name: the kernel's defaults schedule everything. */
#include "../../include/conformance.bpf.h"

void SCHED_OP(minimal_exit, struct scx_exit_info *info)
{
	CHECK(info->kind == SCX_EXIT_UNREG);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(minimal_ops,
	  .exit = (void *)minimal_exit,
	  .name = "minimal");
