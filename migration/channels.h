/* SPDX-License-Identifier: BSD-2-Clause */
/* From a URI or a channel list to open channels and listeners. */
#ifndef GODWIT_MIGRATION_CHANNELS_H
#define GODWIT_MIGRATION_CHANNELS_H

#include "io/transport.h"
#include "migration/host.h"
#include "migration/internal-options.h"

/*
 * The address of the main channel in a `migrate` or `migrate-incoming` request, of which
 * exactly one of @uri and @channels must be there.  The result is the caller's.
 */
MigrationAddress *migration_main_address(const char *uri, const MigrationChannelList *channels,
                                         GError **errp);

/* Refuses capabilities that this kind of transport cannot have with the memory of @ram. */
bool migration_check_transport(const MigrationAddress *addr, const MigrationOptions *options,
                               const RamList *ram, GError **errp);

/* The name of the channel that carries the stream, at both ends. */
#define MIGRATION_MAIN_CHANNEL "migration-main"

/* The name of a block that x-ignore-shared would leave out, NULL: there is none. */
const char *migration_first_shared_block(const RamList *ram);

/* Does @filename name a set of descriptors, and which? */
bool migration_is_fdset(const char *filename, int64_t *id);

/*
 * Source.  Opens what opens at once: a file (created, positioned at the offset; migration_truncate_file() is
 * still to come), a named descriptor, a command (whose output nobody reads without @return_path).  *@channel
 * stays NULL if the address is a socket that must be connected, which blocks.  Main thread.
 */
bool migration_open_outgoing(const MigrationHost *host, const MigrationAddress *addr, bool return_path,
                             Channel **channel, GError **errp);

/*
 * Source, migration thread.  Cuts the file of @channel at @offset: bytes before it belong to somebody else,
 * stale ones after it must not outlive the stream.
 */
bool migration_truncate_file(Channel *channel, uint64_t offset, GError **errp);

/* Destination.  Sets either *@channel or, for sockets, *@listener (not started).  Main thread. */
bool migration_open_incoming(const MigrationHost *host, const MigrationAddress *addr, Channel **channel,
                             Listener **listener, GError **errp);

#endif
