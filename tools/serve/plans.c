/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/plans.h"

#include <pthread.h>

enum { KEPT = 16 }; /* plans that no one need use */

struct pare_plans {
    pare_ctx ctx; /* of the plans and replicas */
    const pare_model *model;
    int instances;
    pthread_mutex_t making; /* of who makes a plan, and of the context; runs do not wait for it */
    pthread_mutex_t lock;   /* of what follows; taken with `making` held, or without */
    pare_planned **item;
    size_t count, capacity;
    uint64_t turn;
};

pare_status pare_plans_new(pare_ctx *ctx, pare_plans **out, const pare_model *model, int instances)
{
    pare_plans *p = pare_alloc(ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    pare_ctx_child(&p->ctx, ctx);
    p->model = model;
    p->instances = instances;
    (void)pthread_mutex_init(&p->making, NULL); /* on Linux it does not fail */
    (void)pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return PARE_OK;
}

static void planned_free(pare_planned *one)
{
    if (!one) return;
    pare_replicas_free(one->replicas);
    pare_plan_free(one->plan);
    pare_free(one->shape);
    pare_free(one);
}

void pare_plans_free(pare_plans *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->count; i++) planned_free(p->item[i]);
    pare_free(p->item);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_mutex_destroy(&p->making);
    pare_free(p);
}

static bool serves(const pare_planned *one, const pare_input_shape *shapes, int count)
{
    for (int i = 0; i < pare_plan_input_count(one->plan); i++) {
        const pare_shape *asked =
            pare_input_shape_find(shapes, count, pare_plan_input(one->plan, i)->name);
        if (asked && !pare_shape_equal(asked, &one->shape[i])) return false;
    }
    return true;
}

static pare_status planned_fill(pare_plans *p, pare_planned *one, const pare_input_shape *shapes,
                                int count)
{
    const pare_plan_options options = {.threads = 1, .deterministic = true};
    const pare_replicas_options pool = {.threads = p->instances};
    PARE_TRY(pare_plan_new(&p->ctx, &one->plan, p->model, shapes, count, &options));
    const int inputs = pare_plan_input_count(one->plan);
    one->shape = pare_alloc(&p->ctx, (size_t)inputs + 1, sizeof *one->shape);
    if (!one->shape) return PARE_MEMORY;
    for (int i = 0; i < inputs; i++) one->shape[i] = pare_plan_input(one->plan, i)->shape;
    return pare_replicas_new(&p->ctx, &one->replicas, one->plan, &pool);
}

/* Under the lock: takes out the plan that was not used for longest, where more are kept than should
   be; NULL: none. */
static pare_planned *take_oldest(pare_plans *p)
{
    size_t oldest = p->count;
    for (size_t i = 0; i < p->count; i++)
        if (!p->item[i]->users && (oldest == p->count || p->item[i]->used < p->item[oldest]->used))
            oldest = i;
    if (p->count < KEPT || oldest == p->count) return NULL;
    pare_planned *one = p->item[oldest];
    p->item[oldest] = p->item[--p->count];
    return one;
}

/* Puts a plan into the list, where there is room for it; then it is in use. */
static pare_status insert(pare_plans *p, pare_planned *one)
{
    (void)pthread_mutex_lock(&p->lock);
    pare_planned *old = take_oldest(p);
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
    (void)pthread_mutex_lock(&p->making);
    *out = find_planned(p, shapes, count); /* which another has made meanwhile */
    if (!*out) st = make(p, out, shapes, count);
    if (st != PARE_OK && p->ctx.message[0]) (void)pare_fail(ctx, st, "%s", p->ctx.message);
    pare_ctx_clear(&p->ctx);
    (void)pthread_mutex_unlock(&p->making);
    return st;
}

void pare_plans_put(pare_plans *p, pare_planned *planned)
{
    (void)pthread_mutex_lock(&p->lock);
    planned->users--;
    (void)pthread_mutex_unlock(&p->lock);
}
