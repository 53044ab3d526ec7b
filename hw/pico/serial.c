/* SPDX-License-Identifier: BSD-2-Clause */
/* A 16550A serial port on a character device. */

/*
 * The registers belong to the device lock; vCPU threads access them.  THRE is off while the front end of the
 * character device is full, so that the guest waits; what is received stays there until the guest reads RBR.
 */
#include "pico.h"

#include "hw/char-frontend.h"

#define FIFO_SIZE 16

enum { REG_DATA, REG_IER, REG_IIR_FCR, REG_LCR, REG_MCR, REG_LSR, REG_MSR, REG_SCRATCH };
enum { IER_RX = 1, IER_TX = 2, IER_LINE = 4, IER_MODEM = 8 };
enum { IIR_NONE = 1, IIR_MODEM = 0, IIR_TX = 2, IIR_RX = 4, IIR_LINE = 6, IIR_FIFO = 0xc0 };
enum { FCR_ENABLE = 1, FCR_CLEAR_RX = 2 };
enum { LCR_DLAB = 0x80 };
enum { MCR_DTR = 1, MCR_RTS = 2, MCR_OUT1 = 4, MCR_OUT2 = 8, MCR_LOOP = 0x10 };
enum { LSR_DATA = 1, LSR_BREAK = 0x10, LSR_THRE = 0x20, LSR_IDLE = 0x40 };
enum { MSR_CTS = 0x10, MSR_DSR = 0x20, MSR_DCD = 0x80 };

/* The registers. */
typedef struct SerialState {
    uint16_t divisor;
    uint8_t ier, fcr, lcr, mcr, scratch;
    uint8_t break_seen;         /* a line status that has not been read */
    uint8_t thr_empty;          /* an interrupt for it is due */
} SerialState;

struct PicoSerial {
    Machine *machine;
    GMutex *lock;               /* the device lock */
    void (*set_irq)(void *opaque, bool level);
    void *irq_opaque;

    SerialState wire;           /* as it travels: of the thread that saves or loads */

    /* Device lock. */
    CharFrontend frontend;
    SerialState state;
    bool raised;                /* as the line is */

    SaveEntry entry;
};

/* ---- the line ---- */

static unsigned interrupt(const PicoSerial *s)
{
    if ((s->state.ier & IER_LINE) && s->state.break_seen) {
        return IIR_LINE;
    }
    if ((s->state.ier & IER_RX) && s->frontend.rx.count) {
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

static void sent(void *opaque, bool was_full)
{
    PicoSerial *s = opaque;

    if (was_full) {
        s->state.thr_empty = 1;
        update_irq(s);
    }
}

static void send(PicoSerial *s, uint8_t byte)
{
    s->state.thr_empty = 0;
    update_irq(s);      /* the line falls, so that its rise is seen */
    if (s->state.mcr & MCR_LOOP) {
        char_frontend_put(&s->frontend, &byte, 1);
        s->state.thr_empty = 1;
        return;
    }
    /* A guest that has seen THRE may fill the FIFO; one that does not heed THRE loses what is beyond. */
    if (s->frontend.tx->len < CHAR_TX_FULL - 1 + FIFO_SIZE) {
        *char_frontend_send(&s->frontend, 1) = byte;
    }
    s->state.thr_empty = !char_frontend_full(&s->frontend);
}

/* ---- what is received ---- */

static void received(void *opaque)
{
    update_irq(opaque);
}

static const CharFrontendOps frontend_ops = { .received = received, .sent = sent };

static uint8_t take_rx(PicoSerial *s)
{
    if (!s->frontend.rx.count) {
        return 0;
    }
    uint8_t byte = s->frontend.rx.bytes[0];
    char_frontend_consume(&s->frontend, 1);
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
    uint8_t status = (uint8_t)(s->state.break_seen | (s->frontend.rx.count ? LSR_DATA : 0) |
                               (char_frontend_full(&s->frontend) ? 0 : LSR_THRE | LSR_IDLE));
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
    if ((value & IER_TX) && !(s->state.ier & IER_TX) && !char_frontend_full(&s->frontend)) {
        s->state.thr_empty = 1;
    }
    s->state.ier = value & (IER_RX | IER_TX | IER_LINE | IER_MODEM);
}

static void write_fcr(PicoSerial *s, uint8_t value)
{
    if (value & FCR_CLEAR_RX) {
        char_frontend_consume(&s->frontend, MIN(s->frontend.rx.count, FIFO_SIZE));
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
    char_frontend_save(&s->frontend);
    g_mutex_unlock(s->lock);
    return true;
}

static bool serial_post_load(void *opaque, int version, GError **errp)
{
    PicoSerial *s = opaque;

    if (!char_frontend_check(&s->frontend, errp)) {
        return false;
    }
    g_mutex_lock(s->lock);
    s->state = s->wire;
    char_frontend_load(&s->frontend);
    s->raised = false;
    update_irq(s);
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
    CHAR_FRONTEND_FIELDS(PicoSerial, frontend),
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
    s->lock = lock;
    s->set_irq = set_irq;
    s->irq_opaque = irq_opaque;
    char_frontend_init(&s->frontend, &frontend_ops, s, lock);
    s->state.divisor = 12;
    s->entry = (SaveEntry){
        .idstr = serial_vmsd.name, .instance_id = index, .vmsd = &serial_vmsd, .opaque = s,
    };
    save_entry_list_add(&m->save_entries, &s->entry);
    if (chr) {
        char_frontend_connect(&s->frontend, chr);
    }
    return s;
}

/* The line falls with the chips, which are put to power-on afterwards. */
void pico_serial_reset(PicoSerial *s)
{
    char_frontend_consume(&s->frontend, s->frontend.rx.count);
    s->state = (SerialState){ .divisor = 12 };
    update_irq(s);
}

void pico_serial_free(PicoSerial *s)
{
    if (!s) {
        return;
    }
    char_frontend_clear(&s->frontend);
    save_entry_list_remove(&s->machine->save_entries, &s->entry);
    g_free(s);
}
