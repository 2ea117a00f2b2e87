/* SPDX-License-Identifier: Apache-2.0 */
/* Gather (1), GatherElements (11), GatherND (12), ScatterElements and ScatterND (18), OneHot (11),
   ReverseSequence (10). All but the scatters: one thread an element of y, one read of the index,
   one of the element. A position on an axis is the offset of an operand that has stride 1 there and
   0 elsewhere. */
#include "runtime/cuda/fault.cuh"
#include "runtime/cuda/gather.h"
#include "runtime/cuda/number.cuh"

enum { SCATTER_BLOCK = 128 };

/* Where indices point, in elements from where their axes begin; false where one is wrong. */
SIMT_INLINE bool place_of(const pare_cuda_axes &axes, const void *index, int64_t at, int64_t *out)
{
    bool inside = true;
    *out = 0;
    for (int k = 0; k < axes.count; k++) {
        int64_t i = pare_int_at(index, axes.type, at + k * axes.apart);
        inside = pare_index_of(axes.fault, axes.n[k], &i) && inside;
        *out += i * axes.step[k];
    }
    return inside;
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    gather_each(pare_cuda_walk w, pare_cuda_axes axes)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3], from;
        pare_walk_at<3>(w.walk, i, at);
        bool inside = place_of(axes, w.data[2], at[2], &from);
        y[at[0]] = inside ? x[at[1] + from] : T(0);
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    one_hot_each(pare_cuda_walk w, pare_dtype type, int64_t depth, const T *values, int64_t apart)
{
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3], hot;
        pare_walk_at<3>(w.walk, i, at);
        if (pare_is_float(type))
            hot = pare_int_of(pare_double_at(w.data[1], type, at[1]), PARE_s64);
        else
            hot = pare_int_at(w.data[1], type, at[1]);
        if (hot < 0) hot += depth;
        y[at[0]] = values[hot == at[2] ? apart : 0];
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    reverse_each(pare_cuda_walk w, pare_dtype type, int64_t time, int64_t step,
                 pare_cuda_fault fault)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[4];
        pare_walk_at<4>(w.walk, i, at);
        int64_t n = pare_int_at(w.data[2], type, at[2]), t = at[3];
        if (n < 0 || n > time) {
            pare_fault_note(fault, n);
            n = 0;
        }
        y[at[0]] = x[at[1] + (t < n ? n - 1 - 2 * t : 0) * step];
    }
}

/* --- scatter --- */

template <class T> SIMT_INLINE void copy_one(void *y, int64_t to, const void *x, int64_t from)
{
    static_cast<T *>(y)[to] = static_cast<const T *>(x)[from];
}

SIMT_INLINE void copy_bytes(int bytes, void *y, int64_t to, const void *x, int64_t from)
{
    if (bytes == 1)
        copy_one<uint8_t>(y, to, x, from);
    else if (bytes == 2)
        copy_one<uint16_t>(y, to, x, from);
    else if (bytes == 4)
        copy_one<uint32_t>(y, to, x, from);
    else
        copy_one<uint64_t>(y, to, x, from);
}

/* Of doubles: rounded to the tensor's type after each step, as the order of updates wants. */
SIMT_INLINE double combine(int kind, double a, double b)
{
    return kind == PARE_CUDA_SCATTER_ADD                ? a + b
           : kind == PARE_CUDA_SCATTER_MUL              ? a * b
           : (kind == PARE_CUDA_SCATTER_MIN) == (b < a) ? b
                                                        : a;
}

SIMT_INLINE int64_t combine(int kind, int64_t a, int64_t b)
{
    return kind == PARE_CUDA_SCATTER_ADD                ? (int64_t)((uint64_t)a + (uint64_t)b)
           : kind == PARE_CUDA_SCATTER_MUL              ? (int64_t)((uint64_t)a * (uint64_t)b)
           : (kind == PARE_CUDA_SCATTER_MIN) == (b < a) ? b
                                                        : a;
}

SIMT_INLINE void apply(const pare_cuda_scatter &s, int64_t to, int64_t from)
{
    void *y = s.line.data[0];
    const void *u = s.line.data[1];
    if (s.kind == PARE_CUDA_SCATTER_NONE)
        copy_bytes(s.bytes, y, to, u, from);
    else if (pare_is_float(s.dtype))
        pare_double_store(
            y, s.dtype, to,
            combine(s.kind, pare_double_at(y, s.dtype, to), pare_double_at(u, s.dtype, from)));
    else
        pare_int_store(y, s.dtype, to,
                       combine(s.kind, pare_int_at(y, s.dtype, to), pare_int_at(u, s.dtype, from)));
}

SIMT_INLINE void line_begin(const pare_cuda_scatter &s, int64_t line, int64_t *at)
{
    int64_t mine[3];
    pare_walk_at<3>(s.line.walk, line, mine);
    for (int k = 0; k < 3; k++) at[k] = mine[k];
}

/* Where update i of the line at `at` goes, -1 for nowhere, and where it is. */
SIMT_INLINE void update_begin(const pare_cuda_scatter &s, int64_t i, const int64_t *at,
                              int64_t *target, int64_t *source)
{
    int64_t step[3], place;
    *target = -1;
    if (i >= s.along.walk.count) return;
    pare_walk_at<3>(s.along.walk, i, step);
    *source = at[1] + step[1];
    if (place_of(s.axes, s.line.data[2], at[2] + step[2], &place)) *target = at[0] + place;
}

/* A block takes a line in pieces of one update a thread. Of the updates of a piece that meet in one
   element, the thread of the first applies all, in order; pieces follow each other. So the result
   is that of one update after the other, whatever runs first. */
static __global__ void __launch_bounds__(SCATTER_BLOCK) scatter_lines(pare_cuda_scatter s)
{
    SIMT_SHARED(int64_t, target, [SCATTER_BLOCK]);
    SIMT_SHARED(int64_t, source, [SCATTER_BLOCK]);
    SIMT_SHARED(int64_t, at, [3]);
    int me = (int)threadIdx.x;
    for (int64_t line = blockIdx.x; line < s.line.walk.count; line += gridDim.x) {
        if (me == 0) line_begin(s, line, at);
        __syncthreads();
        for (int64_t first = 0; first < s.along.walk.count; first += SCATTER_BLOCK) {
            update_begin(s, first + me, at, &target[me], &source[me]);
            __syncthreads();
            int64_t mine = target[me];
            bool leads = mine >= 0;
            for (int k = 0; k < me && leads; k++) leads = target[k] != mine;
            for (int k = me; k < SCATTER_BLOCK && leads; k++)
                if (target[k] == mine) apply(s, mine, source[k]);
            __syncthreads();
        }
    }
}

/* --- launchers --- */

#define LAUNCH(kernel, ...)                                                                        \
    SIMT_LAUNCH(kernel, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, *w,       \
                __VA_ARGS__)

#define BY_BYTES(launch)                                                                           \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        switch (bytes) {                                                                           \
        case 1: launch(uint8_t); break;                                                            \
        case 2: launch(uint16_t); break;                                                           \
        case 4: launch(uint32_t); break;                                                           \
        default: launch(uint64_t);                                                                 \
        }                                                                                          \
        return cudaGetLastError();                                                                 \
    } while (0)

extern "C" cudaError_t pare_cuda_gather_launch(const pare_cuda_walk *w, const pare_cuda_axes *axes,
                                               int bytes, cudaStream_t stream)
{
#define GATHER(T) LAUNCH(gather_each<T>, *axes)
    BY_BYTES(GATHER);
}

extern "C" cudaError_t pare_cuda_one_hot_launch(const pare_cuda_walk *w, pare_dtype index_type,
                                                int64_t depth, const void *values, int64_t apart,
                                                int bytes, cudaStream_t stream)
{
#define ONE_HOT(T) LAUNCH(one_hot_each<T>, index_type, depth, static_cast<const T *>(values), apart)
    BY_BYTES(ONE_HOT);
}

extern "C" cudaError_t pare_cuda_reverse_launch(const pare_cuda_walk *w, pare_dtype length_type,
                                                int64_t time, int64_t step,
                                                const pare_cuda_fault *fault, int bytes,
                                                cudaStream_t stream)
{
#define REVERSE(T) LAUNCH(reverse_each<T>, length_type, time, step, *fault)
    BY_BYTES(REVERSE);
}

extern "C" cudaError_t pare_cuda_scatter_launch(const pare_cuda_scatter *s, cudaStream_t stream)
{
    int64_t lines = s->line.walk.count;
    if (lines == 0 || s->along.walk.count == 0) return cudaSuccess;
    dim3 grid(lines < PARE_CUDA_MOST_BLOCKS ? (unsigned)lines : (unsigned)PARE_CUDA_MOST_BLOCKS);
    SIMT_LAUNCH(scatter_lines, grid, dim3(SCATTER_BLOCK), 0, stream, *s);
    return cudaGetLastError();
}
