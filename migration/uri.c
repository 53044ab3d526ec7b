/* SPDX-License-Identifier: BSD-2-Clause */
/* "tcp:HOST:PORT", "unix:PATH", ...: the text form of a MigrationAddress. */
#include "migration/uri.h"

#include "util/error.h"
#include "util/size-text.h"

#include <errno.h>
#include <string.h>

typedef bool (*SchemeParser)(const char *rest, MigrationAddress *addr, GError **errp);

static bool parse_error(GError **errp, const char *text)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "error parsing address '%s'", text);
    return false;
}

static SocketAddress *set_socket(MigrationAddress *addr, SocketAddressType type)
{
    addr->transport = MIGRATION_ADDRESS_TYPE_SOCKET;
    addr->u.socket = g_new0(SocketAddress, 1);
    addr->u.socket->type = type;
    return addr->u.socket;
}

/* ---- HOST:PORT,option... ---- */

/* One option of a tcp: address: where its value goes. */
typedef struct InetOption {
    const char *name;
    enum { OPTION_BOOL, OPTION_U16, OPTION_U32 } type;
    size_t offset, has_offset;
} InetOption;

#define INET_OPTION(name, type, member) \
    { name, type, offsetof(InetSocketAddress, member), offsetof(InetSocketAddress, has_##member) }

static const InetOption inet_options[] = {
    INET_OPTION("to", OPTION_U16, to),
    INET_OPTION("ipv4", OPTION_BOOL, ipv4),
    INET_OPTION("ipv6", OPTION_BOOL, ipv6),
    INET_OPTION("numeric", OPTION_BOOL, numeric),
    INET_OPTION("keep-alive", OPTION_BOOL, keep_alive),
    INET_OPTION("keep-alive-count", OPTION_U32, keep_alive_count),
    INET_OPTION("keep-alive-idle", OPTION_U32, keep_alive_idle),
    INET_OPTION("keep-alive-interval", OPTION_U32, keep_alive_interval),
    INET_OPTION("mptcp", OPTION_BOOL, mptcp),
};

static const InetOption *find_inet_option(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(inet_options); i++) {
        if (strcmp(inet_options[i].name, name) == 0) {
            return &inet_options[i];
        }
    }
    return NULL;
}

static bool parse_on_off(const char *name, const char *value, bool *out, GError **errp)
{
    static const char *const yes[] = { "on", "yes", "true", "y", NULL };
    static const char *const no[] = { "off", "no", "false", "n", NULL };

    if (!value || g_strv_contains(yes, value)) {
        *out = true;
    } else if (g_strv_contains(no, value)) {
        *out = false;
    } else {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter '%s' expects 'on' or 'off'", name);
        return false;
    }
    return true;
}

static bool parse_number(const char *name, const char *value, uint64_t max, uint64_t *out, GError **errp)
{
    g_autoptr(GError) bad = NULL;
    if (!value || !g_ascii_string_to_unsigned(value, 10, 0, max, out, &bad)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter '%s' expects a number between 0 and %" G_GUINT64_FORMAT, name, max);
        return false;
    }
    return true;
}

static bool parse_inet_option(const char *text, InetSocketAddress *inet, GError **errp)
{
    const char *eq = strchr(text, '=');
    g_autofree char *name = eq ? g_strndup(text, (gsize)(eq - text)) : g_strdup(text);
    const InetOption *o = find_inet_option(name);
    if (!o) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Invalid parameter '%s'", name);
        return false;
    }

    const char *value = eq ? eq + 1 : NULL;
    char *member = (char *)inet + o->offset;
    uint64_t number = 0;
    bool ok = o->type == OPTION_BOOL
        ? parse_on_off(name, value, (bool *)member, errp)
        : parse_number(name, value, o->type == OPTION_U16 ? UINT16_MAX : INT32_MAX, &number, errp);
    if (o->type == OPTION_U16) {
        *(uint16_t *)member = (uint16_t)number;
    } else if (o->type == OPTION_U32) {
        *(uint32_t *)member = (uint32_t)number;
    }
    *(bool *)((char *)inet + o->has_offset) = true;
    return ok;
}

/* Splits "[v6]:PORT,..." or "HOST:PORT,..."; returns what follows the port, or NULL. */
static const char *parse_host_port(const char *text, char **host, char **port, GError **errp)
{
    const char *colon;
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (!close || close[1] != ':') {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "error parsing IPv6 address '%s'", text);
            return NULL;
        }
        *host = g_strndup(text + 1, (gsize)(close - text - 1));
        colon = close + 1;
    } else {
        colon = text + strcspn(text, ":,");
        if (*colon != ':') {
            parse_error(errp, text);
            return NULL;
        }
        *host = g_strndup(text, (gsize)(colon - text));
    }
    size_t len = strcspn(colon + 1, ",");
    if (len == 0 || memchr(colon + 1, ':', len)) {
        parse_error(errp, text);
        return NULL;
    }
    *port = g_strndup(colon + 1, len);
    return colon + 1 + len;
}

static bool parse_inet(const char *text, InetSocketAddress *inet, GError **errp)
{
    const char *options = parse_host_port(text, &inet->host, &inet->port, errp);
    if (!options) {
        return false;
    }
    if (*options == '\0') {
        return true;
    }
    g_auto(GStrv) list = g_strsplit(options + 1, ",", -1);
    for (char **o = list; *o; o++) {
        if (!parse_inet_option(*o, inet, errp)) {
            return false;
        }
    }
    return true;
}

static bool parse_tcp(const char *rest, MigrationAddress *addr, GError **errp)
{
    SocketAddress *socket = set_socket(addr, SOCKET_ADDRESS_TYPE_INET);
    socket->u.inet = g_new0(InetSocketAddress, 1);
    return parse_inet(rest, socket->u.inet, errp);
}

static bool parse_rdma(const char *rest, MigrationAddress *addr, GError **errp)
{
    addr->transport = MIGRATION_ADDRESS_TYPE_RDMA;
    addr->u.rdma = g_new0(InetSocketAddress, 1);
    return parse_inet(rest, addr->u.rdma, errp);
}

/* ---- the others ---- */

static bool parse_unix(const char *rest, MigrationAddress *addr, GError **errp)
{
    if (*rest == '\0') {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "invalid Unix socket address");
        return false;
    }
    SocketAddress *socket = set_socket(addr, SOCKET_ADDRESS_TYPE_UNIX);
    socket->u.q_unix = g_new0(UnixSocketAddress, 1);
    socket->u.q_unix->path = g_strdup(rest);
    return true;
}

static bool parse_vsock(const char *rest, MigrationAddress *addr, GError **errp)
{
    SocketAddress *socket = set_socket(addr, SOCKET_ADDRESS_TYPE_VSOCK);
    const char *colon = strchr(rest, ':');

    socket->u.vsock = g_new0(VsockSocketAddress, 1);
    if (!colon || colon == rest || colon[1] == '\0' || strchr(colon + 1, ':')) {
        return parse_error(errp, rest);
    }
    socket->u.vsock->cid = g_strndup(rest, (gsize)(colon - rest));
    socket->u.vsock->port = g_strdup(colon + 1);
    return true;
}

static bool parse_fd(const char *rest, MigrationAddress *addr, GError **errp)
{
    if (*rest == '\0') {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "invalid file descriptor address");
        return false;
    }
    SocketAddress *socket = set_socket(addr, SOCKET_ADDRESS_TYPE_FD);
    socket->u.fd = g_new0(FdSocketAddress, 1);
    socket->u.fd->str = g_strdup(rest);
    return true;
}

static bool parse_exec(const char *rest, MigrationAddress *addr, GError **errp)
{
    static const char *const shell[] = { "/bin/sh", "-c" };

    addr->transport = MIGRATION_ADDRESS_TYPE_EXEC;
    addr->u.exec = g_new0(MigrationExecCommand, 1);
    strList *args = g_new0(strList, 1);
    args->count = G_N_ELEMENTS(shell) + 1;
    args->items = g_new0(char *, args->count);
    for (size_t i = 0; i < G_N_ELEMENTS(shell); i++) {
        args->items[i] = g_strdup(shell[i]);
    }
    args->items[G_N_ELEMENTS(shell)] = g_strdup(rest);
    addr->u.exec->args = args;
    return true;
}

/* A size that can be an offset in a file.  An errno, or 0. */
static int parse_size(const char *text, uint64_t *out)
{
    switch (size_text_parse(text, 1, out)) {
    case NUMBER_TEXT_OK:
        return *out > INT64_MAX ? ERANGE : 0;
    case NUMBER_TEXT_OUT_OF_RANGE:
        return ERANGE;
    default:
        return EINVAL;
    }
}

static bool parse_file(const char *rest, MigrationAddress *addr, GError **errp)
{
    static const char key[] = ",offset=";
    const char *option = strstr(rest, key);     /* the first: no path can contain it */

    addr->transport = MIGRATION_ADDRESS_TYPE_FILE;
    addr->u.file = g_new0(FileMigrationArgs, 1);
    addr->u.file->filename = option ? g_strndup(rest, (gsize)(option - rest)) : g_strdup(rest);
    if (!option) {
        return true;
    }
    const char *value = option + strlen(key);
    uint64_t offset = 0;
    int err = parse_size(value, &offset);
    if (err) {
        error_set_errno(errp, GODWIT_ERROR_INVALID, err, "file URI has bad offset %s", value);
        return false;
    }
    addr->u.file->offset = offset;
    return true;
}

static const struct {
    const char *prefix;
    SchemeParser parse;
} schemes[] = {
    { "tcp:", parse_tcp },
    { "unix:", parse_unix },
    { "vsock:", parse_vsock },
    { "fd:", parse_fd },
    { "exec:", parse_exec },
    { "file:", parse_file },
    { "rdma:", parse_rdma },
};

MigrationAddress *migration_uri_parse(const char *uri, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(schemes); i++) {
        if (!g_str_has_prefix(uri, schemes[i].prefix)) {
            continue;
        }
        g_autoptr(MigrationAddress) addr = g_new0(MigrationAddress, 1);
        if (!schemes[i].parse(uri + strlen(schemes[i].prefix), addr, errp)) {
            return NULL;
        }
        return g_steal_pointer(&addr);
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "unknown migration protocol: %s", uri);
    return NULL;
}
