/*
 * libbpf's header of this name for the machine's own code: what our schedulers take from it, without BPF.
 *
 * Which kernel functions exist is decided here as the loader decides it for the newest kernel.
 */
#ifndef NATIVE_BPF_HELPERS_H
#define NATIVE_BPF_HELPERS_H

#define SEC(name) __attribute__((used))
#define __ksym
#define __weak __attribute__((weak))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

#define bpf_ksym_exists(sym) HAS_##sym
#define HAS_scx_bpf_dsq_insert___v2___compat 1
#define HAS_scx_bpf_dsq_insert___v1 0
#define HAS_scx_bpf_dsq_insert_vtime___compat 0
#define HAS_scx_bpf_dsq_move_to_local___v2___compat 0
#define HAS_scx_bpf_dsq_move_to_local___v1 1
#define HAS_scx_bpf_dsq_move___v1 1
#define HAS_scx_bpf_dsq_move_vtime___v1 1
#define HAS_scx_bpf_select_cpu_and___compat 0
#define HAS_scx_bpf_task_set_slice 1
#define HAS_scx_bpf_task_set_dsq_vtime 1
#define HAS_scx_bpf_now 1
#define HAS_scx_bpf_cpu_curr 1
#define HAS_scx_bpf_dsq_peek 1

#define bpf_ktime_get_ns() 0
#define bpf_probe_read_kernel_str(to, size, from) ((void)(from))
#define bpf_for(i, start, end) for ((i) = (start); (i) < (end); (i)++)
#define bpf_for_each(type, cur, args...)                                                           \
	for (struct bpf_iter_##type ___it __attribute__((cleanup(bpf_iter_##type##_destroy))),     \
	     *___p = (bpf_iter_##type##_new(&___it, ##args), (void *)0);                           \
	     (void)___p, (cur = bpf_iter_##type##_next(&___it)) != (void *)0;)

#endif
