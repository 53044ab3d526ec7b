/* SPDX-License-Identifier: BSD-2-Clause */
/* Which compression methods of multifd there are in this build. */
#include "migration/multifd-compress.h"

#include "config.h"
#include "util/error.h"

static const MultifdCompressionOps *const methods[] = {
#ifdef CONFIG_ZLIB
    &multifd_zlib_ops,
#endif
#ifdef CONFIG_ZSTD
    &multifd_zstd_ops,
#endif
    NULL
};

const MultifdCompressionOps *multifd_compression(MultiFDCompression method, GError **errp)
{
    if (method == MULTIFD_COMPRESSION_NONE) {
        return NULL;
    }
    for (unsigned i = 0; methods[i]; i++) {
        if (methods[i]->method == method) {
            return methods[i];
        }
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "multifd-compression %s was not built in",
                MultiFDCompression_str(method));
    return NULL;
}
