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

/* ring_lock held.  How many records were there. */
static unsigned harvest(KvmVcpu *v)
{
    unsigned n = 0;

    for (; n < v->kvm->ring_entries; n++) {
        struct kvm_dirty_gfn *record = &v->ring[v->ring_next % v->kvm->ring_entries];
        if (!(__atomic_load_n(&record->flags, __ATOMIC_ACQUIRE) & KVM_DIRTY_GFN_F_DIRTY)) {
            break;
        }
        note(v->kvm, record->slot, record->offset);
        __atomic_store_n(&record->flags, KVM_DIRTY_GFN_F_RESET, __ATOMIC_RELEASE);
        v->ring_next++;
    }
    return n;
}

bool kvm_dirty_ring_harvest(Kvm *kvm, KvmVcpu *only, GError **errp)
{
    unsigned n = 0;

    if (!only && fault_point("kvm-harvest-rings", errp)) {
        return false;
    }
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&kvm->ring_lock);
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        if (!only || only == &kvm->vcpus[i]) {
            n += harvest(&kvm->vcpus[i]);
        }
    }
    trace_kvm_dirty_ring_harvest(only ? (int)only->index : -1, n);
    if (!n) {
        return true;
    }
    if (!only) {
        dirty_log_count_request(&kvm->provider);
    }
    if (ioctl(kvm->vm, KVM_RESET_DIRTY_RINGS, 0) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "KVM_RESET_DIRTY_RINGS");
        return false;
    }
    return true;
}
