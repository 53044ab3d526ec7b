/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP: the machine, its life, its objects. */
#include "hmp.h"

#include "config.h"
#include "monitor/object-text.h"
#include "qapi/qapi-commands-machine.h"
#include "qapi/qapi-commands-misc.h"
#include "qapi/qapi-commands-qom.h"
#include "qapi/qapi-commands-run-state.h"
#include "qapi/qapi-commands-workload.h"
#include "util/error.h"

#include <inttypes.h>

bool hmp_stop(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return qmp_stop(hmp->ctx, errp);
}

bool hmp_cont(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return qmp_cont(hmp->ctx, errp);
}

bool hmp_quit(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return qmp_quit(hmp->ctx, errp);
}

bool hmp_system_reset(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return qmp_system_reset(hmp->ctx, errp);
}

bool hmp_system_powerdown(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return qmp_system_powerdown(hmp->ctx, errp);
}

bool hmp_object_add(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return object_add_text(hmp->ctx->backends, hmp_text(args, "options"), errp) != NULL;
}

bool hmp_object_del(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return memory_backend_del(hmp->ctx->backends, hmp_text(args, "id"), errp);
}

bool hmp_info_status(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    RunState state = machine_run_state(hmp->ctx->machine);

    hmp_printf(hmp, "VM status: %s", state == RUN_STATE_RUNNING ? "running" : "paused");
    if (state != RUN_STATE_RUNNING && state != RUN_STATE_PAUSED) {
        hmp_printf(hmp, " (%s)", RunState_str(state));
    }
    hmp_printf(hmp, "\n");
    return true;
}

bool hmp_info_version(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    hmp_printf(hmp, QEMU_VERSION " (godwit " GODWIT_VERSION ")\n");
    return true;
}

bool hmp_info_name(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    if (hmp->ctx->machine->name) {
        hmp_printf(hmp, "%s\n", hmp->ctx->machine->name);
    }
    return true;
}

bool hmp_info_uuid(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(UuidInfo) info = qmp_query_uuid(hmp->ctx, errp);

    hmp_printf(hmp, "%s\n", info->UUID);
    return true;
}

bool hmp_info_kvm(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(KvmInfo) info = qmp_query_kvm(hmp->ctx, errp);

    hmp_printf(hmp, "kvm support: %s\n", info->enabled ? "enabled" : "disabled");
    return true;
}

bool hmp_info_cpus(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(CpuInfoFastList) list = qmp_query_cpus_fast(hmp->ctx, errp);

    for (size_t i = 0; i < list->count; i++) {
        hmp_printf(hmp, "%s CPU #%zu: thread_id=%" PRId64 "\n", i == 0 ? "*" : " ", i,
                   list->items[i]->thread_id);
    }
    return true;
}

bool hmp_info_chardev(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(ChardevInfoList) list = qmp_query_chardev(hmp->ctx, errp);

    for (size_t i = 0; i < list->count; i++) {
        hmp_printf(hmp, "%s: filename=%s\n", list->items[i]->label, list->items[i]->filename);
    }
    return true;
}

bool hmp_info_workload(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(WorkloadInfo) w = qmp_query_workload(hmp->ctx, errp);

    if (!w) {
        return false;
    }
    hmp_printf(hmp, "pattern: %s\n", w->pattern);
    hmp_printf(hmp, "rate: %" PRIu64 " bytes/second\n", w->rate);
    hmp_printf(hmp, "working set: %" PRIu64 " bytes\n", w->working_set);
    hmp_printf(hmp, "pages: %" PRIu64 "\n", w->pages);
    hmp_printf(hmp, "pages written: %" PRIu64 "\n", w->pages_written);
    hmp_printf(hmp, "pages checked: %" PRIu64 "\n", w->checked);
    hmp_printf(hmp, "sweeps: %" PRIu64 "\n", w->sweeps);
    hmp_printf(hmp, "errors: %" PRIu64 "\n", w->errors);
    if (w->first_error) {
        hmp_printf(hmp, "first error: %s\n", w->first_error);
    }
    hmp_printf(hmp, "verified: %s\n", w->verifying ? "under way" : w->verified ? "yes" : "no");
    hmp_printf(hmp, "longest gap: %.3f ms\n", (double)w->longest_gap_ns / 1e6);
    hmp_printf(hmp, "switchover gap: %.3f ms\n", (double)w->switchover_gap_ns / 1e6);
    for (size_t i = 0; i < w->vcpus->count; i++) {
        const WorkloadVcpuInfo *v = w->vcpus->items[i];
        hmp_printf(hmp,
                   "vCPU %" PRId64 ": steps=%" PRIu64 ", written=%" PRIu64 ", checked=%" PRIu64
                   ", errors=%" PRIu64 ", longest gap=%.3f ms\n",
                   v->vcpu, v->steps, v->pages_written, v->checked, v->errors,
                   (double)v->longest_gap_ns / 1e6);
    }
    return true;
}
