/* SPDX-License-Identifier: BSD-2-Clause */
/* Two VMs in one process that migrate to each other. */
#ifndef GODWIT_TESTS_PAIR_H
#define GODWIT_TESTS_PAIR_H

#include "fake-host.h"

/* A VM: a host and its migration context, with one block m0. */
typedef struct Vm {
    FakeHost host;
    MigrationContext *ctx;
    RAMBlock *block;
} Vm;

void vm_init(Vm *vm, uint64_t ram_size, bool incoming);
void vm_clear(Vm *vm);

void vm_set_capability(Vm *vm, MigrationCapability cap, bool on);
/* In the syntax of HMP. */
void vm_set_parameter(Vm *vm, const char *name, const char *value);
void vm_set_global(Vm *vm, const char *name, const char *value);

MigrationStatus vm_status(Vm *vm);      /* query-migrate's; NONE if it shows none */

/*
 * Runs the main loop until the status is @status; fails the test if that takes longer than any machine can
 * need.
 */
void vm_wait_status(Vm *vm, MigrationStatus status);
/* Until it is completed, failed or cancelled. */
MigrationStatus vm_wait_end(Vm *vm);
/* Until the host was told that the incoming migration has ended. */
void vm_wait_incoming_ended(Vm *vm);
/* Runs the main loop for @ms. */
void run_main_loop(unsigned ms);
/* Until the source is in pass @count. */
void vm_wait_passes(Vm *vm, int64_t count);
/* Runs the main loop until @done. */
void wait_until(bool (*done)(void *opaque), void *opaque, const char *what);

void vm_fill_random(Vm *vm, uint32_t seed);
void assert_same_ram(Vm *a, Vm *b);
void assert_events(Vm *vm, const char *expected);

/* A guest that writes all over its memory while the host says that it runs. */
typedef struct Writer {
    Vm *vm;
    GThread *thread;
    int stop, started;      /* atomic */
    unsigned pause_us;      /* between two writes */
    uint64_t writes;        /* read it after writer_stop() */
} Writer;

/* Returns when the guest has written once, if the host says that it runs. */
void writer_start(Writer *w, Vm *vm, unsigned pause_us);
void writer_stop(Writer *w);

/* ---- whole migrations ---- */

/* A source with a guest that runs in memory full of data, and a destination. */
void pair_init(Vm *src, Vm *dst, uint64_t ram_size);
void pair_clear(Vm *src, Vm *dst);
/* A URI that nobody else uses; the caller frees. */
char *pair_uri(void);
void pair_listen(Vm *dst, const char *uri, bool exit_on_error);
void pair_migrate(Vm *src, const char *uri);
/* Both, over a unix socket. */
void pair_connect(Vm *src, Vm *dst);
/* Both ended well, memory is the same, and the guest runs in one place. */
void pair_assert_arrived(Vm *src, Vm *dst);
/* Nothing is left of a migration that did not succeed: the guest runs on. */
void pair_assert_runs_on(Vm *src);

/* A directory of this test program that goes with it. */
const char *test_directory(void);

#endif
