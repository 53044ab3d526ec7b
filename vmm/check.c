/* SPDX-License-Identifier: BSD-2-Clause */
/* --check: what this host and this build can do for migration. */
#include "vm.h"

#include "config.h"
#include "migration/migration.h"
#include "util/buffer-is-zero.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Room for the parameters of io_uring_setup(2), all zero: only whether it works is asked. */
#define IO_URING_PARAMS_SIZE 120

/* Each returns a text for the user; the caller frees. */
typedef char *(*HostProbe)(void);

static char *yes_or_why(bool ok)
{
    return ok ? g_strdup("yes") : g_strdup_printf("no: %s", g_strerror(errno));
}

static char *probe_fd(int fd)
{
    char *text = yes_or_why(fd >= 0);

    if (fd >= 0) {
        close(fd);
    }
    return text;
}

static char *probe_cpus(void)
{
    return g_strdup_printf("%u", g_get_num_processors());
}

static char *probe_zero_page(void)
{
    return g_strdup(buffer_is_zero_name());
}

static char *probe_io_uring(void)
{
    uint8_t params[IO_URING_PARAMS_SIZE] = {0};

    return probe_fd((int)syscall(SYS_io_uring_setup, 1, params));
}

static char *probe_userfaultfd(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {.api = UFFD_API};

    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0) {
        char *text = yes_or_why(false);
        if (fd >= 0) {
            close(fd);
        }
        return text;
    }
    close(fd);
    return g_strdup_printf("yes: shared memory %s, huge pages %s, write protection %s",
                           api.features & UFFD_FEATURE_MISSING_SHMEM ? "yes" : "no",
                           api.features & UFFD_FEATURE_MISSING_HUGETLBFS ? "yes" : "no",
                           api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP ? "yes" : "no");
}

static char *probe_kvm(void)
{
    return probe_fd(open("/dev/kvm", O_RDWR | O_CLOEXEC));
}

static char *probe_memfd(void)
{
    return probe_fd(memfd_create("check", MFD_CLOEXEC));
}

static char *probe_zero_copy(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    char *text = yes_or_why(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) == 0);

    if (fd >= 0) {
        close(fd);
    }
    return text;
}

/* "512 of 2048 kB" for each size that has pages, or none. */
static char *probe_huge_pages(void)
{
    GString *text = g_string_new(NULL);
    g_autoptr(GDir) dir = g_dir_open("/sys/kernel/mm/hugepages", 0, NULL);
    const char *name;

    while (dir && (name = g_dir_read_name(dir))) {
        g_autofree char *path = g_build_filename("/sys/kernel/mm/hugepages", name, "nr_hugepages", NULL);
        g_autofree char *count = NULL;

        if (g_str_has_prefix(name, "hugepages-") && g_file_get_contents(path, &count, NULL, NULL) &&
            strcmp(g_strstrip(count), "0") != 0) {
            g_string_append_printf(text, "%s%s of %s", text->len ? ", " : "", count,
                                   name + strlen("hugepages-"));
        }
    }
    if (text->len == 0) {
        g_string_append(text, "none reserved");
    }
    return g_string_free(text, false);
}

static char *probe_locked_memory(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) {
        return g_strdup("unlimited");
    }
    return g_strdup_printf("%llu KiB", (unsigned long long)limit.rlim_cur / 1024);
}

static char *probe_rdma(void)
{
    g_autoptr(GError) error = NULL;
    return g_strdup(migration_rdma_available(&error) ? "yes" : error->message);
}

static char *probe_faults(void)
{
#ifdef CONFIG_FAULT_INJECTION
    return g_strdup("built in");
#else
    return g_strdup("not built in");
#endif
}

static char *probe_line_editing(void)
{
#ifdef CONFIG_LIBEDIT
    return g_strdup("built in");
#else
    return g_strdup("not built in");
#endif
}

void vm_check_host(void)
{
    static const struct {
        const char *name;
        HostProbe probe;
    } probes[] = {
        {"CPUs", probe_cpus},
        {"zero page test", probe_zero_page},
        {"io_uring", probe_io_uring},
        {"userfaultfd", probe_userfaultfd},
        {"/dev/kvm", probe_kvm},
        {"memfd", probe_memfd},
        {"huge pages", probe_huge_pages},
        {"zero-copy send", probe_zero_copy},
        {"locked memory limit", probe_locked_memory},
        {"RDMA", probe_rdma},
        {"fault points", probe_faults},
        {"line editing", probe_line_editing},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(probes); i++) {
        g_autofree char *text = probes[i].probe();

        printf("%-20s %s\n", probes[i].name, text);
    }
}
