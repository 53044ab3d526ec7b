/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination's RAM section: every verdict about what arrives, and where bytes may land. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "migration/ram-wire.h"
#include "ram-test.h"
#include "util/be.h"

/* ---- building sections by hand ---- */

static void put(GByteArray *a, const void *data, size_t len)
{
    g_byte_array_append(a, data, len);
}

static void put_u8(GByteArray *a, uint8_t v)
{
    put(a, &v, 1);
}

static void put_u16(GByteArray *a, uint16_t v)
{
    be16 be = be16_make(v);
    put(a, &be, sizeof(be));
}

static void put_u64(GByteArray *a, uint64_t v)
{
    be64 be = be64_make(v);
    put(a, &be, sizeof(be));
}

static void put_name(GByteArray *a, const char *name)
{
    put_u8(a, strlen(name));
    put(a, name, strlen(name));
}

static void put_page(GByteArray *a, uint64_t word, const char *name, uint8_t fill)
{
    uint8_t page[PAGE];

    put_u64(a, word);
    if (name) {
        put_name(a, name);
    }
    memset(page, fill, PAGE);
    put(a, page, PAGE);
}

static void put_zero(GByteArray *a, uint64_t word, const char *name, uint8_t fill)
{
    put_u64(a, word);
    if (name) {
        put_name(a, name);
    }
    put_u8(a, fill);
}

static void put_entry(GByteArray *a, const char *name, uint64_t length)
{
    put_name(a, name);
    put_u64(a, length);
}

/* ---- one destination ---- */

typedef struct Rig {
    TestGuest *guest;
    MigrationOptions options;
    RamLoad *load;
    GByteArray *in;         /* what will be loaded */
} Rig;

/* Blocks m0 of 16 pages and m1 of 8. */
static const uint64_t block_pages[] = { 16, 8 };

static Rig *rig_new_with(TestGuest *guest)
{
    Rig *rig = g_new0(Rig, 1);

    rig->guest = guest;
    rig->options = test_options();
    rig->load = ram_load_new(&rig->guest->ram, &rig->options);
    rig->in = g_byte_array_new();
    return rig;
}

static Rig *rig_new(void)
{
    return rig_new_with(test_guest_new(block_pages, 2));
}

static void rig_free(Rig *rig)
{
    ram_load_free(rig->load);
    test_guest_free(rig->guest);
    g_byte_array_unref(rig->in);
    g_free(rig);
}

/* Options changed: a new loader. */
static void rig_renew(Rig *rig)
{
    ram_load_free(rig->load);
    rig->load = ram_load_new(&rig->guest->ram, &rig->options);
}

static bool rig_load(Rig *rig, uint8_t type, GError **errp)
{
    TestChannel *c = test_channel_new(rig->in->data, rig->in->len, 0);
    g_autoptr(StreamReader) r = stream_reader_new(&c->base);
    bool ok = ram_load_section(rig->load, r, type, errp);

    if (ok) {
        g_assert_cmpuint(stream_reader_total(r), ==, rig->in->len);
    }
    channel_unref(&c->base);
    g_byte_array_set_size(rig->in, 0);
    return ok;
}

static uint8_t *host(Rig *rig, unsigned block, uint64_t page)
{
    return rig->guest->blocks[block].host + page * PAGE;
}

static bool page_is(Rig *rig, unsigned block, uint64_t page, uint8_t fill)
{
    const uint8_t *p = host(rig, block, page);

    for (unsigned i = 0; i < PAGE; i++) {
        if (p[i] != fill) {
            return false;
        }
    }
    return true;
}

/* A fresh destination loads one section that is built by @build and must be refused with @pattern. */
static void refuse(void (*build)(GByteArray *a), const char *pattern)
{
    Rig *rig = rig_new();

    build(rig->in);
    put_u64(rig->in, RAM_FLAG_EOS);
    FAILS(pattern, rig_load(rig, 2, &error));
    rig_free(rig);
}

/* Likewise, but it must be accepted. */
static Rig *accept(void (*build)(GByteArray *a))
{
    Rig *rig = rig_new();

    build(rig->in);
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 2, &error));
    return rig;
}

/* ---- block list ---- */

static void list_good(GByteArray *a)
{
    put_u64(a, 24 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m0", 16 * PAGE);
    put_entry(a, "m1", 8 * PAGE);
}

static void list_other_order(GByteArray *a)
{
    put_u64(a, 24 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m1", 8 * PAGE);
    put_entry(a, "m0", 16 * PAGE);
}

static void list_twice(GByteArray *a)
{
    put_u64(a, 32 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m0", 16 * PAGE);
    put_entry(a, "m0", 16 * PAGE);
}

static void list_one_of_two(GByteArray *a)
{
    put_u64(a, 8 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m1", 8 * PAGE);
}

static void list_empty(GByteArray *a)
{
    put_u64(a, RAM_FLAG_MEM_SIZE);
}

static void list_absent(GByteArray *a)
{
}

static void list_unknown(GByteArray *a)
{
    put_u64(a, 24 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "xx", 16 * PAGE);
}

static void list_invalid_utf8(GByteArray *a)
{
    put_u64(a, 24 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "\xff\xfe", 16 * PAGE);
}

static void list_larger(GByteArray *a)
{
    put_u64(a, 64 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m0", 32 * PAGE);
}

static void list_smaller(GByteArray *a)
{
    put_u64(a, 64 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m0", 1);
}

static void list_total_too_small(GByteArray *a)
{
    put_u64(a, 20 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m0", 16 * PAGE);
    put_entry(a, "m1", 8 * PAGE);
}

/* The word after the list is then taken for another entry. */
static void list_total_too_large(GByteArray *a)
{
    put_u64(a, 25 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m0", 16 * PAGE);
    put_entry(a, "m1", 8 * PAGE);
}

static void list_endless(GByteArray *a)
{
    put_u64(a, UINT64_C(0x7ffffffffffff004));
    for (unsigned i = 0; i < 65537; i++) {
        put_entry(a, "m1", 8 * PAGE);
    }
}

static void test_list(void)
{
    rig_free(accept(list_good));
    rig_free(accept(list_other_order));
    rig_free(accept(list_twice));
    rig_free(accept(list_one_of_two));
    rig_free(accept(list_empty));
    rig_free(accept(list_absent));
    refuse(list_unknown, "Unknown ramblock \"xx\", cannot accept migration");
    refuse(list_invalid_utf8, "Unknown ramblock \"*\", cannot accept migration");
    refuse(list_larger, "Size mismatch: m0: 0x20000 != 0x10000: Invalid argument");
    refuse(list_smaller, "Size mismatch: m0: 0x1 != 0x10000: Invalid argument");
    refuse(list_total_too_small, "*longer than its total*m1*");
    refuse(list_total_too_large, "*");
    refuse(list_endless, "*more than 65536 entries");
}

static void test_list_message_is_utf8(void)
{
    GError *error = NULL;
    Rig *rig = rig_new();

    list_invalid_utf8(rig->in);
    g_assert_false(rig_load(rig, 1, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    g_assert_true(g_utf8_validate(error->message, -1, NULL));
    g_error_free(error);
    rig_free(rig);
}

static Rig *rig_ignoring_m0(void)
{
    Rig *rig = rig_new();

    rig->options.caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] = true;
    rig->guest->blocks[0].shared = true;
    rig->guest->blocks[0].gpa = 0x100000;
    rig_renew(rig);
    return rig;
}

static void put_list_with_gpa(GByteArray *a, uint64_t gpa0, uint64_t gpa1)
{
    put_u64(a, 24 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(a, "m0", 16 * PAGE);
    put_u64(a, gpa0);
    put_entry(a, "m1", 8 * PAGE);
    put_u64(a, gpa1);
    put_u64(a, RAM_FLAG_EOS);
}

static void test_ignore_shared(void)
{
    Rig *rig = rig_ignoring_m0();

    /* The address of a block that is sent does not matter. */
    put_list_with_gpa(rig->in, 0x100000, 0x123456000);
    OK(rig_load(rig, 1, &error));
    put_list_with_gpa(rig->in, 0x200000, 0);
    FAILS("*m0*0x200000*0x100000*", rig_load(rig, 1, &error));

    put_page(rig->in, 0 | RAM_FLAG_PAGE, "m1", 1);
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 2, &error));
    put_page(rig->in, 0 | RAM_FLAG_PAGE, "m0", 1);
    put_u64(rig->in, RAM_FLAG_EOS);
    FAILS("*m0*ignored*", rig_load(rig, 2, &error));
    put_zero(rig->in, 0 | RAM_FLAG_ZERO, "m0", 0);
    put_u64(rig->in, RAM_FLAG_EOS);
    FAILS("*m0*ignored*", rig_load(rig, 2, &error));
    rig_free(rig);
}

static void test_readonly(void)
{
    Rig *rig = rig_new();

    rig->guest->blocks[1].readonly = true;
    mprotect(host(rig, 1, 0), 8 * PAGE, PROT_READ);
    put_page(rig->in, 0 | RAM_FLAG_PAGE, "m1", 1);
    put_u64(rig->in, RAM_FLAG_EOS);
    FAILS("*m1*read-only*", rig_load(rig, 2, &error));
    rig_free(rig);
}

/* ---- pages ---- */

static void pages_good(GByteArray *a)
{
    put_page(a, 0x1000 | RAM_FLAG_PAGE, "m0", 0x11);
    put_page(a, 0xf000 | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 0x1f);
    put_page(a, 0x7000 | RAM_FLAG_PAGE, "m1", 0x27);
    put_zero(a, 0x0000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    put_page(a, 0x2000 | RAM_FLAG_PAGE, "m0", 0x12);
    put_page(a, 0x3000 | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 0x13);
    put_page(a, 0x3000 | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 0x33);
}

static void test_pages(void)
{
    Rig *rig = accept(pages_good);

    g_assert_true(page_is(rig, 0, 0, 0));
    g_assert_true(page_is(rig, 0, 1, 0x11));
    g_assert_true(page_is(rig, 0, 2, 0x12));
    g_assert_true(page_is(rig, 0, 3, 0x33));
    g_assert_true(page_is(rig, 0, 4, 0));
    g_assert_true(page_is(rig, 0, 15, 0x1f));
    g_assert_true(page_is(rig, 1, 6, 0));
    g_assert_true(page_is(rig, 1, 7, 0x27));

    /* CONTINUE survives the section. */
    put_page(rig->in, 0x4000 | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 0x14);
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 3, &error));
    g_assert_true(page_is(rig, 0, 4, 0x14));

    /* Zero clears what was there. */
    put_zero(rig->in, 0x1000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    put_zero(rig->in, 0x2000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    put_zero(rig->in, 0xf000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 3, &error));
    g_assert_true(page_is(rig, 0, 1, 0));
    g_assert_true(page_is(rig, 0, 2, 0));
    g_assert_true(page_is(rig, 0, 3, 0x33));
    g_assert_true(page_is(rig, 0, 15, 0));
    OK(ram_load_complete(rig->load, &error));
    rig_free(rig);
}

/* Memory that is zero already is not written to: here that would be a fault. */
static void test_zero_touches_nothing(void)
{
    Rig *rig = rig_new();

    mprotect(host(rig, 0, 0), 16 * PAGE, PROT_READ);
    for (unsigned i = 0; i < 16; i++) {
        put_zero(rig->in, i * PAGE | RAM_FLAG_ZERO | (i ? RAM_FLAG_CONTINUE : 0), i ? NULL : "m0", 0);
    }
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 2, &error));
    rig_free(rig);
}

static void offset_at_end(GByteArray *a)
{
    put_page(a, 16 * PAGE | RAM_FLAG_PAGE, "m0", 1);
}

static void offset_far(GByteArray *a)
{
    put_page(a, UINT64_C(0xfffffffffffff008), "m0", 1);
}

static void zero_offset_at_end(GByteArray *a)
{
    put_zero(a, 8 * PAGE | RAM_FLAG_ZERO, "m1", 0);
}

static void zero_filled(GByteArray *a)
{
    put_zero(a, 0x1000 | RAM_FLAG_ZERO, "m0", 7);
}

static void zero_filled_in_run(GByteArray *a)
{
    put_zero(a, 0x1000 | RAM_FLAG_ZERO, "m0", 0);
    put_zero(a, 0x2000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 7);
}

static void zero_run_over_end(GByteArray *a)
{
    put_zero(a, 15 * PAGE | RAM_FLAG_ZERO, "m0", 0);
    put_zero(a, 16 * PAGE | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
}

static void page_run_over_end(GByteArray *a)
{
    put_page(a, 14 * PAGE | RAM_FLAG_PAGE, "m0", 1);
    put_page(a, 15 * PAGE | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 1);
    put_page(a, 16 * PAGE | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 1);
}

static void continue_first(GByteArray *a)
{
    put_page(a, 0x1000 | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 1);
}

static void page_unknown_block(GByteArray *a)
{
    put_page(a, 0x1000 | RAM_FLAG_PAGE, "m9", 1);
}

static void test_pages_refused(void)
{
    refuse(offset_at_end, "*0x10000*m0*0x10000*");
    refuse(offset_far, "*0xfffffffffffff000*m0*");
    refuse(zero_offset_at_end, "*0x8000*m1*");
    refuse(zero_filled, "*0x1000*m0*0x07");
    refuse(zero_filled_in_run, "*0x2000*m0*0x07");
    refuse(zero_run_over_end, "*0x10000*m0*");
    refuse(page_run_over_end, "*0x10000*m0*");
    refuse(continue_first, "*CONTINUE*");
    refuse(page_unknown_block, "*m9*");
}

/* ---- flags ---- */

static void test_flags_refused(void)
{
    static const uint64_t words[] = {
        0, 0x01, 0x20, 0x100, 0x400, 0x800, RAM_FLAG_PAGE | RAM_FLAG_ZERO, RAM_FLAG_PAGE | RAM_FLAG_EOS,
        RAM_FLAG_MEM_SIZE | RAM_FLAG_EOS, RAM_FLAG_XBZRLE | RAM_FLAG_PAGE, RAM_FLAG_HOOK | RAM_FLAG_EOS,
        0xfff,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        Rig *rig = rig_new();
        g_autofree char *pattern =
            g_strdup_printf("Unknown combination of migration flags: 0x%" G_GINT64_MODIFIER "x", words[i]);
        put_u64(rig->in, words[i]);
        put_u64(rig->in, RAM_FLAG_EOS);
        FAILS(pattern, rig_load(rig, 2, &error));
        rig_free(rig);
    }
}

static void words_without_effect(GByteArray *a)
{
    put_u64(a, RAM_FLAG_HOOK);
    put_u64(a, RAM_FLAG_MULTIFD_FLUSH);
    put_u64(a, RAM_FLAG_MULTIFD_FLUSH);
}

static void eos_with_more(GByteArray *a)
{
    put_u64(a, 0x123000 | RAM_FLAG_EOS | RAM_FLAG_CONTINUE);
}

static void test_flags_accepted(void)
{
    Rig *rig = rig_new();
    /* In the set-up section MULTIFD_FLUSH would mean that the pages come another way. */
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 1, &error));
    words_without_effect(rig->in);
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 2, &error));
    g_assert_true(page_is(rig, 0, 0, 0));
    rig_free(rig);

    rig = rig_new();
    put_u64(rig->in, RAM_FLAG_MULTIFD_FLUSH);
    FAILS("*multifd is on at the source*", rig_load(rig, 1, &error));
    rig_free(rig);

    rig = rig_new();
    eos_with_more(rig->in);
    OK(rig_load(rig, 2, &error));
    rig_free(rig);
}

/* ---- XBZRLE ---- */

static void put_xbzrle(GByteArray *a, uint8_t encoding, uint16_t length, const void *data, size_t len)
{
    put_u64(a, 0x1000 | RAM_FLAG_XBZRLE | RAM_FLAG_CONTINUE);
    put_u8(a, encoding);
    put_u16(a, length);
    put(a, data, len);
}

/* Page 1 is there, then changes in one byte: decoded whether or not the capability is on. */
static void xbzrle_good(GByteArray *a)
{
    put_page(a, 0x1000 | RAM_FLAG_PAGE, "m0", 0x11);
    put_xbzrle(a, 1, 3, "\x05\x01\x26", 3);
}

static void xbzrle_empty(GByteArray *a)
{
    put_page(a, 0x1000 | RAM_FLAG_PAGE, "m0", 0x11);
    put_xbzrle(a, 1, 0, NULL, 0);
}

static void xbzrle_bad_encoding(GByteArray *a)
{
    put_page(a, 0x1000 | RAM_FLAG_PAGE, "m0", 0x11);
    put_xbzrle(a, 2, 3, "\x05\x01\x26", 3);
}

static void xbzrle_too_long(GByteArray *a)
{
    static const uint8_t data[4097];
    put_page(a, 0x1000 | RAM_FLAG_PAGE, "m0", 0x11);
    put_xbzrle(a, 1, 4097, data, 4097);
}

static void xbzrle_malformed(GByteArray *a)
{
    put_page(a, 0x1000 | RAM_FLAG_PAGE, "m0", 0x11);
    put_xbzrle(a, 1, 2, "\x05\x01", 2);
}

static void test_xbzrle(void)
{
    Rig *rig = accept(xbzrle_good);
    g_assert_cmpuint(host(rig, 0, 1)[4], ==, 0x11);
    g_assert_cmpuint(host(rig, 0, 1)[5], ==, 0x26);
    g_assert_cmpuint(host(rig, 0, 1)[6], ==, 0x11);
    rig_free(rig);

    rig = accept(xbzrle_empty);
    g_assert_true(page_is(rig, 0, 1, 0x11));
    rig_free(rig);

    refuse(xbzrle_bad_encoding, "*encoding 2*");
    refuse(xbzrle_too_long, "*4097*4096*");
    refuse(xbzrle_malformed, "XBZRLE data of a page is malformed*");
}

/* ---- sources of pages that are not the main stream ---- */

typedef struct OtherSource {
    RamSource base;
    GString *log;
} OtherSource;

static bool other_setup_block(RamSource *s, StreamReader *r, RAMBlock *block, GError **errp)
{
    g_string_append_printf(((OtherSource *)s)->log, "b%u:%u ", block->index, stream_get_u8(r));
    return stream_reader_check(r, errp);
}

static bool other_section_end(RamSource *s, uint8_t type, GError **errp)
{
    g_string_append_printf(((OtherSource *)s)->log, "e%u ", type);
    return true;
}

static bool other_flush_word(RamSource *s, GError **errp)
{
    g_string_append(((OtherSource *)s)->log, "f ");
    return true;
}

static bool other_hook_word(RamSource *s, StreamReader *r, uint64_t arg, GError **errp)
{
    g_string_append_printf(((OtherSource *)s)->log, "h%" G_GINT64_MODIFIER "x ", arg);
    return true;
}

static bool other_complete(RamSource *s, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "never");
    return false;
}

static void other_cleanup(RamSource *s)
{
    g_string_append(((OtherSource *)s)->log, "x");
    g_free(s);
}

static const RamSourceOps other_ops = {
    .name = "other",
    .no_stream_pages = true,
    .setup_block = other_setup_block,
    .section_end = other_section_end,
    .flush_word = other_flush_word,
    .hook_word = other_hook_word,
    .complete = other_complete,
    .cleanup = other_cleanup,
};

static void test_other_source(void)
{
    g_autoptr(GString) log = g_string_new(NULL);
    OtherSource *source = g_new0(OtherSource, 1);
    Rig *rig = rig_new();

    source->base.ops = &other_ops;
    source->log = log;
    ram_load_set_source(rig->load, &source->base);
    put_u64(rig->in, 24 * PAGE | RAM_FLAG_MEM_SIZE);
    put_entry(rig->in, "m1", 8 * PAGE);
    put_u8(rig->in, 7);
    put_entry(rig->in, "m0", 16 * PAGE);
    put_u8(rig->in, 8);
    put_u64(rig->in, 0x5000 | RAM_FLAG_HOOK);
    put_u64(rig->in, RAM_FLAG_MULTIFD_FLUSH);
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 1, &error));
    put_page(rig->in, 0x1000 | RAM_FLAG_PAGE, "m0", 0x11);
    FAILS("*m0*another way*", rig_load(rig, 2, &error));
    FAILS("never", ram_load_complete(rig->load, &error));
    rig_free(rig);
    g_assert_cmpstr(log->str, ==, "b1:7 b0:8 h5000 f e1 x");
}

/* ---- reading ahead ---- */

/*
 * Random records over few pages, so that runs begin, break and come again over pages that have content.
 * The reads are cut at random. A plain model applies the records one by one.
 */
static void check_records(bool shared)
{
    for (unsigned round = 0; round < 200; round++) {
        Rig *rig = rig_new_with(shared ? test_guest_new_shared(block_pages, 2) :
                                         test_guest_new(block_pages, 2));
        TestGuest *model = test_guest_new(block_pages, 2);
        uint64_t page = 0;
        unsigned block = 0, last = 2;

        for (unsigned i = 0; i < 60; i++) {
            uint64_t pages = ramblock_pages(&model->blocks[block]);
            page = g_test_rand_int_range(0, 4) ? page + 1 : (uint64_t)g_test_rand_int_range(0, pages);
            page %= pages;
            uint8_t fill = g_test_rand_int_range(0, 4) ? 1 + i : 0;
            uint64_t flag = block == last ? RAM_FLAG_CONTINUE : 0;
            const char *name = block == last ? NULL : model->blocks[block].idstr;
            if (fill || g_test_rand_int_range(0, 4) == 0) {
                put_page(rig->in, page * PAGE | RAM_FLAG_PAGE | flag, name, fill);
            } else {
                put_zero(rig->in, page * PAGE | RAM_FLAG_ZERO | flag, name, 0);
            }
            memset(model->blocks[block].host + page * PAGE, fill, PAGE);
            last = block;
            if (g_test_rand_int_range(0, 10) == 0) {
                block = !block;
                page = g_test_rand_int_range(0, 8);
            }
        }
        put_u64(rig->in, RAM_FLAG_EOS);
        OK(rig_load(rig, 2, &error));
        /* Pages that no record named are zero still. */
        g_assert_true(test_guest_equal(rig->guest, model));
        test_guest_free(model);
        rig_free(rig);
    }
}

static void test_guesses(void)
{
    check_records(false);
}

/* ---- shared memory ---- */

static void test_shared(void)
{
    check_records(true);
}

/* Pages that are not there and are to be zero do not come into being; pages with data do. */
static void test_shared_holes(void)
{
    Rig *rig = rig_new_with(test_guest_new_shared(block_pages, 2));

    host(rig, 0, 7)[1] = 1;
    put_page(rig->in, 0x3000 | RAM_FLAG_PAGE, "m0", 0x13);
    put_page(rig->in, 0x4000 | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 0x14);
    put_zero(rig->in, 0x0000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    put_zero(rig->in, 0x1000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    for (unsigned i = 5; i < 16; i++) {
        put_zero(rig->in, i * PAGE | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    }
    put_zero(rig->in, 0x4000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    put_u64(rig->in, RAM_FLAG_EOS);
    OK(rig_load(rig, 2, &error));
    /* Page 3, page 4 (data, then zero), and page 7, which was there. */
    g_assert_cmpuint(test_guest_allocated(rig->guest, 0), ==, 3);
    g_assert_true(page_is(rig, 0, 3, 0x13));
    g_assert_true(page_is(rig, 0, 4, 0));
    g_assert_true(page_is(rig, 0, 7, 0));
    rig_free(rig);
}

static void put_three_pages(GByteArray *a)
{
    put_page(a, 0x3000 | RAM_FLAG_PAGE, "m0", 0x13);
    put_page(a, 0x4000 | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 0x14);
    put_page(a, 0x9000 | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE, NULL, 0x19);
    put_u64(a, RAM_FLAG_EOS);
}

/* A descriptor that does not let us write: through the mapping. */
static void test_shared_read_only_fd(void)
{
    Rig *rig = rig_new_with(test_guest_new_shared(block_pages, 2));
    RAMBlock *b = &rig->guest->blocks[0];
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", b->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    g_assert_cmpint(fd, >=, 0);
    close(b->fd);
    b->fd = fd;
    rig_renew(rig);
    put_three_pages(rig->in);
    OK(rig_load(rig, 2, &error));
    g_assert_true(page_is(rig, 0, 3, 0x13));
    g_assert_true(page_is(rig, 0, 4, 0x14));
    g_assert_true(page_is(rig, 0, 9, 0x19));
    rig_free(rig);
}

/* ---- truncation ---- */

static void test_truncated(void)
{
    g_autoptr(GByteArray) whole = g_byte_array_new();

    list_good(whole);
    put_zero(whole, 0 | RAM_FLAG_ZERO, "m0", 0);
    put_zero(whole, 0x1000 | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE, NULL, 0);
    pages_good(whole);
    put_xbzrle(whole, 1, 3, "\x05\x01\x26", 3);
    put_u64(whole, RAM_FLAG_MULTIFD_FLUSH);
    put_u64(whole, RAM_FLAG_EOS);

    Rig *rig = rig_new();
    put(rig->in, whole->data, whole->len);
    OK(rig_load(rig, 2, &error));
    rig_free(rig);
    rig = rig_new();
    for (size_t len = 0; len < whole->len; len++) {
        GError *error = NULL;
        put(rig->in, whole->data, len);
        rig_renew(rig);
        g_assert_false(rig_load(rig, 2, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_EOF);
        g_error_free(error);
        /* Inside pages one length is like another. */
        if (len > 200 && len < whole->len - 100 && len % 4104 > 100) {
            len += 97;
        }
    }
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ram-load/list", test_list);
    g_test_add_func("/ram-load/list/utf8", test_list_message_is_utf8);
    g_test_add_func("/ram-load/ignore-shared", test_ignore_shared);
    g_test_add_func("/ram-load/readonly", test_readonly);
    g_test_add_func("/ram-load/pages", test_pages);
    g_test_add_func("/ram-load/pages/refused", test_pages_refused);
    g_test_add_func("/ram-load/pages/zero-touches-nothing", test_zero_touches_nothing);
    g_test_add_func("/ram-load/flags/refused", test_flags_refused);
    g_test_add_func("/ram-load/flags/accepted", test_flags_accepted);
    g_test_add_func("/ram-load/xbzrle", test_xbzrle);
    g_test_add_func("/ram-load/other-source", test_other_source);
    g_test_add_func("/ram-load/guesses", test_guesses);
    g_test_add_func("/ram-load/shared", test_shared);
    g_test_add_func("/ram-load/shared/holes", test_shared_holes);
    g_test_add_func("/ram-load/shared/read-only-fd", test_shared_read_only_fd);
    g_test_add_func("/ram-load/truncated", test_truncated);
    return g_test_run();
}
