/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine: the table of types, birth and death of a machine, and access to its memory by address. */
#include "system/machine.h"

#include <inttypes.h>
#include <string.h>

#include "system/runstate.h"
#include "util/error.h"

/* Filled at start-up by the main thread; a property of the program, not of a machine. */
static GPtrArray *machine_types;

void machine_type_register(const MachineType *type)
{
    if (!machine_types) {
        machine_types = g_ptr_array_new();
    }
    g_assert(!machine_type_find(type->name));
    g_ptr_array_add(machine_types, (void *)type);
}

const MachineType *machine_type_find(const char *name)
{
    for (guint i = 0; machine_types && i < machine_types->len; i++) {
        const MachineType *type = g_ptr_array_index(machine_types, i);
        if (strcmp(type->name, name) == 0) {
            return type;
        }
    }
    return NULL;
}

GPtrArray *machine_type_list(void)
{
    return machine_types ? g_ptr_array_copy(machine_types, NULL, NULL) : g_ptr_array_new();
}

Machine *machine_new(const MachineType *type, bool incoming)
{
    Machine *m = g_new0(Machine, 1);

    m->type = type;
    m->properties = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    m->accel_properties = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    m->serials = g_ptr_array_new();
    m->devices = g_ptr_array_new_with_free_func(g_free);
    m->drives = g_ptr_array_new_with_free_func(g_free);
    m->incoming = incoming;
    m->soft_dirty_log = soft_dirty_log_new();
    dirty_log_add_provider(&m->dirty_log, soft_dirty_log_provider(m->soft_dirty_log));
    m->run = run_state_control_new(incoming ? RUN_STATE_INMIGRATE : RUN_STATE_PRELAUNCH);
    return m;
}

bool machine_init(Machine *m, GError **errp)
{
    if (!m->type->init(m, errp)) {
        return false;
    }
    return !m->cpu_ops || m->cpu_ops->create(m, errp);
}

void machine_free(Machine *m)
{
    if (!m) {
        return;
    }
    if (m->cpu_ops) {
        if (machine_is_running(m)) {
            m->cpu_ops->pause(m);
        }
        m->cpu_ops->destroy(m);
    }
    dirty_log_stop(&m->dirty_log);
    dirty_log_remove_provider(&m->dirty_log, soft_dirty_log_provider(m->soft_dirty_log));
    soft_dirty_log_free(m->soft_dirty_log);
    while (m->ram.first) {
        ram_list_remove(&m->ram, m->ram.first);
    }
    g_hash_table_unref(m->properties);
    g_hash_table_unref(m->accel_properties);
    g_ptr_array_unref(m->serials);
    g_ptr_array_unref(m->devices);
    g_ptr_array_unref(m->drives);
    g_free(m->accel);
    g_free(m->cpu_model);
    g_free(m->kernel);
    g_free(m->initrd);
    g_free(m->append);
    run_state_control_free(m->run);
    g_free(m->name);
    g_free(m);
}

/* All of [gpa, gpa + len) must be RAM, and writable for a write, before a byte is moved. */
static bool memory_check(const Machine *m, uint64_t gpa, uint64_t len, bool write, GError **errp)
{
    while (len) {
        uint64_t run = len;
        RAMBlock *block;
        if (!ram_list_translate(&m->ram, gpa, &run, &block)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "no memory is mapped at address 0x%" PRIx64,
                        gpa);
            return false;
        }
        if (write && block->readonly) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                        "memory at address 0x%" PRIx64 " (RAM block '%s') is read-only", gpa, block->idstr);
            return false;
        }
        gpa += run;
        len -= run;
        if (len && !gpa) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                        "the range goes past the end of the guest's address space");
            return false;
        }
    }
    return true;
}

bool machine_memory_write(Machine *m, uint64_t gpa, const void *buf, uint64_t len, GError **errp)
{
    const uint8_t *from = buf;

    if (!memory_check(m, gpa, len, true, errp)) {
        return false;
    }
    while (len) {
        uint64_t run = len;
        RAMBlock *block;
        uint8_t *to = ram_list_translate(&m->ram, gpa, &run, &block);
        memcpy(to, from, run);
        soft_dirty_log_mark(m->soft_dirty_log, block, (uint64_t)(to - block->host), run);
        gpa += run;
        from += run;
        len -= run;
    }
    return true;
}

bool machine_memory_fill(Machine *m, uint64_t gpa, uint8_t byte, uint64_t len, GError **errp)
{
    if (!memory_check(m, gpa, len, true, errp)) {
        return false;
    }
    while (len) {
        uint64_t run = len;
        RAMBlock *block;
        uint8_t *to = ram_list_translate(&m->ram, gpa, &run, &block);
        memset(to, byte, run);
        soft_dirty_log_mark(m->soft_dirty_log, block, (uint64_t)(to - block->host), run);
        gpa += run;
        len -= run;
    }
    return true;
}

bool machine_memory_read(Machine *m, uint64_t gpa, void *buf, uint64_t len, GError **errp)
{
    uint8_t *to = buf;

    if (!memory_check(m, gpa, len, false, errp)) {
        return false;
    }
    while (len) {
        uint64_t run = len;
        const uint8_t *from = ram_list_translate(&m->ram, gpa, &run, NULL);
        memcpy(to, from, run);
        gpa += run;
        to += run;
        len -= run;
    }
    return true;
}
