/* SPDX-License-Identifier: BSD-2-Clause */
/* A cursor in a seekable file. */
#include "migration/file-cursor.h"

#include "util/be.h"
#include "util/error.h"

#include <inttypes.h>
#include <string.h>

void file_cursor_init(FileCursor *c, Channel *file, uint64_t file_size, uint64_t position)
{
    *c = (FileCursor){ .file = file, .file_size = file_size, .position = position };
    c->window = g_malloc(FILE_CURSOR_WINDOW);
}

void file_cursor_clear(FileCursor *c)
{
    g_clear_pointer(&c->window, g_free);
    g_clear_error(&c->error);
}

bool cursor_refuse(FileCursor *c, GodwitError code, const char *fmt, ...)
{
    if (!c->error) {
        va_list ap;
        va_start(ap, fmt);
        g_autofree char *text = g_strdup_vprintf(fmt, ap);
        va_end(ap);
        g_autofree char *valid = g_utf8_make_valid(text, -1);
        g_set_error(&c->error, GODWIT_ERROR, code, "%s%s", code == GODWIT_ERROR_EOF ? "incomplete: " : "",
                    valid);
    }
    return false;
}

static bool fill_window(FileCursor *c, uint64_t from)
{
    size_t len = MIN(FILE_CURSOR_WINDOW, c->file_size - from);
    GError *cause = NULL;

    if (c->progress) {
        c->progress(c->opaque, from, c->file_size);
    }
    c->window_len = 0;
    if (!channel_pread_all(c->file, c->window, len, (off_t)from, &cause)) {
        cursor_refuse(c, (GodwitError)cause->code, "0x%" PRIx64 ": %s", from, cause->message);
        g_error_free(cause);
        return false;
    }
    c->window_start = from;
    c->window_len = len;
    return true;
}

const uint8_t *cursor_look(FileCursor *c, size_t len)
{
    if (c->error || len > c->file_size - c->position) {
        return NULL;
    }
    bool there = c->position >= c->window_start && c->position - c->window_start <= c->window_len &&
                 len <= c->window_len - (c->position - c->window_start);
    if (!there && !fill_window(c, c->position)) {
        return NULL;
    }
    return c->window + (c->position - c->window_start);
}

const uint8_t *cursor_take(FileCursor *c, size_t len, const char *field)
{
    const uint8_t *p = cursor_look(c, len);

    if (!p) {
        cursor_refuse(c, GODWIT_ERROR_EOF, "%s at 0x%" PRIx64 ": the file ends at 0x%" PRIx64, field,
                      c->position, c->file_size);
        return NULL;
    }
    c->position += len;
    return p;
}

uint8_t cursor_u8(FileCursor *c, const char *field)
{
    const uint8_t *p = cursor_take(c, 1, field);
    return p ? *p : 0;
}

uint16_t cursor_be16(FileCursor *c, const char *field)
{
    const uint8_t *p = cursor_take(c, 2, field);
    return p ? load_be16(p) : 0;
}

uint32_t cursor_be32(FileCursor *c, const char *field)
{
    const uint8_t *p = cursor_take(c, 4, field);
    return p ? load_be32(p) : 0;
}

uint64_t cursor_be64(FileCursor *c, const char *field)
{
    const uint8_t *p = cursor_take(c, 8, field);
    return p ? load_be64(p) : 0;
}

bool cursor_string(FileCursor *c, char out[256], const char *field)
{
    uint64_t at = c->position;
    size_t len = cursor_u8(c, field);
    const uint8_t *p = cursor_take(c, len, field);

    out[0] = '\0';
    if (!p) {
        return false;
    }
    if (memchr(p, '\0', len)) {
        return cursor_refuse(c, GODWIT_ERROR_PROTOCOL, "%s at 0x%" PRIx64 " holds a NUL byte", field, at);
    }
    memcpy(out, p, len);
    out[len] = '\0';
    return true;
}

bool cursor_skip(FileCursor *c, uint64_t len, const char *field)
{
    if (c->error) {
        return false;
    }
    if (len > c->file_size - c->position) {
        return cursor_refuse(c, GODWIT_ERROR_EOF,
                             "%s, 0x%" PRIx64 " bytes at 0x%" PRIx64 ": the file ends at 0x%" PRIx64, field,
                             len, c->position, c->file_size);
    }
    c->position += len;
    return true;
}
