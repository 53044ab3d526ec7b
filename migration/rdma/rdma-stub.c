/* SPDX-License-Identifier: BSD-2-Clause */
/* What migration/rdma.h offers in a build without rdma-core. */
#include "migration/rdma.h"

#include "util/error.h"

static bool refuse(GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "RDMA ERROR: RDMA was not built in");
    return false;
}

bool rdma_available(GError **errp)
{
    return refuse(errp);
}

Channel *rdma_channel_new(const RdmaSourceConfig *config, GError **errp)
{
    refuse(errp);
    return NULL;
}

bool rdma_channel_connect(Channel *channel, GCancellable *cancellable, GError **errp)
{
    return refuse(errp);
}

RamSink *rdma_sink_new(RamSave *save, Channel *channel, GError **errp)
{
    refuse(errp);
    return NULL;
}

RdmaListener *rdma_listener_new(const InetSocketAddress *address, GError **errp)
{
    refuse(errp);
    return NULL;
}

void rdma_listener_start(RdmaListener *listener, MigrationOptionStore *options, RdmaListenerFunc func,
                         void (*log)(const char *message, void *opaque), void *opaque)
{
}

const SocketAddressList *rdma_listener_addresses(const RdmaListener *listener)
{
    return NULL;
}

void rdma_listener_free(RdmaListener *listener)
{
}

RamSource *rdma_source_new(Channel *channel, RamList *ram, const MigrationOptions *options)
{
    return NULL;
}
