/* SPDX-License-Identifier: Apache-2.0 */
/* RNN, GRU and LSTM (7, 14, 22) as runtime/cpu/recurrent.c defines them. X W^T of all steps is one
   product. Then a launch a step multiplies the state by R and applies the gates: one warp a unit
   and a few batches, whose row of R it reads once. GRU without linear_before_reset takes two
   launches, for its last product needs all of r . h. States are floats between steps, whatever the
   type. */
#include "runtime/cuda/gemm/pack.h"
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/rows.cuh"
#include "runtime/ops/recurrent.h"
#include "runtime/base/size.h"

enum { BATCHES = 4 }; /* of a warp */

/* Which gates a launch computes. */
typedef enum gru_part { WHOLE, RESET, OUTPUT } gru_part;

typedef struct pare_cuda_recurrence {
    pare_recurrent r;
    pare_dtype dtype;
    const void *weight, *bias, *peephole; /* R, B, P; the last two or NULL */
    const void *first_h, *first_s;        /* initial_h, initial_c, or NULL */
    const int32_t *steps;                 /* sequence_lens (batch), or NULL */
    const float *product;                 /* (directions, rows of X, gates, hidden): X W^T */
    float *h, *next, *s;                  /* (directions, batch, hidden): states */
    float *z, *reset;                     /* the same, of GRU: z, and r . h */
    void *y, *last_h, *last_s;            /* outputs, or NULL */
    int64_t turn;                         /* of [0, length) */
} pare_cuda_recurrence;

SIMT_INLINE float act(const pare_recurrent_function &f, float x)
{
    switch (f.act) {
    case PARE_RECURRENT_RELU: return x > 0 ? x : 0;
    case PARE_RECURRENT_TANH: return tanhf(x);
    case PARE_RECURRENT_SIGMOID: return 1 / (1 + expf(-x));
    case PARE_RECURRENT_AFFINE: return f.alpha * x + f.beta;
    case PARE_RECURRENT_LEAKY_RELU: return x < 0 ? f.alpha * x : x;
    case PARE_RECURRENT_THRESHOLDED_RELU: return x >= f.alpha ? x : 0;
    case PARE_RECURRENT_SCALED_TANH: return f.alpha * tanhf(f.beta * x);
    case PARE_RECURRENT_HARD_SIGMOID: return fminf(1, fmaxf(0, f.alpha * x + f.beta));
    case PARE_RECURRENT_ELU: return x < 0 ? f.alpha * expm1f(x) : x;
    case PARE_RECURRENT_SOFTSIGN: return x / (1 + fabsf(x));
    case PARE_RECURRENT_SOFTPLUS: return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
    default: return x;
    }
}

/* One unit of one sequence: what its gates take from the state, as sums over R's rows. */
typedef struct unit {
    int64_t d, b, u;
    int64_t at; /* in states */
    const float *x;
} unit;

SIMT_INLINE float apply(const pare_cuda_recurrence &k, const unit &n, int function, float x)
{
    const float clip = k.r.clip;
    if (clip > 0) x = fminf(clip, fmaxf(-clip, x));
    return act(k.r.f[n.d][function], x);
}

/* Wb (part 0) or Rb (1) of gate g. */
SIMT_INLINE float bias_of(const pare_cuda_recurrence &k, const unit &n, int part, int g)
{
    const int64_t row = (n.d * 2 + part) * k.r.gates + g;
    return k.bias ? pare_number_at(k.bias, k.dtype, row * k.r.hidden + n.u) : 0;
}

SIMT_INLINE float peephole_of(const pare_cuda_recurrence &k, const unit &n, int g)
{
    return k.peephole ? pare_number_at(k.peephole, k.dtype, (n.d * 3 + g) * k.r.hidden + n.u) : 0;
}

/* What gate g takes from x and, where past is all of it, the state. */
SIMT_INLINE float gate_of(const pare_cuda_recurrence &k, const unit &n, int g, float past)
{
    return n.x[g * k.r.hidden] + past + bias_of(k, n, 0, g) + bias_of(k, n, 1, g);
}

SIMT_INLINE float lstm(const pare_cuda_recurrence &k, const unit &n, const float *past)
{
    const float old = k.s[n.at];
    const float i = apply(k, n, 0, gate_of(k, n, 0, past[0]) + peephole_of(k, n, 0) * old);
    const float f = k.r.coupled
                        ? 1 - i
                        : apply(k, n, 0, gate_of(k, n, 2, past[2]) + peephole_of(k, n, 2) * old);
    const float s = f * old + i * apply(k, n, 1, gate_of(k, n, 3, past[3]));
    k.s[n.at] = s;
    const float o = apply(k, n, 0, gate_of(k, n, 1, past[1]) + peephole_of(k, n, 1) * s);
    return o * act(k.r.f[n.d][2], s);
}

/* own, past: what the gate h takes from x, and from the state. */
SIMT_INLINE float gru(const pare_cuda_recurrence &k, const unit &n, float z, float past)
{
    const float own = n.x[2 * k.r.hidden] + bias_of(k, n, 0, 2);
    return (1 - z) * apply(k, n, 1, own + past) + z * k.h[n.at];
}

/* The position of the unit in Y at a time. */
SIMT_INLINE int64_t y_at(const pare_cuda_recurrence &k, const unit &n, int64_t t)
{
    const pare_recurrent &r = k.r;
    return (r.batch_first ? (n.b * r.length + t) * r.directions + n.d
                          : (t * r.directions + n.d) * r.batch + n.b) *
               r.hidden +
           n.u;
}

SIMT_INLINE void unit_end(const pare_cuda_recurrence &k, const unit &n, int64_t t, float h, float y)
{
    k.next[n.at] = h;
    if (k.y) pare_number_store(k.y, k.dtype, y_at(k, n, t), y);
}

/* The gates of a unit, given its sums; steps after the end of a sequence keep the state and give 0.
 */
template <int GATES>
SIMT_INLINE void unit_step(const pare_cuda_recurrence &k, unit &n, gru_part part, const float *past)
{
    int64_t steps = k.steps ? k.steps[n.b] : k.r.length;
    if (steps > k.r.length) steps = k.r.length;
    if (k.turn >= steps) {
        if (part == RESET)
            k.z[n.at] = k.reset[n.at] = 0;
        else
            unit_end(k, n, k.turn, k.h[n.at], 0);
        return;
    }
    const int64_t t = k.r.backwards[n.d] ? steps - 1 - k.turn : k.turn;
    const int64_t row = k.r.batch_first ? n.b * k.r.length + t : t * k.r.batch + n.b;
    n.x = k.product + ((n.d * k.r.length * k.r.batch + row) * k.r.gates) * k.r.hidden + n.u;
    float h = 0;
    if (GATES == 4) {
        h = lstm(k, n, past);
    } else if (part == RESET) {
        k.z[n.at] = apply(k, n, 0, gate_of(k, n, 0, past[0]));
        k.reset[n.at] = apply(k, n, 0, gate_of(k, n, 1, past[1])) * k.h[n.at];
        return;
    } else if (part == OUTPUT) {
        h = gru(k, n, k.z[n.at], past[0] + bias_of(k, n, 1, 2));
    } else if (GATES == 3) {
        const float reset = apply(k, n, 0, gate_of(k, n, 1, past[1]));
        h = gru(k, n, apply(k, n, 0, gate_of(k, n, 0, past[0])),
                reset * (past[2] + bias_of(k, n, 1, 2)));
    } else {
        h = apply(k, n, 0, gate_of(k, n, 0, past[0]));
    }
    unit_end(k, n, t, h, h);
}

/* Gates first .. first + GATES - 1 of one step; v (directions, batch, hidden) times their rows of
 * R.
 */
template <int GATES>
static __global__ void __launch_bounds__(WARPS * 32)
    recurrent_step(pare_cuda_recurrence k, const float *v, int first, gru_part part)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t hidden = k.r.hidden, tiles = (k.r.batch + BATCHES - 1) / BATCHES;
    const int64_t row = row_of(k.r.directions * hidden * tiles);
    if (row < 0) return;
    const int64_t tile = row % tiles, u = row / tiles % hidden, d = row / tiles / hidden;
    const int64_t left = k.r.batch - tile * BATCHES;
    const int count = left < BATCHES ? (int)left : (int)BATCHES;
    const int64_t from = (d * k.r.batch + tile * BATCHES) * hidden;
    float sum[GATES][BATCHES] = {};
    for (int64_t i = lane; i < hidden; i += 32) {
        float w[GATES];
        PARE_UNROLL
        for (int g = 0; g < GATES; g++)
            w[g] = pare_number_at(k.weight, k.dtype,
                                  ((d * k.r.gates + first + g) * hidden + u) * hidden + i);
        PARE_UNROLL
        for (int b = 0; b < BATCHES; b++) {
            const float x = b < count ? v[from + b * hidden + i] : 0;
            PARE_UNROLL
            for (int g = 0; g < GATES; g++) sum[g][b] += w[g] * x;
        }
    }
    float mine[PARE_RECURRENT_GATES] = {};
    PARE_UNROLL
    for (int b = 0; b < BATCHES; b++) PARE_UNROLL
    for (int g = 0; g < GATES; g++) {
        const float all = pare_lanes_sum(sum[g][b]);
        if (lane == b) mine[g] = all;
    }
    if (lane >= count) return;
    unit n = {d, tile * BATCHES + lane, u, from + lane * hidden + u, NULL};
    unit_step<GATES>(k, n, part, mine);
}

/* Element i of states, as it is in initial_h and Y_h. */
SIMT_INLINE int64_t state_at(const pare_recurrent &r, int64_t i)
{
    if (!r.batch_first) return i;
    const int64_t u = i % r.hidden, b = i / r.hidden % r.batch, d = i / r.hidden / r.batch;
    return (b * r.directions + d) * r.hidden + u;
}

static __global__ void recurrent_start(pare_cuda_recurrence k)
{
    PARE_CUDA_EACH (i, k.r.directions * k.r.batch * k.r.hidden) {
        const int64_t at = state_at(k.r, i);
        k.h[i] = k.first_h ? pare_number_at(k.first_h, k.dtype, at) : 0;
        k.s[i] = k.first_s ? pare_number_at(k.first_s, k.dtype, at) : 0;
    }
}

static __global__ void recurrent_end(pare_cuda_recurrence k)
{
    PARE_CUDA_EACH (i, k.r.directions * k.r.batch * k.r.hidden) {
        const int64_t at = state_at(k.r, i);
        if (k.last_h) pare_number_store(k.last_h, k.dtype, at, k.h[i]);
        if (k.last_s) pare_number_store(k.last_s, k.dtype, at, k.s[i]);
    }
}

/* --- launchers --- */

#define STEP(gates, v, first, part)                                                                \
    SIMT_LAUNCH(recurrent_step<gates>, grid, dim3(WARPS * 32), 0, stream, *k, v, first, part)

/* One step; h and next change places. */
static void step_launch(pare_cuda_recurrence *k, cudaStream_t stream)
{
    const int64_t tiles = (k->r.batch + BATCHES - 1) / BATCHES;
    const dim3 grid = rows_grid(k->r.directions * k->r.hidden * tiles);
    if (k->r.cell == PARE_RECURRENT_LSTM) {
        STEP(4, k->h, 0, WHOLE);
    } else if (k->r.cell == PARE_RECURRENT_RNN) {
        STEP(1, k->h, 0, WHOLE);
    } else if (k->r.linear_before) {
        STEP(3, k->h, 0, WHOLE);
    } else {
        STEP(2, k->h, 0, RESET);
        STEP(1, k->reset, 2, OUTPUT);
    }
    float *h = k->h;
    k->h = k->next;
    k->next = h;
}

/* All steps, the product of X and W being there. */
static cudaError_t recurrent_launch(const pare_cuda_recurrence *r, cudaStream_t stream)
{
    pare_cuda_recurrence k = *r;
    const dim3 grid = pare_cuda_grid(k.r.directions * k.r.batch * k.r.hidden);
    SIMT_LAUNCH(recurrent_start, grid, dim3(PARE_CUDA_BLOCK), 0, stream, k);
    for (k.turn = 0; k.turn < k.r.length; k.turn++) step_launch(&k, stream);
    SIMT_LAUNCH(recurrent_end, grid, dim3(PARE_CUDA_BLOCK), 0, stream, k);
    return cudaGetLastError();
}

/* --- X W^T --- */

/* Where tensor cores could not read a factor's rows, a packed copy. */
typedef struct packing {
    bool wanted;
    pare_cuda_pack x, w;
} packing;

typedef struct recurrent {
    pare_cuda_recurrence k;
    pare_cuda_gemm_args product;
    packing pack;
    size_t x_at, w_at, states_at, product_at; /* in scratch */
} recurrent;

static size_t take(pare_prep *p, size_t bytes)
{
    const size_t at = p->scratch;
    p->scratch += pare_align_up(bytes, 256);
    return at;
}

static size_t pack_set(pare_prep *p, pare_cuda_pack *k, int64_t rows, int64_t depth)
{
    k->type = p->in[0].dtype;
    k->rows = rows, k->row = depth, k->step = 1;
    k->depth = (int)depth;
    k->pitch = pare_cuda_pitch(depth, k->type);
    k->matrices = 1;
    k->batch.operands = 2, k->batch.rank = 1, k->batch.count = 1, k->batch.dim[0] = 1;
    return take(p, (size_t)rows * (size_t)k->pitch * (size_t)pare_cuda_bytes(k->type));
}

static void product_set(pare_prep *p, recurrent *s)
{
    const pare_recurrent *r = &s->k.r;
    const pare_dtype type = p->in[0].dtype;
    const int64_t rows = r->length * r->batch, columns = r->gates * r->hidden;
    int64_t pitch = r->size;
    pare_cuda_gemm_args *g = &s->product;
    s->pack.wanted = type != PARE_f32 && r->size != pare_cuda_pitch(r->size, type);
    if (s->pack.wanted) {
        s->x_at = pack_set(p, &s->pack.x, rows, r->size);
        s->w_at = pack_set(p, &s->pack.w, r->directions * columns, r->size);
        pitch = s->pack.x.pitch;
    }
    pare_cuda_gemm_init(g, type, PARE_f32);
    g->rows = rows, g->columns = (int)columns, g->depth = (int)r->size;
    g->x_row = g->w_row = pitch;
    g->y_row = columns;
    pare_cuda_batch_set(g, r->directions, rows * columns, 0, columns * pitch);
    g->copy = type == PARE_f32 ? 1 : 16;
    g->tile = pare_cuda_tile_best(g);
    pare_cuda_lot_set(g);
    s->product_at = take(p, (size_t)(r->directions * rows * columns) * sizeof(float));
}

static pare_status pack_run(const pare_call *c, const pare_cuda_pack *pack, const void **data,
                            size_t at)
{
    pare_cuda_pack k = *pack;
    k.from = *data;
    *data = k.to = (char *)c->scratch + at;
    return PARE_CUDA_LAUNCH(c, pare_cuda_pack_launch, &k);
}

static pare_status product_run(const pare_call *c, const recurrent *s)
{
    pare_cuda_gemm_args g = s->product;
    g.x = c->in[0].data;
    g.w = c->in[1].data;
    if (s->pack.wanted) {
        PARE_TRY(pack_run(c, &s->pack.x, &g.x, s->x_at));
        PARE_TRY(pack_run(c, &s->pack.w, &g.w, s->w_at));
    }
    g.y = (char *)c->scratch + s->product_at;
    return PARE_CUDA_LAUNCH(c, pare_cuda_gemm_launch, &g);
}

/* --- RNN, GRU, LSTM --- */

static bool recurrent_can(const pare_prep *p)
{
    pare_recurrent r;
    if (!pare_cuda_can_float(p, 3)) return false;
    if (!pare_cuda_readable(p, pare_recurrent_read(p->node, &r))) return false;
    for (int i = 0; i < p->in_count; i++)
        if (p->in[i].dtype && !pare_view_rowmajor(&p->in[i])) return false;
    return r.length > 0 && r.batch > 0 && r.size > 0 && r.hidden > 0 && r.size <= INT32_MAX / 8 &&
           r.gates * r.hidden <= INT32_MAX / 2 && r.directions * r.hidden * r.batch <= INT32_MAX;
}

static pare_status recurrent_prepare(pare_prep *p)
{
    recurrent *s = (recurrent *)pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_recurrent *r = &s->k.r;
    PARE_TRY(pare_recurrent_read(p->node, r));
    s->k.dtype = p->in[0].dtype;
    product_set(p, s);
    const int states = r->cell == PARE_RECURRENT_GRU && !r->linear_before ? 5 : 3;
    s->states_at = take(p, (size_t)(states * r->directions * r->batch * r->hidden) * sizeof(float));
    p->state = s;
    return PARE_OK;
}

static const void *input_of(const pare_call *c, int i)
{
    return i < c->in_count && c->in[i].dtype ? c->in[i].data : NULL;
}

static void *output_of(const pare_call *c, int i)
{
    return i < c->out_count && c->out[i].dtype ? c->out[i].data : NULL;
}

static pare_status recurrent_run(const pare_call *c)
{
    const recurrent *s = (const recurrent *)c->state;
    pare_cuda_recurrence k = s->k;
    const int64_t n = k.r.directions * k.r.batch * k.r.hidden;
    PARE_TRY(product_run(c, s));
    k.product = (const float *)(const void *)((char *)c->scratch + s->product_at);
    k.h = (float *)(void *)((char *)c->scratch + s->states_at);
    k.next = k.h + n, k.s = k.h + 2 * n, k.z = k.h + 3 * n, k.reset = k.h + 4 * n;
    k.weight = c->in[2].data;
    k.bias = input_of(c, 3);
    k.steps = (const int32_t *)input_of(c, 4);
    k.first_h = input_of(c, 5);
    k.first_s = input_of(c, 6);
    k.peephole = input_of(c, 7);
    k.y = output_of(c, 0);
    k.last_h = output_of(c, 1);
    k.last_s = output_of(c, 2);
    return PARE_CUDA_LAUNCH(c, recurrent_launch, &k);
}

static const pare_kernel cuda_recurrent = {.name = "cuda_recurrent",
                                           .can = recurrent_can,
                                           .prepare = recurrent_prepare,
                                           .run = recurrent_run};
const pare_kernel *const pare_cuda_recurrent[] = {&cuda_recurrent, NULL};
