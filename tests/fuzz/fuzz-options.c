/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: the migration options.  Each line is a step: "g NAME=VALUE" a global, "p NAME VALUE" a
 * parameter as a person sets it, "+NAME" and "-NAME" a capability, "u" lets unsupported options in.
 */
#include "migration/internal-options.h"
#include "qapi/qapi-options.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever was tried, the store holds a set that goes together. */
static void check_store(MigrationOptionStore *store)
{
    g_autoptr(MigrationOptions) o = migration_options_snapshot(store);
    g_autoptr(GError) error = NULL;

    g_assert_cmpuint(o->p.x_rdma_chunk_size, ==, UINT64_C(1) << o->p.x_rdma_chunk_shift);
    g_assert_cmpuint(o->p.max_cpu_throttle, >=, o->p.cpu_throttle_initial);
    g_assert_cmpuint(o->p.downtime_limit, <=, 2000000);
    g_assert_true(o->p.tls_creds->str && o->p.tls_hostname->str && o->p.tls_authz->str);
    g_assert_false(o->caps[MIGRATION_CAPABILITY_MULTIFD] && o->caps[MIGRATION_CAPABILITY_XBZRLE]);
    g_assert_true(migration_set_parameters(store, &o->p, &error));
}

static void set_capability(MigrationOptionStore *store, const char *name, bool state, GError **errp)
{
    int cap = MigrationCapability_parse(name);
    MigrationCapabilityStatus status = { .capability = (MigrationCapability)cap, .state = state };
    MigrationCapabilityStatus *items[] = { &status };
    MigrationCapabilityStatusList list = { .count = 1, .items = items };

    if (cap >= 0) {
        bool ok = migration_set_capabilities(store, &list, errp);

        g_assert_true(!ok || migration_capability(store, status.capability) == state);
    }
}

/* True if the step was a global, after which the whole is checked only by migration_check_globals(). */
static bool step(MigrationOptionStore *store, char *line, GError **errp)
{
    char *rest = line[0] && line[1] ? line + 2 : NULL;
    char *separator = rest ? strchr(rest, *line == 'g' ? '=' : ' ') : NULL;

    if (separator) {
        *separator++ = '\0';
    }
    switch (*line) {
    case 'g':
        if (separator) {
            migration_set_global(store, rest, separator, errp);
        }
        return true;
    case 'p':
        if (separator) {
            migration_set_parameter_string(store, rest, separator, errp);
        }
        break;
    case '+':
    case '-':
        set_capability(store, line + 1, *line == '+', errp);
        break;
    case 'u':
        migration_option_store_allow_unsupported(store);
        break;
    default:
        break;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autofree char *text = g_strndup((const char *)data, size);
    g_auto(GStrv) lines = g_strsplit(text, "\n", 64);
    g_autoptr(MigrationOptionStore) store = migration_option_store_new();
    char **line = lines;
    g_autoptr(GError) global_error = NULL;

    /* Globals come first, as on the command line; a bad set ends the program. */
    while (*line && (**line == 'g' || **line == 'u')) {
        g_autoptr(GError) error = NULL;

        step(store, *line++, &error);
    }
    g_auto(GStrv) properties = migration_list_properties(store);
    g_assert_cmpuint(g_strv_length(properties), >=, 6);
    if (!migration_check_globals(store, &global_error)) {
        return 0;
    }
    check_store(store);
    for (; *line; line++) {
        g_autoptr(GError) error = NULL;

        if (**line != 'g') {
            step(store, *line, &error);
            check_store(store);
        }
    }
    return 0;
}
