// SPDX-License-Identifier: GPL-2.0-only
/* Calls a kernel function where it must not be called, chosen by `place`; 7.2's verifier refuses such an object. */
#include "../include/schedlab.bpf.h"

KNOB_FIXED(u32, place, 0, number, 0, 5, "What to do where; see the code.");

static u64 calls;
bool found;

void SCHED_OP(out_of_place_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (++calls > 5 && place == 1)
		scx_bpf_create_dsq(5, -1);
	if (calls > 5 && place == 2)
		dsq_move_to_local(5);
	if (calls > 5 && place == 3)
		scx_bpf_select_cpu_dfl(p, 0, 0, &found);
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 5000000, enq_flags);
}

void SCHED_OP(out_of_place_running, struct task_struct *p)
{
	if (calls > 5 && place == 4)
		dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 5000000, 0);
}

void SCHED_OP(out_of_place_dispatch, s32 cpu, struct task_struct *prev)
{
	if (calls > 5 && place == 5)
		scx_bpf_create_dsq(5, -1);
}

SCHED_OPS(out_of_place_ops,
	  .enqueue = (void *)out_of_place_enqueue,
	  .running = (void *)out_of_place_running,
	  .dispatch = (void *)out_of_place_dispatch,
	  .name = "out_of_place");
