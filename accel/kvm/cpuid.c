/* SPDX-License-Identifier: BSD-2-Clause */
/* CPUID: what the guest is shown, and whether a guest that was shown this can run here. */
#include "kvm-internal.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>

#include "util/error.h"

#define BIT(n) (UINT32_C(1) << (n))

enum { EAX, EBX, ECX, EDX };
static const char *const register_names[] = { "EAX", "EBX", "ECX", "EDX" };

static uint32_t *reg(KvmCpuidEntry *e, unsigned r)
{
    uint32_t *const regs[] = { &e->eax, &e->ebx, &e->ecx, &e->edx };
    return regs[r];
}

KvmCpuidEntry *kvm_cpuid_find(KvmCpuid *cpuid, uint32_t function, uint32_t index)
{
    for (uint32_t i = 0; i < cpuid->count; i++) {
        KvmCpuidEntry *e = &cpuid->entries[i];
        bool indexed = e->flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
        if (e->function == function && (!indexed || e->index == index)) {
            return e;
        }
    }
    return NULL;
}

/* ---- features ---- */

/* The registers whose bits are features: what the guest was shown must all be there. */
static const struct {
    uint32_t function, index;
    unsigned reg;
} feature_words[] = {
    { 1, 0, ECX }, { 1, 0, EDX }, { 7, 0, EBX }, { 7, 0, ECX }, { 7, 0, EDX }, { 7, 1, EAX }, { 7, 1, EDX },
    { 7, 2, EDX }, { 0xd, 0, EAX }, { 0xd, 0, EDX }, { 0xd, 1, EAX }, { 0xd, 1, ECX }, { 0x19, 0, EBX },
    { 0x40000001, 0, EAX }, { 0x80000001, 0, ECX }, { 0x80000001, 0, EDX }, { 0x80000007, 0, EDX },
    { 0x80000008, 0, EBX }, { 0x80000021, 0, EAX },
};

/* Names of the field, for messages and for -cpu host,-NAME. */
static const struct {
    const char *name;
    uint32_t function, index;
    unsigned reg, bit;
} features[] = {
    { "pclmulqdq", 1, 0, ECX, 1 }, { "ssse3", 1, 0, ECX, 9 }, { "fma", 1, 0, ECX, 12 },
    { "cx16", 1, 0, ECX, 13 }, { "pcid", 1, 0, ECX, 17 }, { "sse4.1", 1, 0, ECX, 19 },
    { "sse4.2", 1, 0, ECX, 20 }, { "x2apic", 1, 0, ECX, 21 }, { "movbe", 1, 0, ECX, 22 },
    { "popcnt", 1, 0, ECX, 23 }, { "tsc-deadline", 1, 0, ECX, 24 }, { "aes", 1, 0, ECX, 25 },
    { "xsave", 1, 0, ECX, 26 }, { "avx", 1, 0, ECX, 28 }, { "f16c", 1, 0, ECX, 29 },
    { "rdrand", 1, 0, ECX, 30 }, { "sse3", 1, 0, ECX, 0 }, { "fpu", 1, 0, EDX, 0 }, { "tsc", 1, 0, EDX, 4 },
    { "msr", 1, 0, EDX, 5 }, { "pae", 1, 0, EDX, 6 }, { "cx8", 1, 0, EDX, 8 }, { "apic", 1, 0, EDX, 9 },
    { "sep", 1, 0, EDX, 11 }, { "cmov", 1, 0, EDX, 15 }, { "pat", 1, 0, EDX, 16 },
    { "clflush", 1, 0, EDX, 19 }, { "mmx", 1, 0, EDX, 23 }, { "fxsr", 1, 0, EDX, 24 },
    { "sse", 1, 0, EDX, 25 }, { "sse2", 1, 0, EDX, 26 }, { "fsgsbase", 7, 0, EBX, 0 },
    { "tsc-adjust", 7, 0, EBX, 1 }, { "bmi1", 7, 0, EBX, 3 }, { "hle", 7, 0, EBX, 4 },
    { "avx2", 7, 0, EBX, 5 }, { "smep", 7, 0, EBX, 7 }, { "bmi2", 7, 0, EBX, 8 }, { "erms", 7, 0, EBX, 9 },
    { "invpcid", 7, 0, EBX, 10 }, { "rtm", 7, 0, EBX, 11 }, { "avx512f", 7, 0, EBX, 16 },
    { "avx512dq", 7, 0, EBX, 17 }, { "rdseed", 7, 0, EBX, 18 }, { "adx", 7, 0, EBX, 19 },
    { "smap", 7, 0, EBX, 20 }, { "clflushopt", 7, 0, EBX, 23 }, { "clwb", 7, 0, EBX, 24 },
    { "avx512cd", 7, 0, EBX, 28 }, { "sha-ni", 7, 0, EBX, 29 }, { "avx512bw", 7, 0, EBX, 30 },
    { "avx512vl", 7, 0, EBX, 31 }, { "umip", 7, 0, ECX, 2 }, { "pku", 7, 0, ECX, 3 },
    { "gfni", 7, 0, ECX, 8 }, { "vaes", 7, 0, ECX, 9 }, { "vpclmulqdq", 7, 0, ECX, 10 },
    { "avx512vnni", 7, 0, ECX, 11 }, { "la57", 7, 0, ECX, 16 }, { "rdpid", 7, 0, ECX, 22 },
    { "fsrm", 7, 0, EDX, 4 }, { "md-clear", 7, 0, EDX, 10 }, { "spec-ctrl", 7, 0, EDX, 26 },
    { "stibp", 7, 0, EDX, 27 }, { "arch-capabilities", 7, 0, EDX, 29 }, { "ssbd", 7, 0, EDX, 31 },
    { "avx-vnni", 7, 1, EAX, 4 }, { "xsaveopt", 0xd, 1, EAX, 0 }, { "xsavec", 0xd, 1, EAX, 1 },
    { "xgetbv1", 0xd, 1, EAX, 2 }, { "xsaves", 0xd, 1, EAX, 3 }, { "lahf-lm", 0x80000001, 0, ECX, 0 },
    { "abm", 0x80000001, 0, ECX, 5 }, { "sse4a", 0x80000001, 0, ECX, 6 },
    { "3dnowprefetch", 0x80000001, 0, ECX, 8 }, { "syscall", 0x80000001, 0, EDX, 11 },
    { "nx", 0x80000001, 0, EDX, 20 }, { "pdpe1gb", 0x80000001, 0, EDX, 26 },
    { "rdtscp", 0x80000001, 0, EDX, 27 }, { "lm", 0x80000001, 0, EDX, 29 },
    { "invtsc", 0x80000007, 0, EDX, 8 }, { "kvmclock", 0x40000001, 0, EAX, 3 },
    { "kvm-steal-time", 0x40000001, 0, EAX, 5 }, { "kvm-pv-eoi", 0x40000001, 0, EAX, 6 },
};

static char *describe_feature(uint32_t function, uint32_t index, unsigned r, unsigned bit)
{
    const char *name = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(features) && !name; i++) {
        if (features[i].function == function && features[i].index == index && features[i].reg == r &&
            features[i].bit == bit) {
            name = features[i].name;
        }
    }
    return g_strdup_printf("%s%sCPUID 0x%x.%u %s bit %u%s", name ? name : "", name ? " (" : "", function,
                           index, register_names[r], bit, name ? ")" : "");
}

/* ---- may the guest run here? ---- */

static bool check_word(KvmCpuid *shown, KvmCpuid *here, uint32_t function, uint32_t index, unsigned r,
                       GError **errp)
{
    KvmCpuidEntry *want = kvm_cpuid_find(shown, function, index);
    KvmCpuidEntry *have = kvm_cpuid_find(here, function, index);
    uint32_t missing = want ? *reg(want, r) & ~(have ? *reg(have, r) : 0) : 0;

    if (missing) {
        g_autofree char *what = describe_feature(function, index, r, (unsigned)__builtin_ctz(missing));
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "the guest was shown the CPU feature %s, which this host does not have", what);
        return false;
    }
    return true;
}

/* Where a component of the extended state lies in the image is the same on all CPUs of a kind only. */
static bool check_xsave_layout(KvmCpuid *shown, KvmCpuid *here, GError **errp)
{
    for (uint32_t i = 2; i < 63; i++) {
        KvmCpuidEntry *want = kvm_cpuid_find(shown, 0xd, i);
        KvmCpuidEntry *have = kvm_cpuid_find(here, 0xd, i);
        if (want && want->eax && (!have || have->eax != want->eax || have->ebx != want->ebx)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "the guest's extended state component %u has %u bytes at %u, here %u bytes at %u", i,
                        want->eax, want->ebx, have ? have->eax : 0, have ? have->ebx : 0);
            return false;
        }
    }
    return true;
}

static bool check_vendor(KvmCpuid *shown, KvmCpuid *here, GError **errp)
{
    KvmCpuidEntry *want = kvm_cpuid_find(shown, 0, 0);
    KvmCpuidEntry *have = kvm_cpuid_find(here, 0, 0);

    if (!want || !have || want->ebx != have->ebx || want->ecx != have->ecx || want->edx != have->edx) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "the guest was shown a CPU of another vendor than this host's");
        return false;
    }
    return true;
}

bool kvm_cpuid_check(const KvmCpuid *from, const KvmCpuid *at, GError **errp)
{
    g_autofree KvmCpuid *shown = g_memdup2(from, sizeof(*from));
    g_autofree KvmCpuid *here = g_memdup2(at, sizeof(*at));

    if (shown->count > KVM_CPUID_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "%u CPUID entries, at most %d are possible",
                    shown->count, KVM_CPUID_MAX);
        return false;
    }
    if (shown->cpus != here->cpus) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "the guest has %u vCPUs, this machine has %u",
                    shown->cpus, here->cpus);
        return false;
    }
    if (!check_vendor(shown, here, errp)) {
        return false;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(feature_words); i++) {
        if (!check_word(shown, here, feature_words[i].function, feature_words[i].index, feature_words[i].reg,
                        errp)) {
            return false;
        }
    }
    return check_xsave_layout(shown, here, errp);
}

/* ---- what the guest is shown ---- */

/* Features that this program does not carry over, or that need more of it than the kernel's word. */
static const struct {
    uint32_t function, index;
    unsigned reg;
    uint32_t bits;
} taken_away[] = {
    { 1, 0, ECX, BIT(3) | BIT(5) | BIT(15) },           /* monitor, vmx, pdcm */
    { 0x80000001, 0, ECX, BIT(2) | BIT(10) | BIT(15) }, /* svm, ibs, lwp */
    { 0x80000001, 0, ECX, BIT(22) | BIT(23) | BIT(24) | BIT(28) }, /* topology and counters of AMD */
    { 7, 0, EBX, BIT(2) | BIT(25) },                    /* sgx, pt */
    { 7, 0, ECX, BIT(30) },                             /* sgx-lc */
    { 7, 0, EDX, BIT(22) | BIT(24) | BIT(25) | BIT(19) }, /* amx, arch-lbr */
    { 7, 1, EAX, BIT(21) },                             /* amx-fp16 */
    { 0xd, 0, EAX, BIT(17) | BIT(18) },                 /* amx */
    { 0xd, 1, ECX, UINT32_MAX },                        /* supervisor state */
    { 0x40000001, 0, EAX, BIT(4) | BIT(10) | BIT(14) }, /* page faults that are answered later */
};

/* Leaves without meaning for such a guest, or written anew: counters, topology, tracing, enclaves, AMX. */
static const uint32_t dropped_leaves[] = {
    0xa, 0xb, 0x12, 0x14, 0x1c, 0x1d, 0x1e, 0x1f, 0x23, 0x8000001e, 0x8000001f, 0x80000022, 0x80000026,
};

static bool dropped(const struct kvm_cpuid_entry2 *e)
{
    for (size_t i = 0; i < G_N_ELEMENTS(dropped_leaves); i++) {
        if (e->function == dropped_leaves[i]) {
            return true;
        }
    }
    return e->function == 0xd && (e->index == 17 || e->index == 18);
}

static bool read_supported(Kvm *kvm, KvmCpuid *cpuid, GError **errp)
{
    g_autofree struct kvm_cpuid2 *list =
        g_malloc0(sizeof(*list) + 256 * sizeof(struct kvm_cpuid_entry2));

    list->nent = 256;
    if (!KVM_IOCTL(kvm->fd, KVM_GET_SUPPORTED_CPUID, list, errp)) {
        return false;
    }
    for (uint32_t i = 0; i < list->nent; i++) {
        const struct kvm_cpuid_entry2 *e = &list->entries[i];
        if (dropped(e)) {
            continue;
        }
        if (cpuid->count == KVM_CPUID_MAX - 2) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "KVM_GET_SUPPORTED_CPUID has more entries than the %d that can be carried over",
                        KVM_CPUID_MAX - 2);
            return false;
        }
        cpuid->entries[cpuid->count++] = (KvmCpuidEntry){
            e->function, e->index, e->flags, e->eax, e->ebx, e->ecx, e->edx,
        };
    }
    return true;
}

static void take_away(KvmCpuid *cpuid)
{
    for (size_t i = 0; i < G_N_ELEMENTS(taken_away); i++) {
        KvmCpuidEntry *e = kvm_cpuid_find(cpuid, taken_away[i].function, taken_away[i].index);
        if (e) {
            *reg(e, taken_away[i].reg) &= ~taken_away[i].bits;
        }
    }
}

/* One socket, a core for each vCPU, no threads. */
static void set_topology(KvmCpuid *cpuid, unsigned cpus)
{
    unsigned bits = 0;
    while ((1u << bits) < cpus) {
        bits++;
    }
    for (uint32_t i = 0; i < cpuid->count; i++) {
        KvmCpuidEntry *e = &cpuid->entries[i];
        if (e->function == 1) {
            e->ebx = (e->ebx & 0xff00) | cpus << 16;
            e->edx = cpus > 1 ? e->edx | BIT(28) : e->edx & ~BIT(28);
        } else if ((e->function == 4 || e->function == 0x8000001d) && (e->eax & 0x1f)) {
            unsigned level = e->eax >> 5 & 7;
            e->eax &= 0x3fff;
            e->eax |= (level == 3 ? cpus - 1 : 0) << 14;
            e->eax |= e->function == 4 ? ((1u << bits) - 1) << 26 : 0;
        } else if (e->function == 0x80000001) {
            e->ecx = cpus > 1 ? e->ecx | BIT(1) : e->ecx & ~BIT(1);
        } else if (e->function == 0x80000008) {
            e->ecx = (cpus - 1) | bits << 12;
        }
    }
    KvmCpuidEntry *last = kvm_cpuid_find(cpuid, 0, 0);
    if (last && last->eax < 0xb) {
        return;
    }
    cpuid->entries[cpuid->count++] = (KvmCpuidEntry){
        0xb, 0, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, 0, 1, 0x100, 0,
    };
    cpuid->entries[cpuid->count++] = (KvmCpuidEntry){
        0xb, 1, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, bits, cpus, 0x201, 0,
    };
}

static bool take_by_name(KvmCpuid *cpuid, const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(features); i++) {
        if (strcmp(features[i].name, name) == 0) {
            KvmCpuidEntry *e = kvm_cpuid_find(cpuid, features[i].function, features[i].index);
            if (e) {
                *reg(e, features[i].reg) &= ~BIT(features[i].bit);
            }
            return true;
        }
    }
    return false;
}

bool kvm_cpuid_apply_model(KvmCpuid *cpuid, const char *model, GError **errp)
{
    g_auto(GStrv) words = g_strsplit(model ? model : "host", ",", -1);

    if (!words[0] || (strcmp(words[0], "host") != 0 && strcmp(words[0], "max") != 0)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "unable to find CPU model '%s'; there are 'host' and 'max'", words[0] ? words[0] : "");
        return false;
    }
    for (char **word = words + 1; *word; word++) {
        g_autofree char *name = NULL;

        if ((*word)[0] == '-') {
            name = g_strdup(*word + 1);
        } else if (g_str_has_suffix(*word, "=off")) {
            name = g_strndup(*word, strlen(*word) - strlen("=off"));
        }
        if (!name || !take_by_name(cpuid, name)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                        "'-cpu ...,%s' makes no sense: features can be taken away, -NAME or NAME=off, if "
                        "their name is known", *word);
            return false;
        }
    }
    return true;
}

bool kvm_cpuid_init(Kvm *kvm, KvmCpuid *cpuid, unsigned cpus, const char *model, GError **errp)
{
    cpuid->cpus = cpus;
    if (!read_supported(kvm, cpuid, errp)) {
        return false;
    }
    take_away(cpuid);
    KvmCpuidEntry *features1 = kvm_cpuid_find(cpuid, 1, 0);
    if (features1) {
        features1->ecx |= BIT(31);      /* there is a hypervisor */
        if (ioctl(kvm->fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0) {
            features1->ecx |= BIT(24);
        }
    }
    set_topology(cpuid, cpus);
    return kvm_cpuid_apply_model(cpuid, model, errp);
}

bool kvm_cpuid_set(KvmVcpu *v, GError **errp)
{
    const KvmCpuid *cpuid = &v->kvm->cpuid;
    g_autofree struct kvm_cpuid2 *list =
        g_malloc0(sizeof(*list) + KVM_CPUID_MAX * sizeof(struct kvm_cpuid_entry2));

    list->nent = cpuid->count;
    for (uint32_t i = 0; i < cpuid->count; i++) {
        const KvmCpuidEntry *e = &cpuid->entries[i];
        list->entries[i] = (struct kvm_cpuid_entry2){
            .function = e->function, .index = e->index, .flags = e->flags,
            .eax = e->eax, .ebx = e->ebx, .ecx = e->ecx, .edx = e->edx,
        };
        if (e->function == 1) {
            list->entries[i].ebx |= v->index << 24;
        } else if (e->function == 0xb) {
            list->entries[i].edx = v->index;
        }
    }
    return KVM_IOCTL(v->fd, KVM_SET_CPUID2, list, errp);
}
