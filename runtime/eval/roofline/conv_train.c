/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions whose weights are computed, both gradients and transposed convolutions, as
   runtime/cuda/conv/conv_tile.cu and conv_grad_weight.cu compute them: products in tiles by
   mma.sync, of f32 by plain multiply-adds. What these files leave to the kernel for every case
   stays unknown. */
#include "runtime/eval/roofline/internal.h"

#include <math.h>
#include <stdio.h>

/* Of those files: tiles that fill a device, the most classes and taps, steps of a split and most
   splits; bytes of depth a step and of a copy; instructions that store a chunk of Y. */
enum {
    FULL = 132,
    MOST_CLASSES = 4,
    MOST_TAPS = 32,
    LEAST_STEPS = 8,
    MOST_SPLITS = 64,
    STEP = 64,
    CHUNK = 16,
    STORE = 30
};

static const struct tile {
    int rows, columns, tm, tn;
    const char *name;
} tiles[2][2] = {{{64, 64, 2, 4, "64x64"}, {64, 128, 2, 8, "64x128"}},
                 {{128, 64, 4, 4, "128x64"}, {128, 128, 4, 8, "128x128"}}};

/* Sizes of the product: of dX `classes` of `rows` positions each, of taps / classes in the mean. */
typedef struct train {
    pare_op_id op;
    pare_dtype type;
    double size, lot; /* bytes of a number, numbers of a chunk */
    double channels, filters, taps, classes, rows, columns, depth;
} train;

static double places(const pare_view *v)
{
    return (double)v->dim[0] * (double)v->dim[2] * (double)v->dim[3];
}

/* Is X made? A transposed convolution's result is the X of the convolution that it reverses. */
static bool makes_x(pare_op_id op)
{
    return op == PARE_OP_ConvGradInput || op == PARE_OP_ConvTranspose;
}

/* The views of X, Y and W, whichever of them the node makes. */
static void views_of(const pare_prep *prep, pare_op_id op, const pare_view *v[3])
{
    v[0] = makes_x(op) ? &prep->out[0] : &prep->in[op == PARE_OP_ConvGradWeight];
    v[1] = op == PARE_OP_Conv ? &prep->out[0] : &prep->in[0];
    v[2] = op == PARE_OP_ConvGradWeight ? &prep->out[0] : &prep->in[1];
}

static bool is_float(pare_dtype type)
{
    return type == PARE_f32 || type == PARE_f16 || type == PARE_bf16;
}

static pare_status window_read(const pare_prep *prep, pare_op_id op, const pare_view *v[3],
                               pare_window *w)
{
    const bool transposed = op == PARE_OP_ConvTranspose;
    const pare_view *read = v[transposed];
    pare_shape shape = {.rank = read->rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = read->dim[i];
    return transposed ? pare_window_read_transposed(prep->node, &shape, v[2]->dim + 2, w)
                      : pare_window_read(prep->node, &shape, v[2]->dim + 2, w);
}

static bool train_read(const pare_prep *prep, pare_op_id op, train *t)
{
    const pare_view *v[3];
    pare_window w;
    views_of(prep, op, v);
    if (v[0]->rank != 4 || v[2]->rank != 4 || !is_float(v[0]->dtype) ||
        prep->in[1].dtype != prep->in[0].dtype || !pare_view_nhwc(v[0]) || !pare_view_nhwc(v[1]) ||
        window_read(prep, op, v, &w) != PARE_OK || w.group != 1)
        return false;
    const double strides = (double)(w.stride[1] * w.stride[2]);
    *t = (train){.op = op,
                 .type = v[0]->dtype,
                 .size = pare_type(v[0]->dtype)->bits / 8.0,
                 .channels = (double)v[2]->dim[1],
                 .filters = (double)v[2]->dim[0],
                 .taps = (double)(v[2]->dim[2] * v[2]->dim[3]),
                 .classes = 1};
    t->lot = CHUNK / t->size;
    if (fmod(t->channels, t->lot) != 0 || fmod(t->filters, t->lot) != 0 || t->taps > MOST_TAPS)
        return false;
    if (makes_x(op)) {
        t->classes = strides, t->columns = t->channels;
        t->rows = (double)v[0]->dim[0] * ceil((double)v[0]->dim[2] / (double)w.stride[1]) *
                  ceil((double)v[0]->dim[3] / (double)w.stride[2]);
        t->depth = t->filters * t->taps / strides;
        return strides <= MOST_CLASSES;
    }
    const bool weight = op == PARE_OP_ConvGradWeight;
    t->rows = weight ? t->filters : places(v[1]);
    t->columns = weight ? t->channels * t->taps : t->filters;
    t->depth = weight ? places(v[1]) : t->channels * t->taps;
    return true;
}

static double blocks_of(const train *t, double rows, double columns)
{
    return ceil(t->rows / rows) * ceil(t->columns / columns) * t->classes;
}

static bool fills(const train *t, double columns)
{
    return t->classes * floor(t->rows / 128) * ceil(t->columns / columns) >= FULL;
}

static const struct tile *tile_of(const train *t)
{
    const bool wide = t->columns > 64;
    if (t->op == PARE_OP_ConvGradWeight) return &tiles[t->rows > 64][wide];
    return wide && fills(t, 128) ? &tiles[1][1] : &tiles[fills(t, 64)][0];
}

static double splits_of(const train *t, const struct tile *tile)
{
    const int resident = tile->tm * tile->tn > 16 ? 2 : tile->tm * tile->tn == 16 ? 3 : 4;
    if (t->op != PARE_OP_ConvGradWeight) return 1;
    const double wanted = floor(FULL * resident / blocks_of(t, tile->rows, tile->columns)),
                 most = floor(floor(t->depth * t->size / STEP) / LEAST_STEPS);
    return fmax(1, fmin(fmin(wanted, most), MOST_SPLITS));
}

/* Instructions of a warp and step. */
static double step_of(const train *t, const struct tile *tile, const pare_sass *row)
{
    if (t->type == PARE_f32) return pare_fma_step(row, tile->tm, tile->tn);
    return row->loop / (row->mma / (2 * tile->tm * tile->tn));
}

static bool grid_of(const pare_roofline_maker *m, const train *t, const struct tile *tile,
                    double splits, pare_gpu_grid *g)
{
    char name[96];
    pare_sass row;
    const bool weight = t->op == PARE_OP_ConvGradWeight, halves = t->type != PARE_f32;
    snprintf(name, sizeof name, "_Z%sILi%dE7tile_ofILi2ELi2ELi%dELi%dEE",
             weight ? "16conv_grad_weight" : "9conv_tile", (int)t->type, tile->tm, tile->tn);
    if (!pare_sass_find(m->counts, name, &row)) return false;
    const double chunks = tile->rows * tile->columns * t->size / CHUNK / 128;
    const double tensor = 2.0 * tile->tm * tile->tn * 16 * 8 * 16;
    *g = (pare_gpu_grid){.blocks = blocks_of(t, tile->rows, tile->columns) * splits,
                         .resident = row.blocks,
                         .warps = 4,
                         .ahead = row.all - row.loop - row.behind,
                         .steps = ceil(ceil(t->depth * t->size / STEP) / splits),
                         .step = step_of(t, tile, &row),
                         .behind = row.behind + (weight ? 0 : (chunks - 1) * STORE),
                         .tensor = halves ? tensor : 0,
                         .rate = PARE_MMA_SYNC * m->spec->macs_f16,
                         .reached = m->spec->reached,
                         .shared = 4 * 2 * (tile->tm + tile->tn / 2) * 512 +
                                   (tile->rows + tile->columns) * STEP};
    return true;
}

bool pare_conv_train_predict(const pare_roofline_maker *m, const pare_prep *prep, pare_op_id op,
                             pare_roofline_step *out)
{
    train t;
    pare_gpu_grid g;
    if (!train_read(prep, op, &t)) return false;
    const struct tile *tile = tile_of(&t);
    const double splits = splits_of(&t, tile), weights = t.channels * t.filters * t.taps;
    const bool weight = op == PARE_OP_ConvGradWeight;
    if (!grid_of(m, &t, tile, splits, &g)) return false;
    const double part = weight ? splits * weights * sizeof(float) : 0;
    pare_step_close(m->spec, pare_gpu_grid_seconds(m->spec, &g, out), pare_prep_bytes(prep) + part,
                    out);
    if (weight) /* splits are added up */
        pare_bytes_add(m->spec, part, out);
    else if (makes_x(op) || t.taps > 1) /* W as rows of depth */
        pare_bytes_add(m->spec, 2 * weights * t.size, out);
    snprintf(out->kernel, sizeof out->kernel, "%s_%s",
             weight                        ? "conv_grad_weight"
             : op == PARE_OP_ConvGradInput ? "conv_grad_input"
             : op == PARE_OP_ConvTranspose ? "conv_transpose"
                                           : "conv_tile",
             tile->name);
    out->dtype = t.type, out->known = true;
    return true;
}
