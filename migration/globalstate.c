/* SPDX-License-Identifier: BSD-2-Clause */
/* The section "globalstate". */
#include "migration/globalstate.h"

#include "util/error.h"

#include <string.h>

static bool globalstate_post_load(void *opaque, int version, GError **errp)
{
    GlobalState *g = opaque;
    char name[GLOBALSTATE_NAME_MAX + 1];

    memcpy(name, g->runstate, GLOBALSTATE_NAME_MAX);
    name[GLOBALSTATE_NAME_MAX] = '\0';
    int state = RunState_parse(name);
    if (state < 0) {
        g_autofree char *shown = g_strescape(name, NULL);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "Unknown run state '%s'", shown);
        return false;
    }
    g->state = (RunState)state;
    g->received = true;
    return true;
}

static const VMStateField globalstate_fields[] = {
    VMSTATE_FIELD(size, VMSTATE_UINT32, GlobalState),
    VMSTATE_FIELD(runstate, VMSTATE_BUFFER, GlobalState),
    VMSTATE_FIELD(has_vm_was_suspended, VMSTATE_UINT8, GlobalState),
    VMSTATE_FIELD(vm_was_suspended, VMSTATE_UINT8, GlobalState),
    VMSTATE_FIELD(unused, VMSTATE_BUFFER, GlobalState),
    VMSTATE_END,
};

const VMStateDescription vmstate_globalstate = {
    .name = "globalstate",
    .version = 1,
    .minimum_version = 1,
    .fields = globalstate_fields,
    .post_load = globalstate_post_load,
};

void globalstate_store(GlobalState *g, RunState state)
{
    const char *name = RunState_str(state);
    size_t len = strlen(name);

    g_assert(len < GLOBALSTATE_NAME_MAX);
    *g = (GlobalState){ .size = (uint32_t)len + 1, .has_vm_was_suspended = 1, .state = state };
    memcpy(g->runstate, name, len);
}

bool globalstate_is_suspended(const GlobalState *g)
{
    return g->received && (g->state == RUN_STATE_SUSPENDED ||
                           (g->has_vm_was_suspended == 1 && g->vm_was_suspended == 1));
}

bool globalstate_is_live(const GlobalState *g)
{
    return !g->received || g->state == RUN_STATE_RUNNING || globalstate_is_suspended(g);
}
