/* SPDX-License-Identifier: Apache-2.0 */
/* pare replay */
#include "runtime/base/version.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/recipe.h"
#include "tools/text.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct replay_options {
    pare_common common;
    const char *to;
} replay_options;

#define OPTIONS replay_options
static const pare_option table[] = {
    PARE_OPT_FOLDER("to", "DIR", to,
                    "write what the command writes into this folder (where it was written)"),
    {0},
};

/* The words, and those of this command that every command has. */
static char **words_of(pare_tool *tool, const pare_recipe *recipe, int *count)
{
    const pare_common *c = tool->common;
    char **words = pare_arena_alloc(&tool->arena, (size_t)recipe->words.count + 5, sizeof *words);
    if (!words) return NULL;
    int n = 0, at = 0;
    while (at < recipe->words.count && strcmp(recipe->words.item[at], "--") != 0)
        words[n++] = pare_arena_strdup(&tool->arena, recipe->words.item[at++]);
    if (c->quiet) words[n++] = pare_arena_strdup(&tool->arena, "--quiet");
    if (c->verbose) words[n++] = pare_arena_strdup(&tool->arena, "--verbose");
    if (c->device) words[n++] = pare_arena_printf(&tool->arena, "--device=%s", c->device);
    if (c->threads)
        words[n++] = pare_arena_printf(&tool->arena, "--threads=%lld", (long long)c->threads);
    while (at < recipe->words.count)
        words[n++] = pare_arena_strdup(&tool->arena, recipe->words.item[at++]);
    for (int i = 0; i < n; i++)
        if (!words[i]) return NULL;
    *count = n;
    return words;
}

static pare_status compare(pare_tool *tool, const pare_recipe *recipe)
{
    const bool other = recipe->version && strcmp(recipe->version, PARE_VERSION) != 0;
    json_t *files = json_array();
    pare_status st = PARE_OK;
    int apart = 0;
    json_object_set_new(tool->facts, "files", files);
    for (int i = 0; i < recipe->file.count && st == PARE_OK; i++) {
        char hash[33];
        st = pare_recipe_hash(tool->ctx, recipe->file.item[i], hash);
        if (st != PARE_OK) break;
        const bool same = !strcmp(hash, recipe->hash.item[i]);
        apart += !same;
        pare_print(stdout, "%s: %s\n", recipe->file.item[i], same ? "the same" : "another file");
        json_array_append_new(files, json_pack("{s:s, s:s, s:b}", "file", recipe->file.item[i],
                                               "hash", hash, "same", same));
    }
    PARE_TRY(st);
    if (!apart) return PARE_OK;
    return PARE_FAIL(tool->ctx, INPUT, "%s: %d of %d files are not what the recipe says; %s%s%s",
                     tool->arg[0], apart, recipe->file.count,
                     other ? "it was written by pare " : "expected the same model, data and tables",
                     other ? recipe->version : "", other ? ", and this is " PARE_VERSION : "");
}

/* With --gpus the command becomes mpirun, and a process of its own; what it prints is the message.
 */
static pare_status run_words(pare_ctx *ctx, char *const *words, int count)
{
    bool gpus = false;
    int status = 0;
    for (int i = 0; i < count; i++) gpus |= !strncmp(words[i], "--gpus", strlen("--gpus"));
    if (!gpus) return pare_run_argv(ctx, words, count);
    const pid_t child = fork();
    if (child < 0) return PARE_FAIL(ctx, IO, "no process can be started: %s", strerror(errno));
    if (!child) {
        const pare_status st = pare_run_argv(ctx, words, count);
        if (st != PARE_OK) pare_print_line("pare: ", ctx->message);
        fflush(NULL);
        _exit(pare_status_exit_code(st));
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        if (ctx->interrupted && *ctx->interrupted) kill(child, SIGTERM);
    if (WIFEXITED(status) && !WEXITSTATUS(status)) return PARE_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == pare_status_exit_code(PARE_MISSED))
        return PARE_MISSED;
    return PARE_FAIL(ctx, INPUT, "the command of several processes failed");
}

static pare_status run(pare_tool *tool, const void *options)
{
    const replay_options *o = options;
    pare_ctx *ctx = tool->ctx;
    pare_recipe recipe;
    int count = 0;
    if (o->to && mkdir(o->to, 0777) && errno != EEXIST)
        return PARE_FAIL(ctx, IO, "%s: the folder cannot be made: %s", o->to, strerror(errno));
    PARE_TRY(pare_recipe_read(&tool->arena, &recipe, tool->arg[0], o->to));
    char **words = words_of(tool, &recipe, &count);
    if (!words) return PARE_MEMORY;
    const pare_log_fn log = ctx->log;
    void *user = ctx->log_user;
    const pare_status st = run_words(ctx, words, count);
    ctx->log = log;
    ctx->log_user = user;
    if (st == PARE_USAGE) return pare_fail_prefix(ctx, PARE_INPUT, "%s", tool->arg[0]);
    if (st != PARE_OK && st != PARE_MISSED) return st;
    PARE_TRY(compare(tool, &recipe));
    return st;
}

const pare_command pare_command_replay = {
    .name = "replay",
    .arguments = "RECIPE.yaml",
    .min = 1,
    .max = 1,
    .summary = "run a command again as its recipe says, and compare what it writes",
    .detail =
        "A recipe is what a command wrote with --recipe; the facts of --json hold one, too. Files\n"
        "are seen from the current folder. Exit status 1 where another model comes out.",
    .example = "pare quantize net.onnx -o net.int8.onnx --data train.h5 --recipe net.yaml\n"
               "  pare replay net.yaml --to again/",
    .options = table,
    .size = sizeof(replay_options),
    .run = run,
};
