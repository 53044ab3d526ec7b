/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination's half of mapped-ram: the block list with its headers and bitmaps. */
#include "migration/mapped-ram-load.h"

#include "migration/ram-wire.h"
#include "migration/stream-format.h"
#include "trace-migration.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

#include <inttypes.h>
#include <string.h>

/* ---- life ---- */

MappedRamLoad *mapped_ram_load_new(RamList *ram, const MigrationOptions *options,
                                   const MappedRamLoadConfig *config)
{
    MappedRamLoad *load = g_new0(MappedRamLoad, 1);

    load->ram = ram;
    load->options = options;
    load->config = *config;
    channel_ref(config->file);
    load->blocks = g_array_new(FALSE, TRUE, sizeof(MappedRamLoadBlock));
    g_mutex_init(&load->lock);
    return load;
}

void mapped_ram_load_free(MappedRamLoad *load)
{
    if (!load) {
        return;
    }
    mapped_ram_load_abandon(load);
    for (guint i = 0; i < load->blocks->len; i++) {
        MappedRamLoadBlock *b = &g_array_index(load->blocks, MappedRamLoadBlock, i);
        bitmap_free(b->data, b->pages);
    }
    g_array_unref(load->blocks);
    mapped_ram_image_free(load->image);
    g_clear_error(&load->error);
    g_mutex_clear(&load->lock);
    channel_unref(load->config.file);
    g_free(load);
}

const char *mapped_ram_load_backend(const MappedRamLoad *load)
{
    return __atomic_load_n(&load->backend, __ATOMIC_RELAXED);
}

bool mapped_ram_load_is_lazy(const MappedRamLoad *load)
{
    return __atomic_load_n(&load->is_lazy, __ATOMIC_RELAXED);
}

uint64_t mapped_ram_load_left(const MappedRamLoad *load)
{
    return ram_stats_get(&load->pages_left);
}

/* ---- errors and ends ---- */

void mapped_ram_load_fail(MappedRamLoad *load, GError *error)
{
    g_mutex_lock(&load->lock);
    if (!load->error) {
        load->error = g_steal_pointer(&error);
        __atomic_store_n(&load->failed, true, __ATOMIC_RELAXED);
    }
    g_mutex_unlock(&load->lock);
    g_clear_error(&error);
}

bool mapped_ram_load_stopped(void *opaque)
{
    MappedRamLoad *load = opaque;

    return __atomic_load_n(&load->failed, __ATOMIC_RELAXED) || load->config.interrupted(load->config.opaque);
}

MappedRamLoadBlock *mapped_ram_load_unit(MappedRamLoad *load, uint64_t number, uint64_t *first,
                                         uint64_t *end)
{
    guint i = load->blocks->len - 1;

    while (g_array_index(load->blocks, MappedRamLoadBlock, i).first_unit > number) {
        i--;
    }
    MappedRamLoadBlock *b = &g_array_index(load->blocks, MappedRamLoadBlock, i);
    *first = (number - b->first_unit) * MAPPED_RAM_UNIT;
    *end = MIN(*first + MAPPED_RAM_UNIT, b->pages);
    return b;
}

/* ---- the file, before the stream ---- */

/*
 * Where the ram section is good but a section of device state is not understood, the stream's loader knows
 * better what to say.
 */
static bool is_for_loader(const MappedRamImage *image, const GError *error)
{
    if (!g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL) &&
        !g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED)) {
        return false;
    }
    for (guint i = 0; i < image->sections->len; i++) {
        const MappedRamSection *s = &g_array_index(image->sections, MappedRamSection, i);
        if (!strcmp(s->idstr, RAM_SECTION_NAME)) {
            return s->ended;
        }
    }
    /* No ram section, or not even the head of a stream. */
    return true;
}

/* Memory of ours that the file says nothing about would stay as it happens to be. */
static bool check_all_listed(const MappedRamLoad *load, GError **errp)
{
    RAMLIST_FOREACH(block, load->ram) {
        bool found = false;
        for (guint i = 0; i < load->image->blocks->len && !found; i++) {
            found = !strcmp(mapped_ram_image_block(load->image, i)->idstr, block->idstr);
        }
        if (!found) {
            return error_set_protocol(errp, "RAM block '%s' of this guest is not in the file", block->idstr);
        }
    }
    return true;
}

bool mapped_ram_load_check(MappedRamLoad *load, GError **errp)
{
    g_autoptr(GError) error = NULL;

    load->image = mapped_ram_image_new(load->config.file, load->config.offset, errp);
    if (!load->image) {
        return false;
    }
    if (!mapped_ram_image_read(load->image, MAPPED_RAM_READ_ALL, &error) &&
        !is_for_loader(load->image, error)) {
        g_propagate_error(errp, g_steal_pointer(&error));
        return false;
    }
    /* A file of the other kind, or no ram section: the loader refuses it. */
    return !load->image->mapped || (mapped_ram_image_match(load->image, load->ram, errp) &&
                                    check_all_listed(load, errp));
}

/* ---- the block list ---- */

/* Both sides must agree on what is not in the file: else memory would stay as it happens to be. */
static bool check_ignored(const RAMBlock *block, bool absent, bool ignored, GError **errp)
{
    if (absent == ignored) {
        return true;
    }
    return error_set_protocol(errp,
                              absent ? "RAM block '%s' is not in the file, but not shared memory here"
                                     : "RAM block '%s' is in the file, but it is shared and ignored here",
                              block->idstr);
}

static bool add_block(MappedRamLoad *load, RAMBlock *block, const MappedRamBlock *image, GError **errp)
{
    uint64_t *data = mapped_ram_block_read_bitmap(image, load->config.file, errp);
    MappedRamLoadBlock b = {
        .block = block,
        .pages = ramblock_pages(block),
        .pages_offset = image->pages_offset,
        .first_unit = load->units,
        .data = data,
    };

    if (!data) {
        return false;
    }
    g_array_append_val(load->blocks, b);
    load->units += (b.pages + MAPPED_RAM_UNIT - 1) / MAPPED_RAM_UNIT;
    uint64_t count = bitmap_count(data, 0, b.pages);
    if (count && block->readonly) {
        return error_set_protocol(errp, "RAM block '%s' has pages in the file, but it is read-only",
                                  block->idstr);
    }
    ram_stats_add(&load->pages_left, count);
    trace_mapped_ram_load_block(block->idstr, image->bitmap_offset, image->pages_offset, count);
    return true;
}

/* The header that is next in the stream has been checked already, as part of the image. */
static bool load_block(MappedRamLoad *load, StreamReader *r, RAMBlock *block, GError **errp)
{
    bool may_ignore = load->options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED];
    MappedRamHeaderWire wire;

    if (!stream_get(r, &wire, sizeof(wire)) || fault_point("mapped-ram-load-block", errp)) {
        return stream_reader_check(r, errp);
    }
    const MappedRamBlock *image = load->listed < load->image->blocks->len
        ? mapped_ram_image_block(load->image, load->listed++) : NULL;
    if (!image || strcmp(image->idstr, block->idstr) != 0 || image->used_length != block->used_length) {
        return error_set_protocol(errp,
                                  "RAM block '%s' was not there when the file was checked: it has changed",
                                  block->idstr);
    }
    if (!check_ignored(block, image->absent, may_ignore && block->shared, errp)) {
        return false;
    }
    return image->absent || (add_block(load, block, image, errp) &&
                             stream_reader_seek(r, image->pages_offset + block->used_length, errp));
}

/* ---- the source of pages ---- */

typedef struct MappedRamSource {
    RamSource base;
    MappedRamLoad *load;
} MappedRamSource;

static bool source_setup_block(RamSource *base, StreamReader *r, RAMBlock *block, GError **errp)
{
    return load_block(((MappedRamSource *)base)->load, r, block, errp);
}

/* True: the guest need not wait for its memory. */
static bool start_lazy(MappedRamLoad *load)
{
    g_autoptr(GError) error = NULL;

    if (!load->options->p.x_mapped_ram_lazy) {
        return false;
    }
    if (!mapped_ram_lazy_start(load, &error)) {
        migration_host_log(load->config.host,
                           "x-mapped-ram-lazy: all memory is read before the guest runs: %s", error->message);
        return false;
    }
    __atomic_store_n(&load->is_lazy, true, __ATOMIC_RELAXED);
    return true;
}

static bool source_section_end(RamSource *base, uint8_t type, GError **errp)
{
    MappedRamLoad *load = ((MappedRamSource *)base)->load;

    if (type != SECTION_END || load->read) {
        return true;
    }
    load->read = true;
    return start_lazy(load) || mapped_ram_read_all(load, errp);
}

static bool source_flush_word(RamSource *base, GError **errp)
{
    return error_set_protocol(errp, "Flag MULTIFD_FLUSH in a file with mapped-ram");
}

static bool source_hook_word(RamSource *base, StreamReader *r, uint64_t arg, GError **errp)
{
    return error_set_protocol(errp, "Flag HOOK in a file with mapped-ram");
}

static bool source_complete(RamSource *base, GError **errp)
{
    MappedRamLoad *load = ((MappedRamSource *)base)->load;

    return load->read || error_set_protocol(errp, "The file has no END section of ram: it is incomplete");
}

static void source_cleanup(RamSource *base)
{
    g_free(base);
}

static const RamSourceOps mapped_ram_source_ops = {
    .name = "mapped-ram",
    .no_stream_pages = true,
    .setup_block = source_setup_block,
    .section_end = source_section_end,
    .flush_word = source_flush_word,
    .hook_word = source_hook_word,
    .complete = source_complete,
    .cleanup = source_cleanup,
};

RamSource *mapped_ram_load_source(MappedRamLoad *load)
{
    MappedRamSource *s = g_new0(MappedRamSource, 1);

    s->base.ops = &mapped_ram_source_ops;
    s->load = load;
    return &s->base;
}
