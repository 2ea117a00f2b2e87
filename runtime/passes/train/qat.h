/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of quantization-aware training share: the pass that makes float constants of a
   file's integers, where each scale serves, and the rounding. */
#ifndef PARE_RUNTIME_PASSES_TRAIN_QAT_H
#define PARE_RUNTIME_PASSES_TRAIN_QAT_H

#include "runtime/ops/ops.h"
#include "runtime/passes/train/fake_quantize.h"

#include <math.h>

/* --- rounding --- */

/* A constant seen as (outer, channels, inner), a scale for each channel. */
typedef struct pare_qat_grid {
    int64_t outer, channels, inner;
} pare_qat_grid;

/* axis -1: one scale for all. */
static inline pare_qat_grid pare_qat_grid_of(const pare_tensor *t, int axis)
{
    pare_qat_grid g = {1, 1, 1};
    for (int i = 0; i < t->rank; i++) {
        if (i < axis)
            g.outer *= t->dims[i];
        else if (i == axis)
            g.channels = t->dims[i];
        else
            g.inner *= t->dims[i];
    }
    return g;
}

/* The first element of channel c in outer part o. */
static inline int64_t pare_fake_at(const pare_qat_grid *g, int64_t o, int64_t c)
{
    return (o * g->channels + c) * g->inner;
}

/* clamp(rint(x / s) + z): QuantizeLinear (ONNX 13) with its own limits. NaN gives the lowest. */
static inline int pare_qat_level(float x, float s, int z, int low, int high)
{
    float v = rintf(x / s) + (float)z;
    v = v > (float)low ? v : (float)low;
    return (int)(v < (float)high ? v : (float)high);
}

/* Element i of s8, u8 or s32 data; a zero point that may be absent, or one for all. */
static inline int pare_qat_int(const pare_tensor *t, int64_t i)
{
    if (t->dtype == PARE_s8) return ((const int8_t *)t->data)[i];
    if (t->dtype == PARE_u8) return ((const uint8_t *)t->data)[i];
    return ((const int32_t *)t->data)[i];
}

static inline int pare_qat_zero(const pare_tensor *z, int64_t c)
{
    return z ? pare_qat_int(z, z->count == 1 ? 0 : c) : 0;
}

/* --- qat_weights.c: the float constants after integers --- */

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

/* s32 biases after a DequantizeLinear become f32 constants; these and float ones are listed. */
PARE_NODISCARD pare_status pare_qat_biases(pare_qat_pass *p);

#endif
