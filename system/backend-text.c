/* SPDX-License-Identifier: BSD-2-Clause */
/* The text of -object as the schema's ObjectOptions: a key=value list, read by the table of members. */
#include <string.h>

#include "system/backend.h"
#include "system/keyval.h"
#include "util/error.h"
#include "util/size-text.h"

/* Members of a list, ranges expanded. */
#define MAX_LIST 4096

static bool refuse(GError **errp, const char *fmt, const char *name, const char *value)
{
    g_autofree char *text = g_strdup_printf(fmt, name, value);

    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, text);
    return false;
}

/* ---- values, by kind ---- */

static bool parse_number(const char *name, const char *text, uint64_t max, uint64_t *out, GError **errp)
{
    uint64_t value;

    if (text[0] == '-' || integer_text_parse(text, &value) != NUMBER_TEXT_OK || value > max) {
        return refuse(errp, "Parameter '%s' expects a uint64 value", name, NULL);
    }
    *out = value;
    return true;
}

static bool parse_size(const char *name, const char *text, uint64_t *out, GError **errp)
{
    return size_text_parse(text, 1, out) == NUMBER_TEXT_OK ||
           refuse(errp, "Parameter '%s' expects a size value", name, NULL);
}

static bool parse_enum(const QapiTypeInfo *info, const char *name, const char *text, int *out, GError **errp)
{
    int value = qapi_enum_parse(info, text);

    if (value < 0) {
        return refuse(errp, "Parameter '%s' does not accept value '%s'", name, text);
    }
    *out = value;
    return true;
}

static bool add_range(const char *name, const char *text, uint16List *list, GError **errp)
{
    g_auto(GStrv) ends = g_strsplit(text, "-", 2);
    uint64_t first, last;

    if (!ends[0] || !parse_number(name, ends[0], UINT16_MAX, &first, NULL) ||
        !parse_number(name, ends[1] ? ends[1] : ends[0], UINT16_MAX, &last, NULL) || first > last) {
        return refuse(errp, "Parameter '%s' expects a uint64 value or range", name, NULL);
    }
    if (last - first >= MAX_LIST - list->count) {
        return refuse(errp, "Parameter '%s' has too many values", name, NULL);
    }
    list->items = g_renew(uint16_t, list->items, list->count + last - first + 1);
    for (uint64_t value = first; value <= last; value++) {
        list->items[list->count++] = value;
    }
    return true;
}

/* All values given for @member, last to count; a list gathers them. */
static bool set_member(const QapiMember *member, void *slot, const char *text, GError **errp)
{
    uint64_t value;

    switch (member->type->kind) {
    case QAPI_KIND_BOOL:
        return keyval_parse_bool(member->name, text, slot, errp);
    case QAPI_KIND_UINT32:
        if (!parse_number(member->name, text, UINT32_MAX, &value, errp)) {
            return false;
        }
        *(uint32_t *)slot = value;
        return true;
    case QAPI_KIND_UINT64:
        return parse_size(member->name, text, slot, errp);
    case QAPI_KIND_ENUM:
        return parse_enum(member->type, member->name, text, slot, errp);
    case QAPI_KIND_STR:
        g_free(*(char **)slot);
        *(char **)slot = g_strdup(text);
        return true;
    case QAPI_KIND_LIST:
        g_assert(member->type->element->kind == QAPI_KIND_UINT16);
        if (!*(uint16List **)slot) {
            *(uint16List **)slot = g_new0(uint16List, 1);
        }
        return add_range(member->name, text, *(uint16List **)slot, errp);
    default:
        g_assert_not_reached();
    }
}

/* ---- the list ---- */

static bool read_member(const KeyVal *kv, const QapiMember *member, void *object, GError **errp)
{
    bool given = false;

    for (guint i = 0; i < kv->pairs->len; i++) {
        const KeyValPair *pair = &g_array_index(kv->pairs, KeyValPair, i);
        if (strcmp(pair->key, member->name) != 0) {
            continue;
        }
        if (!set_member(member, (char *)object + member->offset, pair->value, errp)) {
            return false;
        }
        given = true;
    }
    if (!given && !member->optional) {
        return refuse(errp, "Parameter '%s' is missing", member->name, NULL);
    }
    if (given && member->flag_offset != QAPI_NO_FLAG) {
        *(bool *)((char *)object + member->flag_offset) = true;
    }
    return true;
}

static bool known_key(const QapiTypeInfo *info, const char *key)
{
    for (const QapiMember *member = info->members; member->name; member++) {
        if (strcmp(member->name, key) == 0) {
            return true;
        }
    }
    return strcmp(key, "qom-type") == 0 || strcmp(key, "id") == 0;
}

static bool read_head(const KeyVal *kv, ObjectOptions *options, GError **errp)
{
    const char *type = keyval_get(kv, "qom-type"), *id = keyval_get(kv, "id");
    int value;

    if (!type) {
        return refuse(errp, "Parameter '%s' is missing", "qom-type", NULL);
    }
    if (!parse_enum(&qapi_info_ObjectType, "qom-type", type, &value, errp)) {
        return false;
    }
    if (!id) {
        return refuse(errp, "Parameter '%s' is missing", "id", NULL);
    }
    options->qom_type = value;
    options->id = g_strdup(id);
    return keyval_check_id(id, errp);
}

static void warn_short_forms(const KeyVal *kv)
{
    for (guint i = 0; i < kv->pairs->len; i++) {
        const KeyValPair *pair = &g_array_index(kv->pairs, KeyValPair, i);
        if (pair->short_form) {
            g_warning("short-form boolean option '%s%s' deprecated\nPlease use %s=%s instead",
                      strcmp(pair->value, "off") == 0 ? "no" : "", pair->key, pair->key, pair->value);
        }
    }
}

ObjectOptions *memory_backend_parse(const char *text, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(text, "qom-type", KEYVAL_OPTS, errp);
    g_autoptr(ObjectOptions) options = g_new0(ObjectOptions, 1);

    if (!kv || !read_head(kv, options, errp)) {
        return NULL;
    }
    warn_short_forms(kv);
    const QapiTypeInfo *info = qapi_info_ObjectOptions.branches[options->qom_type];
    void *object = g_malloc0(info->size);
    *(void **)((char *)options + qapi_info_ObjectOptions.branch_offset) = object;
    for (const QapiMember *member = info->members; member->name; member++) {
        if (!read_member(kv, member, object, errp)) {
            return NULL;
        }
    }
    for (guint i = 0; i < kv->pairs->len; i++) {
        const char *key = g_array_index(kv->pairs, KeyValPair, i).key;
        if (!known_key(info, key)) {
            refuse(errp, "Invalid parameter '%s'", key, NULL);
            return NULL;
        }
    }
    return g_steal_pointer(&options);
}

/* ---- help ---- */

static const char *kind_name(const QapiTypeInfo *info)
{
    switch (info->kind) {
    case QAPI_KIND_BOOL:
        return "bool";
    case QAPI_KIND_UINT64:
        return "size";
    case QAPI_KIND_ENUM:
        return info->name;
    case QAPI_KIND_STR:
        return "string";
    default:
        return "int";
    }
}

char *memory_backend_help(const char *type)
{
    GString *text = g_string_new(NULL);

    if (!type) {
        g_string_append(text, "List of user creatable objects:\n");
        for (int i = 0; i < OBJECT_TYPE__MAX; i++) {
            g_string_append_printf(text, "  %s\n", ObjectType_str(i));
        }
        return g_string_free(text, false);
    }
    int value = ObjectType_parse(type);
    if (value < 0) {
        g_string_free(text, true);
        return NULL;
    }
    g_string_append_printf(text, "%s options:\n", type);
    for (const QapiMember *m = qapi_info_ObjectOptions.branches[value]->members; m->name; m++) {
        g_string_append_printf(text, "  %s=<%s>\n", m->name, kind_name(m->type));
    }
    return g_string_free(text, false);
}
