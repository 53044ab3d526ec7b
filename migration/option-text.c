/* SPDX-License-Identifier: BSD-2-Clause */
/* Options as people write them: migrate_set_parameter, -global migration.NAME=VALUE, and the properties. */
#include "migration/option-store.h"
#include "util/error.h"
#include "util/size-text.h"

#include <inttypes.h>
#include <string.h>

static bool bad(GError **errp, const char *name, const char *expected)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter '%s' expects %s", name, expected);
    return false;
}

/* ---- one value; @name is what the message calls the option ---- */

static bool parse_bool(const char *name, const char *text, bool *out, GError **errp)
{
    static const char *const words[][2] = {{"off", "on"}, {"false", "true"}, {"no", "yes"}, {"n", "y"}};

    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        for (int value = 0; value <= 1; value++) {
            if (strcmp(text, words[i][value]) == 0) {
                *out = value;
                return true;
            }
        }
    }
    return bad(errp, name, "'on' or 'off'");
}

/* An option of @type whose values are @min to @max. */
static bool parse_integer(const char *name, const char *text, QapiOptionType type, uint64_t min, uint64_t max,
                          uint64_t *out, GError **errp)
{
    uint64_t most = type == QAPI_OPTION_UINT8    ? UINT8_MAX
                    : type == QAPI_OPTION_UINT32 ? UINT32_MAX
                                                 : UINT64_MAX;

    if (integer_text_parse(text, out) != NUMBER_TEXT_OK) {
        return bad(errp, name, "uint64");
    }
    if (*out <= most) {
        return true;
    }
    if (!min && max == most) {
        return bad(errp, name, type == QAPI_OPTION_UINT8 ? "uint8_t" : "uint32_t");
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                "Option %s expects a value between %" PRIu64 " and %" PRIu64, name, min, max);
    return false;
}

static bool parse_size(const char *name, const char *text, uint64_t *out, GError **errp)
{
    switch (size_text_parse(text, 1, out)) {
    case NUMBER_TEXT_OK:
        return true;
    case NUMBER_TEXT_OUT_OF_RANGE:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Value '%s' is out of range for parameter '%s'",
                    text, name);
        return false;
    default:
        return bad(errp, name,
                   "a non-negative number below 2^64\n"
                   "Optional suffix k, M, G, T, P or E means kilo-, mega-, giga-, tera-, peta-\n"
                   "and exabytes, respectively.");
    }
}

static bool parse_mib(const char *text, uint64_t *out, GError **errp)
{
    if (size_text_parse(text, 1 << 20, out) == NUMBER_TEXT_OK) {
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Invalid size %s", text);
    return false;
}

static bool parse_enum(const char *name, const char *text, const QapiOption *opt, uint64_t *out,
                       GError **errp)
{
    for (int i = 0; i < opt->enum_max; i++) {
        if (strcmp(opt->enum_lookup[i], text) == 0) {
            *out = (uint64_t)i;
            return true;
        }
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter '%s' does not accept value '%s'", name,
                text);
    return false;
}

/* Words as a shell would split them. */
static bool parse_words(const char *text, strList **out, GError **errp)
{
    g_autoptr(GError) error = NULL;
    char **words;
    int n;

    if (!g_shell_parse_argv(text, &n, &words, &error)) {
        g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, error->message);
        return false;
    }
    *out = g_new0(strList, 1);
    (*out)->count = (size_t)n;
    (*out)->items = words;
    return true;
}

static bool parse_string(const char *text, const QapiOption *opt, MigrationParameters *out, GError **errp)
{
    void **slot = (void **)((char *)out + opt->offset);

    if (opt->type == QAPI_OPTION_STR_OR_NULL) {
        StrOrNull *value = g_new0(StrOrNull, 1);

        value->str = g_strdup(text);
        *slot = value;
        return true;
    }
    return parse_words(text, (strList **)slot, errp);
}

/* Puts the option's value into @out, where nothing else is. */
static bool parse_value(const QapiOption *opt, QapiOptionHmp syntax, const char *name, const char *text,
                        MigrationParameters *out, GError **errp)
{
    uint64_t number = 0;
    bool flag = false;
    bool ok = false;

    switch (syntax) {
    case QAPI_HMP_INT:
        ok = parse_integer(name, text, opt->type, opt->min, opt->max, &number, errp);
        break;
    case QAPI_HMP_SIZE:
        ok = parse_size(name, text, &number, errp);
        break;
    case QAPI_HMP_MIB:
        ok = parse_mib(text, &number, errp);
        break;
    case QAPI_HMP_BOOL:
        ok = parse_bool(name, text, &flag, errp);
        number = flag;
        break;
    case QAPI_HMP_WORD:
        if (opt->type != QAPI_OPTION_ENUM) {
            return parse_string(text, opt, out, errp);
        }
        ok = parse_enum(name, text, opt, &number, errp);
        break;
    case QAPI_HMP_NONE:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "The %s parameter can only be set through QMP",
                    name);
        return false;
    }
    if (ok) {
        migration_option_set_number(opt, out, number);
    }
    return ok;
}

bool migration_set_parameter_string(MigrationOptionStore *store, const char *name, const char *value,
                                    GError **errp)
{
    for (const QapiOption *opt = MigrationParameters_options; opt->name; opt++) {
        if (strcmp(opt->name, name) == 0) {
            g_autoptr(MigrationParameters) params = g_new0(MigrationParameters, 1);

            return parse_value(opt, opt->hmp, name, value, params, errp) &&
                   migration_set_parameters(store, params, errp);
        }
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "invalid parameter value: %s", name);
    return false;
}

/* ---- properties ---- */

/* Properties are bools, but for one number.  @always: listed even when it has its default. */
static const struct {
    const char *name;
    const char *listed;         /* name in lists */
    size_t offset;
    bool is_uint8;
    uint8_t min, max;
    bool always;
} properties[] = {
#define BOOL_PROPERTY(name, member, always) \
    {name, name, offsetof(MigrationProperties, member), false, 0, 1, always}
    BOOL_PROPERTY("store-global-state", store_global_state, true),
    BOOL_PROPERTY("only-migratable", only_migratable, true),
    BOOL_PROPERTY("send-configuration", send_configuration, true),
    BOOL_PROPERTY("send-section-footer", send_section_footer, true),
    BOOL_PROPERTY("send-switchover-start", send_switchover_start, true),
    {"x-clear-bitmap-shift", "clear-bitmap-shift", offsetof(MigrationProperties, x_clear_bitmap_shift), true,
     6, 31, true},
    BOOL_PROPERTY("multifd-flush-after-each-section", multifd_flush_after_each_section, false),
    BOOL_PROPERTY("multifd-clean-tls-termination", multifd_clean_tls_termination, false),
    BOOL_PROPERTY("x-preempt-pre-7-2", x_preempt_pre_7_2, false),
    BOOL_PROPERTY("switchover-ack-legacy", switchover_ack_legacy, false),
#undef BOOL_PROPERTY
};

/* True if @name is a property, whether or not its value was good: then *@ok is false. */
static bool set_property(MigrationProperties *props, const char *name, const char *value, bool *ok,
                         GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(properties); i++) {
        void *at = (char *)props + properties[i].offset;
        uint64_t number = 0;

        if (strcmp(properties[i].name, name) != 0) {
            continue;
        }
        if (!properties[i].is_uint8) {
            *ok = parse_bool(name, value, at, errp);
            return true;
        }
        *ok = parse_integer(name, value, QAPI_OPTION_UINT8, properties[i].min, properties[i].max, &number,
                            errp);
        if (*ok && (number < properties[i].min || number > properties[i].max)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                        "Option %s expects a value between %u and %u", name, properties[i].min,
                        properties[i].max);
            *ok = false;
        }
        if (*ok) {
            *(uint8_t *)at = (uint8_t)number;
        }
        return true;
    }
    return false;
}

char **migration_list_properties(MigrationOptionStore *store)
{
    g_autoptr(MigrationOptionStore) fresh = migration_option_store_new();
    GPtrArray *lines = g_ptr_array_new();
    MigrationProperties props;

    g_mutex_lock(&store->lock);
    props = store->o.props;
    g_mutex_unlock(&store->lock);
    for (size_t i = 0; i < G_N_ELEMENTS(properties); i++) {
        uint8_t value = *((const uint8_t *)&props + properties[i].offset);
        uint8_t normal = *((const uint8_t *)&fresh->o.props + properties[i].offset);

        if (!properties[i].always && value == normal) {
            continue;
        }
        g_ptr_array_add(lines, properties[i].is_uint8 ? g_strdup_printf("%s: %u", properties[i].listed, value)
                                                      : g_strdup_printf("%s: %s", properties[i].listed,
                                                                        value ? "on" : "off"));
    }
    g_ptr_array_add(lines, NULL);
    return (char **)g_ptr_array_free(lines, FALSE);
}

/* ---- x-compat ---- */

/* What a peer of each age needs, as QEMU sets it for machine types of that age. */
static const struct {
    const char *version;
    bool switchover_ack_legacy, no_switchover_start, legacy_zero_pages, flush_after_each_section,
        preempt_pre_7_2;
} compat_levels[] = {
    { "7.2", true, true, true, true, true },
    { "8.0", true, true, true, true, false },
    { "8.2", true, true, true, false, false },
    { "9.2", true, true, false, false, false },
    { "11.0", true, false, false, false, false },
    { "11.1", false, false, false, false, false },
};

static bool set_compat(MigrationOptions *o, const char *value, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(compat_levels); i++) {
        if (strcmp(compat_levels[i].version, value) == 0) {
            o->props.switchover_ack_legacy = compat_levels[i].switchover_ack_legacy;
            o->props.send_switchover_start = !compat_levels[i].no_switchover_start;
            o->props.multifd_clean_tls_termination = !compat_levels[i].no_switchover_start;
            o->p.zero_page_detection = compat_levels[i].legacy_zero_pages ? ZERO_PAGE_DETECTION_LEGACY
                                                                          : ZERO_PAGE_DETECTION_MULTIFD;
            o->props.multifd_no_zero_pages = compat_levels[i].legacy_zero_pages;
            o->props.multifd_flush_after_each_section = compat_levels[i].flush_after_each_section;
            o->props.x_preempt_pre_7_2 = compat_levels[i].preempt_pre_7_2;
            return true;
        }
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                "Parameter 'x-compat' does not accept value '%s' (one of 7.2, 8.0, 8.2, 9.2, 11.0, 11.1)",
                value);
    return false;
}

/* ---- -global ---- */

/* Globals are typed by the schema's type: no MiB, and suffixes only for what is typed size. */
static QapiOptionHmp global_syntax(QapiOptionType type)
{
    static const QapiOptionHmp syntax[] = {
        [QAPI_OPTION_BOOL] = QAPI_HMP_BOOL,    [QAPI_OPTION_UINT8] = QAPI_HMP_INT,
        [QAPI_OPTION_UINT32] = QAPI_HMP_INT,   [QAPI_OPTION_UINT64] = QAPI_HMP_INT,
        [QAPI_OPTION_SIZE] = QAPI_HMP_SIZE,    [QAPI_OPTION_ENUM] = QAPI_HMP_WORD,
        [QAPI_OPTION_STR_OR_NULL] = QAPI_HMP_WORD, [QAPI_OPTION_STR_LIST] = QAPI_HMP_WORD,
        [QAPI_OPTION_OTHER] = QAPI_HMP_NONE,
    };

    return syntax[type];
}

static const QapiOption *find_global(const QapiOption *table, const char *name)
{
    for (const QapiOption *opt = table; opt->name; opt++) {
        if (opt->global && strcmp(opt->global, name) == 0) {
            return opt;
        }
    }
    return NULL;
}

/* Only the form of the value is checked here; what goes together is seen when all globals are known. */
static bool set_global_locked(MigrationOptionStore *store, const char *name, const char *value, GError **errp)
{
    const QapiOption *opt = find_global(MigrationParameters_options, name);
    bool ok = false;

    if (opt) {
        g_autoptr(MigrationParameters) params = g_new0(MigrationParameters, 1);

        if (!parse_value(opt, global_syntax(opt->type), name, value, params, errp)) {
            return false;
        }
        qapi_type_merge(&qapi_info_MigrationParameters, &store->o.p, params);
        store->chunk_size_given |= params->has_x_rdma_chunk_size;
        store->chunk_shift_given |= params->has_x_rdma_chunk_shift;
        return true;
    }
    opt = find_global(MigrationCapability_options, name);
    if (opt) {
        return parse_bool(name, value, &store->o.caps[opt->offset], errp);
    }
    if (strcmp(name, "x-compat") == 0) {
        return set_compat(&store->o, value, errp);
    }
    if (set_property(&store->o.props, name, value, &ok, errp)) {
        return ok;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Property 'migration.%s' not found", name);
    return false;
}

bool migration_set_global(MigrationOptionStore *store, const char *name, const char *value, GError **errp)
{
    g_mutex_lock(&store->lock);
    bool ok = set_global_locked(store, name, value, errp);
    g_mutex_unlock(&store->lock);
    if (!ok) {
        g_prefix_error(errp, "can't apply global migration.%s=%s: ", name, value);
    }
    return ok;
}
