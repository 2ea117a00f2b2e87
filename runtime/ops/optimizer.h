/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of an optimizer does to one element: one text for every backend.
   AdamW: Loshchilov, Hutter 2019, algorithm 2, in PyTorch's order of operations. SGD: buffer =
   momentum buffer + gradient, value -= rate buffer, as PyTorch defines it, with decoupled decay
   instead of a term of the gradient. */
#ifndef PARE_RUNTIME_OPS_OPTIMIZER_H
#define PARE_RUNTIME_OPS_OPTIMIZER_H

#include "runtime/ops/both.h"

#include <math.h>
#include <stdbool.h>

typedef struct pare_train_rule {
    bool adamw; /* else SGD */
    double rate, decay;
    double correction; /* AdamW: 1 - beta1^step */
    float root;        /* AdamW: sqrt(1 - beta2^step) */
    float scale;       /* of gradients */
    float one1, one2;  /* 1 - beta1, 1 - beta2 */
    float beta2, epsilon;
    float momentum; /* SGD */
} pare_train_rule;

/* What elements of one rate share. */
typedef struct pare_train_pace {
    float keep; /* of the value */
    float size; /* AdamW: -rate / correction; SGD: the rate */
} pare_train_pace;

PARE_BOTH pare_train_pace pare_train_pace_of(const pare_train_rule *r, double rate, bool decays)
{
    pare_train_pace p;
    p.keep = (float)(1 - rate * (decays ? r->decay : 0));
    p.size = r->adamw ? (float)(-rate / r->correction) : (float)rate;
    return p;
}

typedef struct pare_train_element {
    float value, first, second; /* second: AdamW's */
} pare_train_element;

PARE_BOTH pare_train_element pare_adamw_step(const pare_train_rule *r, pare_train_pace p,
                                             float gradient, pare_train_element e)
{
    const float g = gradient * r->scale;
    const float m = e.first + r->one1 * (g - e.first);
    const float v = e.second * r->beta2 + r->one2 * g * g;
    e.first = m;
    e.second = v;
    e.value = e.value * p.keep + p.size * m / (sqrtf(v) / r->root + r->epsilon);
    return e;
}

PARE_BOTH pare_train_element pare_sgd_step(const pare_train_rule *r, pare_train_pace p,
                                           float gradient, pare_train_element e)
{
    const float m = r->momentum * e.first + gradient * r->scale;
    e.first = m;
    e.value = e.value * p.keep - p.size * m;
    return e;
}

/* A learned scale stays within a factor of 16 of what it was, thus positive. */
PARE_BOTH float pare_train_hold(float value, float start)
{
    const float most = 16;
    return fminf(fmaxf(value, start / most), start * most);
}

#endif
