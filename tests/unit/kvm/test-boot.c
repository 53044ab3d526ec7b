/* SPDX-License-Identifier: BSD-2-Clause */
/* What a guest finds in memory at the start: PVH start info, Linux boot parameters, MP table; bad files. */
#include "hw/pico/pico.h"
#include "util/error.h"

#include <elf.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE (16u << 20)

static bool no_init(Machine *m, GError **errp)
{
    return true;
}

static const MachineType type = { .name = "test", .init = no_init };

typedef struct Fixture {
    Machine *m;
    RAMBlock block;
    PicoBoot boot;
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
    f->m = machine_new(&type, false);
    f->m->cpus = 2;
    f->block = (RAMBlock){ .idstr = "ram", .used_length = SIZE, .page_size = 4096, .fd = -1 };
    f->block.host = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    g_assert_true(ram_list_add(&f->m->ram, &f->block, NULL));
    f->boot.append = "console=ttyS0 quiet";
}

static void tear_down(Fixture *f, gconstpointer data)
{
    pico_boot_close(&f->boot);
    machine_free(f->m);
    munmap(f->block.host, SIZE);
}

static GMappedFile *file_of(const void *bytes, size_t len)
{
    char path[] = "/tmp/test-boot-XXXXXX";
    int fd = g_mkstemp(path);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(write(fd, bytes, len), ==, (ssize_t)len);
    close(fd);
    GMappedFile *file = g_mapped_file_new(path, FALSE, NULL);
    g_assert_nonnull(file);
    unlink(path);
    return file;
}

static uint64_t le(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) {
        v |= (uint64_t)p[i] << 8 * i;
    }
    return v;
}

/* ---- ELF ---- */

typedef struct Elf {
    Elf64_Ehdr header;
    Elf64_Phdr segments[2];
    struct {
        uint32_t name_size, desc_size, type;
        char name[4];
        uint32_t entry;
    } note;
    char text[16];
} Elf;

static Elf elf_file(void)
{
    Elf e = {
        .header = { .e_phoff = sizeof(Elf64_Ehdr), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 2 },
        .segments = {
            { .p_type = PT_LOAD, .p_offset = offsetof(Elf, text), .p_paddr = 0x200000, .p_filesz = 16,
              .p_memsz = 64 },
            { .p_type = PT_NOTE, .p_offset = offsetof(Elf, note), .p_filesz = sizeof(e.note) },
        },
        .note = { 4, 4, 18, "Xen", 0x200008 },
        .text = "fifteen letters",
    };
    memcpy(e.header.e_ident, ELFMAG, SELFMAG);
    e.header.e_ident[EI_CLASS] = ELFCLASS64;
    e.header.e_ident[EI_DATA] = ELFDATA2LSB;
    return e;
}

static bool load(Fixture *f, const void *kernel, size_t len, KvmEntry *entry, GError **errp)
{
    g_clear_pointer(&f->boot.kernel, g_mapped_file_unref);
    f->boot.kernel = file_of(kernel, len);
    return pico_boot_load(&f->boot, f->m, entry, errp);
}

static void test_pvh(Fixture *f, gconstpointer data)
{
    const Elf e = elf_file();
    g_autoptr(GError) error = NULL;
    const uint8_t *ram = f->block.host;
    KvmEntry entry = { 0 };

    memset(f->block.host + 0x200000, 0xa5, 256);    /* memory of a guest before a reset */
    f->boot.initrd = file_of("a disk", 6);
    g_assert_true(load(f, &e, sizeof(e), &entry, &error));
    g_assert_no_error(error);
    g_assert_cmphex(entry.eip, ==, 0x200008);
    g_assert_cmpmem(ram + 0x200000, 16, "fifteen letters", 16);
    for (unsigned i = 16; i < 64; i++) {
        g_assert_cmphex(ram[0x200000 + i], ==, 0);
    }
    g_assert_cmphex(ram[0x200000 + 64], ==, 0xa5);

    /* The start info by the specification of PVH. */
    const uint8_t *info = ram + entry.ebx;
    g_assert_cmphex(le(info, 4), ==, 0x336ec578);
    g_assert_cmpuint(le(info + 4, 4), ==, 1);
    g_assert_cmpuint(le(info + 12, 4), ==, 1);
    const uint8_t *module = ram + le(info + 16, 8);
    g_assert_cmpuint(le(module + 8, 8), ==, 6);
    g_assert_cmpmem(ram + le(module, 8), 6, "a disk", 6);
    g_assert_cmpstr((const char *)ram + le(info + 24, 8), ==, "console=ttyS0 quiet");
    const uint8_t *map = ram + le(info + 40, 8);
    g_assert_cmpuint(le(info + 48, 4), ==, 3);
    static const uint64_t expected[3][3] = {
        { 0, 0x9fc00, 1 }, { 0x9fc00, 0x60400, 2 }, { 0x100000, SIZE - 0x100000, 1 },
    };
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmphex(le(map + i * 24, 8), ==, expected[i][0]);
        g_assert_cmphex(le(map + i * 24 + 8, 8), ==, expected[i][1]);
        g_assert_cmpuint(le(map + i * 24 + 16, 4), ==, expected[i][2]);
    }
}

/* Nothing of these is loaded; each says why. */
static void test_bad_elf(Fixture *f, gconstpointer data)
{
    for (unsigned i = 0; i < 9; i++) {
        Elf e = elf_file();
        size_t len = sizeof(e);
        g_autoptr(GError) error = NULL;
        KvmEntry entry;

        switch (i) {
        case 0:
            len = 40;
            break;
        case 1:
            e.header.e_ident[EI_DATA] = ELFDATA2MSB;
            break;
        case 2:
            e.header.e_phoff = UINT64_MAX - 8;
            break;
        case 3:
            e.header.e_phnum = 0xffff;
            break;
        case 4:
            e.header.e_phentsize = 8;
            break;
        case 5:
            e.segments[0].p_offset = sizeof(e) - 8;
            break;
        case 6:
            e.segments[0].p_memsz = 8;
            break;
        case 7:
            e.segments[0].p_paddr = UINT64_MAX - 32;
            break;
        default:
            e.note.type = 17;
            break;
        }
        g_assert_false(load(f, &e, len, &entry, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    }
    Elf e = elf_file();
    KvmEntry entry;
    g_autoptr(GError) error = NULL;
    e.segments[0].p_paddr = SIZE - 8;
    g_assert_false(load(f, &e, sizeof(e), &entry, &error));
    g_assert_nonnull(strstr(error->message, "no memory is mapped"));
}

/* ---- bzImage ---- */

#define SETUP_SECTORS 2
#define SETUP_SIZE ((SETUP_SECTORS + 1) * 512)

static GByteArray *bzimage(void)
{
    GByteArray *image = g_byte_array_new();
    g_byte_array_set_size(image, SETUP_SIZE + 4096);
    memset(image->data, 0, image->len);
    uint8_t *h = image->data;
    h[0x1f1] = SETUP_SECTORS;
    h[0x201] = 0x6a;                        /* the header ends at 0x26c */
    memcpy(h + 0x202, "HdrS", 4);
    h[0x206] = 0x0f;
    h[0x207] = 0x02;
    h[0x211] = 1;                           /* loaded high */
    memcpy(h + 0x22c, "\xff\xff\xff\x7f", 4);
    memcpy(h + 0x238, "\xff\x07\0\0", 4);   /* command line up to 2047 */
    h[0x262] = 0x20;                        /* needs 2 MiB */
    h[0x26b] = 0x77;
    h[0x26c] = 0x88;
    memset(h + SETUP_SIZE, 0x90, 4096);
    return image;
}

static void test_bzimage(Fixture *f, gconstpointer data)
{
    g_autoptr(GByteArray) image = bzimage();
    g_autoptr(GError) error = NULL;
    const uint8_t *ram = f->block.host;
    KvmEntry entry = { 0 };
    g_autofree uint8_t *disk = g_malloc(5000);

    memset(disk, 0x42, 5000);
    f->boot.initrd = file_of(disk, 5000);
    g_assert_true(load(f, image->data, image->len, &entry, &error));
    g_assert_no_error(error);
    g_assert_cmphex(entry.eip, ==, 0x100000);
    g_assert_cmphex(ram[0x100000], ==, 0x90);
    g_assert_cmphex(ram[0x100000 + 4095], ==, 0x90);

    const uint8_t *page = ram + entry.esi;
    g_assert_cmpmem(page + 0x202, 4, "HdrS", 4);
    g_assert_cmphex(page[0x210], ==, 0xff);
    g_assert_cmphex(page[0x26b], ==, 0x77);
    g_assert_cmphex(page[0x26c], ==, 0);    /* behind the header */
    g_assert_cmphex(le(page + 0x218, 4), ==, SIZE - 8192);
    g_assert_cmpuint(le(page + 0x21c, 4), ==, 5000);
    g_assert_cmpmem(ram + SIZE - 8192, 5000, disk, 5000);
    g_assert_cmpstr((const char *)ram + le(page + 0x228, 4), ==, "console=ttyS0 quiet");
    g_assert_cmpuint(page[0x1e8], ==, 3);
    g_assert_cmphex(le(page + 0x2d0 + 40, 8), ==, 0x100000);
    g_assert_cmphex(le(page + 0x2d0 + 48, 8), ==, SIZE - 0x100000);
    g_assert_cmpuint(le(page + 0x2d0 + 56, 4), ==, 1);
}

static void test_bad_bzimage(Fixture *f, gconstpointer data)
{
    for (unsigned i = 0; i < 6; i++) {
        g_autoptr(GByteArray) image = bzimage();
        g_autoptr(GError) error = NULL;
        g_autofree char *line = g_strnfill(2048, 'x');
        KvmEntry entry;

        g_clear_pointer(&f->boot.initrd, g_mapped_file_unref);
        f->boot.append = i == 3 ? line : "";
        switch (i) {
        case 0:
            image->data[0x202] = 'h';
            break;
        case 1:
            image->data[0x206] = 0x09;
            break;
        case 2:
            image->data[0x1f1] = 200;
            break;
        case 3:
            break;
        case 4:                             /* the kernel needs more than there is */
            image->data[0x263] = 1;
            f->boot.initrd = file_of("x", 1);
            break;
        default:
            g_byte_array_set_size(image, 100);
            break;
        }
        g_assert_false(load(f, image->data, image->len, &entry, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
        f->boot.append = "";
    }
}

/* ---- MP table ---- */

static void test_mptable(void)
{
    for (unsigned cpus = 1; cpus <= KVM_ACCEL_VCPUS_MAX; cpus++) {
        g_autoptr(GByteArray) t = pico_mptable_build(cpus);
        uint8_t sum = 0;

        g_assert_cmpmem(t->data, 4, "_MP_", 4);
        g_assert_cmphex(le(t->data + 4, 4), ==, 0xf0010);
        for (unsigned i = 0; i < 16; i++) {
            sum = (uint8_t)(sum + t->data[i]);
        }
        g_assert_cmpuint(sum, ==, 0);
        const uint8_t *header = t->data + 16;
        unsigned length = (unsigned)le(header + 4, 2);
        g_assert_cmpmem(header, 4, "PCMP", 4);
        g_assert_cmpuint(t->len, ==, 16 + length);
        for (unsigned i = 0; i < length; i++) {
            sum = (uint8_t)(sum + header[i]);
        }
        g_assert_cmpuint(sum, ==, 0);
        /* Processors are 20 bytes, everything else is 8; the I/O APIC's id is nobody else's. */
        unsigned count = (unsigned)le(header + 34, 2), seen = 0, offset = 44;
        for (; offset < length; seen++) {
            const uint8_t *e = header + offset;
            if (e[0] == 0) {
                g_assert_cmpuint(e[1], ==, seen);
                g_assert_cmpuint(e[3], ==, seen == 0 ? 3 : 1);
            } else if (e[0] == 2) {
                g_assert_cmpuint(e[1], ==, cpus);
                g_assert_cmphex(le(e + 4, 4), ==, 0xfec00000);
            }
            offset += e[0] == 0 ? 20 : 8;
        }
        g_assert_cmpuint(offset, ==, length);
        g_assert_cmpuint(seen, ==, count);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/pico-boot/pvh", Fixture, NULL, set_up, test_pvh, tear_down);
    g_test_add("/pico-boot/bad-elf", Fixture, NULL, set_up, test_bad_elf, tear_down);
    g_test_add("/pico-boot/bzimage", Fixture, NULL, set_up, test_bzimage, tear_down);
    g_test_add("/pico-boot/bad-bzimage", Fixture, NULL, set_up, test_bad_bzimage, tear_down);
    g_test_add_func("/pico-boot/mptable", test_mptable);
    return g_test_run();
}
