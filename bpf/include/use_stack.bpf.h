/* SPDX-License-Identifier: GPL-2.0-only */
/* For tests of the stack: frames as deep as a test needs them, whatever the compiler would make of variables. */
#ifndef SCHEDLAB_USE_STACK_BPF_H
#define SCHEDLAB_USE_STACK_BPF_H

/* The frame of the function around it is so many bytes deep. */
#define USE_STACK(bytes) asm volatile("*(u64 *)(r10 - %0) = 0" ::"i"(bytes) : "memory")

#endif
