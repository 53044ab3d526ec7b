/* SPDX-License-Identifier: BSD-2-Clause */
/* One row of a generated option table: everything the schema says about one member. */
#ifndef GODWIT_QAPI_OPTION_H
#define GODWIT_QAPI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    QAPI_OPTION_BOOL,
    QAPI_OPTION_UINT8,
    QAPI_OPTION_UINT32,
    QAPI_OPTION_UINT64,
    QAPI_OPTION_SIZE,
    QAPI_OPTION_ENUM,
    QAPI_OPTION_STR_OR_NULL,
    QAPI_OPTION_STR_LIST,
    QAPI_OPTION_OTHER,          /* settable through QMP only */
} QapiOptionType;

/* How a person types a number: see qmp.md-like "HMP class" in the reference page. */
typedef enum {
    QAPI_HMP_INT,               /* strict integer */
    QAPI_HMP_SIZE,              /* size suffixes; a plain number is in the option's own unit */
    QAPI_HMP_MIB,               /* size suffixes; a plain number is MiB */
    QAPI_HMP_BOOL,
    QAPI_HMP_WORD,
    QAPI_HMP_NONE,              /* not settable from HMP */
} QapiOptionHmp;

typedef struct QapiOption {
    const char *name;           /* as in QMP; NULL ends a table */
    const char *global;         /* spelling behind -global migration., or NULL */
    const char *unit;           /* "ms", "bytes", ..., or NULL */
    const char *since;
    QapiOptionType type;
    QapiOptionHmp hmp;
    size_t offset;              /* of the member in its struct */
    size_t has_offset;          /* of has_NAME; SIZE_MAX for pointer members */
    uint64_t min, max;          /* of numbers, both inclusive */
    uint64_t default_number;    /* of numbers, bools and enums */
    const char *default_str;    /* of strings */
    const char *const *enum_lookup;     /* of enums */
    int enum_max;
    bool unstable;
    bool unsupported;           /* known by name, refused unless set to its default */
} QapiOption;

#endif
