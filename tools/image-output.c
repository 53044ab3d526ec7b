/* SPDX-License-Identifier: BSD-2-Clause */
/* How godwit-image says things: sizes, verdicts, JSON. */
#include "image-tool.h"

#include "util/error.h"

#include <inttypes.h>
#include <stdio.h>

char *size_text(uint64_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1024 && unit + 1 < G_N_ELEMENTS(units)) {
        value /= 1024;
        unit++;
    }
    bool whole = value >= 100 || value == (double)(uint64_t)value;
    return g_strdup_printf("%.*f %s", whole ? 0 : 1, value, units[unit]);
}

char *name_text(const char *name)
{
    char *text = g_utf8_make_valid(name, -1);

    for (char *c = text; *c; c++) {
        if (g_ascii_iscntrl(*c)) {
            *c = '?';
        }
    }
    return text;
}

int tool_exit_status(const GError *error)
{
    if (!error) {
        return EXIT_OK;
    }
    return g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL) ||
                   g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_EOF)
               ? EXIT_BAD
               : EXIT_TROUBLE;
}

const char *tool_verdict(const GError *error)
{
    if (!error) {
        return "ok";
    }
    if (g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_EOF)) {
        return "incomplete";
    }
    return g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL) ? "bad" : "unknown";
}

void print_json(json_t *object)
{
    json_dumpf(object, stdout, JSON_INDENT(4) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(object);
}

json_t *json_head(const char *path, const GError *error)
{
    g_autofree char *shown = g_filename_display_name(path);
    json_t *object = json_pack("{s:s, s:s}", "file", shown, "verdict", tool_verdict(error));

    if (error) {
        json_object_set_new(object, "error", json_string(error->message));
    }
    return object;
}

json_t *json_block(const ToolBlock *b)
{
    const MappedRamBlock *m = b->block;
    g_autofree char *name = g_utf8_make_valid(m->idstr, -1);
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name", name, "length", (json_int_t)m->used_length,
                  "pages", (json_int_t)b->pages, "data", (json_int_t)b->data, "zero", (json_int_t)b->zero,
                  "missing", (json_int_t)b->missing);

    if (m->header_offset) {
        json_object_update_new(object, json_pack("{s:I, s:I, s:I, s:b}", "header-offset",
                                                 (json_int_t)m->header_offset, "bitmap-offset",
                                                 (json_int_t)m->bitmap_offset, "pages-offset",
                                                 (json_int_t)m->pages_offset, "absent", m->absent));
    }
    return object;
}

void report_error(const char *path, const GError *error)
{
    g_autofree char *shown = g_filename_display_name(path);
    fflush(stdout);
    g_autofree char *message = name_text(error->message);
    fprintf(stderr, "godwit-image: %s: %s\n", shown, message);
}

char *ranges_text(const GArray *ranges, unsigned most)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < MIN(ranges->len / 2, most); i++) {
        uint64_t first = g_array_index(ranges, uint64_t, 2 * i),
                 count = g_array_index(ranges, uint64_t, 2 * i + 1);
        g_string_append_printf(text, "%s%" PRIu64, i ? ", " : "", first);
        if (count > 1) {
            g_string_append_printf(text, "-%" PRIu64, first + count - 1);
        }
    }
    if (ranges->len / 2 > most) {
        g_string_append_printf(text, " and %u more ranges", ranges->len / 2 - most);
    }
    return g_string_free(text, FALSE);
}
