/* SPDX-License-Identifier: Apache-2.0 */
/* A step: the words of a command line, read with the command's own table, so that what the command
   would refuse is refused before any work. */
#include "prune/plan.h"
#include "tools/commands.h"
#include "tools/zoo/reader.h"
#include "tools/zoo/plan.h"

#include <string.h>

static pare_status fail(const pare_zoo_reader *r, const pare_zoo_step *step, pare_status st)
{
    if (st == PARE_OK || st == PARE_MEMORY) return st;
    return pare_fail_prefix(r->arena->ctx, PARE_INPUT, "%s:%d: step '%.200s'", r->path, step->line,
                            step->text);
}

/* Takes one word from *at into `to`, quotes and backslashes as a shell has them; 1, 0 at the end
   of the text, -1 for a quote that does not end. */
static int take_word(const char **at, char *to)
{
    const char *p = *at + strspn(*at, " \t\r\n");
    char quote = 0;
    if (!*p) return 0;
    for (; *p && (quote || !strchr(" \t\r\n", *p)); p++) {
        if (quote && *p == quote)
            quote = 0;
        else if (!quote && (*p == '\'' || *p == '"'))
            quote = *p;
        else if (*p == '\\' && quote != '\'' && p[1] && (!quote || strchr("\"\\$`", p[1])))
            *to++ = *++p;
        else
            *to++ = *p;
    }
    *to = 0;
    *at = p;
    return quote ? -1 : 1;
}

static pare_status split(const pare_zoo_reader *r, const char *text, char ***out, int *count)
{
    const char *at = text;
    size_t most = strlen(text) / 2 + 2;
    char **words = pare_arena_alloc(r->arena, most, sizeof *words);
    char *buffer = pare_arena_alloc(r->arena, strlen(text) + 1, 1);
    *out = words;
    *count = 0;
    if (!words || !buffer) return PARE_MEMORY;
    for (int got; (got = take_word(&at, buffer));) {
        if (got < 0) return PARE_FAIL(r->arena->ctx, INPUT, "a quote does not end");
        words[*count] = pare_arena_strdup(r->arena, buffer);
        if (!words[(*count)++]) return PARE_MEMORY;
    }
    return PARE_OK;
}

static pare_status find_command(const pare_zoo_reader *r, const char *word,
                                const pare_command **out)
{
    static const pare_command *const commands[] = {&pare_command_prune, &pare_command_distill,
                                                   &pare_command_quantize};
    const char *names[3], *near;
    for (int i = 0; i < 3; i++) {
        names[i] = commands[i]->name;
        *out = commands[i];
        if (!strcmp(word, names[i])) return PARE_OK;
    }
    near = pare_nearest(word, names, 3);
    return PARE_FAIL(r->arena->ctx, INPUT,
                     "'%.100s' is no step%s%s%s; expected prune, distill or quantize", word,
                     near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
}

/* What the zoo says itself, and what would make no one model of the step. */
static bool is_reserved(const char *name)
{
    static const char *const reserved[] = {
        "output",  "json",         "quiet",   "verbose", "help",          "device",
        "threads", "memory-limit", "teacher", "student", "checkpoint",    "resume",
        "report",  "sweep",        "trace",   "log",     "external-data", "advise",
        "cache",   "tensorboard",  "gpus"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (!strcmp(name, reserved[i])) return true;
    return false;
}

static bool has(const pare_zoo_step *step, const char *name)
{
    for (int i = 0; i < step->option_count; i++)
        if (!strcmp(step->options[i].row->name, name)) return true;
    return false;
}

/* Is the last value given for an option this one? */
static bool says(const pare_zoo_step *step, const char *name, const char *value)
{
    bool same = false;
    for (int i = 0; i < step->option_count; i++)
        if (!strcmp(step->options[i].row->name, name))
            same = !strcmp(step->options[i].value, value);
    return same;
}

static bool is_weight_only(const pare_zoo_step *step)
{
    return says(step, "precision", "w4a16") || says(step, "precision", "w8a16");
}

bool pare_zoo_step_needs_data(const pare_zoo_step *step)
{
    static const char *const of_data[] = {"samples", "range", "batch", "shuffle", "map"};
    if (!step->takes_data) return false;
    if (step->trains) return true;
    for (size_t i = 0; i < sizeof of_data / sizeof *of_data; i++)
        if (has(step, of_data[i])) return true;
    if (step->command == &pare_command_quantize)
        return !says(step, "precision", "fp16") && !is_weight_only(step);
    for (int i = PARE_SCORE_BEST + 1; i < PARE_SCORE_COUNT; i++)
        if (pare_scores[i].needs != PARE_SCORE_NEEDS_WEIGHTS &&
            says(step, "score", pare_scores[i].name))
            return true;
    return false;
}

/* Which of the words are options and their values: pare_options_parse took them, so every option
   has what it needs. */
static pare_status keep_options(const pare_zoo_reader *r, pare_zoo_step *step, char **words,
                                int count)
{
    pare_zoo_option *options = pare_arena_alloc(r->arena, (size_t)count + 1, sizeof *options);
    if (!options) return PARE_MEMORY;
    step->options = options;
    for (int i = 0; i < count; i++) {
        pare_zoo_option *o = &options[step->option_count];
        if (!strcmp(words[i], "--")) continue;
        o->row = pare_option_find(step->command, words[i], &o->value);
        if (o->row->kind != PARE_OPTION_FLAG && !o->value) o->value = words[++i];
        step->option_count++;
        if (is_reserved(o->row->name))
            return PARE_FAIL(r->arena->ctx, INPUT,
                             "--%s is not for a step: the zoo sets it, or has no use for it",
                             o->row->name);
        if (o->row->kind != PARE_OPTION_FILE) continue;
        const char *named = o->value;
        o->value = pare_zoo_path(r, named);
        if (!o->value) return PARE_MEMORY;
        PARE_TRY(pare_zoo_need_file(r, step->line, o->row->name, o->value));
    }
    return PARE_OK;
}

/* The whole command line, with names in place of what the zoo gives, for the command's own check:
   options that exclude each other, or miss another. */
static pare_status check_whole(const pare_zoo_reader *r, const pare_zoo_step *step, char **words,
                               int count)
{
    pare_zoo_argv w = {.arena = r->arena};
    pare_tool tool = {.ctx = r->arena->ctx, .command = step->command};
    const char **all;
    pare_list arguments;
    int n;
    if (!step->command->check) return PARE_OK;
    if (step->command == &pare_command_distill) {
        pare_zoo_argv_add(&w, "--teacher", "model.onnx");
        pare_zoo_argv_add(&w, "--student", "model.onnx");
    } else {
        pare_zoo_argv_add(&w, "model.onnx", NULL);
    }
    pare_zoo_argv_add(&w, "--output", "/model.onnx");
    if (step->takes_data) pare_zoo_argv_add(&w, "--data", "data.h5");
    for (int i = 0; i < count; i++) pare_zoo_argv_add(&w, words[i], NULL);
    PARE_TRY(pare_zoo_argv_end(&w, &all, &n));
    void *options = pare_arena_alloc(r->arena, 1, step->command->size);
    if (!options) return PARE_MEMORY;
    PARE_TRY(
        pare_options_parse(r->arena, step->command, options, &arguments, (char *const *)all, n));
    tool.common = options;
    tool.arg = arguments.item;
    tool.arg_count = arguments.count;
    pare_arena_init(&tool.arena, r->arena->ctx);
    pare_status st = step->command->check(&tool, options);
    pare_arena_free(&tool.arena);
    return st;
}

pare_status pare_zoo_read_step(const pare_zoo_reader *r, pare_zoo_step *step, const char *text,
                               int line)
{
    char **words;
    int count;
    pare_list arguments;
    *step = (pare_zoo_step){.text = text, .line = line};
    PARE_TRY(fail(r, step, split(r, text, &words, &count)));
    if (!count) return fail(r, step, PARE_FAIL(r->arena->ctx, INPUT, "has no command"));
    PARE_TRY(fail(r, step, find_command(r, words[0], &step->command)));
    pare_command bare = *step->command; /* the model is the zoo's */
    bare.min = bare.max = 0;
    void *options = pare_arena_alloc(r->arena, 1, bare.size);
    if (!options) return PARE_MEMORY;
    PARE_TRY(fail(r, step,
                  pare_options_parse(r->arena, &bare, options, &arguments, words + 1, count - 1)));
    PARE_TRY(fail(r, step, keep_options(r, step, words + 1, count - 1)));
    const bool runs_nothing = step->command == &pare_command_quantize &&
                              (says(step, "precision", "bf16") ||
                               (is_weight_only(step) && says(step, "rounding", "nearest") &&
                                has(step, "no-equalization")));
    step->takes_data = !has(step, "data") && !has(step, "ranges") && !runs_nothing;
    step->times = has(step, "latency");
    step->trains = step->command == &pare_command_distill || has(step, "distill");
    step->shares = step->command->ranks && !step->times;
    return fail(r, step, check_whole(r, step, words + 1, count - 1));
}
