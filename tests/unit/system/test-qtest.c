/* SPDX-License-Identifier: BSD-2-Clause */
/* The qtest protocol: replies as QEMU gives them, errors where QEMU crashes, the server on a socket. */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <glib-unix.h>
#include <glib/gstdio.h>

#include "system/machine-none.h"
#include "system/qtest.h"

#define PAGE 4096

typedef struct Fixture {
    Machine *m;
    uint8_t *memory;
    RAMBlock a, b;
} Fixture;

static void fixture_setup(Fixture *fx, gconstpointer data)
{
    memset(fx, 0, sizeof(*fx));
    fx->m = machine_new(&machine_none_type, false);
    fx->memory = g_aligned_alloc0(8, PAGE, PAGE);
    /* One after the other for the guest, the other way round for us: 0..0x3fff and 0x4000..0x7fff. */
    fx->a = (RAMBlock){ .idstr = "a", .host = fx->memory + 4 * PAGE, .used_length = 4 * PAGE, .fd = -1 };
    fx->b =
        (RAMBlock){ .idstr = "b", .host = fx->memory, .used_length = 4 * PAGE, .gpa = 4 * PAGE, .fd = -1 };
    g_assert_true(ram_list_add(&fx->m->ram, &fx->a, NULL));
    g_assert_true(ram_list_add(&fx->m->ram, &fx->b, NULL));
}

static void fixture_teardown(Fixture *fx, gconstpointer data)
{
    machine_free(fx->m);
    g_aligned_free(fx->memory);
}

static void expect(Fixture *fx, const char *line, const char *reply)
{
    g_autofree char *got = qtest_run_line(fx->m, line, strlen(line));
    g_autofree char *want = g_strdup_printf("%s\n", reply);
    if (strcmp(got, want) != 0) {
        g_test_message("line: %s", line);
    }
    g_assert_cmpstr(got, ==, want);
}

/* Lines and replies as seen on a real QEMU 7.2 with machine pc. */
static void test_as_qemu(Fixture *fx, gconstpointer data)
{
    static const char *const talk[][2] = {
        { "endianness", "OK little" },
        { "writeb 0x100 0x12", "OK" },
        { "writew 0x100 0x1234", "OK" },
        { "writel 0x100 0x12345678", "OK" },
        { "writeq 0x100 0x123456789abcdef0", "OK" },
        { "readb 0x100", "OK 0x00000000000000f0" },
        { "readw 0x100", "OK 0x000000000000def0" },
        { "readl 0x100", "OK 0x000000009abcdef0" },
        { "readq 0x100", "OK 0x123456789abcdef0" },
        { "read 0x100 0x8", "OK 0xf0debc9a78563412" },
        { "read 0x100 8", "OK 0xf0debc9a78563412" },
        { "write 0x200 4 0x01020304", "OK" },
        { "read 0x1fe 8", "OK 0x0000010203040000" },
        { "memset 0x300 16 0xab", "OK" },
        { "read 0x300 17", "OK 0xabababababababababababababababab00" },
        { "memset 0x300 0 0", "OK" },
        { "b64write 0x400 4 AQIDBA==", "OK" },
        { "b64read 0x400 4", "OK AQIDBA==" },
        { "b64read 0x200 0", "OK " },
        { "writeb 256 255", "OK" },
        { "readb 256", "OK 0x00000000000000ff" },
        { "readb 0400", "OK 0x00000000000000ff" },
        { "writeb 0x100 0x1ff", "OK" },
        { "writeb 0x100 -1", "OK" },
        { "readb 0x100 extra", "OK 0x00000000000000ff" },
        { "readb 0x100 ", "OK 0x00000000000000ff" },
        { "write 0x200 3 0xABcdEF", "OK" },
        { "read 0x200 3", "OK 0xabcdef" },
        { "inb 0x80", "OK 0x00ff" },
        { "outb 0x80 0x1", "OK" },
        { "irq_intercept_in nosuch", "FAIL Unknown device" },
        { "module_load foo bar", "FAIL" },
        { "nosuch", "FAIL Unknown command 'nosuch'" },
        { "ENDIANNESS", "FAIL Unknown command 'ENDIANNESS'" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(talk); i++) {
        expect(fx, talk[i][0], talk[i][1]);
    }
}

/* Where QEMU aborts, or does what was not asked for. */
static void test_errors(Fixture *fx, gconstpointer data)
{
    static const char *const talk[][2] = {
        { "", "FAIL Unknown command ''" },
        { "  ", "FAIL Unknown command ''" },
        { "readb", "ERR readb needs 1 arguments" },
        { "writeb 0x100", "ERR writeb needs 2 arguments" },
        { "memset 0x100 1", "ERR memset needs 3 arguments" },
        { "readb zz", "ERR address is not a number from 0 to 2^64 - 1" },
        { "readb 0x100z", "ERR address is not a number from 0 to 2^64 - 1" },
        { "readb 0x10000000000000000", "ERR address is not a number from 0 to 2^64 - 1" },
        { "writeb 0x100 0x10000000000000000", "ERR value is not a number from 0 to 2^64 - 1" },
        { "read 0 zz", "ERR length is not a number from 0 to 2^64 - 1" },
        { "read 0x200 -1", "ERR length is not in the range from 0 to 16777216" },
        { "read 0x200 0x1000001", "ERR length is not in the range from 0 to 16777216" },
        { "readb -1", "ERR no memory is mapped at address 0xffffffffffffffff" },
        { "readb 0x8000", "ERR no memory is mapped at address 0x8000" },
        { "readw 0x7fff", "ERR no memory is mapped at address 0x8000" },
        { "writeq 0x7ff9 1", "ERR no memory is mapped at address 0x8000" },
        { "memset 0 0x8001 1", "ERR no memory is mapped at address 0x8000" },
        { "memset 0 -1 1", "ERR no memory is mapped at address 0x8000" },
        { "write 0x8000 1 0x00", "ERR no memory is mapped at address 0x8000" },
        { "b64write 0x8000 1 AA==", "ERR no memory is mapped at address 0x8000" },
        { "b64read 0x8000 1", "ERR no memory is mapped at address 0x8000" },
        { "write 0x200 4 0x01", "ERR the data is not the text of 4 bytes" },
        { "write 0x200 1 0x0102", "ERR the data is not the text of 1 bytes" },
        { "write 0x200 4 01020304", "ERR the data is not the text of 4 bytes" },
        { "write 0x200 2 0x01g2", "ERR the data is not the text of 2 bytes" },
        { "b64write 0x400 3 AQIDBA==", "ERR the data is not the text of 3 bytes" },
        { "b64write 0x400 5 AQIDBA==", "ERR the data is not the text of 5 bytes" },
        { "b64write 0x400 4 AQI!BA==", "ERR the data is not the text of 4 bytes" },
        { "b64write 0x400 4", "ERR the data is not the text of 4 bytes" },
        { "b64write 0x400 4 AQIDBA=", "ERR the data is not the text of 4 bytes" },
        { "irq_intercept_in", "ERR irq_intercept_in needs 1 arguments" },
        { "clock_step zz", "ERR step is not a number from 0 to 2^64 - 1" },
        { "clock_set -1", "ERR the clock cannot be set beyond 9223372036854775807" },
        { "a\tb", "FAIL Unknown command 'a'" },
        { "\001\002'", "FAIL Unknown command '\\001\\002''" },
    };
    memset(fx->memory, 0x55, 8 * PAGE);
    for (size_t i = 0; i < G_N_ELEMENTS(talk); i++) {
        expect(fx, talk[i][0], talk[i][1]);
    }
    for (size_t i = 0; i < 8 * PAGE; i++) {
        g_assert_cmphex(fx->memory[i], ==, 0x55);
    }
}

static void test_lenient(Fixture *fx, gconstpointer data)
{
    static const char *const talk[][2] = {
        { "  endianness\r", "OK little" },
        { "readb\t0x100", "OK 0x0000000000000000" },
        { "readb  0x100", "OK 0x0000000000000000" },
        { "write 0 0 0x", "OK" },
        { "b64write 0 0", "OK" },
        { "read 0 0", "OK 0x" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(talk); i++) {
        expect(fx, talk[i][0], talk[i][1]);
    }
}

static void test_spans_blocks_and_is_logged(Fixture *fx, gconstpointer data)
{
    uint64_t bits = 0, new_dirty = 0;

    expect(fx, "writeq 0x3ffc 0x1122334455667788", "OK");
    g_assert_true(dirty_log_start(&fx->m->dirty_log, &fx->m->ram, NULL));
    expect(fx, "readq 0x3ffc", "OK 0x1122334455667788");
    g_assert_cmphex(fx->memory[8 * PAGE - 1], ==, 0x55);
    g_assert_cmphex(fx->memory[0], ==, 0x44);

    expect(fx, "writeb 0x1000 1", "OK");
    expect(fx, "memset 0x2fff 2 1", "OK");
    expect(fx, "write 0x4fff 2 0x0102", "OK");
    expect(fx, "b64write 0x7fff 1 AQ==", "OK");
    expect(fx, "write 0x7fff 2 0x0102", "ERR no memory is mapped at address 0x8000");
    g_assert_true(dirty_log_sync(&fx->m->dirty_log, &fx->a, 0, 4, &bits, &new_dirty, NULL));
    g_assert_cmphex(bits, ==, 0xe);
    bits = 0;
    g_assert_true(dirty_log_sync(&fx->m->dirty_log, &fx->b, 0, 4, &bits, &new_dirty, NULL));
    g_assert_cmphex(bits, ==, 0xb);
}

static void test_clock(Fixture *fx, gconstpointer data)
{
    expect(fx, "clock_step", "OK 0");
    expect(fx, "clock_step 1000000", "OK 1000000");
    expect(fx, "clock_step 0", "OK 1000000");
    expect(fx, "clock_set 5000000", "OK 5000000");
    expect(fx, "clock_set 1", "OK 5000000");
    g_assert_cmpint(machine_clock_ns(fx->m), ==, 5000000);
    expect(fx, "clock_set 0x7ffffffffffffffe", "OK 9223372036854775806");
    expect(fx, "clock_step 1", "OK 9223372036854775807");
    expect(fx, "clock_step 1", "ERR the clock cannot be set beyond 9223372036854775807");
}

static void test_largest(Fixture *fx, gconstpointer data)
{
    RAMBlock big = { .idstr = "big", .used_length = QTEST_MAX_DATA, .gpa = 0x10000000, .fd = -1 };
    g_autoptr(GString) line = g_string_new(NULL);
    big.host = g_aligned_alloc0(1, QTEST_MAX_DATA, PAGE);
    g_assert_true(ram_list_add(&fx->m->ram, &big, NULL));

    g_string_printf(line, "write 0x10000000 %u 0x", QTEST_MAX_DATA);
    for (unsigned i = 0; i < QTEST_MAX_DATA; i += 4) {
        g_string_append(line, "00a1b2c3");
    }
    g_assert_cmpuint(line->len, <=, QTEST_MAX_LINE);
    expect(fx, line->str, "OK");
    g_assert_cmphex(big.host[QTEST_MAX_DATA - 1], ==, 0xc3);
    g_autofree char *ask = g_strdup_printf("read 0x10000000 %u", QTEST_MAX_DATA);
    g_autofree char *reply = qtest_run_line(fx->m, ask, strlen(ask));
    g_assert_true(strncmp(reply, "OK 0x00a1b2c300a1", 17) == 0);
    g_assert_cmpuint(strlen(reply), ==, 5 + 2 * QTEST_MAX_DATA + 1);
    ram_list_remove(&fx->m->ram, &big);
    g_aligned_free(big.host);
}

/* ---- the server ---- */

typedef struct Client {
    int fd;
    GString *got;
} Client;

static gboolean hung(gpointer data)
{
    g_error("no answer within 60 seconds");
    return G_SOURCE_REMOVE;
}

static gboolean client_readable(gint fd, GIOCondition condition, gpointer data)
{
    Client *c = data;
    char buf[4096];
    ssize_t n = read(fd, buf, sizeof(buf));
    g_assert_cmpint(n, >, 0);
    g_string_append_len(c->got, buf, n);
    return G_SOURCE_CONTINUE;
}

static int client_connect(const char *path)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    g_strlcpy(addr.sun_path, path, sizeof(addr.sun_path));
    g_assert_cmpint(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    return fd;
}

/* Writes in a thread of its own, because the server is in this one. */
static gpointer client_writer(gpointer data)
{
    const GString *text = ((gpointer *)data)[0];
    int fd = GPOINTER_TO_INT(((gpointer *)data)[1]);
    for (size_t done = 0; done < text->len;) {
        ssize_t n = write(fd, text->str + done, text->len - done);
        g_assert_cmpint(n, >, 0);
        done += n;
    }
    return NULL;
}

/* Sends all, and runs the main loop until @lines lines have come back. */
static char *converse(const char *path, const GString *text, unsigned lines)
{
    Client c = { client_connect(path), g_string_new(NULL) };
    gpointer args[] = { (gpointer)text, GINT_TO_POINTER(c.fd) };
    GThread *writer = g_thread_new("client", client_writer, args);
    guint watch = g_unix_fd_add(c.fd, G_IO_IN, client_readable, &c);
    guint timeout = g_timeout_add_seconds(60, hung, NULL);

    for (;;) {
        unsigned have = 0;
        for (size_t i = 0; i < c.got->len; i++) {
            have += c.got->str[i] == '\n';
        }
        if (have >= lines) {
            break;
        }
        g_main_context_iteration(NULL, true);
    }
    g_thread_join(writer);
    g_source_remove(watch);
    g_source_remove(timeout);
    close(c.fd);
    return g_string_free(c.got, false);
}

static void test_server(Fixture *fx, gconstpointer data)
{
    g_autofree char *dir = g_dir_make_tmp("godwit-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(dir, "qtest", NULL);
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    g_autoptr(Chardev) chr = chardev_new("qtest", spec, NULL);
    g_assert_nonnull(chr);
    QtestServer *server = qtest_server_new(fx->m, chr);

    g_autoptr(GString) text = g_string_new("writeb 0x10 7\nreadb 0x10\r\n\nreadb 0x11\nnosuch");
    g_autofree char *first = converse(path, text, 4);
    g_assert_cmpstr(first, ==,
                    "OK\nOK 0x0000000000000007\nFAIL Unknown command ''\nOK 0x0000000000000000\n");

    /* The unfinished line of the first client is gone, the memory is not. */
    g_string_assign(text, "readb 0x10\n");
    g_autofree char *second = converse(path, text, 1);
    g_assert_cmpstr(second, ==, "OK 0x0000000000000007\n");

    /* A line that does not end is not kept; the next one is understood. */
    g_string_assign(text, "write 0 1 0x");
    g_string_set_size(text, QTEST_MAX_LINE + 100);
    memset(text->str + 12, '0', text->len - 12);
    g_string_append(text, "\nreadb 0x10\n");
    g_autofree char *third = converse(path, text, 2);
    g_autofree char *want = g_strdup_printf("ERR a line may have %u characters\nOK 0x0000000000000007\n",
                                            QTEST_MAX_LINE);
    g_assert_cmpstr(third, ==, want);

    qtest_server_free(server);
    g_clear_pointer(&chr, chardev_free);
    g_rmdir(dir);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, func) \
    g_test_add("/system/qtest/" name, Fixture, NULL, fixture_setup, func, fixture_teardown)
    ADD("as-qemu", test_as_qemu);
    ADD("errors", test_errors);
    ADD("lenient", test_lenient);
    ADD("spans-blocks-and-is-logged", test_spans_blocks_and_is_logged);
    ADD("clock", test_clock);
    ADD("largest", test_largest);
    ADD("server", test_server);
    return g_test_run();
}
