/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a fuzz target without libFuzzer: on the files of a corpus, and on mutations, the same every time. */
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of just the right size, so that a sanitizer sees each byte that is read past the end. */
static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void mutate_one(GRand *rand, const GByteArray *input)
{
    static const uint8_t interesting[] = { 0x00, 0xff, 0x7f, 0x80, '\n', ' ', '0', '-' };
    g_autoptr(GByteArray) data = g_byte_array_new();

    g_byte_array_append(data, input->data, input->len);
    for (int n = g_rand_int_range(rand, 1, 5); n && data->len; n--) {
        guint at = g_rand_int_range(rand, 0, data->len);
        guint some = g_rand_int_range(rand, 1, 17);
        guint count = MIN(data->len - at, some);
        switch (g_rand_int_range(rand, 0, 5)) {
        case 0:
            data->data[at] ^= 1 << g_rand_int_range(rand, 0, 8);
            break;
        case 1:
            memset(data->data + at, interesting[g_rand_int_range(rand, 0, G_N_ELEMENTS(interesting))], count);
            break;
        case 2:
            g_byte_array_remove_range(data, at, count);
            break;
        case 3:
            g_byte_array_set_size(data, at);
            break;
        case 4: {
            g_autofree uint8_t *piece = g_memdup2(data->data + at, count);
            g_byte_array_append(data, piece, count);
            break;
        }
        }
    }
    run_one(data->data, data->len);
}

static bool replay_file(const char *path, unsigned mutations)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GByteArray) input = g_byte_array_new();
    g_autoptr(GRand) rand = g_rand_new_with_seed(1);
    g_autofree char *contents = NULL;
    gsize len;

    if (!g_file_get_contents(path, &contents, &len, &error)) {
        fprintf(stderr, "%s\n", error->message);
        return false;
    }
    g_byte_array_append(input, (const guint8 *)contents, len);
    run_one(input->data, input->len);
    for (unsigned i = 0; i < mutations; i++) {
        mutate_one(rand, input);
    }
    return true;
}

/* The number of files replayed, or -1. */
static int replay(const char *path, unsigned mutations)
{
    const char *name;
    int files = 0;

    if (!g_file_test(path, G_FILE_TEST_IS_DIR)) {
        return replay_file(path, mutations) ? 1 : -1;
    }
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    while (dir && (name = g_dir_read_name(dir))) {
        g_autofree char *file = g_build_filename(path, name, NULL);
        if (!replay_file(file, mutations)) {
            return -1;
        }
        files++;
    }
    return files;
}

int main(int argc, char **argv)
{
    unsigned mutations = 0;
    int files = 0;

    g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL | G_LOG_FATAL_MASK);
    for (int i = 1; i < argc; i++) {
        if (g_str_has_prefix(argv[i], "--mutate=")) {
            mutations = strtoul(argv[i] + strlen("--mutate="), NULL, 10);
            continue;
        }
        int n = replay(argv[i], mutations);
        if (n < 0) {
            return 1;
        }
        files += n;
    }
    printf("%d files, each with %u mutations\n", files, mutations);
    if (!files) {
        fprintf(stderr, "no input found\n");
        return 1;
    }
    return 0;
}
