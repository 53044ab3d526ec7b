/* SPDX-License-Identifier: BSD-2-Clause */
/* XBZRLE encoder, decoder and cache. */
#include "migration/xbzrle.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "util/be.h"
#include "util/error.h"

/* The longest form of a length. */
#define LENGTH_BYTES 2

/* ---- encoder ---- */

/* The first position at or after @i where the pages differ (@equal: are equal), or the page's end. */
static size_t stretch_end(const uint8_t *a, const uint8_t *b, size_t i, bool equal)
{
    if (equal) {
        while (i + 8 <= TARGET_PAGE_SIZE && !memcmp(a + i, b + i, 8)) {
            i += 8;
        }
    }
    while (i < TARGET_PAGE_SIZE && (a[i] == b[i]) == equal) {
        i++;
    }
    return i;
}

static size_t put_length(uint8_t *out, size_t length)
{
    if (length < 0x80) {
        out[0] = length;
        return 1;
    }
    out[0] = (length & 0x7f) | 0x80;
    out[1] = length >> 7;
    return 2;
}

int xbzrle_encode(const uint8_t *old, const uint8_t *page, uint8_t *out)
{
    size_t used = 0;

    for (size_t i = 0; i < TARGET_PAGE_SIZE;) {
        /* The peers ask for room before they look for a difference: a full buffer overflows in any case. */
        if (used + LENGTH_BYTES > XBZRLE_MAX_ENCODED) {
            return XBZRLE_OVERFLOW;
        }
        size_t changed = stretch_end(old, page, i, true);
        if (changed == TARGET_PAGE_SIZE) {
            break;
        }
        used += put_length(out + used, changed - i);
        i = stretch_end(old, page, changed, false);

        size_t count = i - changed;
        if (used + LENGTH_BYTES > XBZRLE_MAX_ENCODED) {
            return XBZRLE_OVERFLOW;
        }
        used += put_length(out + used, count);
        if (used + count > XBZRLE_MAX_ENCODED) {
            return XBZRLE_OVERFLOW;
        }
        memcpy(out + used, page + changed, count);
        used += count;
    }
    return used;
}

/* ---- decoder ---- */

/* What is left of the encoded bytes. */
typedef struct Input {
    const uint8_t *at;
    size_t left;
} Input;

static bool bad_encoding(GError **errp, const char *what)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "XBZRLE data of a page is malformed: %s", what);
    return false;
}

static bool get_length(Input *in, size_t *length)
{
    if (in->left < 1) {
        return false;
    }
    size_t size = in->at[0] & 0x80 ? 2 : 1;
    if (in->left < size || (size == 2 && in->at[1] & 0x80)) {
        return false;
    }
    *length = size == 1 ? in->at[0] : (size_t)(in->at[0] & 0x7f) | (size_t)in->at[1] << 7;
    in->at += size;
    in->left -= size;
    return true;
}

bool xbzrle_decode(const uint8_t *encoded, size_t len, uint8_t *page, GError **errp)
{
    Input in = { encoded, len };
    size_t pos = 0;

    for (bool first = true; in.left; first = false) {
        size_t equal, changed;
        if (!get_length(&in, &equal) || !get_length(&in, &changed)) {
            return bad_encoding(errp, "a run length is cut short");
        }
        if ((!equal && !first) || !changed) {
            return bad_encoding(errp, "a run is empty");
        }
        if (equal > TARGET_PAGE_SIZE - pos || changed > TARGET_PAGE_SIZE - pos - equal) {
            return bad_encoding(errp, "a run leaves the page");
        }
        if (changed > in.left) {
            return bad_encoding(errp, "a run is longer than the data");
        }
        pos += equal;
        memcpy(page + pos, in.at, changed);
        pos += changed;
        in.at += changed;
        in.left -= changed;
    }
    return true;
}

/* ---- cache ---- */

/* What a slot holds.  Zeroed memory is an empty slot. */
typedef struct Slot {
    uint64_t page_plus_1;       /* 0: empty */
    uint64_t generation;        /* of the last use */
} Slot;

/* Both arrays are mapped, so that what is never used costs nothing. */
struct XbzrleCache {
    uint64_t count;             /* slots, a power of two */
    Slot *slots;
    uint8_t *pages;
};

static void *map_zeroed(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void unmap(void *p, size_t bytes)
{
    if (p) {
        munmap(p, bytes);
    }
}

static void cache_clear(XbzrleCache *cache)
{
    unmap(cache->slots, cache->count * sizeof(Slot));
    unmap(cache->pages, cache->count * TARGET_PAGE_SIZE);
}

static bool cache_init(XbzrleCache *cache, uint64_t bytes, GError **errp)
{
    if (bytes < TARGET_PAGE_SIZE || (bytes & (bytes - 1)) || bytes > SIZE_MAX / 2) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "XBZRLE cache size %" G_GUINT64_FORMAT " is not a power of two of at least %u bytes",
                    bytes, TARGET_PAGE_SIZE);
        return false;
    }
    *cache = (XbzrleCache){ .count = bytes / TARGET_PAGE_SIZE };
    cache->slots = map_zeroed(cache->count * sizeof(Slot));
    cache->pages = map_zeroed(bytes);
    if (!cache->slots || !cache->pages) {
        error_set_errno(errp, GODWIT_ERROR_FAILED, errno,
                        "Unable to allocate an XBZRLE cache of %" G_GUINT64_FORMAT " bytes", bytes);
        cache_clear(cache);
        return false;
    }
    return true;
}

XbzrleCache *xbzrle_cache_new(uint64_t bytes, GError **errp)
{
    XbzrleCache init;

    if (!cache_init(&init, bytes, errp)) {
        return NULL;
    }
    XbzrleCache *cache = g_new(XbzrleCache, 1);
    *cache = init;
    return cache;
}

void xbzrle_cache_free(XbzrleCache *cache)
{
    if (cache) {
        cache_clear(cache);
        g_free(cache);
    }
}

uint64_t xbzrle_cache_bytes(const XbzrleCache *cache)
{
    return cache->count * TARGET_PAGE_SIZE;
}

uint8_t *xbzrle_cache_lookup(XbzrleCache *cache, uint64_t page, uint64_t generation)
{
    uint64_t index = page & (cache->count - 1);
    Slot *slot = &cache->slots[index];

    if (slot->page_plus_1 != page + 1) {
        return NULL;
    }
    slot->generation = generation;
    return cache->pages + index * TARGET_PAGE_SIZE;
}

bool xbzrle_cache_insert(XbzrleCache *cache, uint64_t page, const uint8_t *content, uint64_t generation)
{
    uint64_t index = page & (cache->count - 1);
    Slot *slot = &cache->slots[index];
    bool other = slot->page_plus_1 && slot->page_plus_1 != page + 1;

    if (other && slot->generation + 2 > generation) {
        return false;
    }
    *slot = (Slot){ .page_plus_1 = page + 1, .generation = generation };
    memcpy(cache->pages + index * TARGET_PAGE_SIZE, content, TARGET_PAGE_SIZE);
    return true;
}

bool xbzrle_cache_resize(XbzrleCache *cache, uint64_t bytes, GError **errp)
{
    XbzrleCache new;

    if (bytes == xbzrle_cache_bytes(cache)) {
        return true;
    }
    if (!cache_init(&new, bytes, errp)) {
        return false;
    }
    for (uint64_t i = 0; i < cache->count; i++) {
        const Slot *from = &cache->slots[i];
        if (!from->page_plus_1) {
            continue;
        }
        uint64_t index = (from->page_plus_1 - 1) & (new.count - 1);
        Slot *to = &new.slots[index];
        if (!to->page_plus_1 || to->generation < from->generation) {
            *to = *from;
            memcpy(new.pages + index * TARGET_PAGE_SIZE, cache->pages + i * TARGET_PAGE_SIZE,
                   TARGET_PAGE_SIZE);
        }
    }
    cache_clear(cache);
    *cache = new;
    return true;
}
