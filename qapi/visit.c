/* SPDX-License-Identifier: BSD-2-Clause */
/* Generic conversion between generated C types and jansson values, driven by the type descriptions. */
#include "qapi/visit.h"

#include "qapi/json-number.h"
#include "util/error.h"

#include <inttypes.h>
#include <string.h>

/* ---- where we are, for messages ---- */

typedef struct Place {
    const struct Place *parent;
    const char *name;           /* member name, or the caller's path; NULL for a list item */
    size_t index;               /* of a list item */
    const QapiMember *member;   /* that is being read; NULL if it is none */
} Place;

static void append_place(const Place *place, GString *text)
{
    if (!place) {
        return;
    }
    append_place(place->parent, text);
    if (!place->name) {
        g_string_append_printf(text, "[%zu]", place->index);
    } else if (*place->name) {
        g_string_append_printf(text, "%s%s", text->len ? "." : "", place->name);
    }
}

/* "channels[0].addr.port"; what has no name at all is called null, as QMP does. */
static char *full_name(const Place *place)
{
    GString *text = g_string_new(NULL);

    append_place(place, text);
    if (text->len == 0) {
        g_string_append(text, "null");
    }
    return g_string_free(text, FALSE);
}

static const char *last_name(const Place *place)
{
    return place->name && *place->name ? place->name : "null";
}

static bool wrong_type(const Place *place, const char *expected, GError **errp)
{
    g_autofree char *name = full_name(place);

    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Invalid parameter type for '%s', expected: %s",
                name, expected);
    return false;
}

static bool bad_parameter(const Place *place, const char *what, GError **errp)
{
    g_autofree char *name = full_name(place);

    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter '%s' %s", name, what);
    return false;
}

/* ---- from JSON ---- */

typedef struct IntegerLimits {
    const char *c_name;
    int64_t min;
    uint64_t max;
} IntegerLimits;

static const IntegerLimits integer_limits[] = {
    [QAPI_KIND_INT8] = { "int8_t", INT8_MIN, INT8_MAX },
    [QAPI_KIND_INT16] = { "int16_t", INT16_MIN, INT16_MAX },
    [QAPI_KIND_INT32] = { "int32_t", INT32_MIN, INT32_MAX },
    [QAPI_KIND_INT64] = { "int64_t", INT64_MIN, INT64_MAX },
    [QAPI_KIND_UINT8] = { "uint8_t", 0, UINT8_MAX },
    [QAPI_KIND_UINT16] = { "uint16_t", 0, UINT16_MAX },
    [QAPI_KIND_UINT32] = { "uint32_t", 0, UINT32_MAX },
    [QAPI_KIND_UINT64] = { "uint64_t", 0, UINT64_MAX },
};

/* One text for a value out of an option's range, whether its C type could hold it or not. */
static bool does_not_fit(const Place *place, QapiKind kind, GError **errp)
{
    if (place->member && place->member->max) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Option %s expects a value between %" PRIu64 " and %" PRIu64, last_name(place),
                    place->member->min, place->member->max);
        return false;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter '%s' expects %s", last_name(place),
                integer_limits[kind].c_name);
    return false;
}

static bool signed_from_json(QapiKind kind, json_t *json, const Place *place, int64_t *out, GError **errp)
{
    const IntegerLimits *limits = &integer_limits[kind];

    if (!qapi_json_to_int64(json, out)) {
        return wrong_type(place, "integer", errp);
    }
    if (*out < limits->min || *out > (int64_t)limits->max) {
        return does_not_fit(place, kind, errp);
    }
    return true;
}

static bool unsigned_from_json(QapiKind kind, json_t *json, const Place *place, uint64_t *out, GError **errp)
{
    if (!qapi_json_to_uint64(json, out)) {
        return bad_parameter(place, "expects uint64", errp);
    }
    if (*out > integer_limits[kind].max) {
        return does_not_fit(place, kind, errp);
    }
    return true;
}

/* Little or big endian does not matter: each kind is stored by its own type. */
static bool integer_from_json(QapiKind kind, json_t *json, const Place *place, void *out, GError **errp)
{
    int64_t i = 0;
    uint64_t u = 0;

    if (kind <= QAPI_KIND_INT64) {
        if (!signed_from_json(kind, json, place, &i, errp)) {
            return false;
        }
    } else if (!unsigned_from_json(kind, json, place, &u, errp)) {
        return false;
    }
    switch (kind) {
    case QAPI_KIND_INT8: *(int8_t *)out = (int8_t)i; break;
    case QAPI_KIND_INT16: *(int16_t *)out = (int16_t)i; break;
    case QAPI_KIND_INT32: *(int32_t *)out = (int32_t)i; break;
    case QAPI_KIND_INT64: *(int64_t *)out = i; break;
    case QAPI_KIND_UINT8: *(uint8_t *)out = (uint8_t)u; break;
    case QAPI_KIND_UINT16: *(uint16_t *)out = (uint16_t)u; break;
    case QAPI_KIND_UINT32: *(uint32_t *)out = (uint32_t)u; break;
    default: *(uint64_t *)out = u; break;
    }
    return true;
}

static bool number_from_json(json_t *json, const Place *place, double *out, GError **errp)
{
    uint64_t big;

    if (qapi_json_is_big(json) && qapi_json_to_uint64(json, &big)) {
        *out = (double)big;
    } else if (json_is_number(json)) {
        *out = json_number_value(json);
    } else {
        return wrong_type(place, "number", errp);
    }
    return true;
}

static bool enum_from_json(const QapiTypeInfo *info, json_t *json, const Place *place, int *out,
                           GError **errp)
{
    int value;

    if (!qapi_json_is_string(json)) {
        return wrong_type(place, "string", errp);
    }
    value = qapi_enum_parse(info, json_string_value(json));
    if (value < 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter '%s' does not accept value '%s'",
                    last_name(place), json_string_value(json));
        return false;
    }
    *out = value;
    return true;
}

static bool str_or_null_from_json(const QapiTypeInfo *info, json_t *json, const Place *place, void **out,
                                  GError **errp)
{
    QapiStrOrNull *value;

    if (!json_is_null(json) && !qapi_json_is_string(json)) {
        return wrong_type(place, info->name, errp);
    }
    value = g_new0(QapiStrOrNull, 1);
    value->is_null = json_is_null(json);
    value->str = g_strdup(json_string_value(json));
    *out = value;
    return true;
}

static bool value_from_json(const QapiTypeInfo *info, json_t *json, const Place *place, void *out,
                            GError **errp);

static bool list_from_json(const QapiTypeInfo *info, json_t *json, const Place *place, void **out,
                           GError **errp)
{
    size_t item_size = qapi_value_size(info->element);
    QapiList *list;

    if (!json_is_array(json)) {
        return wrong_type(place, "array", errp);
    }
    list = g_new0(QapiList, 1);
    list->count = json_array_size(json);
    list->items = g_malloc0_n(list->count, item_size);
    for (size_t i = 0; i < list->count; i++) {
        Place item = { .parent = place, .index = i };

        if (!value_from_json(info->element, json_array_get(json, i), &item,
                             (char *)list->items + i * item_size, errp)) {
            qapi_type_free(info, list);
            return false;
        }
    }
    *out = list;
    return true;
}

/* The members of one JSON object that somebody expects, a union's branch included. */
typedef struct Expected {
    const char *names[QAPI_MAX_MEMBERS];
    size_t count;
} Expected;

static bool members_from_json(const QapiTypeInfo *info, json_t *json, const Place *place, char *object,
                              Expected *expected, GError **errp)
{
    for (const QapiMember *m = info->members; m->name; m++) {
        Place here = { .parent = place, .name = m->name, .member = m };
        json_t *value = json_object_get(json, m->name);

        expected->names[expected->count++] = m->name;
        if (!value) {
            if (!m->optional) {
                return bad_parameter(&here, "is missing", errp);
            }
            continue;
        }
        if (!value_from_json(m->type, value, &here, object + m->offset, errp)) {
            return false;
        }
        if (m->flag_offset != QAPI_NO_FLAG) {
            *(bool *)(object + m->flag_offset) = true;
        }
    }
    if (info->kind == QAPI_KIND_UNION) {
        const QapiTypeInfo *branch = qapi_union_branch(info, object);

        if (branch) {
            char *inner = g_malloc0(branch->size);

            *(void **)(object + info->branch_offset) = inner;
            return members_from_json(branch, json, place, inner, expected, errp);
        }
    }
    return true;
}

static bool no_others(json_t *json, const Place *place, const Expected *expected, GError **errp)
{
    const char *name;
    json_t *value;

    json_object_foreach(json, name, value) {
        size_t i = 0;

        while (i < expected->count && strcmp(expected->names[i], name) != 0) {
            i++;
        }
        if (i == expected->count) {
            Place here = { .parent = place, .name = name };

            return bad_parameter(&here, "is unexpected", errp);
        }
    }
    return true;
}

static bool object_from_json(const QapiTypeInfo *info, json_t *json, const Place *place, void **out,
                             GError **errp)
{
    Expected expected = { .count = 0 };
    char *object;

    if (!json_is_object(json)) {
        return wrong_type(place, "object", errp);
    }
    object = g_malloc0(info->size);
    if (!members_from_json(info, json, place, object, &expected, errp) ||
        !no_others(json, place, &expected, errp)) {
        qapi_type_free(info, object);
        return false;
    }
    *out = object;
    return true;
}

/* Stores into @out, which points at the member or list item; pointers are allocated. */
static bool value_from_json(const QapiTypeInfo *info, json_t *json, const Place *place, void *out,
                            GError **errp)
{
    switch (info->kind) {
    case QAPI_KIND_BOOL:
        if (!json_is_boolean(json)) {
            return wrong_type(place, "boolean", errp);
        }
        *(bool *)out = json_is_true(json);
        return true;
    case QAPI_KIND_NUMBER:
        return number_from_json(json, place, out, errp);
    case QAPI_KIND_ENUM:
        return enum_from_json(info, json, place, out, errp);
    case QAPI_KIND_STR:
        if (!qapi_json_is_string(json)) {
            return wrong_type(place, "string", errp);
        }
        *(char **)out = g_strdup(json_string_value(json));
        return true;
    case QAPI_KIND_STR_OR_NULL:
        return str_or_null_from_json(info, json, place, out, errp);
    case QAPI_KIND_LIST:
        return list_from_json(info, json, place, out, errp);
    case QAPI_KIND_STRUCT:
    case QAPI_KIND_UNION:
        return object_from_json(info, json, place, out, errp);
    default:
        return integer_from_json(info->kind, json, place, out, errp);
    }
}

bool qapi_from_json(const QapiTypeInfo *info, json_t *json, const char *path, void **out, GError **errp)
{
    Place place = { .name = path };

    if (!json) {
        json_t *empty = json_object();
        bool ok = value_from_json(info, empty, &place, out, errp);

        json_decref(empty);
        return ok;
    }
    return value_from_json(info, json, &place, out, errp);
}

bool qapi_no_arguments(json_t *args, GError **errp)
{
    static const Expected nothing = { .count = 0 };
    Place place = { .name = "" };

    return no_others(args, &place, &nothing, errp);
}

/* ---- to JSON ---- */

static json_t *string_to_json(const char *text)
{
    json_t *json = json_string(text);

    if (!json) {
        g_autofree char *valid = g_utf8_make_valid(text, -1);

        json = json_string(valid);
    }
    return json;
}

static json_t *value_to_json(const QapiTypeInfo *info, const void *at);

static json_t *list_to_json(const QapiTypeInfo *info, const QapiList *list)
{
    size_t item_size = qapi_value_size(info->element);
    json_t *json = json_array();

    for (size_t i = 0; i < list->count; i++) {
        json_array_append_new(json, value_to_json(info->element, (const char *)list->items + i * item_size));
    }
    return json;
}

static void members_to_json(const QapiTypeInfo *info, const char *object, json_t *json)
{
    for (const QapiMember *m = info->members; m->name; m++) {
        if (qapi_member_present(m, object)) {
            json_object_set_new(json, m->name, value_to_json(m->type, object + m->offset));
        }
    }
    if (info->kind == QAPI_KIND_UNION) {
        const QapiTypeInfo *branch = qapi_union_branch(info, object);
        const void *inner = branch ? *(void *const *)(object + info->branch_offset) : NULL;

        if (inner) {
            members_to_json(branch, inner, json);
        }
    }
}

static json_t *str_or_null_to_json(const QapiStrOrNull *value)
{
    return value->is_null ? json_null() : string_to_json(value->str);
}

json_t *qapi_to_json(const QapiTypeInfo *info, const void *value)
{
    json_t *json;

    switch (info->kind) {
    case QAPI_KIND_STR:
        return string_to_json(value);
    case QAPI_KIND_STR_OR_NULL:
        return str_or_null_to_json(value);
    case QAPI_KIND_LIST:
        return list_to_json(info, value);
    default:
        json = json_object();
        members_to_json(info, value, json);
        return json;
    }
}

/* @at points at the member or list item. */
static json_t *value_to_json(const QapiTypeInfo *info, const void *at)
{
    switch (info->kind) {
    case QAPI_KIND_BOOL: return json_boolean(*(const bool *)at);
    case QAPI_KIND_INT8: return json_integer(*(const int8_t *)at);
    case QAPI_KIND_INT16: return json_integer(*(const int16_t *)at);
    case QAPI_KIND_INT32: return json_integer(*(const int32_t *)at);
    case QAPI_KIND_INT64: return json_integer(*(const int64_t *)at);
    case QAPI_KIND_UINT8: return json_integer(*(const uint8_t *)at);
    case QAPI_KIND_UINT16: return json_integer(*(const uint16_t *)at);
    case QAPI_KIND_UINT32: return json_integer(*(const uint32_t *)at);
    case QAPI_KIND_UINT64: return qapi_json_from_uint64(*(const uint64_t *)at);
    case QAPI_KIND_NUMBER: return json_real(*(const double *)at);
    case QAPI_KIND_ENUM: return json_string(qapi_enum_str(info, *(const int *)at));
    default: return qapi_to_json(info, *(const void *const *)at);
    }
}
