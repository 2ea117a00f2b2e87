/* SPDX-License-Identifier: Apache-2.0 */
/* Fused convolutions and matrix products as kernels see them: node, shapes and constants read once
   while preparing. The same for ONNX Conv, Gemm and MatMul, whose attributes are a subset. */
#ifndef PARE_RUNTIME_OPS_PRODUCT_H
#define PARE_RUNTIME_OPS_PRODUCT_H

#include "runtime/ops/epilogue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Positions of operands among the inputs; -1 where absent. */
typedef struct pare_operands {
    int bias, residual, w_scale;
} pare_operands;

typedef struct pare_conv_args {
    pare_window win;
    pare_act act;
    bool int8;         /* X and W are 8 bits wide */
    pare_quant_args q; /* int8 only, as the next three */
    pare_epilogue epilogue;
    const float *scale; /* (M): m of each filter */
    const float *bias;  /* (M): in units of s_x * s_w, as floats; NULL: none */
    pare_operands at;
    int64_t n, c, m, cg, mg; /* batch, channels, filters; of one group */
} pare_conv_args;

/* Y (n, m, out...) = X (n, c, in...) * W (m, cg, kernel...); scales go to the plan's arena. */
PARE_NODISCARD pare_status pare_conv_args_read(const pare_prep *prep, pare_conv_args *out);

typedef struct pare_matmul_args {
    pare_act act;
    bool int8, trans_a, trans_b;
    pare_quant_args q;
    pare_epilogue epilogue;
    const float *scale; /* (N), int8 only, as the next one */
    const float *bias;  /* (N): in units of s_x * s_w, as floats; NULL: none */
    float alpha, beta;  /* y = alpha * (A x B) + beta * C; 1 but for Gemm and FusedMatMul */
    pare_operands at;
    int64_t batch, rows, depth, columns; /* batch: product of Y's leading axes */
} pare_matmul_args;

/* Y (batch..., rows, columns) = A (batch..., rows, depth) x B (batch..., depth, columns). */
PARE_NODISCARD pare_status pare_matmul_args_read(const pare_prep *prep, pare_matmul_args *out);

/* Offset in v of batch n of y's leading axes, which v's broadcast to (ONNX MatMul-13). */
int64_t pare_matmul_batch_offset(const pare_view *v, const pare_view *y, int64_t n);

/* The input a residual, bias or scale comes from, or NULL. */
static inline const pare_view *pare_operand(const pare_view *in, int in_count, int at)
{
    return at >= 0 && at < in_count && in[at].dtype != PARE_NOTYPE ? &in[at] : NULL;
}

#ifdef __cplusplus
}
#endif
#endif
