/* SPDX-License-Identifier: Apache-2.0 */
/* Floats of 8 and 4 bits: FLOAT8E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ (Micikevicius and others 2022,
   Noune and others 2022), FLOAT8E8M0 and FLOAT4E2M1 (OCP Microscaling Formats 1.0), as ONNX's Cast
   (25) converts them. A code is in the low bits. */
#ifndef PARE_RUNTIME_BASE_MINIFLOAT_H
#define PARE_RUNTIME_BASE_MINIFLOAT_H

#include "runtime/base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* round_mode of Cast (24), which only FLOAT8E8M0 reads. */
typedef enum pare_minifloat_round {
    PARE_ROUND_UP,
    PARE_ROUND_DOWN,
    PARE_ROUND_NEAREST
} pare_minifloat_round;

bool pare_is_minifloat(pare_dtype dtype);
float pare_minifloat_to_f32(pare_dtype dtype, uint8_t code);
/* saturate: what is too large becomes the largest finite number, else Inf or NaN. */
uint8_t pare_minifloat_from_f32(pare_dtype dtype, float value, bool saturate,
                                pare_minifloat_round round);

#ifdef __cplusplus
}
#endif
#endif
