/* SPDX-License-Identifier: Apache-2.0 */
/* Shape and Size (1 to 21), Range (11), Trilu (14): one thread an element. The
   distance from the diagonal is the offset of an operand with stride 1 along rows and -1 along
   columns. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"
#include "runtime/ops/constant.h"

#include <string.h>

/* Up to PARE_MAX_RANK numbers by value. */
typedef struct pare_cuda_numbers {
    int count;
    int64_t value[PARE_MAX_RANK];
} pare_cuda_numbers;

static __global__ void numbers_each(int64_t *y, pare_cuda_numbers n)
{
    if ((int)threadIdx.x < n.count) y[threadIdx.x] = n.value[threadIdx.x];
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    range_each(void *y, int64_t count, pare_dtype type, const void *start, const void *delta)
{
    PARE_CUDA_EACH (i, count) {
        if (pare_is_float(type))
            pare_double_store(y, type, i,
                              pare_double_at(start, type, 0) +
                                  (double)i * pare_double_at(delta, type, 0));
        else
            pare_int_store(y, type, i,
                           (int64_t)((uint64_t)pare_int_at(start, type, 0) +
                                     (uint64_t)i * (uint64_t)pare_int_at(delta, type, 0)));
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    trilu_each(pare_cuda_iterator w, bool upper, const void *diagonal, pare_dtype type)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    int64_t k = diagonal ? pare_int_at(diagonal, type, 0) : 0;
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_iterator_at<3>(w.walk, i, at);
        y[at[0]] = (upper ? at[2] >= k : at[2] <= k) ? x[at[1]] : T(0);
    }
}

/* --- launchers --- */

/* y: (count) of s64. */
static cudaError_t numbers_launch(int64_t *y, const pare_cuda_numbers *n, cudaStream_t stream)
{
    if (n->count == 0) return cudaSuccess;
    SIMT_LAUNCH(numbers_each, dim3(1), dim3(32), 0, stream, y, *n);
    return cudaGetLastError();
}

/* y[i] = start + i * delta, floats in double; start and delta: one element on the device. */
static cudaError_t range_launch(void *y, int64_t count, pare_dtype dtype, const void *start,
                                const void *delta, cudaStream_t stream)
{
    if (count == 0) return cudaSuccess;
    SIMT_LAUNCH(range_each, pare_cuda_grid(count), dim3(PARE_CUDA_BLOCK), 0, stream, y, count,
                dtype, start, delta);
    return cudaGetLastError();
}

#define LAUNCH(kernel, ...)                                                                        \
    SIMT_LAUNCH(kernel, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, *w,       \
                __VA_ARGS__)

/* Operands y, x, column - row (no data): y = x where that is at least k (upper) or at most k, else
   0; k: one element on the device, NULL is 0. */
static cudaError_t trilu_launch(const pare_cuda_iterator *w, int bytes, bool upper, const void *k,
                                pare_dtype k_type, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    switch (bytes) {
    case 1: LAUNCH(trilu_each<uint8_t>, upper, k, k_type); break;
    case 2: LAUNCH(trilu_each<uint16_t>, upper, k, k_type); break;
    case 4: LAUNCH(trilu_each<uint32_t>, upper, k, k_type); break;
    default: LAUNCH(trilu_each<uint64_t>, upper, k, k_type);
    }
    return cudaGetLastError();
}

/* --- Constant, ConstantOfShape: copies of what is on the device --- */

static bool constant_can(const pare_prep *p)
{
    return pare_cuda_bytes(p->out[0].dtype) > 0 && pare_view_rowmajor(&p->out[0]);
}

static bool filled_can(const pare_prep *p) { return pare_cuda_bytes(p->out[0].dtype) > 0; }

static pare_status kept_prepare(pare_prep *p)
{
    const pare_tensor *t;
    PARE_TRY(pare_constant_tensor(p->node, p->arena, &t));
    return pare_cuda_keep(p, t->data, t->bytes);
}

static pare_status copy(const pare_call *c, const pare_view *from)
{
    pare_view kept = *from;
    kept.data = ((const pare_cuda_kept *)c->state)->data;
    return pare_cuda_copy(c, &c->out[0], &kept);
}

static pare_status constant_run(const pare_call *c) { return copy(c, &c->out[0]); }

static pare_status constant_of_shape_run(const pare_call *c)
{
    pare_view same = c->out[0];
    memset(same.stride, 0, sizeof same.stride);
    return copy(c, &same);
}

#define KEPT(stem, accepts)                                                                        \
    static const pare_kernel cuda_##stem = {.name = "cuda_" #stem,                                 \
                                            .can = accepts,                                        \
                                            .prepare = kept_prepare,                               \
                                            .run = stem##_run,                                     \
                                            .release = pare_cuda_kept_release};                    \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
KEPT(constant, constant_can)
KEPT(constant_of_shape, filled_can)

/* --- Shape, Size, Range --- */

static pare_status shape_run(const pare_call *c)
{
    int64_t rank = c->in[0].rank, start = pare_node_int(c->node, "start", 0);
    pare_cuda_numbers n = {.count = (int)c->out[0].dim[0]};
    if (start < 0) start += rank;
    start = start < 0 ? 0 : start;
    for (int i = 0; i < n.count; i++) n.value[i] = c->in[0].dim[start + i];
    return PARE_CUDA_LAUNCH(c, numbers_launch, (int64_t *)c->out[0].data, &n);
}

static pare_status size_run(const pare_call *c)
{
    pare_cuda_numbers n = {.count = 1, .value = {pare_view_count(&c->in[0])}};
    return PARE_CUDA_LAUNCH(c, numbers_launch, (int64_t *)c->out[0].data, &n);
}

static pare_status range_run(const pare_call *c)
{
    return PARE_CUDA_LAUNCH(c, range_launch, c->out[0].data, c->out[0].dim[0], c->out[0].dtype,
                            c->in[0].data, c->in[2].data);
}

static bool range_can(const pare_prep *p) { return pare_cuda_is_number(p->in[0].dtype); }

/* --- Trilu --- */

/* Column minus row of the last two axes, as an operand without data. */
static pare_view distance(const pare_view *y)
{
    pare_view v = *y;
    memset(v.stride, 0, sizeof v.stride);
    v.stride[v.rank - 1] = 1;
    v.stride[v.rank - 2] = -1;
    v.data = NULL;
    return v;
}

static bool trilu_can(const pare_prep *p)
{
    bool given = p->in_count > 1 && p->in[1].dtype;
    return pare_cuda_bytes(p->in[0].dtype) > 0 && (!given || p->in[1].dtype == PARE_s64);
}

static pare_status trilu_run(const pare_call *c)
{
    const pare_view *y = &c->out[0], away = distance(y);
    const pare_view *all[3] = {y, &c->in[0], &away};
    bool given = c->in_count > 1 && c->in[1].dtype;
    pare_cuda_iterator w = {.data = {y->data, c->in[0].data}};
    pare_iterator_init(&w.walk, all, 3);
    return PARE_CUDA_LAUNCH(c, trilu_launch, &w, pare_cuda_bytes(y->dtype),
                            pare_node_int(c->node, "upper", 1) != 0, given ? c->in[1].data : NULL,
                            PARE_s64);
}

#define PLAIN(stem, accepts)                                                                       \
    static const pare_kernel cuda_##stem = {                                                       \
        .name = "cuda_" #stem, .can = accepts, .run = stem##_run};                                 \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
PLAIN(shape, NULL)
PLAIN(size, NULL)
PLAIN(range, range_can)
PLAIN(trilu, trilu_can)
