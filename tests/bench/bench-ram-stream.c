/* SPDX-License-Identifier: BSD-2-Clause */
/* How fast guest memory crosses one loopback connection, beside a plain copy over the same kind of socket. */

/*
 *     bench-ram-stream [--size=MIB] [--repeats=N] [--pages=huge|small|shared|ready] [--fill=NAME]
 *
 * Every line is one run: a child process receives into fresh memory what this process sends. "plain"
 * sends the same bytes with write() and receives them with read(), into one small buffer ("sink") or into
 * memory as the guest's ("memory"). The ratios are of the speeds to those of the plain runs of the same
 * repeat.
 *
 * --pages says what the memory at the receiving end is like: huge pages where the kernel has them, as
 * guest memory is by default; small ones; shared memory (memfd), in small pages too; or all of it there
 * before (prealloc). Unless it is, the kernel makes pages during the run, and in a virtual machine so may
 * the host below it: then the figures
 * vary a lot.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/transport.h"
#include "migration/ram-load.h"
#include "migration/ram.h"

#define MIB (1024 * 1024)
#define CHUNK MIB

typedef enum {
    FILL_DATA,
    FILL_MIXED,         /* 3 of 4 MiB data, in turn */
    FILL_SCATTERED,     /* each page by chance, 3 of 4 data */
    FILL_ZERO,
    FILL__MAX,
} Fill;

static const char *const fill_names[FILL__MAX] = { "data", "mixed", "scattered", "zero" };

static int size_mib = 1024;
static int repeats = 3;
static char *only_fill;
static char *pages;      /* NULL: huge */

static const GOptionEntry options_table[] = {
    { "size", 0, 0, G_OPTION_ARG_INT, &size_mib, "Size of the guest's memory", "MIB" },
    { "repeats", 0, 0, G_OPTION_ARG_INT, &repeats, "Runs of each kind", "N" },
    { "pages", 0, 0, G_OPTION_ARG_STRING, &pages, "Memory of the receiver", "huge|small|shared|ready" },
    { "fill", 0, 0, G_OPTION_ARG_STRING, &only_fill, "Only this content of memory", "NAME" },
    { NULL },
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* Processor time of this process (RUSAGE_SELF) or of ended children, in ms. */
static double cpu_ms(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-3;
}

static RAMBlock fresh_memory(size_t size)
{
    bool shared = !g_strcmp0(pages, "shared");
    int flags = shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    RAMBlock b = { .idstr = "m0", .used_length = size, .page_size = 4096, .fd = -1, .shared = shared };

    if (shared && ((b.fd = memfd_create("bench", MFD_CLOEXEC)) < 0 || ftruncate(b.fd, size))) {
        die("memfd");
    }
    b.host = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, b.fd, 0);
    if (b.host == MAP_FAILED) {
        die("mmap");
    }
    if (g_strcmp0(pages, "small")) {
        madvise(b.host, size, MADV_HUGEPAGE);
    }
    return b;
}

/*
 * In a virtual machine, memory that was free for long may have been given back to the host: have it
 * fetched again.
 */
static void warm_up(size_t size)
{
    RAMBlock b = fresh_memory(size);
    for (size_t i = 0; i < size; i += TARGET_PAGE_SIZE) {
        b.host[i] = 1;
    }
    munmap(b.host, size);
    if (b.fd >= 0) {
        close(b.fd);
    }
}

static bool wants_data(Fill fill, uint64_t page, uint64_t random)
{
    switch (fill) {
    case FILL_DATA:
        return true;
    case FILL_MIXED:
        return page / 256 % 4 != 3;
    case FILL_SCATTERED:
        return random >> 62 != 3;
    default:
        return false;
    }
}

static void fill_memory(RAMBlock *b, Fill fill)
{
    uint64_t x = 88172645463325252;

    memset(b->host, 0, b->used_length);
    for (uint64_t page = 0; page < ramblock_pages(b); page++) {
        uint64_t *p = (uint64_t *)(b->host + page * TARGET_PAGE_SIZE);
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        if (wants_data(fill, page, x * 0x9e3779b97f4a7c15)) {
            for (unsigned i = 0; i < TARGET_PAGE_SIZE / 8; i++) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                p[i] = x;
            }
        }
    }
}

/* ---- sockets ---- */

static void connect_pair(int fds[2])
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(addr);
    int one = 1, size = 4 * MIB;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&addr, len) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&addr, &len) ||
        connect(fds[0], (struct sockaddr *)&addr, len) || (fds[1] = accept(listener, NULL, NULL)) < 0) {
        die("connect");
    }
    close(listener);
}

static Channel *socket_channel(int fd)
{
    GError *error = NULL;
    Channel *c = channel_from_fd(dup(fd), &error);

    if (!c) {
        fprintf(stderr, "%s\n", error->message);
        exit(1);
    }
    return c;
}

/* ---- what is measured ---- */

typedef struct Guest {
    RAMBlock block;
    RamList ram;
} Guest;

static Guest *guest_new(RAMBlock *b)
{
    Guest *g = g_new0(Guest, 1);
    g->block = *b;
    ram_list_add(&g->ram, &g->block, NULL);
    return g;
}

static void check(bool ok, GError *error)
{
    if (!ok) {
        fprintf(stderr, "%s\n", error ? error->message : "?");
        exit(1);
    }
}

static void ram_send(int fd, RAMBlock *b)
{
    MigrationOptions options = { .props.x_clear_bitmap_shift = 18,
                                 .p.zero_page_detection = ZERO_PAGE_DETECTION_MULTIFD };
    GError *error = NULL;
    Guest *guest = guest_new(b);
    SoftDirtyLog *soft = soft_dirty_log_new();
    DirtyLog log = { 0 };
    dirty_log_add_provider(&log, soft_dirty_log_provider(soft));

    StreamWriter *w = stream_writer_new(socket_channel(fd));
    RamSave *save = ram_save_new(&guest->ram, &log, &options, &error);
    check(save != NULL, error);
    ram_save_set_sink(save, ram_sink_stream_new(save));
    check(ram_save_setup(save, w, &error), error);
    for (bool done = false; !done;) {
        check(ram_save_iterate(save, w, UINT64_MAX, &done, &error), error);
        check(stream_flush(w, &error), error);
    }
    check(ram_save_complete(save, w, &error), error);
    check(stream_flush(w, &error), error);
    ram_save_free(save);
}

static void ram_receive(int fd, RAMBlock *b)
{
    MigrationOptions options = { 0 };
    GError *error = NULL;
    Guest *guest = guest_new(b);
    StreamReader *r = stream_reader_new(socket_channel(fd));
    RamLoad *load = ram_load_new(&guest->ram, &options);

    while (stream_peek_u8(r, 0) >= 0) {
        check(ram_load_section(load, r, 0, &error), error);
    }
}

static void plain_send(int fd, RAMBlock *b)
{
    for (size_t done = 0; done < b->used_length;) {
        ssize_t n = write(fd, b->host + done, MIN(b->used_length - done, CHUNK));
        if (n < 0) {
            die("write");
        }
        done += n;
    }
}

static void plain_receive(int fd, RAMBlock *b)
{
    for (size_t done = 0; done < b->used_length;) {
        ssize_t n = read(fd, b->host + done, MIN(b->used_length - done, CHUNK));
        if (n <= 0) {
            die("read");
        }
        done += n;
    }
}

static void plain_receive_sink(int fd, RAMBlock *b)
{
    uint8_t *buf = malloc(CHUNK);

    for (size_t done = 0; done < b->used_length;) {
        ssize_t n = read(fd, buf, CHUNK);
        if (n <= 0) {
            die("read");
        }
        done += n;
    }
}

typedef struct Mode {
    const char *name;
    void (*send)(int fd, RAMBlock *b);
    void (*receive)(int fd, RAMBlock *b);
    bool compare;
} Mode;

static const Mode modes[] = {
    { "plain, sink", plain_send, plain_receive_sink, false },
    { "plain, memory", plain_send, plain_receive, true },
    { "ram stream", ram_send, ram_receive, true },
};

typedef struct Result {
    double speed;           /* MiB/s */
    double send_cpu;        /* ms for each GiB */
    double receive_cpu;
} Result;

/* One run.  The child compares what it got: it inherits the source's memory. */
static Result run(const Mode *mode, RAMBlock *b)
{
    int fds[2], status;
    char ready;
    double before = cpu_ms(RUSAGE_SELF), receive_cpu = 0;

    connect_pair(fds);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        warm_up(b->used_length);
        RAMBlock target = fresh_memory(b->used_length);
        if (!g_strcmp0(pages, "ready")) {
            memset(target.host, 0, b->used_length);
        }
        if (write(fds[1], "", 1) != 1) {
            _exit(1);
        }
        double receive_start = cpu_ms(RUSAGE_SELF);
        mode->receive(fds[1], &target);
        double used = cpu_ms(RUSAGE_SELF) - receive_start;
        if (write(fds[1], &used, sizeof(used)) != sizeof(used)) {
            _exit(1);
        }
        _exit(mode->compare && memcmp(b->host, target.host, b->used_length) ? 2 : 0);
    }
    close(fds[1]);
    if (read(fds[0], &ready, 1) != 1) {
        die("read");
    }
    double start = now();
    mode->send(fds[0], b);
    shutdown(fds[0], SHUT_WR);
    double send_cpu = cpu_ms(RUSAGE_SELF) - before;
    if (read(fds[0], &receive_cpu, sizeof(receive_cpu)) != sizeof(receive_cpu)) {
        fprintf(stderr, "%s: the receiver failed\n", mode->name);
    }
    double seconds = now() - start;
    close(fds[0]);
    if (waitpid(pid, &status, 0) < 0 || status) {
        fprintf(stderr, "%s: status 0x%x\n", mode->name, status);
        exit(1);
    }
    double mib = (double)b->used_length / MIB;
    return (Result){ mib / seconds, send_cpu / mib * 1024, receive_cpu / mib * 1024 };
}

int main(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    GError *error = NULL;

    g_option_context_add_main_entries(context, options_table, NULL);
    check(g_option_context_parse(context, &argc, &argv, &error), error);
    size_t size = (size_t)size_mib * MIB;
    RAMBlock memory = fresh_memory(size);

    for (Fill fill = 0; fill < FILL__MAX; fill++) {
        if (only_fill && strcmp(only_fill, fill_names[fill])) {
            continue;
        }
        fill_memory(&memory, fill);
        for (int i = 0; i < repeats; i++) {
            Result r[G_N_ELEMENTS(modes)];
            for (size_t m = 0; m < G_N_ELEMENTS(modes); m++) {
                r[m] = run(&modes[m], &memory);
                printf("%-10s %-14s %7.0f MiB/s, processor ms/GiB: send %4.0f receive %4.0f\n",
                       fill_names[fill], modes[m].name, r[m].speed, r[m].send_cpu, r[m].receive_cpu);
            }
            printf("%-10s ratio to sink %.2f, to memory %.2f\n", fill_names[fill], r[2].speed / r[0].speed,
                   r[2].speed / r[1].speed);
            fflush(stdout);
        }
    }
    return 0;
}
