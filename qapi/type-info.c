/* SPDX-License-Identifier: BSD-2-Clause */
/* Generic free, copy and enum look-up over the type descriptions. */
#include "qapi/type-info.h"

#include <string.h>

/* The shape of a value as one list item: enough to read scalars and pointers by kind. */
size_t qapi_value_size(const QapiTypeInfo *info)
{
    static const size_t scalar_sizes[] = {
        [QAPI_KIND_BOOL] = sizeof(bool),       [QAPI_KIND_INT8] = sizeof(int8_t),
        [QAPI_KIND_INT16] = sizeof(int16_t),   [QAPI_KIND_INT32] = sizeof(int32_t),
        [QAPI_KIND_INT64] = sizeof(int64_t),   [QAPI_KIND_UINT8] = sizeof(uint8_t),
        [QAPI_KIND_UINT16] = sizeof(uint16_t), [QAPI_KIND_UINT32] = sizeof(uint32_t),
        [QAPI_KIND_UINT64] = sizeof(uint64_t), [QAPI_KIND_NUMBER] = sizeof(double),
        [QAPI_KIND_ENUM] = sizeof(int),
    };

    return info->kind < G_N_ELEMENTS(scalar_sizes) ? scalar_sizes[info->kind] : sizeof(void *);
}

static bool is_pointer(const QapiTypeInfo *info)
{
    return info->kind >= QAPI_KIND_STR;
}

const QapiTypeInfo *qapi_union_branch(const QapiTypeInfo *info, const void *value)
{
    int tag = *(const int *)((const char *)value + info->tag->offset);

    return tag >= 0 && tag < info->tag->type->enum_max ? info->branches[tag] : NULL;
}

bool qapi_member_present(const QapiMember *member, const void *object)
{
    const char *base = object;

    if (member->flag_offset != QAPI_NO_FLAG) {
        return *(const bool *)(base + member->flag_offset);
    }
    return !is_pointer(member->type) || *(void *const *)(base + member->offset) != NULL;
}

static void free_object(const QapiTypeInfo *info, char *object)
{
    for (const QapiMember *m = info->members; m->name; m++) {
        if (is_pointer(m->type)) {
            qapi_type_free(m->type, *(void **)(object + m->offset));
        }
    }
    if (info->kind == QAPI_KIND_UNION) {
        const QapiTypeInfo *branch = qapi_union_branch(info, object);

        if (branch) {
            qapi_type_free(branch, *(void **)(object + info->branch_offset));
        }
    }
}

static void free_list(const QapiTypeInfo *info, QapiList *list)
{
    if (is_pointer(info->element)) {
        void **items = list->items;

        for (size_t i = 0; i < list->count; i++) {
            qapi_type_free(info->element, items[i]);
        }
    }
    g_free(list->items);
}

void qapi_type_free(const QapiTypeInfo *info, void *value)
{
    if (!value) {
        return;
    }
    switch (info->kind) {
    case QAPI_KIND_STRUCT:
    case QAPI_KIND_UNION:
        free_object(info, value);
        break;
    case QAPI_KIND_LIST:
        free_list(info, value);
        break;
    case QAPI_KIND_STR_OR_NULL:
        g_free(((QapiStrOrNull *)value)->str);
        break;
    default:
        break;
    }
    g_free(value);
}

static void *clone_object(const QapiTypeInfo *info, const void *object)
{
    char *copy = g_memdup2(object, info->size);

    for (const QapiMember *m = info->members; m->name; m++) {
        if (is_pointer(m->type)) {
            void **slot = (void **)(copy + m->offset);

            *slot = qapi_type_clone(m->type, *slot);
        }
    }
    if (info->kind == QAPI_KIND_UNION) {
        const QapiTypeInfo *branch = qapi_union_branch(info, object);
        void **slot = (void **)(copy + info->branch_offset);

        if (branch) {
            *slot = qapi_type_clone(branch, *slot);
        }
    }
    return copy;
}

static void *clone_list(const QapiTypeInfo *info, const QapiList *list)
{
    QapiList *copy = g_new0(QapiList, 1);

    copy->count = list->count;
    copy->items = g_memdup2(list->items, list->count * qapi_value_size(info->element));
    if (is_pointer(info->element)) {
        void **items = copy->items;

        for (size_t i = 0; i < copy->count; i++) {
            items[i] = qapi_type_clone(info->element, items[i]);
        }
    }
    return copy;
}

void *qapi_type_clone(const QapiTypeInfo *info, const void *value)
{
    if (!value) {
        return NULL;
    }
    switch (info->kind) {
    case QAPI_KIND_STRUCT:
    case QAPI_KIND_UNION:
        return clone_object(info, value);
    case QAPI_KIND_LIST:
        return clone_list(info, value);
    case QAPI_KIND_STR_OR_NULL: {
        QapiStrOrNull *copy = g_memdup2(value, sizeof(QapiStrOrNull));

        copy->str = g_strdup(copy->str);
        return copy;
    }
    case QAPI_KIND_STR:
        return g_strdup(value);
    default:
        g_assert_not_reached();
    }
}

void qapi_type_merge(const QapiTypeInfo *info, void *to, const void *from)
{
    for (const QapiMember *m = info->members; m->name; m++) {
        void *slot = (char *)to + m->offset;
        const void *source = (const char *)from + m->offset;

        if (!qapi_member_present(m, from)) {
            continue;
        }
        if (is_pointer(m->type)) {
            void *copy = qapi_type_clone(m->type, *(void *const *)source);

            qapi_type_free(m->type, *(void **)slot);
            *(void **)slot = copy;
        } else {
            memcpy(slot, source, qapi_value_size(m->type));
        }
        if (m->flag_offset != QAPI_NO_FLAG) {
            *(bool *)((char *)to + m->flag_offset) = true;
        }
    }
}

const char *qapi_enum_str(const QapiTypeInfo *info, int value)
{
    return value >= 0 && value < info->enum_max ? info->lookup[value] : "?";
}

int qapi_enum_parse(const QapiTypeInfo *info, const char *name)
{
    for (int i = 0; i < info->enum_max; i++) {
        if (strcmp(info->lookup[i], name) == 0) {
            return i;
        }
    }
    return -1;
}
