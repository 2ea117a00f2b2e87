/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/launch.h"

#include "runtime/base/clock.h"
#include "tools/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* LAUNCHER -n RANKS pare WORD... */
static pare_status words_of(pare_arena *arena, const pare_zoo_node *node, const char ***out)
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
    for (int i = 0; i < node->word_count; i++) pare_zoo_argv_add(&w, node->words[i], NULL);
    return pare_zoo_argv_end(&w, out, &count);
}

/* The last line of the log that is a message of pare, without its beginning. */
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

static pare_status judge(pare_ctx *ctx, const pare_zoo_node *node, int code)
{
    char message[1800];
    if (!code) return PARE_OK;
    PARE_TRY(pare_ctx_poll(ctx));
    if (code == 127)
        return PARE_FAIL(ctx, UNSUPPORTED, "%s: cannot be started, for %d ranks", node->launcher,
                         node->ranks);
    find_message(node->log, message, sizeof message);
    if (*message) return pare_fail(ctx, PARE_IO, "%s", message);
    return PARE_FAIL(ctx, IO, "%s ended with exit status %d and no message", node->launcher, code);
}

pare_status pare_zoo_launch(pare_ctx *ctx, const pare_zoo_node *node)
{
    pare_arena arena;
    const char **words;
    pare_arena_init(&arena, ctx);
    pare_status st = words_of(&arena, node, &words);
    if (st == PARE_OK) {
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            pare_ranks_environment();
            execvp(words[0], (char *const *)words);
            _exit(127);
        }
        st = pid < 0 ? PARE_FAIL(ctx, IO, "no process can be started: %s", strerror(errno))
                     : judge(ctx, node, wait_for(ctx, pid));
    }
    pare_arena_free(&arena);
    return st;
}
