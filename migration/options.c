/* SPDX-License-Identifier: BSD-2-Clause */
/* The option store: parameters, capabilities and properties, changed all or nothing, copied as a whole. */

/*
 * Every change is made to a copy, the copy is checked as a whole, and only then takes the place of what was
 * there. What there is to check lies in option-rules.c, how people write values in option-text.c; names,
 * types, defaults and ranges come from the schema (qapi/migration.json) by way of the generated tables.
 */
#include "migration/option-store.h"
#include "util/error.h"

#include <string.h>

/* ---- values by table ---- */

static const void *member(const QapiOption *opt, const MigrationParameters *p)
{
    return (const char *)p + opt->offset;
}

uint64_t migration_option_number(const QapiOption *opt, const MigrationParameters *p)
{
    const void *at = member(opt, p);

    switch (opt->type) {
    case QAPI_OPTION_BOOL:
        return *(const bool *)at;
    case QAPI_OPTION_UINT8:
        return *(const uint8_t *)at;
    case QAPI_OPTION_UINT32:
        return *(const uint32_t *)at;
    case QAPI_OPTION_UINT64:
    case QAPI_OPTION_SIZE:
        return *(const uint64_t *)at;
    case QAPI_OPTION_ENUM:
        return (uint64_t) * (const int *)at;
    default:
        g_assert_not_reached();
    }
}

void migration_option_set_number(const QapiOption *opt, MigrationParameters *p, uint64_t value)
{
    char *base = (char *)p;
    void *at = base + opt->offset;

    switch (opt->type) {
    case QAPI_OPTION_BOOL:
        *(bool *)at = value;
        break;
    case QAPI_OPTION_UINT8:
        *(uint8_t *)at = (uint8_t)value;
        break;
    case QAPI_OPTION_UINT32:
        *(uint32_t *)at = (uint32_t)value;
        break;
    case QAPI_OPTION_UINT64:
    case QAPI_OPTION_SIZE:
        *(uint64_t *)at = value;
        break;
    case QAPI_OPTION_ENUM:
        *(int *)at = (int)value;
        break;
    default:
        g_assert_not_reached();
    }
    *(bool *)(base + opt->has_offset) = true;
}

static StrOrNull *string_value(const char *text)
{
    StrOrNull *value = g_new0(StrOrNull, 1);

    value->str = g_strdup(text);
    return value;
}

static void set_defaults(MigrationParameters *p)
{
    for (const QapiOption *opt = MigrationParameters_options; opt->name; opt++) {
        void **slot = (void **)((char *)p + opt->offset);

        switch (opt->type) {
        case QAPI_OPTION_STR_OR_NULL:
            *slot = string_value(opt->default_str);
            break;
        case QAPI_OPTION_STR_LIST:
            *slot = g_new0(strList, 1);
            break;
        case QAPI_OPTION_OTHER:
            break;
        default:
            migration_option_set_number(opt, p, opt->default_number);
            break;
        }
    }
}

/* null is another way to write the empty string. */
static void null_to_empty(MigrationParameters *p)
{
    for (const QapiOption *opt = MigrationParameters_options; opt->name; opt++) {
        StrOrNull *value = opt->type == QAPI_OPTION_STR_OR_NULL
                               ? *(StrOrNull **)((char *)p + opt->offset) : NULL;

        if (value && value->is_null) {
            value->is_null = false;
            value->str = g_strdup("");
        }
    }
}

/* ---- the store ---- */

static const MigrationProperties default_properties = {
    .store_global_state = true,
    .send_configuration = true,
    .send_section_footer = true,
    .send_switchover_start = true,
    .multifd_clean_tls_termination = true,
    .x_clear_bitmap_shift = 18,
};

MigrationOptionStore *migration_option_store_new(void)
{
    MigrationOptionStore *store = g_new0(MigrationOptionStore, 1);

    g_mutex_init(&store->lock);
    set_defaults(&store->o.p);
    store->o.props = default_properties;
    return store;
}

/* Frees what @p owns, but not @p. */
static void clear_parameters(MigrationParameters *p)
{
    qapi_free_MigrationParameters(g_memdup2(p, sizeof(*p)));
    memset(p, 0, sizeof(*p));
}

void migration_option_store_free(MigrationOptionStore *store)
{
    if (!store) {
        return;
    }
    clear_parameters(&store->o.p);
    g_free(store->rdma_shared);
    g_mutex_clear(&store->lock);
    g_free(store);
}

void migration_option_store_allow_unsupported(MigrationOptionStore *store)
{
    g_mutex_lock(&store->lock);
    store->allow_unsupported = true;
    g_mutex_unlock(&store->lock);
}

void migration_option_store_set_dirty_limiter(MigrationOptionStore *store, bool there)
{
    g_mutex_lock(&store->lock);
    store->can_limit_dirtying = there;
    g_mutex_unlock(&store->lock);
}

void migration_option_store_set_busy(MigrationOptionStore *store, bool outgoing, bool incoming)
{
    g_mutex_lock(&store->lock);
    store->outgoing = outgoing;
    store->incoming = incoming;
    store->rdma = store->rdma && incoming;
    g_mutex_unlock(&store->lock);
}

void migration_option_store_set_rdma(MigrationOptionStore *store, const char *shared)
{
    g_mutex_lock(&store->lock);
    store->rdma = true;
    g_free(store->rdma_shared);
    store->rdma_shared = g_strdup(shared);
    g_mutex_unlock(&store->lock);
}

MigrationOptions *migration_options_snapshot(MigrationOptionStore *store)
{
    MigrationOptions *copy;

    g_mutex_lock(&store->lock);
    copy = g_memdup2(&store->o, sizeof(store->o));
    MigrationParameters *p = qapi_clone_MigrationParameters(&store->o.p);
    g_mutex_unlock(&store->lock);
    copy->p = *p;
    g_free(p);      /* what it pointed to is the copy's now */
    return copy;
}

void migration_options_free(MigrationOptions *o)
{
    if (o) {
        clear_parameters(&o->p);
        g_free(o);
    }
}

/* ---- parameters ---- */

/* @staged is checked and, if good, takes the place of the store's parameters.  It is used up either way. */
static bool adopt(MigrationOptionStore *store, MigrationParameters *staged, bool size_given, bool shift_given,
                  GError **errp)
{
    bool ok = migration_check_parameters(staged, store->allow_unsupported, errp) &&
              migration_unify_chunk_size(staged, size_given, shift_given, errp) &&
              migration_check_capabilities(store->o.caps, staged, store->allow_unsupported,
                                           store->can_limit_dirtying, errp) &&
              (!store->rdma || migration_check_rdma(store->o.caps, staged, store->rdma_shared, errp));

    if (ok) {
        clear_parameters(&store->o.p);
        store->o.p = *staged;
        g_free(staged);
    } else {
        qapi_free_MigrationParameters(staged);
    }
    return ok;
}

bool migration_set_parameters(MigrationOptionStore *store, const MigrationParameters *params, GError **errp)
{
    g_mutex_lock(&store->lock);
    MigrationParameters *staged = qapi_clone_MigrationParameters(&store->o.p);
    qapi_type_merge(&qapi_info_MigrationParameters, staged, params);
    null_to_empty(staged);
    bool ok = adopt(store, staged, params->has_x_rdma_chunk_size, params->has_x_rdma_chunk_shift, errp);
    g_mutex_unlock(&store->lock);
    return ok;
}

MigrationParameters *migration_get_parameters(MigrationOptionStore *store)
{
    g_mutex_lock(&store->lock);
    MigrationParameters *copy = qapi_clone_MigrationParameters(&store->o.p);
    g_mutex_unlock(&store->lock);
    return copy;
}

bool migration_parameter_unsupported(const char *name)
{
    for (const QapiOption *opt = MigrationParameters_options; opt->name; opt++) {
        if (strcmp(opt->name, name) == 0) {
            return opt->unsupported;
        }
    }
    return false;
}

/* ---- capabilities ---- */

static bool refuse(const char *message, GError **errp)
{
    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, message);
    return false;
}

/* What must not change while there is a migration. */
static bool may_change(const MigrationOptionStore *store, const bool *staged, GError **errp)
{
    static const struct {
        MigrationCapability cap;
        const char *message;
    } before_listening[] = {
        { MIGRATION_CAPABILITY_MULTIFD, "Multifd must be set before incoming starts" },
        { MIGRATION_CAPABILITY_POSTCOPY_PREEMPT, "Postcopy preempt must be set before incoming starts" },
    };

    if (store->outgoing) {
        return refuse("There's a migration process in progress", errp);
    }
    for (size_t i = 0; store->incoming && i < G_N_ELEMENTS(before_listening); i++) {
        if (staged[before_listening[i].cap] && !store->o.caps[before_listening[i].cap]) {
            return refuse(before_listening[i].message, errp);
        }
    }
    return true;
}

bool migration_set_capabilities(MigrationOptionStore *store, const MigrationCapabilityStatusList *caps,
                                GError **errp)
{
    bool staged[MIGRATION_CAPABILITY__MAX];

    g_mutex_lock(&store->lock);
    memcpy(staged, store->o.caps, sizeof(staged));
    for (size_t i = 0; i < caps->count; i++) {
        staged[caps->items[i]->capability] = caps->items[i]->state;
    }
    bool ok = migration_check_capabilities(staged, &store->o.p, store->allow_unsupported,
                                           store->can_limit_dirtying, errp) &&
              (!store->rdma || migration_check_rdma(staged, &store->o.p, store->rdma_shared, errp)) &&
              may_change(store, staged, errp);
    if (ok) {
        memcpy(store->o.caps, staged, sizeof(staged));
    }
    g_mutex_unlock(&store->lock);
    return ok;
}

bool migration_capability(MigrationOptionStore *store, MigrationCapability cap)
{
    g_mutex_lock(&store->lock);
    bool on = store->o.caps[cap];
    g_mutex_unlock(&store->lock);
    return on;
}

bool migration_capability_unsupported(MigrationCapability cap)
{
    return MigrationCapability_options[cap].unsupported;
}

/* ---- globals ---- */

bool migration_check_globals(MigrationOptionStore *store, GError **errp)
{
    g_mutex_lock(&store->lock);
    MigrationParameters *staged = qapi_clone_MigrationParameters(&store->o.p);
    bool ok = adopt(store, staged, store->chunk_size_given, store->chunk_shift_given, errp);
    g_mutex_unlock(&store->lock);
    return ok;
}
