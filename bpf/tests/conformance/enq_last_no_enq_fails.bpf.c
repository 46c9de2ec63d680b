// SPDX-License-Identifier: GPL-2.0-only
/* SCX_OPS_ENQ_LAST without an enqueue callback is refused. */
#include "../../include/conformance.bpf.h"

void SCHED_OP(enq_last_no_enq_fails_exit, struct scx_exit_info *info)
{
	COUNT(checks);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(enq_last_no_enq_fails_ops,
	  .exit = (void *)enq_last_no_enq_fails_exit,
	  .flags = SCX_OPS_ENQ_LAST,
	  .timeout_ms = 1000,
	  .name = "enq_last_no_enq_fails");
