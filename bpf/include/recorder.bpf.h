/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the recorder's kernel half and its reader (schedlab-host, record/raw.rs) share: records, kinds,
 * operations, settings. The reader's constants repeat these numbers; a test compares the sizes.
 */
#ifndef SCHEDLAB_RECORDER_BPF_H
#define SCHEDLAB_RECORDER_BPF_H

/* One record of a per-CPU ring, 32 bytes. `lap` is written last: the record is whole when it fits the lap. */
struct record {
	u64 time;
	u32 pid;
	u8 kind;
	u8 op;
	u8 flags;
	u8 lap;
	u64 a;
	u64 b;
};

enum record_kind {
	RECORD_SWITCH = 1,	/* pid: prev, op: state, a: next */
	RECORD_WAKING,		/* pid: current, op: context, a: wakee, b: wakee's CPU */
	RECORD_WAKEUP_NEW,	/* a: task, b: target CPU */
	RECORD_MIGRATE,		/* a: task, b: from, high half: to */
	RECORD_FORK,		/* pid: parent, a: child, high half: its tgid, flags: 1 target */
	RECORD_EXEC,		/* pid, a and b: name */
	RECORD_RENAME,		/* pid, a and b: name */
	RECORD_EXIT,		/* pid */
	RECORD_ATTRIBUTES,	/* pid, op: policy, flags: real-time priority, a: static_prio, b: custom slice or 0 */
	RECORD_AFFINITY,	/* pid, a: CPUs 0 to 63, b: number of CPUs */
	RECORD_IRQ_ENTER,	/* op: 0 timer, 1 other CPU, 2 device; a: number */
	RECORD_IRQ_EXIT,
	RECORD_SOFTIRQ_ENTER,	/* op: vector */
	RECORD_SOFTIRQ_EXIT,
	RECORD_TIMER,		/* a: task, b: due */
	RECORD_OP_ENTER,	/* pid, op, flags: channel kind, a: channel, b: amount */
	RECORD_OP_EXIT,		/* pid, op, flags: channel kind, a: channel, b: result */
	RECORD_SENDS,		/* pid, a and b: channel and bytes of a send in 32 bits each, b may be 0 */
	RECORD_PATTERN,		/* pid, op: position, flags: that of the next, a: channel, b: bytes */
	RECORD_RUN,		/* pid, op: position of the first, flags: RUN_SEEN or 0, a: sends, b: since when */
	RECORD_PRIORITY_LENT,	/* pid, a: who lends it or 0 when it is given back, b: prio in force */
	RECORD_PEERS,		/* a and b: channels of the two directions of a connection */
	RECORD_REST,		/* sends that no pattern explains. pid, a: since when, b: bytes, from bit 40 on their number */
	RECORD_VRUNTIME,	/* pid, op: enum clock, a: value; after the switch at which the task comes or goes */
	RECORD_CACHE_USE,	/* pid, a: references, b: misses; before the switch at which the task goes */
};

/* What a class counts a task's CPU time by. */
enum clock {
	CLOCK_UNKNOWN,
	CLOCK_FAIR,	/* se.vruntime */
	CLOCK_EXT,	/* scx.dsq_vtime, if the scheduler keeps any */
};

/* Numbered as the model's Operation. */
enum operation {
	OP_PIPE_READ,
	OP_PIPE_WRITE,
	OP_SOCKET_RECEIVE,
	OP_SOCKET_SEND,
	OP_FUTEX_WAIT,
	OP_FUTEX_WAKE,
	OP_POLL,
	OP_EPOLL_WAIT,
	OP_SLEEP_RELATIVE,
	OP_SLEEP_ABSOLUTE,
	OP_WAIT_CHILD,
	OP_YIELD,
	OP_OTHER_IO,
};

/* Numbered as the model's ChannelKind; NONE has no identity. */
enum channel_kind {
	CHANNEL_PIPE,
	CHANNEL_SOCKET,
	CHANNEL_FUTEX,
	CHANNEL_EPOLL,
	CHANNEL_OTHER,
	CHANNEL_NONE,
};

/* What a system call is, told by the reader for each number of its architecture. */
enum syscall_class {
	CLASS_NONE,
	CLASS_READ,		/* fd, buffer, bytes */
	CLASS_WRITE,
	CLASS_READ_VECTOR,	/* fd, vector */
	CLASS_WRITE_VECTOR,
	CLASS_FUTEX,		/* address, operation */
	CLASS_FUTEX_WAIT,	/* address */
	CLASS_FUTEX_WAKE,
	CLASS_POLL_MS,		/* descriptors, number, timeout in ms */
	CLASS_POLL_TIMESPEC,	/* descriptors, number, timespec */
	CLASS_SELECT,		/* number, three sets, timeval */
	CLASS_SELECT_TIMESPEC,
	CLASS_EPOLL_MS,		/* epoll, events, number, timeout in ms */
	CLASS_EPOLL_TIMESPEC,
	CLASS_NANOSLEEP,	/* timespec */
	CLASS_CLOCK_NANOSLEEP,	/* clock, flags, timespec */
	CLASS_WAIT,
	CLASS_YIELD,
	CLASS_OTHER,		/* fd; may wait */
	CLASS_SET_ATTRIBUTES,	/* task or 0; neither waits nor wakes, as what follows */
	CLASS_SET_PRIORITY,	/* 0, task or 0 */
};

#define SYSCALLS_MAX 512

/* Fixed before loading. */
struct recorder_config {
	u32 ring_records;	/* for each CPU; a power of two */
	u32 ring_shift;		/* its logarithm */
	u8 classes[SYSCALLS_MAX];
	u8 vruntime;		/* tell the target's virtual runtimes */
	u8 caches;		/* tell the target's use of caches */
};

/* How operations are told that neither wait nor wake. */
enum telling {
	TELLING_RETURNS,	/* each at its return */
	TELLING_SENDS,		/* sends by a hook, reads by a hook or from I/O accounting */
	TELLING_PATTERNS,	/* sends from I/O accounting and their task's pattern, reads from accounting */
};

/* Changed while recording. */
struct recorder_control {
	u32 telling;
	u32 receives;	/* while telling sends: reads come by a hook as well */
	u32 phase;	/* how often telling by patterns has begun */
};

#define SENDS_MAX 8
#define PATTERN_MAX 32
/* Sends of one run record: more are a mistake. */
#define RUN_MAX (1 << 20)
/* Each send of a run was seen to follow the pattern. */
#define RUN_SEEN 1

/*
 * One CPU's ring: its own line for each side. What is counted here decides how much is told: additions are plain, and what an
 * interrupt adds in between may be lost.
 */
struct ring {
	u64 head;
	u64 dropped;
	u64 returns;		/* operations of the target: returns, or writes found in accounting */
	u64 sockets;		/* of which took from or gave to a socket */
	u32 in_hardirq;		/* a handler is in progress */
	u32 in_softirq;
	u64 writes;		/* of returns, those that sent or wrote */
	u64 expected;		/* of which followed a pattern that holds */
	u64 reads_unsure;	/* reads that accounting could not tell, or not of which channel */
	u64 tail;		/* written by the reader */
	u64 pad[7];
	/* While telling sends: the current task's that are not told yet, and what its sends may skip. */
	u64 sends[SENDS_MAX];
	u64 sends_since;
	u64 read_calls;		/* of its I/O accounting when last told */
	u32 sends_count;
	u32 fast;		/* it is a target without an open operation */
	u64 since;		/* when the current task was last looked at, or switched in */
	u64 references;		/* of its cache, as its counters showed them when the current task came */
	u64 misses;
	u64 caches_read;	/* they showed something then */
	u64 alone;		/* no interrupt can come between what the running program does to the ring */
};

#endif
