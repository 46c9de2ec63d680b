// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes down what the kernel dumps when it ends a sched_ext scheduler for a mistake: the state of each CPU and of every
 * task that could run, line by line, from the tracepoint sched_ext_dump.
 *
 * Works for any scheduler, ours or not, without touching its object. Not here: what the lines mean, which is read in user
 * space.
 */
#include "include/schedlab.bpf.h"

/* Must match LINE_BYTES in crates/schedlab-host/src/live/dump.rs. Longer lines are cut. */
#define LINE_BYTES 128

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} lines SEC(".maps");

SEC("tp_btf/sched_ext_dump")
int BPF_PROG(on_line, const char *line)
{
	char *taken = bpf_ringbuf_reserve(&lines, LINE_BYTES, 0);

	/* A dump that does not fit is cut at its end. */
	if (!taken)
		return 0;
	if (bpf_probe_read_kernel_str(taken, LINE_BYTES, line) < 0)
		taken[0] = '\0';
	bpf_ringbuf_submit(taken, 0);
	return 0;
}
