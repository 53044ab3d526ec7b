/* SPDX-License-Identifier: BSD-2-Clause */
/* The descriptor through which guest pages go to a file and come from it: buffered, or with O_DIRECT. */
#ifndef GODWIT_MIGRATION_PAGE_FILE_H
#define GODWIT_MIGRATION_PAGE_FILE_H

#include "io/channel.h"
#include "migration/host.h"

typedef struct PageFile {
    int fd;                 /* -1: not open */
    bool direct;            /* O_DIRECT: memory, offsets and lengths are whole pages */
} PageFile;

/*
 * Opens the file of @main, a seekable channel, once more for the same direction.  @filename is what the
 * user called it.  With @direct a descriptor with O_DIRECT is tried: from the fd set if @filename names one,
 * else by opening the file itself again. Where that is refused, or needs a coarser alignment than a guest
 * page, the page cache is used and the log says so; not an error.  What was opened for appending is refused.
 * Main thread.
 */
bool page_file_open(PageFile *file, const MigrationHost *host, const char *filename, Channel *main,
                    bool direct, GError **errp);

/* Does nothing if it is not open. */
void page_file_close(PageFile *file);

#endif
