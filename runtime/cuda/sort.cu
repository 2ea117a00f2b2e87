/* SPDX-License-Identifier: Apache-2.0 */
/* CumSum 14: y[i] = x[0] + ... + x[i] of every lane along the axis. A warp, or a block of eight,
   goes through a lane in tiles: sums within a warp by shuffles (Hillis and Steele 1986), then the
   warps', then the tiles' total, always in this order. Where neighbouring lanes are neighbours in
   memory and there are many, a thread takes a lane. Reads x once, writes y once.

   TopK 11: every lane's elements become a key that orders as the values do and their index, sorted
   by Batcher's bitonic network (1968): in shared memory by one block a lane up to SORT_SHARED
   elements, else in scratch, one launch for each distance that is beyond a block's reach. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"
#include "runtime/cuda/reduce.h"
#include "runtime/ops/constant.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/tensor_iterator.h"

#include <limits.h>

/* Sums of floats run in double, those of integers wrap around. */
typedef struct pare_cuda_scan {
    const void *x;
    void *y;
    pare_tensor_iterator lanes; /* operands y, x: where lanes begin */
    pare_dtype dtype;
    int64_t n, x_step, y_step; /* of a lane */
    bool exclusive, reverse;
    bool columns; /* neighbouring lanes are neighbours in memory, and there are many */
    int warps;    /* that one lane is computed by where not columns: 1 or 8 */
} pare_cuda_scan;

enum { PARE_CUDA_SORT_SHARED = 2048 }; /* keys that one block sorts in shared memory */

/* Equal values keep their order; NaN counts as larger than all. */
typedef struct pare_cuda_top {
    const void *x;
    void *y;
    int64_t *index;             /* or NULL */
    void *keys;                 /* (lanes, padded) of 16 bytes where padded is above SORT_SHARED */
    pare_tensor_iterator lanes; /* operands y, x, index */
    pare_dtype dtype;
    int64_t n, k, padded; /* elements of a lane, taken, and the next power of two: 1 << bits */
    int bits;
    int64_t x_step, y_step, index_step;
    bool largest;
} pare_cuda_top;

enum { BLOCK = 256, WARPS = 8 };

/* --- CumSum --- */

SIMT_INLINE void scan_load(const pare_cuda_scan &s, int64_t at, double *v)
{
    *v = pare_double_at(s.x, s.dtype, at);
}
SIMT_INLINE void scan_load(const pare_cuda_scan &s, int64_t at, uint64_t *v)
{
    *v = (uint64_t)pare_int_at(s.x, s.dtype, at);
}
SIMT_INLINE void scan_store(const pare_cuda_scan &s, int64_t at, double v)
{
    pare_double_store(s.y, s.dtype, at, v);
}
SIMT_INLINE void scan_store(const pare_cuda_scan &s, int64_t at, uint64_t v)
{
    pare_int_store(s.y, s.dtype, at, (int64_t)v);
}

template <class A> static __global__ void __launch_bounds__(BLOCK) scan_rows(pare_cuda_scan s)
{
    SIMT_SHARED(A, sums, [WARPS]);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31, rank = warp % s.warps;
    const int first = warp - rank, span = s.warps * 32;
    const int64_t row = (int64_t)blockIdx.x * (WARPS / s.warps) + warp / s.warps;
    int64_t at[2] = {0, 0};
    if (row < s.lanes.count) pare_iterator_at<2>(s.lanes, row, at);
    A total = 0;
    for (int64_t base = 0; base < s.n; base += span) {
        const int64_t i = base + rank * 32 + lane, from = s.reverse ? s.n - 1 - i : i;
        const bool live = row < s.lanes.count && i < s.n;
        A sum = 0;
        if (live) scan_load(s, at[1] + from * s.x_step, &sum);
        for (int d = 1; d < 32; d *= 2) {
            A other = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += other;
        }
        A previous = __shfl_up_sync(0xffffffffu, sum, 1);
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        A before = total;
        for (int k = 0; k < s.warps; k++) {
            if (k < rank) before += sums[first + k];
            total += sums[first + k];
        }
        if (s.exclusive) sum = lane ? previous : 0;
        if (live) scan_store(s, at[0] + from * s.y_step, before + sum);
        __syncthreads(); /* sums are read before the next tile's are written */
    }
}

template <class A> static __global__ void __launch_bounds__(BLOCK) scan_columns(pare_cuda_scan s)
{
    const int64_t row = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    int64_t at[2];
    if (row >= s.lanes.count) return; /* no barrier follows */
    pare_iterator_at<2>(s.lanes, row, at);
    const int64_t x_step = s.reverse ? -s.x_step : s.x_step;
    const int64_t y_step = s.reverse ? -s.y_step : s.y_step;
    int64_t x = at[1] + (s.reverse ? s.n - 1 : 0) * s.x_step;
    int64_t y = at[0] + (s.reverse ? s.n - 1 : 0) * s.y_step;
    A sum = 0;
    for (int64_t i = 0; i < s.n; i++, x += x_step, y += y_step) {
        A v;
        scan_load(s, x, &v);
        if (!s.exclusive) sum += v;
        scan_store(s, y, sum);
        if (s.exclusive) sum += v;
    }
}

template <class A> static cudaError_t scan(const pare_cuda_scan *s, cudaStream_t stream)
{
    const int64_t beside = s->columns ? BLOCK : WARPS / s->warps; /* lanes of one block */
    const dim3 grid(pare_cuda_blocks((s->lanes.count + beside - 1) / beside)), block(BLOCK);
    if (s->lanes.count == 0 || s->n == 0) return cudaSuccess;
    if (s->columns)
        SIMT_LAUNCH(scan_columns<A>, grid, block, 0, stream, *s);
    else
        SIMT_LAUNCH(scan_rows<A>, grid, block, 0, stream, *s);
    return cudaGetLastError();
}

static cudaError_t scan_launch(const pare_cuda_scan *s, cudaStream_t stream)
{
    return pare_type_is_float(s->dtype) ? scan<double>(s, stream) : scan<uint64_t>(s, stream);
}

/* --- TopK --- */

typedef struct entry {
    uint64_t key, index;
} entry;

SIMT_INLINE bool comes_after(const entry &a, const entry &b)
{
    return a.key > b.key || (a.key == b.key && a.index > b.index);
}

/* Unsigned words that order as the numbers do: signs flipped, negative floats inverted, both zeros
   one, NaN on top. */
SIMT_INLINE uint64_t key_of(const void *x, pare_dtype type, int64_t at, bool largest)
{
    const uint64_t sign = 1ull << 63;
    uint64_t key;
    if (pare_is_float(type)) {
        double v = pare_double_at(x, type, at);
        uint64_t bits = (uint64_t)__double_as_longlong(v == 0 ? 0.0 : v);
        key = v != v ? ~0ull : (bits & sign) ? ~bits : (bits | sign);
    } else {
        key = (uint64_t)pare_int_at(x, type, at);
        if (type != PARE_u64) key ^= sign;
    }
    return largest ? ~key : key;
}

SIMT_INLINE entry entry_of(const pare_cuda_top &t, int64_t lane_at, int64_t i)
{
    entry e = {~0ull, ~0ull}; /* after all others */
    if (i < t.n) {
        e.key = key_of(t.x, t.dtype, lane_at + i * t.x_step, t.largest);
        e.index = (uint64_t)i;
    }
    return e;
}

/* Swaps a and b where they are in the wrong order for this step of the network. */
SIMT_INLINE void exchange(entry *a, entry *b, bool ascending)
{
    if (comes_after(*a, *b) != ascending) return;
    entry e = *a;
    *a = *b;
    *b = e;
}

/* Pair i of a step: elements `distance` apart; a run of `length` ascends where its number is even.
 */
SIMT_INLINE void exchange_pair(entry *list, int64_t i, int64_t length, int64_t distance,
                               int64_t offset)
{
    const int64_t low = 2 * i - (i & (distance - 1));
    exchange(&list[low], &list[low + distance], ((offset + low) & length) == 0);
}

SIMT_INLINE void copy_element(const pare_cuda_top &t, int64_t to, int64_t from)
{
    if (pare_is_float(t.dtype) && t.dtype != PARE_f64 && t.dtype != PARE_f32)
        static_cast<uint16_t *>(t.y)[to] = static_cast<const uint16_t *>(t.x)[from];
    else if (t.dtype == PARE_f32)
        static_cast<uint32_t *>(t.y)[to] = static_cast<const uint32_t *>(t.x)[from];
    else if (t.dtype == PARE_f64)
        static_cast<uint64_t *>(t.y)[to] = static_cast<const uint64_t *>(t.x)[from];
    else
        pare_int_store(t.y, t.dtype, to, pare_int_at(t.x, t.dtype, from));
}

SIMT_INLINE void deliver(const pare_cuda_top &t, const int64_t at[3], int64_t i, uint64_t from)
{
    copy_element(t, at[0] + i * t.y_step, at[1] + (int64_t)from * t.x_step);
    if (t.index) t.index[at[2] + i * t.index_step] = (int64_t)from;
}

/* A lane of at most SORT_SHARED elements a block. */
static __global__ void __launch_bounds__(BLOCK) top_shared(pare_cuda_top t)
{
    SIMT_SHARED(entry, list, [PARE_CUDA_SORT_SHARED]);
    int64_t at[3];
    pare_iterator_at<3>(t.lanes, blockIdx.x, at);
    for (int64_t i = threadIdx.x; i < t.padded; i += BLOCK) list[i] = entry_of(t, at[1], i);
    __syncthreads();
    for (int64_t length = 2; length <= t.padded; length *= 2)
        for (int64_t distance = length / 2; distance; distance /= 2) {
            for (int64_t i = threadIdx.x; i < t.padded / 2; i += BLOCK)
                exchange_pair(list, i, length, distance, 0);
            __syncthreads();
        }
    for (int64_t i = threadIdx.x; i < t.k; i += BLOCK) deliver(t, at, i, list[i].index);
}

/* A longer lane is sorted in pieces of SORT_SHARED: all steps from `length` on whose distance is
   within a piece, up to the last length that fits, where `first`; the rest of one length elsewhere.
 */
static __global__ void __launch_bounds__(BLOCK)
    top_piece(pare_cuda_top t, int64_t length, bool first)
{
    SIMT_SHARED(entry, list, [PARE_CUDA_SORT_SHARED]);
    const int64_t pieces = t.padded / PARE_CUDA_SORT_SHARED, lane = blockIdx.x / pieces;
    const int64_t offset = (blockIdx.x - lane * pieces) * PARE_CUDA_SORT_SHARED;
    entry *keys = static_cast<entry *>(t.keys) + lane * t.padded + offset;
    int64_t at[3];
    pare_iterator_at<3>(t.lanes, lane, at);
    for (int i = (int)threadIdx.x; i < PARE_CUDA_SORT_SHARED; i += BLOCK)
        list[i] = first ? entry_of(t, at[1], offset + i) : keys[i];
    __syncthreads();
    for (int64_t l = first ? 2 : length; l <= length; l *= 2) {
        const int64_t reach = l < PARE_CUDA_SORT_SHARED ? l : (int64_t)PARE_CUDA_SORT_SHARED;
        for (int64_t distance = reach / 2; distance; distance /= 2) {
            for (int i = (int)threadIdx.x; i < PARE_CUDA_SORT_SHARED / 2; i += BLOCK)
                exchange_pair(list, i, l, distance, offset);
            __syncthreads();
        }
    }
    for (int i = (int)threadIdx.x; i < PARE_CUDA_SORT_SHARED; i += BLOCK) keys[i] = list[i];
}

/* One step of the network over whole lanes of 1 << bits keys. */
static __global__ void __launch_bounds__(BLOCK)
    top_step(entry *keys, int64_t pairs, int bits, int64_t length, int64_t distance)
{
    PARE_CUDA_EACH (i, pairs) {
        const int64_t lane = i >> (bits - 1);
        exchange_pair(keys + (lane << bits), i - (lane << (bits - 1)), length, distance, 0);
    }
}

static __global__ void __launch_bounds__(BLOCK) top_deliver(pare_cuda_top t)
{
    PARE_CUDA_EACH (i, t.lanes.count * t.k) {
        const int64_t lane = i / t.k, rank = i - lane * t.k;
        int64_t at[3];
        pare_iterator_at<3>(t.lanes, lane, at);
        deliver(t, at, rank, static_cast<const entry *>(t.keys)[lane * t.padded + rank].index);
    }
}

static cudaError_t top_launch(const pare_cuda_top *t, cudaStream_t stream)
{
    const int64_t lanes = t->lanes.count, pieces = t->padded / PARE_CUDA_SORT_SHARED;
    const int64_t pairs = lanes * t->padded / 2;
    const dim3 block(BLOCK), whole(pare_cuda_blocks(lanes * pieces));
    if (lanes == 0 || t->k == 0) return cudaSuccess;
    if (t->padded <= PARE_CUDA_SORT_SHARED) {
        SIMT_LAUNCH(top_shared, dim3(pare_cuda_blocks(lanes)), block, 0, stream, *t);
        return cudaGetLastError();
    }
    SIMT_LAUNCH(top_piece, whole, block, 0, stream, *t, (int64_t)PARE_CUDA_SORT_SHARED, true);
    for (int64_t length = 2 * PARE_CUDA_SORT_SHARED; length <= t->padded; length *= 2) {
        for (int64_t d = length / 2; d >= PARE_CUDA_SORT_SHARED; d /= 2)
            SIMT_LAUNCH(top_step, pare_cuda_grid(pairs), block, 0, stream,
                        static_cast<entry *>(t->keys), pairs, t->bits, length, d);
        SIMT_LAUNCH(top_piece, whole, block, 0, stream, *t, length, false);
    }
    SIMT_LAUNCH(top_deliver, pare_cuda_grid(lanes * t->k), block, 0, stream, *t);
    return cudaGetLastError();
}

/* --- lanes --- */

enum {
    LONG_LANE = 512,  /* elements that a block goes through together */
    MANY_LANES = 1024 /* from here on a thread a lane fills the device */
};

/* The lanes' beginnings: all axes but one. */
static void lanes_set(pare_tensor_iterator *w, const pare_view *const *v, int operands, int axis)
{
    bool flag[PARE_MAX_RANK] = {false};
    pare_view kept[3];
    const pare_view *all[3] = {&kept[0], &kept[1], &kept[2]};
    flag[axis] = true;
    for (int i = 0; i < operands; i++) kept[i] = pare_cuda_axes(v[i], flag, false);
    pare_iterator_init(w, all, operands);
}

static bool number(pare_dtype type)
{
    return type != PARE_bool && pare_cuda_bytes(type) > 0 && pare_type(type)->to_f32;
}

/* --- CumSum --- */

/* Constant input 1. */
static bool scan_axis(const pare_prep *p, int *axis)
{
    const int64_t *at;
    int count;
    return pare_infer_ints(p->node, 1, &at, &count) == PARE_OK && at && count == 1 &&
           pare_infer_axis(p->node, at[0], p->in[0].rank, axis) == PARE_OK;
}

static bool scan_can(const pare_prep *p)
{
    int axis;
    return number(p->in[0].dtype) && p->in[0].rank > 0 && scan_axis(p, &axis);
}

static pare_status scan_prepare(pare_prep *p)
{
    pare_cuda_scan *s = (pare_cuda_scan *)pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    const pare_view *x = &p->in[0], *y = &p->out[0];
    int axis = 0;
    (void)scan_axis(p, &axis);
    const pare_view *const operands[] = {y, x};
    lanes_set(&s->lanes, operands, 2, axis);
    s->dtype = x->dtype;
    s->n = x->dim[axis];
    s->x_step = x->stride[axis];
    s->y_step = y->stride[axis];
    s->exclusive = pare_node_int(p->node, "exclusive", 0) != 0;
    s->reverse = pare_node_int(p->node, "reverse", 0) != 0;
    s->columns = s->lanes.count >= MANY_LANES && s->lanes.stride[1][s->lanes.rank - 1] < s->x_step;
    s->warps = s->n > LONG_LANE ? 8 : 1;
    p->state = s;
    return PARE_OK;
}

static pare_status scan_run(const pare_call *c)
{
    pare_cuda_scan s = *(const pare_cuda_scan *)c->state;
    s.x = c->in[0].data;
    s.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, scan_launch, &s);
}

static const pare_kernel cuda_cum_sum = {
    .name = "cuda_cum_sum", .can = scan_can, .prepare = scan_prepare, .run = scan_run};
const pare_kernel *const pare_cuda_cum_sum[] = {&cuda_cum_sum, NULL};

/* --- TopK --- */

static int64_t power_of_two(int64_t n)
{
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static bool top_axis(const pare_prep *p, int *axis)
{
    return pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->in[0].rank, axis) ==
           PARE_OK;
}

/* All keys in scratch, and a block for each SORT_SHARED of them, must be possible. */
static bool top_can(const pare_prep *p)
{
    int axis;
    const pare_view *x = &p->in[0];
    if (!number(x->dtype) || x->rank == 0 || !top_axis(p, &axis)) return false;
    int64_t n = x->dim[axis], lanes = n ? pare_view_count(x) / n : 0;
    if (n > INT_MAX) return false;
    return power_of_two(n) <= PARE_CUDA_SORT_SHARED
               ? lanes <= INT_MAX
               : lanes <= INT_MAX / (power_of_two(n) / PARE_CUDA_SORT_SHARED);
}

static bool wants_index(const pare_view *out, int count) { return count > 1 && out[1].dtype; }

static pare_status top_prepare(pare_prep *p)
{
    pare_cuda_top *t = (pare_cuda_top *)pare_arena_alloc(p->arena, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    const pare_view *x = &p->in[0], *y = &p->out[0];
    const pare_view *index = wants_index(p->out, p->out_count) ? &p->out[1] : y;
    int axis = 0;
    PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), x->rank, &axis));
    const pare_view *const operands[] = {y, x, index};
    lanes_set(&t->lanes, operands, 3, axis);
    t->dtype = x->dtype;
    t->n = x->dim[axis];
    t->k = y->dim[axis];
    t->padded = power_of_two(t->n);
    while (1ll << t->bits < t->padded) t->bits++;
    t->x_step = x->stride[axis];
    t->y_step = y->stride[axis];
    t->index_step = index->stride[axis];
    t->largest = pare_node_int(p->node, "largest", 1) != 0;
    if (t->padded > PARE_CUDA_SORT_SHARED)
        p->scratch = 16 * (size_t)t->lanes.count * (size_t)t->padded;
    p->state = t;
    return PARE_OK;
}

static pare_status top_run(const pare_call *c)
{
    pare_cuda_top t = *(const pare_cuda_top *)c->state;
    t.x = c->in[0].data;
    t.y = c->out[0].data;
    t.index = (int64_t *)(wants_index(c->out, c->out_count) ? c->out[1].data : NULL);
    t.keys = c->scratch;
    return PARE_CUDA_LAUNCH(c, top_launch, &t);
}

static const pare_kernel cuda_top_k = {
    .name = "cuda_top_k", .can = top_can, .prepare = top_prepare, .run = top_run};
const pare_kernel *const pare_cuda_top_k[] = {&cuda_top_k, NULL};

/* --- ArgMax, ArgMin: reductions --- */

static pare_cuda_reduction arg_kind(const pare_node *node)
{
    return pare_node_is(node, "ArgMin") ? PARE_CUDA_ARG_MIN : PARE_CUDA_ARG_MAX;
}

/* The host says that an empty axis has no extreme. */
static bool arg_can(const pare_prep *p)
{
    int axis;
    return pare_cuda_reduce_takes(arg_kind(p->node), p->in[0].dtype) &&
           pare_infer_axis(p->node, pare_node_int(p->node, "axis", 0), p->in[0].rank, &axis) ==
               PARE_OK &&
           p->in[0].dim[axis] > 0;
}

static pare_status arg_prepare(pare_prep *p)
{
    pare_cuda_reduce *r;
    int axis;
    bool flag[PARE_MAX_RANK] = {false};
    PARE_TRY(pare_cuda_reduce_new(p, &r));
    PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", 0), p->in[0].rank, &axis));
    flag[axis] = true;
    r->last = pare_node_int(p->node, "select_last_index", 0) != 0;
    pare_cuda_reduce_into(p, r, arg_kind(p->node), flag);
    return PARE_OK;
}

static const pare_kernel cuda_arg_extreme = {.name = "cuda_arg_extreme",
                                             .can = arg_can,
                                             .prepare = arg_prepare,
                                             .run = pare_cuda_reduce_run};
const pare_kernel *const pare_cuda_arg_extreme[] = {&cuda_arg_extreme, NULL};
