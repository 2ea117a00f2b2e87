/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/launch.h"

#include "runtime/base/clock.h"
#include "tools/ending.h"
#include "tools/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* LAUNCHER -n RANKS pare --ending FILE WORD... */
static pare_status words_of(pare_arena *arena, const pare_zoo_node *node, const char *ending,
                            const char ***out)
{
    char program[4096], *rest = NULL;
    int count;
    pare_zoo_argv w = {.arena = arena};
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return PARE_FAIL(arena->ctx, IO, "/proc/self/exe: %s", strerror(errno));
    program[n] = 0;
    char *launcher = pare_arena_strdup(arena, node->launcher);
    if (!launcher) return PARE_MEMORY;
    for (char *word = strtok_r(launcher, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
        pare_zoo_argv_add(&w, word, NULL);
    pare_zoo_argv_add(&w, "-n", pare_arena_printf(arena, "%d", node->ranks));
    pare_zoo_argv_add(&w, pare_arena_strdup(arena, program), NULL);
    pare_zoo_argv_add(&w, PARE_ENDING, ending);
    for (int i = 0; i < node->word_count; i++) pare_zoo_argv_add(&w, node->words[i], NULL);
    return pare_zoo_argv_end(&w, out, &count);
}

/* The last line of the log that is a message of pare, without its beginning: what a library leaves
   no memory for is printed, and nothing else is left. */
static void find_message(const char *log, char *text, size_t size)
{
    static const char begins[] = "pare: ";
    char *line = NULL;
    size_t room = 0;
    FILE *file = log ? fopen(log, "r") : NULL;
    *text = 0;
    while (file && getline(&line, &room, file) > 0) {
        if (strncmp(line, begins, sizeof begins - 1) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(text, size, "%s", line + sizeof begins - 1);
    }
    free(line);
    if (file) fclose(file);
}

/* Its exit status as the shell has it. */
static int wait_for(const pare_ctx *ctx, pid_t pid)
{
    int status = 0;
    bool asked = false;
    for (pid_t ended = 0; !ended; pare_sleep_ms(20)) {
        ended = waitpid(pid, &status, WNOHANG);
        if (ended < 0 && errno == EINTR) ended = 0;
        if (ended || asked || !ctx->interrupted || !*ctx->interrupted) continue;
        asked = true;
        kill(pid, SIGTERM);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Ends this process as a rank ended, which no exit status of 1 to 3 is: there is no result. A
   number above 128 is a signal's, as the shell has it; launchers have others above it for their own
   errors.
 */
static void die_as(int code)
{
    static const int signals[] = {SIGABRT, SIGBUS, SIGFPE,  SIGILL, SIGKILL,
                                  SIGSEGV, SIGSYS, SIGTRAP, SIGXCPU};
    fflush(NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (code == 128 + signals[i]) kill(getpid(), signals[i]);
}

/* What ranks share is short of what was asked where a training was interrupted, and only there. */
static pare_status judge(pare_ctx *ctx, const pare_zoo_node *node, const char *ending, int code)
{
    char message[1800];
    PARE_TRY(pare_ctx_poll(ctx));
    const pare_status st = pare_ending_find(ctx, ending);
    if (st != PARE_OK) return st == PARE_MISSED ? PARE_INTERRUPTED : st;
    if (!code) return PARE_OK;
    if (code == 127)
        return PARE_FAIL(ctx, IO, "%s: cannot be started, for %d ranks", node->launcher,
                         node->ranks);
    die_as(code);
    find_message(node->log, message, sizeof message);
    if (*message) return pare_fail(ctx, PARE_IO, "%s", message);
    return PARE_FAIL(ctx, IO, "%s ended with exit status %d and no message", node->launcher, code);
}

static pare_status launch(pare_ctx *ctx, const pare_zoo_node *node, const char *const *words,
                          const char *ending)
{
    if (unlink(ending) && errno != ENOENT)
        return PARE_FAIL(ctx, IO, "%s: cannot be removed: %s", ending, strerror(errno));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        pare_ranks_environment();
        execvp(words[0], (char *const *)words);
        _exit(127);
    }
    if (pid < 0) return PARE_FAIL(ctx, IO, "no process can be started: %s", strerror(errno));
    return judge(ctx, node, ending, wait_for(ctx, pid));
}

pare_status pare_zoo_launch(pare_ctx *ctx, const pare_zoo_node *node)
{
    pare_arena arena;
    const char **words;
    pare_arena_init(&arena, ctx);
    const char *ending = pare_arena_printf(&arena, "%s/ending.txt", node->folder);
    pare_status st = ending ? words_of(&arena, node, ending, &words) : PARE_MEMORY;
    if (st == PARE_OK) st = launch(ctx, node, words, ending);
    pare_arena_free(&arena);
    return st;
}
