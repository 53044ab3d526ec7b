/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA over the fake verbs: several blocks, larger than the largest chunk, smaller than the smallest, odd. */
#include "fake-verbs.h"
#include "pair.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE TARGET_PAGE_SIZE
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* The large one has three chunks of 1 GiB, the last of them short; its memory is sparse. */
static const struct {
    const char *name;
    uint64_t size;
} shapes[] = {
    { "large", 2 * GIB + 3 * MIB + 2 * PAGE },
    { "odd", 5 * MIB + 3 * PAGE },
    { "twin-a", MIB },
    { "twin-b", MIB },
    { "small", 7 * PAGE },
    { "page", PAGE },
};
#define N G_N_ELEMENTS(shapes)

typedef struct Setting {
    const char *name;
    const char *chunk_shift;
    bool pin_all;
    const char *verbs;          /* words for the fake verbs */
} Setting;

static const Setting settings[] = {
    { "1M", "20", false, "" },
    { "2M", "21", false, "" },
    { "32M", "25", false, "" },
    { "1G", "30", false, "" },
    { "1G/short-messages", "30", false, "limit=max_msg_sz:0x280000" },
    { "1G/short-regions", "30", false, "limit=max_mr_size:0x4500000" },
    { "1M/tiny-regions", "20", false, "limit=max_mr_size:0x2a0000" },
    { "1G/small-queue", "30", false, "limit=max_qp_wr:16" },
    { "1M/pin-all", "20", true, "" },
    { "1G/pin-all", "30", true, "" },
};

typedef struct Side {
    Vm vm;
    RAMBlock *blocks[N];        /* in the order of shapes */
} Side;

static RAMBlock *add_block(Side *s, unsigned i)
{
    RAMBlock *block = g_new0(RAMBlock, 1);

    g_strlcpy(block->idstr, shapes[i].name, sizeof(block->idstr));
    block->used_length = shapes[i].size;
    block->gpa = (uint64_t)i << 40;
    block->page_size = PAGE;
    block->shared = true;
    block->fd = memfd_create("guest", MFD_CLOEXEC);
    g_assert_cmpint(ftruncate(block->fd, (off_t)block->used_length), ==, 0);
    block->host = mmap(NULL, block->used_length, PROT_READ | PROT_WRITE, MAP_SHARED, block->fd, 0);
    g_assert_true(block->host != MAP_FAILED);
    g_assert_true(ram_list_add(&s->vm.host.ram, block, NULL));
    s->blocks[i] = block;
    return block;
}

/* Blocks of one size stand in the order in which they were added: it differs between the two sides. */
static void side_init(Side *s, bool incoming, bool pin_all)
{
    vm_init(&s->vm, 0, incoming);
    for (unsigned i = 0; i < N; i++) {
        add_block(s, incoming ? N - 1 - i : i);
    }
    vm_set_capability(&s->vm, MIGRATION_CAPABILITY_RETURN_PATH, true);
    vm_set_capability(&s->vm, MIGRATION_CAPABILITY_RDMA_PIN_ALL, pin_all);
    vm_set_capability(&s->vm, MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER, !incoming);
}

static void side_clear(Side *s)
{
    int fds[N];

    for (unsigned i = 0; i < N; i++) {
        fds[i] = s->blocks[i]->fd;
    }
    vm_clear(&s->vm);
    for (unsigned i = 0; i < N; i++) {
        close(fds[i]);
    }
}

static void fill_page(RAMBlock *block, uint64_t page, uint32_t seed)
{
    uint64_t words[2] = { page, seed };

    memset(block->host + page * PAGE, (int)(1 + (page + seed) % 200), PAGE);
    memcpy(block->host + page * PAGE + 100, words, sizeof(words));
}

/* Offsets in the large block, in pages, around which there is content at the source, or garbage to clear. */
static const uint64_t places[] = {
    3, 64 * MIB / PAGE, 500 * MIB / PAGE, GIB / PAGE, (GIB + 64 * MIB) / PAGE, (GIB + 700 * MIB) / PAGE,
    2 * GIB / PAGE, (2 * GIB + MIB) / PAGE, (2 * GIB + 3 * MIB + 2 * PAGE) / PAGE,
};

/* Every third page around each place is zero at the source. */
static void fill_large(RAMBlock *block, bool source)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(places); i++) {
        for (uint64_t page = places[i] < 300 ? 0 : places[i] - 300;
             page < MIN(places[i] + 300, ramblock_pages(block)); page++) {
            if (!source || page % 3) {
                fill_page(block, page, source ? 1 : 77);
            }
        }
    }
    if (!source) {
        /* Where the source has nothing at all. */
        fill_page(block, (GIB - 200 * MIB) / PAGE, 77);
        fill_page(block, (2 * GIB - 200 * MIB) / PAGE, 77);
    }
}

static void fill(Side *s, bool source)
{
    fill_large(s->blocks[0], source);
    for (unsigned i = 1; i < N; i++) {
        for (uint64_t page = 0; page < ramblock_pages(s->blocks[i]); page++) {
            if (!source || page % 5 != 4) {
                fill_page(s->blocks[i], page, source ? i : 99);
            }
        }
    }
}

/* In the pause: across the borders of chunks, and where nothing has been sent of a chunk before. */
static void write_in_the_pause(Side *s)
{
    static const uint64_t written[] = {
        GIB / PAGE - 1, GIB / PAGE, 300 * MIB / PAGE, (GIB + 300 * MIB) / PAGE, 2 * GIB / PAGE - 1,
        2 * GIB / PAGE,
        (2 * GIB + 3 * MIB + PAGE) / PAGE,
    };
    uint8_t data[PAGE];

    for (unsigned i = 0; i < G_N_ELEMENTS(written); i++) {
        memset(data, (int)(0x40 + i), sizeof(data));
        fake_host_write(&s->vm.host, s->blocks[0], written[i] * PAGE, data, sizeof(data));
    }
    for (unsigned i = 1; i < N; i++) {
        memset(data, (int)(0x80 + i), sizeof(data));
        fake_host_write(&s->vm.host, s->blocks[i], s->blocks[i]->used_length - PAGE, data, sizeof(data));
    }
}

/* The first page at or after @page that exists in one of the files. */
static uint64_t next_data(const RAMBlock *a, const RAMBlock *b, uint64_t page)
{
    off_t x = lseek(a->fd, (off_t)(page * PAGE), SEEK_DATA);
    off_t y = lseek(b->fd, (off_t)(page * PAGE), SEEK_DATA);

    return x < 0 && y < 0 ? UINT64_MAX : (uint64_t)(x < 0 ? y : y < 0 ? x : MIN(x, y)) / PAGE;
}

static void assert_same(Side *src, Side *dst)
{
    for (unsigned i = 0; i < N; i++) {
        RAMBlock *a = src->blocks[i], *b = dst->blocks[i];
        for (uint64_t page = 0; (page = next_data(a, b, page)) < ramblock_pages(a); page++) {
            if (memcmp(a->host + page * PAGE, b->host + page * PAGE, PAGE) != 0) {
                g_error("page %" PRIu64 " of block %s differs", page, a->idstr);
            }
        }
    }
}

static void test_blocks(gconstpointer data)
{
    const Setting *setting = data;
    g_autoptr(GError) error = NULL;
    Side src, dst;

    fake_verbs_reset();
    g_assert_cmpstr(fake_verbs_set(setting->verbs), ==, NULL);
    side_init(&src, false, setting->pin_all);
    side_init(&dst, true, setting->pin_all);
    fill(&src, true);
    fill(&dst, false);
    vm_set_parameter(&src.vm, "max-bandwidth", "0");
    vm_set_parameter(&src.vm, "x-rdma-chunk-shift", setting->chunk_shift);

    pair_listen(&dst.vm, "rdma:127.0.0.1:0", true);
    g_autoptr(MigrationInfo) listening = migration_query(dst.vm.ctx);
    g_autofree char *uri = g_strdup_printf("rdma:127.0.0.1:%s",
                                           listening->socket_address->items[0]->u.inet->port);
    pair_migrate(&src.vm, uri);
    vm_wait_status(&src.vm, MIGRATION_STATUS_PRE_SWITCHOVER);
    write_in_the_pause(&src);
    migration_continue(src.vm.ctx, MIGRATION_STATUS_PRE_SWITCHOVER, &error);
    g_assert_no_error(error);
    MigrationStatus end = vm_wait_end(&src.vm);
    vm_wait_incoming_ended(&dst.vm);
    g_autoptr(MigrationInfo) info = migration_query(src.vm.ctx);
    g_assert_cmpstr(info->error_desc, ==, NULL);
    g_assert_cmpint(end, ==, MIGRATION_STATUS_COMPLETED);
    g_assert_cmpstr(dst.vm.host.ended_error, ==, NULL);
    assert_same(&src, &dst);
    g_assert_cmpuint(fake_verbs_number("write-bytes"), ==, (uint64_t)info->ram->normal_bytes);
    side_clear(&src);
    side_clear(&dst);
    g_assert_cmpuint(fake_verbs_live(), ==, 0);
    g_assert_cmpuint(fake_verbs_violations(), ==, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < G_N_ELEMENTS(settings); i++) {
        g_autofree char *path = g_strdup_printf("/rdma-blocks/%s", settings[i].name);
        g_test_add_data_func(path, &settings[i], test_blocks);
    }
    return g_test_run();
}
