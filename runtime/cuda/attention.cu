/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of any floats and strides: a block of four warps a query. Warps share out the keys,
   lanes a key's depth; the scores stay in shared memory; then threads share out the width of V. K
   and V are read once a query. And the host half of this and of attention_flash.cu. */
#include "runtime/cuda/attention.cuh"
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/ops/attention.h"

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
    simt_dependency_wait();
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
        if (a.mask.data)
            sum = pare_number_round(
                a.dtype, pare_number_round(a.dtype, sum) +
                             pare_number_at(a.mask.data, a.mask_type, m + j * a.mask.last));
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
    simt_dependents_launch();
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
    PARE_LAUNCH_DEPENDENT(attention_query, dim3(pare_cuda_blocks(blocks)), dim3(THREADS),
                          (size_t)a->keys * sizeof(float), stream, *a);
    return cudaGetLastError();
}

enum { MOST_RANK = 2 + PARE_CUDA_HEAD_AXES };

static bool attention_can(const pare_prep *p)
{
    bool masked = p->in_count > 3 && p->in[3].dtype;
    int r = p->out[0].rank;
    if (!pare_cuda_can_float(p, 3) || (masked && !pare_cuda_is_float(p->in[3].dtype))) return false;
    const pare_attention_views x = pare_attention_views_of(p->node, p->in, p->in_count, &p->out[0]);
    if (r < 2 || r > MOST_RANK || x.q.rank != r || x.k.rank != r || x.v.rank != r) return false;
    const int64_t depth = x.q.dim[r - 1], width = p->out[0].dim[p->out[0].rank - 1];
    return x.k.dim[r - 2] <= INT32_MAX / 2 && depth <= INT32_MAX / 2 && width <= INT32_MAX / 2 &&
           (width == 0 || pare_view_count(&p->out[0]) / width <= INT32_MAX);
}

static bool plain_can(const pare_prep *p)
{
    if (!attention_can(p)) return false;
    const pare_attention_views x = pare_attention_views_of(p->node, p->in, p->in_count, &p->out[0]);
    return x.k.dim[x.k.rank - 2] <= PARE_CUDA_MOST_KEYS;
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
                                  const pare_view *out)
{
    const pare_attention_views x = pare_attention_views_of(node, in, in_count, out);
    const int r = out->rank;
    pare_cuda_attend a = {.q = operand(&x.q, &x.y),
                          .k = operand(&x.k, &x.y),
                          .v = operand(&x.v, &x.y),
                          .y = operand(&x.y, &x.y),
                          .queries = x.y.dim[r - 2],
                          .keys = (int)x.k.dim[r - 2],
                          .depth = (int)x.q.dim[r - 1],
                          .width = (int)x.y.dim[r - 1],
                          .scale = pare_node_float(node, "scale", 1),
                          .dtype = out->dtype};
    if (x.mask) {
        a.mask = operand(x.mask, &x.y);
        a.mask_type = x.mask->dtype;
    }
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) {
        int axis = i - (MOST_RANK - r);
        a.heads[i] = axis < 0 ? 1 : x.y.dim[axis];
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

/* A mask that low takes a key from a query whatever their score: products of halves stay far above
   it, so that its exponential beside that of a key with a mask above HIGH is 0. */
static const float LOW = -1e30f, HIGH = -1e29f;

/* The tiles of keys that a block of queries needs: all of them where of a query's keys none is open
   and some are finite, which then count alike. */
static void tiles_of(const pare_cuda_attend *a, int64_t first, int out[2])
{
    const pare_type_info *type = pare_type(a->mask_type);
    int from = a->keys, end = 0;
    for (int64_t q = first; q < first + PARE_CUDA_FLASH_TILE && q < a->queries; q++) {
        bool open = false, finite = false;
        for (int k = 0; k < a->keys; k++) {
            const int64_t at = q * a->mask.row + k * a->mask.last;
            const float v =
                type->to_f32(static_cast<const char *>(a->mask.data) + at * (type->bits / 8));
            open = open || v > HIGH || v != v;
            finite = finite || v > -INFINITY;
            if (v <= LOW) continue;
            if (k < from) from = k;
            if (k >= end) end = k + 1;
        }
        if (!open && finite) from = 0, end = a->keys;
    }
    out[0] = from / PARE_CUDA_FLASH_TILE;
    out[1] = (end + PARE_CUDA_FLASH_TILE - 1) / PARE_CUDA_FLASH_TILE;
    if (out[1] < out[0]) out[0] = out[1] = 0;
}

/* Of a constant mask that is the same for all heads. */
static pare_status flash_prepare(pare_prep *p)
{
    const pare_cuda_attend a = attend_of(p->node, p->in, p->in_count, &p->out[0]);
    bool shared = a.mask.data && a.mask.row && a.queries > 0 && a.keys > 0;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) shared = shared && !a.mask.head[i];
    if (!shared) return PARE_OK;
    const int64_t blocks = (a.queries + PARE_CUDA_FLASH_TILE - 1) / PARE_CUDA_FLASH_TILE;
    int *tiles = static_cast<int *>(pare_alloc(p->ctx, (size_t)blocks * 2, sizeof *tiles));
    if (!tiles) return PARE_MEMORY;
    for (int64_t i = 0; i < blocks; i++) tiles_of(&a, i * PARE_CUDA_FLASH_TILE, tiles + i * 2);
    const pare_status st = pare_cuda_keep(p, tiles, (size_t)blocks * 2 * sizeof *tiles);
    pare_free(tiles);
    return st;
}

static pare_status flash_run(const pare_call *c)
{
    pare_cuda_attend a = attend_of(c->node, c->in, c->in_count, &c->out[0]);
    const pare_cuda_kept *kept = static_cast<const pare_cuda_kept *>(c->state);
    a.tiles = kept ? static_cast<const int *>(kept->data) : NULL;
    return PARE_CUDA_LAUNCH(c, pare_cuda_flash_launch, &a);
}

static const pare_kernel flash = {.name = "cuda_attention_flash",
                                  .can = flash_can,
                                  .prepare = flash_prepare,
                                  .run = flash_run,
                                  .release = pare_cuda_kept_release};
static const pare_kernel attention = {
    .name = "cuda_attention", .can = plain_can, .run = attention_run};
const pare_kernel *const pare_cuda_attention[] = {&flash, &attention, NULL};
