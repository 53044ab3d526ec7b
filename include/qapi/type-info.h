/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptions of the generated C types, and generic code that frees and copies by them. */
#ifndef GODWIT_QAPI_TYPE_INFO_H
#define GODWIT_QAPI_TYPE_INFO_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One JSON object has at most this many members, those of its branch included; the generator checks it. */
#define QAPI_MAX_MEMBERS 96

typedef enum {
    QAPI_KIND_BOOL,
    QAPI_KIND_INT8,
    QAPI_KIND_INT16,
    QAPI_KIND_INT32,
    QAPI_KIND_INT64,
    QAPI_KIND_UINT8,
    QAPI_KIND_UINT16,
    QAPI_KIND_UINT32,
    QAPI_KIND_UINT64,
    QAPI_KIND_NUMBER,
    QAPI_KIND_ENUM,
    QAPI_KIND_STR,              /* from here on: pointers, NULL when absent */
    QAPI_KIND_STR_OR_NULL,
    QAPI_KIND_LIST,
    QAPI_KIND_STRUCT,
    QAPI_KIND_UNION,
} QapiKind;

typedef struct QapiTypeInfo QapiTypeInfo;

/* A member of a struct or union; a table of them ends with a NULL name. */
typedef struct QapiMember {
    const char *name;           /* as in JSON */
    size_t offset;              /* of the member in the C struct */
    size_t flag_offset;         /* of has_NAME; QAPI_NO_FLAG if there is none */
    const QapiTypeInfo *type;
    bool optional;
    uint64_t min, max;          /* of a number whose range is narrower than its type's; else both 0 */
} QapiMember;

#define QAPI_NO_FLAG SIZE_MAX

struct QapiTypeInfo {
    QapiKind kind;
    const char *name;                           /* of the schema type */
    size_t size;                                /* of what a pointer of this type points to */
    const char *const *lookup;                  /* ENUM: names by value */
    int enum_max;                               /* ENUM: number of values */
    const QapiTypeInfo *element;                /* LIST */
    const QapiMember *members;                  /* STRUCT, UNION */
    const QapiMember *tag;                      /* UNION: the discriminator, of an ENUM type */
    const QapiTypeInfo *const *branches;        /* UNION: by value of the tag; NULL: no members */
    size_t branch_offset;                       /* UNION: of u */
};

/* Every list has this layout; the items are of the element's C type. */
typedef struct QapiList {
    size_t count;
    void *items;
} QapiList;

/* The alternate of a string and null. */
typedef struct QapiStrOrNull {
    bool is_null;
    char *str;                  /* NULL if is_null */
} QapiStrOrNull;

/* The size of a list item of this type in bytes: scalars lie in the list, all others are pointers. */
size_t qapi_value_size(const QapiTypeInfo *info);

/* The branch that the union's tag selects, or NULL if it has no members. */
const QapiTypeInfo *qapi_union_branch(const QapiTypeInfo *info, const void *value);

/* Is the member there?  @object is the C struct. */
bool qapi_member_present(const QapiMember *member, const void *object);

/* Frees a value of a pointer type and all it owns; NULL is fine, and so is a half-built one. */
void qapi_type_free(const QapiTypeInfo *info, void *value);

/* A deep copy; NULL gives NULL. */
void *qapi_type_clone(const QapiTypeInfo *info, const void *value);

/* Copies the members that are present in @from, a struct of type @info, into @to, replacing what is there. */
void qapi_type_merge(const QapiTypeInfo *info, void *to, const void *from);

/* The name of an enum value, "?" for one out of range; and back, -1 if unknown. */
const char *qapi_enum_str(const QapiTypeInfo *info, int value);
int qapi_enum_parse(const QapiTypeInfo *info, const char *name);

#endif
