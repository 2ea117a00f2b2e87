/* SPDX-License-Identifier: Apache-2.0 */
/* Quantization-aware training: a QDQ model (quant.h makes one) becomes a graph in which
   FakeQuantize nodes compute the same numbers, pare_distill trains that graph, and its numbers go
   back into the model. Order: new, set_options, pare_distill on the graph, export, free. */
#ifndef PARE_DISTILL_QAT_H
#define PARE_DISTILL_QAT_H

#include "distill/training.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_qat pare_qat;

/* The first QuantizeLinear or DequantizeLinear of a model; NULL: it is float. */
const pare_node *pare_qat_find_quantized(const pare_model *model);

/* Makes the graph of a quantized model, which stays as it is. f32: the float model that it was made
   of, with BatchNormalization folded, whose weights are trained; NULL: there is none, and they
   start from points evenly spread over what rounds to the model's integers. PARE_INPUT: no pair in
   the model can be trained. */
PARE_NODISCARD pare_status pare_qat_new(pare_ctx *ctx, pare_qat **out, const pare_model *quantized,
                                        const pare_model *f32);
void pare_qat_free(pare_qat *qat); /* NULL is allowed */

/* What is trained, owned by qat. */
pare_model *pare_qat_graph(const pare_qat *qat);

/* Sets the scales to learn (none where learn_scales is false; the list is qat's) and, of a graph
   made without a float model, train_zeros: a 0 there may be a pruned weight, or one of less than
   half a step, which training must be able to move, and the file does not say which. A warning
   counts weights of at least 20 % zeros. keep_zeros: train_zeros stays as it is. */
PARE_NODISCARD pare_status pare_qat_set_options(const pare_qat *qat, bool learn_scales,
                                                bool keep_zeros, pare_distill_options *training);

/* Writes the trained numbers into the quantized model. PARE_INPUT: NaN or Inf among them, a scale
   that is not positive, another model. */
PARE_NODISCARD pare_status pare_qat_export(const pare_qat *qat, pare_model *quantized);

typedef struct pare_qat_facts {
    int activations, weights; /* tensors */
    int64_t elements;         /* of the weights */
    int64_t from_f32;         /* elements that start from the float model's */
} pare_qat_facts;
void pare_qat_count(const pare_qat *qat, pare_qat_facts *out);

#ifdef __cplusplus
}
#endif
#endif
