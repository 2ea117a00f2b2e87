/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions with constant weights, as runtime/cuda/conv computes them: implicit products, stems
   in tiles of their own or with pixels that are widened first, depthwise strips, and groups of few
   filters one by one. */
#include "runtime/eval/roofline/internal.h"
#include "runtime/ops/sparse.h"

#include <math.h>
#include <stdio.h>

/* runtime/cuda/conv and gemm/pack.h */
enum {
    CHUNK = 16,
    PIECE = 8,
    MOST_TAPS = 32,
    FEW_FILTERS = 16,
    STEM_PIXELS = 4,
    STEM_CHANNELS = 4,
    WINDOW = 8,
    STRIP = 4
};
enum { WARP = 32, ANY_SUM = 30 };

typedef struct conv {
    const pare_roofline_maker *m;
    const pare_prep *prep;
    const pare_conv_args *a;
    pare_dtype type; /* that it multiplies in: the node's, or f16 to compare */
} conv;

static double bytes_of(pare_dtype type) { return pare_type(type)->bits / 8; }

/* Of a tensor beside X and W, in 16 bits where the types are not the node's. */
static double bytes_beside(const conv *c, const pare_view *v)
{
    if (!v) return 0;
    const bool other = c->type != c->prep->in[0].dtype;
    return (double)pare_view_count(v) * bytes_of(other ? c->type : v->dtype);
}

static double size_beside(const conv *c)
{
    return bytes_beside(c, &c->prep->out[0]) +
           bytes_beside(c, pare_operand(c->prep->in, c->prep->in_count, c->a->at.residual));
}

static double x_bytes(const conv *c)
{
    return (double)pare_view_count(&c->prep->in[0]) * bytes_of(c->type);
}

static double macs_of(const pare_conv_args *a)
{
    const pare_window *w = &a->win;
    return (double)a->n * (double)(w->out[0] * w->out[1] * w->out[2]) * (double)a->m *
           (double)a->cg * (double)(w->kernel[0] * w->kernel[1] * w->kernel[2]);
}

static bool is_matrix(const pare_window *w)
{
    bool whole = true;
    for (int i = 0; i < 3; i++)
        whole = whole && w->kernel[i] == 1 && w->stride[i] == 1 && w->out[i] == w->in[i];
    return whole;
}

/* Is a line of the window one tap of whole chunks (conv.c, lines_merge)? */
static bool lines_merge(const conv *c)
{
    const pare_window *w = &c->a->win;
    const double pixel = (double)c->a->cg * bytes_of(c->type);
    return w->group == 1 && w->dilation[2] == 1 && w->begin[2] == 0 &&
           (w->out[2] - 1) * w->stride[2] + w->kernel[2] <= w->in[2] &&
           fmod(pixel * (double)w->kernel[2], CHUNK) == 0 &&
           fmod(pixel * (double)w->stride[2], CHUNK) == 0;
}

/* Ranges of im2col maps of two window axes (gemm/wgmma.cu, picture_fits), whose corners have 8 bits
   with sign. What is outside of the picture is 0, as X's zero point must be. */
static bool im2col_takes(const conv *c)
{
    const pare_window *w = &c->a->win;
    bool stays = true;
    for (int i = 1; i < 3; i++) {
        const int64_t reach = (w->kernel[i] - 1) * w->dilation[i], begin = w->begin[i];
        const int64_t end = w->out[i] * w->stride[i] - w->in[i] - begin;
        if (w->stride[i] > 2 || w->kernel[i] > 7 || reach > 255 || begin > 128 || begin < -127 ||
            end < -128 || end > 127)
            return false;
        stays = stays && begin <= 0 && end - w->stride[i] + reach < 0;
    }
    return c->a->cg % 64 == 0 && (stays || !c->a->int8 || c->a->q.x_zero == 0);
}

static pare_gpu_product product_of(const conv *c)
{
    const pare_conv_args *a = c->a;
    const pare_window *w = &a->win;
    const double taps = (double)(w->kernel[0] * w->kernel[1] * w->kernel[2]);
    const double size = bytes_of(c->type);
    const pare_dtype z = a->at.residual < 0 ? PARE_NOTYPE : c->prep->in[a->at.residual].dtype;
    pare_gpu_product p = {.type = c->type,
                          .batches = (double)w->group,
                          .rows = (double)(a->n * w->out[0] * w->out[1] * w->out[2]),
                          .columns = (double)a->mg,
                          .depth = (double)a->cg * taps,
                          .picture = !is_matrix(w),
                          .residual = a->at.residual >= 0};
    p.plain = pare_act_clamps(&a->act) &&
              (!a->int8 || (!a->epilogue.real && (!z || pare_type_is_int8(z)))) &&
              (!pare_type_is_f8(c->type) || (!a->epilogue.real && (!z || z == c->type)));
    p.bounds = pare_type_is_int8(c->type) && pare_epilogue_bounds(&a->epilogue);
    const bool merged = p.picture && lines_merge(c), whole = fmod((double)a->cg * size, CHUNK) == 0;
    p.pieces = pare_type_is_int8(c->type) && !whole && !merged && a->cg % PIECE == 0 &&
               pare_view_nhwc(&c->prep->in[0]) && (!p.picture || taps <= MOST_TAPS);
    p.chunks = pare_view_nhwc(&c->prep->in[0]) &&
               ((whole && (!p.picture || taps <= MOST_TAPS)) || p.pieces ||
                (merged && (double)w->kernel[1] <= MOST_TAPS));
    p.narrow = a->cg % 128 != 0;
    p.gelu = a->act.kind == PARE_ACT_GELU;
    p.y = c->prep->out[0].dtype, p.z = z;
    p.wgmma = c->type != PARE_f32 &&
              (p.plain ? !p.picture || im2col_takes(c)
                       : !p.picture && pare_wgmma_ends(&p, &a->act, a->epilogue.to));
    p.sparse = p.wgmma && w->group == 1 && pare_conv_is_sparse(&c->prep->in[1], a);
    p.bytes = x_bytes(c) + (double)a->m * p.depth * size + size_beside(c);
    return p;
}

/* --- a stem --- */

/* Has it few channels, so that neighbours are put together? */
static bool is_narrow(const conv *c, const pare_gpu_product *p)
{
    return !p->chunks && c->a->win.group == 1 && c->a->cg <= STEM_CHANNELS &&
           c->a->win.dilation[2] == 1 && c->prep->in[0].rank <= 4;
}

enum { LINES = 8, PIXELS = 16 /* a tile's positions of Y */, LOT = 4 /* pixels read at once */ };

/* Lots of X that a tile reads; the first pixel of a line may be any of its lot. */
static double tile_lots(const pare_window *w)
{
    return (double)((LINES - 1) * w->stride[1] + w->kernel[1]) *
           (double)(((PIXELS - 1) * w->stride[2] + WINDOW + 2 * (LOT - 1)) / LOT);
}

/* Bytes of shared memory: 64 filters, pixels, what sums begin with, and the tile of Y. */
static double tile_room(const conv *c)
{
    enum { FILTERS = 64, TILE = LINES * PIXELS };
    const double size = bytes_of(c->type), pixel = STEM_CHANNELS * size;
    const double filter = (double)c->a->win.kernel[1] * WINDOW * pixel + CHUNK;
    return FILTERS * filter + tile_lots(&c->a->win) * LOT * pixel + 3.0 * FILTERS * sizeof(float) +
           TILE * (FILTERS + CHUNK) * size;
}

/* Has the kernel of its own (conv.c, stem_fits; conv_stem.cu), which has neither f32 nor FP8, its
   window, filters and epilogue? */
static bool is_stem(const conv *c, const pare_gpu_product *p)
{
    enum { MOST_ROOM = 96 << 10, MOST_LINES = 1024, MOST_STRIDE = 64 };
    const pare_window *w = &c->a->win;
    return is_narrow(c, p) && c->type != PARE_f32 && !pare_type_is_f8(c->type) && p->plain &&
           !p->residual && w->kernel[1] <= MOST_TAPS && w->kernel[2] <= WINDOW &&
           w->dilation[1] == 1 && c->a->m % 32 == 0 && w->stride[2] <= MOST_STRIDE &&
           w->kernel[1] + w->stride[1] * LINES <= MOST_LINES && tile_room(c) <= MOST_ROOM;
}

/* Is it copied to wider pixels first (conv.c, widened_fits)? */
static bool is_widened(const conv *c, const pare_gpu_product *p)
{
    const pare_window *w = &c->a->win;
    const double across = ceil((double)w->kernel[2] / STEM_PIXELS);
    return is_narrow(c, p) && (double)w->kernel[1] * across <= MOST_TAPS &&
           (c->type != PARE_f32 || pare_f32_takes_tiles(c->m->spec, p));
}

/* A tile of 8 lines of 16 positions brings its pixels, then sums a line of the window at a time.
   The loop that brings them is in the counts twice: for pixels of three numbers that four words
   begin at, and for all others, which it reads one by one. */
static void tiles_predict(const conv *c, const pare_gpu_product *p, pare_roofline_step *out)
{
    enum {
        WARPS = 4,
        BOTH = 310,   /* instructions of the two */
        TURN = 55,    /* of a turn of the first */
        SINGLE = 105, /* more of the second */
    };
    char name[96];
    pare_sass row;
    const pare_window *w = &c->a->win;
    const double size = bytes_of(c->type), columns = c->a->m % 64 ? 32 : 64,
                 lines = (double)w->kernel[1];
    snprintf(name, sizeof name, "_Z9stem_tileILi%dE7tile_ofILi4ELi1ELi2ELi%dEELi%dE", (int)c->type,
             (int)columns / 8, p->bounds ? 4 : 0);
    if (!pare_sass_find(c->m->counts, name, &row)) return;
    const double turns = ceil(tile_lots(w) / (WARPS * WARP)); /* of the loop that brings them */
    const bool packed = c->a->cg == 3 && w->in[2] % LOT == 0;
    const pare_gpu_grid g = {
        .blocks = (double)c->a->n * ceil((double)w->out[1] / LINES) *
                  ceil((double)w->out[2] / PIXELS) * (double)c->a->m / columns,
        .resident = row.blocks,
        .warps = WARPS,
        .ahead = row.all - row.loop - row.behind - BOTH + turns * (TURN + (packed ? 0 : SINGLE)),
        .steps = lines,
        .step = row.loop,
        .behind = row.behind,
        .tensor = 2 * columns / 8 * 16 * 8 * 32,
        .reached = c->m->spec->reached,
        .rate = PARE_MMA_SYNC * (size == 1 ? c->m->spec->macs_s8 : c->m->spec->macs_f16),
        /* words of 128 bytes a warp, ldmatrix of 512 */
        .shared = WARPS * size * (2 * 4 * 128 + columns / 16 * 512)};
    const double bytes =
        x_bytes(c) + (double)c->a->m * lines * WINDOW * STEM_CHANNELS * size + size_beside(c);
    pare_step_close(c->m->spec, pare_gpu_grid_seconds(c->m->spec, &g, out), bytes, out);
    snprintf(out->kernel, sizeof out->kernel, "conv_stem");
    out->known = true;
}

/* Pixels are copied to lots of STEM_PIXELS neighbours of STEM_CHANNELS; then one tap is a lot. */
static void widened_predict(const conv *c, pare_gpu_product *p, pare_roofline_step *out)
{
    const pare_window *w = &c->a->win;
    const double across = ceil((double)w->kernel[2] / STEM_PIXELS), size = bytes_of(c->type);
    const double step = STEM_PIXELS % w->stride[2] ? 1 : (double)w->stride[2];
    const double width = (double)(w->out[2] - 1) * ((double)w->stride[2] / step) +
                         (across - 1) * (STEM_PIXELS / step) + 1;
    const double lot = STEM_PIXELS * STEM_CHANNELS;
    const double wide = (double)(c->a->n * w->in[1]) * width * lot * size;
    p->picture = p->chunks = true;
    p->wgmma = false;
    p->depth = (double)w->kernel[1] * across * lot;
    p->bytes = wide + (double)c->a->m * p->depth * size + size_beside(c);
    pare_bytes_add(c->m->spec, x_bytes(c) + wide, out);
    pare_product_predict(c->m->spec, c->m->counts, "conv_widened", p, out);
}

/* --- groups of few filters --- */

static const char *word_of(pare_dtype type)
{
    return type == PARE_s8       ? "a"
           : type == PARE_u8     ? "h"
           : type == PARE_f8e4m3 ? "7f8_codeILb0EE"
           : type == PARE_f8e5m2 ? "7f8_codeILb1EE"
           : type == PARE_f16    ? "6__half"
           : type == PARE_f32    ? "f"
                                 : "13__nv_bfloat16";
}

static bool is_strip(const pare_conv_args *a)
{
    const pare_window *w = &a->win;
    const int64_t k = w->kernel[2], s = w->stride[2];
    return a->cg == 1 && a->mg == 1 && a->m % 4 == 0 && w->kernel[1] == k && (k == 3 || k == 5) &&
           w->stride[1] == s && s <= 2 && w->dilation[1] == 1 && w->dilation[2] == 1;
}

/* A thread makes four channels of STRIP neighbours. Its count has one line of taps and one output,
   whose loops turn: for each tap of a line a load with a conversion for each of four channels, for
   each pixel bounds, a load and conversions, and the multiply-adds. */
static void strip_predict(const conv *c, double bytes, pare_roofline_step *out)
{
    char name[96];
    pare_sass row;
    const pare_window *w = &c->a->win;
    const double k = (double)w->kernel[2], s = (double)w->stride[2], pixels = (STRIP - 1) * s + k;
    snprintf(name, sizeof name, "_Z15depthwise_stripI%sLi%dELi%dEE", word_of(c->type), (int)k,
             (int)s);
    if (!pare_sass_find(c->m->counts, name, &row)) return;
    const double line = 5 * k + 8 * pixels + 4 * STRIP * k;
    const double each = row.loop + (k - 1) * line + (STRIP - 1) * 4 * ANY_SUM;
    const double places =
        (double)(c->a->n * w->out[1]) * ceil((double)w->out[2] / STRIP) * (double)c->a->m / 4;
    pare_step_close(c->m->spec, pare_issue_seconds(c->m->spec, places / WARP * each), bytes, out);
    snprintf(out->kernel, sizeof out->kernel, "conv_depthwise");
    out->known = true;
}

static void direct_predict(const conv *c, double bytes, pare_roofline_step *out)
{
    char name[96];
    pare_sass row;
    const int lot = c->a->cg == 1 && c->a->mg == 1 && c->a->m % 4 == 0 ? 4 : 1;
    snprintf(name, sizeof name, "_Z11direct_eachI%sLi%dEE", word_of(c->type), lot);
    if (!pare_sass_find(c->m->counts, name, &row)) return;
    const double instructions = macs_of(c->a) / lot / WARP * row.loop;
    pare_step_close(c->m->spec, pare_issue_seconds(c->m->spec, instructions), bytes, out);
    snprintf(out->kernel, sizeof out->kernel, "conv_direct");
    out->known = true;
}

static void predict(const conv *c, pare_roofline_step *out)
{
    pare_gpu_product p = product_of(c);
    if (c->a->win.group > 1 && c->a->mg < FEW_FILTERS && c->prep->in[0].rank <= 4) {
        if (is_strip(c->a))
            strip_predict(c, p.bytes, out);
        else
            direct_predict(c, p.bytes, out);
    } else if (is_stem(c, &p)) {
        tiles_predict(c, &p, out);
    } else if (is_widened(c, &p)) {
        widened_predict(c, &p, out);
    } else {
        pare_product_predict(c->m->spec, c->m->counts, "conv", &p, out);
    }
}

pare_status pare_conv_predict(const pare_roofline_maker *m, const pare_prep *prep,
                              pare_roofline_step *out, bool *read)
{
    pare_conv_args a;
    pare_roofline_step half = {0};
    const pare_status st = pare_conv_args_read(prep, &a);
    *read = st == PARE_OK && prep->in[1].data;
    if (!*read) return st;
    predict(&(conv){m, prep, &a, prep->in[0].dtype}, out);
    out->dtype = prep->in[0].dtype;
    if ((!a.int8 && !a.f8) || !out->known) return PARE_OK;
    predict(&(conv){m, prep, &a, PARE_f16}, &half);
    out->seconds_f16 = half.seconds;
    return PARE_OK;
}
