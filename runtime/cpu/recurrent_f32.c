/* SPDX-License-Identifier: Apache-2.0 */
/* RNN, GRU and LSTM with constant weights, in f32 (f16 and bf16 through f32).

   Plan: X W of as many steps as stay in a core's cache is one product before the first of them. W
   and R are packed with their columns in blocks of units: all gates of some units are neighbours,
   so that a thread that owns units multiplies, applies the gates and writes its part of the state,
   and threads meet once a step (a GRU that resets before its product: twice). Of a large batch a
   thread owns rows instead, and no two meet. Each sum is one chain along the inner axis: results do
   not depend on threads. Two directions run side by side where there are threads for both. */
#include "runtime/base/size.h"
#include "runtime/cpu/gemm/float_gemm.h"
#include "runtime/cpu/recurrent.h"

#include <omp.h>
#include <string.h>

enum {
    LEAST = 60000,   /* multiply-adds of a step below which one thread serves a direction */
    OWN_ROWS = 8,    /* rows of a batch from which a thread owns rows */
    MOST_BLOCK = 32, /* units of a block: the product's columns of a block */
    CHUNK = 8,       /* tiles of rows that meet a block of W's columns before the next does */
    ROWS = 128       /* of X W at once, or a step's */
};

typedef struct direction {
    float *w, *r;    /* packed */
    float *bias;     /* (columns) what X W starts from */
    float *past;     /* (columns) what R's product adds before the reset of GRU; else NULL */
    float *peephole; /* (3, padded) or NULL */
} direction;

typedef struct state {
    pare_recurrent r;
    pare_float_gemm w, h;  /* X W and H R */
    int64_t block, blocks; /* units of a block, blocks of units */
    int64_t padded;        /* units, padded */
    int64_t columns;       /* gates x padded */
    int64_t stretch;       /* steps of X W at once */
    int threads;
    bool by_rows;      /* threads own rows of the batch, not units */
    bool usual[2];     /* of each direction: sigmoid and tanh, nothing clipped or coupled */
    bool side_by_side; /* two directions */
    size_t product, sums, hidden, room; /* floats of a direction: X W, H R, one state; all */
    size_t input; /* floats: X, where it is not f32 and row-major along its last axis */
    direction of[2];
} state;

static bool is_float(pare_dtype t) { return t == PARE_f32 || t == PARE_f16 || t == PARE_bf16; }

static bool can(const pare_prep *p)
{
    if (!is_float(p->in[0].dtype) || !p->in[1].data || !p->in[2].data) return false;
    for (int i = 3; i < p->in_count; i += 4) /* B, P */
        if (p->in[i].dtype && !p->in[i].data) return false;
    return true;
}

/* --- preparing --- */

/* Column of gate g of a unit. */
static int64_t column_of(const state *s, int g, int64_t unit)
{
    return (unit / s->block * s->r.gates + g) * s->block + unit % s->block;
}

/* Rows of W or R of a direction become the columns of a packed matrix. */
static pare_status weights_pack(pare_prep *p, const state *s, const pare_float_gemm *g, int input,
                                int d, float **out)
{
    const pare_view *w = &p->in[input];
    const int64_t depth = g->depth;
    float *dense = pare_alloc(p->ctx, (size_t)(depth * s->columns) + 1, sizeof *dense);
    float *packed = pare_arena_alloc(p->arena, pare_float_packed_count(g) + 1, sizeof *packed);
    if (dense && packed) {
        for (int k = 0; k < s->r.gates; k++)
            for (int64_t u = 0; u < s->r.hidden; u++) {
                int64_t at = d * w->stride[0] + (k * s->r.hidden + u) * w->stride[1];
                float *to = dense + column_of(s, k, u);
                for (int64_t i = 0; i < depth; i++)
                    to[i * s->columns] = pare_float_at(w->data, w->dtype, at + i * w->stride[2]);
            }
        pare_float_pack(g, packed, dense, PARE_f32, s->columns, 1);
    }
    pare_free(dense);
    *out = packed;
    return dense && packed ? PARE_OK : PARE_MEMORY;
}

static pare_status bias_keep(pare_prep *p, state *s, int d)
{
    const pare_view *b = p->in_count > 3 && p->in[3].dtype ? &p->in[3] : NULL;
    direction *to = &s->of[d];
    to->bias = pare_arena_alloc(p->arena, (size_t)s->columns + 1, sizeof *to->bias);
    to->past = pare_arena_alloc(p->arena, (size_t)s->columns + 1, sizeof *to->past);
    if (!to->bias || !to->past) return PARE_MEMORY;
    for (int g = 0; b && g < s->r.gates; g++)
        for (int64_t u = 0; u < s->r.hidden; u++) {
            int64_t at = d * b->stride[0] + (g * s->r.hidden + u) * b->stride[1];
            int64_t other = at + s->r.gates * s->r.hidden * b->stride[1];
            float x = pare_float_at(b->data, b->dtype, at),
                  h = pare_float_at(b->data, b->dtype, other);
            bool apart = s->r.cell == PARE_RECURRENT_GRU && g == 2 && s->r.linear_before;
            to->bias[column_of(s, g, u)] = apart ? x : x + h;
            to->past[column_of(s, g, u)] = apart ? h : 0;
        }
    return PARE_OK;
}

static void rooms_set(pare_prep *p, state *s)
{
    const pare_recurrent *r = &s->r;
    const pare_view *x = &p->in[0];
    const int64_t rows = s->by_rows ? r->batch / s->threads : r->batch;
    s->stretch = rows < ROWS ? ROWS / (rows > 0 ? rows : 1) : 1;
    if (s->stretch > r->length) s->stretch = r->length > 0 ? r->length : 1;
    s->product = pare_align_up((size_t)(s->stretch * r->batch * s->columns), 16);
    s->sums = pare_align_up((size_t)(r->batch * s->columns), 16);
    s->hidden = pare_align_up((size_t)(r->batch * s->padded), 16);
    /* X W, H R, h of this step and the next, c, r . h */
    s->room = s->product + s->sums + 4 * s->hidden;
    bool as_is = x->dtype == PARE_f32 && x->stride[2] == 1;
    s->input = as_is ? 0 : pare_align_up((size_t)(r->length * r->batch * r->size), 16);
    p->scratch = (s->input + s->room * (size_t)r->directions) * sizeof(float);
}

static bool is_usual(const pare_prep *p, const pare_recurrent *r, int d)
{
    const pare_recurrent_function *f = r->f[d];
    bool peephole = p->in_count > 7 && p->in[7].dtype;
    bool tanh_last = r->cell != PARE_RECURRENT_LSTM || f[2].act == PARE_RECURRENT_TANH;
    return f[0].act == PARE_RECURRENT_SIGMOID && f[1].act == PARE_RECURRENT_TANH && tanh_last &&
           !peephole && !(r->clip > 0) && !r->coupled;
}

static void threads_set(pare_prep *p, state *s)
{
    const pare_recurrent *r = &s->r;
    double macs = (double)r->batch * (double)r->hidden * (double)(r->hidden + r->size) * r->gates;
    s->side_by_side = r->directions == 2 && p->threads > 1 && (p->threads < 4 || macs < LEAST) &&
                      macs * (double)r->length > LEAST;
    s->threads = s->side_by_side || macs < LEAST || p->threads < 1 ? 1 : p->threads;
    s->by_rows = s->threads > 1 && r->batch >= (int64_t)s->threads * OWN_ROWS;
    if (!s->by_rows && s->threads > s->blocks) s->threads = s->blocks > 1 ? (int)s->blocks : 1;
}

static pare_status peepholes_keep(pare_prep *p, state *s, int d)
{
    const pare_view *v = p->in_count > 7 && p->in[7].dtype ? &p->in[7] : NULL;
    if (!v) return PARE_OK;
    float *to = pare_arena_alloc(p->arena, (size_t)(3 * s->padded) + 1, sizeof *to);
    if (!to) return PARE_MEMORY;
    for (int64_t i = 0; i < 3 * s->r.hidden; i++)
        to[i / s->r.hidden * s->padded + i % s->r.hidden] =
            pare_float_at(v->data, v->dtype, d * v->stride[0] + i * v->stride[1]);
    s->of[d].peephole = to;
    return PARE_OK;
}

static pare_status prepare(pare_prep *p)
{
    state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_recurrent_read(p->node, &s->r));
    /* a block's width depends on whether all columns fit one */
    pare_float_gemm_init(&s->h, pare_cpu_isa(), s->r.hidden,
                         s->r.gates > 1 ? s->r.hidden + MOST_BLOCK : s->r.hidden);
    s->block = s->h.block;
    s->blocks = (s->r.hidden + s->block - 1) / s->block;
    s->padded = s->blocks * s->block;
    s->columns = s->padded * s->r.gates;
    pare_float_gemm_init(&s->w, pare_cpu_isa(), s->r.size, s->columns);
    pare_float_gemm_init(&s->h, pare_cpu_isa(), s->r.hidden, s->columns);
    for (int d = 0; d < s->r.directions; d++) {
        PARE_TRY(weights_pack(p, s, &s->w, 1, d, &s->of[d].w));
        PARE_TRY(weights_pack(p, s, &s->h, 2, d, &s->of[d].r));
        PARE_TRY(bias_keep(p, s, d));
        PARE_TRY(peepholes_keep(p, s, d));
        s->usual[d] = is_usual(p, &s->r, d);
    }
    threads_set(p, s);
    rooms_set(p, s);
    p->packed = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 7;
    p->state = s;
    return PARE_OK;
}

/* --- one direction --- */

typedef struct pass {
    const state *s;
    const pare_call *c;
    const direction *d;
    int which;                      /* the direction */
    const float *x;                 /* element 0 */
    int64_t x_length, x_batch;      /* steps in X */
    float *product, *sums;          /* (stretch x rows, columns), (batch, columns) */
    float *h, *next, *cell, *reset; /* (batch, padded) */
    int64_t first, end;             /* rows of the batch */
} pass;

/* Time of step n of batch b; -1: its sequence is over. */
static int64_t time_of(const pass *p, int64_t n, int64_t b)
{
    int64_t steps = pare_recurrent_steps(&p->s->r, p->c, b);
    if (n >= steps) return -1;
    return p->s->r.backwards[p->which] ? steps - 1 - n : n;
}

/* `count` blocks of columns of all rows from `first`: to (rows, columns) = A B. */
static void product_rows(const pare_float_gemm *g, const float *const *row, int rows,
                         const float *packed, int64_t from, int64_t count, float *to, int64_t step)
{
    static const int64_t no_run = 0;
    pare_tile tile = {.run = &no_run, .runs = 1, .length = g->depth, .step = 1, .count = rows};
    for (int i = 0; i < rows; i++) tile.row[i] = row[i];
    g->tile(to + from * g->block, step, &tile, packed + from * g->block * g->depth, count);
}

/* X of row `i` of the stretch of steps from `n`; of a sequence that is over any, which nobody
 * reads. */
static const float *x_row(const pass *p, int64_t n, int64_t i)
{
    const int64_t rows = p->end - p->first, b = p->first + i % rows;
    const int64_t t = time_of(p, n + i / rows, b);
    return p->x + (t < 0 ? 0 : t) * p->x_length + b * p->x_batch;
}

PARE_CLONES static void bias_add(int rows, int64_t width, int64_t step, const float *restrict bias,
                                 float *restrict to)
{
    for (int k = 0; k < rows; k++)
        for (int64_t j = 0; j < width; j++) to[k * step + j] += bias[j];
}

/* X W and the bias of blocks of units [from, to), for `steps` steps from `n`. */
static void product_make(const pass *p, int64_t n, int64_t steps, int64_t from, int64_t to)
{
    const state *s = p->s;
    const int64_t total = steps * (p->end - p->first), many = CHUNK * PARE_TILE_ROWS, width = s->w.block;
    for (int64_t chunk = 0; chunk < total; chunk += many) {
        const int64_t end = chunk + many < total ? chunk + many : total;
        for (int64_t block = from * s->r.gates; block < to * s->r.gates; block++)
            for (int64_t i = chunk; i < end; i += PARE_TILE_ROWS) {
                const float *row[PARE_TILE_ROWS], *bias = p->d->bias + block * width;
                int rows = (int)(end - i < PARE_TILE_ROWS ? end - i : PARE_TILE_ROWS);
                float *out = p->product + i * s->columns;
                for (int k = 0; k < rows; k++) row[k] = x_row(p, n, i + k);
                product_rows(&s->w, row, rows, p->d->w, block, 1, out, s->columns);
                bias_add(rows, width, s->columns, bias, out + block * width);
            }
    }
}

/* H R of `count` blocks of columns: one stretch of R meets all rows, shared out evenly among tiles,
   before the next does. */
static void past_blocks(const pass *p, const float *h, int64_t from, int64_t count)
{
    const state *s = p->s;
    const int64_t rows = p->end - p->first, tiles = (rows + PARE_TILE_ROWS - 1) / PARE_TILE_ROWS;
    const int64_t stretch = tiles > 1 ? 1 : count;
    for (int64_t at = from; at < from + count; at += stretch)
        for (int64_t t = 0; t < tiles; t++) {
            const float *row[PARE_TILE_ROWS];
            const int64_t first = p->first + rows * t / tiles;
            const int64_t end = p->first + rows * (t + 1) / tiles;
            for (int64_t b = first; b < end; b++) row[b - first] = h + b * s->padded;
            product_rows(&s->h, row, (int)(end - first), p->d->r, at, stretch,
                         p->sums + first * s->columns, s->columns);
        }
}

/* The same of the gates [first, first + gates) of blocks of units [from, to): into sums. */
static void past_make(const pass *p, const float *h, int64_t from, int64_t to, int first, int gates)
{
    const int all = p->s->r.gates;
    if (gates == all)
        past_blocks(p, h, from * all, (to - from) * all);
    else
        for (int64_t u = from; u < to; u++) past_blocks(p, h, u * all + first, gates);
}

/* A gate's place in a row of columns. */
static int64_t gate_at(const state *s, int64_t unit_block, int g)
{
    return (unit_block * s->r.gates + g) * s->block;
}

static void gate_begin(const pass *p, const float *x, const float *past, int64_t at, float *to)
{
    (void)p;
    for (int64_t i = 0; i < p->s->block; i++) to[i] = x[at + i] + past[at + i];
}

static void gate_end(const pass *p, int function, float *v)
{
    const state *s = p->s;
    pare_recurrent_clip(s->r.clip, v, s->block);
    pare_recurrent_apply(&s->r.f[p->which][function], v, s->block);
}

static void look(const pass *p, int g, int64_t at, const float *cell, float *v)
{
    const float *w = p->d->peephole;
    for (int64_t i = 0; w && i < p->s->block; i++) v[i] += w[g * p->s->padded + at + i] * cell[i];
}

static void rnn_units(const pass *p, const float *x, const float *past, int64_t u, float *to)
{
    gate_begin(p, x, past, gate_at(p->s, u, 0), to);
    gate_end(p, 0, to);
}

static void lstm_units(const pass *p, const float *x, const float *past, int64_t u, float *cell,
                       float *to)
{
    const state *s = p->s;
    const int64_t n = s->block, at = u * n;
    float i[MOST_BLOCK], o[MOST_BLOCK], f[MOST_BLOCK], c[MOST_BLOCK];
    if (s->usual[p->which]) {
        pare_lstm_usual(n, x + gate_at(s, u, 0), past + gate_at(s, u, 0), cell, to);
        return;
    }
    gate_begin(p, x, past, gate_at(s, u, 0), i);
    gate_begin(p, x, past, gate_at(s, u, 1), o);
    gate_begin(p, x, past, gate_at(s, u, 2), f);
    gate_begin(p, x, past, gate_at(s, u, 3), c);
    look(p, 0, at, cell, i);
    look(p, 2, at, cell, f);
    gate_end(p, 0, i);
    gate_end(p, 0, f);
    gate_end(p, 1, c);
    for (int64_t k = 0; k < n; k++)
        cell[k] = (s->r.coupled ? 1 - i[k] : f[k]) * cell[k] + i[k] * c[k];
    look(p, 1, at, cell, o);
    gate_end(p, 0, o);
    memcpy(to, cell, (size_t)n * sizeof *to);
    pare_recurrent_apply(&s->r.f[p->which][2], to, n);
    for (int64_t k = 0; k < n; k++) to[k] *= o[k];
}

/* z stays in sums for the second half; reset = r . h. */
static void gru_reset(const pass *p, const float *x, float *past, int64_t u, const float *h,
                      float *reset)
{
    float *z = past + gate_at(p->s, u, 0), *r = past + gate_at(p->s, u, 1);
    gate_begin(p, x, past, gate_at(p->s, u, 0), z);
    gate_begin(p, x, past, gate_at(p->s, u, 1), r);
    gate_end(p, 0, z);
    gate_end(p, 0, r);
    for (int64_t k = 0; k < p->s->block; k++) reset[k] = r[k] * h[k];
}

static void gate_begin_at(const pass *p, int64_t at, const float *x, const float *past, float *to)
{
    for (int64_t i = 0; i < p->s->block; i++) to[i] = x[at + i] + past[i];
}

static void gru_units(const pass *p, const float *x, float *past, int64_t u, const float *h,
                      float *to)
{
    const state *s = p->s;
    const int64_t at = gate_at(s, u, 2);
    const float *z = past + gate_at(s, u, 0), *r = past + gate_at(s, u, 1);
    float own[MOST_BLOCK];
    for (int64_t k = 0; k < s->block; k++) {
        float sum = past[at + k] + p->d->past[at + k];
        own[k] = s->r.linear_before ? r[k] * sum : sum;
    }
    gate_begin_at(p, at, x, own, to);
    gate_end(p, 1, to);
    for (int64_t k = 0; k < s->block; k++) to[k] = (1 - z[k]) * to[k] + z[k] * h[k];
}

static void y_write(const pass *p, int64_t t, int64_t b, int64_t from, int64_t to, const float *h)
{
    const pare_view *y = pare_recurrent_out(p->c, 0);
    if (!y) return;
    const int64_t at = pare_recurrent_y_at(&p->s->r, y, t, p->which, b);
    if (to > p->s->r.hidden) to = p->s->r.hidden;
    if (y->dtype == PARE_f32 && y->stride[3] == 1) {
        float *row = (float *)y->data + at;
        if (from < to) memcpy(row + from, h + from, (size_t)(to - from) * sizeof *row);
        return;
    }
    for (int64_t u = from; u < to; u++) pare_ref_set(y, at + u * y->stride[3], (double)h[u]);
}

/* A step of blocks of units [from, to), after their products. */
static void units_step(const pass *p, int64_t n, int64_t from, int64_t to, bool reset)
{
    const state *s = p->s;
    for (int64_t b = p->first; b < p->end; b++) {
        const int64_t t = time_of(p, n, b), row = b * s->padded;
        if (t < 0) {
            memcpy(p->next + row + from * s->block, p->h + row + from * s->block,
                   (size_t)((to - from) * s->block) * sizeof *p->h);
            continue;
        }
        const int64_t at_x = n % s->stretch * (p->end - p->first) + b - p->first;
        const float *x = p->product + at_x * s->columns;
        float *past = p->sums + b * s->columns;
        for (int64_t u = from; u < to; u++) {
            const int64_t at = row + u * s->block;
            if (reset)
                gru_reset(p, x, past, u, p->h + at, p->reset + at);
            else if (s->r.cell == PARE_RECURRENT_RNN)
                rnn_units(p, x, past, u, p->next + at);
            else if (s->r.cell == PARE_RECURRENT_LSTM)
                lstm_units(p, x, past, u, p->cell + at, p->next + at);
            else if (s->r.linear_before && s->usual[p->which])
                pare_gru_usual(s->block, x + gate_at(s, u, 0), past + gate_at(s, u, 0),
                               p->d->past + gate_at(s, u, 2), p->h + at, p->next + at);
            else
                gru_units(p, x, past, u, p->h + at, p->next + at);
        }
        if (!reset) y_write(p, t, b, from * s->block, to * s->block, p->next + row);
    }
}

/* --- a thread's share of a direction --- */

static void meet(int threads)
{
    if (threads == 1) return;
#pragma omp barrier
}

/* What the other threads have just written of the state comes into this core's cache. */
static void others_fetch(const pass *p, int64_t from, int64_t to)
{
    enum { LINE = 16 }; /* floats */
    const state *s = p->s;
    for (int64_t b = 0; b < s->r.batch; b++)
        for (int64_t i = 0; i < s->padded; i += LINE)
            if (i < from * s->block || i >= to * s->block)
                __builtin_prefetch(p->h + b * s->padded + i);
}

/* Steps of blocks of units [from, to); `threads` meet at each. */
static void steps_run(pass p, int64_t from, int64_t to, int threads)
{
    const state *s = p.s;
    const int64_t length = s->r.length;
    const bool gru = s->r.cell == PARE_RECURRENT_GRU, late = gru && !s->r.linear_before;
    const bool reset = late || (gru && !s->usual[p.which]);
    for (int64_t n = 0; n < length; n++) {
        if (n % s->stretch == 0)
            product_make(&p, n, length - n < s->stretch ? length - n : s->stretch, from, to);
        if (threads > 1) others_fetch(&p, from, to);
        past_make(&p, p.h, from, to, 0, late ? 2 : s->r.gates);
        if (reset) units_step(&p, n, from, to, true);
        if (late) {
            meet(threads);
            past_make(&p, p.reset, from, to, 2, 1);
        }
        units_step(&p, n, from, to, false);
        float *t = p.h;
        p.h = p.next;
        p.next = t;
        meet(threads);
    }
}

static void share_run(pass p, int thread, int threads)
{
    const state *s = p.s;
    if (!s->by_rows) {
        steps_run(p, s->blocks * thread / threads, s->blocks * (thread + 1) / threads, threads);
        return;
    }
    p.first = s->r.batch * thread / threads;
    p.end = s->r.batch * (thread + 1) / threads;
    p.product += p.first * s->stretch * s->columns;
    steps_run(p, 0, s->blocks, 1);
}

static void direction_run(const pass *p)
{
    const state *s = p->s;
    if (s->threads == 1) {
        share_run(*p, 0, 1);
        return;
    }
#pragma omp parallel num_threads(s->threads)
    share_run(*p, omp_get_thread_num(), omp_get_num_threads());
}

/* --- around it --- */

static void state_read(const pass *p, int input, float *to)
{
    const state *s = p->s;
    const pare_view *v = pare_recurrent_in(p->c, input);
    memset(to, 0, s->hidden * sizeof *to);
    for (int64_t b = 0; v && b < s->r.batch; b++) {
        int64_t at = pare_recurrent_state_at(&s->r, v, p->which, b);
        for (int64_t u = 0; u < s->r.hidden; u++)
            to[b * s->padded + u] = pare_float_at(v->data, v->dtype, at + u * v->stride[2]);
    }
}

static void state_write(const pass *p, int output, const float *from)
{
    const state *s = p->s;
    const pare_view *v = pare_recurrent_out(p->c, output);
    for (int64_t b = 0; v && b < s->r.batch; b++) {
        int64_t at = pare_recurrent_state_at(&s->r, v, p->which, b);
        for (int64_t u = 0; u < s->r.hidden; u++)
            pare_ref_set(v, at + u * v->stride[2], (double)from[b * s->padded + u]);
    }
}

/* Y after the end of shorter sequences. */
static void ends_clear(const pass *p)
{
    const state *s = p->s;
    const pare_view *y = pare_recurrent_out(p->c, 0);
    for (int64_t b = 0; y && b < s->r.batch; b++)
        for (int64_t t = pare_recurrent_steps(&s->r, p->c, b); t < s->r.length; t++)
            for (int64_t u = 0; u < s->r.hidden; u++)
                pare_ref_set(y, pare_recurrent_y_at(&s->r, y, t, p->which, b) + u * y->stride[3],
                             0);
}

static void pass_run(const pare_call *c, const state *s, int which, const float *x, float *room)
{
    const pare_view *v = &c->in[0];
    pass p = {.s = s, .c = c, .d = &s->of[which], .which = which, .x = x, .end = s->r.batch};
    p.x_batch = v->stride[s->r.batch_first ? 0 : 1];
    p.x_length = v->stride[s->r.batch_first ? 1 : 0];
    if (s->input) p.x_batch = s->r.size, p.x_length = s->r.batch * s->r.size;
    p.product = room;
    p.sums = p.product + s->product;
    p.h = p.sums + s->sums;
    p.next = p.h + s->hidden;
    p.cell = p.next + s->hidden;
    p.reset = p.cell + s->hidden;
    state_read(&p, 5, p.h);
    state_read(&p, 6, p.cell);
    memset(p.next, 0, s->hidden * sizeof *p.next);
    memset(p.reset, 0, s->hidden * sizeof *p.reset);
    direction_run(&p);
    ends_clear(&p);
    state_write(&p, 1, s->r.length % 2 ? p.next : p.h);
    if (s->r.cell == PARE_RECURRENT_LSTM) state_write(&p, 2, p.cell);
}

static const float *input_read(const pare_call *c, const state *s, float *to)
{
    const pare_view *x = &c->in[0];
    if (!s->input) return x->data;
    float *at = to;
    for (int64_t t = 0; t < s->r.length; t++)
        for (int64_t b = 0; b < s->r.batch; b++)
            for (int64_t i = 0; i < s->r.size; i++)
                *at++ = pare_float_at(x->data, x->dtype,
                                      pare_recurrent_x_at(&s->r, x, t, b) + i * x->stride[2]);
    return to;
}

static pare_status run(const pare_call *c)
{
    const state *s = c->state;
    float *room = (float *)c->scratch + s->input;
    const float *x = input_read(c, s, c->scratch);
    if (s->side_by_side) {
#pragma omp parallel for num_threads(2)
        for (int d = 0; d < 2; d++) pass_run(c, s, d, x, room + (size_t)d * s->room);
        return PARE_OK;
    }
    for (int d = 0; d < s->r.directions; d++) pass_run(c, s, d, x, room + (size_t)d * s->room);
    return PARE_OK;
}

const pare_kernel pare_recurrent_f32 = {
    .name = "recurrent_f32", .can = can, .prepare = prepare, .run = run};
