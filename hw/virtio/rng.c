/* SPDX-License-Identifier: BSD-2-Clause */
/* virtio-rng: the guest gets random bytes of this host's kernel. */

/*
 * A request is answered at once, by the thread that notifies.  It gets at most RNG_BYTES_MAX bytes, whatever
 * room it has; a request more than a queue holds is answered when it is notified of.
 */
#include "hw/virtio/virtio.h"

#include <sys/random.h>

#define RNG_BYTES_MAX 4096u
#define RNG_QUEUE_SIZE 64

typedef struct VirtioRng {
    VirtioDevice device;
    VirtRequest request;        /* the device's lock */
} VirtioRng;

static void rng_notify(VirtioDevice *v, unsigned q)
{
    VirtioRng *rng = (VirtioRng *)v;
    uint8_t bytes[RNG_BYTES_MAX];

    for (unsigned i = 0; i < RNG_QUEUE_SIZE && virtqueue_pop(v, q, &rng->request); i++) {
        size_t len = MIN(rng->request.write_len, sizeof(bytes));
        ssize_t n = len ? getrandom(bytes, len, GRND_NONBLOCK) : 0;
        size_t done = n > 0 ? virtrequest_write(v, &rng->request, 0, bytes, (size_t)n) : 0;
        virtqueue_push(v, q, &rng->request, (uint32_t)done);
    }
}

static void rng_free(VirtioDevice *v)
{
    virtio_device_clear(v);
    g_free(v);
}

static const VirtioDeviceOps rng_ops = {
    .id = VIRTIO_ID_RNG,
    .driver = "virtio-rng-device",
    .n_queues = 1,
    .queue_size_max = RNG_QUEUE_SIZE,
    .notify = rng_notify,
    .free = rng_free,
};

VirtioDevice *virtio_rng_new(Machine *m)
{
    VirtioRng *rng = g_new0(VirtioRng, 1);

    virtio_device_init(&rng->device, &rng_ops, m, 0);
    return &rng->device;
}
