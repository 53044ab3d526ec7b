/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA over the fake verbs: whatever call fails, whenever: one error, the guest runs on, nothing is left. */
#include "fake-verbs.h"
#include "pair.h"

#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024ull)
#define SIZE (3 * MIB + 5 * TARGET_PAGE_SIZE)
/* As often as a verb is called at most for every one of its calls to be made to fail; more are sampled. */
#define ALL_OF 12

typedef struct Setting {
    const char *name;
    bool pin_all;
    const char *verbs;          /* words for the fake verbs in each run */
} Setting;

static const Setting settings[] = {
    { "dynamic", false, "" },
    { "pin-all", true, "" },
};

/* How the runs of one test ended. */
typedef struct Tally {
    unsigned runs, completed, failed, refused, handed_over;
} Tally;

/* Where @dst listens: at a port that was free when it did. */
static char *rdma_uri(Vm *dst)
{
    g_autoptr(MigrationInfo) info = migration_query(dst->ctx);
    g_assert_true(info->socket_address && info->socket_address->count == 1);
    return g_strdup_printf("rdma:127.0.0.1:%s", info->socket_address->items[0]->u.inet->port);
}

static bool start(Vm *src, Vm *dst, GError **errp)
{
    if (!migration_incoming_start(dst->ctx, "rdma:127.0.0.1:0", NULL, true, errp)) {
        return false;
    }
    g_autofree char *uri = rdma_uri(dst);
    return migration_start(src->ctx, uri, NULL, false, errp);
}

/* Data, single zero pages, and a zero run across the border of a chunk. */
static void fill(Vm *vm)
{
    vm_fill_random(vm, 5);
    memset(vm->block->host + MIB - 3 * TARGET_PAGE_SIZE, 0, 200 * TARGET_PAGE_SIZE);
}

static void assert_nothing_left(const char *words)
{
    g_autofree char *report = fake_verbs_report();
    if (fake_verbs_live() || fake_verbs_violations()) {
        g_error("%s: %s", words, report);
    }
}

static void assert_same_as(Vm *vm, const uint8_t *content, const char *words)
{
    if (memcmp(vm->block->host, content, SIZE) != 0) {
        g_error("%s: the source's memory has changed", words);
    }
}

static unsigned count_of(const char *text, const char *word)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, word)); p += strlen(word)) {
        n++;
    }
    return n;
}

static bool has_said_failed(void *opaque)
{
    g_autofree char *events = fake_host_events(&((Vm *)opaque)->host);
    return strstr(events, "failed");
}

static void judge_failed(Vm *src, Vm *dst, const char *words, Tally *tally)
{
    /* The state is there a moment before its event. */
    wait_until(has_said_failed, src, "the event");
    g_autoptr(MigrationInfo) info = migration_query(src->ctx);
    g_autofree char *events = fake_host_events(&src->host);
    if (!info->error_desc || strlen(info->error_desc) < 10 || count_of(events, "failed") != 1) {
        g_error("%s: error '%s', events '%s'", words, info->error_desc, events);
    }
    if (fake_host_state(&src->host) != RUN_STATE_RUNNING) {
        g_error("%s: the guest does not run on: %s", words, info->error_desc);
    }
    pair_assert_runs_on(src);
    g_test_message("%s: %s", words, info->error_desc);
    tally->failed++;
    if (!dst->host.resumes) {
        return;
    }
    assert_same_ram(src, dst);
    vm_wait_incoming_ended(dst);
    /* It has the guest, and its word about that was lost: the protocol has nothing for this. */
    if (fake_host_state(&dst->host) == RUN_STATE_RUNNING) {
        g_test_message("%s: the last word was lost", words);
        tally->handed_over++;
    }
}

static void judge(Vm *src, Vm *dst, const char *words, Tally *tally)
{
    if (vm_wait_end(src) == MIGRATION_STATUS_COMPLETED) {
        vm_wait_incoming_ended(dst);
        if (dst->host.ended_error) {
            g_error("%s: guest lost: %s", words, dst->host.ended_error);
        }
        assert_same_ram(src, dst);
        tally->completed++;
    } else {
        judge_failed(src, dst, words, tally);
    }
}

/* One migration under @words. */
static void run(const Setting *setting, const char *words, Tally *tally)
{
    Vm src, dst;
    g_autoptr(GError) error = NULL;
    g_autofree char *all = g_strdup_printf("%s %s", setting->verbs, words);

    fake_verbs_reset();
    g_assert_cmpstr(fake_verbs_set(all), ==, NULL);
    vm_init(&src, SIZE, false);
    vm_init(&dst, SIZE, true);
    fill(&src);
    g_autofree uint8_t *content = g_memdup2(src.block->host, SIZE);
    memset(dst.block->host, 0xa5, SIZE);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    vm_set_capability(&dst, MIGRATION_CAPABILITY_RETURN_PATH, true);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RDMA_PIN_ALL, setting->pin_all);
    vm_set_parameter(&src, "max-bandwidth", "0");

    tally->runs++;
    if (!start(&src, &dst, &error)) {
        g_assert_nonnull(error);
        g_test_message("%s: %s", words, error->message);
        g_assert_cmpuint(fake_verbs_injected(), >, 0);
        tally->refused++;
    } else {
        judge(&src, &dst, words, tally);
    }
    assert_same_as(&src, content, words);
    pair_clear(&src, &dst);
    assert_nothing_left(words);
}

/*
 * A guest on neither side ends the test in judge().  One on both is rare, and cannot be ruled out: what fails
 * may be the source's last READY, with SHUT 0 under way.
 */
static void say(const Tally *t)
{
    g_test_message("%u runs: %u completed, %u failed, %u refused at once; %u times the last word was lost",
                   t->runs, t->completed, t->failed, t->refused, t->handed_over);
}

/* ---- each call of each verb ---- */

static void test_each_call(gconstpointer data)
{
    const Setting *setting = data;
    Tally tally = { 0 };
    run(setting, "", &tally);
    g_assert_cmpuint(tally.completed, ==, 1);
    const char *const *names = fake_verbs_names();
    g_autofree unsigned *calls = g_new0(unsigned, g_strv_length((char **)names));
    for (int i = 0; names[i]; i++) {
        calls[i] = fake_verbs_calls(names[i]);
    }
    for (int i = 0; names[i]; i++) {
        for (unsigned n = 1; n <= calls[i]; n += n < ALL_OF || g_test_thorough() ? 1 : n / 2) {
            g_autofree char *words = g_strdup_printf("fail=%s:%u", names[i], n);
            run(setting, words, &tally);
        }
    }
    say(&tally);
    g_assert_cmpuint(tally.failed, >, 20);
    g_assert_cmpuint(tally.refused, >, 3);
}

/* ---- each status of each kind of request ---- */

static void test_each_status(gconstpointer data)
{
    const Setting *setting = data;
    static const char *const operations[] = { "write", "send", "recv" };
    Tally tally = { 0 };
    for (unsigned i = 0; i < G_N_ELEMENTS(operations); i++) {
        for (unsigned status = 1; status <= 23; status++) {
            /* The first ones, and those of a round under way. */
            unsigned n = 1 + (status * 7) % 9;
            g_autofree char *words = g_strdup_printf("status=%s:%u:%u", operations[i], n, status);
            unsigned completed = tally.completed;
            run(setting, words, &tally);
            bool same = tally.completed == completed;
            if (fake_verbs_injected() && !same && strcmp(operations[i], "write") == 0) {
                g_error("%s: completed all the same", words);
            }
        }
    }
    say(&tally);
    g_assert_cmpuint(tally.failed, >, 40);
}

/* Every write of a whole migration, in turn. */
static void test_each_write(gconstpointer data)
{
    const Setting *setting = data;
    Tally tally = { 0 };
    run(setting, "", &tally);
    unsigned writes = fake_verbs_number("writes");
    g_assert_cmpuint(writes, >, 2);
    for (unsigned n = 1; n <= writes; n += 1 + (g_test_thorough() ? 0 : writes / 25)) {
        g_autofree char *error = g_strdup_printf("status=write:%u:10", n);
        g_autofree char *refused = g_strdup_printf("refuse=%u:EINVAL", n);
        unsigned completed = tally.completed;
        run(setting, error, &tally);
        g_assert_true(!fake_verbs_injected() || tally.completed == completed);
        run(setting, refused, &tally);
    }
    say(&tally);
}

/*
 * Every message of a whole migration arrives, but its sender does not learn that: the guest is not lost,
 * least of all when it is one of the last.
 */
static void test_each_lost_ack(gconstpointer data)
{
    Tally tally = { 0 };
    /* How many there are is not the same in each run. */
    for (unsigned n = 1, beyond = 0; beyond < 4; n++) {
        g_autofree char *words = g_strdup_printf("lost-ack=send:%u", n);
        run(data, words, &tally);
        beyond = fake_verbs_number("injected") ? 0 : beyond + 1;
    }
    say(&tally);
    g_assert_cmpuint(tally.failed, >, 5);
}

/*
 * An error that is neither a refusal nor a timeout says no more about the last word than a timeout does: the
 * guest is not stopped at the destination as well.
 */
static void test_last_word_status(gconstpointer data)
{
    static const enum ibv_wc_status statuses[] = {
        IBV_WC_BAD_RESP_ERR, IBV_WC_REM_ABORT_ERR, IBV_WC_FATAL_ERR, IBV_WC_RESP_TIMEOUT_ERR,
        IBV_WC_GENERAL_ERR,
    };
    Tally tally = { 0 };

    run(data, "", &tally);
    uint64_t sends = fake_verbs_number("sends");
    g_assert_cmpuint(sends, >, 10);
    for (unsigned i = 0; i < G_N_ELEMENTS(statuses); i++) {
        /* How many there are is not the same in each run. */
        for (uint64_t n = sends - 6, beyond = 0; beyond < 4; n++) {
            g_autofree char *words = g_strdup_printf("lost-ack=send:%" PRIu64 ":%d", n, statuses[i]);
            run(data, words, &tally);
            beyond = fake_verbs_number("injected") ? 0 : beyond + 1;
        }
    }
    say(&tally);
    g_assert_cmpuint(tally.failed, >, 0);
}

/* ---- when the destination's guest runs and the source does not know yet ---- */

/* The destination has taken the ends of its two connections when as many events have been acknowledged. */
static void wait_for_ends(unsigned before)
{
    int64_t until = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;

    while (fake_verbs_calls("rdma_ack_cm_event") < before + 2) {
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        g_usleep(1000);
    }
    g_usleep(100000);           /* one may have been the source's */
}

static void yank_destination(void *ctx)
{
    migration_yank(ctx);
}

static void yank_source(void *ctx)
{
    unsigned before = fake_verbs_calls("rdma_ack_cm_event");
    migration_yank(ctx);
    wait_for_ends(before);
}

static void cancel_source(void *ctx)
{
    unsigned before = fake_verbs_calls("rdma_ack_cm_event");
    migration_cancel(ctx, NULL);
    wait_for_ends(before);
}

/* What happens then, and to whom. */
typedef struct Between {
    const char *name;
    void (*act)(void *ctx);
    bool to_source;
} Between;

static const Between betweens[] = {
    { "yank-destination", yank_destination, false },
    { "yank-source", yank_source, true },
    { "cancel-source", cancel_source, true },
};

/* The source's guest goes on, so the destination's stops again: it is one guest. */
static void test_between(gconstpointer data)
{
    const Between *between = data;
    Vm src, dst;
    g_autoptr(GError) error = NULL;

    fake_verbs_reset();
    vm_init(&src, SIZE, false);
    vm_init(&dst, SIZE, true);
    fill(&src);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    vm_set_capability(&dst, MIGRATION_CAPABILITY_RETURN_PATH, true);
    vm_set_parameter(&src, "max-bandwidth", "0");
    dst.host.on_start = between->act;
    dst.host.on_start_opaque = between->to_source ? src.ctx : dst.ctx;
    g_assert_true(start(&src, &dst, &error));
    g_assert_cmpint(vm_wait_end(&src), !=, MIGRATION_STATUS_COMPLETED);
    vm_wait_incoming_ended(&dst);
    g_assert_cmpuint(dst.host.resumes, ==, 1);
    g_assert_nonnull(dst.host.ended_error);
    g_assert_cmpint(fake_host_state(&dst.host), !=, RUN_STATE_RUNNING);
    pair_assert_runs_on(&src);
    pair_clear(&src, &dst);
    assert_nothing_left(between->name);
}

/* ---- what else a connection can do ---- */

static const char *const lost_events[] = {
    "event=ADDR_RESOLVED:1:ADDR_ERROR",    "event=ROUTE_RESOLVED:1:ROUTE_ERROR",
    "event=ESTABLISHED:1:REJECTED",        "event=ESTABLISHED:1:UNREACHABLE",
    "event=ESTABLISHED:1:CONNECT_ERROR",   "event=ESTABLISHED:1:DEVICE_REMOVAL",
    "event=ESTABLISHED:1:DISCONNECTED",    "event=ADDR_RESOLVED:1:DEVICE_REMOVAL",
    "event=ADDR_RESOLVED:2:ADDR_ERROR",    "event=ESTABLISHED:3:REJECTED",
    "event=ESTABLISHED:2:CONNECT_ERROR",   "event=ESTABLISHED:4:CONNECT_ERROR",
};

/* The end of each connection is told in another way at each side, or not at all: all has been said before. */
static void test_ends(gconstpointer data)
{
    static const char *const others[] = { "none", "DEVICE_REMOVAL" };
    Tally tally = { 0 };
    for (unsigned i = 0; i < G_N_ELEMENTS(others); i++) {
        for (unsigned n = 1; n <= 4; n++) {
            g_autofree char *words = g_strdup_printf("event=DISCONNECTED:%u:%s", n, others[i]);
            run(data, words, &tally);
        }
    }
    say(&tally);
    g_assert_cmpuint(tally.completed, ==, tally.runs);
}

static void test_events(gconstpointer data)
{
    Tally tally = { 0 };
    for (unsigned i = 0; i < G_N_ELEMENTS(lost_events); i++) {
        run(data, lost_events[i], &tally);
    }
    say(&tally);
    g_assert_cmpuint(tally.failed, >, 6);
}

/* Completions of the queues overtake each other, and events overtake completions. */
static void test_shuffled(gconstpointer data)
{
    Tally tally = { 0 };
    for (unsigned seed = 1; seed <= (g_test_thorough() ? 100 : 8); seed++) {
        g_autofree char *words = g_strdup_printf("delay=0:%u seed=%u", seed % 2 ? 300 : 5000, seed);
        run(data, words, &tally);
    }
    g_assert_cmpuint(tally.completed, ==, tally.runs);
}

/* What a device may be like; all of it must do. */
static const char *const devices[] = {
    "limit=max_qp_wr:32",
    "limit=max_qp_wr:16 limit=max_cqe:16",
    "limit=max_cqe:100",
    "limit=max_msg_sz:0x80000",
    "limit=max_mr_size:0x2a0000",
    "without=odp",
    "without=odp without=advise",
    "without=pin",
    "without=pin without=advise",
    "without=pin fail=ibv_advise_mr:1",
    "limit=max_sge:1",
    "zero-rkey=1",
    "zero-rkey=4",
    "zero-rkey=7",
};

static void test_devices(gconstpointer data)
{
    const Setting *setting = data;
    for (unsigned i = 0; i < G_N_ELEMENTS(devices); i++) {
        Tally tally = { 0 };
        run(setting, devices[i], &tally);
        /* Pinning all needs a region for each block. */
        bool does = !setting->pin_all || !g_str_has_prefix(devices[i], "limit=max_mr_size");
        if (tally.completed != does) {
            g_error("%s: %s", devices[i], does ? "does not do" : "does");
        }
    }
}

/* The device pins no guest memory: all of it is registered for on-demand paging, on both sides. */
static void test_on_demand(gconstpointer data)
{
    Tally tally = { 0 };
    run(data, "without=pin", &tally);
    g_assert_cmpuint(tally.completed, ==, 1);
    /* Four connections, each with buffers for messages, and nothing else. */
    g_assert_cmpuint(fake_verbs_number("max-pinned"), ==, 4 * 5 * 524288);
    g_assert_cmpuint(fake_verbs_calls("ibv_advise_mr"), >, 2);
}

/* One registration after the other cannot be pinned, or cannot be done at all. */
static void test_each_registration(gconstpointer data)
{
    static const char *const errors[] = { "EOPNOTSUPP", "EFAULT", "EINVAL", "ENOMEM" };
    Tally tally = { 0 };
    run(data, "", &tally);
    unsigned calls = fake_verbs_calls("ibv_reg_mr");

    for (unsigned i = 0; i < G_N_ELEMENTS(errors); i++) {
        bool on_demand_helps = i < 3;
        for (unsigned n = 1; n <= calls; n++) {
            g_autofree char *once = g_strdup_printf("fail=ibv_reg_mr:%u:%s", n, errors[i]);
            g_autofree char *without = g_strdup_printf("%s without=odp", once);
            Tally t = { 0 };
            run(data, once, &t);
            /* Buffers for messages are never tried again: each connection begins with its own. */
            bool advised = fake_verbs_calls("ibv_advise_mr");
            if (t.completed != advised || (advised && !on_demand_helps)) {
                g_error("%s: %s, %s on-demand paging", once, t.completed ? "completed" : "failed",
                        advised ? "with" : "without");
            }
            tally.completed += t.completed;
            t = (Tally){ 0 };
            run(data, without, &t);
            g_assert_cmpuint(t.completed, ==, 0);
        }
    }
    g_assert_cmpuint(tally.completed, >, 3);
}

/* A device that says that it has on-demand paging, and has it not for this memory: the block is named. */
static void test_unregistrable(gconstpointer data)
{
    Vm src, dst;
    g_autoptr(GError) error = NULL;

    fake_verbs_reset();
    g_assert_null(fake_verbs_set("without=pin without=odp"));
    vm_init(&src, SIZE, false);
    vm_init(&dst, SIZE, true);
    fill(&src);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RDMA_PIN_ALL, ((const Setting *)data)->pin_all);
    g_assert_true(start(&src, &dst, &error));
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_nonnull(strstr(info->error_desc, "RAM block 'm0'"));
    /* Before anything was sent, and with the guest running all the time. */
    g_assert_cmpuint(fake_verbs_number("writes"), ==, 0);
    pair_assert_runs_on(&src);
    pair_clear(&src, &dst);
    assert_nothing_left("unregistrable");
}

/* Memory that cannot be pinned at all: refused, before the guest is paused. */
static void test_memlock(gconstpointer data)
{
    Tally tally = { 0 };
    run(data, "limit=memlock:0x500000", &tally);
    run(data, "limit=memlock:4096", &tally);
    g_assert_cmpuint(tally.completed, <, tally.runs);
    say(&tally);
}

static void add(const char *name, void (*func)(gconstpointer))
{
    for (unsigned i = 0; i < G_N_ELEMENTS(settings); i++) {
        g_autofree char *path = g_strdup_printf("/rdma-faults/%s/%s", settings[i].name, name);
        g_test_add_data_func(path, &settings[i], func);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add("events", test_events);
    add("ends", test_ends);
    add("shuffled", test_shuffled);
    add("devices", test_devices);
    add("memlock", test_memlock);
    add("on-demand", test_on_demand);
    add("each-registration", test_each_registration);
    add("unregistrable", test_unregistrable);
    add("each-write", test_each_write);
    add("each-lost-ack", test_each_lost_ack);
    add("last-word-status", test_last_word_status);
    add("each-status", test_each_status);
    add("each-call", test_each_call);
    for (size_t i = 0; i < G_N_ELEMENTS(betweens); i++) {
        g_autofree char *path = g_strdup_printf("/rdma-faults/between/%s", betweens[i].name);
        g_test_add_data_func(path, &betweens[i], test_between);
    }
    return g_test_run();
}
