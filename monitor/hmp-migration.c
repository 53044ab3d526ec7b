/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP: migration. */
#include "hmp.h"

#include "qapi/qapi-commands-migration.h"
#include "qapi/qapi-options.h"
#include "util/error.h"

#include <inttypes.h>
#include <string.h>

static bool bad_value(const char *value, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "invalid parameter value: %s", value);
    return false;
}

/* ---- commands ---- */

bool hmp_migrate(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    migrate_arg arg = {
        .uri = (char *)hmp_text(args, "uri"),
        .has_resume = true,
        .resume = hmp_on(args, "resume"),
    };

    if (!qmp_migrate(hmp->ctx, &arg, errp)) {
        return false;
    }
    if (!hmp_on(args, "detach")) {
        hmp_wait_for_migration(hmp);
    }
    return true;
}

bool hmp_migrate_cancel(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return qmp_migrate_cancel(hmp->ctx, errp);
}

bool hmp_migrate_continue(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    const char *state = hmp_text(args, "state");
    int value = MigrationStatus_parse(state);

    if (value < 0) {
        return bad_value(state, errp);
    }
    migrate_continue_arg arg = { .state = (MigrationStatus)value };
    return qmp_migrate_continue(hmp->ctx, &arg, errp);
}

bool hmp_migrate_incoming(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    migrate_incoming_arg arg = { .uri = (char *)hmp_text(args, "uri") };

    return qmp_migrate_incoming(hmp->ctx, &arg, errp);
}

bool hmp_migrate_pause(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return qmp_migrate_pause(hmp->ctx, errp);
}

bool hmp_migrate_recover(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    migrate_recover_arg arg = { .uri = (char *)hmp_text(args, "uri") };

    return qmp_migrate_recover(hmp->ctx, &arg, errp);
}

bool hmp_migrate_start_postcopy(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return qmp_migrate_start_postcopy(hmp->ctx, errp);
}

bool hmp_migrate_set_capability(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    const char *name = hmp_text(args, "capability");
    int value = MigrationCapability_parse(name);

    if (value < 0) {
        return bad_value(name, errp);
    }
    MigrationCapabilityStatus status = { .capability = (MigrationCapability)value,
                                         .state = hmp_on(args, "state") };
    MigrationCapabilityStatus *items[] = { &status };
    MigrationCapabilityStatusList list = { .count = 1, .items = items };
    return migration_set_capabilities(migration_options(hmp->ctx->migration), &list, errp);
}

bool hmp_migrate_set_parameter(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return migration_set_parameter_string(migration_options(hmp->ctx->migration), hmp_text(args, "parameter"),
                                          hmp_text(args, "value"), errp);
}

/* ---- info migrate_capabilities, info migrate_parameters ---- */

static const char *unsupported_mark(bool unsupported)
{
    return unsupported ? " (not supported yet)" : "";
}

bool hmp_info_migrate_capabilities(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    MigrationOptionStore *store = migration_options(hmp->ctx->migration);

    for (int i = 0; i < MIGRATION_CAPABILITY__MAX; i++) {
        hmp_printf(hmp, "%s: %s%s\n", MigrationCapability_str((MigrationCapability)i),
                   migration_capability(store, (MigrationCapability)i) ? "on" : "off",
                   unsupported_mark(migration_capability_unsupported((MigrationCapability)i)));
    }
    return true;
}

static const QapiOption *find_option(const char *name)
{
    for (const QapiOption *o = MigrationParameters_options; o->name; o++) {
        if (strcmp(o->name, name) == 0) {
            return o;
        }
    }
    return NULL;
}

static void append_words(GString *text, const strList *list)
{
    for (size_t i = 0; list && i < list->count; i++) {
        g_string_append_printf(text, "%s%s", i ? " " : "", list->items[i]);
    }
}

static void append_value(GString *text, const QapiOption *o, const MigrationParameters *parameters)
{
    const void *at = (const char *)parameters + o->offset;

    switch (o->type) {
    case QAPI_OPTION_BOOL:
        g_string_append(text, *(const bool *)at ? "on" : "off");
        break;
    case QAPI_OPTION_UINT8:
        g_string_append_printf(text, "%u", *(const uint8_t *)at);
        break;
    case QAPI_OPTION_UINT32:
        g_string_append_printf(text, "%" PRIu32, *(const uint32_t *)at);
        break;
    case QAPI_OPTION_UINT64:
    case QAPI_OPTION_SIZE:
        g_string_append_printf(text, "%" PRIu64, *(const uint64_t *)at);
        break;
    case QAPI_OPTION_ENUM:
        g_string_append(text, o->enum_lookup[*(const int *)at]);
        break;
    case QAPI_OPTION_STR_OR_NULL: {
        const StrOrNull *value = *(StrOrNull *const *)at;
        g_string_append_printf(text, "'%s'", value && value->str ? value->str : "");
        break;
    }
    case QAPI_OPTION_STR_LIST:
        append_words(text, *(strList *const *)at);
        break;
    case QAPI_OPTION_OTHER:
        break;
    }
}

static void show_parameter(Hmp *hmp, const QapiOption *o, const MigrationParameters *parameters)
{
    g_autoptr(GString) value = g_string_new(NULL);

    append_value(value, o, parameters);
    hmp_printf(hmp, "%s:%s%s", o->name, value->len ? " " : "", value->str);
    if (o->unit && strcmp(o->unit, "%") != 0) {
        hmp_printf(hmp, " %s", o->unit);
    }
    hmp_printf(hmp, "%s\n", unsupported_mark(migration_parameter_unsupported(o->name)));
}

/* The order that people know; what is not here comes after. */
static const char *const parameter_order[] = {
    "announce-initial",
    "announce-max",
    "announce-rounds",
    "announce-step",
    "throttle-trigger-threshold",
    "cpu-throttle-initial",
    "cpu-throttle-increment",
    "cpu-throttle-tailslow",
    "max-cpu-throttle",
    "tls-creds",
    "tls-hostname",
    "tls-authz",
    "max-bandwidth",
    "avail-switchover-bandwidth",
    "max-postcopy-bandwidth",
    "downtime-limit",
    "x-checkpoint-delay",
    "multifd-channels",
    "multifd-compression",
    "zero-page-detection",
    "xbzrle-cache-size",
    "x-vcpu-dirty-limit-period",
    "vcpu-dirty-limit",
    "mode",
    "direct-io",
    "x-rdma-chunk-size",
    "cpr-exec-command",
    NULL,
};

bool hmp_info_migrate_parameters(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(MigrationParameters) parameters = qmp_query_migrate_parameters(hmp->ctx, errp);

    if (!parameters) {
        return false;
    }
    for (const char *const *name = parameter_order; *name; name++) {
        const QapiOption *o = find_option(*name);
        if (o) {
            show_parameter(hmp, o, parameters);
        }
    }
    for (const QapiOption *o = MigrationParameters_options; o->name; o++) {
        if (!g_strv_contains(parameter_order, o->name) && o->type != QAPI_OPTION_OTHER) {
            show_parameter(hmp, o, parameters);
        }
    }
    return true;
}

/* ---- info migrate ---- */

/* Three significant digits; the next unit begins at 1000 of the last. */
static char *size_text(uint64_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1000 && unit + 1 < G_N_ELEMENTS(units)) {
        value /= 1024;
        unit++;
    }
    return g_strdup_printf("%.3g %s", value, units[unit]);
}

static void show_status(Hmp *hmp, const MigrationInfo *info)
{
    bool reason = info->error_desc && (info->status == MIGRATION_STATUS_FAILED ||
                                       info->status == MIGRATION_STATUS_POSTCOPY_PAUSED);

    hmp_printf(hmp, "Status: \t\t%s", MigrationStatus_str(info->status));
    if (reason) {
        hmp_printf(hmp, " (%s)", info->error_desc);
    }
    hmp_printf(hmp, "\n");
}

static void show_times(Hmp *hmp, const MigrationInfo *info)
{
    if (info->has_total_time) {
        hmp_printf(hmp, "Time (ms): \t\ttotal=%" PRId64, info->total_time);
        if (info->has_setup_time) {
            hmp_printf(hmp, ", setup=%" PRId64, info->setup_time);
        }
        if (info->has_expected_downtime) {
            hmp_printf(hmp, ", exp_down=%" PRId64, info->expected_downtime);
        }
        if (info->has_downtime) {
            hmp_printf(hmp, ", down=%" PRId64, info->downtime);
        }
        hmp_printf(hmp, "\n");
    }
    if (info->has_remaining) {
        g_autofree char *remaining = size_text(info->remaining);
        hmp_printf(hmp, "Remaining: \t\t%s\n", remaining);
    }
}

static void show_ram(Hmp *hmp, const MigrationRAMStats *ram)
{
    g_autofree char *page_size = size_text((uint64_t)ram->page_size);
    g_autofree char *total = size_text((uint64_t)ram->total);
    g_autofree char *transferred = size_text((uint64_t)ram->transferred);
    g_autofree char *remaining = size_text((uint64_t)ram->remaining);
    g_autofree char *precopy = size_text((uint64_t)ram->precopy_bytes);
    g_autofree char *multifd = size_text((uint64_t)ram->multifd_bytes);
    g_autofree char *postcopy = size_text((uint64_t)ram->postcopy_bytes);

    hmp_printf(hmp, "RAM info:\n");
    hmp_printf(hmp, "  Throughput (Mbps): \t%.2f\n", ram->mbps);
    hmp_printf(hmp, "  Sizes: \t\tpagesize=%s, total=%s\n", page_size, total);
    hmp_printf(hmp, "  Transfers: \t\ttransferred=%s, remain=%s\n", transferred, remaining);
    hmp_printf(hmp, "    Channels: \t\tprecopy=%s, multifd=%s, postcopy=%s\n", precopy, multifd, postcopy);
    hmp_printf(hmp, "    Page Types: \tnormal=%" PRId64 ", zero=%" PRId64 "\n", ram->normal, ram->duplicate);
    hmp_printf(hmp, "  Page Rates (pps): \ttransfer=%" PRIu64, (uint64_t)ram->pages_per_second);
    if (ram->dirty_pages_rate) {
        hmp_printf(hmp, ", dirty=%" PRId64, ram->dirty_pages_rate);
    }
    hmp_printf(hmp, "\n  Others: \t\tdirty_syncs=%" PRId64, ram->dirty_sync_count);
    if (ram->postcopy_requests) {
        hmp_printf(hmp, ", postcopy_req=%" PRId64, ram->postcopy_requests);
    }
    if (ram->downtime_bytes) {
        hmp_printf(hmp, ", downtime_bytes=%" PRIu64, (uint64_t)ram->downtime_bytes);
    }
    hmp_printf(hmp, "\n");
}

static void show_address(Hmp *hmp, const SocketAddress *address)
{
    switch (address->type) {
    case SOCKET_ADDRESS_TYPE_INET:
        hmp_printf(hmp, "\ttcp:%s:%s\n", address->u.inet->host, address->u.inet->port);
        break;
    case SOCKET_ADDRESS_TYPE_UNIX:
        hmp_printf(hmp, "\tunix:%s\n", address->u.q_unix->path);
        break;
    case SOCKET_ADDRESS_TYPE_VSOCK:
        hmp_printf(hmp, "\tvsock:%s:%s\n", address->u.vsock->cid, address->u.vsock->port);
        break;
    default:
        hmp_printf(hmp, "\tfd:%s\n", address->u.fd->str);
        break;
    }
}

static void show_addresses(Hmp *hmp, const SocketAddressList *list)
{
    if (!list) {
        return;
    }
    hmp_printf(hmp, "Sockets: [\n");
    for (size_t i = 0; i < list->count; i++) {
        show_address(hmp, list->items[i]);
    }
    hmp_printf(hmp, "]\n");
}

static void show_file(Hmp *hmp, const MigrationFileInfo *file)
{
    if (!file) {
        return;
    }
    hmp_printf(hmp, "File: engine=%s, direct-io=%s", file->engine, file->direct_io ? "on" : "off");
    if (file->lazy) {
        hmp_printf(hmp, ", lazy");
    }
    if (file->has_pages_left) {
        hmp_printf(hmp, ", pages_left=%" PRIu64, file->pages_left);
    }
    hmp_printf(hmp, "\n");
}

static void show_rounds(Hmp *hmp, const MigrationRoundStatsList *list)
{
    if (!list || list->count == 0) {
        return;
    }
    hmp_printf(hmp, "Rounds:\n  round  dirty pages  sync (us)  clears  pages/clear  clear (us)  "
                    "send (us)  pages  bytes\n");
    for (size_t i = 0; i < list->count; i++) {
        const MigrationRoundStats *r = list->items[i];
        hmp_printf(hmp,
                   "  %5" PRIu64 "  %11" PRIu64 "  %9" PRIu64 "  %6" PRIu64 "  %11.1f  %10" PRIu64
                   "  %9" PRIu64 "  %" PRIu64 "  %" PRIu64 "\n",
                   r->round, r->dirty_pages, r->sync_time, r->clear_calls, r->pages_per_clear, r->clear_time,
                   r->send_time, r->pages, r->bytes);
    }
}

static void show_dirty_log(Hmp *hmp, const DirtyLogProviderStatsList *list)
{
    if (!list || list->count == 0) {
        return;
    }
    hmp_printf(hmp, "Dirty log:\n");
    for (size_t i = 0; i < list->count; i++) {
        const DirtyLogProviderStats *p = list->items[i];
        hmp_printf(hmp,
                   "  %s: syncs=%" PRIu64 " in %" PRIu64 " us, clears=%" PRIu64 " in %" PRIu64
                   " us, pages/clear=%.1f, requests=%" PRIu64 "\n",
                   p->name, p->sync_calls, p->sync_time, p->clear_calls, p->clear_time, p->pages_per_clear,
                   p->requests);
    }
}

static void show_downtime(Hmp *hmp, const MigrationDowntime *d)
{
    if (!d) {
        return;
    }
    const struct {
        const char *name;
        bool there;
        int64_t us;
    } phases[] = {
        { "stop", d->has_stop, d->stop },
        { "pause", d->has_pause, d->pause },
        { "sync", d->has_sync, d->sync },
        { "transfer", d->has_transfer, d->transfer },
        { "device-state", d->has_device_state, d->device_state },
        { "hand-over", d->has_hand_over, d->hand_over },
        { "receive", d->has_receive, d->receive },
        { "load", d->has_load, d->load },
        { "start", d->has_start, d->start },
    };
    hmp_printf(hmp, "Downtime (us): \t\ttotal=%" PRId64, d->total);
    for (size_t i = 0; i < G_N_ELEMENTS(phases); i++) {
        if (phases[i].there) {
            hmp_printf(hmp, ", %s=%" PRId64, phases[i].name, phases[i].us);
        }
    }
    hmp_printf(hmp, "\n");
}

/* What -a adds. */
static void show_all(Hmp *hmp, const MigrationInfo *info)
{
    g_auto(GStrv) properties = migration_list_properties(migration_options(hmp->ctx->migration));
    const XBZRLECacheStats *x = info->xbzrle_cache;

    hmp_printf(hmp, "Globals:\n");
    for (char **p = properties; *p; p++) {
        hmp_printf(hmp, "  %s\n", *p);
    }
    if (x) {
        hmp_printf(hmp,
                   "XBZRLE: size=%" PRIu64 ", transferred=%" PRId64 ", pages=%" PRId64 ", miss=%" PRId64 "\n",
                   x->cache_size, x->bytes, x->pages, x->cache_miss);
        hmp_printf(hmp, "  miss_rate=%.2f, encode_rate=%.2f, overflow=%" PRId64 "\n", x->cache_miss_rate,
                   x->encoding_rate, x->overflow);
    }
    if (info->has_cpu_throttle_percentage) {
        hmp_printf(hmp, "CPU Throttle (%%): %" PRId64 "\n", info->cpu_throttle_percentage);
    }
    if (info->has_dirty_limit_throttle_time_per_round) {
        hmp_printf(hmp, "Dirty-limit Throttle (us): %" PRIu64 "\n",
                   info->dirty_limit_throttle_time_per_round);
    }
    if (info->has_dirty_limit_ring_full_time) {
        hmp_printf(hmp, "Dirty-limit Ring Full (us): %" PRIu64 "\n", info->dirty_limit_ring_full_time);
    }
    show_downtime(hmp, info->x_downtime);
    show_dirty_log(hmp, info->x_dirty_log);
    show_rounds(hmp, info->x_rounds);
}

bool hmp_info_migrate(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(MigrationInfo) info = qmp_query_migrate(hmp->ctx, errp);

    if (!info) {
        return false;
    }
    if (info->blocked_reasons && info->blocked_reasons->count > 0) {
        hmp_printf(hmp, "Outgoing migration blocked:\n");
        for (size_t i = 0; i < info->blocked_reasons->count; i++) {
            hmp_printf(hmp, "  %s\n", info->blocked_reasons->items[i]);
        }
    }
    if (info->has_status) {
        show_status(hmp, info);
        show_times(hmp, info);
    }
    if (info->ram) {
        show_ram(hmp, info->ram);
    }
    show_file(hmp, info->x_file);
    show_addresses(hmp, info->socket_address);
    if (hmp_on(args, "all")) {
        show_all(hmp, info);
    }
    return true;
}

/* ---- dirty limit ---- */

/* As the peers have it, -1 is all vCPUs here; so is DIRTY_LIMIT_ALL_VCPUS. */
bool hmp_set_vcpu_dirty_limit(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    int64_t rate = hmp_number(args, "dirty_rate");
    int64_t index = hmp_has(args, "cpu_index") ? hmp_number(args, "cpu_index") : DIRTY_LIMIT_ALL_VCPUS;
    set_vcpu_dirty_limit_arg arg = {
        .has_cpu_index = index != DIRTY_LIMIT_ALL_VCPUS, .cpu_index = index, .dirty_rate = (uint64_t)rate,
    };

    if (rate < 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "invalid dirty page limit %" PRId64, rate);
        return false;
    }
    return qmp_set_vcpu_dirty_limit(hmp->ctx, &arg, errp);
}

bool hmp_cancel_vcpu_dirty_limit(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    int64_t index = hmp_has(args, "cpu_index") ? hmp_number(args, "cpu_index") : DIRTY_LIMIT_ALL_VCPUS;
    cancel_vcpu_dirty_limit_arg arg = { .has_cpu_index = index != DIRTY_LIMIT_ALL_VCPUS, .cpu_index = index };

    if (!qmp_cancel_vcpu_dirty_limit(hmp->ctx, &arg, errp)) {
        return false;
    }
    hmp_printf(hmp, "[Please use 'info vcpu_dirty_limit' to query dirty limit for virtual CPU]\n");
    return true;
}

bool hmp_info_vcpu_dirty_limit(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(DirtyLimitInfoList) list = qmp_query_vcpu_dirty_limit(hmp->ctx, errp);

    if (!list->count) {
        hmp_printf(hmp, "Dirty page limit not enabled!\n");
    }
    for (size_t i = 0; i < list->count; i++) {
        const DirtyLimitInfo *v = list->items[i];
        hmp_printf(hmp, "vcpu[%" PRId64 "], limit rate %" PRIu64 " (MB/s), current rate %" PRIu64 " (MB/s)\n",
                   v->cpu_index, v->limit_rate, v->current_rate);
    }
    return true;
}
