/* SPDX-License-Identifier: Apache-2.0 */
/* Element-by-element functions on the GPU: their names, and the launchers of element.cu. */
#ifndef PARE_RUNTIME_CUDA_ELEMENT_H
#define PARE_RUNTIME_CUDA_ELEMENT_H

#include "runtime/cuda/walk.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, alpha's default, beta's default, expression of x, alpha, beta): the formulas of
   runtime/cpu/unary.c, in float. */
#define PARE_CUDA_UNARY(X)                                                                         \
    X(relu, 0, 0, x < 0 ? 0 : x)                                                                   \
    X(abs, 0, 0, fabsf(x))                                                                         \
    X(neg, 0, 0, -x)                                                                               \
    X(sign, 0, 0, x > 0 ? 1 : x < 0 ? -1 : x)                                                      \
    X(sqrt, 0, 0, sqrtf(x))                                                                        \
    X(reciprocal, 0, 0, 1 / x)                                                                     \
    X(floor, 0, 0, floorf(x))                                                                      \
    X(ceil, 0, 0, ceilf(x))                                                                        \
    X(round, 0, 0, rintf(x))                                                                       \
    X(leaky_relu, 0.01f, 0, x < 0 ? alpha * x : x)                                                 \
    X(thresholded_relu, 1, 0, x > alpha ? x : 0)                                                   \
    X(hard_sigmoid, 0.2f, 0.5f, hold(alpha *x + beta, 0, 1))                                       \
    X(hard_swish, 0, 0, x *hold(x / 6 + 0.5f, 0, 1))                                               \
    X(softsign, 0, 0, x / (1 + fabsf(x)))                                                          \
    X(exp, 0, 0, expf(x))                                                                          \
    X(erf, 0, 0, erff(x))                                                                          \
    X(tanh, 0, 0, tanhf(x))                                                                        \
    X(sigmoid, 0, 0, 1 / (1 + expf(-x)))                                                           \
    X(log, 0, 0, logf(x))                                                                          \
    X(sin, 0, 0, sinf(x))                                                                          \
    X(cos, 0, 0, cosf(x))                                                                          \
    X(tan, 0, 0, tanf(x))                                                                          \
    X(asin, 0, 0, asinf(x))                                                                        \
    X(acos, 0, 0, acosf(x))                                                                        \
    X(atan, 0, 0, atanf(x))                                                                        \
    X(sinh, 0, 0, sinhf(x))                                                                        \
    X(cosh, 0, 0, coshf(x))                                                                        \
    X(asinh, 0, 0, asinhf(x))                                                                      \
    X(acosh, 0, 0, acoshf(x))                                                                      \
    X(atanh, 0, 0, atanhf(x))                                                                      \
    X(elu, 1, 0, x < 0 ? alpha * expm1f(x) : x)                                                    \
    X(celu, 1, 0, x < 0 ? alpha * expm1f(x / alpha) : x)                                           \
    X(selu, 1.67326319217681884765625f, 1.05070102214813232421875f,                                \
      beta *(x > 0 ? x : alpha * expm1f(x)))                                                       \
    X(softplus, 0, 0, x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)))                              \
    X(mish, 0, 0, x *tanhf(x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x))))                        \
    X(gelu, 0, 0, x / 2 * (1 + erff(x * 0.70710678118654752440f)))                                 \
    X(gelu_tanh, 0, 0, x / 2 * (1 + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x))))

/* X(name, expression of x): the same where x is an integer, as int64_t; wide: it is u64. */
#define PARE_CUDA_UNARY_INT(X)                                                                     \
    X(relu, wide || x > 0 ? x : 0)                                                                 \
    X(abs, wide || x > 0 ? x : (int64_t)(0 - (uint64_t)x))                                         \
    X(neg, (int64_t)(0 - (uint64_t)x))                                                             \
    X(sign, wide || x > 0 ? x != 0 : -(x != 0))

/* X(name, expression of x, y, the same of integers): the formulas of runtime/cpu/binary.c, for
   float and double, and for int64_t (ops/number.h). */
#define PARE_CUDA_BINARY(X)                                                                        \
    X(add, x + y, (int64_t)((uint64_t)x + (uint64_t)y))                                            \
    X(sub, x - y, (int64_t)((uint64_t)x - (uint64_t)y))                                            \
    X(mul, x *y, (int64_t)((uint64_t)x * (uint64_t)y))                                             \
    X(div, x / y, wide ? whole(x, y, false) : pare_int_divide(x, y))                               \
    X(prelu, x < 0 ? x * y : x, wide || x >= 0 ? x : (int64_t)((uint64_t)x * (uint64_t)y))         \
    X(min, x != x ? x : y != y ? y : x < y ? x : y, (x ^ turn) < (y ^ turn) ? x : y)               \
    X(max, x != x ? x : y != y ? y : x > y ? x : y, (x ^ turn) > (y ^ turn) ? x : y)               \
    X(mod, x - floor_of(x / y) * y, wide ? whole(x, y, true) : pare_int_modulo(x, y))              \
    X(fmod, fmod_of(x, y), wide ? whole(x, y, true) : pare_int_remainder(x, y))                    \
    X(pow, y == 2 ? x * x : y == 3 ? x * x * x : pow_of(x, y), pare_int_power(x, y))

#define X(name, ...) PARE_CUDA_##name,
typedef enum pare_cuda_unary { PARE_CUDA_UNARY(X) PARE_CUDA_UNARY_COUNT } pare_cuda_unary;
typedef enum pare_cuda_binary { PARE_CUDA_BINARY(X) PARE_CUDA_BINARY_COUNT } pare_cuda_binary;
#undef X

/* dtype: of all operands; f32, f16 and bf16 compute in float, f64 (two tensors only) in double,
   integers (of the functions above that have a form for them) in int64_t. The walk has 2 or 3
   operands. */
cudaError_t pare_cuda_unary_launch(const pare_cuda_walk *w, pare_dtype dtype, pare_cuda_unary op,
                                   float alpha, float beta, cudaStream_t stream);
cudaError_t pare_cuda_binary_launch(const pare_cuda_walk *w, pare_dtype dtype, pare_cuda_binary op,
                                    cudaStream_t stream);
/* Pow (15) of any two types of numbers, computed as the base's type asks. */
cudaError_t pare_cuda_power_launch(const pare_cuda_walk *w, pare_dtype base, pare_dtype exponent,
                                   cudaStream_t stream);
/* y = min(max(x, *low), *high); low and high are on the device, NULL: no limit. */
cudaError_t pare_cuda_clip_launch(const pare_cuda_walk *w, pare_dtype dtype, const void *low,
                                  const void *high, cudaStream_t stream);
/* Operands: y, condition (bool), x, z; elements of `bytes` bytes. */
cudaError_t pare_cuda_where_launch(const pare_cuda_walk *w, int bytes, cudaStream_t stream);
/* y = (x + z + ...) / divisor over operands 1 to inputs, in float. begun: operand 1 is what an
   earlier launch left, f32; more: operand 0 is f32 and the next launch's operand 1. */
cudaError_t pare_cuda_sum_launch(const pare_cuda_walk *w, pare_dtype dtype, int inputs, bool begun,
                                 bool more, float divisor, cudaStream_t stream);
/* y = x, elements of `bytes` bytes: every copy between memory orders. */
cudaError_t pare_cuda_copy_launch(const pare_cuda_walk *w, int bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
