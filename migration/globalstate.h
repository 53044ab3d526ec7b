/* SPDX-License-Identifier: BSD-2-Clause */
/* The section "globalstate": in which run state the guest was when it was stopped for migration. */
#ifndef GODWIT_MIGRATION_GLOBALSTATE_H
#define GODWIT_MIGRATION_GLOBALSTATE_H

#include "qapi/qapi-types-run-state.h"
#include "system/vmstate.h"

#define GLOBALSTATE_NAME_MAX 32     /* bytes of the field, NUL included */

/*
 * Version 1, 104 bytes: be32 length of the name with its NUL (not trusted), 32 bytes name, u8 1 if the next
 * byte counts, u8 1 if the guest was suspended, 66 zero bytes.  QEMU before 9.0 sees the last 100 bytes as
 * one name.
 */
typedef struct GlobalState {
    uint32_t size;
    uint8_t runstate[GLOBALSTATE_NAME_MAX];
    uint8_t has_vm_was_suspended;
    uint8_t vm_was_suspended;
    uint8_t unused[66];

    /* Not on the wire. */
    bool received;
    RunState state;                 /* after loading; check received first */
} GlobalState;

extern const VMStateDescription vmstate_globalstate;

/* Fills in what travels. */
void globalstate_store(GlobalState *g, RunState state);

/* Should the guest run when it has arrived?  @g as loaded; without the section: yes. */
bool globalstate_is_live(const GlobalState *g);

/* A live guest that sleeps (ACPI S3). */
bool globalstate_is_suspended(const GlobalState *g);

#endif
