/* SPDX-License-Identifier: Apache-2.0 */
/* The program. Exit status: 0 done, 1 failed, 2 bad usage, 3 short of what was asked. Data go to
   standard output, words to standard error. */
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/memory_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Started with closed standard descriptors, a program would get their numbers for the files it
   opens, and print into them. Opened for reading, they still fail who prints. */
static void hold_descriptors(void)
{
    for (int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); fd >= 0; fd = dup(fd))
        if (fd > 2) {
            close(fd);
            return;
        }
}

/* Help was printed: did it arrive? */
static int shown(int status)
{
    if (!fflush(stdout) && !ferror(stdout)) return status;
    pare_print_line("pare: standard output: ", strerror(errno));
    return 1;
}

/* "pare help serve" is "pare serve --help". */
static void help_is_an_option(char **argv, int argc)
{
    static char option[] = "--help";
    for (int i = 1; i + 1 < argc; i++) argv[i] = argv[i + 1];
    argv[argc - 1] = option;
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    hold_descriptors();
    pare_memory_guard_install();
    pare_ctx_init(&ctx);
    ctx.interrupted = pare_catch_signals();
    if (argc == 3 && !strcmp(argv[1], "help") && !strcmp(argv[2], "--markdown")) {
        pare_help_markdown(stdout);
        return shown(0);
    }
    if (argc > 2 && !strcmp(argv[1], "help")) help_is_an_option(argv, argc);
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
        !strcmp(argv[1], "help")) {
        pare_help_overview(argc < 2 ? stderr : stdout);
        return shown(argc < 2 ? 2 : 0);
    }
    if (!strcmp(argv[1], "--version")) argv[1] = "version";
    bool asked = argc == 3 && (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h"));
    if ((argc == 2 || asked) && pare_help_group(asked ? stdout : stderr, argv[1]))
        return shown(asked ? 0 : 2);
    pare_status st = pare_run_argv(&ctx, argv + 1, argc - 1);
    if (st != PARE_OK && pare_comm_launched_size() < 2) /* of several it is said already */
        pare_print_line("pare: ", ctx.message[0] ? ctx.message : pare_status_text(st));
    return pare_status_exit_code(st);
}
