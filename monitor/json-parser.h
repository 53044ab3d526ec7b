/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * JsonParser: a stream of bytes to a stream of JSON values, in the dialect of QMP, with recovery after
 * errors.
 */
#ifndef GODWIT_MONITOR_JSON_PARSER_H
#define GODWIT_MONITOR_JSON_PARSER_H

#include <glib.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Containers inside containers. */
#define QMP_JSON_MAX_DEPTH 1024
/* Tokens of one value: brackets, separators, strings, numbers, keywords. */
#define QMP_JSON_MAX_TOKENS (1u << 21)
/* Bytes of all strings, numbers and keywords of one value. */
#define QMP_JSON_MAX_BYTES (64u << 20)

/*
 * The dialect is JSON, plus strings in single quotes and the escape \'.  Values may follow each other with or
 * without white space; a number or a keyword ends only where something else begins.
 *
 * Numbers: an integer of up to 64 bits, signed or unsigned, is kept exactly (see qapi/json-number.h), any
 * other number becomes a double.  \u0000 in a string becomes the two bytes C0 80, so that values stay C
 * strings; the writer turns them back.
 *
 * Belongs to one thread.
 */
typedef struct JsonParser JsonParser;

typedef enum {
    JSON_PARSER_MORE, /* all bytes are used up, the value is not complete */
    JSON_PARSER_VALUE,
    JSON_PARSER_ERROR, /* what is wrong has been dropped: go on with the rest of the bytes */
} JsonParserResult;

/* A parser at line 1, column 1. */
JsonParser *json_parser_new(void);
void json_parser_free(JsonParser *parser);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(JsonParser, json_parser_free)

/*
 * Reads from *@data until one value is complete or an error is found; *@data and *@len are moved past the
 * bytes that were used.  JSON_PARSER_VALUE: *@value is a new reference.  JSON_PARSER_ERROR: @errp is set to
 * "LINE:COL: JSON parse error, ..."; line and column (in bytes) count from 1 since the parser was made and
 * name the first byte of the offending token.
 */
JsonParserResult json_parser_next(JsonParser *parser, const char **data, size_t *len, json_t **value,
                                  GError **errp);

#endif
