/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: what a destination sends back, message by message. */
#include <string.h>

#include "io/transport.h"
#include "migration/return-path.h"

#define MAX_MESSAGES 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autoptr(Channel) channel = channel_buffer_new(data, size);

    for (unsigned i = 0; i < MAX_MESSAGES; i++) {
        g_autoptr(GError) error = NULL;
        ReturnPathMessage message = { 0 };
        int result = return_path_read(channel, &message, &error);

        g_assert_true((result < 0) == (error != NULL));
        if (result <= 0) {
            break;
        }
        g_assert_true(message.type > 0 && message.type < RETURN_PATH__MAX);
        g_assert_true(memchr(message.block, 0, sizeof(message.block)) != NULL);
    }
    return 0;
}
