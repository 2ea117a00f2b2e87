/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/conv/dnn_kept.h"
#include "runtime/base/size.h"

#include <string.h>

/* --- answers of a device, which is locked --- */

static void answers_trim(pare_cuda_dnn *d)
{
    int unused = 0;
    for (pare_dnn_answers **at = &d->answers; *at;) {
        pare_dnn_answers *a = *at;
        if (a->users || ++unused <= PARE_DNN_UNUSED) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        a->next = NULL;
        pare_dnn_answers_free(&d->api, a);
    }
}

static pare_dnn_answers *answers_put(pare_cuda_dnn *d, pare_dnn_answers *a)
{
    a->next = d->answers;
    return d->answers = a;
}

static pare_dnn_answers *answers_take(pare_cuda_dnn *d, const pare_dnn_conv *conv)
{
    pare_dnn_answers **at = &d->answers;
    while (*at && memcmp(&(*at)->of, conv, sizeof *conv)) at = &(*at)->next;
    pare_dnn_answers *a = *at;
    if (a) *at = a->next;
    return a;
}

/* NULL: a call failed. */
static pare_dnn_answers *answers_find(const pare_prep *prep, pare_cuda_dnn *d,
                                      const pare_dnn_conv *conv)
{
    pare_dnn_answers *a = answers_take(d, conv);
    if (a) return answers_put(d, a);
    const pare_dnn_target at = {&d->api, d->handle, NULL};
    pare_status st = prep->device->streams->enter(prep->ctx, prep->device);
    if (st == PARE_OK) st = pare_dnn_ask(prep->ctx, &at, conv, &a);
    if (st != PARE_OK) {
        pare_cuda_dnn_give_up(prep->ctx, d);
        return NULL;
    }
    answers_put(d, a);
    answers_trim(d);
    return a;
}

/* --- choosing --- */

bool pare_dnn_has(const pare_prep *prep, const pare_dnn_conv *conv, int rank)
{
    pare_cuda_dnn *d = pare_cuda_dnn_start(prep->ctx, prep->device);
    if (!d) return false;
    const pare_dnn_answers *a = answers_find(prep, d, conv);
    const bool has = a && rank < a->count && !a->engine[rank].failed;
    (void)pthread_mutex_unlock(&d->lock);
    return has;
}

pare_status pare_dnn_choose(pare_prep *prep, const pare_dnn_conv *conv, int rank,
                            pare_dnn_chosen *out)
{
    pare_cuda_dnn *d = pare_cuda_dnn_start(prep->ctx, prep->device);
    pare_dnn_answers *a = d ? answers_find(prep, d, conv) : NULL;
    const int count = a ? a->count : 0;
    if (rank < count) {
        a->users++;
        *out = (pare_dnn_chosen){d, prep->device, a, rank, prep->scratch};
    }
    if (d) (void)pthread_mutex_unlock(&d->lock);
    if (rank >= count)
        return PARE_FAIL_NODE(prep->node, UNSUPPORTED, "cuDNN knows %d ways to compute it", count);
    prep->scratch += pare_align_up(a->engine[rank].workspace, 256);
    return PARE_OK;
}

void pare_dnn_leave(const pare_dnn_chosen *s)
{
    if (!s->answers) return;
    (void)pthread_mutex_lock(&s->dnn->lock);
    s->answers->users--;
    (void)pthread_mutex_unlock(&s->dnn->lock);
}

/* --- binding --- */

/* The status of a call for a node. What is no want of memory is the engine's own trouble, and no
   plan made from here on takes it. */
static pare_status said(const pare_call *c, const pare_dnn_chosen *s, int code, const char *call)
{
    const pare_status st = pare_cuda_dnn_status(c->ctx, &s->dnn->api, c->node, code, call);
    if (st != PARE_DEVICE) return st;
    (void)pthread_mutex_lock(&s->dnn->lock);
    s->answers->engine[s->rank].failed = true;
    (void)pthread_mutex_unlock(&s->dnn->lock);
    return st;
}

/* The stream's own, else one that no stream has, else a new one. */
static pare_status plan_take(const pare_call *c, const pare_dnn_chosen *s, void *handle,
                             pare_dnn_plan **out)
{
    const pare_dnn_target at = {&s->dnn->api, s->dnn->handle, NULL};
    pare_dnn_engine *engine = &s->answers->engine[s->rank];
    pare_dnn_plan *found = NULL;
    pare_status st = PARE_OK;
    for (pare_dnn_plan *p = &engine->first; p; p = p->next)
        if (p->handle == handle || (!p->handle && !found)) found = p;
    if (!found) st = s->device->streams->enter(c->ctx, s->device);
    if (!found && st == PARE_OK) st = pare_dnn_plan_add(c->ctx, &at, engine, &found);
    if (st != PARE_OK) {
        engine->failed |= st == PARE_DEVICE;
        return pare_fail_prefix(c->ctx, st, "node '%s' (%s)", c->node->name, c->node->op_type);
    }
    found->handle = handle;
    found->users++;
    *out = found;
    return PARE_OK;
}

static void plan_leave(const pare_dnn_chosen *s, pare_dnn_plan *p)
{
    (void)pthread_mutex_lock(&s->dnn->lock);
    if (!--p->users) p->handle = NULL;
    (void)pthread_mutex_unlock(&s->dnn->lock);
}

static bool has_tensor(const pare_dnn_chosen *s, int tensor)
{
    const pare_dnn_conv *conv = &s->answers->of;
    return tensor == PARE_DNN_BIAS       ? conv->biased
           : tensor == PARE_DNN_RESIDUAL ? conv->added
                                         : true;
}

static pare_dnn_places places_of(const pare_call *c, const pare_dnn_chosen *s, void *const *data)
{
    pare_dnn_places p = {0};
    for (int i = 0; i < PARE_DNN_TENSORS; i++)
        if (has_tensor(s, i)) p.at[i] = data[i];
    if (s->answers->engine[s->rank].workspace) p.workspace = (char *)c->scratch + s->scratch;
    return p;
}

static pare_status pack_fill(const pare_call *c, const pare_dnn_bound *b)
{
    static const char *const name = "cudnnBackendSetAttribute";
    const pare_dnn_chosen *s = b->of;
    const pare_dnn_api *api = &s->dnn->api;
    int64_t id[PARE_DNN_TENSORS];
    void *address[PARE_DNN_TENSORS];
    int count = 0;
    for (int i = 0; i < PARE_DNN_TENSORS; i++) {
        if (!has_tensor(s, i)) continue;
        id[count] = i + 1;
        address[count++] = b->places.at[i];
    }
    PARE_TRY(said(c, s, api->set(b->pack, PARE_DNN_PACK_IDS, PARE_DNN_T_INT64, count, id), name));
    PARE_TRY(said(
        c, s, api->set(b->pack, PARE_DNN_PACK_POINTERS, PARE_DNN_T_POINTER, count, address), name));
    PARE_TRY(said(
        c, s,
        api->set(b->pack, PARE_DNN_PACK_WORKSPACE, PARE_DNN_T_POINTER, 1, &b->places.workspace),
        name));
    return said(c, s, api->finalize(b->pack), "cudnnBackendFinalize");
}

static void pack_drop(const pare_dnn_api *api, pare_dnn_bound *b)
{
    if (b->pack) (void)api->drop(b->pack);
    b->pack = NULL;
}

static pare_status pack_make(const pare_call *c, pare_dnn_bound *b, const pare_dnn_places *places)
{
    const pare_dnn_api *api = &b->of->dnn->api;
    pack_drop(api, b);
    b->places = *places;
    pare_status st =
        said(c, b->of, api->make(PARE_DNN_VARIANT_PACK, &b->pack), "cudnnBackendCreateDescriptor");
    if (st == PARE_OK)
        st = pack_fill(c, b);
    else
        b->pack = NULL;
    if (st != PARE_OK) pack_drop(api, b);
    return st;
}

/* An input that the caller points to later has no address yet. */
static bool is_known(const pare_dnn_chosen *s, const pare_dnn_places *p)
{
    for (int i = 0; i < PARE_DNN_TENSORS; i++)
        if (has_tensor(s, i) && !p->at[i]) return false;
    return true;
}

pare_status pare_dnn_bind(const pare_call *c, pare_arena *arena, const pare_dnn_chosen *s,
                          void *const data[], pare_dnn_bound **out)
{
    pare_dnn_bound *b = pare_arena_alloc(arena, 1, sizeof *b);
    if (!b) return PARE_MEMORY;
    *b = (pare_dnn_bound){.of = s};
    PARE_TRY(pare_cuda_dnn_handle(c->ctx, c->stream, &b->handle));
    (void)pthread_mutex_lock(&s->dnn->lock);
    pare_status st = plan_take(c, s, b->handle, &b->plan);
    (void)pthread_mutex_unlock(&s->dnn->lock);
    if (st != PARE_OK) return st;
    const pare_dnn_places places = places_of(c, s, data);
    if (is_known(s, &places)) st = pack_make(c, b, &places);
    if (st != PARE_OK) {
        plan_leave(s, b->plan);
        return st;
    }
    *out = b;
    return PARE_OK;
}

void pare_dnn_unbind(const pare_dnn_bound *b)
{
    if (b->pack) (void)b->of->dnn->api.drop(b->pack);
    plan_leave(b->of, b->plan);
}

pare_status pare_dnn_run(const pare_call *c, pare_dnn_bound *b, void *const data[])
{
    const pare_dnn_places places = places_of(c, b->of, data);
    if (!b->pack || memcmp(&places, &b->places, sizeof places)) PARE_TRY(pack_make(c, b, &places));
    return said(c, b->of, b->of->dnn->api.execute(b->handle, b->plan->plan, b->pack),
                "cudnnBackendExecute");
}
