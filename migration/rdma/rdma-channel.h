/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: the stream's channel, as the sink, the source of pages and the listener see it. */
#ifndef GODWIT_MIGRATION_RDMA_CHANNEL_H
#define GODWIT_MIGRATION_RDMA_CHANNEL_H

#include "migration/rdma/rdma-connection.h"

/* The connection that the main stream and the pages use. */
RdmaConnection *rdma_channel_main(Channel *channel);

/* Destination: takes over @c, whose source is connected. */
Channel *rdma_channel_accepted(RdmaConnection *c);
/* Destination, main thread: the second connection has come; takes over @c. */
void rdma_channel_set_return_path(Channel *channel, RdmaConnection *c);

/* Source: while the hook is open nothing may be written to the stream. */
void rdma_channel_set_hook(Channel *channel, bool open);
/* Destination: stream bytes have come that nobody has read yet. */
bool rdma_channel_has_bytes(Channel *channel);

#endif
