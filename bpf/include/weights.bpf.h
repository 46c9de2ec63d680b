/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights of nice values, for schedulers that share CPU time by them.
 */
#ifndef SCHEDLAB_WEIGHTS_BPF_H
#define SCHEDLAB_WEIGHTS_BPF_H

/*
 * Weights by static_prio, from `weight_prio_first` on: Linux's, exact, or the table that whoever loads the object
 * puts here. p->scx.weight is rounded to a scale of 1 to 10000 (nice 19 is a third off).
 */
#define WEIGHTS_MAX 64

const volatile u32 weight_of_prio[WEIGHTS_MAX] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548,  7620,  6100,  4904,  3906,  3121,  2501,  1991,  1586,  1277,
	1024,  820,   655,   526,   423,   335,   272,   215,   172,   137,
	110,   87,    70,    56,    45,    36,    29,    23,    18,    15,
};
const volatile u32 weight_prio_first = 100;

static __always_inline u32 weight_of(const struct task_struct *p)
{
	u32 index = p->static_prio - weight_prio_first;
	u32 weight = index < WEIGHTS_MAX ? weight_of_prio[index] : 0;

	return weight ? weight : 1024;
}

#endif
