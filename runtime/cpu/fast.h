/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are in front of the plain ones in the rows' lists, fastest first. */
#ifndef PARE_RUNTIME_CPU_FAST_H
#define PARE_RUNTIME_CPU_FAST_H

#include "runtime/ops/kernel.h"

/* Kernels that exist only in builds with oneDNN. */
#ifdef PARE_ONEDNN
#define PARE_WITH_ONEDNN(...) __VA_ARGS__,
#else
#define PARE_WITH_ONEDNN(...)
#endif

extern const pare_kernel pare_onednn_conv, pare_onednn_conv_brg, pare_onednn_conv_jit,
    pare_onednn_conv_gemm;
extern const pare_kernel pare_onednn_matmul, pare_onednn_attention;
extern const pare_kernel pare_onednn_conv_grad_input, pare_onednn_conv_grad_weight;
extern const pare_kernel pare_float_matmul_small, pare_int8_matmul_small;
/* The definition; conv_pool.c and depthwise_pointwise.c run it, too. */
extern const pare_kernel pare_ref_fused_conv;
extern const pare_kernel pare_float_conv, pare_float_matmul;
extern const pare_kernel pare_int8_conv, pare_int8_depthwise, pare_int8_matmul;

extern const pare_kernel pare_nhwc_max_pool, pare_nhwc_average_pool, pare_nhwc_global_average_pool;
extern const pare_kernel pare_attention_f32, pare_sdpa_f32;

/* Any operator on f16 or bf16 through its own f32 kernels. */
extern const pare_kernel pare_widened;

#endif
