/* SPDX-License-Identifier: BSD-2-Clause */
/* The qtest protocol: an interpreter of lines, and the server that gathers them from a character device. */
#include "system/qtest.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "trace-system.h"
#include "util/error.h"

#define MAX_WORDS 5

/* Longest text of a number: 22 octal digits and some zeros. */
#define MAX_NUMBER 40

/* A piece of the line. */
typedef struct Word {
    const char *text;
    size_t len;
} Word;

typedef struct Request {
    Machine *machine;
    Word words[MAX_WORDS];      /* the command and its arguments; those not given are empty */
    unsigned n_words;
    GString *reply;             /* what follows "OK" */
} Request;

typedef struct Command {
    const char *name;
    unsigned min_args;
    unsigned width;             /* bytes of a value, for those commands that come in several widths */
    bool (*run)(Request *r, const struct Command *cmd, GError **errp);
} Command;

/* ---- arguments ---- */

static bool arg_number(const Request *r, unsigned i, const char *name, uint64_t *out, GError **errp)
{
    const Word *word = &r->words[i];
    char text[MAX_NUMBER + 1], *end;

    if (word->len && word->len <= MAX_NUMBER) {
        memcpy(text, word->text, word->len);
        text[word->len] = '\0';
        errno = 0;
        uint64_t value = g_ascii_strtoull(text, &end, 0);
        if (!errno && !*end) {
            *out = value;
            return true;
        }
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "%s is not a number from 0 to 2^64 - 1", name);
    return false;
}

static bool arg_length(const Request *r, unsigned i, uint64_t *out, GError **errp)
{
    uint64_t len;

    if (!arg_number(r, i, "length", &len, errp)) {
        return false;
    }
    if (len > QTEST_MAX_DATA) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "length is not in the range from 0 to %u",
                    QTEST_MAX_DATA);
        return false;
    }
    *out = len;
    return true;
}

static bool bad_data(uint64_t len, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "the data is not the text of %" PRIu64 " bytes",
                len);
    return false;
}

/* ---- commands ---- */

static bool run_endianness(Request *r, const Command *cmd, GError **errp)
{
    g_string_append(r->reply, " little");
    return true;
}

static bool run_read_value(Request *r, const Command *cmd, GError **errp)
{
    uint64_t addr, value = 0;

    if (!arg_number(r, 1, "address", &addr, errp) ||
        !machine_memory_read(r->machine, addr, &value, cmd->width, errp)) {
        return false;
    }
    g_string_append_printf(r->reply, " 0x%016" PRIx64, GUINT64_FROM_LE(value));
    return true;
}

static bool run_write_value(Request *r, const Command *cmd, GError **errp)
{
    uint64_t addr, value;

    if (!arg_number(r, 1, "address", &addr, errp) || !arg_number(r, 2, "value", &value, errp)) {
        return false;
    }
    value = GUINT64_TO_LE(value);
    return machine_memory_write(r->machine, addr, &value, cmd->width, errp);
}

/* The memory that a read command asks for, or NULL. */
static uint8_t *read_data(Request *r, uint64_t *len, GError **errp)
{
    g_autofree uint8_t *data = NULL;
    uint64_t addr;

    if (!arg_number(r, 1, "address", &addr, errp) || !arg_length(r, 2, len, errp)) {
        return NULL;
    }
    data = g_malloc(*len + 1);
    if (!machine_memory_read(r->machine, addr, data, *len, errp)) {
        return NULL;
    }
    return g_steal_pointer(&data);
}

static bool run_read(Request *r, const Command *cmd, GError **errp)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t len;
    g_autofree uint8_t *data = read_data(r, &len, errp);

    if (!data) {
        return false;
    }
    g_string_append(r->reply, " 0x");
    size_t at = r->reply->len;
    g_string_set_size(r->reply, at + 2 * len);
    for (uint64_t i = 0; i < len; i++) {
        r->reply->str[at++] = digits[data[i] >> 4];
        r->reply->str[at++] = digits[data[i] & 15];
    }
    return true;
}

static bool run_b64read(Request *r, const Command *cmd, GError **errp)
{
    uint64_t len;
    g_autofree uint8_t *data = read_data(r, &len, errp);

    if (!data) {
        return false;
    }
    g_autofree char *text = len ? g_base64_encode(data, len) : g_strdup("");
    g_string_append_c(r->reply, ' ');
    g_string_append(r->reply, text);
    return true;
}

static bool decode_hex(const Word *word, uint8_t *data, uint64_t len)
{
    if (word->len != 2 + 2 * len || word->text[0] != '0' || word->text[1] != 'x') {
        return false;
    }
    for (uint64_t i = 0; i < len; i++) {
        int high = g_ascii_xdigit_value(word->text[2 + 2 * i]);
        int low = g_ascii_xdigit_value(word->text[3 + 2 * i]);
        if (high < 0 || low < 0) {
            return false;
        }
        data[i] = high << 4 | low;
    }
    return true;
}

static bool run_write(Request *r, const Command *cmd, GError **errp)
{
    uint64_t addr, len;

    if (!arg_number(r, 1, "address", &addr, errp) || !arg_length(r, 2, &len, errp)) {
        return false;
    }
    g_autofree uint8_t *data = g_malloc(len + 1);
    if (!decode_hex(&r->words[3], data, len)) {
        return bad_data(len, errp);
    }
    return machine_memory_write(r->machine, addr, data, len, errp);
}

/* Strict: g_base64_decode() skips what it does not know. */
static bool is_base64(const Word *word)
{
    size_t len = word->len;

    if (len % 4) {
        return false;
    }
    for (unsigned pad = 0; pad < 2 && len && word->text[len - 1] == '='; pad++) {
        len--;
    }
    for (size_t i = 0; i < len; i++) {
        if (!g_ascii_isalnum(word->text[i]) && word->text[i] != '+' && word->text[i] != '/') {
            return false;
        }
    }
    return true;
}

static bool run_b64write(Request *r, const Command *cmd, GError **errp)
{
    const Word *word = &r->words[3];
    uint64_t addr, len;

    if (!arg_number(r, 1, "address", &addr, errp) || !arg_length(r, 2, &len, errp)) {
        return false;
    }
    if (!is_base64(word)) {
        return bad_data(len, errp);
    }
    g_autofree char *text = g_strndup(word->text, word->len);
    gsize got = 0;
    if (*text) {
        g_base64_decode_inplace(text, &got);
    }
    if (got != len) {
        return bad_data(len, errp);
    }
    return machine_memory_write(r->machine, addr, text, len, errp);
}

static bool run_memset(Request *r, const Command *cmd, GError **errp)
{
    uint64_t addr, len, byte;

    return arg_number(r, 1, "address", &addr, errp) && arg_number(r, 2, "length", &len, errp) &&
           arg_number(r, 3, "value", &byte, errp) && machine_memory_fill(r->machine, addr, byte, len, errp);
}

static bool set_clock(Request *r, uint64_t to, GError **errp)
{
    uint64_t now = machine_clock_ns(r->machine);

    if (to > INT64_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "the clock cannot be set beyond %" PRId64,
                    INT64_MAX);
        return false;
    }
    if ((int64_t)to > (int64_t)now) {
        machine_clock_set_ns(r->machine, to);
        now = to;
    }
    g_string_append_printf(r->reply, " %" PRId64, (int64_t)now);
    return true;
}

static bool run_clock_step(Request *r, const Command *cmd, GError **errp)
{
    uint64_t ns = 0, now = MAX(machine_clock_ns(r->machine), 0);

    if (r->n_words > 1 && !arg_number(r, 1, "step", &ns, errp)) {
        return false;
    }
    return set_clock(r, ns > UINT64_MAX - now ? UINT64_MAX : now + ns, errp);
}

static bool run_clock_set(Request *r, const Command *cmd, GError **errp)
{
    uint64_t ns;

    return arg_number(r, 1, "time", &ns, errp) && set_clock(r, ns, errp);
}

/* No device decodes a port: reads give all ones. */
static bool run_in(Request *r, const Command *cmd, GError **errp)
{
    uint64_t port;

    if (!arg_number(r, 1, "port", &port, errp)) {
        return false;
    }
    g_string_append_printf(r->reply, " 0x%04" PRIx64, UINT64_MAX >> (64 - 8 * cmd->width));
    return true;
}

static bool run_out(Request *r, const Command *cmd, GError **errp)
{
    uint64_t port, value;

    return arg_number(r, 1, "port", &port, errp) && arg_number(r, 2, "value", &value, errp);
}

/* Known, but cannot succeed here: answered as peers answer for a device that they do not have. */
static bool run_unknown_device(Request *r, const Command *cmd, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND, "Unknown device");
    return false;
}

static bool run_module_load(Request *r, const Command *cmd, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND, "%s", "");
    return false;
}

static const Command commands[] = {
    { "endianness", 0, 0, run_endianness },
    { "readb", 1, 1, run_read_value },
    { "readw", 1, 2, run_read_value },
    { "readl", 1, 4, run_read_value },
    { "readq", 1, 8, run_read_value },
    { "writeb", 2, 1, run_write_value },
    { "writew", 2, 2, run_write_value },
    { "writel", 2, 4, run_write_value },
    { "writeq", 2, 8, run_write_value },
    { "read", 2, 0, run_read },
    { "write", 3, 0, run_write },
    { "b64read", 2, 0, run_b64read },
    { "b64write", 2, 0, run_b64write },     /* no bytes are no word */
    { "memset", 3, 0, run_memset },
    { "clock_step", 0, 0, run_clock_step },
    { "clock_set", 1, 0, run_clock_set },
    { "inb", 1, 1, run_in },
    { "inw", 1, 2, run_in },
    { "inl", 1, 4, run_in },
    { "outb", 2, 1, run_out },
    { "outw", 2, 2, run_out },
    { "outl", 2, 4, run_out },
    { "irq_intercept_in", 1, 0, run_unknown_device },
    { "irq_intercept_out", 1, 0, run_unknown_device },
    { "set_irq_in", 4, 0, run_unknown_device },
    { "module_load", 2, 0, run_module_load },
};

/* ---- a line ---- */

/* Words are separated by blanks and tabs; more than the longest command has are ignored. */
static void split_words(Request *r, const char *line, size_t len)
{
    const char *end = line + len;

    for (unsigned i = 0; i < MAX_WORDS; i++) {
        r->words[i].text = "";
    }
    while (r->n_words < MAX_WORDS) {
        while (line < end && (*line == ' ' || *line == '\t')) {
            line++;
        }
        if (line == end) {
            return;
        }
        Word *word = &r->words[r->n_words++];
        word->text = line;
        while (line < end && *line != ' ' && *line != '\t') {
            line++;
        }
        word->len = line - word->text;
    }
}

static const Command *find_command(const Word *word)
{
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (strlen(commands[i].name) == word->len && memcmp(commands[i].name, word->text, word->len) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static char *reply_unknown(const Word *word)
{
    /* Not more than a line of it, and nothing unprintable. */
    g_autofree char *name = g_strndup(word->text, MIN(word->len, 60));
    g_autofree char *safe = g_strescape(name, NULL);
    return g_strdup_printf("FAIL Unknown command '%s'\n", safe);
}

static char *reply_error(const GError *error)
{
    if (g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND)) {
        return *error->message ? g_strdup_printf("FAIL %s\n", error->message) : g_strdup("FAIL\n");
    }
    return g_strdup_printf("ERR %s\n", error->message);
}

char *qtest_run_line(Machine *m, const char *line, size_t len)
{
    Request r = { .machine = m };
    g_autoptr(GError) error = NULL;

    if (len && line[len - 1] == '\r') {
        len--;
    }
    split_words(&r, line, len);
    const Command *cmd = find_command(&r.words[0]);
    if (!cmd) {
        return reply_unknown(&r.words[0]);
    }
    trace_qtest_command(cmd->name);
    if (r.n_words - 1 < cmd->min_args) {
        return g_strdup_printf("ERR %s needs %u arguments\n", cmd->name, cmd->min_args);
    }

    r.reply = g_string_new("OK");
    if (!cmd->run(&r, cmd, &error)) {
        g_string_free(r.reply, true);
        return reply_error(error);
    }
    g_string_append_c(r.reply, '\n');
    return g_string_free(r.reply, false);
}

/* ---- the server ---- */

struct QtestServer {
    Machine *machine;
    Chardev *chr;
    GString *line;          /* its beginning, as long as the end has not come */
    bool too_long;          /* the rest is being skipped */
    FILE *log;              /* or NULL; not owned */
    gint64 opened_us;
};

/* @kind: R for received, S for sent.  Without the line feed. */
static void server_log(const QtestServer *s, char kind, const char *text, size_t len)
{
    if (s->log) {
        double seconds = (double)(g_get_monotonic_time() - s->opened_us) / G_USEC_PER_SEC;

        fprintf(s->log, "[%c +%.6f] %.*s\n", kind, seconds, (int)len, text);
        fflush(s->log);
    }
}

static void server_reply(QtestServer *s, const char *text)
{
    server_log(s, 'S', text, strcspn(text, "\n"));
    chardev_write(s->chr, text, strlen(text));
}

static void server_run(QtestServer *s, const char *line, size_t len)
{
    server_log(s, 'R', line, len);
    g_autofree char *reply = qtest_run_line(s->machine, line, len);
    server_reply(s, reply);
}

/* Adds what has come of an unfinished line. */
static void server_gather(QtestServer *s, const char *text, size_t len)
{
    if (s->too_long || len > QTEST_MAX_LINE - s->line->len) {
        s->too_long = true;
        g_string_set_size(s->line, 0);
    } else {
        g_string_append_len(s->line, text, len);
    }
}

static void server_end_of_line(QtestServer *s)
{
    if (s->too_long) {
        g_autofree char *reply = g_strdup_printf("ERR a line may have %u characters\n", QTEST_MAX_LINE);
        server_reply(s, reply);
    } else {
        server_run(s, s->line->str, s->line->len);
    }
    s->too_long = false;
    if (s->line->allocated_len > 1 << 20) {
        g_string_free(s->line, true);
        s->line = g_string_new(NULL);
    } else {
        g_string_set_size(s->line, 0);
    }
}

static void server_receive(void *opaque, const uint8_t *buf, size_t len, int *fds, size_t n_fds)
{
    QtestServer *s = opaque;
    const char *text = (const char *)buf, *end = text + len;

    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
    while (text < end) {
        const char *feed = memchr(text, '\n', end - text);
        server_gather(s, text, (feed ? feed : end) - text);
        if (!feed) {
            return;
        }
        server_end_of_line(s);
        text = feed + 1;
    }
}

static void server_opened(void *opaque)
{
    QtestServer *s = opaque;

    g_string_set_size(s->line, 0);
    s->too_long = false;
    s->opened_us = g_get_monotonic_time();
}

static void server_closed(void *opaque)
{
    server_opened(opaque);
}

static const ChardevHandlers server_handlers = {
    .opened = server_opened, .closed = server_closed, .receive = server_receive,
};

QtestServer *qtest_server_new(Machine *m, Chardev *chr)
{
    QtestServer *s = g_new0(QtestServer, 1);

    s->machine = m;
    s->chr = chr;
    s->line = g_string_new(NULL);
    chardev_set_handlers(chr, &server_handlers, s);
    return s;
}

void qtest_server_free(QtestServer *s)
{
    if (!s) {
        return;
    }
    chardev_set_handlers(s->chr, NULL, NULL);
    g_string_free(s->line, true);
    g_free(s);
}

void qtest_server_set_log(QtestServer *s, FILE *log)
{
    s->log = log;
}
