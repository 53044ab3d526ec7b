/* SPDX-License-Identifier: BSD-2-Clause */
/* A JSON text written member by member. */
#include "migration/json-writer.h"

#include <stdbool.h>

struct JsonWriter {
    GString *text;
    unsigned depth;
    bool filled[JSON_WRITER_DEPTH_MAX + 1];     /* does this level have a member yet? */
};

JsonWriter *json_writer_new(void)
{
    JsonWriter *w = g_new0(JsonWriter, 1);
    w->text = g_string_new(NULL);
    return w;
}

void json_writer_free(JsonWriter *w)
{
    if (w) {
        g_string_free(w->text, TRUE);
        g_free(w);
    }
}

static void put_string(JsonWriter *w, const char *s)
{
    g_string_append_c(w->text, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            g_string_append_c(w->text, '\\');
            g_string_append_c(w->text, (char)c);
        } else if (c < 0x20 || c == 0x7f) {
            g_string_append_printf(w->text, "\\u%04x", c);
        } else {
            g_string_append_c(w->text, (char)c);
        }
    }
    g_string_append_c(w->text, '"');
}

static void begin_value(JsonWriter *w, const char *name)
{
    if (w->filled[w->depth]) {
        g_string_append(w->text, ", ");
    }
    w->filled[w->depth] = true;
    if (name) {
        put_string(w, name);
        g_string_append(w->text, ": ");
    }
}

static void start(JsonWriter *w, const char *name, char bracket)
{
    begin_value(w, name);
    g_string_append_c(w->text, bracket);
    g_assert(w->depth < JSON_WRITER_DEPTH_MAX);
    w->filled[++w->depth] = false;
}

static void end(JsonWriter *w, char bracket)
{
    g_assert(w->depth > 0);
    w->depth--;
    g_string_append_c(w->text, bracket);
}

void json_writer_start_object(JsonWriter *w, const char *name)
{
    start(w, name, '{');
}

void json_writer_end_object(JsonWriter *w)
{
    end(w, '}');
}

void json_writer_start_array(JsonWriter *w, const char *name)
{
    start(w, name, '[');
}

void json_writer_end_array(JsonWriter *w)
{
    end(w, ']');
}

void json_writer_int(JsonWriter *w, const char *name, int64_t value)
{
    begin_value(w, name);
    g_string_append_printf(w->text, "%" G_GINT64_FORMAT, value);
}

void json_writer_str(JsonWriter *w, const char *name, const char *value)
{
    begin_value(w, name);
    put_string(w, value);
}

const char *json_writer_text(const JsonWriter *w)
{
    return w->text->str;
}
