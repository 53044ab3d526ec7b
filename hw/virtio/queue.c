/* SPDX-License-Identifier: BSD-2-Clause */
/* Split virtqueues: requests are taken from the available ring and given back in the used ring. */

/*
 *   descriptors   size * 16   (8) address (4) length (2) flags (2) next
 *   available     6 + 2*size  (2) flags (2) index, size times (2) head, (2) unused
 *   used          6 + 8*size  (2) flags (2) index, size times (4) head (4) written, (2) unused
 *
 * All little-endian.  The guest may change any byte at any time, so each is read once, into a variable, and
 * checked there.  Nothing of a chain is used before all of it has been checked.
 */
#include "hw/virtio/virtio.h"

#include <string.h>

#define DESC_SIZE 16u
#define ALIGN_DESC 16u
#define ALIGN_AVAILABLE 2u
#define ALIGN_USED 4u

enum { DESC_NEXT = 1, DESC_WRITE = 2, DESC_INDIRECT = 4 };
enum { AVAILABLE_NO_INTERRUPT = 1 };

/* ---- where the rings are ---- */

/* All of it in one block of memory, or NULL. */
static uint8_t *translate(const VirtioDevice *v, uint64_t gpa, uint64_t len, bool write, RAMBlock **block)
{
    uint64_t run = len;
    uint8_t *host = ram_list_translate(&v->machine->ram, gpa, &run, block);

    return host && run == len && !(write && (*block)->readonly) ? host : NULL;
}

bool virtqueue_map(VirtioDevice *v, unsigned q)
{
    const VirtQueueState *s = &v->state.queues[q];
    VirtRing ring = { 0 };
    RAMBlock *block = NULL;

    if (!s->size || s->size > v->ops->queue_size_max || (s->size & (s->size - 1))) {
        virtio_device_break(v, "a queue's size is no power of two or too big");
        return false;
    }
    if (s->desc % ALIGN_DESC || s->driver % ALIGN_AVAILABLE || s->device % ALIGN_USED) {
        virtio_device_break(v, "a queue is not aligned");
        return false;
    }
    ring.desc = translate(v, s->desc, (uint64_t)s->size * DESC_SIZE, false, &block);
    ring.available = translate(v, s->driver, 6 + 2 * (uint64_t)s->size, false, &block);
    ring.used = translate(v, s->device, 6 + 8 * (uint64_t)s->size, true, &block);
    ring.used_block = block;
    if (!ring.desc || !ring.available || !ring.used) {
        virtio_device_break(v, "a queue is not in memory");
        return false;
    }
    v->rings[q] = ring;
    return true;
}

bool virtqueue_usable(const VirtioDevice *v, unsigned q)
{
    return (v->state.status & VIRTIO_STATUS_DRIVER_OK) && !(v->state.status & VIRTIO_STATUS_NEEDS_RESET) &&
           v->state.queues[q].ready && !v->paused && !v->held;
}

/* ---- taking ---- */

static uint16_t load16(const uint8_t *p)
{
    return GUINT16_FROM_LE(__atomic_load_n((const uint16_t *)(const void *)p, __ATOMIC_ACQUIRE));
}

typedef struct Descriptor {
    uint64_t addr;
    uint32_t len;
    uint16_t flags, next;
} Descriptor;

static Descriptor load_descriptor(const VirtRing *ring, unsigned index)
{
    uint64_t words[2];

    for (unsigned i = 0; i < 2; i++) {
        const uint64_t *p = (const uint64_t *)(const void *)(ring->desc + index * DESC_SIZE) + i;
        words[i] = GUINT64_FROM_LE(__atomic_load_n(p, __ATOMIC_RELAXED));
    }
    return (Descriptor){
        .addr = words[0], .len = (uint32_t)words[1], .flags = (uint16_t)(words[1] >> 32),
        .next = (uint16_t)(words[1] >> 48),
    };
}

/* Adds what @d describes; NULL, or what is wrong with it. */
static const char *add_segment(const VirtioDevice *v, VirtRequest *r, const Descriptor *d)
{
    bool write = d->flags & DESC_WRITE;
    RAMBlock *block = NULL;

    if (d->flags & DESC_INDIRECT) {
        return "an indirect descriptor, which was not offered";
    }
    if (!write && r->n_write) {
        return "a descriptor to be read behind one to be written";
    }
    if (d->len > VIRTIO_BUFFER_MAX) {
        return "a descriptor is too long";
    }
    if (!d->len) {
        return NULL;
    }
    uint8_t *host = translate(v, d->addr, d->len, write, &block);
    if (!host) {
        return "a descriptor is not in memory";
    }
    r->segments[r->n_read + r->n_write] = (VirtSegment){ .host = host, .len = d->len, .block = block };
    *(write ? &r->n_write : &r->n_read) += 1;
    *(write ? &r->write_len : &r->read_len) += d->len;
    return NULL;
}

/* Follows the chain from @head; NULL, or what is wrong with it. */
static const char *walk(const VirtioDevice *v, unsigned q, uint16_t head, VirtRequest *r)
{
    uint16_t size = v->state.queues[q].size, index = head;

    r->head = head;
    r->n_read = r->n_write = 0;
    r->read_len = r->write_len = 0;
    for (unsigned i = 0; i < size; i++) {
        if (index >= size) {
            return "a descriptor's number is beyond the queue";
        }
        Descriptor d = load_descriptor(&v->rings[q], index);
        const char *wrong = add_segment(v, r, &d);
        if (wrong || !(d.flags & DESC_NEXT)) {
            return wrong;
        }
        index = d.next;
    }
    return "a chain of descriptors is a loop";
}

bool virtqueue_pop(VirtioDevice *v, unsigned q, VirtRequest *r)
{
    VirtQueueState *s = &v->state.queues[q];

    if (!virtqueue_usable(v, q)) {
        return false;
    }
    uint16_t waiting = (uint16_t)(load16(v->rings[q].available + 2) - s->next_available);
    if (!waiting) {
        return false;
    }
    if (waiting > s->size) {
        virtio_device_break(v, "more requests are available than the queue has room for");
        return false;
    }
    uint16_t head = load16(v->rings[q].available + 4 + 2 * (s->next_available & (s->size - 1u)));
    const char *wrong = walk(v, q, head, r);
    if (wrong) {
        virtio_device_break(v, wrong);
        return false;
    }
    s->next_available++;
    return true;
}

/* ---- giving back ---- */

static void mark_used(VirtioDevice *v, const VirtRing *ring, uint64_t offset, uint64_t len)
{
    soft_dirty_log_mark(v->machine->soft_dirty_log, ring->used_block,
                        (uint64_t)(ring->used - ring->used_block->host) + offset, len);
}

void virtqueue_push(VirtioDevice *v, unsigned q, const VirtRequest *r, uint32_t written)
{
    VirtQueueState *s = &v->state.queues[q];
    const VirtRing *ring = &v->rings[q];
    uint64_t element = 4 + 8 * (uint64_t)(s->next_used & (s->size - 1u));
    uint32_t words[2] = { GUINT32_TO_LE((uint32_t)r->head), GUINT32_TO_LE(written) };

    for (unsigned i = 0; i < 2; i++) {
        uint32_t *to = (uint32_t *)(void *)(ring->used + element) + i;
        __atomic_store_n(to, words[i], __ATOMIC_RELAXED);
    }
    mark_used(v, ring, element, 8);
    s->next_used++;
    uint16_t *index = (uint16_t *)(void *)(ring->used + 2);
    /* Before the driver's flag is looked at: it is set before the driver looks at the index. */
    __atomic_store_n(index, GUINT16_TO_LE(s->next_used), __ATOMIC_SEQ_CST);
    mark_used(v, ring, 2, 2);
    if (!(load16(ring->available) & AVAILABLE_NO_INTERRUPT)) {
        virtio_device_interrupt(v, VIRTIO_INTERRUPT_QUEUE);
    }
}

/* ---- what is in a request ---- */

typedef void (*SegmentFunc)(const VirtSegment *s, uint64_t from, uint32_t len, void *opaque);

/* Each piece of [@offset, @offset + @len) of one side; returns how many bytes there were. */
static uint64_t foreach_piece(const VirtRequest *r, bool write, uint64_t offset, uint64_t len,
                              SegmentFunc func, void *opaque)
{
    const VirtSegment *s = r->segments + (write ? r->n_read : 0);
    unsigned n = write ? r->n_write : r->n_read;
    uint64_t done = 0;

    for (; n && done < len; n--, s++) {
        if (offset >= s->len) {
            offset -= s->len;
            continue;
        }
        uint32_t run = (uint32_t)MIN(s->len - offset, len - done);
        func(s, offset, run, opaque);
        done += run;
        offset = 0;
    }
    return done;
}

static void copy_from(const VirtSegment *s, uint64_t from, uint32_t len, void *opaque)
{
    uint8_t **to = opaque;

    memcpy(*to, s->host + from, len);
    *to += len;
}

size_t virtrequest_read(const VirtRequest *r, uint64_t offset, void *to, size_t len)
{
    return foreach_piece(r, false, offset, len, copy_from, &to);
}

static void copy_to(const VirtSegment *s, uint64_t from, uint32_t len, void *opaque)
{
    const uint8_t **bytes = opaque;

    memcpy(s->host + from, *bytes, len);
    *bytes += len;
}

size_t virtrequest_write(VirtioDevice *v, const VirtRequest *r, uint64_t offset, const void *from,
                         size_t len)
{
    size_t done = foreach_piece(r, true, offset, len, copy_to, &from);

    virtrequest_mark(v, r, offset, done);
    return done;
}

static void add_iov(const VirtSegment *s, uint64_t from, uint32_t len, void *opaque)
{
    struct iovec **next = opaque;

    *(*next)++ = (struct iovec){ .iov_base = s->host + from, .iov_len = len };
}

unsigned virtrequest_iov(const VirtRequest *r, bool write, uint64_t offset, uint64_t len, struct iovec *iov)
{
    struct iovec *next = iov;

    foreach_piece(r, write, offset, len, add_iov, &next);
    return (unsigned)(next - iov);
}

static void mark(const VirtSegment *s, uint64_t from, uint32_t len, void *opaque)
{
    const VirtioDevice *v = opaque;

    soft_dirty_log_mark(v->machine->soft_dirty_log, s->block, (uint64_t)(s->host - s->block->host) + from,
                        len);
}

void virtrequest_mark(VirtioDevice *v, const VirtRequest *r, uint64_t offset, uint64_t len)
{
    foreach_piece(r, true, offset, len, mark, v);
}
