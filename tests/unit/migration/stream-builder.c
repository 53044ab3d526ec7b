/* SPDX-License-Identifier: BSD-2-Clause */
/* Migration streams made by hand. */
#include "stream-builder.h"

#include <string.h>

const char description_11_1[] =
    "{\"configuration\": {\"vmsd_name\": \"configuration\", \"version\": 1, \"fields\": ["
    "{\"name\": \"len\", \"type\": \"uint32\", \"size\": 4}, {\"name\": \"name\", \"type\": \"buffer\", "
    "\"size\": 4}]}, "
    "\"page_size\": 4096, \"devices\": ["
    "{\"name\": \"timer\", \"instance_id\": 0, \"vmsd_name\": \"timer\", \"version\": 2, \"fields\": ["
    "{\"name\": \"cpu_ticks_offset\", \"type\": \"int64\", \"size\": 8}, "
    "{\"name\": \"unused\", \"type\": \"unused_buffer\", \"size\": 8}, "
    "{\"name\": \"cpu_clock_offset\", \"type\": \"int64\", \"size\": 8}]}, "
    "{\"name\": \"globalstate\", \"instance_id\": 0, \"vmsd_name\": \"globalstate\", \"version\": 1, "
    "\"fields\": ["
    "{\"name\": \"size\", \"type\": \"uint32\", \"size\": 4}, "
    "{\"name\": \"runstate\", \"type\": \"buffer\", \"size\": 32}, "
    "{\"name\": \"has_vm_was_suspended\", \"type\": \"uint8\", \"size\": 1}, "
    "{\"name\": \"vm_was_suspended\", \"type\": \"uint8\", \"size\": 1}, "
    "{\"name\": \"unused\", \"type\": \"buffer\", \"size\": 66}]}]}";

void put_bytes(Stream *s, const void *p, size_t len)
{
    g_byte_array_append(s, p, (guint)len);
}

static void put_be(Stream *s, uint64_t v, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0;) {
        put_u8(s, (uint8_t)(v >> (8 * i)));
    }
}

void put_u8(Stream *s, uint8_t v)
{
    put_bytes(s, &v, 1);
}

void put_be16(Stream *s, uint16_t v)
{
    put_be(s, v, 2);
}

void put_be32(Stream *s, uint32_t v)
{
    put_be(s, v, 4);
}

void put_be64(Stream *s, uint64_t v)
{
    put_be(s, v, 8);
}

void put_zeros(Stream *s, size_t len)
{
    while (len--) {
        put_u8(s, 0);
    }
}

void put_string(Stream *s, const char *text)
{
    put_u8(s, (uint8_t)strlen(text));
    put_bytes(s, text, strlen(text));
}

void put_header(Stream *s)
{
    put_bytes(s, "QEVM", 4);
    put_be32(s, 3);
}

void put_configuration(Stream *s, const char *machine)
{
    put_u8(s, 0x07);
    put_be32(s, (uint32_t)strlen(machine));
    put_bytes(s, machine, strlen(machine));
}

void put_subsection(Stream *s, const char *name, uint32_t version)
{
    put_u8(s, 0x05);
    put_string(s, name);
    put_be32(s, version);
}

void put_begin(Stream *s, uint8_t type, uint32_t id, const char *name, uint32_t instance, uint32_t version)
{
    put_u8(s, type);
    put_be32(s, id);
    put_string(s, name);
    put_be32(s, instance);
    put_be32(s, version);
}

void put_continue(Stream *s, uint8_t type, uint32_t id)
{
    put_u8(s, type);
    put_be32(s, id);
}

void put_footer(Stream *s, uint32_t id)
{
    put_u8(s, 0x7e);
    put_be32(s, id);
}

void put_command(Stream *s, uint16_t number, const void *payload, uint16_t len)
{
    put_u8(s, 0x08);
    put_be16(s, number);
    put_be16(s, len);
    put_bytes(s, payload, len);
}

void put_eof(Stream *s)
{
    put_u8(s, 0x00);
}

void put_description(Stream *s, const char *json)
{
    put_u8(s, 0x06);
    put_be32(s, (uint32_t)strlen(json));
    put_bytes(s, json, strlen(json));
}

void put_timer(Stream *s, uint32_t id, int64_t ticks, int64_t clock)
{
    put_begin(s, 4, id, "timer", 0, 2);
    put_be64(s, (uint64_t)ticks);
    put_zeros(s, 8);
    put_be64(s, (uint64_t)clock);
    put_footer(s, id);
}

void put_globalstate(Stream *s, uint32_t id, const char *state, uint8_t has_suspended, uint8_t suspended)
{
    size_t len = strlen(state);

    put_begin(s, 4, id, "globalstate", 0, 1);
    put_be32(s, (uint32_t)len + 1);
    put_bytes(s, state, len);
    put_zeros(s, 32 - len);
    put_u8(s, has_suspended);
    put_u8(s, suspended);
    put_zeros(s, 66);
    put_footer(s, id);
}

void put_eos(Stream *s)
{
    put_be64(s, RAM_EOS);
}

void put_block_list(Stream *s, const char *name, uint64_t size)
{
    put_be64(s, size | RAM_MEM_SIZE);
    put_string(s, name);
    put_be64(s, size);
}

void put_ram_start(Stream *s, uint32_t id, const char *name, uint64_t size)
{
    put_begin(s, 1, id, "ram", 0, 4);
    put_block_list(s, name, size);
    put_eos(s);
    put_footer(s, id);
}

static void put_page_word(Stream *s, uint64_t offset, const char *name, uint64_t flag)
{
    put_be64(s, offset | flag | (name ? 0 : RAM_CONTINUE));
    if (name) {
        put_string(s, name);
    }
}

void put_zero_page(Stream *s, uint64_t offset, const char *name, uint8_t fill)
{
    put_page_word(s, offset, name, RAM_ZERO);
    put_u8(s, fill);
}

void put_page(Stream *s, uint64_t offset, const char *name, const void *page)
{
    put_page_word(s, offset, name, RAM_PAGE);
    put_bytes(s, page, 4096);
}
