/* SPDX-License-Identifier: Apache-2.0 */
/* Does an ensemble fit the models that are served? Steps are looked at in an order in which they
   can run: what one makes is known to those after it. */
#include "tools/serve/ensemble/ensemble.h"
#include "tools/serve/served.h"

#include <string.h>

/* One step while it is checked. */
typedef struct checker {
    pare_served *s;
    int index;
    const pare_ensemble_step *step;
    pare_served *model;
} checker;

static const pare_port *find_port(const pare_port *ports, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(ports[i].name, name) && !ports[i].is_own) return &ports[i];
    return NULL;
}

/* Can a tensor be of both types and shapes? */
static bool is_alike(pare_dtype a, const pare_shape *x, pare_dtype b, const pare_shape *y)
{
    if (a != PARE_NOTYPE && b != PARE_NOTYPE && a != b) return false;
    if (x->rank < 0 || y->rank < 0) return true;
    bool fits = x->rank == y->rank;
    for (int d = 0; fits && d < x->rank; d++)
        fits = x->dim[d] < 0 || y->dim[d] < 0 || x->dim[d] == y->dim[d];
    return fits;
}

static const char *type_name(pare_dtype dtype)
{
    const char *name = dtype == PARE_NOTYPE ? NULL : pare_infer_type_name(dtype);
    return name ? name : "of no known type";
}

static pare_status check_link(const checker *c, const char *kind, const pare_port *port,
                              const pare_ensemble_tensor *t)
{
    char has[256], takes[256];
    if (is_alike(port->dtype, &port->shape, t->dtype, &t->shape)) return PARE_OK;
    return PARE_FAIL(&c->s->ctx, INPUT,
                     "%s: step %d: %s '%s' of model '%s' is %s %s, tensor '%s' is %s %s",
                     c->s->options.path, c->index, kind, port->name, c->step->model,
                     type_name(port->dtype), pare_shape_text(&port->shape, takes, sizeof takes),
                     t->name, type_name(t->dtype), pare_shape_text(&t->shape, has, sizeof has));
}

static pare_status fail_port(const checker *c, const char *kind, const char *name, const char *what)
{
    return PARE_FAIL(&c->s->ctx, INPUT, "%s: step %d: %s '%s' of model '%s' %s", c->s->options.path,
                     c->index, kind, name, c->step->model, what);
}

static pare_status check_inputs(const checker *c)
{
    for (int i = 0; i < c->step->input_count; i++) {
        const char *name = c->step->input_name[i];
        const pare_port *port = find_port(c->model->input, c->model->input_count, name);
        if (!port) return fail_port(c, "input", name, "is not there");
        for (int k = 0; k < i; k++)
            if (!strcmp(name, c->step->input_name[k]))
                return fail_port(c, "input", name, "is in input_map twice");
        PARE_TRY(check_link(c, "input", port, &c->s->ensemble->tensor[c->step->input[i]]));
    }
    for (int i = 0; i < c->model->input_count; i++) {
        int k = 0;
        while (k < c->step->input_count &&
               strcmp(c->step->input_name[k], c->model->input[i].name) != 0)
            k++;
        if (k == c->step->input_count && !c->model->input[i].is_own)
            return fail_port(c, "input", c->model->input[i].name, "is not in input_map");
    }
    return PARE_OK;
}

/* From here on it is known what the step makes. */
static pare_status take_outputs(const checker *c)
{
    for (int i = 0; i < c->step->output_count; i++) {
        const char *name = c->step->output_name[i];
        const pare_port *port = find_port(c->model->output, c->model->output_count, name);
        if (!port) return fail_port(c, "output", name, "is not there");
        for (int k = 0; k < i; k++)
            if (!strcmp(name, c->step->output_name[k]))
                return fail_port(c, "output", name, "is in output_map twice");
        pare_ensemble_tensor *t = &c->s->ensemble->tensor[c->step->output[i]];
        t->dtype = port->dtype;
        t->shape = port->shape;
        t->known = true;
        memset(t->shape.name, 0, sizeof t->shape.name); /* which are the model's */
    }
    return PARE_OK;
}

static pare_status check_samples(const checker *c)
{
    const int64_t most = c->s->options.config.max_batch, its = c->model->options.config.max_batch;
    if (most <= its) return PARE_OK;
    return PARE_FAIL(&c->s->ctx, INPUT,
                     "%s: step %d: model '%s' has max_batch_size %lld, the ensemble %lld",
                     c->s->options.path, c->index, c->step->model, (long long)its, (long long)most);
}

/* Does the model need this one, itself or by those that it is made of? What is not ready is not
   followed: it is checked when it is loaded. */
static bool needs(const pare_served *s, const pare_served *model)
{
    bool found = false;
    const int count = model->ensemble ? model->ensemble->step_count : 0;
    for (int i = 0; i < count && !found; i++) {
        pare_ctx ctx;
        pare_served *next;
        const pare_ensemble_step *step = &model->ensemble->step[i];
        pare_ctx_child(&ctx, &s->ctx);
        found = !strcmp(step->model, s->name);
        if (found || s->options.find(s->options.user, &ctx, &next, step->model, step->version))
            continue;
        found = needs(s, next);
        pare_served_release(next);
    }
    return found;
}

static pare_status check_model(const checker *c)
{
    if (needs(c->s, c->model))
        return PARE_FAIL(&c->s->ctx, INPUT, "%s: step %d: model '%s' is made of this one",
                         c->s->options.path, c->index, c->step->model);
    if (!c->step->output_count)
        return PARE_FAIL(&c->s->ctx, INPUT, "%s: step %d (model '%s'): has no output_map",
                         c->s->options.path, c->index, c->step->model);
    PARE_TRY(check_samples(c));
    PARE_TRY(check_inputs(c));
    return take_outputs(c);
}

static pare_status check_step(pare_served *s, int index)
{
    checker c = {.s = s, .index = index, .step = &s->ensemble->step[index]};
    if (!strcmp(c.step->model, s->name))
        return PARE_FAIL(&s->ctx, INPUT, "%s: step %d: the ensemble is a step of its own",
                         s->options.path, index);
    const pare_status found =
        s->options.member(s->options.user, &s->ctx, &c.model, c.step->model, c.step->version);
    if (found != PARE_OK) {
        char why[sizeof s->ctx.message];
        snprintf(why, sizeof why, "%s", s->ctx.message);
        pare_ctx_clear(&s->ctx);
        return PARE_FAIL(&s->ctx, INPUT, "%s: step %d: %s", s->options.path, index, why);
    }
    const pare_status st = check_model(&c);
    pare_served_release(c.model);
    return st;
}

static bool is_known(const pare_ensemble *e, const pare_ensemble_step *step)
{
    for (int i = 0; i < step->input_count; i++)
        if (!e->tensor[step->input[i]].known) return false;
    return true;
}

/* Every step, each after those it waits for. */
static pare_status check_steps(pare_served *s)
{
    const pare_ensemble *e = s->ensemble;
    bool *done = pare_arena_alloc(&s->arena, (size_t)e->step_count, sizeof *done);
    if (!done) return PARE_MEMORY;
    for (int left = e->step_count; left;) {
        int i = 0;
        while (i < e->step_count && (done[i] || !is_known(e, &e->step[i]))) i++;
        if (i < e->step_count) {
            PARE_TRY(check_step(s, i));
            done[i] = true;
            left--;
            continue;
        }
        for (i = 0; done[i];) i++;
        return PARE_FAIL(&s->ctx, INPUT,
                         "%s: step %d (model '%s') waits for what is made of its own outputs",
                         s->options.path, i, e->step[i].model);
    }
    return PARE_OK;
}

static pare_status check_outputs(pare_served *s)
{
    char has[256], said[256];
    for (int i = 0; i < s->output_count; i++) {
        const pare_port *port = &s->output[i];
        const pare_ensemble_tensor *t = &s->ensemble->tensor[s->ensemble->output[i]];
        if (is_alike(port->dtype, &port->shape, t->dtype, &t->shape)) continue;
        return PARE_FAIL(&s->ctx, INPUT, "%s: output '%s' is %s %s, config.pbtxt has %s %s",
                         s->options.path, port->name, type_name(t->dtype),
                         pare_shape_text(&t->shape, has, sizeof has), type_name(port->dtype),
                         pare_shape_text(&port->shape, said, sizeof said));
    }
    return PARE_OK;
}

pare_status pare_ensemble_check(pare_served *s)
{
    pare_ensemble *e = s->ensemble;
    for (int i = 0; i < s->input_count; i++) {
        e->tensor[i].dtype = s->input[i].dtype;
        e->tensor[i].shape = s->input[i].shape;
        e->tensor[i].known = true;
    }
    PARE_TRY(check_steps(s));
    return check_outputs(s);
}
