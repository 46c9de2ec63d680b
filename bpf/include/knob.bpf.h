/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Settings of a scheduler that schedlab finds, checks and changes.
 *
 * A knob is a global variable with a declaration tag
 *
 *     knob:unit=ns,min=100000,max=1000000000,live;Meaning in one sentence.
 *
 * up to the first semicolon a list of NAME=VALUE and flags, after it the meaning. Known names: unit (ns,
 * us, ms, percent, tasks, bool, weight, ...), min, max (inclusive, decimal). The flag `live` says that a
 * running scheduler heeds a change: such a knob lies in .data. Without it the value is fixed at load and
 * lies in .rodata, where the verifier treats it as a constant.
 */
#ifndef SCHEDLAB_KNOB_BPF_H
#define SCHEDLAB_KNOB_BPF_H

#define ___KNOB_STR(x) #x

/* KNOB(u64, slice_ns, 20000000, ns, 100000, 1000000000, "Longest time ...") */
#define KNOB(type, name, value, unit, min, max, meaning)                                           \
	volatile type name __attribute__((section(".data"), btf_decl_tag("knob:unit=" ___KNOB_STR(unit)  \
		",min=" ___KNOB_STR(min) ",max=" ___KNOB_STR(max) ",live;" meaning))) = value

/* The same, fixed when the scheduler is loaded. */
#define KNOB_FIXED(type, name, value, unit, min, max, meaning)                                     \
	const volatile type name __attribute__((btf_decl_tag("knob:unit=" ___KNOB_STR(unit)        \
		",min=" ___KNOB_STR(min) ",max=" ___KNOB_STR(max) ";" meaning))) = value

#endif
