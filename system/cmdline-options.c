/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of command line options, and what each does to a VmConfig. */
#include "cmdline-internal.h"

#include "system/keyval.h"
#include "util/error.h"

#include <stddef.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* ---- simple options ---- */

#define TARGET(use, type) ((type *)(void *)((char *)(use)->config + (use)->option->target))

static bool set_flag(const CmdlineUse *use, GError **errp)
{
    *TARGET(use, bool) = true;
    return true;
}

static bool set_text(const CmdlineUse *use, GError **errp)
{
    char **target = TARGET(use, char *);

    g_free(*target);
    *target = g_strdup(use->arg);
    return true;
}

static bool add_text(const CmdlineUse *use, GError **errp)
{
    g_ptr_array_add(*TARGET(use, GPtrArray *), config_text_new(use->arg, use->location));
    return true;
}

/* Understood, and without effect. */
static bool ignore(const CmdlineUse *use, GError **errp)
{
    return true;
}

/* A key=value list whose keys are checked and which has no effect. */
static bool ignore_list(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, NULL, KEYVAL_OPTS, errp);

    return kv && keyval_check_keys(kv, use->option->keys, errp);
}

/* Like ignore_list(), and the first word may stand without its key. */
static bool ignore_list_implied(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, use->option->keys[0], KEYVAL_OPTS, errp);

    return kv && keyval_check_keys(kv, use->option->keys, errp);
}

/* A device class of which only the absence can be had. */
static bool only_none(const CmdlineUse *use, GError **errp)
{
    if (strcmp(use->arg, "none") == 0) {
        return true;
    }
    return error_set_invalid(errp, "only 'none' is supported");
}

static bool ask(const CmdlineUse *use, ConfigAction action, const char *text)
{
    use->config->action = action;
    use->config->help_text = g_strdup(text);
    return true;
}

static bool ask_help(const CmdlineUse *use, GError **errp)
{
    return ask(use, CONFIG_HELP, NULL);
}

static bool ask_help_man(const CmdlineUse *use, GError **errp)
{
    return ask(use, CONFIG_HELP_MAN, NULL);
}

static bool ask_version(const CmdlineUse *use, GError **errp)
{
    return ask(use, CONFIG_VERSION, NULL);
}

static bool ask_check(const CmdlineUse *use, GError **errp)
{
    return ask(use, CONFIG_CHECK, NULL);
}

/* ---- machine ---- */

static void add_accel(VmConfig *config, const char *name, const char *location, char **properties)
{
    ConfigAccel *accel = g_new0(ConfigAccel, 1);

    accel->name = g_strdup(name);
    accel->location = g_strdup(location);
    accel->properties = properties ? properties : g_new0(char *, 1);
    g_ptr_array_add(config->accels, accel);
}

static bool apply_accel(const CmdlineUse *use, GError **errp)
{
    if (keyval_wants_help(use->arg)) {
        return ask(use, CONFIG_HELP_ACCELS, NULL);
    }
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "accel", KEYVAL_OPTS, errp);
    if (!kv) {
        return false;
    }
    g_autoptr(GPtrArray) properties = g_ptr_array_new_with_free_func(g_free);
    for (unsigned i = 0; i < kv->pairs->len; i++) {
        const KeyValPair *pair = &g_array_index(kv->pairs, KeyValPair, i);

        if (strcmp(pair->key, "accel") != 0) {
            g_ptr_array_add(properties, g_strdup_printf("%s=%s", pair->key, pair->value));
        }
    }
    g_ptr_array_add(properties, NULL);
    const char *name = keyval_get(kv, "accel");
    if (!name) {
        return error_set_invalid(errp, "Parameter 'accel' is missing");
    }
    add_accel(use->config, name, use->location, (char **)g_ptr_array_steal(properties, NULL));
    return true;
}

static bool apply_enable_kvm(const CmdlineUse *use, GError **errp)
{
    add_accel(use->config, "kvm", use->location, NULL);
    return true;
}

static void machine_property(VmConfig *config, const KeyValPair *pair)
{
    if (strcmp(pair->key, "type") == 0) {
        g_free(config->machine);
        config->machine = g_strdup(pair->value);
    } else if (strcmp(pair->key, "accel") == 0) {
        g_auto(GStrv) names = g_strsplit(pair->value, ":", -1);

        for (int i = 0; names[i]; i++) {
            add_accel(config, names[i], NULL, NULL);
        }
        if (!names[0]) {
            add_accel(config, "", NULL, NULL);
        }
    } else if (strcmp(pair->key, "memory-backend") == 0) {
        g_free(config->memory_backend);
        config->memory_backend = g_strdup(pair->value);
    } else {
        g_hash_table_replace(config->machine_properties, g_strdup(pair->key), g_strdup(pair->value));
    }
}

static bool apply_machine(const CmdlineUse *use, GError **errp)
{
    bool help = keyval_wants_help(use->arg);
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "type", help ? KEYVAL_OPTS : KEYVAL_STRICT, errp);

    if (!kv) {
        return false;
    }
    const char *type = keyval_get(kv, "type");
    if (help) {
        bool list = type && (strcmp(type, "help") == 0 || strcmp(type, "?") == 0);
        return list ? ask(use, CONFIG_HELP_MACHINES, NULL)
                    : ask(use, CONFIG_HELP_MACHINE, type ? type : use->config->machine);
    }
    for (unsigned i = 0; i < kv->pairs->len; i++) {
        machine_property(use->config, &g_array_index(kv->pairs, KeyValPair, i));
    }
    return true;
}

static bool apply_cpu(const CmdlineUse *use, GError **errp)
{
    if (keyval_wants_help(use->arg)) {
        return ask(use, CONFIG_HELP_CPUS, NULL);
    }
    return set_text(use, errp);
}

/* What is wrong with -smp is told without the option's name, once, when everything else has been read. */
static bool smp_wrong(VmConfig *config, const char *format, ...) G_GNUC_PRINTF(2, 3);
static bool smp_wrong(VmConfig *config, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    g_free(config->cpus_error);
    config->cpus_error = g_strdup_vprintf(format, ap);
    va_end(ap);
    return true;
}

/* The levels of a CPU topology, outermost first. */
static const char *const smp_levels[] = {
    "drawers", "books", "sockets", "dies", "clusters", "modules", "cores", "threads",
};

/* Reads one member of -smp; false when it is bad, which has been noted then. */
static bool smp_number(VmConfig *config, const KeyVal *kv, const char *key, uint64_t *out)
{
    g_autoptr(GError) err = NULL;

    if (!keyval_get_uint(kv, key, UINT32_MAX, out, &err)) {
        smp_wrong(config, "Parameter 'smp.%s' expects integer", key);
        return false;
    }
    if (keyval_get(kv, key) && *out == 0) {
        smp_wrong(config, "Invalid CPU topology: CPU topology parameters must be greater than zero");
        return false;
    }
    return true;
}

static bool apply_smp(const CmdlineUse *use, GError **errp)
{
    VmConfig *config = use->config;
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "cpus", KEYVAL_STRICT, errp);
    uint64_t cpus = 0, max_cpus = 0, product = 1;
    bool any_level = false;

    if (!kv) {
        return false;
    }
    for (unsigned i = 0; i < kv->pairs->len; i++) {
        const KeyValPair *pair = &g_array_index(kv->pairs, KeyValPair, i);

        if (!g_strv_contains(use->option->keys, pair->key)) {
            return smp_wrong(config, "Parameter 'smp.%s' is unexpected", pair->key);
        }
    }
    if (!smp_number(config, kv, "cpus", &cpus) || !smp_number(config, kv, "maxcpus", &max_cpus)) {
        return true;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(smp_levels); i++) {
        uint64_t n = 1;

        if (!smp_number(config, kv, smp_levels[i], &n)) {
            return true;
        }
        any_level |= keyval_get(kv, smp_levels[i]) != NULL;
        product = n > UINT32_MAX / product ? UINT32_MAX : product * n;
    }
    cpus = cpus ? cpus : max_cpus ? max_cpus : product;
    max_cpus = max_cpus ? max_cpus : cpus;
    if (any_level && max_cpus % product != 0) {
        return smp_wrong(config,
                         "Invalid CPU topology: product of the hierarchy must match maxcpus: %u != %u",
                         (unsigned)product, (unsigned)max_cpus);
    }
    if (max_cpus < cpus) {
        return smp_wrong(config,
                         "Invalid CPU topology: maxcpus must be equal to or greater than smp: %u < %u",
                         (unsigned)max_cpus, (unsigned)cpus);
    }
    config->cpus = (unsigned)cpus;
    config->max_cpus = (unsigned)max_cpus;
    return true;
}

static bool apply_name(const CmdlineUse *use, GError **errp)
{
    VmConfig *config = use->config;
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "guest", KEYVAL_OPTS, errp);

    if (!kv || !keyval_check_keys(kv, use->option->keys, errp) ||
        !keyval_get_bool(kv, "debug-threads", &config->debug_threads, errp)) {
        return false;
    }
    if (keyval_get(kv, "guest")) {
        g_free(config->name);
        config->name = g_strdup(keyval_get(kv, "guest"));
    }
    if (keyval_get(kv, "process")) {
        g_free(config->process_name);
        config->process_name = g_strdup(keyval_get(kv, "process"));
    }
    return true;
}

/* 8-4-4-4-12 hexadecimal digits. */
static bool parse_uuid(const char *text, uint8_t uuid[16])
{
    if (!g_uuid_string_is_valid(text)) {
        return false;
    }
    for (unsigned n = 0; n < 16; n++) {
        text += *text == '-';
        uuid[n] = (uint8_t)(g_ascii_xdigit_value(text[0]) << 4 | g_ascii_xdigit_value(text[1]));
        text += 2;
    }
    return true;
}

static bool apply_uuid(const CmdlineUse *use, GError **errp)
{
    if (!parse_uuid(use->arg, use->config->uuid)) {
        return error_set_invalid(errp, "failed to parse UUID string: wrong format");
    }
    use->config->has_uuid = true;
    return true;
}

/* ---- memory ---- */

static bool apply_memory(const CmdlineUse *use, GError **errp)
{
    VmConfig *config = use->config;
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "size", KEYVAL_OPTS, errp);
    const char *size;

    if (!kv || !keyval_check_keys(kv, use->option->keys, errp)) {
        return false;
    }
    size = keyval_get(kv, "size");
    if (size) {
        if (!keyval_parse_size("size", size, MIB, &config->ram_size, errp)) {
            return false;
        }
        config->has_ram_size = true;
    }
    config->has_max_ram_size |= keyval_get(kv, "maxmem") != NULL;
    return keyval_get_size(kv, "maxmem", &config->max_ram_size, errp) &&
           keyval_get_uint(kv, "slots", UINT64_MAX, &config->ram_slots, errp);
}

static bool apply_object(const CmdlineUse *use, GError **errp)
{
    if (use->arg[0] != '{' && keyval_wants_help(use->arg)) {
        g_autofree char *type = g_strndup(use->arg, strcspn(use->arg, ","));
        bool list = strcmp(type, "help") == 0 || strcmp(type, "?") == 0;

        return ask(use, list ? CONFIG_HELP_OBJECTS : CONFIG_HELP_OBJECT, list ? NULL : type);
    }
    return add_text(use, errp);
}

static bool apply_overcommit(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, NULL, KEYVAL_OPTS, errp);
    bool cpu_pm = false;

    return kv && keyval_check_keys(kv, use->option->keys, errp) &&
           keyval_get_bool(kv, "mem-lock", &use->config->lock_memory, errp) &&
           keyval_get_bool(kv, "cpu-pm", &cpu_pm, errp);
}

/* ---- migration ---- */

/* "driver.property=value", whatever the value holds. */
static ConfigGlobal *split_global(const char *text)
{
    const char *dot = strpbrk(text, ".=");
    const char *equals = dot && *dot == '.' ? strchr(dot, '=') : NULL;

    if (!equals || dot == text || equals == dot + 1) {
        return NULL;
    }
    ConfigGlobal *g = g_new0(ConfigGlobal, 1);
    g->driver = g_strndup(text, (gsize)(dot - text));
    g->property = g_strndup(dot + 1, (gsize)(equals - dot - 1));
    g->value = g_strdup(equals + 1);
    return g;
}

static bool apply_global(const CmdlineUse *use, GError **errp)
{
    ConfigGlobal *global = split_global(use->arg);

    if (!global) {
        g_autoptr(KeyVal) kv = keyval_parse(use->arg, NULL, KEYVAL_OPTS, errp);

        if (!kv || !keyval_check_keys(kv, use->option->keys, errp)) {
            return false;
        }
        if (!keyval_get(kv, "driver") || !keyval_get(kv, "property") || !keyval_get(kv, "value")) {
            return error_set_invalid(errp, "options 'driver', 'property', and 'value' are required");
        }
        global = g_new0(ConfigGlobal, 1);
        global->driver = g_strdup(keyval_get(kv, "driver"));
        global->property = g_strdup(keyval_get(kv, "property"));
        global->value = g_strdup(keyval_get(kv, "value"));
    }
    g_ptr_array_add(use->config->globals, global);
    return true;
}

/* ---- monitors and character devices ---- */

static ConfigMonitor *new_monitor(const CmdlineUse *use, const char *device)
{
    ConfigMonitor *m = g_new0(ConfigMonitor, 1);

    m->by_id = g_str_has_prefix(device, "chardev:");
    m->device = g_strdup(m->by_id ? device + strlen("chardev:") : device);
    m->location = g_strdup(use->location);
    g_ptr_array_add(use->config->monitors, m);
    return m;
}

static bool apply_monitor(const CmdlineUse *use, GError **errp)
{
    if (strcmp(use->arg, "none") == 0) {
        use->config->no_monitor = true;
    } else {
        new_monitor(use, use->arg);
    }
    return true;
}

static bool apply_qmp(const CmdlineUse *use, GError **errp)
{
    ConfigMonitor *m = new_monitor(use, use->arg);

    m->control = true;
    m->pretty = strcmp(use->option->name, "qmp-pretty") == 0;
    return true;
}

static bool apply_mon(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "chardev", KEYVAL_OPTS, errp);
    bool pretty = false;

    if (!kv || !keyval_check_keys(kv, use->option->keys, errp) ||
        !keyval_get_bool(kv, "pretty", &pretty, errp)) {
        return false;
    }
    const char *device = keyval_get(kv, "chardev"), *mode = keyval_get(kv, "mode");
    bool control = mode && strcmp(mode, "control") == 0;
    if (!device) {
        return error_set_invalid(errp, "Parameter 'chardev' is missing");
    }
    if (mode && !control && strcmp(mode, "readline") != 0) {
        return error_set_invalid(errp, "Parameter 'mode' does not accept value '%s'", mode);
    }
    if (pretty && !control) {
        return error_set_invalid(errp, "'pretty' is not compatible with HMP monitors");
    }
    ConfigMonitor *m = new_monitor(use, device);
    m->by_id = true;
    m->control = control;
    m->pretty = pretty;
    return true;
}

static bool apply_chardev(const CmdlineUse *use, GError **errp)
{
    if (strcmp(use->arg, "help") == 0 || strcmp(use->arg, "?") == 0) {
        return ask(use, CONFIG_HELP_CHARDEVS, NULL);
    }
    return add_text(use, errp);
}

static bool apply_serial(const CmdlineUse *use, GError **errp)
{
    return strcmp(use->arg, "none") == 0 || add_text(use, errp);
}

/* A key that must be there and must not be negative. */
static bool get_required_number(KeyVal *kv, const char *key, uint64_t max, uint64_t *out, GError **errp)
{
    const char *value = keyval_get(kv, key);

    if (!value || value[0] == '-') {
        return error_set_invalid(errp, "%s option is required and must be non-negative", key);
    }
    return keyval_get_uint(kv, key, max, out, errp);
}

static bool apply_add_fd(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, NULL, KEYVAL_OPTS, errp);
    uint64_t fd = 0, set = 0;

    if (!kv || !keyval_check_keys(kv, use->option->keys, errp) ||
        !get_required_number(kv, "fd", G_MAXINT, &fd, errp)) {
        return false;
    }
    if (fd <= 2) {
        return error_set_invalid(errp, "fd cannot be a standard I/O stream");
    }
    if (!get_required_number(kv, "set", INT64_MAX, &set, errp)) {
        return false;
    }
    ConfigFd *f = g_new0(ConfigFd, 1);
    f->fd = (int)fd;
    f->set = (int64_t)set;
    f->opaque = g_strdup(keyval_get(kv, "opaque"));
    f->location = g_strdup(use->location);
    g_ptr_array_add(use->config->fds, f);
    return true;
}

static bool apply_display(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "type", KEYVAL_OPTS, errp);

    if (!kv) {
        return false;
    }
    const char *type = keyval_get(kv, "type");
    if (!type) {
        return error_set_invalid(errp, "Parameter 'type' is missing");
    }
    if (strcmp(type, "none") != 0) {
        return error_set_invalid(errp, "Parameter 'type' does not accept value '%s'", type);
    }
    if (kv->pairs->len > 1) {
        return error_set_invalid(errp, "Parameter '%s' is unexpected",
                                 g_array_index(kv->pairs, KeyValPair, 1).key);
    }
    return true;
}

static bool apply_vga(const CmdlineUse *use, GError **errp)
{
    return strcmp(use->arg, "none") == 0 || error_set_invalid(errp, "unknown vga type: %s", use->arg);
}

/* ---- the process ---- */

/* Values of -action. */
static const struct {
    const char *key;
    const char *const *values;
} actions[] = {
    {"reboot", (const char *const[]){"reset", "shutdown", NULL}},
    {"shutdown", (const char *const[]){"poweroff", "pause", NULL}},
    {"panic", (const char *const[]){"none", "pause", "shutdown", "exit-failure", NULL}},
    {"watchdog",
     (const char *const[]){"reset", "shutdown", "poweroff", "pause", "debug", "none", "inject-nmi", NULL}},
};

static bool apply_action(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, NULL, KEYVAL_OPTS, errp);

    if (!kv || !keyval_check_keys(kv, use->option->keys, errp)) {
        return false;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(actions); i++) {
        const char *value = keyval_get(kv, actions[i].key);

        if (value && !g_strv_contains(actions[i].values, value)) {
            return error_set_invalid(errp, "Parameter '%s' does not accept value '%s'", actions[i].key,
                                     value);
        }
    }
    const char *reboot = keyval_get(kv, "reboot"), *shutdown = keyval_get(kv, "shutdown");
    use->config->no_reboot = reboot ? strcmp(reboot, "shutdown") == 0 : use->config->no_reboot;
    use->config->no_shutdown = shutdown ? strcmp(shutdown, "pause") == 0 : use->config->no_shutdown;
    return true;
}

static bool apply_run_with(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, NULL, KEYVAL_OPTS, errp);
    bool teardown = false;

    return kv && keyval_check_keys(kv, use->option->keys, errp) &&
           keyval_get_bool(kv, "async-teardown", &teardown, errp) &&
           keyval_get_bool(kv, "exit-with-parent", &use->config->exit_with_parent, errp);
}

static bool apply_sandbox(const CmdlineUse *use, GError **errp)
{
    static const char *const allow_deny[] = {"allow", "deny", "children", NULL};
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "enable", KEYVAL_OPTS, errp);
    bool on = false;

    if (!kv || !keyval_check_keys(kv, use->option->keys, errp) || !keyval_get_bool(kv, "enable", &on, errp)) {
        return false;
    }
    for (int i = 1; use->option->keys[i]; i++) {
        const char *value = keyval_get(kv, use->option->keys[i]);

        if (value && !g_strv_contains(allow_deny, value)) {
            return error_set_invalid(errp, "invalid argument for %s", use->option->keys[i]);
        }
    }
    return !on || error_set_invalid(errp, "system call filtering is not supported: only 'off' is accepted");
}

static bool apply_seed(const CmdlineUse *use, GError **errp)
{
    uint64_t seed = 0;

    return keyval_parse_uint("seed", use->arg, UINT64_MAX, &seed, NULL) ||
           error_set_invalid(errp, "Invalid seed number: %s", use->arg);
}

static bool apply_data_dir(const CmdlineUse *use, GError **errp)
{
    return strcmp(use->arg, "help") != 0 || ask(use, CONFIG_HELP_DATA_DIRS, NULL);
}

/* ---- tracing and messages ---- */

/* Items of a peer that have no meaning here, but stand in many scripts. */
static const char *const silent_log_items[] = {
    "out_asm", "in_asm", "op",     "op_opt", "op_ind",    "op_plugin",   "int",          "exec",
    "cpu",     "fpu",    "mmu",    "pcall",  "cpu_reset", "unimp",       "guest_errors", "page",
    "nochain", "plugin", "strace", "tid",    "vpu",       "invalid_mem", NULL,
};

char *cmdline_log_items(void)
{
    g_autofree char *silent = g_strjoinv(" ", (char **)silent_log_items);

    return g_strdup_printf("Log items (comma separated):\n"
                           "%-15s %s\n"
                           "Accepted, without effect: %s\n",
                           "trace:PATTERN", "enable trace events; trace:help lists them", silent);
}

static bool apply_log_item(const CmdlineUse *use, const char *item)
{
    if (g_str_has_prefix(item, "trace:")) {
        const char *pattern = item + strlen("trace:");

        if (strcmp(pattern, "help") == 0) {
            return ask(use, CONFIG_HELP_TRACE, NULL);
        }
        g_ptr_array_add(use->config->trace_patterns, config_text_new(pattern, NULL));
        return true;
    }
    return g_strv_contains(silent_log_items, item) || ask(use, CONFIG_HELP_LOG_ITEMS, NULL);
}

static bool apply_log_items(const CmdlineUse *use, GError **errp)
{
    g_auto(GStrv) items = g_strsplit(use->arg, ",", -1);

    if (!items[0]) {
        return ask(use, CONFIG_HELP_LOG_ITEMS, NULL);
    }
    for (int i = 0; items[i] && use->config->action == CONFIG_RUN; i++) {
        apply_log_item(use, items[i]);
    }
    return true;
}

static bool apply_trace(const CmdlineUse *use, GError **errp)
{
    VmConfig *config = use->config;

    if (strcmp(use->arg, "help") == 0 || strcmp(use->arg, "?") == 0) {
        return ask(use, CONFIG_HELP_TRACE, NULL);
    }
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, "enable", KEYVAL_OPTS, errp);
    if (!kv || !keyval_check_keys(kv, use->option->keys, errp)) {
        return false;
    }
    const char *pattern = keyval_get(kv, "enable"), *events = keyval_get(kv, "events");
    const char *file = keyval_get(kv, "file");
    if (pattern) {
        g_ptr_array_add(config->trace_patterns, config_text_new(pattern, use->location));
    }
    if (events) {
        g_ptr_array_add(config->trace_files, g_strdup(events));
    }
    if (file) {
        g_free(config->log_file);
        config->log_file = g_strdup(file);
    }
    return true;
}

static bool apply_msg(const CmdlineUse *use, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_parse(use->arg, NULL, KEYVAL_OPTS, errp);

    return kv && keyval_check_keys(kv, use->option->keys, errp) &&
           keyval_get_bool(kv, "timestamp", &use->config->message_timestamps, errp) &&
           keyval_get_bool(kv, "guest-name", &use->config->message_name, errp);
}

static bool apply_fault(const CmdlineUse *use, GError **errp)
{
    if (strcmp(use->arg, "help") == 0 || strcmp(use->arg, "?") == 0) {
        return ask(use, CONFIG_HELP_FAULTS, NULL);
    }
    return add_text(use, errp);
}

bool cmdline_finish(VmConfig *config, GError **errp)
{
    if (config->action != CONFIG_RUN) {
        return true;
    }
    if (config->cpus_error) {
        return error_set_invalid(errp, "%s", config->cpus_error);
    }
    if (config->has_max_ram_size && config->max_ram_size < config->ram_size) {
        return error_set_invalid(errp,
                      "invalid value of maxmem: maximum memory size (0x%" G_GINT64_MODIFIER "x) must be at "
                      "least the initial memory size (0x%" G_GINT64_MODIFIER "x)",
                      config->max_ram_size, config->ram_size);
    }
    if (config->ram_slots > 0 && !config->has_max_ram_size) {
        return error_set_invalid(errp, "slots specified but no max-size");
    }
    if (config->incoming->len > 0 && config->loadvm) {
        return error_set_invalid(errp, "'incoming' and 'loadvm' options are mutually exclusive");
    }
    if (config->loadvm) {
        return error_set_invalid(errp, "no block device can store vmstate for snapshot");
    }
    if (config->memory_backend && config->mem_path) {
        return error_set_invalid(errp, "'-mem-path' can't be used together with'-machine memory-backend'");
    }
    return true;
}

/* ---- the table ---- */

#define KEYS(...) (const char *const[]){__VA_ARGS__, NULL}
#define FIELD(field) offsetof(VmConfig, field)

const CmdlineOption cmdline_options[] = {
    {"machine", "M", "[type=]NAME[,PROPERTY=VALUE...]", SECTION_MACHINE, apply_machine, 0, NULL,
     "Machine type: none (the default) has memory and nothing else; workload has virtual CPUs that write "
     "to memory by a pattern; pico runs a real guest on KVM. `-machine help` lists the types, `-machine "
     "NAME,help` a type's properties. "
     "memory-backend=ID takes guest memory from -object ID; accel=A:B is -accel A, or B where A cannot be "
     "had."},
    {"accel", NULL, "NAME[,PROPERTY=VALUE...]", SECTION_MACHINE, apply_accel, 0, NULL,
     "Accelerator. Given several times, the first that works is used. `-accel help` lists them."},
    {"cpu", NULL, "MODEL", SECTION_MACHINE, apply_cpu, FIELD(cpu_model), NULL,
     "CPU model; machine none has no CPUs and refuses it, workload has one model only. Machine pico has "
     "host, from which features can be taken away: host,-avx2."},
    {"smp", NULL, "[cpus=]N[,maxcpus=N][,sockets=N][,cores=N][,threads=N]", SECTION_MACHINE, apply_smp, 0,
     KEYS("cpus", "maxcpus", "drawers", "books", "sockets", "dies", "clusters", "modules", "cores",
          "threads"),
     "Number of virtual CPUs. Machine none has none; it takes 1 all the same."},
    {"kernel", NULL, "FILE", SECTION_MACHINE, set_text, FIELD(kernel), NULL,
     "What machine pico boots: an ELF file with a PVH note, or a Linux bzImage."},
    {"initrd", NULL, "FILE", SECTION_MACHINE, set_text, FIELD(initrd), NULL,
     "Initial RAM disk of the kernel."},
    {"append", NULL, "TEXT", SECTION_MACHINE, set_text, FIELD(append), NULL, "Command line of the kernel."},
    {"name", NULL, "[guest=]NAME[,process=COMM][,debug-threads=on|off]", SECTION_MACHINE, apply_name, 0,
     KEYS("guest", "process", "debug-threads"),
     "Name of the guest, as query-name shows it, and of the process, as ps shows it."},
    {"uuid", NULL, "UUID", SECTION_MACHINE, apply_uuid, 0, NULL,
     "UUID of the guest, in the form 8-4-4-4-12. It travels if capability validate-uuid is on."},

    {"m", NULL, "[size=]N[,slots=N,maxmem=N]", SECTION_MEMORY, apply_memory, 0,
     KEYS("size", "slots", "maxmem"),
     "Guest memory in MiB, or with a suffix b, k, M, G, T, P or E. Without it and without memory-backend= "
     "machine none has no memory; rounded up to 8 KiB."},
    {"object", NULL, "TYPE,id=ID[,PROPERTY=VALUE...]", SECTION_MEMORY, apply_object, FIELD(objects), NULL,
     "Creates an object: memory-backend-ram, -memfd or -file, also as a JSON object. `-object help` lists "
     "the types, `-object TYPE,help` the properties of one."},
    {"mem-path", NULL, "PATH", SECTION_MEMORY, set_text, FIELD(mem_path), NULL,
     "Guest memory of -m lives in the file PATH, or in an unnamed file in the directory PATH."},
    {"mem-prealloc", NULL, NULL, SECTION_MEMORY, set_flag, FIELD(mem_prealloc), NULL,
     "Allocates all guest memory before the machine starts."},
    {"overcommit", NULL, "[mem-lock=on|off][,cpu-pm=on|off]", SECTION_MEMORY, apply_overcommit, 0,
     KEYS("mem-lock", "cpu-pm"), "mem-lock=on locks all memory of the process. cpu-pm has no effect."},

    {"incoming", NULL, "URI|defer|CHANNEL", SECTION_MIGRATION, add_text, FIELD(incoming), NULL,
     "Waits for a migration from tcp:HOST:PORT, unix:PATH, fd:N, exec:COMMAND, vsock:CID:PORT or "
     "file:PATH[,offset=N]; defer leaves the address to the command migrate-incoming. CHANNEL is a "
     "channel as JSON or as dotted keys. The last one given counts."},
    {"global", NULL, "migration.NAME=VALUE", SECTION_MIGRATION, apply_global, 0,
     KEYS("driver", "property", "value"),
     "Sets a migration parameter, capability or compatibility property before anything starts; also as "
     "driver=migration,property=NAME,value=VALUE. migration.x-compat=7.2, 8.0, 8.2, 9.2, 11.0 or 11.1 "
     "sets what a peer of that age needs."},
    {"only-migratable", NULL, NULL, SECTION_MIGRATION, set_flag, FIELD(only_migratable), NULL,
     "Refuses devices that cannot migrate. All that exist here can."},
    {"loadvm", NULL, "TAG", SECTION_MIGRATION, set_text, FIELD(loadvm), NULL,
     "Always fails: there is no disk that could hold a snapshot."},

    {"qmp", NULL, "DEV", SECTION_MONITOR, apply_qmp, 0, NULL,
     "QMP monitor on DEV: unix:PATH[,server=on][,wait=off], tcp:HOST:PORT[,...], telnet:HOST:PORT[,...], "
     "stdio, pipe:PATH, file:PATH, pty, null or chardev:ID. A server waits for its first client unless "
     "wait=off."},
    {"qmp-pretty", NULL, "DEV", SECTION_MONITOR, apply_qmp, 0, NULL, "Like -qmp, with indented JSON."},
    {"monitor", NULL, "DEV", SECTION_MONITOR, apply_monitor, 0, NULL,
     "Human monitor on DEV, as for -qmp; none: no monitor."},
    {"mon", NULL, "[chardev=]ID[,mode=readline|control][,pretty=on|off]", SECTION_MONITOR, apply_mon, 0,
     KEYS("chardev", "mode", "pretty", "id"), "Monitor on the character device ID; control is QMP."},
    {"chardev", NULL, "TYPE,id=ID[,OPTION=VALUE...]", SECTION_MONITOR, apply_chardev, FIELD(chardevs), NULL,
     "Character device: socket (path=, or host= and port=, or fd=, with server=, wait=, telnet=, "
     "reconnect-ms=, ...), stdio, pipe, file, pty, null. logfile=PATH keeps a copy of the output."},
    {"serial", NULL, "DEV", SECTION_MONITOR, apply_serial, FIELD(serials), NULL,
     "Serial port on DEV, or on a -chardev: chardev:ID; none: no port. Machines other than pico open DEV and "
     "write nothing to it."},
    {"device", NULL, "DRIVER[,PROPERTY=VALUE][,...]", SECTION_MONITOR, add_text, FIELD(devices), NULL,
     "Device of machine pico: virtio-blk-device,drive=ID[,serial=TEXT]; virtio-rng-device; "
     "virtio-serial-device, and behind it virtconsole,chardev=ID."},
    {"drive", NULL, "if=none,id=ID,file=FILE[,format=raw][,readonly=on|off]", SECTION_MONITOR, add_text,
     FIELD(drives), NULL,
     "Disk image for a virtio-blk-device. Source and destination of a migration open the same FILE."},
    {"nographic", NULL, NULL, SECTION_MONITOR, set_flag, FIELD(nographic), NULL,
     "Human monitor on standard input and output, unless other monitors are asked for."},
    {"add-fd", NULL, "fd=N,set=M[,opaque=TEXT]", SECTION_MONITOR, apply_add_fd, 0,
     KEYS("fd", "set", "opaque"),
     "Puts an inherited descriptor into descriptor set M, for file:/dev/fdset/M."},

    {"S", NULL, NULL, SECTION_PROCESS, set_flag, FIELD(stopped), NULL,
     "Does not start the guest; the monitor command cont does."},
    {"daemonize", NULL, NULL, SECTION_PROCESS, set_flag, FIELD(daemonize), NULL,
     "Goes into the background once everything is set up; exit status and messages until then are the "
     "command's own."},
    {"pidfile", NULL, "FILE", SECTION_PROCESS, set_text, FIELD(pid_file), NULL,
     "Writes the process id to FILE and keeps it locked; removed at the end."},
    {"no-reboot", NULL, NULL, SECTION_PROCESS, set_flag, FIELD(no_reboot), NULL,
     "Exits where the guest would reset."},
    {"no-shutdown", NULL, NULL, SECTION_PROCESS, set_flag, FIELD(no_shutdown), NULL,
     "Stops the guest where the process would exit on its behalf."},
    {"action", NULL, "[reboot=reset|shutdown][,shutdown=poweroff|pause]", SECTION_PROCESS, apply_action, 0,
     KEYS("reboot", "shutdown", "panic", "watchdog"),
     "reboot=shutdown is -no-reboot, shutdown=pause is -no-shutdown."},
    {"run-with", NULL, "[exit-with-parent=on|off][,async-teardown=on|off]", SECTION_PROCESS, apply_run_with,
     0, KEYS("async-teardown", "exit-with-parent"),
     "exit-with-parent=on ends the process when the one that started it ends."},
    {"readconfig", NULL, "FILE", SECTION_PROCESS, add_text, FIELD(read_configs), NULL,
     "Reads more options from FILE: [GROUP \"ID\"] and KEY = \"VALUE\" lines."},
    {"sandbox", NULL, "off", SECTION_PROCESS, apply_sandbox, 0,
     KEYS("enable", "obsolete", "elevateprivileges", "spawn", "resourcecontrol"),
     "System call filtering; only off is accepted."},

    {"trace", NULL, "[enable=]PATTERN[,events=FILE][,file=FILE]", SECTION_DEBUG, apply_trace, 0,
     KEYS("enable", "events", "file"),
     "Switches trace events on, or off with a leading dash; * stands for anything. events=FILE holds one "
     "pattern a line; file=FILE is -D. `-trace help` lists the events."},
    {"d", NULL, "ITEM,...", SECTION_DEBUG, apply_log_items, 0, NULL,
     "Log items; trace:PATTERN is -trace PATTERN. `-d help` lists them."},
    {"D", NULL, "FILE", SECTION_DEBUG, set_text, FIELD(log_file), NULL,
     "Log and trace output to FILE instead of standard error; %d is replaced by the process id."},
    {"msg", NULL, "[timestamp=on|off][,guest-name=on|off]", SECTION_DEBUG, apply_msg, 0,
     KEYS("timestamp", "guest-name"), "What messages begin with."},
    {"qtest", NULL, "DEV", SECTION_DEBUG, set_text, FIELD(qtest), NULL,
     "Test server on DEV: reads and writes guest memory by text commands."},
    {"qtest-log", NULL, "FILE", SECTION_DEBUG, set_text, FIELD(qtest_log), NULL,
     "File for the lines that the test server receives and sends; none: no log, as without the option."},
    {"fault", NULL, "NAME:N[:ACTION]", SECTION_DEBUG, apply_fault, FIELD(faults), NULL,
     "The Nth pass through fault point NAME fails; ACTION is error, kill, stop or delay=MS. `-fault help` "
     "lists the points. Not in release builds."},

    {"help", "h", NULL, SECTION_INFO, ask_help, 0, NULL, "Prints this and exits."},
    {"version", NULL, NULL, SECTION_INFO, ask_version, 0, NULL, "Prints the version and exits."},
    {"check", NULL, NULL, SECTION_INFO, ask_check, 0, NULL,
     "Prints what this host and this build can do for migration, and exits."},
    {"help-man", NULL, NULL, SECTION_INFO, ask_help_man, 0, NULL,
     "Prints the options as a part of a man page."},

    {"display", NULL, "none", SECTION_COMPAT, apply_display, 0, NULL, "There is no display."},
    {"vga", NULL, "none", SECTION_COMPAT, apply_vga, 0, NULL, "There is no display adapter."},
    {"vnc", NULL, "none", SECTION_COMPAT, only_none, 0, NULL, "There is no display server."},
    {"net", NULL, "none", SECTION_COMPAT, only_none, 0, NULL, "There is no network adapter."},
    {"nic", NULL, "none", SECTION_COMPAT, only_none, 0, NULL, "There is no network adapter."},
    {"parallel", NULL, "none", SECTION_COMPAT, only_none, 0, NULL, "There is no parallel port."},
    {"nodefaults", NULL, NULL, SECTION_COMPAT, set_flag, FIELD(no_defaults), NULL,
     "No default devices: with -nographic, no monitor either."},
    {"no-user-config", NULL, NULL, SECTION_COMPAT, ignore, 0, NULL, "There is no configuration of the user."},
    {"enable-kvm", NULL, NULL, SECTION_COMPAT, apply_enable_kvm, 0, NULL, "Short for -accel kvm."},
    {"rtc", NULL, "[base=...][,clock=...][,driftfix=...]", SECTION_COMPAT, ignore_list, 0,
     KEYS("base", "clock", "driftfix"), "There is no clock device."},
    {"boot", NULL, "[order=...][,once=...][,menu=...][,strict=...]", SECTION_COMPAT, ignore_list_implied,
     0, KEYS("order", "once", "menu", "splash", "splash-time", "reboot-timeout", "strict"), "Nothing boots."},
    {"compat", NULL, "[deprecated-input=...][,...]", SECTION_COMPAT, ignore_list, 0,
     KEYS("deprecated-input", "deprecated-output", "unstable-input", "unstable-output"),
     "Nothing is deprecated."},
    {"seed", NULL, "N", SECTION_COMPAT, apply_seed, 0, NULL,
     "Nothing is random, except with -M workload,seed=N."},
    {"L", NULL, "DIR", SECTION_COMPAT, apply_data_dir, 0, NULL, "No data files are needed."},
    {"k", NULL, "LANGUAGE", SECTION_COMPAT, ignore, 0, NULL, "There is no keyboard."},
};
const size_t cmdline_n_options = G_N_ELEMENTS(cmdline_options);

const CmdlineForeign cmdline_foreign[] = {
    {"blockdev", true},
    {"cdrom", true},        {"fda", true},          {"fdb", true},
    {"hda", true},          {"hdb", true},          {"hdc", true},
    {"hdd", true},          {"sd", true},           {"pflash", true},
    {"mtdblock", true},     {"snapshot", false},    {"netdev", true},
    {"fsdev", true},        {"virtfs", true},       {"numa", true},
    {"dtb", true},          {"bios", true},         {"audio", true},
    {"audiodev", true},
    {"spice", true},        {"usb", false},         {"usbdevice", true},
    {"smbios", true},       {"acpitable", true},    {"fw_cfg", true},
    {"tpmdev", true},       {"gdb", true},          {"s", false},
    {"icount", true},       {"plugin", true},       {"semihosting", false},
    {"preconfig", false},   {"singlestep", false},  {"watchdog-action", true},
    {"set", true},          {"dump-vmstate", true}, {"iscsi", true},
    {"full-screen", false}, {"win2k-hack", false},  {"no-fd-bootchk", false},
    {"echr", true},         {"xen-domid", true},    {"prom-env", true},
    {"perfmap", false},     {"jitdump", false},
};
const size_t cmdline_n_foreign = G_N_ELEMENTS(cmdline_foreign);
