/* SPDX-License-Identifier: Apache-2.0 */
/* A team: several runners of one plan side by side, one slice of a batch each. The plan's steps are
   cut at its pare.SliceSum steps into phases. In a phase threads take the next slice each and run
   its steps to the end; between two phases the calling thread makes the sums. Slices are handed out
   in order, so that the one that is waited for is always being worked on. */
#include "runtime/exec/runner.h"
#include "runtime/ops/ops.h"

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

static bool is_sum(const pare_node *node)
{
    return !strcmp(node->op_type, "SliceSum") && !strcmp(node->domain, PARE_DOMAIN);
}

static bool sums_at(const pare_team *t, int step)
{
    return t->slices > 1 && step < t->plan->step_count && is_sum(t->plan->step[step].node);
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
        pare_status st = pare_runner_new(&m->ctx, &m->runner, t->plan);
        if (st != PARE_OK) return pare_fail(t->ctx, st, "%s", m->ctx.message);
    }
    return PARE_OK;
}

static pare_status team_fill(pare_team *t)
{
    bool device = t->plan->options.device != NULL;
    if (t->threads < 1) t->threads = pare_cpu_cores();
    if (t->threads > t->slices) t->threads = t->slices;
    if (device) t->threads = 1;
    PARE_TRY(phases_make(t));
    if (device && t->phases > 1)
        return PARE_FAIL_NODE(t->plan->step[t->phase[0].count].node, UNSUPPORTED,
                              "slices are summed up on the CPU only");
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
    (void)pthread_cond_destroy(&team->turned);
    (void)pthread_mutex_destroy(&team->lock);
    pare_free(team->member);
    pare_free(team->phase);
    pare_free(team);
}

int pare_team_slices(const pare_team *team) { return team->slices; }

int pare_team_threads(const pare_team *team) { return team->threads; }

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

/* --- running --- */

pare_status pare_team_run(pare_team *team, const pare_team_work *work)
{
    team->work = work;
    team->failed = team->slices;
    for (int i = 0; i < team->members; i++) pare_ctx_clear(&team->member[i].ctx);
    for (int k = 0; k < team->phases; k++) {
        const phase *p = &team->phase[k];
        PARE_TRY(pare_ctx_poll(team->ctx));
        PARE_TRY(phase_run(team, k));
        for (int i = 0; i < p->sums; i++) sum_make(team, p->first + p->count + i);
    }
    return PARE_OK;
}
