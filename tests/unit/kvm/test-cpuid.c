/* SPDX-License-Identifier: BSD-2-Clause */
/* May a guest that was shown this CPU run on that one?  And what -cpu takes away. */
#include "accel/kvm/kvm-internal.h"
#include "util/error.h"

#include <string.h>

/* A small CPU: vendor, features of leaf 1 and 7, extended state with AVX, long mode. */
static const KvmCpuid sample = {
    .cpus = 2, .tsc_khz = 2000000, .count = 7,
    .entries = {
        { .function = 0, .eax = 0xd, .ebx = 0x756e6547, .ecx = 0x6c65746e, .edx = 0x49656e69 },
        { .function = 1, .ecx = 0x1c982203, .edx = 0x078bfbff },
        { .function = 7, .flags = 1, .ebx = 0x29 },
        { .function = 0xd, .index = 0, .flags = 1, .eax = 7 },
        { .function = 0xd, .index = 2, .flags = 1, .eax = 256, .ebx = 576 },
        { .function = 0x80000001, .ecx = 0x21, .edx = 0x2c100800 },
        { .function = 0x40000001, .eax = 0x01000008 },
    },
};

static KvmCpuidEntry *entry(KvmCpuid *c, uint32_t function, uint32_t index)
{
    KvmCpuidEntry *e = kvm_cpuid_find(c, function, index);
    g_assert_nonnull(e);
    return e;
}

static void assert_refused(const KvmCpuid *shown, const KvmCpuid *here, const char *why)
{
    g_autoptr(GError) error = NULL;
    g_assert_false(kvm_cpuid_check(shown, here, &error));
    g_assert_nonnull(error);
    g_assert_nonnull(strstr(error->message, why));
}

static void test_same(void)
{
    g_autoptr(GError) error = NULL;
    g_assert_true(kvm_cpuid_check(&sample, &sample, &error));
    g_assert_no_error(error);
}

static void test_more_is_fine(void)
{
    KvmCpuid here = sample;
    entry(&here, 1, 0)->ecx |= 1u << 25;
    entry(&here, 7, 0)->ebx |= 1u << 16;
    here.entries[here.count++] = (KvmCpuidEntry){ .function = 7, .index = 1, .flags = 1, .eax = 0x10 };
    g_assert_true(kvm_cpuid_check(&sample, &here, NULL));
    assert_refused(&here, &sample, "aes");
}

static void test_missing_feature(void)
{
    static const struct {
        uint32_t function, index;
        size_t offset;
        uint32_t bit;
        const char *says;
    } rows[] = {
        { 1, 0, offsetof(KvmCpuidEntry, ecx), 1u << 28, "avx (CPUID 0x1.0 ECX bit 28)" },
        { 1, 0, offsetof(KvmCpuidEntry, edx), 1u << 26, "sse2 (CPUID 0x1.0 EDX bit 26)" },
        { 7, 0, offsetof(KvmCpuidEntry, ebx), 1u << 5, "avx2 (CPUID 0x7.0 EBX bit 5)" },
        { 0xd, 0, offsetof(KvmCpuidEntry, eax), 1u << 2, "CPUID 0xd.0 EAX bit 2" },
        { 0x80000001, 0, offsetof(KvmCpuidEntry, edx), 1u << 29, "lm (CPUID 0x80000001.0 EDX bit 29)" },
        { 0x40000001, 0, offsetof(KvmCpuidEntry, eax), 1u << 3, "kvmclock" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        KvmCpuid here = sample;
        uint32_t *word = (uint32_t *)((char *)entry(&here, rows[i].function, rows[i].index) + rows[i].offset);
        g_assert_true(*word & rows[i].bit);
        *word &= ~rows[i].bit;
        assert_refused(&sample, &here, rows[i].says);
        g_assert_true(kvm_cpuid_check(&here, &sample, NULL));
    }
}

static void test_missing_leaf(void)
{
    KvmCpuid here = sample;
    entry(&here, 7, 0)->function = 0x55;
    assert_refused(&sample, &here, "fsgsbase (CPUID 0x7.0 EBX bit 0)");
}

static void test_other(void)
{
    KvmCpuid here = sample;
    here.cpus = 3;
    assert_refused(&sample, &here, "2 vCPUs, this machine has 3");

    here = sample;
    memcpy(&here.entries[0].ebx, "Auth", 4);
    assert_refused(&sample, &here, "another vendor");

    here = sample;
    entry(&here, 0xd, 2)->ebx = 640;
    assert_refused(&sample, &here, "component 2 has 256 bytes at 576, here 256 bytes at 640");

    KvmCpuid shown = sample;
    shown.count = KVM_CPUID_MAX + 1;
    assert_refused(&shown, &sample, "at most 160");
}

static void test_model(void)
{
    g_autoptr(GError) error = NULL;
    KvmCpuid c = sample;

    g_assert_true(kvm_cpuid_apply_model(&c, NULL, &error));
    g_assert_true(kvm_cpuid_apply_model(&c, "host", &error));
    g_assert_true(kvm_cpuid_apply_model(&c, "max", &error));
    g_assert_cmpmem(&c, sizeof(c), &sample, sizeof(sample));

    g_assert_true(kvm_cpuid_apply_model(&c, "host,-avx2,sse2=off", &error));
    g_assert_cmphex(entry(&c, 7, 0)->ebx, ==, 0x09);
    g_assert_cmphex(entry(&c, 1, 0)->edx, ==, 0x038bfbff);
    g_assert_cmphex(entry(&c, 1, 0)->ecx, ==, 0x1c982203);
    assert_refused(&sample, &c, "sse2");

    /* Where the leaf is missing there is nothing to take away. */
    g_assert_true(kvm_cpuid_apply_model(&c, "host,-avx-vnni", &error));
}

static void test_bad_model(void)
{
    static const char *const bad[] = { "", "qemu64", "Host", "host,", "host,avx2", "host,+avx2", "host,-",
                                       "host,-avx3", "host,avx2=on", "host,=off" };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        KvmCpuid c = sample;
        g_assert_false(kvm_cpuid_apply_model(&c, bad[i], &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/kvm-cpuid/same", test_same);
    g_test_add_func("/kvm-cpuid/more-is-fine", test_more_is_fine);
    g_test_add_func("/kvm-cpuid/missing-feature", test_missing_feature);
    g_test_add_func("/kvm-cpuid/missing-leaf", test_missing_leaf);
    g_test_add_func("/kvm-cpuid/other", test_other);
    g_test_add_func("/kvm-cpuid/model", test_model);
    g_test_add_func("/kvm-cpuid/bad-model", test_bad_model);
    return g_test_run();
}
