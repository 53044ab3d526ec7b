/* SPDX-License-Identifier: BSD-2-Clause */
/* The godwit program. */
#include "config.h"
#include <stdio.h>

int main(void)
{
    printf("godwit " GODWIT_VERSION "\n");
    return 0;
}
