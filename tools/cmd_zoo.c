/* SPDX-License-Identifier: Apache-2.0 */
/* pare zoo */
#include "formats/json.h"
#include "runtime/exec/exec.h"
#include "tools/check_output.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/results.h"
#include "tools/zoo/tables.h"
#include "tools/zoo/work.h"
#include "tools/zoo/forecast.h"
#include "tools/zoo/run.h"
#include "tools/zoo/slurm.h"

#include <string.h>
#include <unistd.h>

typedef struct zoo_options {
    pare_common common;
    const char *output, *cache, *append;
    int64_t jobs, task, memory_limit;
    double time_limit;
    bool resume, dry_run, merge, diff, slurm;
    pare_list sbatch;
    const char *keys;
} zoo_options;

#define OPTIONS zoo_options
static const pare_option table[] = {
    PARE_OPT_SHORT('o', FOLDER, "output", "DIR", output,
                   "folder for models, facts, tables and report"),
    PARE_OPT_ROW(
        'j', INT, "jobs", "N", jobs, 1, 1024,
        "steps at once, each in a process of its own, each on --threads (a quarter of the cores)"),
    PARE_OPT_FLAG("resume", resume,
                  "continue with the work in the folder: what is done is not done again, what "
                  "failed is tried again, but for bad models and unsupported operators"),
    PARE_OPT_FLAG("dry-run", dry_run,
                  "do nothing but forecast time and memory, from short runs of each step"),
    PARE_OPT_REAL("time-limit", "S", time_limit, 1e-3, 1e9,
                  "seconds that each step may take, in place of the file's"),
    PARE_OPT_BYTES("memory-limit", "SIZE", memory_limit, 1e6, 1e15,
                   "resident memory that each step may have, in place of the file's: 4GB"),
    PARE_OPT_FOLDER(
        "cache", "DIR", cache,
        "timings and statistics that steps share; zoos may share it, too (DIR of -o/cache)"),
    PARE_OPT_OUTPUT("append", "results.csv", append,
                    "add a row for each model that a validation compares to a table that grows"),
    PARE_OPT_FLAG(
        "diff", diff,
        "compare two folders of results, regressions first; exit status 1 where there are any"),
    PARE_OPT_FLAG(
        "slurm", slurm,
        "submit the tasks as job arrays of Slurm, with a job after them that makes the tables; "
        "with --resume those that are not done. They share the folder, and nothing else"),
    PARE_OPT_LIST(
        "sbatch", "WORDS", sbatch,
        "--slurm: words for sbatch, beside those of the file's slurm: --sbatch=--gres=gpu"),
    PARE_OPT_INT("task", "K", task, 0, 1e9,
                 "internal, what a batch system's job runs: task K alone, no tables"),
    PARE_OPT_FLAG("merge", merge, "run nothing: make tables and report of what is done"),
    PARE_OPT_TEXT("keys", "ISA,DEVICE", keys,
                  "internal: what steps count as made on, the same for all of a batch's machines"),
    {0},
};

static const zoo_options defaults = {.task = -1};

/* All that one run of the command knows. */
typedef struct job {
    pare_tool *tool;
    const zoo_options *o;
    pare_zoo *zoo;
    pare_zoo_plan *plan;
    pare_zoo_records records;
    const char *machine; /* the device's name; NULL: the CPU */
    int jobs, lock;
    int64_t threads;
} job;

/* --- the plan --- */

static pare_status find_device(pare_ctx *ctx, void *user)
{
    pare_device *device = NULL;
    PARE_TRY(pare_device_open(ctx, &device, user));
    pare_ctx_clear(ctx);
    if (device) snprintf(ctx->message, sizeof ctx->message, "%s", device->name);
    return PARE_OK;
}

/* The name of the device that steps will compute on, asked for by a process of its own: this one
   must stay without CUDA. */
static pare_status name_device(job *j)
{
    pare_ctx *ctx = j->tool->ctx;
    const char *device = j->o->common.device ? j->o->common.device : "auto";
    pare_process_result result;
    if (!strcmp(device, "cpu")) return PARE_OK;
    const pare_process_job work = {.work = find_device, .user = (void *)device, .seconds = 300};
    PARE_TRY(pare_process_run(ctx, &work, &result));
    if (result.outcome != PARE_OUTCOME_DONE)
        return PARE_FAIL(ctx, DEVICE, "--device %s: %s", device, result.message);
    if (*result.message) j->machine = pare_arena_strdup(&j->tool->arena, result.message);
    return *result.message && !j->machine ? PARE_MEMORY : PARE_OK;
}

/* "ISA,DEVICE": what the one who submitted a batch has, whatever its machines are. */
static pare_status read_keys(job *j, const char **isa)
{
    pare_arena *arena = &j->tool->arena;
    const char *comma = strchr(j->o->keys, ',');
    if (!comma) return PARE_FAIL(arena->ctx, USAGE, "zoo: --keys: expected ISA,DEVICE");
    *isa = pare_arena_strndup(arena, j->o->keys, (size_t)(comma - j->o->keys));
    j->machine = strcmp(comma + 1, "cpu") ? comma + 1 : NULL;
    return *isa ? PARE_OK : PARE_MEMORY;
}

static pare_status make_plan(job *j)
{
    pare_arena *arena = &j->tool->arena;
    pare_zoo_plan_options options = {.out = j->o->output,
                                     .cache = j->o->cache,
                                     .append = j->o->append,
                                     .device = j->o->common.device,
                                     .threads = j->threads,
                                     .batch = j->o->task >= 0};
    if (!options.cache) options.cache = pare_arena_printf(arena, "%s/cache", j->o->output);
    if (!options.cache) return PARE_MEMORY;
    PARE_TRY(pare_zoo_read(arena, &j->zoo, j->tool->arg[0]));
    PARE_TRY(j->o->keys ? read_keys(j, &options.isa) : name_device(j));
    options.machine = j->machine;
    PARE_TRY(pare_zoo_plan_make(arena, &j->plan, j->zoo, &options));
    if (j->o->task >= j->plan->task_count)
        return PARE_FAIL(arena->ctx, USAGE, "zoo: --task %lld: %s has %d tasks",
                         (long long)j->o->task, j->zoo->file, j->plan->task_count);
    return pare_zoo_records_init(arena, &j->records, j->plan);
}

/* --- tables --- */

/* In a process of its own, so that what it reads does not stay in this one's memory. */
static pare_status make_tables(pare_ctx *ctx, void *user)
{
    job *j = user;
    j->tool->arena.ctx = j->records.ctx = ctx;
    PARE_TRY(pare_zoo_tasks_write(ctx, j->zoo, &j->records, j->o->output));
    return pare_zoo_merge(ctx, j->zoo, j->o->output, stdout);
}

/* Interrupted or not: tables of what there is. A second signal ends this process. */
static pare_status show(job *j)
{
    pare_ctx *ctx = j->tool->ctx;
    pare_process process;
    pare_process_result result;
    const pare_process_job work = {.work = make_tables, .user = j};
    PARE_TRY(pare_process_start(ctx, &process, &work));
    while (!pare_process_poll(&process, &result)) pare_process_wait(0.05);
    pare_process_sweep(&process, 1);
    if (result.outcome == PARE_OUTCOME_DONE) return PARE_OK;
    return PARE_FAIL(ctx, IO, "%s: the tables could not be made: %s: %s", j->o->output,
                     pare_outcome_text(result.outcome), result.message);
}

/* --- the work --- */

static pare_status run_nodes(job *j, pare_zoo_run_result *result)
{
    const pare_zoo_limits *limits = &j->zoo->limits;
    const pare_zoo_run_options options = {
        .folder = j->o->output,
        .jobs = j->jobs,
        .seconds = j->o->time_limit > 0 ? j->o->time_limit : limits->seconds,
        .bytes = j->o->memory_limit > 0 ? j->o->memory_limit : limits->memory_bytes,
        .quiet = j->o->common.quiet,
        .task = (int)j->o->task,
        .step = pare_run_argv};
    return pare_zoo_run(j->tool->ctx, result, &j->records, j->zoo, &options);
}

/* Of the one task that this process was about. */
static pare_status say_task(job *j)
{
    pare_outcome outcome;
    const pare_zoo_task *task = &j->plan->tasks[j->o->task];
    const int node = pare_zoo_task_end(&j->records, task, &outcome);
    const char *message = j->records.of[node].message;
    return PARE_FAIL(j->tool->ctx, INPUT, "%s %s: %s: %s: %s", j->zoo->models[task->model].name,
                     j->zoo->variants[task->variant].name, j->plan->nodes[node].verb,
                     pare_outcome_text(outcome), message ? message : "");
}

static pare_status say_end(job *j, const pare_zoo_run_result *r, pare_status st)
{
    pare_ctx *ctx = j->tool->ctx;
    const int all = r->done + r->failed + r->left;
    json_object_set_new(j->tool->facts, "zoo",
                        json_pack("{s:o, s:o, s:i, s:i, s:i}", "name", pare_json_text(j->zoo->name),
                                  "folder", pare_json_text(j->o->output), "tasks", all, "done",
                                  r->done, "steps_run", r->nodes));
    if (st == PARE_INTERRUPTED) {
        pare_ctx_clear(ctx);
        return PARE_FAIL(ctx, INTERRUPTED,
                         "interrupted: %d of %d tasks are done; the same command with --resume "
                         "continues",
                         r->done, all);
    }
    if (st != PARE_OK || r->done == all) return st;
    if (j->o->task >= 0) return say_task(j);
    return PARE_FAIL(
        ctx, INPUT, "%s: %d of %d tasks are not done; %s/report.md has why, and each one's command",
        j->zoo->file, all - r->done, all, j->o->output);
}

/* What journals tell, and files bear out. */
static pare_status look_only(job *j, pare_zoo_run_result *result)
{
    PARE_TRY(pare_zoo_records_read(&j->records, j->o->output));
    for (int i = 0; i < j->plan->node_count; i++) (void)pare_zoo_records_check(&j->records, i);
    for (int t = 0; t < j->plan->task_count; t++) {
        pare_outcome outcome;
        pare_zoo_task_end(&j->records, &j->plan->tasks[t], &outcome);
        if (outcome == PARE_OUTCOME_DONE)
            result->done++;
        else
            result->failed++;
    }
    return PARE_OK;
}

static pare_status work(job *j)
{
    pare_zoo_run_result result = {0};
    pare_status st = j->o->merge ? look_only(j, &result) : run_nodes(j, &result);
    if (j->o->task >= 0) return say_end(j, &result, st);
    if (st != PARE_OK && st != PARE_INTERRUPTED) return st;
    const pare_status shown = show(j);
    return st == PARE_OK && shown != PARE_OK ? shown : say_end(j, &result, st);
}

/* Nothing in the folder changes, nor need it be there. */
static pare_status foretell(job *j)
{
    pare_arena *arena = &j->tool->arena;
    bool *done = pare_arena_alloc(arena, (size_t)j->plan->node_count, sizeof *done);
    if (!done) return PARE_MEMORY;
    if (!access(j->o->output, F_OK)) PARE_TRY(pare_zoo_records_read(&j->records, j->o->output));
    for (int i = 0; i < j->plan->node_count; i++) done[i] = pare_zoo_records_check(&j->records, i);
    pare_zoo_forecast forecast;
    const int64_t bytes = j->zoo->limits.memory_bytes;
    const pare_zoo_forecast_options options = {.done = done,
                                               .jobs = j->jobs,
                                               .bytes = j->o->memory_limit > 0 ? j->o->memory_limit
                                                                               : bytes,
                                               .budget = 120,
                                               .quiet = j->o->common.quiet,
                                               .step = pare_run_argv};
    PARE_TRY(pare_zoo_forecast_make(arena, &forecast, j->zoo, j->plan, &options));
    json_t *facts = pare_zoo_forecast_json(&forecast, j->zoo, j->plan);
    if (!facts) return PARE_FAIL(arena->ctx, MEMORY, "out of memory");
    json_object_set_new(j->tool->facts, "forecast", facts);
    return pare_zoo_forecast_print(arena, stdout, &forecast, j->zoo, j->plan, &options);
}

/* --- a batch system --- */

static pare_status submit(job *j)
{
    pare_arena *arena = &j->tool->arena;
    pare_zoo_run_result result = {0};
    const zoo_options *o = j->o;
    pare_zoo_submission s = {.zoo = j->zoo,
                             .file = j->tool->arg[0],
                             .folder = o->output,
                             .cache = o->cache,
                             .append = o->append,
                             .device = o->common.device,
                             .machine = j->machine,
                             .time_limit = o->time_limit,
                             .memory_limit = o->memory_limit,
                             .threads = o->common.threads,
                             .words = o->sbatch.item,
                             .word_count = o->sbatch.count};
    PARE_TRY(look_only(j, &result));
    PARE_TRY(pare_zoo_open_tasks(arena, &s.tasks, &s.task_count, &j->records));
    if (!s.task_count) {
        PARE_TRY(show(j));
        return say_end(j, &result, PARE_OK);
    }
    close(j->lock); /* from now on it is the tasks' */
    j->lock = -1;
    return pare_zoo_submit(arena, &s);
}

static int cores(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static pare_status compare(pare_tool *tool)
{
    static const char *const rows[] = {"output",  "jobs",         "resume", "time-limit",
                                       "cache",   "memory-limit", "task",   "merge",
                                       "dry-run", "append",       NULL};
    PARE_TRY(pare_refuse_options(tool, "with --diff", rows));
    if (tool->arg_count != 2)
        return PARE_FAIL(tool->ctx, USAGE,
                         "zoo: --diff takes two folders of results: "
                         "pare zoo --diff out1/ out2/");
    return pare_zoo_diff(tool, tool->arg[0], tool->arg[1]);
}

static pare_status run(pare_tool *tool, const void *options)
{
    if (((const zoo_options *)options)->diff) return compare(tool);
    if (tool->arg_count != 1)
        return PARE_FAIL(tool->ctx, USAGE, "zoo: '%s' is one argument too many; usage: pare zoo %s",
                         tool->arg[1], tool->command->arguments);
    job j = {.tool = tool, .o = options, .lock = -1};
    static const char *const only_slurm[] = {"sbatch", NULL}, *const not_slurm[] = {"jobs", NULL};
    PARE_TRY(j.o->slurm ? pare_refuse_options(tool, "with --slurm", not_slurm)
                        : pare_refuse_options(tool, "without --slurm", only_slurm));
    PARE_TRY(pare_need_option(tool, j.o->output, "-o DIR", "the folder for results"));
    j.jobs = j.o->jobs ? (int)j.o->jobs : (cores() + 3) / 4;
    j.threads = tool->common->threads ? tool->common->threads
                : cores() > j.jobs    ? cores() / j.jobs
                                      : 1;
    PARE_TRY(pare_results_check(tool->ctx, j.o->append));
    pare_process_prepare();
    PARE_TRY(make_plan(&j));
    if (j.o->dry_run) {
        pare_status told = foretell(&j);
        pare_zoo_records_free(&j.records);
        return told;
    }
    const bool beside = j.o->task >= 0 || j.o->merge;
    pare_status st =
        pare_zoo_workdir_open(tool->ctx, &j.lock, j.o->output, j.zoo->name,
                              beside ? PARE_ZOO_BESIDE : PARE_ZOO_ALONE, j.o->resume || beside);
    if (st == PARE_OK) st = j.o->slurm ? submit(&j) : work(&j);
    pare_zoo_records_free(&j.records);
    if (j.lock >= 0) close(j.lock);
    return st;
}

const pare_command pare_command_zoo = {
    .name = "zoo",
    .arguments = "ZOO.yaml -o DIR | --diff DIR1 DIR2",
    .min = 1,
    .max = 2,
    .summary = "run variants of many models, each in its own process, into tables and one report",
    .detail =
        "ZOO.yaml names models, variants (chains of prune, distill and quantize), data,\n"
        "limits and goals; samples: N (of test), latency: false, any_accuracy: true and\n"
        "slurm: [WORD of sbatch] are further keys. A variant with ranks: 4 has distill, prune\n"
        "and a validation without latency done by mpirun -n 4; gpus: N (of a node) and nodes: N\n"
        "are what --slurm asks for, launcher: 'srun --mpi=pmix' starts the ranks there. Each step "
        "runs in a process of its own;\n"
        "one that fails, hangs or eats memory ends its task and no other, and is listed with\n"
        "the command that repeats it. A run that is killed continues with --resume and repeats\n"
        "nothing that was done. Exit status 1 where a task was not done; a goal that is\n"
        "missed is told and changes no exit status.",
    .example = "pare zoo zoo.yaml -o out/ --jobs 2",
    .options = table,
    .size = sizeof(zoo_options),
    .defaults = &defaults,
    .run = run,
};
