/* SPDX-License-Identifier: BSD-2-Clause */
/* Dirty rings: one per vCPU, in which the kernel writes the pages that the vCPU has written to. */

/*
 * A record goes round like this: the kernel fills it and sets DIRTY (release); a harvest reads it (acquire),
 * notes the page and sets RESET (release); KVM_RESET_DIRTY_RINGS write-protects the pages of all records
 * marked so and frees them.  The page is noted before it is protected anew, and its bytes are read after the
 * sync that has harvested it: a write before the protection is seen by that read, a write after it makes a
 * new record.  A full ring sends its vCPU out of the guest; that thread harvests its own.
 */
#include "kvm-internal.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "trace-accel.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

bool kvm_dirty_ring_map(KvmVcpu *v, GError **errp)
{
    size_t size = v->kvm->ring_entries * sizeof(struct kvm_dirty_gfn);
    void *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd,
                      (off_t)KVM_DIRTY_LOG_PAGE_OFFSET * TARGET_PAGE_SIZE);

    if (ring == MAP_FAILED) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "cannot map the dirty ring of vCPU %u", v->index);
        return false;
    }
    v->ring = ring;
    return true;
}

void kvm_dirty_ring_unmap(KvmVcpu *v)
{
    if (v->ring) {
        munmap(v->ring, v->kvm->ring_entries * sizeof(struct kvm_dirty_gfn));
        v->ring = NULL;
    }
}

static void note(Kvm *kvm, uint32_t slot_id, uint64_t page)
{
    slot_id &= 0xffff;      /* the upper half is the address space, of which there is one */
    if (slot_id < kvm->n_slots && page < kvm->slots[slot_id].pages) {
        bitmap_set(kvm->slots[slot_id].bitmap, page, 1);
    }
}

static struct kvm_dirty_gfn *record_at(const KvmVcpu *v, uint32_t index)
{
    return &v->ring[index % v->kvm->ring_entries];
}

static bool is_dirty(const struct kvm_dirty_gfn *record)
{
    return __atomic_load_n(&record->flags, __ATOMIC_ACQUIRE) & KVM_DIRTY_GFN_F_DIRTY;
}

/* ring_lock held.  @index: of the first record that is not there yet. */
static void count_to(KvmVcpu *v, uint32_t index)
{
    uint32_t more = index - v->ring_seen;

    if (more <= v->kvm->ring_entries) {     /* else they have been counted */
        __atomic_store_n(&v->dirtied, v->dirtied + more, __ATOMIC_RELAXED);
        v->ring_seen = index;
    }
}

void kvm_dirty_ring_count(KvmVcpu *v)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&v->kvm->ring_lock);
    uint32_t index = v->ring_seen;

    while (index - v->ring_next < v->kvm->ring_entries && is_dirty(record_at(v, index))) {
        index++;
    }
    count_to(v, index);
}

/* ring_lock held.  How many records were there. */
static unsigned harvest(KvmVcpu *v)
{
    unsigned n = 0;

    for (; n < v->kvm->ring_entries; n++) {
        struct kvm_dirty_gfn *record = record_at(v, v->ring_next);
        if (!is_dirty(record)) {
            break;
        }
        note(v->kvm, record->slot, record->offset);
        __atomic_store_n(&record->flags, KVM_DIRTY_GFN_F_RESET, __ATOMIC_RELEASE);
        v->ring_next++;
    }
    count_to(v, v->ring_next);
    return n;
}

/* ring_lock held. */
static unsigned harvest_rings(Kvm *kvm, const KvmVcpu *only)
{
    unsigned n = 0;

    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        if (!only || only == &kvm->vcpus[i]) {
            n += harvest(&kvm->vcpus[i]);
        }
    }
    trace_kvm_dirty_ring_harvest(only ? (int)only->index : -1, n);
    return n;
}

static bool reset_rings(Kvm *kvm, GError **errp)
{
    if (ioctl(kvm->vm, KVM_RESET_DIRTY_RINGS, 0) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "KVM_RESET_DIRTY_RINGS");
        return false;
    }
    return true;
}

bool kvm_dirty_ring_harvest(Kvm *kvm, KvmVcpu *only, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&kvm->ring_lock);

    return harvest_rings(kvm, only) == 0 || reset_rings(kvm, errp);
}

bool kvm_dirty_ring_sync(Kvm *kvm, GError **errp)
{
    if (fault_point("kvm-harvest-rings", errp)) {
        return false;
    }
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&kvm->ring_lock);
    if (harvest_rings(kvm, NULL) == 0) {
        return true;
    }
    dirty_log_count_request(&kvm->provider);
    return reset_rings(kvm, errp);
}
