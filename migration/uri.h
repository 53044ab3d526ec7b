/* SPDX-License-Identifier: BSD-2-Clause */
/* "tcp:HOST:PORT", "unix:PATH", ...: the text form of a MigrationAddress. */
#ifndef GODWIT_MIGRATION_URI_H
#define GODWIT_MIGRATION_URI_H

#include "qapi/qapi-types-migration.h"

/*
 *   tcp:HOST:PORT[,to=N][,ipv4[=on|off]][,ipv6[=on|off]][,keep-alive[=on|off]][,keep-alive-count=N]
 *                [,keep-alive-idle=SECONDS][,keep-alive-interval=SECONDS][,numeric][,mptcp[=on|off]]
 *   unix:PATH            everything after the colon is the path
 *   vsock:CID:PORT
 *   fd:NAME
 *   exec:COMMAND         run by /bin/sh -c
 *   file:PATH[,offset=N] N in bytes or with a suffix K, M, G, ...
 *   rdma:HOST:PORT
 *
 * The result is the caller's (qapi_free_MigrationAddress).
 */
MigrationAddress *migration_uri_parse(const char *uri, GError **errp);

#endif
