/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes from a QMP client: parser, form of requests, arguments, and that what is printed reads back the same.
 *
 */
#include "monitor/json-parser.h"
#include "monitor/json-writer.h"
#include "monitor/qmp-request.h"
#include "qapi/qapi-visit-migration.h"
#include "qapi/qapi-visit-qom.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the writer printed is one value; the caller drops it. */
static json_t *read_back(const char *text)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    size_t len = strlen(text);
    json_t *value = NULL;

    g_assert_cmpint(json_parser_next(parser, &text, &len, &value, NULL), ==, JSON_PARSER_VALUE);
    return value;
}

static char *print(const json_t *value, bool pretty)
{
    GString *text = g_string_new(NULL);

    json_writer_append(text, value, pretty);
    g_string_append_c(text, '\n');
    return g_string_free(text, false);
}

/*
 * Printed and read once, a value stays as it is.  (At first -0.0 becomes an integer, and bad UTF-8 U+FFFD.)
 *
 */
static void check_round_trip(const json_t *value, bool pretty)
{
    g_autofree char *first = print(value, pretty);
    json_t *once = read_back(first);
    g_autofree char *second = print(once, pretty);
    json_t *twice = read_back(second);
    g_autofree char *third = print(twice, pretty);

    g_assert_cmpstr(second, ==, third);
    json_decref(once);
    json_decref(twice);
}

/* As arguments of commands that take much. */
static void check_arguments(json_t *json)
{
    g_autoptr(migrate_arg) migrate = NULL;
    g_autoptr(MigrationParameters) parameters = NULL;
    g_autoptr(migrate_set_capabilities_arg) capabilities = NULL;
    g_autoptr(ObjectOptions) object = NULL;

    if (qapi_migrate_arg_from_json(json, "", &migrate, NULL)) {
        json_decref(qapi_migrate_arg_to_json(migrate));
    }
    if (qapi_MigrationParameters_from_json(json, "", &parameters, NULL)) {
        json_decref(qapi_MigrationParameters_to_json(parameters));
    }
    if (qapi_migrate_set_capabilities_arg_from_json(json, "", &capabilities, NULL)) {
        json_decref(qapi_migrate_set_capabilities_arg_to_json(capabilities));
    }
    if (qapi_ObjectOptions_from_json(json, "", &object, NULL)) {
        json_decref(qapi_ObjectOptions_to_json(object));
    }
}

static void check_value(json_t *json)
{
    QmpRequest request;
    g_autoptr(GError) err = NULL;
    json_t *reply;

    check_round_trip(json, false);
    check_round_trip(json, true);
    if (qmp_request_check(json, true, &request, &err)) {
        check_arguments(request.arguments);
        reply = qmp_reply_return(json_object(), json);
    } else {
        reply = qmp_reply_error(err, json);
    }
    check_round_trip(reply, false);
    json_decref(reply);
}

/* @step bytes at a time; returns how many values and errors came out. */
static unsigned parse(const uint8_t *data, size_t size, size_t step, bool check)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    unsigned count = 0;

    for (size_t at = 0; at < size; at += step) {
        const char *p = (const char *)data + at;
        size_t left = MIN(step, size - at);
        json_t *value = NULL;
        g_autoptr(GError) err = NULL;
        JsonParserResult result;
        while ((result = json_parser_next(parser, &p, &left, &value, &err)) != JSON_PARSER_MORE) {
            count++;
            g_assert_true((result == JSON_PARSER_ERROR) == (err != NULL));
            g_clear_error(&err);
            if (result == JSON_PARSER_VALUE) {
                if (check) {
                    check_value(value);
                }
                json_decref(value);
            }
        }
        g_assert_cmpuint(left, ==, 0);
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned whole = parse(data, size, MAX(size, 1), true);

    g_assert_cmpuint(parse(data, size, 1, false), ==, whole);
    return 0;
}
