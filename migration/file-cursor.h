/* SPDX-License-Identifier: BSD-2-Clause */
/* A cursor in a seekable file: fields one after the other, read by positioned reads through a window. */
#ifndef GODWIT_MIGRATION_FILE_CURSOR_H
#define GODWIT_MIGRATION_FILE_CURSOR_H

#include "io/channel.h"
#include "util/error.h"

#define FILE_CURSOR_WINDOW (64 * 1024)

/*
 * The first failure sticks: later gets return zeros.  So a structure is read as a whole and checked once.
 * One thread's.
 */
typedef struct FileCursor {
    Channel *file; /* the owner's */
    uint64_t file_size;
    uint64_t position; /* never beyond file_size; may be set anywhere below it */
    GError *error;
    /* Told about each window that is read; may be NULL. */
    void (*progress)(void *opaque, uint64_t position, uint64_t file_size);
    void *opaque;
    uint8_t *window;
    uint64_t window_start;
    size_t window_len;
} FileCursor;

void file_cursor_init(FileCursor *c, Channel *file, uint64_t file_size, uint64_t position);
void file_cursor_clear(FileCursor *c);

/* Makes the cursor fail, unless it has failed; a GODWIT_ERROR_EOF is worded as "incomplete: ...".  False. */
bool cursor_refuse(FileCursor *c, GodwitError code, const char *fmt, ...) G_GNUC_PRINTF(3, 4);

/* The next @len bytes, at most a window, without taking them; NULL if there are fewer, or on failure. */
const uint8_t *cursor_look(FileCursor *c, size_t len);

/* The same, taken; fewer bytes are a failure that names @field and the position. */
const uint8_t *cursor_take(FileCursor *c, size_t len, const char *field);
uint8_t cursor_u8(FileCursor *c, const char *field);
uint16_t cursor_be16(FileCursor *c, const char *field);
uint32_t cursor_be32(FileCursor *c, const char *field);
uint64_t cursor_be64(FileCursor *c, const char *field);

/* One length byte, then that many bytes, terminated in @out.  Refuses an embedded NUL. */
bool cursor_string(FileCursor *c, char out[256], const char *field);
bool cursor_skip(FileCursor *c, uint64_t len, const char *field);

#endif
