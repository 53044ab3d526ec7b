/* SPDX-License-Identifier: BSD-2-Clause */
/* The bounded reader. */
#include "util/reader.h"

#include "util/be.h"
#include "util/error.h"

#include <string.h>

void reader_init(Reader *r, const void *data, size_t len)
{
    *r = (Reader){ .data = data, .len = len };
}

static void fail(Reader *r, const char *field, const char *problem)
{
    if (!r->field) {
        r->field = field;
        r->problem = problem;
    }
}

const uint8_t *reader_bytes(Reader *r, size_t len, const char *field)
{
    if (!r->field && len > r->len - r->pos) {
        fail(r, field, "is cut off");
    }
    if (r->field) {
        return NULL;
    }
    const uint8_t *p = r->data + r->pos;
    r->pos += len;
    return p;
}

uint8_t reader_u8(Reader *r, const char *field)
{
    const uint8_t *p = reader_bytes(r, 1, field);
    return p ? *p : 0;
}

uint16_t reader_be16(Reader *r, const char *field)
{
    const uint8_t *p = reader_bytes(r, 2, field);
    return p ? load_be16(p) : 0;
}

uint32_t reader_be32(Reader *r, const char *field)
{
    const uint8_t *p = reader_bytes(r, 4, field);
    return p ? load_be32(p) : 0;
}

uint64_t reader_be64(Reader *r, const char *field)
{
    const uint8_t *p = reader_bytes(r, 8, field);
    return p ? load_be64(p) : 0;
}

bool reader_counted_string(Reader *r, char out[256], const char *field)
{
    size_t len = reader_u8(r, field);
    const uint8_t *p = reader_bytes(r, len, field);

    out[0] = '\0';
    if (!p) {
        return false;
    }
    if (memchr(p, '\0', len)) {
        fail(r, field, "holds a NUL byte");
        return false;
    }
    memcpy(out, p, len);
    out[len] = '\0';
    return true;
}

size_t reader_left(const Reader *r)
{
    return r->len - r->pos;
}

bool reader_finish(const Reader *r, bool all, const char *what, GError **errp)
{
    if (r->field) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "%s: %s %s (at byte %zu of %zu)", what,
                    r->field, r->problem, r->pos, r->len);
        return false;
    }
    if (all && reader_left(r)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "%s: %zu bytes left over after %zu", what,
                    reader_left(r), r->pos);
        return false;
    }
    return true;
}
