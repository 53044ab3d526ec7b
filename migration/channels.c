/* SPDX-License-Identifier: BSD-2-Clause */
/* From a URI or a channel list to open channels and listeners. */
#include "migration/channels.h"

#include "migration/migration.h"
#include "migration/rdma.h"
#include "migration/uri.h"
#include "util/error.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pending connections in the kernel; the peers ask for no more than main, 255 multifd and one preempt. */
#define LISTEN_BACKLOG 257

#define NOT_SEEKABLE "Migration requires seekable transport (e.g. file)"

#define FDSET_PREFIX "/dev/fdset/"

/* ---- addresses ---- */

static bool refuse_argument(GError **errp, const char *text)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "%s", text);
    return false;
}

/* What the schema cannot say about an address. */
static bool check_address(const MigrationAddress *addr, GError **errp)
{
    if (addr->transport == MIGRATION_ADDRESS_TYPE_EXEC &&
        (!addr->u.exec->args || addr->u.exec->args->count == 0)) {
        return refuse_argument(errp, "The list of arguments of an exec channel is empty");
    }
    if (addr->transport == MIGRATION_ADDRESS_TYPE_FILE && addr->u.file->offset > INT64_MAX) {
        return refuse_argument(errp, "The offset of a file channel is above 2^63 - 1");
    }
    return true;
}

static const MigrationAddress *find_main(const MigrationChannelList *channels, GError **errp)
{
    const MigrationAddress *found = NULL;

    for (size_t i = 0; i < channels->count; i++) {
        if (channels->items[i]->channel_type != MIGRATION_CHANNEL_TYPE_MAIN) {
            continue;
        }
        if (found) {
            refuse_argument(errp, "Channel list has more than one main entry");
            return NULL;
        }
        found = channels->items[i]->addr;
    }
    if (!found) {
        refuse_argument(errp, "Channel list has no main entry");
    }
    return found;
}

MigrationAddress *migration_main_address(const char *uri, const MigrationChannelList *channels, GError **errp)
{
    bool has_channels = channels && channels->count > 0;
    if ((uri != NULL) == has_channels) {
        refuse_argument(errp, "need either 'uri' or 'channels' argument");
        return NULL;
    }
    if (uri) {
        return migration_uri_parse(uri, errp);
    }
    const MigrationAddress *addr = find_main(channels, errp);
    if (!addr || !check_address(addr, errp)) {
        return NULL;
    }
    return qapi_clone_MigrationAddress(addr);
}

static bool is_multi_channel(const MigrationAddress *addr)
{
    return addr->transport == MIGRATION_ADDRESS_TYPE_SOCKET &&
           addr->u.socket->type != SOCKET_ADDRESS_TYPE_FD;
}

const char *migration_first_shared_block(const RamList *ram)
{
    RAMLIST_FOREACH(block, ram) {
        if (block->shared) {
            return block->idstr;
        }
    }
    return NULL;
}

bool migration_check_transport(const MigrationAddress *addr, const MigrationOptions *options,
                               const RamList *ram, GError **errp)
{
    const bool *caps = options->caps;
    bool is_file = addr->transport == MIGRATION_ADDRESS_TYPE_FILE;
    bool is_rdma = addr->transport == MIGRATION_ADDRESS_TYPE_RDMA;
    bool several = caps[MIGRATION_CAPABILITY_MULTIFD] || caps[MIGRATION_CAPABILITY_POSTCOPY_PREEMPT];
    const char *text = NULL;

    if (is_rdma) {
        return migration_check_rdma(caps, &options->p, migration_first_shared_block(ram), errp);
    }
    if (caps[MIGRATION_CAPABILITY_MAPPED_RAM] && !is_file) {
        text = NOT_SEEKABLE;
    } else if (several && !is_multi_channel(addr) && !(is_file && caps[MIGRATION_CAPABILITY_MAPPED_RAM])) {
        text = "Migration requires multi-channel URIs (e.g. tcp)";
    }
    if (text) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "%s", text);
    }
    return !text;
}

/* ---- descriptors ---- */

/*
 * A stream that has a position is a file, which fd: does not take; neither does it a number that is not open.
 */
static Channel *adopt_fd(int fd, GError **errp)
{
    if (!channel_fd_is_stream(fd)) {
        close(fd);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "fd: migration to a file is not supported. Use file: instead.");
        return NULL;
    }
    return channel_from_fd(fd, errp);
}

static Channel *open_named_fd(const MigrationHost *host, const char *name, bool number_too, GError **errp)
{
    g_autoptr(GError) unknown = NULL;
    uint64_t number;
    int fd = host->ops->take_fd(host->opaque, name, &unknown);

    if (fd < 0 && number_too && g_ascii_string_to_unsigned(name, 10, 0, INT32_MAX, &number, NULL)) {
        g_clear_error(&unknown);
        fd = (int)number;
    }
    if (fd < 0) {
        g_propagate_error(errp, g_steal_pointer(&unknown));
        return NULL;
    }
    return adopt_fd(fd, errp);
}

/* ---- files ---- */

bool migration_is_fdset(const char *filename, int64_t *id)
{
    return g_str_has_prefix(filename, FDSET_PREFIX) &&
           g_ascii_string_to_signed(filename + strlen(FDSET_PREFIX), 10, 0, INT64_MAX, id, NULL);
}

/* Everything below that folder is meant to be a set, whatever the system has there. */
static bool is_bad_fdset(const char *filename, GError **errp)
{
    int64_t id;

    if (!g_str_has_prefix(filename, FDSET_PREFIX) || migration_is_fdset(filename, &id)) {
        return false;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Could not parse fdset %s", filename);
    return true;
}

bool migration_truncate_file(Channel *channel, uint64_t offset, GError **errp)
{
    int err = channel_file_truncate(channel, (off_t)offset);
    if (err) {
        error_set_errno(errp, GODWIT_ERROR_IO, err, "failed to truncate migration file to offset %" PRIx64,
                        offset);
        return false;
    }
    return true;
}

/* Opening it would wait for its other end. */
static bool is_pipe(const char *filename)
{
    struct stat st;
    return stat(filename, &st) == 0 && S_ISFIFO(st.st_mode);
}

static Channel *open_file(const MigrationHost *host, const char *filename, int flags, GError **errp)
{
    if (is_bad_fdset(filename, errp)) {
        return NULL;
    }

    int64_t id;
    if (!migration_is_fdset(filename, &id)) {
        return channel_file_open(filename, flags, 0600, errp);
    }
    int fd = host->ops->dup_fdset(host->opaque, id, flags, errp);
    return fd >= 0 ? channel_from_fd(fd, errp) : NULL;
}

/* A file at its offset.  What a file holds behind it goes later: that may take the file system a while. */
static Channel *open_at_offset(const MigrationHost *host, const FileMigrationArgs *file, int flags,
                               GError **errp)
{
    g_autoptr(Channel) channel = NULL;
    bool pipe = is_pipe(file->filename);

    if (!pipe && !(channel = open_file(host, file->filename, flags, errp))) {
        return NULL;
    }
    bool seekable = !pipe && channel_has_feature(channel, CHANNEL_FEATURE_SEEKABLE);
    /* What cannot be cut, as the peers say. */
    if (!pipe && !seekable && (flags & O_CREAT) && !migration_truncate_file(channel, file->offset, errp)) {
        return NULL;
    }
    if (!seekable) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "%s", NOT_SEEKABLE);
        return NULL;
    }
    if (channel_seek(channel, (off_t)file->offset, SEEK_SET, errp) < 0) {
        return NULL;
    }
    return g_steal_pointer(&channel);
}

/* ---- commands ---- */

static Channel *spawn(const MigrationExecCommand *exec, bool readable, GError **errp)
{
    g_autofree const char **argv = g_new0(const char *, exec->args->count + 1);
    for (size_t i = 0; i < exec->args->count; i++) {
        argv[i] = exec->args->items[i];
    }
    return channel_command_spawn(argv, readable, true, errp);
}

bool migration_rdma_available(GError **errp)
{
    return rdma_available(errp);
}

/* RDMA has its own ways, see rdma.h. */
static bool refuse_rdma(GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "RDMA ERROR: not a byte stream");
    return false;
}

/* ---- both directions ---- */

bool migration_open_outgoing(const MigrationHost *host, const MigrationAddress *addr, bool return_path,
                             Channel **channel, GError **errp)
{
    *channel = NULL;
    switch (addr->transport) {
    case MIGRATION_ADDRESS_TYPE_SOCKET:
        if (addr->u.socket->type != SOCKET_ADDRESS_TYPE_FD) {
            return true;
        }
        *channel = open_named_fd(host, addr->u.socket->u.fd->str, false, errp);
        return *channel != NULL;
    case MIGRATION_ADDRESS_TYPE_EXEC:
        *channel = spawn(addr->u.exec, return_path, errp);
        return *channel != NULL;
    case MIGRATION_ADDRESS_TYPE_FILE:
        *channel = open_at_offset(host, addr->u.file, O_WRONLY | O_CREAT, errp);
        return *channel != NULL;
    default:
        return refuse_rdma(errp);
    }
}

bool migration_open_incoming(const MigrationHost *host, const MigrationAddress *addr, Channel **channel,
                             Listener **listener, GError **errp)
{
    *channel = NULL;
    *listener = NULL;
    switch (addr->transport) {
    case MIGRATION_ADDRESS_TYPE_SOCKET:
        if (addr->u.socket->type == SOCKET_ADDRESS_TYPE_FD) {
            *channel = open_named_fd(host, addr->u.socket->u.fd->str, true, errp);
            return *channel != NULL;
        }
        *listener = listener_new(addr->u.socket, LISTEN_BACKLOG, errp);
        return *listener != NULL;
    case MIGRATION_ADDRESS_TYPE_EXEC:
        *channel = spawn(addr->u.exec, true, errp);
        return *channel != NULL;
    case MIGRATION_ADDRESS_TYPE_FILE:
        *channel = open_at_offset(host, addr->u.file, O_RDONLY, errp);
        return *channel != NULL;
    default:
        return refuse_rdma(errp);
    }
}
