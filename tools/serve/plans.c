/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/plans.h"

#include "runtime/eval/eval.h"

#include <pthread.h>

enum { KEPT = 16 }; /* plans that no one need use */

struct pare_plans {
    pare_ctx ctx; /* of the plans and replicas */
    const pare_model *model;
    pare_plans_options options;
    pare_gpu **ordered;   /* (gpu_count) by their numbers */
    pthread_mutex_t own;  /* in place of theirs on the CPU */
    pthread_mutex_t lock; /* of what follows; taken with the right to make held, or without */
    pare_planned **item;
    size_t count, capacity;
    uint64_t turn;
};

/* --- the right to make and free plans on all the GPUs, to record there, and to the context --- */

/* Whoever takes several locks takes them in the order of the GPUs. */
static void making_begin(pare_plans *p)
{
    if (!p->options.gpu_count) (void)pthread_mutex_lock(&p->own);
    for (int i = 0; i < p->options.gpu_count; i++) (void)pthread_mutex_lock(&p->ordered[i]->making);
}

static void making_end(pare_plans *p)
{
    if (!p->options.gpu_count) (void)pthread_mutex_unlock(&p->own);
    for (int i = p->options.gpu_count - 1; i >= 0; i--)
        (void)pthread_mutex_unlock(&p->ordered[i]->making);
}

static void order(pare_plans *p)
{
    for (int i = 0; i < p->options.gpu_count; i++) {
        int at = i;
        pare_gpu *gpu = p->options.gpu[i];
        for (; at > 0 && p->ordered[at - 1]->device->index > gpu->device->index; at--)
            p->ordered[at] = p->ordered[at - 1];
        p->ordered[at] = gpu;
    }
}

pare_status pare_plans_new(pare_ctx *ctx, pare_plans **out, const pare_model *model,
                           const pare_plans_options *options)
{
    pare_plans *p = pare_alloc(ctx, 1, sizeof *p);
    pare_gpu **ordered = pare_alloc(ctx, (size_t)options->gpu_count + 1, sizeof *ordered);
    if (!p || !ordered) {
        pare_free(p);
        pare_free(ordered);
        return PARE_MEMORY;
    }
    pare_ctx_child(&p->ctx, ctx);
    p->model = model;
    p->options = *options;
    p->ordered = ordered;
    order(p);
    (void)pthread_mutex_init(&p->own, NULL); /* on Linux it does not fail */
    (void)pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return PARE_OK;
}

static void planned_free(pare_planned *one)
{
    if (!one) return;
    pare_replicas_free(one->replicas);
    pare_chain_plan_free(one->stages);
    pare_free(one->shape);
    pare_free(one);
}

void pare_plans_free(pare_plans *p)
{
    if (!p) return;
    making_begin(p);
    for (size_t i = 0; i < p->count; i++) planned_free(p->item[i]);
    making_end(p);
    pare_free(p->item);
    pare_free(p->ordered);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_mutex_destroy(&p->own);
    pare_free(p);
}

static bool serves(const pare_planned *one, const pare_input_shape *shapes, int count)
{
    for (int i = 0; i < pare_plan_input_count(one->first); i++) {
        const pare_shape *asked =
            pare_input_shape_find(shapes, count, pare_plan_input(one->first, i)->name);
        if (asked && !pare_shape_equal(asked, &one->shape[i])) return false;
    }
    return true;
}

/* The second run is recorded: now, when no one else makes or frees anything on the GPU. Made-up
   inputs may be wrong for the model; then its first requests record (pare_plans_run). */
static pare_status warm_up(pare_plans *p, const pare_replicas *replicas)
{
    for (int i = 0; i < pare_replicas_count(replicas); i++) {
        pare_replica *replica = pare_replicas_at(replicas, i);
        pare_measure_fill(replica->runner);
        for (int turn = 0; turn < 2; turn++) {
            const pare_batch_work work = {0};
            const pare_status st = pare_replica_run(replica, 0, 1, &work);
            if (st == PARE_DEVICE || st == PARE_MEMORY)
                return pare_fail(&p->ctx, st, "%s", replica->ctx.message);
            pare_ctx_clear(&replica->ctx);
        }
    }
    return PARE_OK;
}

/* A stage on each GPU, or the whole on the CPU. */
static pare_status plan_stages(pare_plans *p, pare_planned *one, const pare_input_shape *shapes,
                               int count)
{
    const int gpus = p->options.gpu_count;
    const pare_plan_options options = {
        .threads = 1, .deterministic = true, .stage_weights = p->options.stage_weights};
    pare_device **device = pare_alloc(&p->ctx, (size_t)gpus + 1, sizeof *device);
    if (!device) return PARE_MEMORY;
    for (int i = 0; i < gpus; i++) device[i] = p->options.gpu[i]->device;
    const pare_status st = pare_chain_plan_new(&p->ctx, &one->stages, p->model, shapes, count,
                                               &options, device, gpus ? gpus : 1);
    pare_free(device);
    PARE_TRY(st);
    one->first = one->stages->stage[0];
    one->last = one->stages->stage[one->stages->count - 1];
    return PARE_OK;
}

static pare_status planned_fill(pare_plans *p, pare_planned *one, const pare_input_shape *shapes,
                                int count)
{
    PARE_TRY(plan_stages(p, one, shapes, count));
    const pare_replicas_options pool = {.threads = p->options.instances,
                                        .concurrent = true,
                                        .chain = one->stages->count > 1 ? one->stages : NULL};
    const int inputs = pare_plan_input_count(one->first);
    one->shape = pare_alloc(&p->ctx, (size_t)inputs + 1, sizeof *one->shape);
    if (!one->shape) return PARE_MEMORY;
    for (int i = 0; i < inputs; i++) one->shape[i] = pare_plan_input(one->first, i)->shape;
    PARE_TRY(pare_replicas_new(&p->ctx, &one->replicas, one->first, &pool));
    return p->options.gpu_count ? warm_up(p, one->replicas) : PARE_OK;
}

/* Under the lock: takes out the plan that was not used for longest, where `most` or more are kept;
   NULL: none. */
static pare_planned *take_oldest(pare_plans *p, size_t most)
{
    size_t oldest = p->count;
    for (size_t i = 0; i < p->count; i++)
        if (!p->item[i]->users && (oldest == p->count || p->item[i]->used < p->item[oldest]->used))
            oldest = i;
    if (p->count < most || oldest == p->count) return NULL;
    pare_planned *one = p->item[oldest];
    p->item[oldest] = p->item[--p->count];
    return one;
}

/* Puts a plan into the list, where there is room for it; then it is in use. */
static pare_status insert(pare_plans *p, pare_planned *one)
{
    (void)pthread_mutex_lock(&p->lock);
    pare_planned *old = take_oldest(p, KEPT);
    const bool has_room =
        pare_grow(&p->ctx, &p->item, &p->capacity, p->count, sizeof(pare_planned *));
    if (has_room) {
        p->item[p->count++] = one;
        one->users = 1;
        one->used = ++p->turn;
    }
    (void)pthread_mutex_unlock(&p->lock);
    planned_free(old);
    return has_room ? PARE_OK : PARE_MEMORY;
}

static pare_status make(pare_plans *p, pare_planned **out, const pare_input_shape *shapes,
                        int count)
{
    pare_planned *one = pare_alloc(&p->ctx, 1, sizeof *one);
    if (!one) return PARE_MEMORY;
    pare_status st = planned_fill(p, one, shapes, count);
    if (st == PARE_OK) st = insert(p, one);
    if (st != PARE_OK) {
        planned_free(one);
        return st;
    }
    *out = one;
    return PARE_OK;
}

/* Frees the plan that no one has used for longest; false: there is none. */
static bool free_oldest(pare_plans *p)
{
    (void)pthread_mutex_lock(&p->lock);
    pare_planned *old = take_oldest(p, 0);
    (void)pthread_mutex_unlock(&p->lock);
    planned_free(old);
    return old != NULL;
}

/* Where memory is out, plans that are kept in case go first. */
static pare_status make_with_room(pare_plans *p, pare_planned **out, const pare_input_shape *shapes,
                                  int count)
{
    pare_status st = make(p, out, shapes, count);
    while (st == PARE_MEMORY && free_oldest(p)) {
        pare_ctx_clear(&p->ctx);
        st = make(p, out, shapes, count);
    }
    return st;
}

/* The plan for these shapes, in use from now on; NULL: there is none. */
static pare_planned *find_planned(pare_plans *p, const pare_input_shape *shapes, int count)
{
    pare_planned *found = NULL;
    (void)pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->count && !found; i++)
        if (serves(p->item[i], shapes, count)) found = p->item[i];
    if (found) {
        found->users++;
        found->used = ++p->turn;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return found;
}

pare_status pare_plans_get(pare_plans *p, pare_ctx *ctx, pare_planned **out,
                           const pare_input_shape *shapes, int count)
{
    pare_status st = PARE_OK;
    *out = find_planned(p, shapes, count);
    if (*out) return PARE_OK;
    making_begin(p);
    *out = find_planned(p, shapes, count); /* which another has made meanwhile */
    if (!*out) st = make_with_room(p, out, shapes, count);
    if (st != PARE_OK && p->ctx.message[0]) (void)pare_fail(ctx, st, "%s", p->ctx.message);
    pare_ctx_clear(&p->ctx);
    making_end(p);
    return st;
}

pare_status pare_plans_run(pare_plans *p, pare_replica *replica, const pare_batch_work *work)
{
    const bool records = !pare_replica_is_recorded(replica);
    if (records) making_begin(p);
    pare_ctx_clear(&replica->ctx);
    const pare_status st = pare_replica_run(replica, 0, 1, work);
    if (records) making_end(p);
    return st;
}

void pare_plans_put(pare_plans *p, pare_planned *planned)
{
    (void)pthread_mutex_lock(&p->lock);
    const bool is_last = --planned->users == 0 && planned->is_dropped;
    (void)pthread_mutex_unlock(&p->lock);
    if (!is_last) return;
    making_begin(p);
    planned_free(planned);
    making_end(p);
}

void pare_plans_drop(pare_plans *p, pare_planned *planned)
{
    (void)pthread_mutex_lock(&p->lock);
    planned->is_dropped = true;
    for (size_t i = 0; i < p->count; i++)
        if (p->item[i] == planned) p->item[i] = p->item[--p->count];
    (void)pthread_mutex_unlock(&p->lock);
    pare_plans_put(p, planned);
}
