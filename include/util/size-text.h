/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as people type them: sizes with suffixes, integers in three bases. */
#ifndef GODWIT_UTIL_SIZE_TEXT_H
#define GODWIT_UTIL_SIZE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    NUMBER_TEXT_OK,
    NUMBER_TEXT_MALFORMED,
    NUMBER_TEXT_OUT_OF_RANGE,       /* a number, but negative or of 2^64 and more */
} NumberTextVerdict;

/*
 * A decimal number, perhaps with a fraction, and perhaps one of the suffixes b k M G T P E (either case;
 * powers of 1024); without one it is multiplied by @unit.  0x begins a hexadecimal number, which takes no
 * suffix.  A fraction of something that has no suffix and a @unit of 1 must be zero.  Leading blanks and '+'
 * are allowed.
 * *@out is set only with NUMBER_TEXT_OK.
 */
NumberTextVerdict size_text_parse(const char *text, uint64_t unit, uint64_t *out);

/*
 * A decimal, 0x hexadecimal or 0 octal integer; leading blanks and a sign are allowed.  A negative one is
 * taken modulo 2^64, as QMP does.
 */
NumberTextVerdict integer_text_parse(const char *text, uint64_t *out);

#endif
