/* SPDX-License-Identifier: Apache-2.0 */
/* Cast and CastLike (19) by the rules of runtime/cpu/cast.c: float to integer truncates towards
   zero and saturates, integer to integer keeps the low bits, float to 4 bits rounds to nearest even
   and saturates, anything to bool is x != 0. One thread an element; one thread a byte where two
   elements share it. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    cast_each(pare_cuda_iterator w, pare_dtype to, pare_dtype from)
{
    bool floats = pare_is_float(from), to_floats = pare_is_float(to);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_iterator_at<2>(w.walk, i, at);
        if (!floats) {
            int64_t v = pare_int_at(w.data[1], from, at[1]);
            if (to_floats)
                pare_float_store(w.data[0], to, at[0], v, from == PARE_u64);
            else
                pare_int_store(w.data[0], to, at[0], v);
            continue;
        }
        double v = pare_double_at(w.data[1], from, at[1]);
        if (to_floats)
            pare_double_store(w.data[0], to, at[0], v);
        else
            pare_int_store(w.data[0], to, at[0], pare_int_of(v, to));
    }
}

/* y is packed, so that the walk goes through it in order. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    cast_packed(pare_cuda_iterator w, pare_dtype to, pare_dtype from)
{
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
        SIMT_LAUNCH(cast_packed, pare_cuda_grid((count + 1) / 2), dim3(PARE_CUDA_BLOCK), 0, stream,
                    *w, to, from);
    else
        SIMT_LAUNCH(cast_each, pare_cuda_grid(count), dim3(PARE_CUDA_BLOCK), 0, stream, *w, to,
                    from);
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

static const pare_kernel cuda_cast = {.name = "cuda_cast", .can = cast_can, .run = cast_run};
const pare_kernel *const pare_cuda_cast[] = {&cuda_cast, NULL};
