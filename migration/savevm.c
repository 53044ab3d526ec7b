/* SPDX-License-Identifier: BSD-2-Clause */
/* The source's half of the section stream. */
#include "migration/savevm.h"

#include "migration/configuration.h"
#include "migration/globalstate.h"
#include "migration/json-writer.h"
#include "migration/vmstate.h"
#include "trace-migration.h"
#include "util/be.h"
#include "util/fault.h"

#include <string.h>

/* The value of the first PING; the answer is not waited for. */
#define PING_AT_START 1

/* One FULL section. */
typedef struct DeviceSection {
    uint32_t id;
    const char *idstr;
    uint32_t instance_id;
    const VMStateDescription *vmsd;
    void *opaque;
    bool early_setup;           /* behind the START sections, while the guest runs */
} DeviceSection;

struct SaveVM {
    MigrationHost host;
    const MigrationOptions *options;
    RamSave *ram;
    StreamWriter *w;
    JsonWriter *desc;           /* inside the array "devices" once START sections are out */
    GArray *devices;            /* of DeviceSection, in stream order */
    GlobalState global_state;
    bool return_path;
};

static void add_device(SaveVM *s, uint32_t id, const char *idstr, uint32_t instance_id,
                       const VMStateDescription *vmsd, void *opaque, bool early_setup)
{
    DeviceSection d = { id, idstr, instance_id, vmsd, opaque, early_setup };
    g_array_append_val(s->devices, d);
}

/*
 * Ids as the peers have them: whatever comes first in the machine, then ours, then the rest of the machine.
 */
static void collect_devices(SaveVM *s)
{
    const SaveEntry *e = s->host.ops->save_entries(s->host.opaque)->first;
    uint32_t id = SECTION_ID_OTHERS;

    if (e && strcmp(e->idstr, "timer") == 0) {
        add_device(s, SECTION_ID_TIMER, e->idstr, e->instance_id, e->vmsd, e->opaque, e->early_setup);
        e = e->next;
    }
    if (s->options->props.store_global_state) {
        add_device(s, SECTION_ID_GLOBALSTATE, vmstate_globalstate.name, 0, &vmstate_globalstate,
                   &s->global_state, false);
    }
    for (; e; e = e->next) {
        add_device(s, id++, e->idstr, e->instance_id, e->vmsd, e->opaque, e->early_setup);
    }
}

SaveVM *savevm_new(const MigrationHost *host, const MigrationOptions *options, RamSave *ram, StreamWriter *w)
{
    SaveVM *s = g_new0(SaveVM, 1);
    s->host = *host;
    s->options = options;
    s->ram = ram;
    s->w = w;
    s->desc = json_writer_new();
    s->devices = g_array_new(FALSE, FALSE, sizeof(DeviceSection));
    collect_devices(s);
    return s;
}

void savevm_free(SaveVM *s)
{
    if (s) {
        json_writer_free(s->desc);
        g_array_unref(s->devices);
        g_free(s);
    }
}

static bool flush(SaveVM *s, GError **errp)
{
    bool ok = stream_flush(s->w, errp);
    ram_save_account_stream(s->ram, s->w);
    return ok;
}

/* ---- elements ---- */

static void put_long_header(SaveVM *s, SectionType type, uint32_t id, const char *idstr, uint32_t instance_id,
                            int version)
{
    trace_savevm_section((unsigned)type, id, idstr);
    stream_put_u8(s->w, (uint8_t)type);
    stream_put_be32(s->w, id);
    stream_put_counted_string(s->w, idstr);
    stream_put_be32(s->w, instance_id);
    stream_put_be32(s->w, (uint32_t)version);
}

static void put_short_header(SaveVM *s, SectionType type, uint32_t id)
{
    stream_put_u8(s->w, (uint8_t)type);
    stream_put_be32(s->w, id);
}

static void put_footer(SaveVM *s, uint32_t id)
{
    if (s->options->props.send_section_footer) {
        stream_put_u8(s->w, SECTION_FOOTER);
        stream_put_be32(s->w, id);
    }
}

/* A command travels at once: the peer may have to act on it before more comes. */
static bool put_command(SaveVM *s, StreamCommand command, const void *payload, uint16_t len, GError **errp)
{
    trace_savevm_command((unsigned)command, len);
    stream_put_u8(s->w, SECTION_COMMAND);
    stream_put_be16(s->w, (uint16_t)command);
    stream_put_be16(s->w, len);
    stream_put(s->w, payload, len);
    return flush(s, errp);
}

/* ---- the stream, in order ---- */

static bool put_ping(SaveVM *s, uint32_t value, GError **errp)
{
    uint8_t ping[4];
    store_be32(ping, value);
    return put_command(s, COMMAND_PING, ping, sizeof(ping), errp);
}

static bool open_return_path(SaveVM *s, GError **errp)
{
    s->return_path = true;
    return put_command(s, COMMAND_OPEN_RETURN_PATH, NULL, 0, errp) && put_ping(s, PING_AT_START, errp);
}

bool savevm_start(SaveVM *s, bool return_path, GError **errp)
{
    Configuration c = {
        .machine = s->host.ops->machine_name(s->host.opaque),
        .uuid = s->host.ops->uuid(s->host.opaque),
        .options = s->options,
    };

    if (fault_point("savevm-header", errp)) {
        return false;
    }
    stream_put_be32(s->w, STREAM_MAGIC);
    stream_put_be32(s->w, STREAM_VERSION);
    json_writer_start_object(s->desc, NULL);
    if (s->options->props.send_configuration && !configuration_save(s->w, &c, s->desc, errp)) {
        return false;
    }
    if (!flush(s, errp) || (return_path && !open_return_path(s, errp))) {
        return false;
    }
    /* Without postcopy-ram the announcement of dirty bitmaps has no payload. */
    return !s->options->caps[MIGRATION_CAPABILITY_DIRTY_BITMAPS] ||
           put_command(s, COMMAND_POSTCOPY_ADVISE, NULL, 0, errp);
}

static bool save_device(SaveVM *s, const DeviceSection *d, GError **errp)
{
    if (fault_point("savevm-device", errp)) {
        return false;
    }
    put_long_header(s, SECTION_FULL, d->id, d->idstr, d->instance_id, d->vmsd->version);
    json_writer_start_object(s->desc, NULL);
    json_writer_str(s->desc, "name", d->idstr);
    json_writer_int(s->desc, "instance_id", d->instance_id);
    if (!vmstate_save(s->w, d->vmsd, d->opaque, s->desc, errp)) {
        g_prefix_error(errp, "Failed to save the state of '%s': ", d->idstr);
        return false;
    }
    json_writer_end_object(s->desc);
    put_footer(s, d->id);
    return true;
}

/* The sections of one kind, in the order of the stream. */
static bool save_devices(SaveVM *s, bool early_setup, GError **errp)
{
    for (guint i = 0; i < s->devices->len; i++) {
        const DeviceSection *d = &g_array_index(s->devices, DeviceSection, i);
        if (d->early_setup == early_setup && !save_device(s, d, errp)) {
            return false;
        }
    }
    return true;
}

bool savevm_pings_after_setup(const SaveVM *s)
{
    for (guint i = 0; s->return_path && i < s->devices->len; i++) {
        if (g_array_index(s->devices, DeviceSection, i).early_setup) {
            return true;
        }
    }
    return false;
}

bool savevm_setup(SaveVM *s, GError **errp)
{
    if (fault_point("savevm-setup", errp)) {
        return false;
    }
    put_long_header(s, SECTION_START, SECTION_ID_RAM, RAM_SECTION_NAME, 0, RAM_SECTION_VERSION);
    if (!ram_save_setup(s->ram, s->w, errp)) {
        return false;
    }
    put_footer(s, SECTION_ID_RAM);
    if (s->options->caps[MIGRATION_CAPABILITY_DIRTY_BITMAPS]) {
        put_long_header(s, SECTION_START, SECTION_ID_DIRTY_BITMAP, DIRTY_BITMAP_SECTION_NAME, 0,
                        DIRTY_BITMAP_SECTION_VERSION);
        stream_put_u8(s->w, DIRTY_BITMAP_END_OF_STREAM);
        put_footer(s, SECTION_ID_DIRTY_BITMAP);
    }
    json_writer_int(s->desc, "page_size", TARGET_PAGE_SIZE);
    json_writer_start_array(s->desc, "devices");
    return save_devices(s, true, errp) && flush(s, errp) &&
           (!savevm_pings_after_setup(s) || put_ping(s, SAVEVM_PING_AFTER_SETUP, errp));
}

bool savevm_iterate(SaveVM *s, uint64_t budget, bool *done, GError **errp)
{
    if (fault_point("savevm-part", errp)) {
        return false;
    }
    put_short_header(s, SECTION_PART, SECTION_ID_RAM);
    if (!ram_save_iterate(s->ram, s->w, budget, done, errp)) {
        return false;
    }
    put_footer(s, SECTION_ID_RAM);
    return flush(s, errp);
}

bool savevm_complete_ram(SaveVM *s, GError **errp)
{
    if (fault_point("savevm-end", errp)) {
        return false;
    }
    if (s->options->props.send_switchover_start &&
        !put_command(s, COMMAND_SWITCHOVER_START, NULL, 0, errp)) {
        return false;
    }
    put_short_header(s, SECTION_END, SECTION_ID_RAM);
    if (!ram_save_complete(s->ram, s->w, errp)) {
        return false;
    }
    put_footer(s, SECTION_ID_RAM);
    return flush(s, errp);
}

bool savevm_complete_devices(SaveVM *s, RunState state, GError **errp)
{
    globalstate_store(&s->global_state, state);
    return save_devices(s, false, errp) && flush(s, errp);
}

bool savevm_end(SaveVM *s, GError **errp)
{
    if (fault_point("savevm-eof", errp)) {
        return false;
    }
    json_writer_end_array(s->desc);
    json_writer_end_object(s->desc);
    const char *text = json_writer_text(s->desc);
    size_t len = strlen(text);

    stream_put_u8(s->w, SECTION_EOF);
    stream_put_u8(s->w, SECTION_VMDESCRIPTION);
    stream_put_be32(s->w, (uint32_t)len);
    stream_put(s->w, text, len);
    return flush(s, errp);
}
