/* SPDX-License-Identifier: BSD-2-Clause */
/* The embedding VMM as the library's own parts see it. */
#include "migration/host.h"

#include <stdarg.h>

void migration_host_log(const MigrationHost *host, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    host->ops->log(host->opaque, text);
}
