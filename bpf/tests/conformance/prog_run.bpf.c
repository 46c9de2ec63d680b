// SPDX-License-Identifier: GPL-2.0-only
/* A program that its user half runs (SEC("syscall")) while the scheduler is attached may make queues and end it. */
#include "../../include/conformance.bpf.h"

#define OTHER_DSQ 7
#define EXIT_CODE 0xdeadbeef

SEC("syscall")
int prog_run_syscall(void *context)
{
	CHECK(!scx_bpf_create_dsq(OTHER_DSQ, -1));
	CHECK(scx_bpf_create_dsq(OTHER_DSQ, -1) == -EEXIST);
	CHECK(scx_bpf_dsq_nr_queued(OTHER_DSQ) == 0);
	SCHED_EXIT(EXIT_CODE, "left by a program that user space ran");
	return 0;
}

void SCHED_OP(prog_run_exit, struct scx_exit_info *info)
{
	CHECK(info->exit_code == EXIT_CODE);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(prog_run_ops, .exit = (void *)prog_run_exit, .name = "prog_run");
