/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 matrices of our own: they serve builds without oneDNN, shapes it refuses, and
   deterministic execution where its sums change with the number of rows. Each output is one chain
   of multiply-adds along the inner axis, in order, whatever the batch and the threads.

   B is packed in blocks of `block` columns, row after row, zeros after the last column. */
#ifndef PARE_RUNTIME_CPU_GEMM_FLOAT_GEMM_H
#define PARE_RUNTIME_CPU_GEMM_FLOAT_GEMM_H

#include "runtime/ops/epilogue_f8.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/gemm/tile.h"

#include <string.h>

enum { PARE_FLOAT_COLUMNS = 512 };

/* acc (rows, acc_step) = A x `blocks` blocks of B; A's elements are floats. */
typedef void (*pare_float_tile_fn)(float *acc, int64_t acc_step, const pare_tile *a, const float *b,
                                   int64_t blocks);

typedef struct pare_float_gemm {
    int64_t columns, depth, blocks;
    int block;
    pare_float_tile_fn tile;
} pare_float_gemm;

void pare_float_gemm_init(pare_float_gemm *g, pare_isa isa, int64_t depth, int64_t columns);
size_t pare_float_packed_count(const pare_float_gemm *g); /* floats */

/* Element i of f32, f16, bf16 or FP8 data at any address, as a large constant has it in its file.
 */
static inline float pare_float_at(const void *data, pare_dtype type, int64_t i)
{
    float x;
    uint16_t half;
    if (pare_type_is_f8(type)) return pare_f8_value(type, ((const uint8_t *)data)[i]);
    if (type == PARE_f32) {
        memcpy(&x, (const char *)data + (size_t)i * sizeof x, sizeof x);
        return x;
    }
    memcpy(&half, (const char *)data + (size_t)i * sizeof half, sizeof half);
    return type == PARE_f16 ? pare_f16_to_f32(half) : pare_bf16_to_f32(half);
}

/* n such elements, `stride` apart, as floats. */
void pare_float_row(float *to, const void *data, pare_dtype type, int64_t from, int64_t n,
                    int64_t stride);

/* Packs b (depth, columns) of such a type with strides in elements. */
void pare_float_pack(const pare_float_gemm *g, float *packed, const void *b, pare_dtype type,
                     int64_t row, int64_t column);

/* What follows the sums: y = act(alpha * sum + bias + z), rounded to y's type; of factors of FP8
   epilogue_f8.h, where bias is of floats, one a column. */
typedef struct pare_float_tail {
    pare_act act;
    float alpha, beta;
    const void *bias; /* NULL: none */
    int bias_step;
    pare_dtype type;         /* of bias, z and y; FP8: of y */
    const pare_epilogue *f8; /* NULL: factors are not of FP8 */
    const float *scale;      /* FP8: m of each column */
} pare_float_tail;

/* Rows of A times columns from..to of B (from on a block's edge), finished and stored; channel:
   column 0's place in the bias. */
void pare_float_job(const pare_float_gemm *g, const pare_tile *tile, const float *packed,
                    int64_t from, int64_t to, const pare_float_tail *tail, int64_t channel);

/* Sums acc (rows, acc_step) of n columns from `column` on, finished and stored; acc is
   overwritten, and may be where f32 rows are stored. */
void pare_float_finish(const pare_float_tail *tail, int64_t channel, int64_t n, float *acc,
                       int64_t acc_step, const pare_tile *to, int64_t column);

/* act over a row, in vectors. */
void pare_act_row(const pare_act *act, int64_t n, float *v);

#endif
