/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/slurm.h"

#include "tools/text.h"
#include "tools/zoo/argv.h"

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

/* The words that were given, one by one; --exclusive only where the caller wants those, too. */
static pare_status add_given(pare_arena *arena, pare_zoo_argv *w, const pare_zoo_batch *b,
                             bool exclusive)
{
    for (int i = 0; i < b->word_count; i++) {
        char *copy = pare_arena_strdup(arena, b->words[i]), *rest = NULL;
        if (!copy) return PARE_MEMORY;
        for (char *word = strtok_r(copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
            if (exclusive || strncmp(word, "--exclusive", 11) != 0)
                pare_zoo_argv_add(w, word, NULL);
    }
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

/* Tasks `from` to `to` - 1 of the list; the number of the first but its place within the array. */
static pare_status submit_array(jobs *j, int from, int to, int offset)
{
    const pare_zoo_batch *b = j->batch;
    pare_zoo_argv w;
    const char *ranges = pare_zoo_batch_ranges(j->arena, b->tasks + from, to - from, offset);
    if (!ranges) return PARE_MEMORY;
    begin(j, &w, "", "%A_%a.log");
    pare_zoo_argv_add(&w, pare_arena_printf(j->arena, "--array=%s", ranges), NULL);
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

static pare_status submit_all(jobs *j, int size)
{
    const pare_zoo_batch *b = j->batch;
    for (int from = 0, to; from < b->task_count; from = to) {
        const int offset = b->tasks[from];
        for (to = from; to < b->task_count && b->tasks[to] - offset < size;) to++;
        if (j->count == MOST_ARRAYS)
            return PARE_FAIL(
                j->arena->ctx, INPUT,
                "--slurm: %d tasks do not fit into %d arrays of %d; raise MaxArraySize",
                b->task_count, MOST_ARRAYS, size);
        PARE_TRY(submit_array(j, from, to, offset));
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
