/* SPDX-License-Identifier: Apache-2.0 */
/* MixedBinary (ops/fused.h): y = x of f, or f of x, with x and y short, f in f32. Four elements
   that lie together a thread, else one. Reads each operand once, writes the output once. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/vec_number.cuh"
#include "runtime/cuda/tensor_iterator.h"
#include "runtime/ops/fused.h"

/* FIRST: f is on the left. */
template <int KIND, bool FIRST> SIMT_INLINE float mixed_of(float x, float f)
{
    const float a = FIRST ? f : x, b = FIRST ? x : f;
    return KIND == PARE_MIXED_ADD   ? a + b
           : KIND == PARE_MIXED_SUB ? a - b
           : KIND == PARE_MIXED_MUL ? a * b
                                    : a / b;
}

/* Operands y, x, f. */
template <class T, int KIND, bool FIRST, int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) mixed_each(pare_cuda_iterator w)
{
    pare_dependent_begin();
    const int last = w.walk.rank - 1;
    const int64_t step_x = w.walk.stride[1][last], step_f = w.walk.stride[2][last];
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[3];
        T x[W];
        float f[W];
        pare_iterator_at<3>(w.walk, i * W, at);
        vec_load<W>(static_cast<const T *>(w.data[1]), at[1], step_x, x);
        vec_load<W>(static_cast<const float *>(w.data[2]), at[2], step_f, f);
        PARE_UNROLL for (int k = 0; k < W; k++)
            pare_store_f32(&x[k], mixed_of<KIND, FIRST>(pare_to_f32(x[k]), f[k]));
        vec_store<W>(static_cast<T *>(w.data[0]), at[0], x);
    }
}

/* --- launchers --- */

template <class T, int KIND, bool FIRST>
static cudaError_t kind_launch(const pare_cuda_iterator *w, cudaStream_t stream)
{
    PARE_ITERATOR_LAUNCH_VEC(4, (mixed_each<T, KIND, FIRST, 4>), (mixed_each<T, KIND, FIRST, 1>));
    return cudaGetLastError();
}

/* What is the same on both sides has one kernel. */
template <class T>
static cudaError_t type_launch(const pare_cuda_iterator *w, pare_mixed_kind kind, bool first,
                               cudaStream_t stream)
{
    switch (kind) {
    case PARE_MIXED_ADD: return kind_launch<T, PARE_MIXED_ADD, false>(w, stream);
    case PARE_MIXED_MUL: return kind_launch<T, PARE_MIXED_MUL, false>(w, stream);
    case PARE_MIXED_SUB:
        return first ? kind_launch<T, PARE_MIXED_SUB, true>(w, stream)
                     : kind_launch<T, PARE_MIXED_SUB, false>(w, stream);
    case PARE_MIXED_DIV:
        return first ? kind_launch<T, PARE_MIXED_DIV, true>(w, stream)
                     : kind_launch<T, PARE_MIXED_DIV, false>(w, stream);
    default: return cudaErrorInvalidValue;
    }
}

static cudaError_t mixed_launch(const pare_cuda_iterator *w, pare_dtype dtype, pare_mixed_kind kind,
                                bool first, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    return dtype == PARE_f16 ? type_launch<__half>(w, kind, first, stream)
                             : type_launch<__nv_bfloat16>(w, kind, first, stream);
}

static pare_status mixed_prepare(pare_prep *p)
{
    pare_mixed_kind *kind = (pare_mixed_kind *)pare_arena_alloc(p->arena, 1, sizeof *kind);
    p->state = kind;
    return kind ? pare_mixed_read(p->node, kind) : PARE_MEMORY;
}

static pare_status mixed_run(const pare_call *c)
{
    pare_cuda_iterator w;
    const bool first = c->in[0].dtype == PARE_f32;
    const pare_view x = pare_view_stretch(&c->in[first], &c->out[0]),
                    f = pare_view_stretch(&c->in[!first], &c->out[0]);
    const pare_view *const operands[] = {&c->out[0], &x, &f};
    pare_cuda_iterator_set(&w, operands, 3);
    return PARE_CUDA_LAUNCH(c, mixed_launch, &w, c->out[0].dtype,
                            *(const pare_mixed_kind *)c->state, first);
}

static const pare_kernel cuda_mixed_binary = {
    .name = "cuda_mixed_binary", .prepare = mixed_prepare, .run = mixed_run};
const pare_kernel *const pare_cuda_mixed_binary[] = {&cuda_mixed_binary, NULL};
