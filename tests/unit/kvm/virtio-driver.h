/* SPDX-License-Identifier: BSD-2-Clause */
/* A guest for virtio devices: memory, one queue, and its driver, all by the specification. */
#ifndef GODWIT_TESTS_VIRTIO_DRIVER_H
#define GODWIT_TESTS_VIRTIO_DRIVER_H

#include "hw/virtio/virtio.h"

#include <string.h>
#include <sys/mman.h>

#define DRIVER_MEMORY (1u << 20)
#define DRIVER_GPA 0x100000u
#define DRIVER_QUEUE 16u
/* Each in a page of its own, so that the dirty log tells them apart. */
#define DRIVER_DESC (DRIVER_GPA + 0x1000)
#define DRIVER_AVAILABLE (DRIVER_GPA + 0x2000)
#define DRIVER_USED (DRIVER_GPA + 0x3000)
#define DRIVER_DATA (DRIVER_GPA + 0x10000)

enum { D_NEXT = 1, D_WRITE = 2, D_INDIRECT = 4 };

typedef struct Driver {
    Machine *m;
    RAMBlock block;
    VirtioDevice *v;
    bool level;                 /* of the line */
    unsigned edges;             /* how often it rose */
    unsigned next;              /* descriptor */
    unsigned available;
} Driver;

static bool driver_no_init(Machine *m, GError **errp)
{
    return true;
}

static const MachineType driver_machine = { .name = "test", .init = driver_no_init };

static inline void driver_new(Driver *d)
{
    *d = (Driver){ .m = machine_new(&driver_machine, false) };
    d->block = (RAMBlock){
        .idstr = "ram", .used_length = DRIVER_MEMORY, .gpa = DRIVER_GPA, .page_size = 4096, .fd = -1,
    };
    d->block.host =
        mmap(NULL, DRIVER_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    g_assert_true(d->block.host != MAP_FAILED);
    g_assert_true(ram_list_add(&d->m->ram, &d->block, NULL));
}

static inline void driver_set_irq(void *opaque, bool level)
{
    Driver *d = opaque;

    d->edges += level && !d->level;
    __atomic_store_n(&d->level, level, __ATOMIC_SEQ_CST);
}

/* Takes @v and has the guest run. */
static inline void driver_attach(Driver *d, VirtioDevice *v)
{
    g_assert_nonnull(v);
    d->v = v;
    v->set_irq = driver_set_irq;
    v->irq_opaque = d;
    virtio_device_resume(v);
}

static inline void driver_free(Driver *d)
{
    virtio_device_free(d->v);
    machine_free(d->m);
    munmap(d->block.host, DRIVER_MEMORY);
}

static inline uint32_t driver_get(Driver *d, uint64_t reg)
{
    return (uint32_t)virtio_mmio_read(d->v, reg, 4);
}

static inline void driver_put(Driver *d, uint64_t reg, uint32_t value)
{
    virtio_mmio_write(d->v, reg, 4, value);
}

static inline uint8_t *driver_at(Driver *d, uint64_t gpa)
{
    return d->block.host + (gpa - DRIVER_GPA);
}

/* A number of 2 bytes, as the indices are, in one piece: the device may be looking. */
static inline void driver_put_le(Driver *d, uint64_t gpa, uint64_t value, unsigned bytes)
{
    if (bytes == 2) {
        uint16_t *to = (uint16_t *)(void *)driver_at(d, gpa);
        __atomic_store_n(to, GUINT16_TO_LE((uint16_t)value), __ATOMIC_RELEASE);
        return;
    }
    for (unsigned i = 0; i < bytes; i++) {
        __atomic_store_n(driver_at(d, gpa) + i, (uint8_t)(value >> 8 * i), __ATOMIC_RELEASE);
    }
}

static inline uint64_t driver_get_le(Driver *d, uint64_t gpa, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)__atomic_load_n(driver_at(d, gpa) + i, __ATOMIC_ACQUIRE) << 8 * i;
    }
    return value;
}

/* Register numbers from the specification, table in 4.2.2. */
static inline void driver_set_up_queue(Driver *d, uint32_t q, uint32_t size, uint64_t desc,
                                       uint64_t available, uint64_t used)
{
    driver_put(d, 0x30, q);
    driver_put(d, 0x38, size);
    driver_put(d, 0x80, (uint32_t)desc);
    driver_put(d, 0x84, (uint32_t)(desc >> 32));
    driver_put(d, 0x90, (uint32_t)available);
    driver_put(d, 0x94, (uint32_t)(available >> 32));
    driver_put(d, 0xa0, (uint32_t)used);
    driver_put(d, 0xa4, (uint32_t)(used >> 32));
    driver_put(d, 0x44, 1);
}

/* Up to FEATURES_OK, with all features that are offered. */
static inline void driver_negotiate(Driver *d)
{
    driver_put(d, 0x70, 0);
    driver_put(d, 0x70, 1);
    driver_put(d, 0x70, 1 | 2);
    for (uint32_t half = 0; half < 2; half++) {
        driver_put(d, 0x14, half);
        driver_put(d, 0x24, half);
        driver_put(d, 0x20, driver_get(d, 0x10));
    }
    driver_put(d, 0x70, 1 | 2 | 8);
    d->next = d->available = 0;
    memset(d->block.host, 0, DRIVER_MEMORY);
}

static inline void driver_start(Driver *d)
{
    driver_negotiate(d);
    driver_set_up_queue(d, 0, DRIVER_QUEUE, DRIVER_DESC, DRIVER_AVAILABLE, DRIVER_USED);
    driver_put(d, 0x70, 1 | 2 | 8 | 4);
}

static inline void driver_describe(Driver *d, unsigned index, uint64_t addr, uint32_t len, uint16_t flags,
                                   uint16_t next)
{
    uint64_t at = DRIVER_DESC + 16 * (uint64_t)index;

    driver_put_le(d, at, addr, 8);
    driver_put_le(d, at + 8, len, 4);
    driver_put_le(d, at + 12, flags, 2);
    driver_put_le(d, at + 14, next, 2);
}

/* Makes the chain that begins at @head available, without a notification. */
static inline void driver_offer(Driver *d, uint16_t head)
{
    driver_put_le(d, DRIVER_AVAILABLE + 4 + 2 * (d->available % DRIVER_QUEUE), head, 2);
    d->available++;
    driver_put_le(d, DRIVER_AVAILABLE + 2, d->available & 0xffff, 2);
}

static inline void driver_notify(Driver *d)
{
    driver_put(d, 0x50, 0);
}

static inline unsigned driver_used(Driver *d)
{
    return (unsigned)driver_get_le(d, DRIVER_USED + 2, 2);
}

/* Until the device has given back @count in all; a device that does not is found by the test's time limit. */
static inline void driver_wait_used(Driver *d, unsigned count)
{
    while (driver_used(d) != count) {
        g_usleep(100);
    }
}

#endif
