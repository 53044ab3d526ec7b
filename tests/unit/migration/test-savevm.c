/* SPDX-License-Identifier: BSD-2-Clause */
/* What the source writes, byte for byte as QEMU 11.1 writes it for machine none. */
#include "fake-host.h"
#include "io/transport.h"
#include "migration/savevm.h"
#include "stream-builder.h"

#include <string.h>

#define SIZE (8u << 20)
#define TICKS 73225230
#define CLOCK 28205119

static void fill_page(uint8_t *page, uint8_t seed)
{
    for (unsigned i = 0; i < TARGET_PAGE_SIZE; i++) {
        page[i] = (uint8_t)(seed + i * 7);
    }
}

/* A guest of 8 MiB, block m0, whose pages 1 and 300 are not zero. */
static void init_guest(FakeHost *h)
{
    fake_host_init(h);
    RAMBlock *block = fake_host_add_ram(h, "m0", SIZE);
    fill_page(block->host + TARGET_PAGE_SIZE, 1);
    fill_page(block->host + 300 * TARGET_PAGE_SIZE, 2);
    h->timer.cpu_ticks_offset = TICKS;
    h->timer.cpu_clock_offset = CLOCK;
}

typedef struct Saver {
    FakeHost host;
    MigrationOptions *options;
    Channel *channel;
    RamSave *ram;
    StreamWriter *writer;
    SaveVM *save;
} Saver;

static void saver_init(Saver *s)
{
    MigrationHost host = { &s->host.ops, &s->host };
    init_guest(&s->host);
    s->options = fake_options_new();
    s->channel = channel_buffer_new(NULL, 0);
    s->ram = ram_save_new(&s->host.ram, &s->host.dirty_log, s->options, NULL);
    ram_save_set_sink(s->ram, ram_sink_stream_new(s->ram));
    s->writer = stream_writer_new(s->channel);
    s->save = savevm_new(&host, s->options, s->ram, s->writer);
}

static void saver_clear(Saver *s)
{
    savevm_free(s->save);
    stream_writer_free(s->writer);
    ram_save_free(s->ram);
    channel_unref(s->channel);
    migration_options_free(s->options);
    fake_host_clear(&s->host);
}

static void save_all(Saver *s, bool return_path)
{
    g_autoptr(GError) error = NULL;
    bool done;

    g_assert_true(savevm_start(s->save, return_path, &error));
    g_assert_true(savevm_setup(s->save, &error));
    g_assert_true(savevm_iterate(s->save, UINT64_MAX, &done, &error));
    g_assert_true(done);
    g_assert_true(savevm_complete_ram(s->save, &error));
    g_assert_true(savevm_complete_devices(s->save, RUN_STATE_RUNNING, &error));
    g_assert_true(savevm_end(s->save, &error));
    g_assert_no_error(error);
}

static void put_pages(Stream *s)
{
    uint8_t page[TARGET_PAGE_SIZE];
    for (uint64_t i = 0; i < SIZE / TARGET_PAGE_SIZE; i++) {
        if (i == 1 || i == 300) {
            fill_page(page, i == 1 ? 1 : 2);
            put_page(s, i * TARGET_PAGE_SIZE, NULL, page);
        } else {
            put_zero_page(s, i * TARGET_PAGE_SIZE, i == 0 ? "m0" : NULL, 0);
        }
    }
}

static void put_ram_sections(Stream *s)
{
    put_ram_start(s, 1, "m0", SIZE);
    put_continue(s, 2, 1);
    put_pages(s);
    put_eos(s);
    put_footer(s, 1);
}

static void put_ram_end(Stream *s)
{
    put_continue(s, 3, 1);
    put_eos(s);
    put_footer(s, 1);
}

static void put_tail(Stream *s)
{
    put_timer(s, 0, TICKS, CLOCK);
    put_globalstate(s, 3, "running", 1, 0);
    put_eof(s);
    put_description(s, description_11_1);
}

static void assert_stream(const Saver *s, const Stream *expected)
{
    const GByteArray *bytes = channel_buffer_bytes(s->channel);
    g_assert_cmpmem(bytes->data, bytes->len, expected->data, expected->len);
}

static void test_golden(void)
{
    Saver s;
    g_autoptr(GByteArray) expected = g_byte_array_new();

    put_header(expected);
    put_configuration(expected, "none");
    put_ram_sections(expected);
    put_command(expected, 11, NULL, 0);
    put_ram_end(expected);
    put_tail(expected);
    /* Lengths of the real stream and of the real description. */
    g_assert_cmpuint(expected->len, ==, 0x6c5f);
    g_assert_cmpuint(strlen(description_11_1), ==, 823);

    saver_init(&s);
    save_all(&s, false);
    assert_stream(&s, expected);
    /* All bytes of the main channel count as transferred; RAM records and the EOS of PART as precopy. */
    g_assert_cmpuint(ram_stats_get(&ram_save_stats(s.ram)->transferred), ==, 27743);
    g_assert_cmpuint(ram_stats_get(&ram_save_stats(s.ram)->precopy_bytes), ==, 26633);
    saver_clear(&s);
}

static void test_return_path(void)
{
    Saver s;
    static const uint8_t ping[] = { 0, 0, 0, 1 };
    g_autoptr(GByteArray) expected = g_byte_array_new();

    put_header(expected);
    put_configuration(expected, "none");
    put_command(expected, 1, NULL, 0);
    put_command(expected, 2, ping, sizeof(ping));
    put_ram_sections(expected);
    put_command(expected, 11, NULL, 0);
    put_ram_end(expected);
    put_tail(expected);

    saver_init(&s);
    save_all(&s, true);
    assert_stream(&s, expected);
    saver_clear(&s);
}

/* For a peer that knows nothing of SWITCHOVER_START. */
static void test_no_switchover_start(void)
{
    Saver s;
    g_autoptr(GByteArray) expected = g_byte_array_new();

    put_header(expected);
    put_configuration(expected, "none");
    put_ram_sections(expected);
    put_ram_end(expected);
    put_tail(expected);

    saver_init(&s);
    s.options->props.send_switchover_start = false;
    save_all(&s, false);
    assert_stream(&s, expected);
    saver_clear(&s);
}

static void test_dirty_bitmaps(void)
{
    Saver s;
    g_autoptr(GByteArray) expected = g_byte_array_new();

    put_header(expected);
    put_configuration(expected, "none");
    put_command(expected, 3, NULL, 0);
    put_ram_start(expected, 1, "m0", SIZE);
    put_begin(expected, 1, 2, "dirty-bitmap", 0, 1);
    put_u8(expected, 0x01);
    put_footer(expected, 2);

    saver_init(&s);
    s.options->caps[MIGRATION_CAPABILITY_DIRTY_BITMAPS] = true;
    g_assert_true(savevm_start(s.save, false, NULL));
    g_assert_true(savevm_setup(s.save, NULL));
    assert_stream(&s, expected);
    saver_clear(&s);
}

static void put_capabilities(Stream *s)
{
    put_subsection(s, "configuration/capabilities", 1);
    put_be32(s, 1);
    put_string(s, "x-ignore-shared");
}

static void put_uuid(Stream *s)
{
    put_subsection(s, "configuration/uuid", 1);
    put_bytes(s, "0123456789abcdef", 16);
}

static void test_configuration(void)
{
    Saver s;
    g_autoptr(GByteArray) expected = g_byte_array_new();

    put_header(expected);
    put_configuration(expected, "none");
    put_capabilities(expected);
    put_uuid(expected);

    saver_init(&s);
    s.options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] = true;
    s.options->caps[MIGRATION_CAPABILITY_VALIDATE_UUID] = true;
    s.options->caps[MIGRATION_CAPABILITY_XBZRLE] = true;
    s.host.has_uuid = true;
    memcpy(s.host.uuid, "0123456789abcdef", 16);
    g_assert_true(savevm_start(s.save, false, NULL));
    assert_stream(&s, expected);
    saver_clear(&s);
}

/* Text of a real file saved with both x-ignore-shared and mapped-ram. */
static void test_configuration_description(void)
{
    Saver s;
    static const char text[] =
        "{\"configuration\": {\"vmsd_name\": \"configuration\", \"version\": 1, \"fields\": ["
        "{\"name\": \"len\", \"type\": \"uint32\", \"size\": 4}, "
        "{\"name\": \"name\", \"type\": \"buffer\", \"size\": 4}], \"subsections\": ["
        "{\"vmsd_name\": \"configuration/capabilities\", \"version\": 1, \"fields\": ["
        "{\"name\": \"caps_count\", \"type\": \"uint32\", \"size\": 4}, "
        "{\"name\": \"capabilities\", \"array_len\": 2, \"type\": \"capability\", \"size\": 16}]}]}, "
        "\"page_size\": 4096, \"devices\": [";

    saver_init(&s);
    s.options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] = true;
    s.options->caps[MIGRATION_CAPABILITY_MAPPED_RAM] = true;
    save_all(&s, false);
    const GByteArray *bytes = channel_buffer_bytes(s.channel);
    const uint8_t *brace = memmem(bytes->data, bytes->len, "{\"configuration\"", 16);
    g_assert_nonnull(brace);
    g_assert_cmpmem(brace, strlen(text), text, strlen(text));
    saver_clear(&s);
}

/* What travels early is behind the START section, followed by a PING where there is a return path. */
static void test_early_setup(void)
{
    static const uint8_t first_ping[] = { 0, 0, 0, 1 }, second_ping[] = { 0, 0, 0, 2 };
    static const VMStateField fields[] = { VMSTATE_END };
    static const VMStateDescription vmsd = { .name = "thing", .version = 7, .fields = fields };

    for (int return_path = 0; return_path < 2; return_path++) {
        Saver s;
        SaveEntry late = { .idstr = "late", .vmsd = &vmsd };
        SaveEntry early = { .idstr = "early", .instance_id = 3, .vmsd = &vmsd, .early_setup = true };
        g_autoptr(GByteArray) expected = g_byte_array_new();

        put_header(expected);
        put_configuration(expected, "none");
        if (return_path) {
            put_command(expected, 1, NULL, 0);
            put_command(expected, 2, first_ping, sizeof(first_ping));
        }
        put_ram_start(expected, 1, "m0", SIZE);
        put_begin(expected, 4, 5, "early", 3, 7);
        put_footer(expected, 5);
        if (return_path) {
            put_command(expected, 2, second_ping, sizeof(second_ping));
        }
        saver_init(&s);
        save_entry_list_add(&s.host.entries, &late);
        save_entry_list_add(&s.host.entries, &early);
        MigrationHost host = { &s.host.ops, &s.host };
        savevm_free(s.save);
        s.save = savevm_new(&host, s.options, s.ram, s.writer);
        g_assert_true(savevm_start(s.save, return_path, NULL));
        g_assert_cmpint(savevm_pings_after_setup(s.save), ==, return_path);
        g_assert_true(savevm_setup(s.save, NULL));
        const GByteArray *bytes = channel_buffer_bytes(s.channel);
        g_assert_cmpmem(bytes->data, bytes->len, expected->data, expected->len);
        save_entry_list_remove(&s.host.entries, &late);
        save_entry_list_remove(&s.host.entries, &early);
        saver_clear(&s);
    }
}

/* Further sections of the machine follow globalstate, with ids of their own. */
static void test_more_sections(void)
{
    Saver s;
    static const VMStateField fields[] = { VMSTATE_END };
    static const VMStateDescription vmsd = { .name = "thing", .version = 7, .fields = fields };
    SaveEntry entry = { .idstr = "workload", .instance_id = 3, .vmsd = &vmsd };
    g_autoptr(GByteArray) expected = g_byte_array_new();

    put_timer(expected, 0, TICKS, CLOCK);
    put_globalstate(expected, 3, "paused", 1, 0);
    put_begin(expected, 4, 4, "workload", 3, 7);
    put_footer(expected, 4);

    saver_init(&s);
    save_entry_list_add(&s.host.entries, &entry);
    MigrationHost host = { &s.host.ops, &s.host };
    savevm_free(s.save);
    s.save = savevm_new(&host, s.options, s.ram, s.writer);
    g_assert_true(savevm_start(s.save, false, NULL));
    g_assert_true(savevm_setup(s.save, NULL));
    g_assert_true(savevm_complete_ram(s.save, NULL));
    g_assert_true(savevm_complete_devices(s.save, RUN_STATE_PAUSED, NULL));
    const GByteArray *bytes = channel_buffer_bytes(s.channel);
    g_assert_cmpmem(bytes->data + bytes->len - expected->len, expected->len, expected->data, expected->len);
    save_entry_list_remove(&s.host.entries, &entry);
    saver_clear(&s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/savevm/golden", test_golden);
    g_test_add_func("/savevm/return-path", test_return_path);
    g_test_add_func("/savevm/no-switchover-start", test_no_switchover_start);
    g_test_add_func("/savevm/dirty-bitmaps", test_dirty_bitmaps);
    g_test_add_func("/savevm/configuration", test_configuration);
    g_test_add_func("/savevm/configuration-description", test_configuration_description);
    g_test_add_func("/savevm/early-setup", test_early_setup);
    g_test_add_func("/savevm/more-sections", test_more_sections);
    return g_test_run();
}
