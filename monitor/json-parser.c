/* SPDX-License-Identifier: BSD-2-Clause */
/* JsonParser: a table-driven lexer under a push-down parser, both working byte by byte. */
#include "json-parser.h"

#include "json-lexer.h"
#include "qapi/json-number.h"
#include "util/error.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* What the grammar allows next. */
typedef enum {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* after [ */
    EXPECT_KEY,          /* after , in an object */
    EXPECT_KEY_OR_END,   /* after { */
    EXPECT_COLON,
    EXPECT_ARRAY_NEXT,  /* , or ] */
    EXPECT_OBJECT_NEXT, /* , or } */
} Expect;

static const char *const expect_text[] = {
    [EXPECT_VALUE] = "expecting value",
    [EXPECT_VALUE_OR_END] = "expecting value",
    [EXPECT_KEY] = "expecting key",
    [EXPECT_KEY_OR_END] = "expecting key",
    [EXPECT_COLON] = "expecting ':'",
    [EXPECT_ARRAY_NEXT] = "expected ',' or ']'",
    [EXPECT_OBJECT_NEXT] = "expected ',' or '}'",
};

/* A container that is not complete yet. */
typedef struct Frame {
    json_t *container;
    char *key; /* of the member whose value is awaited, or NULL */
} Frame;

struct JsonParser {
    JsonLexer lexer;
    GArray *frames; /* of Frame, outermost first */
    Expect expect;
    json_t *result; /* a complete value, until it is handed out */
    /* Of the value that is being read, also while it is discarded after an error. */
    int braces;
    int brackets;
    unsigned tokens;
    size_t bytes;
    bool discarding;
};

JsonParser *json_parser_new(void)
{
    JsonParser *p = g_new0(JsonParser, 1);
    json_lexer_init(&p->lexer);
    p->frames = g_array_new(false, false, sizeof(Frame));
    return p;
}

static void drop_frames(JsonParser *p)
{
    for (guint i = 0; i < p->frames->len; i++) {
        Frame *frame = &g_array_index(p->frames, Frame, i);
        json_decref(frame->container);
        g_free(frame->key);
    }
    g_array_set_size(p->frames, 0);
    p->expect = EXPECT_VALUE;
}

static void begin_value(JsonParser *p)
{
    drop_frames(p);
    p->braces = 0;
    p->brackets = 0;
    p->tokens = 0;
    p->bytes = 0;
    p->discarding = false;
}

void json_parser_free(JsonParser *p)
{
    if (!p) {
        return;
    }
    drop_frames(p);
    json_decref(p->result);
    g_array_free(p->frames, true);
    json_lexer_clear(&p->lexer);
    g_free(p);
}

static bool parse_error(const JsonParser *p, GError **errp, const char *fmt, ...) G_GNUC_PRINTF(3, 4);
static bool parse_error(const JsonParser *p, GError **errp, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "%" PRIu64 ":%" PRIu64 ": JSON parse error, %s",
                p->lexer.token_line, p->lexer.token_column, text);
    return false;
}

/* ---- strings ---- */

static bool is_noncharacter(uint32_t c)
{
    return (c & 0xfffe) == 0xfffe || (c >= 0xfdd0 && c <= 0xfdef);
}

/* The code point at *@p, moved past it; -1 if the bytes are no valid UTF-8 or a noncharacter. */
static int64_t take_utf8(const char **p, const char *end)
{
    const uint8_t *s = (const uint8_t *)*p;
    size_t left = (size_t)(end - *p);

    if (left >= 2 && s[0] == 0xc0 && s[1] == 0x80) {
        *p += 2;
        return 0;
    }
    gunichar c = g_utf8_get_char_validated(*p, (gssize)left);
    if (c == (gunichar)-1 || c == (gunichar)-2 || is_noncharacter(c)) {
        return -1;
    }
    *p = g_utf8_next_char(*p);
    return c;
}

static void append_char(GString *out, uint32_t c)
{
    if (c == 0) {
        g_string_append_len(out, "\xc0\x80", 2);
    } else {
        g_string_append_unichar(out, c);
    }
}

/* Four hexadecimal digits at @p, or -1. */
static int take_hex4(const char *p, const char *end)
{
    if (end - p < 4) {
        return -1;
    }
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = g_ascii_xdigit_value(p[i]);
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static bool is_high_surrogate(int c)
{
    return c >= 0xd800 && c <= 0xdbff;
}

static bool is_low_surrogate(int c)
{
    return c >= 0xdc00 && c <= 0xdfff;
}

/* *@p is behind the u of a \u escape that began at @start. */
static bool take_unicode_escape(const JsonParser *parser, const char **p, const char *end, GString *out,
                                GError **errp)
{
    const char *start = *p - 2;
    size_t used = 6;
    int64_t c = take_hex4(*p, end);

    if (c >= 0 && is_high_surrogate((int)c)) {
        int low = end - *p >= 6 && (*p)[4] == '\\' && (*p)[5] == 'u' ? take_hex4(*p + 6, end) : -1;
        if (is_low_surrogate(low)) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            used = 12;
        }
    }
    if (c < 0 || (c >= 0xd800 && c <= 0xdfff) || is_noncharacter((uint32_t)c)) {
        /* The token's closing quote is at @end. */
        size_t shown = MIN(used, (size_t)(end + 1 - start));
        return parse_error(parser, errp, "%.*s is not a valid Unicode character", (int)shown, start);
    }
    append_char(out, (uint32_t)c);
    *p = start + used;
    return true;
}

static bool take_escape(const JsonParser *parser, const char **p, const char *end, GString *out,
                        GError **errp)
{
    static const char names[] = "\"'\\/bfnrt";
    static const char values[] = "\"'\\/\b\f\n\r\t";
    char c = *(*p)++;

    if (c == 'u') {
        return take_unicode_escape(parser, p, end, out, errp);
    }
    const char *found = c ? strchr(names, c) : NULL;
    if (!found) {
        return parse_error(parser, errp, "invalid escape sequence in string");
    }
    g_string_append_c(out, values[found - names]);
    return true;
}

/* The contents of a string token, quotes included in @token; NULL on error. */
static GString *decode_string(const JsonParser *parser, const GString *token, GError **errp)
{
    g_autoptr(GString) out = g_string_sized_new(token->len);
    const char *p = token->str + 1;
    const char *end = token->str + token->len - 1;

    while (p < end) {
        const char *plain = p;
        while (p < end && *p != '\\' && (uint8_t)*p < 0x80) {
            p++;
        }
        g_string_append_len(out, plain, p - plain);
        if (p == end) {
            break;
        }
        if (*p == '\\') {
            p++;
            if (!take_escape(parser, &p, end, out, errp)) {
                return NULL;
            }
            continue;
        }
        int64_t c = take_utf8(&p, end);
        if (c < 0) {
            parse_error(parser, errp, "invalid UTF-8 sequence in string");
            return NULL;
        }
        append_char(out, (uint32_t)c);
    }
    return g_steal_pointer(&out);
}

static json_t *string_value(const JsonParser *parser, const GString *token, GError **errp)
{
    g_autoptr(GString) text = decode_string(parser, token, errp);
    return text ? json_stringn_nocheck(text->str, text->len) : NULL;
}

/* ---- other scalars ---- */

static json_t *float_value(const JsonParser *parser, const GString *token, GError **errp)
{
    double value = g_ascii_strtod(token->str, NULL);

    if (isinf(value)) {
        parse_error(parser, errp, "number '%.40s' is out of range", token->str);
        return NULL;
    }
    return json_real(value);
}

static json_t *integer_value(const JsonParser *parser, const GString *token, GError **errp)
{
    errno = 0;
    gint64 value = g_ascii_strtoll(token->str, NULL, 10);
    if (errno == 0) {
        return json_integer(value);
    }
    if (token->str[0] != '-') {
        errno = 0;
        guint64 big = g_ascii_strtoull(token->str, NULL, 10);
        if (errno == 0) {
            return qapi_json_from_uint64(big);
        }
    }
    return float_value(parser, token, errp);
}

static json_t *keyword_value(const JsonParser *parser, const GString *token, GError **errp)
{
    if (strcmp(token->str, "true") == 0) {
        return json_true();
    }
    if (strcmp(token->str, "false") == 0) {
        return json_false();
    }
    if (strcmp(token->str, "null") == 0) {
        return json_null();
    }
    parse_error(parser, errp, "invalid keyword '%s'", token->str);
    return NULL;
}

/* ---- the grammar ---- */

static Frame *top_frame(JsonParser *p)
{
    return p->frames->len ? &g_array_index(p->frames, Frame, p->frames->len - 1) : NULL;
}

static bool unexpected(const JsonParser *p, GError **errp)
{
    return parse_error(p, errp, "%s", expect_text[p->expect]);
}

/* A value is complete: it is the result, or goes into the container that waits for it.  Takes @value. */
static bool add_value(JsonParser *p, json_t *value, GError **errp)
{
    Frame *frame = top_frame(p);

    if (!frame) {
        p->result = value;
        p->expect = EXPECT_VALUE;
        return true;
    }
    if (!frame->key) {
        json_array_append_new(frame->container, value);
        p->expect = EXPECT_ARRAY_NEXT;
        return true;
    }
    if (json_object_get(frame->container, frame->key)) {
        json_decref(value);
        return parse_error(p, errp, "duplicate key");
    }
    json_object_set_new_nocheck(frame->container, frame->key, value);
    g_clear_pointer(&frame->key, g_free);
    p->expect = EXPECT_OBJECT_NEXT;
    return true;
}

static bool open_container(JsonParser *p, json_t *container, Expect next)
{
    Frame frame = { .container = container };

    g_array_append_val(p->frames, frame);
    p->expect = next;
    return true;
}

static bool close_container(JsonParser *p, GError **errp)
{
    json_t *container = top_frame(p)->container;

    g_array_set_size(p->frames, p->frames->len - 1);
    return add_value(p, container, errp);
}

static bool handle_value(JsonParser *p, JsonToken token, GError **errp)
{
    const GString *text = p->lexer.text;
    json_t *value = NULL;

    switch (token) {
    case JSON_TOKEN_LEFT_BRACE:
        return open_container(p, json_object(), EXPECT_KEY_OR_END);
    case JSON_TOKEN_LEFT_BRACKET:
        return open_container(p, json_array(), EXPECT_VALUE_OR_END);
    case JSON_TOKEN_STRING:
        value = string_value(p, text, errp);
        break;
    case JSON_TOKEN_INTEGER:
        value = integer_value(p, text, errp);
        break;
    case JSON_TOKEN_FLOAT:
        value = float_value(p, text, errp);
        break;
    case JSON_TOKEN_KEYWORD:
        value = keyword_value(p, text, errp);
        break;
    default:
        return unexpected(p, errp);
    }
    return value && add_value(p, value, errp);
}

static bool handle_key(JsonParser *p, JsonToken token, GError **errp)
{
    if (token != JSON_TOKEN_STRING) {
        return unexpected(p, errp);
    }
    GString *key = decode_string(p, p->lexer.text, errp);
    if (!key) {
        return false;
    }
    top_frame(p)->key = g_string_free(key, false);
    p->expect = EXPECT_COLON;
    return true;
}

/* One token of a value that is good so far. */
static bool handle_token(JsonParser *p, JsonToken token, GError **errp)
{
    switch (p->expect) {
    case EXPECT_VALUE_OR_END:
        if (token == JSON_TOKEN_RIGHT_BRACKET) {
            return close_container(p, errp);
        }
        return handle_value(p, token, errp);
    case EXPECT_VALUE:
        return handle_value(p, token, errp);
    case EXPECT_KEY_OR_END:
        if (token == JSON_TOKEN_RIGHT_BRACE) {
            return close_container(p, errp);
        }
        return handle_key(p, token, errp);
    case EXPECT_KEY:
        return handle_key(p, token, errp);
    case EXPECT_COLON:
        if (token != JSON_TOKEN_COLON) {
            return unexpected(p, errp);
        }
        p->expect = EXPECT_VALUE;
        return true;
    case EXPECT_ARRAY_NEXT:
    case EXPECT_OBJECT_NEXT:
        break;
    }

    bool array = p->expect == EXPECT_ARRAY_NEXT;
    if (token == JSON_TOKEN_COMMA) {
        p->expect = array ? EXPECT_VALUE : EXPECT_KEY;
        return true;
    }
    if (token == (array ? JSON_TOKEN_RIGHT_BRACKET : JSON_TOKEN_RIGHT_BRACE)) {
        return close_container(p, errp);
    }
    return unexpected(p, errp);
}

/* ---- limits and recovery ---- */

static bool check_limits(JsonParser *p, GError **errp)
{
    const char *what = NULL;

    if (p->tokens > QMP_JSON_MAX_TOKENS) {
        what = "JSON token count limit exceeded";
    } else if (p->bytes > QMP_JSON_MAX_BYTES) {
        what = "JSON token size limit exceeded";
    } else if (p->braces + p->brackets > QMP_JSON_MAX_DEPTH) {
        what = "JSON nesting depth limit exceeded";
    }
    if (what) {
        g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, what);
    }
    return !what;
}

static void count_token(JsonParser *p, JsonToken token)
{
    p->braces += token == JSON_TOKEN_LEFT_BRACE;
    p->braces -= token == JSON_TOKEN_RIGHT_BRACE;
    p->brackets += token == JSON_TOKEN_LEFT_BRACKET;
    p->brackets -= token == JSON_TOKEN_RIGHT_BRACKET;
    p->tokens++;
    p->bytes += p->lexer.text->len;
}

/*
 * The end of a value, good or bad, is where braces and brackets, each counted by itself, are all closed, or
 * where one was closed that had not been opened.
 */
static bool at_end_of_value(const JsonParser *p)
{
    return (p->braces == 0 && p->brackets == 0) || p->braces < 0 || p->brackets < 0;
}

/*
 * A byte that belongs to no token always ends the value: so a client gets in step again by sending 0xFF.  In
 * a value that is bad already it is no news.
 */
static JsonParserResult lexical_error(JsonParser *p, JsonToken token, GError **errp)
{
    if (p->discarding) {
        begin_value(p);
        return JSON_PARSER_MORE;
    }
    if (token == JSON_TOKEN_TOO_LONG) {
        g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "JSON token size limit exceeded");
    } else {
        parse_error(p, errp, "stray '%s'", p->lexer.text->str);
    }
    begin_value(p);
    return JSON_PARSER_ERROR;
}

static JsonParserResult feed_token(JsonParser *p, JsonToken token, GError **errp)
{
    if (token == JSON_TOKEN_STRAY || token == JSON_TOKEN_TOO_LONG) {
        return lexical_error(p, token, errp);
    }

    JsonParserResult result = JSON_PARSER_MORE;
    count_token(p, token);
    if (!p->discarding && (!check_limits(p, errp) || !handle_token(p, token, errp))) {
        drop_frames(p);
        p->discarding = true;
        result = JSON_PARSER_ERROR;
    }
    if (at_end_of_value(p)) {
        begin_value(p);
    }
    return result == JSON_PARSER_MORE && p->result ? JSON_PARSER_VALUE : result;
}

JsonParserResult json_parser_next(JsonParser *p, const char **data, size_t *len, json_t **value,
                                  GError **errp)
{
    while (*len > 0) {
        JsonToken token = json_lexer_next(&p->lexer, data, len, QMP_JSON_MAX_BYTES);
        if (token == JSON_TOKEN_NONE) {
            break;
        }
        JsonParserResult result = feed_token(p, token, errp);
        if (result == JSON_PARSER_VALUE) {
            *value = g_steal_pointer(&p->result);
        }
        if (result != JSON_PARSER_MORE) {
            return result;
        }
    }
    return JSON_PARSER_MORE;
}
