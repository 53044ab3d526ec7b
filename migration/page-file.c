/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening a file once more for guest pages, with O_DIRECT where that can be had. */
#include "migration/page-file.h"

#include "io/transport.h"
#include "migration/channels.h"
#include "system/ramblock.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool same_file(int a, int b)
{
    struct stat sa, sb;

    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* Where every write goes to the end of the file, whatever its position. */
static bool appends(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return (flags & O_ACCMODE) != O_RDONLY && (flags & O_APPEND);
}

/* From the fd set; the one found there must be of the same file. */
static int open_direct_from_set(const MigrationHost *host, int64_t id, int flags, int main_fd, GError **errp)
{
    int fd = host->ops->dup_fdset(host->opaque, id, flags, errp);

    if (fd >= 0 && (appends(fd) || !same_file(fd, main_fd))) {
        close(fd);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "the descriptor with O_DIRECT in fd set %" G_GINT64_FORMAT
                    " is of another file, or appends",
                    id);
        return -1;
    }
    return fd;
}

/* The file itself, whatever its name has come to mean. */
static int open_direct_again(int flags, int main_fd, GError **errp)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", main_fd);
    int fd = open(path, flags | O_CLOEXEC);

    if (fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "opening it with O_DIRECT");
    }
    return fd;
}

static int open_direct(const MigrationHost *host, const char *filename, int main_fd, GError **errp)
{
    int flags = (fcntl(main_fd, F_GETFL) & O_ACCMODE) | O_DIRECT;
    int64_t id;

    if (fault_point("page-file-direct", errp)) {
        return -1;
    }
    if (migration_is_fdset(filename, &id)) {
        int fd = open_direct_from_set(host, id, flags, main_fd, NULL);
        if (fd >= 0) {
            return fd;
        }
    }
    return open_direct_again(flags, main_fd, errp);
}

/* The file system says what it needs; 0: it cannot, or does not say. */
static unsigned stated_alignment(int fd, bool *stated)
{
#ifdef STATX_DIOALIGN
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 && (st.stx_mask & STATX_DIOALIGN)) {
        *stated = true;
        return MAX(st.stx_dio_mem_align, st.stx_dio_offset_align);
    }
#endif
    *stated = false;
    return 0;
}

/* On an old kernel: is a read of a page into a page refused?  A file not to be read is taken to be good. */
static bool probe_page(int fd)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    void *page = NULL;
    int again = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    bool ok = true;

    if (again >= 0 && posix_memalign(&page, TARGET_PAGE_SIZE, TARGET_PAGE_SIZE) == 0) {
        ok = pread(again, page, TARGET_PAGE_SIZE, 0) >= 0 || errno != EINVAL;
    }
    free(page);
    if (again >= 0) {
        close(again);
    }
    return ok;
}

static bool check_alignment(int fd, GError **errp)
{
    bool stated;
    unsigned alignment = stated_alignment(fd, &stated);

    if (stated && !alignment) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "the file system does not have it");
        return false;
    }
    if (alignment > TARGET_PAGE_SIZE || (!stated && !probe_page(fd))) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "it needs an alignment of %u octets, more than a guest page of %u", alignment,
                    TARGET_PAGE_SIZE);
        return false;
    }
    return true;
}

bool page_file_open(PageFile *file, const MigrationHost *host, const char *filename, Channel *main,
                    bool direct, GError **errp)
{
    int main_fd = channel_file_fd(main);
    g_autoptr(GError) refusal = NULL;

    file->direct = false;
    if (appends(main_fd)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "'%s' is open with O_APPEND: pages cannot be written at their places", filename);
        return false;
    }
    if (direct) {
        file->fd = open_direct(host, filename, main_fd, &refusal);
        if (file->fd >= 0 && check_alignment(file->fd, &refusal)) {
            file->direct = true;
            trace_page_file_open(filename, true);
            return true;
        }
        page_file_close(file);
        migration_host_log(host, "direct-io: '%s' is used through the page cache: %s", filename,
                           refusal->message);
    }
    file->fd = fcntl(main_fd, F_DUPFD_CLOEXEC, 0);
    if (file->fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Could not duplicate the descriptor of '%s'", filename);
        return false;
    }
    trace_page_file_open(filename, false);
    return true;
}

void page_file_close(PageFile *file)
{
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
}
