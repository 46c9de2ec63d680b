/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a task sends, as a pattern: a small table of sends (channel, bytes), each with the one that came next
 * last time. It is learned while every send is told. When nearly all sends follow it, there is no need for a
 * hook in sends: the kernel counts a task's writes and their bytes anyway, and wherever a send wakes somebody
 * or waits its channel is seen and compared. Included by recorder.bpf.c; tells nothing itself. The larger
 * functions are global: verified once, whoever calls them.
 */
#ifndef SCHEDLAB_PATTERN_BPF_H
#define SCHEDLAB_PATTERN_BPF_H

#define PATTERN_NONE 0xff

struct pattern_entry {
	u64 channel;
	u32 bytes;
	u8 next;	/* position of the send that followed, or NONE */
	u8 told;	/* the reader knows this entry as it is */
	u8 joined;	/* it knows the connection's other direction */
	u8 pad;
};

struct pattern {
	struct pattern_entry entries[PATTERN_MAX];
	u8 count;
	u8 last;	/* position of the latest send, or NONE */
	u8 expected;	/* position of the next one, or NONE */
	u8 hits;	/* sends in a row that were expected */
	u8 untold;	/* some entry is not told; `even` is not known either */
	u8 pad[3];
	u32 even;	/* bytes of each send, if one goes round all entries in order and all are alike; else 0 */
	u64 sum;	/* bytes of the sends followed latest */
};

/* Where in the pattern the task is now is not known. */
static __always_inline void pattern_lose(struct pattern *pattern)
{
	pattern->last = PATTERN_NONE;
	pattern->expected = PATTERN_NONE;
}

static __always_inline void pattern_begin(struct pattern *pattern)
{
	pattern->count = 0;
	pattern->hits = 0;
	pattern_lose(pattern);
}

static __always_inline bool pattern_has(struct pattern *pattern, u32 at)
{
	return at < PATTERN_MAX && at < pattern->count;
}

/* The verifier must see the bound, which compilers would drop where they know it. */
static __always_inline struct pattern_entry *pattern_at(struct pattern *pattern, u32 at)
{
	barrier_var(at);
	return &pattern->entries[at & (PATTERN_MAX - 1)];
}

/* Whether the task has gone through its whole pattern as expected. */
static __always_inline bool pattern_holds(struct pattern *pattern)
{
	return pattern->count && pattern->hits > pattern->count;
}

/* The entry with this channel, and with these bytes unless they are 0. */
__noinline u32 pattern_find(struct pattern *pattern, u64 channel, u32 bytes)
{
	if (!pattern)
		return PATTERN_NONE;
	for (u32 i = 0; i < PATTERN_MAX; i++) {
		struct pattern_entry *entry = pattern_at(pattern, i);

		if (i >= pattern->count)
			break;
		if (entry->channel == channel && (!bytes || entry->bytes == bytes))
			return i;
	}
	return PATTERN_NONE;
}

/* A send was told: 1 if it was expected. */
__noinline int pattern_learn(struct pattern *pattern, u64 channel, u32 bytes)
{
	u32 expected, at, last;

	if (!pattern)
		return 0;
	if (!pattern->count)
		pattern_begin(pattern);
	expected = pattern->expected;
	last = pattern->last;
	if (pattern_has(pattern, expected) && pattern_at(pattern, expected)->channel == channel &&
	    pattern_at(pattern, expected)->bytes == bytes) {
		pattern->last = expected;
		pattern->expected = pattern_at(pattern, expected)->next;
		if (pattern->hits < 255)
			pattern->hits++;
		return 1;
	}
	pattern->hits = 0;
	pattern->untold = 1;
	at = pattern_find(pattern, channel, bytes);
	if (at >= PATTERN_MAX) {
		struct pattern_entry *entry;

		/* Too many to be a pattern: it begins anew. */
		if (pattern->count >= PATTERN_MAX)
			pattern_begin(pattern);
		last = pattern->last;
		at = pattern->count++;
		if (at >= PATTERN_MAX)
			return 0;
		entry = pattern_at(pattern, at);
		entry->channel = channel;
		entry->bytes = bytes;
		entry->next = PATTERN_NONE;
		entry->told = 0;
		entry->joined = 0;
	}
	if (last < PATTERN_MAX) {
		pattern_at(pattern, last)->next = at;
		pattern_at(pattern, last)->told = 0;
	}
	pattern->last = at;
	pattern->expected = pattern_at(pattern, at)->next;
	return 0;
}

/* Sends of the ring were seen: whether the pattern holds and each is the one expected. Then it goes on behind them. */
__noinline int pattern_explains(struct pattern *pattern, struct ring *ring, u32 count)
{
	u32 at, last = PATTERN_NONE;

	if (!pattern || !ring || !pattern_holds(pattern))
		return 0;
	at = pattern->expected;
	for (u32 i = 0; i < SENDS_MAX; i++) {
		u64 send = ring->sends[i];

		if (i >= count)
			break;
		if (!pattern_has(pattern, at) || pattern_at(pattern, at)->channel != send >> 32 ||
		    pattern_at(pattern, at)->bytes != (u32)send)
			return 0;
		last = at;
		at = pattern_at(pattern, at)->next;
	}
	pattern->last = last;
	pattern->expected = at;
	return 1;
}

/* Goes so many sends along the pattern, PATTERN_MAX at most, or until it is at `end` again. */
static __always_inline u32 pattern_walk(struct pattern *pattern, u32 sends, u32 end)
{
	u32 count = 0;

	for (u32 i = 0; i < PATTERN_MAX; i++) {
		u32 at = pattern->expected;

		if (i >= sends || !pattern_has(pattern, at) || (i && at == end))
			break;
		pattern->sum += pattern_at(pattern, at)->bytes;
		pattern->expected = pattern_at(pattern, at)->next;
		count++;
	}
	return count;
}

/* Follows the pattern for so many sends: how many there were, and in `sum` their bytes. */
__noinline u32 pattern_follow(struct pattern *pattern, u32 sends)
{
	u32 count, around;
	u64 before;

	if (!pattern)
		return 0;
	if (pattern->even && !pattern->untold && pattern_has(pattern, pattern->expected)) {
		pattern->sum = (u64)sends * pattern->even;
		pattern->expected = (pattern->expected + sends) % pattern->count;
		return sends;
	}
	pattern->sum = 0;
	/* Whatever precedes the cycle is shorter than the pattern; then one round of it tells all of them. */
	count = pattern_walk(pattern, sends, PATTERN_NONE);
	if (count == sends || count < PATTERN_MAX)
		return count;
	before = pattern->sum;
	around = pattern_walk(pattern, sends - count, pattern->expected);
	if (around) {
		u32 rounds = (sends - count) / around;

		pattern->sum = before + (pattern->sum - before) * rounds;
		count += around * rounds;
	}
	return count + pattern_walk(pattern, sends - count, PATTERN_NONE);
}

#endif
