/* SPDX-License-Identifier: Apache-2.0 */
/* Fused convolutions and matrix products as kernels see them: node, shapes and constants read once
   while preparing. The same for ONNX Conv, Gemm and MatMul, whose attributes are a subset. */
#ifndef PARE_RUNTIME_OPS_PRODUCT_H
#define PARE_RUNTIME_OPS_PRODUCT_H

#include "runtime/ops/epilogue_f8.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Positions of operands among the inputs; -1 where absent. */
typedef struct pare_operands {
    int bias, residual, w_scale, w_zero;
} pare_operands;

typedef struct pare_conv_args {
    pare_window win;
    pare_act act;
    bool int8, f8;     /* X and W are integers, or floats of one type, 8 bits wide */
    pare_quant_args q; /* of these only, as the next three */
    pare_epilogue epilogue;
    const float *scale; /* (M): m of each filter */
    const float *bias;  /* (M): in units of s_x * s_w, as floats; NULL: none */
    pare_operands at;
    int64_t n, c, m, cg, mg; /* batch, channels, filters; of one group */
} pare_conv_args;

/* Y (n, m, out...) = X (n, c, in...) * W (m, cg, kernel...); scales go to the plan's arena. */
PARE_NODISCARD pare_status pare_conv_args_read(const pare_prep *prep, pare_conv_args *out);

/* B of a product with float A in 4 or 8 bits, integers or floats: b = (q - zero) * scale, rounded
   to f32 (ONNX DequantizeLinear 21, 23). Scale and zero point of row k and column n are at k /
   block * row_step + n * column_step. */
typedef struct pare_weight_only {
    int64_t block;     /* rows that share a scale; 0: B is of A's type */
    const void *scale; /* f32, at any address */
    const void *zero;  /* of B's type; NULL: all 0, as those of floats are */
    pare_dtype type;
    int64_t row_step, column_step;
} pare_weight_only;

/* Element i of s8, u8, s4 or u4 data. */
static inline int pare_weight_level(const void *data, pare_dtype type, int64_t i)
{
    if (pare_type_is_packed(type)) return pare_packed_get(type, data, i);
    return type == PARE_s8 ? ((const int8_t *)data)[i] : ((const uint8_t *)data)[i];
}

/* Their scale and zero point. */
static inline float pare_weight_scale(const pare_weight_only *w, int64_t row, int64_t column,
                                      int *zero)
{
    const int64_t at = row / w->block * w->row_step + column * w->column_step;
    float scale;
    memcpy(&scale, (const char *)w->scale + (size_t)at * sizeof scale, sizeof scale);
    *zero = w->zero ? pare_weight_level(w->zero, w->type, at) : 0;
    return scale;
}

typedef struct pare_matmul_args {
    pare_act act;
    bool int8, f8, trans_a, trans_b; /* int8, f8: A and B are 8 bits wide */
    pare_weight_only weight;
    pare_quant_args q;
    pare_epilogue epilogue;
    const float *scale; /* (N), int8 and f8 only, as the next one */
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
