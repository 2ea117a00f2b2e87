/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode differentiation: a model becomes one that computes a loss and its gradients, with
   nodes of the operator table (the `grad` column), which the runtime plans and runs like any other.
 */
#ifndef PARE_RUNTIME_PASSES_TRAIN_GRADIENT_H
#define PARE_RUNTIME_PASSES_TRAIN_GRADIENT_H

#include "runtime/graph/graph.h"

typedef enum pare_loss {
    PARE_LOSS_LABELS, /* softmax cross-entropy against labels, a new s64 input [rows] */
    PARE_LOSS_TOP1,   /* the same against each row's own largest logit (the first of equals) */
    PARE_LOSS_TENSOR  /* a tensor of the model with one element is the loss */
} pare_loss;

typedef struct pare_gradient_options {
    pare_loss loss;
    const char *of; /* the logits' name, or the loss tensor's; NULL: the model's first output */
    const char *const
        *by; /* float tensors to differentiate by: constants, inputs, or computed ones */
    int by_count;
    bool as_inputs; /* constants among them become inputs of the model, after its own, in order */
    bool keep_outputs; /* the model's own outputs stay outputs, first */
} pare_gradient_options;

/* Names are the model's. The model's outputs are then its own (if kept), the loss (f32 or f64
   scalar, the mean over rows), and the gradients that exist, in the order of `by`. */
typedef struct pare_gradient {
    const char *loss;
    const char *labels;    /* the labels' input; NULL: none */
    const char **gradient; /* (by_count), like the tensor in type and shape; NULL: the loss does not
                              depend on it, or only through an operator without a rule */
} pare_gradient;

/* Makes it in place from a float model whose input sizes are all known: opset lifted, shapes
   inferred and constants folded on the way. Where the logits are a Softmax's result, the Softmax is
   part of the loss. Parameters after an operator without a rule freeze; a warning names the
   operator. BatchNormalization is frozen, its mean and variance are constants, unless
   pare_pass_train_batchnorm came before. PARE_INPUT: a name
   that does not exist or is not float, logits that are not [rows, classes], a loss of more than one
   element; PARE_UNSUPPORTED: an input of unknown size. */
PARE_NODISCARD pare_status pare_pass_gradient(pare_model *model, pare_gradient *out,
                                              const pare_gradient_options *options);
#endif
