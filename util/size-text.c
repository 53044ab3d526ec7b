/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as people type them. */
#include "util/size-text.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

/* 1024 to the power of the suffix's place in the list, 0 if @c is none. */
static uint64_t suffix_factor(char c)
{
    static const char letters[] = "BKMGTPE";
    const char *p = c ? strchr(letters, g_ascii_toupper(c)) : NULL;

    return p ? UINT64_C(1) << (10 * (p - letters)) : 0;
}

/* The digits after a point, as a number below 1; *@p is left behind them. */
static double take_fraction(const char **p)
{
    double value = 0, place = 0.1;

    for (; g_ascii_isdigit(**p); ++*p, place /= 10) {
        value += (**p - '0') * place;
    }
    return value;
}

static NumberTextVerdict scale(uint64_t whole, double fraction, uint64_t factor, uint64_t *out)
{
    uint64_t extra = (uint64_t)(fraction * (double)factor);

    if (whole > UINT64_MAX / factor || whole * factor > UINT64_MAX - extra) {
        return NUMBER_TEXT_OUT_OF_RANGE;
    }
    *out = whole * factor + extra;
    return NUMBER_TEXT_OK;
}

static NumberTextVerdict parse_hex(const char *digits, uint64_t unit, uint64_t *out)
{
    char *end;

    if (!g_ascii_isxdigit(*digits)) {
        return NUMBER_TEXT_MALFORMED;
    }
    errno = 0;
    uint64_t whole = g_ascii_strtoull(digits, &end, 16);
    if (*end) {
        return NUMBER_TEXT_MALFORMED;
    }
    return errno == ERANGE ? NUMBER_TEXT_OUT_OF_RANGE : scale(whole, 0, unit, out);
}

NumberTextVerdict size_text_parse(const char *text, uint64_t unit, uint64_t *out)
{
    const char *p = text;
    char *end;

    while (g_ascii_isspace(*p)) {
        p++;
    }
    bool negative = *p == '-';
    p += *p == '-' || *p == '+';
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        return negative ? NUMBER_TEXT_MALFORMED : parse_hex(p + 2, unit, out);
    }
    if (!g_ascii_isdigit(p[0]) && !(p[0] == '.' && g_ascii_isdigit(p[1]))) {
        return NUMBER_TEXT_MALFORMED;
    }
    errno = 0;
    uint64_t whole = g_ascii_isdigit(*p) ? g_ascii_strtoull(p, &end, 10) : 0;
    bool overflow = errno == ERANGE;
    p = g_ascii_isdigit(*p) ? end : p;
    double fraction = 0;
    if (*p == '.') {
        p++;
        fraction = take_fraction(&p);
    }
    uint64_t factor = suffix_factor(*p);
    p += factor ? 1 : 0;
    factor = factor ? factor : unit;
    if (*p || (fraction > 0 && factor == 1)) {
        return NUMBER_TEXT_MALFORMED;
    }
    return overflow || negative ? NUMBER_TEXT_OUT_OF_RANGE : scale(whole, fraction, factor, out);
}

NumberTextVerdict integer_text_parse(const char *text, uint64_t *out)
{
    const char *p = text;
    char *end;

    while (g_ascii_isspace(*p)) {
        p++;
    }
    if (!g_ascii_isdigit(*p == '-' || *p == '+' ? p[1] : p[0])) {
        return NUMBER_TEXT_MALFORMED;
    }
    errno = 0;
    uint64_t value = g_ascii_strtoull(p, &end, 0);
    if (*end) {
        return NUMBER_TEXT_MALFORMED;
    }
    if (errno == ERANGE) {
        return NUMBER_TEXT_OUT_OF_RANGE;
    }
    *out = value;
    return NUMBER_TEXT_OK;
}
