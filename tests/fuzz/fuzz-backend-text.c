/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: the key=value text of -object, as far as the options that it stands for. */
#include "system/backend.h"
#include "util/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Warnings about switches are not what is looked for. */
static void drop_message(const char *domain, GLogLevelFlags level, const char *message, void *opaque)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_log_set_handler(NULL, G_LOG_LEVEL_WARNING, drop_message, NULL);
    g_autofree char *text = g_strndup((const char *)data, size);
    g_autoptr(GError) error = NULL;
    g_autoptr(ObjectOptions) options = memory_backend_parse(text, &error);

    g_assert_true(!options == !!error);
    if (error) {
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    } else {
        g_assert_nonnull(options->id);
        g_assert_nonnull(options->u.memory_backend_ram);
    }
    return 0;
}
