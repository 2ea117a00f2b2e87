/* SPDX-License-Identifier: Apache-2.0 */
/* Conv, FusedConv and ConvTranspose with constant weights as implicit products: kernels of
   gemm.h, one entry a tile. A transposed convolution that conv_tile.cu does not take gathers: each
   tap of an output position reads the input position that would have spread to it, where there is
   one. */
#include "runtime/base/size.h"
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/conv/conv_stem.h"
#include "runtime/cuda/gemm/gemm_f32_tiles.h"
#include "runtime/cuda/gemm/sparse.h"
#include "runtime/cuda/gemm/tcgen.h"
#include "runtime/cuda/gemm/wgmma_swap.h"

#include <string.h>

/* Strides of the last two axes; a missing one is 0. */
void pare_cuda_plane_strides(const pare_view *v, int64_t *row, int64_t *pixel)
{
    const int last = v->rank - 1;
    const bool one = v->dim[last] == 1 && (v->rank < 4 || v->dim[2] == 1);
    *pixel = v->stride[one ? 0 : last];
    *row = v->rank < 4 ? 0 : v->stride[one ? 0 : 2];
}

bool pare_cuda_pixels_are_even(const pare_view *v)
{
    const int64_t width = v->dim[v->rank - 1], height = v->rank > 3 ? v->dim[2] : 1;
    int64_t row, pixel;
    pare_cuda_plane_strides(v, &row, &pixel);
    return (height == 1 || row == width * pixel) &&
           (v->dim[0] == 1 || v->stride[0] == height * width * pixel);
}

pare_cuda_conv_parts pare_cuda_conv_parts_of(const pare_prep *p)
{
    if (!strcmp(p->node->op_type, "ConvGradWeight"))
        return (pare_cuda_conv_parts){PARE_CUDA_CONV_DW, &p->in[1], &p->in[0], &p->out[0]};
    if (!strcmp(p->node->op_type, "ConvGradInput") || !strcmp(p->node->op_type, "ConvTranspose"))
        return (pare_cuda_conv_parts){PARE_CUDA_CONV_DX, &p->out[0], &p->in[0], &p->in[1]};
    return (pare_cuda_conv_parts){PARE_CUDA_CONV_Y, &p->in[0], &p->out[0], &p->in[1]};
}

static bool type_fits(pare_dtype type, pare_dtype of) { return type == of || type == PARE_f32; }

bool pare_cuda_conv_ends_fit(const pare_prep *p)
{
    pare_act act;
    const pare_dtype type = p->in[0].dtype;
    const pare_view *bias = pare_operand(p->in, p->in_count, PARE_CUDA_CONV_BIAS);
    if (p->in[1].data && !strcmp(p->node->op_type, "FusedConv")) return false;
    for (int i = PARE_CUDA_CONV_BIAS + 1; i < p->in_count; i++)
        if (pare_operand(p->in, p->in_count, i)) return false;
    return pare_cuda_readable(p, pare_act_read(p->node, &act)) && act.kind == PARE_ACT_NONE &&
           type_fits(p->out[0].dtype, type) && (!bias || type_fits(bias->dtype, type));
}

pare_status pare_cuda_conv_window(const pare_prep *p, pare_window *out)
{
    const pare_cuda_conv_parts a = pare_cuda_conv_parts_of(p);
    const bool transposed = !strcmp(p->node->op_type, "ConvTranspose");
    const pare_view *read = transposed ? a.y : a.x;
    pare_shape shape = {.rank = read->rank};
    memcpy(shape.dim, read->dim, sizeof shape.dim);
    if (!transposed) return pare_window_read(p->node, &shape, a.w->dim + 2, out);
    PARE_TRY(pare_window_read_transposed(p->node, &shape, a.w->dim + 2, out));
    for (int i = 0; i < 3; i++) { /* of the convolution whose gradient it is */
        const int64_t in = out->in[i];
        out->in[i] = out->out[i];
        out->out[i] = in;
    }
    return PARE_OK;
}

/* Are channels together, and do other axes begin at chunks of `lot` elements? */
static bool picture_fits(const pare_view *v, int lot, int64_t stride[3])
{
    static const int axis[3] = {0, 2, 3};
    bool fits = v->rank == 4 && v->dim[1] % lot == 0 && v->stride[1] == 1;
    for (int i = 0; i < 3 && fits; i++) {
        stride[i] = v->dim[axis[i]] == 1 ? 0 : v->stride[axis[i]];
        fits = v->dim[axis[i]] > 0 && stride[i] % lot == 0;
    }
    return fits && (double)v->dim[0] * (double)v->dim[2] * (double)v->dim[3] < INT32_MAX / 2;
}

static bool is_row_major(const pare_view *v)
{
    int64_t count = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->dim[i] != 1 && v->stride[i] != count) return false;
        count *= v->dim[i];
    }
    return count > 0 && count <= INT32_MAX / 8;
}

/* Do 32 bits hold the bytes from a window's first tap to its last? */
static bool taps_fit(const pare_window *w, const int64_t stride[3])
{
    double bytes = 0;
    for (int i = 1; i < 3; i++) {
        if (w->stride[i] > INT16_MAX || w->begin[i] > INT16_MAX || w->begin[i] < -INT16_MAX ||
            w->dilation[i] > INT16_MAX)
            return false;
        bytes += (double)(w->kernel[i] * w->dilation[i]) * (double)stride[i] * sizeof(float);
    }
    return bytes <= INT32_MAX / 2;
}

bool pare_cuda_conv_shape_read(const pare_prep *p, pare_cuda_conv_shape *s)
{
    const pare_cuda_conv_parts a = pare_cuda_conv_parts_of(p);
    const int lot = pare_cuda_can_float(p, 2) ? PARE_CUDA_CHUNK / pare_cuda_bytes(a.x->dtype) : 0;
    if (!lot || !pare_cuda_conv_ends_fit(p) || a.w->rank != 4 || !is_row_major(a.w) ||
        (a.makes != PARE_CUDA_CONV_DW && p->out[0].dtype != p->in[0].dtype) ||
        !picture_fits(a.x, lot, s->x) || !picture_fits(a.y, lot, s->y) ||
        !pare_cuda_readable(p, pare_cuda_conv_window(p, &s->win)))
        return false;
    s->images = (int)a.x->dim[0];
    s->channels = (int)a.w->dim[1], s->filters = (int)a.w->dim[0];
    s->taps = (int)(a.w->dim[2] * a.w->dim[3]);
    return s->win.group == 1 && s->taps <= PARE_CUDA_MOST_TAPS && s->channels == a.x->dim[1] &&
           s->filters == a.y->dim[1] && taps_fit(&s->win, s->x) && taps_fit(&s->win, s->y) &&
           s->win.out[1] == a.y->dim[2] && s->win.out[2] == a.y->dim[3];
}

int pare_cuda_conv_kind(const pare_prep *p)
{
    const pare_dtype type = p->in[0].dtype;
    return type == PARE_f32 && p->device->tf32 ? PARE_CUDA_TF32 : (int)type;
}

/* A window of one pixel that visits each in turn reads a matrix: no position to work out. */
static bool is_matrix(const pare_window *w, const pare_cuda_picture *in)
{
    bool whole = w->kernel[1] == 1 && w->kernel[2] == 1;
    for (int i = 1; i < 3; i++)
        whole = whole && w->stride[i] == 1 && w->begin[i] == 0 && w->out[i] == w->in[i];
    return whole && (in->height == 1 || in->row == in->width * in->pixel) &&
           in->image == (int64_t)in->height * in->width * in->pixel;
}

/* Of windows that never leave a picture of dense pixels, a line is one tap of all its channels,
   where that lets it be copied by chunks. */
static void lines_merge(const pare_prep *prep, const pare_conv_args *a, pare_cuda_gemm_args *p)
{
    const pare_window *w = &a->win;
    pare_cuda_picture *in = &p->in;
    const int64_t distances[] = {a->cg * w->kernel[2], in->pixel * w->stride[2], in->row,
                                 in->image};
    if (p->copy == PARE_CUDA_CHUNK || pare_node_is(prep->node, "ConvTranspose") || w->group > 1 ||
        w->dilation[2] > 1 || w->begin[2] != 0 || in->pixel != a->cg ||
        (w->out[2] - 1) * w->stride[2] + w->kernel[2] > w->in[2] ||
        pare_cuda_copy_of(p->x_type, distances, 4) != PARE_CUDA_CHUNK)
        return;
    in->channels = (int)(a->cg * w->kernel[2]);
    in->kernel_width = 1;
    p->copy = PARE_CUDA_CHUNK;
}

/* What tiles need to copy patches by chunks, where they can. */
static void taps_set(pare_cuda_gemm_args *p)
{
    pare_cuda_picture *in = &p->in;
    const int bytes = pare_cuda_bytes(p->x_type);
    const int64_t row = in->row * in->dilation[0] * bytes,
                  pixel = in->pixel * in->dilation[1] * bytes;
    const int64_t taps = in->channels ? p->depth / in->channels : 0,
                  lines = in->kernel_width ? taps / in->kernel_width : 0;
    in->taps = 0;
    in->by_width = pare_cuda_fast_divisor_of(in->out_width);
    in->by_height = pare_cuda_fast_divisor_of(in->out_height);
    if (taps < 1 || taps > PARE_CUDA_MOST_TAPS || p->rows > INT32_MAX - 256 || in->transposed ||
        lines * row + in->kernel_width * pixel > INT32_MAX)
        return;
    in->taps = (int)taps;
}

void pare_cuda_picture_set(const pare_prep *prep, const pare_conv_args *a, pare_cuda_gemm_args *p)
{
    const pare_view *x = &prep->in[0], *y = &prep->out[0];
    const pare_window *w = &a->win;
    pare_cuda_picture *in = &p->in;
    int64_t unused;
    pare_cuda_gemm_init(p, x->dtype, y->dtype);
    in->height = (int)w->in[1], in->width = (int)w->in[2], in->channels = (int)a->cg;
    in->out_height = (int)w->out[1], in->out_width = (int)w->out[2];
    in->kernel_width = (int)w->kernel[2];
    for (int i = 0; i < 2; i++) {
        in->stride[i] = (int)w->stride[1 + i];
        in->dilation[i] = (int)w->dilation[1 + i];
        in->begin[i] = (int)w->begin[1 + i];
    }
    in->image = x->stride[0];
    pare_cuda_plane_strides(x, &in->row, &in->pixel);
    pare_cuda_plane_strides(y, &unused, &p->y_row);
    p->picture = !is_matrix(w, in);
    p->x_row = in->pixel;
    p->rows = a->n * w->out[1] * w->out[2];
    p->columns = (int)a->mg;
    p->depth = (int)(a->cg * w->kernel[1] * w->kernel[2]);
    p->w_row = pare_cuda_pitch(p->depth, p->x_type);
    p->constants = (int)a->mg;
    int64_t apart = a->cg * x->stride[1];
    pare_cuda_batch_set(p, w->group, a->mg * y->stride[1], apart, a->mg * p->w_row);
    int64_t distances[] = {a->cg, in->pixel, in->row, in->image, w->group > 1 ? apart : 0};
    p->copy = pare_cuda_copy_of(p->x_type, distances, 5);
    lines_merge(prep, a, p);
    taps_set(p);
}

/* Do 32 bits hold the window and the picture, and a grid the filters? */
static bool counts_fit(const pare_conv_args *a)
{
    enum { MOST = INT32_MAX / 4 };
    const pare_window *w = &a->win;
    bool fit = pare_cuda_gemm_counts(a->mg, a->cg) && w->group <= PARE_CUDA_MOST_BATCHES;
    for (int i = 1; i < 3; i++)
        fit = fit && w->in[i] <= MOST && w->out[i] <= MOST && w->kernel[i] <= MOST &&
              w->stride[i] <= MOST && w->dilation[i] <= MOST && w->begin[i] <= MOST &&
              w->begin[i] >= -MOST;
    return fit && (double)a->cg * (double)w->kernel[1] * (double)w->kernel[2] <= INT32_MAX / 8;
}

/* Is Y dense enough that its pixels are rows one after the other? */
bool pare_cuda_places_fit(const pare_prep *prep, const pare_conv_args *a)
{
    const pare_view *x = &prep->in[0], *y = &prep->out[0];
    return pare_cuda_pixels_are_even(y) && (a->cg == 1 || x->stride[1] == 1) &&
           (a->m == 1 || y->stride[1] == 1) && counts_fit(a);
}

/* Reads a node that a tile can compute. */
bool pare_cuda_conv_read(const pare_prep *prep, pare_conv_args *a, pare_cuda_gemm_args *p)
{
    const pare_view *x = &prep->in[0];
    if (!pare_cuda_weights_fit(prep) || x->rank < 3 || x->rank > 4) return false;
    if (!pare_cuda_readable(prep, pare_conv_args_read(prep, a))) return false;
    if (!pare_cuda_places_fit(prep, a) || !pare_cuda_bias_fits(prep, a->at.bias, a->m) ||
        !pare_cuda_residual_fits(prep, a->at.residual) ||
        (!a->int8 && !a->f8 && a->at.w_scale >= 0))
        return false;
    pare_cuda_picture_set(prep, a, p);
    return true;
}

void pare_cuda_filters_pack(const pare_view *w, const pare_conv_args *a, const pare_cuda_prepack *k,
                            const pare_cuda_gemm_args *p)
{
    int64_t row, pixel;
    pare_cuda_plane_strides(w, &row, &pixel);
    for (int64_t m = 0; m < a->m; m++) {
        int64_t at = 0;
        for (int64_t h = 0; h < a->win.kernel[1]; h++)
            for (int64_t l = 0; l < a->win.kernel[2]; l++, at += a->cg)
                pare_cuda_row_pack(k, p, m, at, w, m * w->stride[0] + h * row + l * pixel,
                                   w->stride[1], a->cg);
    }
}

void pare_cuda_stem_pack(const pare_view *w, const pare_conv_args *a, const pare_cuda_prepack *k,
                         const pare_cuda_gemm_args *p, int64_t line)
{
    int64_t row, pixel;
    pare_cuda_plane_strides(w, &row, &pixel);
    for (int64_t m = 0; m < a->m; m++)
        for (int64_t h = 0; h < a->win.kernel[1]; h++)
            for (int64_t l = 0; l < a->win.kernel[2]; l++)
                pare_cuda_row_pack(k, p, m, h * line + l * PARE_CUDA_STEM_CHANNELS, w,
                                   m * w->stride[0] + h * row + l * pixel, w->stride[1], a->cg);
}

static void stem_set(const pare_conv_args *a, pare_cuda_gemm_args *p)
{
    p->depth = (int)a->win.kernel[1] * PARE_CUDA_STEM_LINE;
    p->w_row = pare_cuda_pitch(p->depth, p->x_type);
    pare_cuda_stem_tiles(p);
}

static bool stem_fits(const pare_prep *prep, const pare_conv_args *a, const pare_cuda_gemm_args *p)
{
    const pare_window *w = &a->win;
    pare_cuda_gemm_args q = *p;
    if (p->copy == 16 || p->x_type == PARE_f32 || a->f8 || w->group > 1 ||
        a->cg > PARE_CUDA_STEM_CHANNELS || w->dilation[1] > 1 || w->dilation[2] > 1 ||
        w->kernel[1] > PARE_CUDA_MOST_TAPS || w->kernel[2] > PARE_CUDA_STEM_WINDOW ||
        a->at.residual >= 0 || p->rows <= 0 || p->rows > INT32_MAX ||
        p->y_row * pare_cuda_bytes(p->y_type) % PARE_CUDA_CHUNK)
        return false;
    stem_set(a, &q);
    q.epilogue =
        pare_cuda_epilogue_of(prep, a->int8 || a->f8, &a->act, &a->epilogue, a->at.residual);
    return pare_cuda_stem_takes(&q);
}

/* The others are copied to pixels of PARE_CUDA_STEM_PIXELS times PARE_CUDA_STEM_CHANNELS numbers:
   the channels of as many neighbours, which a filter's row reads as one tap. */

/* Pixels of a line from one of the copy to the next. */
static int widen_step(int stride) { return PARE_CUDA_STEM_PIXELS % stride ? 1 : stride; }

/* Pixels of a line of the copy. */
static int64_t widened_width(const pare_cuda_gemm_args *p)
{
    const pare_cuda_picture *in = &p->in;
    const int step = widen_step(in->stride[1]);
    const int64_t taps = (in->kernel_width + PARE_CUDA_STEM_PIXELS - 1) / PARE_CUDA_STEM_PIXELS;
    return (int64_t)(in->out_width - 1) * (in->stride[1] / step) +
           (taps - 1) * (PARE_CUDA_STEM_PIXELS / step) + 1;
}

/* f32 only where tiles take it then. */
static bool widened_fits(const pare_prep *prep, const pare_conv_args *a,
                         const pare_cuda_gemm_args *p)
{
    if (p->x_type == PARE_f32 && !prep->device->tf32 && !pare_cuda_f32_is_large(p)) return false;
    const int64_t across = (a->win.kernel[2] + PARE_CUDA_STEM_PIXELS - 1) / PARE_CUDA_STEM_PIXELS;
    return p->copy != 16 && a->win.group == 1 && a->cg <= PARE_CUDA_STEM_CHANNELS &&
           a->win.dilation[2] == 1 && a->win.kernel[1] * across <= PARE_CUDA_MOST_TAPS &&
           p->rows > 0 && p->rows <= INT32_MAX &&
           a->n * p->in.height * widened_width(p) <= INT32_MAX;
}

static void widened_set(pare_prep *prep, const pare_conv_args *a, pare_cuda_prepared *s)
{
    pare_cuda_gemm_args *p = &s->p;
    pare_cuda_picture *in = &p->in;
    const int stride = in->stride[1], step = widen_step(stride), width = (int)widened_width(p);
    const int taps = (in->kernel_width + PARE_CUDA_STEM_PIXELS - 1) / PARE_CUDA_STEM_PIXELS,
              bytes = pare_cuda_bytes(p->x_type);
    const int64_t pixels = a->n * in->height * width, lines = a->win.kernel[1];
    s->widened = true;
    s->widen = (pare_cuda_widen){.pixels = pixels,
                                 .image = in->image,
                                 .line = in->row,
                                 .pixel = in->pixel,
                                 .height = in->height,
                                 .width = width,
                                 .from_width = in->width,
                                 .step = step,
                                 .begin = in->begin[1],
                                 .channels = (int)a->cg,
                                 .by_width = pare_cuda_fast_divisor_of(width),
                                 .by_height = pare_cuda_fast_divisor_of(in->height),
                                 .zero = a->int8 ? (uint8_t)a->q.x_zero : 0,
                                 .bytes = bytes};
    s->wide = prep->scratch;
    prep->scratch += pare_align_up(
        (size_t)pixels * PARE_CUDA_STEM_PIXELS * PARE_CUDA_STEM_CHANNELS * (size_t)bytes, 256);
    in->width = width;
    in->stride[1] = stride / step, in->dilation[1] = PARE_CUDA_STEM_PIXELS / step, in->begin[1] = 0;
    in->kernel_width = taps;
    in->channels = PARE_CUDA_STEM_PIXELS * PARE_CUDA_STEM_CHANNELS;
    in->pixel = p->x_row = in->channels;
    in->row = (int64_t)in->channels * width;
    in->image = in->row * in->height;
    p->depth = (int)(lines * taps * in->channels);
    p->w_row = pare_cuda_pitch(p->depth, p->x_type);
    p->copy = 16;
    p->picture = true;
    taps_set(p);
    p->tile = pare_cuda_tile_best(p);
}

static pare_status conv_prepare(pare_prep *prep, pare_cuda_tiling tile, pare_cuda_way way)
{
    pare_cuda_prepared *s;
    pare_cuda_prepack k;
    pare_cuda_gemm_args p;
    pare_conv_args a;
    PARE_TRY(pare_conv_args_read(prep, &a));
    pare_cuda_picture_set(prep, &a, &p);
    p.tile = tile;
    PARE_TRY(pare_cuda_prepared_new(prep, &p, &s));
    if (way == PARE_CUDA_STEM) s->launch = pare_cuda_stem_launch;
    if (way == PARE_CUDA_STEM) stem_set(&a, &s->p);
    if (way == PARE_CUDA_WIDENED) widened_set(prep, &a, s);
    if (way == PARE_CUDA_SPLIT) pare_cuda_splits_set(prep, s, pare_cuda_splits_of(&p));
    pare_cuda_epilogue_set(prep, s, a.int8 || a.f8, &a.act, &a.epilogue, a.at.residual);
    PARE_TRY(pare_cuda_prepack_open(prep, &s->p, way, &k));
    if (way == PARE_CUDA_STEM)
        pare_cuda_stem_pack(&prep->in[1], &a, &k, &s->p, PARE_CUDA_STEM_LINE);
    else if (way == PARE_CUDA_WIDENED)
        pare_cuda_stem_pack(&prep->in[1], &a, &k, &s->p, s->p.in.kernel_width * s->p.in.channels);
    else
        pare_cuda_filters_pack(&prep->in[1], &a, &k, &s->p);
    return pare_cuda_prepack_close(prep, s, &k,
                                   &(pare_cuda_constants){a.int8, a.scale, a.q.x_zero, a.at, a.m});
}

/* One entry a tile; conv_64x64 takes whatever a product can be. */
#define CONV(entry, fits, tile, way)                                                               \
    PARE_CUDA_GEMM(entry, pare_conv_args, pare_cuda_conv_read, fits, conv_prepare, tile, way,      \
                   PARE_KERNEL_PARTS)
CONV(conv_stem, stem_fits(prep, &a, &p), PARE_CUDA_64X64, PARE_CUDA_STEM)
CONV(conv_widened, widened_fits(prep, &a, &p), PARE_CUDA_64X64,
     PARE_CUDA_WIDENED) /* tile: the best */
CONV(conv_128x128, pare_cuda_tile_fits(&p, PARE_CUDA_128X128), PARE_CUDA_128X128, PARE_CUDA_WHOLE)
CONV(conv_128x64, pare_cuda_tile_fits(&p, PARE_CUDA_128X64), PARE_CUDA_128X64, PARE_CUDA_WHOLE)
CONV(conv_split, pare_cuda_splits_fit(prep, &p), PARE_CUDA_64X64, PARE_CUDA_SPLIT)
CONV(conv_64x64, true, PARE_CUDA_64X64, PARE_CUDA_WHOLE)
CONV(conv_sparse_128x128,
     pare_cuda_sparse_fits(prep, &p, PARE_CUDA_128X128) && pare_conv_is_sparse(&prep->in[1], &a),
     PARE_CUDA_128X128, PARE_CUDA_SPARSE)
CONV(conv_sparse_64x64,
     pare_cuda_sparse_fits(prep, &p, PARE_CUDA_64X64) && pare_conv_is_sparse(&prep->in[1], &a),
     PARE_CUDA_64X64, PARE_CUDA_SPARSE)

#define WGMMA(entry, tile)                                                                         \
    CONV(entry, PARE_CUDA_RULE(pare_cuda_wgmma_fits, tile), tile, PARE_CUDA_WGMMA)
WGMMA(conv_wgmma_128x128, PARE_CUDA_128X128)
WGMMA(conv_wgmma_256x128, PARE_CUDA_256X128)
WGMMA(conv_wgmma_128x192, PARE_CUDA_128X192)
WGMMA(conv_wgmma_128x64, PARE_CUDA_128X64)
WGMMA(conv_wgmma_256x64, PARE_CUDA_256X64)
WGMMA(conv_wgmma_256x128_4wg, PARE_CUDA_256X128_4WG)

#define SWAP(entry, tile)                                                                          \
    CONV(entry, PARE_CUDA_RULE(pare_cuda_swap_fits, tile), tile, PARE_CUDA_SWAP)
SWAP(conv_wgmma_swap_32x64, PARE_CUDA_32X64)
SWAP(conv_wgmma_swap_64x64, PARE_CUDA_64X64)
SWAP(conv_wgmma_swap_128x64, PARE_CUDA_128X64)

#define TCGEN(entry, tile)                                                                         \
    CONV(entry, PARE_CUDA_RULE(pare_cuda_tcgen_fits, tile), tile, PARE_CUDA_TCGEN)
TCGEN(conv_tcgen_128x64, PARE_CUDA_128X64)
TCGEN(conv_tcgen_128x128, PARE_CUDA_128X128)
TCGEN(conv_tcgen_128x256, PARE_CUDA_128X256)

#define WGMMA_SPARSE(entry, tile)                                                                  \
    CONV(entry,                                                                                    \
         PARE_CUDA_RULE(pare_cuda_wgmma_sparse_fits, tile) &&                                      \
             pare_conv_is_sparse(&prep->in[1], &a),                                                \
         tile, PARE_CUDA_WGMMA_SPARSE)
WGMMA_SPARSE(conv_sparse_wgmma_128x128, PARE_CUDA_128X128)
WGMMA_SPARSE(conv_sparse_wgmma_256x128, PARE_CUDA_256X128)
WGMMA_SPARSE(conv_sparse_wgmma_256x64, PARE_CUDA_256X64)
WGMMA_SPARSE(conv_sparse_wgmma_4wg, PARE_CUDA_256X128_4WG)

/* The sparse ones, those of one device's instructions and the library after the dense: taken where
   a tuner measured that they are faster. */
#define CONVS                                                                                      \
    &pare_cuda_conv_depthwise, &pare_cuda_conv_direct, &conv_stem, &conv_widened, &conv_128x128,   \
        &conv_128x64, &conv_split, &conv_64x64, &conv_sparse_128x128, &conv_sparse_64x64,          \
        &conv_wgmma_128x128, &conv_wgmma_256x128, &conv_wgmma_128x192, &conv_wgmma_128x64,         \
        &conv_wgmma_256x64, &conv_wgmma_256x128_4wg, &conv_wgmma_swap_32x64,                       \
        &conv_wgmma_swap_64x64, &conv_wgmma_swap_128x64, &conv_sparse_wgmma_128x128,               \
        &conv_sparse_wgmma_256x128, &conv_sparse_wgmma_256x64, &conv_sparse_wgmma_4wg,             \
        &conv_tcgen_128x64, &conv_tcgen_128x128, &conv_tcgen_128x256, &pare_cuda_conv_lt_0,        \
        &pare_cuda_conv_lt_1, &pare_cuda_conv_lt_2, &pare_cuda_conv_lt_3
/* cuDNN before what is slow. */
const pare_kernel *const pare_cuda_conv[] = {CONVS, &pare_cuda_conv_tile, PARE_CUDA_CONV_DNN,
                                             &pare_cuda_conv_any, NULL};
const pare_kernel *const pare_cuda_fused_conv[] = {CONVS, &pare_cuda_conv_tile, PARE_CUDA_CONV_DNN,
                                                   &pare_cuda_conv_any, NULL};

/* --- ConvTranspose: W is (channels, filters of a group, kernel...) --- */

static pare_status transposed_read(const pare_prep *prep, pare_conv_args *a)
{
    const pare_view *x = &prep->in[0], *w = &prep->in[1];
    pare_shape xs = {.rank = x->rank};
    for (int i = 0; i < x->rank; i++) xs.dim[i] = x->dim[i];
    *a = (pare_conv_args){.at = {-1, -1, -1}};
    if (pare_operand(prep->in, prep->in_count, 2)) a->at.bias = 2;
    PARE_TRY(pare_window_read_transposed(prep->node, &xs, w->dim + 2, &a->win));
    a->n = x->dim[0], a->c = x->dim[1];
    a->cg = a->c / a->win.group, a->mg = w->dim[1];
    a->m = a->mg * a->win.group;
    return PARE_OK;
}

static bool transposed_can(const pare_prep *prep)
{
    pare_conv_args a;
    const pare_view *x = &prep->in[0];
    if (!pare_cuda_is_float(x->dtype) || !pare_cuda_weights_fit(prep) || x->rank < 3 || x->rank > 4)
        return false;
    return pare_cuda_readable(prep, transposed_read(prep, &a)) && pare_cuda_places_fit(prep, &a) &&
           pare_cuda_bias_fits(prep, a.at.bias, a.m);
}

static pare_status transposed_prepare(pare_prep *prep)
{
    pare_cuda_prepared *s;
    pare_cuda_prepack k;
    pare_cuda_gemm_args p;
    pare_conv_args a;
    const pare_view *w = &prep->in[1];
    int64_t row, pixel;
    PARE_TRY(transposed_read(prep, &a));
    pare_cuda_picture_set(prep, &a, &p);
    p.in.transposed = true;
    p.in.taps = 0; /* gathered */
    PARE_TRY(pare_cuda_prepared_new(prep, &p, &s));
    PARE_TRY(pare_cuda_prepack_open(prep, &p, PARE_CUDA_WHOLE, &k));
    pare_cuda_plane_strides(w, &row, &pixel);
    for (int64_t m = 0; m < a.m; m++) {
        int64_t to = 0, first = m / a.mg * a.cg * w->stride[0] + m % a.mg * w->stride[1];
        for (int64_t h = 0; h < a.win.kernel[1]; h++)
            for (int64_t l = 0; l < a.win.kernel[2]; l++, to += a.cg)
                pare_cuda_row_pack(&k, &p, m, to, w, first + h * row + l * pixel, w->stride[0],
                                   a.cg);
    }
    return pare_cuda_prepack_close(prep, s, &k,
                                   &(pare_cuda_constants){.at = a.at, .channels = a.m});
}

static const pare_kernel conv_transpose = {.name = "cuda_conv_transpose",
                                           .can = transposed_can,
                                           .prepare = transposed_prepare,
                                           .run = pare_cuda_gemm_run,
                                           .release = pare_cuda_gemm_release};
const pare_kernel *const pare_cuda_conv_transpose[] = {&pare_cuda_conv_transpose_tile,
                                                       &conv_transpose, NULL};
