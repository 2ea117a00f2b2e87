/* SPDX-License-Identifier: Apache-2.0 */
/* RNN, GRU and LSTM (7, 14, 22) in double, one unit at a time: the definition. Steps after the end
   of a sequence give zeros in Y; the last state is that of its last step. */
#include "runtime/cpu/recurrent.h"

#include <math.h>
#include <string.h>

typedef struct cell {
    const pare_call *c;
    pare_recurrent r;
    int64_t d;        /* direction */
    double *h, *s;    /* (hidden) state, and LSTM's cell state */
    double *gate;     /* (gates, hidden) */
    double *next, *x; /* (hidden); (size) */
} cell;

static double act(const pare_recurrent_function *f, double x)
{
    switch (f->act) {
    case PARE_RECURRENT_RELU: return x > 0 ? x : 0;
    case PARE_RECURRENT_TANH: return tanh(x);
    case PARE_RECURRENT_SIGMOID: return 1 / (1 + exp(-x));
    case PARE_RECURRENT_AFFINE: return (double)f->alpha * x + (double)f->beta;
    case PARE_RECURRENT_LEAKY_RELU: return x < 0 ? (double)f->alpha * x : x;
    case PARE_RECURRENT_THRESHOLDED_RELU: return x >= (double)f->alpha ? x : 0;
    case PARE_RECURRENT_SCALED_TANH: return (double)f->alpha * tanh((double)f->beta * x);
    case PARE_RECURRENT_HARD_SIGMOID:
        return fmin(1, fmax(0, (double)f->alpha * x + (double)f->beta));
    case PARE_RECURRENT_ELU: return x < 0 ? (double)f->alpha * expm1(x) : x;
    case PARE_RECURRENT_SOFTSIGN: return x / (1 + fabs(x));
    case PARE_RECURRENT_SOFTPLUS: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case PARE_RECURRENT_ACTS: break;
    }
    return x;
}

static double entering(const cell *k, double x)
{
    const double clip = (double)k->r.clip;
    return clip > 0 ? fmin(clip, fmax(-clip, x)) : x;
}

static double apply(const cell *k, int function, double x)
{
    return act(&k->r.f[k->d][function], entering(k, x));
}

/* Row `unit` of gate g of W (1) or R (2) times v. */
static double row_dot(const cell *k, int input, int g, int64_t unit, const double *v, int64_t n)
{
    const pare_view *w = &k->c->in[input];
    int64_t at = k->d * w->stride[0] + (g * k->r.hidden + unit) * w->stride[1];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += pare_ref_get(w, at + i * w->stride[2]) * v[i];
    return sum;
}

/* Wb (part 0) or Rb (1) of gate g; P of peephole g. */
static double bias(const cell *k, int part, int g, int64_t unit)
{
    const pare_view *b = pare_recurrent_in(k->c, 3);
    int64_t i = (part * k->r.gates + g) * k->r.hidden + unit;
    return b ? pare_ref_get(b, k->d * b->stride[0] + i * b->stride[1]) : 0;
}

static double peephole(const cell *k, int g, int64_t unit)
{
    const pare_view *p = pare_recurrent_in(k->c, 7);
    return p ? pare_ref_get(p, k->d * p->stride[0] + (g * k->r.hidden + unit) * p->stride[1]) : 0;
}

static double gate_sum(const cell *k, int g, int64_t u)
{
    return row_dot(k, 1, g, u, k->x, k->r.size) + row_dot(k, 2, g, u, k->h, k->r.hidden) +
           bias(k, 0, g, u) + bias(k, 1, g, u);
}

static void step_rnn(cell *k)
{
    for (int64_t u = 0; u < k->r.hidden; u++) k->next[u] = apply(k, 0, gate_sum(k, 0, u));
}

/* z, r, h; h = g(x Wh + (r . h) Rh) or, with linear_before_reset, g(x Wh + r . (h Rh)). */
static void step_gru(cell *k)
{
    const int64_t n = k->r.hidden;
    double *z = k->gate, *r = k->gate + n, *rh = k->gate + 2 * n;
    for (int64_t u = 0; u < n; u++) {
        z[u] = apply(k, 0, gate_sum(k, 0, u));
        r[u] = apply(k, 0, gate_sum(k, 1, u));
    }
    for (int64_t u = 0; u < n; u++) rh[u] = r[u] * k->h[u];
    for (int64_t u = 0; u < n; u++) {
        double own = row_dot(k, 1, 2, u, k->x, k->r.size) + bias(k, 0, 2, u);
        double past = k->r.linear_before ? r[u] * (row_dot(k, 2, 2, u, k->h, n) + bias(k, 1, 2, u))
                                         : row_dot(k, 2, 2, u, rh, n) + bias(k, 1, 2, u);
        k->next[u] = (1 - z[u]) * apply(k, 1, own + past) + z[u] * k->h[u];
    }
}

/* i, o, f, c; peepholes look at the old cell state, that of o at the new one. */
static void step_lstm(cell *k)
{
    for (int64_t u = 0; u < k->r.hidden; u++) {
        const double old = k->s[u];
        double i = apply(k, 0, gate_sum(k, 0, u) + peephole(k, 0, u) * old);
        double f = k->r.coupled ? 1 - i : apply(k, 0, gate_sum(k, 2, u) + peephole(k, 2, u) * old);
        double c = apply(k, 1, gate_sum(k, 3, u));
        k->s[u] = f * old + i * c;
        double o = apply(k, 0, gate_sum(k, 1, u) + peephole(k, 1, u) * k->s[u]);
        k->next[u] = o * act(&k->r.f[k->d][2], k->s[u]);
    }
}

static void state_read(const cell *k, int input, int64_t b, double *to)
{
    const pare_view *v = pare_recurrent_in(k->c, input);
    for (int64_t u = 0; u < k->r.hidden; u++)
        to[u] =
            v ? pare_ref_get(v, pare_recurrent_state_at(&k->r, v, k->d, b) + u * v->stride[2]) : 0;
}

static void state_write(const cell *k, int output, int64_t b, const double *from)
{
    const pare_view *v = pare_recurrent_out(k->c, output);
    for (int64_t u = 0; v && u < k->r.hidden; u++)
        pare_ref_set(v, pare_recurrent_state_at(&k->r, v, k->d, b) + u * v->stride[2], from[u]);
}

static void y_write(const cell *k, int64_t t, int64_t b, const double *from)
{
    const pare_view *y = pare_recurrent_out(k->c, 0);
    for (int64_t u = 0; y && u < k->r.hidden; u++)
        pare_ref_set(y, pare_recurrent_y_at(&k->r, y, t, k->d, b) + u * y->stride[3],
                     from ? from[u] : 0);
}

static void sequence(cell *k, int64_t b)
{
    const pare_view *x = &k->c->in[0];
    const int64_t steps = pare_recurrent_steps(&k->r, k->c, b);
    state_read(k, 5, b, k->h);
    state_read(k, 6, b, k->s);
    for (int64_t t = steps; t < k->r.length; t++) y_write(k, t, b, NULL);
    for (int64_t n = 0; n < steps; n++) {
        const int64_t t = k->r.backwards[k->d] ? steps - 1 - n : n;
        const int64_t at = pare_recurrent_x_at(&k->r, x, t, b);
        for (int64_t i = 0; i < k->r.size; i++) k->x[i] = pare_ref_get(x, at + i * x->stride[2]);
        if (k->r.cell == PARE_RECURRENT_RNN) step_rnn(k);
        if (k->r.cell == PARE_RECURRENT_GRU) step_gru(k);
        if (k->r.cell == PARE_RECURRENT_LSTM) step_lstm(k);
        memcpy(k->h, k->next, (size_t)k->r.hidden * sizeof *k->h);
        y_write(k, t, b, k->h);
    }
    state_write(k, 1, b, k->h);
    if (k->r.cell == PARE_RECURRENT_LSTM) state_write(k, 2, b, k->s);
}

static pare_status prepare(pare_prep *p)
{
    pare_recurrent *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    PARE_TRY(pare_recurrent_read(p->node, r));
    p->state = r;
    p->scratch = (size_t)((3 + r->gates) * r->hidden + r->size) * sizeof(double);
    return PARE_OK;
}

static pare_status run(const pare_call *c)
{
    cell k = {.c = c, .r = *(const pare_recurrent *)c->state, .h = c->scratch};
    k.s = k.h + k.r.hidden;
    k.next = k.s + k.r.hidden;
    k.gate = k.next + k.r.hidden;
    k.x = k.gate + k.r.gates * k.r.hidden;
    for (k.d = 0; k.d < k.r.directions; k.d++)
        for (int64_t b = 0; b < k.r.batch; b++) sequence(&k, b);
    return PARE_OK;
}

static const pare_kernel ref_recurrent = {.name = "ref_recurrent",
                                          .can = pare_ref_can_floats,
                                          .prepare = prepare,
                                          .run = run,
                                          .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_recurrent[] = {&pare_recurrent_f32, &ref_recurrent, NULL};
