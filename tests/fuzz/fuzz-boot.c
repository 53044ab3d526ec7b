/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: a file given as -kernel, loaded into the memory of a small guest. */
#include "hw/pico/pico.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY (8u << 20)

static bool no_init(Machine *m, GError **errp)
{
    return true;
}

static const MachineType type = { .name = "fuzz", .init = no_init };

static GMappedFile *file_of(const uint8_t *data, size_t size)
{
    int fd = memfd_create("kernel", MFD_CLOEXEC);
    g_assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    GMappedFile *file = g_mapped_file_new_from_fd(fd, FALSE, NULL);
    close(fd);
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Machine *m = machine_new(&type, false);
    RAMBlock block = { .idstr = "ram", .used_length = MEMORY, .page_size = 4096, .fd = -1 };
    PicoBoot boot = { .kernel = file_of(data, size), .append = "a=b" };
    KvmEntry entry = { 0 };

    m->cpus = 1;
    block.host =
        mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ram_list_add(&m->ram, &block, NULL);
    if (boot.kernel) {
        g_autoptr(GError) error = NULL;
        /* Either it boots somewhere, or it says why not. */
        g_assert(pico_boot_load(&boot, m, &entry, &error) ? entry.eip != 0 : error != NULL);
    }
    pico_boot_close(&boot);
    machine_free(m);
    munmap(block.host, MEMORY);
    return 0;
}
