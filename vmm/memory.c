/* SPDX-License-Identifier: BSD-2-Clause */
/* -object, and which memory becomes the guest's RAM. */
#include "vm.h"

#include "monitor/object-text.h"
#include "report.h"
#include "system/keyval.h"
#include "util/error.h"

bool vm_create_objects(Vm *vm)
{
    for (unsigned i = 0; i < vm->config->objects->len; i++) {
        const ConfigText *object = g_ptr_array_index(vm->config->objects, i);
        g_autoptr(GError) err = NULL;

        report_set_location(object->location);
        MemoryBackend *backend = object_add_text(&vm->backends, object->text, &err);
        report_set_location(NULL);
        if (!backend) {
            bool wrong_words = g_error_matches(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);

            report_error(wrong_words ? object->location : NULL, err);
            return false;
        }
    }
    return true;
}

/* A switch of -machine that is on unless somebody says otherwise; its value has been checked. */
static bool is_off(const VmConfig *config, const char *property)
{
    const char *value = g_hash_table_lookup(config->machine_properties, property);
    bool on = true;

    return value && keyval_parse_bool(property, value, &on, NULL) && !on;
}

bool vm_create_memory(Vm *vm)
{
    const VmConfig *config = vm->config;
    const MachineMemory memory = {
        .has_size = config->has_ram_size,
        .size = config->ram_size,
        .backend = config->memory_backend,
        .path = config->mem_path,
        .prealloc = config->mem_prealloc,
        .no_dump = is_off(config, "dump-guest-core"),
        .no_merge = is_off(config, "mem-merge"),
    };
    g_autoptr(GError) err = NULL;

    if (!machine_create_memory(vm->machine, &vm->backends, &memory, &err)) {
        report_error(NULL, err);
        return false;
    }
    return true;
}
