/* SPDX-License-Identifier: BSD-2-Clause */
/* The test guest: writes to memory by a pattern, toggles pages, keeps registers or prints, and checks it. */

/*
 * The command line is MODE[ NAME=VALUE]...:
 *
 *   stamp    pattern=sequential|random|hot|fill  set=PAGES  nap=N  cpus=N
 *   toggle   set=PAGES  nap=N  cpus=N      each page is all zero, then filled, then zero...
 *   regs     cpus=N                        registers, MSRs, debug registers, FPU, the counter
 *   serial   numbers, one a line, on the serial port; what is received comes back in brackets
 *   exit     status=N                      debug-exit at once
 *
 * Every page that is stamped has a version in a table; from number, version and writer all 4096 bytes follow.
 * A page is checked before it is written anew, and all pages are checked in turn beside that.  The sum over
 * the table is kept in XMM15, which does not travel in memory.
 */
#include <stdint.h>

#include "layout.h"

#define PAGE 4096u
#define WORDS (PAGE / 8)
#define COM1 0x3f8
#define DEBUG_EXIT 0xf4

typedef struct Processor {
    uint64_t steps;
    uint64_t written;
    uint64_t checked;
    uint64_t errors;
    uint64_t sweeps;
    uint64_t error_kind;        /* of the first error; what the numbers mean depends on the mode */
    uint64_t error_where;
    uint64_t error_expected;
    uint64_t error_found;
    uint64_t longest_gap;       /* ticks of the counter between two steps */
    uint64_t pages;
    uint64_t unused[5];
} Processor;

typedef struct Report {
    uint64_t magic;
    uint64_t processors;
    uint64_t mode;
    uint64_t ticks;
    uint64_t fatal, vector, detail[2], registers[3];
    uint8_t unused[REPORT_PROCESSORS - 88];
    Processor processor[PROCESSORS_MAX];
} Report;

_Static_assert(sizeof(Processor) == 128, "the outside reads it");

enum { ERROR_PAGE = 1, ERROR_TABLE, ERROR_REGISTER, ERROR_MSR, ERROR_DEBUG, ERROR_COUNTER, ERROR_FPU };

static volatile Report *const report = (volatile Report *)REPORT;
extern uint32_t start_info;
extern volatile uint32_t next_processor;
extern const char trampoline[], trampoline_end[];

static const char *command_line;
static uint64_t memory_end;
static volatile uint32_t ready;

/* ---- the machine ---- */

static inline void out8(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t in8(uint16_t port)
{
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static inline uint64_t counter(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static inline uint64_t kernel(uint64_t what, uint64_t first, uint64_t second)
{
    uint64_t result;
    __asm__ volatile("ud2" : "=a"(result), "+d"(second), "+S"(first) : "D"(what) : "rcx", "memory");
    return result;
}

static volatile uint32_t *apic(unsigned offset)
{
    return (volatile uint32_t *)(uintptr_t)(LOCAL_APIC + offset);
}

static void idle(uint64_t turns)
{
    while (turns--) {
        __asm__ volatile("pause");
    }
}

static uint64_t get_xmm15(void)
{
    uint64_t value;
    __asm__ volatile("movq %%xmm15, %0" : "=r"(value));
    return value;
}

static void set_xmm15(uint64_t value)
{
    __asm__ volatile("movq %0, %%xmm15" : : "r"(value));
}

/* ---- the command line ---- */

static int starts_with(const char *text, const char *what)
{
    while (*what && *text == *what) {
        text++;
        what++;
    }
    return !*what;
}

static const char *find_option(const char *name)
{
    for (const char *p = command_line; *p; p++) {
        if ((p == command_line || p[-1] == ' ') && starts_with(p, name)) {
            const char *end = p;
            while (*end && *end != '=' && *end != ' ') {
                end++;
            }
            return *end == '=' ? end + 1 : end;
        }
    }
    return 0;
}

static uint64_t option(const char *name, uint64_t otherwise)
{
    const char *text = find_option(name);
    uint64_t value = 0;

    if (!text) {
        return otherwise;
    }
    for (; *text >= '0' && *text <= '9'; text++) {
        value = value * 10 + (uint64_t)(*text - '0');
    }
    return value;
}

static void read_start_info(void)
{
    const uint8_t *info = (const uint8_t *)(uintptr_t)start_info;
    const uint8_t *map = (const uint8_t *)(uintptr_t)*(const uint64_t *)(info + 40);
    uint32_t entries = *(const uint32_t *)(info + 48);

    command_line = (const char *)(uintptr_t)*(const uint64_t *)(info + 24);
    for (uint32_t i = 0; i < entries; i++, map += 24) {
        uint64_t addr = *(const uint64_t *)map, size = *(const uint64_t *)(map + 8);
        if (*(const uint32_t *)(map + 16) == 1 && addr + size > memory_end) {
            memory_end = addr + size;
        }
    }
}

static void note_error(volatile Processor *p, uint64_t kind, uint64_t where, uint64_t expected,
                       uint64_t found)
{
    if (p->errors == 0) {
        p->error_kind = kind;
        p->error_where = where;
        p->error_expected = expected;
        p->error_found = found;
    }
    p->errors++;
}

static void step(volatile Processor *p, uint64_t *last)
{
    uint64_t now = counter();

    if (now < *last) {
        note_error(p, ERROR_COUNTER, p->steps, *last, now);
    } else if (*last && now - *last > p->longest_gap) {
        p->longest_gap = now - *last;
    }
    *last = now;
    p->steps++;
}

/* ---- pages ---- */

static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Of ten versions one is a page of zeros, and three have a body that compresses. */
static uint64_t word_of(uint64_t number, uint64_t version, uint64_t writer, unsigned i)
{
    uint64_t seed = mix(number << 32 ^ version << 8 ^ writer);
    unsigned kind = (unsigned)(seed >> 8) % 10;

    if (version == 0 || kind == 0) {
        return 0;
    }
    switch (i) {
    case 0:
        return number;
    case 1:
        return version;
    case 2:
        return writer;
    case 3:
        return seed;
    default:
        return kind < 4 ? seed : mix(seed + i);
    }
}

typedef struct Part {
    volatile Processor *p;
    uint64_t writer;
    uint32_t *versions;         /* one for each data page */
    uint64_t first, count;      /* data pages */
    uint64_t sweep, sweep_sum;
} Part;

static void check_page(Part *part, uint64_t index)
{
    const uint64_t number = part->first + index;
    const volatile uint64_t *words = (const volatile uint64_t *)(uintptr_t)(number * PAGE);
    uint32_t version = part->versions[index];

    part->p->checked++;
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t expected = word_of(number, version, part->writer, i);
        if (words[i] != expected) {
            note_error(part->p, ERROR_PAGE, number * PAGE + i * 8, expected, words[i]);
            return;
        }
    }
}

static uint64_t table_hash(uint64_t number, uint64_t version)
{
    return version ? mix(number * UINT64_C(0x9e3779b97f4a7c15) + version) : 0;
}

static void write_page(Part *part, uint64_t index)
{
    const uint64_t number = part->first + index;
    volatile uint64_t *words = (volatile uint64_t *)(uintptr_t)(number * PAGE);
    uint32_t old = part->versions[index], version = old + 1;
    uint64_t change = table_hash(number, version) - table_hash(number, old);

    check_page(part, index);
    for (unsigned i = 0; i < WORDS; i++) {
        words[i] = word_of(number, version, part->writer, i);
    }
    part->versions[index] = version;
    set_xmm15(get_xmm15() + change);
    if (index < part->sweep) {
        part->sweep_sum += change;
    }
    part->p->written++;
}

/* The next page of the sweep; at its end the table must add up. */
static void sweep(Part *part)
{
    check_page(part, part->sweep);
    part->sweep_sum += table_hash(part->first + part->sweep, part->versions[part->sweep]);
    if (++part->sweep < part->count) {
        return;
    }
    if (part->sweep_sum != get_xmm15()) {
        note_error(part->p, ERROR_TABLE, 0, get_xmm15(), part->sweep_sum);
    }
    part->sweep = part->sweep_sum = 0;
    part->p->sweeps++;
}

/* A share of the stamped memory for each processor: its table, then its pages. */
static void take_part(Part *part, unsigned index)
{
    uint64_t cpus = report->processors;
    uint64_t pages = (memory_end - FIRST_DATA) / PAGE / cpus;
    uint64_t table = (pages + PAGE / 4) / (PAGE / 4 + 1);

    part->p = &report->processor[index];
    part->writer = index;
    part->versions = (uint32_t *)(uintptr_t)(FIRST_DATA + index * pages * PAGE);
    part->first = FIRST_DATA / PAGE + index * pages + table;
    part->count = pages - table;
    part->sweep = part->sweep_sum = 0;
    part->p->pages = part->count;
    set_xmm15(0);
}

typedef enum { SEQUENTIAL, RANDOM, HOT, FILL } Pattern;

static Pattern read_pattern(void)
{
    const char *text = find_option("pattern");
    return !text || *text == 's' ? SEQUENTIAL : *text == 'r' ? RANDOM : *text == 'h' ? HOT : FILL;
}

/* The page to be written next, or the number of pages: none. */
static uint64_t next_page(Pattern pattern, uint64_t set, uint64_t *position, uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
    uint64_t r = *random >> 33;

    switch (pattern) {
    case RANDOM:
        return r % set;
    case HOT:
        /* Seven of eight go to a sixteenth of the pages. */
        return r & 7 ? (r >> 3) % (set / 16 + 1) : (r >> 3) % set;
    case FILL:
        return *position < set ? (*position)++ : UINT64_MAX;
    default:
        *position = *position + 1 < set ? *position + 1 : 0;
        return *position;
    }
}

static void run_stamp(unsigned index)
{
    Part part;
    Pattern pattern = read_pattern();
    uint64_t position = 0, random = index + 1, last = 0, nap = option("nap", 0);

    take_part(&part, index);
    uint64_t set = option("set", part.count);
    set = set > part.count ? part.count : set;
    for (;;) {
        step(part.p, &last);
        uint64_t page = next_page(pattern, set, &position, &random);
        if (page < set) {
            write_page(&part, page);
        }
        sweep(&part);
        idle(nap);
    }
}

/* ---- toggle ---- */

/* A page is written in one go: all of it is what it was, or all of it is what it is to be. */
static void toggle_page(volatile Processor *p, uint64_t number, int fill, uint64_t round)
{
    volatile uint64_t *words = (volatile uint64_t *)(uintptr_t)(number * PAGE);
    uint64_t before = fill ? 0 : number ^ (round - 1), after = fill ? number ^ round : 0;

    for (unsigned i = 0; i < WORDS; i++) {
        if (round > 0 && words[i] != before) {
            note_error(p, ERROR_PAGE, number * PAGE + i * 8, before, words[i]);
            break;
        }
    }
    for (unsigned i = 0; i < WORDS; i++) {
        words[i] = after;
    }
    p->checked++;
    p->written++;
}

static void run_toggle(unsigned index)
{
    Part part;
    uint64_t last = 0, nap = option("nap", 0);

    take_part(&part, index);
    uint64_t set = option("set", part.count);
    set = set > part.count ? part.count : set;
    for (uint64_t round = 0;; round++) {
        for (uint64_t i = 0; i < set; i++) {
            step(part.p, &last);
            toggle_page(part.p, part.first + i, (round & 1) == 0, round);
            idle(nap);
        }
        part.p->sweeps++;
    }
}

/* ---- registers ---- */

static const uint32_t kept_msrs[] = {
    0x174, 0x175, 0x176, /* SYSENTER_CS, ESP, EIP */
    0xc0000102, /* KERNEL_GS_BASE */
    0xc0000100, /* FS_BASE */
    0x277,      /* PAT */
};

static uint64_t msr_value(unsigned i, unsigned index)
{
    switch (kept_msrs[i]) {
    case 0x174:
        return KERNEL_CODE + index * 8;
    case 0x277:
        return index & 1 ? UINT64_C(0x0007040600070406) : UINT64_C(0x0007010600070106);
    default:
        return (mix(i * 64 + index) & UINT64_C(0x00007ffffffff000)) | index << 4;
    }
}

/* Loads all registers, goes round for a while and compares: 0, or the number of the first that differs. */
uint64_t keep_registers(uint64_t seed, uint64_t turns);

/* x87: 1, pi and log2(e) on its stack; the control word for extended precision, rounding up. */
static void fpu_init(void)
{
    uint16_t control = 0x0b7f;
    uint32_t mxcsr = 0x3f80;    /* all masked, rounding down */
    __asm__ volatile("fninit; fldcw %0; fld1; fldpi; fldl2e; ldmxcsr %1" : : "m"(control), "m"(mxcsr));
}

static int fpu_kept(void)
{
    uint16_t control = 0;
    uint32_t mxcsr = 0;
    uint8_t values[3][10], fresh[3][10];

    __asm__ volatile("fnstcw %0; stmxcsr %1" : "=m"(control), "=m"(mxcsr));
    __asm__ volatile("fstpt %0; fstpt %1; fstpt %2" : "=m"(values[0]), "=m"(values[1]), "=m"(values[2]));
    __asm__ volatile("fldl2e; fstpt %0; fldpi; fstpt %1; fld1; fstpt %2"
                     : "=m"(fresh[0]), "=m"(fresh[1]), "=m"(fresh[2]));
    __asm__ volatile("fldt %2; fldt %1; fldt %0" : : "m"(values[0]), "m"(values[1]), "m"(values[2]));
    for (unsigned i = 0; i < sizeof(values); i++) {
        if (((uint8_t *)values)[i] != ((uint8_t *)fresh)[i]) {
            return 0;
        }
    }
    return control == 0x0b7f && (mxcsr & 0xffc0) == 0x3f80;
}

static void check_msrs(volatile Processor *p, unsigned index)
{
    for (unsigned i = 0; i < sizeof(kept_msrs) / sizeof(*kept_msrs); i++) {
        uint64_t found = kernel(0, kept_msrs[i], 0);
        if (found != msr_value(i, index)) {
            note_error(p, ERROR_MSR, kept_msrs[i], msr_value(i, index), found);
        }
        p->checked++;
    }
}

static void run_regs(unsigned index)
{
    volatile Processor *p = &report->processor[index];
    uint64_t last = 0, break_base = 0x00100000 + index * 0x1000;
    uint64_t break_sum = break_base ^ break_base << 1 ^ break_base << 2 ^ break_base << 3;

    for (unsigned i = 0; i < sizeof(kept_msrs) / sizeof(*kept_msrs); i++) {
        kernel(1, kept_msrs[i], msr_value(i, index));
    }
    kernel(3, break_base, 0);
    fpu_init();
    for (uint64_t round = 0;; round++) {
        step(p, &last);
        uint64_t differs = keep_registers(mix(round * 64 + index) | 1, 20000);
        if (differs) {
            note_error(p, ERROR_REGISTER, differs, 0, 0);
        }
        if (!fpu_kept()) {
            note_error(p, ERROR_FPU, 0, 0, 0);
        }
        check_msrs(p, index);
        uint64_t found = kernel(2, 0, 0);
        if (found != break_sum) {
            note_error(p, ERROR_DEBUG, 0, break_sum, found);
        }
        p->sweeps++;
    }
}

/* ---- serial ---- */

static void put_char(char c)
{
    while (!(in8(COM1 + 5) & 0x20)) {
        /* the port is busy */
    }
    out8(COM1, (uint8_t)c);
}

static void put_number(uint64_t n)
{
    char digits[20];
    int i = 0;
    do {
        digits[i++] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    while (i) {
        put_char(digits[--i]);
    }
    put_char('\n');
}

static void run_serial(void)
{
    volatile Processor *p = &report->processor[0];
    uint64_t last = 0, nap = option("nap", 0);

    for (uint64_t n = 0;; n++) {
        step(p, &last);
        put_number(n);
        while (in8(COM1 + 5) & 1) {
            put_char('[');
            put_char((char)in8(COM1));
            put_char(']');
            put_char('\n');
        }
        p->written = n;
        idle(nap);
    }
}

/* ---- start ---- */

static void start_timer(void)
{
    *apic(0xf0) = 0x1ff;                        /* the APIC is on */
    *apic(0x3e0) = 3;                           /* divide by 16 */
    *apic(0x320) = 0x20000 | TIMER_VECTOR;      /* periodic */
    *apic(0x380) = (uint32_t)option("timer", 1000000);
}

static void start_others(void)
{
    volatile char *to = (volatile char *)(uintptr_t)TRAMPOLINE;

    for (unsigned i = 0; trampoline + i < trampoline_end; i++) {
        to[i] = trampoline[i];
    }
    for (uint32_t n = 1; n < report->processors; n++) {
        next_processor = n;
        *apic(0x310) = n << 24;
        *apic(0x300) = 0x4500;                  /* INIT */
        idle(10000);
        *apic(0x310) = n << 24;
        *apic(0x300) = 0x4600 | TRAMPOLINE >> 12;
        while (ready < n) {
            idle(1000);
        }
    }
}

static void clear_report(void)
{
    for (unsigned i = 0; i < sizeof(*report) / 8; i++) {
        ((volatile uint64_t *)report)[i] = 0;
    }
    ready = 0;
}

static void run(unsigned index)
{
    switch (report->mode) {
    case 't':
        run_toggle(index);
        break;
    case 'r':
        run_regs(index);
        break;
    default:
        run_stamp(index);
        break;
    }
}

/* Called with the number of the processor; does not return. */
void guest_main(unsigned index)
{
    if (index == 0) {
        clear_report();         /* of a guest before a reset */
        read_start_info();
        report->processors = option("cpus", 1);
        report->mode = (uint8_t)command_line[0];
        if (report->mode == 'e') {
            out8(DEBUG_EXIT, (uint8_t)option("status", 0));
        }
        start_timer();
        start_others();
        report->magic = UINT64_C(0x7469776474736574);
        if (report->mode == 's' && command_line[1] == 'e') {
            run_serial();
        }
    } else {
        ready = index;
    }
    run(index);
}
