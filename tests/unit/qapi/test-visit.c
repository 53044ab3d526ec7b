/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the visitors: what is accepted, and what is refused in QMP's words. */
#include "qapi/json-number.h"
#include "qapi/qapi-visit-migration.h"
#include "qapi/qapi-visit-qom.h"
#include "qapi/qapi-visit-test-schema.h"
#include "util/error.h"

#include <string.h>

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &error);

    if (!json) {
        g_test_message("%s: %s", text, error.text);
    }
    g_assert_nonnull(json);
    return json;
}

/* ---- refusals ---- */

typedef struct Refusal {
    const QapiTypeInfo *type;
    const char *json;
    const char *message;
} Refusal;

static const Refusal refusals[] = {
    /* What QEMU answers, by the notes on its protocol. */
    {&qapi_info_migrate_set_capabilities_arg, "{}", "Parameter 'capabilities' is missing"},
    {&qapi_info_migrate_set_capabilities_arg, "{\"capabilities\": {}}",
     "Invalid parameter type for 'capabilities', expected: array"},
    {&qapi_info_migrate_set_capabilities_arg, "{\"capabilities\": [1]}",
     "Invalid parameter type for 'capabilities[0]', expected: object"},
    {&qapi_info_migrate_set_capabilities_arg, "{\"capabilities\": [{\"capability\": \"events\"}]}",
     "Parameter 'capabilities[0].state' is missing"},
    {&qapi_info_migrate_set_capabilities_arg,
     "{\"capabilities\": [{\"capability\": \"events\", \"state\": 1}]}",
     "Invalid parameter type for 'capabilities[0].state', expected: boolean"},
    {&qapi_info_migrate_set_capabilities_arg,
     "{\"capabilities\": [{\"capability\": \"events\", \"state\": true, \"x\": 1}]}",
     "Parameter 'capabilities[0].x' is unexpected"},
    {&qapi_info_migrate_set_capabilities_arg,
     "{\"capabilities\": [{\"capability\": \"foo\", \"state\": true}]}",
     "Parameter 'capability' does not accept value 'foo'"},
    {&qapi_info_migrate_arg, "{\"foo\": 1}", "Parameter 'foo' is unexpected"},
    {&qapi_info_migrate_arg, "{\"uri\": 1}", "Invalid parameter type for 'uri', expected: string"},
    {&qapi_info_migrate_arg, "{\"channels\": [{\"channel-type\": \"foo\"}]}",
     "Parameter 'channel-type' does not accept value 'foo'"},
    {&qapi_info_migrate_arg,
     "{\"channels\": [{\"channel-type\": \"main\", \"addr\": {\"transport\": \"socket\", \"type\": \"inet\","
     " \"host\": \"h\"}}]}",
     "Parameter 'channels[0].addr.port' is missing"},
    {&qapi_info_migrate_arg,
     "{\"channels\": [{\"channel-type\": \"main\", \"addr\": {\"transport\": \"socket\", \"type\": \"inet\","
     " \"host\": \"h\", \"port\": \"1\", \"to\": 70000}}]}",
     "Parameter 'to' expects uint16_t"},
    {&qapi_info_migrate_arg,
     "{\"channels\": [{\"channel-type\": \"main\", \"addr\": {\"transport\": \"file\", \"filename\": \"f\","
     " \"offset\": \"1\"}}]}",
     "Parameter 'channels[0].addr.offset' expects uint64"},
    {&qapi_info_migrate_arg,
     "{\"channels\": [{\"channel-type\": \"main\", \"addr\": {\"transport\": \"file\", \"filename\": "
     "\"f\"}}]}",
     "Parameter 'channels[0].addr.offset' is missing"},
    {&qapi_info_migrate_arg,
     "{\"channels\": [{\"channel-type\": \"main\", \"addr\": {\"transport\": \"exec\", \"args\": [], "
     "\"host\": \"h\"}}]}",
     "Parameter 'channels[0].addr.host' is unexpected"},
    {&qapi_info_MigrationParameters, "{\"x-rdma-chunk-size\": \"2M\"}",
     "Parameter 'x-rdma-chunk-size' expects uint64"},
    {&qapi_info_MigrationParameters, "{\"downtime-limit\": 1.0}",
     "Parameter 'downtime-limit' expects uint64"},
    {&qapi_info_MigrationParameters, "{\"downtime-limit\": null}",
     "Parameter 'downtime-limit' expects uint64"},
    {&qapi_info_MigrationParameters, "{\"downtime-limit\": true}",
     "Parameter 'downtime-limit' expects uint64"},
    {&qapi_info_MigrationParameters, "{\"multifd-channels\": \"5\"}",
     "Parameter 'multifd-channels' expects uint64"},
    {&qapi_info_MigrationParameters, "{\"multifd-channels\": 256}",
     "Option multifd-channels expects a value between 1 and 255"},
    {&qapi_info_MigrationParameters, "{\"multifd-channels\": -1}",
     "Option multifd-channels expects a value between 1 and 255"},
    {&qapi_info_MigrationParameters, "{\"x-checkpoint-delay\": 4294967296}",
     "Parameter 'x-checkpoint-delay' expects uint32_t"},
    {&qapi_info_MigrationParameters, "{\"tls-creds\": 1}",
     "Invalid parameter type for 'tls-creds', expected: StrOrNull"},
    {&qapi_info_MigrationParameters, "{\"cpr-exec-command\": [\"a\", 1]}",
     "Invalid parameter type for 'cpr-exec-command[1]', expected: string"},
    {&qapi_info_MigrationParameters, "{\"mode\": 1}", "Invalid parameter type for 'mode', expected: string"},
    {&qapi_info_MigrationParameters, "{\"mode\": \"x\"}", "Parameter 'mode' does not accept value 'x'"},
    {&qapi_info_ObjectOptions, "{\"id\": \"x\"}", "Parameter 'qom-type' is missing"},
    {&qapi_info_ObjectOptions, "{\"qom-type\": \"foo\", \"id\": \"x\"}",
     "Parameter 'qom-type' does not accept value 'foo'"},
    {&qapi_info_ObjectOptions, "{\"qom-type\": \"memory-backend-ram\"}", "Parameter 'id' is missing"},
    {&qapi_info_ObjectOptions, "{\"qom-type\": \"memory-backend-ram\", \"id\": \"x\"}",
     "Parameter 'size' is missing"},
    {&qapi_info_ObjectOptions, "{\"qom-type\": \"memory-backend-ram\", \"id\": \"x\", \"size\": \"1M\"}",
     "Parameter 'size' expects uint64"},
    {&qapi_info_ObjectOptions,
     "{\"qom-type\": \"memory-backend-ram\", \"id\": \"x\", \"size\": 1, \"share\": \"on\"}",
     "Invalid parameter type for 'share', expected: boolean"},
    {&qapi_info_ObjectOptions,
     "{\"qom-type\": \"memory-backend-ram\", \"id\": \"x\", \"size\": 1, \"foo\": 1}",
     "Parameter 'foo' is unexpected"},
    {&qapi_info_ObjectOptions,
     "{\"qom-type\": \"memory-backend-ram\", \"id\": \"x\", \"size\": 1, \"mem-path\": \"f\"}",
     "Parameter 'mem-path' is unexpected"},
    {&qapi_info_ObjectOptions,
     "{\"qom-type\": \"memory-backend-ram\", \"id\": \"x\", \"size\": 1, \"host-nodes\": [65536]}",
     "Parameter 'null' expects uint16_t"},
    {&qapi_info_TestThing, "[]", "Invalid parameter type for 'null', expected: object"},
    {&qapi_info_TestThing, "{\"name\": \"n\", \"colour\": \"red\", \"colours\": [\"blue\"]}",
     "Parameter 'null' does not accept value 'blue'"},
    {&qapi_info_TestThing, "{\"name\": \"n\", \"colour\": \"red\", \"numbers\": {\"i\": 1.0}}",
     "Invalid parameter type for 'numbers.i', expected: integer"},
    {&qapi_info_TestThing, "{\"name\": \"n\", \"colour\": \"red\", \"numbers\": {\"i8\": 128}}",
     "Parameter 'i8' expects int8_t"},
    {&qapi_info_TestThing, "{\"name\": \"n\", \"colour\": \"red\", \"numbers\": {\"i16\": -32769}}",
     "Parameter 'i16' expects int16_t"},
    {&qapi_info_TestThing, "{\"name\": \"n\", \"colour\": \"red\", \"numbers\": {\"i32\": 2147483648}}",
     "Parameter 'i32' expects int32_t"},
    {&qapi_info_TestThing, "{\"name\": \"n\", \"colour\": \"red\", \"numbers\": {\"number\": \"1\"}}",
     "Invalid parameter type for 'numbers.number', expected: number"},
    {&qapi_info_TestThing, "{\"name\": \"n\", \"colour\": \"red\", \"shape\": {\"comment\": \"c\"}}",
     "Parameter 'shape.kind' is missing"},
    {&qapi_info_TestThing,
     "{\"name\": \"n\", \"colour\": \"red\", \"shape\": {\"kind\": \"unix\", \"inner-kind\": \"red\"}}",
     "Parameter 'shape.radius' is missing"},
    {&qapi_info_TestThing,
     "{\"name\": \"n\", \"colour\": \"red\", \"shape\": {\"kind\": \"point\", \"radius\": 1}}",
     "Parameter 'shape.radius' is unexpected"},
    {&qapi_info_TestThing, "{\"name\": \"n\", \"colour\": \"red\", \"things\": [{}, {}]}",
     "Parameter 'things[0].name' is missing"},
};

static void test_refusals(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(refusals); i++) {
        json_t *json = parse(refusals[i].json);
        g_autoptr(GError) error = NULL;
        void *const untouched = &error;
        void *out = untouched;

        g_assert_false(qapi_from_json(refusals[i].type, json, "", &out, &error));
        g_assert_true(out == untouched);
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
        g_assert_cmpstr(error->message, ==, refusals[i].message);
        json_decref(json);
    }
}

/* A path given by the caller stands before the names. */
static void test_path(void)
{
    json_t *json = parse("{\"name\": 5}");
    json_t *list = parse("[true]");
    g_autoptr(GError) error = NULL;
    TestThing *thing;
    strList *strings;

    g_assert_false(qapi_TestThing_from_json(json, "a.b[3]", &thing, &error));
    g_assert_cmpstr(error->message, ==, "Invalid parameter type for 'a.b[3].name', expected: string");
    g_clear_error(&error);
    g_assert_false(qapi_from_json(&qapi_info_strList, list, "words", (void **)&strings, &error));
    g_assert_cmpstr(error->message, ==, "Invalid parameter type for 'words[0]', expected: string");
    json_decref(json);
    json_decref(list);
}

/* ---- round trips ---- */

static const struct {
    const QapiTypeInfo *type;
    const char *json;
} round_trips[] = {
    {&qapi_info_TestThing,
     "{\"name\": \"\", \"colour\": \"3d\", \"text\": null, \"names\": [], \"flags\": [false, true],"
     " \"numbers\": {\"i\": -9223372036854775808, \"i8\": -128, \"i16\": 32767, \"i32\": -2147483648, "
     "\"i64\": 5,"
     " \"u8\": 255, \"u16\": 65535, \"u32\": 4294967295, \"u64\": 9223372036854775807, \"size\": 0,"
     " \"number\": -0.5, \"bool\": false}, \"shape\": {\"kind\": \"point\"}, \"unstable-number\": 0}"},
    {&qapi_info_TestThing, "{\"name\": \"\\u00e4\\u20ac\", \"colour\": \"short\","
                           " \"shape\": {\"kind\": \"unix\", \"inner-kind\": \"3d\", \"note\": \"x\"}}"},
    {&qapi_info_TestThing,
     "{\"name\": \"x\", \"colour\": \"short\", \"shape\": {\"kind\": \"disc\", \"radius\": 7}}"},
    {&qapi_info_migrate_arg, "{\"channels\": [{\"channel-type\": \"main\", \"addr\": {\"transport\": "
                             "\"rdma\", \"host\": \"h\", \"port\": \"1\","
                             " \"keep-alive-count\": 3, \"mptcp\": true}}, {\"channel-type\": \"cpr\", "
                             "\"addr\": {\"transport\": \"socket\","
                             " \"type\": \"unix\", \"path\": \"/p\", \"tight\": false}}], \"resume\": true}"},
    {&qapi_info_ObjectOptions, "{\"qom-type\": \"memory-backend-file\", \"id\": \"m0\", \"size\": 4096, "
                               "\"mem-path\": \"/f\", \"rom\": \"auto\","
                               " \"host-nodes\": [0, 65535], \"policy\": \"bind\"}"},
};

static void test_round_trip(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(round_trips); i++) {
        json_t *json = parse(round_trips[i].json);
        g_autoptr(GError) error = NULL;
        void *value = NULL;

        qapi_from_json(round_trips[i].type, json, "", &value, &error);
        g_assert_no_error(error);
        json_t *again = qapi_to_json(round_trips[i].type, value);
        g_assert_true(json_equal(json, again));
        qapi_type_free(round_trips[i].type, value);
        json_decref(again);
        json_decref(json);
    }
}

/* Whole numbers of 2^63 and more, and negative ones for unsigned members. */
static void test_big_numbers(void)
{
    json_t *json = json_pack("{s:o, s:i, s:o}", "u64", qapi_json_from_uint64(UINT64_MAX), "size", -1,
                             "number", qapi_json_from_uint64(UINT64_C(1) << 63));
    g_autoptr(GError) error = NULL;
    g_autoptr(TestNumbers) numbers = NULL;
    uint64_t u = 0;

    g_assert_true(qapi_TestNumbers_from_json(json, "", &numbers, &error));
    g_assert_true(numbers->u64 == UINT64_MAX);
    g_assert_true(numbers->size == UINT64_MAX);
    g_assert_true(numbers->number == 9223372036854775808.0);
    json_t *again = qapi_TestNumbers_to_json(numbers);
    g_assert_true(qapi_json_is_big(json_object_get(again, "size")));
    g_assert_true(qapi_json_to_uint64(json_object_get(again, "u64"), &u));
    g_assert_true(u == UINT64_MAX);
    json_decref(again);

    /* A big number is no string and no signed number. */
    json_object_set_new(json, "i", qapi_json_from_uint64(UINT64_C(1) << 63));
    TestNumbers *none = NULL;
    g_assert_false(qapi_TestNumbers_from_json(json, "", &none, &error));
    g_assert_cmpstr(error->message, ==, "Invalid parameter type for 'i', expected: integer");
    g_clear_error(&error);
    json_t *list = json_pack("[o]", qapi_json_from_uint64(UINT64_MAX));
    strList *strings = NULL;
    g_assert_false(qapi_from_json(&qapi_info_strList, list, "x", (void **)&strings, &error));
    g_assert_cmpstr(error->message, ==, "Invalid parameter type for 'x[0]', expected: string");
    json_decref(list);
    json_decref(json);
}

/* A C string that is not UTF-8 (a file name, say) does not lose the member. */
static void test_invalid_utf8(void)
{
    TestBase base = { .name = (char *)"a\xff" "b", .colour = TEST_COLOUR_RED };
    json_t *json = qapi_TestBase_to_json(&base);

    g_assert_cmpstr(json_string_value(json_object_get(json, "name")), ==, "a\xef\xbf\xbd" "b");
    json_decref(json);
}

/* Members come out in the order of the schema. */
static void test_order(void)
{
    TestBase base = { .name = (char *)"n", .colour = TEST_COLOUR_RED };
    json_t *json = qapi_TestBase_to_json(&base);
    g_autofree char *text = json_dumps(json, 0);

    g_assert_cmpstr(text, ==, "{\"name\": \"n\", \"colour\": \"red\"}");
    json_decref(json);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/visit/refusals", test_refusals);
    g_test_add_func("/visit/path", test_path);
    g_test_add_func("/visit/round-trip", test_round_trip);
    g_test_add_func("/visit/big-numbers", test_big_numbers);
    g_test_add_func("/visit/invalid-utf8", test_invalid_utf8);
    g_test_add_func("/visit/order", test_order);
    return g_test_run();
}
