/* SPDX-License-Identifier: BSD-2-Clause */
/* The codec of device state: one walk over a table for each of save and load. */
#include "migration/vmstate.h"

#include "util/be.h"
#include "util/error.h"

#include <string.h>

typedef struct FieldType {
    const char *name;       /* in the VM description */
    size_t width;           /* of an integer; 0: the table's size counts */
} FieldType;

static const FieldType field_types[] = {
    [VMSTATE_UINT8] = { "uint8", 1 },
    [VMSTATE_UINT16] = { "uint16", 2 },
    [VMSTATE_UINT32] = { "uint32", 4 },
    [VMSTATE_UINT64] = { "uint64", 8 },
    [VMSTATE_INT32] = { "int32", 4 },
    [VMSTATE_INT64] = { "int64", 8 },
    [VMSTATE_BOOL] = { "bool", 1 },
    [VMSTATE_BUFFER] = { "buffer", 0 },
    [VMSTATE_UNUSED] = { "unused_buffer", 0 },
    [VMSTATE_STRUCT] = { "struct", 0 },
};

static bool save_level(StreamWriter *w, const VMStateDescription *vmsd, void *opaque, JsonWriter *desc,
                       unsigned depth, GError **errp);
static bool load_level(StreamReader *r, const VMStateDescription *vmsd, void *opaque, int version,
                       unsigned depth, GError **errp);

static unsigned field_count(const VMStateField *f)
{
    return f->array_len > 1 ? f->array_len : 1;
}

static size_t field_size(const VMStateField *f)
{
    return field_types[f->type].width ? field_types[f->type].width : f->size;
}

/* A table is code of this program, but a wrong one must not end in a wild pointer. */
static bool check_field(const VMStateDescription *vmsd, const VMStateField *f, unsigned depth, GError **errp)
{
    bool ok = (size_t)f->type < G_N_ELEMENTS(field_types) && depth < VMSTATE_DEPTH_MAX &&
              field_count(f) <= VMSTATE_ARRAY_MAX && field_size(f) <= VMSTATE_SIZE_MAX &&
              (f->type != VMSTATE_STRUCT || f->vmsd);
    if (!ok) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "field '%s' of '%s' goes beyond the limits of a device state table", f->name, vmsd->name);
    }
    return ok;
}

static bool writer_ok(StreamWriter *w, GError **errp)
{
    const GError *error = stream_writer_error(w);
    if (error && errp) {
        *errp = g_error_copy(error);
    }
    return !error;
}

static bool reader_ok(StreamReader *r, GError **errp)
{
    if (stream_reader_ok(r)) {
        return true;
    }
    if (errp) {
        *errp = g_error_copy(stream_reader_error(r));
    }
    return false;
}

/* ---- saving ---- */

static void put_zeros(StreamWriter *w, size_t len)
{
    static const uint8_t zeros[256];
    while (len) {
        size_t n = MIN(len, sizeof(zeros));
        stream_put(w, zeros, n);
        len -= n;
    }
}

static void save_element(StreamWriter *w, const VMStateField *f, const uint8_t *p)
{
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;

    switch (f->type) {
    case VMSTATE_UINT8:
        stream_put_u8(w, *p);
        break;
    case VMSTATE_BOOL:
        stream_put_u8(w, *p != 0);
        break;
    case VMSTATE_UINT16:
        memcpy(&v16, p, sizeof(v16));
        stream_put_be16(w, v16);
        break;
    case VMSTATE_UINT32:
    case VMSTATE_INT32:
        memcpy(&v32, p, sizeof(v32));
        stream_put_be32(w, v32);
        break;
    case VMSTATE_UINT64:
    case VMSTATE_INT64:
        memcpy(&v64, p, sizeof(v64));
        stream_put_be64(w, v64);
        break;
    case VMSTATE_BUFFER:
        stream_put(w, p, f->size);
        break;
    case VMSTATE_UNUSED:
        put_zeros(w, f->size);
        break;
    case VMSTATE_STRUCT:
        g_assert_not_reached();     /* save_struct() */
    }
}

static void describe_start(JsonWriter *desc, const VMStateField *f, int index)
{
    json_writer_start_object(desc, NULL);
    json_writer_str(desc, "name", f->name);
    if (index >= 0) {
        json_writer_int(desc, "index", index);
    } else if (field_count(f) > 1) {
        json_writer_int(desc, "array_len", field_count(f));
    }
    json_writer_str(desc, "type", field_types[f->type].name);
}

static void describe_end(JsonWriter *desc, size_t size)
{
    json_writer_int(desc, "size", (int64_t)size);
    json_writer_end_object(desc);
}

static bool save_struct(StreamWriter *w, const VMStateField *f, uint8_t *p, int index, JsonWriter *desc,
                        unsigned depth, GError **errp)
{
    uint64_t start = stream_writer_total(w);
    if (desc) {
        describe_start(desc, f, index);
        json_writer_start_object(desc, "struct");
    }
    if (!save_level(w, f->vmsd, p, desc, depth + 1, errp)) {
        return false;
    }
    if (desc) {
        json_writer_end_object(desc);
        describe_end(desc, stream_writer_total(w) - start);
    }
    return true;
}

static bool save_field(StreamWriter *w, const VMStateField *f, uint8_t *p, JsonWriter *desc, unsigned depth,
                       GError **errp)
{
    unsigned n = field_count(f);

    if (f->type == VMSTATE_STRUCT) {
        for (unsigned i = 0; i < n; i++) {
            if (!save_struct(w, f, p + i * f->size, n > 1 ? (int)i : -1, desc, depth, errp)) {
                return false;
            }
        }
        return true;
    }
    for (unsigned i = 0; i < n; i++) {
        save_element(w, f, p + i * field_size(f));
    }
    if (desc) {
        describe_start(desc, f, -1);
        describe_end(desc, field_size(f));
    }
    return true;
}

static bool save_subsection(StreamWriter *w, const VMStateDescription *sub, void *opaque, JsonWriter *desc,
                            unsigned depth, GError **errp)
{
    stream_put_u8(w, VMSTATE_SUBSECTION);
    stream_put_counted_string(w, sub->name);
    stream_put_be32(w, (uint32_t)sub->version);
    if (desc) {
        json_writer_start_object(desc, NULL);
    }
    if (!save_level(w, sub, opaque, desc, depth + 1, errp)) {
        return false;
    }
    if (desc) {
        json_writer_end_object(desc);
    }
    return true;
}

static bool save_subsections(StreamWriter *w, const VMStateDescription *vmsd, void *opaque, JsonWriter *desc,
                             unsigned depth, GError **errp)
{
    bool any = false;
    for (size_t i = 0; vmsd->subsections && vmsd->subsections[i]; i++) {
        const VMStateDescription *sub = vmsd->subsections[i];
        if (sub->needed && !sub->needed(opaque)) {
            continue;
        }
        if (desc && !any) {
            json_writer_start_array(desc, "subsections");
        }
        any = true;
        if (!save_subsection(w, sub, opaque, desc, depth, errp)) {
            return false;
        }
    }
    if (desc && any) {
        json_writer_end_array(desc);
    }
    return true;
}

static bool save_level(StreamWriter *w, const VMStateDescription *vmsd, void *opaque, JsonWriter *desc,
                       unsigned depth, GError **errp)
{
    if (vmsd->pre_save && !vmsd->pre_save(opaque, errp)) {
        g_prefix_error(errp, "pre-save failed: %s: ", vmsd->name);
        return false;
    }
    if (desc) {
        json_writer_str(desc, "vmsd_name", vmsd->name);
        json_writer_int(desc, "version", vmsd->version);
        json_writer_start_array(desc, "fields");
    }
    for (const VMStateField *f = vmsd->fields; f->name; f++) {
        if (!check_field(vmsd, f, depth, errp)) {
            return false;
        }
        if (f->version <= vmsd->version &&
            !save_field(w, f, (uint8_t *)opaque + f->offset, desc, depth, errp)) {
            return false;
        }
    }
    if (desc) {
        json_writer_end_array(desc);
    }
    return save_subsections(w, vmsd, opaque, desc, depth, errp) && writer_ok(w, errp);
}

bool vmstate_save(StreamWriter *w, const VMStateDescription *vmsd, void *opaque, JsonWriter *desc,
                  GError **errp)
{
    return save_level(w, vmsd, opaque, desc, 0, errp);
}

/* ---- loading ---- */

static void load_element(StreamReader *r, const VMStateField *f, uint8_t *p)
{
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;

    switch (f->type) {
    case VMSTATE_UINT8:
        *p = stream_get_u8(r);
        break;
    case VMSTATE_BOOL:
        *p = stream_get_u8(r) != 0;
        break;
    case VMSTATE_UINT16:
        v16 = stream_get_be16(r);
        memcpy(p, &v16, sizeof(v16));
        break;
    case VMSTATE_UINT32:
    case VMSTATE_INT32:
        v32 = stream_get_be32(r);
        memcpy(p, &v32, sizeof(v32));
        break;
    case VMSTATE_UINT64:
    case VMSTATE_INT64:
        v64 = stream_get_be64(r);
        memcpy(p, &v64, sizeof(v64));
        break;
    case VMSTATE_BUFFER:
        stream_get(r, p, f->size);
        break;
    case VMSTATE_UNUSED:
        stream_skip(r, f->size);
        break;
    case VMSTATE_STRUCT:
        g_assert_not_reached();     /* load_field() */
    }
}

static bool load_field(StreamReader *r, const VMStateField *f, uint8_t *p, unsigned depth, GError **errp)
{
    for (unsigned i = 0; i < field_count(f); i++) {
        if (f->type != VMSTATE_STRUCT) {
            load_element(r, f, p + i * field_size(f));
        } else if (!load_level(r, f->vmsd, p + i * f->size, f->vmsd->version, depth + 1, errp)) {
            return false;
        }
    }
    return true;
}

/* Compares the announced name with "@parent/" without taking a byte. */
static bool peek_is_child_of(StreamReader *r, const char *parent)
{
    size_t n = strlen(parent);
    if (stream_peek_u8(r, 0) != VMSTATE_SUBSECTION || stream_peek_u8(r, 1) < (int)n + 1) {
        return false;
    }
    for (size_t i = 0; i <= n; i++) {
        int expected = i < n ? (uint8_t)parent[i] : '/';
        if (stream_peek_u8(r, 2 + i) != expected) {
            return false;
        }
    }
    return true;
}

int vmstate_next_subsection(StreamReader *r, const char *parent, char *name, uint32_t *version, GError **errp)
{
    if (!peek_is_child_of(r, parent)) {
        return reader_ok(r, errp) ? 0 : -1;
    }
    stream_get_u8(r);
    stream_get_counted_string(r, name);
    *version = stream_get_be32(r);
    return reader_ok(r, errp) ? 1 : -1;
}

static const VMStateDescription *find_subsection(const VMStateDescription *vmsd, const char *name)
{
    for (size_t i = 0; vmsd->subsections && vmsd->subsections[i]; i++) {
        if (strcmp(vmsd->subsections[i]->name, name) == 0) {
            return vmsd->subsections[i];
        }
    }
    return NULL;
}

static bool load_subsections(StreamReader *r, const VMStateDescription *vmsd, void *opaque, unsigned depth,
                             GError **errp)
{
    char name[256];
    uint32_t version;
    int more;

    while ((more = vmstate_next_subsection(r, vmsd->name, name, &version, errp)) == 1) {
        const VMStateDescription *sub = find_subsection(vmsd, name);
        if (!sub) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                        "VM subsection '%s' in '%s' does not exist", name, vmsd->name);
            return false;
        }
        if (version > INT32_MAX || !load_level(r, sub, opaque, (int)version, depth + 1, errp)) {
            if (version > INT32_MAX) {
                g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "unsupported version %u", version);
            }
            g_prefix_error(errp, "Loading VM subsection '%s' in '%s' failed: ", name, vmsd->name);
            return false;
        }
    }
    return more == 0;
}

static bool load_fields(StreamReader *r, const VMStateDescription *vmsd, void *opaque, int version,
                        unsigned depth, GError **errp)
{
    for (const VMStateField *f = vmsd->fields; f->name; f++) {
        if (!check_field(vmsd, f, depth, errp)) {
            return false;
        }
        if (f->version <= version && !load_field(r, f, (uint8_t *)opaque + f->offset, depth, errp)) {
            return false;
        }
        if (!reader_ok(r, errp)) {
            g_prefix_error(errp, "Failed to load element %s/%s: ", vmsd->name, f->name);
            return false;
        }
    }
    return true;
}

static bool load_level(StreamReader *r, const VMStateDescription *vmsd, void *opaque, int version,
                       unsigned depth, GError **errp)
{
    if (version > vmsd->version || version < vmsd->minimum_version) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "%s: incoming version_id %d is not between %d and %d", vmsd->name, version,
                    vmsd->minimum_version, vmsd->version);
        return false;
    }
    if (vmsd->pre_load && !vmsd->pre_load(opaque, errp)) {
        g_prefix_error(errp, "pre load hook failed for: %s, version_id: %d, minimum_version: %d: ",
                       vmsd->name, vmsd->version, vmsd->minimum_version);
        return false;
    }
    if (!load_fields(r, vmsd, opaque, version, depth, errp) ||
        !load_subsections(r, vmsd, opaque, depth, errp)) {
        return false;
    }
    if (vmsd->post_load && !vmsd->post_load(opaque, version, errp)) {
        g_prefix_error(errp, "post load hook failed for: %s, version_id: %d, minimum_version: %d: ",
                       vmsd->name, version, vmsd->minimum_version);
        return false;
    }
    return true;
}

bool vmstate_load(StreamReader *r, const VMStateDescription *vmsd, void *opaque, int version, GError **errp)
{
    return load_level(r, vmsd, opaque, version, 0, errp);
}
