/* SPDX-License-Identifier: BSD-2-Clause */
/* Character devices, trace events, yank, command line. */
#include "monitor-internal.h"

#include "accel/workload.h"
#include "qapi/qapi-commands-misc.h"
#include "qapi/qapi-commands-workload.h"
#include "system/cmdline.h"
#include "util/error.h"
#include "util/trace.h"

#include <string.h>

/* ---- character devices ---- */

static void collect_chardev(Chardev *chr, void *opaque)
{
    g_ptr_array_add(opaque, chr);
}

static GPtrArray *all_chardevs(void)
{
    GPtrArray *array = g_ptr_array_new();

    chardev_foreach(collect_chardev, array);
    return array;
}

ChardevInfoList *qmp_query_chardev(MonitorContext *ctx, GError **errp)
{
    g_autoptr(GPtrArray) all = all_chardevs();
    ChardevInfoList *list = g_new0(ChardevInfoList, 1);

    list->count = all->len;
    list->items = g_new0(ChardevInfo *, all->len);
    for (guint i = 0; i < all->len; i++) {
        Chardev *chr = g_ptr_array_index(all, i);
        ChardevInfo *info = list->items[i] = g_new0(ChardevInfo, 1);
        info->label = g_strdup(chardev_label(chr));
        info->filename = chardev_filename(chr);
        info->frontend_open = chardev_has_front_end(chr);
    }
    return list;
}

/* ---- trace events ---- */

static bool unknown_event(const char *name, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "unknown event \"%s\"", name);
    return false;
}

/* A pattern may match nothing, a plain name must exist. */
static bool check_event_name(const char *name, GError **errp)
{
    return strchr(name, '*') || trace_event_find(name) || unknown_event(name, errp);
}

TraceEventInfoList *qmp_trace_event_get_state(MonitorContext *ctx, const trace_event_get_state_arg *arg,
                                              GError **errp)
{
    g_autoptr(GPtrArray) found = g_ptr_array_new();

    if (!check_event_name(arg->name, errp)) {
        return NULL;
    }
    for (TraceEvent *e = trace_event_next(NULL); e; e = trace_event_next(e)) {
        if (trace_pattern_match(arg->name, e->name)) {
            TraceEventInfo *info = g_new0(TraceEventInfo, 1);
            info->name = g_strdup(e->name);
            info->state = trace_event_is_enabled(e) ? TRACE_EVENT_STATE_ENABLED : TRACE_EVENT_STATE_DISABLED;
            g_ptr_array_add(found, info);
        }
    }
    TraceEventInfoList *list = g_new0(TraceEventInfoList, 1);
    list->count = found->len;
    list->items = g_memdup2(found->pdata, found->len * sizeof(void *));
    return list;
}

bool qmp_trace_event_set_state(MonitorContext *ctx, const trace_event_set_state_arg *arg, GError **errp)
{
    if (!check_event_name(arg->name, errp)) {
        return false;
    }
    for (TraceEvent *e = trace_event_next(NULL); e; e = trace_event_next(e)) {
        if (trace_pattern_match(arg->name, e->name)) {
            trace_event_set_enabled(e, arg->enable);
        }
    }
    return true;
}

/* ---- yank ---- */

static YankInstance *yank_instance(YankInstanceType type, const char *id)
{
    YankInstance *instance = g_new0(YankInstance, 1);

    instance->type = type;
    if (type == YANK_INSTANCE_TYPE_CHARDEV) {
        instance->u.chardev = g_new0(YankInstanceChardev, 1);
        instance->u.chardev->id = g_strdup(id);
    }
    return instance;
}

YankInstanceList *qmp_query_yank(MonitorContext *ctx, GError **errp)
{
    g_autoptr(GPtrArray) all = all_chardevs();
    YankInstanceList *list = g_new0(YankInstanceList, 1);

    list->items = g_new0(YankInstance *, all->len + 1);
    for (guint i = 0; i < all->len; i++) {
        list->items[list->count++] =
            yank_instance(YANK_INSTANCE_TYPE_CHARDEV, chardev_label(g_ptr_array_index(all, i)));
    }
    if (migration_can_yank(ctx->migration)) {
        list->items[list->count++] = yank_instance(YANK_INSTANCE_TYPE_MIGRATION, NULL);
    }
    return list;
}

static bool can_yank(MonitorContext *ctx, const YankInstance *instance)
{
    switch (instance->type) {
    case YANK_INSTANCE_TYPE_CHARDEV:
        return chardev_find(instance->u.chardev->id);
    case YANK_INSTANCE_TYPE_MIGRATION:
        return migration_can_yank(ctx->migration);
    default:
        return false;
    }
}

static void yank_one(MonitorContext *ctx, const YankInstance *instance)
{
    if (instance->type == YANK_INSTANCE_TYPE_CHARDEV) {
        chardev_disconnect(chardev_find(instance->u.chardev->id));
    } else {
        migration_yank(ctx->migration);
    }
}

/* All or none. */
bool qmp_yank(MonitorContext *ctx, const yank_arg *arg, GError **errp)
{
    for (size_t i = 0; i < arg->instances->count; i++) {
        if (!can_yank(ctx, arg->instances->items[i])) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND, "Instance not found");
            return false;
        }
    }
    for (size_t i = 0; i < arg->instances->count; i++) {
        yank_one(ctx, arg->instances->items[i]);
    }
    return true;
}

/* ---- the synthetic guest ---- */

static bool check_workload(MonitorContext *ctx, GError **errp)
{
    if (!workload_machine(ctx->machine)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND, "machine type '%s' has no workload",
                    ctx->machine->type->name);
        return false;
    }
    return true;
}

static WorkloadVcpuInfo *vcpu_info(const WorkloadVcpuStats *stats, unsigned index)
{
    WorkloadVcpuInfo *info = g_new0(WorkloadVcpuInfo, 1);

    info->vcpu = index;
    info->steps = stats->steps;
    info->pages_written = stats->pages_written;
    info->checked = stats->pages_checked;
    info->errors = stats->errors;
    info->longest_gap_ns = stats->longest_gap_ns;
    info->switchover_gap_ns = stats->switchover_gap_ns;
    return info;
}

WorkloadInfo *qmp_query_workload(MonitorContext *ctx, GError **errp)
{
    if (!check_workload(ctx, errp)) {
        return NULL;
    }
    g_autoptr(WorkloadStats) stats = workload_query(ctx->machine);
    WorkloadInfo *info = g_new0(WorkloadInfo, 1);

    info->pattern = g_strdup(stats->pattern);
    info->rate = stats->rate;
    info->working_set = stats->working_set;
    info->pages = stats->pages;
    info->sweeps = stats->sweeps;
    info->verifying = stats->verifying;
    info->verified = stats->verified;
    info->first_error = g_strdup(stats->first_error);
    info->vcpus = g_new0(WorkloadVcpuInfoList, 1);
    info->vcpus->count = stats->n_vcpus;
    info->vcpus->items = g_new0(WorkloadVcpuInfo *, stats->n_vcpus);
    for (unsigned i = 0; i < stats->n_vcpus; i++) {
        const WorkloadVcpuStats *vcpu = &stats->vcpus[i];
        info->vcpus->items[i] = vcpu_info(vcpu, i);
        info->pages_written += vcpu->pages_written;
        info->checked += vcpu->pages_checked;
        info->errors += vcpu->errors;
        info->longest_gap_ns = MAX(info->longest_gap_ns, vcpu->longest_gap_ns);
        info->switchover_gap_ns = MAX(info->switchover_gap_ns, vcpu->switchover_gap_ns);
    }
    return info;
}

bool qmp_x_workload_verify(MonitorContext *ctx, GError **errp)
{
    return check_workload(ctx, errp) && workload_verify(ctx->machine, errp);
}

/* ---- the command line ---- */

static CommandLineParameterInfoList *parameter_list(const char *group, const char *const *keys)
{
    CommandLineParameterInfoList *list = g_new0(CommandLineParameterInfoList, 1);

    list->count = g_strv_length((char **)keys);
    list->items = g_new0(CommandLineParameterInfo *, list->count);
    for (size_t i = 0; i < list->count; i++) {
        list->items[i] = g_new0(CommandLineParameterInfo, 1);
        list->items[i]->name = g_strdup(keys[i]);
        list->items[i]->type = (CommandLineParameterType)CommandLineParameterType_parse(
            cmdline_key_type(group, keys[i]));
    }
    return list;
}

typedef struct GroupQuery {
    const char *only;       /* NULL: all */
    GPtrArray *found;       /* of CommandLineOptionInfo */
} GroupQuery;

static void add_group(const char *group, const char *const *keys, void *opaque)
{
    GroupQuery *query = opaque;

    if (!query->only || strcmp(query->only, group) == 0) {
        CommandLineOptionInfo *info = g_new0(CommandLineOptionInfo, 1);

        info->option = g_strdup(group);
        info->parameters = parameter_list(group, keys);
        g_ptr_array_add(query->found, info);
    }
}

CommandLineOptionInfoList *
qmp_query_command_line_options(MonitorContext *ctx, const query_command_line_options_arg *arg, GError **errp)
{
    GroupQuery query = { .only = arg->option, .found = g_ptr_array_new() };

    cmdline_foreach_group(add_group, &query);
    if (query.found->len == 0) {
        g_ptr_array_unref(query.found);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "invalid option name: %s", arg->option);
        return NULL;
    }
    CommandLineOptionInfoList *list = g_new0(CommandLineOptionInfoList, 1);
    list->count = query.found->len;
    list->items = (CommandLineOptionInfo **)g_ptr_array_free(query.found, false);
    return list;
}

/* ---- there are no network cards ---- */

bool qmp_announce_self(MonitorContext *ctx, const announce_self_arg *arg, GError **errp)
{
    return true;
}
