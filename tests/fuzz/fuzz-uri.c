/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: the URI of a migration; what is accepted and written back means the same again. */
#include "io/transport.h"
#include "migration/uri.h"
#include "util/error.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inet(const InetSocketAddress *a, const InetSocketAddress *b)
{
    g_assert_cmpstr(a->host, ==, b->host);
    g_assert_cmpstr(a->port, ==, b->port);
}

/* Options are not part of the text. */
static void check_same(const SocketAddress *a, const SocketAddress *b)
{
    g_assert_cmpint(a->type, ==, b->type);
    switch (a->type) {
    case SOCKET_ADDRESS_TYPE_INET:
        check_inet(a->u.inet, b->u.inet);
        break;
    case SOCKET_ADDRESS_TYPE_UNIX:
        g_assert_cmpstr(a->u.q_unix->path, ==, b->u.q_unix->path);
        break;
    case SOCKET_ADDRESS_TYPE_VSOCK:
        g_assert_cmpstr(a->u.vsock->cid, ==, b->u.vsock->cid);
        g_assert_cmpstr(a->u.vsock->port, ==, b->u.vsock->port);
        break;
    default:
        g_assert_cmpstr(a->u.fd->str, ==, b->u.fd->str);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autofree char *uri = g_strndup((const char *)data, size);
    g_autoptr(GError) error = NULL;
    g_autoptr(MigrationAddress) addr = migration_uri_parse(uri, &error);

    g_assert_true(!addr == !!error);
    if (error) {
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
        return 0;
    }
    g_autoptr(MigrationAddress) copy = qapi_clone_MigrationAddress(addr);
    g_assert_cmpint(copy->transport, ==, addr->transport);
    if (addr->transport == MIGRATION_ADDRESS_TYPE_SOCKET) {
        g_autofree char *text = socket_address_to_string(addr->u.socket);
        g_autoptr(MigrationAddress) again = migration_uri_parse(text, NULL);

        g_assert_nonnull(again);
        check_same(addr->u.socket, again->u.socket);
    }
    return 0;
}
