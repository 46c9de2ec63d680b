/*
 * libbpf's header of this name for the machine's own code: a callback takes its arguments from the array it
 * is given, as in BPF.
 */
#ifndef NATIVE_BPF_TRACING_H
#define NATIVE_BPF_TRACING_H

#define ___COUNT(args...) ___COUNT_N(_, ##args, 5, 4, 3, 2, 1, 0)
#define ___COUNT_N(_0, _1, _2, _3, _4, _5, n, ...) n
#define ___JOIN(a, b) ___JOIN_(a, b)
#define ___JOIN_(a, b) a##b
#define ___CAST0()
#define ___CAST1(a) (void *)ctx[0]
#define ___CAST2(a, b) (void *)ctx[0], (void *)ctx[1]
#define ___CAST3(a, b, c) (void *)ctx[0], (void *)ctx[1], (void *)ctx[2]

#define BPF_PROG(name, args...)                                                                    \
	name(unsigned long long *ctx);                                                             \
	static inline __attribute__((always_inline)) typeof(name(0)) ____##name(args);             \
	typeof(name(0)) name(unsigned long long *ctx)                                              \
	{                                                                                          \
		return ____##name(___JOIN(___CAST, ___COUNT(args))(args));                         \
	}                                                                                          \
	static inline __attribute__((always_inline)) typeof(name(0)) ____##name(args)

#endif
