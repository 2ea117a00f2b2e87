/* SPDX-License-Identifier: Apache-2.0 */
/* What RNN, GRU and LSTM (7, 14, 22) say, for their shape rule and their kernels. */
#ifndef PARE_RUNTIME_OPS_RECURRENT_H
#define PARE_RUNTIME_OPS_RECURRENT_H

#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_recurrent_cell {
    PARE_RECURRENT_RNN,
    PARE_RECURRENT_GRU,
    PARE_RECURRENT_LSTM
} pare_recurrent_cell;

typedef enum pare_recurrent_act {
    PARE_RECURRENT_RELU,
    PARE_RECURRENT_TANH,
    PARE_RECURRENT_SIGMOID,
    PARE_RECURRENT_AFFINE,           /* alpha x + beta */
    PARE_RECURRENT_LEAKY_RELU,       /* x < 0: alpha x */
    PARE_RECURRENT_THRESHOLDED_RELU, /* x < alpha: 0 */
    PARE_RECURRENT_SCALED_TANH,      /* alpha tanh(beta x) */
    PARE_RECURRENT_HARD_SIGMOID,     /* alpha x + beta within [0, 1] */
    PARE_RECURRENT_ELU,              /* x < 0: alpha (e^x - 1) */
    PARE_RECURRENT_SOFTSIGN,
    PARE_RECURRENT_SOFTPLUS,
    PARE_RECURRENT_ACTS
} pare_recurrent_act;

typedef struct pare_recurrent_function {
    pare_recurrent_act act;
    float alpha, beta;
} pare_recurrent_function;

enum { PARE_RECURRENT_GATES = 4, PARE_RECURRENT_FUNCTIONS = 3 };

/* Inputs: X, W (directions, gates x hidden, size), R (directions, gates x hidden, hidden), B
   (directions, 2 x gates x hidden), sequence_lens (batch), initial_h, initial_c, P. The order of
   gates is ONNX's: RNN i, GRU z r h, LSTM i o f c (peepholes P: i o f). */
typedef struct pare_recurrent {
    pare_recurrent_cell cell;
    int gates, directions;
    bool backwards[2];  /* of each direction */
    bool batch_first;   /* layout 1: X (batch, length, size), states (batch, directions, hidden) */
    bool coupled;       /* LSTM, input_forget: f = 1 - i */
    bool linear_before; /* GRU, linear_before_reset */
    float clip;         /* of what enters a function; 0: none */
    int64_t length, batch, size, hidden; /* -1: unknown */
    pare_recurrent_function
        f[2][PARE_RECURRENT_FUNCTIONS]; /* of each direction: LSTM f g h, GRU f g, RNN f */
} pare_recurrent;

/* Reads attributes and shapes. Fails naming what contradicts. */
PARE_NODISCARD pare_status pare_recurrent_read(const pare_node *node, pare_recurrent *out);

#ifdef __cplusplus
}
#endif
#endif
