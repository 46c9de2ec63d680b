/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters of the kernel (since 6.15), as far as every version that has them has them. The kernel fills what is asked
 * for.
 */
#ifndef SCHEDLAB_EVENTS_BPF_H
#define SCHEDLAB_EVENTS_BPF_H

#include "schedlab.bpf.h"

struct scx_event_stats {
	s64 SCX_EV_SELECT_CPU_FALLBACK;
	s64 SCX_EV_DISPATCH_LOCAL_DSQ_OFFLINE;
	s64 SCX_EV_DISPATCH_KEEP_LAST;
	s64 SCX_EV_ENQ_SKIP_EXITING;
	s64 SCX_EV_ENQ_SKIP_MIGRATION_DISABLED;
	s64 SCX_EV_REENQ_IMMED;
	s64 SCX_EV_REENQ_LOCAL_REPEAT;
	s64 SCX_EV_REFILL_SLICE_DFL;
	s64 SCX_EV_BYPASS_DURATION;
	s64 SCX_EV_BYPASS_DISPATCH;
	s64 SCX_EV_BYPASS_ACTIVATE;
};

extern void scx_bpf_events(struct scx_event_stats *events, size_t events__sz) __ksym __weak;

#endif
