/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of dirty log providers: one call here is one call to each, with statistics and with undo. */
#include "system/dirty-log.h"

#include "trace-system.h"
#include "util/fault.h"

void dirty_log_add_provider(DirtyLog *log, DirtyLogProvider *provider)
{
    const DirtyLogProviderOps *ops = provider->ops;
    g_assert(ops->name && ops->start && ops->stop && ops->sync && ops->clear);
    g_assert(!log->started);

    DirtyLogProvider **link = &log->providers;
    while (*link) {
        g_assert(*link != provider);
        link = &(*link)->next;
    }
    provider->next = NULL;
    *link = provider;
}

void dirty_log_remove_provider(DirtyLog *log, DirtyLogProvider *provider)
{
    for (DirtyLogProvider **link = &log->providers; *link; link = &(*link)->next) {
        if (*link == provider) {
            *link = provider->next;
            provider->next = NULL;
            if (log->started) {
                provider->ops->stop(provider);
            }
            return;
        }
    }
}

/* Stops the providers before @end; NULL: all. */
static void dirty_log_stop_until(DirtyLog *log, const DirtyLogProvider *end)
{
    for (DirtyLogProvider *p = log->providers; p != end; p = p->next) {
        p->ops->stop(p);
    }
}

bool dirty_log_start(DirtyLog *log, const RamList *ram, GError **errp)
{
    g_assert(!log->started);

    for (DirtyLogProvider *p = log->providers; p; p = p->next) {
        if (fault_point("dirty-log-start", errp)) {
            dirty_log_stop_until(log, p);
            return false;
        }
        if (!p->ops->start(p, ram, errp)) {
            g_prefix_error(errp, "cannot start dirty log '%s': ", p->ops->name);
            dirty_log_stop_until(log, p);
            return false;
        }
    }
    trace_dirty_log_start(ram->count, ram_list_total(ram));
    log->started = true;
    log->sync_calls = 0;
    log->clear_calls = 0;
    log->cleared_pages = 0;
    return true;
}

void dirty_log_stop(DirtyLog *log)
{
    if (!log->started) {
        return;
    }
    dirty_log_stop_until(log, NULL);
    log->started = false;
    trace_dirty_log_stop(log->sync_calls, log->clear_calls, log->cleared_pages);
}

bool dirty_log_sync(DirtyLog *log, RAMBlock *block, uint64_t first, uint64_t count, uint64_t *bitmap,
                    uint64_t *new_dirty, GError **errp)
{
    if (!count) {
        return true;
    }
    if (fault_point("dirty-log-sync", errp)) {
        return false;
    }
    for (DirtyLogProvider *p = log->providers; p; p = p->next) {
        uint64_t before = *new_dirty;
        log->sync_calls++;
        if (!p->ops->sync(p, block, first, count, bitmap, new_dirty, errp)) {
            g_prefix_error(errp, "cannot fetch dirty log '%s' of RAM block '%s': ", p->ops->name,
                           block->idstr);
            return false;
        }
        trace_dirty_log_sync(p->ops->name, block->idstr, first, count, *new_dirty - before);
    }
    return true;
}

bool dirty_log_clear(DirtyLog *log, RAMBlock *block, uint64_t first, uint64_t count, GError **errp)
{
    if (!count) {
        return true;
    }
    if (fault_point("dirty-log-clear", errp)) {
        return false;
    }
    for (DirtyLogProvider *p = log->providers; p; p = p->next) {
        log->clear_calls++;
        trace_dirty_log_clear(p->ops->name, block->idstr, first, count);
        if (!p->ops->clear(p, block, first, count, errp)) {
            g_prefix_error(errp, "cannot clear dirty log '%s' of RAM block '%s': ", p->ops->name,
                           block->idstr);
            return false;
        }
    }
    log->cleared_pages += count;
    return true;
}
