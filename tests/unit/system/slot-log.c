/* SPDX-License-Identifier: BSD-2-Clause */
/* A dirty log provider with memory slots of any alignment. */
#include "slot-log.h"

#include <string.h>

#include "util/bitmap.h"

/* ---- the "kernel" ---- */

static void request(SlotLog *log)
{
    if (log->request) {
        log->request(log->opaque);
    }
    dirty_log_count_request(&log->provider);
}

static void kernel_get(SlotLog *log, const SlotLogSlot *slot, uint64_t *to)
{
    request(log);
    log->gets++;
    memcpy(to, slot->log, BITMAP_WORDS(slot->map.slot_pages) * sizeof(*to));
    if (log->request) {
        log->request(log->opaque);
    }
}

static void kernel_clear(SlotLog *log, SlotLogSlot *slot, uint64_t first, uint64_t pages,
                         const uint64_t *bitmap)
{
    g_assert_cmpuint(first % 64, ==, 0);
    g_assert_cmpuint(pages, >, 0);
    g_assert_cmpuint(first + pages, <=, slot->map.slot_pages);
    g_assert_true(pages % 64 == 0 || first + pages == slot->map.slot_pages);
    request(log);
    log->clears++;
    for (size_t i = 0; i < BITMAP_WORDS(pages); i++) {
        slot->log[first / 64 + i] &= ~bitmap[i];
    }
    if (log->request) {
        log->request(log->opaque);
    }
}

/* ---- the provider ---- */

static bool slot_log_start(DirtyLogProvider *p, const RamList *ram, GError **errp)
{
    return true;
}

static void slot_log_stop(DirtyLogProvider *p)
{
}

static bool slot_log_sync(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                          uint64_t *bitmap, uint64_t *new_dirty, GError **errp)
{
    SlotLog *log = (SlotLog *)p;

    for (unsigned i = 0; i < log->n_slots; i++) {
        SlotLogSlot *slot = &log->slots[i];
        DirtyWindow w;
        if (slot->block == block && dirty_slot_window(&slot->map, first, count, &w)) {
            kernel_get(log, slot, log->buffer);
            *new_dirty += dirty_window_to_block(&w, log->buffer, bitmap);
        }
    }
    return true;
}

static bool slot_log_clear(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                           const uint64_t *bitmap, GError **errp)
{
    SlotLog *log = (SlotLog *)p;

    for (unsigned i = 0; i < log->n_slots; i++) {
        SlotLogSlot *slot = &log->slots[i];
        DirtyWindow w;
        if (slot->block == block && dirty_slot_window(&slot->map, first, count, &w) &&
            dirty_window_from_block(&w, bitmap, log->buffer)) {
            kernel_clear(log, slot, w.window_first, w.window_pages, log->buffer);
        }
    }
    return true;
}

/* ---- for tests ---- */

void slot_log_init(SlotLog *log, const char *name)
{
    DirtyLogProviderOps *ops = g_new(DirtyLogProviderOps, 1);

    *ops = (DirtyLogProviderOps){
        .name = name, .start = slot_log_start, .stop = slot_log_stop, .sync = slot_log_sync,
        .clear = slot_log_clear,
    };
    *log = (SlotLog){ .provider.ops = ops };
}

void slot_log_free(SlotLog *log)
{
    for (unsigned i = 0; i < log->n_slots; i++) {
        bitmap_free(log->slots[i].log, log->slots[i].map.slot_pages);
    }
    bitmap_free(log->buffer, log->buffer_pages);
    g_free(log->slots);
    g_free((void *)log->provider.ops);
    memset(log, 0, sizeof(*log));
}

void slot_log_add(SlotLog *log, RAMBlock *block, const DirtySlot *map)
{
    log->slots = g_renew(SlotLogSlot, log->slots, log->n_slots + 1);
    log->slots[log->n_slots++] = (SlotLogSlot){ block, *map, bitmap_new(map->slot_pages) };
    if (map->slot_pages > log->buffer_pages) {
        bitmap_free(log->buffer, log->buffer_pages);
        log->buffer = bitmap_new(map->slot_pages);
        log->buffer_pages = map->slot_pages;
    }
}

void slot_log_cover(SlotLog *log, RAMBlock *block, uint64_t shift, uint64_t slot_pages)
{
    uint64_t pages = ramblock_pages(block);

    for (uint64_t first = 0, count; first < pages; first += count) {
        count = MIN(first || !shift ? slot_pages : shift, pages - first);
        slot_log_add(log, block, &(DirtySlot){ .block_first = first, .count = count, .slot_pages = count });
    }
}

static SlotLogSlot *find_slot(const SlotLog *log, const RAMBlock *block, uint64_t page)
{
    for (unsigned i = 0; i < log->n_slots; i++) {
        SlotLogSlot *slot = &log->slots[i];
        if (slot->block == block && page >= slot->map.block_first &&
            page < slot->map.block_first + slot->map.count) {
            return slot;
        }
    }
    return NULL;
}

void slot_log_write(SlotLog *log, const RAMBlock *block, uint64_t page)
{
    SlotLogSlot *slot = find_slot(log, block, page);

    if (slot) {
        bitmap_set(slot->log, page - slot->map.block_first + slot->map.slot_first, 1);
    }
}

bool slot_log_is_logged(const SlotLog *log, const RAMBlock *block, uint64_t page)
{
    const SlotLogSlot *slot = find_slot(log, block, page);

    return slot && bitmap_test(slot->log, page - slot->map.block_first + slot->map.slot_first);
}

void slot_log_write_all(SlotLog *log)
{
    for (unsigned i = 0; i < log->n_slots; i++) {
        bitmap_set(log->slots[i].log, 0, log->slots[i].map.slot_pages);
    }
}

unsigned slot_log_count_slots(const SlotLog *log, const RAMBlock *block, uint64_t first, uint64_t count,
                              const uint64_t *bitmap)
{
    unsigned n = 0;

    for (unsigned i = 0; i < log->n_slots; i++) {
        const DirtySlot *map = &log->slots[i].map;
        uint64_t from = MAX(first, map->block_first);
        uint64_t to = MIN(first + count, map->block_first + map->count);
        n += log->slots[i].block == block && from < to && bitmap_find_set(bitmap, from, to) < to;
    }
    return n;
}
