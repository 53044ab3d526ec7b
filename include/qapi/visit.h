/* SPDX-License-Identifier: BSD-2-Clause */
/* Generated C types to and from jansson values; errors in the words of QMP. */
#ifndef GODWIT_QAPI_VISIT_H
#define GODWIT_QAPI_VISIT_H

#include "qapi/type-info.h"
#include <jansson.h>

/*
 * A new reference for @value, which is of a pointer type and not NULL.  Optional members that are absent
 * are left out.  A string that is not UTF-8 is shown with U+FFFD for what is wrong.
 */
json_t *qapi_to_json(const QapiTypeInfo *info, const void *value);

/*
 * Builds a value of pointer type @info from @json.  @path is what stands before the member names in
 * messages: "" for the arguments of a command, "channels[0]" for an element.  NULL as @json counts as {}.  On
 * failure *@out is untouched and the error is of code GODWIT_ERROR_INVALID.
 */
bool qapi_from_json(const QapiTypeInfo *info, json_t *json, const char *path, void **out, GError **errp);

/* For a command without arguments: @args must be NULL or an empty object. */
bool qapi_no_arguments(json_t *args, GError **errp);

#endif
