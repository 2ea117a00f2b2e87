/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of Q/DQ folding share. An int8 tensor is a value of type s8 or u8; its scale and
   zero point are in the QuantizeLinear or DequantizeLinear nodes around it until these are folded
   into the attributes of integer nodes. Tensors of FP8 (E4M3, E5M2) have a scale and no zero point:
   their pairs move as those of int8 do, and products take them; nothing else does. */
#ifndef PARE_RUNTIME_PASSES_INT8_FOLD_QDQ_H
#define PARE_RUNTIME_PASSES_INT8_FOLD_QDQ_H

#include "runtime/ops/fused.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

/* Scale and zero point of a whole tensor. */
typedef struct pare_qparam {
    pare_dtype dtype; /* s8, u8, f8e4m3 or f8e5m2 */
    float scale;
    int32_t zero;
} pare_qparam;

static inline bool pare_qparam_is_int8(const pare_qparam *p) { return pare_type_is_int8(p->dtype); }

/* A dequantized weight: constant s8 or FP8 with a scale for all (count 1) or one per index of axis.
 */
typedef struct pare_qweight {
    pare_value *q;
    const float *scale;
    int64_t count;
    int axis;
    const pare_tensor *zeros; /* of q's type; NULL: all 0 */
    bool centred;             /* all zero points are 0 */
} pare_qweight;

/* True where the node is a QuantizeLinear (DequantizeLinear) of one scale and zero point per
   tensor, both constant. */
bool pare_qdq_is_q(const pare_node *node, pare_qparam *out);
bool pare_qdq_equal(const pare_qparam *a, const pare_qparam *b);
/* The 8-bit tensor after a float value that a DequantizeLinear makes, or NULL. */
pare_value *pare_qdq_after(const pare_value *value, pare_qparam *out);
/* Does a DequantizeLinear of a constant make the value, with a scale for all or per index of axis?
 */
bool pare_qdq_weight(const pare_value *value, pare_qweight *out);
/* Are all zero points 0, of FP8 0 or -0? NULL, absent ones, are. */
bool pare_qdq_all_zero(const pare_tensor *zeros);
/* The one QuantizeLinear that reads a value nothing else reads, or NULL. */
pare_node *pare_qdq_only_q(const pare_value *value, pare_qparam *out);

/* A new value beside another: "base_suffix", with its shape. */
PARE_NODISCARD pare_status pare_qdq_value(pare_graph *graph, pare_value **out,
                                          const pare_value *like, const char *suffix,
                                          pare_dtype dtype);
/* QuantizeLinear or DequantizeLinear in place at, params as new constants. */
PARE_NODISCARD pare_status pare_qdq_node(pare_graph *graph, int at, bool quantize, pare_value *in,
                                         pare_value *out, const pare_qparam *param);

/* propagate.c: how many inputs carry the data of a node that commutes with Q: the first, or all of
   a join; 0: it does not commute. */
int pare_qdq_data_inputs(const pare_node *node);
/* weighted.c: an operator that is folded as a product: Conv, Gemm, MatMul and their fused forms. */
bool pare_qdq_is_product(const pare_node *node);
/* lut.c: an operator that a table can hold. */
bool pare_qdq_in_table(const pare_node *node);

/* halves.c: pairs of f16 and bf16, and what is between them, compute in f32 between Casts; at the
   end a Cast goes into the Q or DQ beside it. */
PARE_NODISCARD pare_status pare_qdq_widen_halves(pare_graph *graph);
PARE_NODISCARD pare_status pare_qdq_narrow_halves(pare_graph *graph);
/* zero_point.c: an s8 weight with zero points into one without, twice as deep along depth_axis,
   and x beside itself along x_axis to match. *done is false where that cannot be. */
PARE_NODISCARD pare_status pare_qdq_widen(pare_node *node, const pare_qweight *w, int depth_axis,
                                          int x_axis, int64_t groups, pare_value **xq,
                                          pare_value **wq, bool *done);
/* constants.c: constants are quantized, u8 weights become s8; at the end constants that
   only float nodes read are dequantized. */
PARE_NODISCARD pare_status pare_qdq_constants(pare_graph *graph);
PARE_NODISCARD pare_status pare_qdq_float_constants(pare_graph *graph);
/* split_outputs.c: a product whose parts are quantized apart becomes one product for each. */
PARE_NODISCARD pare_status pare_qdq_split_outputs(pare_graph *graph);
/* propagate.c: equal Qs are joined; pairs move through operators that keep the scale; a Q
   after a DQ cancels or becomes a Requantize. */
PARE_NODISCARD pare_status pare_qdq_propagate(pare_graph *graph);
PARE_NODISCARD pare_status pare_qdq_cancel(pare_graph *graph);
/* fold_qdq_weighted.c: Conv, Gemm and MatMul. */
PARE_NODISCARD pare_status pare_qdq_fold_weighted(pare_graph *graph);
/* weight_only.c: products of f32 with a dequantized constant take the constant. */
PARE_NODISCARD pare_status pare_qdq_weight_only(pare_graph *graph, pare_kept_weights kept);
/* elementwise.c: additions, products, joins, pools between int8 tensors. */
PARE_NODISCARD pare_status pare_qdq_elementwise(pare_graph *graph);
/* rows.c: softmax and layer norm that make int8 tensors. */
PARE_NODISCARD pare_status pare_qdq_rows(pare_graph *graph);
/* lut.c: functions of one int8 tensor. *done says whether the Q was one. */
PARE_NODISCARD pare_status pare_qdq_lut(pare_node *q, bool *done);

#endif
