/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination's half of the section stream. */

/*
 * No element says how long it is, so whatever is not known ends the migration; nothing is skipped but
 * the description, which nobody needs.  Sections are found by name and instance when they are announced
 * (START, FULL) and by the id that the announcement gave them afterwards (PART, END).
 */
#include "migration/loadvm.h"

#include "migration/configuration.h"
#include "migration/return-path.h"
#include "migration/stream-format.h"
#include "migration/vmstate.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* How long to wait for the description on a connection that the source keeps open. */
#define DESCRIPTION_WAIT_MS 500

typedef struct LoadSection LoadSection;

struct LoadSection {
    const char *idstr;
    uint32_t instance_id;
    int version;                    /* the newest that we know */
    bool (*load)(LoadVM *l, const LoadSection *s, SectionType type, int version, GError **errp);
    const VMStateDescription *vmsd; /* of device state */
    void *opaque;
    bool announced;
    uint32_t section_id;            /* as announced */
    int received_version;
};

struct LoadVM {
    MigrationHost host;
    const MigrationOptions *options;
    StreamReader *r;
    RamLoad *ram;
    GlobalState global_state;
    Downtime downtime;
    GArray *sections;               /* of LoadSection */
    bool return_path_open;
    bool return_path_shut;
};

/* ---- sections that we know ---- */

static bool load_ram(LoadVM *l, const LoadSection *s, SectionType type, int version, GError **errp)
{
    if (version == RAM_SECTION_VERSION) {
        if (type == SECTION_END) {
            downtime_begin(&l->downtime);
        }
        bool ok = ram_load_section(l->ram, l->r, (uint8_t)type, errp);
        if (type == SECTION_END) {
            downtime_phase_ended(&l->downtime, DOWNTIME_RECEIVE);
        }
        return ok;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "only version %d can be loaded",
                RAM_SECTION_VERSION);
    return false;
}

static bool load_dirty_bitmap(LoadVM *l, const LoadSection *s, SectionType type, int version, GError **errp)
{
    uint8_t flags = stream_get_u8(l->r);
    if (!stream_reader_check(l->r, errp)) {
        return false;
    }
    if (flags != DIRTY_BITMAP_END_OF_STREAM) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "dirty bitmap with flags 0x%02x received, but this machine has no disks", flags);
        return false;
    }
    return true;
}

static bool load_device(LoadVM *l, const LoadSection *s, SectionType type, int version, GError **errp)
{
    return vmstate_load(l->r, s->vmsd, s->opaque, version, errp);
}

static void add_section(LoadVM *l, const char *idstr, uint32_t instance_id, int version,
                        bool (*load)(LoadVM *, const LoadSection *, SectionType, int, GError **),
                        const VMStateDescription *vmsd, void *opaque)
{
    LoadSection s = { idstr, instance_id, version, load, vmsd, opaque, false, 0, 0 };
    g_array_append_val(l->sections, s);
}

static void collect_sections(LoadVM *l)
{
    for (SaveEntry *e = l->host.ops->save_entries(l->host.opaque)->first; e; e = e->next) {
        add_section(l, e->idstr, e->instance_id, e->vmsd->version, load_device, e->vmsd, e->opaque);
    }
    add_section(l, RAM_SECTION_NAME, 0, RAM_SECTION_VERSION, load_ram, NULL, NULL);
    add_section(l, DIRTY_BITMAP_SECTION_NAME, 0, DIRTY_BITMAP_SECTION_VERSION, load_dirty_bitmap, NULL, NULL);
    add_section(l, vmstate_globalstate.name, 0, vmstate_globalstate.version, load_device,
                &vmstate_globalstate, &l->global_state);
}

static LoadSection *find_by_name(LoadVM *l, const char *idstr, uint32_t instance_id)
{
    for (guint i = 0; i < l->sections->len; i++) {
        LoadSection *s = &g_array_index(l->sections, LoadSection, i);
        if (s->instance_id == instance_id && strcmp(s->idstr, idstr) == 0) {
            return s;
        }
    }
    return NULL;
}

/* Two sections may have been announced with one id: the first of our order has it then. */
static LoadSection *find_by_id(LoadVM *l, uint32_t section_id)
{
    for (guint i = 0; i < l->sections->len; i++) {
        LoadSection *s = &g_array_index(l->sections, LoadSection, i);
        if (s->announced && s->section_id == section_id) {
            return s;
        }
    }
    return NULL;
}

/* ---- life ---- */

LoadVM *loadvm_new(const MigrationHost *host, const MigrationOptions *options, Channel *channel)
{
    LoadVM *l = g_new0(LoadVM, 1);
    l->host = *host;
    l->options = options;
    l->r = stream_reader_new(channel);
    l->ram = ram_load_new(host->ops->ram(host->opaque), options);
    l->sections = g_array_new(FALSE, FALSE, sizeof(LoadSection));
    collect_sections(l);
    return l;
}

void loadvm_free(LoadVM *l)
{
    if (l) {
        ram_load_free(l->ram);
        stream_reader_free(l->r);
        g_array_unref(l->sections);
        g_free(l);
    }
}

RamLoad *loadvm_ram(LoadVM *l)
{
    return l->ram;
}

Downtime *loadvm_downtime(LoadVM *l)
{
    return &l->downtime;
}

const GlobalState *loadvm_global_state(const LoadVM *l)
{
    return &l->global_state;
}

void loadvm_wait(LoadVM *l)
{
    stream_peek_u8(l->r, 0);
}

bool loadvm_shut_return_path(LoadVM *l, bool ok, GError **errp)
{
    g_autoptr(GError) error = NULL;

    if (!l->return_path_open || l->return_path_shut) {
        return true;
    }
    l->return_path_shut = true;
    if (!return_path_write(stream_reader_channel(l->r), RETURN_PATH_SHUT, ok ? 0 : 1, &error)) {
        trace_return_path_shut_failed(error->message);
        g_propagate_prefixed_error(errp, g_steal_pointer(&error),
                                   "The source cannot be told of the arrival: ");
        return false;
    }
    return true;
}

/* ---- header and configuration ---- */

/* What is left of a be32 that the stream may end in the middle of: the missing bytes count as zero. */
static uint32_t get_be32_zero_filled(StreamReader *r)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        v = v << 8 | stream_get_u8(r);
    }
    return v;
}

static bool load_header(LoadVM *l, GError **errp)
{
    uint32_t magic = get_be32_zero_filled(l->r);
    if (magic != STREAM_MAGIC) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "Not a migration stream, magic: %x != %x",
                    magic, STREAM_MAGIC);
        return false;
    }
    uint32_t version = get_be32_zero_filled(l->r);
    if (version == STREAM_VERSION_OBSOLETE) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "SaveVM v2 format is obsolete and no longer supported");
        return false;
    }
    if (version != STREAM_VERSION) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "Unsupported migration stream version, file version %x != %x", version, STREAM_VERSION);
        return false;
    }
    return true;
}

static void log_line(void *opaque, const char *message)
{
    const MigrationHost *host = opaque;
    migration_host_log(host, "%s", message);
}

static bool load_configuration(LoadVM *l, GError **errp)
{
    Configuration c = {
        .machine = l->host.ops->machine_name(l->host.opaque),
        .uuid = l->host.ops->uuid(l->host.opaque),
        .options = l->options,
        .log = log_line,
        .opaque = &l->host,
    };

    if (!l->options->props.send_configuration) {
        return true;
    }
    uint8_t type = stream_get_u8(l->r);
    if (type != SECTION_CONFIGURATION) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "Configuration section missing, %x != %x",
                    type, SECTION_CONFIGURATION);
        return false;
    }
    return configuration_load(l->r, &c, errp);
}

/* ---- sections ---- */

static bool load_footer(LoadVM *l, const LoadSection *s, GError **errp)
{
    if (!l->options->props.send_section_footer) {
        return true;
    }
    uint8_t mark = stream_get_u8(l->r);
    uint32_t id = stream_get_be32(l->r);
    g_autoptr(GError) cause = NULL;

    if (!stream_reader_check(l->r, &cause)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Section footer error, section_id: %u: Read section footer failed: %s", s->section_id,
                    cause->message);
        return false;
    }
    if (mark != SECTION_FOOTER) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Section footer error, section_id: %u: 0x%02x received in its place", s->section_id,
                    mark);
        return false;
    }
    if (id != s->section_id) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Section footer error, section_id: %u: the footer of section %u received", s->section_id,
                    id);
        return false;
    }
    return true;
}

static int errno_of(const GError *error)
{
    switch (error->code) {
    case GODWIT_ERROR_IO:
    case GODWIT_ERROR_EOF:
    case GODWIT_ERROR_CANCELLED:
        return EIO;
    case GODWIT_ERROR_UNSUPPORTED:
        return ENOTSUP;
    default:
        return EINVAL;
    }
}

static bool load_payload(LoadVM *l, LoadSection *s, SectionType type, GError **errp)
{
    g_autoptr(GError) cause = NULL;

    if (s->load(l, s, type, s->received_version, &cause)) {
        return load_footer(l, s, errp);
    }
    if (!s->vmsd) {
        g_prefix_error(&cause, "Failed to load vmstate version_id: %d, ret: -%d: ", s->received_version,
                       errno_of(cause));
    }
    if (type == SECTION_START || type == SECTION_FULL) {
        g_prefix_error(&cause, "error while loading state for instance 0x%x of device '%s': ", s->instance_id,
                       s->idstr);
    }
    g_propagate_error(errp, g_steal_pointer(&cause));
    return false;
}

static bool load_announced(LoadVM *l, SectionType type, GError **errp)
{
    char idstr[256];
    uint32_t id = stream_get_be32(l->r);
    stream_get_counted_string(l->r, idstr);
    if (!stream_reader_ok(l->r)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "Unable to read ID string for section %u", id);
        return false;
    }
    uint32_t instance_id = stream_get_be32(l->r);
    uint32_t version = stream_get_be32(l->r);
    if (!stream_reader_check(l->r, errp)) {
        return false;
    }

    trace_loadvm_section((unsigned)type, id, idstr, version);
    LoadSection *s = find_by_name(l, idstr, instance_id);
    if (!s) {
        g_autofree char *shown = g_strescape(idstr, NULL);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Unknown section '%s' or instance 0x%x: this machine has no such device", shown,
                    instance_id);
        return false;
    }
    if (version > (uint32_t)s->version) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "unsupported version %u of section '%s', the newest known here is %d", version, idstr,
                    s->version);
        return false;
    }
    s->announced = true;
    s->section_id = id;
    s->received_version = (int)version;
    return load_payload(l, s, type, errp);
}

static bool load_continued(LoadVM *l, SectionType type, GError **errp)
{
    uint32_t id = stream_get_be32(l->r);
    if (!stream_reader_check(l->r, errp)) {
        return false;
    }
    LoadSection *s = find_by_id(l, id);
    if (!s) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Unknown section id %u: no START or FULL had it", id);
        return false;
    }
    return load_payload(l, s, type, errp);
}

/* ---- commands ---- */

static bool open_return_path(LoadVM *l, const uint8_t *payload, GError **errp)
{
    if (l->return_path_open) {
        return true;
    }
    if (!channel_has_feature(stream_reader_channel(l->r), CHANNEL_FEATURE_WRITE)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "the source wants a return path, but this channel is one-way");
        return false;
    }
    l->return_path_open = true;
    /* No device of ours asks for the acknowledgement; old peers wait for one all the same. */
    bool ack =
        l->options->caps[MIGRATION_CAPABILITY_SWITCHOVER_ACK] && l->options->props.switchover_ack_legacy;
    return !ack || return_path_write(stream_reader_channel(l->r), RETURN_PATH_SWITCHOVER_ACK, 0, errp);
}

static bool answer_ping(LoadVM *l, const uint8_t *payload, GError **errp)
{
    uint32_t value = (uint32_t)payload[0] << 24 | (uint32_t)payload[1] << 16 | (uint32_t)payload[2] << 8 |
                     payload[3];
    if (!l->return_path_open) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "PING 0x%x received, but no return path is open", value);
        return false;
    }
    return return_path_write(stream_reader_channel(l->r), RETURN_PATH_PONG, value, errp);
}

/* The source has stopped its guest. */
static bool note_switchover(LoadVM *l, const uint8_t *payload, GError **errp)
{
    downtime_begin(&l->downtime);
    return true;
}

#define LENGTH_ANY (-1)
#define PAYLOAD_MAX 16

typedef struct CommandType {
    const char *name;
    int length;
    bool (*handle)(LoadVM *l, const uint8_t *payload, GError **errp);   /* NULL: postcopy or COLO */
} CommandType;

static const CommandType commands[COMMAND__MAX] = {
    [COMMAND_OPEN_RETURN_PATH] = { "OPEN_RETURN_PATH", 0, open_return_path },
    [COMMAND_PING] = { "PING", 4, answer_ping },
    [COMMAND_POSTCOPY_ADVISE] = { "POSTCOPY_ADVISE", LENGTH_ANY, NULL },
    [COMMAND_POSTCOPY_LISTEN] = { "POSTCOPY_LISTEN", 0, NULL },
    [COMMAND_POSTCOPY_RUN] = { "POSTCOPY_RUN", 0, NULL },
    [COMMAND_POSTCOPY_RAM_DISCARD] = { "POSTCOPY_RAM_DISCARD", LENGTH_ANY, NULL },
    [COMMAND_PACKAGED] = { "PACKAGED", 4, NULL },
    [COMMAND_ENABLE_COLO] = { "ENABLE_COLO", 0, NULL },
    [COMMAND_POSTCOPY_RESUME] = { "POSTCOPY_RESUME", 0, NULL },
    [COMMAND_RECV_BITMAP] = { "RECV_BITMAP", LENGTH_ANY, NULL },
    [COMMAND_SWITCHOVER_START] = { "SWITCHOVER_START", 0, note_switchover },
};

static bool refuse_command(const CommandType *c, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                "the source sent the command %s, which is not supported in a precopy migration", c->name);
    return false;
}

static bool load_command(LoadVM *l, GError **errp)
{
    uint8_t payload[PAYLOAD_MAX] = { 0 };
    uint16_t number = stream_get_be16(l->r);
    uint16_t len = stream_get_be16(l->r);
    if (!stream_reader_check(l->r, errp)) {
        return false;
    }

    trace_loadvm_command(number, len);
    if (number == COMMAND_INVALID || number >= COMMAND__MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "MIG_CMD 0x%x unknown (len 0x%x)", number,
                    len);
        return false;
    }
    const CommandType *c = &commands[number];
    if (c->length != LENGTH_ANY && c->length != len) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "command %s received with length %u, not %d",
                    c->name, len, c->length);
        return false;
    }
    /* Sent for dirty bitmaps alone, without postcopy: it asks for nothing. */
    if (number == COMMAND_POSTCOPY_ADVISE && len == 0 &&
        !l->options->caps[MIGRATION_CAPABILITY_POSTCOPY_RAM]) {
        return true;
    }
    if (!c->handle) {
        return refuse_command(c, errp);
    }
    stream_get(l->r, payload, len);
    return stream_reader_check(l->r, errp) && c->handle(l, payload, errp);
}

/* ---- the stream ---- */

/* One element.  *@eof: it was the last. */
static bool load_element(LoadVM *l, bool *eof, GError **errp)
{
    uint8_t type = stream_get_u8(l->r);

    if (!stream_reader_check(l->r, errp) || fault_point("loadvm-element", errp)) {
        return false;
    }
    switch (type) {
    case SECTION_START:
    case SECTION_FULL:
        return load_announced(l, (SectionType)type, errp);
    case SECTION_PART:
    case SECTION_END:
        return load_continued(l, (SectionType)type, errp);
    case SECTION_COMMAND:
        return load_command(l, errp);
    case SECTION_EOF:
        *eof = true;
        return true;
    default:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "Unknown section type %u", type);
        return false;
    }
}

/* A source that sends no description but waits for our verdict would wait for ever. */
static bool description_is_coming(LoadVM *l)
{
    int fd = channel_poll_fd(stream_reader_channel(l->r));

    if (!l->return_path_open || fd < 0 || stream_has_buffered(l->r)) {
        return true;
    }
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, DESCRIPTION_WAIT_MS) != 0;
}

/* Must be consumed, or the source may see a reset; its absence or a wrong text harms nobody. */
static void skip_description(LoadVM *l)
{
    int type = description_is_coming(l) ? stream_get_u8(l->r) : 0;
    if (type != SECTION_VMDESCRIPTION) {
        migration_host_log(&l->host, "Expected vmdescription section, but got %d", type);
        return;
    }
    stream_skip(l->r, stream_get_be32(l->r));
}

static bool load_stream(LoadVM *l, GError **errp)
{
    bool eof = false;

    if (!load_header(l, errp) || !load_configuration(l, errp)) {
        return false;
    }
    while (!eof) {
        if (!load_element(l, &eof, errp)) {
            return false;
        }
    }
    skip_description(l);
    return !fault_point("loadvm-eof", errp) && ram_load_complete(l->ram, errp);
}

bool loadvm_run(LoadVM *l, GError **errp)
{
    g_autoptr(GError) cause = NULL;

    if (load_stream(l, &cause)) {
        return true;
    }
    g_prefix_error(&cause, "load of migration failed: %s: ", g_strerror(errno_of(cause)));
    g_propagate_error(errp, g_steal_pointer(&cause));
    return false;
}
