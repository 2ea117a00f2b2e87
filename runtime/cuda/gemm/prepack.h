/* SPDX-License-Identifier: Apache-2.0 */
/* What prepared products share on the host: packed weights with scales, biases and corrections in
   one block of device memory, the choice of tile, and the launch. */
#ifndef PARE_RUNTIME_CUDA_GEMM_PREPACK_H
#define PARE_RUNTIME_CUDA_GEMM_PREPACK_H

#include "runtime/cuda/kernel.h"
#include "runtime/cuda/gemm/pack.h"
#include "runtime/ops/product.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_cuda_prepared {
    pare_cuda_gemm_args p; /* all but x, y and z */
    int residual;          /* input position, -1: none */
    int bias;              /* the same of one that is read where it is; -1: none, or in the block */
    pare_device *device;
    void *block;      /* of constants, or NULL */
    const void *meta; /* of weights of 2:4 (sparse.h), in the block; NULL: dense */
    cudaError_t (*sparse)(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream);
    size_t partial; /* splits > 1: its sums in scratch */
    /* of kernels of their own (wgmma.h, wgmma_swap.h, tcgen.h, conv_stem.h, gemm_f32_tiles.h);
       NULL: of gemm.h, or `sparse` */
    cudaError_t (*launch)(const pare_cuda_gemm_args *p, cudaStream_t stream);
    bool widened; /* X is copied to scratch first (pack.h) */
    pare_cuda_widen widen;
    size_t wide;
} pare_cuda_prepared;

/* How a product with constant weights is computed. */
typedef enum pare_cuda_way {
    PARE_CUDA_WHOLE,
    PARE_CUDA_SPLIT,   /* depth in parts */
    PARE_CUDA_STEM,    /* pictures of few channels (conv_stem.h) */
    PARE_CUDA_WIDENED, /* the same, widened first */
    PARE_CUDA_SPARSE,  /* weights of 2:4 */
    PARE_CUDA_WGMMA,   /* instructions of compute capability 9.0 (wgmma.h) */
    PARE_CUDA_SWAP,    /* the same of few tiles (wgmma_swap.h) */
    PARE_CUDA_WGMMA_SPARSE,
    PARE_CUDA_TCGEN /* instructions of compute capability 10.0 (tcgen.h) */
} pare_cuda_way;

/* Where the host builds the block, and offsets of its parts; `bytes` of them go to the device. Rows
   are packed at `weights`, which is after these where the device gets them in another form. */
typedef struct pare_cuda_prepack {
    char *host;
    size_t weights, scale, bias, shift, patch, bytes;
    bool sparse, wgmma, swap, tcgen; /* tcgen: as wgmma, with rows in order */
    size_t kept, meta; /* sparse: their parts; wgmma: kept is rows in their order, or both */
    size_t four;       /* wgmma, 8 bits: constants of four columns */
} pare_cuda_prepack;

/* What arguments say of scales, biases and operands. */
typedef struct pare_cuda_constants {
    bool int8;
    const float *scale; /* (channels) of factors of 8 bits, integers and FP8; else NULL */
    int32_t x_zero;
    pare_operands at;
    int64_t channels;
} pare_cuda_constants;

/* Fills what every product has: types, no split, steps and factors of 1, one batch. */
void pare_cuda_gemm_init(pare_cuda_gemm_args *p, pare_dtype x_type, pare_dtype y_type);
/* count products side by side, elements from one to the next. */
void pare_cuda_batch_set(pare_cuda_gemm_args *p, int64_t count, int64_t y, int64_t x, int64_t w);
/* Elements of a packed row of this depth. */
int64_t pare_cuda_pitch(int64_t depth, pare_dtype type);
/* Stores of 16 or 4 bytes, where Y's rows and batches allow them. */
void pare_cuda_lot_set(pare_cuda_gemm_args *p);
/* The widest copy that all these distances in elements allow: 16, 8, 4 or 1. */
int pare_cuda_copy_of(pare_dtype type, const int64_t *distances, int count);

/* May the node's tensors be sums of these types? */
bool pare_cuda_weights_fit(const pare_prep *prep);
bool pare_cuda_bias_fits(const pare_prep *prep, int at, int64_t columns);
bool pare_cuda_residual_fits(const pare_prep *prep, int at);
/* True where st is PARE_OK. A node that cannot be read is another kernel's to refuse: the message
   is not kept. */
bool pare_cuda_readable(const pare_prep *prep, pare_status st);

PARE_NODISCARD pare_status pare_cuda_prepared_new(pare_prep *prep, const pare_cuda_gemm_args *p,
                                                  pare_cuda_prepared **out);
/* What follows its sums: *e of factors of 8 bits; of others act, and the residual's type. */
pare_epilogue pare_cuda_epilogue_of(const pare_prep *prep, bool bytes, const pare_act *act,
                                    const pare_epilogue *e, int residual);
void pare_cuda_epilogue_set(const pare_prep *prep, pare_cuda_prepared *s, bool bytes,
                            const pare_act *act, const pare_epilogue *e, int residual);
/* Room for the block; k->host is freed by close. */
PARE_NODISCARD pare_status pare_cuda_prepack_open(const pare_prep *prep,
                                                  const pare_cuda_gemm_args *p, pare_cuda_way way,
                                                  pare_cuda_prepack *k);
/* Row r of the packed weights: count elements of w from offset at, step apart, to element k on. */
void pare_cuda_row_pack(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p, int64_t r,
                        int64_t to, const pare_view *w, int64_t at, int64_t step, int64_t count);
/* Adds scales, biases and corrections to a block that holds the weights, uploads it, and makes s
   the node's state. */
PARE_NODISCARD pare_status pare_cuda_prepack_close(pare_prep *prep, pare_cuda_prepared *s,
                                                   pare_cuda_prepack *k,
                                                   const pare_cuda_constants *c);

/* Does this tile take the product and fill the device with blocks? */
bool pare_cuda_tile_fits(const pare_cuda_gemm_args *p, pare_cuda_tiling tile);
/* The largest that does. */
pare_cuda_tiling pare_cuda_tile_best(const pare_cuda_gemm_args *p);
/* Parts that depth is worth splitting into; 1: none. */
int pare_cuda_splits_of(const pare_cuda_gemm_args *p);
/* Is it, and may it be? Sums of floats must not depend on the batch in deterministic execution. */
bool pare_cuda_splits_fit(const pare_prep *prep, const pare_cuda_gemm_args *p);
/* May it be a product with weights of 2:4, and is it large enough for that tile? Whether they are,
   pare_sparse_fits says row by row. Sums of floats are added in another order than those of dense
   weights. */
bool pare_cuda_sparse_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                           pare_cuda_tiling tile);
/* Asks for the scratch that split sums need. */
void pare_cuda_splits_set(pare_prep *prep, pare_cuda_prepared *s, int splits);

PARE_NODISCARD pare_status pare_cuda_gemm_run(const pare_call *call);
void pare_cuda_gemm_release(void *state);

/* A kernel `entry` of one tile and way: `read` reads args a and product p of prep, `fits` judges
   them, `make` prepares; also: flags. */
#define PARE_CUDA_GEMM(entry, args, read, fits, make, tile, way, also)                             \
    static bool entry##_can(const pare_prep *prep)                                                 \
    {                                                                                              \
        args a;                                                                                    \
        pare_cuda_gemm_args p;                                                                     \
        return read(prep, &a, &p) && (fits);                                                       \
    }                                                                                              \
    static pare_status entry##_prepare(pare_prep *prep) { return make(prep, tile, way); }          \
    static const pare_kernel entry = {                                                             \
        .name = "cuda_" #entry,                                                                    \
        .can = entry##_can,                                                                        \
        .prepare = entry##_prepare,                                                                \
        .run = pare_cuda_gemm_run,                                                                 \
        .release = pare_cuda_gemm_release,                                                         \
        .flags = (also) | ((way) == PARE_CUDA_SPARSE || (way) == PARE_CUDA_WGMMA_SPARSE            \
                               ? PARE_KERNEL_SPARSE                                                \
                               : 0)};
/* For `fits`: a rule of wgmma.h or wgmma_swap.h, asked with what follows the sums of a and with X's
   zero point. */
#define PARE_CUDA_RULE(rule, tile)                                                                 \
    (p.epilogue = pare_cuda_epilogue_of(prep, a.int8 || a.f8, &a.act, &a.epilogue, a.at.residual), \
     rule(prep, &p, &p.epilogue, a.int8 ? a.q.x_zero : 0, tile))

#ifdef __cplusplus
}
#endif
#endif
