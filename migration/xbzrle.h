/* SPDX-License-Identifier: BSD-2-Clause */
/* XBZRLE: pages as differences to what the peer already has, and the cache of what it has. */
#ifndef GODWIT_MIGRATION_XBZRLE_H
#define GODWIT_MIGRATION_XBZRLE_H

#include "system/ramblock.h"

/*
 * The encoded form is a sequence of pairs
 *
 *     zrun    length of a stretch that is equal in both pages
 *     nzrun   length of a stretch that differs, then that many bytes of the new page
 *
 * A length is one byte below 128; else two: its low 7 bits with bit 7 set, then its upper bits.  Only
 * the first zrun may be 0; after the last nzrun the rest of the page is equal.
 */

/* Longer is not worth sending: the plain page is. */
#define XBZRLE_MAX_ENCODED TARGET_PAGE_SIZE

/* What xbzrle_encode() returns beside a length. */
#define XBZRLE_OVERFLOW (-1)

/*
 * Writes to @out (XBZRLE_MAX_ENCODED bytes) how @page differs from @old, both TARGET_PAGE_SIZE bytes and
 * unchanging. Returns the length, 0 if they are equal, XBZRLE_OVERFLOW if the encoded form would not fit.
 */
int xbzrle_encode(const uint8_t *old, const uint8_t *page, uint8_t *out);

/*
 * Applies @len encoded bytes to @page. Nothing outside the page is read or written, whatever the bytes
 * are. On failure the page is changed in part; the error is GODWIT_ERROR_PROTOCOL. @len 0 changes
 * nothing.
 */
bool xbzrle_decode(const uint8_t *encoded, size_t len, uint8_t *page, GError **errp);

/*
 * The sender's cache: direct-mapped by page number, whole pages.  Belongs to one thread.
 * A generation is one pass over the dirty log.
 */
typedef struct XbzrleCache XbzrleCache;

/* @bytes: a power of two, at least TARGET_PAGE_SIZE.  NULL if the memory cannot be had. */
XbzrleCache *xbzrle_cache_new(uint64_t bytes, GError **errp);
void xbzrle_cache_free(XbzrleCache *cache);
uint64_t xbzrle_cache_bytes(const XbzrleCache *cache);

/* The cached content of page number @page, which may be written to, its age refreshed; NULL: a miss. */
uint8_t *xbzrle_cache_lookup(XbzrleCache *cache, uint64_t page, uint64_t generation);

/*
 * Stores a copy of @content under @page.  Refused (false) if the slot holds another page that was used
 * in this generation or the one before.
 */
bool xbzrle_cache_insert(XbzrleCache *cache, uint64_t page, const uint8_t *content, uint64_t generation);

/* Changes the size; of two pages that fall into one slot the younger stays.  On failure all is as before. */
bool xbzrle_cache_resize(XbzrleCache *cache, uint64_t bytes, GError **errp);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(XbzrleCache, xbzrle_cache_free)

#endif
