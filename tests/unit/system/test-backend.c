/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory backends: texts and errors, what is allocated and how, files, preallocation, the machine's RAM. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "system/backend.h"
#include "system/machine-none.h"
#include "util/error.h"
#include "util/fault.h"

#define PAGE 4096
#define MIB (1024 * 1024)

typedef struct Fixture {
    MemoryBackendSet set;
    char *dir;
} Fixture;

static void fixture_setup(Fixture *fx, gconstpointer data)
{
    fx->set.first = NULL;
    fx->dir = g_dir_make_tmp("godwit-XXXXXX", NULL);
    g_assert_nonnull(fx->dir);
}

static void fixture_teardown(Fixture *fx, gconstpointer data)
{
    const char *name;
    memory_backend_set_clear(&fx->set);
    g_autoptr(GDir) dir = g_dir_open(fx->dir, 0, NULL);
    while ((name = g_dir_read_name(dir))) {
        g_autofree char *path = g_build_filename(fx->dir, name, NULL);
        g_unlink(path);
    }
    g_assert_cmpint(g_rmdir(fx->dir), ==, 0);
    g_free(fx->dir);
}

/* "%D" in @text stands for the temporary directory. */
static char *expand(Fixture *fx, const char *text)
{
    g_auto(GStrv) parts = g_strsplit(text, "%D", -1);
    return g_strjoinv(fx->dir, parts);
}

static MemoryBackend *add(Fixture *fx, const char *text)
{
    g_autofree char *full = expand(fx, text);
    g_autoptr(GError) error = NULL;
    MemoryBackend *backend = memory_backend_add_text(&fx->set, full, &error);
    g_assert_no_error(error);
    g_assert_nonnull(backend);
    return backend;
}

/* Exact text; @parse_level says whose fault it is. */
static void add_fails(Fixture *fx, const char *text, bool parse_level, const char *message)
{
    g_autofree char *full = expand(fx, text);
    g_autofree char *want = expand(fx, message);
    g_autoptr(GError) error = NULL;
    g_assert_null(memory_backend_add_text(&fx->set, full, &error));
    g_assert_nonnull(error);
    if (strcmp(error->message, want) != 0) {
        g_test_message("text: %s", full);
    }
    g_assert_cmpstr(error->message, ==, want);
    g_assert_cmpint(error->code == GODWIT_ERROR_INVALID, ==, parse_level);
}

static void write_file(Fixture *fx, const char *name, size_t size, uint8_t fill)
{
    g_autofree char *path = g_build_filename(fx->dir, name, NULL);
    g_autofree char *contents = g_malloc(size + 1);
    memset(contents, fill, size);
    g_assert_true(g_file_set_contents(path, contents, size, NULL));
}

static uint8_t file_byte(Fixture *fx, const char *name, off_t offset)
{
    g_autofree char *path = g_build_filename(fx->dir, name, NULL);
    uint8_t byte = 0;
    int fd = open(path, O_RDONLY);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(pread(fd, &byte, 1, offset), ==, 1);
    close(fd);
    return byte;
}

static size_t file_size(Fixture *fx, const char *name)
{
    g_autofree char *path = g_build_filename(fx->dir, name, NULL);
    struct stat st;
    g_assert_cmpint(stat(path, &st), ==, 0);
    return st.st_size;
}

/* How many pages of the block have memory. */
static uint64_t resident_pages(const RAMBlock *block)
{
    g_autofree unsigned char *vec = g_malloc(block->used_length / PAGE);
    uint64_t count = 0;
    g_assert_cmpint(mincore(block->host, block->used_length, vec), ==, 0);
    for (uint64_t i = 0; i < block->used_length / PAGE; i++) {
        count += vec[i] & 1;
    }
    return count;
}

/* Does /proc say that the mapping has the flag (two letters)? */
static bool mapping_has_flag(const RAMBlock *block, const char *flag)
{
    g_autofree char *smaps = NULL;
    g_autofree char *start = g_strdup_printf("%" G_GINT64_MODIFIER "x-", (guint64)(uintptr_t)block->host);
    g_autofree char *word = g_strdup_printf(" %s", flag);
    g_assert_true(g_file_get_contents("/proc/self/smaps", &smaps, NULL, NULL));
    const char *entry = strstr(smaps, start);
    g_assert_nonnull(entry);
    const char *flags = strstr(entry, "VmFlags:");
    g_autofree char *line = g_strndup(flags, strcspn(flags, "\n"));
    return strstr(line, word);
}

/* ---- texts: QEMU 7.2's and 11.1's words ---- */

static void test_text_errors(Fixture *fx, gconstpointer data)
{
#define ID_HINT "\nIdentifiers consist of letters, digits, '-', '.', '_', starting with a letter."
    static const char *const cases[][2] = {
        { "", "Parameter 'qom-type' is missing" },
        { "memory-backend-ram", "Parameter 'id' is missing" },
        { "memory-backend-ram,id=a", "Parameter 'size' is missing" },
        { "foo,id=a", "Parameter 'qom-type' does not accept value 'foo'" },
        { ",id=a", "Parameter 'qom-type' does not accept value ''" },
        { "memory-backend-ram,qom-type=foo,id=a,size=1M",
          "Parameter 'qom-type' does not accept value 'foo'" },
        { "memory-backend-ram,id=1a,size=1M", "Parameter 'id' expects an identifier" ID_HINT },
        { "memory-backend-ram,id=,size=1M", "Parameter 'id' expects an identifier" ID_HINT },
        { "memory-backend-ram,id=a,size=abc", "Parameter 'size' expects a size value" },
        { "memory-backend-ram,id=a,size=-1", "Parameter 'size' expects a size value" },
        { "memory-backend-ram,id=a,size=99999999999E", "Parameter 'size' expects a size value" },
        { "memory-backend-ram,id=a,size=1M,foo=1", "Invalid parameter 'foo'" },
        { "memory-backend-ram,id=a,size=1M,mem-path=x", "Invalid parameter 'mem-path'" },
        { "memory-backend-ram,id=a,size=1M,share=1", "Parameter 'share' expects 'on' or 'off'" },
        { "memory-backend-file,id=a,size=1M", "Parameter 'mem-path' is missing" },
        { "memory-backend-ram,id=a,size=1M,policy=foo", "Parameter 'policy' does not accept value 'foo'" },
        { "memory-backend-ram,id=a,size=1M,host-nodes=x",
          "Parameter 'host-nodes' expects a uint64 value or range" },
        { "memory-backend-ram,id=a,size=1M,host-nodes=3-1",
          "Parameter 'host-nodes' expects a uint64 value or range" },
        { "memory-backend-ram,id=a,size=1M,host-nodes=0-",
          "Parameter 'host-nodes' expects a uint64 value or range" },
        { "memory-backend-ram,id=a,size=1M,host-nodes=0-65535",
          "Parameter 'host-nodes' has too many values" },
        { "memory-backend-ram,id=a,size=1M,prealloc-threads=x",
          "Parameter 'prealloc-threads' expects a uint64 value" },
        { "memory-backend-ram,id=a,size=1M,prealloc-threads=-1",
          "Parameter 'prealloc-threads' expects a uint64 value" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        add_fails(fx, cases[i][0], true, cases[i][1]);
    }
    add(fx, "memory-backend-ram,id=a,size=1M");
    add_fails(fx, "memory-backend-ram,id=a,size=1M", true, "Duplicate ID 'a' for object");
}

static void test_property_errors(Fixture *fx, gconstpointer data)
{
    static const char *const cases[][2] = {
        { "memory-backend-ram,id=a,size=0", "property 'size' of memory-backend-ram doesn't take value '0'" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D,prealloc-threads=0",
          "property 'prealloc-threads' of memory-backend-file doesn't take value '0'" },
        { "memory-backend-file,id=a,size=4097,mem-path=%D",
          "backend 'memory-backend-file' memory size must be multiple of 4 KiB" },
        { "memory-backend-ram,id=a,size=18446744073709551615",
          "cannot set up guest memory 'a': Cannot allocate memory" },
        { "memory-backend-memfd,id=a,size=18446744073709551615",
          "unable to map backing store for guest RAM: Cannot allocate memory" },
        { "memory-backend-ram,id=a,size=1M,host-nodes=0",
          "host-nodes must be empty for policy default, or you should explicitly specify a policy other than "
          "default" },
        { "memory-backend-ram,id=a,size=1M,policy=bind", "host-nodes must be set for policy bind" },
        { "memory-backend-ram,id=a,size=1M,policy=interleave,host-nodes=0-200",
          "Invalid host-nodes value: 128" },
        { "memory-backend-ram,id=a,size=1M,prealloc=on,reserve=off",
          "'prealloc=on' and 'reserve=off' are incompatible" },
        { "memory-backend-ram,id=a,size=1M,prealloc-context=foo", "Device 'foo' not found" },
        { "memory-backend-ram,id=a,size=64T", "cannot set up guest memory 'a': Cannot allocate memory" },
        { "memory-backend-ram,id=a,size=8E", "cannot set up guest memory 'a': Cannot allocate memory" },
        { "memory-backend-file,id=a,size=1M,mem-path=/nonexistent/x",
          "can't open backing store /nonexistent/x for guest RAM: No such file or directory" },
        { "memory-backend-file,id=a,size=1M,mem-path=",
          "can't open backing store  for guest RAM: No such file or directory" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D,align=1",
          "alignment 0x1 must be multiples of page size 0x1000" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D,align=12k",
          "alignment 0x3000 must be a power of two" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D,offset=1",
          "offset 0x1 must be multiples of page size 0x1000" },
        { "memory-backend-file,id=a,size=7E,mem-path=%D,offset=7E",
          "'size' option 0x7000000000000000 plus 'offset' option 0x7000000000000000 is beyond the end of any "
          "file" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D,pmem=on",
          "'pmem=on' is not supported: data would not be made persistent" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D,rom=on",
          "property 'rom' = 'on' is not supported with 'readonly' = 'off'" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D/small,rom=off,readonly=on,share=on",
          "property 'rom' = 'off' is incompatible with 'readonly' = 'on' and 'share' = 'on'" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D/small",
          "a backing store size 0x10000 is too small for 'size' option 0x100000 plus 'offset' option 0x0" },
        { "memory-backend-file,id=a,size=60k,mem-path=%D/small,offset=8k",
          "a backing store size 0x10000 is too small for 'size' option 0xf000 plus 'offset' option 0x2000" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D/empty,readonly=on",
          "a backing store size 0x0 is too small for 'size' option 0x100000 plus 'offset' option 0x0" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D/none,readonly=on",
          "can't open backing store %D/none for guest RAM: No such file or directory" },
        { "memory-backend-file,id=a,size=1M,mem-path=%D,readonly=on",
          "can't open backing store %D for guest RAM: Is a directory" },
        { "memory-backend-file,id=a,size=1M,mem-path=/dev/null",
          "unable to map backing store for guest RAM: No such device" },
        { "memory-backend-memfd,id=a,size=2M,hugetlb=on,hugetlbsize=3M",
          "Hugepage size must be a power of 2" },
        { "memory-backend-memfd,id=a,size=2M,hugetlb=on,hugetlbsize=0",
          "Property 'memory-backend-memfd.hugetlbsize' doesn't take value '0'" },
    };
    write_file(fx, "small", 64 * 1024, 7);
    write_file(fx, "empty", 0, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        add_fails(fx, cases[i][0], false, cases[i][1]);
        g_assert_null(fx->set.first);
    }
    g_assert_cmpuint(file_size(fx, "small"), ==, 64 * 1024);
    g_assert_cmpuint(file_size(fx, "empty"), ==, 0);
    g_autofree char *none = g_build_filename(fx->dir, "none", NULL);
    g_assert_false(g_file_test(none, G_FILE_TEST_EXISTS));
}

/* What QMP's object-add says where -object says something else. */
static void test_object_add_errors(Fixture *fx, gconstpointer data)
{
    MemoryBackendProperties p = { .size = MIB };
    ObjectOptions options = { .qom_type = OBJECT_TYPE_MEMORY_BACKEND_RAM, .id = (char *)"o1",
                              .u.memory_backend_ram = &p };
    g_autoptr(GError) duplicate = NULL;
    g_autoptr(GError) id = NULL;
    g_autoptr(GError) context = NULL;

    g_assert_nonnull(memory_backend_add(&fx->set, &options, NULL));
    g_assert_null(memory_backend_add(&fx->set, &options, &duplicate));
    g_assert_cmpstr(duplicate->message, ==,
                    "attempt to add duplicate property 'o1' to object (type 'container')");
    options.id = (char *)"a b";
    g_assert_null(memory_backend_add(&fx->set, &options, &id));
    g_assert_cmpstr(id->message, ==, "Parameter 'id' expects an identifier");
    options.id = (char *)"o2";
    p.prealloc_context = (char *)"foo";
    g_assert_null(memory_backend_add(&fx->set, &options, &context));
    g_assert_error(context, GODWIT_ERROR, GODWIT_ERROR_DEVICE_NOT_FOUND);
}

static void test_text_forms(Fixture *fx, gconstpointer data)
{
    MemoryBackend *a = add(fx, "memory-backend-ram,id=a,size=1.5M,merge=off,dump=n,policy=default");
    g_assert_cmpuint(a->block.used_length, ==, 3 * MIB / 2);
    const MemoryBackendProperties *p = memory_backend_properties(a);
    g_assert_true(!p->merge && !p->dump && !p->share && !p->prealloc && p->reserve);
    g_assert_cmpuint(p->prealloc_threads, ==, 1);

    MemoryBackend *b = add(fx, "memory-backend-memfd,id=b,size=8192,seal=off");
    g_assert_true(memory_backend_properties(b)->share);
    /* The last of two counts. */
    MemoryBackend *c = add(fx, "qom-type=memory-backend-ram,size=1M,id=x,size=8k,id=c");
    g_assert_cmpstr(c->id, ==, "c");
    g_assert_cmpuint(c->block.used_length, ==, 8192);
    write_file(fx, "a,b", 8192, 1);
    MemoryBackend *d = add(fx, "memory-backend-file,id=d,size=8k,mem-path=%D/a,,b");
    g_assert_cmpuint(d->block.host[8191], ==, 1);

    g_assert_true(fx->set.first == a && a->next == b && b->next == c && c->next == d && !d->next);

    /* A part of a page is a page, except of a file; the property stays as given. */
    MemoryBackend *e = add(fx, "memory-backend-ram,id=e,size=4097");
    g_assert_cmpuint(e->block.used_length, ==, 8192);
    g_assert_cmpuint(memory_backend_properties(e)->size, ==, 4097);
    g_assert_cmpuint(add(fx, "memory-backend-memfd,id=f,size=1")->block.used_length, ==, 4096);

    g_test_expect_message(NULL, G_LOG_LEVEL_WARNING,
                          "short-form boolean option 'share' deprecated\nPlease use share=on instead");
    g_test_expect_message(NULL, G_LOG_LEVEL_WARNING,
                          "short-form boolean option 'nomerge' deprecated\nPlease use merge=off instead");
    MemoryBackend *g = add(fx, "memory-backend-ram,id=g,size=4k,share,nomerge");
    g_test_assert_expected_messages();
    g_assert_true(memory_backend_properties(g)->share && !memory_backend_properties(g)->merge);
    g_assert_true(memory_backend_find(&fx->set, "c") == c);
    g_assert_null(memory_backend_find(&fx->set, "x"));
}

static void test_host_nodes(Fixture *fx, gconstpointer data)
{
    g_autoptr(ObjectOptions) options =
        memory_backend_parse("memory-backend-ram,id=a,size=1M,policy=bind,host-nodes=3,host-nodes=7-9", NULL);
    const uint16List *nodes = options->u.memory_backend_ram->host_nodes;
    static const uint16_t expect[] = { 3, 7, 8, 9 };
    g_assert_cmpmem(nodes->items, nodes->count * sizeof(uint16_t), expect, sizeof(expect));

    /* Node 0 is there, node 100 is not; a kernel without NUMA refuses both. */
    g_autoptr(GError) error = NULL;
    g_assert_null(memory_backend_add_text(
        &fx->set, "memory-backend-ram,id=a,size=1M,policy=bind,host-nodes=100", &error));
    g_assert_true(g_str_has_prefix(error->message, "cannot bind memory to host NUMA nodes: "));
    g_clear_error(&error);
    if (!memory_backend_add_text(
            &fx->set, "memory-backend-ram,id=b,size=1M,policy=bind,host-nodes=0,prealloc=on", &error)) {
        g_assert_true(g_str_has_prefix(error->message, "cannot bind memory to host NUMA nodes: "));
        g_test_skip("the kernel does not let us bind memory");
    }
}

/* ---- memory ---- */

static void test_ram(Fixture *fx, gconstpointer data)
{
    MemoryBackend *a = add(fx, "memory-backend-ram,id=a,size=16M");
    g_assert_cmpstr(a->block.idstr, ==, "a");
    g_assert_cmpint(a->block.fd, ==, -1);
    g_assert_false(a->block.shared);
    g_assert_false(a->block.readonly);
    g_assert_cmpuint(a->block.page_size, ==, sysconf(_SC_PAGESIZE));
    /* Huge pages fit. */
    g_assert_cmpuint((uintptr_t)a->block.host % (2 * MIB), ==, 0);
    for (size_t i = 0; i < 16 * MIB; i += PAGE) {
        g_assert_cmpuint(a->block.host[i], ==, 0);
    }
    memset(a->block.host, 0xff, 16 * MIB);

    /* Adjacent memory of others is left alone, and nothing but the block is mapped. */
    g_assert_true(mapping_has_flag(&a->block, "dc"));
    g_assert_false(mapping_has_flag(&a->block, "dd"));
    g_assert_true(mapping_has_flag(&a->block, "ac"));

    MemoryBackend *b = add(fx, "memory-backend-ram,id=b,size=1M,dump=off,reserve=off");
    g_assert_true(mapping_has_flag(&b->block, "dd"));
    g_assert_true(mapping_has_flag(&b->block, "nr"));
}

static void test_ram_shared(Fixture *fx, gconstpointer data)
{
    MemoryBackend *a = add(fx, "memory-backend-ram,id=a,size=1M,share=on");
    g_assert_true(a->block.shared);
    g_assert_cmpint(a->block.fd, >=, 0);
    uint8_t *again = mmap(NULL, MIB, PROT_READ, MAP_SHARED, a->block.fd, a->block.fd_offset);
    g_assert_true(again != MAP_FAILED);
    a->block.host[12345] = 99;
    g_assert_cmpuint(again[12345], ==, 99);
    munmap(again, MIB);
}

static void test_memfd(Fixture *fx, gconstpointer data)
{
    MemoryBackend *a = add(fx, "memory-backend-memfd,id=a,size=1M");
    g_assert_true(a->block.shared);
    g_assert_cmpint(fcntl(a->block.fd, F_GET_SEALS), ==, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    g_assert_cmpint(fcntl(a->block.fd, F_GETFD) & FD_CLOEXEC, ==, FD_CLOEXEC);
    struct stat st;
    g_assert_cmpint(fstat(a->block.fd, &st), ==, 0);
    g_assert_cmpint(st.st_size, ==, MIB);

    MemoryBackend *b = add(fx, "memory-backend-memfd,id=b,size=1M,seal=off,share=off");
    g_assert_cmpint(fcntl(b->block.fd, F_GET_SEALS) & F_SEAL_GROW, ==, 0);
    g_assert_false(b->block.shared);
    b->block.host[0] = 5;
    uint8_t byte = 77;
    g_assert_cmpint(pread(b->block.fd, &byte, 1, 0), ==, 1);
    g_assert_cmpuint(byte, ==, 0);
    /* Without hugetlb its size does not matter. */
    add(fx, "memory-backend-memfd,id=c,size=1M,hugetlbsize=2M");
}

static void test_hugetlb(Fixture *fx, gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GError) misfit = NULL;
    MemoryBackend *a = memory_backend_add_text(
        &fx->set, "memory-backend-memfd,id=a,size=2M,hugetlb=on,hugetlbsize=2M", &error);

    if (!a && g_str_has_prefix(error->message, "failed to create memfd with flags 0x")) {
        g_test_skip("the kernel has no huge pages of 2 MiB");
        return;
    }
    g_assert_null(memory_backend_add_text(
        &fx->set, "memory-backend-memfd,id=b,size=1M,hugetlb=on,hugetlbsize=2M", &misfit));
    g_assert_cmpstr(misfit->message, ==, "failed to resize memfd to 1048576: Invalid argument");
    if (!a) {
        g_assert_cmpstr(error->message, ==,
                        "unable to map backing store for guest RAM: Cannot allocate memory");
        g_test_skip("the kernel has no huge page to give");
        return;
    }
    g_assert_cmpuint(a->block.page_size, ==, 2 * MIB);
    a->block.host[0] = 1;
}

static void test_file(Fixture *fx, gconstpointer data)
{
    struct stat st;
    MemoryBackend *a = add(fx, "memory-backend-file,id=a,size=1M,mem-path=%D/new,share=on");
    g_assert_cmpuint(file_size(fx, "new"), ==, MIB);
    g_assert_cmpint(fstat(a->block.fd, &st), ==, 0);
    mode_t mask = umask(0);
    umask(mask);
    g_assert_cmphex(st.st_mode & 0777, ==, 0644 & ~mask);
    a->block.host[MIB - 1] = 42;
    g_assert_cmpuint(file_byte(fx, "new", MIB - 1), ==, 42);

    /* A larger file: the first part of it. */
    write_file(fx, "large", 3 * PAGE, 9);
    MemoryBackend *b = add(fx, "memory-backend-file,id=b,size=4k,mem-path=%D/large");
    g_assert_false(b->block.shared);
    g_assert_cmpuint(b->block.host[4095], ==, 9);
    b->block.host[0] = 1;
    g_assert_cmpuint(file_byte(fx, "large", 0), ==, 9);
    g_assert_cmpuint(file_size(fx, "large"), ==, 3 * PAGE);

    MemoryBackend *c = add(fx, "memory-backend-file,id=c,size=4k,mem-path=%D/large,offset=8k,share=on");
    g_assert_cmpuint(c->block.fd_offset, ==, 8192);
    c->block.host[1] = 77;
    g_assert_cmpuint(file_byte(fx, "large", 8193), ==, 77);

    /* A new file with an offset is long enough for both. */
    add(fx, "memory-backend-file,id=d,size=8k,mem-path=%D/offset,offset=4k");
    g_assert_cmpuint(file_size(fx, "offset"), ==, 3 * PAGE);
}

static void test_file_in_directory(Fixture *fx, gconstpointer data)
{
    MemoryBackend *a = add(fx, "memory-backend-file,id=a,size=1M,mem-path=%D,align=8M");
    g_autoptr(GDir) dir = g_dir_open(fx->dir, 0, NULL);
    g_assert_null(g_dir_read_name(dir));
    g_assert_cmpuint((uintptr_t)a->block.host % (8 * MIB), ==, 0);
    a->block.host[MIB - 1] = 1;
}

static void test_file_readonly(Fixture *fx, gconstpointer data)
{
    write_file(fx, "rom", 2 * PAGE, 3);
    MemoryBackend *shared =
        add(fx, "memory-backend-file,id=a,size=8k,mem-path=%D/rom,readonly=on,share=on,prealloc=on");
    g_assert_true(shared->block.readonly);
    g_assert_cmpuint(shared->block.host[PAGE], ==, 3);
    g_assert_false(mapping_has_flag(&shared->block, "wr"));
    MemoryBackend *private = add(fx, "memory-backend-file,id=b,size=8k,mem-path=%D/rom,readonly=on");
    g_assert_true(private->block.readonly);
    MemoryBackend *ram = add(fx, "memory-backend-file,id=c,size=8k,mem-path=%D/rom,readonly=on,rom=off");
    g_assert_false(ram->block.readonly);
    ram->block.host[0] = 4;
    g_assert_cmpuint(file_byte(fx, "rom", 0), ==, 3);
    MemoryBackend *rom =
        add(fx, "memory-backend-file,id=d,size=8k,mem-path=%D/rom,readonly=on,rom=on,share=on");
    g_assert_true(rom->block.readonly);
}

static void test_discard_data(Fixture *fx, gconstpointer data)
{
    for (int discard = 0; discard < 2; discard++) {
        g_autoptr(GError) error = NULL;
        write_file(fx, "data", 2 * PAGE, 5);
        add(fx, discard ? "memory-backend-file,id=a,size=8k,mem-path=%D/data,share=on,discard-data=on"
                        : "memory-backend-file,id=a,size=8k,mem-path=%D/data,share=on");
        g_assert_true(memory_backend_del(&fx->set, "a", &error));
        g_assert_no_error(error);
        /* Gone, where the file system can make holes. */
        uint8_t byte = file_byte(fx, "data", 0);
        if (discard && byte == 5) {
            g_test_skip("this file system cannot make holes");
        } else {
            g_assert_cmpuint(byte, ==, discard ? 0 : 5);
        }
        g_assert_cmpuint(file_size(fx, "data"), ==, 2 * PAGE);
    }
}

static void test_prealloc(Fixture *fx, gconstpointer data)
{
    MemoryBackend *lazy = add(fx, "memory-backend-ram,id=lazy,size=8M");
    g_assert_cmpuint(resident_pages(&lazy->block), ==, 0);
    static const char *const texts[] = {
        "memory-backend-ram,id=a,size=8M,prealloc=on",
        "memory-backend-ram,id=b,size=20M,prealloc=on,prealloc-threads=3",
        "memory-backend-ram,id=c,size=4k,prealloc=on,prealloc-threads=1000000",
        "memory-backend-memfd,id=d,size=9M,prealloc=on,prealloc-threads=2",
        "memory-backend-file,id=e,size=5M,mem-path=%D/e,share=on,prealloc=on,prealloc-threads=4",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        MemoryBackend *backend = add(fx, texts[i]);
        g_assert_cmpuint(resident_pages(&backend->block), ==, backend->block.used_length / PAGE);
    }
    /* Touching changes nothing. */
    write_file(fx, "full", 4 * MIB, 0x5a);
    MemoryBackend *full =
        add(fx, "memory-backend-file,id=f,size=4M,mem-path=%D/full,prealloc=on,prealloc-threads=2");
    for (size_t i = 0; i < 4 * MIB; i += 511) {
        g_assert_cmpuint(full->block.host[i], ==, 0x5a);
    }
}

#ifdef CONFIG_FAULT_INJECTION
static void test_faults_undo(Fixture *fx, gconstpointer data)
{
    static const char *const points[] = { "memory-backend-map:1", "memory-backend-prealloc:1" };
    g_autofree char *new_file = g_build_filename(fx->dir, "new", NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(points); i++) {
        g_autofree char *text = expand(fx, "memory-backend-memfd,id=a,size=1M,prealloc=on");
        g_autoptr(GError) error = NULL;
        int before = dup(0);
        close(before);
        g_assert_true(fault_configure(points[i], NULL));
        g_assert_null(memory_backend_add_text(&fx->set, text, &error));
        g_assert_true(fault_configure(NULL, NULL));
        g_assert_nonnull(error);
        g_assert_null(fx->set.first);
        g_assert_true(fault_configure(points[i], NULL));
        add_fails(fx, "memory-backend-file,id=a,size=1M,mem-path=%D/new,prealloc=on", false, error->message);
        g_assert_true(fault_configure(NULL, NULL));
        g_assert_false(g_file_test(new_file, G_FILE_TEST_EXISTS));
        /* The descriptors have been closed. */
        int after = dup(0);
        close(after);
        g_assert_cmpint(after, ==, before);
    }
}
#endif

static void test_delete(Fixture *fx, gconstpointer data)
{
    g_autoptr(GError) unknown = NULL;
    g_autoptr(GError) used = NULL;
    MemoryBackend *a = add(fx, "memory-backend-memfd,id=a,size=1M");
    MemoryBackend *b = add(fx, "memory-backend-ram,id=b,size=1M");
    int fd = a->block.fd;

    g_assert_false(memory_backend_del(&fx->set, "nosuch", &unknown));
    g_assert_cmpstr(unknown->message, ==, "object 'nosuch' not found");
    a->in_use = true;
    g_assert_false(memory_backend_del(&fx->set, "a", &used));
    g_assert_cmpstr(used->message, ==, "Cannot delete host memory backend 'a' which is mapped");
    a->in_use = false;
    g_assert_true(memory_backend_del(&fx->set, "a", NULL));
    g_assert_cmpint(fcntl(fd, F_GETFD), ==, -1);
    g_assert_true(fx->set.first == b);
    add(fx, "memory-backend-ram,id=a,size=2M");
}

static void test_help(Fixture *fx, gconstpointer data)
{
    g_autofree char *types = memory_backend_help(NULL);
    g_autofree char *file = memory_backend_help("memory-backend-file");
    g_assert_nonnull(strstr(types, "  memory-backend-memfd\n"));
    g_assert_nonnull(strstr(file, "  mem-path=<string>\n"));
    g_assert_nonnull(strstr(file, "  size=<size>\n"));
    g_assert_nonnull(strstr(file, "  share=<bool>\n"));
    g_assert_null(memory_backend_help("nosuch"));
}

/* ---- the machine's memory ---- */

static void test_machine_memory(Fixture *fx, gconstpointer data)
{
    static const struct {
        const char *object;
        MachineMemory memory;
        const char *idstr;      /* NULL: no block */
        uint64_t size;
    } cases[] = {
        { NULL, { 0 }, NULL, 0 },
        { NULL, { .has_size = true }, NULL, 0 },
        { NULL, { .has_size = true, .size = 16 * MIB }, "ram", 16 * MIB },
        /* Rounded up to 8 KiB, as seen on the wire. */
        { NULL, { .has_size = true, .size = 8388708 }, "ram", 0x802000 },
        { NULL, { .has_size = true, .size = 5 * MIB }, "ram", 0x500000 },
        { "memory-backend-ram,id=m0,size=4M", { .backend = "m0" }, "m0", 4 * MIB },
        { "memory-backend-ram,id=m0,size=4M",
          { .backend = "m0", .has_size = true, .size = 4 * MIB },
          "m0",
          4 * MIB },
        { "memory-backend-memfd,id=m0,size=4100k", { .backend = "m0" }, "m0", 4100 * 1024 },
        { "memory-backend-ram,id=m0,size=4M,x-use-canonical-path-for-ramblock-id=on",
          { .backend = "m0" },
          "/objects/m0",
          4 * MIB },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        Machine *m = machine_new(&machine_none_type, false);
        if (cases[i].object) {
            add(fx, cases[i].object);
        }
        g_assert_true(machine_create_memory(m, &fx->set, &cases[i].memory, &error));
        g_assert_no_error(error);
        if (cases[i].idstr) {
            g_assert_cmpuint(m->ram.count, ==, 1);
            g_assert_cmpstr(m->ram.first->idstr, ==, cases[i].idstr);
            g_assert_cmpuint(m->ram.first->used_length, ==, cases[i].size);
            g_assert_cmpuint(m->ram.first->gpa, ==, 0);
            g_assert_false(memory_backend_del(&fx->set, fx->set.first->id, NULL));
        } else {
            g_assert_cmpuint(m->ram.count, ==, 0);
        }
        machine_free(m);
        memory_backend_set_clear(&fx->set);
    }
}

static void test_machine_memory_path(Fixture *fx, gconstpointer data)
{
    g_autofree char *path = g_build_filename(fx->dir, "mem", NULL);
    MachineMemory memory = { .has_size = true, .size = 2 * MIB, .path = path, .prealloc = true };
    Machine *m = machine_new(&machine_none_type, false);

    g_assert_true(machine_create_memory(m, &fx->set, &memory, NULL));
    g_assert_cmpstr(m->ram.first->idstr, ==, "ram");
    g_assert_false(m->ram.first->shared);
    g_assert_cmpuint(file_size(fx, "mem"), ==, 2 * MIB);
    g_assert_cmpuint(resident_pages(m->ram.first), ==, 512);
    machine_free(m);
}

static void test_machine_memory_errors(Fixture *fx, gconstpointer data)
{
    static const struct {
        MachineMemory memory;
        const char *message;
    } cases[] = {
        { { .backend = "x" }, "Memory backend 'x' not found" },
        { { .backend = "m0", .has_size = true, .size = 8 * MIB },
          "Machine memory size does not match the size of the memory backend" },
        { { .backend = "m0", .path = "/tmp" },
          "'-mem-path' can't be used together with'-machine memory-backend'" },
        { { .has_size = true, .size = UINT64_C(64) << 40 },
          "cannot set up guest memory 'ram': Cannot allocate memory" },
        { { .has_size = true, .size = UINT64_MAX },
          "cannot set up guest memory 'ram': Cannot allocate memory" },
    };
    Machine *m = machine_new(&machine_none_type, false);
    add(fx, "memory-backend-ram,id=m0,size=4M");
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(machine_create_memory(m, &fx->set, &cases[i].memory, &error));
        g_assert_cmpstr(error->message, ==, cases[i].message);
        g_assert_cmpuint(m->ram.count, ==, 0);
    }
    machine_free(m);
}

static void test_several_blocks(Fixture *fx, gconstpointer data)
{
    Machine *m = machine_new(&machine_none_type, false);
    MemoryBackend *a = add(fx, "memory-backend-ram,id=a,size=1M");
    MemoryBackend *b = add(fx, "memory-backend-ram,id=b,size=3M");
    g_autoptr(GError) error = NULL;

    g_assert_true(machine_add_memory(m, a, NULL));
    g_assert_true(machine_add_memory(m, b, NULL));
    g_assert_cmpuint(a->block.gpa, ==, 0);
    g_assert_cmpuint(b->block.gpa, ==, MIB);
    g_assert_true(m->ram.first == &b->block);
    g_assert_false(machine_add_memory(m, a, &error));
    g_assert_cmpstr(error->message, ==, "memory backend 'a' is in use already");
    uint8_t buf[4] = { 1, 2, 3, 4 };
    g_assert_true(machine_memory_write(m, MIB - 2, buf, 4, NULL));
    g_assert_cmpuint(a->block.host[MIB - 1], ==, 2);
    g_assert_cmpuint(b->block.host[0], ==, 3);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, func) \
    g_test_add("/system/backend/" name, Fixture, NULL, fixture_setup, func, fixture_teardown)
    ADD("text-errors", test_text_errors);
    ADD("property-errors", test_property_errors);
    ADD("object-add-errors", test_object_add_errors);
    ADD("text-forms", test_text_forms);
    ADD("host-nodes", test_host_nodes);
    ADD("ram", test_ram);
    ADD("ram-shared", test_ram_shared);
    ADD("memfd", test_memfd);
    ADD("hugetlb", test_hugetlb);
    ADD("file", test_file);
    ADD("file-in-directory", test_file_in_directory);
    ADD("file-readonly", test_file_readonly);
    ADD("discard-data", test_discard_data);
    ADD("prealloc", test_prealloc);
#ifdef CONFIG_FAULT_INJECTION
    ADD("faults-undo", test_faults_undo);
#endif
    ADD("delete", test_delete);
    ADD("help", test_help);
    ADD("machine-memory", test_machine_memory);
    ADD("machine-memory-path", test_machine_memory_path);
    ADD("machine-memory-errors", test_machine_memory_errors);
    ADD("several-blocks", test_several_blocks);
    return g_test_run();
}
