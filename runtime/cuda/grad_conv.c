/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/grad_conv.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/window.h"

#include <limits.h>
#include <string.h>

enum { MOST_SPLITS = 64, SPLIT_DEPTH = 2048, MOST_BLOCKS = 65535 };

static bool is_weight(const pare_node *node) { return !strcmp(node->op_type, "ConvGradWeight"); }

static const pare_view *picture_of(const pare_prep *p)
{
    return is_weight(p->node) ? &p->in[1] : &p->out[0];
}

static bool conv_can(const pare_prep *p)
{
    const pare_view *x = picture_of(p);
    const int64_t group = pare_node_int(p->node, "group", 1);
    if (!pare_cuda_can_float(p, 2) || x->rank < 3 || x->rank > 5 || group < 1) return false;
    if (group * MOST_SPLITS > MOST_BLOCKS) return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] > INT_MAX / 4 || p->in[0].dim[i] > INT_MAX / 4) return false;
    return true;
}

static pare_status window_set(pare_prep *p, const pare_view *x, const pare_view *w,
                              pare_cuda_conv_grad *g)
{
    pare_window win;
    pare_shape shape = {.rank = x->rank};
    memcpy(shape.dim, x->dim, sizeof shape.dim);
    PARE_TRY(pare_window_read(p->node, &shape, w->dim + 2, &win));
    for (int i = 0; i < 3; i++) {
        g->in[i] = (int)win.in[i], g->out[i] = (int)win.out[i], g->kernel[i] = (int)win.kernel[i];
        g->stride[i] = (int)win.stride[i], g->dilation[i] = (int)win.dilation[i];
        g->begin[i] = (int)win.begin[i];
    }
    g->groups = (int)win.group;
    return PARE_OK;
}

static pare_status conv_prepare(pare_prep *p)
{
    pare_cuda_conv_grad *g = pare_arena_alloc(p->arena, 1, sizeof *g);
    const pare_view *x = picture_of(p), *dy = &p->in[0];
    const pare_view *w = is_weight(p->node) ? &p->out[0] : &p->in[1];
    if (!g) return PARE_MEMORY;
    g->weight = is_weight(p->node);
    g->dtype = dy->dtype;
    PARE_TRY(window_set(p, x, w, g));
    g->n = (int)x->dim[0];
    g->channels = (int)w->dim[1];
    g->filters = (int)(w->dim[0] / g->groups);
    pare_cuda_strides(x, g->x_stride);
    pare_cuda_strides(dy, g->dy_stride);
    pare_cuda_strides(w, g->w_stride);
    const int64_t depth = (int64_t)g->n * g->out[0] * g->out[1] * g->out[2];
    g->splits = !g->weight || depth < 2 * SPLIT_DEPTH ? 1
                : depth / SPLIT_DEPTH > MOST_SPLITS   ? MOST_SPLITS
                                                      : (int)(depth / SPLIT_DEPTH);
    if (g->splits > 1) p->scratch = sizeof(float) * (size_t)g->splits * (size_t)pare_view_count(w);
    p->state = g;
    return PARE_OK;
}

static pare_status conv_run(const pare_call *c)
{
    pare_cuda_conv_grad g = *(const pare_cuda_conv_grad *)c->state;
    g.dy = c->in[0].data;
    g.with = c->in[1].data;
    g.to = c->out[0].data;
    g.part = c->scratch;
    return PARE_CUDA_LAUNCH(c, pare_cuda_conv_grad_launch, &g);
}

static const pare_kernel cuda_conv_grad = {
    .name = "cuda_conv_grad", .can = conv_can, .prepare = conv_prepare, .run = conv_run};
const pare_kernel *const pare_cuda_conv_grad_input[] = {&cuda_conv_grad, NULL};
const pare_kernel *const pare_cuda_conv_grad_weight[] = {&cuda_conv_grad, NULL};
