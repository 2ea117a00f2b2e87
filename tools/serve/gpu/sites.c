/* SPDX-License-Identifier: Apache-2.0 */
/* The processors that a model is computed on: the CPU, or GPUs of one kind, so that a request's
   results do not depend on which of them computes it. */
#include "tools/serve/served.h"

#include <stdio.h>
#include <string.h>

/* --- opening --- */

/* A GPU that config.pbtxt asks for. PARE_INPUT: it cannot be used. */
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
                     "%s: instance_group: %s, or set kind: KIND_CPU in config.pbtxt",
                     s->options.path, why);
}

/* One more site, or more runs side by side of one that is there. */
static pare_status add_site(pare_served *s, pare_gpu *gpu, int64_t instances)
{
    int i = 0;
    while (i < s->site_count && s->site[i].gpu != gpu) i++;
    if (i == s->site_count) {
        if (i && strcmp(s->site[0].gpu->device->name, gpu->device->name) != 0)
            return PARE_FAIL(&s->ctx, UNSUPPORTED,
                             "%s: instance_group: GPU %d is %s and GPU %d is %s: a request's "
                             "results would depend on which computes it",
                             s->options.path, s->site[0].gpu->device->index,
                             s->site[0].gpu->device->name, gpu->device->index, gpu->device->name);
        s->site[s->site_count++] = (pare_site){.gpu = gpu};
    }
    s->site[i].instances += instances;
    return PARE_OK;
}

static pare_status choose(pare_served *s)
{
    const pare_serve_config *c = &s->options.config;
    pare_gpu *first = s->options.gpus ? pare_gpus_first(s->options.gpus) : NULL;
    if (c->kind == PARE_KIND_CPU || (c->kind == PARE_KIND_AUTO && !first))
        return add_site(s, NULL, c->instances);
    if (c->kind == PARE_KIND_AUTO) return add_site(s, first, c->gpu_instances);
    for (int i = 0; i < c->gpu_count; i++) {
        pare_gpu *gpu;
        PARE_TRY(get_gpu(s, c->gpu[i].index, &gpu));
        PARE_TRY(add_site(s, gpu, c->gpu[i].instances));
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
        PARE_TRY(pare_plans_new(&s->ctx, &p->plans, s->model, p->gpu, (int)p->instances));
        c->instances += p->instances;
    }
    return PARE_OK;
}

void pare_sites_close(pare_served *s)
{
    for (int i = 0; i < s->site_count; i++) pare_plans_free(s->site[i].plans);
}

/* --- a GPU that fails --- */

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
    pare_ctx_child(&ctx, &s->ctx);
    const pare_status st = pare_plans_get(site->plans, &ctx, &planned, shapes, count);
    if (st == PARE_OK) {
        pare_plans_put(site->plans, planned);
        pare_log(&ctx, PARE_LOG_WARNING, "model '%s': a run failed, its plan was made anew: %s",
                 s->name, message);
    } else if (st == PARE_DEVICE) {
        pare_log(&ctx, PARE_LOG_WARNING, "model '%s' is no more computed on %s: %s", s->name,
                 site->gpu->device->name, ctx.message);
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
