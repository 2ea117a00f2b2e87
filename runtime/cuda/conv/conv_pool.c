/* SPDX-License-Identifier: Apache-2.0 */
/* FusedConvPool: one kernel for what conv_pool.h of ops allows. */
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/conv/conv_stem_pool.h"
#include "runtime/ops/conv_pool.h"

typedef struct stem_pool_node {
    pare_cuda_prepared *conv;
    pare_cuda_stem_pool pool;
} stem_pool_node;

/* Are Y's channels together, and its pixels equally far apart, by lots of 16 bytes? */
static bool places_fit(const pare_view *x, const pare_view *y)
{
    int64_t row, pixel;
    if (x->rank != 4 || y->rank != 4) return false;
    pare_cuda_plane_strides(y, &row, &pixel);
    return (x->dim[1] == 1 || x->stride[1] == 1) && y->stride[1] == 1 &&
           pixel * pare_cuda_bytes(y->dtype) % PARE_CUDA_CHUNK == 0 && pare_cuda_pixels_are_even(y);
}

static bool conv_pool_read(const pare_prep *prep, pare_conv_args *a, pare_window *pool)
{
    return pare_cuda_weights_fit(prep) && pare_cuda_readable(prep, pare_conv_args_read(prep, a)) &&
           pare_cuda_readable(prep, pare_conv_pool_read(prep->node, &a->win, pool)) &&
           pare_cuda_bias_fits(prep, a->at.bias, a->m) && (a->int8 || a->at.w_scale < 0);
}

static bool conv_pool_can(const pare_prep *prep)
{
    pare_conv_args a;
    pare_window pool;
    return places_fit(&prep->in[0], &prep->out[0]) && conv_pool_read(prep, &a, &pool) &&
           pare_conv_pool_fits(prep, &a, &pool);
}

static void pool_set(const pare_conv_args *a, const pare_window *w, const pare_cuda_gemm_args *p,
                     pare_cuda_stem_pool *s)
{
    *s = (pare_cuda_stem_pool){
        .height = (int)w->out[1], .width = (int)w->out[2], .images = (int)a->n};
    for (int i = 0; i < 2; i++)
        s->kernel[i] = (int)w->kernel[1 + i], s->begin[i] = (int)w->begin[1 + i];
    pare_cuda_stem_pool_set(p, s);
}

static pare_status conv_pool_prepare(pare_prep *prep)
{
    pare_cuda_prepack k;
    pare_cuda_gemm_args p;
    pare_conv_args a;
    pare_window window;
    stem_pool_node *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_conv_args_read(prep, &a));
    PARE_TRY(pare_conv_pool_read(prep->node, &a.win, &window));
    pare_cuda_picture_set(prep, &a, &p);
    p.in.kernel_width = (int)a.win.kernel[2], p.in.channels = (int)a.cg;
    p.copy = 1; /* no line of the window is one tap */
    p.depth = (int)a.win.kernel[1] * PARE_CUDA_STEM_LINE;
    p.w_row = pare_cuda_pitch(p.depth, p.x_type);
    PARE_TRY(pare_cuda_prepared_new(prep, &p, &s->conv));
    pool_set(&a, &window, &s->conv->p, &s->pool);
    pare_cuda_epilogue_set(prep, s->conv, a.int8, &a.act, &a.epilogue, a.at.residual);
    PARE_TRY(pare_cuda_prepack_open(prep, &s->conv->p, PARE_CUDA_STEM, &k));
    pare_cuda_stem_pack(&prep->in[1], &a, &k, &s->conv->p, PARE_CUDA_STEM_LINE);
    PARE_TRY(pare_cuda_prepack_close(
        prep, s->conv, &k, &(pare_cuda_constants){a.int8, a.scale, a.q.x_zero, a.at, a.m}));
    prep->state = s;
    return PARE_OK;
}

static pare_status conv_pool_run(const pare_call *c)
{
    const stem_pool_node *s = c->state;
    pare_cuda_gemm_args p = s->conv->p;
    p.x = c->in[0].data;
    p.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_stem_pool_launch, &p, &s->pool);
}

static void conv_pool_release(void *state)
{
    pare_cuda_gemm_release(((stem_pool_node *)state)->conv);
}

static const pare_kernel conv_stem_pool = {.name = "cuda_conv_stem_pool",
                                           .can = conv_pool_can,
                                           .prepare = conv_pool_prepare,
                                           .run = conv_pool_run,
                                           .release = conv_pool_release,
                                           .flags = PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_fused_conv_pool[] = {&conv_stem_pool, NULL};
