/* SPDX-License-Identifier: BSD-2-Clause */
/* A machine of any name, with any RAM blocks and no devices, saved or restored once: for test_files.py. */

/*
 *   block-box save|load MACHINE URI [CAPABILITY | PARAMETER=VALUE]... -- NAME=FILE...
 *
 * A block is as long as its file.  `save` takes its content from there; `load` begins with memory full of
 * garbage and puts what arrived into the files.
 */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GARBAGE 0xa5

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "block-box: %s: %s\n", what, why);
    exit(1);
}

static void set_option(Vm *vm, const char *word)
{
    const char *equals = strchr(word, '=');

    if (!equals) {
        int cap = MigrationCapability_parse(word);
        if (cap < 0) {
            fail(word, "no such capability");
        }
        vm_set_capability(vm, (MigrationCapability)cap, true);
        return;
    }
    g_autofree char *name = g_strndup(word, (gsize)(equals - word));
    vm_set_parameter(vm, name, equals + 1);
}

/* NAME=FILE, split at the last '=': names of blocks may have one. */
static void add_block(Vm *vm, char *word, bool load)
{
    char *equals = strrchr(word, '=');
    g_autofree char *content = NULL;
    gsize size = 0;

    if (!equals || !g_file_get_contents(equals + 1, &content, &size, NULL)) {
        fail(word, "no file of a block");
    }
    *equals = '\0';
    RAMBlock *block = fake_host_add_ram(&vm->host, word, size);
    *equals = '=';
    if (load) {
        memset(block->host, GARBAGE, size);
    } else {
        memcpy(block->host, content, size);
    }
}

static void keep_block(Vm *vm, char *word)
{
    char *equals = strrchr(word, '=');
    g_autofree char *name = g_strndup(word, (gsize)(equals - word));
    const RAMBlock *block = ram_list_find(&vm->host.ram, name);

    if (!g_file_set_contents(equals + 1, (const char *)block->host, (gssize)block->used_length, NULL)) {
        fail(equals + 1, "cannot be written");
    }
}

static void save(Vm *vm, const char *uri)
{
    g_autoptr(GError) error = NULL;

    if (!migration_start(vm->ctx, uri, NULL, false, &error)) {
        fail("save", error->message);
    }
    if (vm_wait_end(vm) != MIGRATION_STATUS_COMPLETED) {
        g_autoptr(MigrationInfo) info = migration_query(vm->ctx);
        fail("save", info->error_desc ? info->error_desc : "failed");
    }
}

static void load(Vm *vm, const char *uri)
{
    g_autoptr(GError) error = NULL;

    if (!migration_incoming_start(vm->ctx, uri, NULL, true, &error)) {
        fail("load", error->message);
    }
    vm_wait_incoming_ended(vm);
    if (vm->host.ended_error) {
        fail("load", vm->host.ended_error);
    }
}

int main(int argc, char **argv)
{
    Vm vm;
    int blocks = 4;

    if (argc < 5) {
        fail("usage", "save|load MACHINE URI OPTION... -- NAME=FILE...");
    }
    bool loads = strcmp(argv[1], "load") == 0;
    vm_init(&vm, 0, loads);
    vm.host.machine = argv[2];
    vm_set_parameter(&vm, "max-bandwidth", "0");
    for (; blocks < argc && strcmp(argv[blocks], "--") != 0; blocks++) {
        set_option(&vm, argv[blocks]);
    }
    for (int i = blocks + 1; i < argc; i++) {
        add_block(&vm, argv[i], loads);
    }
    if (loads) {
        load(&vm, argv[3]);
        for (int i = blocks + 1; i < argc; i++) {
            keep_block(&vm, argv[i]);
        }
    } else {
        save(&vm, argv[3]);
    }
    vm_clear(&vm);
    return 0;
}
