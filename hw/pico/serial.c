/* SPDX-License-Identifier: BSD-2-Clause */
/* A 16550A serial port on a character device. */

/*
 * The registers belong to the device lock; vCPU threads access them.  The character device belongs to the
 * main thread.  Between the two are a queue of bytes sent and one of bytes received:
 *
 *   THR -> tx -> main loop -> character device     THRE is off while tx is full, so that the guest waits
 *   RBR <- rx <- main loop <- character device     the device is not read while rx is half full
 *
 * What is in rx travels with the guest.  What is in tx has left the guest: the source sends it on.
 */
#include "pico.h"

#include <string.h>

#include "util/error.h"

#define FIFO_SIZE 16
/* Twice what the character device delivers at once: what arrives while it is half full has room. */
#define RX_SIZE 32768
/* THRE is off from here on.  A guest that has seen it may still fill the FIFO. */
#define TX_MAX 65536
/* How much may wait in the character device; beyond it we look again after a while. */
#define PENDING_MAX (1 << 20)
#define RETRY_MS 10

enum { REG_DATA, REG_IER, REG_IIR_FCR, REG_LCR, REG_MCR, REG_LSR, REG_MSR, REG_SCRATCH };
enum { IER_RX = 1, IER_TX = 2, IER_LINE = 4, IER_MODEM = 8 };
enum { IIR_NONE = 1, IIR_MODEM = 0, IIR_TX = 2, IIR_RX = 4, IIR_LINE = 6, IIR_FIFO = 0xc0 };
enum { FCR_ENABLE = 1, FCR_CLEAR_RX = 2 };
enum { LCR_DLAB = 0x80 };
enum { MCR_DTR = 1, MCR_RTS = 2, MCR_OUT1 = 4, MCR_OUT2 = 8, MCR_LOOP = 0x10 };
enum { LSR_DATA = 1, LSR_BREAK = 0x10, LSR_THRE = 0x20, LSR_IDLE = 0x40 };
enum { MSR_CTS = 0x10, MSR_DSR = 0x20, MSR_DCD = 0x80 };

/* The registers, and what has been received and not read. */
typedef struct SerialState {
    uint16_t divisor;
    uint8_t ier, fcr, lcr, mcr, scratch;
    uint8_t break_seen;         /* a line status that has not been read */
    uint8_t thr_empty;          /* an interrupt for it is due */
    uint32_t rx_count;          /* bytes at the start of @rx */
    uint8_t rx[RX_SIZE];
} SerialState;

struct PicoSerial {
    Machine *machine;
    Chardev *chr;               /* or NULL.  Main thread */
    GMutex *lock;               /* the device lock */
    void (*set_irq)(void *opaque, bool level);
    void *irq_opaque;

    SerialState wire;           /* as it travels: of the thread that saves or loads */

    /* Device lock. */
    SerialState state;
    bool raised;                /* as the line is */
    GByteArray *tx;
    guint tx_source;            /* of the main loop, or 0 */
    guint rx_source;
    bool rx_paused;

    SaveEntry entry;
};

/* ---- the line ---- */

static unsigned interrupt(const PicoSerial *s)
{
    if ((s->state.ier & IER_LINE) && s->state.break_seen) {
        return IIR_LINE;
    }
    if ((s->state.ier & IER_RX) && s->state.rx_count) {
        return IIR_RX;
    }
    if ((s->state.ier & IER_TX) && s->state.thr_empty) {
        return IIR_TX;
    }
    return IIR_NONE;
}

static void update_irq(PicoSerial *s)
{
    bool level = interrupt(s) != IIR_NONE;

    if (level != s->raised) {
        s->raised = level;
        s->set_irq(s->irq_opaque, level);
    }
}

/* ---- what is sent ---- */

/* Main loop. */
static gboolean drain_tx(gpointer opaque)
{
    PicoSerial *s = opaque;
    g_autoptr(GByteArray) bytes = NULL;

    if (s->chr && chardev_pending(s->chr) > PENDING_MAX) {
        g_mutex_lock(s->lock);
        s->tx_source = g_timeout_add(RETRY_MS, drain_tx, s);
        g_mutex_unlock(s->lock);
        return G_SOURCE_REMOVE;
    }
    g_mutex_lock(s->lock);
    bool was_full = s->tx->len >= TX_MAX;
    bytes = s->tx;
    s->tx = g_byte_array_new();
    s->tx_source = 0;
    if (was_full) {
        s->state.thr_empty = 1;
        update_irq(s);
    }
    g_mutex_unlock(s->lock);
    if (s->chr) {
        chardev_write(s->chr, bytes->data, bytes->len);
    }
    return G_SOURCE_REMOVE;
}

static void put_rx(PicoSerial *s, const uint8_t *bytes, size_t len)
{
    len = MIN(len, RX_SIZE - s->state.rx_count);
    memcpy(s->state.rx + s->state.rx_count, bytes, len);
    s->state.rx_count += (uint32_t)len;
}

static void send(PicoSerial *s, uint8_t byte)
{
    s->state.thr_empty = 0;
    update_irq(s);      /* the line falls, so that its rise is seen */
    if (s->state.mcr & MCR_LOOP) {
        put_rx(s, &byte, 1);
        s->state.thr_empty = 1;
        return;
    }
    if (s->tx->len < TX_MAX - 1 + FIFO_SIZE) {     /* else a guest that does not heed THRE loses it */
        g_byte_array_append(s->tx, &byte, 1);
    }
    s->state.thr_empty = s->tx->len < TX_MAX;
    if (!s->tx_source) {
        s->tx_source = g_idle_add_full(G_PRIORITY_DEFAULT, drain_tx, s, NULL);
    }
}

/* ---- what is received ---- */

/* Main loop. */
static gboolean resume_rx(gpointer opaque)
{
    PicoSerial *s = opaque;

    g_mutex_lock(s->lock);
    s->rx_source = 0;
    s->rx_paused = s->state.rx_count >= RX_SIZE / 2;
    bool paused = s->rx_paused;
    g_mutex_unlock(s->lock);
    chardev_pause_receive(s->chr, paused);
    return G_SOURCE_REMOVE;
}

static void receive(void *opaque, const uint8_t *buf, size_t len, int *fds, size_t n_fds)
{
    PicoSerial *s = opaque;

    g_mutex_lock(s->lock);
    put_rx(s, buf, len);
    s->rx_paused = s->state.rx_count >= RX_SIZE / 2;
    bool paused = s->rx_paused;
    update_irq(s);
    g_mutex_unlock(s->lock);
    if (paused) {
        chardev_pause_receive(s->chr, true);
    }
}

static void nothing(void *opaque)
{
    /* a port has no notion of a peer */
}

static const ChardevHandlers handlers = { .opened = nothing, .closed = nothing, .receive = receive };

/* The first @count bytes are gone, and there may be room for more. */
static void drop_rx(PicoSerial *s, uint32_t count)
{
    memmove(s->state.rx, s->state.rx + count, s->state.rx_count -= count);
    if (s->chr && s->rx_paused && s->state.rx_count < RX_SIZE / 2 && !s->rx_source) {
        s->rx_source = g_idle_add(resume_rx, s);
    }
}

static uint8_t take_rx(PicoSerial *s)
{
    if (!s->state.rx_count) {
        return 0;
    }
    uint8_t byte = s->state.rx[0];
    drop_rx(s, 1);
    return byte;
}

/* ---- registers ---- */

static uint8_t modem_status(const PicoSerial *s)
{
    if (!(s->state.mcr & MCR_LOOP)) {
        return MSR_CTS | MSR_DSR | MSR_DCD;
    }
    /* Outputs come back as inputs: RTS as CTS, DTR as DSR, OUT1 as RI, OUT2 as DCD. */
    return (uint8_t)((s->state.mcr & MCR_RTS) << 3 | (s->state.mcr & MCR_DTR) << 5 |
                     (s->state.mcr & (MCR_OUT1 | MCR_OUT2)) << 4);
}

static uint8_t line_status(PicoSerial *s)
{
    uint8_t status = (uint8_t)(s->state.break_seen | (s->state.rx_count ? LSR_DATA : 0) |
                               (s->tx->len < TX_MAX ? LSR_THRE | LSR_IDLE : 0));
    s->state.break_seen = 0;
    return status;
}

static uint8_t read_iir(PicoSerial *s)
{
    unsigned why = interrupt(s);

    if (why == IIR_TX) {
        s->state.thr_empty = 0;
    }
    return (uint8_t)(why | (s->state.fcr & FCR_ENABLE ? IIR_FIFO : 0));
}

uint64_t pico_serial_read(void *serial, uint64_t offset, unsigned size)
{
    PicoSerial *s = serial;
    bool dlab = s->state.lcr & LCR_DLAB;
    uint8_t value;

    switch (offset) {
    case REG_DATA:
        value = dlab ? (uint8_t)s->state.divisor : take_rx(s);
        break;
    case REG_IER:
        value = dlab ? (uint8_t)(s->state.divisor >> 8) : s->state.ier;
        break;
    case REG_IIR_FCR:
        value = read_iir(s);
        break;
    case REG_LCR:
        value = s->state.lcr;
        break;
    case REG_MCR:
        value = s->state.mcr;
        break;
    case REG_LSR:
        value = line_status(s);
        break;
    case REG_MSR:
        value = modem_status(s);
        break;
    default:
        value = s->state.scratch;
        break;
    }
    update_irq(s);
    return value;
}

static void write_ier(PicoSerial *s, uint8_t value)
{
    if ((value & IER_TX) && !(s->state.ier & IER_TX) && s->tx->len < TX_MAX) {
        s->state.thr_empty = 1;
    }
    s->state.ier = value & (IER_RX | IER_TX | IER_LINE | IER_MODEM);
}

static void write_fcr(PicoSerial *s, uint8_t value)
{
    if (value & FCR_CLEAR_RX) {
        drop_rx(s, MIN(s->state.rx_count, FIFO_SIZE));
    }
    s->state.fcr = value & (FCR_ENABLE | 0xc8);
}

void pico_serial_write(void *serial, uint64_t offset, unsigned size, uint64_t data)
{
    PicoSerial *s = serial;
    uint8_t value = (uint8_t)data;
    bool dlab = s->state.lcr & LCR_DLAB;

    switch (offset) {
    case REG_DATA:
        if (dlab) {
            s->state.divisor = (uint16_t)((s->state.divisor & 0xff00) | value);
        } else {
            send(s, value);
        }
        break;
    case REG_IER:
        if (dlab) {
            s->state.divisor = (uint16_t)((s->state.divisor & 0xff) | value << 8);
        } else {
            write_ier(s, value);
        }
        break;
    case REG_IIR_FCR:
        write_fcr(s, value);
        break;
    case REG_LCR:
        s->state.lcr = value;
        break;
    case REG_MCR:
        s->state.mcr = value & 0x1f;
        break;
    case REG_SCRATCH:
        s->state.scratch = value;
        break;
    default:
        break;
    }
    update_irq(s);
}

/* ---- its section ---- */

/* The main thread may be receiving. */
static bool serial_pre_save(void *opaque, GError **errp)
{
    PicoSerial *s = opaque;

    g_mutex_lock(s->lock);
    s->wire = s->state;
    g_mutex_unlock(s->lock);
    return true;
}

static bool serial_post_load(void *opaque, int version, GError **errp)
{
    PicoSerial *s = opaque;

    if (s->wire.rx_count > RX_SIZE) {
        return error_set_protocol(errp, "rx_count is %u, at most %d bytes can have been received",
                                  s->wire.rx_count, RX_SIZE);
    }
    g_mutex_lock(s->lock);
    s->state = s->wire;
    s->raised = false;
    update_irq(s);
    s->rx_paused = true;
    if (s->chr && !s->rx_source) {
        s->rx_source = g_idle_add(resume_rx, s);
    }
    g_mutex_unlock(s->lock);
    return true;
}

#define FIELD(_name, _type) \
    { .name = #_name, .type = (_type), .offset = offsetof(PicoSerial, wire._name), \
      .size = sizeof(((PicoSerial *)0)->wire._name) }

static const VMStateField serial_fields[] = {
    FIELD(divisor, VMSTATE_UINT16),
    FIELD(ier, VMSTATE_UINT8),
    FIELD(fcr, VMSTATE_UINT8),
    FIELD(lcr, VMSTATE_UINT8),
    FIELD(mcr, VMSTATE_UINT8),
    FIELD(scratch, VMSTATE_UINT8),
    FIELD(break_seen, VMSTATE_UINT8),
    FIELD(thr_empty, VMSTATE_UINT8),
    FIELD(rx_count, VMSTATE_UINT32),
    FIELD(rx, VMSTATE_BUFFER),
    VMSTATE_END
};

static const VMStateDescription serial_vmsd = {
    .name = "pico-serial", .version = 1, .minimum_version = 1, .fields = serial_fields,
    .pre_save = serial_pre_save, .post_load = serial_post_load,
};

/* ---- life ---- */

PicoSerial *pico_serial_new(Machine *m, unsigned index, Chardev *chr, GMutex *lock,
                            void (*set_irq)(void *opaque, bool level), void *irq_opaque)
{
    PicoSerial *s = g_new0(PicoSerial, 1);

    s->machine = m;
    s->chr = chr;
    s->lock = lock;
    s->set_irq = set_irq;
    s->irq_opaque = irq_opaque;
    s->tx = g_byte_array_new();
    s->state.divisor = 12;
    s->entry = (SaveEntry){
        .idstr = serial_vmsd.name, .instance_id = index, .vmsd = &serial_vmsd, .opaque = s,
    };
    save_entry_list_add(&m->save_entries, &s->entry);
    if (chr) {
        chardev_set_handlers(chr, &handlers, s);
    }
    return s;
}

/* The line falls with the chips, which are put to power-on afterwards. */
void pico_serial_reset(PicoSerial *s)
{
    drop_rx(s, s->state.rx_count);
    s->state = (SerialState){ .divisor = 12 };
    update_irq(s);
}

void pico_serial_free(PicoSerial *s)
{
    if (!s) {
        return;
    }
    if (s->chr) {
        chardev_set_handlers(s->chr, NULL, NULL);
        chardev_write(s->chr, s->tx->data, s->tx->len);
    }
    g_clear_handle_id(&s->tx_source, g_source_remove);
    g_clear_handle_id(&s->rx_source, g_source_remove);
    save_entry_list_remove(&s->machine->save_entries, &s->entry);
    g_byte_array_unref(s->tx);
    g_free(s);
}
