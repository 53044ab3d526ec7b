/* SPDX-License-Identifier: BSD-2-Clause */
/* The reader of mapped-ram files: a file as QEMU 11.1 writes it, and everything that can be wrong with it. */
#include "migration/mapped-ram-image.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "io/transport.h"

#include <string.h>

#define PAGES  130       /* no multiple of 64 */
#define BITMAP 24        /* 3 words */
#define P0     0x100000u /* pages of m0 */
#define P0_END (P0 + PAGES * 4096u)
#define P1     0x200000u
#define P1_END (P1 + 4096u)

/* Offsets of fields in the file below; from the format's octet table. */
enum {
    MAGIC = 0,
    VERSION = 4,
    CONFIGURATION = 8,
    CAP_COUNT = 0x31,
    RAM_START = 0x40,
    MEM_SIZE = 0x51,
    ENTRY0 = 0x59,
    LENGTH0 = 0x5c,
    HEADER0 = 0x64,
    PAGE_SIZE0 = 0x68,
    BITMAP_OFFSET0 = 0x70,
    PAGES_OFFSET0 = 0x78,
    BITMAP0 = 0x80,
    ENTRY1 = P0_END,
    LENGTH1 = ENTRY1 + 3,
    HEADER1 = ENTRY1 + 11,
    BITMAP_OFFSET1 = HEADER1 + 12,
    PAGES_OFFSET1 = HEADER1 + 20,
    BITMAP1 = HEADER1 + 28,
    TAIL = P1_END,
    PART = TAIL + 13,
    SWITCHOVER = PART + 18,
    END = SWITCHOVER + 5,
    TIMER = END + 18,
};

static void put(GByteArray *b, const char *hex)
{
    for (; *hex; hex += *hex == ' ' ? 1 : 2) {
        if (*hex != ' ') {
            uint8_t byte = (uint8_t)(g_ascii_xdigit_value(hex[0]) << 4 | g_ascii_xdigit_value(hex[1]));
            g_byte_array_append(b, &byte, 1);
        }
    }
}

static void pad_to(GByteArray *b, guint size)
{
    guint old = b->len;
    g_byte_array_set_size(b, size);
    memset(b->data + old, 0, size - old);
}

static void be64_at(GByteArray *b, guint at, uint64_t v)
{
    store_be64(b->data + at, v);
}

/* The octets of a file of a guest of two blocks: m0 with pages 1, 64 and 129, m1 with its only page. */
static GByteArray *good_file(void)
{
    GByteArray *b = g_byte_array_new();

    put(b, "5145564d 00000003  07 00000004 6e6f6e65");
    put(b, "05 1a 636f6e66696775726174696f6e2f6361706162696c6974696573 00000001 00000001 0a "
           "6d61707065642d72616d");
    put(b, "01 00000001 03 72616d 00000000 00000004  0000000000083004");
    put(b, "02 6d30 0000000000082000  00000001 0000000000001000 0000000000000080 0000000000100000");
    put(b, "0200000000000000 0100000000000000 0200000000000000");
    pad_to(b, P0_END);
    for (int i = 0; i < 3; i++) {
        static const guint page[] = { 1, 64, 129 };
        memset(b->data + P0 + 4096 * page[i], 0x41 + i, 4096);
    }
    put(b, "02 6d31 0000000000001000  00000001 0000000000001000");
    pad_to(b, BITMAP_OFFSET1 + 16);
    be64_at(b, BITMAP_OFFSET1, BITMAP1);
    be64_at(b, PAGES_OFFSET1, P1);
    put(b, "0100000000000000");
    pad_to(b, P1_END);
    memset(b->data + P1, 0x58, 4096);
    put(b, "0000000000000010 7e 00000001");
    put(b, "02 00000001 0000000000000010 7e 00000001");
    put(b, "08 000b 0000");
    put(b, "03 00000001 0000000000000010 7e 00000001");
    put(b, "04 00000000 05 74696d6572 00000000 00000002");
    put(b, "0000000001bda4a6 0000000000000000 0000000000aba980 7e 00000000");
    put(b, "00 06 00000002 7b7d");
    return b;
}

static MappedRamImage *open_image(const GByteArray *b, uint64_t offset)
{
    GError *err = NULL;
    Channel *c = channel_buffer_new(b->data, b->len);
    MappedRamImage *image = mapped_ram_image_new(c, offset, &err);

    g_assert_no_error(err);
    channel_unref(c);
    return image;
}

static void test_good(void)
{
    GError *err = NULL;
    g_autoptr(GByteArray) b = good_file();
    g_autoptr(MappedRamImage) image = open_image(b, 0);

    g_assert_cmpuint(b->data[HEADER0 + 3], ==, 1);
    g_assert_true(mapped_ram_image_read(image, MAPPED_RAM_READ_ALL, &err));
    g_assert_no_error(err);
    g_assert_true(image->complete && image->mapped && !image->ignore_shared);
    g_assert_cmpstr(image->machine, ==, "none");
    g_assert_cmpuint(image->total, ==, (PAGES + 1) * 4096);
    g_assert_cmpuint(image->blocks->len, ==, 2);
    g_assert_cmpuint(image->end, ==, b->len);
    g_assert_cmpuint(image->description_size, ==, 2);
    g_assert_cmpuint(image->description_offset, ==, b->len - 2);

    const MappedRamBlock *m1 = mapped_ram_image_block(image, 1);
    g_assert_cmpstr(m1->idstr, ==, "m1");
    g_assert_cmpuint(m1->used_length, ==, 4096);
    g_assert_cmpuint(m1->entry_offset, ==, ENTRY1);
    g_assert_cmpuint(m1->bitmap_offset, ==, BITMAP1);
    g_assert_cmpuint(m1->pages_offset, ==, P1);

    g_assert_cmpuint(image->sections->len, ==, 2);
    const MappedRamSection *ram = &g_array_index(image->sections, MappedRamSection, 0);
    const MappedRamSection *timer = &g_array_index(image->sections, MappedRamSection, 1);
    g_assert_cmpstr(ram->idstr, ==, "ram");
    g_assert_cmpuint(ram->payloads, ==, 3);
    g_assert_true(ram->ended && timer->ended);
    g_assert_cmpstr(timer->idstr, ==, "timer");
    g_assert_cmpuint(timer->version, ==, 2);
    g_assert_cmpuint(timer->size, ==, 24);
}

static void test_bitmap(void)
{
    GError *err = NULL;
    g_autoptr(GByteArray) b = good_file();
    g_autoptr(MappedRamImage) image = open_image(b, 0);

    g_assert_true(mapped_ram_image_read(image, MAPPED_RAM_READ_SETUP, &err));
    const MappedRamBlock *m0 = mapped_ram_image_block(image, 0);
    uint64_t *map = mapped_ram_block_read_bitmap(m0, image->file, &err);
    g_assert_no_error(err);
    g_assert_cmpuint(map[0], ==, 1u << 1);
    g_assert_cmpuint(map[1], ==, 1);
    g_assert_cmpuint(map[2], ==, 1u << 1);
    bitmap_free(map, PAGES);
}

static void test_bits_behind_the_last_page(void)
{
    g_autoptr(GError) err = NULL;
    g_autoptr(GByteArray) b = good_file();
    b->data[BITMAP0 + 16] |= 1 << 2; /* page 130 of 130 */
    g_autoptr(MappedRamImage) image = open_image(b, 0);

    g_assert_true(mapped_ram_image_read(image, MAPPED_RAM_READ_SETUP, NULL));
    g_assert_null(mapped_ram_block_read_bitmap(mapped_ram_image_block(image, 0), image->file, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    g_assert_nonnull(strstr(err->message, "behind page 129"));
    g_assert_nonnull(strstr(err->message, "0x90"));
}

/* The file with everything moved: offsets in it are absolute, so they move as well. */
static void test_offset(void)
{
    GError *err = NULL;
    g_autoptr(GByteArray) b = good_file();
    g_autoptr(GByteArray) moved = g_byte_array_new();

    pad_to(moved, 0x1000);
    g_byte_array_append(moved, b->data, b->len);
    be64_at(moved, 0x1000 + BITMAP_OFFSET0, 0x1000 + BITMAP0);
    be64_at(moved, 0x1000 + PAGES_OFFSET0, 0x1000 + P0);
    be64_at(moved, 0x1000 + BITMAP_OFFSET1, 0x1000 + BITMAP1);
    be64_at(moved, 0x1000 + PAGES_OFFSET1, 0x1000 + P1);
    g_autoptr(MappedRamImage) image = open_image(moved, 0x1000);
    g_assert_true(mapped_ram_image_read(image, MAPPED_RAM_READ_ALL, &err));
    g_assert_no_error(err);
    g_assert_true(image->complete);
}

/* ---- what is wrong ---- */

typedef struct Spoiled {
    const char *name;
    guint at;
    unsigned width; /* bytes; 0: the file ends at @at instead */
    uint64_t value;
    GodwitError code;
    const char *field, *offset; /* both must be in the message */
} Spoiled;

static const Spoiled spoiled[] = {
    { "magic", MAGIC, 4, 0x51455600, GODWIT_ERROR_PROTOCOL, "magic", "0x0" },
    { "stream-version", VERSION, 4, 2, GODWIT_ERROR_PROTOCOL, "version", "0x4" },
    { "machine-name", CONFIGURATION + 1, 4, 257, GODWIT_ERROR_PROTOCOL, "machine's name", "0x9" },
    { "capability-count", CAP_COUNT, 4, 257, GODWIT_ERROR_PROTOCOL, "capabilities", "0x31" },
    { "capability-name", CAP_COUNT + 5, 1, 'n', GODWIT_ERROR_PROTOCOL, "capability 'napped-ram'", "0x35" },
    { "section-type", RAM_START, 1, 0x55, GODWIT_ERROR_PROTOCOL, "section type 0x55", "0x40" },
    { "ram-version", MEM_SIZE - 4, 4, 3, GODWIT_ERROR_UNSUPPORTED, "version 3", "0x51" },
    { "total-too-small", MEM_SIZE, 8, 0x1004, GODWIT_ERROR_PROTOCOL, "block 'm0'", "0x59" },
    { "total-too-large", MEM_SIZE, 8, 1ull << 53 | 4, GODWIT_ERROR_PROTOCOL, "add up", "0x51" },
    { "length-zero", LENGTH0, 8, 0, GODWIT_ERROR_PROTOCOL, "length 0x0", "0x59" },
    { "length-odd", LENGTH0, 8, 0x1001, GODWIT_ERROR_PROTOCOL, "length 0x1001", "0x59" },
    { "listed-twice", ENTRY1 + 2, 1, '0', GODWIT_ERROR_PROTOCOL, "second time", "0x182000" },
    { "header-version", HEADER0, 4, 2, GODWIT_ERROR_PROTOCOL, "version 2", "0x64" },
    { "page-size", PAGE_SIZE0, 8, 8192, GODWIT_ERROR_PROTOCOL, "page_size 8192", "0x68" },
    { "misaligned", PAGES_OFFSET0, 8, 0x100800, GODWIT_ERROR_PROTOCOL, "misaligned", "0x78" },
    { "pages-wrap", PAGES_OFFSET0, 8, 0xfffffffffffff000, GODWIT_ERROR_PROTOCOL, "pages_offset", "0x78" },
    { "bitmap-wraps", BITMAP_OFFSET0, 8, 0xffffffffffffffff, GODWIT_ERROR_PROTOCOL, "bitmap_offset", "0x70" },
    { "bitmap-beyond", BITMAP_OFFSET0, 8, 0x40000000, GODWIT_ERROR_PROTOCOL, "bitmap", "0x40000000" },
    { "bitmap-on-own-pages", BITMAP_OFFSET0, 8, P0 + 8, GODWIT_ERROR_PROTOCOL, "overlap", "0x100008" },
    { "bitmap-on-header", BITMAP_OFFSET0, 8, 0x60, GODWIT_ERROR_PROTOCOL, "overlap", "0x60" },
    { "bitmap-on-other-pages", BITMAP_OFFSET1, 8, P0 + 8, GODWIT_ERROR_PROTOCOL, "the pages of 'm0'",
      "0x100008" },
    { "bitmap-on-bitmap", BITMAP_OFFSET1, 8, BITMAP0 + 16, GODWIT_ERROR_PROTOCOL, "the bitmap of 'm0'",
      "0x90" },
    { "bitmap-on-stream-behind", BITMAP_OFFSET0, 8, TIMER, GODWIT_ERROR_PROTOCOL, "overlap", "0x201036" },
    { "pages-on-pages", PAGES_OFFSET1, 8, P0 + 4096, GODWIT_ERROR_PROTOCOL, "the pages of 'm0'", "0x101000" },
    { "pages-on-header", PAGES_OFFSET0, 8, 0, GODWIT_ERROR_PROTOCOL, "overlap", "0x0" },
    { "flags", TAIL, 8, 0x400, GODWIT_ERROR_PROTOCOL, "flags 0x400", "0x201000" },
    { "page-record", TAIL, 8, 0x28, GODWIT_ERROR_PROTOCOL, "none was named", "0x201000" },
    { "second-list", TAIL, 8, 0x1004, GODWIT_ERROR_PROTOCOL, "second list", "0x201000" },
    { "footer-id", TAIL + 9, 4, 7, GODWIT_ERROR_PROTOCOL, "footer of section 'ram'", "0x201008" },
    { "part-unknown", PART + 1, 4, 9, GODWIT_ERROR_PROTOCOL, "section id 9", "0x20100e" },
    { "command", SWITCHOVER + 1, 2, 99, GODWIT_ERROR_PROTOCOL, "command 99", "0x201020" },
    { "packaged", SWITCHOVER + 1, 2, 7, GODWIT_ERROR_UNSUPPORTED, "command 7", "0x201020" },
    { "announced-twice", TIMER + 1, 4, 1, GODWIT_ERROR_PROTOCOL, "second time", "0x201037" },
    { "cut-in-magic", 3, 0, 0, GODWIT_ERROR_EOF, "magic", "0x0" },
    { "cut-in-configuration", 0x30, 0, 0, GODWIT_ERROR_EOF, "subsection's version", "0x2d" },
    { "cut-in-header", 0x70, 0, 0, GODWIT_ERROR_EOF, "mapped-ram header", "0x64" },
    { "cut-in-bitmap", 0x84, 0, 0, GODWIT_ERROR_EOF, "the bitmap", "0x80" },
    { "cut-in-pages", P0_END - 1, 0, 0, GODWIT_ERROR_EOF, "page area", "0x100000" },
    { "cut-in-second-entry", ENTRY1 + 2, 0, 0, GODWIT_ERROR_EOF, "a block's name", "0x182001" },
    { "cut-behind-pages", TAIL, 0, 0, GODWIT_ERROR_EOF, "word of the ram section", "0x201000" },
    { "cut-before-end", END, 0, 0, GODWIT_ERROR_EOF, "next section", "0x201024" },
    { "cut-in-device", TIMER + 30, 0, 0, GODWIT_ERROR_EOF, "no footer", "0x201049" },
    { "cut-before-eof", TIMER + 48, 0, 0, GODWIT_ERROR_EOF, "next section", "0x201066" },
    { "zeros-for-eos", TAIL, 8, 0, GODWIT_ERROR_EOF, "never written", "0x201000" },
    { "zeros-for-end", END, 8, 0, GODWIT_ERROR_EOF, "before the ram section does", "0x201024" },
};

static void test_spoiled(gconstpointer opaque)
{
    const Spoiled *s = opaque;
    g_autoptr(GError) err = NULL;
    g_autoptr(GByteArray) b = good_file();

    if (s->width) {
        for (unsigned i = 0; i < s->width; i++) {
            b->data[s->at + i] = (uint8_t)(s->value >> 8 * (s->width - 1 - i));
        }
    } else {
        g_byte_array_set_size(b, s->at);
    }
    g_autoptr(MappedRamImage) image = open_image(b, 0);
    g_assert_false(mapped_ram_image_read(image, MAPPED_RAM_READ_ALL, &err));
    g_assert_error(err, GODWIT_ERROR, (int)s->code);
    g_test_message("%s", err->message);
    g_assert_nonnull(strstr(err->message, s->field));
    g_assert_nonnull(strstr(err->message, s->offset));
    g_assert_cmpint(g_str_has_prefix(err->message, "incomplete: "), ==, s->code == GODWIT_ERROR_EOF);
    g_assert_false(image->complete);
}

/* No file that ends early is taken for a whole one, wherever that is; the description may be missing. */
static void test_every_length(void)
{
    g_autoptr(GByteArray) b = good_file();
    guint whole = b->len, eof = whole - 7;

    for (guint len = whole - 1; len > 0; len -= len > TAIL + 1 || len <= 4096 ? 1 : 4093) {
        g_autoptr(GError) err = NULL;
        g_byte_array_set_size(b, len);
        g_autoptr(MappedRamImage) image = open_image(b, 0);
        bool ok = mapped_ram_image_read(image, MAPPED_RAM_READ_ALL, &err);
        g_assert_cmpint(ok, ==, len == eof);
        if (!ok) {
            g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_EOF);
        }
    }
}

static void test_match(void)
{
    g_autoptr(GByteArray) b = good_file();
    g_autoptr(MappedRamImage) image = open_image(b, 0);
    RAMBlock m0 = { .idstr = "m0", .used_length = PAGES * 4096 }, m1 = { .idstr = "m1", .used_length = 4096 };
    RamList list = { .first = &m0, .count = 2 };
    GError *err = NULL;

    m0.next = &m1;
    g_assert_true(mapped_ram_image_read(image, MAPPED_RAM_READ_RAM, &err));
    g_assert_true(mapped_ram_image_match(image, &list, &err));
    m1.used_length = 8192;
    g_assert_false(mapped_ram_image_match(image, &list, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    g_assert_nonnull(
        strstr(err->message, "block 'm1' has 0x1000 bytes in the file (at 0x182000) and 0x2000"));
    g_clear_error(&err);
    m1.idstr[1] = '2';
    g_assert_false(mapped_ram_image_match(image, &list, &err));
    g_assert_nonnull(strstr(err->message, "Unknown ramblock \"m1\" (at 0x182000)"));
    g_clear_error(&err);
}

static void test_find_description(void)
{
    g_autoptr(GByteArray) b = good_file();
    uint64_t offset = 0, size = 0;

    g_autoptr(MappedRamImage) image = open_image(b, 0);
    g_assert_true(mapped_ram_image_find_description(image, &offset, &size));
    g_assert_cmpuint(offset, ==, b->len - 2);
    g_assert_cmpuint(size, ==, 2);

    g_byte_array_set_size(b, b->len - 7);
    g_autoptr(MappedRamImage) without = open_image(b, 0);
    g_assert_false(mapped_ram_image_find_description(without, &offset, &size));
}

static bool timer_size(void *opaque, const char *idstr, uint32_t instance_id, uint64_t *size)
{
    *size = 24;
    return strcmp(idstr, "timer") == 0;
}

/* Device state that looks like its own footer: only who knows its length reads it well. */
static void test_section_size(void)
{
    GError *err = NULL;
    g_autoptr(GByteArray) b = good_file();
    static const uint8_t lookalike[] = { 0x7e, 0, 0, 0, 0, 0 };
    memcpy(b->data + TIMER + 25, lookalike, sizeof(lookalike));

    g_autoptr(MappedRamImage) image = open_image(b, 0);
    image->section_size = timer_size;
    g_assert_true(mapped_ram_image_read(image, MAPPED_RAM_READ_ALL, &err));
    g_assert_no_error(err);
    g_assert_cmpuint(g_array_index(image->sections, MappedRamSection, 1).size, ==, 24);
    g_assert_cmpuint(image->end, ==, b->len);
}

static void test_ignore_shared(void)
{
    GError *err = NULL;
    g_autoptr(GByteArray) b = g_byte_array_new();

    put(b, "5145564d 00000003  07 00000004 6e6f6e65");
    put(b, "05 1a 636f6e66696775726174696f6e2f6361706162696c6974696573 00000001 00000002");
    put(b, "0f 782d69676e6f72652d736861726564 0a 6d61707065642d72616d");
    put(b, "01 00000001 03 72616d 00000000 00000004  0000000000002004");
    put(b, "02 6d30 0000000000002000 0000000012340000 00000001 0000000000001000 0000000000000000 "
           "0000000000000000");
    put(b, "0000000000000010 7e 00000001  03 00000001 0000000000000010 7e 00000001  00");
    g_autoptr(MappedRamImage) image = open_image(b, 0);
    g_assert_true(mapped_ram_image_read(image, MAPPED_RAM_READ_ALL, &err));
    g_assert_no_error(err);
    g_assert_true(image->ignore_shared && image->complete);
    g_assert_true(mapped_ram_image_block(image, 0)->absent);
    g_assert_cmpuint(mapped_ram_image_block(image, 0)->gpa, ==, 0x12340000);
}

/* A plain stream: page 1 comes twice, the later one counts; page 0 is zero; the last was never sent. */
static void test_plain(void)
{
    GError *err = NULL;
    g_autoptr(GByteArray) b = g_byte_array_new();

    put(b, "5145564d 00000003  07 00000004 6e6f6e65  01 00000001 03 72616d 00000000 00000004");
    put(b, "0000000000003004 02 6d30 0000000000003000 0000000000000010 7e 00000001");
    put(b, "02 00000001 0000000000001008 02 6d30");
    pad_to(b, b->len + 4096);
    put(b, "0000000000000022 00  0000000000001028");
    guint second = b->len;
    pad_to(b, b->len + 4096);
    put(b, "0000000000000010 7e 00000001  03 00000001 0000000000000010 7e 00000001  00");

    g_autoptr(MappedRamImage) image = open_image(b, 0);
    image->keep_records = true;
    g_assert_true(mapped_ram_image_read(image, MAPPED_RAM_READ_ALL, &err));
    g_assert_no_error(err);
    g_assert_false(image->mapped);
    const GArray *records = mapped_ram_image_block(image, 0)->records;
    g_assert_cmpuint(records->len, ==, 2);
    g_assert_cmpuint(g_array_index(records, MappedRamRecord, 0).offset, ==, 0);
    g_assert_cmpuint(g_array_index(records, MappedRamRecord, 1).page, ==, 1);
    g_assert_cmpuint(g_array_index(records, MappedRamRecord, 1).offset, ==, second);
}

static void test_not_seekable(void)
{
    g_autoptr(GError) err = NULL;
    const char *argv[] = { "/bin/true", NULL };
    g_autoptr(Channel) c = channel_command_spawn(argv, true, false, NULL);

    g_assert_null(mapped_ram_image_new(c, 0, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED);
    g_clear_error(&err);
    g_autoptr(Channel) small = channel_buffer_new("QEVM", 4);
    g_assert_null(mapped_ram_image_new(small, 4, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_EOF);
}

/* What the encoder writes are the octets of the format's table. */
static void test_header(void)
{
    g_autoptr(GByteArray) b = good_file();
    MappedRamHeaderWire wire;

    mapped_ram_header_encode(&wire, 0x80, 0x100000);
    g_assert_cmpmem(&wire, sizeof(wire), b->data + HEADER0, 28);
    g_assert_cmpuint(mapped_ram_bitmap_size(4096), ==, 8);
    g_assert_cmpuint(mapped_ram_bitmap_size(64 * 4096), ==, 8);
    g_assert_cmpuint(mapped_ram_bitmap_size(65 * 4096), ==, 16);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/mapped-ram-image/good", test_good);
    g_test_add_func("/mapped-ram-image/bitmap", test_bitmap);
    g_test_add_func("/mapped-ram-image/bits-behind-the-last-page", test_bits_behind_the_last_page);
    g_test_add_func("/mapped-ram-image/offset", test_offset);
    for (size_t i = 0; i < G_N_ELEMENTS(spoiled); i++) {
        g_autofree char *path = g_strconcat("/mapped-ram-image/spoiled/", spoiled[i].name, NULL);
        g_test_add_data_func(path, &spoiled[i], test_spoiled);
    }
    g_test_add_func("/mapped-ram-image/every-length", test_every_length);
    g_test_add_func("/mapped-ram-image/match", test_match);
    g_test_add_func("/mapped-ram-image/find-description", test_find_description);
    g_test_add_func("/mapped-ram-image/section-size", test_section_size);
    g_test_add_func("/mapped-ram-image/ignore-shared", test_ignore_shared);
    g_test_add_func("/mapped-ram-image/plain", test_plain);
    g_test_add_func("/mapped-ram-image/not-seekable", test_not_seekable);
    g_test_add_func("/mapped-ram-image/header", test_header);
    return g_test_run();
}
