/* SPDX-License-Identifier: BSD-2-Clause */
/* FdStore: descriptors that clients have handed over. */
#include "fd-store.h"

#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

typedef struct SetMember {
    int fd;
    char *opaque;
} SetMember;

typedef struct FdSet {
    int64_t id;
    GArray *members; /* of SetMember */
} FdSet;

struct FdStore {
    GMutex lock;
    GHashTable *named; /* char * -> descriptor */
    GPtrArray *sets;   /* of FdSet, by rising id */
};

static void close_pointer(gpointer fd)
{
    close(GPOINTER_TO_INT(fd));
}

static void clear_member(gpointer opaque)
{
    SetMember *member = opaque;

    close(member->fd);
    g_free(member->opaque);
}

static void free_set(gpointer opaque)
{
    FdSet *set = opaque;

    g_array_free(set->members, true);
    g_free(set);
}

FdStore *fd_store_new(void)
{
    FdStore *store = g_new0(FdStore, 1);

    g_mutex_init(&store->lock);
    store->named = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, close_pointer);
    store->sets = g_ptr_array_new_with_free_func(free_set);
    return store;
}

void fd_store_free(FdStore *store)
{
    if (!store) {
        return;
    }
    g_hash_table_destroy(store->named);
    g_ptr_array_free(store->sets, true);
    g_mutex_clear(&store->lock);
    g_free(store);
}

/* ---- by name ---- */

bool fd_store_put(FdStore *store, const char *name, int fd, GError **errp)
{
    if (g_ascii_isdigit(name[0])) {
        close(fd);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter 'fdname' expects a name not starting with a digit");
        return false;
    }
    g_mutex_lock(&store->lock);
    g_hash_table_replace(store->named, g_strdup(name), GINT_TO_POINTER(fd));
    g_mutex_unlock(&store->lock);
    return true;
}

/* -1 if there is none. */
static int steal_named(FdStore *store, const char *name)
{
    gpointer key, value;
    int fd = -1;

    g_mutex_lock(&store->lock);
    if (g_hash_table_steal_extended(store->named, name, &key, &value)) {
        g_free(key);
        fd = GPOINTER_TO_INT(value);
    }
    g_mutex_unlock(&store->lock);
    return fd;
}

int fd_store_take(FdStore *store, const char *name, GError **errp)
{
    int fd = steal_named(store, name);

    if (fd < 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "File descriptor named '%s' has not been found",
                    name);
    }
    return fd;
}

bool fd_store_close(FdStore *store, const char *name, GError **errp)
{
    int fd = steal_named(store, name);

    if (fd < 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "File descriptor named '%s' not found", name);
        return false;
    }
    close(fd);
    return true;
}

/* ---- sets; called with the lock held ---- */

static FdSet *find_set(FdStore *store, int64_t id)
{
    for (guint i = 0; i < store->sets->len; i++) {
        FdSet *set = g_ptr_array_index(store->sets, i);
        if (set->id == id) {
            return set;
        }
    }
    return NULL;
}

static FdSet *make_set(FdStore *store, int64_t id)
{
    FdSet *set = g_new0(FdSet, 1);
    guint at = 0;

    set->id = id;
    set->members = g_array_new(false, false, sizeof(SetMember));
    g_array_set_clear_func(set->members, clear_member);
    while (at < store->sets->len && ((FdSet *)g_ptr_array_index(store->sets, at))->id < id) {
        at++;
    }
    g_ptr_array_insert(store->sets, (gint)at, set);
    return set;
}

static int64_t first_free_id(FdStore *store)
{
    int64_t id = 0;

    while (find_set(store, id)) {
        id++;
    }
    return id;
}

/* ---- sets ---- */

bool fd_store_set_add(FdStore *store, int64_t *id, int fd, const char *opaque, GError **errp)
{
    SetMember member = { fd, g_strdup(opaque) };

    if (*id < -1) {
        clear_member(&member);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter 'fdset-id' expects a non-negative value");
        return false;
    }
    g_mutex_lock(&store->lock);
    if (*id == -1) {
        *id = first_free_id(store);
    }
    FdSet *set = find_set(store, *id);
    if (!set) {
        set = make_set(store, *id);
    }
    g_array_append_val(set->members, member);
    g_mutex_unlock(&store->lock);
    return true;
}

static bool remove_members(FdSet *set, const int64_t *fd)
{
    if (!fd) {
        g_array_set_size(set->members, 0);
        return true;
    }
    for (guint i = 0; i < set->members->len; i++) {
        if (g_array_index(set->members, SetMember, i).fd == *fd) {
            g_array_remove_index(set->members, i);
            return true;
        }
    }
    return false;
}

bool fd_store_set_remove(FdStore *store, int64_t id, const int64_t *fd, GError **errp)
{
    g_mutex_lock(&store->lock);
    FdSet *set = find_set(store, id);
    bool found = set && remove_members(set, fd);
    if (found && set->members->len == 0) {
        g_ptr_array_remove(store->sets, set);
    }
    g_mutex_unlock(&store->lock);
    if (!found) {
        g_autofree char *member = fd ? g_strdup_printf(", fd:%" PRId64, *fd) : g_strdup("");
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "File descriptor named 'fdset-id:%" PRId64 "%s' not found", id, member);
    }
    return found;
}

/*
 * A duplicate of the latest member that fits, or -1.  One with O_DIRECT serves only who asks for it: it
 * refuses everything that is not aligned.
 */
static int dup_member(const FdSet *set, int flags)
{
    const int compared = O_ACCMODE | O_DIRECT;

    for (guint i = set->members->len; i-- > 0;) {
        int fd = g_array_index(set->members, SetMember, i).fd;
        int have = fcntl(fd, F_GETFL);
        if (have >= 0 && (have & compared) == (flags & compared)) {
            return fcntl(fd, F_DUPFD_CLOEXEC, 0);
        }
    }
    return -1;
}

int fd_store_set_dup(FdStore *store, int64_t id, int flags, GError **errp)
{
    g_mutex_lock(&store->lock);
    FdSet *set = find_set(store, id);
    int fd = set ? dup_member(set, flags) : -1;
    g_mutex_unlock(&store->lock);
    if (!set) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Failed to find fdset /dev/fdset/%" PRId64, id);
    } else if (fd < 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Failed to find file descriptor with matching flags=0x%x", (unsigned)flags);
    }
    return fd;
}

static FdsetInfo *set_info(const FdSet *set)
{
    FdsetInfo *info = g_new0(FdsetInfo, 1);

    info->fdset_id = set->id;
    info->fds = g_new0(FdsetFdInfoList, 1);
    info->fds->count = set->members->len;
    info->fds->items = g_new0(FdsetFdInfo *, set->members->len);
    for (guint i = 0; i < set->members->len; i++) {
        const SetMember *member = &g_array_index(set->members, SetMember, i);
        info->fds->items[i] = g_new0(FdsetFdInfo, 1);
        info->fds->items[i]->fd = member->fd;
        info->fds->items[i]->opaque = g_strdup(member->opaque);
    }
    return info;
}

/* The highest number first, as the peers show them. */
FdsetInfoList *fd_store_query(FdStore *store)
{
    FdsetInfoList *list = g_new0(FdsetInfoList, 1);

    g_mutex_lock(&store->lock);
    list->count = store->sets->len;
    list->items = g_new0(FdsetInfo *, list->count);
    for (size_t i = 0; i < list->count; i++) {
        list->items[i] = set_info(g_ptr_array_index(store->sets, store->sets->len - 1 - i));
    }
    g_mutex_unlock(&store->lock);
    return list;
}
