/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers, texts and sums of the tables by which a guest finds its hardware.  For acpi.c and mptable.c. */
#ifndef GODWIT_HW_PICO_TABLE_H
#define GODWIT_HW_PICO_TABLE_H

#include <glib.h>
#include <string.h>

/* The low @bytes bytes of @value, little-endian. */
static inline void put(GByteArray *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++, value >>= 8) {
        uint8_t byte = (uint8_t)value;
        g_byte_array_append(to, &byte, 1);
    }
}

/* @text, filled up with blanks to @bytes. */
static inline void put_text(GByteArray *to, const char *text, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        put(to, i < strlen(text) ? (uint8_t)text[i] : ' ', 1);
    }
}

/* Sets byte @where so that @len bytes add up to nothing. */
static inline void seal(uint8_t *bytes, size_t len, size_t where)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < len; i++) {
        sum = (uint8_t)(sum + bytes[i]);
    }
    bytes[where] = (uint8_t)(bytes[where] - sum);
}

#endif
