/* SPDX-License-Identifier: Apache-2.0 */
/* Any operator on f16 or bf16 through its f32 kernels: inputs widened, outputs rounded to nearest
   even, which is what the short floats mean on a CPU (DESIGN, FP16/BF16). The f32 kernel is the
   first of the operator's own list that can. Tensors of other types pass through as they are. */
#include "runtime/base/size.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float16.h"
#include "runtime/ops/ops.h"

typedef struct widened {
    const pare_kernel *kernel;
    void *state;
    pare_view *in, *out;            /* as the inner kernel sees them; constants hold f32 data */
    size_t *in_offset, *out_offset; /* of the f32 copies in scratch */
    size_t inner_scratch;           /* offset of the inner kernel's own */
} widened;

/* What one runner holds: the inner kernel's call. */
typedef struct widened_call {
    const pare_kernel *kernel;
    pare_call inner;
    pare_view *in, *out;
} widened_call;

static bool is_short(pare_dtype t) { return t == PARE_f16 || t == PARE_bf16; }

static bool widened_can(const pare_prep *p)
{
    for (int i = 0; i < p->in_count; i++)
        if (is_short(p->in[i].dtype)) return true;
    return false;
}

/* f32 views of short tensors: constants are converted now, others get room in scratch. */
static pare_status views_widen(pare_prep *p, const pare_view *from, int count, pare_view *to,
                               size_t *offset, size_t *scratch)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        if (!is_short(from[i].dtype)) continue;
        to[i].dtype = PARE_f32;
        size_t bytes = pare_align_up(pare_view_bytes(&to[i]), 64);
        if (!from[i].data) {
            offset[i] = *scratch;
            *scratch += bytes;
            continue;
        }
        to[i].data = pare_arena_alloc(p->arena, bytes, 1);
        if (!to[i].data) return PARE_MEMORY;
        pare_widen(to[i].data, from[i].data, from[i].dtype, pare_view_count(&from[i]), p->threads);
    }
    return PARE_OK;
}

static pare_status inner_choose(pare_prep *inner, widened *w)
{
    for (const pare_kernel *const *k = pare_op_of(inner->node)->cpu; *k; k++)
        if (*k != &pare_widened && (!(*k)->can || (*k)->can(inner))) {
            w->kernel = *k;
            return (*k)->prepare ? (*k)->prepare(inner) : PARE_OK;
        }
    return PARE_FAIL_NODE(inner->node, UNSUPPORTED, "no kernel takes its types as f32");
}

static pare_status widened_prepare(pare_prep *p)
{
    pare_arena *a = p->arena;
    widened *w = pare_arena_alloc(a, 1, sizeof *w);
    size_t n_in = (size_t)p->in_count + 1, n_out = (size_t)p->out_count + 1, scratch = 0;
    if (!w) return PARE_MEMORY;
    w->in = pare_arena_alloc(a, n_in, sizeof *w->in);
    w->out = pare_arena_alloc(a, n_out, sizeof *w->out);
    w->in_offset = pare_arena_alloc(a, n_in, sizeof *w->in_offset);
    w->out_offset = pare_arena_alloc(a, n_out, sizeof *w->out_offset);
    if (!w->in || !w->out || !w->in_offset || !w->out_offset) return PARE_MEMORY;
    PARE_TRY(views_widen(p, p->in, p->in_count, w->in, w->in_offset, &scratch));
    PARE_TRY(views_widen(p, p->out, p->out_count, w->out, w->out_offset, &scratch));
    pare_prep inner = *p;
    inner.in = w->in;
    inner.out = w->out;
    inner.dying = 0;
    inner.share = -1;
    inner.scratch = 0;
    inner.state = NULL;
    PARE_TRY(inner_choose(&inner, w));
    w->state = inner.state;
    w->inner_scratch = scratch;
    p->scratch = scratch + inner.scratch;
    p->state = w;
    return PARE_OK;
}

static pare_status widened_bind(pare_call *c, pare_arena *arena)
{
    const widened *w = c->state;
    widened_call *b = pare_arena_alloc(arena, 1, sizeof *b);
    if (!b) return PARE_MEMORY;
    b->in = pare_arena_memdup(arena, w->in, (size_t)c->in_count * sizeof *b->in);
    b->out = pare_arena_memdup(arena, w->out, (size_t)c->out_count * sizeof *b->out);
    if (!b->in || !b->out) return PARE_MEMORY;
    char *scratch = c->scratch;
    for (int i = 0; i < c->in_count; i++)
        if (!b->in[i].data && is_short(c->in[i].dtype)) b->in[i].data = scratch + w->in_offset[i];
    for (int i = 0; i < c->out_count; i++)
        if (is_short(c->out[i].dtype)) b->out[i].data = scratch + w->out_offset[i];
    b->kernel = w->kernel;
    b->inner = *c;
    b->inner.in = b->in;
    b->inner.out = b->out;
    b->inner.state = w->state;
    b->inner.bound = NULL;
    b->inner.scratch = scratch + w->inner_scratch;
    c->bound = b;
    return w->kernel->bind ? w->kernel->bind(&b->inner, arena) : PARE_OK;
}

static pare_status widened_run(const pare_call *c)
{
    const widened *w = c->state;
    widened_call *b = c->bound;
    for (int i = 0; i < c->in_count; i++) {
        if (!is_short(c->in[i].dtype))
            b->in[i].data = c->in[i].data; /* a graph input may have moved */
        else if (!w->in[i].data)
            pare_widen(b->in[i].data, c->in[i].data, c->in[i].dtype, pare_view_count(&c->in[i]),
                       c->threads);
    }
    for (int i = 0; i < c->out_count; i++)
        if (!is_short(c->out[i].dtype)) b->out[i].data = c->out[i].data;
    PARE_TRY(w->kernel->run(&b->inner));
    for (int i = 0; i < c->out_count; i++)
        if (is_short(c->out[i].dtype))
            pare_narrow(c->out[i].data, b->out[i].data, c->out[i].dtype,
                        pare_view_count(&c->out[i]), c->threads);
    return PARE_OK;
}

static void widened_unbind(void *bound)
{
    widened_call *b = bound;
    if (b->kernel->unbind) b->kernel->unbind(b->inner.bound);
}

static void widened_release(void *state)
{
    widened *w = state;
    if (w->kernel->release) w->kernel->release(w->state);
}

const pare_kernel pare_widened = {.name = "widened_to_f32",
                                  .can = widened_can,
                                  .prepare = widened_prepare,
                                  .bind = widened_bind,
                                  .run = widened_run,
                                  .unbind = widened_unbind,
                                  .release = widened_release};
