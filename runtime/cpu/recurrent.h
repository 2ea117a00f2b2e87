/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of RNN, GRU and LSTM share: where states and results are. */
#ifndef PARE_RUNTIME_CPU_RECURRENT_H
#define PARE_RUNTIME_CPU_RECURRENT_H

#include "runtime/cpu/ref.h"
#include "runtime/ops/recurrent.h"

/* Element offsets: of element 0 of state `view` (h or c) of a direction and a batch; of Y at a
   time; of X at a time. */
static inline int64_t pare_recurrent_state_at(const pare_recurrent *r, const pare_view *v,
                                              int64_t d, int64_t b)
{
    return r->batch_first ? b * v->stride[0] + d * v->stride[1]
                          : d * v->stride[0] + b * v->stride[1];
}

static inline int64_t pare_recurrent_y_at(const pare_recurrent *r, const pare_view *y, int64_t t,
                                          int64_t d, int64_t b)
{
    return r->batch_first ? b * y->stride[0] + t * y->stride[1] + d * y->stride[2]
                          : t * y->stride[0] + d * y->stride[1] + b * y->stride[2];
}

static inline int64_t pare_recurrent_x_at(const pare_recurrent *r, const pare_view *x, int64_t t,
                                          int64_t b)
{
    return r->batch_first ? b * x->stride[0] + t * x->stride[1]
                          : t * x->stride[0] + b * x->stride[1];
}

/* Steps of batch b: its sequence length, or all, held to [0, length]. */
static inline int64_t pare_recurrent_steps(const pare_recurrent *r, const pare_call *c, int64_t b)
{
    if (c->in_count < 5 || !c->in[4].dtype) return r->length;
    int64_t n = pare_ref_get_int(&c->in[4], b * c->in[4].stride[0]);
    return n < 0 ? 0 : n > r->length ? r->length : n;
}

static inline const pare_view *pare_recurrent_in(const pare_call *c, int i)
{
    return i < c->in_count && c->in[i].dtype ? &c->in[i] : NULL;
}

static inline const pare_view *pare_recurrent_out(const pare_call *c, int i)
{
    return i < c->out_count && c->out[i].dtype ? &c->out[i] : NULL;
}

extern const pare_kernel pare_recurrent_f32;

/* --- units of a block (recurrent_units.c) --- */

/* v = f(v), n values. */
void pare_recurrent_apply(const pare_recurrent_function *f, float *v, int64_t n);

/* Holds v to [-clip, clip]; not at all where clip is 0. */
void pare_recurrent_clip(float clip, float *v, int64_t n);

/* The usual LSTM, sigmoid and tanh without peepholes, in one loop; gates x and past: i o f c, each
   n apart. cell is updated, `to` gets the hidden state. */
void pare_lstm_usual(int64_t n, const float *x, const float *past, float *cell, float *to);

/* The usual GRU that resets after its product, in one loop; gates x and past: z r h, each n apart;
   own: the bias of that product. */
void pare_gru_usual(int64_t n, const float *x, const float *past, const float *own, const float *h,
                    float *to);

#endif
