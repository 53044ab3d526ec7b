/* SPDX-License-Identifier: BSD-2-Clause */
/* Virtio devices on the memory-mapped transport (OASIS virtio 1.2): device, queues, registers. */
#ifndef GODWIT_HW_VIRTIO_H
#define GODWIT_HW_VIRTIO_H

#include <sys/uio.h>

#include "system/chardev.h"
#include "system/machine.h"

/*
 * Everything that the guest can change or lay out is hostile.  A guest that breaks a rule of the queues finds
 * its device in DEVICE_NEEDS_RESET, which then touches neither memory nor queues before a reset.
 *
 * Threads: each device has a lock.  Registers are accessed by vCPU threads, queues by whichever thread the
 * device kind works in.  The lock is taken inside of the lock of all devices, and none is taken inside of it.
 * A device works only while the guest runs: virtio_device_pause() returns when nothing is in flight, so that
 * nothing writes to guest memory after it; what waits in a queue stays there and travels in it.
 */

/* Bounds. */
#define VIRTIO_QUEUE_SIZE_MAX 256u      /* descriptors of a queue, and so of a chain */
#define VIRTIO_QUEUES_MAX 2u
#define VIRTIO_BUFFER_MAX (64u << 20)   /* bytes of one descriptor */

enum { VIRTIO_ID_BLOCK = 2, VIRTIO_ID_CONSOLE = 3, VIRTIO_ID_RNG = 4 };

enum {
    VIRTIO_STATUS_ACKNOWLEDGE = 1, VIRTIO_STATUS_DRIVER = 2, VIRTIO_STATUS_DRIVER_OK = 4,
    VIRTIO_STATUS_FEATURES_OK = 8, VIRTIO_STATUS_NEEDS_RESET = 64, VIRTIO_STATUS_FAILED = 128,
};

#define VIRTIO_F_VERSION_1 (UINT64_C(1) << 32)

enum { VIRTIO_INTERRUPT_QUEUE = 1, VIRTIO_INTERRUPT_CONFIG = 2 };

/* Registers of the transport, 32 bits each, little-endian. */
enum {
    VIRTIO_MMIO_MAGIC = 0x00, VIRTIO_MMIO_VERSION = 0x04, VIRTIO_MMIO_DEVICE_ID = 0x08,
    VIRTIO_MMIO_VENDOR_ID = 0x0c, VIRTIO_MMIO_DEVICE_FEATURES = 0x10, VIRTIO_MMIO_DEVICE_FEATURES_SEL = 0x14,
    VIRTIO_MMIO_DRIVER_FEATURES = 0x20, VIRTIO_MMIO_DRIVER_FEATURES_SEL = 0x24, VIRTIO_MMIO_QUEUE_SEL = 0x30,
    VIRTIO_MMIO_QUEUE_NUM_MAX = 0x34, VIRTIO_MMIO_QUEUE_NUM = 0x38, VIRTIO_MMIO_QUEUE_READY = 0x44,
    VIRTIO_MMIO_QUEUE_NOTIFY = 0x50, VIRTIO_MMIO_INTERRUPT_STATUS = 0x60, VIRTIO_MMIO_INTERRUPT_ACK = 0x64,
    VIRTIO_MMIO_STATUS = 0x70, VIRTIO_MMIO_QUEUE_DESC_LOW = 0x80, VIRTIO_MMIO_QUEUE_DESC_HIGH = 0x84,
    VIRTIO_MMIO_QUEUE_DRIVER_LOW = 0x90, VIRTIO_MMIO_QUEUE_DRIVER_HIGH = 0x94,
    VIRTIO_MMIO_QUEUE_DEVICE_LOW = 0xa0, VIRTIO_MMIO_QUEUE_DEVICE_HIGH = 0xa4,
    VIRTIO_MMIO_SHM_LEN_LOW = 0xb0, VIRTIO_MMIO_SHM_BASE_HIGH = 0xbc, VIRTIO_MMIO_CONFIG_GENERATION = 0xfc,
    VIRTIO_MMIO_CONFIG = 0x100,
};
#define VIRTIO_MMIO_MAGIC_VALUE 0x74726976u     /* "virt" */
#define VIRTIO_MMIO_VENDOR 0x54574447u          /* "GDWT" */

typedef struct VirtioDevice VirtioDevice;

/* A queue as it travels. */
typedef struct VirtQueueState {
    uint16_t size;
    uint8_t ready;
    uint64_t desc, driver, device;      /* guest addresses of the descriptors, the available, the used ring */
    uint16_t next_available;            /* of the ring's free-running index: the next to be taken */
    uint16_t next_used;
} VirtQueueState;

/* A device as it travels. */
typedef struct VirtioState {
    uint32_t device_id;
    uint32_t status, interrupt_status;
    uint32_t device_features_sel, driver_features_sel, queue_sel;
    uint64_t driver_features;
    VirtQueueState queues[VIRTIO_QUEUES_MAX];
} VirtioState;

/* Where a queue that is ready lies in this process. */
typedef struct VirtRing {
    const uint8_t *desc;
    const uint8_t *available;
    uint8_t *used;
    const RAMBlock *used_block;
} VirtRing;

/* A piece of a request: in one block of guest memory. */
typedef struct VirtSegment {
    uint8_t *host;
    uint32_t len;
    const RAMBlock *block;
} VirtSegment;

/* A request: first what the device reads, then what it writes. */
typedef struct VirtRequest {
    uint16_t head;
    unsigned n_read, n_write;
    uint64_t read_len, write_len;       /* bytes */
    VirtSegment segments[VIRTIO_QUEUE_SIZE_MAX];
} VirtRequest;

/* What a kind of device is.  Functions are called with the device's lock held. */
typedef struct VirtioDeviceOps {
    uint32_t id;
    const char *driver;                 /* "virtio-rng-device" */
    unsigned n_queues;
    uint16_t queue_size_max;
    /* The driver says that there is something in queue @q, or the guest goes on: look at it, or have it
     * looked at.  Called only while the queue may be used. */
    void (*notify)(VirtioDevice *v, unsigned q);
    /* Copies what the configuration space has from @offset on to @to, which holds @len zeros.  Or NULL. */
    void (*read_config)(VirtioDevice *v, uint64_t offset, void *to, unsigned len);
    void (*reset)(VirtioDevice *v);     /* what it keeps of the guest; nothing is in flight.  Or NULL */
    void (*resumed)(VirtioDevice *v);   /* the guest goes on, notify() follows.  Or NULL */
    void (*free)(VirtioDevice *v);
} VirtioDeviceOps;

/* The base of each kind. */
struct VirtioDevice {
    const VirtioDeviceOps *ops;
    Machine *machine;
    unsigned slot;
    uint64_t features;                  /* offered; fixed */
    void (*set_irq)(void *opaque, bool level);  /* fixed before the guest runs; may be NULL */
    void *irq_opaque;

    GMutex lock;
    GCond idle;                         /* @in_flight has become false */
    /* Under the lock. */
    bool paused;                        /* the guest does not run */
    bool held;                          /* a reset waits for what is in flight: nothing new is begun */
    bool in_flight;                     /* a thread works on a request without the lock */
    bool raised;                        /* as the line is */
    VirtioState state;
    VirtRing rings[VIRTIO_QUEUES_MAX];

    VirtioState wire;                   /* of the thread that saves or loads */
    SaveEntry entry;
    SaveEntry kind_entry;               /* of the kind's own section; vmsd is NULL if there is none */
};

/* ---- virtio.c: the device ---- */

/* @v begins paused.  A kind calls these two first and last. */
void virtio_device_init(VirtioDevice *v, const VirtioDeviceOps *ops, Machine *m, uint64_t features);
void virtio_device_clear(VirtioDevice *v);
/* Frees any kind; NULL is fine. */
void virtio_device_free(VirtioDevice *v);

/* Registers section "virtio-mmio" and the kind's.  @slot is the instance. */
void virtio_device_register(VirtioDevice *v, unsigned slot);

/* The guest has stopped: returns when nothing is in flight.  The guest goes on: looks at all queues. */
void virtio_device_pause(VirtioDevice *v);
void virtio_device_resume(VirtioDevice *v);

/* Power-on. */
void virtio_device_reset(VirtioDevice *v);

/* Lock held.  The guest broke a rule, which @why names. */
void virtio_device_break(VirtioDevice *v, const char *why);

/* Lock held.  Adds VIRTIO_INTERRUPT_* to what the guest has not acknowledged. */
void virtio_device_interrupt(VirtioDevice *v, uint32_t what);

/* Section "virtio-mmio", version 1. */
extern const VMStateDescription virtio_vmsd;
extern const VMStateField virtio_fields[];

/* ---- mmio.c: the registers.  Any thread; they take the lock ---- */

uint64_t virtio_mmio_read(void *device, uint64_t offset, unsigned size);
void virtio_mmio_write(void *device, uint64_t offset, unsigned size, uint64_t value);

/* ---- queue.c: lock held ---- */

/* Finds the memory of a queue that is to be ready, or breaks the device. */
bool virtqueue_map(VirtioDevice *v, unsigned q);

/* May the queue be used now? */
bool virtqueue_usable(const VirtioDevice *v, unsigned q);

/* Takes a request off the queue.  False: there is none, or the guest has broken the device. */
bool virtqueue_pop(VirtioDevice *v, unsigned q, VirtRequest *r);

/* Gives @r back with @written bytes at the start of what the device may write; interrupts the guest. */
void virtqueue_push(VirtioDevice *v, unsigned q, const VirtRequest *r, uint32_t written);

/*
 * Of the bytes that the device may read, or write, from @offset on: copies at most @len and returns how many
 * that were.  A write is marked in the dirty log.  Any thread.
 */
size_t virtrequest_read(const VirtRequest *r, uint64_t offset, void *to, size_t len);
size_t virtrequest_write(VirtioDevice *v, const VirtRequest *r, uint64_t offset, const void *from,
                         size_t len);

/* As a vector; @iov has room for VIRTIO_QUEUE_SIZE_MAX.  Returns the number of elements. */
unsigned virtrequest_iov(const VirtRequest *r, bool write, uint64_t offset, uint64_t len, struct iovec *iov);

/* Somebody else has written to [@offset, @offset + @len) of what the device may write. */
void virtrequest_mark(VirtioDevice *v, const VirtRequest *r, uint64_t offset, uint64_t len);

/* ---- kinds ---- */

VirtioDevice *virtio_rng_new(Machine *m);

/* The file of a -drive. */
typedef struct VirtioBlkConfig {
    const char *id, *file;
    const char *serial;                 /* or NULL */
    bool readonly;
    bool incoming;                      /* another process has the file until the guest arrives here */
} VirtioBlkConfig;

VirtioDevice *virtio_blk_new(Machine *m, const VirtioBlkConfig *config, GError **errp);

/* Nothing is connected to its port.  Main thread, as all of its life. */
VirtioDevice *virtio_console_new(Machine *m);
/* Connects @chr to the port; false if @v is no console or has something there.  Before the guest runs. */
bool virtio_console_attach(VirtioDevice *v, Chardev *chr);

#endif
