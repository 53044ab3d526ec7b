/* SPDX-License-Identifier: BSD-2-Clause */
/* The guest's RAM blocks: an ordered list of few elements, searched by name and by address. */
#include "system/ramblock.h"

#include <inttypes.h>
#include <string.h>

#include "trace-system.h"
#include "util/error.h"

static bool ramblock_check(const RAMBlock *block, GError **errp)
{
    if (!block->idstr[0] || !memchr(block->idstr, 0, sizeof(block->idstr))) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "cannot add a RAM block: its name must have 1 to %d characters", RAMBLOCK_IDSTR_MAX);
        return false;
    }
    if (!block->host || (uintptr_t)block->host % TARGET_PAGE_SIZE) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "cannot add RAM block '%s': its host address %p is not aligned to %u bytes", block->idstr,
                    (void *)block->host, TARGET_PAGE_SIZE);
        return false;
    }
    if (!block->used_length || block->used_length % TARGET_PAGE_SIZE ||
        block->used_length > UINT64_MAX - (uintptr_t)block->host) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "cannot add RAM block '%s': its size 0x%" PRIx64
                    " is not a positive multiple of %u bytes",
                    block->idstr, block->used_length, TARGET_PAGE_SIZE);
        return false;
    }
    if (block->gpa % TARGET_PAGE_SIZE || block->gpa > UINT64_MAX - (block->used_length - 1)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "cannot add RAM block '%s': guest address 0x%" PRIx64 " is no place for 0x%" PRIx64
                    " bytes",
                    block->idstr, block->gpa, block->used_length);
        return false;
    }
    return true;
}

static void ram_list_renumber(RamList *list)
{
    unsigned index = 0;

    RAMLIST_FOREACH(block, list) {
        /* A writer that marks the dirty log may be looking at the index of another block: a whole store. */
        __atomic_store_n(&block->index, index++, __ATOMIC_RELAXED);
    }
    list->count = index;
}

bool ram_list_add(RamList *list, RAMBlock *block, GError **errp)
{
    if (!ramblock_check(block, errp)) {
        return false;
    }
    if (ram_list_find(list, block->idstr)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "cannot add RAM block '%s': there is one of this name already", block->idstr);
        return false;
    }

    RAMBlock **link = &list->first;
    while (*link && (*link)->used_length >= block->used_length) {
        link = &(*link)->next;
    }
    block->next = *link;
    *link = block;
    ram_list_renumber(list);
    trace_ram_list_add(block->idstr, block->used_length, block->gpa, block->index);
    return true;
}

void ram_list_remove(RamList *list, RAMBlock *block)
{
    for (RAMBlock **link = &list->first; *link; link = &(*link)->next) {
        if (*link == block) {
            *link = block->next;
            block->next = NULL;
            ram_list_renumber(list);
            trace_ram_list_remove(block->idstr);
            return;
        }
    }
}

RAMBlock *ram_list_find(const RamList *list, const char *idstr)
{
    RAMLIST_FOREACH(block, list) {
        if (strcmp(block->idstr, idstr) == 0) {
            return block;
        }
    }
    return NULL;
}

uint64_t ram_list_total(const RamList *list)
{
    uint64_t total = 0;

    RAMLIST_FOREACH(block, list) {
        total += block->used_length;
    }
    return total;
}

uint8_t *ram_list_translate(const RamList *list, uint64_t gpa, uint64_t *len, RAMBlock **block)
{
    if (!*len) {
        return NULL;
    }
    RAMLIST_FOREACH(b, list) {
        if (gpa >= b->gpa && gpa - b->gpa < b->used_length) {
            uint64_t offset = gpa - b->gpa;
            *len = MIN(*len, b->used_length - offset);
            if (block) {
                *block = b;
            }
            return b->host + offset;
        }
    }
    return NULL;
}
