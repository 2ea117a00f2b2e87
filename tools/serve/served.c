/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/traffic/sequences.h"

#include "formats/json.h"
#include "formats/onnx.h"
#include "tools/source.h"

#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* --- inputs and outputs --- */

static pare_status ports_make(pare_served *s, pare_port **out, pare_value *const *values, int count)
{
    *out = pare_arena_alloc(&s->arena, (size_t)count + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        const pare_value *v = values[i];
        (*out)[i] = (pare_port){.name = v->name, .dtype = v->dtype, .shape = v->shape};
        if (v->dtype == PARE_NOTYPE || pare_infer_type_name(v->dtype)) continue;
        return PARE_FAIL(&s->ctx, UNSUPPORTED,
                         "%s: tensor '%s' is of type %s, which the protocol has not",
                         s->options.path, v->name, pare_type(v->dtype)->onnx_name);
    }
    return PARE_OK;
}

static pare_status read_ports(pare_served *s)
{
    const pare_values *outputs = &s->model->graph->out;
    pare_value **inputs = pare_model_inputs(&s->arena, s->model, &s->input_count);
    if (!inputs) return PARE_MEMORY;
    s->output_count = outputs->count;
    PARE_TRY(ports_make(s, &s->input, inputs, s->input_count));
    PARE_TRY(ports_make(s, &s->output, outputs->item, outputs->count));
    for (int i = 0; i < s->input_count; i++)
        if (s->input[i].dtype == PARE_NOTYPE || s->input[i].shape.rank < 0)
            return PARE_FAIL(&s->ctx, UNSUPPORTED,
                             "%s: input '%s' is no tensor of known type and rank", s->options.path,
                             s->input[i].name);
    return PARE_OK;
}

/* Has every input a first axis of any length, and every output where that is known? */
static bool has_samples(const pare_served *s)
{
    for (int i = 0; i < s->input_count; i++)
        if (s->input[i].shape.rank < 1 || s->input[i].shape.dim[0] >= 0) return false;
    for (int i = 0; i < s->output_count; i++) {
        const pare_shape *shape = &s->output[i].shape;
        if (shape->rank == 0 || (shape->rank > 0 && shape->dim[0] >= 0)) return false;
    }
    return s->input_count > 0;
}

/* --- what config.pbtxt says against the model --- */

/* Can the port be what is said, behind so many axes? */
static bool is_said(const pare_port *port, const pare_config_tensor *said, int skip)
{
    const pare_shape *shape = &port->shape;
    bool fits = port->dtype == PARE_NOTYPE || port->dtype == said->dtype;
    fits &= shape->rank < 0 || shape->rank == said->shape.rank + skip;
    for (int d = 0; fits && shape->rank >= 0 && d < said->shape.rank; d++)
        fits = shape->dim[d + skip] < 0 || said->shape.dim[d] < 0 ||
               shape->dim[d + skip] == said->shape.dim[d];
    return fits;
}

/* Can all be that are there? */
static bool are_said(const pare_port *ports, int count, const pare_config_tensor *said,
                     int said_count, int skip)
{
    for (int i = 0; i < said_count; i++)
        for (int k = 0; k < count; k++)
            if (!strcmp(ports[k].name, said[i].name) && !is_said(&ports[k], &said[i], skip))
                return false;
    return true;
}

/* Where max_batch_size is not said, dims that fit no axis of samples, but whole tensors, are
   whole: as if it were 0. */
static bool has_whole_dims(const pare_served *s)
{
    bool fits[2];
    const pare_serve_config *c = &s->options.config;
    for (int skip = 0; skip < 2; skip++)
        fits[skip] = are_said(s->input, s->input_count, c->input, c->input_count, skip) &&
                     are_said(s->output, s->output_count, c->output, c->output_count, skip);
    return c->is_auto && fits[0] && !fits[1];
}

static pare_status check_tensor(pare_served *s, const pare_config_tensor *said, pare_port *ports,
                                int count, const char *kind)
{
    char have[256], given[256];
    const int skip = s->options.config.max_batch > 0;
    int i = 0;
    while (i < count && strcmp(ports[i].name, said->name) != 0) i++;
    if (i == count)
        return PARE_FAIL(&s->ctx, INPUT, "%s: has no %s '%s', which config.pbtxt names",
                         s->options.path, kind, said->name);
    const pare_shape *shape = &ports[i].shape;
    const bool fits = is_said(&ports[i], said, skip);
    if (fits && said->labels)
        return pare_labels_read(&s->arena, &ports[i].labels, said->labels_path, said->labels);
    if (fits) return PARE_OK;
    return PARE_FAIL(&s->ctx, INPUT, "%s: %s '%s' is %s %s, config.pbtxt has %s %s%s",
                     s->options.path, kind, said->name, pare_type(ports[i].dtype)->name,
                     pare_shape_text(shape, have, sizeof have), pare_type(said->dtype)->name,
                     pare_shape_text(&said->shape, given, sizeof given),
                     !skip                       ? ""
                     : s->options.config.is_auto ? " behind the axis of samples, as max_batch_size "
                                                   "is not given; with 0 dims are whole"
                                                 : " behind the axis of samples");
}

static pare_status check_samples(pare_served *s)
{
    pare_serve_config *c = &s->options.config;
    const bool samples = has_samples(s);
    if (!samples && c->max_batch && !c->is_auto)
        return PARE_FAIL(&s->ctx, INPUT,
                         "%s: config.pbtxt says max_batch_size %lld, but not every input and "
                         "output has a free first axis",
                         s->options.path, (long long)c->max_batch);
    if (!samples || has_whole_dims(s)) {
        if (c->max_batch && c->asks_batches)
            pare_log(&s->ctx, PARE_LOG_WARNING, "%s: dynamic_batching makes no batches: %s",
                     s->options.path,
                     samples ? "dims of config.pbtxt are whole, and max_batch_size is not given"
                             : "not every input and output has a free first axis");
        c->max_batch = 0;
    }
    if (!c->max_batch) c->merge = false;
    return PARE_OK;
}

static pare_status check_tensors(pare_served *s)
{
    const pare_serve_config *c = &s->options.config;
    for (int i = 0; i < c->input_count; i++)
        PARE_TRY(check_tensor(s, &c->input[i], s->input, s->input_count, "input"));
    for (int i = 0; i < c->output_count; i++)
        PARE_TRY(check_tensor(s, &c->output[i], s->output, s->output_count, "output"));
    return PARE_OK;
}

/* --- opening --- */

static pare_status try_samples(pare_served *s)
{
    char why[1024] = "";
    pare_serve_config *c = &s->options.config;
    s->fills_up = true;
    for (int i = 0; i < s->site_count && s->fills_up; i++)
        PARE_TRY(pare_served_probe(s, &s->site[i], &s->fills_up, why, sizeof why));
    if (s->fills_up || !c->merge) return PARE_OK;
    pare_log(&s->ctx, PARE_LOG_WARNING, "%s: requests are not batched: %s", s->options.path, why);
    c->merge = false;
    return PARE_OK;
}

static pare_status start_site(pare_served *s, pare_site *site)
{
    for (int i = 0; i < site->instances; i++, s->running++) {
        pare_instance *one = &s->instance[s->running];
        *one = (pare_instance){.served = s, .site = site, .index = i};
        if (pthread_create(&one->thread, NULL, pare_instance_main, one))
            return PARE_FAIL(&s->ctx, MEMORY, "%s: no thread for instance %d", s->options.path,
                             s->running);
    }
    return PARE_OK;
}

static pare_status start(pare_served *s)
{
    const pare_serve_config *c = &s->options.config;
    pare_batcher_options queue = {.rows = c->max_batch ? c->max_batch : 1,
                                  .merge = c->merge,
                                  .limit = c->queue && !s->sequences ? c->queue : INT64_MAX,
                                  .wait = s->sequences ? 0 : 1e-6 * (double)c->wait,
                                  .instances = (int)c->instances,
                                  .delay = c->merge ? 1e-6 * (double)c->delay : 0,
                                  .preferred_count = c->preferred_count,
                                  .alike = pare_infer_job_alike};
    memcpy(queue.preferred, c->preferred, sizeof queue.preferred);
    PARE_TRY(pare_batcher_new(&s->ctx, &s->batcher, &queue));
    s->instance = pare_arena_alloc(&s->arena, (size_t)c->instances, sizeof *s->instance);
    if (!s->instance) return PARE_MEMORY;
    for (int i = 0; i < s->site_count; i++) PARE_TRY(start_site(s, &s->site[i]));
    return PARE_OK;
}

/* What is of the caller, and was read. */
static void forget_texts(pare_serve_config *c)
{
    c->file = NULL;
    c->sequences = (pare_sequence_config){0};
    c->preprocess = (pare_preprocess_config){0};
    c->input = c->output = NULL;
    c->step = NULL;
    c->input_count = c->output_count = c->step_count = 0;
}

static pare_status fill(pare_served *s)
{
    pare_served_options *o = &s->options;
    o->path = pare_arena_strdup(&s->arena, o->path);
    o->name = s->name = pare_arena_strdup(&s->arena, o->name);
    if (!o->path || !s->name) return PARE_MEMORY;
    if (o->config.step_count) {
        PARE_TRY(pare_ensemble_fill(s));
        forget_texts(&o->config);
        return PARE_OK;
    }
    PARE_TRY(pare_onnx_read_copy(&s->ctx, &s->model, o->path)); /* for its file may be replaced */
    PARE_TRY(read_ports(s));
    PARE_TRY(check_samples(s));
    PARE_TRY(pare_sites_open(s));
    PARE_TRY(try_samples(s));
    PARE_TRY(pare_preprocess_bind(s)); /* from here on the inputs are what clients see */
    PARE_TRY(check_tensors(s));
    PARE_TRY(pare_sequences_new(s));
    forget_texts(&o->config);
    return start(s);
}

pare_status pare_served_open(pare_ctx *ctx, pare_served **out, const pare_served_options *options)
{
    pare_served *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_ctx_child(&s->ctx, ctx);
    pare_arena_init(&s->arena, &s->ctx);
    pare_served_stats_init(&s->stats);
    s->options = *options;
    s->references = 1;
    pare_status st = fill(s);
    if (st == PARE_OK) {
        *out = s;
        return PARE_OK;
    }
    (void)pare_fail(ctx, st, "%s", s->ctx.message);
    pare_served_close(s);
    return st;
}

void pare_served_close(pare_served *s)
{
    if (!s) return;
    if (s->batcher) pare_batcher_close(s->batcher);
    for (int i = 0; i < s->running; i++) (void)pthread_join(s->instance[i].thread, NULL);
    pare_sequences_free(s->sequences);
    pare_batcher_free(s->batcher);
    pare_sites_close(s);
    pare_model_free(s->model);
    pare_served_stats_free(&s->stats);
    pare_arena_free(&s->arena);
    pare_free(s);
#ifdef __GLIBC__
    (void)malloc_trim(0); /* threads that come and go leave free pages in many of its heaps */
#endif
}

void pare_served_keep(pare_served *s)
{
    (void)__atomic_fetch_add(&s->references, 1, __ATOMIC_RELAXED);
}

void pare_served_release(pare_served *s)
{
    if (__atomic_sub_fetch(&s->references, 1, __ATOMIC_ACQ_REL) == 0)
        s->options.idle(s->options.user, s);
}
