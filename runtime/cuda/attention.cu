/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of any floats and strides: a block of four warps a query. Warps share out the keys,
   lanes a key's depth; the scores stay in shared memory; then threads share out the width of V. K
   and V are read once a query. And the host half of this and of attention_flash.cu. */
#include "runtime/cuda/attention.cuh"
#include "runtime/cuda/device/common.cuh"
#include "runtime/ops/kernel.h"

/* Keys whose scores fit in a block's shared memory. */
enum { PARE_CUDA_MOST_KEYS = 11264 };

enum { WARPS = 4, THREADS = WARPS * 32 };

/* The block's largest (or the sum of) v, for every thread. part: (WARPS) in shared memory. */
SIMT_INLINE float block_join(float v, float *part, bool largest)
{
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, v, d);
        v = !largest ? v + other : other > v || other != other ? other : v;
    }
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < WARPS; w++)
        v = !largest ? v + part[w] : part[w] > v || part[w] != part[w] ? part[w] : v;
    __syncthreads();
    return v;
}

static __global__ void __launch_bounds__(THREADS) attention_query(pare_cuda_attend a)
{
    SIMT_DYN_SHARED(float, score);
    SIMT_SHARED(float, part, [WARPS]);
    const int tid = (int)threadIdx.x, lane = tid & 31, warp = tid >> 5;
    int64_t left = blockIdx.x, index[PARE_CUDA_HEAD_AXES];
    const int64_t query = left % a.queries;
    left /= a.queries;
    for (int i = PARE_CUDA_HEAD_AXES - 1; i >= 0; i--) {
        index[i] = left % a.heads[i];
        left /= a.heads[i];
    }
    const int64_t q = pare_cuda_head_offset(a.q, index) + query * a.q.row,
                  k = pare_cuda_head_offset(a.k, index);
    const int64_t v = pare_cuda_head_offset(a.v, index),
                  m = pare_cuda_head_offset(a.mask, index) + query * a.mask.row;
    for (int j = warp; j < a.keys; j += WARPS) {
        float sum = 0;
        for (int d = lane; d < a.depth; d += 32)
            sum = fmaf(pare_number_at(a.q.data, a.dtype, q + d * a.q.last),
                       pare_number_at(a.k.data, a.dtype, k + j * a.k.row + d * a.k.last), sum);
        sum = pare_lanes_sum(sum) * a.scale;
        if (a.mask.data) sum += pare_number_at(a.mask.data, a.mask_type, m + j * a.mask.last);
        if (lane == 0) score[j] = sum;
    }
    __syncthreads();
    float top = -INFINITY, total = 0;
    for (int j = tid; j < a.keys; j += THREADS)
        top = score[j] > top || score[j] != score[j] ? score[j] : top;
    top = block_join(top, part, true);
    for (int j = tid; j < a.keys; j += THREADS) {
        score[j] = expf(score[j] - top);
        total += score[j];
    }
    total = block_join(total, part, false);
    for (int d = tid; d < a.width; d += THREADS) {
        float sum = 0;
        for (int j = 0; j < a.keys; j++)
            sum = fmaf(score[j], pare_number_at(a.v.data, a.dtype, v + j * a.v.row + d * a.v.last),
                       sum);
        pare_number_store(const_cast<void *>(a.y.data), a.dtype,
                          pare_cuda_head_offset(a.y, index) + query * a.y.row + d * a.y.last,
                          sum / total);
    }
}

static cudaError_t attention_launch(const pare_cuda_attend *a, cudaStream_t stream)
{
    int64_t blocks = a->queries;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) blocks *= a->heads[i];
    if (blocks == 0 || a->width == 0) return cudaSuccess;
    SIMT_LAUNCH(attention_query, dim3((unsigned)blocks), dim3(THREADS),
                (size_t)a->keys * sizeof(float), stream, *a);
    return cudaGetLastError();
}

enum { MOST_RANK = 2 + PARE_CUDA_HEAD_AXES };

static bool attention_can(const pare_prep *p)
{
    bool masked = p->in_count > 3 && p->in[3].dtype;
    int r = p->out[0].rank;
    if (!pare_cuda_can_float(p, 3) || (masked && !pare_cuda_is_float(p->in[3].dtype))) return false;
    for (int i = 0; i < 3; i++)
        if (p->in[i].rank != r) return false;
    return r >= 2 && r <= MOST_RANK && p->in[1].dim[r - 2] <= PARE_CUDA_MOST_KEYS;
}

/* The operand against the output's leading axes. */
static pare_cuda_operand operand(const pare_view *v, const pare_view *y)
{
    pare_cuda_operand o = {.data = v->data};
    for (int i = 0; i < y->rank - 2; i++) {
        int axis = i - (y->rank - v->rank);
        int64_t stride = axis >= 0 && v->dim[axis] != 1 ? v->stride[axis] : 0;
        o.head[i + MOST_RANK - y->rank] = stride;
    }
    if (v->rank > 1 && v->dim[v->rank - 2] != 1) o.row = v->stride[v->rank - 2];
    if (v->rank > 0 && v->dim[v->rank - 1] != 1) o.last = v->stride[v->rank - 1];
    return o;
}

static pare_cuda_attend attend_of(const pare_node *node, const pare_view *in, int in_count,
                                  const pare_view *y)
{
    const int r = y->rank;
    pare_cuda_attend a = {.q = operand(&in[0], y),
                          .k = operand(&in[1], y),
                          .v = operand(&in[2], y),
                          .y = operand(y, y),
                          .queries = y->dim[r - 2],
                          .keys = (int)in[1].dim[r - 2],
                          .depth = (int)in[0].dim[r - 1],
                          .width = (int)y->dim[r - 1],
                          .scale = pare_node_float(node, "scale", 1),
                          .dtype = y->dtype};
    if (in_count > 3 && in[3].dtype) {
        a.mask = operand(&in[3], y);
        a.mask_type = in[3].dtype;
    }
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) {
        int axis = i - (MOST_RANK - r);
        a.heads[i] = axis < 0 ? 1 : y->dim[axis];
    }
    return a;
}

static pare_status attention_run(const pare_call *c)
{
    const pare_cuda_attend a = attend_of(c->node, c->in, c->in_count, &c->out[0]);
    return PARE_CUDA_LAUNCH(c, attention_launch, &a);
}

/* Are rows of `count` numbers together, and all of them at multiples of `aligned`? */
static bool rows_lie(const pare_cuda_operand *o, int count, int aligned)
{
    bool well = o->row % aligned == 0 && (o->last == 1 || count == 1) && count % aligned == 0;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) well = well && o->head[i] % aligned == 0;
    return well;
}

static bool flash_can(const pare_prep *p)
{
    const pare_dtype type = p->out[0].dtype;
    if (!attention_can(p) || (type != PARE_f16 && type != PARE_bf16)) return false;
    const pare_cuda_attend a = attend_of(p->node, p->in, p->in_count, &p->out[0]);
    return a.depth <= PARE_CUDA_FLASH_DEPTH && a.width <= PARE_CUDA_FLASH_DEPTH &&
           rows_lie(&a.q, a.depth, 8) && rows_lie(&a.k, a.depth, 8) && rows_lie(&a.v, a.width, 8) &&
           rows_lie(&a.y, a.width, 2) && a.queries <= INT32_MAX / 2;
}

static pare_status flash_run(const pare_call *c)
{
    const pare_cuda_attend a = attend_of(c->node, c->in, c->in_count, &c->out[0]);
    return PARE_CUDA_LAUNCH(c, pare_cuda_flash_launch, &a);
}

static const pare_kernel flash = {
    .name = "cuda_attention_flash", .can = flash_can, .run = flash_run};
static const pare_kernel attention = {
    .name = "cuda_attention", .can = attention_can, .run = attention_run};
const pare_kernel *const pare_cuda_attention[] = {&flash, &attention, NULL};
