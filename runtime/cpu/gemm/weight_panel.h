/* SPDX-License-Identifier: Apache-2.0 */
/* A constant matrix B of integers for products with f32 rows, kept as 4 or 8 bits a number.

   B is packed in panels of 16 columns. Of 8 bits, a row of a panel is 16 bytes. Of 4 bits, eight
   rows are 16 words of 32 bits, a column each, the first row in the lowest bits. */
#ifndef PARE_RUNTIME_CPU_GEMM_WEIGHT_PANEL_H
#define PARE_RUNTIME_CPU_GEMM_WEIGHT_PANEL_H

#include "runtime/cpu/gemm/tile.h"
#include "runtime/cpu/isa.h"
#include "runtime/ops/product.h"

enum {
    PARE_PANEL_COLUMNS = 16,
    PARE_PANEL_WORD = 8, /* rows of a word of 4 bits */
    PARE_PANELS = 3      /* that are best multiplied together */
};

typedef struct pare_weight_panel {
    int64_t depth, columns, group; /* rows that share a scale */
    int64_t groups;
    int bits;
    size_t bytes;         /* of a panel's levels */
    const uint8_t *level; /* panel after panel */
    const float *scale;   /* (panels, groups, 16); 0 beyond the last column */
    const float *zero;    /* the same; NULL: all 0 */
    pare_isa isa;
} pare_weight_panel;

/* Packs B as `args` describe it, in the plan's arena. */
PARE_NODISCARD pare_status pare_weight_panel_pack(const pare_prep *prep,
                                                  const pare_matmul_args *args, pare_isa isa,
                                                  const pare_weight_panel **out);

/* Bytes of what unpack writes; 0: of 8 bits already. */
size_t pare_weight_panel_levels(const pare_weight_panel *panel);
/* A panel by itself, as of 8 bits; those of 4 go to `levels`. */
pare_weight_panel pare_weight_panel_unpack(const pare_weight_panel *panel, int64_t index,
                                           int8_t *levels);

/* A few rows of A. */
typedef struct pare_weight_rows {
    const float *row[PARE_TILE_ROWS];
    int rows;   /* 1..PARE_TILE_ROWS */
    float *acc; /* (rows, acc_step) */
    int64_t acc_step;
} pare_weight_rows;

/* acc = A x B for `panels` panels from the first on: 16 sums a panel. Each is the sum over groups
   of scale * (sum of a * (q - zero)), rows in ascending order. */
void pare_weight_panel_multiply(const pare_weight_panel *panel, const pare_weight_rows *a,
                                int64_t first, int64_t panels);

#endif
