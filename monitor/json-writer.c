/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON text as QMP prints it: jansson's own dump differs in escapes, in numbers and in pretty form. */
#include "json-writer.h"

#include "qapi/json-number.h"

#include <string.h>

static void append_escaped_char(GString *out, gunichar c)
{
    static const char names[] = "\"\\bfnrt";
    static const char values[] = "\"\\\b\f\n\r\t";
    const char *found = c && c < 0x80 ? strchr(values, (int)c) : NULL;

    if (found) {
        g_string_append_c(out, '\\');
        g_string_append_c(out, names[found - values]);
    } else if (c >= 0x20 && c < 0x7f) {
        g_string_append_c(out, (char)c);
    } else if (c < 0x10000) {
        g_string_append_printf(out, "\\u%04X", c);
    } else {
        c -= 0x10000;
        g_string_append_printf(out, "\\u%04X\\u%04X", 0xd800 + (c >> 10), 0xdc00 + (c & 0x3ff));
    }
}

static void append_string(GString *out, const char *text, size_t len)
{
    const char *p = text;
    const char *end = text + len;

    g_string_append_c(out, '"');
    while (p < end) {
        /* GLib takes a zero byte for the end. */
        gunichar c = *p ? g_utf8_get_char_validated(p, end - p) : 0;
        if (end - p >= 2 && memcmp(p, "\xc0\x80", 2) == 0) {
            append_escaped_char(out, 0);
            p += 2;
        } else if (c == (gunichar)-1 || c == (gunichar)-2) {
            append_escaped_char(out, 0xfffd);
            p++;
        } else {
            append_escaped_char(out, c);
            p = g_utf8_next_char(p);
        }
    }
    g_string_append_c(out, '"');
}

static void append_real(GString *out, double value)
{
    char text[G_ASCII_DTOSTR_BUF_SIZE];

    g_string_append(out, g_ascii_formatd(text, sizeof(text), "%.17g", value));
}

/* What stands between an opening bracket, the elements and the closing bracket. */
static void append_break(GString *out, bool pretty, unsigned depth)
{
    if (pretty) {
        g_string_append_printf(out, "\n%*s", (int)depth * 4, "");
    }
}

static void append_separator(GString *out, bool first, bool pretty, unsigned depth)
{
    if (!first) {
        g_string_append(out, pretty ? "," : ", ");
    }
    append_break(out, pretty, depth);
}

static void append_value(GString *out, const json_t *value, bool pretty, unsigned depth);

static void append_object(GString *out, json_t *object, bool pretty, unsigned depth)
{
    bool first = true;

    g_string_append_c(out, '{');
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        append_separator(out, first, pretty, depth + 1);
        append_string(out, json_object_iter_key(it), json_object_iter_key_len(it));
        g_string_append(out, ": ");
        append_value(out, json_object_iter_value(it), pretty, depth + 1);
        first = false;
    }
    append_break(out, pretty, depth);
    g_string_append_c(out, '}');
}

static void append_array(GString *out, const json_t *array, bool pretty, unsigned depth)
{
    g_string_append_c(out, '[');
    for (size_t i = 0; i < json_array_size(array); i++) {
        append_separator(out, i == 0, pretty, depth + 1);
        append_value(out, json_array_get(array, i), pretty, depth + 1);
    }
    append_break(out, pretty, depth);
    g_string_append_c(out, ']');
}

static void append_string_node(GString *out, const json_t *value)
{
    if (qapi_json_is_big(value)) {
        g_string_append(out, json_string_value(value) + 1);
    } else {
        append_string(out, json_string_value(value), json_string_length(value));
    }
}

static void append_value(GString *out, const json_t *value, bool pretty, unsigned depth)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        append_object(out, (json_t *)value, pretty, depth);
        break;
    case JSON_ARRAY:
        append_array(out, value, pretty, depth);
        break;
    case JSON_STRING:
        append_string_node(out, value);
        break;
    case JSON_INTEGER:
        g_string_append_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        append_real(out, json_real_value(value));
        break;
    case JSON_TRUE:
        g_string_append(out, "true");
        break;
    case JSON_FALSE:
        g_string_append(out, "false");
        break;
    case JSON_NULL:
        g_string_append(out, "null");
        break;
    }
}

void json_writer_append(GString *out, const json_t *value, bool pretty)
{
    append_value(out, value, pretty, 0);
}
