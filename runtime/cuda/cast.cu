/* SPDX-License-Identifier: Apache-2.0 */
/* Cast and CastLike (19) by the rules of runtime/cpu/cast.c: float to integer truncates towards
   zero and saturates, integer to integer keeps the low bits, float to 4 bits rounds to nearest even
   and saturates, anything to bool is x != 0. Four neighbours a thread where they lie together, else
   one; one thread a byte where two elements share it. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/vec_number.cuh"

/* Between f32, f16 and bf16. W: 4, or 1, as below. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    cast_floats(pare_cuda_iterator w, pare_dtype to, pare_dtype from)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2];
        float v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load_floats<W>(w.data[1], from, at[1], iterator_step(w, 1), v);
        vec_store_floats<W>(w.data[0], to, at[0], v);
    }
}

/* The floats of integers, rounded once: of u64 where wide. */
template <int W>
SIMT_INLINE void vec_store_rounded(void *data, pare_dtype type, int64_t at, const int64_t v[W],
                                   bool wide)
{
    if (type == PARE_f64) {
        double of[W];
        PARE_UNROLL for (int k = 0; k < W; k++) of[k] =
            wide ? (double)(uint64_t)v[k] : (double)v[k];
        vec_store_doubles<W>(data, type, at, of);
        return;
    }
    float of[W];
    PARE_UNROLL for (int k = 0; k < W; k++) of[k] = wide ? (float)(uint64_t)v[k] : (float)v[k];
    vec_store_floats<W>(data, type, at, of);
}

template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    cast_ints(pare_cuda_iterator w, pare_dtype to, pare_dtype from)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2], v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load_ints<W>(w.data[1], from, at[1], iterator_step(w, 1), v);
        if (pare_is_float(to))
            vec_store_rounded<W>(w.data[0], to, at[0], v, from == PARE_u64);
        else
            vec_store_ints<W>(w.data[0], to, at[0], v);
    }
}

/* Floats to integers, and from or to f64. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    cast_doubles(pare_cuda_iterator w, pare_dtype to, pare_dtype from)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2], whole[W];
        double v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load_doubles<W>(w.data[1], from, at[1], iterator_step(w, 1), v);
        if (pare_is_float(to)) {
            vec_store_doubles<W>(w.data[0], to, at[0], v);
            continue;
        }
        PARE_UNROLL for (int k = 0; k < W; k++) whole[k] = pare_int_of(v[k], to);
        vec_store_ints<W>(w.data[0], to, at[0], whole);
    }
}

/* y is packed, so that the walk goes through it in order. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    cast_packed(pare_cuda_iterator w, pare_dtype to, pare_dtype from)
{
    pare_dependent_begin();
    uint8_t *y = static_cast<uint8_t *>(w.data[0]);
    PARE_CUDA_EACH (b, (w.walk.count + 1) / 2) {
        int byte = 0;
        for (int part = 0; part < 2 && 2 * b + part < w.walk.count; part++) {
            int64_t at[2];
            pare_iterator_at<2>(w.walk, 2 * b + part, at);
            int64_t v = pare_is_float(from)
                            ? pare_int_of(rint(pare_double_at(w.data[1], from, at[1])), to)
                            : pare_int_at(w.data[1], from, at[1]);
            byte |= (int)(v & 15) << 4 * part;
        }
        y[b] = (uint8_t)byte;
    }
}

/* Operands y, x of any numbers or bool; those of 4 bits are row-major. */
static cudaError_t cast_launch(const pare_cuda_iterator *w, pare_dtype to, pare_dtype from,
                               cudaStream_t stream)
{
    int64_t count = w->walk.count;
    if (count == 0) return cudaSuccess;
    if (to == PARE_s4 || to == PARE_u4)
        PARE_LAUNCH_DEPENDENT(cast_packed, pare_cuda_grid((count + 1) / 2), dim3(PARE_CUDA_BLOCK),
                              0, stream, *w, to, from);
    else if (pare_cuda_is_float(from) && pare_cuda_is_float(to))
        PARE_ITERATOR_LAUNCH_VEC(4, cast_floats<4>, cast_floats<1>, to, from);
    else if (pare_type_is_float(from))
        PARE_ITERATOR_LAUNCH_VEC(4, cast_doubles<4>, cast_doubles<1>, to, from);
    else
        PARE_ITERATOR_LAUNCH_VEC(4, cast_ints<4>, cast_ints<1>, to, from);
    return cudaGetLastError();
}

static bool castable(const pare_view *v)
{
    bool packed = v->dtype == PARE_s4 || v->dtype == PARE_u4;
    return pare_cuda_is_number(v->dtype) || v->dtype == PARE_bool ||
           (packed && pare_view_rowmajor(v));
}

static bool cast_can(const pare_prep *p) { return castable(&p->in[0]) && castable(&p->out[0]); }

static pare_status cast_run(const pare_call *c)
{
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, cast_launch, &w, c->out[0].dtype, c->in[0].dtype);
}

static const pare_kernel cuda_cast = {
    .name = "cuda_cast", .can = cast_can, .run = cast_run, .flags = PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_cast[] = {&cuda_cast, NULL};
