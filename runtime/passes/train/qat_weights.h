/* SPDX-License-Identifier: Apache-2.0 */
/* The pass at work, and the float constants after integers. */
#ifndef PARE_RUNTIME_PASSES_TRAIN_QAT_WEIGHTS_H
#define PARE_RUNTIME_PASSES_TRAIN_QAT_WEIGHTS_H

#include "runtime/passes/train/fake_quantize.h"

typedef struct pare_qat_pass {
    pare_model *model;
    pare_graph *graph;
    const pare_model *f32; /* or NULL */
    pare_fakes list;
    size_t capacity;
} pare_qat_pass;

PARE_NODISCARD pare_status pare_fake_add(pare_qat_pass *p, const pare_fake *fake);

/* A fresh name for the floats of an integer constant: "w" of "w_quantized", else with _float. */
const char *pare_qat_name(pare_qat_pass *p, const char *integers);

/* An f32 constant that rounds to the integers of a DequantizeLinear. Sets low and from_f32. */
PARE_NODISCARD pare_status pare_qat_weight(pare_qat_pass *p, const pare_node *dq, pare_fake *f,
                                           pare_value **out);

#endif
