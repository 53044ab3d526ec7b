/* SPDX-License-Identifier: BSD-2-Clause */
/* The text of -object and object_add: both forms, and the words of the errors of the JSON form. */
#include "monitor/object-text.h"

#include "util/error.h"

#include <string.h>

static void test_forms(void)
{
    MemoryBackendSet set = {0};
    g_autoptr(GError) error = NULL;

    MemoryBackend *a = object_add_text(&set, "memory-backend-ram,id=a,size=1M", &error);
    g_assert_no_error(error);
    g_assert_cmpuint(a->block.used_length, ==, 1 << 20);
    MemoryBackend *b =
        object_add_text(&set,
                        "{\"qom-type\": \"memory-backend-memfd\", \"id\": \"b\", \"size\": 8192,\n"
                        " \"seal\": false, \"host-nodes\": []} ",
                        &error);
    g_assert_no_error(error);
    g_assert_cmpuint(b->block.used_length, ==, 8192);
    g_assert_false(b->options->u.memory_backend_memfd->seal);
    g_assert_true(memory_backend_properties(b)->share);
    memory_backend_set_clear(&set);
}

/* As a real QEMU 11.1 says it. */
static void test_errors(void)
{
#define TYPE_ID "\"qom-type\":\"memory-backend-ram\",\"id\":\"a\""
    static const char *const cases[][2] = {
        {"{" TYPE_ID ",\"size\":\"1M\"}", "Parameter 'size' expects uint64"},
        {"{" TYPE_ID "}", "Parameter 'size' is missing"},
        {"{\"qom-type\":\"memory-backend-ram\",\"size\":4096}", "Parameter 'id' is missing"},
        {"{" TYPE_ID ",\"size\":1048576,\"share\":1}",
         "Invalid parameter type for 'share', expected: boolean"},
        {"{" TYPE_ID ",\"size\":1048576,\"x\":1}", "Parameter 'x' is unexpected"},
        {"{" TYPE_ID ",\"size\":1048576,\"props\":{}}", "Parameter 'props' is unexpected"},
        {"{\"qom-type\":\"foo\",\"id\":\"a\"}", "Parameter 'qom-type' does not accept value 'foo'"},
        {"{}", "Parameter 'qom-type' is missing"},
        {"{\"qom-type\":\"memory-backend-ram\",\"id\":\"+\",\"size\":4096}",
         "Parameter 'id' expects an identifier\n"
         "Identifiers consist of letters, digits, '-', '.', '_', starting with a letter."},
        {"{" TYPE_ID, "1:42: JSON parse error, premature end of input"},
        {"{" TYPE_ID ",\"size\":4096} x", "Expecting at most one JSON value"},
        {"{" TYPE_ID ",\"size\":4096}", "Duplicate ID 'a' for object"},
        {"memory-backend-ram,id=a,size=1M", "Duplicate ID 'a' for object"},
        {"memory-backend-ram,id=b", "Parameter 'size' is missing"},
        {"[]", "Parameter 'qom-type' does not accept value '[]'"},
    };
    MemoryBackendSet set = {0};

    g_assert_nonnull(object_add_text(&set, "memory-backend-ram,id=a,size=1M", NULL));
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_null(object_add_text(&set, cases[i][0], &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
        g_assert_cmpstr(error->message, ==, cases[i][1]);
    }

    g_autoptr(GError) broken = NULL;
    g_autoptr(GError) zero = NULL;
    g_assert_null(object_add_text(&set, "{]", &broken));
    g_assert_cmpstr(broken->message, ==, "1:2: JSON parse error, expecting key");
    /* What is wrong with the object and not with its text. */
    g_assert_null(
        object_add_text(&set, "{\"qom-type\":\"memory-backend-ram\",\"id\":\"z\",\"size\":0}", &zero));
    g_assert_error(zero, GODWIT_ERROR, GODWIT_ERROR_FAILED);
    memory_backend_set_clear(&set);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/monitor/object-text/forms", test_forms);
    g_test_add_func("/monitor/object-text/errors", test_errors);
    return g_test_run();
}
