/* SPDX-License-Identifier: BSD-2-Clause */
/* The VM of the KVM accelerator: /dev/kvm, memory slots, in-kernel chips, and its vCPUs' life (CpuOps). */
#include "kvm-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "system/keyval.h"
#include "trace-accel.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

/* Three pages and one that KVM needs on Intel hosts, below the top of 4 GiB, where no memory is. */
#define TSS_ADDRESS 0xfffbd000ul
#define IDENTITY_MAP_ADDRESS UINT64_C(0xfffbc000)

bool kvm_ioctl(int fd, unsigned long request, const char *name, void *argument, GError **errp)
{
    if (fault_point("kvm-ioctl", errp)) {
        return false;
    }
    if (ioctl(fd, request, argument) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "%s", name);
        return false;
    }
    return true;
}

/* ---- what the kernel must offer ---- */

static const struct {
    int capability;
    const char *name;
} needed[] = {
    { KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP" },
    { KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY" },
    { KVM_CAP_SET_TSS_ADDR, "KVM_CAP_SET_TSS_ADDR" },
    { KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID" },
    { KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE" },
    { KVM_CAP_PIT_STATE2, "KVM_CAP_PIT_STATE2" },
    { KVM_CAP_XSAVE, "KVM_CAP_XSAVE" },
    { KVM_CAP_XCRS, "KVM_CAP_XCRS" },
    { KVM_CAP_VCPU_EVENTS, "KVM_CAP_VCPU_EVENTS" },
    { KVM_CAP_DEBUGREGS, "KVM_CAP_DEBUGREGS" },
    { KVM_CAP_ADJUST_CLOCK, "KVM_CAP_ADJUST_CLOCK" },
    { KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT" },
};

static bool check_capabilities(Kvm *kvm, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(needed); i++) {
        if (ioctl(kvm->fd, KVM_CHECK_EXTENSION, needed[i].capability) <= 0) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "this host's KVM does not have %s, which is needed", needed[i].name);
            return false;
        }
    }
    kvm->has_sregs2 = ioctl(kvm->fd, KVM_CHECK_EXTENSION, KVM_CAP_SREGS2) > 0;
    return true;
}

static bool open_vm(Kvm *kvm, GError **errp)
{
    kvm->fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (kvm->fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "cannot open /dev/kvm");
        return false;
    }
    int version = ioctl(kvm->fd, KVM_GET_API_VERSION, 0);
    if (version != KVM_API_VERSION) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "/dev/kvm speaks version %d of its interface, not %d", version, KVM_API_VERSION);
        return false;
    }
    if (!check_capabilities(kvm, errp)) {
        return false;
    }
    do {
        kvm->vm = ioctl(kvm->fd, KVM_CREATE_VM, 0);
    } while (kvm->vm < 0 && errno == EINTR);
    if (kvm->vm < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "KVM_CREATE_VM");
        return false;
    }
    return true;
}

/* ---- how pages are logged ---- */

static bool enable(Kvm *kvm, uint32_t capability, uint64_t argument)
{
    struct kvm_enable_cap cap = { .cap = capability, .args = { argument } };
    return ioctl(kvm->vm, KVM_ENABLE_CAP, &cap) == 0;
}

static bool choose_ring(Kvm *kvm, const char *text, GError **errp)
{
    guint64 entries;
    int most = ioctl(kvm->vm, KVM_CHECK_EXTENSION, KVM_CAP_DIRTY_LOG_RING_ACQ_REL);
    uint32_t capability = KVM_CAP_DIRTY_LOG_RING_ACQ_REL;

    if (most <= 0) {
        most = ioctl(kvm->vm, KVM_CHECK_EXTENSION, KVM_CAP_DIRTY_LOG_RING);
        capability = KVM_CAP_DIRTY_LOG_RING;
    }
    most = most > 0 ? most / (int)sizeof(struct kvm_dirty_gfn) : 0;
    if (!g_ascii_string_to_unsigned(text, 10, 0, 1u << 30, &entries, NULL) || (entries & (entries - 1))) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter 'dirty-ring-size' expects a power of two up to %d, or 0", most);
        return false;
    }
    if (!entries) {
        return true;
    }
    if (!most) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "this host's KVM has no dirty rings");
        return false;
    }
    if (entries > (unsigned)most || !enable(kvm, capability, entries * sizeof(struct kvm_dirty_gfn))) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter 'dirty-ring-size' expects a number that the kernel takes (at most %d, at "
                    "least a page of %zu)",
                    most, TARGET_PAGE_SIZE / sizeof(struct kvm_dirty_gfn));
        return false;
    }
    kvm->dirty_method = KVM_DIRTY_RING;
    kvm->ring_entries = entries;
    return true;
}

static bool choose_dirty_method(Kvm *kvm, GError **errp)
{
    const char *ring = g_hash_table_lookup(kvm->machine->accel_properties, "dirty-ring-size");
    const char *manual = g_hash_table_lookup(kvm->machine->accel_properties, "manual-dirty-log");
    bool on = true;

    if (manual && !keyval_parse_bool("manual-dirty-log", manual, &on, errp)) {
        return false;
    }
    if (ring && !choose_ring(kvm, ring, errp)) {
        return false;
    }
    if (kvm->dirty_method == KVM_DIRTY_RING || !on) {
        return true;
    }
    int flags = ioctl(kvm->vm, KVM_CHECK_EXTENSION, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2);
    flags &= KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET;
    if (flags > 0 && enable(kvm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, (uint64_t)flags)) {
        kvm->dirty_method = KVM_DIRTY_MANUAL;
        kvm->manual_flags = (uint32_t)flags;
    }
    return true;
}

/* ---- memory ---- */

static bool add_slot(Kvm *kvm, RAMBlock *block, uint64_t first, uint64_t pages, GError **errp)
{
    if (kvm->n_slots == KVM_SLOTS_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "guest memory needs more than %d memory slots",
                    KVM_SLOTS_MAX);
        return false;
    }
    KvmSlot *slot = &kvm->slots[kvm->n_slots];
    *slot = (KvmSlot){
        .id = kvm->n_slots, .block = block, .first = first, .pages = pages,
        .gpa = block->gpa + (first << TARGET_PAGE_BITS),
    };
    struct kvm_userspace_memory_region region = {
        .slot = slot->id,
        .flags = block->readonly ? KVM_MEM_READONLY : 0,
        .guest_phys_addr = slot->gpa,
        .memory_size = pages << TARGET_PAGE_BITS,
        .userspace_addr = (uintptr_t)block->host + (first << TARGET_PAGE_BITS),
    };
    if (!KVM_IOCTL(kvm->vm, KVM_SET_USER_MEMORY_REGION, &region, errp)) {
        g_prefix_error(errp, "cannot give the guest RAM block '%s': ", block->idstr);
        return false;
    }
    slot->bitmap = bitmap_new(pages);
    kvm->n_slots++;
    return true;
}

/* Property x-slot-pages cuts blocks up, so that tests meet slots that begin anywhere in a word of bits. */
static bool add_slots(Kvm *kvm, GError **errp)
{
    const char *text = g_hash_table_lookup(kvm->machine->properties, "x-slot-pages");
    guint64 most = UINT64_MAX;

    if (text && !g_ascii_string_to_unsigned(text, 10, 1, UINT64_MAX, &most, NULL)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter 'x-slot-pages' expects a positive number of pages");
        return false;
    }
    if (ram_list_total(&kvm->machine->ram) > KVM_RAM_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Machine '%s' has room for at most 3072 MiB of memory", kvm->machine->type->name);
        return false;
    }
    RAMLIST_FOREACH(block, &kvm->machine->ram) {
        uint64_t pages = ramblock_pages(block);
        for (uint64_t first = 0, n; first < pages; first += n) {
            n = MIN(most, pages - first);
            if (!add_slot(kvm, block, first, n, errp)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- chips and vCPUs ---- */

static bool create_chips(Kvm *kvm, GError **errp)
{
    uint64_t identity_map = IDENTITY_MAP_ADDRESS;
    struct kvm_pit_config pit = { .flags = KVM_PIT_SPEAKER_DUMMY };

    return KVM_IOCTL(kvm->vm, KVM_SET_IDENTITY_MAP_ADDR, &identity_map, errp) &&
           KVM_IOCTL(kvm->vm, KVM_SET_TSS_ADDR, (void *)TSS_ADDRESS, errp) &&
           KVM_IOCTL(kvm->vm, KVM_CREATE_IRQCHIP, NULL, errp) &&
           KVM_IOCTL(kvm->vm, KVM_CREATE_PIT2, &pit, errp);
}

static bool create_vcpu(Kvm *kvm, unsigned index, GError **errp)
{
    KvmVcpu *v = &kvm->vcpus[index];

    v->kvm = kvm;
    v->index = index;
    v->fd = ioctl(kvm->vm, KVM_CREATE_VCPU, (unsigned long)index);
    if (v->fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "KVM_CREATE_VCPU %u", index);
        return false;
    }
    void *run = mmap(NULL, kvm->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
    if (run == MAP_FAILED) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "cannot map the kvm_run of vCPU %u", index);
        return false;
    }
    v->run = run;
    return kvm_cpuid_set(v, errp) &&
           (kvm->dirty_method != KVM_DIRTY_RING || kvm_dirty_ring_map(v, errp));
}

static bool create_vcpus(Kvm *kvm, GError **errp)
{
    int size = ioctl(kvm->fd, KVM_GET_VCPU_MMAP_SIZE, 0);

    if (size < (int)sizeof(struct kvm_run)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "KVM_GET_VCPU_MMAP_SIZE returned %d", size);
        return false;
    }
    kvm->run_size = (size_t)size;
    kvm->n_vcpus = kvm->machine->cpus;
    kvm->vcpus = g_new0(KvmVcpu, kvm->n_vcpus);
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        kvm->vcpus[i].fd = -1;
    }
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        if (!create_vcpu(kvm, i, errp)) {
            return false;
        }
    }
    struct kvm_device_attr offset = { .group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET };
    int khz = ioctl(kvm->vcpus[0].fd, KVM_GET_TSC_KHZ, 0);
    kvm->cpuid.tsc_khz = khz > 0 ? (uint32_t)khz : 0;
    kvm->has_tsc_offset = ioctl(kvm->vcpus[0].fd, KVM_HAS_DEVICE_ATTR, &offset) == 0;
    return true;
}

/* ---- CpuOps ---- */

/* vCPUs parked: everything as it was when the power came on, and vCPU 0 at the entry of what boots. */
static bool power_on(Kvm *kvm, GError **errp)
{
    KvmEntry entry = { 0 };

    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        kvm->vcpus[i].state = *kvm->vcpus[i].power_on;
    }
    kvm->vm_state = *kvm->power_on;
    g_mutex_lock(&kvm->devices);
    bool ok = kvm->ops->reset(kvm->machine, &entry, errp);
    g_mutex_unlock(&kvm->devices);
    if (!ok) {
        return false;
    }
    struct kvm_segment code = {
        .limit = UINT32_MAX, .selector = 0x10, .type = 11, .present = 1, .db = 1, .s = 1, .g = 1,
    };
    struct kvm_segment data = code;
    data.selector = 0x18;
    data.type = 3;
    KvmVcpuState *s = &kvm->vcpus[0].state;
    s->sregs.cs = code;
    s->sregs.ds = s->sregs.es = s->sregs.fs = s->sregs.gs = s->sregs.ss = data;
    s->sregs.cr0 |= 1;
    s->regs = (struct kvm_regs){
        .rip = entry.eip, .rbx = entry.ebx, .rsi = entry.esi, .rflags = 2,
    };
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        if (!kvm_put_vcpu(&kvm->vcpus[i], errp)) {
            return false;
        }
    }
    return kvm_put_chips(kvm, errp);
}

static bool keep_power_on_state(Kvm *kvm, GError **errp)
{
    kvm_clock_stopped(kvm);
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        KvmVcpu *v = &kvm->vcpus[i];
        if (!kvm_get_vcpu(v, errp)) {
            return false;
        }
        v->power_on = g_memdup2(&v->state, sizeof(v->state));
    }
    if (!kvm_get_chips(kvm, errp)) {
        return false;
    }
    kvm->power_on = g_memdup2(&kvm->vm_state, sizeof(kvm->vm_state));
    return true;
}

static void wait_stopped(Kvm *kvm)
{
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        while (!kvm->vcpus[i].stopped) {
            g_cond_wait(&kvm->acknowledged, &kvm->lock);
        }
    }
}

static bool cpus_create(Machine *m, GError **errp)
{
    Kvm *kvm = m->accel_data;

    if (!keep_power_on_state(kvm, errp) || (!m->incoming && !power_on(kvm, errp))) {
        return false;
    }
    kvm_vcpu_install_kick();
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        g_autofree char *name = g_strdup_printf("CPU %u/KVM", i);
        kvm->vcpus[i].thread = g_thread_try_new(name, kvm_vcpu_thread, &kvm->vcpus[i], errp);
        if (!kvm->vcpus[i].thread) {
            return false;
        }
    }
    g_mutex_lock(&kvm->lock);
    wait_stopped(kvm);
    g_mutex_unlock(&kvm->lock);
    return true;
}

static void cpus_resume(Machine *m)
{
    Kvm *kvm = m->accel_data;

    kvm_clock_goes_on(kvm);
    g_mutex_lock(&kvm->lock);
    kvm->run = !kvm->failed;
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        kvm->vcpus[i].stopped = kvm->failed;
        kvm->vcpus[i].waiting = false;
    }
    g_cond_broadcast(&kvm->wake);
    g_mutex_unlock(&kvm->lock);
}

static void cpus_pause(Machine *m)
{
    Kvm *kvm = m->accel_data;

    g_mutex_lock(&kvm->lock);
    kvm->run = false;
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        kvm_vcpu_kick(&kvm->vcpus[i]);
    }
    g_cond_broadcast(&kvm->wake);   /* those that wait for what they asked for acknowledge, too */
    wait_stopped(kvm);
    g_mutex_unlock(&kvm->lock);
    kvm_clock_stopped(kvm);
}

static void cpus_throttle(Machine *m, unsigned percent)
{
    Kvm *kvm = m->accel_data;

    __atomic_store_n(&kvm->throttle, MIN(percent, 99), __ATOMIC_RELAXED);
    g_mutex_lock(&kvm->lock);
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        kvm_vcpu_kick(&kvm->vcpus[i]);
    }
    g_mutex_unlock(&kvm->lock);
}

static void cpus_reset(Machine *m)
{
    Kvm *kvm = m->accel_data;
    g_autoptr(GError) error = NULL;
    bool ok = power_on(kvm, &error);

    g_mutex_lock(&kvm->lock);
    kvm->failed = !ok;
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        kvm->vcpus[i].waiting = false;
    }
    g_mutex_unlock(&kvm->lock);
    if (!ok) {
        g_warning("the guest cannot be reset: %s", error->message);
        kvm_guest_request(kvm, MACHINE_REQUEST_INTERNAL_ERROR, 0);
    }
}

static void free_vcpu(Kvm *kvm, KvmVcpu *v)
{
    kvm_dirty_ring_unmap(v);
    if (v->run) {
        munmap(v->run, kvm->run_size);
    }
    if (v->fd >= 0) {
        close(v->fd);
    }
    g_free(v->power_on);
}

/* The threads have ended or have never been. */
static void kvm_free(Kvm *kvm)
{
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        free_vcpu(kvm, &kvm->vcpus[i]);
    }
    for (unsigned i = 0; i < kvm->n_slots; i++) {
        bitmap_free(kvm->slots[i].bitmap, kvm->slots[i].pages);
    }
    if (kvm->vm >= 0) {
        close(kvm->vm);
    }
    if (kvm->fd >= 0) {
        close(kvm->fd);
    }
    g_array_unref(kvm->io);
    g_mutex_clear(&kvm->devices);
    g_mutex_clear(&kvm->lock);
    g_mutex_clear(&kvm->ring_lock);
    g_mutex_clear(&kvm->logging_lock);
    g_cond_clear(&kvm->wake);
    g_cond_clear(&kvm->acknowledged);
    g_free(kvm->vcpus);
    g_free(kvm->power_on);
    g_free(kvm);
}

static void cpus_destroy(Machine *m)
{
    Kvm *kvm = m->accel_data;

    dirty_limiter_free(g_steal_pointer(&m->dirty_limiter));
    g_mutex_lock(&kvm->lock);
    kvm->quit = true;
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        kvm_vcpu_kick(&kvm->vcpus[i]);
    }
    g_cond_broadcast(&kvm->wake);
    g_clear_handle_id(&kvm->request_source, g_source_remove);
    g_mutex_unlock(&kvm->lock);
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        if (kvm->vcpus[i].thread) {
            g_thread_join(kvm->vcpus[i].thread);
        }
    }
    if (kvm->ops->destroy) {
        kvm->ops->destroy(m);
    }
    kvm_dirty_log_cleanup(kvm);
    kvm_unregister_state(kvm);
    kvm_free(kvm);
    m->accel_data = NULL;
}

static const CpuOps kvm_cpu_ops = {
    .create = cpus_create,
    .resume = cpus_resume,
    .pause = cpus_pause,
    .throttle = cpus_throttle,
    .reset = cpus_reset,
    .destroy = cpus_destroy,
};

/* ---- what a machine type sees ---- */

static bool create(Kvm *kvm, GError **errp)
{
    return open_vm(kvm, errp) && choose_dirty_method(kvm, errp) && create_chips(kvm, errp) &&
           add_slots(kvm, errp) &&
           kvm_cpuid_init(kvm, &kvm->cpuid_here, kvm->machine->cpus, kvm->machine->cpu_model, errp) &&
           (kvm->cpuid = kvm->cpuid_here, create_vcpus(kvm, errp)) && kvm_msr_list_init(kvm, errp);
}

Kvm *kvm_new(Machine *m, const KvmMachineOps *ops, void *opaque, GError **errp)
{
    Kvm *kvm = g_new0(Kvm, 1);

    kvm->machine = m;
    kvm->ops = ops;
    kvm->opaque = opaque;
    kvm->fd = kvm->vm = -1;
    kvm->io = g_array_new(FALSE, FALSE, sizeof(KvmIo));
    g_mutex_init(&kvm->devices);
    g_mutex_init(&kvm->lock);
    g_mutex_init(&kvm->ring_lock);
    g_mutex_init(&kvm->logging_lock);
    g_cond_init(&kvm->wake);
    g_cond_init(&kvm->acknowledged);
    if (!create(kvm, errp)) {
        if (errp && !g_error_matches(*errp, GODWIT_ERROR, GODWIT_ERROR_INVALID)) {
            g_prefix_error(errp, "cannot set up KVM: ");
        }
        kvm_free(kvm);
        return NULL;
    }
    kvm_register_state(kvm);
    kvm_dirty_log_init(kvm);
    kvm_dirty_limit_init(kvm);
    m->cpu_ops = &kvm_cpu_ops;
    m->accel_data = kvm;
    return kvm;
}

void *kvm_machine_data(const Machine *m)
{
    return ((Kvm *)m->accel_data)->opaque;
}

bool kvm_machine(const Machine *m)
{
    return m->cpu_ops == &kvm_cpu_ops;
}

void kvm_add_io(Kvm *kvm, const KvmIo *io)
{
    g_array_append_val(kvm->io, *io);
}

GMutex *kvm_device_lock(Kvm *kvm)
{
    return &kvm->devices;
}

void kvm_set_irq(Kvm *kvm, unsigned line, bool level)
{
    struct kvm_irq_level irq = { .irq = line, .level = level };

    if (ioctl(kvm->vm, KVM_IRQ_LINE, &irq) < 0) {
        g_warning("KVM_IRQ_LINE %u: %s", line, g_strerror(errno));
    }
}

/* Main loop. */
static gboolean tell_request(gpointer opaque)
{
    Kvm *kvm = opaque;
    Machine *m = kvm->machine;

    g_mutex_lock(&kvm->lock);
    MachineRequest what = kvm->request;
    int status = kvm->request_status;
    kvm->request_source = 0;
    g_mutex_unlock(&kvm->lock);
    if (m->guest_request) {
        m->guest_request(m, what, status, m->guest_request_opaque);
    }
    return G_SOURCE_REMOVE;
}

void kvm_guest_request(Kvm *kvm, MachineRequest what, int status)
{
    g_mutex_lock(&kvm->lock);
    if (!kvm->request_source && !kvm->quit) {
        kvm->request = what;
        kvm->request_status = status;
        kvm->request_source = g_idle_add_full(G_PRIORITY_DEFAULT, tell_request, kvm, NULL);
    }
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        if (kvm->vcpus[i].thread == g_thread_self()) {
            kvm->vcpus[i].waiting = true;
            kvm->vcpus[i].run->immediate_exit = 1;
        }
    }
    g_mutex_unlock(&kvm->lock);
}
