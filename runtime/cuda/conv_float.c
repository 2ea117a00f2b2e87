/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/conv_float.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/product.h"
#include "runtime/ops/window.h"

#include <limits.h>
#include <string.h>

enum { MOST_SPLITS = 64, SPLIT_DEPTH = 2048, MOST_BLOCKS = 65535, BIAS = 2 };

/* The pictures and weights of the node, whichever of them it makes. */
typedef struct parts {
    pare_cuda_conv_makes makes;
    const pare_view *x, *y, *w;
} parts;

static parts parts_of(const pare_prep *p)
{
    if (!strcmp(p->node->op_type, "ConvGradWeight"))
        return (parts){PARE_CUDA_CONV_DW, &p->in[1], &p->in[0], &p->out[0]};
    if (!strcmp(p->node->op_type, "ConvGradInput"))
        return (parts){PARE_CUDA_CONV_DX, &p->out[0], &p->in[0], &p->in[1]};
    return (parts){PARE_CUDA_CONV_Y, &p->in[0], &p->out[0], &p->in[1]};
}

static bool conv_can(const pare_prep *p)
{
    const parts a = parts_of(p);
    const int64_t group = pare_node_int(p->node, "group", 1);
    const pare_view *bias = pare_operand(p->in, p->in_count, BIAS);
    if (!pare_cuda_can_float(p, 2) || a.x->rank < 3 || a.x->rank > 5 || group < 1) return false;
    if (bias && bias->dtype != p->in[0].dtype) return false;
    if (group * MOST_SPLITS > MOST_BLOCKS) return false;
    for (int i = 0; i < a.x->rank; i++)
        if (a.x->dim[i] > INT_MAX / 4 || a.y->dim[i] > INT_MAX / 4) return false;
    return true;
}

static pare_status window_set(pare_prep *p, const parts *a, pare_cuda_conv_float *f)
{
    pare_window win;
    pare_shape shape = {.rank = a->x->rank};
    memcpy(shape.dim, a->x->dim, sizeof shape.dim);
    PARE_TRY(pare_window_read(p->node, &shape, a->w->dim + 2, &win));
    for (int i = 0; i < 3; i++) {
        f->in[i] = (int)win.in[i], f->out[i] = (int)win.out[i], f->kernel[i] = (int)win.kernel[i];
        f->stride[i] = (int)win.stride[i], f->dilation[i] = (int)win.dilation[i];
        f->begin[i] = (int)win.begin[i];
    }
    f->groups = (int)win.group;
    return PARE_OK;
}

static int splits_of(const pare_cuda_conv_float *f)
{
    const int64_t depth = (int64_t)f->n * f->out[0] * f->out[1] * f->out[2];
    if (f->makes != PARE_CUDA_CONV_DW || depth < 2 * SPLIT_DEPTH) return 1;
    return depth / SPLIT_DEPTH > MOST_SPLITS ? MOST_SPLITS : (int)(depth / SPLIT_DEPTH);
}

static pare_status conv_prepare(pare_prep *p)
{
    pare_cuda_conv_float *f = pare_arena_alloc(p->arena, 1, sizeof *f);
    const parts a = parts_of(p);
    if (!f) return PARE_MEMORY;
    f->makes = a.makes;
    f->dtype = p->in[0].dtype;
    PARE_TRY(window_set(p, &a, f));
    f->n = (int)a.x->dim[0];
    f->channels = (int)a.w->dim[1];
    f->filters = (int)(a.w->dim[0] / f->groups);
    pare_cuda_strides(a.x, f->x_stride);
    pare_cuda_strides(a.y, f->y_stride);
    pare_cuda_strides(a.w, f->w_stride);
    f->splits = splits_of(f);
    if (f->splits > 1)
        p->scratch = sizeof(float) * (size_t)f->splits * (size_t)pare_view_count(a.w);
    p->state = f;
    return PARE_OK;
}

static pare_status conv_run(const pare_call *c)
{
    pare_cuda_conv_float f = *(const pare_cuda_conv_float *)c->state;
    const void *first = c->in[0].data, *second = c->in[1].data;
    const pare_view *bias = pare_operand(c->in, c->in_count, BIAS);
    *(f.makes == PARE_CUDA_CONV_Y ? &f.x : &f.y) = first;
    *(f.makes == PARE_CUDA_CONV_DW ? &f.x : &f.w) = second;
    f.bias = bias ? bias->data : NULL;
    f.to = c->out[0].data;
    f.part = c->scratch;
    return PARE_CUDA_LAUNCH(c, pare_cuda_conv_float_launch, &f);
}

const pare_kernel pare_cuda_conv_any = {
    .name = "cuda_conv_any", .can = conv_can, .prepare = conv_prepare, .run = conv_run};
static const pare_kernel cuda_conv_grad = {
    .name = "cuda_conv_grad", .can = conv_can, .prepare = conv_prepare, .run = conv_run};
const pare_kernel *const pare_cuda_conv_grad_input[] = {&cuda_conv_grad, NULL};
const pare_kernel *const pare_cuda_conv_grad_weight[] = {&cuda_conv_grad, NULL};
