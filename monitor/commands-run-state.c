/* SPDX-License-Identifier: BSD-2-Clause */
/* stop, cont, quit, reset and power. */
#include "monitor-internal.h"

#include "qapi/qapi-commands-run-state.h"
#include "qapi/qapi-events-run-state.h"
#include "util/error.h"

StatusInfo *qmp_query_status(MonitorContext *ctx, GError **errp)
{
    StatusInfo *info = g_new0(StatusInfo, 1);

    info->status = machine_run_state(ctx->machine);
    info->running = info->status == RUN_STATE_RUNNING;
    return info;
}

/* An incoming guest only notes what shall be when it has arrived; one that is stopped stays as it is. */
bool qmp_stop(MonitorContext *ctx, GError **errp)
{
    if (machine_run_state(ctx->machine) == RUN_STATE_INMIGRATE) {
        __atomic_store_n(&ctx->autostart, false, __ATOMIC_SEQ_CST);
        return true;
    }
    return !machine_is_running(ctx->machine) || machine_stop(ctx->machine, RUN_STATE_PAUSED, errp);
}

bool qmp_cont(MonitorContext *ctx, GError **errp)
{
    if (machine_run_state(ctx->machine) == RUN_STATE_INMIGRATE) {
        __atomic_store_n(&ctx->autostart, true, __ATOMIC_SEQ_CST);
        return true;
    }
    if (machine_is_running(ctx->machine)) {
        return true;
    }
    if (ctx->migration && !migration_allows_start(ctx->migration, errp)) {
        return false;
    }
    return machine_start(ctx->machine, errp);
}

bool qmp_quit(MonitorContext *ctx, GError **errp)
{
    monitor_request_shutdown(ctx, SHUTDOWN_CAUSE_HOST_QMP_QUIT);
    return true;
}

bool qmp_system_reset(MonitorContext *ctx, GError **errp)
{
    if (ctx->no_reboot) {
        monitor_request_shutdown(ctx, SHUTDOWN_CAUSE_HOST_QMP_SYSTEM_RESET);
        return true;
    }
    if (!machine_reset(ctx->machine, errp)) {
        return false;
    }
    qapi_event_send_reset(ctx, false, SHUTDOWN_CAUSE_HOST_QMP_SYSTEM_RESET);
    return true;
}

void monitor_guest_reset(MonitorContext *ctx)
{
    g_autoptr(GError) err = NULL;

    if (ctx->no_reboot) {
        monitor_request_shutdown(ctx, SHUTDOWN_CAUSE_GUEST_RESET);
    } else if (machine_reset(ctx->machine, &err)) {
        qapi_event_send_reset(ctx, true, SHUTDOWN_CAUSE_GUEST_RESET);
    } else {
        g_warning("the guest cannot be reset: %s", err->message);
    }
}

bool qmp_system_powerdown(MonitorContext *ctx, GError **errp)
{
    qapi_event_send_powerdown(ctx);
    return true;
}

bool qmp_system_wakeup(MonitorContext *ctx, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                "wake-up from suspend is not supported by this guest");
    return false;
}
