/* SPDX-License-Identifier: BSD-2-Clause */
/* The small object tree that management programs look at. */

/*
 *     /               type objects machine chardevs
 *     /objects        a child for each memory backend
 *     /machine        type memory memory-backend smp peripheral peripheral-anon unattached
 *     /chardevs       a child for each character device
 *
 * The tree is not kept: a node is made when it is asked for, as a JSON object of its properties.  A child is
 * the member whose value is an object with the member "type"; so listing, looking up and reading need one
 * function each.
 */
#include "monitor-internal.h"

#include "qapi/qapi-commands-machine.h"
#include "qapi/qapi-commands-misc.h"
#include "qapi/qapi-visit-machine.h"
#include "util/error.h"

#include <string.h>

/* ---- making the tree ---- */

static json_t *new_node(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

static json_t *objects_node(MonitorContext *ctx)
{
    g_autoptr(MemdevList) list = qmp_query_memdev(ctx, NULL);
    json_t *node = new_node("container");

    for (size_t i = 0; i < list->count; i++) {
        const char *id = list->items[i]->id;
        const MemoryBackend *backend = memory_backend_find(ctx->backends, id);
        json_t *child = new_node(ObjectType_str(backend->options->qom_type));
        json_t *properties = qapi_Memdev_to_json(list->items[i]);
        json_object_del(properties, "id");
        json_object_update(child, properties);
        json_decref(properties);
        json_object_set_new(node, id, child);
    }
    return node;
}

static json_t *machine_node(MonitorContext *ctx)
{
    g_autofree char *type = g_strdup_printf("%s-machine", ctx->machine->type->name);
    json_t *node = new_node(type);

    json_object_set_new(node, "memory",
                        json_pack("{s:I}", "size", (json_int_t)ram_list_total(&ctx->machine->ram)));
    for (const MemoryBackend *b = ctx->backends->first; b; b = b->next) {
        if (b->in_use) {
            g_autofree char *path = g_strdup_printf("/objects/%s", b->id);
            json_object_set_new(node, "memory-backend", json_string(path));
            break;
        }
    }
    json_object_set_new(node, "smp", json_pack("{s:I}", "cpus", (json_int_t)ctx->machine->cpus));
    json_object_set_new(node, "peripheral", new_node("container"));
    json_object_set_new(node, "peripheral-anon", new_node("container"));
    json_object_set_new(node, "unattached", new_node("container"));
    return node;
}

static json_t *chardevs_node(MonitorContext *ctx)
{
    g_autoptr(ChardevInfoList) list = qmp_query_chardev(ctx, NULL);
    json_t *node = new_node("container");

    for (size_t i = 0; i < list->count; i++) {
        json_object_set_new(node, list->items[i]->label, new_node("chardev"));
    }
    return node;
}

static json_t *make_tree(MonitorContext *ctx)
{
    json_t *root = new_node("container");

    json_object_set_new(root, "objects", objects_node(ctx));
    json_object_set_new(root, "machine", machine_node(ctx));
    json_object_set_new(root, "chardevs", chardevs_node(ctx));
    return root;
}

/* ---- finding ---- */

static bool is_child(const json_t *value)
{
    return json_is_string(json_object_get(value, "type"));
}

/* The node at @path below @node, which the first word of @path names a child of. */
static json_t *find_below(json_t *node, char *const *path)
{
    for (; *path && node; path++) {
        if (**path) {
            node = json_object_get(node, *path);
            node = is_child(node) ? node : NULL;
        }
    }
    return node;
}

/* The first node anywhere that a path without a leading slash fits. */
static json_t *find_anywhere(json_t *node, char *const *path)
{
    json_t *found = find_below(node, path);
    const char *name;
    json_t *value;

    if (found) {
        return found;
    }
    json_object_foreach (node, name, value) {
        if (is_child(value) && (found = find_anywhere(value, path))) {
            return found;
        }
    }
    return NULL;
}

/* @tree must outlive the result. */
static json_t *find_node(json_t *tree, const char *path, GError **errp)
{
    g_auto(GStrv) words = g_strsplit(path, "/", -1);
    json_t *node = path[0] == '/' ? find_below(tree, words + 1) : *path ? find_anywhere(tree, words) : NULL;

    if (!node) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", path);
    }
    return node;
}

/* ---- commands ---- */

static char *type_of(const char *name, const json_t *value)
{
    if (is_child(value)) {
        return g_strdup_printf("child<%s>", json_string_value(json_object_get(value, "type")));
    }
    if (strcmp(name, "memory-backend") == 0) {
        return g_strdup("link<memory-backend>");
    }
    switch (json_typeof(value)) {
    case JSON_STRING:
        return g_strdup("string");
    case JSON_INTEGER:
        return g_strdup("int");
    case JSON_TRUE:
    case JSON_FALSE:
        return g_strdup("bool");
    default:
        return g_strdup("struct");
    }
}

json_t *qmp_qom_list(MonitorContext *ctx, const qom_list_arg *arg, GError **errp)
{
    json_t *tree = make_tree(ctx);
    json_t *node = find_node(tree, arg->path, errp);
    json_t *list = node ? json_array() : NULL;
    const char *name;
    json_t *value;

    json_object_foreach (node, name, value) {
        g_autofree char *type = type_of(name, value);
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "type", type));
    }
    json_decref(tree);
    return list;
}

json_t *qmp_qom_get(MonitorContext *ctx, const qom_get_arg *arg, GError **errp)
{
    json_t *tree = make_tree(ctx);
    json_t *node = find_node(tree, arg->path, errp);
    json_t *value = json_object_get(node, arg->property);

    if (is_child(value)) {
        g_autofree char *path =
            g_strdup_printf("%s/%s", strcmp(arg->path, "/") ? arg->path : "", arg->property);
        value = json_string(path);
    } else {
        json_incref(value);
    }
    if (node && !value) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Property '%s.%s' not found",
                    json_string_value(json_object_get(node, "type")), arg->property);
    }
    json_decref(tree);
    return value;
}

/* The types that do not depend on which machines there are. */
static const struct {
    const char *name, *parent;
    bool abstract;
} types[] = {
    { "container", "object", false },
    { "machine", "object", true },
    { "memory-backend", "object", true },
    { "memory-backend-file", "memory-backend", false },
    { "memory-backend-memfd", "memory-backend", false },
    { "memory-backend-ram", "memory-backend", false },
};

static void add_type(GPtrArray *found, const qom_list_types_arg *arg, const char *name, const char *parent,
                     bool abstract)
{
    bool wanted = !arg->implements || !strcmp(arg->implements, name) || !strcmp(arg->implements, parent) ||
                  !strcmp(arg->implements, "object");

    if (!wanted || (abstract && !arg->abstract)) {
        return;
    }
    ObjectTypeInfo *info = g_new0(ObjectTypeInfo, 1);
    info->name = g_strdup(name);
    info->parent = g_strdup(parent);
    info->has_abstract = info->abstract = abstract;
    g_ptr_array_add(found, info);
}

ObjectTypeInfoList *qmp_qom_list_types(MonitorContext *ctx, const qom_list_types_arg *arg, GError **errp)
{
    g_autoptr(GPtrArray) machines = machine_type_list();
    g_autoptr(GPtrArray) found = g_ptr_array_new();
    ObjectTypeInfoList *list = g_new0(ObjectTypeInfoList, 1);

    for (size_t i = 0; i < G_N_ELEMENTS(types); i++) {
        add_type(found, arg, types[i].name, types[i].parent, types[i].abstract);
    }
    for (guint i = 0; i < machines->len; i++) {
        const MachineType *type = g_ptr_array_index(machines, i);
        g_autofree char *name = g_strdup_printf("%s-machine", type->name);
        add_type(found, arg, name, "machine", false);
    }
    list->count = found->len;
    list->items = g_memdup2(found->pdata, found->len * sizeof(void *));
    return list;
}

static bool type_exists(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(types); i++) {
        if (!strcmp(types[i].name, name)) {
            return true;
        }
    }
    g_autofree char *machine = g_str_has_suffix(name, "-machine") ? g_strndup(name, strlen(name) - 8) : NULL;
    return machine && machine_type_find(machine);
}

static json_t *string_property(const char *name)
{
    return json_pack("{s:s, s:s}", "name", name, "type", "string");
}

json_t *qmp_qom_list_properties(MonitorContext *ctx, const qom_list_properties_arg *arg, GError **errp)
{
    if (!type_exists(arg->typename)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND, "Class '%s' not found", arg->typename);
        return NULL;
    }
    json_t *list = json_array();
    json_array_append_new(list, string_property("type"));
    if (g_str_has_suffix(arg->typename, "-machine")) {
        g_autofree char *name = g_strndup(arg->typename, strlen(arg->typename) - 8);
        const MachineType *type = machine_type_find(name);
        for (const char *const *p = type->properties; p && *p; p++) {
            json_array_append_new(list, string_property(*p));
        }
    }
    return list;
}

json_t *qmp_device_list_properties(MonitorContext *ctx, const device_list_properties_arg *arg, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", arg->typename);
    return NULL;
}
