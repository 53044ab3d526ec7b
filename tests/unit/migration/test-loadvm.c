/* SPDX-License-Identifier: BSD-2-Clause */
/* What the destination insists on and what it puts up with: hand-made streams and the verdict on each. */
#include "fake-host.h"
#include "io/transport.h"
#include "migration/loadvm.h"
#include "stream-builder.h"
#include "util/error.h"

#include <string.h>

#define PAGES 8
#define SIZE (PAGES * TARGET_PAGE_SIZE)
#define FAILED "load of migration failed: "
#define EINVAL_ FAILED "Invalid argument: "
#define EIO_ FAILED "Input/output error: "
#define ENOTSUP_ FAILED "Operation not supported: "
#define RAM_PART "Failed to load vmstate version_id: 4, ret: -22: "
#define RAM_FULL "error while loading state for instance 0x0 of device 'ram': " RAM_PART

static const uint8_t uuid_a[16] = { 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
static const uint8_t uuid_b[16] = { 0xbb };

/* ---- the frame around one case ---- */

typedef struct Case {
    const char *name;
    void (*build)(Stream *s);
    const char *error;                      /* how the error begins; NULL: accepted */
    void (*prepare)(FakeHost *h, MigrationOptions *o);
    void (*check)(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len);
} Case;

static void run_case(gconstpointer data)
{
    const Case *c = data;
    FakeHost h;
    g_autoptr(GByteArray) s = g_byte_array_new();
    g_autoptr(GError) error = NULL;
    MigrationOptions *options = fake_options_new();

    fake_host_init(&h);
    fake_host_set_state(&h, RUN_STATE_INMIGRATE);
    fake_host_add_ram(&h, "m0", SIZE);
    if (c->prepare) {
        c->prepare(&h, options);
    }
    c->build(s);
    MigrationHost host = { &h.ops, &h };
    Channel *channel = channel_buffer_new(s->data, s->len);
    LoadVM *l = loadvm_new(&host, options, channel);

    bool ok = loadvm_run(l, &error);
    g_assert_cmpint(ok, ==, error == NULL);
    if (c->error) {
        g_assert_nonnull(error);
        if (!g_str_has_prefix(error->message, c->error)) {
            g_assert_cmpstr(error->message, ==, c->error);
        }
    } else {
        g_assert_no_error(error);
    }
    if (c->check) {
        const GByteArray *bytes = channel_buffer_bytes(channel);
        c->check(&h, l, bytes->data + s->len, bytes->len - s->len);
    }
    /* The parser never decides about the run state. */
    g_assert_cmpint(fake_host_state(&h), ==, RUN_STATE_INMIGRATE);

    loadvm_free(l);
    channel_unref(channel);
    migration_options_free(options);
    fake_host_clear(&h);
}

/* ---- building blocks ---- */

static void begin(Stream *s)
{
    put_header(s);
    put_configuration(s, "none");
}

static void end(Stream *s)
{
    put_eof(s);
    put_description(s, description_11_1);
}

static void ram_start(Stream *s)
{
    put_ram_start(s, 1, "m0", SIZE);
}

static void begin_part(Stream *s)
{
    begin(s);
    ram_start(s);
    put_continue(s, 2, 1);
}

static void end_part(Stream *s)
{
    put_eos(s);
    put_footer(s, 1);
    end(s);
}

static void ram_end(Stream *s)
{
    put_continue(s, 3, 1);
    put_eos(s);
    put_footer(s, 1);
}

static void fill(uint8_t *page, uint8_t seed)
{
    for (unsigned i = 0; i < TARGET_PAGE_SIZE; i++) {
        page[i] = (uint8_t)(seed ^ i);
    }
}

static void page(Stream *s, uint64_t offset, const char *name, uint8_t seed)
{
    uint8_t buf[TARGET_PAGE_SIZE];
    fill(buf, seed);
    put_page(s, offset, name, buf);
}

/* ---- a complete stream ---- */

static void build_whole(Stream *s)
{
    begin(s);
    ram_start(s);
    put_continue(s, 2, 1);
    put_zero_page(s, 0, "m0", 0);
    page(s, 0x1000, NULL, 1);
    page(s, 0x2000, NULL, 2);
    for (unsigned i = 3; i < PAGES; i++) {
        put_zero_page(s, i * 0x1000, NULL, 0);
    }
    put_eos(s);
    put_footer(s, 1);
    put_command(s, 11, NULL, 0);
    put_continue(s, 3, 1);
    page(s, 0x2000, "m0", 9);
    put_eos(s);
    put_footer(s, 1);
    put_timer(s, 0, 73225230, 28205119);
    put_globalstate(s, 3, "running", 1, 0);
    end(s);
}

static void check_page(FakeHost *h, unsigned index, uint8_t seed)
{
    uint8_t expected[TARGET_PAGE_SIZE];
    fill(expected, seed);
    const uint8_t *page = h->ram.first->host + index * TARGET_PAGE_SIZE;
    g_assert_cmpmem(page, TARGET_PAGE_SIZE, expected, TARGET_PAGE_SIZE);
}

static void check_whole(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    check_page(h, 1, 1);
    check_page(h, 2, 9);
    g_assert_cmpuint(h->ram.first->host[0], ==, 0);
    g_assert_cmpint(h->timer.cpu_ticks_offset, ==, 73225230);
    g_assert_cmpint(h->timer.cpu_clock_offset, ==, 28205119);
    g_assert_true(loadvm_global_state(l)->received);
    g_assert_cmpint(loadvm_global_state(l)->state, ==, RUN_STATE_RUNNING);
    g_assert_true(globalstate_is_live(loadvm_global_state(l)));
    g_assert_cmpuint(len, ==, 0);
    g_assert_cmpstr(h->log->str, ==, "");
}

/* ---- header and configuration ---- */

static void build_nothing(Stream *s)
{
}

static void build_garbage(Stream *s)
{
    put_bytes(s, "GET / HTTP/1.0\r\n\r\n", 18);
}

static void build_two_bytes(Stream *s)
{
    put_bytes(s, "QE", 2);
}

static void build_magic_only(Stream *s)
{
    put_bytes(s, "QEVM", 4);
}

static void build_version_2(Stream *s)
{
    put_bytes(s, "QEVM", 4);
    put_be32(s, 2);
}

static void build_version_99(Stream *s)
{
    put_bytes(s, "QEVM", 4);
    put_be32(s, 99);
}

static void build_header_only(Stream *s)
{
    put_header(s);
}

static void build_no_configuration(Stream *s)
{
    put_header(s);
    ram_start(s);
    end(s);
}

static void build_machine(Stream *s, const char *machine)
{
    put_header(s);
    put_configuration(s, machine);
    end(s);
}

static void build_machine_other(Stream *s)
{
    build_machine(s, "pc-i440fx-7.2");
}

static void build_machine_longer(Stream *s)
{
    build_machine(s, "none2");
}

static void build_machine_prefix(Stream *s)
{
    build_machine(s, "no");
}

static void build_machine_empty(Stream *s)
{
    build_machine(s, "");
}

static void build_machine_huge(Stream *s)
{
    put_header(s);
    put_u8(s, 7);
    put_be32(s, 0xffffffff);
}

static void build_unknown_subsection(Stream *s)
{
    begin(s);
    put_subsection(s, "configuration/bogus", 1);
    end(s);
}

static void build_page_bits_12(Stream *s)
{
    begin(s);
    put_subsection(s, "configuration/target-page-bits", 1);
    put_be32(s, 12);
    end(s);
}

static void build_page_bits_14(Stream *s)
{
    begin(s);
    put_subsection(s, "configuration/target-page-bits", 1);
    put_be32(s, 14);
    end(s);
}

static void put_capability_list(Stream *s, uint32_t count, const char *name)
{
    put_subsection(s, "configuration/capabilities", 1);
    put_be32(s, count);
    for (uint32_t i = 0; i < count; i++) {
        put_string(s, name);
    }
}

static void build_capability_shared(Stream *s)
{
    begin(s);
    put_capability_list(s, 1, "x-ignore-shared");
    end(s);
}

static void build_capability_mapped(Stream *s)
{
    begin(s);
    put_capability_list(s, 1, "mapped-ram");
    end(s);
}

static void build_capability_not_compared(Stream *s)
{
    begin(s);
    put_capability_list(s, 1, "xbzrle");
    end(s);
}

static void build_capability_unknown(Stream *s)
{
    begin(s);
    put_capability_list(s, 1, "teleport");
    end(s);
}

static void build_capability_none(Stream *s)
{
    begin(s);
    put_capability_list(s, 0, "");
    end(s);
}

static void build_capability_count_huge(Stream *s)
{
    begin(s);
    put_subsection(s, "configuration/capabilities", 1);
    put_be32(s, 0xffffffff);
    put_zeros(s, 64);
}

static void build_empty(Stream *s)
{
    begin(s);
    end(s);
}

static void ignore_shared(FakeHost *h, MigrationOptions *o)
{
    o->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] = true;
}

static void build_uuid_a(Stream *s)
{
    begin(s);
    put_subsection(s, "configuration/uuid", 1);
    put_bytes(s, uuid_a, 16);
    end(s);
}

static void have_uuid_a(FakeHost *h, MigrationOptions *o)
{
    h->has_uuid = true;
    memcpy(h->uuid, uuid_a, 16);
}

static void have_uuid_b(FakeHost *h, MigrationOptions *o)
{
    h->has_uuid = true;
    memcpy(h->uuid, uuid_b, 16);
}

static void validate_uuid(FakeHost *h, MigrationOptions *o)
{
    have_uuid_b(h, o);
    o->caps[MIGRATION_CAPABILITY_VALIDATE_UUID] = true;
}

static void check_uuid_warning(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    g_assert_cmpstr(h->log->str, ==,
                    "warning: UUID is received aabbccdd-0102-0304-0506-0708090a0b0c, "
                    "but local uuid isn't set\n");
}

static void build_subsections_any_order(Stream *s)
{
    begin(s);
    put_subsection(s, "configuration/uuid", 1);
    put_bytes(s, uuid_a, 16);
    put_capability_list(s, 1, "x-ignore-shared");
    end(s);
}

static void shared_and_uuid(FakeHost *h, MigrationOptions *o)
{
    ignore_shared(h, o);
    have_uuid_a(h, o);
}

static void no_configuration_here(FakeHost *h, MigrationOptions *o)
{
    o->props.send_configuration = false;
}

/* ---- sections ---- */

static void build_unknown_section(Stream *s)
{
    begin(s);
    put_begin(s, 4, 7, "slirp", 0, 1);
    end(s);
}

static void build_other_instance(Stream *s)
{
    begin(s);
    put_begin(s, 1, 1, "ram", 1, 4);
    end(s);
}

static void build_type(Stream *s, uint8_t type)
{
    begin(s);
    put_u8(s, type);
    put_zeros(s, 16);
}

static void build_type_05(Stream *s)
{
    build_type(s, 0x05);
}

static void build_type_07(Stream *s)
{
    build_type(s, 0x07);
}

static void build_type_09(Stream *s)
{
    build_type(s, 0x09);
}

static void build_type_7e(Stream *s)
{
    build_type(s, 0x7e);
}

static void build_ram_version(Stream *s, uint32_t version)
{
    begin(s);
    put_begin(s, 1, 1, "ram", 0, version);
    put_block_list(s, "m0", SIZE);
    put_eos(s);
    put_footer(s, 1);
    end(s);
}

static void build_ram_version_3(Stream *s)
{
    build_ram_version(s, 3);
}

static void build_ram_version_5(Stream *s)
{
    build_ram_version(s, 5);
}

static void build_ram_version_huge(Stream *s)
{
    build_ram_version(s, 0x80000004);
}

static void build_timer_version_1(Stream *s)
{
    begin(s);
    put_begin(s, 4, 0, "timer", 0, 1);
    put_be64(s, 5);
    put_zeros(s, 8);
    put_footer(s, 0);
    end(s);
}

static void check_timer_version_1(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    g_assert_cmpint(h->timer.cpu_ticks_offset, ==, 5);
    g_assert_cmpint(h->timer.cpu_clock_offset, ==, 0);
}

static void build_timer_version_3(Stream *s)
{
    begin(s);
    put_begin(s, 4, 0, "timer", 0, 3);
    put_zeros(s, 24);
    put_footer(s, 0);
    end(s);
}

static void build_footer_missing(Stream *s)
{
    begin(s);
    put_begin(s, 1, 1, "ram", 0, 4);
    put_block_list(s, "m0", SIZE);
    put_eos(s);
    end(s);
}

static void build_footer_mismatch(Stream *s)
{
    begin(s);
    put_begin(s, 1, 1, "ram", 0, 4);
    put_block_list(s, "m0", SIZE);
    put_eos(s);
    put_footer(s, 2);
    end(s);
}

static void build_footer_eof(Stream *s)
{
    begin(s);
    put_begin(s, 1, 2, "ram", 0, 4);
    put_block_list(s, "m0", SIZE);
    put_eos(s);
}

static void build_no_footers(Stream *s)
{
    begin(s);
    put_begin(s, 1, 1, "ram", 0, 4);
    put_block_list(s, "m0", SIZE);
    put_eos(s);
    put_continue(s, 3, 1);
    put_eos(s);
    end(s);
}

static void no_footers_here(FakeHost *h, MigrationOptions *o)
{
    o->props.send_section_footer = false;
}

static void build_part_of_unknown(Stream *s)
{
    begin(s);
    put_continue(s, 2, 99);
    put_eos(s);
    put_footer(s, 99);
    end(s);
}

static void build_eof_in_name(Stream *s)
{
    begin(s);
    put_u8(s, 1);
    put_be32(s, 0);
    put_u8(s, 3);
    put_bytes(s, "ra", 2);
}

static void build_eof_in_ram(Stream *s)
{
    begin_part(s);
    put_be64(s, RAM_PAGE);
    put_string(s, "m0");
    put_zeros(s, 100);
}

static void build_strange_ids(Stream *s)
{
    begin(s);
    put_ram_start(s, 0x1234, "m0", SIZE);
    put_continue(s, 2, 0x1234);
    page(s, 0x1000, "m0", 1);
    put_eos(s);
    put_footer(s, 0x1234);
    put_timer(s, 0xffffffff, 7, 8);
    end(s);
}

static void check_strange_ids(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    check_page(h, 1, 1);
    g_assert_cmpint(h->timer.cpu_clock_offset, ==, 8);
}

static void build_full_before_ram(Stream *s)
{
    begin(s);
    put_globalstate(s, 3, "paused", 1, 0);
    put_timer(s, 0, 7, 8);
    ram_start(s);
    ram_end(s);
    end(s);
}

static void build_ram_as_full(Stream *s)
{
    begin(s);
    put_begin(s, 4, 1, "ram", 0, 4);
    put_block_list(s, "m0", SIZE);
    put_eos(s);
    put_footer(s, 1);
    put_continue(s, 2, 1);
    page(s, 0x1000, "m0", 1);
    put_eos(s);
    put_footer(s, 1);
    end(s);
}

static void build_no_end(Stream *s)
{
    begin_part(s);
    page(s, 0, "m0", 1);
    end_part(s);
}

static void build_no_part(Stream *s)
{
    begin(s);
    ram_start(s);
    ram_end(s);
    end(s);
}

static void build_dirty_bitmap(Stream *s)
{
    begin(s);
    put_command(s, 3, NULL, 0);
    put_begin(s, 1, 2, "dirty-bitmap", 0, 1);
    put_u8(s, 1);
    put_footer(s, 2);
    end(s);
}

static void build_dirty_bitmap_data(Stream *s)
{
    begin(s);
    put_begin(s, 1, 2, "dirty-bitmap", 0, 1);
    put_u8(s, 0x40);
    put_footer(s, 2);
    end(s);
}

/* ---- globalstate ---- */

static void build_state(Stream *s, const char *state, uint8_t has, uint8_t suspended)
{
    begin(s);
    put_globalstate(s, 3, state, has, suspended);
    end(s);
}

static void build_state_paused(Stream *s)
{
    build_state(s, "paused", 1, 0);
}

static void check_state_paused(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    g_assert_cmpint(loadvm_global_state(l)->state, ==, RUN_STATE_PAUSED);
    g_assert_false(globalstate_is_live(loadvm_global_state(l)));
}

static void build_state_suspended(Stream *s)
{
    build_state(s, "paused", 1, 1);
}

static void check_state_live(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    g_assert_true(globalstate_is_live(loadvm_global_state(l)));
}

/* QEMU 7.2 does not know the flags: whatever is there does not count. */
static void build_state_7_2(Stream *s)
{
    build_state(s, "paused", 0, 1);
}

static void build_state_unknown(Stream *s)
{
    build_state(s, "dreaming", 1, 0);
}

static void build_state_empty(Stream *s)
{
    build_state(s, "", 1, 0);
}

static void build_state_unterminated(Stream *s)
{
    build_state(s, "running-running-running-running-", 1, 0);
}

/* ---- commands ---- */

static void build_command(Stream *s, uint16_t number, uint16_t len)
{
    static const uint8_t zeros[16];
    begin(s);
    put_command(s, number, zeros, len);
    end(s);
}

static void build_command_0(Stream *s)
{
    build_command(s, 0, 0);
}

static void build_command_12(Stream *s)
{
    build_command(s, 12, 0);
}

static void build_command_ffff(Stream *s)
{
    build_command(s, 0xffff, 0);
}

static void build_switchover_length(Stream *s)
{
    build_command(s, 11, 1);
}

static void build_ping_length(Stream *s)
{
    build_command(s, 2, 8);
}

static void build_switchover(Stream *s)
{
    build_command(s, 11, 0);
}

static void build_advise_16(Stream *s)
{
    build_command(s, 3, 16);
}

static void build_listen(Stream *s)
{
    build_command(s, 4, 0);
}

static void build_run(Stream *s)
{
    build_command(s, 5, 0);
}

static void build_discard(Stream *s)
{
    build_command(s, 6, 16);
}

static void build_packaged(Stream *s)
{
    build_command(s, 7, 4);
}

static void build_colo(Stream *s)
{
    build_command(s, 8, 0);
}

static void build_resume(Stream *s)
{
    build_command(s, 9, 0);
}

static void build_recv_bitmap(Stream *s)
{
    build_command(s, 10, 3);
}

static const uint8_t ping_1[] = { 0, 0, 0, 1 };

static void build_ping_alone(Stream *s)
{
    begin(s);
    put_command(s, 2, ping_1, 4);
    end(s);
}

/* Opened twice, and once more at a late moment. */
static void build_return_path(Stream *s)
{
    begin(s);
    put_command(s, 1, NULL, 0);
    put_command(s, 2, ping_1, 4);
    put_command(s, 1, NULL, 0);
    ram_start(s);
    ram_end(s);
    put_command(s, 1, NULL, 0);
    put_command(s, 2, "\x12\x34\x56\x78", 4);
    end(s);
}

static void check_return_path(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    static const uint8_t expected[] = { 0, 2, 0, 4, 0, 0, 0, 1, 0, 2, 0, 4, 0x12, 0x34, 0x56, 0x78 };
    g_assert_cmpmem(answer, len, expected, sizeof(expected));
}

static void ack_legacy(FakeHost *h, MigrationOptions *o)
{
    o->caps[MIGRATION_CAPABILITY_SWITCHOVER_ACK] = true;
    o->caps[MIGRATION_CAPABILITY_RETURN_PATH] = true;
    o->props.switchover_ack_legacy = true;
}

static void ack_new(FakeHost *h, MigrationOptions *o)
{
    ack_legacy(h, o);
    o->props.switchover_ack_legacy = false;
}

static void check_ack_legacy(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    static const uint8_t expected[] = {
        0, 7, 0, 0,
        0, 2, 0, 4, 0, 0, 0, 1,
        0, 2, 0, 4, 0x12, 0x34, 0x56, 0x78,
    };
    g_assert_cmpmem(answer, len, expected, sizeof(expected));
}

/* ---- the end ---- */

static void build_no_description(Stream *s)
{
    begin(s);
    put_eof(s);
}

static void build_other_after_eof(Stream *s)
{
    begin(s);
    put_eof(s);
    put_u8(s, 0x42);
}

static void build_description_junk(Stream *s)
{
    begin(s);
    put_eof(s);
    put_description(s, "{{{ not JSON \001");
    put_bytes(s, "trailing bytes", 14);
}

static void build_description_cut(Stream *s)
{
    begin(s);
    put_eof(s);
    put_u8(s, 6);
    put_be32(s, 0xffffffff);
    put_bytes(s, "{", 1);
}

static void build_eof_missing(Stream *s)
{
    begin(s);
    ram_start(s);
    ram_end(s);
}

static void check_no_description(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    g_assert_cmpstr(h->log->str, ==, "Expected vmdescription section, but got 0\n");
}

static void check_other_after_eof(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    g_assert_cmpstr(h->log->str, ==, "Expected vmdescription section, but got 66\n");
}

/* ---- RAM: the block list ---- */

static void build_blocks(Stream *s, uint64_t total, const char *name, uint64_t size)
{
    begin(s);
    put_begin(s, 1, 1, "ram", 0, 4);
    put_be64(s, total | RAM_MEM_SIZE);
    if (name) {
        put_string(s, name);
        put_be64(s, size);
    }
    put_eos(s);
    put_footer(s, 1);
    end(s);
}

static void build_block_unknown(Stream *s)
{
    build_blocks(s, SIZE, "xx", SIZE);
}

static void build_block_larger(Stream *s)
{
    build_blocks(s, 2 * SIZE, "m0", 2 * SIZE);
}

static void build_block_smaller(Stream *s)
{
    build_blocks(s, SIZE / 2, "m0", SIZE / 2);
}

static void build_block_twice(Stream *s)
{
    begin(s);
    put_begin(s, 1, 1, "ram", 0, 4);
    put_be64(s, 2 * SIZE | RAM_MEM_SIZE);
    for (int i = 0; i < 2; i++) {
        put_string(s, "m0");
        put_be64(s, SIZE);
    }
    put_eos(s);
    put_footer(s, 1);
    end(s);
}

static void build_total_0(Stream *s)
{
    build_blocks(s, 0, NULL, 0);
}

static void build_total_small(Stream *s)
{
    build_blocks(s, SIZE / 2, "m0", SIZE);
}

static void build_no_mem_size(Stream *s)
{
    begin(s);
    put_begin(s, 1, 1, "ram", 0, 4);
    put_eos(s);
    put_footer(s, 1);
    end(s);
}

/* ---- RAM: page records ---- */

static void build_offset_at_end(Stream *s)
{
    begin_part(s);
    put_zero_page(s, SIZE, "m0", 0);
    end_part(s);
}

static void build_page_block_unknown(Stream *s)
{
    begin_part(s);
    put_zero_page(s, 0, "m1", 0);
    end_part(s);
}

static void build_continue_first(Stream *s)
{
    begin_part(s);
    put_zero_page(s, 0, NULL, 0);
    end_part(s);
}

static void build_continue_persists(Stream *s)
{
    begin_part(s);
    page(s, 0, "m0", 1);
    put_eos(s);
    put_footer(s, 1);
    put_command(s, 11, NULL, 0);
    put_continue(s, 3, 1);
    page(s, 0x3000, NULL, 2);
    end_part(s);
}

static void check_continue_persists(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    check_page(h, 0, 1);
    check_page(h, 3, 2);
}

static void build_fill_byte(Stream *s)
{
    begin_part(s);
    put_zero_page(s, 0, "m0", 0x55);
    end_part(s);
}

static void build_word(Stream *s, uint64_t word)
{
    begin_part(s);
    put_be64(s, word);
    put_zeros(s, 32);
}

static void build_flag_0(Stream *s)
{
    build_word(s, 0);
}

static void build_flag_1(Stream *s)
{
    build_word(s, 0x01);
}

static void build_flag_400(Stream *s)
{
    build_word(s, 0x400);
}

static void build_flag_100(Stream *s)
{
    build_word(s, 0x100);
}

static void build_flag_two(Stream *s)
{
    build_word(s, RAM_ZERO | RAM_PAGE);
}

static void build_flag_multifd_flush(Stream *s)
{
    begin_part(s);
    put_be64(s, 0x200);
    end_part(s);
}

static void build_flush_in_setup(Stream *s)
{
    put_header(s);
    put_configuration(s, "none");
    put_begin(s, 1, 1, "ram", 0, 4);
    put_block_list(s, "m0", SIZE);
    put_be64(s, 0x200);
    put_eos(s);
}

static void build_flag_hook(Stream *s)
{
    begin_part(s);
    put_be64(s, 0x80);
    end_part(s);
}

static void build_eos_with_more(Stream *s)
{
    begin_part(s);
    put_be64(s, 0xabcde000 | RAM_EOS | RAM_CONTINUE);
    put_footer(s, 1);
    end(s);
}

static void put_xbzrle(Stream *s, uint8_t encoding, uint16_t len)
{
    put_be64(s, 0x1000 | RAM_XBZRLE);
    put_string(s, "m0");
    put_u8(s, encoding);
    put_be16(s, len);
}

/* Byte 0 of a page that was all 0x01^i becomes 0x26. */
static void build_xbzrle(Stream *s)
{
    begin_part(s);
    page(s, 0x1000, "m0", 1);
    put_xbzrle(s, 1, 3);
    put_bytes(s, "\x00\x01\x26", 3);
    end_part(s);
}

static void check_xbzrle(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    const uint8_t *p = h->ram.first->host + 0x1000;
    g_assert_cmpuint(p[0], ==, 0x26);
    g_assert_cmpuint(p[1], ==, 0);
    g_assert_cmpuint(p[2], ==, 3);
}

static void build_xbzrle_encoding(Stream *s)
{
    begin_part(s);
    put_xbzrle(s, 2, 3);
    put_zeros(s, 64);
}

static void build_xbzrle_length(Stream *s)
{
    begin_part(s);
    put_xbzrle(s, 1, 4097);
    put_zeros(s, 5000);
}

static void build_xbzrle_length_0(Stream *s)
{
    begin_part(s);
    page(s, 0x1000, "m0", 1);
    put_xbzrle(s, 1, 0);
    end_part(s);
}

static void check_page_1(FakeHost *h, const LoadVM *l, const uint8_t *answer, size_t len)
{
    check_page(h, 1, 1);
}

/* ---- the table ---- */

static const Case cases[] = {
    { "whole", build_whole, NULL, NULL, check_whole },

    { "header/empty", build_nothing, EINVAL_ "Not a migration stream, magic: 0 != 5145564d" },
    { "header/garbage", build_garbage, EINVAL_ "Not a migration stream, magic: 47455420 != 5145564d" },
    { "header/two-bytes", build_two_bytes, EINVAL_ "Not a migration stream, magic: 51450000 != 5145564d" },
    { "header/magic-only", build_magic_only,
      ENOTSUP_ "Unsupported migration stream version, file version 0 != 3" },
    { "header/version-2", build_version_2, ENOTSUP_ "SaveVM v2 format is obsolete and no longer supported" },
    { "header/version-99", build_version_99,
      ENOTSUP_ "Unsupported migration stream version, file version 63 != 3" },

    { "configuration/header-only", build_header_only, EINVAL_ "Configuration section missing, 0 != 7" },
    { "configuration/missing", build_no_configuration, EINVAL_ "Configuration section missing, 1 != 7" },
    { "configuration/machine-other", build_machine_other,
      EINVAL_ "post load hook failed for: configuration, version_id: 1, minimum_version: 0: "
              "Machine type received is 'pc-i440fx-7.2' and local is 'none'" },
    { "configuration/machine-longer", build_machine_longer,
      EINVAL_ "post load hook failed for: configuration, version_id: 1, minimum_version: 0: "
              "Machine type received is 'none2' and local is 'none'" },
    { "configuration/machine-prefix", build_machine_prefix },
    { "configuration/machine-empty", build_machine_empty },
    { "configuration/machine-huge", build_machine_huge, EINVAL_ "the length of the machine type's name" },
    { "configuration/unknown-subsection", build_unknown_subsection,
      EINVAL_ "Loading VM subsection 'configuration/bogus' in 'configuration' failed: " },
    { "configuration/page-bits-12", build_page_bits_12 },
    { "configuration/page-bits-14", build_page_bits_14,
      EINVAL_ "Loading VM subsection 'configuration/target-page-bits' in 'configuration' failed: " },
    { "configuration/capability-both", build_capability_shared, NULL, ignore_shared },
    { "configuration/capability-theirs", build_capability_shared,
      EINVAL_ "post load hook failed for: configuration, version_id: 1, minimum_version: 0: "
              "Failed to validate capabilities: "
              "Capability x-ignore-shared is off, but received capability is on" },
    { "configuration/capability-ours", build_empty,
      EINVAL_ "post load hook failed for: configuration, version_id: 1, minimum_version: 0: "
              "Failed to validate capabilities: "
              "Capability x-ignore-shared is on, but received capability is off", ignore_shared },
    { "configuration/capability-mapped", build_capability_mapped,
      EINVAL_ "post load hook failed for: configuration, version_id: 1, minimum_version: 0: "
              "Failed to validate capabilities: "
              "Capability mapped-ram is off, but received capability is on" },
    { "configuration/capability-not-compared", build_capability_not_compared },
    { "configuration/capability-none", build_capability_none },
    { "configuration/capability-unknown", build_capability_unknown,
      EINVAL_ "Loading VM subsection 'configuration/capabilities' in 'configuration' failed: " },
    { "configuration/capability-count-huge", build_capability_count_huge,
      EINVAL_ "Loading VM subsection 'configuration/capabilities' in 'configuration' failed: 4294967295 " },
    { "configuration/uuid-same", build_uuid_a, NULL, have_uuid_a },
    { "configuration/uuid-other", build_uuid_a,
      EINVAL_ "Loading VM subsection 'configuration/uuid' in 'configuration' failed: "
              "post load hook failed for: configuration/uuid, version_id: 1, minimum_version: 1, ret: -22",
      have_uuid_b },
    { "configuration/uuid-none-here", build_uuid_a, NULL, NULL, check_uuid_warning },
    { "configuration/uuid-none-there", build_empty, NULL, validate_uuid },
    { "configuration/any-order", build_subsections_any_order, NULL, shared_and_uuid },
    { "configuration/not-expected", build_whole, EINVAL_ "Unknown section type 7", no_configuration_here },

    { "section/unknown", build_unknown_section, EINVAL_ "Unknown section 'slirp'" },
    { "section/other-instance", build_other_instance, EINVAL_ "Unknown section 'ram' or instance 0x1" },
    { "section/type-05", build_type_05, EINVAL_ "Unknown section type 5" },
    { "section/type-07", build_type_07, EINVAL_ "Unknown section type 7" },
    { "section/type-09", build_type_09, EINVAL_ "Unknown section type 9" },
    { "section/type-7e", build_type_7e, EINVAL_ "Unknown section type 126" },
    { "section/ram-version-3", build_ram_version_3,
      EINVAL_ "error while loading state for instance 0x0 of device 'ram': "
              "Failed to load vmstate version_id: 3, ret: -22: " },
    { "section/ram-version-5", build_ram_version_5, EINVAL_ "unsupported version 5 of section 'ram'" },
    { "section/ram-version-huge", build_ram_version_huge, EINVAL_ "unsupported version 2147483652" },
    { "section/timer-version-1", build_timer_version_1, NULL, NULL, check_timer_version_1 },
    { "section/timer-version-3", build_timer_version_3, EINVAL_ "unsupported version 3 of section 'timer'" },
    { "section/footer-missing", build_footer_missing, EINVAL_ "Section footer error, section_id: 1" },
    { "section/footer-mismatch", build_footer_mismatch, EINVAL_ "Section footer error, section_id: 1" },
    { "section/footer-eof", build_footer_eof, EINVAL_ "Section footer error, section_id: 2" },
    { "section/no-footers", build_no_footers, NULL, no_footers_here },
    { "section/footers-not-expected", build_whole, EINVAL_ "Unknown section type 126", no_footers_here },
    { "section/part-of-unknown", build_part_of_unknown, EINVAL_ "Unknown section id 99" },
    { "section/eof-in-name", build_eof_in_name, EINVAL_ "Unable to read ID string for section 0" },
    { "section/eof-in-ram", build_eof_in_ram, EIO_ "Failed to load vmstate version_id: 4, ret: -5: " },
    { "section/strange-ids", build_strange_ids, NULL, NULL, check_strange_ids },
    { "section/full-before-ram", build_full_before_ram, NULL, NULL, check_state_paused },
    { "section/ram-as-full", build_ram_as_full, NULL, NULL, check_page_1 },
    { "section/no-end", build_no_end },
    { "section/no-part", build_no_part },
    { "section/nothing-at-all", build_empty, NULL, NULL, check_state_live },
    { "section/dirty-bitmap", build_dirty_bitmap },
    { "section/dirty-bitmap-data", build_dirty_bitmap_data,
      ENOTSUP_ "error while loading state for instance 0x0 of device 'dirty-bitmap': " },

    { "globalstate/paused", build_state_paused, NULL, NULL, check_state_paused },
    { "globalstate/suspended", build_state_suspended, NULL, NULL, check_state_live },
    { "globalstate/7.2", build_state_7_2, NULL, NULL, check_state_paused },
    { "globalstate/unknown", build_state_unknown,
      EINVAL_ "error while loading state for instance 0x0 of device 'globalstate': " },
    { "globalstate/empty", build_state_empty,
      EINVAL_ "error while loading state for instance 0x0 of device 'globalstate': " },
    { "globalstate/unterminated", build_state_unterminated,
      EINVAL_ "error while loading state for instance 0x0 of device 'globalstate': " },

    { "command/0", build_command_0, EINVAL_ "MIG_CMD 0x0 unknown (len 0x0)" },
    { "command/12", build_command_12, EINVAL_ "MIG_CMD 0xc unknown (len 0x0)" },
    { "command/ffff", build_command_ffff, EINVAL_ "MIG_CMD 0xffff unknown (len 0x0)" },
    { "command/switchover-start", build_switchover },
    { "command/switchover-start-length", build_switchover_length, EINVAL_ "command SWITCHOVER_START" },
    { "command/ping-length", build_ping_length, EINVAL_ "command PING" },
    { "command/ping-alone", build_ping_alone, EINVAL_ "PING 0x1 received, but no return path is open" },
    { "command/return-path", build_return_path, NULL, NULL, check_return_path },
    { "command/switchover-ack-legacy", build_return_path, NULL, ack_legacy, check_ack_legacy },
    { "command/switchover-ack-new", build_return_path, NULL, ack_new, check_return_path },
    { "command/postcopy-advise", build_advise_16, ENOTSUP_ "the source sent the command POSTCOPY_ADVISE" },
    { "command/postcopy-listen", build_listen, ENOTSUP_ "the source sent the command POSTCOPY_LISTEN" },
    { "command/postcopy-run", build_run, ENOTSUP_ "the source sent the command POSTCOPY_RUN" },
    { "command/postcopy-ram-discard", build_discard,
      ENOTSUP_ "the source sent the command POSTCOPY_RAM_DISCARD" },
    { "command/packaged", build_packaged, ENOTSUP_ "the source sent the command PACKAGED" },
    { "command/enable-colo", build_colo, ENOTSUP_ "the source sent the command ENABLE_COLO" },
    { "command/postcopy-resume", build_resume, ENOTSUP_ "the source sent the command POSTCOPY_RESUME" },
    { "command/recv-bitmap", build_recv_bitmap, ENOTSUP_ "the source sent the command RECV_BITMAP" },

    { "end/no-description", build_no_description, NULL, NULL, check_no_description },
    { "end/other-element", build_other_after_eof, NULL, NULL, check_other_after_eof },
    { "end/junk", build_description_junk },
    { "end/description-cut", build_description_cut },
    { "end/missing", build_eof_missing, EIO_ },

    { "ram/block-unknown", build_block_unknown,
      EINVAL_ RAM_FULL "Unknown ramblock \"xx\", cannot accept migration" },
    { "ram/block-larger", build_block_larger, EINVAL_ RAM_FULL "Size mismatch: m0: 0x10000 != 0x8000" },
    { "ram/block-smaller", build_block_smaller, EINVAL_ RAM_FULL "Size mismatch: m0: 0x4000 != 0x8000" },
    { "ram/block-twice", build_block_twice },
    { "ram/total-0", build_total_0 },
    { "ram/total-small", build_total_small, EINVAL_ RAM_FULL },
    { "ram/no-mem-size", build_no_mem_size },
    { "ram/offset-at-end", build_offset_at_end, EINVAL_ RAM_PART },
    { "ram/page-block-unknown", build_page_block_unknown, EINVAL_ RAM_PART },
    { "ram/continue-first", build_continue_first, EINVAL_ RAM_PART },
    { "ram/continue-persists", build_continue_persists, NULL, NULL, check_continue_persists },
    { "ram/fill-byte", build_fill_byte, EINVAL_ RAM_PART },
    { "ram/flag-0", build_flag_0, EINVAL_ RAM_PART "Unknown combination of migration flags: 0x0" },
    { "ram/flag-1", build_flag_1, EINVAL_ RAM_PART },
    { "ram/flag-400", build_flag_400, EINVAL_ RAM_PART },
    { "ram/flag-100", build_flag_100, EINVAL_ RAM_PART },
    { "ram/flag-two", build_flag_two, EINVAL_ RAM_PART },
    { "ram/flag-multifd-flush", build_flag_multifd_flush },
    { "ram/flag-multifd-flush-in-setup", build_flush_in_setup,
      EINVAL_ RAM_FULL "multifd is on at the source, but off here" },
    { "ram/flag-hook", build_flag_hook },
    { "ram/eos-with-more", build_eos_with_more },
    { "ram/xbzrle", build_xbzrle, NULL, NULL, check_xbzrle },
    { "ram/xbzrle-encoding", build_xbzrle_encoding, EINVAL_ RAM_PART },
    { "ram/xbzrle-length", build_xbzrle_length, EINVAL_ RAM_PART },
    { "ram/xbzrle-length-0", build_xbzrle_length_0, NULL, NULL, check_page_1 },
};

/* ---- truncation ---- */

/* A whole stream cut at @len bytes. */
static bool load_cut(const Stream *whole, guint len, GError **errp)
{
    FakeHost h;
    MigrationOptions *options = fake_options_new();
    fake_host_init(&h);
    fake_host_add_ram(&h, "m0", SIZE);
    MigrationHost host = { &h.ops, &h };
    g_autoptr(Channel) channel = channel_buffer_new(whole->data, len);
    LoadVM *l = loadvm_new(&host, options, channel);
    bool ok = loadvm_run(l, errp);
    loadvm_free(l);
    migration_options_free(options);
    fake_host_clear(&h);
    return ok;
}

static void test_truncated(void)
{
    g_autoptr(GByteArray) s = g_byte_array_new();
    build_whole(s);
    /* From the byte that says EOF on everything has been received. */
    guint eof = s->len - (guint)strlen(description_11_1) - 5;
    for (guint len = 0; len <= s->len; len++) {
        g_autoptr(GError) error = NULL;
        bool ok = load_cut(s, len, &error);
        g_assert_cmpint(ok, ==, len >= eof);
        g_assert_cmpint(ok, ==, error == NULL);
        if (error) {
            g_assert_true(g_str_has_prefix(error->message, FAILED));
        }
    }
}

/* A byte changed anywhere may or may not be noticed, but is survived. */
static void test_flipped(void)
{
    g_autoptr(GByteArray) s = g_byte_array_new();
    build_whole(s);
    for (guint i = 0; i < s->len; i++) {
        g_autoptr(GError) error = NULL;
        s->data[i] ^= 0x81;
        bool ok = load_cut(s, s->len, &error);
        g_assert_cmpint(ok, ==, error == NULL);
        s->data[i] ^= 0x81;
    }
}

/* ---- shutting the return path ---- */

static void shut(bool opened, bool ok, const uint8_t *expected, size_t len)
{
    FakeHost h;
    MigrationOptions *options = fake_options_new();
    g_autoptr(GByteArray) s = g_byte_array_new();
    fake_host_init(&h);
    MigrationHost host = { &h.ops, &h };

    begin(s);
    if (opened) {
        put_command(s, 1, NULL, 0);
    }
    end(s);
    g_autoptr(Channel) channel = channel_buffer_new(s->data, s->len);
    LoadVM *l = loadvm_new(&host, options, channel);
    g_assert_true(loadvm_run(l, NULL));
    g_assert_true(loadvm_shut_return_path(l, ok, NULL));
    loadvm_shut_return_path(l, !ok, NULL);    /* only the first counts */
    const GByteArray *bytes = channel_buffer_bytes(channel);
    g_assert_cmpmem(bytes->data + s->len, bytes->len - s->len, expected, len);
    loadvm_free(l);
    migration_options_free(options);
    fake_host_clear(&h);
}

static void test_shut(void)
{
    static const uint8_t good[] = { 0, 1, 0, 4, 0, 0, 0, 0 };
    static const uint8_t bad[] = { 0, 1, 0, 4, 0, 0, 0, 1 };
    shut(true, true, good, sizeof(good));
    shut(true, false, bad, sizeof(bad));
    shut(false, true, NULL, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *path = g_strdup_printf("/loadvm/%s", cases[i].name);
        g_test_add_data_func(path, &cases[i], run_case);
    }
    g_test_add_func("/loadvm/truncated", test_truncated);
    g_test_add_func("/loadvm/flipped", test_flipped);
    g_test_add_func("/loadvm/shut", test_shut);
    return g_test_run();
}
