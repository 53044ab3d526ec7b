/* SPDX-License-Identifier: BSD-2-Clause */
/* JsonLexer: a table of states by classes of bytes. */
#include "json-lexer.h"

#include <string.h>

typedef enum {
    CLASS_OTHER, /* printable ASCII without a meaning, DEL, 0x80 to 0xFD */
    CLASS_BAD,   /* control characters, 0xFE, 0xFF: in no token, not even skipped in silence */
    CLASS_SPACE,
    CLASS_TAB, /* tab and CR: white space, but not in a string */
    CLASS_NEWLINE,
    CLASS_STRUCTURE, /* { } [ ] : , */
    CLASS_DOUBLE_QUOTE,
    CLASS_SINGLE_QUOTE,
    CLASS_BACKSLASH,
    CLASS_PLUS,
    CLASS_MINUS,
    CLASS_DOT,
    CLASS_ZERO,
    CLASS_DIGIT, /* 1 to 9 */
    CLASS_LOWER, /* a to z without e */
    CLASS_LOWER_E,
    CLASS_UPPER_E,
    CLASS__MAX,
} ByteClass;

typedef enum {
    /* States: between tokens, skipping after a stray byte, and in the middle of a token. */
    START,
    RECOVER,
    DOUBLE_QUOTED,
    DOUBLE_QUOTED_ESCAPE,
    SINGLE_QUOTED,
    SINGLE_QUOTED_ESCAPE,
    MINUS,
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
    KEYWORD,
    STATE__MAX,
    /* Steps that are not a state.  The first is what tables hold where nothing is written. */
    STRAY = 0x40, /* take the byte, report the text so far */
    STRUCTURE,    /* the byte is a token */
    STRING_END,   /* take the byte, the token is complete */
    INTEGER_END,  /* leave the byte, the token is complete */
    FLOAT_END,
    KEYWORD_END,
    RECOVERED, /* leave the byte, go on from START */
} LexStep;

/* clang-format off */
static const uint8_t byte_classes[256] = {      /* of ByteClass; CLASS_OTHER where nothing is written */
    [0x00 ... 0x08] = CLASS_BAD, [0x0b ... 0x0c] = CLASS_BAD, [0x0e ... 0x1f] = CLASS_BAD,
    [0xfe ... 0xff] = CLASS_BAD,
    [' '] = CLASS_SPACE, ['\t'] = CLASS_TAB, ['\r'] = CLASS_TAB, ['\n'] = CLASS_NEWLINE,
    ['{'] = CLASS_STRUCTURE, ['}'] = CLASS_STRUCTURE, ['['] = CLASS_STRUCTURE, [']'] = CLASS_STRUCTURE,
    [':'] = CLASS_STRUCTURE, [','] = CLASS_STRUCTURE,
    ['"'] = CLASS_DOUBLE_QUOTE, ['\''] = CLASS_SINGLE_QUOTE, ['\\'] = CLASS_BACKSLASH,
    ['+'] = CLASS_PLUS, ['-'] = CLASS_MINUS, ['.'] = CLASS_DOT, ['0'] = CLASS_ZERO,
    ['1' ... '9'] = CLASS_DIGIT,
    ['a' ... 'd'] = CLASS_LOWER, ['e'] = CLASS_LOWER_E, ['f' ... 'z'] = CLASS_LOWER, ['E'] = CLASS_UPPER_E,
};
/* clang-format on */

/* A row for each state: what happens with most bytes, and the exceptions. */
typedef struct LexRule {
    uint8_t otherwise;
    uint8_t exceptions[CLASS__MAX]; /* 0: none; START is written as GO_START */
} LexRule;

#define GO_START 0x7f

/* clang-format off */
static const LexRule rules[STATE__MAX] = {
    [START] = { STRAY, {
        [CLASS_SPACE] = GO_START, [CLASS_TAB] = GO_START, [CLASS_NEWLINE] = GO_START,
        [CLASS_STRUCTURE] = STRUCTURE,
        [CLASS_DOUBLE_QUOTE] = DOUBLE_QUOTED, [CLASS_SINGLE_QUOTE] = SINGLE_QUOTED,
        [CLASS_MINUS] = MINUS, [CLASS_ZERO] = ZERO, [CLASS_DIGIT] = INTEGER,
        [CLASS_LOWER] = KEYWORD, [CLASS_LOWER_E] = KEYWORD } },
    [RECOVER] = { RECOVER, {
        [CLASS_BAD] = STRAY, [CLASS_STRUCTURE] = RECOVERED, [CLASS_NEWLINE] = GO_START } },
    [DOUBLE_QUOTED] = { DOUBLE_QUOTED, {
        [CLASS_BAD] = STRAY, [CLASS_TAB] = STRAY, [CLASS_NEWLINE] = STRAY,
        [CLASS_BACKSLASH] = DOUBLE_QUOTED_ESCAPE, [CLASS_DOUBLE_QUOTE] = STRING_END } },
    [DOUBLE_QUOTED_ESCAPE] = { DOUBLE_QUOTED, {
        [CLASS_BAD] = STRAY, [CLASS_TAB] = STRAY, [CLASS_NEWLINE] = STRAY } },
    [SINGLE_QUOTED] = { SINGLE_QUOTED, {
        [CLASS_BAD] = STRAY, [CLASS_TAB] = STRAY, [CLASS_NEWLINE] = STRAY,
        [CLASS_BACKSLASH] = SINGLE_QUOTED_ESCAPE, [CLASS_SINGLE_QUOTE] = STRING_END } },
    [SINGLE_QUOTED_ESCAPE] = { SINGLE_QUOTED, {
        [CLASS_BAD] = STRAY, [CLASS_TAB] = STRAY, [CLASS_NEWLINE] = STRAY } },
    [MINUS] = { STRAY, { [CLASS_ZERO] = ZERO, [CLASS_DIGIT] = INTEGER } },
    [ZERO] = { INTEGER_END, {
        [CLASS_ZERO] = STRAY, [CLASS_DIGIT] = STRAY, [CLASS_DOT] = POINT,
        [CLASS_LOWER_E] = EXPONENT, [CLASS_UPPER_E] = EXPONENT } },
    [INTEGER] = { INTEGER_END, {
        [CLASS_ZERO] = INTEGER, [CLASS_DIGIT] = INTEGER, [CLASS_DOT] = POINT,
        [CLASS_LOWER_E] = EXPONENT, [CLASS_UPPER_E] = EXPONENT } },
    [POINT] = { STRAY, { [CLASS_ZERO] = FRACTION, [CLASS_DIGIT] = FRACTION } },
    [FRACTION] = { FLOAT_END, {
        [CLASS_ZERO] = FRACTION, [CLASS_DIGIT] = FRACTION,
        [CLASS_LOWER_E] = EXPONENT, [CLASS_UPPER_E] = EXPONENT } },
    [EXPONENT] = { STRAY, {
        [CLASS_PLUS] = EXPONENT_SIGN, [CLASS_MINUS] = EXPONENT_SIGN,
        [CLASS_ZERO] = EXPONENT_DIGITS, [CLASS_DIGIT] = EXPONENT_DIGITS } },
    [EXPONENT_SIGN] = { STRAY, { [CLASS_ZERO] = EXPONENT_DIGITS, [CLASS_DIGIT] = EXPONENT_DIGITS } },
    [EXPONENT_DIGITS] = { FLOAT_END, { [CLASS_ZERO] = EXPONENT_DIGITS, [CLASS_DIGIT] = EXPONENT_DIGITS } },
    [KEYWORD] = { KEYWORD_END, { [CLASS_LOWER] = KEYWORD, [CLASS_LOWER_E] = KEYWORD } },
};

/* clang-format on */

static LexStep lex_step(int state, uint8_t c)
{
    const LexRule *rule = &rules[state];
    uint8_t step = rule->exceptions[byte_classes[c]];

    if (step == GO_START) {
        return START;
    }
    return step ? step : rule->otherwise;
}

void json_lexer_init(JsonLexer *lexer)
{
    *lexer = (JsonLexer){ .state = START, .text = g_string_new(NULL), .line = 1, .column = 1 };
}

void json_lexer_clear(JsonLexer *lexer)
{
    g_string_free(lexer->text, true);
    lexer->text = NULL;
}

static void take_byte(JsonLexer *lexer, const char **data, size_t *len)
{
    if (**data == '\n') {
        lexer->line++;
        lexer->column = 1;
    } else {
        lexer->column++;
    }
    (*data)++;
    (*len)--;
}

static JsonToken structure_token(uint8_t c)
{
    switch (c) {
    case '{':
        return JSON_TOKEN_LEFT_BRACE;
    case '}':
        return JSON_TOKEN_RIGHT_BRACE;
    case '[':
        return JSON_TOKEN_LEFT_BRACKET;
    case ']':
        return JSON_TOKEN_RIGHT_BRACKET;
    case ':':
        return JSON_TOKEN_COLON;
    default:
        return JSON_TOKEN_COMMA;
    }
}

/* The token that @step completes, or JSON_TOKEN_NONE. */
static JsonToken finished_token(LexStep step, uint8_t c)
{
    switch (step) {
    case STRAY:
        return JSON_TOKEN_STRAY;
    case STRUCTURE:
        return structure_token(c);
    case STRING_END:
        return JSON_TOKEN_STRING;
    case INTEGER_END:
        return JSON_TOKEN_INTEGER;
    case FLOAT_END:
        return JSON_TOKEN_FLOAT;
    case KEYWORD_END:
        return JSON_TOKEN_KEYWORD;
    default:
        return JSON_TOKEN_NONE;
    }
}

static bool leaves_byte(LexStep step)
{
    return step == INTEGER_END || step == FLOAT_END || step == KEYWORD_END || step == RECOVERED;
}

/* How many of the bytes are the plain inside of a string: most of what is ever read. */
static size_t plain_run(int state, const char *data, size_t len)
{
    size_t n = 0;

    if (state == DOUBLE_QUOTED || state == SINGLE_QUOTED) {
        while (n < len && lex_step(state, (uint8_t)data[n]) == (LexStep)state) {
            n++;
        }
    }
    return n;
}

static void take_run(JsonLexer *lexer, const char **data, size_t *len, size_t n)
{
    g_string_append_len(lexer->text, *data, (gssize)n);
    lexer->column += n;
    *data += n;
    *len -= n;
}

JsonToken json_lexer_next(JsonLexer *lexer, const char **data, size_t *len, size_t max_text)
{
    while (*len > 0) {
        size_t run = MIN(plain_run(lexer->state, *data, *len), max_text - lexer->text->len);
        if (run > 0) {
            take_run(lexer, data, len, run);
            if (*len == 0) {
                break;
            }
        }
        uint8_t c = (uint8_t) * *data;
        LexStep step = lex_step(lexer->state, c);

        if (lexer->state == START || lexer->state == RECOVER) {
            g_string_truncate(lexer->text, 0);
            lexer->token_line = lexer->line;
            lexer->token_column = lexer->column;
        }
        if (!leaves_byte(step)) {
            g_string_append_c(lexer->text, (char)c);
            take_byte(lexer, data, len);
        }
        if (lexer->text->len > max_text) {
            g_string_truncate(lexer->text, 0);
            lexer->state = RECOVER;
            return JSON_TOKEN_TOO_LONG;
        }
        lexer->state = step < STATE__MAX ? (int)step : step == STRAY ? RECOVER : START;

        JsonToken token = finished_token(step, c);
        if (token != JSON_TOKEN_NONE) {
            return token;
        }
    }
    return JSON_TOKEN_NONE;
}
