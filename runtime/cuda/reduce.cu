/* SPDX-License-Identifier: Apache-2.0 */
/* y[o] = reduction of x over a region: formulas of ONNX ReduceSum 13 and its relatives 18 to 20,
   ArgMax and ArgMin 13, as runtime/cpu/reduce.c defines them. Reads x once.

   Rows, where a region's elements are neighbours: one warp an output, or a block of eight warps
   where the region is long. Columns, where the outputs are neighbours (channels in N, H, W, C): 32
   outputs a block, eight threads for each, so that a warp reads 32 neighbours. Few outputs of a
   long region: the region is cut into parts by the grid's second axis and a second kernel joins
   them.

   Order of additions, the same in every run: thread t of an output adds elements t, t + step, ...
   of its part one by one; lanes of a warp join in a butterfly (16, 8, 4, 2, 1 apart); warps, then
   parts, join first to last. Sums are kept in double and rounded once; integers wrap around in 64
   bits. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"
#include "runtime/cuda/reduce.h"
#include "runtime/ops/reduce.h"

#include <string.h>

enum { BLOCK = 256, WARPS = 8, AHEAD = 4 };

/* What a thread has seen. v: the sum, product or extreme. w: the largest value so far (LOG_SUM_EXP,
   whose sum is relative to it), the index (ARG_), the mean (INVERSE_DEVIATION), the other end
   (RANGE). */
template <class A> struct part {
    A v, w;
};

/* --- floats --- */

SIMT_INLINE void part_start(const pare_cuda_reduce &r, part<double> *p, int64_t y_at)
{
    p->v = 0;
    p->w = 0;
    if (r.kind == PARE_CUDA_PROD) p->v = 1;
    if (r.kind == PARE_CUDA_MAX) p->v = -(double)INFINITY;
    if (r.kind == PARE_CUDA_MIN) p->v = (double)INFINITY;
    if (r.kind == PARE_CUDA_LOG_SUM_EXP) p->w = -(double)INFINITY;
    if (r.kind == PARE_CUDA_ARG_MAX || r.kind == PARE_CUDA_ARG_MIN) p->w = -1;
    if (r.kind == PARE_CUDA_INVERSE_DEVIATION) p->w = r.mean[y_at];
}

SIMT_INLINE double high_of(double a, double b) { return a != a || b <= a ? a : b; } /* NaN wins */
SIMT_INLINE double low_of(double a, double b) { return a != a || b >= a ? a : b; }

/* Adds v e^w to a sum that is relative to the largest w so far. */
SIMT_INLINE void exp_join(part<double> *p, double v, double w)
{
    if (p->w != p->w) return; /* NaN stays */
    if (w == p->w) {
        p->v += v;
    } else if (w < p->w) {
        p->v += v * exp(w - p->w);
    } else {
        p->v = p->v * exp(p->w - w) + v;
        p->w = w;
    }
}

/* Does b, at a later or earlier index, take the place of a? NaN is the extreme of all, as in numpy.
 */
SIMT_INLINE bool takes_over(const pare_cuda_reduce &r, const part<double> &a, double b,
                            double index)
{
    bool a_nan = a.v != a.v, b_nan = b != b;
    bool beyond = r.kind == PARE_CUDA_ARG_MAX ? b > a.v : b < a.v;
    if (a.w < 0) return true;
    if (a_nan != b_nan) return b_nan;
    return beyond || ((b == a.v || a_nan) && (r.last ? index > a.w : index < a.w));
}

SIMT_INLINE void part_add(const pare_cuda_reduce &r, part<double> *p, double x, int64_t index)
{
    switch (r.kind) {
    case PARE_CUDA_MAX: p->v = high_of(p->v, x); break;
    case PARE_CUDA_MIN: p->v = low_of(p->v, x); break;
    case PARE_CUDA_PROD: p->v *= x; break;
    case PARE_CUDA_L1: p->v += fabs(x); break;
    case PARE_CUDA_L2:
    case PARE_CUDA_SUM_SQUARE: p->v += x * x; break;
    case PARE_CUDA_LOG_SUM_EXP: exp_join(p, 1, x); break;
    case PARE_CUDA_ARG_MAX:
    case PARE_CUDA_ARG_MIN:
        if (!takes_over(r, *p, x, (double)index)) break;
        p->v = x;
        p->w = (double)index;
        break;
    case PARE_CUDA_INVERSE_DEVIATION: p->v += (x - p->w) * (x - p->w); break;
    case PARE_CUDA_RANGE:
        p->v = x < p->v ? x : p->v;
        p->w = x > p->w ? x : p->w;
        break;
    default: p->v += x;
    }
}

SIMT_INLINE void part_join(const pare_cuda_reduce &r, part<double> *p, const part<double> &q)
{
    switch (r.kind) {
    case PARE_CUDA_MAX: p->v = high_of(p->v, q.v); break;
    case PARE_CUDA_MIN: p->v = low_of(p->v, q.v); break;
    case PARE_CUDA_PROD: p->v *= q.v; break;
    case PARE_CUDA_LOG_SUM_EXP: exp_join(p, q.v, q.w); break;
    case PARE_CUDA_ARG_MAX:
    case PARE_CUDA_ARG_MIN:
        if (q.w >= 0 && takes_over(r, *p, q.v, q.w)) *p = q;
        break;
    case PARE_CUDA_RANGE:
        p->v = q.v < p->v ? q.v : p->v;
        p->w = q.w > p->w ? q.w : p->w;
        break;
    default: p->v += q.v;
    }
}

SIMT_INLINE double part_end(const pare_cuda_reduce &r, const part<double> &p)
{
    const double n = (double)r.region.count;
    switch (r.kind) {
    case PARE_CUDA_MEAN: return p.v / n;
    case PARE_CUDA_L2: return sqrt(p.v);
    case PARE_CUDA_LOG_SUM: return log(p.v);
    case PARE_CUDA_LOG_SUM_EXP: return p.w - p.w != 0 ? p.w : p.w + log(p.v); /* infinite */
    case PARE_CUDA_ARG_MAX:
    case PARE_CUDA_ARG_MIN: return p.w;
    case PARE_CUDA_INVERSE_DEVIATION: return 1 / sqrt(p.v / n + (double)r.p);
    default: return p.v;
    }
}

/* --- integers, as 64-bit words: u64 compares without a sign --- */

SIMT_INLINE void part_start(const pare_cuda_reduce &r, part<int64_t> *p, int64_t)
{
    bool extreme = r.kind == PARE_CUDA_MAX || r.kind == PARE_CUDA_MIN;
    p->v = r.kind == PARE_CUDA_PROD ? 1 : extreme ? r.start : 0;
    p->w = -1;
}

SIMT_INLINE bool is_less(const pare_cuda_reduce &r, int64_t a, int64_t b)
{
    return r.x_type == PARE_u64 ? (uint64_t)a < (uint64_t)b : a < b;
}

SIMT_INLINE bool takes_over(const pare_cuda_reduce &r, const part<int64_t> &a, int64_t b,
                            int64_t index)
{
    bool beyond = r.kind == PARE_CUDA_ARG_MAX ? is_less(r, a.v, b) : is_less(r, b, a.v);
    return a.w < 0 || beyond || (b == a.v && (r.last ? index > a.w : index < a.w));
}

SIMT_INLINE int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
SIMT_INLINE int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

SIMT_INLINE void part_join(const pare_cuda_reduce &r, part<int64_t> *p, const part<int64_t> &q)
{
    switch (r.kind) {
    case PARE_CUDA_MAX: p->v = is_less(r, p->v, q.v) ? q.v : p->v; break;
    case PARE_CUDA_MIN: p->v = is_less(r, q.v, p->v) ? q.v : p->v; break;
    case PARE_CUDA_PROD: p->v = wrap_mul(p->v, q.v); break;
    case PARE_CUDA_ARG_MAX:
    case PARE_CUDA_ARG_MIN:
        if (q.w >= 0 && takes_over(r, *p, q.v, q.w)) *p = q;
        break;
    default: p->v = wrap_add(p->v, q.v);
    }
}

SIMT_INLINE void part_add(const pare_cuda_reduce &r, part<int64_t> *p, int64_t x, int64_t index)
{
    part<int64_t> q = {x, index};
    if (r.kind == PARE_CUDA_L1 && x < 0 && r.x_type != PARE_u64) q.v = (int64_t)(0 - (uint64_t)x);
    if (r.kind == PARE_CUDA_L2 || r.kind == PARE_CUDA_SUM_SQUARE) q.v = wrap_mul(x, x);
    part_join(r, p, q);
}

SIMT_INLINE int64_t part_end(const pare_cuda_reduce &r, const part<int64_t> &p)
{
    switch (r.kind) {
    case PARE_CUDA_MEAN: return r.region.count ? p.v / r.region.count : 0;
    case PARE_CUDA_L2: return (int64_t)sqrt((double)p.v);
    case PARE_CUDA_LOG_SUM: return (int64_t)log((double)p.v);
    case PARE_CUDA_ARG_MAX:
    case PARE_CUDA_ARG_MIN: return p.w;
    default: return p.v;
    }
}

/* --- memory: T is the element, void any integer --- */

SIMT_INLINE double load(const float *x, int64_t at, pare_dtype) { return (double)x[at]; }
SIMT_INLINE double load(const double *x, int64_t at, pare_dtype) { return x[at]; }
SIMT_INLINE double load(const __half *x, int64_t at, pare_dtype)
{
    return (double)pare_to_f32(x[at]);
}
SIMT_INLINE double load(const __nv_bfloat16 *x, int64_t at, pare_dtype)
{
    return (double)pare_to_f32(x[at]);
}
SIMT_INLINE int64_t load(const void *x, int64_t at, pare_dtype type)
{
    return pare_int_at(x, type, at);
}

SIMT_INLINE void store(void *y, pare_dtype type, int64_t at, double v)
{
    if (type == PARE_s64)
        pare_int_store(y, type, at, (int64_t)v); /* an index */
    else
        pare_double_store(y, type, at, v);
}

SIMT_INLINE void store(void *y, pare_dtype type, int64_t at, int64_t v)
{
    pare_int_store(y, type, at, v);
}

template <class A> SIMT_INLINE void put(const pare_cuda_reduce &r, int64_t y_at, const part<A> &p)
{
    if (r.kind == PARE_CUDA_RANGE) {
        store(r.y, r.y_type, y_at, p.v);
        store(r.y, r.y_type, y_at + 1, p.w);
    } else
        store(r.y, r.y_type, y_at, part_end(r, p));
}

/* Elements first, first + step, ... before end, AHEAD loads in flight at a time. */
template <class T, class A>
SIMT_INLINE void add_all(const pare_cuda_reduce &r, part<A> *p, int64_t base, int64_t first,
                         int64_t end, int64_t step)
{
    const T *x = static_cast<const T *>(r.x);
    int64_t i = first, at[1];
    for (; i + (AHEAD - 1) * step < end; i += AHEAD * step) {
        A v[AHEAD];
        PARE_UNROLL
        for (int k = 0; k < AHEAD; k++) {
            pare_iterator_at<1>(r.region, i + k * step, at);
            v[k] = load(x, base + at[0], r.x_type);
        }
        PARE_UNROLL
        for (int k = 0; k < AHEAD; k++) part_add(r, p, v[k], i + k * step);
    }
    for (; i < end; i += step) {
        pare_iterator_at<1>(r.region, i, at);
        part_add(r, p, (A)load(x, base + at[0], r.x_type), i);
    }
}

template <class A>
SIMT_INLINE void deliver(const pare_cuda_reduce &r, int64_t o, int64_t y_at, const part<A> &p)
{
    if (r.parts == 1)
        put(r, y_at, p);
    else
        static_cast<part<A> *>(r.part)[(int64_t)blockIdx.y * r.kept.count + o] = p;
}

SIMT_INLINE int64_t part_stop(const pare_cuda_reduce &r)
{
    int64_t end = ((int64_t)blockIdx.y + 1) * r.chunk;
    return end < r.region.count ? end : r.region.count;
}

/* This thread's share of output o: every step-th element of its chunk from the first; *to: where in
   y the output is. */
template <class T, class A>
SIMT_INLINE part<A> own_part(const pare_cuda_reduce &r, int64_t o, int first, int step, int64_t *to)
{
    int64_t at[2] = {0, 0};
    part<A> p = {0, 0};
    if (o < r.kept.count) {
        pare_iterator_at<2>(r.kept, o, at);
        part_start(r, &p, at[0]);
        add_all<T, A>(r, &p, at[1], (int64_t)blockIdx.y * r.chunk + first, part_stop(r), step);
    }
    *to = at[0];
    return p;
}

template <class T, class A>
static __global__ void __launch_bounds__(BLOCK) reduce_rows(pare_cuda_reduce r)
{
    SIMT_SHARED(part<A>, joined, [WARPS]);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31, rank = warp % r.warps;
    const int64_t o = (int64_t)blockIdx.x * (WARPS / r.warps) + warp / r.warps;
    int64_t to;
    part<A> p = own_part<T, A>(r, o, rank * 32 + lane, r.warps * 32, &to);
    for (int d = 16; d; d >>= 1) {
        part<A> q = {__shfl_xor_sync(0xffffffffu, p.v, d), __shfl_xor_sync(0xffffffffu, p.w, d)};
        part_join(r, &p, q);
    }
    if (lane == 0) joined[warp] = p;
    __syncthreads();
    if (o < r.kept.count && lane == 0 && rank == 0) {
        for (int k = 1; k < r.warps; k++) part_join(r, &p, joined[warp + k]);
        deliver(r, o, to, p);
    }
}

template <class T, class A>
static __global__ void __launch_bounds__(BLOCK) reduce_columns(pare_cuda_reduce r)
{
    SIMT_SHARED(part<A>, joined, [WARPS][32]);
    const int row = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31;
    const int64_t o = (int64_t)blockIdx.x * 32 + lane;
    int64_t to;
    part<A> p = own_part<T, A>(r, o, row, WARPS, &to);
    joined[row][lane] = p;
    __syncthreads();
    if (o < r.kept.count && row == 0) {
        for (int k = 1; k < WARPS; k++) part_join(r, &p, joined[k][lane]);
        deliver(r, o, to, p);
    }
}

template <class A> static __global__ void __launch_bounds__(BLOCK) join_parts(pare_cuda_reduce r)
{
    const part<A> *all = static_cast<const part<A> *>(r.part);
    PARE_CUDA_EACH (o, r.kept.count) {
        int64_t at[2];
        pare_iterator_at<2>(r.kept, o, at);
        part<A> p = all[o];
        for (int k = 1; k < r.parts; k++) part_join(r, &p, all[k * r.kept.count + o]);
        put(r, at[0], p);
    }
}

template <class T, class A>
static cudaError_t launch(const pare_cuda_reduce *r, cudaStream_t stream)
{
    const int64_t outputs = r->kept.count, beside = r->columns ? 32 : WARPS / r->warps;
    const dim3 grid(pare_cuda_blocks((outputs + beside - 1) / beside), (unsigned)r->parts),
        block(BLOCK);
    if (outputs == 0) return cudaSuccess;
    if (r->columns)
        SIMT_LAUNCH((reduce_columns<T, A>), grid, block, 0, stream, *r);
    else
        SIMT_LAUNCH((reduce_rows<T, A>), grid, block, 0, stream, *r);
    if (r->parts > 1) SIMT_LAUNCH(join_parts<A>, pare_cuda_grid(outputs), block, 0, stream, *r);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_reduce_launch(const pare_cuda_reduce *r, cudaStream_t stream)
{
    switch (r->x_type) {
    case PARE_f32: return launch<float, double>(r, stream);
    case PARE_f16: return launch<__half, double>(r, stream);
    case PARE_bf16: return launch<__nv_bfloat16, double>(r, stream);
    case PARE_f64: return launch<double, double>(r, stream);
    default: return launch<void, int64_t>(r, stream);
    }
}

/* --- setting one up --- */

pare_view pare_cuda_axes(const pare_view *v, const bool *axis, bool flagged)
{
    pare_view out = {.dtype = v->dtype, .data = v->data};
    for (int i = 0; i < v->rank; i++) {
        if (axis[i] != flagged) continue;
        out.dim[out.rank] = v->dim[i];
        out.stride[out.rank++] = v->stride[i];
    }
    return out;
}

/* The lowest integer of a type for a maximum, the highest for a minimum. */
static int64_t extreme_start(pare_cuda_reduction kind, pare_dtype type)
{
    int bits = type == PARE_bool ? 1 : pare_type(type)->bits;
    bool has_sign = type == PARE_s8 || type == PARE_s16 || type == PARE_s32 || type == PARE_s64;
    if (kind == PARE_CUDA_MAX) return has_sign ? (int64_t)(~0ull << (bits - 1)) : 0;
    return has_sign ? (int64_t)(~0ull >> (65 - bits)) : (int64_t)(~0ull >> (64 - bits));
}

enum {
    LONG_ROW = 512,    /* elements that eight warps share */
    ROW_PART = 4096,   /* the least that is worth a block of its own */
    COLUMN_PART = 256, /* the same for 32 columns */
    FULL = 264,        /* blocks that fill a large device twice */
    MOST_PARTS = 1024
};

static int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Enough parts to fill a device, each worth its block; cut the same way on every device. */
static void geometry_set(pare_cuda_reduce *r, bool deterministic)
{
    const pare_tensor_iterator *k = &r->kept, *in = &r->region;
    const int64_t n = in->count;
    r->columns = k->count > 1 && n > 1 && k->stride[1][k->rank - 1] < in->stride[0][in->rank - 1];
    r->warps = n > LONG_ROW ? 8 : 1;
    int64_t blocks = r->columns ? ceiling(k->count, 32) : ceiling(k->count * r->warps, 8);
    int64_t least = r->columns ? COLUMN_PART : ROW_PART, parts = n / least;
    if (!deterministic && parts > FULL / (blocks + 1)) parts = FULL / (blocks + 1);
    if (deterministic) parts /= 16;
    r->parts = (int)(parts < 1 ? 1 : parts > MOST_PARTS ? (int64_t)MOST_PARTS : parts);
    r->chunk = ceiling(n, r->parts);
}

void pare_cuda_reduce_set(pare_cuda_reduce *r, pare_cuda_reduction kind, const pare_view *x,
                          const bool *axis, const pare_view *y, bool deterministic)
{
    pare_view kept = pare_cuda_axes(x, axis, false), region = pare_cuda_axes(x, axis, true);
    const pare_view *both[2] = {y, &kept}, *one[1] = {&region};
    r->kind = kind;
    r->x_type = x->dtype;
    r->y_type = y->dtype;
    if (!pare_type_is_float(x->dtype)) r->start = extreme_start(kind, x->dtype);
    pare_iterator_init(&r->kept, both, 2);
    pare_iterator_init(&r->region, one, 1);
    geometry_set(r, deterministic);
}

size_t pare_cuda_reduce_scratch(const pare_cuda_reduce *r)
{
    return r->parts > 1 ? 16 * (size_t)r->parts * (size_t)r->kept.count : 0;
}

bool pare_cuda_reduce_takes(pare_cuda_reduction kind, pare_dtype x)
{
    if (pare_cuda_is_float(x)) return true;
    if (x == PARE_f64) return kind < PARE_CUDA_INVERSE_DEVIATION;
    if (x == PARE_bool) return kind == PARE_CUDA_MAX || kind == PARE_CUDA_MIN;
    return kind < PARE_CUDA_INVERSE_DEVIATION && kind != PARE_CUDA_LOG_SUM_EXP &&
           pare_cuda_bytes(x) > 0 && pare_type(x)->to_f32;
}

pare_status pare_cuda_reduce_new(pare_prep *p, pare_cuda_reduce **out)
{
    pare_cuda_reduce *r = (pare_cuda_reduce *)pare_arena_alloc(p->arena, 1, sizeof *r);
    p->state = *out = r;
    return r ? PARE_OK : PARE_MEMORY;
}

void pare_cuda_reduce_into(pare_prep *p, pare_cuda_reduce *r, pare_cuda_reduction kind,
                           const bool *axis)
{
    bool keeps = p->out[0].rank == p->in[0].rank;
    pare_view y = keeps ? pare_cuda_axes(&p->out[0], axis, false) : p->out[0];
    pare_cuda_reduce_set(r, kind, &p->in[0], axis, &y, p->deterministic);
    p->scratch = pare_cuda_reduce_scratch(r);
}

pare_status pare_cuda_reduce_run(const pare_call *c)
{
    pare_cuda_reduce r = *(const pare_cuda_reduce *)c->state;
    r.x = c->in[0].data;
    r.y = c->out[0].data;
    r.part = c->scratch;
    return PARE_CUDA_LAUNCH(c, pare_cuda_reduce_launch, &r);
}

/* --- ReduceX --- */

static pare_cuda_reduction kind_of(const pare_node *node)
{
    static const char *const names[] = {"Sum", "Mean", "Max",       "Min",    "Prod",
                                        "L1",  "L2",   "SumSquare", "LogSum", "LogSumExp"};
    for (int k = 0; k <= PARE_CUDA_LOG_SUM_EXP; k++)
        if (!strcmp(node->op_type + strlen("Reduce"), names[k])) return (pare_cuda_reduction)k;
    return PARE_CUDA_SUM;
}

static bool axes_known(const pare_prep *p, pare_reduce *out)
{
    return pare_reduce_read(p->node, p->in[0].rank, out) == PARE_OK && out->known;
}

static bool reduce_can(const pare_prep *p)
{
    pare_reduce axes;
    return pare_cuda_reduce_takes(kind_of(p->node), p->in[0].dtype) && axes_known(p, &axes) &&
           !axes.noop;
}

static pare_status reduce_prepare(pare_prep *p)
{
    pare_cuda_reduce *r;
    pare_reduce axes;
    PARE_TRY(pare_cuda_reduce_new(p, &r));
    PARE_TRY(pare_reduce_read(p->node, p->in[0].rank, &axes));
    pare_cuda_reduce_into(p, r, kind_of(p->node), axes.axis);
    return PARE_OK;
}

static const pare_kernel cuda_reduce = {.name = "cuda_reduce",
                                        .can = reduce_can,
                                        .prepare = reduce_prepare,
                                        .run = pare_cuda_reduce_run};

/* No axes and noop_with_empty_axes: a copy. */
static bool noop_can(const pare_prep *p)
{
    pare_reduce axes;
    return pare_cuda_bytes(p->in[0].dtype) > 0 && axes_known(p, &axes) && axes.noop;
}

static pare_status noop_run(const pare_call *c) { return pare_cuda_copy(c, &c->out[0], &c->in[0]); }

static const pare_kernel cuda_reduce_nothing = {
    .name = "cuda_reduce_nothing", .can = noop_can, .run = noop_run};
const pare_kernel *const pare_cuda_reduce_axes[] = {&cuda_reduce, &cuda_reduce_nothing, NULL};
