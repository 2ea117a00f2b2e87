/* SPDX-License-Identifier: Apache-2.0 */
/* A zoo's open tasks as command lines for Slurm */
#include "runtime/exec/exec.h"
#include "tools/zoo/submit.h"

#include "tools/zoo/plan.h"
#include "tools/zoo/run.h"
#include "tools/zoo/slurm.h"
#include "tools/zoo/tasks.h"
#include "tools/zoo/argv.h"

#include <string.h>
#include <unistd.h>

pare_status pare_zoo_open_tasks(pare_arena *arena, const int **tasks, int *count,
                                const pare_zoo_records *records)
{
    const pare_zoo_plan *plan = records->plan;
    int *open = pare_arena_alloc(arena, (size_t)plan->task_count, sizeof *open);
    *count = 0;
    if (!open) return PARE_MEMORY;
    for (int t = 0; t < plan->task_count; t++) {
        pare_outcome outcome;
        pare_zoo_task_end(records, &plan->tasks[t], &outcome);
        if (outcome != PARE_OUTCOME_DONE && !pare_zoo_is_final(outcome)) open[(*count)++] = t;
    }
    *tasks = open;
    return PARE_OK;
}

/* Options of the command line that tasks and tables take, too. */
static void add_options(pare_zoo_argv *w, const pare_zoo_submission *s)
{
    if (s->cache) pare_zoo_argv_add(w, "--cache", s->cache);
    if (s->append) pare_zoo_argv_add(w, "--append", s->append);
    if (s->device) pare_zoo_argv_add(w, "--device", s->device);
    if (s->time_limit > 0)
        pare_zoo_argv_add(w, "--time-limit", pare_arena_printf(w->arena, "%.17g", s->time_limit));
    if (s->memory_limit > 0)
        pare_zoo_argv_add(w, "--memory-limit",
                          pare_arena_printf(w->arena, "%.3fkB", (double)s->memory_limit / 1000));
    if (s->threads)
        pare_zoo_argv_add(w, "--threads",
                          pare_arena_printf(w->arena, "%lld", (long long)s->threads));
}

/* A task's command line but for its number, or the merging one's, as a shell takes them. */
static const char *line_of(pare_arena *arena, const pare_zoo_submission *s, const char *program,
                           bool task)
{
    pare_zoo_argv w = {.arena = arena};
    pare_zoo_node node = {0};
    const char *machine = s->machine ? s->machine : "cpu";
    pare_zoo_argv_add(&w, program, "zoo");
    pare_zoo_argv_add(&w, s->file, NULL);
    pare_zoo_argv_add(&w, "-o", s->folder);
    pare_zoo_argv_add(&w, "--keys",
                      pare_arena_printf(arena, "%s,%s", pare_cpu_isa_name(), machine));
    add_options(&w, s);
    if (pare_zoo_argv_end(&w, &node.words, &node.word_count) != PARE_OK) return NULL;
    const char *line = pare_zoo_node_command(arena, &node); /* "pare PROGRAM zoo ..." */
    const char *threads = s->threads ? "" : " --threads ${SLURM_CPUS_ON_NODE:-1}";
    return line ? pare_arena_printf(arena, "%s%s %s", line + strlen("pare "), threads,
                                    task ? "--quiet --task" : "--merge")
                : NULL;
}

/* The words of the file and of the command line. */
static pare_status sbatch_words(pare_arena *arena, pare_zoo_batch *b, const pare_zoo_submission *s)
{
    pare_zoo_argv w = {.arena = arena};
    for (int i = 0; i < s->zoo->slurm_count; i++) pare_zoo_argv_add(&w, s->zoo->slurm[i], NULL);
    for (int i = 0; i < s->word_count; i++) pare_zoo_argv_add(&w, s->words[i], NULL);
    return pare_zoo_argv_end(&w, &b->words, &b->word_count);
}

pare_status pare_zoo_submit(pare_arena *arena, const pare_zoo_submission *s)
{
    char program[4096];
    pare_zoo_batch batch = {.name = s->zoo->name,
                            .folder = s->folder,
                            .tasks = s->tasks,
                            .task_count = s->task_count,
                            .exclusive = s->zoo->latency};
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return PARE_FAIL(arena->ctx, IO, "/proc/self/exe: cannot be read");
    program[n] = 0;
    PARE_TRY(sbatch_words(arena, &batch, s));
    batch.task_run = line_of(arena, s, program, true);
    batch.merge_run = line_of(arena, s, program, false);
    if (!batch.task_run || !batch.merge_run) return PARE_MEMORY;
    return pare_zoo_batch_submit(arena, &batch);
}
