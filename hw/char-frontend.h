/* SPDX-License-Identifier: BSD-2-Clause */
/* The front end of a character device: what waits between it and a guest's serial port or console. */
#ifndef GODWIT_HW_CHAR_FRONTEND_H
#define GODWIT_HW_CHAR_FRONTEND_H

#include "system/chardev.h"
#include "system/vmstate.h"

/*
 *   guest -> device -> tx -> main loop -> character device    the device sends no more while tx is full
 *   guest <- device <- rx <- main loop <- character device    which is not read while rx is half full
 *
 * What is in rx travels with the guest.  What is in tx has left the guest: the source sends it on.
 *
 * Threads: tx and rx belong to the device's lock, which whoever calls the functions below holds, unless they
 * say otherwise.  The character device belongs to the main thread.
 */

/* Twice what the character device delivers at once: what arrives while it is half full has room. */
#define CHAR_RX_SIZE 32768u
/* The device stops at this many bytes; what it has begun may go beyond. */
#define CHAR_TX_FULL 65536u

/* What has been received and has not gone to the guest. */
typedef struct CharReceived {
    uint32_t count;             /* bytes at the start of @bytes */
    uint8_t bytes[CHAR_RX_SIZE];
} CharReceived;

/* What the device is told.  Main thread, lock held. */
typedef struct CharFrontendOps {
    void (*received)(void *opaque);                     /* there is more in rx */
    void (*sent)(void *opaque, bool was_full);          /* tx is empty; @was_full: it was full before */
} CharFrontendOps;

typedef struct CharFrontend {
    const CharFrontendOps *ops;
    void *opaque;               /* the device */
    GMutex *lock;
    Chardev *chr;               /* or NULL: what is sent vanishes.  Fixed before the guest runs */

    /* Under the lock. */
    GByteArray *tx;
    CharReceived rx;
    guint tx_source;            /* of the main loop, or 0 */
    guint rx_source;
    bool rx_paused;

    CharReceived wire;          /* of the thread that saves or loads */
} CharFrontend;

/* Main thread, lock not held, as the next two.  @lock is the device's and outlives @f. */
void char_frontend_init(CharFrontend *f, const CharFrontendOps *ops, void *opaque, GMutex *lock);
/* Once, before the guest runs.  @chr outlives @f. */
void char_frontend_connect(CharFrontend *f, Chardev *chr);
/* Hands what is in tx to the character device and lets go of it.  Nobody uses @f any more. */
void char_frontend_clear(CharFrontend *f);

/* The device may not begin to send. */
bool char_frontend_full(const CharFrontend *f);
/* Room for @len bytes at the end of tx, which the caller fills before it releases the lock.  @len may be 0:
 * sent() is called all the same. */
uint8_t *char_frontend_send(CharFrontend *f, size_t len);

/* Adds to rx as if it had been received, without received(); what has no room is lost. */
void char_frontend_put(CharFrontend *f, const uint8_t *bytes, size_t len);
/* The first @count bytes of rx have gone to the guest, or are to be forgotten. */
void char_frontend_consume(CharFrontend *f, uint32_t count);

/* The fields of rx in the section of a device whose structure @_struct has the front end as @_member. */
#define CHAR_FRONTEND_FIELDS(_struct, _member) \
    { .name = "rx_count", .type = VMSTATE_UINT32, .offset = offsetof(_struct, _member.wire.count), \
      .size = sizeof(uint32_t) }, \
    { .name = "rx", .type = VMSTATE_BUFFER, .offset = offsetof(_struct, _member.wire.bytes), \
      .size = CHAR_RX_SIZE }

/* For the device's pre_save(): what travels is what there is now. */
void char_frontend_save(CharFrontend *f);
/* For its post_load(): first, lock not held, may the fields be so?  Then they become what there is. */
bool char_frontend_check(const CharFrontend *f, GError **errp);
void char_frontend_load(CharFrontend *f);

#endif
