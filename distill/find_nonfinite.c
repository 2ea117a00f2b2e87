/* SPDX-License-Identifier: Apache-2.0 */
/* A loss that is not finite: the batch is run again, and the first tensor that is not finite is
   looked for. */
#include "distill/step.h"

#include <math.h>
#include <string.h>

typedef struct search {
    const pare_value *found;
    bool nan;
} search;

static bool row_finite(const float *x, int64_t count, int64_t stride, bool *nan)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i * stride])) {
            *nan = isnan(x[i * stride]);
            return false;
        }
    return true;
}

/* f32 alone: what f64 there is, is made of it. */
static pare_status look(void *user, const pare_value *value, const pare_view *view)
{
    search *s = user;
    int64_t at[PARE_MAX_RANK] = {0}, rows = 1;
    const int last = view->rank - 1;
    if (s->found || view->dtype != PARE_f32 || !view->data || !pare_view_count(view))
        return PARE_OK;
    for (int k = 0; k < last; k++) rows *= view->dim[k];
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = 0;
        for (int k = 0; k < last; k++) offset += at[k] * view->stride[k];
        if (!row_finite((const float *)view->data + offset, last < 0 ? 1 : view->dim[last],
                        last < 0 ? 1 : view->stride[last], &s->nan)) {
            s->found = value;
            return PARE_OK;
        }
        for (int k = last - 1; k >= 0 && ++at[k] == view->dim[k]; k--) at[k] = 0;
    }
    return PARE_OK;
}

/* The teacher's tensor that this input of the graph is, or NULL. */
static const pare_value *of_teacher(const pare_microbatches *s, const pare_value *v)
{
    const pare_train_graph *g = s->graph;
    for (int i = 0; i < pare_plan_input_count(g->plan); i++)
        if (g->feed[i].kind == PARE_FEED_TEACHER &&
            !strcmp(pare_plan_input(g->plan, i)->name, v->name))
            return s->teacher->wanted[g->feed[i].index];
    return NULL;
}

static pare_status blame(const pare_microbatches *s, const search *found, const char *what,
                         const char *hint)
{
    const pare_value *v = found->found;
    const pare_node *n = v ? v->producer : NULL;
    const char *path = s->graph->student->path, *kind = found->nan ? "NaN" : "infinity";
    if (!v) return PARE_FAIL(s->ctx, INPUT, "%s: %s; %s", path, what, hint);
    const pare_value *its = n ? NULL : of_teacher(s, v);
    if (its)
        return PARE_FAIL(s->ctx, INPUT, "%s: %s; output '%s' of the teacher, %s, holds %s; %s",
                         path, what, its->name, s->teacher->file->path, kind, hint);
    if (!n)
        return PARE_FAIL(s->ctx, INPUT, "%s: %s; '%s' holds %s; %s", path, what, v->name, kind,
                         hint);
    return PARE_FAIL(s->ctx, INPUT,
                     "%s: %s; node '%s' (%s): its result '%s' is the first to hold %s; %s", path,
                     what, *n->name ? n->name : v->name, n->op_type, v->name, kind, hint);
}

pare_status pare_microbatches_find_nonfinite(pare_microbatches *s, const char *what,
                                             const char *hint)
{
    search found = {NULL, false};
    pare_runner *runner;
    PARE_TRY(pare_runner_new(s->ctx, &runner, s->graph->plan));
    pare_runner_observe(runner, look, &found);
    pare_status st = PARE_OK;
    pare_microbatches_select(s, &s->learnt, s->weights->value);
    for (int slice = 0; slice < s->full && !found.found && st == PARE_OK; slice++) {
        st = pare_microbatches_load(s, slice, runner, 0);
        if (st == PARE_OK) st = pare_runner_run(runner);
    }
    pare_runner_free(runner);
    return st == PARE_OK ? blame(s, &found, what, hint) : st;
}
