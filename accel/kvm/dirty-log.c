/* SPDX-License-Identifier: BSD-2-Clause */
/* The dirty log of KVM's memory slots: bitmaps that the kernel keeps, or rings (dirty-ring.c). */

/*
 * Three ways, chosen when the VM is made:
 *
 * manual   KVM_GET_DIRTY_LOG only reports; KVM_CLEAR_DIRTY_LOG takes the bits given back and re-arms their
 *          pages.  With INITIALLY_SET the log begins with all bits set and nothing write-protected, so that
 *          starting costs nothing and each page is protected when it is about to be sent.
 * get      KVM_GET_DIRTY_LOG reports, takes back and re-arms at once.  A clear has nothing to do.  What it
 *          reports beyond the range that was asked for is kept in the slot's bitmap.
 * ring     the kernel writes a record for each page; a harvest moves the records to the slots' bitmaps and
 *          re-arms.  A clear has nothing to do.
 */
#include "kvm-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>

#include "system/dirty-slot.h"
#include "trace-accel.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

static Kvm *of_provider(DirtyLogProvider *p)
{
    return (Kvm *)((char *)p - offsetof(Kvm, provider));
}

static DirtySlot dirty_slot(const KvmSlot *slot)
{
    return (DirtySlot){
        .block_first = slot->first, .slot_first = 0, .count = slot->pages, .slot_pages = slot->pages,
    };
}

static bool set_logging(Kvm *kvm, KvmSlot *slot, bool on, GError **errp)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot->id,
        .flags = (slot->block->readonly ? KVM_MEM_READONLY : 0) | (on ? KVM_MEM_LOG_DIRTY_PAGES : 0),
        .guest_phys_addr = slot->gpa,
        .memory_size = slot->pages << TARGET_PAGE_BITS,
        .userspace_addr = (uintptr_t)slot->block->host + (slot->first << TARGET_PAGE_BITS),
    };
    if (ioctl(kvm->vm, KVM_SET_USER_MEMORY_REGION, &region) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "KVM_SET_USER_MEMORY_REGION of memory slot %u",
                        slot->id);
        return false;
    }
    return true;
}

/* logging_lock held. */
static void log_no_more(Kvm *kvm)
{
    for (unsigned i = 0; i < kvm->n_slots; i++) {
        g_autoptr(GError) error = NULL;
        if (!set_logging(kvm, &kvm->slots[i], false, &error)) {
            g_warning("the dirty log goes on: %s", error->message);
        }
    }
    trace_kvm_dirty_log_stop(kvm->n_slots);
}

void kvm_stop_logging(Kvm *kvm, KvmLogger logger)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&kvm->logging_lock);
    unsigned before = kvm->logging;

    kvm->logging &= ~(1u << logger);
    if (before && !kvm->logging) {
        log_no_more(kvm);
    }
}

bool kvm_start_logging(Kvm *kvm, KvmLogger logger, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&kvm->logging_lock);

    for (unsigned i = 0; !kvm->logging && i < kvm->n_slots; i++) {
        if (fault_point("kvm-log-start", errp) || !set_logging(kvm, &kvm->slots[i], true, errp)) {
            log_no_more(kvm);
            return false;
        }
    }
    kvm->logging |= 1u << logger;
    trace_kvm_dirty_log_start(kvm->n_slots, kvm->dirty_method, kvm->manual_flags);
    return true;
}

static void kvm_dirty_log_stop(DirtyLogProvider *p)
{
    kvm_stop_logging(of_provider(p), KVM_LOGGER_MIGRATION);
}

/*
 * If a dirty limit has had pages logged before: what has been harvested is protected again, and what has not
 * will be, so that no write from now on is missed; see the head of dirty-ring.c.
 */
static bool kvm_dirty_log_start(DirtyLogProvider *p, const RamList *ram, GError **errp)
{
    Kvm *kvm = of_provider(p);

    g_mutex_lock(&kvm->ring_lock);
    for (unsigned i = 0; i < kvm->n_slots; i++) {
        bitmap_clear(kvm->slots[i].bitmap, 0, kvm->slots[i].pages);
    }
    g_mutex_unlock(&kvm->ring_lock);
    return kvm_start_logging(kvm, KVM_LOGGER_MIGRATION, errp);
}

/* ---- sync ---- */

static bool get_log(Kvm *kvm, KvmSlot *slot, GError **errp)
{
    struct kvm_dirty_log log = { .slot = slot->id, .dirty_bitmap = slot->bitmap };

    if (fault_point("kvm-get-dirty-log", errp)) {
        return false;
    }
    dirty_log_count_request(&kvm->provider);
    if (ioctl(kvm->vm, KVM_GET_DIRTY_LOG, &log) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "KVM_GET_DIRTY_LOG of memory slot %u", slot->id);
        return false;
    }
    return true;
}

/* The kernel's answer replaces the bitmap; what an earlier one left there must stay. */
static bool get_log_keeping(Kvm *kvm, KvmSlot *slot, GError **errp)
{
    if (bitmap_find_set(slot->bitmap, 0, slot->pages) == slot->pages) {
        return get_log(kvm, slot, errp);
    }
    size_t words = BITMAP_WORDS(slot->pages);
    g_autofree uint64_t *before = g_memdup2(slot->bitmap, words * sizeof(*before));
    bool ok = get_log(kvm, slot, errp);
    bitmap_or(slot->bitmap, 0, before, 0, slot->pages);
    return ok;
}

static bool sync_slot(Kvm *kvm, KvmSlot *slot, const DirtyWindow *window, uint64_t *bitmap,
                      uint64_t *new_dirty, GError **errp)
{
    switch (kvm->dirty_method) {
    case KVM_DIRTY_MANUAL:
        if (!get_log(kvm, slot, errp)) {
            return false;
        }
        *new_dirty += dirty_window_to_block(window, slot->bitmap, bitmap);
        return true;
    case KVM_DIRTY_FETCH_CLEARS:
        if (!get_log_keeping(kvm, slot, errp)) {
            return false;
        }
        break;
    default:
        break;
    }
    *new_dirty += bitmap_fetch_clear_or(bitmap, window->block_first, slot->bitmap,
                                        window->block_first - slot->first, window->count);
    return true;
}

static bool kvm_dirty_log_sync(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                               uint64_t *bitmap, uint64_t *new_dirty, GError **errp)
{
    Kvm *kvm = of_provider(p);
    DirtyWindow window;
    bool ok = true;

    if (kvm->dirty_method == KVM_DIRTY_RING && !kvm_dirty_ring_sync(kvm, errp)) {
        return false;
    }
    g_mutex_lock(&kvm->ring_lock);
    for (unsigned i = 0; ok && i < kvm->n_slots; i++) {
        KvmSlot *slot = &kvm->slots[i];
        const DirtySlot geometry = dirty_slot(slot);
        if (slot->block == block && dirty_slot_window(&geometry, first, count, &window)) {
            ok = sync_slot(kvm, slot, &window, bitmap, new_dirty, errp);
        }
    }
    g_mutex_unlock(&kvm->ring_lock);
    return ok;
}

/* ---- clear ---- */

static bool clear_slot(Kvm *kvm, const KvmSlot *slot, const DirtyWindow *window, const uint64_t *bitmap,
                       GError **errp)
{
    g_autofree uint64_t *bits = g_new(uint64_t, BITMAP_WORDS(window->window_pages));
    struct kvm_clear_dirty_log clear = {
        .slot = slot->id,
        .num_pages = (uint32_t)window->window_pages,
        .first_page = window->window_first,
        .dirty_bitmap = bits,
    };

    if (dirty_window_from_block(window, bitmap, bits) == 0) {
        return true;
    }
    if (fault_point("kvm-clear-dirty-log", errp)) {
        return false;
    }
    dirty_log_count_request(&kvm->provider);
    if (ioctl(kvm->vm, KVM_CLEAR_DIRTY_LOG, &clear) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno,
                        "KVM_CLEAR_DIRTY_LOG of %" PRIu64 " pages from page %" PRIu64 " of memory slot %u",
                        window->window_pages, window->window_first, slot->id);
        return false;
    }
    return true;
}

static bool kvm_dirty_log_clear(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                                const uint64_t *bitmap, GError **errp)
{
    Kvm *kvm = of_provider(p);
    DirtyWindow window;

    for (unsigned i = 0; kvm->dirty_method == KVM_DIRTY_MANUAL && i < kvm->n_slots; i++) {
        const KvmSlot *slot = &kvm->slots[i];
        const DirtySlot geometry = dirty_slot(slot);
        if (slot->block == block && dirty_slot_window(&geometry, first, count, &window) &&
            !clear_slot(kvm, slot, &window, bitmap, errp)) {
            return false;
        }
    }
    return true;
}

static const DirtyLogProviderOps kvm_dirty_log_ops = {
    .name = "kvm",
    .start = kvm_dirty_log_start,
    .stop = kvm_dirty_log_stop,
    .sync = kvm_dirty_log_sync,
    .clear = kvm_dirty_log_clear,
};

void kvm_dirty_log_init(Kvm *kvm)
{
    kvm->provider.ops = &kvm_dirty_log_ops;
    dirty_log_add_provider(&kvm->machine->dirty_log, &kvm->provider);
}

void kvm_dirty_log_cleanup(Kvm *kvm)
{
    dirty_log_remove_provider(&kvm->machine->dirty_log, &kvm->provider);
}
