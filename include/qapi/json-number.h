/* SPDX-License-Identifier: BSD-2-Clause */
/* Integers in json_t: how numbers of 2^63 and above are carried, and the integer rules of QMP. */
#ifndef GODWIT_QAPI_JSON_NUMBER_H
#define GODWIT_QAPI_JSON_NUMBER_H

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * jansson's integer is a signed 64-bit one, QMP's integers reach to 2^64 - 1.  A number of 2^63 or more is
 * carried as a string node that no JSON text can produce: the byte 0xFF (never part of UTF-8) followed by
 * the number in decimal digits.  The QMP parser makes such nodes and the JSON writer prints them as numbers;
 * everybody else uses the functions below.  A visitor that expects a string refuses a node for which
 * qapi_json_is_big() is true.
 */
static inline bool qapi_json_is_big(const json_t *json)
{
    return json_is_string(json) && (unsigned char)json_string_value(json)[0] == 0xff;
}

/* True for every node that stands for an integer. */
static inline bool qapi_json_is_integer(const json_t *json)
{
    return json_is_integer(json) || qapi_json_is_big(json);
}

/* A string that came from JSON text, not a big integer. */
static inline bool qapi_json_is_string(const json_t *json)
{
    return json_is_string(json) && !qapi_json_is_big(json);
}

/* A new node for @value, whatever its size. */
static inline json_t *qapi_json_from_uint64(uint64_t value)
{
    char text[24];

    if (value <= INT64_MAX) {
        return json_integer((json_int_t)value);
    }
    snprintf(text, sizeof(text), "\xff%" PRIu64, value);
    return json_string_nocheck(text);
}

/* False if @json is not an integer or does not fit. */
static inline bool qapi_json_to_int64(const json_t *json, int64_t *value)
{
    if (!json_is_integer(json)) {
        return false;
    }
    *value = json_integer_value(json);
    return true;
}

/*
 * False if @json is not an integer.  A negative integer is taken modulo 2^64: that is how QMP
 * treats one that is given for an unsigned 64-bit member or a size.
 */
static inline bool qapi_json_to_uint64(const json_t *json, uint64_t *value)
{
    if (qapi_json_is_big(json)) {
        *value = strtoull(json_string_value(json) + 1, NULL, 10);
        return true;
    }
    if (!json_is_integer(json)) {
        return false;
    }
    *value = (uint64_t)json_integer_value(json);
    return true;
}

#endif
