/* SPDX-License-Identifier: BSD-2-Clause */
/* The migration commands: from QMP's arguments to the migration library. */
#include "monitor-internal.h"

#include "qapi/qapi-commands-migration.h"
#include "util/error.h"

/* An empty list is as good as none. */
static const MigrationChannelList *given_channels(const MigrationChannelList *channels)
{
    return channels && channels->count > 0 ? channels : NULL;
}

static bool check_destination(const char *uri, const MigrationChannelList *channels, GError **errp)
{
    if (!uri == !channels) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "need either 'uri' or 'channels' argument");
        return false;
    }
    return true;
}

bool qmp_migrate(MonitorContext *ctx, const migrate_arg *arg, GError **errp)
{
    const MigrationChannelList *channels = given_channels(arg->channels);

    return check_destination(arg->uri, channels, errp) &&
           migration_start(ctx->migration, arg->uri, channels, arg->resume, errp);
}

bool qmp_migrate_incoming(MonitorContext *ctx, const migrate_incoming_arg *arg, GError **errp)
{
    const MigrationChannelList *channels = given_channels(arg->channels);
    bool exit_on_error = !arg->has_exit_on_error || arg->exit_on_error;

    if (machine_run_state(ctx->machine) != RUN_STATE_INMIGRATE) {
        /* The reason why there is nothing to start goes before what is wrong with the arguments. */
        return migration_incoming_start(ctx->migration, arg->uri || channels ? arg->uri : "",
                                        arg->uri ? NULL : channels, exit_on_error, errp);
    }
    return check_destination(arg->uri, channels, errp) &&
           migration_incoming_start(ctx->migration, arg->uri, channels, exit_on_error, errp);
}

bool qmp_migrate_cancel(MonitorContext *ctx, GError **errp)
{
    return migration_cancel(ctx->migration, errp);
}

bool qmp_migrate_continue(MonitorContext *ctx, const migrate_continue_arg *arg, GError **errp)
{
    return migration_continue(ctx->migration, arg->state, errp);
}

bool qmp_migrate_pause(MonitorContext *ctx, GError **errp)
{
    return migration_pause(ctx->migration, errp);
}

bool qmp_migrate_recover(MonitorContext *ctx, const migrate_recover_arg *arg, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                "Migrate recover can only be run when postcopy is paused.");
    return false;
}

bool qmp_migrate_start_postcopy(MonitorContext *ctx, GError **errp)
{
    const char *why = "Postcopy must be started after migration has been started";

    if (!migration_capability(migration_options(ctx->migration), MIGRATION_CAPABILITY_POSTCOPY_RAM)) {
        why = "Enable postcopy with migrate_set_capability before the start of migration";
    }
    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, why);
    return false;
}

bool qmp_migrate_set_capabilities(MonitorContext *ctx, const migrate_set_capabilities_arg *arg, GError **errp)
{
    return migration_set_capabilities(migration_options(ctx->migration), arg->capabilities, errp);
}

MigrationCapabilityStatusList *qmp_query_migrate_capabilities(MonitorContext *ctx, GError **errp)
{
    MigrationOptionStore *store = migration_options(ctx->migration);
    MigrationCapabilityStatusList *list = g_new0(MigrationCapabilityStatusList, 1);

    list->count = MIGRATION_CAPABILITY__MAX;
    list->items = g_new0(MigrationCapabilityStatus *, list->count);
    for (size_t i = 0; i < list->count; i++) {
        list->items[i] = g_new0(MigrationCapabilityStatus, 1);
        list->items[i]->capability = (MigrationCapability)i;
        list->items[i]->state = migration_capability(store, (MigrationCapability)i);
    }
    return list;
}

bool qmp_migrate_set_parameters(MonitorContext *ctx, const MigrationParameters *arg, GError **errp)
{
    return migration_set_parameters(migration_options(ctx->migration), arg, errp);
}

MigrationParameters *qmp_query_migrate_parameters(MonitorContext *ctx, GError **errp)
{
    return migration_get_parameters(migration_options(ctx->migration));
}

MigrationInfo *qmp_query_migrate(MonitorContext *ctx, GError **errp)
{
    return migration_query(ctx->migration);
}
