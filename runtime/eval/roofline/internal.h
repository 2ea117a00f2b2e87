/* SPDX-License-Identifier: Apache-2.0 */
/* The model of time, shared by the files of this folder and its test. */
#ifndef PARE_RUNTIME_EVAL_ROOFLINE_INTERNAL_H
#define PARE_RUNTIME_EVAL_ROOFLINE_INTERNAL_H

#include "runtime/eval/roofline.h"
#include "runtime/exec/parts.h"
#include "runtime/ops/product.h"

#define PARE_LAUNCH_SECONDS 1.2e-6 /* of a kernel in a CUDA graph */
/* The same where both kernels take part in programmatic dependent launch. Assumed, a half: NVIDIA's
   documentation has no figure, and none was measured. */
#define PARE_OVERLAP_SECONDS 0.6e-6
#define PARE_ISSUE           0.85 /* instructions a cycle and scheduler that kernels reach */
#define PARE_MMA_SYNC        0.62 /* of wgmma's rate (arXiv 2402.13499, 2501.12084) */
/* Kernels by wgmma (wgmma.c): seconds before the first tile and after the last; shares of the
   tensor cores' rate, of integers and of halves, which is what cuBLASLt reaches at a side of 4096.
 */
#define PARE_WGMMA_START      1.43e-6
#define PARE_WGMMA_SHARE      (1 / 1.08)
#define PARE_WGMMA_HALF_SHARE (1 / 1.165)
/* An epilogue waits as long as this many warps' instructions take: with two warps a scheduler it
   issues half of the cycles, with four two thirds. */
enum { PARE_WGMMA_WAITS = 2 };

/* counts.c: a kernel's instructions for sm_90, as tests/cuda/sass.py counts them. */
typedef struct pare_sass {
    double all, loop, mma,
        behind;             /* of the kernel, of its hot loop, tensor-core ones in it, after it */
    double blocks, threads; /* that an SM holds; of a block, at most */
} pare_sass;

/* The row of the first kernel whose name begins so, '#' for any number; false: there is none.
   counts: text with a line a kernel, "NAME key=value ..."; pare_sass_counts is that of this build's
   kernels. */
bool pare_sass_find(const char *counts, const char *name, pare_sass *out);
extern const char *const pare_sass_counts;
/* Instructions of a warp and step of a tile of f32, of two warps by two of tm x tn times 16 x 8
   sums. */
double pare_fma_step(const pare_sass *row, int tm, int tn);

/* A kernel whose blocks take steps of depth. */
typedef struct pare_gpu_grid {
    double blocks, resident, warps;    /* of the grid; that an SM holds; of a block */
    double ahead, steps, step, behind; /* steps, and instructions of a warp */
    double tensor, shared; /* multiply-adds of a warp and step; bytes of a block and step */
    double rate;           /* multiply-adds a second of all tensor cores */
    double reached;        /* the share of all that which its kernels reach */
} pare_gpu_grid;

/* grid.c: seconds without the launch; sets what bounds them, occupancy and waves. */
double pare_gpu_grid_seconds(const pare_gpu_spec *spec, const pare_gpu_grid *grid,
                             pare_roofline_step *out);
/* Seconds of these instructions of all warps together. */
double pare_issue_seconds(const pare_gpu_spec *spec, double instructions);
/* Adds kernels that only move bytes: launches, bytes, seconds. */
void pare_bytes_add(const pare_gpu_spec *spec, double bytes, pare_roofline_step *out);
/* The step takes at least what its bytes take; then a launch. */
void pare_step_close(const pare_gpu_spec *spec, double seconds, double bytes,
                     pare_roofline_step *out);

/* Y (batches, rows, columns) = X W^T. */
typedef struct pare_gpu_product {
    pare_dtype type; /* s8, u8, f8e4m3, f8e5m2, f16, bf16, f32 */
    pare_dtype y, z; /* what gemm/wgmma.cu makes, and adds: of a residual */
    double batches, rows, columns, depth;
    bool picture; /* rows of X are patches */
    bool chunks;  /* and are copied by 16 bytes, or by 8 */
    bool pieces;  /* by 8: of integers (gemm/pieces.h) */
    bool residual;
    bool plain;   /* the epilogue rounds and clamps, no more */
    bool bounds;  /* integers: not to their type's bounds, or to 0, alone */
    bool library; /* cuBLASLt or cuBLAS computes it, unless weights of 2:4 are faster */
    bool gelu;    /* the erf form follows the sums */
    bool narrow;  /* a tap's channels are not in whole lots of 128 bytes */
    bool wgmma;   /* gemm/wgmma.cu has its X, W and epilogue: W constant, whole lots of channels */
    bool sparse;  /* W is of 2:4: the same of gemm/wgmma_sparse.cu */
    double bytes; /* of X, W, Y and a residual */
} pare_gpu_product;

/* product.c: tiles that the GPU backend may choose (runtime/cuda/gemm/prepack.c, whose header needs
   CUDA's; a test compares them), and parts of depth; 1: none. */
typedef enum pare_gpu_tile {
    PARE_GPU_TILE_64X64,
    PARE_GPU_TILE_128X64,
    PARE_GPU_TILE_128X128,
    PARE_GPU_TILES
} pare_gpu_tile;
bool pare_tile_fits(const pare_gpu_product *p, pare_gpu_tile tile);
/* Do tiles take f32, by chunks, or are they too large for it (cuda/gemm/gemm_f32_tiles.h)? */
bool pare_f32_takes_tiles(const pare_gpu_spec *spec, const pare_gpu_product *p);
int pare_splits_of(const pare_gpu_product *p);
/* The time of the tile, where it fits, or of these parts, where there are some; where that is less
   than *out. */
void pare_tile_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                       const pare_gpu_product *p, pare_gpu_tile tile, pare_roofline_step *out);
void pare_split_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                        const pare_gpu_product *p, pare_roofline_step *out);
/* The fastest of these, as a tuner would find it: kernel (of the stem "conv", "matmul"), launches,
   bytes, bound and seconds. */
void pare_product_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                          const pare_gpu_product *p, pare_roofline_step *out);

/* wgmma.c: has gemm/wgmma.cu the epilogue of matrices that does not only clamp? to: what it rounds
   to, f32: it does not. */
bool pare_wgmma_ends(const pare_gpu_product *p, const pare_act *act, pare_dtype to);
/* The same of the tiles by wgmma alone, where one is faster than *out. tile: its name or NULL. */
void pare_wgmma_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                        const pare_gpu_product *p, const char *tile, pare_roofline_step *out);
/* The same of the tiles by wgmma.sp alone; none where W is not of 2:4. */
void pare_sparse_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                         const pare_gpu_product *p, pare_roofline_step *out);

/* wgmma_swap.c: blocks that share the depth of a tile of so many rows (32, 64, 128); may it be made
   of such tiles? The same of these alone, where one is faster than *out. */
int pare_swap_blocks(const pare_gpu_product *p, int rows);
bool pare_swap_takes(const pare_gpu_product *p, int rows);
void pare_swap_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                       const pare_gpu_product *p, pare_roofline_step *out);

/* step.c: a node of the compiled graph; its shapes may be unknown. */
typedef struct pare_roofline_maker {
    pare_ctx *ctx;
    const pare_gpu_spec *spec;
    const char *counts;
    pare_arena *arena;
    const pare_parts *parts; /* of Concats that are made in place */
    bool late; /* the nodes' shapes are only known in a run: the host interprets them */
} pare_roofline_maker;
PARE_NODISCARD pare_status pare_step_predict(const pare_roofline_maker *m, const pare_node *node,
                                             pare_roofline_step *out);

/* conv.c, conv_pool.c, depthwise.c, matmul.c: fill out where they can read the node; *read says so.
 */
pare_status pare_conv_predict(const pare_roofline_maker *m, const pare_prep *prep,
                              pare_roofline_step *out, bool *read);
pare_status pare_conv_pool_predict(const pare_roofline_maker *m, const pare_prep *prep,
                                   pare_roofline_step *out, bool *read);
pare_status pare_depthwise_pointwise_predict(const pare_roofline_maker *m, const pare_prep *prep,
                                             pare_roofline_step *out, bool *read);
pare_status pare_matmul_predict(const pare_roofline_maker *m, const pare_prep *prep,
                                pare_roofline_step *out, bool *read);
/* conv_train.c: Conv with computed weights, ConvGradInput, ConvGradWeight; false: the model does
   not know what computes it. */
bool pare_conv_train_predict(const pare_roofline_maker *m, const pare_prep *prep, pare_op_id op,
                             pare_roofline_step *out);
/* overlap.c: a step's launches behind kernels that it need not wait for to begin, its own and that
   of the step ahead (NULL: none), become shorter. */
void pare_overlap_apply(const pare_roofline_step *ahead, pare_roofline_step *s);
/* Of all steps, whose regions are known: ahead is what the same stream has ahead; a stream that has
   just joined another one, or begun, has nothing. */
void pare_overlaps_apply(pare_roofline_step *step, int count);
/* parts.c: those of a plan's graph. PARE_MEMORY. */
PARE_NODISCARD pare_status pare_roofline_parts(pare_ctx *ctx, pare_parts *out, pare_arena *arena,
                                               const pare_graph *graph);
/* attention.c */
void pare_attention_predict(const pare_roofline_maker *m, const pare_prep *prep,
                            pare_roofline_step *out);
void pare_q_attention_predict(const pare_roofline_maker *m, const pare_prep *prep,
                              pare_roofline_step *out, bool *read);

/* branches.c: region and side of each step; the seconds that running side by side saves. */
PARE_NODISCARD pare_status pare_branches_mark(const pare_roofline_maker *m,
                                              const pare_node *const *node,
                                              pare_roofline_step *step, int count);
double pare_branches_save(const pare_gpu_spec *spec, const pare_roofline_step *step, int count);

/* Bytes of all of a node's tensors. */
double pare_prep_bytes(const pare_prep *prep);

/* Integers with a zero point or a Clip take a kernel of more instructions. */
static inline bool pare_epilogue_bounds(const pare_epilogue *e)
{
    return e->y_zero != 0 || e->act.kind == PARE_ACT_CLIP;
}

/* An epilogue that rounds and clamps: after none, relu or clip. */
static inline bool pare_act_clamps(const pare_act *act)
{
    return act->kind == PARE_ACT_NONE || act->kind == PARE_ACT_RELU || act->kind == PARE_ACT_CLIP;
}

#endif
