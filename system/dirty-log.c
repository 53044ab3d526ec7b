/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of dirty log providers: one call here is one call to each, with statistics and with undo. */
#include "system/dirty-log.h"

#include <time.h>

#include "trace-system.h"
#include "util/bitmap.h"
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

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* There is one writer, so that a load and a store are enough. */
static void counter_add(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static void reset_counters(DirtyLogCounters *c)
{
    uint64_t *const counters[] = {
        &c->sync_calls, &c->sync_ns, &c->clear_calls, &c->clear_ns, &c->cleared_pages, &c->requests,
    };
    for (size_t i = 0; i < G_N_ELEMENTS(counters); i++) {
        __atomic_store_n(counters[i], 0, __ATOMIC_RELAXED);
    }
}

DirtyLogCounters dirty_log_get_counters(const DirtyLogProvider *provider)
{
    const DirtyLogCounters *c = &provider->counters;

    return (DirtyLogCounters){
        .sync_calls = __atomic_load_n(&c->sync_calls, __ATOMIC_RELAXED),
        .sync_ns = __atomic_load_n(&c->sync_ns, __ATOMIC_RELAXED),
        .clear_calls = __atomic_load_n(&c->clear_calls, __ATOMIC_RELAXED),
        .clear_ns = __atomic_load_n(&c->clear_ns, __ATOMIC_RELAXED),
        .cleared_pages = __atomic_load_n(&c->cleared_pages, __ATOMIC_RELAXED),
        .requests = __atomic_load_n(&c->requests, __ATOMIC_RELAXED),
    };
}

void dirty_log_count_request(DirtyLogProvider *provider)
{
    counter_add(&provider->counters.requests, 1);
}

bool dirty_log_start(DirtyLog *log, const RamList *ram, GError **errp)
{
    g_assert(!log->started);

    for (DirtyLogProvider *p = log->providers; p; p = p->next) {
        reset_counters(&p->counters);
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
    return true;
}

void dirty_log_stop(DirtyLog *log)
{
    if (!log->started) {
        return;
    }
    dirty_log_stop_until(log, NULL);
    log->started = false;
    for (const DirtyLogProvider *p = log->providers; p; p = p->next) {
        trace_dirty_log_stop(p->ops->name, p->counters.sync_calls, p->counters.clear_calls,
                             p->counters.cleared_pages, p->counters.requests);
    }
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
        uint64_t start = now_ns();
        bool ok = p->ops->sync(p, block, first, count, bitmap, new_dirty, errp);
        uint64_t ns = now_ns() - start;
        counter_add(&p->counters.sync_calls, 1);
        counter_add(&p->counters.sync_ns, ns);
        if (!ok) {
            g_prefix_error(errp, "cannot fetch dirty log '%s' of RAM block '%s': ", p->ops->name,
                           block->idstr);
            return false;
        }
        trace_dirty_log_sync(p->ops->name, block->idstr, first, count, *new_dirty - before, ns);
    }
    return true;
}

bool dirty_log_clear(DirtyLog *log, RAMBlock *block, uint64_t first, uint64_t count, const uint64_t *bitmap,
                     uint64_t *cleared, GError **errp)
{
    uint64_t end = first + count;

    first = bitmap_find_set(bitmap, first, end);
    if (first == end) {
        return true;
    }
    if (fault_point("dirty-log-clear", errp)) {
        return false;
    }
    count = bitmap_find_last_set(bitmap, first, end) + 1 - first;
    uint64_t pages = bitmap_count(bitmap, first, count);
    for (DirtyLogProvider *p = log->providers; p; p = p->next) {
        uint64_t start = now_ns();
        bool ok = p->ops->clear(p, block, first, count, bitmap, errp);
        uint64_t ns = now_ns() - start;
        counter_add(&p->counters.clear_calls, 1);
        counter_add(&p->counters.clear_ns, ns);
        if (!ok) {
            g_prefix_error(errp, "cannot clear dirty log '%s' of RAM block '%s': ", p->ops->name,
                           block->idstr);
            return false;
        }
        counter_add(&p->counters.cleared_pages, pages);
        trace_dirty_log_clear(p->ops->name, block->idstr, first, count, pages, ns);
    }
    *cleared += pages;
    return true;
}
