/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/grad_rows.h"
#include "runtime/cuda/grad_sums.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <limits.h>

/* --- SoftmaxGrad --- */

static bool softmax_can(const pare_prep *p)
{
    int axis;
    pare_cuda_rows r = {0};
    return pare_cuda_can_float(p, 2) && p->out[0].rank > 0 &&
           pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->out[0].rank, &axis) ==
               PARE_OK &&
           pare_view_same_order(&p->in[0], &p->out[0]) &&
           pare_view_same_order(&p->in[1], &p->out[0]) &&
           pare_cuda_rows_along(&p->out[0], axis, &r);
}

static pare_status softmax_prepare(pare_prep *p)
{
    int axis;
    pare_cuda_rows *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->out[0].rank, &axis));
    (void)pare_cuda_rows_along(&p->out[0], axis, r);
    r->dtype = p->out[0].dtype;
    p->state = r;
    return PARE_OK;
}

static pare_status softmax_run(const pare_call *c)
{
    pare_cuda_rows r = *(const pare_cuda_rows *)c->state;
    r.x = c->in[1].data;
    r.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_softmax_grad_launch, &r, c->in[0].data,
                            pare_node_int(c->node, "log", 0) != 0);
}

static const pare_kernel cuda_softmax_grad = {.name = "cuda_softmax_grad",
                                              .can = softmax_can,
                                              .prepare = softmax_prepare,
                                              .run = softmax_run};
const pare_kernel *const pare_cuda_softmax_grad[] = {&cuda_softmax_grad, NULL};

/* --- LayerNormGrad (dY, X, scale) -> dX, dScale, dBias --- */

typedef struct layer {
    pare_cuda_rows rows;
    pare_cuda_sums sums;
    double epsilon;
    size_t stats; /* bytes: scratch holds these, then parts of sums */
} layer;

static bool layer_can(const pare_prep *p)
{
    if (!pare_cuda_can_float(p, 3)) return false;
    for (int i = 0; i < 3; i++)
        if (!pare_view_rowmajor(&p->in[i]) ||
            (i < p->out_count && p->out[i].dtype && !pare_view_rowmajor(&p->out[i])))
            return false;
    return true;
}

static pare_status layer_prepare(pare_prep *p)
{
    layer *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    const pare_view *x = &p->in[1];
    if (!s) return PARE_MEMORY;
    int64_t n = 1;
    for (int i = (int)pare_node_int(p->node, "axis", 0); i < x->rank; i++) n *= x->dim[i];
    const int64_t rows = n ? pare_view_count(x) / n : 0;
    s->rows = (pare_cuda_rows){
        .rows = rows, .n = n, .step = 1, .inner = 1, .outer_step = n, .dtype = x->dtype};
    s->epsilon = (double)pare_node_float(p->node, "epsilon", 1e-5f);
    s->stats = (2 * sizeof(double) * (size_t)rows + 255) & ~(size_t)255;
    const pare_view matrix = {.dtype = x->dtype, .rank = 2, .dim = {rows, n}, .stride = {n, 1}};
    const pare_view stats = {.dtype = PARE_f64, .rank = 2, .dim = {rows, n}, .stride = {2, 0}};
    p->scratch =
        s->stats +
        pare_cuda_sums_set(&s->sums, (const pare_view *const[]){&matrix, &matrix, &stats}, 3, 1);
    p->state = s;
    return PARE_OK;
}

static void *output(const pare_call *c, int i)
{
    return i < c->out_count && c->out[i].dtype ? c->out[i].data : NULL;
}

static pare_status layer_run(const pare_call *c)
{
    const layer *s = c->state;
    pare_cuda_rows r = s->rows;
    pare_cuda_sums sums = s->sums;
    r.x = c->in[1].data;
    r.y = output(c, 0);
    PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_layer_norm_grad_launch, &r, c->in[0].data, c->in[2].data,
                              s->epsilon, (double *)c->scratch));
    sums.kind = PARE_CUDA_SUMS_LAYER;
    sums.dtype = r.dtype;
    sums.w.data[0] = c->in[0].data;
    sums.w.data[1] = c->in[1].data;
    sums.w.data[2] = c->scratch;
    sums.part = (double *)((char *)c->scratch + s->stats);
    sums.first = output(c, 1);
    sums.second = output(c, 2);
    if (!sums.first && !sums.second) return PARE_OK;
    return PARE_CUDA_LAUNCH(c, pare_cuda_sums_launch, &sums);
}

static const pare_kernel cuda_layer_norm_grad = {
    .name = "cuda_layer_norm_grad", .can = layer_can, .prepare = layer_prepare, .run = layer_run};
const pare_kernel *const pare_cuda_layer_norm_grad[] = {&cuda_layer_norm_grad, NULL};

/* --- SoftmaxKL, CrossEntropy --- */

static bool loss_can(const pare_prep *p)
{
    const pare_view *x = &p->in[0];
    return pare_cuda_is_float(x->dtype) && x->rank > 0 && x->dim[x->rank - 1] > 0 &&
           x->dim[x->rank - 1] <= INT_MAX && pare_view_rowmajor(x) &&
           (p->out_count < 2 || !p->out[1].dtype || pare_view_rowmajor(&p->out[1]));
}

static bool kl_can(const pare_prep *p)
{
    return loss_can(p) && pare_cuda_can_float(p, 2) && pare_view_rowmajor(&p->in[1]);
}

static bool entropy_can(const pare_prep *p)
{
    return loss_can(p) && (p->in_count < 2 || !p->in[1].dtype || pare_cuda_is_int(p->in[1].dtype));
}

static pare_status loss_prepare(pare_prep *p)
{
    const pare_view *x = &p->in[0];
    p->scratch = sizeof(double) * (size_t)(pare_view_count(x) / x->dim[x->rank - 1]);
    return PARE_OK;
}

static pare_cuda_loss loss_of(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    const int64_t n = x->dim[x->rank - 1], rows = pare_view_count(x) / n;
    return (pare_cuda_loss){.x = x->data,
                            .loss = c->out[0].data,
                            .dx = output(c, 1),
                            .part = c->scratch,
                            .dtype = x->dtype,
                            .rows = rows,
                            .part_of_mean = rows ? 1 / (double)rows : 0,
                            .n = n,
                            .temperature = (double)pare_node_float(c->node, "temperature", 1),
                            .fault = {c->fault, c->step}};
}

static pare_status kl_run(const pare_call *c)
{
    pare_cuda_loss l = loss_of(c);
    l.teacher = c->in[1].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_softmax_kl_launch, &l);
}

static pare_status entropy_run(const pare_call *c)
{
    pare_cuda_loss l = loss_of(c);
    if (c->in_count > 1 && c->in[1].dtype) {
        l.labels = c->in[1].data;
        l.label_type = c->in[1].dtype;
        l.apart = c->in[1].stride[0];
    }
    return PARE_CUDA_LAUNCH(c, pare_cuda_cross_entropy_launch, &l);
}

static pare_status entropy_fault(const pare_call *c, int64_t value)
{
    return PARE_FAIL_NODE(c->node, INPUT,
                          "label %" PRId64 " is outside the %" PRId64 " classes of '%s'", value,
                          c->in[0].dim[c->in[0].rank - 1], c->node->in[0]->name);
}

static const pare_kernel cuda_softmax_kl = {
    .name = "cuda_softmax_kl", .can = kl_can, .prepare = loss_prepare, .run = kl_run};
static const pare_kernel cuda_cross_entropy = {.name = "cuda_cross_entropy",
                                               .can = entropy_can,
                                               .prepare = loss_prepare,
                                               .run = entropy_run,
                                               .fault = entropy_fault};
const pare_kernel *const pare_cuda_softmax_kl[] = {&cuda_softmax_kl, NULL};
const pare_kernel *const pare_cuda_cross_entropy[] = {&cuda_cross_entropy, NULL};
