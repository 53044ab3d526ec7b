/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of generated commands, events, introspection, option tables, and of free, copy and merge. */
#include "monitor/monitor.h"
#include "qapi/option.h"
#include "qapi/qapi-commands-test-schema.h"
#include "qapi/qapi-events-test-schema.h"
#include "qapi/qapi-visit-test-schema.h"
#include "util/error.h"

#include <string.h>

extern const QapiOption TestOptions_options[];

/* ---- the monitor's side, as the generated code sees it ---- */

static MonitorContext context;
static Monitor *const connection = (Monitor *)&context;     /* any address will do */
static unsigned calls;
static char *event_name;
static json_t *event_data;

void monitor_event(MonitorContext *ctx, const char *name, json_t *data)
{
    g_assert_true(ctx == &context);
    g_free(event_name);
    json_decref(event_data);
    event_name = g_strdup(name);
    event_data = data;
}

bool qmp_test_nothing(MonitorContext *ctx, GError **errp)
{
    g_assert_true(ctx == &context);
    calls++;
    return true;
}

TestThing *qmp_test_echo(MonitorContext *ctx, const TestThing *arg, GError **errp)
{
    calls++;
    if (strcmp(arg->name, "bad") == 0) {
        g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "The name is bad");
        return NULL;
    }
    return qapi_clone_TestThing(arg);
}

char *qmp_test_text(MonitorContext *ctx, Monitor *mon, const test_text_arg *arg, GError **errp)
{
    GString *text = g_string_new(NULL);

    g_assert_true(mon == connection);
    for (int64_t i = 0; i < (arg->has_count ? arg->count : 1); i++) {
        g_string_append(text, arg->word);
    }
    return g_string_free(text, FALSE);
}

strList *qmp_test_list(MonitorContext *ctx, GError **errp)
{
    strList *list = g_new0(strList, 1);

    list->count = 2;
    list->items = g_new0(char *, 2);
    list->items[0] = g_strdup("one");
    list->items[1] = g_strdup("two");
    return list;
}

json_t *qmp_test_any(MonitorContext *ctx, GError **errp)
{
    return json_pack("[n, i]", 5);
}

/* ---- commands ---- */

/* Runs a command; @args and the expected @reply are JSON text; @reply is the error's text if it does not
 * begin so. */
static void run(const char *name, const char *args, const char *reply)
{
    const QmpCommand *command = qmp_command_find(name);
    g_autoptr(GError) error = NULL;
    json_t *json = args ? json_loads(args, JSON_DECODE_ANY, NULL) : NULL;
    json_t *expected = json_loads(reply, JSON_DECODE_ANY, NULL);
    json_t *result;

    g_assert_nonnull(command);
    result = command->run(&context, connection, json, &error);
    if (expected) {
        g_assert_no_error(error);
        g_assert_true(json_equal(result, expected));
    } else {
        g_assert_null(result);
        g_assert_nonnull(error);
        g_assert_cmpstr(error->message, ==, reply);
    }
    json_decref(json);
    json_decref(expected);
    json_decref(result);
}

static void test_commands(void)
{
    calls = 0;
    run("test-nothing", NULL, "{}");
    run("test-nothing", "{}", "{}");
    run("test-nothing", "{\"x\": 1}", "Parameter 'x' is unexpected");
    g_assert_cmpuint(calls, ==, 2);
    run("test-echo", "{\"name\": \"n\", \"colour\": \"3d\"}", "{\"name\": \"n\", \"colour\": \"3d\"}");
    run("test-echo", "{\"name\": \"bad\", \"colour\": \"red\"}", "The name is bad");
    run("test-echo", NULL, "Parameter 'name' is missing");
    run("test-echo", "{\"name\": \"n\"}", "Parameter 'colour' is missing");
    g_assert_cmpuint(calls, ==, 4);
    run("test_text", "{\"word\": \"ab\"}", "\"ab\"");
    run("test_text", "{\"word\": \"ab\", \"count\": 3}", "\"ababab\"");
    run("test_text", "{\"count\": 3}", "Parameter 'word' is missing");
    run("test-list", NULL, "[\"one\", \"two\"]");
    run("test-any", "{}", "[null, 5]");
}

static void test_command_table(void)
{
    static const char *const names[] = { "test-nothing", "test-echo", "test_text", "test-list", "test-any",
                                         "query-qmp-schema" };

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_assert_cmpstr(qmp_commands[i].name, ==, names[i]);
        g_assert_true(qmp_commands[i].allow_oob == (i == 0));
        g_assert_true(qmp_commands[i].allow_preconfig == (i == 0));
    }
    g_assert_null(qmp_commands[G_N_ELEMENTS(names)].name);
    g_assert_null(qmp_command_find("nosuch"));
    g_assert_null(qmp_command_find("test-text"));
}

/* ---- events ---- */

static void assert_event(const char *name, const char *data)
{
    json_t *expected = data ? json_loads(data, 0, NULL) : NULL;

    g_assert_cmpstr(event_name, ==, name);
    g_assert_true(data ? json_equal(event_data, expected) : !event_data);
    json_decref(expected);
}

static void test_events(void)
{
    TestBase base = { .name = (char *)"n", .colour = TEST_COLOUR_DARK_BLUE };

    qapi_event_send_test_plain(&context);
    assert_event("TEST_PLAIN", NULL);
    qapi_event_send_test_data(&context, 7, false, -1, "text", NULL, TEST_COLOUR_3D);
    assert_event("TEST_DATA", "{\"a\": 7, \"c\": \"text\", \"e\": \"3d\"}");
    qapi_event_send_test_data(&context, 7, true, -1, "text", &base, TEST_COLOUR_RED);
    assert_event("TEST_DATA", "{\"a\": 7, \"b\": -1, \"c\": \"text\", \"e\": \"red\","
                              " \"d\": {\"name\": \"n\", \"colour\": \"dark-blue\"}}");
}

/* ---- introspection ---- */

static json_t *entity(json_t *schema, const char *name)
{
    size_t i;
    json_t *found;

    json_array_foreach(schema, i, found) {
        if (strcmp(json_string_value(json_object_get(found, "name")), name) == 0) {
            return found;
        }
    }
    g_test_message("no entity %s", name);
    g_assert_not_reached();
}

static const char *text(json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static json_t *named(json_t *array, const char *key, const char *name)
{
    size_t i;
    json_t *item;

    json_array_foreach(array, i, item) {
        if (g_strcmp0(text(item, key), name) == 0) {
            return item;
        }
    }
    return NULL;
}

/* The type of a member of the type called @type, itself an entity. */
static json_t *member_type(json_t *schema, json_t *object, const char *name)
{
    return entity(schema, text(named(json_object_get(object, "members"), "name", name), "type"));
}

static bool is_number(const char *name)
{
    return *name && strspn(name, "0123456789") == strlen(name);
}

static void assert_features(json_t *object, const char *expected)
{
    json_t *features = json_object_get(object, "features");

    g_assert_cmpuint(json_array_size(features), ==, expected ? 1 : 0);
    g_assert_cmpstr(json_string_value(json_array_get(features, 0)), ==, expected);
}

static void check_commands(json_t *schema)
{
    json_t *nothing = entity(schema, "test-nothing");
    json_t *deprecated = entity(schema, "test_text");

    g_assert_true(nothing == json_array_get(schema, 0));
    g_assert_cmpstr(text(nothing, "meta-type"), ==, "command");
    g_assert_cmpstr(text(nothing, "arg-type"), ==, "0");
    g_assert_cmpstr(text(nothing, "ret-type"), ==, "0");
    g_assert_true(json_is_true(json_object_get(nothing, "allow-oob")));
    assert_features(nothing, NULL);
    g_assert_null(json_object_get(deprecated, "allow-oob"));
    assert_features(deprecated, "deprecated");
    g_assert_cmpstr(text(deprecated, "ret-type"), ==, "str");
    g_assert_cmpstr(text(entity(schema, "test-list"), "ret-type"), ==, "[str]");
    g_assert_cmpstr(text(entity(schema, "[str]"), "element-type"), ==, "str");
    g_assert_cmpstr(text(entity(schema, "[str]"), "meta-type"), ==, "array");
    g_assert_cmpstr(text(entity(schema, "test-any"), "ret-type"), ==, "any");
    g_assert_cmpstr(text(entity(schema, "any"), "json-type"), ==, "value");
    g_assert_cmpstr(text(entity(schema, "TEST_PLAIN"), "meta-type"), ==, "event");
    g_assert_cmpstr(text(entity(schema, "TEST_PLAIN"), "arg-type"), ==, "0");
    g_assert_cmpuint(json_array_size(json_object_get(entity(schema, "0"), "members")), ==, 0);
}

static void check_types(json_t *schema)
{
    json_t *thing = entity(schema, text(entity(schema, "test-echo"), "arg-type"));
    json_t *members = json_object_get(thing, "members");
    json_t *colour = member_type(schema, thing, "colour");
    json_t *shape = member_type(schema, thing, "shape");
    json_t *maybe = member_type(schema, thing, "text");
    json_t *variants = json_object_get(shape, "variants");

    g_assert_true(is_number(text(thing, "name")));
    /* Optional exactly when there is a default, which is null; the base's members come first. */
    g_assert_cmpstr(text(json_array_get(members, 0), "name"), ==, "name");
    g_assert_null(json_object_get(json_array_get(members, 0), "default"));
    g_assert_true(json_is_null(json_object_get(named(members, "name", "text"), "default")));
    assert_features(named(members, "name", "unstable-number"), "unstable");
    /* Widths do not show, nor in lists. */
    g_assert_cmpstr(text(member_type(schema, member_type(schema, thing, "numbers"), "u8"), "name"), ==,
                    "int");
    g_assert_cmpstr(text(named(members, "name", "sizes"), "type"), ==, "[int]");
    g_assert_cmpstr(text(colour, "meta-type"), ==, "enum");
    g_assert_cmpuint(json_array_size(json_object_get(colour, "members")), ==, 4);
    g_assert_cmpstr(json_string_value(json_array_get(json_object_get(colour, "values"), 3)), ==, "dark-blue");
    g_assert_cmpstr(text(shape, "tag"), ==, "kind");
    g_assert_cmpuint(json_array_size(variants), ==, 3);
    g_assert_cmpstr(text(named(variants, "case", "point"), "type"), ==, "0");
    g_assert_true(is_number(text(named(variants, "case", "disc"), "type")));
    g_assert_cmpstr(text(maybe, "meta-type"), ==, "alternate");
    g_assert_nonnull(named(json_object_get(maybe, "members"), "type", "null"));
}

static void test_introspection(void)
{
    g_autoptr(GError) error = NULL;
    json_t *schema = qmp_query_qmp_schema(&context, &error);

    g_assert_no_error(error);
    check_commands(schema);
    check_types(schema);
    json_decref(schema);
}

/* ---- option tables ---- */

static void test_option_table(void)
{
    const QapiOption *opt = TestOptions_options;

    g_assert_cmpstr(opt->name, ==, "level");
    g_assert_cmpstr(opt->global, ==, "x-level");
    g_assert_cmpstr(opt->unit, ==, "dB");
    g_assert_cmpstr(opt->since, ==, "1.1");
    g_assert_cmpint(opt->type, ==, QAPI_OPTION_UINT8);
    g_assert_cmpint(opt->hmp, ==, QAPI_HMP_INT);
    g_assert_cmpuint(opt->min, ==, 3);
    g_assert_cmpuint(opt->max, ==, 9);
    g_assert_cmpuint(opt->default_number, ==, 4);
    g_assert_true(opt->unstable && !opt->unsupported);
    g_assert_cmpuint(opt->offset, ==, offsetof(TestOptions, level));
    g_assert_cmpuint(opt->has_offset, ==, offsetof(TestOptions, has_level));
    opt++;
    g_assert_cmpint(opt->type, ==, QAPI_OPTION_BOOL);
    g_assert_cmpuint(opt->default_number, ==, 1);
    opt++;
    g_assert_cmpint(opt->type, ==, QAPI_OPTION_ENUM);
    g_assert_cmpuint(opt->default_number, ==, TEST_COLOUR_3D);
    g_assert_cmpint(opt->enum_max, ==, 4);
    g_assert_cmpstr(opt->enum_lookup[1], ==, "short");
    g_assert_true(opt->unsupported);
    opt++;
    g_assert_cmpint(opt->type, ==, QAPI_OPTION_STR_LIST);
    g_assert_true(opt->has_offset == SIZE_MAX);
    opt++;
    g_assert_cmpstr(opt->default_str, ==, "none");
    opt++;
    g_assert_cmpint(opt->type, ==, QAPI_OPTION_OTHER);
    g_assert_cmpint(opt->hmp, ==, QAPI_HMP_NONE);
    opt++;
    g_assert_cmpint(opt->type, ==, QAPI_OPTION_SIZE);
    g_assert_cmpint(opt->hmp, ==, QAPI_HMP_MIB);
    g_assert_true(opt->max == UINT64_MAX);
    g_assert_null((++opt)->name);
}

/* ---- types ---- */

static void test_enum(void)
{
    g_assert_cmpstr(TestColour_str(TEST_COLOUR_DARK_BLUE), ==, "dark-blue");
    g_assert_cmpstr(TestColour_str(TEST_COLOUR__MAX), ==, "?");
    g_assert_cmpint(TestColour_parse("short"), ==, TEST_COLOUR_SHORT);
    g_assert_cmpint(TestColour_parse("Short"), ==, -1);
    g_assert_cmpint(TEST_COLOUR__MAX, ==, 4);
    g_assert_null(TestColour_lookup[TEST_COLOUR__MAX]);
}

static TestThing *thing_from(const char *json_text)
{
    json_t *json = json_loads(json_text, 0, NULL);
    g_autoptr(GError) error = NULL;
    TestThing *thing = NULL;

    qapi_TestThing_from_json(json, "", &thing, &error);
    g_assert_no_error(error);
    json_decref(json);
    return thing;
}

static const char full_thing[] =
    "{\"name\": \"n\", \"colour\": \"red\", \"text\": \"t\", \"numbers\": {\"i\": -5, \"number\": 1.5},"
    " \"names\": [\"a\", \"b\"], \"sizes\": [1, 255], \"colours\": [\"3d\", \"red\"], \"flags\": [true, "
    "false],"
    " \"things\": [{\"name\": \"m\", \"colour\": \"short\"}],"
    " \"shape\": {\"kind\": \"unix\", \"comment\": \"c\", \"inner-kind\": \"red\", \"radius\": 9}}";

static void test_clone(void)
{
    g_autoptr(TestThing) thing = thing_from(full_thing);
    g_autoptr(TestThing) copy = qapi_clone_TestThing(thing);
    json_t *expected = json_loads(full_thing, 0, NULL);

    /* The copy stands alone. */
    qapi_free_TestThing(g_steal_pointer(&thing));
    json_t *json = qapi_TestThing_to_json(copy);
    g_assert_true(json_equal(json, expected));
    g_assert_cmpuint(copy->sizes->items[1], ==, 255);
    g_assert_cmpint(copy->colours->items[0], ==, TEST_COLOUR_3D);
    g_assert_cmpuint(copy->shape->u.q_unix->u.red->radius, ==, 9);
    json_decref(json);
    json_decref(expected);
    g_assert_null(qapi_clone_TestThing(NULL));
    qapi_free_TestThing(NULL);
}

static void test_merge(void)
{
    g_autoptr(TestThing) thing = thing_from("{\"name\": \"n\", \"colour\": \"red\", \"names\": [\"a\"],"
                                            " \"text\": null, \"unstable-number\": 1}");
    g_autoptr(TestThing) change = thing_from("{\"name\": \"m\", \"colour\": \"3d\", \"names\": [],"
                                             " \"numbers\": {\"u8\": 1}}");

    qapi_type_merge(&qapi_info_TestThing, thing, change);
    g_assert_cmpstr(thing->name, ==, "m");
    g_assert_cmpint(thing->colour, ==, TEST_COLOUR_3D);
    g_assert_cmpuint(thing->names->count, ==, 0);
    g_assert_true(thing->text->is_null);
    g_assert_true(thing->has_unstable_number && thing->unstable_number == 1);
    g_assert_true(thing->numbers->has_u8 && thing->numbers != change->numbers);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qapi/commands", test_commands);
    g_test_add_func("/qapi/command-table", test_command_table);
    g_test_add_func("/qapi/events", test_events);
    g_test_add_func("/qapi/introspection", test_introspection);
    g_test_add_func("/qapi/option-table", test_option_table);
    g_test_add_func("/qapi/enum", test_enum);
    g_test_add_func("/qapi/clone", test_clone);
    g_test_add_func("/qapi/merge", test_merge);
    int status = g_test_run();
    g_free(event_name);
    json_decref(event_data);
    return status;
}
