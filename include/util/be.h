/* SPDX-License-Identifier: BSD-2-Clause */
/* Big-endian integers of the wire as types of their own, and unaligned loads and stores. */
#ifndef GODWIT_UTIL_BE_H
#define GODWIT_UTIL_BE_H

#include <glib.h>
#include <stdint.h>
#include <string.h>

/* A value in network order.  Wrapped in a struct so that it cannot be used as a number by accident. */
typedef struct { uint8_t b[2]; } be16;
typedef struct { uint8_t b[4]; } be32;
typedef struct { uint8_t b[8]; } be64;

static inline uint16_t load_be16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return GUINT16_FROM_BE(v);
}

static inline uint32_t load_be32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return GUINT32_FROM_BE(v);
}

static inline uint64_t load_be64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return GUINT64_FROM_BE(v);
}

static inline void store_be16(void *p, uint16_t v)
{
    v = GUINT16_TO_BE(v);
    memcpy(p, &v, sizeof(v));
}

static inline void store_be32(void *p, uint32_t v)
{
    v = GUINT32_TO_BE(v);
    memcpy(p, &v, sizeof(v));
}

static inline void store_be64(void *p, uint64_t v)
{
    v = GUINT64_TO_BE(v);
    memcpy(p, &v, sizeof(v));
}

static inline uint16_t be16_get(be16 v) { return load_be16(&v); }
static inline uint32_t be32_get(be32 v) { return load_be32(&v); }
static inline uint64_t be64_get(be64 v) { return load_be64(&v); }
static inline be16 be16_make(uint16_t v) { be16 r; store_be16(&r, v); return r; }
static inline be32 be32_make(uint32_t v) { be32 r; store_be32(&r, v); return r; }
static inline be64 be64_make(uint64_t v) { be64 r; store_be64(&r, v); return r; }

#endif
