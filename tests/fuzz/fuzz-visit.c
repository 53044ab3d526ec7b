/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: arguments of commands, as JSON, into C types and back. */
#include "qapi/qapi-visit-migration.h"
#include "qapi/qapi-visit-misc.h"
#include "qapi/qapi-visit-qom.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const QapiTypeInfo *const types[] = {
    &qapi_info_migrate_arg,   &qapi_info_migrate_set_capabilities_arg, &qapi_info_MigrationParameters,
    &qapi_info_ObjectOptions, &qapi_info_MigrationInfo,                &qapi_info_yank_arg,
};

/* What is accepted comes back as the same JSON, and the copy is as good as the original. */
static void check_type(const QapiTypeInfo *type, json_t *json)
{
    g_autoptr(GError) error = NULL;
    void *value = NULL;

    if (!qapi_from_json(type, json, "", &value, &error)) {
        g_assert_nonnull(error);
        g_assert_null(value);
        return;
    }
    void *copy = qapi_type_clone(type, value);
    json_t *first = qapi_to_json(type, value);
    qapi_type_free(type, value);
    json_t *second = qapi_to_json(type, copy);
    g_assert_true(json_equal(first, second));
    qapi_type_free(type, copy);
    g_assert_true(qapi_from_json(type, first, "", &value, &error));
    qapi_type_free(type, value);
    json_decref(first);
    json_decref(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json = json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

    for (size_t i = 0; json && i < G_N_ELEMENTS(types); i++) {
        check_type(types[i], json);
    }
    json_decref(json);
    return 0;
}
