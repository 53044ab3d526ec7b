/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the option store: ranges, cross checks in any order, the human syntax, globals. */
#include "migration/internal-options.h"
#include "qapi/qapi-options.h"
#include "util/error.h"

#include <string.h>

static MigrationOptionStore *open_store(void)
{
    MigrationOptionStore *store = migration_option_store_new();

    migration_option_store_allow_unsupported(store);
    return store;
}

static void assert_error(GError **error, const char *message)
{
    g_assert_nonnull(*error);
    g_assert_cmpstr((*error)->message, ==, message);
    g_assert_true((*error)->domain == GODWIT_ERROR);
    g_clear_error(error);
}

/* ---- ranges of parameters ---- */

typedef struct RangeCase {
    const char *name;
    uint64_t lowest, highest;       /* good ones */
    uint64_t too_low, too_high;     /* bad ones; equal to the good one: there is none */
    const char *message;            /* in the words of QEMU 11.1 */
} RangeCase;

static const RangeCase range_cases[] = {
    {"announce-initial", 0, 100000, 0, 100001,
     "Option announce-initial expects a value between 0 and 100000"},
    {"announce-max", 0, 100000, 0, 100001, "Option announce-max expects a value between 0 and 100000"},
    {"announce-rounds", 0, 1000, 0, 1001, "Option announce-rounds expects a value between 0 and 1000"},
    {"announce-step", 1, 10000, 0, 10001, "Option announce-step expects a value between 0 and 10000"},
    {"throttle-trigger-threshold", 1, 100, 0, 101,
     "Option throttle-trigger-threshold expects an integer in the range of 1 to 100"},
    {"cpu-throttle-initial", 1, 99, 0, 100,
     "Option cpu-throttle-initial expects an integer in the range of 1 to 99"},
    {"cpu-throttle-increment", 1, 99, 0, 100,
     "Option cpu-throttle-increment expects an integer in the range of 1 to 99"},
    {"max-cpu-throttle", 20, 99, 19, 100,
     "Option max-cpu-throttle expects an integer in the range of cpu-throttle-initial to 99"},
    {"max-bandwidth", 0, UINT64_MAX, 0, UINT64_MAX, NULL},
    {"avail-switchover-bandwidth", 0, UINT64_MAX, 0, UINT64_MAX, NULL},
    {"max-postcopy-bandwidth", 0, UINT64_MAX, 0, UINT64_MAX, NULL},
    {"downtime-limit", 0, 2000000, 0, 2000001,
     "Option downtime-limit expects an integer in the range of 0 to (2000 * 1000) ms"},
    {"x-checkpoint-delay", 0, UINT32_MAX, 0, UINT32_MAX, NULL},
    {"multifd-channels", 1, 255, 0, 255, "Option multifd-channels expects a value between 1 and 255"},
    {"multifd-zlib-level", 0, 9, 0, 10, "Option multifd-zlib-level expects a value between 0 and 9"},
    {"multifd-zstd-level", 0, 20, 0, 21, "Option multifd-zstd-level expects a value between 0 and 20"},
    {"multifd-qatzip-level", 1, 9, 0, 10, "Option multifd-qatzip-level expects a value between 1 and 9"},
    {"xbzrle-cache-size", 4096, UINT64_C(1) << 63, 2048, 12288,
     "Option xbzrle-cache-size expects a power of two no less than the target page size"},
    {"x-vcpu-dirty-limit-period", 1, 1000, 0, 1001,
     "Option x-vcpu-dirty-limit-period expects a value between 1 and 1000"},
    {"vcpu-dirty-limit", 1, UINT64_MAX, 0, UINT64_MAX,
     "Parameter 'vcpu-dirty-limit' must be greater than 1 MB/s"},
    {"x-rdma-chunk-size", 1048576, 1073741824, 524288, 3145728,
     "Option x_rdma_chunk_size expects a power of 2 in the range 1MiB to 1024MiB"},
    {"x-rdma-chunk-size", 1048576, 1073741824, 0, UINT64_C(2147483648),
     "Option x_rdma_chunk_size expects a power of 2 in the range 1MiB to 1024MiB"},
    {"x-rdma-chunk-shift", 20, 30, 19, 31, "Option x-rdma-chunk-shift expects a value between 20 and 30"},
};

static const QapiOption *option(const char *name)
{
    const QapiOption *opt = MigrationParameters_options;

    while (strcmp(opt->name, name) != 0) {
        opt++;
        g_assert_nonnull(opt->name);
    }
    return opt;
}

static size_t width(const QapiOption *opt)
{
    return opt->type == QAPI_OPTION_UINT8 ? 1 : opt->type == QAPI_OPTION_UINT32 ? 4 : 8;
}

/* Little endian and big endian alike: goes through the type. */
static void put(const QapiOption *opt, MigrationParameters *p, uint64_t value)
{
    char *at = (char *)p + opt->offset;

    switch (width(opt)) {
    case 1: *(uint8_t *)at = (uint8_t)value; break;
    case 4: *(uint32_t *)at = (uint32_t)value; break;
    default: *(uint64_t *)at = value; break;
    }
    *(bool *)((char *)p + opt->has_offset) = true;
}

static uint64_t get(const QapiOption *opt, const MigrationParameters *p)
{
    const char *at = (const char *)p + opt->offset;

    switch (width(opt)) {
    case 1: return *(const uint8_t *)at;
    case 4: return *(const uint32_t *)at;
    default: return *(const uint64_t *)at;
    }
}

static uint64_t stored(MigrationOptionStore *store, const char *name)
{
    g_autoptr(MigrationParameters) p = migration_get_parameters(store);

    return get(option(name), p);
}

static bool set_number(MigrationOptionStore *store, const char *name, uint64_t value, GError **errp)
{
    g_autoptr(MigrationParameters) p = g_new0(MigrationParameters, 1);

    put(option(name), p, value);
    return migration_set_parameters(store, p, errp);
}

static void test_range(gconstpointer data)
{
    const RangeCase *c = data;
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(GError) error = NULL;

    g_assert_true(set_number(store, c->name, c->lowest, &error));
    g_assert_cmpuint(stored(store, c->name), ==, c->lowest);
    g_assert_true(set_number(store, c->name, c->highest, &error));
    g_assert_cmpuint(stored(store, c->name), ==, c->highest);
    if (c->too_low != c->lowest) {
        g_assert_false(set_number(store, c->name, c->too_low, &error));
        assert_error(&error, c->message);
    }
    if (c->too_high != c->highest) {
        g_assert_false(set_number(store, c->name, c->too_high, &error));
        assert_error(&error, c->message);
    }
    g_assert_cmpuint(stored(store, c->name), ==, c->highest);
}

/* Every number with a range narrower than its type is among the cases above. */
static void test_ranges_complete(void)
{
    for (const QapiOption *opt = MigrationParameters_options; opt->name; opt++) {
        bool number = opt->type != QAPI_OPTION_BOOL && opt->type < QAPI_OPTION_ENUM;
        bool found = false;

        for (size_t i = 0; number && i < G_N_ELEMENTS(range_cases); i++) {
            found |= strcmp(range_cases[i].name, opt->name) == 0;
        }
        g_assert_true(found || !number);
    }
}

static void test_defaults(void)
{
    static const struct {
        const char *name;
        uint64_t value;
    } expected[] = {
        {"announce-initial", 50},
        {"announce-max", 550},
        {"announce-rounds", 5},
        {"announce-step", 100},
        {"throttle-trigger-threshold", 50},
        {"cpu-throttle-initial", 20},
        {"cpu-throttle-increment", 10},
        {"max-cpu-throttle", 99},
        {"max-bandwidth", 134217728},
        {"avail-switchover-bandwidth", 0},
        {"downtime-limit", 300},
        {"x-checkpoint-delay", 20000},
        {"multifd-channels", 2},
        {"multifd-zlib-level", 1},
        {"multifd-zstd-level", 1},
        {"multifd-qatzip-level", 1},
        {"xbzrle-cache-size", 67108864},
        {"max-postcopy-bandwidth", 0},
        {"x-vcpu-dirty-limit-period", 1000},
        {"vcpu-dirty-limit", 1},
        {"x-rdma-chunk-size", 1048576},
        {"x-rdma-chunk-shift", 20},
    };
    g_autoptr(MigrationOptionStore) store = migration_option_store_new();
    g_autoptr(MigrationParameters) p = migration_get_parameters(store);

    for (size_t i = 0; i < G_N_ELEMENTS(expected); i++) {
        g_assert_cmpuint(get(option(expected[i].name), p), ==, expected[i].value);
    }
    g_assert_false(p->cpu_throttle_tailslow);
    g_assert_false(p->direct_io);
    g_assert_cmpstr(p->tls_creds->str, ==, "");
    g_assert_cmpstr(p->tls_hostname->str, ==, "");
    g_assert_cmpstr(p->tls_authz->str, ==, "");
    g_assert_cmpint(p->mode, ==, MIG_MODE_NORMAL);
    g_assert_cmpint(p->multifd_compression, ==, MULTIFD_COMPRESSION_NONE);
    g_assert_cmpint(p->zero_page_detection, ==, ZERO_PAGE_DETECTION_MULTIFD);
    g_assert_cmpuint(p->cpr_exec_command->count, ==, 0);
    g_assert_null(p->block_bitmap_mapping);
    for (const QapiOption *opt = MigrationParameters_options; opt->name; opt++) {
        g_assert_true(opt->has_offset == SIZE_MAX || *(bool *)((char *)p + opt->has_offset));
    }
    for (int i = 0; i < MIGRATION_CAPABILITY__MAX; i++) {
        g_assert_false(migration_capability(store, (MigrationCapability)i));
    }
}

/* All or nothing: one bad member, and the good one before it is not set either. */
static void test_all_or_nothing(void)
{
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(MigrationParameters) p = g_new0(MigrationParameters, 1);
    g_autoptr(GError) error = NULL;

    p->has_announce_initial = true;
    p->announce_initial = 7;
    p->has_downtime_limit = true;
    p->downtime_limit = 2000001;
    g_assert_false(migration_set_parameters(store, p, &error));
    g_assert_cmpuint(stored(store, "announce-initial"), ==, 50);
    p->downtime_limit = 2000000;
    g_clear_error(&error);
    g_assert_true(migration_set_parameters(store, p, &error));
    g_assert_cmpuint(stored(store, "announce-initial"), ==, 7);
    g_assert_cmpuint(stored(store, "downtime-limit"), ==, 2000000);
}

/* cpu-throttle-initial above max-cpu-throttle: refused from either side, accepted when both move. */
static void test_throttle_pair(void)
{
    static const char message[] =
        "Option max-cpu-throttle expects an integer in the range of cpu-throttle-initial to 99";
    g_autoptr(MigrationOptionStore) store = migration_option_store_new();
    g_autoptr(MigrationParameters) p = g_new0(MigrationParameters, 1);
    g_autoptr(GError) error = NULL;

    g_assert_true(set_number(store, "max-cpu-throttle", 40, &error));
    g_assert_false(set_number(store, "cpu-throttle-initial", 41, &error));
    assert_error(&error, message);
    p->has_cpu_throttle_initial = p->has_max_cpu_throttle = true;
    p->cpu_throttle_initial = 41;
    p->max_cpu_throttle = 41;
    g_assert_true(migration_set_parameters(store, p, &error));
}

static void test_null_string(void)
{
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(MigrationParameters) p = g_new0(MigrationParameters, 1);
    g_autoptr(GError) error = NULL;

    g_assert_true(migration_set_parameter_string(store, "tls-creds", "tls0", &error));
    p->tls_creds = g_new0(StrOrNull, 1);
    p->tls_creds->is_null = true;
    g_assert_true(migration_set_parameters(store, p, &error));
    g_autoptr(MigrationParameters) now = migration_get_parameters(store);
    g_assert_false(now->tls_creds->is_null);
    g_assert_cmpstr(now->tls_creds->str, ==, "");
}

static void test_chunk_size(void)
{
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(MigrationParameters) p = g_new0(MigrationParameters, 1);
    g_autoptr(GError) error = NULL;

    for (unsigned shift = 20; shift <= 30; shift++) {
        g_assert_true(set_number(store, "x-rdma-chunk-shift", shift, &error));
        g_assert_cmpuint(stored(store, "x-rdma-chunk-size"), ==, UINT64_C(1) << shift);
        g_assert_true(set_number(store, "x-rdma-chunk-size", UINT64_C(1) << (50 - shift), &error));
        g_assert_cmpuint(stored(store, "x-rdma-chunk-shift"), ==, 50 - shift);
    }
    p->has_x_rdma_chunk_shift = p->has_x_rdma_chunk_size = true;
    p->x_rdma_chunk_shift = 22;
    p->x_rdma_chunk_size = 4 << 20;
    g_assert_true(migration_set_parameters(store, p, &error));
    p->x_rdma_chunk_size = 8 << 20;
    g_assert_false(migration_set_parameters(store, p, &error));
    assert_error(
        &error, "Options x-rdma-chunk-size (8388608) and x-rdma-chunk-shift (22, which is a size of 4194304) "
                "differ: they are one setting, a size of 2 to the power of a shift between 20 and 30");
    g_assert_cmpuint(stored(store, "x-rdma-chunk-size"), ==, 4 << 20);
}

/* ---- what has no effect yet ---- */

static void test_unsupported(void)
{
    g_autoptr(MigrationOptionStore) store = migration_option_store_new();
    g_autoptr(GError) error = NULL;

    for (const QapiOption *opt = MigrationParameters_options; opt->name; opt++) {
        bool number = opt->type != QAPI_OPTION_BOOL && opt->type < QAPI_OPTION_ENUM;

        g_assert_true(migration_parameter_unsupported(opt->name) == opt->unsupported);
        if (!opt->unsupported || !number) {
            continue;
        }
        g_assert_true(set_number(store, opt->name, opt->default_number, &error));
        g_assert_false(
            set_number(store, opt->name, opt->default_number == opt->max ? opt->min : opt->max, &error));
        g_autofree char *message = g_strdup_printf(
            "Parameter '%s' is not supported yet: it can only have its default", opt->name);
        assert_error(&error, message);
    }
    g_assert_true(migration_set_parameter_string(store, "tls-creds", "", &error));
    g_assert_false(migration_set_parameter_string(store, "tls-creds", "tls0", &error));
    assert_error(&error, "Parameter 'tls-creds' is not supported yet: it can only have its default");
    g_assert_true(migration_set_parameter_string(store, "mode", "normal", &error));
    g_assert_false(migration_set_parameter_string(store, "mode", "cpr-reboot", &error));
    assert_error(&error, "Parameter 'mode' is not supported yet: it can only have its default");
    g_assert_false(migration_set_parameter_string(store, "cpr-exec-command", "a b", &error));
    assert_error(&error, "Parameter 'cpr-exec-command' is not supported yet: it can only have its default");
    /* A value out of range is told as such. */
    g_assert_false(set_number(store, "multifd-channels", 0, &error));
    assert_error(&error, "Option multifd-channels expects a value between 1 and 255");
}

/* ---- capabilities ---- */

static bool set_capabilities(MigrationOptionStore *store, const char *const *names, bool state, GError **errp)
{
    g_autoptr(MigrationCapabilityStatusList) list = g_new0(MigrationCapabilityStatusList, 1);

    list->items = g_new0(MigrationCapabilityStatus *, MIGRATION_CAPABILITY__MAX);
    for (; names[list->count]; list->count++) {
        MigrationCapabilityStatus *s = list->items[list->count] = g_new0(MigrationCapabilityStatus, 1);
        int cap = MigrationCapability_parse(names[list->count]);

        g_assert_cmpint(cap, >=, 0);
        s->capability = (MigrationCapability)cap;
        s->state = state;
    }
    return migration_set_capabilities(store, list, errp);
}

static bool set_capability(MigrationOptionStore *store, const char *name, bool state, GError **errp)
{
    const char *const names[] = { name, NULL };

    return set_capabilities(store, names, state, errp);
}

/* The verdicts of a real QEMU 11.1 on every capability and every pair of them. */
static void test_capability_verdicts(void)
{
    g_autofree char *path = g_test_build_filename(G_TEST_DIST, "data", "capability-verdicts.txt", NULL);
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    unsigned n = 0;

    g_assert_true(g_file_get_contents(path, &text, NULL, &error));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        g_auto(GStrv) parts = g_strsplit(*line, "\t", 2);
        if (**line == '#' || !parts[0] || !parts[1]) {
            continue;
        }
        g_autoptr(MigrationOptionStore) store = open_store();
        g_auto(GStrv) names = g_strsplit(parts[0], " ", -1);
        bool ok = set_capabilities(store, (const char *const *)names, true, &error);

        if (ok != !*parts[1] || (error && strcmp(error->message, parts[1]) != 0)) {
            g_test_message("%s: expected '%s', got '%s'", parts[0], parts[1], error ? error->message : "");
            g_test_fail();
        }
        g_clear_error(&error);
        n++;
    }
    g_assert_cmpuint(n, ==, 21 + 21 * 20 / 2);
}

static void test_capability_rules_of_three(void)
{
    static const struct {
        const char *names[5];
        const char *message;
    } cases[] = {
        { { "x-colo", "return-path" }, NULL },
        { { "switchover-ack", "return-path" }, NULL },
        { { "postcopy-preempt", "postcopy-ram" }, NULL },
        { { "zero-copy-send", "multifd" }, NULL },
        { { "mapped-ram", "multifd" }, NULL },
        { { "background-snapshot", "mapped-ram", "events", "x-ignore-shared" }, NULL },
        { { "zero-copy-send", "multifd", "xbzrle" },
          "Zero copy only available for non-compressed non-TLS multifd migration" },
        { { "mapped-ram", "multifd", "postcopy-ram" }, "Mapped-ram migration is incompatible with postcopy" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(MigrationOptionStore) store = open_store();
        g_autoptr(GError) error = NULL;
        bool ok = set_capabilities(store, cases[i].names, true, &error);

        g_assert_true(ok == !cases[i].message);
        if (!ok) {
            assert_error(&error, cases[i].message);
        }
    }
}

/* Compression, TLS and zero copy or mapped-ram: the same verdict whichever is set first, and a way back. */
static void test_capability_and_parameter(void)
{
    static const struct {
        const char *caps[3];
        const char *name, *value;
        const char *message;
    } cases[] = {
        { { "zero-copy-send", "multifd" }, "multifd-compression", "zlib",
          "Zero copy only available for non-compressed non-TLS multifd migration" },
        { { "zero-copy-send", "multifd" }, "tls-creds", "tls0",
          "Zero copy only available for non-compressed non-TLS multifd migration" },
        { { "mapped-ram", "multifd" }, "multifd-compression", "zstd",
          "Mapped-ram only available for non-compressed non-TLS multifd migration" },
        { { "mapped-ram" }, "tls-creds", "tls0",
          "Mapped-ram only available for non-compressed non-TLS multifd migration" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(MigrationOptionStore) store = open_store();
        g_autoptr(GError) error = NULL;

        g_assert_true(set_capabilities(store, cases[i].caps, true, &error));
        g_assert_false(migration_set_parameter_string(store, cases[i].name, cases[i].value, &error));
        assert_error(&error, cases[i].message);
        g_assert_true(set_number(store, "downtime-limit", 1, &error));
        g_assert_true(set_capabilities(store, cases[i].caps, false, &error));

        g_assert_true(migration_set_parameter_string(store, cases[i].name, cases[i].value, &error));
        g_assert_false(set_capabilities(store, cases[i].caps, true, &error));
        assert_error(&error, cases[i].message);
    }
}

/* Nothing that the store is told to do one after the other depends on the order. */
static void test_random_order(void)
{
    GRand *rand = g_rand_new_with_seed(20);

    for (int round = 0; round < 2000; round++) {
        g_autoptr(MigrationOptionStore) at_once = open_store();
        g_autoptr(MigrationOptionStore) one_by_one = open_store();
        const char *names[MIGRATION_CAPABILITY__MAX + 1] = { NULL };
        unsigned n = (unsigned)g_rand_int_range(rand, 1, 6);
        bool all = true;

        for (unsigned i = 0; i < n; i++) {
            names[i] = MigrationCapability_str((MigrationCapability)g_rand_int_range(
                rand, 0, MIGRATION_CAPABILITY__MAX));
        }
        bool verdict = set_capabilities(at_once, names, true, NULL);
        /* One by one, again and again, as members may need others first. */
        for (unsigned pass = 0; pass < n; pass++) {
            all = true;
            for (unsigned i = 0; i < n; i++) {
                all &= set_capability(one_by_one, names[i], true, NULL);
            }
        }
        /* In the other direction a refused one may hide what it conflicts with. */
        g_assert_true(!verdict || all);
        if (all) {
            g_assert_true(verdict);
        }
        /* Twice the same, backwards. */
        const char *backwards[MIGRATION_CAPABILITY__MAX + 1] = { NULL };
        for (unsigned i = 0; i < n; i++) {
            backwards[i] = names[n - 1 - i];
        }
        g_autoptr(MigrationOptionStore) other = open_store();
        g_autoptr(GError) first = NULL, second = NULL;
        g_autoptr(MigrationOptionStore) again = open_store();
        g_assert_true(set_capabilities(again, names, true, &first) ==
                      set_capabilities(other, backwards, true, &second));
        g_assert_cmpstr(first ? first->message : NULL, ==, second ? second->message : NULL);
    }
    g_rand_free(rand);
}

static void test_capability_busy(void)
{
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(GError) error = NULL;

    migration_option_store_set_busy(store, true, false);
    g_assert_false(set_capability(store, "events", true, &error));
    assert_error(&error, "There's a migration process in progress");
    g_assert_true(set_number(store, "downtime-limit", 1, &error));
    migration_option_store_set_busy(store, false, true);
    g_assert_true(set_capability(store, "events", true, &error));
    g_assert_false(set_capability(store, "multifd", true, &error));
    assert_error(&error, "Multifd must be set before incoming starts");
    g_assert_true(set_capability(store, "multifd", false, &error));
    g_assert_true(set_capability(store, "postcopy-ram", true, &error));
    g_assert_false(set_capability(store, "postcopy-preempt", true, &error));
    assert_error(&error, "Postcopy preempt must be set before incoming starts");
    migration_option_store_set_busy(store, false, false);
    g_assert_true(set_capability(store, "postcopy-preempt", true, &error));
}

/* While the destination listens for RDMA. */
static void test_capability_rdma(void)
{
    static const struct {
        const char *name, *message;
    } cases[] = {
        { "mapped-ram", "Migration requires seekable transport (e.g. file)" },
        { "multifd", "Migration requires multi-channel URIs (e.g. tcp)" },
        { "xbzrle", "RDMA and XBZRLE can't be used together" },
        { "postcopy-ram", "RDMA and postcopy-ram can't be used together" },
        { "x-ignore-shared",
          "RDMA and x-ignore-shared can't be used together: RAM block 'm7' is shared" },
    };
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(GError) error = NULL;

    migration_option_store_set_busy(store, false, true);
    migration_option_store_set_rdma(store, "m7");
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_assert_false(set_capability(store, cases[i].name, true, &error));
        assert_error(&error, cases[i].message);
    }
    g_assert_true(set_capability(store, "rdma-pin-all", true, &error));
    /* Another one, whose memory is private. */
    migration_option_store_set_rdma(store, NULL);
    g_assert_true(set_capability(store, "x-ignore-shared", true, &error));
    g_assert_true(set_capability(store, "x-ignore-shared", false, &error));
    /* None any more. */
    migration_option_store_set_rdma(store, "m7");
    migration_option_store_set_busy(store, false, false);
    g_assert_true(set_capability(store, "x-ignore-shared", true, &error));
    g_assert_true(set_capability(store, "xbzrle", true, &error));
}

/* With dirty rings dirty-limit goes with all but auto-converge; without them it goes at no time. */
static void test_dirty_limit(void)
{
    const char *conflict = "dirty-limit conflicts with auto-converge either of then available currently";
    const char *missing = "dirty-limit requires KVM with accelerator property 'dirty-ring-size' set";
    g_autoptr(MigrationOptionStore) store = migration_option_store_new();
    g_autoptr(GError) error = NULL;

    g_assert_false(set_capability(store, "dirty-limit", true, &error));
    assert_error(&error, missing);
    migration_option_store_set_dirty_limiter(store, true);
    g_assert_true(set_capability(store, "dirty-limit", true, &error));
    g_assert_false(set_capability(store, "auto-converge", true, &error));
    assert_error(&error, conflict);
    g_assert_true(set_capability(store, "dirty-limit", false, &error));
    g_assert_true(set_capability(store, "auto-converge", true, &error));
    g_assert_false(set_capability(store, "dirty-limit", true, &error));
    assert_error(&error, conflict);
    g_assert_true(set_number(store, "vcpu-dirty-limit", 1000, &error));
    g_assert_true(set_number(store, "x-vcpu-dirty-limit-period", 1, &error));
    g_assert_cmpuint(stored(store, "vcpu-dirty-limit"), ==, 1000);
}

static void test_capability_unsupported(void)
{
    static const char *const works[] = { "xbzrle", "auto-converge", "events", "return-path",
                                         "pause-before-switchover", "late-block-activate", "x-ignore-shared",
                                         "validate-uuid", "switchover-ack", "rdma-pin-all", NULL };
    /* Not beside xbzrle, or auto-converge. */
    static const char *const works_too[] = { "multifd", "zero-copy-send", "mapped-ram", "dirty-limit", NULL };
    g_autoptr(MigrationOptionStore) store = migration_option_store_new();
    g_autoptr(GError) error = NULL;

    g_assert_true(set_capabilities(store, works, true, &error));
    for (int i = 0; i < MIGRATION_CAPABILITY__MAX; i++) {
        const char *name = MigrationCapability_str((MigrationCapability)i);
        bool supported = g_strv_contains(works, name);

        if (g_strv_contains(works_too, name)) {
            g_assert_false(migration_capability_unsupported((MigrationCapability)i));
            continue;
        }
        g_assert_true(migration_capability((MigrationOptionStore *)store, (MigrationCapability)i) ==
                      supported);
        g_assert_true(migration_capability_unsupported((MigrationCapability)i) == !supported);
        g_assert_true(set_capability(store, name, false, &error) || strcmp(name, "return-path") == 0);
        g_clear_error(&error);
        if (!supported) {
            g_autofree char *message = g_strdup_printf("Capability '%s' is not supported yet", name);

            g_assert_false(set_capability(store, name, true, &error));
            assert_error(&error, message);
        }
    }
}

/* ---- as people write ---- */

#define SIZE_HINT                                                                                            \
    "\nOptional suffix k, M, G, T, P or E means kilo-, mega-, giga-, tera-, peta-\nand exabytes, "           \
    "respectively."
#define SIZE_EXPECTED(name) "Parameter '" name "' expects a non-negative number below 2^64" SIZE_HINT

/* What QEMU 11.1 says to migrate_set_parameter NAME TEXT. */
static const struct {
    const char *name, *text;
    uint64_t value;
    const char *message;        /* NULL: accepted */
} text_cases[] = {
    { "downtime-limit", "1k", 1024, NULL },
    { "downtime-limit", "1.5k", 1536, NULL },
    { "downtime-limit", "0x10", 16, NULL },
    { "downtime-limit", ".5k", 512, NULL },
    { "downtime-limit", "+5", 5, NULL },
    { "downtime-limit", "010", 10, NULL },
    { "downtime-limit", "1.0", 1, NULL },
    { "downtime-limit", "0.0001k", 0, NULL },
    { "downtime-limit", "1.5", 0, SIZE_EXPECTED("downtime-limit") },
    { "downtime-limit", "0x1k", 0, SIZE_EXPECTED("downtime-limit") },
    { "downtime-limit", "abc", 0, SIZE_EXPECTED("downtime-limit") },
    { "downtime-limit", "1kB", 0, SIZE_EXPECTED("downtime-limit") },
    { "downtime-limit", "1 ", 0, SIZE_EXPECTED("downtime-limit") },
    { "downtime-limit", "k", 0, SIZE_EXPECTED("downtime-limit") },
    { "downtime-limit", "1e3", 0, SIZE_EXPECTED("downtime-limit") },
    { "downtime-limit", "0x", 0, SIZE_EXPECTED("downtime-limit") },
    { "downtime-limit", "-1", 0, "Value '-1' is out of range for parameter 'downtime-limit'" },
    { "downtime-limit", "16E", 0, "Value '16E' is out of range for parameter 'downtime-limit'" },
    { "downtime-limit", "18446744073709551616", 0,
      "Value '18446744073709551616' is out of range for parameter 'downtime-limit'" },
    { "downtime-limit", "2000001", 0,
      "Option downtime-limit expects an integer in the range of 0 to (2000 * 1000) ms" },
    { "max-bandwidth", "32", 33554432, NULL },
    { "max-bandwidth", "8M", 8388608, NULL },
    { "max-bandwidth", "4096k", 4194304, NULL },
    { "max-bandwidth", "1.5G", 1610612736, NULL },
    { "max-bandwidth", "0x10", 16777216, NULL },
    { "max-bandwidth", "1.5", 1572864, NULL },
    { "max-bandwidth", "8b", 8, NULL },
    { "max-bandwidth", "abc", 0, "Invalid size abc" },
    { "max-bandwidth", "-1", 0, "Invalid size -1" },
    { "max-bandwidth", "16E", 0, "Invalid size 16E" },
    { "max-bandwidth", "17592186044416", 0, "Invalid size 17592186044416" },
    { "avail-switchover-bandwidth", "1", 1048576, NULL },
    { "multifd-channels", "5", 5, NULL },
    { "multifd-channels", "0x10", 16, NULL },
    { "multifd-channels", "010", 8, NULL },
    { "multifd-channels", "+5", 5, NULL },
    { "multifd-channels", "5k", 0, "Parameter 'multifd-channels' expects uint64" },
    { "multifd-channels", "abc", 0, "Parameter 'multifd-channels' expects uint64" },
    { "multifd-channels", "5.0", 0, "Parameter 'multifd-channels' expects uint64" },
    { "multifd-channels", "18446744073709551616", 0, "Parameter 'multifd-channels' expects uint64" },
    { "multifd-channels", "300", 0, "Option multifd-channels expects a value between 1 and 255" },
    { "multifd-channels", "-1", 0, "Option multifd-channels expects a value between 1 and 255" },
    { "multifd-channels", "0", 0, "Option multifd-channels expects a value between 1 and 255" },
    { "x-checkpoint-delay", "4294967295", 4294967295, NULL },
    { "x-checkpoint-delay", "4294967296", 0, "Parameter 'x-checkpoint-delay' expects uint32_t" },
    { "xbzrle-cache-size", "4k", 4096, NULL },
    { "xbzrle-cache-size", "12", 0,
      "Option xbzrle-cache-size expects a power of two no less than the target page size" },
    { "x-rdma-chunk-size", "2M", 2097152, NULL },
    { "x-rdma-chunk-size", "8", 0,
      "Option x_rdma_chunk_size expects a power of 2 in the range 1MiB to 1024MiB" },
    { "x-rdma-chunk-shift", "30", 30, NULL },
    { "vcpu-dirty-limit", "1k", 1024, NULL },
    { "direct-io", "ON", 0, "Parameter 'direct-io' expects 'on' or 'off'" },
    { "direct-io", "1", 0, "Parameter 'direct-io' expects 'on' or 'off'" },
    { "mode", "foo", 0, "Parameter 'mode' does not accept value 'foo'" },
    { "mode", "Normal", 0, "Parameter 'mode' does not accept value 'Normal'" },
    { "block-bitmap-mapping", "x", 0, "The block-bitmap-mapping parameter can only be set through QMP" },
    { "nosuch", "1", 0, "invalid parameter value: nosuch" },
};

static void test_text(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(text_cases); i++) {
        g_autoptr(MigrationOptionStore) store = open_store();
        g_autoptr(GError) error = NULL;
        bool ok = migration_set_parameter_string(store, text_cases[i].name, text_cases[i].text, &error);

        if (ok == !!text_cases[i].message) {
            g_test_message("%s %s: %s", text_cases[i].name, text_cases[i].text,
                           error ? error->message : "accepted");
        }
        g_assert_true(ok == !text_cases[i].message);
        if (ok) {
            g_assert_cmpuint(stored(store, text_cases[i].name), ==, text_cases[i].value);
        } else {
            assert_error(&error, text_cases[i].message);
        }
    }
}

static void test_text_words(void)
{
    static const char *const yes[] = { "on", "true", "yes", "y" };
    static const char *const no[] = { "off", "false", "no", "n" };
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(GError) error = NULL;

    for (size_t i = 0; i < 4; i++) {
        g_assert_true(migration_set_parameter_string(store, "direct-io", yes[i], &error));
        g_autoptr(MigrationParameters) on = migration_get_parameters(store);
        g_assert_true(on->direct_io);
        g_assert_true(migration_set_parameter_string(store, "direct-io", no[i], &error));
        g_autoptr(MigrationParameters) off = migration_get_parameters(store);
        g_assert_false(off->direct_io);
    }
    g_assert_true(migration_set_parameter_string(store, "tls-hostname", "a b \"\"", &error));
    g_assert_true(migration_set_parameter_string(store, "cpr-exec-command", "a\\ b 'c d' \"e\"", &error));
    g_assert_true(migration_set_parameter_string(store, "zero-page-detection", "none", &error));
    g_autoptr(MigrationParameters) p = migration_get_parameters(store);
    g_assert_cmpstr(p->tls_hostname->str, ==, "a b \"\"");
    g_assert_cmpuint(p->cpr_exec_command->count, ==, 3);
    g_assert_cmpstr(p->cpr_exec_command->items[0], ==, "a b");
    g_assert_cmpstr(p->cpr_exec_command->items[1], ==, "c d");
    g_assert_cmpstr(p->cpr_exec_command->items[2], ==, "e");
    g_assert_cmpint(p->zero_page_detection, ==, ZERO_PAGE_DETECTION_NONE);
    g_assert_false(migration_set_parameter_string(store, "cpr-exec-command", "\"a", &error));
}

/* ---- globals ---- */

#define CANNOT(setting) "can't apply global migration." setting ": "

static const struct {
    const char *name, *value;
    const char *refused;        /* at once */
    const char *checked;        /* at the check of all */
} global_cases[] = {
    {"announce-initial", "1k", NULL, NULL},
    {"announce-initial", "abc", CANNOT("announce-initial=abc") SIZE_EXPECTED("announce-initial"), NULL},
    {"announce-rounds", "-1",
     CANNOT("announce-rounds=-1") "Value '-1' is out of range for parameter 'announce-rounds'", NULL},
    {"announce-step", "0", NULL, "Option announce-step expects a value between 0 and 10000"},
    {"downtime-limit", "1", CANNOT("downtime-limit=1") "Property 'migration.downtime-limit' not found", NULL},
    {"x-downtime-limit", "1k", CANNOT("x-downtime-limit=1k") "Parameter 'x-downtime-limit' expects uint64",
     NULL},
    {"x-max-bandwidth", "1M", NULL, NULL},
    {"multifd-channels", "300",
     CANNOT("multifd-channels=300") "Option multifd-channels expects a value between 1 and 255", NULL},
    {"multifd-channels", "0", NULL, "Option multifd-channels expects a value between 1 and 255"},
    {"vcpu-dirty-limit", "0", NULL, "Parameter 'vcpu-dirty-limit' must be greater than 1 MB/s"},
    {"mode", "foo", CANNOT("mode=foo") "Parameter 'mode' does not accept value 'foo'", NULL},
    {"direct-io", "on", CANNOT("direct-io=on") "Property 'migration.direct-io' not found", NULL},
    {"x-events", "1", CANNOT("x-events=1") "Parameter 'x-events' expects 'on' or 'off'", NULL},
    {"x-events", "yes", NULL, NULL},
    {"x-switchover-ack", "on", NULL, "Capability 'switchover-ack' requires capability 'return-path'"},
    {"x-postcopy-preempt", "on", NULL, "Postcopy preempt requires postcopy-ram"},
    {"pause-before-switchover", "on",
     CANNOT("pause-before-switchover=on") "Property 'migration.pause-before-switchover' not found", NULL},
    {"max-cpu-throttle", "5", NULL,
     "Option max-cpu-throttle expects an integer in the range of cpu-throttle-initial to 99"},
    {"x-rdma-chunk-size", "1M", CANNOT("x-rdma-chunk-size=1M") "Parameter 'x-rdma-chunk-size' expects uint64",
     NULL},
    {"x-rdma-chunk-size", " 0x200000", NULL, NULL},
    {"x-rdma-chunk-size", "010000000", NULL, NULL},
    {"x-rdma-chunk-size", "2097152 ",
     CANNOT("x-rdma-chunk-size=2097152 ") "Parameter 'x-rdma-chunk-size' expects uint64", NULL},
    {"x-rdma-chunk-size", "-1", NULL,
     "Option x_rdma_chunk_size expects a power of 2 in the range 1MiB to 1024MiB"},
    {"x-rdma-chunk-size", "524288", NULL,
     "Option x_rdma_chunk_size expects a power of 2 in the range 1MiB to 1024MiB"},
    {"x-rdma-chunk-shift", "31", NULL, "Option x-rdma-chunk-shift expects a value between 20 and 30"},
    {"send-switchover-start", "foo",
     CANNOT("send-switchover-start=foo") "Parameter 'send-switchover-start' expects 'on' or 'off'", NULL},
    {"x-clear-bitmap-shift", "300",
     CANNOT("x-clear-bitmap-shift=300") "Option x-clear-bitmap-shift expects a value between 6 and 31", NULL},
    {"x-compat", "5.0",
     CANNOT("x-compat=5.0") "Parameter 'x-compat' does not accept value '5.0' (one of 7.2, 8.0, 8.2, 9.2, "
                            "11.0, 11.1)",
     NULL},
    {"nosuch", "1", CANNOT("nosuch=1") "Property 'migration.nosuch' not found", NULL},
};

static void test_globals(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(global_cases); i++) {
        g_autoptr(MigrationOptionStore) store = open_store();
        g_autoptr(GError) error = NULL;
        bool ok = migration_set_global(store, global_cases[i].name, global_cases[i].value, &error);

        g_assert_cmpstr(error ? error->message : NULL, ==, global_cases[i].refused);
        if (ok) {
            g_assert_true(migration_check_globals(store, &error) == !global_cases[i].checked);
            g_assert_cmpstr(error ? error->message : NULL, ==, global_cases[i].checked);
        }
    }
}

/* Later wins, and what depends on each other may come in any order. */
static void test_globals_together(void)
{
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(GError) error = NULL;

    g_assert_true(migration_set_global(store, "x-switchover-ack", "on", &error));
    g_assert_true(migration_set_global(store, "max-cpu-throttle", "5", &error));
    g_assert_true(migration_set_global(store, "x-cpu-throttle-initial", "9", &error));
    g_assert_true(migration_set_global(store, "x-cpu-throttle-initial", "4", &error));
    g_assert_true(migration_set_global(store, "x-return-path", "on", &error));
    g_assert_true(migration_set_global(store, "x-rdma-chunk-shift", "21", &error));
    g_assert_true(migration_check_globals(store, &error));
    g_assert_cmpuint(stored(store, "x-rdma-chunk-size"), ==, 2097152);
    g_assert_true(migration_set_global(store, "x-rdma-chunk-size", "1048576", &error));
    g_assert_false(migration_check_globals(store, &error));
    assert_error(
        &error, "Options x-rdma-chunk-size (1048576) and x-rdma-chunk-shift (21, which is a size of 2097152) "
                "differ: they are one setting, a size of 2 to the power of a shift between 20 and 30");
}

/* The table of what each age of peer needs: from the compatibility properties of QEMU 11.1. */
static void test_compat(void)
{
    static const struct {
        const char *version;
        bool ack_legacy, switchover_start, clean_tls, flush_per_section, preempt_pre_7_2;
        ZeroPageDetection zero;
    } expected[] = {
        { "7.2", true, false, false, true, true, ZERO_PAGE_DETECTION_LEGACY },
        { "8.0", true, false, false, true, false, ZERO_PAGE_DETECTION_LEGACY },
        { "8.2", true, false, false, false, false, ZERO_PAGE_DETECTION_LEGACY },
        { "9.2", true, false, false, false, false, ZERO_PAGE_DETECTION_MULTIFD },
        { "11.0", true, true, true, false, false, ZERO_PAGE_DETECTION_MULTIFD },
        { "11.1", false, true, true, false, false, ZERO_PAGE_DETECTION_MULTIFD },
    };
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(GError) error = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(expected); i++) {
        g_assert_true(migration_set_global(store, "x-compat", expected[i].version, &error));
        g_assert_true(migration_check_globals(store, &error));
        g_autoptr(MigrationOptions) o = migration_options_snapshot(store);
        g_assert_true(o->props.switchover_ack_legacy == expected[i].ack_legacy);
        g_assert_true(o->props.send_switchover_start == expected[i].switchover_start);
        g_assert_true(o->props.multifd_clean_tls_termination == expected[i].clean_tls);
        g_assert_true(o->props.multifd_flush_after_each_section == expected[i].flush_per_section);
        g_assert_true(o->props.x_preempt_pre_7_2 == expected[i].preempt_pre_7_2);
        g_assert_cmpint(o->p.zero_page_detection, ==, expected[i].zero);
        g_assert_true(o->props.send_configuration && o->props.send_section_footer &&
                      o->props.store_global_state);
    }
    g_assert_true(migration_set_global(store, "x-compat", "7.2", &error));
    g_assert_true(migration_set_global(store, "send-switchover-start", "on", &error));
    g_autoptr(MigrationOptions) o = migration_options_snapshot(store);
    g_assert_true(o->props.send_switchover_start && o->props.x_preempt_pre_7_2);
}

static void test_list_properties(void)
{
    static const char *const fresh[] = {"store-global-state: on",
                                        "only-migratable: off",
                                        "send-configuration: on",
                                        "send-section-footer: on",
                                        "send-switchover-start: on",
                                        "clear-bitmap-shift: 18",
                                        NULL};
    g_autoptr(MigrationOptionStore) store = open_store();
    g_auto(GStrv) lines = migration_list_properties(store);

    g_assert_true(g_strv_equal((const char *const *)lines, fresh));
    g_assert_true(migration_set_global(store, "switchover-ack-legacy", "on", NULL));
    g_assert_true(migration_set_global(store, "x-clear-bitmap-shift", "31", NULL));
    g_auto(GStrv) more = migration_list_properties(store);
    g_assert_cmpuint(g_strv_length(more), ==, 7);
    g_assert_cmpstr(more[5], ==, "clear-bitmap-shift: 31");
    g_assert_cmpstr(more[6], ==, "switchover-ack-legacy: on");
}

/* ---- threads ---- */

static void *reader(void *data)
{
    MigrationOptionStore *store = data;

    for (int i = 0; i < 2000; i++) {
        g_autoptr(MigrationOptions) o = migration_options_snapshot(store);

        /* Both are set by one request, so they are always seen together. */
        g_assert_cmpuint(o->p.announce_initial, ==, o->p.announce_max - 500);
        g_assert_cmpuint(strlen(o->p.tls_hostname->str), ==, o->p.announce_initial % 10);
        migration_capability(store, MIGRATION_CAPABILITY_EVENTS);
    }
    return NULL;
}

static void test_threads(void)
{
    g_autoptr(MigrationOptionStore) store = open_store();
    g_autoptr(MigrationParameters) p = g_new0(MigrationParameters, 1);
    g_autoptr(GError) error = NULL;

    p->has_announce_initial = p->has_announce_max = true;
    p->tls_hostname = g_new0(StrOrNull, 1);
    GThread *thread = g_thread_new("reader", reader, store);
    for (uint64_t i = 0; i < 2000; i++) {
        p->announce_initial = i;
        p->announce_max = i + 500;
        g_free(p->tls_hostname->str);
        p->tls_hostname->str = g_strnfill(i % 10, 'x');
        g_assert_true(migration_set_parameters(store, p, &error));
    }
    g_thread_join(thread);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(range_cases); i++) {
        g_autofree char *path = g_strdup_printf("/options/range/%zu-%s", i, range_cases[i].name);

        g_test_add_data_func(path, &range_cases[i], test_range);
    }
    g_test_add_func("/options/ranges-complete", test_ranges_complete);
    g_test_add_func("/options/defaults", test_defaults);
    g_test_add_func("/options/all-or-nothing", test_all_or_nothing);
    g_test_add_func("/options/throttle-pair", test_throttle_pair);
    g_test_add_func("/options/null-string", test_null_string);
    g_test_add_func("/options/chunk-size", test_chunk_size);
    g_test_add_func("/options/unsupported", test_unsupported);
    g_test_add_func("/options/capability/verdicts", test_capability_verdicts);
    g_test_add_func("/options/capability/three", test_capability_rules_of_three);
    g_test_add_func("/options/capability/and-parameter", test_capability_and_parameter);
    g_test_add_func("/options/capability/random-order", test_random_order);
    g_test_add_func("/options/capability/busy", test_capability_busy);
    g_test_add_func("/options/capability/rdma", test_capability_rdma);
    g_test_add_func("/options/capability/dirty-limit", test_dirty_limit);
    g_test_add_func("/options/capability/unsupported", test_capability_unsupported);
    g_test_add_func("/options/text", test_text);
    g_test_add_func("/options/text-words", test_text_words);
    g_test_add_func("/options/global/one", test_globals);
    g_test_add_func("/options/global/together", test_globals_together);
    g_test_add_func("/options/global/compat", test_compat);
    g_test_add_func("/options/global/list", test_list_properties);
    g_test_add_func("/options/threads", test_threads);
    return g_test_run();
}
