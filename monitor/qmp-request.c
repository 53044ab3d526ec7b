/* SPDX-License-Identifier: BSD-2-Clause */
/* QMP requests and replies as values. */
#include "qmp-request.h"

#include "qapi/json-number.h"
#include "util/error.h"

#include <string.h>

static bool bad_input(GError **errp, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
static bool bad_input(GError **errp, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "QMP input %s", text);
    return false;
}

static bool check_command(QmpRequest *request, const char *member, const json_t *value, GError **errp)
{
    if (!qapi_json_is_string(value)) {
        return bad_input(errp, "member '%s' must be a string", member);
    }
    if (request->command) {
        return bad_input(errp, "member 'execute' clashes with 'exec-oob'");
    }
    request->command = json_string_value(value);
    return true;
}

static bool check_member(QmpRequest *request, const char *name, json_t *value, bool oob_allowed,
                         GError **errp)
{
    if (strcmp(name, "id") == 0) {
        return true;
    }
    if (strcmp(name, "execute") == 0) {
        return check_command(request, name, value, errp);
    }
    if (strcmp(name, "exec-oob") == 0 && oob_allowed) {
        request->oob = true;
        return check_command(request, name, value, errp);
    }
    if (strcmp(name, "arguments") == 0) {
        request->arguments = value;
        return json_is_object(value) || bad_input(errp, "member 'arguments' must be an object");
    }
    return bad_input(errp, "member '%s' is unexpected", name);
}

bool qmp_request_check(json_t *json, bool oob_allowed, QmpRequest *request, GError **errp)
{
    *request = (QmpRequest){ 0 };
    if (!json_is_object(json)) {
        return bad_input(errp, "must be a JSON object");
    }

    const char *name;
    json_t *value;
    json_object_foreach (json, name, value) {
        if (!check_member(request, name, value, oob_allowed, errp)) {
            return false;
        }
    }
    return request->command || bad_input(errp, "lacks member 'execute'");
}

const char *qmp_error_class(const GError *error)
{
    if (g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_COMMAND_NOT_FOUND)) {
        return "CommandNotFound";
    }
    if (g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND)) {
        return "DeviceNotFound";
    }
    if (g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_ACTIVE)) {
        return "DeviceNotActive";
    }
    return "GenericError";
}

static json_t *add_id(json_t *reply, json_t *request)
{
    json_t *id = json_object_get(request, "id"); /* NULL if @request is no object */

    if (id) {
        json_object_set(reply, "id", id);
    }
    return reply;
}

json_t *qmp_reply_return(json_t *result, json_t *request)
{
    json_t *reply = json_object();

    json_object_set_new(reply, "return", result);
    return add_id(reply, request);
}

json_t *qmp_reply_error(const GError *error, json_t *request)
{
    json_t *body = json_object();
    json_t *reply = json_object();

    json_object_set_new(body, "class", json_string(qmp_error_class(error)));
    json_object_set_new(body, "desc", json_string_nocheck(error->message));
    json_object_set_new(reply, "error", body);
    return add_id(reply, request);
}
