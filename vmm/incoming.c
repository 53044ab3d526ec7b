/* SPDX-License-Identifier: BSD-2-Clause */
/* -incoming: a URI, a channel as JSON, or a channel as dotted keys. */
#include "vm.h"

#include "qapi/qapi-visit-migration.h"
#include "report.h"
#include "system/keyval.h"
#include "util/error.h"

#include <jansson.h>
#include <string.h>

/* Parts of a dotted key, "addr.args.0". */
#define MAX_KEY_DEPTH 8u
/* Words of an exec channel. */
#define MAX_LIST_LENGTH 256u

/* ---- dotted keys ---- */

/* Members that are not strings; every key's last part that is not here is one. */
static const struct {
    const char *name;
    enum { LEAF_BOOL, LEAF_NUMBER, LEAF_SIZE } type;
} typed_leaves[] = {
    {"offset", LEAF_SIZE},
    {"to", LEAF_NUMBER},
    {"keep-alive-count", LEAF_NUMBER},
    {"keep-alive-idle", LEAF_NUMBER},
    {"keep-alive-interval", LEAF_NUMBER},
    {"numeric", LEAF_BOOL},
    {"ipv4", LEAF_BOOL},
    {"ipv6", LEAF_BOOL},
    {"keep-alive", LEAF_BOOL},
    {"mptcp", LEAF_BOOL},
    {"abstract", LEAF_BOOL},
    {"tight", LEAF_BOOL},
};

/* @text as what the member @name holds; a new reference. */
static json_t *leaf_value(const char *name, const char *key, const char *text, GError **errp)
{
    bool flag = false;
    uint64_t number = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(typed_leaves); i++) {
        if (strcmp(typed_leaves[i].name, name) != 0) {
            continue;
        }
        switch (typed_leaves[i].type) {
        case LEAF_BOOL:
            return keyval_parse_bool(key, text, &flag, errp) ? json_boolean(flag) : NULL;
        case LEAF_NUMBER:
            return keyval_parse_uint(key, text, UINT32_MAX, &number, errp) ? json_integer((json_int_t)number)
                                                                           : NULL;
        case LEAF_SIZE:
        default:
            return keyval_parse_size(key, text, 1, &number, errp) ? json_integer((json_int_t)number) : NULL;
        }
    }
    return json_string(text);
}

static bool is_index(const char *part, uint64_t *index)
{
    return g_ascii_string_to_unsigned(part, 10, 0, MAX_LIST_LENGTH - 1, index, NULL);
}

/* The container @part of @parent, made if need be; an array if @next is a number.  NULL: clash. */
static json_t *descend(json_t *parent, const char *part, const char *next)
{
    uint64_t index;
    json_t *child = json_object_get(parent, part);

    if (!child) {
        child = is_index(next, &index) ? json_array() : json_object();
        json_object_set_new(parent, part, child);
    }
    return json_is_object(child) || json_is_array(child) ? child : NULL;
}

/* Puts @value (taken over) under @part of @parent. */
static bool place(json_t *parent, const char *part, json_t *value)
{
    uint64_t index;

    if (json_is_array(parent)) {
        return is_index(part, &index) && index == json_array_size(parent) &&
               json_array_append_new(parent, value) == 0;
    }
    return json_object_set_new(parent, part, value) == 0;
}

static bool add_dotted(json_t *root, const KeyValPair *pair, GError **errp)
{
    g_auto(GStrv) parts = g_strsplit(pair->key, ".", -1);
    guint n = g_strv_length(parts);
    json_t *at = root;

    for (guint i = 0; at && i + 1 < MIN(n, MAX_KEY_DEPTH); i++) {
        at = json_is_object(at) ? descend(at, parts[i], parts[i + 1]) : NULL;
    }
    json_t *value =
        at && n > 0 && n <= MAX_KEY_DEPTH ? leaf_value(parts[n - 1], pair->key, pair->value, errp) : NULL;
    if (errp && *errp) {
        return false;
    }
    if (!value || !place(at, parts[n - 1], value)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Invalid parameter '%s'", pair->key);
        return false;
    }
    return true;
}

static json_t *channel_from_keys(const char *text, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(text, "channel-type", KEYVAL_STRICT, errp);
    g_autoptr(GError) err = NULL;

    if (!kv) {
        return NULL;
    }
    json_t *root = json_object();
    for (unsigned i = 0; i < kv->pairs->len; i++) {
        if (!add_dotted(root, &g_array_index(kv->pairs, KeyValPair, i), &err)) {
            g_propagate_error(errp, g_steal_pointer(&err));
            json_decref(root);
            return NULL;
        }
    }
    return root;
}

static json_t *channel_from_json(const char *text, GError **errp)
{
    json_error_t why;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &why);

    if (!json) {
        bool cut = json_error_code(&why) == json_error_premature_end_of_input;

        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "%d:%d: JSON parse error, %s", why.line,
                    why.column + (cut ? 1 : 0), cut ? "premature end of input" : why.text);
    }
    return json;
}

/* ---- which form it is ---- */

static bool is_channel(const char *text)
{
    return text[0] == '{' || g_str_has_prefix(text, "channel-type=") || g_str_has_prefix(text, "addr.") ||
           !strchr(text, ':');
}

static MigrationChannel *parse_channel(const char *text, GError **errp)
{
    json_t *json = text[0] == '{' ? channel_from_json(text, errp) : channel_from_keys(text, errp);
    MigrationChannel *channel = NULL;

    if (json) {
        qapi_MigrationChannel_from_json(json, "", &channel, errp);
        json_decref(json);
    }
    return channel;
}

bool vm_expects_incoming(const VmConfig *config)
{
    return config->incoming->len > 0;
}

static bool start_channel(Vm *vm, const char *text, GError **errp)
{
    g_autoptr(MigrationChannel) channel = parse_channel(text, errp);
    MigrationChannelList list = {.count = 1, .items = &channel};

    return channel && migration_incoming_start(vm->migration, NULL, &list, true, errp);
}

/* No client can have handed over a named descriptor yet: fd: is a number here. */
static bool check_fd_number(const char *uri, GError **errp)
{
    const char *name = g_str_has_prefix(uri, "fd:") ? uri + strlen("fd:") : NULL;
    uint64_t number;

    if (!name || !name[0] || g_ascii_string_to_unsigned(name, 10, 0, G_MAXINT, &number, NULL)) {
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Invalid file descriptor number '%s'", name);
    return false;
}

static bool start_uri(Vm *vm, const char *uri, GError **errp)
{
    return check_fd_number(uri, errp) && migration_incoming_start(vm->migration, uri, NULL, true, errp);
}

bool vm_start_incoming(Vm *vm)
{
    GPtrArray *given = vm->config->incoming;
    const ConfigText *last = given->len > 0 ? g_ptr_array_index(given, given->len - 1) : NULL;
    g_autoptr(GError) err = NULL;

    if (!last || strcmp(last->text, "defer") == 0) {
        return true;
    }
    bool ok = is_channel(last->text) ? start_channel(vm, last->text, &err) : start_uri(vm, last->text, &err);
    if (!ok) {
        report_error(last->location, err);
    }
    return ok;
}
