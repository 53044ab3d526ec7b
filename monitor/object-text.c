/* SPDX-License-Identifier: BSD-2-Clause */
/* The text of -object and of HMP's object_add: JSON is read here, a key=value list by system/. */
#include "monitor/object-text.h"

#include "json-parser.h"
#include "qapi/qapi-visit-qom.h"
#include "system/keyval.h"
#include "util/error.h"

#include <string.h>

/* The place is where the next byte would be. */
static void refuse_end(GError **errp, const char *text)
{
    const char *line = text;
    unsigned lines = 1;

    for (const char *feed; (feed = strchr(line, '\n')); lines++) {
        line = feed + 1;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                "%u:%zu: JSON parse error, premature end of input", lines, strlen(line) + 1);
}

/* Exactly one value, and nothing but white space after it. */
static json_t *parse_one(const char *text, GError **errp)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    g_autoptr(GError) err = NULL;
    const char *whole = text;
    size_t len = strlen(text);
    json_t *value = NULL;

    switch (json_parser_next(parser, &text, &len, &value, &err)) {
    case JSON_PARSER_VALUE:
        if (text[strspn(text, " \t\r\n")]) {
            json_decref(value);
            error_set_invalid(errp, "Expecting at most one JSON value");
            return NULL;
        }
        return value;
    case JSON_PARSER_ERROR:
        error_set_invalid(errp, "%s", err->message);
        return NULL;
    default:
        refuse_end(errp, whole);
        return NULL;
    }
}

static ObjectOptions *parse_json(const char *text, GError **errp)
{
    g_autoptr(ObjectOptions) options = NULL;
    json_t *json = parse_one(text, errp);

    if (!json) {
        return NULL;
    }
    bool ok = qapi_ObjectOptions_from_json(json, "", &options, errp);
    json_decref(json);
    if (!ok || !keyval_check_id(options->id, errp)) {
        return NULL;
    }
    return g_steal_pointer(&options);
}

MemoryBackend *object_add_text(MemoryBackendSet *set, const char *text, GError **errp)
{
    if (text[0] != '{') {
        return memory_backend_add_text(set, text, errp);
    }
    g_autoptr(ObjectOptions) options = parse_json(text, errp);
    if (!options) {
        return NULL;
    }
    if (memory_backend_find(set, options->id)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Duplicate ID '%s' for object", options->id);
        return NULL;
    }
    return memory_backend_add(set, options, errp);
}
