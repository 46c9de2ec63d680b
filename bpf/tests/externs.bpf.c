// SPDX-License-Identifier: GPL-2.0-only
/* Kernel functions present, absent, versioned and incompatible; kernel variables; configuration values. */
#include "../include/schedlab.bpf.h"

extern u64 test_present(u64 x) __ksym;
extern u64 test_absent(u64 x) __ksym __weak;
extern u64 test_versioned___v2___compat(u64 x, u64 y) __ksym __weak;
extern u64 test_versioned___v1(u64 x) __ksym __weak;
extern u64 test_incompatible(u64 x, u64 y) __ksym __weak;

struct test_object {
	int x;
};

extern const struct test_object test_variable __ksym;
extern const struct test_object test_variable_absent __ksym __weak;
extern const void test_untyped __ksym __weak;

extern int LINUX_KERNEL_VERSION __kconfig;
extern bool CONFIG_TEST_BOOL __kconfig __weak;
extern u64 CONFIG_TEST_WIDE __kconfig __weak;
extern u16 CONFIG_TEST_SHORT __kconfig __weak;
extern char CONFIG_TEST_TEXT[6] __kconfig __weak;

u64 out[16];

SEC("syscall")
int calls(void *ctx)
{
	out[0] = test_present(1);
	if (bpf_ksym_exists(test_absent))
		out[1] = test_absent(2);
	if (bpf_ksym_exists(test_versioned___v2___compat))
		out[2] = test_versioned___v2___compat(3, 4);
	else if (bpf_ksym_exists(test_versioned___v1))
		out[2] = test_versioned___v1(3);
	if (bpf_ksym_exists(test_incompatible))
		out[3] = test_incompatible(5, 6);
	return 0;
}

SEC("syscall")
int variables(void *ctx)
{
	out[4] = (u64)&test_variable;
	out[5] = (u64)&test_variable_absent;
	out[6] = (u64)&test_untyped;
	out[7] = LINUX_KERNEL_VERSION;
	out[8] = CONFIG_TEST_BOOL;
	out[9] = CONFIG_TEST_WIDE;
	out[10] = CONFIG_TEST_SHORT;
	out[11] = CONFIG_TEST_TEXT[1];
	return 0;
}
