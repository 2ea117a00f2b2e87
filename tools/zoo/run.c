/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a zoo: whose turn it is, processes, what became of them. */
#include "tools/zoo/run.h"

#include "tools/progress.h"
#include "tools/zoo/plan.h"
#include "tools/zoo/tables.h"
#include "tools/zoo/work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_WARNINGS = 20 };

/* --- whose turn it is --- */

typedef struct schedule {
    const pare_zoo_plan *plan;
    unsigned char *state; /* of each node */
    int jobs, running;
    int first;     /* no node before it waits */
    bool alone;    /* what runs may have nothing beside it */
    bool draining; /* nodes that run alone come next, all that wait */
} schedule;

enum { WAITS, RUNS, DONE, FAILED, BLOCKED };

static pare_status turns_init(pare_arena *arena, schedule *turns, const pare_zoo_plan *plan,
                              int jobs)
{
    *turns = (schedule){.plan = plan, .jobs = jobs};
    turns->state = pare_arena_alloc(arena, (size_t)plan->node_count, 1);
    return turns->state ? PARE_OK : PARE_MEMORY;
}

static bool is_ready(const schedule *t, int node)
{
    const int parent = t->plan->nodes[node].parent;
    return t->state[node] == WAITS && (parent < 0 || t->state[parent] == DONE);
}

/* The node to begin now, -1: none before another one has ended, or at all. Nodes come in the plan's
   order, so that tasks end early; but those that may have nothing beside them, which let the other
   jobs idle, come several after each other. */
static int turns_next(schedule *t)
{
    const int most = t->jobs > 1 ? 2 * t->jobs : 1;
    int beside = -1, alone = -1, waiting = 0;
    if (t->running == t->jobs || (t->running && t->alone)) return -1;
    while (t->first < t->plan->node_count && t->state[t->first] >= DONE) t->first++;
    for (int i = t->first; i < t->plan->node_count && (beside < 0 || waiting < most); i++) {
        if (!is_ready(t, i)) continue;
        if (!t->plan->nodes[i].alone) {
            if (beside < 0) beside = i;
        } else if (!waiting++) {
            alone = i;
        }
    }
    if (t->jobs == 1) return alone >= 0 && (beside < 0 || alone < beside) ? alone : beside;
    if (alone < 0) t->draining = false;
    if (waiting >= most || beside < 0) t->draining = alone >= 0;
    if (t->draining) return t->running ? -1 : alone;
    return beside;
}

static void turns_begin(schedule *t, int node)
{
    t->state[node] = RUNS;
    t->alone = t->plan->nodes[node].alone;
    t->running++;
}

/* It ended, or had before; where it is not done, nodes after it never have their turn. */
static void turns_end(schedule *t, int node, bool done)
{
    if (t->state[node] == RUNS) t->running--;
    t->state[node] = done ? DONE : FAILED;
    for (int i = node + 1; !done && i < t->plan->node_count; i++) {
        const int parent = t->plan->nodes[i].parent;
        if (parent >= node && t->state[parent] >= FAILED && t->state[i] == WAITS)
            t->state[i] = BLOCKED;
    }
}

/* It is not to be done at all, though others may be that need it. */
static void turns_leave(schedule *t, int node) { t->state[node] = BLOCKED; }

/* It ended and has its turn again; false where it had not ended. */
static bool turns_again(schedule *t, int node)
{
    if (t->state[node] != DONE && t->state[node] != FAILED) return false;
    t->state[node] = WAITS;
    if (node < t->first) t->first = node;
    return true;
}

static bool turns_ended(const schedule *t, int node)
{
    return t->state[node] == DONE || t->state[node] == FAILED;
}

/* --- warnings --- */

/* Warnings of a node's log; after the first MOST_WARNINGS of all nodes one line says where the
   others are. */
static void tell_warnings(pare_ctx *ctx, pare_progress *progress, const pare_zoo *zoo,
                          const pare_zoo_node *node, int *told)
{
    static const char word[] = "warning: ";
    char line[1024];
    FILE *file = fopen(node->log, "r");
    while (file && *told <= MOST_WARNINGS && fgets(line, sizeof line, file)) {
        if (strncmp(line, word, sizeof word - 1) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        pare_progress_clear(progress);
        if ((*told)++ < MOST_WARNINGS)
            pare_log(ctx, PARE_LOG_WARNING, "%s %s: %s: %s", zoo->models[node->model].name,
                     zoo->variants[node->variant].name, node->verb, line + sizeof word - 1);
        else
            pare_log(ctx, PARE_LOG_WARNING,
                     "steps have more warnings; they are in log.txt of their folders");
    }
    if (file) fclose(file);
}

/* How long one wait takes at most, and what was asked to stop is waited for. */
static const double WAIT_SECONDS = 0.05, STOP_SECONDS = 60;

typedef struct slot {
    int node; /* -1: free */
    int lock; /* of its folder, where others may do the same node; else -1 */
    char old_hash[33];
} slot;

typedef struct runner {
    pare_ctx *ctx;
    const pare_zoo *zoo;
    const pare_zoo_plan *plan;
    const pare_zoo_run_options *o;
    pare_zoo_records *records;
    schedule turns;
    pare_journal journal;
    pare_process *process; /* jobs */
    slot *slot;            /* of each */
    pare_arena arena;
    pare_progress progress;
    int tasks, ended;  /* of those that this run is about */
    int nodes;         /* run so far */
    int told;          /* warnings of steps */
    double began;      /* as journals count */
    double stopped_at; /* when an end was asked for; 0: not yet */
    pare_status trouble;
} runner;

/* The first task that needs a node: of validate the one whose link it reads. */
static const pare_zoo_task *task_of(const runner *r, int node)
{
    const pare_zoo_node *n = &r->plan->nodes[node];
    const pare_zoo_task *task = r->plan->tasks;
    while (task->model != n->model || task->variant != n->variant) task++;
    return task;
}

/* --- starting --- */

/* Whether anybody has begun the node whose lock this is; from now on someone has. */
static bool is_begun(int lock)
{
    struct stat st;
    if (fstat(lock, &st) || st.st_size > 0) return true;
    return write(lock, "\n", 1) != 1;
}

/* Where others may do the same node, its folder's lock is held meanwhile. Who is not the first to
   hold it looks at what the other one made. True: there is nothing left to do. */
static bool did_another(runner *r, int node, slot *s)
{
    char path[4096];
    if (r->o->task < 0) return false;
    snprintf(path, sizeof path, "%s/lock", r->plan->nodes[node].folder);
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (s->lock >= 0 && flock(s->lock, LOCK_EX) && errno == EINTR)
        if (pare_ctx_poll(r->ctx) != PARE_OK) return false;
    if (!is_begun(s->lock)) return false;
    if (pare_zoo_records_read(r->records, r->o->folder) != PARE_OK) pare_ctx_clear(r->ctx);
    const pare_zoo_record *record = &r->records->of[node];
    if (record->outcome == PARE_OUTCOME_DONE) return pare_zoo_records_check(r->records, node);
    return record->outcome != PARE_OUTCOME_COUNT && record->outcome != PARE_OUTCOME_STOPPED &&
           record->finished > r->began;
}

static void release(slot *s)
{
    if (s->lock >= 0) close(s->lock);
    s->node = s->lock = -1;
}

static pare_status make_folder(pare_ctx *ctx, const char *folder)
{
    if (!mkdir(folder, 0777) || errno == EEXIST) return PARE_OK;
    return PARE_FAIL(ctx, IO, "%s: the folder cannot be made: %s", folder, strerror(errno));
}

/* The work lives on the stack: the new process has a copy of it. */
static pare_status start_process(runner *r, int node, pare_process *process)
{
    const pare_zoo_node *n = &r->plan->nodes[node];
    const bool judges = !n->output;
    pare_zoo_work work = {.node = n,
                          .input = judges ? r->plan->nodes[n->parent].output : NULL,
                          .link = judges ? task_of(r, node)->link : NULL,
                          .run = r->o->step};
    const pare_process_job job = {.work = pare_zoo_work_do,
                                  .user = &work,
                                  .log = n->log,
                                  .seconds = r->o->seconds,
                                  .bytes = r->o->bytes};
    PARE_TRY(pare_journal_start(r->ctx, &r->journal, n->key, n->verb));
    return pare_process_start(r->ctx, process, &job);
}

static void settle(runner *r, int node)
{
    const bool done = r->records->of[node].outcome == PARE_OUTCOME_DONE;
    turns_end(&r->turns, node, done);
}

static pare_status start(runner *r, int node, pare_process *process, slot *s)
{
    *s = (slot){.node = node, .lock = -1};
    PARE_TRY(make_folder(r->ctx, r->plan->nodes[node].folder));
    if (did_another(r, node, s)) {
        release(s);
        turns_begin(&r->turns, node);
        settle(r, node);
        return PARE_OK;
    }
    PARE_TRY(pare_ctx_poll(r->ctx));
    memcpy(s->old_hash, r->records->of[node].model_hash, sizeof s->old_hash);
    PARE_TRY(start_process(r, node, process));
    turns_begin(&r->turns, node);
    r->nodes++;
    return PARE_OK;
}

/* --- ends --- */

static pare_status note(runner *r, int node, const pare_process_result *result)
{
    pare_arena arena;
    char model[33] = "", facts[33] = "";
    const pare_zoo_node *n = &r->plan->nodes[node];
    const bool done = result->outcome == PARE_OUTCOME_DONE;
    if (done) pare_zoo_work_hashes(result->message, model, facts);
    pare_arena_init(&arena, r->ctx);
    const char *command = pare_zoo_node_command(&arena, n);
    const pare_journal_line line = {.key = n->key,
                                    .verb = n->verb,
                                    .outcome = result->outcome,
                                    .message = done ? "" : result->message,
                                    .finished = pare_journal_now(),
                                    .seconds = result->seconds,
                                    .cpu_seconds = result->cpu_seconds,
                                    .peak_bytes = result->peak_bytes,
                                    .model_hash = model,
                                    .facts_hash = facts,
                                    .command = command ? command : ""};
    pare_zoo_records_take(r->records, &line);
    const pare_status st = pare_journal_finish(r->ctx, &r->journal, &line);
    pare_arena_free(&arena);
    return st;
}

static void tell_failure(const runner *r, int node)
{
    const pare_zoo_record *record = &r->records->of[node];
    const pare_zoo_node *n = &r->plan->nodes[node];
    pare_log(r->ctx, PARE_LOG_WARNING, "%s %s: %s: %s: %s", r->zoo->models[n->model].name,
             r->zoo->variants[n->variant].name, n->verb, pare_outcome_text(record->outcome),
             record->message ? record->message : "");
}

/* A model that was made again and is another one: what had been made of the one before is not. */
static void forget_children(runner *r, int node)
{
    for (int i = node + 1; i < r->plan->node_count; i++) {
        if (r->plan->nodes[i].parent != node || !turns_again(&r->turns, i)) continue;
        r->records->of[i].outcome = PARE_OUTCOME_COUNT;
        forget_children(r, i);
    }
}

static void finish(runner *r, slot *s, const pare_process_result *result)
{
    const int node = s->node;
    const pare_zoo_record *record = &r->records->of[node];
    const pare_status st = note(r, node, result);
    if (st != PARE_OK && r->trouble == PARE_OK) r->trouble = st;
    tell_warnings(r->ctx, &r->progress, r->zoo, &r->plan->nodes[node], &r->told);
    if (result->outcome == PARE_OUTCOME_DONE) {
        if (st == PARE_OK) pare_zoo_drop_checkpoints(&r->plan->nodes[node]);
        if (*s->old_hash && strcmp(s->old_hash, record->model_hash) != 0) forget_children(r, node);
    } else if (result->outcome != PARE_OUTCOME_STOPPED || !r->stopped_at) {
        pare_progress_clear(&r->progress);
        tell_failure(r, node);
    }
    settle(r, node);
    release(s);
}

/* --- the loop --- */

static void count_tasks(runner *r, pare_zoo_run_result *result)
{
    *result = (pare_zoo_run_result){.nodes = r->nodes};
    for (int t = 0; t < r->plan->task_count; t++) {
        pare_outcome outcome;
        if (r->o->task >= 0 && t != r->o->task) continue;
        const int end = pare_zoo_task_end(r->records, &r->plan->tasks[t], &outcome);
        if (outcome == PARE_OUTCOME_DONE)
            result->done++;
        else if (turns_ended(&r->turns, end) && outcome != PARE_OUTCOME_STOPPED)
            result->failed++;
        else
            result->left++;
    }
}

static void show(runner *r)
{
    pare_zoo_run_result now;
    if (!r->progress.file) return;
    count_tasks(r, &now);
    snprintf(r->progress.note, sizeof r->progress.note, "%s", now.failed ? ", some failed" : "");
    pare_progress_step(&r->progress, now.done + now.failed, r->tasks);
}

static void ask_for_end(runner *r)
{
    const double now = pare_seconds();
    const bool late = r->stopped_at && now - r->stopped_at > STOP_SECONDS;
    for (int i = 0; i < r->o->jobs; i++)
        if (r->trouble != PARE_OK || late)
            pare_process_kill(&r->process[i]);
        else
            pare_process_stop(&r->process[i]);
    if (!r->stopped_at) r->stopped_at = now;
}

static int running(const runner *r)
{
    int n = 0;
    for (int i = 0; i < r->o->jobs; i++) n += r->process[i].pid != 0;
    return n;
}

static void fill(runner *r)
{
    for (int i = 0; i < r->o->jobs && r->trouble == PARE_OK; i++) {
        if (r->process[i].pid) continue;
        for (int node;
             r->trouble == PARE_OK && !r->process[i].pid && (node = turns_next(&r->turns)) >= 0;) {
            r->trouble = start(r, node, &r->process[i], &r->slot[i]);
            if (r->trouble != PARE_OK) release(&r->slot[i]);
        }
    }
}

static void look(runner *r)
{
    pare_process_result result;
    bool any = false;
    for (int i = 0; i < r->o->jobs; i++) {
        if (!r->process[i].pid || !pare_process_poll(&r->process[i], &result)) continue;
        finish(r, &r->slot[i], &result);
        any = true;
    }
    if (any) pare_process_sweep(r->process, r->o->jobs);
}

static void loop(runner *r)
{
    for (;;) {
        if (pare_ctx_poll(r->ctx) != PARE_OK || r->trouble != PARE_OK)
            ask_for_end(r);
        else
            fill(r);
        if (!running(r) && (r->stopped_at || turns_next(&r->turns) < 0)) return;
        if (r->trouble == PARE_OK || running(r)) pare_process_wait(WAIT_SECONDS);
        look(r);
        show(r);
    }
}

/* --- before and after it --- */

bool pare_zoo_is_final(pare_outcome outcome)
{
    return outcome == PARE_OUTCOME_BAD_MODEL || outcome == PARE_OUTCOME_UNSUPPORTED;
}

/* Nodes that this run is about, and what became of them before. */
static void look_back(runner *r)
{
    const pare_zoo_task *only = r->o->task < 0 ? NULL : &r->plan->tasks[r->o->task];
    for (int i = 0; i < r->plan->node_count; i++) {
        bool needed = !only;
        for (int k = 0; only && k < only->node_count; k++) needed |= only->nodes[k] == i;
        if (!needed) {
            turns_leave(&r->turns, i);
            continue;
        }
        pare_zoo_record *record = &r->records->of[i];
        const bool done = pare_zoo_records_check(r->records, i);
        if (!done && !pare_zoo_is_final(record->outcome)) record->outcome = PARE_OUTCOME_COUNT;
        if (done || pare_zoo_is_final(record->outcome)) turns_end(&r->turns, i, done);
    }
    r->tasks = only ? 1 : r->plan->task_count;
}

static pare_status prepare(runner *r)
{
    const size_t jobs = (size_t)r->o->jobs;
    PARE_TRY(turns_init(&r->arena, &r->turns, r->plan, r->o->jobs));
    r->process = pare_arena_alloc(&r->arena, jobs, sizeof *r->process);
    r->slot = pare_arena_alloc(&r->arena, jobs, sizeof *r->slot);
    if (!r->process || !r->slot) return PARE_MEMORY;
    for (size_t i = 0; i < jobs; i++) r->slot[i] = (slot){.node = -1, .lock = -1};
    PARE_TRY(pare_zoo_records_read(r->records, r->o->folder));
    look_back(r);
    const char *journal = pare_arena_printf(&r->arena, "%s/journal", r->o->folder);
    return journal ? pare_journal_open(r->ctx, &r->journal, journal) : PARE_MEMORY;
}

pare_status pare_zoo_run(pare_ctx *ctx, pare_zoo_run_result *result, pare_zoo_records *records,
                         const pare_zoo *zoo, const pare_zoo_run_options *options)
{
    runner r = {.ctx = ctx,
                .zoo = zoo,
                .plan = records->plan,
                .o = options,
                .records = records,
                .began = pare_journal_now(),
                .journal = {.fd = -1}};
    pare_arena_init(&r.arena, ctx);
    pare_process_prepare();
    pare_status st = prepare(&r);
    pare_progress_begin(&r.progress, stderr, options->quiet, "zoo", "tasks");
    if (st == PARE_OK) {
        loop(&r);
        count_tasks(&r, result);
        st = r.trouble != PARE_OK ? r.trouble : pare_ctx_poll(ctx);
    }
    pare_progress_end(&r.progress);
    pare_journal_close(&r.journal);
    pare_arena_free(&r.arena);
    return st;
}
