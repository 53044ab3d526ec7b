/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP: looking at guest memory, and what it consists of. */
#include "hmp.h"

#include "qapi/qapi-commands-machine.h"
#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* Units of one dump. */
#define DUMP_MAX   (1 << 20)
#define SAVE_PIECE 65536

/* ---- values ---- */

static void append_char(GString *text, uint8_t c)
{
    static const char special[] = "\n\r'\\";
    static const char letters[] = "nr'\\";
    const char *found = c ? strchr(special, c) : NULL;

    if (found) {
        g_string_append_printf(text, "'\\%c'", letters[found - special]);
    } else if (c >= 0x20 && c < 0x7f) {
        g_string_append_printf(text, "'%c'", c);
    } else {
        g_string_append_printf(text, "'\\x%02x'", c);
    }
}

static int64_t sign_extend(uint64_t value, unsigned size)
{
    unsigned shift = 64 - size * 8;

    return (int64_t)(value << shift) >> shift;
}

/* With the width that makes columns. */
static void append_unit(GString *text, uint64_t value, char format, unsigned size)
{
    int decimal_width = (int)(size * 8 * 10 + 32) / 33;

    switch (format) {
    case 'o':
        g_string_append_printf(text, "0%*" PRIo64, (int)(size * 8 + 2) / 3, value);
        break;
    case 'u':
        g_string_append_printf(text, "%*" PRIu64, decimal_width, value);
        break;
    case 'd':
        g_string_append_printf(text, "%*" PRId64, decimal_width, sign_extend(value, size));
        break;
    case 'c':
        append_char(text, (uint8_t)value);
        break;
    default:
        g_string_append_printf(text, "0x%0*" PRIx64, (int)size * 2, value);
        break;
    }
}

bool hmp_print(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    int64_t value = hmp_number(args, "expr");

    switch (hmp_format(args, "fmt").format) {
    case 'o':
        hmp_printf(hmp, "0%" PRIo64 "\n", (uint64_t)value);
        break;
    case 'u':
        hmp_printf(hmp, "%" PRIu64 "\n", (uint64_t)value);
        break;
    case 'd':
    case 'i':
        hmp_printf(hmp, "%" PRId64 "\n", value);
        break;
    case 'c':
        append_char(hmp->out, (uint8_t)value);
        hmp_printf(hmp, "\n");
        break;
    default:
        hmp_printf(hmp, "0x%" PRIx64 "\n", (uint64_t)value);
        break;
    }
    return true;
}

/* ---- dumps ---- */

static uint64_t load_unit(const uint8_t *bytes, unsigned size)
{
    uint64_t value = 0;

    memcpy(&value, bytes, size);
    return GUINT64_FROM_LE(value);
}

/* @len bytes of a line at @address; false: they cannot be read. */
static bool dump_line(Hmp *hmp, uint64_t address, unsigned len, const HmpFormat *f, int address_width)
{
    uint8_t bytes[16];

    hmp_printf(hmp, "%0*" PRIx64 ":", address_width, address);
    if (!machine_memory_read(hmp->ctx->machine, address, bytes, len, NULL)) {
        hmp_printf(hmp, " Cannot access memory\n");
        return false;
    }
    for (unsigned i = 0; i < len; i += f->size) {
        g_string_append_c(hmp->out, ' ');
        append_unit(hmp->out, load_unit(bytes + i, f->size), f->format, f->size);
    }
    g_string_append_c(hmp->out, '\n');
    return true;
}

static bool dump(Hmp *hmp, const HmpArgs *args, int address_width, GError **errp)
{
    HmpFormat f = hmp_format(args, "fmt");
    uint64_t address = (uint64_t)hmp_number(args, "addr");

    if (f.format == 'i') {
        hmp_printf(hmp, "Can not dump without CPU\n");
        return true;
    }
    if (f.count > DUMP_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "count must be between 0 and %d", DUMP_MAX);
        return false;
    }
    uint64_t left = (uint64_t)f.count * f.size;
    if (f.format == 'c') {
        f.size = 1;
    }
    unsigned line = f.size == 1 ? 8 : 16;
    while (left > 0) {
        unsigned len = (unsigned)MIN(left, line);
        if (!dump_line(hmp, address, len, &f, address_width)) {
            break;
        }
        address += len;
        left -= len;
    }
    return true;
}

bool hmp_dump_physical(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    return dump(hmp, args, 8, errp);
}

/* The synthetic vCPUs do not translate: their virtual addresses are the physical ones. */
bool hmp_dump_virtual(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    if (!hmp->ctx->machine->cpu_ops) {
        hmp_printf(hmp, "Can not dump without CPU\n");
        return true;
    }
    return dump(hmp, args, 16, errp);
}

bool hmp_gpa2hva(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    uint64_t address = (uint64_t)hmp_number(args, "addr");
    uint64_t len = 1;
    RAMBlock *block;
    uint8_t *host = ram_list_translate(&hmp->ctx->machine->ram, address, &len, &block);

    if (host) {
        hmp_printf(hmp, "Host virtual address for 0x%" PRIx64 " (%s) is %p\n", address, block->idstr,
                   (void *)host);
    } else {
        hmp_printf(hmp, "No memory is mapped at address 0x%" PRIx64 "\n", address);
    }
    return true;
}

/* ---- pmemsave ---- */

static bool write_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
    }
    return true;
}

static bool save_memory(Hmp *hmp, int fd, const char *path, uint64_t address, uint64_t size, GError **errp)
{
    g_autofree uint8_t *piece = g_malloc(SAVE_PIECE);

    while (size > 0) {
        uint64_t len = MIN(size, SAVE_PIECE);
        if (!machine_memory_read(hmp->ctx->machine, address, piece, len, errp)) {
            return false;
        }
        if (!write_all(fd, piece, len)) {
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "Could not write '%s'", path);
            return false;
        }
        address += len;
        size -= len;
    }
    return true;
}

bool hmp_pmemsave(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    const char *path = hmp_text(args, "file");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Could not open '%s'", path);
        return false;
    }
    bool ok = save_memory(hmp, fd, path, (uint64_t)hmp_number(args, "addr"),
                          (uint64_t)hmp_number(args, "size"), errp);
    if (close(fd) < 0 && ok) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Could not write '%s'", path);
        ok = false;
    }
    return ok;
}

/* ---- what there is ---- */

bool hmp_info_memory_size_summary(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    hmp_printf(hmp, "base memory: %" PRIu64 "\nplugged memory: 0\n", ram_list_total(&hmp->ctx->machine->ram));
    return true;
}

static const char *yes_no(bool value)
{
    return value ? "true" : "false";
}

static void show_backend(Hmp *hmp, const Memdev *m)
{
    hmp_printf(hmp, "memory backend: %s\n", m->id);
    hmp_printf(hmp, "  size:  %" PRIu64 "\n", m->size);
    hmp_printf(hmp, "  merge: %s\n", yes_no(m->merge));
    hmp_printf(hmp, "  dump: %s\n", yes_no(m->dump));
    hmp_printf(hmp, "  prealloc: %s\n", yes_no(m->prealloc));
    hmp_printf(hmp, "  share: %s\n", yes_no(m->share));
    hmp_printf(hmp, "  reserve: %s\n", yes_no(m->reserve));
    hmp_printf(hmp, "  policy: %s\n", HostMemPolicy_str(m->policy));
    hmp_printf(hmp, "  host nodes: ");
    for (size_t i = 0; i < m->host_nodes->count; i++) {
        hmp_printf(hmp, "%s%u", i ? "," : "", m->host_nodes->items[i]);
    }
    hmp_printf(hmp, "\n");
}

bool hmp_info_memdev(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(MemdevList) list = qmp_query_memdev(hmp->ctx, errp);

    for (size_t i = 0; i < list->count; i++) {
        show_backend(hmp, list->items[i]);
    }
    hmp_printf(hmp, "\n");
    return true;
}

static void show_block(Hmp *hmp, const char *name, const RAMBlock *block, uint64_t offset)
{
    g_autofree char *page_size = g_strdup_printf("%zu KiB", block->page_size >> 10);

    hmp_printf(hmp, "%24s %8s  0x%016" PRIx64 " 0x%016" PRIx64 " 0x%016" PRIx64 " 0x%016" PRIxPTR "  %s\n",
               name, page_size, offset, block->used_length, block->used_length, (uintptr_t)block->host,
               block->readonly ? "ro" : "rw");
}

bool hmp_info_ramblock(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    uint64_t offset = 0;

    hmp_printf(hmp, "%24s %8s  %18s %18s %18s %18s  RO\n", "Block Name", "PSize", "Offset", "Used", "Total",
               "HVA");
    RAMLIST_FOREACH (block, &hmp->ctx->machine->ram) {
        show_block(hmp, block->idstr, block, offset);
        offset += block->used_length;
    }
    /* Backends that nothing uses have no name yet. */
    for (const MemoryBackend *b = hmp->ctx->backends->first; b; b = b->next) {
        if (!b->in_use) {
            show_block(hmp, "", &b->block, offset);
            offset += b->block.used_length;
        }
    }
    return true;
}

bool hmp_info_mtree(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    hmp_printf(hmp, "address-space: I/O\n  %016x-%016x (prio 0, container): io\n\n", 0, 0xffff);
    hmp_printf(hmp, "address-space: memory\n  %016x-%016" PRIx64 " (prio 0, container): system\n", 0,
               UINT64_MAX);
    RAMLIST_FOREACH (block, &hmp->ctx->machine->ram) {
        hmp_printf(hmp, "    %016" PRIx64 "-%016" PRIx64 " (prio 0, %s): %s\n", block->gpa,
                   block->gpa + block->used_length - 1, block->readonly ? "rom" : "ram", block->idstr);
    }
    hmp_printf(hmp, "\n");
    return true;
}
