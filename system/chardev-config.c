/* SPDX-License-Identifier: BSD-2-Clause */
/* Character devices as text: the short form of -qmp and -monitor, and the long one of -chardev. */

/*
 * The short form is turned into the long form's list of options; one function then
 * makes a ChardevConfig of either.  Bytes come from the command line only, but the parser is fuzzed all the
 * same.
 */
#include "chardev-internal.h"

#include "system/keyval.h"
#include "util/error.h"

#include <string.h>

/* Every option of every type: an unknown one is refused, one that this type has no use for is ignored. */
static const char *const known_options[] = {
    "id",           "backend",   "path",      "host",       "port",   "fd",      "to",        "ipv4",
    "ipv6",         "abstract",  "tight",     "server",     "wait",   "telnet",  "nodelay",   "keep-alive",
    "reconnect-ms", "reconnect", "append",    "input-path", "signal", "logfile", "logappend", "mux",
    "websocket",    "tn3270",    "tls-creds", "tls-authz",  NULL,
};

/* Options of the peers that ask for something which does not exist here. */
static const char *const unsupported_options[] = {"websocket", "tn3270", "mux"};

/* Types of the peers that do not exist here. */
static const char *const unsupported_types[] = {
    "ringbuf", "memory",       "serial",  "parallel", "mux",     "hub",
    "udp",     "qemu-vdagent", "msmouse", "wctablet", "testdev", NULL,
};

/* Other names. */
static const struct {
    const char *name, *type;
} type_aliases[] = {
    {"vc", "null"}, /* a virtual console without a display to show it */
    {"tty", "serial"},
    {"parport", "parallel"},
};

/* What a type needs, and the words when it is not there. */
static const struct {
    const char *type;
    const char *missing;
} needs_path[] = {
    {"file", "chardev: file: no filename given"},
    {"pipe", "chardev: pipe: no device path given"},
};

const char *const *chardev_option_names(void)
{
    return known_options;
}

void chardev_config_free(ChardevConfig *config)
{
    if (config) {
        g_free(config->type);
        g_free(config->path);
        g_free(config->input_path);
        g_free(config->host);
        g_free(config->port);
        g_free(config->log_file);
        g_free(config);
    }
}

static bool refuse(GError **errp, const char *format, const char *arg) G_GNUC_PRINTF(2, 0);
static bool refuse(GError **errp, const char *format, const char *arg)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, format, arg);
    return false;
}

/* Like refuse(), for what is understood but cannot be had. */
static bool fail(GError **errp, const char *format, const char *arg) G_GNUC_PRINTF(2, 0);
static bool fail(GError **errp, const char *format, const char *arg)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, format, arg);
    return false;
}

static bool resolve_type(ChardevConfig *c, const char *name, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(type_aliases); i++) {
        if (strcmp(name, type_aliases[i].name) == 0) {
            name = type_aliases[i].type;
        }
    }
    if (g_strv_contains(unsupported_types, name)) {
        return fail(errp, "character device type '%s' is not supported", name);
    }
    if (!g_strv_contains(chardev_type_names(), name)) {
        return fail(errp, "'%s' is not a valid char driver name", name);
    }
    c->type = g_strdup(name);
    return true;
}

/* ---- one list of options becomes a ChardevConfig ---- */

static bool take_flags(ChardevConfig *c, const KeyVal *kv, GError **errp)
{
    struct {
        const char *key;
        bool *value;
        bool fallback;
    } flags[] = {
        {"server", &c->server, false},   {"telnet", &c->telnet, false},
        {"nodelay", &c->nodelay, false}, {"abstract", &c->abstract, false},
        {"tight", &c->tight, true},      {"append", &c->append, false},
        {"signal", &c->signal, true},    {"logappend", &c->log_append, false},
        {"wait", &c->wait, false},       {"keep-alive", &c->keep_alive, false},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(flags); i++) {
        *flags[i].value = flags[i].fallback;
        if (!keyval_get_bool(kv, flags[i].key, flags[i].value, errp)) {
            return false;
        }
    }
    if (c->server && !keyval_get(kv, "wait")) {
        c->wait = true;
    }
    return true;
}

/* Which address families; naming one as on excludes the other. */
static bool take_families(ChardevConfig *c, const KeyVal *kv, GError **errp)
{
    const char *has4 = keyval_get(kv, "ipv4"), *has6 = keyval_get(kv, "ipv6");
    bool v4 = false, v6 = false;

    if (!keyval_get_bool(kv, "ipv4", &v4, errp) || !keyval_get_bool(kv, "ipv6", &v6, errp)) {
        return false;
    }
    c->ipv4 = has4 ? v4 : !(has6 && v6);
    c->ipv6 = has6 ? v6 : !(has4 && v4);
    return true;
}

static bool take_numbers(ChardevConfig *c, const KeyVal *kv, GError **errp)
{
    uint64_t to = 0, seconds = 0, ms = 0;

    if (!keyval_get_uint(kv, "to", UINT16_MAX, &to, errp) ||
        !keyval_get_uint(kv, "reconnect", G_MAXINT / 1000, &seconds, errp) ||
        !keyval_get_uint(kv, "reconnect-ms", G_MAXINT, &ms, errp)) {
        return false;
    }
    c->to = (uint16_t)to;
    c->reconnect_ms = (int64_t)(ms ? ms : seconds * 1000);
    return true;
}

static bool take_unsupported(const KeyVal *kv, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(unsupported_options); i++) {
        bool on = false;

        if (!keyval_get_bool(kv, unsupported_options[i], &on, errp)) {
            return false;
        }
        if (on) {
            return fail(errp, "option '%s' of character devices is not supported", unsupported_options[i]);
        }
    }
    if (keyval_get(kv, "tls-creds") || keyval_get(kv, "tls-authz")) {
        return fail(errp, "option '%s' of character devices is not supported", "tls-creds");
    }
    return true;
}

static bool take_fd(ChardevConfig *c, const KeyVal *kv, GError **errp)
{
    const char *text = keyval_get(kv, "fd");
    uint64_t fd = 0;

    if (!text) {
        return true;
    }
    if (!keyval_parse_uint("fd", text, G_MAXINT, &fd, NULL)) {
        return fail(errp, "Unable to parse FD number %s", text);
    }
    c->fd = (int)fd;
    return true;
}

/* What contradicts itself. */
static bool check_socket(const ChardevConfig *c, const KeyVal *kv, GError **errp)
{
    int ways = (c->path != NULL) + (c->host != NULL) + (keyval_get(kv, "fd") != NULL);

    if (ways > 1) {
        return fail(errp, "%s", "None or one of 'path', 'fd' or 'host' option required.");
    }
    if (ways == 0 || (c->path && !c->path[0])) {
        return fail(errp, "Unable to parse FD number %s", "");
    }
    if (c->host && (!c->port || !c->port[0])) {
        return fail(errp, "%s", "chardev: socket: no port given");
    }
    if (!c->server && keyval_get(kv, "wait")) {
        return fail(errp, "%s", "'wait' option is incompatible with socket in client connect mode");
    }
    if (c->server && c->reconnect_ms) {
        return fail(errp, "'%s' option is incompatible with socket in server listen mode",
                    keyval_get(kv, "reconnect-ms") ? "reconnect-ms" : "reconnect");
    }
    if (c->reconnect_ms && c->fd >= 0) {
        return fail(errp, "'%s' option is incompatible with 'fd'", "reconnect-ms");
    }
    return true;
}

static bool check_type(const ChardevConfig *c, const KeyVal *kv, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(needs_path); i++) {
        if (strcmp(c->type, needs_path[i].type) == 0 && (!c->path || !c->path[0])) {
            return fail(errp, "%s", needs_path[i].missing);
        }
    }
    return strcmp(c->type, "socket") != 0 || check_socket(c, kv, errp);
}

static ChardevConfig *config_from_options(const char *type, const KeyVal *kv, GError **errp)
{
    g_autoptr(ChardevConfig) c = g_new0(ChardevConfig, 1);

    c->fd = -1;
    c->path = g_strdup(keyval_get(kv, "path"));
    c->host = g_strdup(keyval_get(kv, "host"));
    c->port = g_strdup(keyval_get(kv, "port"));
    c->input_path = g_strdup(keyval_get(kv, "input-path"));
    c->log_file = g_strdup(keyval_get(kv, "logfile"));
    if (!resolve_type(c, type, errp) || !keyval_check_keys(kv, known_options, errp) ||
        !take_flags(c, kv, errp) || !take_families(c, kv, errp) || !take_numbers(c, kv, errp) ||
        !take_unsupported(kv, errp) || !take_fd(c, kv, errp) || !check_type(c, kv, errp)) {
        return NULL;
    }
    return g_steal_pointer(&c);
}

ChardevConfig *chardev_config_parse_options(const char *options, char **id, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(options, "backend", KEYVAL_OPTS, errp);

    if (!kv) {
        return NULL;
    }
    const char *name = keyval_get(kv, "id"), *type = keyval_get(kv, "backend");
    if (!name) {
        fail(errp, "%s", "chardev: no id specified");
        return NULL;
    }
    if (!keyval_check_id(name, errp)) {
        return NULL;
    }
    ChardevConfig *config = config_from_options(type ? type : "", kv, errp);
    if (config) {
        *id = g_strdup(name);
    }
    return config;
}

/* ---- the short form ---- */

/* How "WORD:REST" becomes options. */
static const struct {
    const char *word;
    const char *type;
    const char *key;   /* of what follows the colon; NULL: nothing may follow; "host": HOST:PORT */
    const char *extra; /* more options, or "" */
} short_forms[] = {
    {"null", "null", NULL, ""},     {"vc", "null", NULL, ""},
    {"stdio", "stdio", NULL, ""},   {"pty", "pty", NULL, ""},
    {"pty:", "pty", "path", ""},    {"file:", "file", "path", ""},
    {"pipe:", "pipe", "path", ""},  {"unix:", "socket", "path", ""},
    {"tcp:", "socket", "host", ""}, {"telnet:", "socket", "host", ",telnet=on"},
};

/* "HOST:PORT,..." or "[HOST]:PORT,..." as "host=HOST,port=PORT,...". */
static char *split_host_port(const char *rest, GError **errp)
{
    bool bracket = rest[0] == '[';
    const char *end = strpbrk(rest, bracket ? "]," : ":,");
    const char *colon = end && bracket && *end == ']' ? end + 1 : end;

    if (!colon || *colon != ':' || colon[1] == '\0' || colon[1] == ',') {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "error parsing address '%s'", rest);
        return NULL;
    }
    const char *host = rest + (bracket ? 1 : 0);
    return g_strdup_printf("host=%.*s,port=%s", (int)(end - host), host, colon + 1);
}

static char *expand_short_form(const char *rest, const char *key, const char *extra, GError **errp)
{
    if (!key) {
        return g_strdup(rest[0] == ',' ? rest + 1 : rest);
    }
    if (strcmp(key, "host") != 0) {
        return g_strdup_printf("%s=%s%s", key, rest, extra);
    }
    g_autofree char *address = split_host_port(rest, errp);
    return address ? g_strconcat(address, extra, NULL) : NULL;
}

/* Whether @spec is an instance of short form @i. */
static bool short_form_matches(size_t i, const char *spec)
{
    size_t len = strlen(short_forms[i].word);

    return strncmp(spec, short_forms[i].word, len) == 0 &&
           (short_forms[i].key || spec[len] == '\0' || spec[len] == ',');
}

ChardevConfig *chardev_config_parse_spec(const char *spec, GError **errp)
{
    const char *body = g_str_has_prefix(spec, "mon:") ? spec + strlen("mon:") : spec;

    for (size_t i = 0; i < G_N_ELEMENTS(short_forms); i++) {
        if (!short_form_matches(i, body)) {
            continue;
        }
        g_autofree char *options = expand_short_form(body + strlen(short_forms[i].word), short_forms[i].key,
                                                     short_forms[i].extra, errp);
        if (!options) {
            return NULL;
        }
        g_autoptr(KeyVal) kv = keyval_parse(options, NULL, KEYVAL_OPTS, errp);
        return kv ? config_from_options(short_forms[i].type, kv, errp) : NULL;
    }
    refuse(errp, "'%s' is not a valid char driver", spec);
    return NULL;
}
