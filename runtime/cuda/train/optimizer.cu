/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over microbatches, and an optimizer's step on all weights in one launch: a block of threads
   works on a piece of a tensor. Bytes moved of n weights: a microbatch's gradients 8 n and 4 n for
   each sum that they are added to, their squares 4 n, AdamW 28 n, SGD 20 n, with averages 8 n more.
   The norm's order: a thread adds up every 256th element of its piece, then halves of the block are
   added until one is left; then one block does the same with the pieces' sums. Nothing is atomic.
 */
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/device/device_parts.h"
#include "runtime/cuda/device/error.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/device/training.h"

enum { PARE_CUDA_SLICES = 16, LEVELS = 4 }; /* of one launch; 2^LEVELS */

/* A lot of the terms of a sum, and where it goes. */
typedef struct pare_cuda_slices {
    pare_tree_term lot;                    /* as a term of the sum of lots */
    const void *waiting[PARE_TREE_LEVELS]; /* sums of lots, by level */
    const void *x[PARE_CUDA_SLICES];
    void *y[PARE_CUDA_SLICES];
    int x_count, y_count;
    pare_dtype dtype;
    int64_t count;
} pare_cuda_slices;

// Are bits 0 .. n of k ones?
SIMT_INLINE bool ends_in_ones(int k, int n) { return (k & ((2 << n) - 1)) == (2 << n) - 1; }

// A lot in the tree of tree_sum.h, unrolled: every sum that waits has a register.
template <typename T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) slices_each(pare_cuda_slices s)
{
    PARE_CUDA_EACH (i, s.count) {
        T waiting[LEVELS + 1], sum = 0;
        SIMT_UNROLL
        for (int k = 0; k < PARE_CUDA_SLICES; k++)
            if (k < s.x_count) {
                sum = static_cast<const T *>(s.x[k])[i];
                SIMT_UNROLL
                for (int n = 0; n < LEVELS; n++)
                    if ((k >> n & 1) && (k + 1 == s.x_count || ends_in_ones(k, n)))
                        sum = waiting[n] + sum;
                SIMT_UNROLL
                for (int n = 0; n <= LEVELS; n++)
                    if (!(k >> n & 1) && (!n || ends_in_ones(k, n - 1))) waiting[n] = sum;
            }
        for (int n = 0; s.lot.with >> n; n++)
            if (s.lot.with >> n & 1) sum = static_cast<const T *>(s.waiting[n])[i] + sum;
        for (int k = 0; k < s.y_count; k++) static_cast<T *>(s.y[k])[i] = sum;
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    gather_piece(pare_train_blocks b, const float *const *from, pare_tree_term term)
{
    const pare_train_chunk p = b.chunk[blockIdx.x];
    const int64_t at = b.tensor[p.tensor].at + p.at;
    const float *x = from ? from[p.tensor] + p.at : b.gradient + at;
    float *to = (term.to < 0 ? b.gradient : b.waiting + term.to * b.floats) + at;
    for (int i = (int)threadIdx.x; i < p.count; i += PARE_CUDA_BLOCK) {
        float sum = x[i];
        for (int n = 0; term.with >> n; n++)
            if (term.with >> n & 1) sum = b.waiting[n * b.floats + at + i] + sum;
        to[i] = sum;
    }
}

// The block's sum, in thread 0.
SIMT_INLINE double block_sum(double *held, double mine)
{
    const int me = (int)threadIdx.x;
    held[me] = mine;
    __syncthreads();
    for (int apart = PARE_CUDA_BLOCK / 2; apart; apart /= 2) {
        if (me < apart) held[me] += held[me + apart];
        __syncthreads();
    }
    return held[0];
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) square_piece(pare_train_blocks b)
{
    SIMT_SHARED(double, held, [PARE_CUDA_BLOCK]);
    const pare_train_chunk p = b.chunk[blockIdx.x];
    const pare_train_tensor t = b.tensor[p.tensor];
    const uint8_t *zero = t.zero < 0 ? NULL : b.zero + t.zero + p.at;
    float *g = b.gradient + t.at + p.at;
    double sum = 0;
    for (int i = (int)threadIdx.x; i < p.count; i += PARE_CUDA_BLOCK) {
        float v = g[i];
        if (zero && zero[i]) v = 0;
        if (t.gradient_scale > 0) v *= t.gradient_scale;
        if (zero || t.gradient_scale > 0) g[i] = v;
        sum += (double)v * (double)v;
    }
    sum = block_sum(held, sum);
    if (!threadIdx.x) b.sum[1 + blockIdx.x] = sum;
}

// pare_train_chunks_sum of training.h
static_assert((int)PARE_CUDA_BLOCK == (int)PARE_TRAIN_LANES, "a thread for each lane");
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) square_all(pare_train_blocks b)
{
    SIMT_SHARED(double, held, [PARE_CUDA_BLOCK]);
    double sum = 0;
    for (int i = (int)threadIdx.x; i < b.chunks; i += PARE_CUDA_BLOCK) sum += b.sum[1 + i];
    sum = block_sum(held, sum);
    if (!threadIdx.x) b.sum[0] = sum;
}

template <bool ADAMW>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    step_piece(pare_train_blocks b, pare_train_rule r, float part)
{
    const pare_train_chunk p = b.chunk[blockIdx.x];
    const pare_train_tensor t = b.tensor[p.tensor];
    const bool learned = t.gradient_scale > 0;
    pare_train_step step = pare_train_step_of(&r, r.learning_rate, t.decays);
    for (int i = (int)threadIdx.x; i < p.count; i += PARE_CUDA_BLOCK) {
        const int64_t at = t.at + p.at + i;
        pare_train_element e;
        e.value = b.value[at];
        e.exp_avg = b.exp_avg[at];
        e.exp_avg_sq = ADAMW ? b.exp_avg_sq[at] : 0;
        if (learned)
            step = pare_train_step_of(&r, r.learning_rate * fabs((double)b.start[at]), t.decays);
        e = ADAMW ? pare_adamw_step(&r, step, b.gradient[at], e)
                  : pare_sgd_step(&r, step, b.gradient[at], e);
        const bool zero = t.zero >= 0 && b.zero[t.zero + p.at + i];
        if (zero) e.value = e.exp_avg = e.exp_avg_sq = 0;
        if (learned) e.value = pare_train_hold(e.value, b.start[at]);
        b.value[at] = e.value;
        b.exp_avg[at] = e.exp_avg;
        if (ADAMW) b.exp_avg_sq[at] = e.exp_avg_sq;
        if (b.ema) {
            const float a = b.ema[at];
            b.ema[at] = zero ? 0 : a + part * (e.value - a);
        }
    }
}

// --- launchers ---

static cudaError_t slices_launch(const pare_cuda_slices *s, cudaStream_t stream)
{
    if (s->dtype == PARE_f64) PARE_CUDA_LAUNCH_EACH(slices_each<double>, s->count, *s);
    PARE_CUDA_LAUNCH_EACH(slices_each<float>, s->count, *s);
}

static cudaError_t gather_gradients_launch(const pare_train_blocks *b, const float *const *from,
                                           pare_tree_term term, cudaStream_t stream)
{
    SIMT_LAUNCH(gather_piece, dim3((unsigned)b->chunks), dim3(PARE_CUDA_BLOCK), 0, stream, *b, from,
                term);
    return cudaGetLastError();
}

static cudaError_t squares_launch(const pare_train_blocks *b, cudaStream_t stream)
{
    if (b->chunks)
        SIMT_LAUNCH(square_piece, dim3((unsigned)b->chunks), dim3(PARE_CUDA_BLOCK), 0, stream, *b);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(square_all, dim3(1), dim3(PARE_CUDA_BLOCK), 0, stream, *b);
    return cudaGetLastError();
}

static cudaError_t step_launch(const pare_train_blocks *b, const pare_train_rule *rule, float part,
                               cudaStream_t stream)
{
    if (rule->adamw)
        SIMT_LAUNCH(step_piece<true>, dim3((unsigned)b->chunks), dim3(PARE_CUDA_BLOCK), 0, stream,
                    *b, *rule, part);
    else
        SIMT_LAUNCH(step_piece<false>, dim3((unsigned)b->chunks), dim3(PARE_CUDA_BLOCK), 0, stream,
                    *b, *rule, part);
    return cudaGetLastError();
}

/* --- the table of training.h --- */

#define LAUNCH(ctx, stream, launcher, ...)                                                         \
    do {                                                                                           \
        cudaError_t error_ = launcher(__VA_ARGS__, pare_cuda_stream(stream));                      \
        if (error_ != cudaSuccess) return pare_cuda_fail((ctx), error_, #launcher);                \
    } while (0)

/* The next lot of terms; its sum waits in the y of its level, whose x was read by then. */
static int lot_of(pare_cuda_slices *s, const pare_slice_sums *sums, int lot, int lots)
{
    const int first = lot * PARE_CUDA_SLICES, left = sums->slices - first;
    s->lot = pare_tree_term_of(lot, lots);
    s->x_count = left < PARE_CUDA_SLICES ? left : PARE_CUDA_SLICES;
    for (int k = 0; k < s->x_count; k++) s->x[k] = sums->x[first + k];
    for (int n = 0; s->lot.with >> n; n++) s->waiting[n] = sums->y[n];
    s->y_count = s->lot.to < 0 ? 0 : 1;
    if (s->y_count) s->y[0] = sums->y[s->lot.to];
    return s->y_count;
}

/* The sum of the last lot is that of all: it goes to every y, as many a launch as it takes, from
   the second launch on as a copy of y[0]. */
static pare_status slices(pare_ctx *ctx, pare_stream *stream, const pare_slice_sums *sums)
{
    const int lots = (sums->slices + PARE_CUDA_SLICES - 1) / PARE_CUDA_SLICES;
    pare_cuda_slices s = {.dtype = sums->dtype, .count = sums->count};
    for (int lot = 0; lot < lots && lot_of(&s, sums, lot, lots); lot++)
        LAUNCH(ctx, stream, slices_launch, &s);
    for (int y = 0; y < sums->slices;) {
        for (s.y_count = 0; s.y_count < PARE_CUDA_SLICES && y < sums->slices; y++)
            s.y[s.y_count++] = sums->y[y];
        LAUNCH(ctx, stream, slices_launch, &s);
        s.lot.with = 0;
        s.x_count = 1;
        s.x[0] = sums->y[0];
    }
    return PARE_OK;
}

static pare_status gather(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks,
                          const float *const *from, pare_tree_term term)
{
    if (!blocks->chunks) return PARE_OK;
    LAUNCH(ctx, stream, gather_gradients_launch, blocks, from, term);
    return PARE_OK;
}

static pare_status squares(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks)
{
    LAUNCH(ctx, stream, squares_launch, blocks);
    return PARE_OK;
}

static pare_status step(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks,
                        const pare_train_rule *rule, float part)
{
    if (!blocks->chunks) return PARE_OK;
    LAUNCH(ctx, stream, step_launch, blocks, rule, part);
    return PARE_OK;
}

const pare_training_table pare_cuda_training = {
    .slices = slices, .gather = gather, .squares = squares, .step = step};
