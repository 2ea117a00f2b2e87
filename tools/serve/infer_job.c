/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/infer_job.h"

#include "runtime/base/clock.h"
#include "tools/serve/http/encoding.h"
#include "tools/serve/traffic/sequences.h"
#include "tools/serve/traffic/shadow.h"

#include <math.h>
#include <string.h>

/* --- inputs --- */

static pare_status check_input(const pare_served *s, pare_ctx *ctx, const pare_port *port,
                               const pare_infer_tensor *t)
{
    char takes[256], has[256];
    pare_shape given = {.rank = t->rank};
    memcpy(given.dim, t->dim, sizeof given.dim);
    if (t->dtype != port->dtype)
        return PARE_FAIL(ctx, INPUT, "model '%s': input '%s' is %s, expected %s", s->name,
                         port->name, pare_infer_type_name(t->dtype),
                         pare_infer_type_name(port->dtype));
    bool fits = given.rank == port->shape.rank;
    for (int d = 0; fits && d < given.rank; d++)
        fits = port->shape.dim[d] < 0 || port->shape.dim[d] == given.dim[d];
    if (fits) return PARE_OK;
    return PARE_FAIL(ctx, INPUT, "model '%s': input '%s' has shape %s, expected %s", s->name,
                     port->name, pare_shape_text(&given, has, sizeof has),
                     pare_shape_text(&port->shape, takes, sizeof takes));
}

static const pare_infer_tensor *find_input(const pare_infer_request *r, const char *name)
{
    for (int i = 0; i < r->input_count; i++)
        if (!strcmp(r->input[i].name, name)) return &r->input[i];
    return NULL;
}

const pare_infer_tensor *pare_infer_job_given(const pare_infer_job *job, int input)
{
    return find_input(&job->request, job->served->input[input].name);
}

static bool has_port(const pare_port *ports, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!ports[i].is_own && !strcmp(ports[i].name, name)) return true;
    return false;
}

/* Samples of the request: the first axis of all inputs, or 1. */
static pare_status count_rows(pare_infer_job *job)
{
    pare_ctx *ctx = &job->x->ctx;
    const pare_served *s = job->served;
    const int64_t most = s->options.config.max_batch;
    int first = 0;
    while (first < s->input_count && s->input[first].is_own) first++;
    job->job.rows = 1;
    if (!most || first == s->input_count) return PARE_OK;
    job->job.rows = job->input[first]->dim[0];
    for (int i = first + 1; i < s->input_count; i++)
        if (!s->input[i].is_own && job->input[i]->dim[0] != job->job.rows)
            return PARE_FAIL(ctx, INPUT,
                             "model '%s': input '%s' has %lld samples, input '%s' has %lld",
                             s->name, s->input[first].name, (long long)job->job.rows,
                             s->input[i].name, (long long)job->input[i]->dim[0]);
    if (job->job.rows >= 1 && job->job.rows <= most) return PARE_OK;
    return PARE_FAIL(ctx, INPUT, "model '%s': a request of %lld samples, expected 1 to %lld",
                     s->name, (long long)job->job.rows, (long long)most);
}

static pare_status match_inputs(pare_infer_job *job)
{
    pare_exchange *x = job->x;
    const pare_served *s = job->served;
    const pare_infer_request *r = &job->request;
    job->input = pare_arena_alloc(&x->arena, (size_t)s->input_count + 1, sizeof *job->input);
    if (!job->input) return PARE_MEMORY;
    for (int i = 0; i < r->input_count; i++)
        if (!has_port(s->input, s->input_count, r->input[i].name))
            return PARE_FAIL(&x->ctx, INPUT, "model '%s': has no input '%s'", s->name,
                             r->input[i].name);
    for (int i = 0; i < s->input_count; i++) {
        if (s->input[i].is_own) continue;
        job->input[i] = find_input(r, s->input[i].name);
        if (!job->input[i])
            return PARE_FAIL(&x->ctx, INPUT, "model '%s': input '%s' is missing", s->name,
                             s->input[i].name);
        if (!pare_preprocess_takes(s, i, job->input[i]->dtype, job->input[i]->rank,
                                   job->input[i]->dim))
            PARE_TRY(check_input(s, &x->ctx, &s->input[i], job->input[i]));
    }
    return count_rows(job);
}

/* --- outputs --- */

static pare_status match_outputs(pare_infer_job *job)
{
    pare_exchange *x = job->x;
    const pare_served *s = job->served;
    const pare_infer_request *r = &job->request;
    const size_t count = (size_t)(r->wanted_count ? r->wanted_count : s->output_count);
    const size_t all = count + (size_t)pare_sequences_state_count(s->sequences);
    job->output = pare_arena_alloc(&x->arena, all + 1, sizeof *job->output);
    job->wanted = pare_arena_alloc(&x->arena, all + 1, sizeof *job->wanted);
    if (!job->output || !job->wanted) return PARE_MEMORY;
    for (int i = 0; i < s->output_count && !r->wanted_count; i++) {
        if (s->output[i].is_own) continue;
        job->output[job->wanted_count] = i;
        job->wanted[job->wanted_count++] =
            (pare_infer_wanted){.name = s->output[i].name, .binary = r->binary};
    }
    for (int i = 0; i < r->wanted_count; i++) {
        int at = 0;
        job->wanted[i] = r->wanted[i];
        while (at < s->output_count && strcmp(s->output[at].name, job->wanted[i].name) != 0) at++;
        if (at == s->output_count || s->output[at].is_own)
            return PARE_FAIL(&x->ctx, INPUT, "model '%s': has no output '%s'", s->name,
                             job->wanted[i].name);
        job->output[i] = at;
        job->wanted_count = i + 1;
    }
    return PARE_OK;
}

/* --- shared memory --- */

static pare_status hold(pare_infer_job *job, pare_regions *regions, const pare_infer_place *place,
                        pare_region **out)
{
    if (!place->region) return PARE_OK;
    if (!regions)
        return PARE_FAIL(&job->x->ctx, UNSUPPORTED,
                         "shared memory is not served; pare serve --shared-memory or "
                         "--cuda-shared-memory allows it");
    return pare_regions_find(regions, &job->x->ctx, out, place->region, place->offset,
                             place->bytes);
}

/* Strings are taken apart at once, and pictures read; other numbers are when they are needed. */
static pare_status fetch(pare_infer_job *job, int i)
{
    pare_arena *arena = &job->x->arena;
    pare_infer_tensor *t = (pare_infer_tensor *)job->input[i]; /* of job->request */
    if (!pare_exchange_hold(job->x, (size_t)t->place.bytes)) return PARE_MEMORY;
    char *data = pare_arena_alloc(arena, (size_t)t->place.bytes, 1);
    if (!data) return PARE_MEMORY;
    PARE_TRY(pare_region_read(job->source[i], arena->ctx, data, t->place.offset,
                              (size_t)t->place.bytes));
    if (t->dtype != PARE_string) {
        t->data = data;
        return PARE_OK;
    }
    return pare_infer_strings(arena, t, t->name, data, (size_t)t->place.bytes);
}

pare_status pare_infer_job_rows(const pare_infer_job *job, int input, void *to, pare_ctx *ctx)
{
    const pare_infer_tensor *t = job->input[input];
    if (!t->data && t->bytes)
        return pare_region_read(job->source[input], ctx, to, t->place.offset, t->bytes);
    if (t->bytes) memcpy(to, t->data, t->bytes);
    return PARE_OK;
}

static pare_status hold_all(pare_infer_job *job, pare_regions *regions)
{
    const int inputs = job->served->input_count;
    pare_arena *arena = &job->x->arena;
    job->source = pare_arena_alloc(arena, (size_t)inputs + 1, sizeof *job->source);
    job->target = pare_arena_alloc(arena, (size_t)job->wanted_count + 1, sizeof *job->target);
    job->is_put = pare_arena_alloc(arena, (size_t)job->wanted_count + 1, sizeof *job->is_put);
    if (!job->source || !job->target || !job->is_put) return PARE_MEMORY;
    for (int i = 0; i < inputs; i++) {
        PARE_TRY(hold(job, regions, &job->input[i]->place, &job->source[i]));
        const bool is_picture = job->served->preprocess && job->served->preprocess->input == i;
        if (job->source[i] && (job->input[i]->dtype == PARE_string || is_picture))
            PARE_TRY(fetch(job, i));
    }
    for (int i = 0; i < job->wanted_count; i++)
        PARE_TRY(hold(job, regions, &job->wanted[i].place, &job->target[i]));
    return PARE_OK;
}

void pare_infer_job_release(pare_infer_job *job)
{
    if (!job) return;
    pare_shadowed_free(job->copy);
    job->copy = NULL;
    free(job->pixels);
    job->pixels = NULL;
    if (!job->source || !job->target) return;
    for (int i = 0; i < job->served->input_count; i++)
        if (job->source[i]) pare_region_release(job->source[i]);
    for (int i = 0; i < job->wanted_count; i++)
        if (job->target[i]) pare_region_release(job->target[i]);
}

/* --- the job --- */

bool pare_infer_job_is_picture(const pare_exchange *x)
{
    return x->json_bytes && !strcmp(x->json_bytes, "0");
}

/* A body without JSON is the one picture of a model whose only input takes pictures. */
static pare_status read_picture(pare_infer_job *job)
{
    pare_exchange *x = job->x;
    const pare_served *s = job->served;
    PARE_TRY(pare_encoding_decode(x));
    if (!s->preprocess || s->input_count != 1)
        return PARE_FAIL(&x->ctx, INPUT,
                         "model '%s': Inference-Header-Content-Length is 0, which models are asked "
                         "with whose only input takes pictures%s",
                         s->name, s->ensemble ? "; an ensemble takes them as BYTES tensors" : "");
    pare_infer_tensor *t = pare_arena_alloc(&x->arena, 1, sizeof *t);
    pare_bytes *picture = pare_arena_alloc(&x->arena, 1, sizeof *picture);
    if (!t || !picture) return PARE_MEMORY;
    *picture = (pare_bytes){x->body, x->bytes};
    *t = (pare_infer_tensor){.name = s->input[0].name,
                             .dtype = PARE_string,
                             .rank = s->input[0].shape.rank,
                             .dim = {1, 1},
                             .data = picture,
                             .bytes = sizeof *picture};
    job->request = (pare_infer_request){.input = t, .input_count = 1};
    return PARE_OK;
}

static void set_order(pare_infer_job *job)
{
    const pare_serve_config *c = &job->served->options.config;
    const pare_infer_request *r = &job->request;
    const int64_t level = r->priority ? r->priority : c->level;
    const int64_t timeout = c->own_timeout && r->timeout ? r->timeout : c->timeout;
    job->job.priority = level < c->levels ? level : c->levels;
    if (job->x->is_unseen) job->job.priority = PARE_BACKGROUND;
    job->job.deadline = timeout ? job->job.queued + 1e-6 * (double)timeout : INFINITY;
    if (job->x->deadline > 0) job->job.deadline = fmin(job->job.deadline, job->x->deadline);
}

pare_status pare_infer_job_read(pare_exchange *x, pare_infer_request *out)
{
    return x->form->read(x, out);
}

pare_status pare_infer_job_new(pare_infer_job **out, pare_served *served, pare_exchange *x,
                               const pare_infer_request *request, pare_regions *regions)
{
    pare_infer_job *job = *out = pare_arena_alloc(&x->arena, 1, sizeof *job);
    if (!job) return PARE_MEMORY;
    job->served = served;
    job->x = x;
    job->job.queued = pare_seconds();
    if (request)
        job->request = *request;
    else if (pare_infer_job_is_picture(x))
        PARE_TRY(read_picture(job));
    else
        PARE_TRY(pare_infer_job_read(x, &job->request));
    PARE_TRY(match_inputs(job));
    PARE_TRY(match_outputs(job));
    PARE_TRY(pare_sequences_extend(job));
    PARE_TRY(hold_all(job, regions));
    set_order(job);
    return PARE_OK;
}

/* --- its reply --- */

static pare_status put_shared(void *user, int i, const void *data, size_t bytes)
{
    const pare_infer_job *job = user;
    if (job->is_put[i]) return PARE_OK;
    return pare_region_write(job->target[i], &job->x->ctx, data, job->wanted[i].place.offset,
                             bytes);
}

static pare_status write_reply(pare_infer_job *job, const pare_infer_tensor *output)
{
    pare_exchange *x = job->x;
    const pare_infer_result result = {.model = job->served->name,
                                      .id = job->request.id,
                                      .version = job->served->options.version,
                                      .output = output,
                                      .wanted = job->wanted,
                                      .count = job->wanted_count,
                                      .batched = job->served->options.config.max_batch > 0,
                                      .put = put_shared,
                                      .user = job};
    return x->form->write(x, &result);
}

pare_status pare_infer_job_answer(pare_infer_job *job, const pare_infer_tensor *output)
{
    pare_shadow *shadow = job->served->options.shadow;
    if (job->shadowed)
        PARE_TRY(pare_shadowed_compare(job->shadowed, job, output));
    else
        PARE_TRY(job->keep ? job->keep(job, output) : write_reply(job, output));
    job->x->reply.code = PARE_HTTP_OK;
    if (shadow && !job->x->is_unseen) job->copy = pare_shadowed_new(shadow, job, output);
    return PARE_OK;
}

bool pare_infer_job_alike(const pare_job *a, const pare_job *b)
{
    const pare_infer_job *x = (const pare_infer_job *)a, *y = (const pare_infer_job *)b;
    if (x->x->is_unseen != y->x->is_unseen)
        return false; /* requests do not wait for what is thrown away */
    for (int i = 0; i < x->served->input_count; i++)
        for (int d = 1; d < x->input[i]->rank; d++)
            if (x->input[i]->dim[d] != y->input[i]->dim[d]) return false;
    return true;
}

void pare_infer_job_fail(pare_infer_job *job, pare_status st)
{
    pare_served *s = job->served;
    pare_served_stats_failure(&s->stats, pare_seconds() - job->job.queued);
    pare_infer_job_release(job);
    pare_exchange_fail(job->x, pare_reply_code(st)); /* the job is gone now */
    pare_served_release(s);
}
