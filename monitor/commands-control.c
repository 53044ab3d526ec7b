/* SPDX-License-Identifier: BSD-2-Clause */
/* The protocol's own commands: negotiation, version, lists of commands, HMP inside QMP. */
#include "monitor-internal.h"

#include "config.h"
#include "qapi/qapi-commands-control.h"
#include "qapi/qmp-command.h"
#include "util/error.h"

bool qmp_qmp_capabilities(MonitorContext *ctx, Monitor *mon, const qmp_capabilities_arg *arg, GError **errp)
{
    bool oob = false;

    for (size_t i = 0; arg->enable && i < arg->enable->count; i++) {
        oob = oob || arg->enable->items[i] == QMP_CAPABILITY_OOB;
    }
    return qmp_session_negotiate(mon, oob, errp);
}

VersionInfo *qmp_query_version(MonitorContext *ctx, GError **errp)
{
    VersionInfo *info = g_new0(VersionInfo, 1);

    info->qemu = g_new0(VersionTriple, 1);
    info->qemu->major = QEMU_VERSION_MAJOR;
    info->qemu->minor = QEMU_VERSION_MINOR;
    info->qemu->micro = QEMU_VERSION_MICRO;
    info->package = g_strdup("godwit " GODWIT_VERSION);
    return info;
}

CommandInfoList *qmp_query_commands(MonitorContext *ctx, GError **errp)
{
    CommandInfoList *list = g_new0(CommandInfoList, 1);

    while (qmp_commands[list->count].name) {
        list->count++;
    }
    list->items = g_new0(CommandInfo *, list->count);
    for (size_t i = 0; i < list->count; i++) {
        list->items[i] = g_new0(CommandInfo, 1);
        list->items[i]->name = g_strdup(qmp_commands[i].name);
    }
    return list;
}

char *qmp_human_monitor_command(MonitorContext *ctx, const human_monitor_command_arg *arg, GError **errp)
{
    int64_t cpus = ctx->machine && ctx->machine->cpu_ops ? ctx->machine->cpus : 0;

    if (arg->has_cpu_index && (arg->cpu_index < 0 || arg->cpu_index >= cpus)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter 'cpu-index' expects a CPU number");
        return NULL;
    }
    return monitor_hmp_command(ctx, arg->command_line);
}
