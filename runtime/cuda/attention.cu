/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of any floats and strides: a block of four warps for eight queries of f32, or, of many
   keys and of halves, for one. Warps share out the keys, lanes a key's depth; the scores stay in
   shared memory; then threads share out the width of V. K and V are read once a block. And the host
   half of this, of attention_flash.cu and of attention_int8.cu. */
#include "runtime/cuda/attention.cuh"
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/gemm/prepack.h"

#include <float.h>

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

/* Number i of an operand; F32: it is one of f32. */
template <bool F32>
SIMT_INLINE float operand_at(const pare_cuda_operand &o, pare_dtype type, int64_t i)
{
    return F32 ? static_cast<const float *>(o.data)[i] : pare_number_at(o.data, type, i);
}

/* Shared memory: scores (keys, QUERIES), then Q (QUERIES, depth). */
template <int QUERIES, bool F32>
static __global__ void __launch_bounds__(THREADS) attention_query(pare_cuda_attend a)
{
    simt_dependency_wait();
    SIMT_DYN_SHARED(float, score);
    SIMT_SHARED(float, part, [WARPS]);
    const int tid = (int)threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int64_t groups = (a.queries + QUERIES - 1) / QUERIES;
    int64_t left = blockIdx.x, index[PARE_CUDA_HEAD_AXES];
    const int64_t query = left % groups * QUERIES;
    const int count = QUERIES == 1 ? 1 : (int)min(a.queries - query, (int64_t)QUERIES);
    left /= groups;
    for (int i = PARE_CUDA_HEAD_AXES - 1; i >= 0; i--) {
        index[i] = left % a.heads[i];
        left /= a.heads[i];
    }
    const int64_t q = pare_cuda_head_offset(a.q, index) + query * a.q.row,
                  k = pare_cuda_head_offset(a.k, index), v = pare_cuda_head_offset(a.v, index),
                  m = pare_cuda_head_offset(a.mask, index) + query * a.mask.row,
                  y = pare_cuda_head_offset(a.y, index) + query * a.y.row;
    float *rows = score + QUERIES * a.keys;
    for (int i = 0; i < QUERIES; i++) /* those behind the last are copies of it */
        for (int d = tid; d < a.depth; d += THREADS)
            rows[i * a.depth + d] =
                operand_at<F32>(a.q, a.dtype, q + min(i, count - 1) * a.q.row + d * a.q.last);
    __syncthreads();
    for (int j = warp; j < a.keys; j += WARPS) {
        float sum[QUERIES] = {};
        for (int d = lane; d < a.depth; d += 32) {
            const float x = operand_at<F32>(a.k, a.dtype, k + j * a.k.row + d * a.k.last);
            PARE_UNROLL for (int i = 0; i < QUERIES; i++) sum[i] =
                fmaf(rows[i * a.depth + d], x, sum[i]);
        }
        PARE_UNROLL for (int i = 0; i < QUERIES; i++)
        {
            float s = pare_lanes_sum(sum[i]) * a.scale;
            if (a.mask.data)
                s = pare_number_round(
                    a.dtype,
                    pare_number_round(a.dtype, s) +
                        pare_number_at(a.mask.data, a.mask_type,
                                       m + min(i, count - 1) * a.mask.row + j * a.mask.last));
            if (lane == 0) score[j * QUERIES + i] = s;
        }
    }
    __syncthreads();
    float total[QUERIES];
    PARE_UNROLL for (int i = 0; i < QUERIES; i++)
    {
        float top = -INFINITY, sum = 0;
        for (int j = tid; j < a.keys; j += THREADS) {
            const float s = score[j * QUERIES + i];
            top = s > top || s != s ? s : top;
        }
        top = block_join(top, part, true);
        for (int j = tid; j < a.keys; j += THREADS) {
            const float e = expf(score[j * QUERIES + i] - top);
            score[j * QUERIES + i] = e;
            sum += e;
        }
        total[i] = block_join(sum, part, false);
    }
    simt_dependents_launch();
    for (int d = tid; d < a.width; d += THREADS) {
        float sum[QUERIES] = {};
        for (int j = 0; j < a.keys; j++) {
            const float x = operand_at<F32>(a.v, a.dtype, v + j * a.v.row + d * a.v.last);
            PARE_UNROLL for (int i = 0; i < QUERIES; i++) sum[i] =
                fmaf(score[j * QUERIES + i], x, sum[i]);
        }
        PARE_UNROLL for (int i = 0; i < QUERIES; i++) if (i < count)
            pare_number_store(const_cast<void *>(a.y.data), a.dtype, y + i * a.y.row + d * a.y.last,
                              sum[i] / total[i]);
    }
}

enum { QUERIES = 8, MOST_SHARED = 48 * 1024 - WARPS * (int)sizeof(float) };

static int64_t shared_of(const pare_cuda_attend *a, int queries)
{
    return queries * ((int64_t)a->keys + a->depth) * (int64_t)sizeof(float);
}

template <int QUERIES, bool F32>
static cudaError_t queries_launch(const pare_cuda_attend *a, cudaStream_t stream)
{
    int64_t blocks = (a->queries + QUERIES - 1) / QUERIES;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) blocks *= a->heads[i];
    if (blocks == 0 || a->width == 0) return cudaSuccess;
    PARE_LAUNCH_DEPENDENT((attention_query<QUERIES, F32>), dim3(pare_cuda_blocks(blocks)),
                          dim3(THREADS), (size_t)shared_of(a, QUERIES), stream, *a);
    return cudaGetLastError();
}

static cudaError_t attention_launch(const pare_cuda_attend *a, cudaStream_t stream)
{
    if (a->dtype != PARE_f32) return queries_launch<1, false>(a, stream);
    return a->queries >= QUERIES && shared_of(a, QUERIES) <= MOST_SHARED
               ? queries_launch<QUERIES, true>(a, stream)
               : queries_launch<1, true>(a, stream);
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
    const int64_t keys = x.k.dim[x.k.rank - 2], depth = x.q.dim[x.q.rank - 1];
    return (keys + depth) * (int64_t)sizeof(float) <= MOST_SHARED;
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

/* The size of a leading axis; of a missing one 1. */
static int64_t head_count(const pare_view *y, int i)
{
    const int axis = i - (MOST_RANK - y->rank);
    return axis < 0 ? 1 : y->dim[axis];
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
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) a.heads[i] = head_count(&x.y, i);
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

/* The keys, from the first to before the last, that a constant mask leaves to `count` queries from
   `first` on: all of them where of a query's keys none is open and some are finite, which then
   count alike. nan_opens: NaN makes a query's result NaN; else it counts as -infinity. */
static void mask_range(const pare_cuda_operand *mask, pare_dtype type, bool nan_opens,
                       int64_t queries, int keys, int64_t first, int64_t count, int out[2])
{
    const pare_type_info *info = pare_type(type);
    int from = keys, end = 0;
    for (int64_t q = first; q < first + count && q < queries; q++) {
        bool open = false, finite = false;
        for (int k = 0; k < keys; k++) {
            const int64_t at = q * mask->row + k * mask->last;
            const float v =
                info->to_f32(static_cast<const char *>(mask->data) + at * (info->bits / 8));
            open = open || v > HIGH || (nan_opens && v != v);
            finite = finite || v > -INFINITY;
            if (v <= LOW) continue;
            if (k < from) from = k;
            if (k >= end) end = k + 1;
        }
        if (!open && finite) from = 0, end = keys;
    }
    out[0] = from < end ? from : 0;
    out[1] = end;
}

/* Is the mask a constant of queries and keys that all heads share? */
static bool mask_is_shared(const pare_cuda_operand *mask)
{
    bool shared = mask->data && mask->row;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) shared = shared && !mask->head[i];
    return shared;
}

/* Of a constant mask that is the same for all heads. */
static pare_status flash_prepare(pare_prep *p)
{
    const pare_cuda_attend a = attend_of(p->node, p->in, p->in_count, &p->out[0]);
    if (!mask_is_shared(&a.mask) || a.queries == 0 || a.keys == 0) return PARE_OK;
    const int64_t blocks = (a.queries + PARE_CUDA_FLASH_TILE - 1) / PARE_CUDA_FLASH_TILE;
    int *tiles = static_cast<int *>(pare_alloc(p->ctx, (size_t)blocks * 2, sizeof *tiles));
    if (!tiles) return PARE_MEMORY;
    for (int64_t i = 0; i < blocks; i++) {
        int *two = tiles + i * 2;
        mask_range(&a.mask, a.mask_type, true, a.queries, a.keys, i * PARE_CUDA_FLASH_TILE,
                   PARE_CUDA_FLASH_TILE, two);
        two[0] /= PARE_CUDA_FLASH_TILE;
        two[1] = (two[1] + PARE_CUDA_FLASH_TILE - 1) / PARE_CUDA_FLASH_TILE;
    }
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

/* --- QAttention --- */

/* The operand, where 32 bits hold its strides. */
static bool near_of(const pare_view *v, const pare_view *y, pare_cuda_near_operand *out)
{
    const pare_cuda_operand o = operand(v, y);
    bool near = o.row <= INT32_MAX && o.last <= INT32_MAX;
    *out = (pare_cuda_near_operand){.data = o.data, .row = (int)o.row, .last = (int)o.last};
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) {
        near = near && o.head[i] <= INT32_MAX;
        out->head[i] = (int)o.head[i];
    }
    return near;
}

/* What makes codes s8, and the zero point that they have then. */
static unsigned flip_of(pare_dtype type, int zero, int *signed_zero)
{
    *signed_zero = type == PARE_u8 ? zero - 128 : zero;
    return type == PARE_u8 ? 0x80808080u : 0;
}

/* False where the kernel does not take the node. */
static bool int8_of(const pare_node *node, const pare_q_attention *q, const pare_view *in,
                    int in_count, const pare_view *out, pare_cuda_attend_int8 *a)
{
    const pare_attention_views x = pare_attention_views_of(node, in, in_count, out);
    const int r = out->rank;
    int64_t blocks = 1;
    if (!pare_q_attention_fits(&x, q)) return false;
    *a = (pare_cuda_attend_int8){.queries = (int)x.y.dim[r - 2],
                                 .keys = (int)x.k.dim[r - 2],
                                 .depth = (int)x.q.dim[r - 1],
                                 .width = (int)x.y.dim[r - 1],
                                 .a = *q,
                                 .type = out->dtype};
    bool near = near_of(&x.q, &x.y, &a->q) && near_of(&x.k, &x.y, &a->k) &&
                near_of(&x.v, &x.y, &a->v) && near_of(&x.y, &x.y, &a->y) &&
                (!x.mask || near_of(x.mask, &x.y, &a->mask));
    a->q_flip = flip_of(x.q.dtype, q->q_zero, &a->q_zero);
    a->k_flip = flip_of(x.k.dtype, q->k_zero, &a->k_zero);
    a->v_flip = flip_of(x.v.dtype, q->v_zero, &a->v_zero);
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) {
        const int64_t heads = head_count(&x.y, i);
        near = near && heads <= INT32_MAX && (blocks *= heads) <= INT32_MAX;
        a->heads[i] = (int)heads;
    }
    if (!near) return false;
    a->b = pare_q_attention_blocks_of(blocks, a->queries, a->keys, pare_q_attention_is_wide(&x));
    a->by_groups = pare_cuda_fast_divisor_of(a->b.groups);
    for (int i = 1; i < PARE_CUDA_HEAD_AXES; i++)
        a->by[i - 1] = pare_cuda_fast_divisor_of(a->heads[i]);
    a->by[PARE_CUDA_HEAD_AXES - 1] = pare_cuda_fast_divisor_of(a->b.blocks);
    return blocks * a->b.blocks <= INT32_MAX;
}

static bool q_attention_can(const pare_prep *p)
{
    pare_q_attention q;
    pare_cuda_attend_int8 a;
    return pare_cuda_readable(p, pare_q_attention_read(p->node, &q)) &&
           int8_of(p->node, &q, p->in, p->in_count, &p->out[0], &a);
}

typedef struct cuda_q_attention_state {
    pare_q_attention a;
    pare_cuda_kept *range; /* pare_cuda_attend_int8's; NULL: all keys */
} cuda_q_attention_state;

/* Of a constant mask that is the same for all heads. */
static pare_status range_make(pare_prep *p, cuda_q_attention_state *s)
{
    pare_cuda_attend_int8 a;
    const pare_attention_views x = pare_attention_views_of(p->node, p->in, p->in_count, &p->out[0]);
    (void)int8_of(p->node, &s->a, p->in, p->in_count, &p->out[0], &a);
    const int queries = a.b.groups * PARE_Q_ATTENTION_QUERIES, blocks = a.b.blocks;
    const pare_cuda_operand mask = x.mask ? operand(x.mask, &x.y) : (pare_cuda_operand){};
    if (!mask_is_shared(&mask) || !blocks) return PARE_OK;
    int *range = static_cast<int *>(pare_alloc(p->ctx, (size_t)blocks * 3, sizeof *range));
    if (!range) return PARE_MEMORY;
    for (int i = 0; i < blocks; i++) {
        int *to = range + i * 3;
        mask_range(&mask, PARE_f32, false, a.queries, a.keys, (int64_t)i * queries, queries, to);
        to[2] = pare_q_attention_slice(to[1] - to[0], a.b.slices);
    }
    const pare_status st = pare_cuda_keep(p, range, (size_t)blocks * 3 * sizeof *range);
    pare_free(range);
    s->range = static_cast<pare_cuda_kept *>(p->state);
    return st;
}

static pare_status q_attention_prepare(pare_prep *p)
{
    cuda_q_attention_state *s =
        static_cast<cuda_q_attention_state *>(pare_arena_alloc(p->arena, 1, sizeof *s));
    if (!s) return PARE_MEMORY;
    *s = (cuda_q_attention_state){};
    PARE_TRY(pare_q_attention_read(p->node, &s->a));
    PARE_TRY(range_make(p, s));
    p->state = s;
    return PARE_OK;
}

static pare_status q_attention_run(const pare_call *c)
{
    const cuda_q_attention_state *s = static_cast<const cuda_q_attention_state *>(c->state);
    pare_cuda_attend_int8 a;
    (void)int8_of(c->node, &s->a, c->in, c->in_count, &c->out[0], &a);
    a.range = s->range ? static_cast<const int *>(s->range->data) : NULL;
    return PARE_CUDA_LAUNCH(c, pare_cuda_attention_int8_launch, &a);
}

static void q_attention_release(void *state)
{
    if (state) pare_cuda_kept_release(static_cast<cuda_q_attention_state *>(state)->range);
}

static const pare_kernel cuda_q_attention = {.name = "cuda_attention_int8",
                                             .can = q_attention_can,
                                             .prepare = q_attention_prepare,
                                             .run = q_attention_run,
                                             .release = q_attention_release};
const pare_kernel *const pare_cuda_q_attention[] = {&cuda_q_attention, NULL};
