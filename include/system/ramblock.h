/* SPDX-License-Identifier: BSD-2-Clause */
/* RAMBlock and RamList: the guest's memory as migration and the accelerators see it. */
#ifndef GODWIT_SYSTEM_RAMBLOCK_H
#define GODWIT_SYSTEM_RAMBLOCK_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The x86-64 target page: the unit of the dirty bitmap and of every page record on the wire. */
#define TARGET_PAGE_BITS 12
#define TARGET_PAGE_SIZE (1u << TARGET_PAGE_BITS)

/* Longest name of a block: one length byte on the wire. */
#define RAMBLOCK_IDSTR_MAX 255

/*
 * One piece of guest RAM.  Everything but @next is fixed from the moment the block is
 * added to a list until it is removed; a migration holds the list still.
 */
typedef struct RAMBlock {
    char idstr[RAMBLOCK_IDSTR_MAX + 1];
    uint8_t *host;          /* the guest's memory in this process; page aligned */
    uint64_t used_length;   /* bytes, a multiple of TARGET_PAGE_SIZE */
    uint64_t gpa;           /* guest physical address of its first byte */
    size_t page_size;       /* of the backing memory: the host's, or a huge page's */
    int fd;                 /* backing descriptor, or -1; not owned */
    uint64_t fd_offset;
    bool shared;            /* another process may have it mapped: what x-ignore-shared skips */
    bool readonly;
    unsigned index;         /* position in the list, from 0 */
    struct RAMBlock *next;
} RAMBlock;

static inline uint64_t ramblock_pages(const RAMBlock *block)
{
    return block->used_length >> TARGET_PAGE_BITS;
}

/*
 * The guest's blocks, largest first, and in the order of addition where sizes are equal.  Changed
 * only by the main thread while no migration runs; read by any thread.
 */
typedef struct RamList {
    RAMBlock *first;
    unsigned count;
} RamList;

/* Adds @block, which stays the caller's.  Refuses a second block of the same idstr and a bad size. */
bool ram_list_add(RamList *list, RAMBlock *block, GError **errp);
void ram_list_remove(RamList *list, RAMBlock *block);
RAMBlock *ram_list_find(const RamList *list, const char *idstr);
uint64_t ram_list_total(const RamList *list);

/* Host address of @gpa with at least 1 and at most *@len contiguous bytes (*len updated), or NULL. */
uint8_t *ram_list_translate(const RamList *list, uint64_t gpa, uint64_t *len, RAMBlock **block);

#define RAMLIST_FOREACH(block, list) \
    for (RAMBlock *block = (list)->first; block; block = block->next)

#endif
