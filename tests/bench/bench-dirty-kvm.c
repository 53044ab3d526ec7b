/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows of slots given to a real KVM: it clears just those pages, and what a request costs. */

/*
 *     bench-dirty-kvm [--size=GIB] [--seed=N]
 *
 * A VM without vCPUs, whose log begins with all bits set: clearing needs no guest that writes.  Its slots
 * begin beside the words of the block's bitmap.  One page of 16 is cleared, at random: first as the migration
 * engine does, by chunks of 1 GiB, then as many others page by page.  After each way the log is fetched and
 * compared: the exit status is 1 if any other bit has changed, 2 if there is no such KVM.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "system/dirty-slot.h"
#include "util/bitmap.h"

#define GIB (UINT64_C(1) << 30)
#define PAGE 4096
#define CHUNK (UINT64_C(1) << 18)
#define MAX_SLOTS 64

static int size_gib = 64;
static int seed = 1;

static const GOptionEntry options_table[] = {
    { "size", 0, 0, G_OPTION_ARG_INT, &size_gib, "Size of the guest's memory", "GIB" },
    { "seed", 0, 0, G_OPTION_ARG_INT, &seed, "Of the random pages", "N" },
    { NULL },
};

typedef struct Vm {
    int fd;
    DirtySlot slots[MAX_SLOTS];
    unsigned n_slots;
    uint64_t pages;
    uint64_t requests;
    uint64_t *window;       /* of the size of a slot */
} Vm;

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(2);
}

static void must_ioctl(int fd, unsigned long request, void *arg, const char *what)
{
    if (ioctl(fd, request, arg) < 0) {
        die(what);
    }
}

/* ---- the VM ---- */

static void add_slot(Vm *vm, uint8_t *memory, uint64_t first, uint64_t count)
{
    struct kvm_userspace_memory_region region = {
        .slot = vm->n_slots,
        .flags = KVM_MEM_LOG_DIRTY_PAGES,
        .guest_phys_addr = first * PAGE,
        .memory_size = count * PAGE,
        .userspace_addr = (uintptr_t)memory + first * PAGE,
    };
    must_ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region, "KVM_SET_USER_MEMORY_REGION");
    vm->slots[vm->n_slots++] = (DirtySlot){ .block_first = first, .count = count, .slot_pages = count };
}

static void vm_init(Vm *vm)
{
    uint64_t bytes = (uint64_t)size_gib * GIB, slot_pages = 8 * GIB / PAGE - 9;
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);

    if (kvm < 0) {
        die("/dev/kvm");
    }
    memset(vm, 0, sizeof(*vm));
    vm->fd = ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm->fd < 0) {
        die("KVM_CREATE_VM");
    }
    struct kvm_enable_cap cap = {
        .cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
        .args[0] = KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET,
    };
    must_ioctl(vm->fd, KVM_ENABLE_CAP, &cap, "KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 with INITIALLY_SET");
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        die("mmap");
    }
    vm->pages = bytes / PAGE;
    vm->window = bitmap_new(slot_pages);
    add_slot(vm, memory, 0, 37);
    for (uint64_t first = 37; first < vm->pages; first += slot_pages) {
        add_slot(vm, memory, first, MIN(slot_pages, vm->pages - first));
    }
}

static void fetch(Vm *vm, uint64_t *bitmap)
{
    for (unsigned i = 0; i < vm->n_slots; i++) {
        struct kvm_dirty_log log = { .slot = i, .dirty_bitmap = vm->window };
        DirtyWindow w;
        must_ioctl(vm->fd, KVM_GET_DIRTY_LOG, &log, "KVM_GET_DIRTY_LOG");
        dirty_slot_window(&vm->slots[i], 0, vm->pages, &w);
        dirty_window_to_block(&w, vm->window, bitmap);
    }
}

static void clear(Vm *vm, uint64_t first, uint64_t count, const uint64_t *bitmap)
{
    for (unsigned i = 0; i < vm->n_slots; i++) {
        DirtyWindow w;
        if (!dirty_slot_window(&vm->slots[i], first, count, &w) ||
            !dirty_window_from_block(&w, bitmap, vm->window)) {
            continue;
        }
        struct kvm_clear_dirty_log request = {
            .slot = i,
            .num_pages = (uint32_t)w.window_pages,
            .first_page = w.window_first,
            .dirty_bitmap = vm->window,
        };
        must_ioctl(vm->fd, KVM_CLEAR_DIRTY_LOG, &request, "KVM_CLEAR_DIRTY_LOG");
        vm->requests++;
    }
}

/* ---- two ways ---- */

static void by_chunks(Vm *vm, const uint64_t *bitmap)
{
    for (uint64_t first = 0; first < vm->pages; first += CHUNK) {
        clear(vm, first, MIN(CHUNK, vm->pages - first), bitmap);
    }
}

static void by_pages(Vm *vm, const uint64_t *bitmap)
{
    for (uint64_t page = bitmap_find_set(bitmap, 0, vm->pages); page < vm->pages;
         page = bitmap_find_set(bitmap, page + 1, vm->pages)) {
        clear(vm, page, 1, bitmap);
    }
}

/* Clears the pages of @bitmap from a log that is @log, and compares what is left. */
static uint64_t measure(Vm *vm, const char *name, void (*way)(Vm *, const uint64_t *), const uint64_t *bitmap,
                        uint64_t *log)
{
    g_autofree uint64_t *left = g_new0(uint64_t, BITMAP_WORDS(vm->pages));
    uint64_t pages = bitmap_count(bitmap, 0, vm->pages);

    vm->requests = 0;
    uint64_t start = now_ns();
    way(vm, bitmap);
    uint64_t ns = now_ns() - start;
    start = now_ns();
    fetch(vm, left);
    uint64_t fetch_ns = now_ns() - start;
    for (size_t i = 0; i < BITMAP_WORDS(vm->pages); i++) {
        log[i] &= ~bitmap[i];
    }
    bool same = memcmp(log, left, BITMAP_WORDS(vm->pages) * sizeof(*log)) == 0;
    printf("%-10s %9" PRIu64 " %9" PRIu64 " %11.1f %10.0f %9.1f %9.1f  %s\n", name, pages, vm->requests,
           (double)pages / (double)vm->requests, (double)ns / 1000, (double)ns / 1000 / size_gib,
           (double)fetch_ns / 1000, same ? "just these" : "OTHER BITS CHANGED");
    if (!same) {
        exit(1);
    }
    return ns;
}

int main(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    g_autoptr(GError) error = NULL;
    Vm vm;

    g_option_context_add_main_entries(context, options_table, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        fprintf(stderr, "%s\n", error->message);
        return 2;
    }
    vm_init(&vm);
    g_autoptr(GRand) rand = g_rand_new_with_seed((guint32)seed);
    uint64_t *log = bitmap_new(vm.pages), *first = bitmap_new(vm.pages), *second = bitmap_new(vm.pages);
    for (uint64_t at = 0; at < vm.pages; at += 16) {    /* two pages of 16, never the same */
        unsigned page = g_rand_int(rand) % 16;
        bitmap_set(first, at + page, 1);
        bitmap_set(second, at + (page + 1 + g_rand_int(rand) % 15) % 16, 1);
    }
    fetch(&vm, log);
    if (bitmap_count(log, 0, vm.pages) != vm.pages) {
        fprintf(stderr, "the log does not begin with all bits set\n");
        return 1;
    }
    printf("%d GiB in %u slots of KVM, beginning beside a word\n\n", size_gib, vm.n_slots);
    printf("%-10s %9s %9s %11s %10s %9s %9s  %s\n", "cleared", "pages", "requests", "pages/req.", "us",
           "us/GiB", "fetch us", "log");
    uint64_t chunks_ns = measure(&vm, "by chunks", by_chunks, first, log);
    uint64_t pages_ns = measure(&vm, "by pages", by_pages, second, log);
    printf("\nby chunks is %.1f times as fast\n", (double)pages_ns / (double)chunks_ns);
    return 0;
}
