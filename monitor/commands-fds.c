/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that come over the monitor's socket: getfd, add-fd and their company. */
#include "monitor-internal.h"

#include "fd-store.h"
#include "qapi/qapi-commands-fds.h"

bool qmp_getfd(MonitorContext *ctx, Monitor *mon, const getfd_arg *arg, GError **errp)
{
    int fd = monitor_take_message_fd(mon, errp);

    return fd >= 0 && fd_store_put(ctx->fds, arg->fdname, fd, errp);
}

bool qmp_closefd(MonitorContext *ctx, const closefd_arg *arg, GError **errp)
{
    return fd_store_close(ctx->fds, arg->fdname, errp);
}

AddfdInfo *qmp_add_fd(MonitorContext *ctx, Monitor *mon, const add_fd_arg *arg, GError **errp)
{
    int64_t id = arg->has_fdset_id ? arg->fdset_id : -1;
    int fd = monitor_take_message_fd(mon, errp);

    /* -1 would ask for a new set. */
    if (arg->has_fdset_id && id == -1) {
        id = -2;
    }
    if (fd < 0 || !fd_store_set_add(ctx->fds, &id, fd, arg->opaque, errp)) {
        return NULL;
    }
    AddfdInfo *info = g_new0(AddfdInfo, 1);
    info->fdset_id = id;
    info->fd = fd;
    return info;
}

bool qmp_remove_fd(MonitorContext *ctx, const remove_fd_arg *arg, GError **errp)
{
    return fd_store_set_remove(ctx->fds, arg->fdset_id, arg->has_fd ? &arg->fd : NULL, errp);
}

FdsetInfoList *qmp_query_fdsets(MonitorContext *ctx, GError **errp)
{
    return fd_store_query(ctx->fds);
}

/* ---- for the migration host and the command line ---- */

int monitor_take_fd(MonitorContext *ctx, const char *name, GError **errp)
{
    return fd_store_take(ctx->fds, name, errp);
}

int monitor_dup_fdset(MonitorContext *ctx, int64_t id, int flags, GError **errp)
{
    return fd_store_set_dup(ctx->fds, id, flags, errp);
}

bool monitor_add_fd(MonitorContext *ctx, int fd, int64_t id, const char *opaque, GError **errp)
{
    return fd_store_set_add(ctx->fds, &id, fd, opaque, errp);
}
