/* SPDX-License-Identifier: Apache-2.0 */
/* A zoo's open tasks as jobs of Slurm: its programs, command lines, arrays. */
#include "tools/zoo/slurm.h"

#include "runtime/exec/exec.h"
#include "tools/text.h"
#include "tools/zoo/plan.h"
#include "tools/zoo/run.h"
#include "tools/zoo/tables.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Slurm's own default, where it does not tell (slurm.conf(5), MaxArraySize). */
enum { ARRAY_SIZE = 1001, MOST_ARRAYS = 64 };

#define WITHOUT "; --jobs N does the same on this machine"

/* --- its programs --- */

typedef struct answer {
    char text[16384]; /* standard output */
    char said[2048];  /* last line of standard error */
    int code;         /* exit status; 127: there is no such program */
} answer;

static void live(const char *const *words, int out, int err)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
        execvp(words[0], (char *const *)words);
    _exit(127);
}

/* What is left of a file after its writer has ended. */
static void read_all(FILE *file, char *text, size_t size)
{
    rewind(file);
    text[fread(text, 1, size - 1, file)] = 0;
}

static void keep_last_line(char *text)
{
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    const char *line = strrchr(text, '\n');
    if (line) memmove(text, line + 1, strlen(line + 1) + 1);
}

static pare_status call(pare_ctx *ctx, const char *const *words, answer *out)
{
    FILE *text = tmpfile(), *said = tmpfile();
    int status = 0;
    pid_t pid = -1;
    if (text && said && (fflush(NULL), pid = fork()) == 0) live(words, fileno(text), fileno(said));
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (pid > 0) {
        read_all(text, out->text, sizeof out->text);
        read_all(said, out->said, sizeof out->said);
        keep_last_line(out->said);
        out->code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    if (text) fclose(text);
    if (said) fclose(said);
    return pid > 0 ? PARE_OK
                   : PARE_FAIL(ctx, IO, "%s cannot be started: %s", words[0], strerror(errno));
}

/* Whether someone answers, and how many jobs an array may hold. */
static pare_status ask_size(pare_ctx *ctx, int *size)
{
    static const char *const words[] = {"scontrol", "show", "config", NULL};
    answer a;
    PARE_TRY(call(ctx, words, &a));
    if (a.code == 127)
        return PARE_FAIL(ctx, UNSUPPORTED,
                         "--slurm: scontrol is not found: Slurm is not installed "
                         "here" WITHOUT);
    if (a.code)
        return PARE_FAIL(ctx, UNSUPPORTED,
                         "--slurm: Slurm's controller does not answer: %s" WITHOUT, a.said);
    const char *at = strstr(a.text, "MaxArraySize"), *equals = at ? strchr(at, '=') : NULL;
    const int told = equals ? atoi(equals + 1) : 0;
    *size = told > 0 ? told : ARRAY_SIZE;
    return PARE_OK;
}

/* --- words --- */

const char *pare_zoo_batch_ranges(pare_arena *arena, const int *numbers, int count, int offset)
{
    pare_text text = {.ctx = arena->ctx};
    for (int i = 0, end; i < count; i = end + 1) {
        for (end = i; end + 1 < count && numbers[end + 1] == numbers[end] + 1;) end++;
        pare_text_add(&text, "%s%d", i ? "," : "", numbers[i] - offset);
        if (end > i) pare_text_add(&text, "-%d", numbers[end] - offset);
    }
    const char *copy = text.data ? pare_arena_strdup(arena, text.data) : NULL;
    pare_free(text.data);
    return copy;
}

/* The words of a text, one by one; --exclusive only where the caller wants those, too. */
static pare_status add_words(pare_arena *arena, pare_zoo_argv *w, const char *text, bool exclusive)
{
    char *copy = pare_arena_strdup(arena, text), *rest = NULL;
    if (!copy) return PARE_MEMORY;
    for (char *word = strtok_r(copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
        if (exclusive || strncmp(word, "--exclusive", 11) != 0) pare_zoo_argv_add(w, word, NULL);
    return PARE_OK;
}

static pare_status add_given(pare_arena *arena, pare_zoo_argv *w, const pare_zoo_batch *b,
                             bool exclusive)
{
    for (int i = 0; i < b->word_count; i++) PARE_TRY(add_words(arena, w, b->words[i], exclusive));
    return PARE_OK;
}

/* Do the words themselves say who else may be on the machine? */
static bool says_sharing(const pare_zoo_batch *b)
{
    static const char *const names[] = {"--exclusive", "--oversubscribe", "--overcommit"};
    for (int i = 0; i < b->word_count; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (strstr(b->words[i], names[k])) return true;
    return false;
}

/* --- jobs --- */

typedef struct jobs {
    pare_arena *arena;
    const pare_zoo_batch *batch;
    char id[MOST_ARRAYS + 1][32];
    int count;
} jobs;

static pare_status refused(pare_ctx *ctx, const answer *a)
{
    if (a->code == 127)
        return PARE_FAIL(ctx, UNSUPPORTED,
                         "--slurm: sbatch is not found: Slurm is not installed "
                         "here" WITHOUT);
    return PARE_FAIL(ctx, INPUT, "--slurm: sbatch refused: %s" WITHOUT, a->said);
}

/* sbatch with these words before the given ones and the command line after them. */
static pare_status submit(jobs *j, pare_zoo_argv *w, bool exclusive, const char *run)
{
    answer a;
    const char **words;
    int count;
    PARE_TRY(add_given(j->arena, w, j->batch, exclusive));
    pare_zoo_argv_add(w, "--wrap", run);
    PARE_TRY(pare_zoo_argv_end(w, &words, &count));
    PARE_TRY(call(j->arena->ctx, words, &a));
    if (a.code) return refused(j->arena->ctx, &a);
    a.text[strcspn(a.text, ";\n")] = 0; /* "12;cluster" */
    snprintf(j->id[j->count++], sizeof j->id[0], "%.31s", a.text);
    return PARE_OK;
}

static void begin(jobs *j, pare_zoo_argv *w, const char *part, const char *log)
{
    const pare_zoo_batch *b = j->batch;
    *w = (pare_zoo_argv){.arena = j->arena};
    pare_zoo_argv_add(w, "sbatch", "--parsable");
    pare_zoo_argv_add(w, pare_arena_printf(j->arena, "--job-name=pare-%s%s", b->name, part), NULL);
    pare_zoo_argv_add(w, pare_arena_printf(j->arena, "--output=%s/slurm/%s", b->folder, log), NULL);
}

/* These tasks, and what they ask for; offset: the number of a task but its place in the array. */
static pare_status submit_array(jobs *j, const int *tasks, int count, int offset, const char *ask)
{
    const pare_zoo_batch *b = j->batch;
    pare_zoo_argv w;
    const char *ranges = pare_zoo_batch_ranges(j->arena, tasks, count, offset);
    if (!ranges) return PARE_MEMORY;
    begin(j, &w, "", "%A_%a.log");
    pare_zoo_argv_add(&w, pare_arena_printf(j->arena, "--array=%s", ranges), NULL);
    PARE_TRY(add_words(j->arena, &w, ask, true));
    if (b->exclusive && !says_sharing(b)) pare_zoo_argv_add(&w, "--exclusive", NULL);
    const char *run =
        pare_arena_printf(j->arena, "exec %s $((%d + SLURM_ARRAY_TASK_ID))", b->task_run, offset);
    return run ? submit(j, &w, true, run) : PARE_MEMORY;
}

static pare_status submit_merge(jobs *j)
{
    pare_zoo_argv w;
    pare_text after = {.ctx = j->arena->ctx};
    pare_text_add(&after, "--dependency=afterany");
    for (int i = 0; i < j->count; i++) pare_text_add(&after, ":%s", j->id[i]);
    begin(j, &w, "-merge", "merge_%j.log");
    pare_zoo_argv_add(&w, after.data, NULL);
    const char *run = pare_arena_printf(j->arena, "exec %s", j->batch->merge_run);
    const pare_status st = run ? submit(j, &w, false, run) : PARE_MEMORY;
    pare_free(after.data);
    return st;
}

/* Tasks that ask for the same, in as many arrays as that takes. */
static pare_status submit_alike(jobs *j, const int *tasks, int count, const char *ask, int size)
{
    for (int from = 0, to; from < count; from = to) {
        const int offset = tasks[from];
        for (to = from; to < count && tasks[to] - offset < size;) to++;
        if (j->count == MOST_ARRAYS)
            return PARE_FAIL(
                j->arena->ctx, INPUT,
                "--slurm: %d tasks do not fit into %d arrays of %d; raise MaxArraySize",
                j->batch->task_count, MOST_ARRAYS, size);
        PARE_TRY(submit_array(j, tasks + from, to - from, offset, ask));
    }
    return PARE_OK;
}

static pare_status submit_all(jobs *j, int size)
{
    const pare_zoo_batch *b = j->batch;
    int *alike = pare_arena_alloc(j->arena, (size_t)b->task_count, sizeof *alike);
    if (!alike) return PARE_MEMORY;
    for (int first = 0; first < b->task_count; first++) {
        const char *ask = b->ask[first];
        int count = 0;
        bool had = false;
        for (int i = 0; i < first && !had; i++) had = !strcmp(b->ask[i], ask);
        for (int i = first; i < b->task_count && !had; i++)
            if (!strcmp(b->ask[i], ask)) alike[count++] = b->tasks[i];
        PARE_TRY(submit_alike(j, alike, count, ask, size));
    }
    return submit_merge(j);
}

static void cancel(jobs *j)
{
    answer a;
    pare_ctx quiet;
    pare_ctx_init(&quiet);
    for (int i = 0; i < j->count; i++) {
        const char *const words[] = {"scancel", j->id[i], NULL};
        (void)!call(&quiet, words, &a);
    }
}

static void tell(const jobs *j)
{
    const pare_zoo_batch *b = j->batch;
    pare_print(stdout, "%d tasks submitted: ", b->task_count);
    for (int i = 0; i + 1 < j->count; i++)
        pare_print(stdout, "%sarray %s", i ? ", " : "", j->id[i]);
    pare_print(stdout, "; job %s makes the tables after them\nwatch them:  squeue -j ",
               j->id[j->count - 1]);
    for (int i = 0; i < j->count; i++) pare_print(stdout, "%s%s", i ? "," : "", j->id[i]);
    pare_print(stdout, "\nlogs:        %s/slurm/\n", b->folder);
    pare_print(stdout,
               "then:        %s/report.md; what failed is submitted again by --slurm --resume\n",
               b->folder);
}

pare_status pare_zoo_batch_submit(pare_arena *arena, const pare_zoo_batch *batch)
{
    jobs j = {.arena = arena, .batch = batch};
    int size = 0;
    const char *logs = pare_arena_printf(arena, "%s/slurm", batch->folder);
    if (!logs) return PARE_MEMORY;
    PARE_TRY(ask_size(arena->ctx, &size));
    if (mkdir(logs, 0777) && errno != EEXIST)
        return PARE_FAIL(arena->ctx, IO, "%s: the folder cannot be made: %s", logs,
                         strerror(errno));
    const pare_status st = submit_all(&j, size);
    if (st != PARE_OK) {
        cancel(&j);
        return st;
    }
    tell(&j);
    return PARE_OK;
}

/* --- a zoo's tasks --- */

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
    char bytes[32];
    if (s->cache) pare_zoo_argv_add(w, "--cache", s->cache);
    if (s->append) pare_zoo_argv_add(w, "--append", s->append);
    if (s->device) pare_zoo_argv_add(w, "--device", s->device);
    if (s->time_limit > 0)
        pare_zoo_argv_add(w, "--time-limit", pare_arena_printf(w->arena, "%.17g", s->time_limit));
    if (s->memory_limit > 0)
        pare_zoo_argv_add(
            w, "--memory-limit",
            pare_arena_strdup(w->arena, pare_bytes_exact(s->memory_limit, bytes, sizeof bytes)));
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

/* What the variant of a task asks for; "" where one process on one machine is all. */
static const char *ask_of(pare_arena *arena, const pare_zoo_variant *v)
{
    const char *text = v->ranks < 2 && v->nodes < 2 ? ""
                       : v->nodes < 2
                           ? pare_arena_printf(arena, "--nodes=1 --ntasks=%d", v->ranks)
                           : pare_arena_printf(arena, "--nodes=%d --ntasks=%d --ntasks-per-node=%d",
                                               v->nodes, v->ranks, v->ranks / v->nodes);
    if (text && v->gpus) text = pare_arena_printf(arena, "%s --gpus-per-node=%d", text, v->gpus);
    return text;
}

static pare_status ask_all(pare_arena *arena, pare_zoo_batch *b, const pare_zoo *zoo)
{
    b->ask = pare_arena_alloc(arena, (size_t)b->task_count, sizeof *b->ask);
    if (!b->ask) return PARE_MEMORY;
    for (int i = 0; i < b->task_count; i++) {
        b->ask[i] = ask_of(arena, &zoo->variants[b->tasks[i] % zoo->variant_count]);
        if (!b->ask[i]) return PARE_MEMORY;
    }
    return PARE_OK;
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
    PARE_TRY(ask_all(arena, &batch, s->zoo));
    batch.task_run = line_of(arena, s, program, true);
    batch.merge_run = line_of(arena, s, program, false);
    if (!batch.task_run || !batch.merge_run) return PARE_MEMORY;
    return pare_zoo_batch_submit(arena, &batch);
}
