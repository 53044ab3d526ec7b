/* SPDX-License-Identifier: BSD-2-Clause */
/* Migration streams made by hand, byte by byte, from the format's description alone. */
#ifndef GODWIT_TESTS_STREAM_BUILDER_H
#define GODWIT_TESTS_STREAM_BUILDER_H

#include <glib.h>
#include <stdint.h>

/* Every function appends to @s. */
typedef GByteArray Stream;

void put_u8(Stream *s, uint8_t v);
void put_be16(Stream *s, uint16_t v);
void put_be32(Stream *s, uint32_t v);
void put_be64(Stream *s, uint64_t v);
void put_bytes(Stream *s, const void *p, size_t len);
void put_zeros(Stream *s, size_t len);
void put_string(Stream *s, const char *text);               /* length byte, then the bytes */

void put_header(Stream *s);                                 /* QEVM, 3 */
void put_configuration(Stream *s, const char *machine);
void put_subsection(Stream *s, const char *name, uint32_t version);     /* the fields follow */
void put_begin(Stream *s, uint8_t type, uint32_t id, const char *name, uint32_t instance, uint32_t version);
void put_continue(Stream *s, uint8_t type, uint32_t id);
void put_footer(Stream *s, uint32_t id);
void put_command(Stream *s, uint16_t number, const void *payload, uint16_t len);
void put_eof(Stream *s);
void put_description(Stream *s, const char *json);

void put_timer(Stream *s, uint32_t id, int64_t ticks, int64_t clock);   /* a whole FULL section */
void put_globalstate(Stream *s, uint32_t id, const char *state, uint8_t has_suspended, uint8_t suspended);

/* Inside of ram. */
#define RAM_ZERO 0x02
#define RAM_MEM_SIZE 0x04
#define RAM_PAGE 0x08
#define RAM_EOS 0x10
#define RAM_CONTINUE 0x20
#define RAM_XBZRLE 0x40
void put_eos(Stream *s);
void put_block_list(Stream *s, const char *name, uint64_t size);        /* one block; no EOS */
void put_ram_start(Stream *s, uint32_t id, const char *name, uint64_t size);    /* a whole START section */
/* @name NULL: CONTINUE. */
void put_zero_page(Stream *s, uint64_t offset, const char *name, uint8_t fill);
void put_page(Stream *s, uint64_t offset, const char *name, const void *page);

/* The text that QEMU 11.1 sends for machine none. */
extern const char description_11_1[];

#endif
