/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: a guest that does anything to a virtio device: its registers, its queue, its requests. */

/*
 * Byte 0: bits 0 and 2 the kind (block, console, else rng), bit 1 the driver's part of the set-up is done,
 * with the last queue.  Then operations:
 *   0 R V4     register 4 * R = V (little-endian)
 *   1 A2 N D*  memory at A = N bytes D
 *   2          notify, all queues
 *   3          the guest stops and goes on
 *   4 R        read register 4 * R
 *   5 D*94     the device's section arrives
 * Behind the guest's memory is a page that must not be touched.
 */
#include "hw/virtio/virtio.h"
#include "io/transport.h"
#include "migration/vmstate.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY 65536u
#define DISK 8192
#define OPERATIONS_MAX 200
#define SECTION_SIZE 94

static bool no_init(Machine *m, GError **errp)
{
    return true;
}

static const MachineType type = { .name = "fuzz", .init = no_init };

typedef struct Input {
    const uint8_t *data;
    size_t size;
} Input;

static uint32_t take(Input *in, unsigned bytes)
{
    uint32_t value = 0;

    for (unsigned i = 0; i < bytes && in->size; i++) {
        value |= (uint32_t)*in->data++ << 8 * i;
        in->size--;
    }
    return value;
}

static VirtioDevice *make_device(Machine *m, uint32_t flags)
{
    if (!(flags & 1)) {
        return flags & 4 ? virtio_console_new(m) : virtio_rng_new(m);
    }
    int fd = memfd_create("disk", MFD_CLOEXEC);
    g_assert(fd >= 0 && ftruncate(fd, DISK) == 0);
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    const VirtioBlkConfig config = { .id = "disk0", .file = path };
    VirtioDevice *v = virtio_blk_new(m, &config, NULL);
    g_assert(v);
    close(fd);
    return v;
}

static void set_up(VirtioDevice *v)
{
    uint32_t queue = v->ops->n_queues - 1;
    const uint32_t steps[][2] = {
        { 0x70, 1 }, { 0x70, 3 }, { 0x24, 1 }, { 0x20, 1 }, { 0x70, 11 }, { 0x30, queue }, { 0x38, 8 },
        { 0x80, 0x1000 }, { 0x90, 0x2000 }, { 0xa0, 0x3000 }, { 0x44, 1 }, { 0x70, 15 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(steps); i++) {
        virtio_mmio_write(v, steps[i][0], 4, steps[i][1]);
    }
    g_assert(v->state.queues[queue].ready);
}

static void load(VirtioDevice *v, Input *in)
{
    size_t len = MIN(in->size, SECTION_SIZE);
    g_autoptr(Channel) channel = channel_buffer_new(in->data, len);
    g_autoptr(StreamReader) r = stream_reader_new(channel);
    g_autoptr(GError) error = NULL;

    in->data += len;
    in->size -= len;
    virtio_device_pause(v);
    if (!vmstate_load(r, &virtio_vmsd, v, 1, &error)) {
        g_assert(error);
        virtio_device_reset(v);     /* such a guest never runs */
    }
    virtio_device_resume(v);
}

static void operate(VirtioDevice *v, uint8_t *memory, Input *in)
{
    uint32_t at, n;

    switch (take(in, 1)) {
    case 0:
        at = take(in, 1) * 4;
        virtio_mmio_write(v, at, 4, take(in, 4));
        break;
    case 1:
        at = take(in, 2);
        n = take(in, 1);
        n = MIN(MIN(n, MEMORY - at), (uint32_t)in->size);
        memcpy(memory + at, in->data, n);
        in->data += n;
        in->size -= n;
        break;
    case 2:
        for (unsigned q = 0; q < VIRTIO_QUEUES_MAX; q++) {
            virtio_mmio_write(v, VIRTIO_MMIO_QUEUE_NOTIFY, 4, q);
        }
        g_main_context_iteration(NULL, FALSE);
        break;
    case 3:
        virtio_device_pause(v);
        virtio_device_resume(v);
        break;
    case 4:
        virtio_mmio_read(v, take(in, 1) * 4, 4);
        break;
    case 5:
        load(v, in);
        break;
    default:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input in = { data, size };
    Machine *m = machine_new(&type, false);
    RAMBlock block = { .idstr = "ram", .used_length = MEMORY, .page_size = 4096, .fd = -1 };
    uint32_t flags = take(&in, 1);

    block.host = mmap(NULL, MEMORY + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    g_assert(block.host != MAP_FAILED && mprotect(block.host + MEMORY, 4096, PROT_NONE) == 0);
    ram_list_add(&m->ram, &block, NULL);
    VirtioDevice *v = make_device(m, flags);
    virtio_device_resume(v);
    if (flags & 2) {
        set_up(v);
    }
    for (unsigned i = 0; i < OPERATIONS_MAX && in.size; i++) {
        operate(v, block.host, &in);
    }
    /* Whatever it was, a reset brings the device back. */
    virtio_device_pause(v);
    virtio_device_reset(v);
    virtio_device_resume(v);
    set_up(v);
    virtio_device_free(v);
    machine_free(m);
    munmap(block.host, MEMORY + 4096);
    return 0;
}
