/* SPDX-License-Identifier: BSD-2-Clause */
/* The serial port of machine pico against the data sheet of the 16550, and its section; no KVM is needed. */
#include "chardev-peer.h"

#include "hw/pico/pico.h"
#include "io/transport.h"
#include "migration/vmstate.h"
#include "stream-builder.h"
#include "util/error.h"

#include <string.h>

/* Registers and bits by the data sheet.  DLL and DLM take the place of the first two while DLAB is set. */
enum { RBR = 0, THR = 0, IER = 1, IIR = 2, FCR = 2, LCR = 3, MCR = 4, LSR = 5, MSR = 6, SCR = 7 };
enum { DLL = 0, DLM = 1, DLAB = 0x80 };
enum { ERBFI = 1, ETBEI = 2, ELSI = 4, EDSSI = 8 };
enum { IIR_NONE = 1, IIR_THRE = 2, IIR_RECEIVED = 4, IIR_LINE = 6 };
enum { DR = 1, BI = 0x10, THRE = 0x20, TEMT = 0x40 };
enum { LOOP = 0x10 };
#define FIFO_DEPTH 16

#define SECTION_BYTES 32781     /* docs/kvm.md */
#define RECEIVED_BYTES 32768

typedef struct Port {
    Machine *m;
    ChardevPeer peer;
    GMutex lock;
    PicoSerial *serial;
    bool level;                 /* of the line */
    unsigned edges;             /* how often it rose */
    int guest_done;             /* atomic */
} Port;

static bool no_init(Machine *m, GError **errp)
{
    return true;
}

static const MachineType machine_type = { .name = "test", .init = no_init };

static void set_irq(void *opaque, bool level)
{
    Port *p = opaque;

    g_assert_false(g_mutex_trylock(&p->lock));      /* it is held */
    p->edges += level && !p->level;
    p->level = level;
}

static void set_up(Port *p, gconstpointer data)
{
    p->m = machine_new(&machine_type, false);
    g_mutex_init(&p->lock);
    chardev_peer_open(&p->peer);
    p->serial = pico_serial_new(p->m, 0, p->peer.chr, &p->lock, set_irq, p);
}

static void set_up_alone(Port *p, gconstpointer data)
{
    set_up(p, data);
    pico_serial_free(p->serial);
    p->serial = pico_serial_new(p->m, 0, NULL, &p->lock, set_irq, p);
}

static void tear_down(Port *p, gconstpointer data)
{
    pico_serial_free(p->serial);
    chardev_peer_close(&p->peer);
    g_mutex_clear(&p->lock);
    machine_free(p->m);
}

static unsigned get(Port *p, unsigned reg)
{
    g_mutex_lock(&p->lock);
    uint64_t value = pico_serial_read(p->serial, reg, 1);
    g_mutex_unlock(&p->lock);
    g_assert_cmphex(value, <=, 0xff);
    return (unsigned)value;
}

static void put(Port *p, unsigned reg, unsigned value)
{
    g_mutex_lock(&p->lock);
    pico_serial_write(p->serial, reg, 1, value);
    g_mutex_unlock(&p->lock);
}

static void reset(Port *p)
{
    g_mutex_lock(&p->lock);
    pico_serial_reset(p->serial);
    g_mutex_unlock(&p->lock);
}

/* The peer says @text, which is all that the guest has not read then. */
static void hear(Port *p, const char *text)
{
    g_assert_cmphex(get(p, LSR) & DR, ==, 0);
    g_assert_cmpint(write(p->peer.fd, text, strlen(text)), ==, (ssize_t)strlen(text));
    while (!(get(p, LSR) & DR)) {
        g_main_context_iteration(NULL, TRUE);
    }
}

static void expect_received(Port *p, const char *text)
{
    for (; *text; text++) {
        g_assert_cmphex(get(p, LSR) & DR, ==, DR);
        g_assert_cmphex(get(p, RBR), ==, (uint8_t)*text);
    }
    g_assert_cmphex(get(p, LSR) & DR, ==, 0);
}

static void expect_sent(Port *p, const char *text)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    chardev_peer_read_count(&p->peer, bytes, (guint)strlen(text));
    chardev_peer_settle();
    chardev_peer_read(&p->peer, bytes);
    g_assert_cmpmem(bytes->data, bytes->len, text, strlen(text));
}

/* ---- its section ---- */

static const VMStateDescription *vmsd_of(Port *p)
{
    g_assert_cmpstr(p->m->save_entries.first->idstr, ==, "pico-serial");
    return p->m->save_entries.first->vmsd;
}

static GByteArray *save(Port *p)
{
    g_autoptr(Channel) out = channel_buffer_new(NULL, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(out);
    g_autoptr(GError) error = NULL;

    g_assert_true(vmstate_save(w, vmsd_of(p), p->serial, NULL, &error));
    g_assert_true(stream_flush(w, &error));
    g_assert_no_error(error);
    const GByteArray *bytes = channel_buffer_bytes(out);
    return g_byte_array_append(g_byte_array_new(), bytes->data, bytes->len);
}

/* The section that begins with @bytes, the rest zeros. */
static bool load(Port *p, const uint8_t *bytes, size_t len, GError **errp)
{
    g_autofree uint8_t *section = g_malloc0(SECTION_BYTES);

    memcpy(section, bytes, len);
    g_autoptr(Channel) in = channel_buffer_new(section, SECTION_BYTES);
    g_autoptr(StreamReader) r = stream_reader_new(in);
    return vmstate_load(r, vmsd_of(p), p->serial, 1, errp);
}

/* divisor, ier, fcr, lcr, mcr, scratch, break_seen, thr_empty, rx_count, rx */
static const uint8_t golden[] = {
    0x01, 0x23, 0x05, 0xc9, 0x1b, 0x0b, 0x5a, 0, 1, 0, 0, 0, 3, 'x', 'y', 'z',
};

static uint32_t rx_count(Port *p)
{
    g_autoptr(GByteArray) section = save(p);

    return (uint32_t)section->data[9] << 24 | (uint32_t)section->data[10] << 16 |
           (uint32_t)section->data[11] << 8 | section->data[12];
}

/* What a guest has written, and what it has not read. */
static void test_golden(Port *p, gconstpointer data)
{
    static const uint8_t zeros[RECEIVED_BYTES];

    put(p, LCR, DLAB);
    put(p, DLL, 0x23);
    put(p, DLM, 0x01);
    put(p, LCR, 0x1b);
    put(p, IER, ERBFI | ELSI);
    put(p, FCR, 0xc9);
    put(p, MCR, 0x0b);
    put(p, SCR, 0x5a);
    put(p, THR, 'a');
    hear(p, "xyz");
    g_autoptr(GByteArray) section = save(p);
    g_assert_cmpuint(section->len, ==, SECTION_BYTES);
    g_assert_cmpmem(section->data, sizeof(golden), golden, sizeof(golden));
    size_t rest = SECTION_BYTES - sizeof(golden);
    g_assert_cmpmem(section->data + sizeof(golden), rest, zeros, rest);
    expect_sent(p, "a");
}

/* A port that gets it all from a section goes on with it. */
static void test_travel(Port *p, gconstpointer data)
{
    uint8_t section[sizeof(golden)];
    g_autoptr(GError) error = NULL;

    memcpy(section, golden, sizeof(section));
    section[7] = BI;
    g_assert_true(load(p, section, sizeof(section), &error));
    g_assert_no_error(error);
    g_autoptr(GByteArray) again = save(p);
    g_assert_cmpmem(again->data, sizeof(section), section, sizeof(section));
    g_assert_true(p->level);
    g_assert_cmphex(get(p, IER), ==, ERBFI | ELSI);
    g_assert_cmphex(get(p, LCR), ==, 0x1b);
    g_assert_cmphex(get(p, MCR), ==, 0x0b);
    g_assert_cmphex(get(p, SCR), ==, 0x5a);
    g_assert_cmphex(get(p, IIR), ==, 0xc0 | IIR_LINE);
    g_assert_cmphex(get(p, LSR), ==, BI | DR | THRE | TEMT);
    g_assert_cmphex(get(p, IIR), ==, 0xc0 | IIR_RECEIVED);
    expect_received(p, "xyz");
    g_assert_cmphex(get(p, IIR), ==, 0xc0 | IIR_NONE);
    put(p, IER, ETBEI);
    g_assert_cmphex(get(p, IIR), ==, 0xc0 | IIR_THRE);
    put(p, LCR, DLAB);
    g_assert_cmphex(get(p, DLL), ==, 0x23);
    g_assert_cmphex(get(p, DLM), ==, 0x01);
    put(p, LCR, 0);
    hear(p, "more");
    expect_received(p, "more");
}

/* What arrives at the destination follows what has travelled. */
static void test_travel_then_more(Port *p, gconstpointer data)
{
    g_assert_cmpint(write(p->peer.fd, "abc", 3), ==, 3);
    g_assert_true(load(p, golden, sizeof(golden), NULL));
    while (rx_count(p) < 6) {
        g_main_context_iteration(NULL, TRUE);
    }
    expect_received(p, "xyzabc");
}

/* More bytes than there is room for. */
static void test_bad_section(Port *p, gconstpointer data)
{
    uint8_t section[13] = { 0, 1, 0, 0, 0x1b, 0, 0, 0, 0, 0, 0, RECEIVED_BYTES >> 8, 0 };
    g_autoptr(GError) error = NULL;

    g_assert_true(load(p, section, sizeof(section), &error));
    g_assert_cmpuint(rx_count(p), ==, RECEIVED_BYTES);
    section[4] = 0x03;
    section[12] = 1;
    g_assert_false(load(p, section, sizeof(section), &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    g_assert_nonnull(strstr(error->message, "rx_count is 32769"));
    g_assert_cmphex(get(p, LCR), ==, 0x1b);         /* as it was */
    g_assert_cmpuint(rx_count(p), ==, RECEIVED_BYTES);
    section[12] = 0;
    section[9] = 0x80;
    g_assert_false(load(p, section, sizeof(section), NULL));
}

/* ---- registers ---- */

static void test_power_on(Port *p, gconstpointer data)
{
    for (unsigned round = 0; round < 2; round++) {
        g_assert_cmphex(get(p, IER), ==, 0);
        g_assert_cmphex(get(p, IIR), ==, IIR_NONE);
        g_assert_cmphex(get(p, LCR), ==, 0);
        g_assert_cmphex(get(p, MCR), ==, 0);
        g_assert_cmphex(get(p, LSR), ==, THRE | TEMT);
        g_assert_cmphex(get(p, MSR), ==, 0x80 | 0x20 | 0x10);   /* DCD, DSR, CTS: somebody is there */
        put(p, LCR, DLAB);
        g_assert_cmphex(get(p, DLL), ==, 12);       /* 1.8432 MHz / 16 / 9600 */
        g_assert_cmphex(get(p, DLM), ==, 0);
        g_assert_false(p->level);

        put(p, DLM, 1);
        put(p, LCR, 0x1f);
        put(p, IER, ERBFI | ETBEI);
        put(p, FCR, 1);
        put(p, MCR, 0x0f);
        hear(p, "gone");
        g_assert_true(p->level);
        reset(p);
    }
}

static void test_registers(Port *p, gconstpointer data)
{
    for (unsigned value = 0; value < 0x100; value++) {
        put(p, SCR, value);
        put(p, IER, value & ~ETBEI);
        put(p, MCR, value);
        g_assert_cmphex(get(p, SCR), ==, value);
        g_assert_cmphex(get(p, IER), ==, value & 0x0f & ~ETBEI);    /* the others are always 0 */
        g_assert_cmphex(get(p, MCR), ==, value & 0x1f);
        put(p, LCR, value);
        g_assert_cmphex(get(p, LCR), ==, value);
        put(p, LCR, 0);
    }
    put(p, MCR, 0);
    put(p, LSR, 0xff);
    put(p, MSR, 0xff);
    g_assert_cmphex(get(p, LSR), ==, THRE | TEMT);
    g_assert_cmphex(get(p, MSR), ==, 0xb0);
}

/* With DLAB, registers 0 and 1 are the divisor's, and the others are not touched. */
static void test_divisor(Port *p, gconstpointer data)
{
    put(p, IER, ERBFI);
    hear(p, "r");
    put(p, LCR, DLAB | 3);
    put(p, DLL, 0x34);
    put(p, DLM, 0x12);
    g_assert_cmphex(get(p, DLL), ==, 0x34);
    g_assert_cmphex(get(p, DLM), ==, 0x12);
    put(p, DLL, 0x56);
    g_assert_cmphex(get(p, DLM), ==, 0x12);
    put(p, LCR, 3);
    g_assert_cmphex(get(p, IER), ==, ERBFI);
    expect_received(p, "r");
    put(p, THR, 's');
    expect_sent(p, "s");
    put(p, LCR, DLAB);
    g_assert_cmphex(get(p, DLL), ==, 0x56);
}

/* Line status before what was received before THRE; each goes by what the data sheet says. */
static void test_priorities(Port *p, gconstpointer data)
{
    static const uint8_t all_three[] = { 0, 1, 0, 0, 3, 0, 0, BI, 1, 0, 0, 0, 1, 'q' };

    g_assert_true(load(p, all_three, sizeof(all_three), NULL));
    g_assert_false(p->level);
    put(p, IER, EDSSI);
    g_assert_cmphex(get(p, IIR), ==, IIR_NONE);
    put(p, IER, ERBFI);
    g_assert_cmphex(get(p, IIR), ==, IIR_RECEIVED);
    put(p, IER, ERBFI | ETBEI);
    g_assert_cmphex(get(p, IIR), ==, IIR_RECEIVED);
    put(p, IER, ELSI | ETBEI);
    g_assert_cmphex(get(p, IIR), ==, IIR_LINE);

    put(p, IER, ERBFI | ETBEI | ELSI | EDSSI);
    g_assert_cmphex(get(p, IIR), ==, IIR_LINE);
    g_assert_cmphex(get(p, IIR), ==, IIR_LINE);     /* reading it does not end it */
    g_assert_cmphex(get(p, LSR), ==, BI | DR | THRE | TEMT);
    g_assert_cmphex(get(p, LSR), ==, DR | THRE | TEMT);
    g_assert_cmphex(get(p, IIR), ==, IIR_RECEIVED);
    g_assert_cmphex(get(p, RBR), ==, 'q');
    g_assert_true(p->level);
    g_assert_cmphex(get(p, IIR), ==, IIR_THRE);     /* this ends it */
    g_assert_false(p->level);
    g_assert_cmphex(get(p, IIR), ==, IIR_NONE);
    put(p, FCR, 1);
    g_assert_cmphex(get(p, IIR), ==, 0xc0 | IIR_NONE);
    put(p, FCR, 0);
    g_assert_cmphex(get(p, IIR), ==, IIR_NONE);
}

static void test_thre(Port *p, gconstpointer data)
{
    put(p, IER, ETBEI);
    g_assert_true(p->level);
    g_assert_cmpuint(p->edges, ==, 1);
    put(p, THR, 'a');               /* ends it, and there is room again at once */
    g_assert_true(p->level);
    g_assert_cmpuint(p->edges, ==, 2);
    g_assert_cmphex(get(p, IIR), ==, IIR_THRE);
    g_assert_false(p->level);
    put(p, IER, ETBEI);             /* it was on before */
    g_assert_false(p->level);
    put(p, IER, 0);
    put(p, IER, ETBEI);
    g_assert_cmpuint(p->edges, ==, 3);
    put(p, IER, 0);
    g_assert_false(p->level);
    expect_sent(p, "a");
}

/* A guest that looks at no register until it is interrupted. */
static void test_received(Port *p, gconstpointer data)
{
    put(p, IER, ERBFI);
    g_assert_cmpint(write(p->peer.fd, "i", 1), ==, 1);
    while (!p->level) {
        g_main_context_iteration(NULL, TRUE);
    }
    g_assert_cmphex(get(p, IIR), ==, IIR_RECEIVED);
    g_assert_true(p->level);
    g_assert_cmphex(get(p, RBR), ==, 'i');
    g_assert_false(p->level);
}

static void test_loopback(Port *p, gconstpointer data)
{
    static const struct {
        unsigned mcr, msr;
    } lines[] = {
        { 0x01, 0x20 },     /* DTR: DSR */
        { 0x02, 0x10 },     /* RTS: CTS */
        { 0x04, 0x40 },     /* OUT1: RI */
        { 0x08, 0x80 },     /* OUT2: DCD */
        { 0x0f, 0xf0 }, { 0x00, 0x00 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++) {
        put(p, MCR, LOOP | lines[i].mcr);
        g_assert_cmphex(get(p, MSR), ==, lines[i].msr);
    }
    put(p, IER, ERBFI);
    put(p, THR, 'l');
    put(p, THR, 'o');
    g_assert_true(p->level);
    g_assert_cmphex(get(p, LSR), ==, DR | THRE | TEMT);
    expect_received(p, "lo");
    g_assert_false(p->level);
    put(p, IER, ETBEI);
    g_assert_cmphex(get(p, IIR), ==, IIR_THRE);
    put(p, THR, 'x');
    g_assert_cmphex(get(p, IIR), ==, IIR_THRE);
    put(p, MCR, 0);
    put(p, THR, 'y');
    expect_sent(p, "y");
}

/* Clears what a FIFO holds; what is behind it is still on its way. */
static void test_clear(Port *p, gconstpointer data)
{
    put(p, IER, ERBFI);
    hear(p, "abcdefghijklmnopqrst");
    put(p, FCR, 1);
    g_assert_cmpuint(rx_count(p), ==, 20);
    put(p, FCR, 1 | 2);
    g_assert_true(p->level);
    expect_received(p, &"abcdefghijklmnopqrst"[FIFO_DEPTH]);
    hear(p, "few");
    put(p, FCR, 1 | 2);
    g_assert_cmphex(get(p, LSR), ==, THRE | TEMT);
    g_assert_false(p->level);
    hear(p, "z");
    expect_received(p, "z");
}

/* ---- bytes in quantity ---- */

#define UNTIL_FULL_MAX (1u << 20)

/* As the guest should: while THRE is on.  Returns how many have been sent with the @sent ones before. */
static unsigned send_until_full(Port *p, unsigned sent, unsigned max)
{
    while (sent < max && (get(p, LSR) & THRE)) {
        put(p, THR, chardev_peer_nth(sent++));
    }
    return sent;
}

static void test_full(Port *p, gconstpointer data)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    put(p, IER, ETBEI);
    unsigned sent = send_until_full(p, 0, UNTIL_FULL_MAX);
    g_assert_cmpuint(sent, <, UNTIL_FULL_MAX);
    g_assert_cmphex(get(p, LSR), ==, 0);
    g_assert_false(p->level);
    put(p, IER, 0);
    put(p, IER, ETBEI);
    g_assert_false(p->level);       /* there is no room, whoever asks */
    chardev_peer_read_count(&p->peer, bytes, sent);
    g_assert_cmphex(get(p, LSR), ==, THRE | TEMT);
    g_assert_true(p->level);
    g_assert_cmphex(get(p, IIR), ==, IIR_THRE);
    put(p, THR, chardev_peer_nth(sent++));
    chardev_peer_read_count(&p->peer, bytes, sent);
    chardev_peer_expect_nth(bytes, sent);
}

/* A guest that has seen THRE may fill the FIFO; one that does not look at it gets no more than that. */
static void test_overrun(Port *p, gconstpointer data)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    unsigned sent = send_until_full(p, 0, UNTIL_FULL_MAX) - 1;  /* the last time that THRE was on */
    for (unsigned i = 1; i < FIFO_DEPTH + 1000; i++) {
        put(p, THR, chardev_peer_nth(sent + i));
    }
    chardev_peer_read_count(&p->peer, bytes, sent + FIFO_DEPTH);
    chardev_peer_settle();
    chardev_peer_read(&p->peer, bytes);
    chardev_peer_expect_nth(bytes, sent + FIFO_DEPTH);
    g_assert_cmphex(get(p, LSR), ==, THRE | TEMT);
}

/* Nobody reads: at some point the guest has to wait, and nothing is lost. */
static void test_peer_does_not_read(Port *p, gconstpointer data)
{
    const unsigned max = 4 * UNTIL_FULL_MAX;
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    unsigned sent = 0;

    for (unsigned before = UINT_MAX; sent != before;) {
        before = sent;
        sent = send_until_full(p, sent, max);
        for (unsigned i = 0; i < 5; i++) {          /* more than once what it waits */
            chardev_peer_settle();
            g_usleep(10000);
        }
    }
    g_assert_cmpuint(sent, <, max);
    chardev_peer_read_count(&p->peer, bytes, sent);
    g_assert_cmphex(get(p, LSR), ==, THRE | TEMT);
    chardev_peer_expect_nth(bytes, sent);
    g_assert_cmpuint(bytes->len, ==, sent);
}

/* The guest does not read: from half on the port does not either, and the peer has to wait. */
static void test_guest_does_not_read(Port *p, gconstpointer data)
{
    const unsigned total = 1000000;
    unsigned from = chardev_peer_write(&p->peer, 0, total);

    g_assert_cmpuint(from, <, total);
    g_assert_cmpuint(rx_count(p), >=, RECEIVED_BYTES / 2);
    for (unsigned i = 0; i < total; i++) {
        while (!(get(p, LSR) & DR)) {
            g_assert_cmpuint(rx_count(p), <=, RECEIVED_BYTES);
            from = chardev_peer_write(&p->peer, from, total);
        }
        g_assert_cmphex(get(p, RBR), ==, chardev_peer_nth(i));
    }
    g_assert_cmpuint(from, ==, total);
    g_assert_cmphex(get(p, LSR), ==, THRE | TEMT);
}

static void clear(Port *p)
{
    while (get(p, LSR) & DR) {
        put(p, FCR, 1 | 2);
    }
}

/* However the bytes go that kept the port from reading on, it reads on. */
static void test_heard_after(Port *p, gconstpointer data)
{
    void (*empty)(Port *p) = data ? reset : clear;
    const unsigned total = 1000000;
    unsigned from = chardev_peer_write(&p->peer, 0, total);

    g_assert_cmpuint(from, <, total);
    empty(p);
    g_assert_cmpuint(chardev_peer_write(&p->peer, from, total), >, from);
    g_assert_cmphex(get(p, LSR) & DR, ==, DR);
}

#define ECHOED 200000u

/* A vCPU: sends, and compares what comes back. */
static gpointer guest(gpointer opaque)
{
    Port *p = opaque;
    unsigned sent = 0, received = 0;

    while (received < ECHOED) {
        unsigned status = get(p, LSR);

        if ((status & THRE) && sent < ECHOED) {
            put(p, THR, chardev_peer_nth(sent++));
        }
        if (status & DR) {
            g_assert_cmphex(get(p, RBR), ==, chardev_peer_nth(received));
            received++;
        }
    }
    g_atomic_int_set(&p->guest_done, true);
    g_main_context_wakeup(NULL);
    return NULL;
}

/* vCPU and main loop at the same time. */
static void test_threads(Port *p, gconstpointer data)
{
    GThread *thread = g_thread_new("CPU 0", guest, p);
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    unsigned back = 0;

    while (back < ECHOED) {
        chardev_peer_read(&p->peer, bytes);
        ssize_t n = write(p->peer.fd, bytes->data + back, bytes->len - back);
        back += n > 0 ? (unsigned)n : 0;
        g_main_context_iteration(NULL, n <= 0);
    }
    while (!g_atomic_int_get(&p->guest_done)) {
        g_main_context_iteration(NULL, TRUE);
    }
    g_thread_join(thread);
    g_assert_cmpuint(bytes->len, ==, ECHOED);
}

/* Nothing is connected: what is sent vanishes, and what came from elsewhere can be read. */
static void test_no_chardev(Port *p, gconstpointer data)
{
    g_assert_true(load(p, golden, sizeof(golden), NULL));
    put(p, THR, 'v');
    chardev_peer_settle();
    expect_received(p, "xyz");
    chardev_peer_settle();
    g_assert_cmphex(get(p, LSR), ==, THRE | TEMT);
}

/* ---- what machine pico keeps itself ---- */

/* PM1 enable with GBL_EN (bit 5) and PWRBTN_EN (bit 8). */
static void test_acpi_golden(void)
{
    static const uint8_t bytes[] = { 0x01, 0x20 };
    PicoAcpi from = { .pm1_enable = 1 << 8 | 1 << 5 }, to = { 0 };
    g_autoptr(Channel) out = channel_buffer_new(NULL, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(out);

    g_assert_cmpstr(pico_acpi_vmsd.name, ==, "pico-acpi");
    g_assert_true(vmstate_save(w, &pico_acpi_vmsd, &from, NULL, NULL));
    g_assert_true(stream_flush(w, NULL));
    const GByteArray *saved = channel_buffer_bytes(out);
    g_assert_cmpmem(saved->data, saved->len, bytes, sizeof(bytes));
    g_autoptr(Channel) in = channel_buffer_new(bytes, sizeof(bytes));
    g_autoptr(StreamReader) r = stream_reader_new(in);
    g_assert_true(vmstate_load(r, &pico_acpi_vmsd, &to, 1, NULL));
    g_assert_cmphex(to.pm1_enable, ==, 0x0120);
}

#define SERIAL(name, test) g_test_add("/serial/" name, Port, NULL, set_up, test, tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    SERIAL("power-on", test_power_on);
    SERIAL("registers", test_registers);
    SERIAL("divisor", test_divisor);
    SERIAL("priorities", test_priorities);
    SERIAL("thre", test_thre);
    SERIAL("received", test_received);
    SERIAL("loopback", test_loopback);
    SERIAL("clear", test_clear);
    SERIAL("golden", test_golden);
    SERIAL("travel", test_travel);
    SERIAL("travel-then-more", test_travel_then_more);
    SERIAL("bad-section", test_bad_section);
    SERIAL("full", test_full);
    SERIAL("overrun", test_overrun);
    SERIAL("peer-does-not-read", test_peer_does_not_read);
    SERIAL("guest-does-not-read", test_guest_does_not_read);
    SERIAL("threads", test_threads);
    g_test_add("/serial/heard-after/clear", Port, GINT_TO_POINTER(0), set_up, test_heard_after, tear_down);
    g_test_add("/serial/heard-after/reset", Port, GINT_TO_POINTER(1), set_up, test_heard_after, tear_down);
    g_test_add("/serial/no-chardev", Port, NULL, set_up_alone, test_no_chardev, tear_down);
    g_test_add_func("/acpi/golden", test_acpi_golden);
    return g_test_run();
}
