/* SPDX-License-Identifier: Apache-2.0 */
/* A team: several runners of one plan side by side, one slice of a batch each. The plan's steps are
   cut at its pare.SliceSum steps into phases. In a phase threads take the next slice each and run
   its steps to the end; between two phases the calling thread makes the sums. Slices are handed out
   in order, so that the one that is waited for is always being worked on. On a device there is one
   thread and one queue, whose order is that of the work: nobody waits between two phases. */
#include "runtime/exec/runner.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/training.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

typedef struct member {
    pare_ctx ctx;
    pare_runner *runner;
} member;

typedef struct phase {
    int first, count; /* steps, without sums */
    int sums;         /* SliceSum steps behind them */
} phase;

struct pare_team {
    pare_ctx *ctx;
    const pare_plan *plan;
    int slices, threads;
    member *member; /* (members): one for each slice where there are sums, else for each thread */
    int members;
    phase *phase;
    int phases;
    pare_queue *queue; /* of all members on a device; else NULL */
    const void **from; /* (slices), with a queue: a sum's terms, */
    void **to;         /* and where they go */
    /* of one run, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t turned;
    const pare_team_work *work;
    int next;           /* slice to be handed out */
    int turn;           /* slice to be taken */
    int failed;         /* the lowest slice that failed; slices: none */
    pare_status status; /* why */
    int failed_member;
};

/* --- making it --- */

bool pare_is_slice_sum(const pare_node *node)
{
    return !strcmp(node->op_type, "SliceSum") && !strcmp(node->domain, PARE_DOMAIN);
}

static bool sums_at(const pare_team *t, int step)
{
    return t->slices > 1 && step < t->plan->step_count &&
           pare_is_slice_sum(t->plan->step[step].node);
}

static pare_status phases_make(pare_team *t)
{
    int steps = t->plan->step_count, at = 0;
    t->phase = pare_alloc(t->ctx, (size_t)steps + 1, sizeof *t->phase);
    if (!t->phase) return PARE_MEMORY;
    do {
        phase *p = &t->phase[t->phases++];
        p->first = at;
        while (at < steps && !sums_at(t, at)) at++;
        p->count = at - p->first;
        while (sums_at(t, at)) at++;
        p->sums = at - p->first - p->count;
    } while (at < steps || t->phase[t->phases - 1].sums);
    return PARE_OK;
}

static pare_status members_make(pare_team *t)
{
    int count = t->phases > 1 ? t->slices : t->threads;
    t->member = pare_alloc(t->ctx, (size_t)count, sizeof *t->member);
    if (!t->member) return PARE_MEMORY;
    for (; t->members < count; t->members++) {
        member *m = &t->member[t->members];
        pare_ctx_child(&m->ctx, t->ctx);
        pare_status st = pare_runner_new_in(&m->ctx, &m->runner, t->plan, t->queue);
        if (st != PARE_OK) return pare_fail(t->ctx, st, "%s", m->ctx.message);
    }
    return PARE_OK;
}

static pare_status queue_make(pare_team *t, pare_device *device)
{
    if (t->phases > 1 && !device->training)
        return PARE_FAIL_NODE(t->plan->step[t->phase[0].count].node, UNSUPPORTED,
                              "%s cannot sum up slices", device->name);
    t->threads = 1;
    t->from = pare_alloc(t->ctx, (size_t)t->slices, sizeof *t->from);
    t->to = pare_alloc(t->ctx, (size_t)t->slices, sizeof *t->to);
    if (!t->from || !t->to) return PARE_MEMORY;
    return device->queues->open(t->ctx, device, &t->queue);
}

static pare_status team_fill(pare_team *t)
{
    if (t->threads < 1) t->threads = pare_cpu_cores();
    if (t->threads > t->slices) t->threads = t->slices;
    PARE_TRY(phases_make(t));
    if (t->plan->options.device) PARE_TRY(queue_make(t, t->plan->options.device));
    return members_make(t);
}

pare_status pare_team_new(pare_ctx *ctx, pare_team **out, const pare_plan *plan, int slices,
                          int threads)
{
    pare_team *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    t->ctx = ctx;
    t->plan = plan;
    t->slices = slices;
    t->threads = threads;
    (void)pthread_mutex_init(&t->lock, NULL); /* on Linux neither fails */
    (void)pthread_cond_init(&t->turned, NULL);
    pare_status st = team_fill(t);
    if (st == PARE_OK)
        *out = t;
    else
        pare_team_free(t);
    return st;
}

void pare_team_free(pare_team *team)
{
    if (!team) return;
    for (int i = 0; i < team->members; i++) pare_runner_free(team->member[i].runner);
    if (team->queue) team->plan->options.device->queues->close(team->queue);
    pare_free(team->from);
    pare_free(team->to);
    (void)pthread_cond_destroy(&team->turned);
    (void)pthread_mutex_destroy(&team->lock);
    pare_free(team->member);
    pare_free(team->phase);
    pare_free(team);
}

int pare_team_slices(const pare_team *team) { return team->slices; }

int pare_team_threads(const pare_team *team) { return team->threads; }

int pare_team_runners(const pare_team *team) { return team->members; }

pare_queue *pare_team_queue(const pare_team *team) { return team->queue; }

/* --- a slice --- */

/* The next slice; -1: there is none, or one has failed and those behind it do not matter. */
static int hand_out(pare_team *t)
{
    (void)pthread_mutex_lock(&t->lock);
    int slice = t->next < t->failed ? t->next++ : -1;
    (void)pthread_mutex_unlock(&t->lock);
    return slice;
}

static void note_failure(pare_team *t, int slice, int at, pare_status st)
{
    (void)pthread_mutex_lock(&t->lock);
    if (slice < t->failed) {
        t->failed = slice;
        t->status = st;
        t->failed_member = at;
    }
    (void)pthread_cond_broadcast(&t->turned);
    (void)pthread_mutex_unlock(&t->lock);
}

/* Waits for the slice's turn; false where a slice before it failed. */
static bool await_turn(pare_team *t, int slice)
{
    (void)pthread_mutex_lock(&t->lock);
    while (t->turn != slice && t->failed > slice) (void)pthread_cond_wait(&t->turned, &t->lock);
    bool mine = t->failed > slice;
    (void)pthread_mutex_unlock(&t->lock);
    return mine;
}

static void pass_turn(pare_team *t)
{
    (void)pthread_mutex_lock(&t->lock);
    t->turn++;
    (void)pthread_cond_broadcast(&t->turned);
    (void)pthread_mutex_unlock(&t->lock);
}

static pare_status slice_take(pare_team *t, int slice, pare_runner *runner)
{
    if (!await_turn(t, slice)) return PARE_OK;
    if (t->work->take) PARE_TRY(t->work->take(t->work->user, slice, runner));
    pass_turn(t);
    return PARE_OK;
}

static pare_status slice_run(pare_team *t, int k, int slice, pare_runner *runner)
{
    const phase *p = &t->phase[k];
    if (!k && t->work->load) PARE_TRY(t->work->load(t->work->user, slice, runner));
    if (t->phases == 1)
        PARE_TRY(pare_runner_run(runner));
    else if (t->queue)
        PARE_TRY(pare_runner_device_part(runner, p->first, p->count));
    else
        PARE_TRY(pare_runner_steps(runner, p->first, p->count));
    return k == t->phases - 1 ? slice_take(t, slice, runner) : PARE_OK;
}

/* --- a phase --- */

/* What one thread of the team does. */
static void phase_work(pare_team *t, int k, int thread)
{
    omp_set_num_threads(t->plan->options.threads);
    for (int slice; (slice = hand_out(t)) >= 0;) {
        int at = t->phases > 1 ? slice : thread;
        pare_status st = slice_run(t, k, slice, t->member[at].runner);
        if (st != PARE_OK) note_failure(t, slice, at, st);
    }
}

static pare_status phase_run(pare_team *t, int k)
{
    t->next = t->turn = 0;
#pragma omp parallel num_threads(t->threads)
    phase_work(t, k, omp_get_thread_num());
    if (t->failed == t->slices) return PARE_OK;
    return pare_fail(t->ctx, t->status, "%s", t->member[t->failed_member].ctx.message);
}

/* --- sums over slices --- */

#define ADD(type, ctype)                                                                           \
    static void add_##type(void *sum, const void *x, int64_t n)                                    \
    {                                                                                              \
        ctype *s = sum;                                                                            \
        const ctype *v = x;                                                                        \
        for (int64_t i = 0; i < n; i++) s[i] += v[i];                                              \
    }
ADD(f32, float)
ADD(f64, double)

/* Y of slice 0 = ((X of slice 0 + X of slice 1) + X of slice 2) + ..., and so everywhere. */
static void sum_make(pare_team *t, int step)
{
    const pare_call *first = &t->member[0].runner->call[step];
    for (int k = 0; k < first->out_count; k++) {
        const pare_view *y = &first->out[k];
        size_t bytes = pare_view_bytes(y);
        if (y->dtype == PARE_NOTYPE || !bytes) continue;
        memcpy(y->data, first->in[k].data, bytes);
        for (int s = 1; s < t->slices; s++) {
            const void *x = t->member[s].runner->call[step].in[k].data;
            (y->dtype == PARE_f64 ? add_f64 : add_f32)(y->data, x, pare_view_count(y));
        }
        for (int s = 1; s < t->slices; s++)
            memcpy(t->member[s].runner->call[step].out[k].data, y->data, bytes);
    }
}

/* The same in the queue. */
static pare_status sum_queue(pare_team *t, int step)
{
    const pare_device *d = t->plan->options.device;
    const pare_call *first = &t->member[0].runner->call[step];
    pare_status st = PARE_OK;
    for (int k = 0; k < first->out_count && st == PARE_OK; k++) {
        const pare_view *y = &first->out[k];
        if (y->dtype == PARE_NOTYPE || !pare_view_count(y)) continue;
        for (int s = 0; s < t->slices; s++) {
            t->from[s] = t->member[s].runner->call[step].in[k].data;
            t->to[s] = t->member[s].runner->call[step].out[k].data;
        }
        const pare_slice_sums sums = {y->dtype, pare_view_count(y), t->from, t->to, t->slices};
        st = d->training->slices(t->ctx, t->queue, &sums);
    }
    if (st == PARE_OK) return PARE_OK;
    return pare_fail_prefix(t->ctx, st, "%s: node '%s' (SliceSum)", t->plan->model->path,
                            first->node->name);
}

/* --- running --- */

static pare_status phases_run(pare_team *t)
{
    for (int k = 0; k < t->phases; k++) {
        const phase *p = &t->phase[k];
        const int sums = p->first + p->count;
        PARE_TRY(pare_ctx_poll(t->ctx));
        PARE_TRY(phase_run(t, k));
        for (int i = sums; i < sums + p->sums; i++)
            if (t->queue)
                PARE_TRY(sum_queue(t, i));
            else
                sum_make(t, i);
    }
    return PARE_OK;
}

/* After a failure nothing still reads what load gave. */
pare_status pare_team_run(pare_team *team, const pare_team_work *work)
{
    pare_ctx quiet;
    pare_ctx_init(&quiet);
    team->work = work;
    team->failed = team->slices;
    for (int i = 0; i < team->members; i++) pare_ctx_clear(&team->member[i].ctx);
    pare_status st = phases_run(team);
    if (st != PARE_OK && team->queue)
        (void)team->plan->options.device->backend->sync(&quiet, team->queue);
    return st;
}
