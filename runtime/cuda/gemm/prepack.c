/* SPDX-License-Identifier: Apache-2.0 */
/* Weights are packed row by row (one row an output channel, taps outermost, channels innermost)
   while preparing, and are on the device with scales, biases and corrections in one block. */
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/base/size.h"
#include "runtime/cuda/gemm/gemm_f32_tiles.h"
#include "runtime/cuda/gemm/pieces.h"
#include "runtime/cuda/gemm/sparse.h"
#include "runtime/cuda/gemm/tcgen.h"
#include "runtime/cuda/gemm/wgmma_swap.h"

#include <math.h>
#include <string.h>

enum { PROCESSORS = 132, MOST_SPLITS = 16, LEAST_STEPS = 4 };

void pare_cuda_gemm_init(pare_cuda_gemm_args *p, pare_dtype x_type, pare_dtype y_type)
{
    *p = (pare_cuda_gemm_args){.x_type = x_type,
                               .y_type = y_type,
                               .x_step = 1,
                               .w_step = 1,
                               .bias_column = 1,
                               .bias_type = PARE_f32,
                               .alpha = 1,
                               .beta = 1,
                               .copy = 1,
                               .lot = 1,
                               .splits = 1};
    pare_cuda_batch_set(p, 1, 0, 0, 0);
}

void pare_cuda_batch_set(pare_cuda_gemm_args *p, int64_t count, int64_t y, int64_t x, int64_t w)
{
    p->batches = (int)count;
    p->batch = (pare_tensor_iterator){.operands = 3, .rank = 1, .count = count, .dim = {count}};
    p->batch.stride[0][0] = y, p->batch.stride[1][0] = x, p->batch.stride[2][0] = w;
}

int64_t pare_cuda_pitch(int64_t depth, pare_dtype type)
{
    int64_t chunk = PARE_CUDA_CHUNK / pare_cuda_bytes(type);
    return (depth + chunk - 1) / chunk * chunk;
}

void pare_cuda_lot_set(pare_cuda_gemm_args *p)
{
    const int bytes = pare_cuda_bytes(p->y_type);
    int64_t lot = 16;
    while (lot > 1) {
        bool well = p->y_row * bytes % lot == 0;
        for (int i = 0; i < p->batch.rank; i++)
            well = well && p->batch.stride[0][i] * bytes % lot == 0;
        if (well) break;
        lot = lot == 16 ? 4 : 1;
    }
    p->lot = lot > bytes ? (int)lot / bytes : 1;
}

int pare_cuda_copy_of(pare_dtype type, const int64_t *distances, int count)
{
    int copy = 16;
    for (int i = 0; i < count; i++)
        while (distances[i] * pare_cuda_bytes(type) % copy) copy = copy > 4 ? copy / 2 : 1;
    return copy;
}

/* --- what kernels take --- */

bool pare_cuda_weights_fit(const pare_prep *p)
{
    pare_dtype x = p->in[0].dtype, w = p->in[1].dtype;
    if (!p->in[1].data) return false;
    if (pare_type_is_int8(x)) return w == PARE_s8;
    if (pare_type_is_f8(x))
        return w == x && (p->out[0].dtype == x || pare_cuda_is_float(p->out[0].dtype));
    return pare_cuda_is_float(x) && w == x && p->out[0].dtype == x;
}

bool pare_cuda_readable(const pare_prep *p, pare_status st)
{
    if (st != PARE_OK) pare_ctx_clear(p->ctx);
    return st == PARE_OK;
}

bool pare_cuda_bias_fits(const pare_prep *p, int at, int64_t columns)
{
    const pare_view *b = pare_operand(p->in, p->in_count, at);
    if (!b) return true;
    int64_t n = pare_view_count(b);
    return b->data && (n == 1 || (n == columns && b->dim[b->rank - 1] == columns)) &&
           (b->dtype == PARE_s32 || pare_cuda_is_float(b->dtype));
}

bool pare_cuda_residual_fits(const pare_prep *p, int at)
{
    const pare_view *z = pare_operand(p->in, p->in_count, at);
    if (!z) return true;
    return pare_view_same_order(z, &p->out[0]) &&
           (pare_type_is_int8(z->dtype) || z->dtype == PARE_f32 || z->dtype == p->in[0].dtype ||
            z->dtype == p->out[0].dtype);
}

/* --- the block of constants --- */

static size_t part(size_t *end, size_t bytes)
{
    size_t at = *end;
    *end = pare_align_up(at + bytes, 256);
    return at;
}

/* Packed rows of weights of 2:4; p: one batch. */
static int64_t sparse_rows(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p)
{
    return k->wgmma ? pare_wgmma_sparse_rows(p->columns) : p->columns;
}

pare_status pare_cuda_prepack_open(const pare_prep *prep, const pare_cuda_gemm_args *p,
                                   pare_cuda_way way, pare_cuda_prepack *k)
{
    size_t channels = (size_t)p->columns * (size_t)p->batches;
    int bytes = pare_cuda_bytes(p->x_type);
    size_t row = (size_t)p->w_row * (size_t)bytes, all;
    *k = (pare_cuda_prepack){.sparse = way == PARE_CUDA_SPARSE || way == PARE_CUDA_WGMMA_SPARSE,
                             .wgmma = way == PARE_CUDA_WGMMA || way == PARE_CUDA_WGMMA_SPARSE ||
                                      way == PARE_CUDA_TCGEN,
                             .tcgen = way == PARE_CUDA_TCGEN,
                             .swap = way == PARE_CUDA_SWAP};
    if (k->sparse) {
        k->kept =
            part(&k->bytes, (size_t)sparse_rows(k, p) * pare_sparse_kept_bytes(p->depth, bytes));
        k->meta = part(&k->bytes, pare_sparse_meta_bytes(p->columns, p->depth, bytes));
    } else if (k->wgmma) {
        k->kept =
            part(&k->bytes, (size_t)pare_wgmma_rows(p->columns, pare_cuda_bytes(p->y_type)) * row);
    } else {
        k->weights = part(&k->bytes, channels * row);
    }
    if (k->wgmma && bytes == 1)
        k->four = part(&k->bytes, (size_t)pare_wgmma_fours((int64_t)channels) *
                                      sizeof(pare_cuda_four_columns));
    k->scale = part(&k->bytes, channels * sizeof(float));
    k->bias = part(&k->bytes, channels * sizeof(float));
    k->shift = part(&k->bytes, channels * sizeof(int32_t));
    k->patch = part(&k->bytes, pare_cuda_im2col_chunks((int64_t)p->depth * bytes) *
                                   sizeof(pare_cuda_im2col) * (pare_cuda_by_pieces(p) ? 2 : 1));
    all = k->bytes;
    if (k->sparse || k->wgmma) k->weights = part(&all, channels * row);
    k->host = pare_alloc(prep->ctx, all, 1);
    return k->host ? PARE_OK : PARE_MEMORY;
}

void pare_cuda_row_pack(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p, int64_t r,
                        int64_t to, const pare_view *w, int64_t at, int64_t step, int64_t count)
{
    int bytes = pare_cuda_bytes(w->dtype);
    char *row = k->host + k->weights + (r * p->w_row + to) * bytes;
    for (int64_t i = 0; i < count; i++)
        memcpy(row + i * bytes, (const char *)w->data + (at + i * step) * bytes, (size_t)bytes);
}

static void bias_pack(const pare_cuda_prepack *k, const pare_view *b, int64_t channels)
{
    int64_t n = b ? pare_view_count(b) : 0;
    const pare_type_info *type = b ? pare_type(b->dtype) : NULL;
    float *to = (float *)(void *)(k->host + k->bias);
    for (int64_t i = 0; b && i < channels; i++)
        to[i] = type->to_f32((const char *)b->data + (n == 1 ? 0 : i) * (type->bits / 8));
}

/* z_x * sum of w per row. */
static void shift_pack(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p, int32_t zero)
{
    int32_t *shift = (int32_t *)(void *)(k->host + k->shift);
    for (int64_t r = 0; r < (int64_t)p->columns * p->batches; r++) {
        const int8_t *row = (const int8_t *)k->host + k->weights + r * p->w_row;
        int32_t sum = 0;
        for (int i = 0; i < p->depth; i++) sum += row[i];
        shift[r] = zero * sum;
    }
}

/* Is a row's bias an integer, and is every float exact that its sums, less the shift, and the bias
   make? */
static bool bias_is_exact(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p, int64_t r,
                          int32_t zero)
{
    const float most = 16777216; /* 2^24: all integers up to it are floats */
    const float bias = ((const float *)(const void *)(k->host + k->bias))[r];
    const int8_t *row = (const int8_t *)k->host + k->weights + r * p->w_row;
    const int64_t x_low = (p->x_type == PARE_s8 ? -128 : 0) - (int64_t)zero;
    int64_t low = 0, high = 0;
    if (!(fabsf(bias) <= most) || bias != rintf(bias)) return false;
    for (int i = 0; i < p->depth; i++) {
        int64_t least = row[i] * x_low, greatest = row[i] * (x_low + 255);
        low += row[i] < 0 ? greatest : least;
        high += row[i] < 0 ? least : greatest;
    }
    const int64_t b = (int64_t)bias, end = (int64_t)most;
    return low >= -end && high <= end && low + b >= -end && high + b <= end;
}

/* Moves biases into the shift, where all of them allow it: ((float)acc + bias) is then (float)(acc
   + bias). */
static bool bias_fold(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p, int32_t zero)
{
    const int64_t rows = (int64_t)p->columns * p->batches;
    const float *bias = (const float *)(const void *)(k->host + k->bias);
    uint32_t *shift = (uint32_t *)(void *)(k->host + k->shift);
    for (int64_t r = 0; r < rows; r++)
        if (!bias_is_exact(k, p, r, zero)) return false;
    for (int64_t r = 0; r < rows; r++) shift[r] -= (uint32_t)(int32_t)bias[r];
    return true;
}

/* Where the chunks of a patch are, or the pieces, of a matrix's row, too. */
static void patch_pack(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p)
{
    const pare_cuda_picture *in = &p->in;
    const bool pieces = pare_cuda_by_pieces(p);
    const int bytes = pare_cuda_bytes(p->x_type), size = pieces ? PARE_CUDA_PIECE : PARE_CUDA_CHUNK;
    const int tap_bytes = p->picture ? in->channels * bytes : p->depth * bytes;
    pare_cuda_im2col *to = (pare_cuda_im2col *)(void *)(k->host + k->patch);
    if (!pieces && (!p->picture || !pare_cuda_by_chunks(p))) return;
    for (int i = 0; i < p->depth * bytes / size; i++) {
        const int tap = i * size / tap_bytes, width = p->picture ? in->kernel_width : 1;
        const int64_t line = tap / width * in->dilation[0] * in->row;
        const int64_t pixel = tap % width * in->dilation[1] * in->pixel;
        to[i].at = (int)((line + pixel) * bytes) + i * size - tap * tap_bytes;
        to[i].tap = 1u << tap;
    }
}

/* The packed rows once more as rows of 2:4, those of wgmma in its order, zeros behind the last. */
static void rows_compress(const pare_cuda_prepack *k, pare_cuda_gemm_args *p)
{
    int bytes = pare_cuda_bytes(p->x_type);
    size_t row = (size_t)p->w_row * (size_t)bytes, kept = pare_sparse_kept_bytes(p->depth, bytes);
    uint32_t *meta = (uint32_t *)(void *)(k->host + k->meta);
    pare_sparse_meta_clear(meta, pare_sparse_meta_bytes(p->columns, p->depth, bytes));
    for (int64_t r = 0; r < sparse_rows(k, p); r++) {
        const int64_t column = k->wgmma ? pare_wgmma_sparse_column(r) : r;
        char *to = k->host + k->kept + (size_t)r * kept;
        if (column < p->columns)
            pare_sparse_row_pack(k->host + k->weights + (size_t)column * row, bytes, r, p->depth,
                                 to, meta);
        else
            memset(to, 0, kept);
    }
    p->w_row = (int64_t)kept / bytes;
}

/* The packed rows once more in wgmma.h's order, or tcgen.h's, zeros behind the last. */
static void rows_permute(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p)
{
    const size_t row = (size_t)p->w_row * (size_t)pare_cuda_bytes(p->x_type);
    const int y_bytes = pare_cuda_bytes(p->y_type);
    for (int64_t r = 0; r < pare_wgmma_rows(p->columns, y_bytes); r++) {
        const int64_t column = k->tcgen ? r : pare_wgmma_column(r, y_bytes);
        char *to = k->host + k->kept + (size_t)r * row;
        if (column < p->columns)
            memcpy(to, k->host + k->weights + (size_t)column * row, row);
        else
            memset(to, 0, row);
    }
}

/* Scales, shifts and biases once more, those of four columns together. */
static void columns_join(const pare_cuda_prepack *k, int columns, bool biased)
{
    pare_cuda_four_columns *four = (pare_cuda_four_columns *)(void *)(k->host + k->four);
    const float *scale = (const float *)(const void *)(k->host + k->scale);
    const float *bias = (const float *)(const void *)(k->host + k->bias);
    const int32_t *shift = (const int32_t *)(const void *)(k->host + k->shift);
    for (int c = 0; c < columns; c++) {
        four[c / 4].scale[c % 4] = scale[c];
        four[c / 4].shift[c % 4] = shift[c];
        four[c / 4].bias[c % 4] = biased ? bias[c] : -0.0f;
    }
}

/* Uploads the block and points p at its parts. */
static pare_status block_upload(pare_prep *prep, pare_cuda_prepared *s, pare_cuda_prepack *k,
                                const pare_cuda_constants *c, bool biased)
{
    const bool scaled = c->scale != NULL;
    pare_status st = pare_cuda_copy_kept(prep, &s->block, k->host, k->bytes);
    pare_free(k->host);
    if (st != PARE_OK)
        return pare_fail_prefix(prep->ctx, st, "node '%s' (%s)", prep->node->name,
                                prep->node->op_type);
    const char *block = s->block;
    s->p.w = block + (k->sparse || k->wgmma ? k->kept : k->weights);
    if (k->sparse) {
        s->meta = block + k->meta;
        s->sparse = k->wgmma ? pare_cuda_wgmma_sparse_launch : pare_cuda_sparse_launch;
    }
    if (k->swap) s->launch = pare_cuda_swap_launch;
    if (k->wgmma) {
        if (!k->sparse) s->launch = k->tcgen ? pare_cuda_tcgen_launch : pare_cuda_wgmma_launch;
        s->p.four = scaled ? (const pare_cuda_four_columns *)(const void *)(block + k->four) : NULL;
    }
    s->p.scale = scaled ? (const float *)(const void *)(block + k->scale) : NULL;
    s->p.shift = c->int8 ? (const int32_t *)(const void *)(block + k->shift) : NULL;
    s->p.bias = biased ? block + k->bias : NULL;
    s->p.patch = (const pare_cuda_im2col *)(const void *)(block + k->patch);
    return PARE_OK;
}

/* To TF32, 10 bits behind the point, to nearest, ties away from 0 (PTX ISA, cvt.rna.tf32). */
static void rows_round(const pare_cuda_prepack *k, const pare_cuda_gemm_args *p)
{
    uint32_t *bits = (uint32_t *)(void *)(k->host + k->weights);
    for (int64_t i = 0; i < (int64_t)p->columns * p->batches * p->w_row; i++)
        if ((bits[i] & 0x7f800000) != 0x7f800000) bits[i] = (bits[i] + 0x1000) & ~0x1fffu;
}

pare_status pare_cuda_prepack_close(pare_prep *prep, pare_cuda_prepared *s, pare_cuda_prepack *k,
                                    const pare_cuda_constants *c)
{
    bool biased = c->at.bias >= 0;
    bias_pack(k, pare_operand(prep->in, prep->in_count, c->at.bias), c->channels);
    if (c->scale) memcpy(k->host + k->scale, c->scale, (size_t)c->channels * sizeof *c->scale);
    if (c->int8) {
        shift_pack(k, &s->p, c->x_zero);
        s->p.fill = (uint32_t)(c->x_zero & 0xff) * 0x01010101u;
        if (biased) biased = !bias_fold(k, &s->p, c->x_zero);
    }
    patch_pack(k, &s->p);
    if (s->p.x_type == PARE_f32 && prep->device->tf32 && pare_cuda_by_chunks(&s->p)) {
        rows_round(k, &s->p);
        s->launch = pare_cuda_gemm_tf32_tiles_launch;
    }
    if (k->sparse) rows_compress(k, &s->p);
    if (k->wgmma && !k->sparse) rows_permute(k, &s->p);
    if (k->wgmma && c->scale) columns_join(k, s->p.columns, biased);
    prep->packed = ~1u;
    if (c->at.residual >= 0) prep->packed &= ~(1u << c->at.residual);
    PARE_TRY(block_upload(prep, s, k, c, biased));
    prep->state = s;
    return PARE_OK;
}

pare_status pare_cuda_prepared_new(pare_prep *prep, const pare_cuda_gemm_args *p,
                                   pare_cuda_prepared **out)
{
    pare_cuda_prepared *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->p = *p;
    pare_cuda_lot_set(&s->p);
    s->residual = s->bias = -1;
    s->device = prep->device;
    *out = s;
    return PARE_OK;
}

pare_epilogue pare_cuda_epilogue_of(const pare_prep *prep, bool bytes, const pare_act *act,
                                    const pare_epilogue *e, int residual)
{
    if (bytes) return *e;
    return (pare_epilogue){.act = *act,
                           .z_type = residual < 0 ? PARE_NOTYPE : prep->in[residual].dtype};
}

void pare_cuda_epilogue_set(const pare_prep *prep, pare_cuda_prepared *s, bool bytes,
                            const pare_act *act, const pare_epilogue *e, int residual)
{
    s->residual = residual;
    s->p.epilogue = pare_cuda_epilogue_of(prep, bytes, act, e, residual);
}

/* --- tiles --- */

static int64_t blocks_of(const pare_cuda_gemm_args *p, int rows, int columns)
{
    return (p->rows + rows - 1) / rows * ((p->columns + columns - 1) / columns) * p->batches;
}

bool pare_cuda_tile_fits(const pare_cuda_gemm_args *p, pare_cuda_tiling tile)
{
    if (!pare_cuda_by_chunks(p) && !pare_cuda_by_pieces(p)) return false;
    switch (tile) {
    case PARE_CUDA_128X128: return p->columns > 64 && blocks_of(p, 128, 128) >= PROCESSORS / 2;
    case PARE_CUDA_128X64: return blocks_of(p, 128, 64) >= PROCESSORS / 2;
    default: return true;
    }
}

pare_cuda_tiling pare_cuda_tile_best(const pare_cuda_gemm_args *p)
{
    return pare_cuda_tile_fits(p, PARE_CUDA_128X128)  ? PARE_CUDA_128X128
           : pare_cuda_tile_fits(p, PARE_CUDA_128X64) ? PARE_CUDA_128X64
                                                      : PARE_CUDA_64X64;
}

int pare_cuda_splits_of(const pare_cuda_gemm_args *p)
{
    int64_t bytes = (int64_t)p->depth * pare_cuda_bytes(p->x_type);
    int64_t steps = (bytes + PARE_CUDA_STEP - 1) / PARE_CUDA_STEP;
    int64_t blocks = blocks_of(p, 64, 64), splits = blocks ? PROCESSORS / blocks : 1;
    if (splits > MOST_SPLITS) splits = MOST_SPLITS;
    if (splits > steps / LEAST_STEPS) splits = steps / LEAST_STEPS;
    if (p->x_type == PARE_f32 || p->batches * splits > PARE_CUDA_MOST_BATCHES) return 1;
    return splits < 2 ? 1 : (int)splits;
}

bool pare_cuda_splits_fit(const pare_prep *prep, const pare_cuda_gemm_args *p)
{
    return (!prep->deterministic || pare_type_is_int8(p->x_type)) && pare_cuda_splits_of(p) > 1;
}

bool pare_cuda_sparse_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                           pare_cuda_tiling tile)
{
    return p->x_type != PARE_f32 && !pare_type_is_f8(p->x_type) && pare_cuda_by_chunks(p) &&
           p->batches == 1 && (!prep->deterministic || pare_type_is_int8(p->x_type)) &&
           pare_cuda_tile_fits(p, tile);
}

void pare_cuda_splits_set(pare_prep *prep, pare_cuda_prepared *s, int splits)
{
    s->p.splits = splits;
    s->partial = prep->scratch;
    if (splits > 1)
        prep->scratch += pare_align_up((size_t)splits * (size_t)s->p.batches * (size_t)s->p.rows *
                                           (size_t)s->p.columns * 4,
                                       256);
}

pare_status pare_cuda_gemm_run(const pare_call *c)
{
    const pare_cuda_prepared *s = c->state;
    pare_cuda_gemm_args p = s->p;
    p.x = c->in[0].data;
    p.y = c->out[0].data;
    p.z = s->residual < 0 ? NULL : c->in[s->residual].data;
    if (s->bias >= 0) p.bias = c->in[s->bias].data;
    if (s->widened) {
        pare_cuda_widen w = s->widen;
        w.from = p.x;
        p.x = w.to = (char *)c->scratch + s->wide;
        PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_widen_launch, &w));
    }
    if (p.splits > 1) p.partial = (char *)c->scratch + s->partial;
    if (s->launch)
        return pare_cuda_launched(c, s->launch(&p, pare_cuda_stream(c->stream)), "a product");
    if (s->meta)
        return pare_cuda_launched(c, s->sparse(&p, s->meta, pare_cuda_stream(c->stream)),
                                  "a product");
    return PARE_CUDA_LAUNCH(c, pare_cuda_gemm_launch, &p);
}

void pare_cuda_gemm_release(void *state)
{
    pare_cuda_prepared *s = state;
    if (s) s->device->backend->free(s->device, s->block);
}
