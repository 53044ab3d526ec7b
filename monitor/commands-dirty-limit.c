/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that limit how fast vCPUs dirty memory. */
#include "monitor-internal.h"

#include "qapi/qapi-commands-migration.h"
#include "util/error.h"

static DirtyLimiter *limiter_of(const MonitorContext *ctx)
{
    return ctx->machine->dirty_limiter;
}

/* With the capability the limits are the migration's while it runs. */
static bool migration_limits(const MonitorContext *ctx)
{
    return migration_is_active(ctx->migration) &&
           migration_capability(migration_options(ctx->migration), MIGRATION_CAPABILITY_DIRTY_LIMIT);
}

static bool set_limit(MonitorContext *ctx, bool has_index, int64_t index, uint64_t mb_per_s,
                      const char *when_migrating, GError **errp)
{
    DirtyLimiter *limiter = limiter_of(ctx);

    if (has_index && !dirty_limiter_check_index(limiter, index, errp)) {
        return false;
    }
    if (migration_limits(ctx)) {
        return error_set_invalid(errp, "%s", when_migrating);
    }
    return dirty_limiter_set(limiter, DIRTY_LIMIT_USER, has_index ? index : DIRTY_LIMIT_ALL_VCPUS, mb_per_s,
                             errp);
}

bool qmp_set_vcpu_dirty_limit(MonitorContext *ctx, const set_vcpu_dirty_limit_arg *arg, GError **errp)
{
    if (!limiter_of(ctx)) {
        /* The quotation mark at its end is the peers', too. */
        return error_set_invalid(errp, "dirty page limit feature requires KVM with accelerator property "
                                       "'dirty-ring-size' set'");
    }
    return set_limit(ctx, arg->has_cpu_index, arg->cpu_index, arg->dirty_rate,
                     "can't set dirty page rate limit while migration is running", errp);
}

bool qmp_cancel_vcpu_dirty_limit(MonitorContext *ctx, const cancel_vcpu_dirty_limit_arg *arg, GError **errp)
{
    return !limiter_of(ctx) ||
           set_limit(ctx, arg->has_cpu_index, arg->cpu_index, 0,
                     "can't cancel dirty page rate limit while migration is running", errp);
}

DirtyLimitInfoList *qmp_query_vcpu_dirty_limit(MonitorContext *ctx, GError **errp)
{
    DirtyLimiter *limiter = limiter_of(ctx);
    unsigned n = limiter ? dirty_limiter_vcpus(limiter) : 0;
    DirtyLimitInfoList *list = g_new0(DirtyLimitInfoList, 1);
    DirtyLimitState state;

    list->items = g_new0(DirtyLimitInfo *, n);
    for (unsigned i = 0; i < n; i++) {
        if (dirty_limiter_query(limiter, i, &state) && state.limit) {
            DirtyLimitInfo *info = g_new0(DirtyLimitInfo, 1);
            info->cpu_index = i;
            info->limit_rate = state.limit;
            info->current_rate = state.rate;
            list->items[list->count++] = info;
        }
    }
    return list;
}
