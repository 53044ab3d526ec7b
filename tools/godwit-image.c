/* SPDX-License-Identifier: BSD-2-Clause */
/* godwit-image: looks into files in which guests were saved, by godwit or by QEMU. */
#include "image-tool.h"

#include "config.h"
#include "util/size-text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Command {
    const char *name, *arguments, *help;
    int files;
    unsigned options; /* bits of OptionBit that it takes besides the common ones */
    int (*run)(const ImageRequest *r);
} Command;

enum OptionBit {
    TAKES_QUICK = 1,
    TAKES_EXTRACT = 2,
    TAKES_SECOND = 4,
    TAKES_ALL = 7,
};

static const Command commands[] = {
    { "info", "FILE", "shows blocks, their sizes and pages, and device sections", 1, 0, command_info },
    { "check", "FILE", "checks everything that a restore relies on, and accounts for all pages", 1,
      TAKES_QUICK, command_check },
    { "extract", "--block BLOCK -o RAW FILE", "writes the memory of a block to a sparse raw file", 1,
      TAKES_EXTRACT, command_extract },
    { "diff", "FILE FILE", "shows the pages that differ", 2, TAKES_SECOND, command_diff },
};

static bool take_offset(const char *value, uint64_t *out)
{
    return size_text_parse(value, 1, out) == NUMBER_TEXT_OK && *out <= INT64_MAX;
}

static bool set_offset(ImageRequest *r, const char *value)
{
    return take_offset(value, &r->offset);
}

static bool set_other_offset(ImageRequest *r, const char *value)
{
    return take_offset(value, &r->other_offset);
}

static bool set_block(ImageRequest *r, const char *value)
{
    r->block = value;
    return *value != '\0';
}

static bool set_output(ImageRequest *r, const char *value)
{
    r->output = value;
    return *value != '\0';
}

static bool set_json(ImageRequest *r, const char *value)
{
    r->json = true;
    return true;
}

static bool set_quick(ImageRequest *r, const char *value)
{
    r->quick = true;
    return true;
}

static const struct {
    const char *name, *argument;
    unsigned needs; /* of Command.options; 0: any command */
    bool (*set)(ImageRequest *r, const char *value);
    const char *help, *expects;
} options[] = {
    { "--json", NULL, 0, set_json, "print one JSON object instead of text", NULL },
    { "--offset", "N", 0, set_offset,
      "the stream begins at byte N of the file, as with file:FILE,offset=N; a suffix k, M, G, T is taken",
      "a number of bytes between 0 and 2^63-1, or one with a suffix k, M, G or T" },
    { "--offset2", "N", TAKES_SECOND, set_other_offset,
      "diff: where the stream begins in the second file, if that is elsewhere",
      "a number of bytes between 0 and 2^63-1, or one with a suffix k, M, G or T" },
    { "--quick", NULL, TAKES_QUICK, set_quick, "check: leave the content of pages unread", NULL },
    { "--block", "BLOCK", TAKES_EXTRACT, set_block, "extract: the name of the block, as info shows it",
      "a name" },
    { "-o", "RAW", TAKES_EXTRACT, set_output, "extract: the file to write", "a file name" },
};

static int usage(void)
{
    fprintf(stderr, "godwit-image: try 'godwit-image --help'\n");
    return EXIT_TROUBLE;
}

static int print_help(void)
{
    printf("usage: godwit-image COMMAND [OPTION...] FILE...\n"
           "Looks into files in which godwit or QEMU saved a guest: mapped-ram and plain streams.\n\n");
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        g_autofree char *words = g_strdup_printf("%s %s", commands[i].name, commands[i].arguments);
        printf("  %-34s %s\n", words, commands[i].help);
    }
    printf("\n");
    for (size_t i = 0; i < G_N_ELEMENTS(options); i++) {
        g_autofree char *words = g_strdup_printf("%s%s%s", options[i].name, options[i].argument ? " " : "",
                                                 options[i].argument ? options[i].argument : "");
        printf("  %-34s %s\n", words, options[i].help);
    }
    printf(
        "  %-34s %s\n  %-34s %s\n\n"
        "Exit status: 0 the file is good, or the files hold the same memory; 1 it is bad or incomplete, or\n"
        "they do not; 2 there is no saying.\n",
        "--help", "this text", "--version", "the version");
    return EXIT_OK;
}

/* For scripts/make-man.py. */
static int print_man(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        printf(".TP\n.B %s\n%s.\n", commands[i].name, commands[i].help);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(options); i++) {
        g_auto(GStrv) parts = g_strsplit(options[i].name, "-", -1);
        g_autofree char *name = g_strjoinv("\\-", parts);
        printf(".TP\n.BI %s%s%s\n%s.\n", name, options[i].argument ? " \" \" " : "",
               options[i].argument ? options[i].argument : "", options[i].help);
    }
    return EXIT_OK;
}

static int print_version(void)
{
    printf("godwit-image %s\n", GODWIT_VERSION);
    return EXIT_OK;
}

static const struct {
    const char *name;
    int (*run)(void);
} answers[] = {
    { "--help", print_help },
    { "-h", print_help },
    { "--help-man", print_man },
    { "--version", print_version },
};

static const Command *find_command(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

/* The option that @word is, with its value behind '=' if there is one; -1: none. */
static int find_option(const Command *c, const char *word, const char **value)
{
    for (size_t i = 0; i < G_N_ELEMENTS(options); i++) {
        size_t len = strlen(options[i].name);
        bool allowed = !options[i].needs || options[i].needs & c->options;
        if (!allowed || strncmp(word, options[i].name, len) != 0) {
            continue;
        }
        if (!word[len] || (word[len] == '=' && options[i].argument && len > 2)) {
            *value = word[len] ? word + len + 1 : NULL;
            return (int)i;
        }
    }
    return -1;
}

/* Takes the option @words[*at]; false with a message. */
static bool take_option(const Command *c, char **words, int *at, ImageRequest *r)
{
    const char *value = NULL;
    int i = find_option(c, words[*at], &value);

    if (i < 0) {
        fprintf(stderr, "godwit-image: %s: unknown option of %s\n", words[*at], c->name);
        return false;
    }
    if (options[i].argument && !value) {
        value = words[*at + 1];
        if (!value) {
            fprintf(stderr, "godwit-image: %s requires an argument\n", options[i].name);
            return false;
        }
        ++*at;
    }
    if (!options[i].set(r, value)) {
        fprintf(stderr, "godwit-image: %s: '%s' is not %s\n", options[i].name, value, options[i].expects);
        return false;
    }
    return true;
}

static bool parse(const Command *c, char **words, ImageRequest *r)
{
    const char *files[2] = { NULL, NULL };
    int count = 0;
    bool second_offset = false, only_files = false;

    for (int i = 0; words[i]; i++) {
        if (!only_files && strcmp(words[i], "--") == 0) {
            only_files = true;
        } else if (!only_files && words[i][0] == '-' && words[i][1]) {
            second_offset |= g_str_has_prefix(words[i], "--offset2");
            if (!take_option(c, words, &i, r)) {
                return false;
            }
        } else if (count < c->files) {
            files[count++] = words[i];
        } else {
            count++;
        }
    }
    if (count != c->files) {
        fprintf(stderr, "godwit-image: %s takes %d file%s, not %d\n", c->name, c->files,
                c->files == 1 ? "" : "s", count);
        return false;
    }
    if (c->options & TAKES_EXTRACT && (!r->block || !r->output)) {
        fprintf(stderr, "godwit-image: extract requires --block and -o\n");
        return false;
    }
    r->file = files[0];
    r->other_file = files[1];
    r->other_offset = second_offset ? r->other_offset : r->offset;
    return true;
}

int main(int argc, char **argv)
{
    ImageRequest r = { 0 };

    for (size_t i = 0; argc > 1 && i < G_N_ELEMENTS(answers); i++) {
        for (int word = 1; word < argc && strcmp(argv[word], "--") != 0; word++) {
            if (strcmp(argv[word], answers[i].name) == 0) {
                return answers[i].run();
            }
        }
    }
    const Command *c = argc > 1 ? find_command(argv[1]) : NULL;
    if (!c) {
        fprintf(stderr, "godwit-image: %s%s\n", argc > 1 ? "no such command: " : "a command is missing",
                argc > 1 ? argv[1] : "");
        return usage();
    }
    if (!parse(c, argv + 2, &r)) {
        return usage();
    }
    int status = c->run(&r);
    return fflush(stdout) == 0 && !ferror(stdout) ? status : EXIT_TROUBLE;
}
