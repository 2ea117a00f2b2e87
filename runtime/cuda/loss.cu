/* SPDX-License-Identifier: Apache-2.0 */
/* SoftmaxKL and CrossEntropy: losses of rows of logits with their own gradients; formulas of
   cpu/softmax_kl.c. One warp a row, lanes striding through it, sums in double joined by shuffles; a
   row is read three times and its gradient written once. The rows' losses are added up by one warp,
   whatever ran when. */
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"
#include "runtime/cuda/device/rows.cuh"

#include <inttypes.h>
#include <limits.h>

/* A loss of logits (rows, n), dense: the mean of the rows' losses and, where dx is not NULL, its
   gradient. */
typedef struct pare_cuda_loss {
    const void *x, *teacher; /* teacher: of SoftmaxKL, else NULL */
    const void *labels;      /* of CrossEntropy, `apart` elements from each other; NULL: its own
                                first largest logit */
    void *loss, *dx;
    double *part; /* scratch: (rows) */
    pare_dtype dtype, label_type;
    int64_t rows, n, apart;
    double temperature, part_of_mean; /* 1 / rows */
    pare_cuda_fault fault;
} pare_cuda_loss;

/* A row's largest number and where it first is. */
typedef struct largest {
    float v;
    int64_t at;
} largest;

SIMT_INLINE largest largest_of(const void *x, pare_dtype type, int64_t from, int64_t n)
{
    largest l = {-INFINITY, n};
    for (int64_t i = (int)threadIdx.x & 31; i < n; i += 32) {
        const float v = pare_number_at(x, type, from + i);
        if (v > l.v || l.at == n) l.v = v, l.at = i;
    }
    for (int d = 16; d; d >>= 1) {
        const float v = __shfl_xor_sync(0xffffffffu, l.v, d);
        const int64_t at = __shfl_xor_sync(0xffffffffu, l.at, d);
        if (at < n && (l.at == n || v > l.v || (v == l.v && at < l.at))) l.v = v, l.at = at;
    }
    return l;
}

/* Of e^((x - top) / temperature), in each lane. */
SIMT_INLINE double exponents_sum(const void *x, pare_dtype type, int64_t from, int64_t n, float top,
                                 double temperature)
{
    double sum = 0;
    for (int64_t i = (int)threadIdx.x & 31; i < n; i += 32)
        sum += exp(((double)pare_number_at(x, type, from + i) - (double)top) / temperature);
    return pare_lanes_sum(sum);
}

static __global__ void __launch_bounds__(WARPS * 32) softmax_kl_rows(pare_cuda_loss l)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(l.rows), at = row * l.n;
    if (row < 0) return;
    const float top_s = largest_of(l.x, l.dtype, at, l.n).v,
                top_t = largest_of(l.teacher, l.dtype, at, l.n).v;
    const double ss = exponents_sum(l.x, l.dtype, at, l.n, top_s, l.temperature),
                 us = exponents_sum(l.teacher, l.dtype, at, l.n, top_t, l.temperature);
    const double factor = l.temperature / (double)l.rows;
    double kl = 0;
    for (int64_t i = lane; i < l.n; i += 32) {
        const double s = ((double)pare_number_at(l.x, l.dtype, at + i) - (double)top_s) /
                         l.temperature,
                     t = ((double)pare_number_at(l.teacher, l.dtype, at + i) - (double)top_t) /
                         l.temperature,
                     p = exp(t) / us;
        if (p > 0) kl += p * (t - s);
        if (l.dx) pare_number_store(l.dx, l.dtype, at + i, (float)((exp(s) / ss - p) * factor));
    }
    kl = pare_lanes_sum(kl);
    if (lane == 0) l.part[row] = kl - log(us) + log(ss);
}

static __global__ void __launch_bounds__(WARPS * 32) cross_entropy_rows(pare_cuda_loss l)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(l.rows), at = row * l.n;
    if (row < 0) return;
    const largest top = largest_of(l.x, l.dtype, at, l.n);
    int label = (int)top.at; /* fits: loss_can */
    if (l.labels) {
        const int64_t given = pare_int_at(l.labels, l.label_type, row * l.apart);
        const bool inside = given >= 0 && given < l.n;
        if (!inside && lane == 0) pare_fault_note(l.fault, given);
        label = inside ? (int)given : 0;
    }
    const double sum = exponents_sum(l.x, l.dtype, at, l.n, top.v, 1);
    if (lane == 0)
        l.part[row] = (double)top.v + log(sum) - (double)pare_number_at(l.x, l.dtype, at + label);
    if (!l.dx) return;
    const double share = l.part_of_mean / sum;
    for (int i = lane; i < (int)l.n; i += 32) {
        const double e = exp((double)pare_number_at(l.x, l.dtype, at + i) - (double)top.v);
        pare_number_store(l.dx, l.dtype, at + i,
                          (float)(e * share - (i == label ? l.part_of_mean : 0)));
    }
}

/* The mean of the rows, times factor. */
static __global__ void __launch_bounds__(32) join_rows(pare_cuda_loss l, double factor)
{
    double sum = 0;
    for (int64_t r = threadIdx.x; r < l.rows; r += 32) sum += l.part[r];
    sum = pare_lanes_sum(sum);
    if (threadIdx.x == 0)
        pare_number_store(l.loss, l.dtype, 0, (float)(factor * sum / (double)l.rows));
}

/* --- launchers --- */

static cudaError_t softmax_kl_launch(const pare_cuda_loss *l, cudaStream_t stream)
{
    if (l->rows) SIMT_LAUNCH(softmax_kl_rows, rows_grid(l->rows), dim3(WARPS * 32), 0, stream, *l);
    SIMT_LAUNCH(join_rows, dim3(1), dim3(32), 0, stream, *l, l->temperature * l->temperature);
    return cudaGetLastError();
}

static cudaError_t cross_entropy_launch(const pare_cuda_loss *l, cudaStream_t stream)
{
    if (l->rows)
        SIMT_LAUNCH(cross_entropy_rows, rows_grid(l->rows), dim3(WARPS * 32), 0, stream, *l);
    SIMT_LAUNCH(join_rows, dim3(1), dim3(32), 0, stream, *l, 1.0);
    return cudaGetLastError();
}

/* --- SoftmaxKL, CrossEntropy --- */

static void *output(const pare_call *c, int i)
{
    return i < c->out_count && c->out[i].dtype ? c->out[i].data : NULL;
}

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
                            .part = (double *)c->scratch,
                            .dtype = x->dtype,
                            .rows = rows,
                            .n = n,
                            .temperature = (double)pare_node_float(c->node, "temperature", 1),
                            .part_of_mean = rows ? 1 / (double)rows : 0,
                            .fault = {c->fault, c->step}};
}

static pare_status kl_run(const pare_call *c)
{
    pare_cuda_loss l = loss_of(c);
    l.teacher = c->in[1].data;
    return PARE_CUDA_LAUNCH(c, softmax_kl_launch, &l);
}

static pare_status entropy_run(const pare_call *c)
{
    pare_cuda_loss l = loss_of(c);
    if (c->in_count > 1 && c->in[1].dtype) {
        l.labels = c->in[1].data;
        l.label_type = c->in[1].dtype;
        l.apart = c->in[1].stride[0];
    }
    return PARE_CUDA_LAUNCH(c, cross_entropy_launch, &l);
}

static pare_status entropy_fault(const pare_call *c, int64_t value)
{
    return PARE_FAIL_CALL(c, INPUT, "label %" PRId64 " is outside the %" PRId64 " classes of '%s'",
                          value, c->in[0].dim[c->in[0].rank - 1], c->node->in[0]->name);
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
