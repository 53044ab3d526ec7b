/* SPDX-License-Identifier: BSD-2-Clause */
/* QMP requests and replies as values: checking one, making the other. */
#ifndef GODWIT_MONITOR_QMP_REQUEST_H
#define GODWIT_MONITOR_QMP_REQUEST_H

#include <glib.h>
#include <jansson.h>
#include <stdbool.h>

/* A request whose form is right.  The pointers are borrowed from it. */
typedef struct QmpRequest {
    const char *command;
    json_t *arguments; /* NULL: none */
    bool oob;          /* exec-oob */
} QmpRequest;

/*
 * False, with the error in QMP's words, if @json is not a request.  @oob_allowed: the client
 * has enabled the capability.
 */
bool qmp_request_check(json_t *json, bool oob_allowed, QmpRequest *request, GError **errp);

/* The name of the error class that @error belongs to. */
const char *qmp_error_class(const GError *error);

/*
 * {"return": ...}: takes @result.  {"error": ...}.  With the id of @request, if it has one (it may be NULL).
 */
json_t *qmp_reply_return(json_t *result, json_t *request);
json_t *qmp_reply_error(const GError *error, json_t *request);

#endif
