/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: payloads of the ram section, loaded into two blocks with nothing mapped around them. */

/*
 * The first byte chooses: bit 0 x-ignore-shared (m1 is then ignored), bit 1 reads of few bytes, bit 2 a
 * second loader for each payload, bit 3 m1 read-only, bit 4 m0 in shared memory (memfd).  The rest is
 * payloads one after the other, each up to its EOS word.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "migration/ram-load.h"

#define PAGE TARGET_PAGE_SIZE
#define M0_PAGES 512
#define M1_PAGES 3
#define MAX_SECTIONS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- a channel that gives few bytes at a time ---- */

typedef struct FuzzChannel {
    Channel base;
    const uint8_t *data;
    size_t left;
    size_t max_read;
} FuzzChannel;

static ssize_t fuzz_readv(Channel *base, const struct iovec *iov, int n, GError **errp)
{
    FuzzChannel *c = (FuzzChannel *)base;
    size_t limit = MIN(c->left, c->max_read);
    ssize_t total = 0;

    for (int i = 0; i < n && limit; i++) {
        size_t len = MIN(limit, iov[i].iov_len);
        memcpy(iov[i].iov_base, c->data, len);
        c->data += len;
        c->left -= len;
        limit -= len;
        total += len;
    }
    return total;
}

static bool fuzz_close(Channel *c, GError **errp)
{
    return true;
}

static void fuzz_free(Channel *c)
{
}

static const ChannelOps fuzz_channel_ops = {
    .kind = "fuzz", .readv = fuzz_readv, .close = fuzz_close, .free = fuzz_free,
};

/* ---- the guest ---- */

static void add_block(RamList *list, RAMBlock *block, const char *name, uint8_t *memory, uint64_t pages)
{
    *block = (RAMBlock){ .host = memory + PAGE, .used_length = pages * PAGE, .page_size = PAGE, .fd = -1 };
    g_strlcpy(block->idstr, name, sizeof(block->idstr));
    g_assert_true(mprotect(memory + PAGE, pages * PAGE, PROT_READ | PROT_WRITE) == 0);
    g_assert_true(ram_list_add(list, block, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) {
        return 0;
    }
    size_t mapped = (M0_PAGES + M1_PAGES + 3) * PAGE;
    uint8_t *memory = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MigrationOptions options = { .caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] = data[0] & 1 };
    RAMBlock m0, m1;
    RamList list = { 0 };
    FuzzChannel channel = {
        .base = { .ops = &fuzz_channel_ops, .features = CHANNEL_FEATURE_READ, .ref_count = 1 },
        .data = data + 1, .left = size - 1, .max_read = data[0] & 2 ? 37 : SIZE_MAX,
    };

    g_assert_true(memory != MAP_FAILED);
    add_block(&list, &m0, "m0", memory, M0_PAGES);
    add_block(&list, &m1, "m1", memory + (M0_PAGES + 1) * PAGE, M1_PAGES);
    m1.shared = data[0] & 1;
    m1.readonly = data[0] & 8;
    if (data[0] & 9) {
        mprotect(m1.host, M1_PAGES * PAGE, PROT_READ);
    }
    if (data[0] & 16) {
        m0.fd = memfd_create("m0", MFD_CLOEXEC);
        m0.shared = true;
        g_assert_true(ftruncate(m0.fd, m0.used_length) == 0);
        g_assert_true(mmap(m0.host, m0.used_length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m0.fd,
                           0) == m0.host);
    }
    StreamReader *r = stream_reader_new(&channel.base);
    RamLoad *load = ram_load_new(&list, &options);
    for (unsigned i = 0; i < MAX_SECTIONS; i++) {
        g_autoptr(GError) error = NULL;
        if (!ram_load_section(load, r, 2, &error)) {
            g_assert_nonnull(error);
            break;
        }
        if (data[0] & 4) {
            ram_load_free(load);
            load = ram_load_new(&list, &options);
        }
    }
    ram_load_free(load);
    stream_reader_free(r);
    munmap(memory, mapped);
    if (m0.fd >= 0) {
        close(m0.fd);
    }
    return 0;
}
