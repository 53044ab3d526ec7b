/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of HMP commands, sorted by name. */
#include "hmp.h"

#include <stddef.h>

/* clang-format off */
#define FLAG(_name, _letter) { .name = (_name), .type = HMP_FLAG, .flag = (_letter) }
#define WORD(_name, ...) { .name = (_name), .type = HMP_WORD, __VA_ARGS__ }
#define FILENAME(_name, ...) { .name = (_name), .type = HMP_FILE, __VA_ARGS__ }
#define REST(_name, ...) { .name = (_name), .type = HMP_REST, __VA_ARGS__ }
#define ONOFF(_name) { .name = (_name), .type = HMP_ONOFF, .complete = HMP_COMPLETE_ONOFF }
#define NUMBER(_name, ...) { .name = (_name), .type = HMP_NUMBER, __VA_ARGS__ }
#define FORMAT { .name = "fmt", .type = HMP_FORMAT }
#define COMPLETE(_kind) .complete = HMP_COMPLETE_##_kind
#define OPTIONAL .optional = true

const HmpCommand hmp_commands[] = {
    { "cancel_vcpu_dirty_limit", NULL, { NUMBER("cpu_index", OPTIONAL) },
      "let a vCPU, or all, dirty memory as fast as they can", hmp_cancel_vcpu_dirty_limit },
    { "clear", NULL, {}, "clear the terminal's screen", hmp_clear },
    { "cont", "c", {}, "let the guest run", hmp_cont },
    { "gpa2hva", NULL, { NUMBER("addr") }, "tell where guest physical address 'addr' is in this process",
      hmp_gpa2hva },
    { "help", "?", { REST("cmd", OPTIONAL, COMPLETE(COMMAND)) }, "list the commands, or tell about one",
      hmp_help },
    { "info", NULL, { REST("item", OPTIONAL) }, "tell about something (help info lists what)", hmp_info },
    { "log", NULL, { WORD("items", COMPLETE(LOG_ITEM)) }, "choose what is logged (log help lists the items)",
      hmp_log },
    { "logfile", NULL, { FILENAME("filename") }, "write the log to a file", hmp_logfile },
    { "migrate", NULL, { FLAG("detach", 'd'), FLAG("resume", 'r'), WORD("uri") },
      "migrate the guest to URI (-d: do not wait for the end)\n"
      "\t\t\t -r: resume a postcopy migration that is paused",
      hmp_migrate },
    { "migrate_cancel", NULL, {}, "cancel the migration", hmp_migrate_cancel },
    { "migrate_continue", NULL, { WORD("state") }, "go on from the given state of rest (pre-switchover)",
      hmp_migrate_continue },
    { "migrate_incoming", NULL, { WORD("uri") }, "begin to listen at URI, after -incoming defer",
      hmp_migrate_incoming },
    { "migrate_pause", NULL, {}, "pause the migration (postcopy only)", hmp_migrate_pause },
    { "migrate_recover", NULL, { WORD("uri") }, "listen again at URI for a postcopy migration that is paused",
      hmp_migrate_recover },
    { "migrate_set_capability", NULL, { WORD("capability", COMPLETE(CAPABILITY)), ONOFF("state") },
      "switch a capability of migration on or off", hmp_migrate_set_capability },
    { "migrate_set_parameter", NULL, { WORD("parameter", COMPLETE(PARAMETER)), REST("value") },
      "set a parameter of migration", hmp_migrate_set_parameter },
    { "migrate_start_postcopy", NULL, {},
      "let the guest run at the destination before all of its memory is there",
      hmp_migrate_start_postcopy },
    { "object_add", NULL, { REST("options", COMPLETE(OBJECT_TYPE)) },
      "make an object: TYPE,id=ID[,NAME=VALUE...]", hmp_object_add },
    { "object_del", NULL, { WORD("id", COMPLETE(BACKEND)) }, "remove an object", hmp_object_del },
    { "pmemsave", NULL, { NUMBER("addr"), NUMBER("size"), FILENAME("file") },
      "save 'size' bytes of guest physical memory from 'addr' to a file", hmp_pmemsave },
    { "print", "p", { FORMAT, NUMBER("expr") }, "tell the value of an expression", hmp_print },
    { "quit", "q", {}, "end the program", hmp_quit },
    { "set_vcpu_dirty_limit", NULL, { NUMBER("dirty_rate"), NUMBER("cpu_index", OPTIONAL) },
      "limit how many MB/s of memory a vCPU, or each, dirties", hmp_set_vcpu_dirty_limit },
    { "stop", "s", {}, "stop the guest", hmp_stop },
    { "system_powerdown", NULL, {}, "press the power button", hmp_system_powerdown },
    { "system_reset", NULL, {}, "reset the machine", hmp_system_reset },
    { "trace-event", NULL, { WORD("name", COMPLETE(TRACE_EVENT)), ONOFF("state") },
      "switch trace events on or off; * matches any text", hmp_trace_event },
    { "x", NULL, { FORMAT, NUMBER("addr") }, "show memory at virtual address 'addr'", hmp_dump_virtual },
    { "xp", NULL, { FORMAT, NUMBER("addr") }, "show memory at physical address 'addr'", hmp_dump_physical },
    { NULL },
};

const HmpCommand hmp_info_commands[] = {
    { "chardev", NULL, {}, "character devices", hmp_info_chardev },
    { "cpus", NULL, {}, "vCPUs", hmp_info_cpus },
    { "history", NULL, {}, "the lines typed here", hmp_info_history },
    { "kvm", NULL, {}, "whether KVM runs the guest", hmp_info_kvm },
    { "memdev", NULL, {}, "memory backends", hmp_info_memdev },
    { "memory_size_summary", NULL, {}, "how much memory the guest has, in bytes",
      hmp_info_memory_size_summary },
    { "migrate", NULL, { FLAG("all", 'a') }, "state and statistics of migration (-a: all there is)",
      hmp_info_migrate },
    { "migrate_capabilities", NULL, {}, "capabilities of migration", hmp_info_migrate_capabilities },
    { "migrate_parameters", NULL, {}, "parameters of migration", hmp_info_migrate_parameters },
    { "mtree", NULL, {}, "what is where in the guest's address spaces", hmp_info_mtree },
    { "name", NULL, {}, "the guest's name", hmp_info_name },
    { "ramblock", NULL, {}, "blocks of guest memory", hmp_info_ramblock },
    { "status", NULL, {}, "whether the guest runs", hmp_info_status },
    { "trace-events", NULL, { WORD("name", OPTIONAL, COMPLETE(TRACE_EVENT)) },
      "trace events and whether they are on; * matches any text", hmp_info_trace_events },
    { "uuid", NULL, {}, "the guest's UUID", hmp_info_uuid },
    { "vcpu_dirty_limit", NULL, {}, "which vCPUs are limited in how fast they dirty memory",
      hmp_info_vcpu_dirty_limit },
    { "version", NULL, {}, "version of the program", hmp_info_version },
    { "workload", NULL, {}, "what the synthetic guest has done and seen", hmp_info_workload },
    { NULL },
};
