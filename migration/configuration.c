/* SPDX-License-Identifier: BSD-2-Clause */
/* The configuration section: what is sent, and how the destination compares it. */
#include "migration/configuration.h"

#include "migration/stream-format.h"
#include "system/ramblock.h"
#include "util/error.h"
#include "migration/vmstate.h"

#include <string.h>

#define NAME "configuration"
#define CAPABILITIES NAME "/capabilities"
#define UUID NAME "/uuid"
#define PAGE_BITS NAME "/target-page-bits"
#define UUID_SIZE 16

/* The capabilities that change the bytes of the stream itself: both ends must agree. */
static const MigrationCapability compared[] = {
    MIGRATION_CAPABILITY_X_IGNORE_SHARED,
    MIGRATION_CAPABILITY_MAPPED_RAM,
};

/* ---- saving ---- */

static void describe_field(JsonWriter *desc, const char *name, unsigned array_len, const char *type,
                           size_t size)
{
    json_writer_start_object(desc, NULL);
    json_writer_str(desc, "name", name);
    if (array_len > 1) {
        json_writer_int(desc, "array_len", array_len);
    }
    json_writer_str(desc, "type", type);
    json_writer_int(desc, "size", (int64_t)size);
    json_writer_end_object(desc);
}

static void describe_start(JsonWriter *desc, const char *vmsd_name)
{
    json_writer_str(desc, "vmsd_name", vmsd_name);
    json_writer_int(desc, "version", 1);
    json_writer_start_array(desc, "fields");
}

static void put_subsection_header(StreamWriter *w, const char *name)
{
    stream_put_u8(w, VMSTATE_SUBSECTION);
    stream_put_counted_string(w, name);
    stream_put_be32(w, 1);
}

static unsigned count_enabled(const MigrationOptions *o)
{
    unsigned n = 0;
    for (size_t i = 0; i < G_N_ELEMENTS(compared); i++) {
        n += o->caps[compared[i]];
    }
    return n;
}

static void save_capabilities(StreamWriter *w, const MigrationOptions *o, JsonWriter *desc)
{
    unsigned count = count_enabled(o);
    size_t first_size = 0;

    put_subsection_header(w, CAPABILITIES);
    stream_put_be32(w, count);
    for (size_t i = 0; i < G_N_ELEMENTS(compared); i++) {
        const char *name = MigrationCapability_str(compared[i]);
        if (o->caps[compared[i]]) {
            stream_put_counted_string(w, name);
            first_size = first_size ? first_size : 1 + strlen(name);
        }
    }
    json_writer_start_object(desc, NULL);
    describe_start(desc, CAPABILITIES);
    describe_field(desc, "caps_count", 1, "uint32", 4);
    describe_field(desc, "capabilities", count, "capability", first_size);
    json_writer_end_array(desc);
    json_writer_end_object(desc);
}

static void save_uuid(StreamWriter *w, const uint8_t *uuid, JsonWriter *desc)
{
    put_subsection_header(w, UUID);
    stream_put(w, uuid, UUID_SIZE);
    json_writer_start_object(desc, NULL);
    describe_start(desc, UUID);
    describe_field(desc, "uuid.data", UUID_SIZE, "uint8", 1);
    json_writer_end_array(desc);
    json_writer_end_object(desc);
}

static void save_subsections(StreamWriter *w, const Configuration *c, JsonWriter *desc)
{
    bool caps = count_enabled(c->options) > 0;
    bool uuid = c->options->caps[MIGRATION_CAPABILITY_VALIDATE_UUID] && c->uuid;

    if (!caps && !uuid) {
        return;
    }
    json_writer_start_array(desc, "subsections");
    if (caps) {
        save_capabilities(w, c->options, desc);
    }
    if (uuid) {
        save_uuid(w, c->uuid, desc);
    }
    json_writer_end_array(desc);
}

bool configuration_save(StreamWriter *w, const Configuration *c, JsonWriter *desc, GError **errp)
{
    size_t len = strlen(c->machine);

    stream_put_u8(w, SECTION_CONFIGURATION);
    stream_put_be32(w, (uint32_t)len);
    stream_put(w, c->machine, len);
    json_writer_start_object(desc, NAME);
    describe_start(desc, NAME);
    describe_field(desc, "len", 1, "uint32", 4);
    describe_field(desc, "name", 1, "buffer", len);
    json_writer_end_array(desc);
    save_subsections(w, c, desc);
    json_writer_end_object(desc);

    const GError *error = stream_writer_error(w);
    if (error && errp) {
        *errp = g_error_copy(error);
    }
    return !error;
}

/* ---- loading ---- */

typedef struct Received {
    char machine[CONFIGURATION_NAME_MAX + 1];
    bool caps[MIGRATION_CAPABILITY__MAX];
} Received;

static bool reader_ok(StreamReader *r, GError **errp)
{
    if (!stream_reader_ok(r) && errp) {
        *errp = g_error_copy(stream_reader_error(r));
    }
    return stream_reader_ok(r);
}

static bool load_capabilities(StreamReader *r, const Configuration *c, Received *received, GError **errp)
{
    uint32_t count = stream_get_be32(r);
    if (!reader_ok(r, errp)) {
        return false;
    }
    if (count > CONFIGURATION_CAPABILITIES_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "%u capabilities announced, at most %d are possible", count,
                    CONFIGURATION_CAPABILITIES_MAX);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        char name[256];
        stream_get_counted_string(r, name);
        if (!reader_ok(r, errp)) {
            return false;
        }
        int cap = MigrationCapability_parse(name);
        if (cap < 0) {
            g_autofree char *shown = g_strescape(name, NULL);
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "Received unknown capability %s", shown);
            return false;
        }
        received->caps[cap] = true;
    }
    return true;
}

static char *uuid_text(const uint8_t *u)
{
    return g_strdup_printf("%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                           u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7],
                           u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

static bool load_uuid(StreamReader *r, const Configuration *c, Received *received, GError **errp)
{
    uint8_t uuid[UUID_SIZE];
    if (!stream_get(r, uuid, sizeof(uuid))) {
        return reader_ok(r, errp);
    }
    g_autofree char *theirs = uuid_text(uuid);
    if (!c->uuid) {
        g_autofree char *text =
            g_strdup_printf("warning: UUID is received %s, but local uuid isn't set", theirs);
        c->log(c->opaque, text);
        return true;
    }
    if (memcmp(uuid, c->uuid, UUID_SIZE) != 0) {
        g_autofree char *ours = uuid_text(c->uuid);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "post load hook failed for: " UUID ", version_id: 1, minimum_version: 1, ret: -22: "
                    "UUID received is %s and local is %s", theirs, ours);
        return false;
    }
    return true;
}

static bool load_page_bits(StreamReader *r, const Configuration *c, Received *received, GError **errp)
{
    uint32_t bits = stream_get_be32(r);
    if (!reader_ok(r, errp)) {
        return false;
    }
    if (bits != TARGET_PAGE_BITS) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Received TARGET_PAGE_BITS is %u but local is %d", bits, TARGET_PAGE_BITS);
        return false;
    }
    return true;
}

static const struct {
    const char *name;
    bool (*load)(StreamReader *r, const Configuration *c, Received *received, GError **errp);
} subsections[] = {
    { PAGE_BITS, load_page_bits },
    { CAPABILITIES, load_capabilities },
    { UUID, load_uuid },
};

static bool load_subsection(StreamReader *r, const Configuration *c, const char *name, uint32_t version,
                            Received *received, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(subsections); i++) {
        if (strcmp(subsections[i].name, name) != 0) {
            continue;
        }
        if (version == 1) {
            return subsections[i].load(r, c, received, errp);
        }
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "incoming version_id %u is not 1", version);
        return false;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "no such subsection");
    return false;
}

static bool load_subsections(StreamReader *r, const Configuration *c, Received *received, GError **errp)
{
    char name[256];
    uint32_t version;
    int more;

    while ((more = vmstate_next_subsection(r, NAME, name, &version, errp)) == 1) {
        if (!load_subsection(r, c, name, version, received, errp)) {
            g_prefix_error(errp, "Loading VM subsection '%s' in '" NAME "' failed: ", name);
            return false;
        }
    }
    return more == 0;
}

static bool load_name(StreamReader *r, Received *received, uint32_t *len, GError **errp)
{
    *len = stream_get_be32(r);
    if (!reader_ok(r, errp)) {
        return false;
    }
    if (*len > CONFIGURATION_NAME_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "the length of the machine type's name, %u, is above %d", *len, CONFIGURATION_NAME_MAX);
        return false;
    }
    stream_get(r, received->machine, *len);
    received->machine[*len] = '\0';
    return reader_ok(r, errp);
}

/* Only the received length is compared: a prefix of the local name is enough, as for the peers. */
static bool compare_name(const Configuration *c, const Received *received, uint32_t len, GError **errp)
{
    if (len <= strlen(c->machine) && memcmp(received->machine, c->machine, len) == 0) {
        return true;
    }
    g_autofree char *shown = g_strescape(received->machine, NULL);
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "Machine type received is '%s' and local is '%s'",
                shown, c->machine);
    return false;
}

static bool compare_capabilities(const Configuration *c, const Received *received, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(compared); i++) {
        bool ours = c->options->caps[compared[i]];
        bool theirs = received->caps[compared[i]];
        if (ours != theirs) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                        "Failed to validate capabilities: Capability %s is %s, but received capability is %s",
                        MigrationCapability_str(compared[i]), ours ? "on" : "off", theirs ? "on" : "off");
            return false;
        }
    }
    return true;
}

bool configuration_load(StreamReader *r, const Configuration *c, GError **errp)
{
    Received received = { 0 };
    uint32_t len;

    if (!load_name(r, &received, &len, errp) || !load_subsections(r, c, &received, errp)) {
        return false;
    }
    if (!compare_name(c, &received, len, errp) || !compare_capabilities(c, &received, errp)) {
        g_prefix_error(errp, "post load hook failed for: " NAME ", version_id: 1, minimum_version: 0: ");
        return false;
    }
    return true;
}
