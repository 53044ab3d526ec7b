/* SPDX-License-Identifier: BSD-2-Clause */
/* Which values are good, and what goes together: pure functions of a whole set of options. */
#include "migration/option-store.h"
#include "util/error.h"

#include <inttypes.h>
#include <string.h>

static bool invalid(GError **errp, const char *message)
{
    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, message);
    return false;
}

/* ---- ranges ---- */

/*
 * The table of the schema has the numbers; here are the options whose message is not of the common form
 * "Option NAME expects a value between MIN and MAX", and those that want a power of two.
 */
static const struct {
    const char *name;
    const char *message;
    bool power_of_two;
} special_ranges[] = {
    /* The lowest good value is 1; the message is known to clients as it is. */
    {"announce-step", "Option announce-step expects a value between 0 and 10000", false},
    {"throttle-trigger-threshold",
     "Option throttle-trigger-threshold expects an integer in the range of 1 to 100", false},
    {"cpu-throttle-initial", "Option cpu-throttle-initial expects an integer in the range of 1 to 99", false},
    {"cpu-throttle-increment", "Option cpu-throttle-increment expects an integer in the range of 1 to 99",
     false},
    {"max-cpu-throttle",
     "Option max-cpu-throttle expects an integer in the range of cpu-throttle-initial to 99", false},
    {"downtime-limit", "Option downtime-limit expects an integer in the range of 0 to (2000 * 1000) ms",
     false},
    {"xbzrle-cache-size", "Option xbzrle-cache-size expects a power of two no less than the target page size",
     true},
    {"vcpu-dirty-limit", "Parameter 'vcpu-dirty-limit' must be greater than 1 MB/s", false},
    {"x-rdma-chunk-size", "Option x_rdma_chunk_size expects a power of 2 in the range 1MiB to 1024MiB", true},
};

static bool check_range(const QapiOption *opt, const MigrationParameters *p, GError **errp)
{
    uint64_t value = migration_option_number(opt, p);
    bool in_range = value >= opt->min && value <= opt->max;

    for (size_t i = 0; i < G_N_ELEMENTS(special_ranges); i++) {
        if (strcmp(special_ranges[i].name, opt->name) == 0) {
            bool good = in_range && (!special_ranges[i].power_of_two || (value & (value - 1)) == 0);

            return good || invalid(errp, special_ranges[i].message);
        }
    }
    if (!in_range) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Option %s expects a value between %" PRIu64 " and %" PRIu64, opt->name, opt->min,
                    opt->max);
    }
    return in_range;
}

static bool is_number(const QapiOption *opt)
{
    return opt->type == QAPI_OPTION_UINT8 || opt->type == QAPI_OPTION_UINT32 ||
           opt->type == QAPI_OPTION_UINT64 || opt->type == QAPI_OPTION_SIZE;
}

static bool is_default(const QapiOption *opt, const MigrationParameters *p)
{
    const void *pointer;

    if (is_number(opt) || opt->type == QAPI_OPTION_BOOL || opt->type == QAPI_OPTION_ENUM) {
        return migration_option_number(opt, p) == opt->default_number;
    }
    pointer = *(void *const *)((const char *)p + opt->offset);
    if (opt->type == QAPI_OPTION_STR_OR_NULL) {
        return strcmp(((const StrOrNull *)pointer)->str, opt->default_str) == 0;
    }
    return !pointer || ((const QapiList *)pointer)->count == 0;
}

static bool check_supported(const QapiOption *opt, const MigrationParameters *p, GError **errp)
{
    if (!opt->unsupported || is_default(opt, p)) {
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                "Parameter '%s' is not supported yet: it can only have its default", opt->name);
    return false;
}

/* Names that QEMU knows, for hardware that nothing here drives. */
static bool check_compression(const MigrationParameters *p, GError **errp)
{
    switch (p->multifd_compression) {
    case MULTIFD_COMPRESSION_QATZIP:
    case MULTIFD_COMPRESSION_QPL:
    case MULTIFD_COMPRESSION_UADK:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "multifd-compression %s is not supported: use none, zlib or zstd",
                    MultiFDCompression_str(p->multifd_compression));
        return false;
    default:
        return true;
    }
}

bool migration_check_parameters(const MigrationParameters *p, bool allow_unsupported, GError **errp)
{
    for (const QapiOption *opt = MigrationParameters_options; opt->name; opt++) {
        if (is_number(opt) && !check_range(opt, p, errp)) {
            return false;
        }
    }
    if (p->max_cpu_throttle < p->cpu_throttle_initial) {
        return invalid(
            errp, "Option max-cpu-throttle expects an integer in the range of cpu-throttle-initial to 99");
    }
    if (!check_compression(p, errp)) {
        return false;
    }
    for (const QapiOption *opt = MigrationParameters_options; !allow_unsupported && opt->name; opt++) {
        if (!check_supported(opt, p, errp)) {
            return false;
        }
    }
    return true;
}

bool migration_unify_chunk_size(MigrationParameters *p, bool size_given, bool shift_given, GError **errp)
{
    if (size_given && shift_given && p->x_rdma_chunk_size != UINT64_C(1) << p->x_rdma_chunk_shift) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Options x-rdma-chunk-size (%" PRIu64
                    ") and x-rdma-chunk-shift (%u, which is a size of %" PRIu64
                    ") differ: they are one setting, a size of 2 to the power of a shift between 20 and 30",
                    p->x_rdma_chunk_size, p->x_rdma_chunk_shift, UINT64_C(1) << p->x_rdma_chunk_shift);
        return false;
    }
    if (shift_given) {
        p->x_rdma_chunk_size = UINT64_C(1) << p->x_rdma_chunk_shift;
    } else if (size_given) {
        p->x_rdma_chunk_shift = (uint8_t)__builtin_ctzll(p->x_rdma_chunk_size);
    }
    return true;
}

/* ---- capabilities ---- */

#define CAP(name) MIGRATION_CAPABILITY_##name

static bool compression_or_tls(const MigrationParameters *p)
{
    return p->multifd_compression != MULTIFD_COMPRESSION_NONE || *p->tls_creds->str;
}

static bool zero_copy_impossible(const bool *caps, const MigrationParameters *p)
{
    return !caps[CAP(MULTIFD)] || caps[CAP(XBZRLE)] || compression_or_tls(p);
}

static bool mapped_ram_impossible(const bool *caps, const MigrationParameters *p)
{
    return compression_or_tls(p);
}

/*
 * With @cap on, it is an error if capability @other is on (or, with @needed, off), or if @impossible says so.
 * The order decides which message is seen if several rules are broken.
 */
typedef struct CapabilityRule {
    MigrationCapability cap;
    MigrationCapability other;
    bool needed;
    bool (*impossible)(const bool *caps, const MigrationParameters *p);
    const char *message;
} CapabilityRule;

static const CapabilityRule first_rules[] = {
    { CAP(POSTCOPY_RAM), CAP(X_IGNORE_SHARED), false, NULL, "Postcopy is not compatible with ignore-shared" },
    { CAP(X_COLO), CAP(RETURN_PATH), true, NULL, "Capability 'x-colo' requires capability 'return-path'" },
};

static const CapabilityRule later_rules[] = {
    { CAP(ZERO_COPY_SEND), 0, false, zero_copy_impossible,
      "Zero copy only available for non-compressed non-TLS multifd migration" },
    { CAP(POSTCOPY_PREEMPT), CAP(POSTCOPY_RAM), true, NULL, "Postcopy preempt requires postcopy-ram" },
    { CAP(SWITCHOVER_ACK), CAP(RETURN_PATH), true, NULL,
      "Capability 'switchover-ack' requires capability 'return-path'" },
    { CAP(DIRTY_LIMIT), CAP(AUTO_CONVERGE), false, NULL,
      "dirty-limit conflicts with auto-converge either of then available currently" },
};

static const CapabilityRule last_rules[] = {
    { CAP(MULTIFD), CAP(XBZRLE), false, NULL, "Multifd is not compatible with xbzrle" },
    { CAP(MAPPED_RAM), CAP(XBZRLE), false, NULL, "Mapped-ram migration is incompatible with xbzrle" },
    { CAP(MAPPED_RAM), CAP(POSTCOPY_RAM), false, NULL, "Mapped-ram migration is incompatible with postcopy" },
    { CAP(MAPPED_RAM), 0, false, mapped_ram_impossible,
      "Mapped-ram only available for non-compressed non-TLS multifd migration" },
};

/* What a background snapshot does not go with. */
static const MigrationCapability not_with_background_snapshot[] = {
    CAP(POSTCOPY_RAM),   CAP(DIRTY_BITMAPS), CAP(POSTCOPY_BLOCKTIME), CAP(LATE_BLOCK_ACTIVATE),
    CAP(RETURN_PATH),    CAP(MULTIFD),       CAP(PAUSE_BEFORE_SWITCHOVER), CAP(AUTO_CONVERGE),
    CAP(RELEASE_RAM),    CAP(RDMA_PIN_ALL),  CAP(XBZRLE),             CAP(X_COLO),
    CAP(VALIDATE_UUID),  CAP(ZERO_COPY_SEND),
};

static bool check_rules(const CapabilityRule *rules, size_t n, const bool *caps, const MigrationParameters *p,
                        GError **errp)
{
    for (const CapabilityRule *r = rules; r < rules + n; r++) {
        bool broken = r->impossible ? r->impossible(caps, p) : caps[r->other] != r->needed;

        if (caps[r->cap] && broken) {
            return invalid(errp, r->message);
        }
    }
    return true;
}

static bool check_background_snapshot(const bool *caps, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(not_with_background_snapshot); i++) {
        MigrationCapability other = not_with_background_snapshot[i];

        if (caps[other]) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                        "Background-snapshot is not compatible with %s", MigrationCapability_str(other));
            return false;
        }
    }
    return true;
}

static bool check_capabilities_supported(const bool *caps, GError **errp)
{
    for (int i = 0; i < MIGRATION_CAPABILITY__MAX; i++) {
        if (caps[i] && MigrationCapability_options[i].unsupported) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "Capability '%s' is not supported yet",
                        MigrationCapability_str((MigrationCapability)i));
            return false;
        }
    }
    return true;
}

bool migration_check_rdma(const bool *caps, const MigrationParameters *p, const char *shared, GError **errp)
{
    static const struct {
        MigrationCapability cap;
        const char *message;
    } rules[] = {
        { CAP(MAPPED_RAM), "Migration requires seekable transport (e.g. file)" },
        { CAP(MULTIFD), "Migration requires multi-channel URIs (e.g. tcp)" },
        { CAP(POSTCOPY_PREEMPT), "Migration requires multi-channel URIs (e.g. tcp)" },
        { CAP(XBZRLE), "RDMA and XBZRLE can't be used together" },
        { CAP(POSTCOPY_RAM), "RDMA and postcopy-ram can't be used together" },
    };
    const char *message = *p->tls_creds->str ? "RDMA and TLS can't be used together" : NULL;

    for (size_t i = G_N_ELEMENTS(rules); i-- > 0;) {
        message = caps[rules[i].cap] ? rules[i].message : message;
    }
    if (message) {
        g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, message);
    } else if (caps[CAP(X_IGNORE_SHARED)] && shared) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "RDMA and x-ignore-shared can't be used together: RAM block '%s' is shared", shared);
        return false;
    }
    return !message;
}

static bool check_dirty_limit(const bool *caps, bool can_limit_dirtying, GError **errp)
{
    return !caps[CAP(DIRTY_LIMIT)] || can_limit_dirtying ||
           invalid(errp, "dirty-limit requires KVM with accelerator property 'dirty-ring-size' set");
}

bool migration_check_capabilities(const bool *caps, const MigrationParameters *p, bool allow_unsupported,
                                  bool can_limit_dirtying, GError **errp)
{
    return (allow_unsupported || check_capabilities_supported(caps, errp)) &&
           check_rules(first_rules, G_N_ELEMENTS(first_rules), caps, p, errp) &&
           (!caps[CAP(BACKGROUND_SNAPSHOT)] || check_background_snapshot(caps, errp)) &&
           check_rules(later_rules, G_N_ELEMENTS(later_rules), caps, p, errp) &&
           check_dirty_limit(caps, can_limit_dirtying, errp) &&
           check_rules(last_rules, G_N_ELEMENTS(last_rules), caps, p, errp);
}
