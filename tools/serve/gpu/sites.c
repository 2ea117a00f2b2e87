/* SPDX-License-Identifier: Apache-2.0 */
/* The processors that a model is computed on: the CPU, or GPUs of one kind, so that a request's
   results do not depend on which of them computes it. A site is one of them, or a group of GPUs
   that have a stage of the model each. */
#include "tools/serve/served.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- opening --- */

/* Who says where the model is computed. */
static const char *placed_by(const pare_served *s)
{
    return s->options.config.is_placed ? "instance_group" : "--gpus";
}

/* A GPU that is asked for. PARE_INPUT: it cannot be used. */
static pare_status get_gpu(pare_served *s, int index, pare_gpu **out)
{
    pare_status st = PARE_DEVICE;
    if (s->options.gpus)
        st = pare_gpus_get(s->options.gpus, &s->ctx, out, index);
    else
        (void)PARE_FAIL(&s->ctx, DEVICE, "models are computed on the CPU alone");
    if (st == PARE_OK) return st;
    char why[sizeof s->ctx.message];
    memcpy(why, s->ctx.message, sizeof why);
    pare_ctx_clear(&s->ctx);
    return pare_fail(&s->ctx, st == PARE_DEVICE || st == PARE_UNSUPPORTED ? PARE_INPUT : st,
                     "%s: %s: %s%s", s->options.path, placed_by(s), why,
                     s->options.config.is_placed ? ", or set kind: KIND_CPU in config.pbtxt" : "");
}

/* Results must not depend on the GPU. */
static pare_status check_kind(pare_served *s, const pare_gpu *first, const pare_gpu *gpu)
{
    if (!first || !strcmp(first->device->name, gpu->device->name)) return PARE_OK;
    return PARE_FAIL(&s->ctx, UNSUPPORTED,
                     "%s: %s: GPU %d is %s and GPU %d is %s: a request's results would depend on "
                     "which computes %s",
                     s->options.path, placed_by(s), first->device->index, first->device->name,
                     gpu->device->index, gpu->device->name,
                     s->options.config.is_pipeline ? "what" : "it");
}

/* Of one GPU, or without one; it has room for the stages that are added. */
static pare_site *new_site(pare_served *s, pare_gpu *gpu, int stages)
{
    pare_site *p = &s->site[s->site_count++];
    *p = (pare_site){.gpu = gpu, .last = gpu, .stages = gpu ? 1 : 0};
    p->stage = pare_arena_alloc(&s->arena, (size_t)stages, sizeof(pare_gpu *));
    if (!p->stage) return NULL;
    p->stage[0] = gpu;
    return p;
}

/* One more site, or more runs side by side of one that is there. */
static pare_status add_site(pare_served *s, pare_gpu *gpu, int64_t instances)
{
    int i = 0;
    while (i < s->site_count && s->site[i].gpu != gpu) i++;
    if (i == s->site_count) {
        if (i) PARE_TRY(check_kind(s, s->site[0].gpu, gpu));
        if (!new_site(s, gpu, 1)) return PARE_MEMORY;
    }
    s->site[i].instances += instances;
    return PARE_OK;
}

/* GPU i of the configuration, for the next stage of the last site. */
static pare_status add_stage(pare_served *s, int i)
{
    pare_gpu *gpu;
    const pare_serve_config *c = &s->options.config;
    PARE_TRY(get_gpu(s, c->gpu[i].index, &gpu));
    PARE_TRY(check_kind(s, s->site_count ? s->site[0].gpu : NULL, gpu));
    if (!i || c->gpu[i].group != c->gpu[i - 1].group)
        return new_site(s, gpu, c->gpu_count) ? PARE_OK : PARE_MEMORY;
    pare_site *p = &s->site[s->site_count - 1];
    for (int k = 0; k < p->stages; k++)
        if (p->stage[k] == gpu)
            return PARE_FAIL(&s->ctx, INPUT,
                             "%s: %s: GPU %d is named twice, expected another one for each stage",
                             s->options.path, placed_by(s), gpu->device->index);
    p->stage[p->stages++] = p->last = gpu;
    return PARE_OK;
}

/* As many runs side by side as keep all GPUs of a group at work, where it does not say. */
static pare_status choose_stages(pare_served *s)
{
    const pare_serve_config *c = &s->options.config;
    if (c->kind != PARE_KIND_GPU)
        return PARE_FAIL(&s->ctx, INPUT,
                         "%s: parameters: 'parallel' is 'pipeline', whose stages lie on GPUs, "
                         "expected instance_group { kind: KIND_GPU gpus: [0, 1] }",
                         s->options.path);
    for (int i = 0; i < c->gpu_count; i++) {
        PARE_TRY(add_stage(s, i));
        s->site[s->site_count - 1].instances = c->gpu[i].instances;
    }
    for (int i = 0; i < s->site_count; i++) {
        pare_site *p = &s->site[i];
        if (p->stages < 2)
            return PARE_FAIL(&s->ctx, INPUT,
                             "%s: %s: a pipeline on GPU %d alone, expected a GPU for each of its "
                             "stages",
                             s->options.path, placed_by(s), p->gpu->device->index);
        if (!p->instances) p->instances = p->stages;
    }
    return PARE_OK;
}

static pare_status choose(pare_served *s)
{
    const pare_serve_config *c = &s->options.config;
    pare_gpu *first = s->options.gpus ? pare_gpus_first(s->options.gpus) : NULL;
    if (c->is_pipeline) return choose_stages(s);
    if (c->kind == PARE_KIND_CPU || (c->kind == PARE_KIND_AUTO && !first))
        return add_site(s, NULL, c->instances);
    if (c->kind == PARE_KIND_AUTO) return add_site(s, first, c->gpu_instances);
    for (int i = 0; i < c->gpu_count; i++) {
        pare_gpu *gpu;
        PARE_TRY(get_gpu(s, c->gpu[i].index, &gpu));
        PARE_TRY(add_site(s, gpu, c->gpu[i].instances ? c->gpu[i].instances : 1));
    }
    return PARE_OK;
}

pare_status pare_sites_open(pare_served *s)
{
    pare_serve_config *c = &s->options.config;
    s->site = pare_arena_alloc(&s->arena, (size_t)c->gpu_count + 1, sizeof *s->site);
    if (!s->site) return PARE_MEMORY;
    PARE_TRY(choose(s));
    c->instances = 0;
    for (int i = 0; i < s->site_count; i++) {
        pare_site *p = &s->site[i];
        const pare_plans_options plans = {.gpu = p->stage,
                                          .gpu_count = p->stages,
                                          .stage_weights = c->stage_weights,
                                          .instances = (int)p->instances};
        PARE_TRY(pare_plans_new(&s->ctx, &p->plans, s->model, &plans));
        c->instances += p->instances;
    }
    return PARE_OK;
}

void pare_sites_close(pare_served *s)
{
    for (int i = 0; i < s->site_count; i++) pare_plans_free(s->site[i].plans);
}

/* --- what is planned for stages --- */

/* The share of time that GPUs wait in the long run, with so many runs under way: these come out one
   after the other, at the pace of the costliest stage or, where they are few, of their own way. */
static double bubble(double sum, double most, int stages, double runs)
{
    const double pace = fmax(most, sum / runs);
    return pace > 0 ? 1 - sum / (stages * pace) : 0;
}

pare_status pare_site_note_stages(pare_served *s, pare_site *site, const pare_planned *planned,
                                  int64_t rows)
{
    const int stages = planned->stages->count;
    double sum = 0, most = 0;
    if (stages < 2 || site->planned) return PARE_OK;
    pare_pipeline_plan *p = pare_arena_alloc(&s->arena, 1, sizeof *p);
    size_t *activations = pare_arena_alloc(&s->arena, (size_t)stages, sizeof *activations);
    if (!p || !activations) return PARE_MEMORY;
    *p = (pare_pipeline_plan){
        .activations = activations, .samples = (int)rows, .runs = (int)site->instances};
    p->stage = pare_plan_stages(planned->first, &p->stages);
    p->stage = pare_arena_memdup(&s->arena, p->stage, (size_t)stages * sizeof *p->stage);
    if (!p->stage) return PARE_MEMORY;
    for (int i = 0; i < stages; i++) {
        activations[i] = pare_plan_activation_bytes(planned->stages->stage[i]);
        sum += p->stage[i].cost;
        most = fmax(most, p->stage[i].cost);
    }
    p->bubble = bubble(sum, most, stages, p->runs);
    p->bubble_equal = bubble(stages, 1, stages, p->runs);
    site->planned = p;
    return PARE_OK;
}

/* --- a GPU that fails --- */

const char *pare_site_text(const pare_site *site, char *text, size_t size)
{
    const char *kind = !site->stages ? "CPU" : site->stages == 1 ? "GPU" : "GPUs";
    size_t used = (size_t)snprintf(text, size, "%s", kind);
    for (int i = 0; i < site->stages && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %d", i ? "," : "",
                                 site->stage[i]->device->index);
    return text;
}

/* Of several that find it out at once one counts it. */
static void give_up(pare_served *s, pare_site *site, const char *message)
{
    if (__atomic_exchange_n(&site->is_lost, true, __ATOMIC_ACQ_REL)) return;
    if (__atomic_add_fetch(&s->lost, 1, __ATOMIC_ACQ_REL) < s->site_count) return;
    snprintf(s->reason, sizeof s->reason, "%s", message);
    __atomic_store_n(&s->is_lost, true, __ATOMIC_RELEASE);
}

void pare_site_recover(pare_served *s, pare_site *site, const pare_input_shape *shapes, int count,
                       const char *message)
{
    pare_ctx ctx;
    pare_planned *planned;
    char gpus[512];
    pare_ctx_child(&ctx, &s->ctx);
    const pare_status st = pare_plans_get(site->plans, &ctx, &planned, shapes, count);
    if (st == PARE_OK) {
        pare_plans_put(site->plans, planned);
        pare_log(&ctx, PARE_LOG_WARNING, "model '%s': a run failed, its plan was made anew: %s",
                 s->name, message);
    } else if (st == PARE_DEVICE) {
        pare_log(&ctx, PARE_LOG_WARNING, "model '%s' is no more computed on %s: %s", s->name,
                 pare_site_text(site, gpus, sizeof gpus), ctx.message);
        give_up(s, site, ctx.message);
    }
}

bool pare_site_is_left(const pare_served *s, const pare_site *site)
{
    return __atomic_load_n(&site->is_lost, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&s->lost, __ATOMIC_ACQUIRE) < s->site_count;
}

const char *pare_served_reason(const pare_served *s)
{
    return __atomic_load_n(&s->is_lost, __ATOMIC_ACQUIRE) ? s->reason : NULL;
}
