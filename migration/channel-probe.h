/* SPDX-License-Identifier: BSD-2-Clause */
/* What is this new connection for?  Its first four bytes tell, without anybody waiting for them. */
#ifndef GODWIT_MIGRATION_CHANNEL_PROBE_H
#define GODWIT_MIGRATION_CHANNEL_PROBE_H

#include "io/channel.h"

/*
 * Watches a connection in the main loop until its first four bytes can be peeked at, or it ends before.
 * Never blocks, whatever the peer does or does not do.  Main thread.
 */
typedef struct ChannelProbe ChannelProbe;

/*
 * Called once.  @magic is the four bytes as a big-endian number; @error is not NULL
 * if the peer closed or broke the connection first.  The probe may be freed in it.
 */
typedef void (*ChannelProbeFunc)(ChannelProbe *probe, uint32_t magic, const GError *error, void *opaque);

/* @channel must have CHANNEL_FEATURE_PEEK and a descriptor to poll; the probe takes its own reference. */
ChannelProbe *channel_probe_new(Channel *channel, ChannelProbeFunc func, void *opaque);
void channel_probe_free(ChannelProbe *probe);   /* NULL is fine */
Channel *channel_probe_channel(ChannelProbe *probe);

#endif
