/* SPDX-License-Identifier: BSD-2-Clause */
/* The JSON writer: separators, nesting, escapes. */
#include "migration/json-writer.h"

static void test_nesting(void)
{
    g_autoptr(JsonWriter) w = json_writer_new();

    json_writer_start_object(w, NULL);
    json_writer_int(w, "page_size", 4096);
    json_writer_start_array(w, "devices");
    json_writer_start_object(w, NULL);
    json_writer_str(w, "name", "timer");
    json_writer_end_object(w);
    json_writer_start_object(w, NULL);
    json_writer_end_object(w);
    json_writer_end_array(w);
    json_writer_int(w, "last", -1);
    json_writer_end_object(w);

    g_assert_cmpstr(json_writer_text(w), ==,
                    "{\"page_size\": 4096, \"devices\": [{\"name\": \"timer\"}, {}], \"last\": -1}");
}

static void test_escapes(void)
{
    g_autoptr(JsonWriter) w = json_writer_new();

    json_writer_start_array(w, NULL);
    json_writer_str(w, NULL, "a\"b\\c\n\x01");
    json_writer_str(w, NULL, "");
    json_writer_end_array(w);

    g_assert_cmpstr(json_writer_text(w), ==, "[\"a\\\"b\\\\c\\u000a\\u0001\", \"\"]");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/json-writer/nesting", test_nesting);
    g_test_add_func("/json-writer/escapes", test_escapes);
    return g_test_run();
}
