/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts, faults and lies, and the report. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
uint64_t fake_numbers[FAKE_NUMBER_COUNT];
FakeSettings fake_settings;

typedef enum RuleKind {
    RULE_FAIL, RULE_REFUSE, RULE_STATUS, RULE_NO_COPY, RULE_STALL, RULE_LOST_ACK, RULE_EVENT
} RuleKind;

/* The @nth (from 1) of @what gets @value. */
typedef struct Rule {
    RuleKind kind;
    unsigned what;
    uint64_t nth;
    int value;
} Rule;

static GArray *rules;
static uint64_t calls[FAKE_VERB_COUNT];
static uint64_t requests[FAKE_OP_COUNT];
static uint64_t requests_posted;
static uint64_t events[RDMA_CM_EVENT_TIMEWAIT_EXIT + 1];
static uint64_t created[FAKE_KIND_COUNT], destroyed[FAKE_KIND_COUNT];

static const char *const verb_names[] = {
#define X(name, error) #name,
    FAKE_VERBS(X)
#undef X
    NULL
};
static const int verb_errors[] = {
#define X(name, error) error,
    FAKE_VERBS(X)
#undef X
};
static const char *const kind_names[FAKE_KIND_COUNT] = {
    "event-channel", "id", "event", "addrinfo", "pd", "comp-channel", "cq", "qp", "mr"
};
static const char *const number_names[FAKE_NUMBER_COUNT] = {
    "writes", "write-bytes", "sends", "receives", "doorbells", "signalled", "max-outstanding", "pinned",
    "max-pinned", "rnr", "injected", "violations"
};
static const char *const operation_names[] = { "write", "send", "recv", NULL };
static const char *const event_names[] = {
    "ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
    "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", NULL
};
static const struct {
    const char *name;
    int value;
} errors[] = {
    { "EAGAIN", EAGAIN },     { "EBUSY", EBUSY },   { "EFAULT", EFAULT }, { "EINVAL", EINVAL },
    { "EIO", EIO },           { "EMFILE", EMFILE }, { "ENODEV", ENODEV }, { "ENOMEM", ENOMEM },
    { "ENOTSUP", ENOTSUP },   { "EOPNOTSUPP", EOPNOTSUPP },
    { "EADDRINUSE", EADDRINUSE }, { "EPERM", EPERM },
};
static const struct {
    const char *name;
    size_t offset;
    uint64_t honest;
} limits[] = {
#define LIMIT(name, honest) { #name, offsetof(FakeLimits, name), honest }
    LIMIT(max_qp_wr, 16384), LIMIT(max_cqe, 65536), LIMIT(max_cq, 4096), LIMIT(max_qp, 4096),
    LIMIT(max_mr, 1 << 20), LIMIT(max_mr_size, UINT64_MAX), LIMIT(max_msg_sz, 1 << 30), LIMIT(max_sge, 16),
    LIMIT(memlock, UINT64_MAX),
#undef LIMIT
};

static uint64_t *limit_at(size_t i)
{
    return (uint64_t *)((char *)&fake_settings.limits + limits[i].offset);
}

/* ---- the specification ---- */

static int find_name(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++) {
        if (g_str_equal(names[i], name)) {
            return i;
        }
    }
    return -1;
}

static bool parse_number(const char *text, uint64_t *value)
{
    bool hex = g_str_has_prefix(text, "0x");
    return g_ascii_string_to_unsigned(text + (hex ? 2 : 0), hex ? 16 : 10, 0, UINT64_MAX, value, NULL);
}

static bool parse_error(const char *text, int *value)
{
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        if (g_str_equal(text, errors[i].name)) {
            *value = errors[i].value;
            return true;
        }
    }
    return false;
}

static void add_rule(RuleKind kind, unsigned what, uint64_t nth, int value)
{
    Rule rule = { kind, what, nth, value };
    g_array_append_val(rules, rule);
}

/* VERB:N or VERB:N:ERRNO */
static bool set_fail(char **words, guint n)
{
    uint64_t nth;
    int verb = find_name(verb_names, words[0]);
    if (verb < 0 || n < 2 || n > 3 || !parse_number(words[1], &nth)) {
        return false;
    }
    int error = verb_errors[verb];
    if (n == 3 && !parse_error(words[2], &error)) {
        return false;
    }
    add_rule(RULE_FAIL, verb, nth, error);
    return true;
}

/* N:ERRNO */
static bool set_refuse(char **words, guint n)
{
    uint64_t nth;
    int error;
    if (n != 2 || !parse_number(words[0], &nth) || !parse_error(words[1], &error)) {
        return false;
    }
    add_rule(RULE_REFUSE, 0, nth, error);
    return true;
}

/* OPERATION:N:STATUS */
static bool set_status(char **words, guint n)
{
    uint64_t nth, status;
    int operation = find_name(operation_names, words[0]);
    if (operation < 0 || n != 3 || !parse_number(words[1], &nth) || !parse_number(words[2], &status)) {
        return false;
    }
    add_rule(RULE_STATUS, operation, nth, status);
    return true;
}

/* OPERATION:N */
static bool set_request(RuleKind kind, char **words, guint n)
{
    uint64_t nth;
    int operation = find_name(operation_names, words[0]);
    if (operation < 0 || n != 2 || !parse_number(words[1], &nth)) {
        return false;
    }
    add_rule(kind, operation, nth, 0);
    return true;
}

static bool set_no_copy(char **words, guint n)
{
    return set_request(RULE_NO_COPY, words, n);
}

static bool set_stall(char **words, guint n)
{
    return set_request(RULE_STALL, words, n);
}

/* OPERATION:N or OPERATION:N:STATUS */
static bool set_lost_ack(char **words, guint n)
{
    uint64_t nth, status = IBV_WC_RETRY_EXC_ERR;
    int operation = find_name(operation_names, words[0]);
    if (operation < 0 || n < 2 || n > 3 || !parse_number(words[1], &nth) ||
        (n == 3 && (!parse_number(words[2], &status) || !status))) {
        return false;
    }
    add_rule(RULE_LOST_ACK, operation, nth, (int)status);
    return true;
}

/* EVENT:N:EVENT or EVENT:N:none */
static bool set_event(char **words, guint n)
{
    uint64_t nth;
    int event = find_name(event_names, words[0]);
    if (event < 0 || n != 3 || !parse_number(words[1], &nth)) {
        return false;
    }
    int other = find_name(event_names, words[2]);
    if (other < 0 && !g_str_equal(words[2], "none")) {
        return false;
    }
    add_rule(RULE_EVENT, event, nth, other);
    return true;
}

/* NAME:VALUE */
static bool set_limit(char **words, guint n)
{
    for (size_t i = 0; n == 2 && i < G_N_ELEMENTS(limits); i++) {
        if (g_str_equal(words[0], limits[i].name)) {
            return parse_number(words[1], limit_at(i));
        }
    }
    return false;
}

/* MIN:MAX */
static bool set_delay(char **words, guint n)
{
    return n == 2 && parse_number(words[0], &fake_settings.delay_min) &&
           parse_number(words[1], &fake_settings.delay_max) &&
           fake_settings.delay_min <= fake_settings.delay_max;
}

/* OPERATION:US */
static bool set_late(char **words, guint n)
{
    int operation = find_name(operation_names, words[0]);
    return operation >= 0 && n == 2 && parse_number(words[1], &fake_settings.late[operation]);
}

static bool set_seed(char **words, guint n)
{
    uint64_t seed;
    if (n != 1 || !parse_number(words[0], &seed)) {
        return false;
    }
    g_rand_set_seed(fake_settings.rand, seed);
    return true;
}

static bool set_zero_rkey(char **words, guint n)
{
    return n == 1 && parse_number(words[0], &fake_settings.zero_rkey);
}

static bool set_patient(char **words, guint n)
{
    uint64_t on;
    if (n != 1 || !parse_number(words[0], &on)) {
        return false;
    }
    fake_settings.patient = on;
    return true;
}

static bool set_without(char **words, guint n)
{
    if (n == 1 && g_str_equal(words[0], "odp")) {
        fake_settings.odp = false;
    } else if (n == 1 && g_str_equal(words[0], "pin")) {
        fake_settings.no_pin = true;
    } else if (n == 1 && g_str_equal(words[0], "advise")) {
        fake_settings.no_advise = true;
    } else {
        return false;
    }
    return true;
}

static const struct {
    const char *name;
    bool (*set)(char **words, guint n);
} keys[] = {
    { "fail", set_fail }, { "refuse", set_refuse }, { "status", set_status },
    { "no-copy", set_no_copy }, { "stall", set_stall }, { "event", set_event },
    { "limit", set_limit }, { "delay", set_delay }, { "late", set_late },
    { "seed", set_seed }, { "zero-rkey", set_zero_rkey }, { "without", set_without },
    { "patient", set_patient }, { "lost-ack", set_lost_ack },
};

static bool set_word(const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals) {
        return false;
    }
    g_autofree char *name = g_strndup(word, equals - word);
    g_auto(GStrv) words = g_strsplit(equals + 1, ":", -1);
    for (size_t i = 0; words[0] && i < G_N_ELEMENTS(keys); i++) {
        if (g_str_equal(keys[i].name, name)) {
            return keys[i].set(words, g_strv_length(words));
        }
    }
    return false;
}

FAKE_EXPORT const char *fake_verbs_set(const char *specification)
{
    static char wrong[256];
    g_auto(GStrv) words = g_strsplit_set(specification, " \t\n", -1);
    fake_lock_acquire();
    wrong[0] = 0;
    for (int i = 0; words[i] && !wrong[0]; i++) {
        if (words[i][0] && !set_word(words[i])) {
            g_strlcpy(wrong, words[i], sizeof(wrong));
        }
    }
    fake_lock_release();
    return wrong[0] ? wrong : NULL;
}

static void honest(void)
{
    g_clear_pointer(&fake_settings.rand, g_rand_free);
    fake_settings = (FakeSettings){ .odp = true, .rand = g_rand_new_with_seed(1) };
    for (size_t i = 0; i < G_N_ELEMENTS(limits); i++) {
        *limit_at(i) = limits[i].honest;
    }
    if (rules) {
        g_array_free(rules, TRUE);
    }
    rules = g_array_new(FALSE, FALSE, sizeof(Rule));
}

FAKE_EXPORT void fake_verbs_reset(void)
{
    unsigned live = fake_verbs_live();
    fake_lock_acquire();
    if (live) {
        g_error("fake-verbs: reset with %u objects left", live);
    }
    honest();
    memset(calls, 0, sizeof(calls));
    memset(requests, 0, sizeof(requests));
    memset(events, 0, sizeof(events));
    memset(created, 0, sizeof(created));
    memset(destroyed, 0, sizeof(destroyed));
    memset(fake_numbers, 0, sizeof(fake_numbers));
    requests_posted = 0;
    fake_lock_release();
}

/* ---- decisions ---- */

static const Rule *find_rule(RuleKind kind, unsigned what, uint64_t nth)
{
    for (guint i = 0; i < rules->len; i++) {
        const Rule *rule = &g_array_index(rules, Rule, i);
        if (rule->kind == kind && rule->what == what && rule->nth == nth) {
            fake_numbers[FAKE_INJECTED]++;
            return rule;
        }
    }
    return NULL;
}

int fake_call(FakeVerb verb)
{
    fake_lock_acquire();
    const Rule *rule = find_rule(RULE_FAIL, verb, ++calls[verb]);
    int error = rule ? rule->value : 0;
    fake_lock_release();
    return error;
}

FakeFate fake_fate(FakeOperation operation)
{
    uint64_t nth = ++requests[operation];
    const Rule *status = find_rule(RULE_STATUS, operation, nth);
    const Rule *lost_ack = find_rule(RULE_LOST_ACK, operation, nth);
    return (FakeFate){
        .status = status ? (enum ibv_wc_status)status->value : IBV_WC_SUCCESS,
        .no_copy = find_rule(RULE_NO_COPY, operation, nth),
        .stall = find_rule(RULE_STALL, operation, nth),
        .lost_ack = lost_ack ? (enum ibv_wc_status)lost_ack->value : IBV_WC_SUCCESS,
    };
}

int fake_refuse_request(void)
{
    const Rule *rule = find_rule(RULE_REFUSE, 0, ++requests_posted);
    return rule ? rule->value : 0;
}

int fake_replace_event(enum rdma_cm_event_type type)
{
    const Rule *rule = find_rule(RULE_EVENT, type, ++events[type]);
    return rule ? rule->value : (int)type;
}

void fake_created(FakeKind kind)
{
    created[kind]++;
}

void fake_destroyed(FakeKind kind)
{
    destroyed[kind]++;
}

void fake_violation(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    g_autofree char *text = g_strdup_vprintf(format, ap);
    va_end(ap);
    fake_numbers[FAKE_VIOLATIONS]++;
    fprintf(stderr, "fake-verbs: violation: %s\n", text);
}

/* ---- what a test is told ---- */

FAKE_EXPORT const char *const *fake_verbs_names(void)
{
    return verb_names;
}

FAKE_EXPORT unsigned fake_verbs_calls(const char *verb)
{
    int i = find_name(verb_names, verb);
    fake_lock_acquire();
    unsigned n = i < 0 ? 0 : calls[i];
    fake_lock_release();
    return n;
}

FAKE_EXPORT unsigned fake_verbs_live(void)
{
    unsigned n = 0;
    fake_lock_acquire();
    for (int i = 0; i < FAKE_KIND_COUNT; i++) {
        n += created[i] - destroyed[i];
    }
    fake_lock_release();
    return n;
}

FAKE_EXPORT uint64_t fake_verbs_number(const char *name)
{
    uint64_t value = 0;
    fake_lock_acquire();
    for (int i = 0; i < FAKE_NUMBER_COUNT; i++) {
        if (g_str_equal(name, number_names[i])) {
            value = fake_numbers[i];
        }
    }
    fake_lock_release();
    return value;
}

FAKE_EXPORT unsigned fake_verbs_violations(void)
{
    return fake_verbs_number("violations");
}

FAKE_EXPORT unsigned fake_verbs_injected(void)
{
    return fake_verbs_number("injected");
}

static void report_group(GString *text, const char *name, const char *const *names, const uint64_t *values,
                         const uint64_t *minus, int n)
{
    g_string_append_printf(text, "%s\"%s\": {", text->len > 2 ? ",\n " : " ", name);
    for (int i = 0; i < n; i++) {
        g_string_append_printf(text, "%s\"%s\": %" PRIu64, i ? ", " : "", names[i],
                               values[i] - (minus ? minus[i] : 0));
    }
    g_string_append(text, "}");
}

FAKE_EXPORT char *fake_verbs_report(void)
{
    GString *text = g_string_new("{\n");
    fake_lock_acquire();
    report_group(text, "calls", verb_names, calls, NULL, FAKE_VERB_COUNT);
    report_group(text, "requests", operation_names, requests, NULL, FAKE_OP_COUNT);
    report_group(text, "events", event_names, events, NULL, G_N_ELEMENTS(event_names) - 1);
    report_group(text, "created", kind_names, created, NULL, FAKE_KIND_COUNT);
    report_group(text, "live", kind_names, created, destroyed, FAKE_KIND_COUNT);
    report_group(text, "numbers", number_names, fake_numbers, NULL, FAKE_NUMBER_COUNT);
    fake_lock_release();
    g_string_append(text, "\n}\n");
    return g_string_free(text, FALSE);
}

__attribute__((constructor)) static void begin(void)
{
    honest();
    const char *specification = getenv("FAKE_VERBS");
    const char *wrong = specification ? fake_verbs_set(specification) : NULL;
    if (wrong) {
        fprintf(stderr, "fake-verbs: FAKE_VERBS: '%s' is not understood\n", wrong);
        _exit(2);
    }
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAKE_VERBS_REPORT");
    if (path) {
        g_autofree char *text = fake_verbs_report();
        g_file_set_contents(path, text, -1, NULL);
    }
}
