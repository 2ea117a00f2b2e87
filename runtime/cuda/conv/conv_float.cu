/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution and both its gradients are products whose operands are read where they are:
     Y   rows: positions of Y, columns: filters, depth: taps and channels (channels fastest)
     dX  rows: positions of X, columns: channels, depth: taps and filters (filters fastest)
     dW  rows: filters, columns: channels and taps (taps fastest), depth: positions of Y
   A block of 256 threads makes 64 x 64 sums, 4 x 4 a thread; 16 steps of depth at a time are in
   shared memory. The long depth of dW is cut into splits, whose sums are added in order: nothing
   is atomic. */
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/device/common.cuh"

#include <limits.h>

/* Three window axes (missing ones of length 1); channels and filters of one group. Strides of X or
   dX and of Y or dY: N, C, window axes; of W or dW: filters, channels, window axes. f32, f16 or
   bf16, summed in float; beside a short type the bias and what is made may be f32. */
typedef struct pare_cuda_conv_float {
    const void *x, *w, *y, *bias; /* what it is made of */
    void *to;
    float *part; /* of dW in splits > 1: (groups, splits, filters, channels taps) */
    pare_dtype dtype, to_type, bias_type;
    pare_cuda_conv_makes makes;
    int n, groups, channels, filters, splits;
    int in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
    int64_t x_stride[5], y_stride[5], w_stride[5];
} pare_cuda_conv_float;

enum { TILE = 64, DEPTH = 16, MINE = 4, THREADS = 256, PITCH = TILE + 4 };

SIMT_INLINE int taps_of(const pare_cuda_conv_float &f)
{
    return f.kernel[0] * f.kernel[1] * f.kernel[2];
}

/* at: the three positions of number i in a box. */
SIMT_INLINE void unroll(int64_t i, const int box[3], int at[3])
{
    for (int a = 2; a >= 0; a--) {
        at[a] = (int)(i % box[a]);
        i /= box[a];
    }
}

/* dY of group z at filter m where tap meets position x of image n, 0 where it meets none. */
SIMT_INLINE float dy_met(const pare_cuda_conv_float &f, int64_t z, int64_t n, const int x[3],
                         const int tap[3], int64_t m)
{
    int64_t at = n * f.y_stride[0] + (z * f.filters + m) * f.y_stride[1];
    for (int a = 0; a < 3; a++) {
        const int place = x[a] + f.begin[a] - tap[a] * f.dilation[a], o = place / f.stride[a];
        if (place < 0 || o >= f.out[a] || o * f.stride[a] != place) return 0;
        at += o * f.y_stride[2 + a];
    }
    return pare_number_at(f.y, f.dtype, at);
}

/* X of group z at channel c under tap of window y of image n, 0 in the padding. */
SIMT_INLINE float x_under(const pare_cuda_conv_float &f, int64_t z, int64_t n, const int y[3],
                          const int tap[3], int64_t c)
{
    int64_t at = n * f.x_stride[0] + (z * f.channels + c) * f.x_stride[1];
    for (int a = 0; a < 3; a++) {
        const int place = y[a] * f.stride[a] - f.begin[a] + tap[a] * f.dilation[a];
        if (place < 0 || place >= f.in[a]) return 0;
        at += place * f.x_stride[2 + a];
    }
    return pare_number_at(f.x, f.dtype, at);
}

SIMT_INLINE int64_t w_place(const pare_cuda_conv_float &f, int64_t z, int64_t m, int64_t c,
                            const int tap[3])
{
    return (z * f.filters + m) * f.w_stride[0] + c * f.w_stride[1] + tap[0] * f.w_stride[2] +
           tap[1] * f.w_stride[3] + tap[2] * f.w_stride[4];
}

/* Sizes of the product. */
typedef struct product {
    int64_t rows, columns, depth;
} product;

static __host__ __device__ inline product product_of(const pare_cuda_conv_float &f)
{
    const int64_t taps = (int64_t)f.kernel[0] * f.kernel[1] * f.kernel[2];
    const int64_t ins = (int64_t)f.n * f.in[0] * f.in[1] * f.in[2];
    const int64_t outs = (int64_t)f.n * f.out[0] * f.out[1] * f.out[2];
    switch (f.makes) {
    case PARE_CUDA_CONV_Y: return {outs, f.filters, f.channels * taps};
    case PARE_CUDA_CONV_DX: return {ins, f.channels, f.filters * taps};
    default: return {f.filters, f.channels * taps, outs};
    }
}

/* Where a picture has this channel of a position, counted over all images. */
SIMT_INLINE int64_t place_of(const int box[3], const int64_t stride[5], int64_t position,
                             int64_t channel)
{
    int at[3];
    unroll(position, box, at);
    return position / ((int64_t)box[0] * box[1] * box[2]) * stride[0] + channel * stride[1] +
           at[0] * stride[2] + at[1] * stride[3] + at[2] * stride[4];
}

/* X at channel c under tap of the window of a position of Y, counted over all images. */
SIMT_INLINE float window_at(const pare_cuda_conv_float &f, int64_t z, int64_t position,
                            const int tap[3], int64_t c)
{
    int at[3];
    unroll(position, f.out, at);
    return x_under(f, z, position / ((int64_t)f.out[0] * f.out[1] * f.out[2]), at, tap, c);
}

/* The left operand: row r, depth k. */
SIMT_INLINE float left_at(const pare_cuda_conv_float &f, int64_t z, int64_t r, int64_t k)
{
    int at[3], tap[3];
    switch (f.makes) {
    case PARE_CUDA_CONV_Y:
        unroll(k / f.channels, f.kernel, tap);
        return window_at(f, z, r, tap, k % f.channels);
    case PARE_CUDA_CONV_DX:
        unroll(r, f.in, at);
        unroll(k / f.filters, f.kernel, tap);
        return dy_met(f, z, r / ((int64_t)f.in[0] * f.in[1] * f.in[2]), at, tap, k % f.filters);
    default: return pare_number_at(f.y, f.dtype, place_of(f.out, f.y_stride, k, z * f.filters + r));
    }
}

/* The right operand: depth k, column c. */
SIMT_INLINE float right_at(const pare_cuda_conv_float &f, int64_t z, int64_t k, int64_t c)
{
    int tap[3];
    switch (f.makes) {
    case PARE_CUDA_CONV_Y:
        unroll(k / f.channels, f.kernel, tap);
        return pare_number_at(f.w, f.dtype, w_place(f, z, c, k % f.channels, tap));
    case PARE_CUDA_CONV_DX:
        unroll(k / f.filters, f.kernel, tap);
        return pare_number_at(f.w, f.dtype, w_place(f, z, k % f.filters, c, tap));
    default: unroll(c, f.kernel, tap); return window_at(f, z, k, tap, c / taps_of(f));
    }
}

SIMT_INLINE void give(const pare_cuda_conv_float &f, int64_t z, int64_t r, int64_t c, float v)
{
    int64_t at;
    int tap[3];
    switch (f.makes) {
    case PARE_CUDA_CONV_Y:
        if (f.bias) v += pare_number_at(f.bias, f.bias_type, z * f.filters + c);
        at = place_of(f.out, f.y_stride, r, z * f.filters + c);
        break;
    case PARE_CUDA_CONV_DX: at = place_of(f.in, f.x_stride, r, z * f.channels + c); break;
    default: unroll(c, f.kernel, tap); at = w_place(f, z, r, c / taps_of(f), tap);
    }
    pare_number_store(f.to, f.to_type, at, v);
}

static __global__ void __launch_bounds__(THREADS, 2) conv_float_tile(pare_cuda_conv_float f)
{
    SIMT_SHARED(float, left, [DEPTH][PITCH]);
    SIMT_SHARED(float, right, [DEPTH][PITCH]);
    const product p = product_of(f);
    const int tid = (int)threadIdx.x, across = tid % 16 * MINE, down = tid / 16 * MINE;
    const int k_mine = tid % DEPTH, line = tid / DEPTH;
    const int64_t m0 = (int64_t)blockIdx.x * TILE, n0 = (int64_t)blockIdx.y * TILE;
    const int64_t z = blockIdx.z / f.splits, split = blockIdx.z % f.splits;
    const int64_t first = p.depth * split / f.splits, end = p.depth * (split + 1) / f.splits;
    float acc[MINE][MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
        acc[i][j] = 0;
    for (int64_t k0 = first; k0 < end; k0 += DEPTH) {
        const int64_t k = k0 + k_mine;
        for (int i = 0; i < MINE; i++) {
            const int row = line + 16 * i;
            left[k_mine][row] = k < end && m0 + row < p.rows ? left_at(f, z, m0 + row, k) : 0;
            right[k_mine][row] = k < end && n0 + row < p.columns ? right_at(f, z, k, n0 + row) : 0;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; d++)
            PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
                acc[i][j] = fmaf(left[d][down + i], right[d][across + j], acc[i][j]);
        __syncthreads();
    }
    PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
    {
        const int64_t r = m0 + down + i, c = n0 + across + j;
        if (r >= p.rows || c >= p.columns) continue;
        if (f.splits > 1)
            f.part[(blockIdx.z * p.rows + r) * p.columns + c] = acc[i][j];
        else
            give(f, z, r, c, acc[i][j]);
    }
}

/* The splits of dW, one after the other. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) join_splits(pare_cuda_conv_float f)
{
    const product p = product_of(f);
    const int64_t one = p.rows * p.columns;
    PARE_CUDA_EACH (i, f.groups * one) {
        const int64_t z = i / one, at = i - z * one;
        float sum = 0;
        for (int s = 0; s < f.splits; s++) sum += f.part[(z * f.splits + s) * one + at];
        give(f, z, at / p.columns, at % p.columns, sum);
    }
}

static cudaError_t conv_float_launch(const pare_cuda_conv_float *f, cudaStream_t stream)
{
    const product p = product_of(*f);
    if (p.rows == 0 || p.columns == 0 || f->groups == 0) return cudaSuccess;
    const dim3 grid(pare_cuda_blocks((p.rows + TILE - 1) / TILE),
                    pare_cuda_blocks_beside((p.columns + TILE - 1) / TILE),
                    pare_cuda_blocks_beside((int64_t)f->groups * f->splits));
    SIMT_LAUNCH(conv_float_tile, grid, dim3(THREADS), 0, stream, *f);
    if (f->splits == 1) return cudaGetLastError();
    SIMT_LAUNCH(join_splits, pare_cuda_grid(f->groups * p.rows * p.columns), dim3(PARE_CUDA_BLOCK),
                0, stream, *f);
    return cudaGetLastError();
}

enum { MOST_SPLITS = 64, SPLIT_DEPTH = 2048, MOST_BLOCKS = 65535 };
enum { MOST_COLUMNS = (int)MOST_BLOCKS * TILE };

static bool conv_can(const pare_prep *p)
{
    const pare_cuda_conv_parts a = pare_cuda_conv_parts_of(p);
    const int64_t group = pare_node_int(p->node, "group", 1);
    if (!pare_cuda_can_float(p, 2) || a.x->rank < 3 || a.x->rank > 5 || group < 1) return false;
    if (!pare_cuda_conv_ends_fit(p)) return false;
    if (group * MOST_SPLITS > MOST_BLOCKS) return false;
    int64_t taps = a.w->dim[1];
    for (int i = 0; i < a.x->rank; i++) {
        if (a.x->dim[i] > INT_MAX / 4 || a.y->dim[i] > INT_MAX / 4 || a.w->dim[i] > INT_MAX / 4)
            return false;
        if (i > 1) taps *= a.w->dim[i];
        if (taps > MOST_COLUMNS) return false; /* columns are filters, channels, or these */
    }
    return a.w->dim[0] <= MOST_COLUMNS;
}

static pare_status window_set(pare_prep *p, pare_cuda_conv_float *f)
{
    pare_window win;
    PARE_TRY(pare_cuda_conv_window(p, &win));
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
    pare_cuda_conv_float *f = (pare_cuda_conv_float *)pare_arena_alloc(p->arena, 1, sizeof *f);
    const pare_cuda_conv_parts a = pare_cuda_conv_parts_of(p);
    const pare_view *bias = pare_operand(p->in, p->in_count, PARE_CUDA_CONV_BIAS);
    if (!f) return PARE_MEMORY;
    f->makes = a.makes;
    f->dtype = p->in[0].dtype, f->to_type = p->out[0].dtype;
    if (bias) f->bias_type = bias->dtype;
    PARE_TRY(window_set(p, f));
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
    const pare_view *bias = pare_operand(c->in, c->in_count, PARE_CUDA_CONV_BIAS);
    *(f.makes == PARE_CUDA_CONV_Y ? &f.x : &f.y) = first;
    *(f.makes == PARE_CUDA_CONV_DW ? &f.x : &f.w) = second;
    f.bias = bias ? bias->data : NULL;
    f.to = c->out[0].data;
    f.part = (float *)c->scratch;
    return PARE_CUDA_LAUNCH(c, conv_float_launch, &f);
}

const pare_kernel pare_cuda_conv_any = {
    .name = "cuda_conv_any", .can = conv_can, .prepare = conv_prepare, .run = conv_run};
static const pare_kernel cuda_conv_grad = {
    .name = "cuda_conv_grad", .can = conv_can, .prepare = conv_prepare, .run = conv_run};
const pare_kernel *const pare_cuda_conv_grad_input[] = {&pare_cuda_conv_grad_input_tile,
                                                        PARE_CUDA_CONV_DNN, &cuda_conv_grad, NULL};
const pare_kernel *const pare_cuda_conv_grad_weight[] = {&pare_cuda_conv_grad_weight_tile,
                                                         PARE_CUDA_CONV_DNN, &cuda_conv_grad, NULL};
