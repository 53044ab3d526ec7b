/* SPDX-License-Identifier: BSD-2-Clause */
/* FdStore: descriptors that clients have handed over, by name (getfd) and in sets (add-fd). */
#ifndef GODWIT_MONITOR_FD_STORE_H
#define GODWIT_MONITOR_FD_STORE_H

#include "qapi/qapi-types-fds.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Has a lock of its own: for any thread. */
typedef struct FdStore FdStore;

FdStore *fd_store_new(void);
void fd_store_free(FdStore *store); /* closes what is left */

/* Takes @fd over; one of the same name is closed. */
bool fd_store_put(FdStore *store, const char *name, int fd, GError **errp);
/*
 * The descriptor, which is the caller's from now on, or -1: "File descriptor named 'x' has not been found".
 */
int fd_store_take(FdStore *store, const char *name, GError **errp);
bool fd_store_close(FdStore *store, const char *name, GError **errp);

/* Takes @fd over into set *@id, which is made if need be; *@id -1: a new set, whose number is stored. */
bool fd_store_set_add(FdStore *store, int64_t *id, int fd, const char *opaque, GError **errp);
/* Removes *@fd, or with NULL all, from set @id and closes. */
bool fd_store_set_remove(FdStore *store, int64_t id, const int64_t *fd, GError **errp);
/* A duplicate of a member whose access mode is that of @flags, or -1. */
int fd_store_set_dup(FdStore *store, int64_t id, int flags, GError **errp);
FdsetInfoList *fd_store_query(FdStore *store);

#endif
