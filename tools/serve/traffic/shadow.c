/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/traffic/shadow.h"

#include "formats/json.h"
#include "tools/serve/repository.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pare_shadow {
    pare_shadows *shadows;
    const char *model, *other, *label; /* label: OTHER or OTHER/VERSION */
    int64_t version;                   /* 0: that which answers who names none */
    pare_shadow_stats stats;
    int64_t under_way; /* changed atomically */
};

struct pare_shadows {
    pare_ctx ctx;
    pare_arena arena;
    pare_shadows_options options;
    pare_shadow *shadow;
    int count;
    pare_repository *repository;
    pthread_mutex_t lock;
    pthread_cond_t quiet;
    int64_t under_way; /* of all, under the lock */
};

/* A request that was answered, and its run by the other model. */
struct pare_shadowed {
    pare_exchange x; /* first; tensors live in its arena */
    pare_shadowed *next;
    pare_shadow *shadow;
    pare_infer_request request;
    pare_infer_tensor *output; /* (count) the first model's */
    int count, top;            /* top: which of them is the model's first output, or -1 */
    bool batched;
    pare_infer_job *job; /* of the run */
    double seconds[PARE_STAGES];
};

/* --- rules --- */

static pare_status read_rule(pare_shadows *s, pare_ctx *ctx, const char *rule, pare_shadow *out)
{
    const char *equals = strchr(rule, '='), *slash = equals ? strrchr(equals, '/') : NULL;
    char *end = NULL;
    if (!equals || equals == rule || !equals[1])
        return PARE_FAIL(ctx, USAGE, "--shadow %s: expected MODEL=OTHER", rule);
    errno = 0;
    if (slash) out->version = strtoll(slash + 1, &end, 10);
    if (slash && (errno || end == slash + 1 || *end || out->version < 1 || slash == equals + 1))
        return PARE_FAIL(ctx, USAGE, "--shadow %s: expected MODEL=OTHER/VERSION, a version from 1",
                         rule);
    out->shadows = s;
    out->model = pare_arena_strndup(&s->arena, rule, (size_t)(equals - rule));
    out->label = pare_arena_strdup(&s->arena, equals + 1);
    out->other = slash ? pare_arena_strndup(&s->arena, equals + 1, (size_t)(slash - equals - 1))
                       : out->label;
    if (!out->model || !out->label || !out->other) return PARE_MEMORY;
    if (!slash && !strcmp(out->model, out->other))
        return PARE_FAIL(ctx, USAGE, "--shadow %s: a model does not shadow itself", rule);
    if (pare_shadows_find(s, out->model))
        return PARE_FAIL(ctx, USAGE, "--shadow %s: the model has a shadow already", rule);
    return PARE_OK;
}

pare_status pare_shadows_new(pare_ctx *ctx, pare_shadows **out, const pare_shadows_options *options)
{
    pare_shadows *s = pare_alloc(ctx, 1, sizeof *s);
    pare_status st = PARE_OK;
    if (!s) return PARE_MEMORY;
    pare_ctx_child(&s->ctx, ctx);
    s->ctx.interrupted = NULL;
    pare_arena_init(&s->arena, &s->ctx);
    s->options = *options;
    (void)pthread_mutex_init(&s->lock, NULL); /* on Linux none of these fails */
    (void)pthread_cond_init(&s->quiet, NULL);
    s->shadow = pare_arena_alloc(&s->arena, (size_t)options->count + 1, sizeof *s->shadow);
    if (!s->shadow) st = PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < options->count; i++) {
        pare_shadow_stats_init(&s->shadow[i].stats);
        st = read_rule(s, ctx, options->rule[i], &s->shadow[i]);
        s->count++;
    }
    if (st == PARE_OK)
        *out = s;
    else
        pare_shadows_free(s);
    return st;
}

void pare_shadows_free(pare_shadows *s)
{
    if (!s) return;
    for (int i = 0; i < s->count; i++) pare_shadow_stats_free(&s->shadow[i].stats);
    (void)pthread_cond_destroy(&s->quiet);
    (void)pthread_mutex_destroy(&s->lock);
    pare_arena_free(&s->arena);
    pare_free(s);
}

pare_status pare_shadows_start(pare_shadows *s, pare_ctx *ctx, pare_repository *repository)
{
    s->repository = repository;
    for (int i = 0; i < s->count; i++) {
        pare_served *found;
        const pare_shadow *one = &s->shadow[i];
        PARE_TRY(pare_repository_find(repository, ctx, &found, one->model, 0));
        pare_served_release(found);
        PARE_TRY(pare_repository_find(repository, ctx, &found, one->other, one->version));
        pare_served_release(found);
    }
    return PARE_OK;
}

pare_shadow *pare_shadows_find(pare_shadows *s, const char *model)
{
    for (int i = 0; s && i < s->count; i++)
        if (!strcmp(s->shadow[i].model, model)) return &s->shadow[i];
    return NULL;
}

bool pare_shadows_runs(const pare_shadows *s, const char *model)
{
    for (int i = 0; s && i < s->count; i++)
        if (!strcmp(s->shadow[i].other, model) && strcmp(s->shadow[i].model, model) != 0)
            return true;
    return false;
}

int pare_shadows_count(const pare_shadows *s) { return s ? s->count : 0; }
pare_shadow *pare_shadows_at(const pare_shadows *s, int i) { return &s->shadow[i]; }
const char *pare_shadow_model(const pare_shadow *shadow) { return shadow->model; }
const char *pare_shadow_other(const pare_shadow *shadow) { return shadow->label; }
pare_shadow_stats *pare_shadow_stats_of(pare_shadow *shadow) { return &shadow->stats; }

json_t *pare_shadow_json(pare_shadow *shadow)
{
    json_t *json =
        json_pack("{s:o, s:o, s:f}", "model", pare_json_text(shadow->model), "shadow",
                  pare_json_text(shadow->label), "share", shadow->shadows->options.share);
    json_object_update_new(json, pare_shadow_stats_json(&shadow->stats));
    return json;
}

/* --- room --- */

/* Room for one more; else it is dropped. */
static bool enter(pare_shadow *shadow)
{
    pare_shadows *s = shadow->shadows;
    (void)pthread_mutex_lock(&s->lock);
    const bool fits = shadow->under_way < s->options.queue;
    shadow->under_way += fits;
    s->under_way += fits;
    (void)pthread_mutex_unlock(&s->lock);
    return fits;
}

static void leave(pare_shadow *shadow)
{
    pare_shadows *s = shadow->shadows;
    (void)pthread_mutex_lock(&s->lock);
    shadow->under_way--;
    if (!--s->under_way) (void)pthread_cond_broadcast(&s->quiet);
    (void)pthread_mutex_unlock(&s->lock);
}

void pare_shadows_drain(pare_shadows *s)
{
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    while (s->under_way) (void)pthread_cond_wait(&s->quiet, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
}

/* --- copies --- */

/* Bytes of a tensor with those of its strings. */
static size_t bytes_of(const pare_infer_tensor *t)
{
    size_t bytes = t->bytes;
    const pare_bytes *text = t->data;
    for (size_t i = 0; t->dtype == PARE_string && i < t->bytes / sizeof *text; i++)
        bytes += text[i].size;
    return bytes;
}

static pare_status copy_strings(pare_arena *arena, pare_infer_tensor *t)
{
    pare_bytes *list = (pare_bytes *)t->data; /* the copy's own */
    for (size_t i = 0; i < t->bytes / sizeof *list; i++) {
        list[i].data = pare_arena_strndup(arena, list[i].size ? list[i].data : "", list[i].size);
        if (!list[i].data) return PARE_MEMORY;
    }
    return PARE_OK;
}

static pare_status copy_tensor(pare_shadowed *one, pare_infer_tensor *to,
                               const pare_infer_tensor *from, const pare_region *region)
{
    pare_arena *arena = &one->x.arena;
    void *data = pare_arena_alloc(arena, from->bytes + 1, 1);
    *to = *from;
    to->place = (pare_infer_place){0};
    to->name = pare_arena_strdup(arena, from->name);
    to->data = data;
    if (!data || !to->name) return PARE_MEMORY;
    if (!from->data && region)
        return pare_region_read(region, &one->x.ctx, data, from->place.offset, from->bytes);
    if (from->bytes) memcpy(data, from->data, from->bytes);
    return from->dtype == PARE_string ? copy_strings(arena, to) : PARE_OK;
}

static pare_status copy_all(pare_shadowed *t, const pare_infer_job *job,
                            const pare_infer_tensor *output)
{
    pare_arena *arena = &t->x.arena;
    pare_infer_request *r = &t->request;
    const int inputs = r->input_count = job->served->input_count;
    const int outputs = t->count = r->wanted_count = job->wanted_count;
    r->input = pare_arena_alloc(arena, (size_t)inputs + 1, sizeof *r->input);
    r->wanted = pare_arena_alloc(arena, (size_t)outputs + 1, sizeof *r->wanted);
    t->output = pare_arena_alloc(arena, (size_t)outputs + 1, sizeof *t->output);
    if (!r->input || !r->wanted || !t->output) return PARE_MEMORY;
    for (int i = 0; i < inputs; i++)
        PARE_TRY(copy_tensor(t, &r->input[i], pare_infer_job_given(job, i), job->source[i]));
    for (int i = 0; i < outputs; i++) {
        PARE_TRY(copy_tensor(t, &t->output[i], &output[i], NULL));
        r->wanted[i] = (pare_infer_wanted){.name = t->output[i].name, .binary = true};
        if (!job->output[i]) t->top = i;
    }
    return PARE_OK;
}

void pare_shadowed_free(pare_shadowed *t)
{
    if (!t) return;
    pare_shadow *shadow = t->shadow;
    pare_exchange_free(&t->x);
    pare_free(t);
    leave(shadow);
}

/* The run's reply: there is none, only how it ended. */
static void on_done(pare_exchange *x)
{
    pare_shadowed *t = (pare_shadowed *)(void *)x;
    if (x->reply.code == PARE_HTTP_OK)
        pare_shadow_stats_times(&t->shadow->stats, t->seconds, t->job->seconds);
    else if (x->reply.code == PARE_HTTP_UNAVAILABLE && x->reply.retry_after)
        pare_shadow_stats_drop(&t->shadow->stats); /* the other model's own queue is full */
    else
        pare_shadow_stats_fail(&t->shadow->stats, x->ctx.message);
    pare_shadowed_free(t);
}

pare_shadowed *pare_shadowed_new(pare_shadow *shadow, const pare_infer_job *job,
                                 const pare_infer_tensor *output)
{
    pare_ctx ctx; /* of this thread */
    pare_shadows *s = shadow->shadows;
    pare_ctx_child(&ctx, &s->ctx);
    if (!pare_shadow_stats_offer(&shadow->stats, s->options.share)) return NULL;
    const bool fits = enter(shadow);
    pare_shadowed *t = fits ? pare_alloc(&ctx, 1, sizeof *t) : NULL;
    if (!t) {
        pare_shadow_stats_drop(&shadow->stats);
        if (fits) leave(shadow);
        return NULL;
    }
    size_t bytes = sizeof *t;
    for (int i = 0; i < job->served->input_count; i++)
        bytes += bytes_of(pare_infer_job_given(job, i));
    for (int i = 0; i < job->wanted_count; i++) bytes += bytes_of(&output[i]);
    pare_exchange_init(&t->x, &s->ctx);
    t->x.done = on_done;
    t->x.is_unseen = true;
    /* Bytes of the copies, and of their runs, count as those of requests do. They may take half of
       what these may, so that no request is refused for them alone. */
    t->x.held = job->x->held;
    t->x.most_held = job->x->most_held / 2;
    t->shadow = shadow;
    t->top = -1;
    t->batched = job->served->options.config.max_batch > 0;
    if (pare_exchange_hold(&t->x, bytes) && copy_all(t, job, output) == PARE_OK) return t;
    pare_shadow_stats_drop(&shadow->stats);
    pare_shadowed_free(t);
    return NULL;
}

void pare_shadowed_note(pare_shadowed *t, const double *seconds, pare_shadowed **list)
{
    memcpy(t->seconds, seconds, sizeof t->seconds);
    t->next = *list;
    *list = t;
}

static void start(pare_shadowed *t)
{
    pare_served *other;
    const pare_shadow *shadow = t->shadow;
    if (pare_repository_find(shadow->shadows->repository, &t->x.ctx, &other, shadow->other,
                             shadow->version) != PARE_OK) {
        pare_exchange_fail(&t->x, PARE_HTTP_NOT_FOUND);
        return;
    }
    const pare_status st = pare_infer_job_new(&t->job, other, &t->x, &t->request, NULL);
    if (t->job) t->job->shadowed = t;
    pare_infer_job_submit(t->job, other, &t->x, st);
}

void pare_shadowed_start(pare_shadowed *list)
{
    for (pare_shadowed *t = list; t; t = list) {
        list = t->next;
        start(t); /* which may free it */
    }
}

pare_status pare_shadowed_compare(pare_shadowed *t, const pare_infer_job *job,
                                  const pare_infer_tensor *output)
{
    char has[256], expected[256];
    for (int i = 0; i < t->count; i++) {
        pare_shape a = {.rank = t->output[i].rank}, b = {.rank = output[i].rank};
        memcpy(a.dim, t->output[i].dim, sizeof a.dim);
        memcpy(b.dim, output[i].dim, sizeof b.dim);
        const bool texts = t->output[i].dtype == PARE_string;
        if (pare_shape_equal(&a, &b) && texts == (output[i].dtype == PARE_string)) continue;
        return PARE_FAIL(&t->x.ctx, INPUT, "model '%s': output '%s' is %s %s, model '%s' has %s %s",
                         job->served->name, output[i].name, pare_type(output[i].dtype)->name,
                         pare_shape_text(&b, has, sizeof has), t->shadow->model,
                         pare_type(t->output[i].dtype)->name,
                         pare_shape_text(&a, expected, sizeof expected));
    }
    return pare_shadow_stats_compare(&t->shadow->stats, &t->x.ctx, t->output, output, t->count,
                                     t->top, t->batched);
}
