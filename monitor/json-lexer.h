/* SPDX-License-Identifier: BSD-2-Clause */
/* JsonLexer: bytes to JSON tokens, resumable at any byte. */
#ifndef GODWIT_MONITOR_JSON_LEXER_H
#define GODWIT_MONITOR_JSON_LEXER_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    JSON_TOKEN_NONE, /* the bytes are used up */
    JSON_TOKEN_LEFT_BRACE,
    JSON_TOKEN_RIGHT_BRACE,
    JSON_TOKEN_LEFT_BRACKET,
    JSON_TOKEN_RIGHT_BRACKET,
    JSON_TOKEN_COLON,
    JSON_TOKEN_COMMA,
    JSON_TOKEN_STRING, /* text has its quotes and escapes */
    JSON_TOKEN_INTEGER,
    JSON_TOKEN_FLOAT,
    JSON_TOKEN_KEYWORD,
    JSON_TOKEN_STRAY,    /* a byte that cannot be there; text ends with it */
    JSON_TOKEN_TOO_LONG, /* text was dropped */
} JsonToken;

typedef struct JsonLexer {
    int state;
    GString *text;         /* of the token being read, or just returned */
    uint64_t line, column; /* of the next byte */
    uint64_t token_line, token_column;
} JsonLexer;

void json_lexer_init(JsonLexer *lexer);
void json_lexer_clear(JsonLexer *lexer);

/* Moves *@data and *@len past what was used.  A token of more than @max_text bytes is refused. */
JsonToken json_lexer_next(JsonLexer *lexer, const char **data, size_t *len, size_t max_text);

#endif
