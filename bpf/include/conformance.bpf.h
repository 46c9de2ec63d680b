/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the conformance schedulers share: checks that count, the tasks under test, and names that only they use.
 *
 * A conformance scheduler checks what the kernel promises while it runs, and in its exit callback what must
 * have happened in all. Whoever ran it reads `checks`, `failures` and `first_failure` (a line of the source).
 * Tasks under test have names that begin with "t_"; on a real kernel there are others too.
 */
#ifndef SCHEDLAB_CONFORMANCE_BPF_H
#define SCHEDLAB_CONFORMANCE_BPF_H

#include "schedlab.bpf.h"
#include "events.bpf.h"

#define EEXIST 17
#define EINVAL 22
#define SLICE 20000000ULL
#define DSQ_LOCAL KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL)
#define DSQ_LOCAL_ON KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON)
#define DSQ_GLOBAL KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL)
#define ENQ(name) KERNEL_CONST(scx_enq_flags, SCX_ENQ_##name)
#define KICK(name) KERNEL_CONST(scx_kick_flags, SCX_KICK_##name)

u64 checks, failures, first_failure;

#define CHECK(condition)                                                                           \
	({                                                                                         \
		__sync_fetch_and_add(&checks, 1);                                                  \
		if (!(condition) && !__sync_fetch_and_add(&failures, 1))                           \
			first_failure = __LINE__;                                                  \
	})

/* Counts something that the exit callback judges. */
#define COUNT(counter) __sync_fetch_and_add(&(counter), 1)

static __always_inline bool under_test(const struct task_struct *p)
{
	return p->comm[0] == 't' && p->comm[1] == '_';
}

/* Whether it is the task under test whose name goes on with this letter. */
static __always_inline bool is_task(const struct task_struct *p, char letter)
{
	return under_test(p) && p->comm[2] == letter;
}

/* Ends the scheduler with SCX_EXIT_UNREG_BPF, a code and a message. */
#define SCHED_EXIT(code, fmt, args...)                                                             \
	({                                                                                         \
		static char ___fmt[] = fmt;                                                        \
		unsigned long long ___param[___bpf_narg(args) ?: 1] = {};                          \
		___bpf_fill(___param, args);                                                       \
		scx_bpf_exit_bstr(code, ___fmt, ___param, ___bpf_narg(args) * sizeof(___param[0])); \
	})

EXIT_RECORD(exit_record);

/* Flags of a scheduler's table: constants, as the kernel spells them. */
#define SCX_OPS_BUILTIN_IDLE_PER_NODE (1ULL << 6)

#endif
