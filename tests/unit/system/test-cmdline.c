/* SPDX-License-Identifier: BSD-2-Clause */
/* Unit test of the command line: what words become, and the peers' texts for what is wrong. */
#include "system/cmdline.h"

#include "util/error.h"

#include <string.h>

/* @words are separated by '|', so that a word may hold blanks. */
static bool parse_into(VmConfig *config, const char *words, GError **errp)
{
    g_autofree char *line = g_strconcat("godwit", words[0] ? "|" : "", words, NULL);
    g_auto(GStrv) argv = g_strsplit(line, "|", -1);

    return cmdline_parse(config, (int)g_strv_length(argv), argv, errp) && cmdline_finish(config, errp);
}

static VmConfig *parse(const char *words)
{
    g_autoptr(GError) err = NULL;
    VmConfig *config = vm_config_new();

    g_test_message("%s", words);
    parse_into(config, words, &err);
    g_assert_no_error(err);
    return config;
}

static void assert_refused(const char *words, const char *message)
{
    g_autoptr(GError) err = NULL;
    g_autoptr(VmConfig) config = vm_config_new();

    g_test_message("%s", words);
    g_assert_false(parse_into(config, words, &err));
    g_assert_nonnull(err);
    g_assert_cmpstr(err->message, ==, message);
}

static const ConfigText *text_at(GPtrArray *array, unsigned i)
{
    g_assert_cmpuint(i, <, array->len);
    return g_ptr_array_index(array, i);
}

static void test_nothing(void)
{
    g_autoptr(VmConfig) c = parse("");

    g_assert_cmpint(c->action, ==, CONFIG_RUN);
    g_assert_null(c->machine);
    g_assert_false(c->has_ram_size);
    g_assert_false(c->stopped);
    g_assert_cmpuint(c->cpus, ==, 1);
    g_assert_cmpuint(c->monitors->len, ==, 0);
}

static void test_dashes_and_order(void)
{
    g_autoptr(VmConfig) c = parse("--S|-M|none|--machine|workload|-pidfile|-x");

    g_assert_true(c->stopped);
    g_assert_cmpstr(c->machine, ==, "workload");
    g_assert_cmpstr(c->pid_file, ==, "-x"); /* a word after an option is its argument, dash or not */
}

static void test_machine(void)
{
    g_autoptr(VmConfig) c = parse("-M|none,memory-backend=m0,accel=kvm:tcg,pattern=zipf|-accel|qtest,foo=1");
    const ConfigAccel *accel;

    g_assert_cmpstr(c->machine, ==, "none");
    g_assert_cmpstr(c->memory_backend, ==, "m0");
    g_assert_cmpuint(g_hash_table_size(c->machine_properties), ==, 1);
    g_assert_cmpstr(g_hash_table_lookup(c->machine_properties, "pattern"), ==, "zipf");
    g_assert_cmpuint(c->accels->len, ==, 3);
    accel = g_ptr_array_index(c->accels, 0);
    g_assert_cmpstr(accel->name, ==, "kvm");
    g_assert_null(accel->location);
    accel = g_ptr_array_index(c->accels, 2);
    g_assert_cmpstr(accel->name, ==, "qtest");
    g_assert_cmpstr(accel->location, ==, "-accel qtest,foo=1");
    g_assert_cmpstr(accel->properties[0], ==, "foo=1");
    g_assert_null(accel->properties[1]);
}

static void test_memory(void)
{
    static const struct {
        const char *words;
        uint64_t size;
    } rows[] = {
        {"-m|16", 16777216},
        {"-m|size=16", 16777216},
        {"-m|1G", 1073741824},
        {"-m|0", 0},
        {"-m|1k", 1024},
        {"-m|4097b", 4097},
        {"-m|1.5G", 1610612736},
        {"-m|8|-m|16,size=32", 33554432},
        {"-m|16,maxmem=1G,slots=2", 16777216},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(VmConfig) c = parse(rows[i].words);

        g_assert_true(c->has_ram_size);
        g_assert_cmpuint(c->ram_size, ==, rows[i].size);
    }
}

#define SIZE_HINT                                                                                            \
    "\nOptional suffix k, M, G, T, P or E means kilo-, mega-, giga-, tera-, peta-\n"                         \
    "and exabytes, respectively."

static void test_memory_errors(void)
{
    assert_refused("-m|foo", "-m foo: Parameter 'size' expects a non-negative number below 2^64" SIZE_HINT);
    assert_refused("-m|1.5", "-m 1.5: Parameter 'size' expects a non-negative number below 2^64" SIZE_HINT);
    assert_refused("-m|8192E", "-m 8192E: Value '8192E' is out of range for parameter 'size'");
    assert_refused("-m|-1", "-m -1: Value '-1' is out of range for parameter 'size'");
    assert_refused("-m|16,foo=1", "-m 16,foo=1: Invalid parameter 'foo'");
    assert_refused("-m|16,maxmem=8",
                   "invalid value of maxmem: maximum memory size (0x8) must be at least the "
                   "initial memory size (0x1000000)");
    assert_refused("-m|16,slots=2", "slots specified but no max-size");
    assert_refused("-M|none,memory-backend=x|-mem-path|/tmp",
                   "'-mem-path' can't be used together with'-machine memory-backend'");
}

static void test_smp(void)
{
    static const struct {
        const char *words;
        unsigned cpus, max_cpus;
    } rows[] = {
        {"-smp|1", 1, 1},
        {"-smp|4", 4, 4},
        {"-smp|2,maxcpus=8", 2, 8},
        {"-smp|cores=2,threads=2", 4, 4},
        {"-smp|1,sockets=1,cores=1,threads=1", 1, 1},
        {"-smp|maxcpus=4", 4, 4},
        {"-smp|", 1, 1},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(VmConfig) c = parse(rows[i].words);

        g_assert_cmpuint(c->cpus, ==, rows[i].cpus);
        g_assert_cmpuint(c->max_cpus, ==, rows[i].max_cpus);
    }
    assert_refused("-smp|foo", "Parameter 'smp.cpus' expects integer");
    assert_refused("-smp|foo=1", "Parameter 'smp.foo' is unexpected");
    assert_refused("-smp|0", "Invalid CPU topology: CPU topology parameters must be greater than zero");
    assert_refused("-smp|4,maxcpus=2",
                   "Invalid CPU topology: maxcpus must be equal to or greater than smp: 2 < 4");
    assert_refused("-smp|1,foo", "-smp 1,foo: Expected '=' after parameter 'foo'");
}

static void test_name_and_uuid(void)
{
    static const uint8_t uuid[16] = {0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0,
                                     0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
    g_autoptr(VmConfig) c = parse("-name|vm,,1,process=p,debug-threads=on|"
                                  "-uuid|12345678-9abc-def0-0123-456789ABCDEF");

    g_assert_cmpstr(c->name, ==, "vm,1");
    g_assert_cmpstr(c->process_name, ==, "p");
    g_assert_true(c->debug_threads);
    g_assert_true(c->has_uuid);
    g_assert_cmpmem(c->uuid, 16, uuid, 16);

    assert_refused("-uuid|foo", "-uuid foo: failed to parse UUID string: wrong format");
    assert_refused("-uuid|123456789abcdef00123456789abcdef",
                   "-uuid 123456789abcdef00123456789abcdef: failed to parse UUID string: wrong format");
    assert_refused("-name|foo,foo=1", "-name foo,foo=1: Invalid parameter 'foo'");
    assert_refused("-name|guest=foo,debug-threads=maybe",
                   "-name guest=foo,debug-threads=maybe: Parameter 'debug-threads' expects 'on' or 'off'");
}

static void test_globals(void)
{
    g_autoptr(VmConfig) c = parse("-global|migration.x-max-bandwidth=10|"
                                  "-global|driver=migration,property=tls-creds,value=a,,b|"
                                  "-global|migration.tls-hostname=a,b=c");
    static const char *const want[][3] = {
        {"migration", "x-max-bandwidth", "10"},
        {"migration", "tls-creds", "a,b"},
        {"migration", "tls-hostname", "a,b=c"},
    };

    g_assert_cmpuint(c->globals->len, ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        const ConfigGlobal *g = g_ptr_array_index(c->globals, i);

        g_assert_cmpstr(g->driver, ==, want[i][0]);
        g_assert_cmpstr(g->property, ==, want[i][1]);
        g_assert_cmpstr(g->value, ==, want[i][2]);
    }
    assert_refused("-global|migration.x", "-global migration.x: Invalid parameter 'migration.x'");
    assert_refused("-global|a=b", "-global a=b: Invalid parameter 'a'");
    assert_refused("-global|=", "-global =: Invalid parameter ''");
    assert_refused("-global|", "-global : options 'driver', 'property', and 'value' are required");
    assert_refused("-global|driver=migration",
                   "-global driver=migration: options 'driver', 'property', and 'value' are required");
    assert_refused("-global|driver=a,property=b,value=c,foo=d",
                   "-global driver=a,property=b,value=c,foo=d: Invalid parameter 'foo'");
}

static void test_monitors(void)
{
    g_autoptr(VmConfig) c = parse("-monitor|stdio|-qmp|unix:/q,server=on|-qmp-pretty|chardev:c|-mon|c2|"
                                  "-mon|chardev=c3,mode=control,pretty=on|-monitor|none");
    static const struct {
        const char *device;
        bool by_id, control, pretty;
    } want[] = {
        {"stdio", false, false, false}, {"unix:/q,server=on", false, true, false},
        {"c", true, true, true},        {"c2", true, false, false},
        {"c3", true, true, true},
    };

    g_assert_true(c->no_monitor);
    g_assert_cmpuint(c->monitors->len, ==, G_N_ELEMENTS(want));
    for (unsigned i = 0; i < G_N_ELEMENTS(want); i++) {
        const ConfigMonitor *m = g_ptr_array_index(c->monitors, i);

        g_assert_cmpstr(m->device, ==, want[i].device);
        g_assert_cmpint(m->by_id, ==, want[i].by_id);
        g_assert_cmpint(m->control, ==, want[i].control);
        g_assert_cmpint(m->pretty, ==, want[i].pretty);
    }
    assert_refused("-mon|mode=control", "-mon mode=control: Parameter 'chardev' is missing");
    assert_refused("-mon|c,mode=foo", "-mon c,mode=foo: Parameter 'mode' does not accept value 'foo'");
    assert_refused("-mon|c,pretty=on", "-mon c,pretty=on: 'pretty' is not compatible with HMP monitors");
    assert_refused("-mon|c,foo=on", "-mon c,foo=on: Invalid parameter 'foo'");
}

static void test_lists(void)
{
    g_autoptr(VmConfig) c =
        parse("-object|a|-object|{\"help\":1}|-chardev|null,id=c|-incoming|defer|"
              "-incoming|tcp:a:1|-serial|none|-serial|null|-trace|ram_*|-d|trace:x,guest_errors|"
              "-trace|enable=-y,file=/log|-trace|events=/ev|-fault|a:1|-readconfig|/f");

    g_assert_cmpuint(c->objects->len, ==, 2);
    g_assert_cmpstr(text_at(c->objects, 1)->text, ==, "{\"help\":1}");
    g_assert_cmpstr(text_at(c->chardevs, 0)->location, ==, "-chardev null,id=c");
    g_assert_cmpstr(text_at(c->incoming, 1)->text, ==, "tcp:a:1");
    g_assert_cmpuint(c->serials->len, ==, 1);
    g_assert_cmpuint(c->trace_patterns->len, ==, 3);
    g_assert_cmpstr(text_at(c->trace_patterns, 0)->text, ==, "ram_*");
    g_assert_cmpstr(text_at(c->trace_patterns, 1)->text, ==, "x");
    g_assert_null(text_at(c->trace_patterns, 1)->location);
    g_assert_cmpstr(text_at(c->trace_patterns, 2)->text, ==, "-y");
    g_assert_cmpstr(c->log_file, ==, "/log");
    g_assert_cmpstr(g_ptr_array_index(c->trace_files, 0), ==, "/ev");
    g_assert_cmpuint(c->faults->len, ==, 1);
    g_assert_cmpuint(c->read_configs->len, ==, 1);
}

static void test_process_options(void)
{
    g_autoptr(VmConfig) c =
        parse("-daemonize|-no-reboot|-no-shutdown|-action|reboot=reset|-nographic|-nodefaults|"
              "-no-user-config|-D|/d|-msg|timestamp=on,guest-name=on|-only-migratable|"
              "-overcommit|mem-lock=on|-run-with|exit-with-parent=on|-qtest|stdio|"
              "-qtest-log|none|-display|none|-vga|none|-rtc|base=utc|-boot|strict=on|-L|/x|"
              "-sandbox|off|-cpu|host|-mem-prealloc|-add-fd|fd=9,set=2,opaque=o|-seed|7");
    const ConfigFd *f = g_ptr_array_index(c->fds, 0);

    g_assert_true(c->daemonize);
    g_assert_false(c->no_reboot); /* the later -action said otherwise */
    g_assert_true(c->no_shutdown);
    g_assert_true(c->nographic);
    g_assert_true(c->no_defaults);
    g_assert_true(c->message_timestamps);
    g_assert_true(c->message_name);
    g_assert_true(c->only_migratable);
    g_assert_true(c->lock_memory);
    g_assert_true(c->exit_with_parent);
    g_assert_true(c->mem_prealloc);
    g_assert_cmpstr(c->qtest, ==, "stdio");
    g_assert_cmpstr(c->qtest_log, ==, "none");
    g_assert_cmpstr(c->log_file, ==, "/d");
    g_assert_cmpstr(c->cpu_model, ==, "host");
    g_assert_cmpint(f->fd, ==, 9);
    g_assert_cmpint(f->set, ==, 2);
    g_assert_cmpstr(f->opaque, ==, "o");
}

static void test_process_errors(void)
{
    static const struct {
        const char *words, *message;
    } rows[] = {
        {"-M", "-M: requires an argument"},
        {"-M|none,foo", "-M none,foo: Expected '=' after parameter 'foo'"},
        {"-", "-: invalid option"},
        {"---S", "---S: invalid option\nDid you mean -S?"},
        {"-netdev|x", "-netdev: not supported: there is no such device or feature here"},
        {"--usb", "--usb: not supported: there is no such device or feature here"},
        {"x.img", "x.img: a disk image alone is of no use: see -drive"},
        {"-display|foo", "-display foo: Parameter 'type' does not accept value 'foo'"},
        {"-display|none,foo=1", "-display none,foo=1: Parameter 'foo' is unexpected"},
        {"-vga|foo", "-vga foo: unknown vga type: foo"},
        {"-sandbox|maybe", "-sandbox maybe: Parameter 'enable' expects 'on' or 'off'"},
        {"-sandbox|on,obsolete=foo", "-sandbox on,obsolete=foo: invalid argument for obsolete"},
        {"-sandbox|on", "-sandbox on: system call filtering is not supported: only 'off' is accepted"},
        {"-rtc|foo=1", "-rtc foo=1: Invalid parameter 'foo'"},
        {"-overcommit|foo=1", "-overcommit foo=1: Invalid parameter 'foo'"},
        {"-action|reboot=foo", "-action reboot=foo: Parameter 'reboot' does not accept value 'foo'"},
        {"-action|foo=1", "-action foo=1: Invalid parameter 'foo'"},
        {"-run-with|foo=1", "-run-with foo=1: Invalid parameter 'foo'"},
        {"-msg|timestamp=maybe", "-msg timestamp=maybe: Parameter 'timestamp' expects 'on' or 'off'"},
        {"-seed|foo", "-seed foo: Invalid seed number: foo"},
        {"-add-fd|fd=1,set=1", "-add-fd fd=1,set=1: fd cannot be a standard I/O stream"},
        {"-add-fd|set=1", "-add-fd set=1: fd option is required and must be non-negative"},
        {"-add-fd|fd=foo,set=1", "-add-fd fd=foo,set=1: Parameter 'fd' expects a number"},
        {"-add-fd|fd=-1,set=1", "-add-fd fd=-1,set=1: fd option is required and must be non-negative"},
        {"-add-fd|fd=7,set=-1", "-add-fd fd=7,set=-1: set option is required and must be non-negative"},
        {"-add-fd|fd=7", "-add-fd fd=7: set option is required and must be non-negative"},
        {"-trace|enable=x,foo=1", "-trace enable=x,foo=1: Invalid parameter 'foo'"},
        {"-incoming|defer|-loadvm|x", "'incoming' and 'loadvm' options are mutually exclusive"},
        {"-loadvm|x", "no block device can store vmstate for snapshot"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        assert_refused(rows[i].words, rows[i].message);
    }
}

static void test_suggestions(void)
{
    assert_refused("-S|", ": a disk image alone is of no use: see -drive");
    assert_refused("-nosuchthing", "-nosuchthing: invalid option");
    assert_refused("-incomming|x", "-incomming: invalid option\nDid you mean -incoming?");
    assert_refused("--daemonise", "--daemonise: invalid option\nDid you mean -daemonize?");
    assert_refused("-objcet|x", "-objcet: invalid option\nDid you mean -object?");
    assert_refused("-qpm|x", "-qpm: invalid option\nDid you mean -qmp?");

    static const char *const names[] = {"none", "workload", NULL};
    g_assert_cmpstr(cmdline_suggest("worklaod", names), ==, "workload");
    g_assert_null(cmdline_suggest("pc", names));
    g_assert_null(cmdline_suggest("", names));
    g_autofree char *monster = g_strnfill(5000, 'n');
    g_assert_null(cmdline_suggest(monster, names));
}

static void test_help_requests(void)
{
    static const struct {
        const char *words;
        ConfigAction action;
        const char *text;
    } rows[] = {
        {"-h", CONFIG_HELP, NULL},
        {"--help", CONFIG_HELP, NULL},
        {"-help|-nosuch", CONFIG_HELP, NULL},
        {"-version", CONFIG_VERSION, NULL},
        {"--version", CONFIG_VERSION, NULL},
        {"--check", CONFIG_CHECK, NULL},
        {"-help-man", CONFIG_HELP_MAN, NULL},
        {"-M|help", CONFIG_HELP_MACHINES, NULL},
        {"-M|?", CONFIG_HELP_MACHINES, NULL},
        {"-M|none,help", CONFIG_HELP_MACHINE, "none"},
        {"-accel|help", CONFIG_HELP_ACCELS, NULL},
        {"-cpu|help", CONFIG_HELP_CPUS, NULL},
        {"-object|help", CONFIG_HELP_OBJECTS, NULL},
        {"-object|memory-backend-ram,help", CONFIG_HELP_OBJECT, "memory-backend-ram"},
        {"-chardev|help", CONFIG_HELP_CHARDEVS, NULL},
        {"-trace|help", CONFIG_HELP_TRACE, NULL},
        {"-d|trace:help", CONFIG_HELP_TRACE, NULL},
        {"-d|help", CONFIG_HELP_LOG_ITEMS, NULL},
        {"-d|foo", CONFIG_HELP_LOG_ITEMS, NULL},
        {"-d|", CONFIG_HELP_LOG_ITEMS, NULL},
        {"-fault|help", CONFIG_HELP_FAULTS, NULL},
        {"-L|help", CONFIG_HELP_DATA_DIRS, NULL},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(VmConfig) c = parse(rows[i].words);

        g_assert_cmpint(c->action, ==, rows[i].action);
        g_assert_cmpstr(c->help_text, ==, rows[i].text);
    }
}

static void test_file(void)
{
    static const char text[] = "# a comment\n"
                               "[machine]\n"
                               "  type = \"none\"\n"
                               "  memory-backend = \"m0\"\n"
                               "\n"
                               "[object \"m0\"]\n"
                               "  qom-type = \"memory-backend-ram\"\n"
                               "  size = \"64M\"\n"
                               "[global]\n"
                               "  driver = \"migration\"\n"
                               "  property = \"tls-hostname\"\n"
                               "  value = \"a,b\"\n"
                               "[memory]\n"
                               "  size = \"16\"\n";
    g_autoptr(VmConfig) c = vm_config_new();
    g_autoptr(GError) err = NULL;

    g_assert_true(cmdline_parse_file_text(c, "F", text, &err));
    g_assert_no_error(err);
    g_assert_cmpstr(c->machine, ==, "none");
    g_assert_cmpstr(c->memory_backend, ==, "m0");
    g_assert_cmpstr(text_at(c->objects, 0)->text, ==, "id=m0,qom-type=memory-backend-ram,size=64M");
    g_assert_cmpstr(((ConfigGlobal *)g_ptr_array_index(c->globals, 0))->value, ==, "a,b");
    g_assert_cmpuint(c->ram_size, ==, 16777216);
}

/* One group of those that management software asks for. */
typedef struct Seen {
    const char *group;
    const char *const *keys;
} Seen;

static void see_group(const char *group, const char *const *keys, void *opaque)
{
    Seen *seen = opaque;

    g_assert_cmpstr(group, !=, "sandbox"); /* who sees it uses it */
    if (strcmp(group, seen->group) == 0) {
        seen->keys = keys;
    }
}

static void test_groups(void)
{
    static const struct {
        const char *group, *key, *type;
    } rows[] = {
        {"memory", "size", "size"},       {"memory", "slots", "number"},  {"smp-opts", "cpus", "number"},
        {"name", "debug-threads", "boolean"}, {"add-fd", "fd", "number"}, {"chardev", "fd", "string"},
        {"chardev", "reconnect-ms", "number"}, {"mon", "mode", "string"}, {"msg", "timestamp", "boolean"},
        {"machine", "memory-backend", "string"}, {"boot-opts", "strict", "boolean"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        Seen seen = {.group = rows[i].group};

        cmdline_foreach_group(see_group, &seen);
        g_assert_nonnull(seen.keys);
        g_assert_true(g_strv_contains(seen.keys, rows[i].key));
        g_assert_cmpstr(cmdline_key_type(rows[i].group, rows[i].key), ==, rows[i].type);
    }
}

static void test_file_errors(void)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"[foo]\n", "F:1: There is no option group 'foo'"},
        {"\na = \"b\"\n", "F:2: no group defined"},
        {"[machine\n", "F:1: parse error"},
        {"[machine] x\n", "F:1: parse error"},
        {"[machine]\ntype = none\n", "F:2: parse error"},
        {"[machine]\ntype\n", "F:2: parse error"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(VmConfig) c = vm_config_new();
        g_autoptr(GError) err = NULL;

        g_assert_false(cmdline_parse_file_text(c, "F", rows[i].text, &err));
        g_assert_cmpstr(err->message, ==, rows[i].message);
    }
}

/* Every option stands in --help and in the man page, and no line of --help is too long. */
static void test_help_text(void)
{
    g_autofree char *help = cmdline_help("godwit", 80);
    g_autofree char *man = cmdline_help_man();
    g_autofree const char **names = cmdline_option_names();

    for (int i = 0; names[i]; i++) {
        g_autofree char *option = g_strdup_printf("-%s", names[i]);
        g_autofree char *bold = g_strdup_printf("\\fB\\-%s", names[i]);
        g_auto(GStrv) parts = g_strsplit(bold + 5, "-", -1);
        g_autofree char *escaped = g_strjoinv("\\-", parts);
        g_autofree char *in_man = g_strconcat("\\fB\\-", escaped, NULL);

        g_assert_nonnull(strstr(help, option));
        g_assert_nonnull(strstr(man, in_man));
    }
    g_auto(GStrv) lines = g_strsplit(help, "\n", -1);
    for (int i = 0; lines[i]; i++) {
        bool heading = g_str_has_prefix(lines[i], "  -");
        g_assert_true(heading || strlen(lines[i]) <= 80);
    }
}

static void test_too_many_words(void)
{
    g_autoptr(GError) err = NULL;
    g_autoptr(VmConfig) config = vm_config_new();
    char **argv = g_new0(char *, CMDLINE_MAX_WORDS + 2);

    for (int i = 0; i <= CMDLINE_MAX_WORDS; i++) {
        argv[i] = (char *)"-S";
    }
    g_assert_false(cmdline_parse(config, CMDLINE_MAX_WORDS + 1, argv, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    g_free(argv);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cmdline/nothing", test_nothing);
    g_test_add_func("/cmdline/dashes-and-order", test_dashes_and_order);
    g_test_add_func("/cmdline/machine", test_machine);
    g_test_add_func("/cmdline/memory", test_memory);
    g_test_add_func("/cmdline/memory-errors", test_memory_errors);
    g_test_add_func("/cmdline/smp", test_smp);
    g_test_add_func("/cmdline/name-and-uuid", test_name_and_uuid);
    g_test_add_func("/cmdline/globals", test_globals);
    g_test_add_func("/cmdline/monitors", test_monitors);
    g_test_add_func("/cmdline/lists", test_lists);
    g_test_add_func("/cmdline/process-options", test_process_options);
    g_test_add_func("/cmdline/process-errors", test_process_errors);
    g_test_add_func("/cmdline/suggestions", test_suggestions);
    g_test_add_func("/cmdline/help-requests", test_help_requests);
    g_test_add_func("/cmdline/file", test_file);
    g_test_add_func("/cmdline/groups", test_groups);
    g_test_add_func("/cmdline/file-errors", test_file_errors);
    g_test_add_func("/cmdline/help-text", test_help_text);
    g_test_add_func("/cmdline/too-many-words", test_too_many_words);
    return g_test_run();
}
