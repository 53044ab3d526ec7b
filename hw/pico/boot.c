/* SPDX-License-Identifier: BSD-2-Clause */
/* Booting without firmware: an ELF with a PVH note, or a Linux bzImage by its 32-bit protocol. */

/*
 * Guest memory at the start:
 *
 *   0x00000500   GDT: selectors 0x10 (code) and 0x18 (data), flat
 *   0x00006000   PVH start info, its module list and memory map; or
 *   0x00007000   Linux boot parameters ("zero page")
 *   0x00020000   command line
 *   0x000e0000   ACPI tables
 *   0x000f0000   MP table
 *   0x00100000   bzImage; an ELF goes where its program headers say
 *   end          initial RAM disk, ends at the end of memory
 */
#include "pico.h"

#include <elf.h>
#include <inttypes.h>
#include <string.h>

#include "util/error.h"

#define GDT_ADDR 0x500
#define START_INFO_ADDR 0x6000
#define MODULE_ADDR 0x6100
#define MEMORY_MAP_ADDR 0x6200
#define ZERO_PAGE_ADDR 0x7000
#define COMMAND_LINE_ADDR 0x20000
#define COMMAND_LINE_MAX 65536
#define LOW_END 0x9fc00         /* of the memory below the hole of old adapters */
#define HIGH_START 0x100000
#define KERNEL_ADDR 0x100000

#define PVH_NOTE_TYPE 18        /* XEN_ELFNOTE_PHYS32_ENTRY */
#define PVH_MAGIC 0x336ec578u
#define ELF_PHDRS_MAX 256
#define ELF_NOTES_MAX 65536     /* bytes of one note segment */

static bool bad(GError **errp, const char *what, const char *why)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "-kernel: %s: %s", what, why);
    return false;
}

static bool open_file(GMappedFile **to, const char *option, const char *path, GError **errp)
{
    g_autoptr(GError) why = NULL;

    *to = g_mapped_file_new(path, FALSE, &why);
    if (!*to) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "-%s: %s", option, why->message);
        return false;
    }
    return true;
}

bool pico_boot_open(PicoBoot *b, const Machine *m, GError **errp)
{
    b->append = m->append ? m->append : "";
    if (!m->kernel && (m->initrd || m->append)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "-initrd and -append need -kernel");
        return false;
    }
    if (!m->kernel && !m->incoming) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Machine pico has no firmware: it needs -kernel, or -incoming for a guest that runs "
                    "elsewhere");
        return false;
    }
    if (strlen(b->append) >= COMMAND_LINE_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "-append: at most %d bytes are possible",
                    COMMAND_LINE_MAX - 1);
        return false;
    }
    return (!m->kernel || open_file(&b->kernel, "kernel", m->kernel, errp)) &&
           (!m->initrd || open_file(&b->initrd, "initrd", m->initrd, errp));
}

void pico_boot_close(PicoBoot *b)
{
    g_clear_pointer(&b->kernel, g_mapped_file_unref);
    g_clear_pointer(&b->initrd, g_mapped_file_unref);
    g_clear_pointer(&b->acpi, g_byte_array_unref);
}

/* ---- what both have in common ---- */

typedef struct MapEntry {
    uint64_t addr, size;
    uint32_t type;              /* 1: memory, 2: reserved; the same numbers for PVH and for e820 */
} MapEntry;

static unsigned memory_map(const Machine *m, MapEntry map[4])
{
    uint64_t end = ram_list_total(&m->ram);
    unsigned n = 0;

    map[n++] = (MapEntry){ 0, MIN(end, LOW_END), 1 };
    map[n++] = (MapEntry){ LOW_END, HIGH_START - LOW_END, 2 };
    if (end > HIGH_START) {
        map[n++] = (MapEntry){ HIGH_START, end - HIGH_START, 1 };
    }
    return n;
}

static void put_le(uint8_t *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint64_t get_le(const uint8_t *from, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)from[i] << 8 * i;
    }
    return value;
}

static bool load_common(const PicoBoot *b, Machine *m, GError **errp)
{
    g_autoptr(GByteArray) mptable = pico_mptable_build(m->cpus);
    uint8_t gdt[32] = { 0 };

    put_le(gdt + 0x10, UINT64_C(0x00cf9b000000ffff), 8);
    put_le(gdt + 0x18, UINT64_C(0x00cf93000000ffff), 8);
    return machine_memory_write(m, GDT_ADDR, gdt, sizeof(gdt), errp) &&
           machine_memory_write(m, COMMAND_LINE_ADDR, b->append, strlen(b->append) + 1, errp) &&
           machine_memory_write(m, PICO_MPTABLE_ADDR, mptable->data, mptable->len, errp) &&
           (!b->acpi || machine_memory_write(m, PICO_ACPI_ADDR, b->acpi->data, b->acpi->len, errp));
}

/* At the end of memory below @limit; 0 bytes at 0 without one. */
static bool load_initrd(const PicoBoot *b, Machine *m, uint64_t kernel_end, uint64_t limit, uint64_t *addr,
                        uint64_t *size, GError **errp)
{
    *addr = *size = 0;
    if (!b->initrd) {
        return true;
    }
    uint64_t end = MIN(ram_list_total(&m->ram), limit);
    *size = g_mapped_file_get_length(b->initrd);
    if (*size > end || end - *size < kernel_end + TARGET_PAGE_SIZE) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "-initrd: %" PRIu64 " bytes do not fit into the guest's memory beside the kernel", *size);
        return false;
    }
    *addr = (end - *size) & ~(uint64_t)(TARGET_PAGE_SIZE - 1);
    return machine_memory_write(m, *addr, g_mapped_file_get_contents(b->initrd), *size, errp);
}

/* ---- ELF with a PVH note ---- */

typedef struct Image {
    const uint8_t *bytes;
    uint64_t len;
} Image;

/* One program header of either class. */
typedef struct Segment {
    uint32_t type;
    uint64_t offset, addr, file_size, size;
} Segment;

static bool in_file(const Image *image, uint64_t offset, uint64_t len)
{
    return offset <= image->len && len <= image->len - offset;
}

static void read_segment(const uint8_t *p, bool wide, Segment *s)
{
    s->type = (uint32_t)get_le(p, 4);
    if (wide) {
        s->offset = get_le(p + 8, 8);
        s->addr = get_le(p + 24, 8);
        s->file_size = get_le(p + 32, 8);
        s->size = get_le(p + 40, 8);
    } else {
        s->offset = get_le(p + 4, 4);
        s->addr = get_le(p + 12, 4);
        s->file_size = get_le(p + 16, 4);
        s->size = get_le(p + 20, 4);
    }
}

/* Name "Xen", type 18: the entry's physical address.  Malformed notes end the search. */
static void find_note(const uint8_t *p, uint64_t len, uint32_t *entry)
{
    while (len >= 12) {
        uint64_t name = get_le(p, 4), desc = get_le(p + 4, 4), type = get_le(p + 8, 4);
        uint64_t name_space = (name + 3) & ~UINT64_C(3), desc_space = (desc + 3) & ~UINT64_C(3);
        if (name_space + desc_space > len - 12) {
            return;
        }
        if (type == PVH_NOTE_TYPE && name == 4 && memcmp(p + 12, "Xen", 4) == 0 && desc >= 4) {
            *entry = (uint32_t)get_le(p + 12 + name_space, 4);
        }
        p += 12 + name_space + desc_space;
        len -= 12 + name_space + desc_space;
    }
}

static bool load_segment(const Image *image, const Segment *s, Machine *m, uint64_t *end, GError **errp)
{
    if (!in_file(image, s->offset, s->file_size) || s->file_size > s->size) {
        return bad(errp, "the ELF file", "a program header goes past its end");
    }
    if (s->size > UINT64_MAX - s->addr) {
        return bad(errp, "the ELF file", "a program header goes past the end of all addresses");
    }
    *end = MAX(*end, s->addr + s->size);
    return machine_memory_write(m, s->addr, image->bytes + s->offset, s->file_size, errp) &&
           machine_memory_fill(m, s->addr + s->file_size, 0, s->size - s->file_size, errp);
}

static bool load_elf(const Image *image, Machine *m, uint32_t *entry, uint64_t *end, GError **errp)
{
    bool wide = image->bytes[EI_CLASS] == ELFCLASS64;
    uint64_t header = wide ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr);

    if (image->len < header || image->bytes[EI_DATA] != ELFDATA2LSB) {
        return bad(errp, "the ELF file", "it is not a little-endian one");
    }
    uint64_t table = wide ? get_le(image->bytes + 32, 8) : get_le(image->bytes + 28, 4);
    uint64_t size = get_le(image->bytes + (wide ? 54 : 42), 2);
    uint64_t count = get_le(image->bytes + (wide ? 56 : 44), 2);
    if (count > ELF_PHDRS_MAX || size < (wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr)) ||
        !in_file(image, table, size * count)) {
        return bad(errp, "the ELF file", "its program headers make no sense");
    }
    *entry = 0;
    for (uint64_t i = 0; i < count; i++) {
        Segment s;
        read_segment(image->bytes + table + i * size, wide, &s);
        if (s.type == PT_LOAD && s.size && !load_segment(image, &s, m, end, errp)) {
            return false;
        }
        if (s.type == PT_NOTE && s.file_size <= ELF_NOTES_MAX && in_file(image, s.offset, s.file_size)) {
            find_note(image->bytes + s.offset, s.file_size, entry);
        }
    }
    return *entry != 0 || bad(errp, "the ELF file", "it has no PVH note that says where it begins");
}

static bool start_pvh(const PicoBoot *b, Machine *m, const Image *image, KvmEntry *entry, GError **errp)
{
    uint8_t info[0x400] = { 0 };
    uint64_t end = 0, initrd, initrd_size;
    MapEntry map[4];
    unsigned n = memory_map(m, map);

    if (!load_elf(image, m, &entry->eip, &end, errp) ||
        !load_initrd(b, m, end, UINT32_MAX, &initrd, &initrd_size, errp)) {
        return false;
    }
    put_le(info, PVH_MAGIC, 4);
    put_le(info + 4, 1, 4);                         /* version: with a memory map */
    put_le(info + 12, b->initrd ? 1 : 0, 4);
    put_le(info + 16, MODULE_ADDR, 8);
    put_le(info + 24, COMMAND_LINE_ADDR, 8);
    put_le(info + 32, b->acpi ? PICO_ACPI_ADDR : 0, 8);
    put_le(info + 40, MEMORY_MAP_ADDR, 8);
    put_le(info + 48, n, 4);
    uint8_t *module = info + (MODULE_ADDR - START_INFO_ADDR);
    put_le(module, initrd, 8);
    put_le(module + 8, initrd_size, 8);
    uint8_t *p = info + (MEMORY_MAP_ADDR - START_INFO_ADDR);
    for (unsigned i = 0; i < n; i++, p += 24) {
        put_le(p, map[i].addr, 8);
        put_le(p + 8, map[i].size, 8);
        put_le(p + 16, map[i].type, 4);
    }
    entry->ebx = START_INFO_ADDR;
    return machine_memory_write(m, START_INFO_ADDR, info, sizeof(info), errp);
}

/* ---- bzImage ---- */

/* Offsets in the file and in the zero page. */
enum {
    SETUP_SECTS = 0x1f1, SETUP_HEADER = 0x1f1, JUMP_LENGTH = 0x201, HEADER_MAGIC = 0x202, PROTOCOL = 0x206,
    TYPE_OF_LOADER = 0x210, LOAD_FLAGS = 0x211, RAMDISK_IMAGE = 0x218, RAMDISK_SIZE = 0x21c,
    CMD_LINE_PTR = 0x228, INITRD_ADDR_MAX = 0x22c, CMDLINE_SIZE = 0x238, INIT_SIZE = 0x260,
    E820_ENTRIES = 0x1e8, E820_TABLE = 0x2d0, ACPI_RSDP_ADDR = 0x70,
};

static bool is_bzimage(const Image *image)
{
    return image->len > 0x1000 && memcmp(image->bytes + HEADER_MAGIC, "HdrS", 4) == 0;
}

static bool start_bzimage(const PicoBoot *b, Machine *m, const Image *image, KvmEntry *entry, GError **errp)
{
    const uint8_t *file = image->bytes;
    uint8_t page[4096] = { 0 };
    uint64_t sectors = file[SETUP_SECTS] ? file[SETUP_SECTS] : 4, setup = (sectors + 1) * 512;
    uint64_t initrd, initrd_size;
    MapEntry map[4];
    unsigned n = memory_map(m, map);

    if (get_le(file + PROTOCOL, 2) < 0x20a || !(file[LOAD_FLAGS] & 1) || setup >= image->len) {
        return bad(errp, "the bzImage", "it is too old or cut off");
    }
    if (strlen(b->append) > get_le(file + CMDLINE_SIZE, 4)) {
        return bad(errp, "the bzImage", "-append is longer than this kernel takes");
    }
    uint64_t kernel_end = KERNEL_ADDR + MAX(image->len - setup, get_le(file + INIT_SIZE, 4));
    if (!machine_memory_write(m, KERNEL_ADDR, file + setup, image->len - setup, errp) ||
        !load_initrd(b, m, kernel_end, get_le(file + INITRD_ADDR_MAX, 4) + 1, &initrd, &initrd_size, errp)) {
        return false;
    }
    uint64_t header_end = MIN(HEADER_MAGIC + (uint64_t)file[JUMP_LENGTH], E820_TABLE);
    memcpy(page + SETUP_HEADER, file + SETUP_HEADER, header_end - SETUP_HEADER);
    page[TYPE_OF_LOADER] = 0xff;
    put_le(page + RAMDISK_IMAGE, initrd, 4);
    put_le(page + RAMDISK_SIZE, initrd_size, 4);
    put_le(page + CMD_LINE_PTR, COMMAND_LINE_ADDR, 4);
    put_le(page + ACPI_RSDP_ADDR, b->acpi ? PICO_ACPI_ADDR : 0, 8);
    page[E820_ENTRIES] = (uint8_t)n;
    for (unsigned i = 0; i < n; i++) {
        uint8_t *p = page + E820_TABLE + i * 20;
        put_le(p, map[i].addr, 8);
        put_le(p + 8, map[i].size, 8);
        put_le(p + 16, map[i].type, 4);
    }
    entry->eip = KERNEL_ADDR;
    entry->esi = ZERO_PAGE_ADDR;
    return machine_memory_write(m, ZERO_PAGE_ADDR, page, sizeof(page), errp);
}

bool pico_boot_load(const PicoBoot *b, Machine *m, KvmEntry *entry, GError **errp)
{
    if (!b->kernel) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "there is no -kernel to start the guest with");
        return false;
    }
    const Image image = {
        (const uint8_t *)g_mapped_file_get_contents(b->kernel), g_mapped_file_get_length(b->kernel),
    };
    if (!load_common(b, m, errp)) {
        return false;
    }
    if (image.len >= EI_NIDENT && memcmp(image.bytes, ELFMAG, SELFMAG) == 0) {
        return start_pvh(b, m, &image, entry, errp);
    }
    if (is_bzimage(&image)) {
        return start_bzimage(b, m, &image, entry, errp);
    }
    return bad(errp, m->kernel, "neither an ELF file nor a Linux bzImage");
}
