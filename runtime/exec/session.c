/* SPDX-License-Identifier: Apache-2.0 */
/* A session: the plans of one model, one per set of input shapes. */
#include "runtime/exec/plan.h"

#include <string.h>

typedef struct entry {
    pare_shape *shape; /* (plan inputs) */
    pare_plan *plan;
    pare_runner *runner;
} entry;

struct pare_session {
    pare_ctx *ctx;
    const pare_model *model;
    pare_plan_options options;
    entry *entry;
    int count;
    size_t capacity;
};

pare_status pare_session_new(pare_ctx *ctx, pare_session **out, const pare_model *model,
                             const pare_plan_options *options)
{
    pare_session *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->ctx = ctx;
    s->model = model;
    if (options) s->options = *options;
    *out = s;
    return PARE_OK;
}

static void entry_free(entry *e)
{
    pare_runner_free(e->runner);
    pare_plan_free(e->plan);
    pare_free(e->shape);
}

void pare_session_free(pare_session *session)
{
    if (!session) return;
    for (int i = 0; i < session->count; i++) entry_free(&session->entry[i]);
    pare_free(session->entry);
    pare_free(session);
}

/* An entry serves these shapes where each of its inputs is asked for in its own shape. */
static bool serves(const entry *e, const pare_input_shape *shapes, int count)
{
    for (int i = 0; i < pare_plan_input_count(e->plan); i++) {
        const pare_shape *asked =
            pare_input_shape_find(shapes, count, pare_plan_input(e->plan, i)->name);
        if (asked && !pare_shape_equal(asked, &e->shape[i])) return false;
    }
    return true;
}

static pare_status entry_new(pare_session *s, entry *e, const pare_input_shape *shapes, int count)
{
    PARE_TRY(pare_plan_new(s->ctx, &e->plan, s->model, shapes, count, &s->options));
    int n = pare_plan_input_count(e->plan);
    e->shape = pare_alloc(s->ctx, (size_t)n, sizeof *e->shape);
    if (!e->shape) return PARE_MEMORY;
    for (int i = 0; i < n; i++) e->shape[i] = pare_plan_input(e->plan, i)->shape;
    return pare_runner_new(s->ctx, &e->runner, e->plan);
}

pare_status pare_session_runner(pare_session *session, pare_runner **out,
                                const pare_input_shape *shapes, int shape_count)
{
    for (int i = 0; i < session->count; i++)
        if (serves(&session->entry[i], shapes, shape_count)) {
            *out = session->entry[i].runner;
            return PARE_OK;
        }
    if (!pare_grow(session->ctx, &session->entry, &session->capacity, (size_t)session->count,
                   sizeof *session->entry))
        return PARE_MEMORY;
    entry e = {0};
    pare_status st = entry_new(session, &e, shapes, shape_count);
    if (st != PARE_OK) {
        entry_free(&e);
        return st;
    }
    session->entry[session->count++] = e;
    *out = e.runner;
    return PARE_OK;
}
