/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands about things that no machine here has: disks, network cards, TPMs; clients ask all the same. */
#include "qapi/qapi-commands-block.h"
#include "qapi/qapi-commands-machine.h"
#include "util/error.h"

/* The arguments have been checked; they only choose among things that are not there. */

json_t *qmp_query_block(MonitorContext *ctx, const query_block_arg *arg, GError **errp)
{
    return json_array();
}

json_t *qmp_query_named_block_nodes(MonitorContext *ctx, const query_named_block_nodes_arg *arg,
                                    GError **errp)
{
    return json_array();
}

json_t *qmp_query_blockstats(MonitorContext *ctx, const query_blockstats_arg *arg, GError **errp)
{
    return json_array();
}

json_t *qmp_query_block_jobs(MonitorContext *ctx, GError **errp)
{
    return json_array();
}

json_t *qmp_query_jobs(MonitorContext *ctx, GError **errp)
{
    return json_array();
}

json_t *qmp_query_iothreads(MonitorContext *ctx, GError **errp)
{
    return json_array();
}

json_t *qmp_query_rx_filter(MonitorContext *ctx, const query_rx_filter_arg *arg, GError **errp)
{
    if (arg->name) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "invalid net client name: %s", arg->name);
        return NULL;
    }
    return json_array();
}

json_t *qmp_query_pci(MonitorContext *ctx, GError **errp)
{
    return json_array();
}

json_t *qmp_query_tpm_models(MonitorContext *ctx, GError **errp)
{
    return json_array();
}

json_t *qmp_query_tpm_types(MonitorContext *ctx, GError **errp)
{
    return json_array();
}

json_t *qmp_query_balloon(MonitorContext *ctx, GError **errp)
{
    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_ACTIVE,
                        "No balloon device has been activated");
    return NULL;
}

VncInfo *qmp_query_vnc(MonitorContext *ctx, GError **errp)
{
    return g_new0(VncInfo, 1);
}

json_t *qmp_query_cpu_definitions(MonitorContext *ctx, GError **errp)
{
    return json_array();
}

json_t *qmp_query_memory_devices(MonitorContext *ctx, GError **errp)
{
    return json_array();
}

json_t *qmp_query_hotpluggable_cpus(MonitorContext *ctx, GError **errp)
{
    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "machine does not support hot-plugging CPUs");
    return NULL;
}
