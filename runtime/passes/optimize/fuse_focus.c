/* SPDX-License-Identifier: Apache-2.0 */
/* YOLOv5's Focus: four Slices of every other line and pixel of a picture, joined over channels,
   with a convolution over them. Channel c of piece p at (h, w) is channel c of the picture at (2 h
   + dy, 2 w + dx), so that weight (c of p, i, j) is weight (c, 2 i + dy, 2 j + dx) of a convolution
   of twice the window, stride and padding over the picture. On GPUs conv_stem.cu reads the picture
   where it is: of 8 and 16 bits, with none, ReLU or Clip behind, and filters in 32s. Others have
   their pixels widened first (conv.c), f32 a plain tile. A QuantizeLinear between the two stays. */
#include "runtime/ops/infer.h"
#include "runtime/ops/int8_elementwise.h"
#include "runtime/ops/moves.h"
#include "runtime/passes/optimize/fuse.h"
#include "runtime/passes/passes.h"

#include <string.h>

enum { PIECES = 4, MOST_CHANNELS = 4, MOST_KERNEL = 4 /* of the stem: 4 channels, windows of 8 */ };

typedef struct focus {
    pare_value *x;        /* the picture */
    pare_node *quantizer; /* between the Concat and the convolution, or NULL */
    int down[PIECES], across[PIECES];
    pare_window window; /* of the convolution as it is */
} focus;

/* Adds what a Slice skips: of a piece every other line or pixel, from 0 or 1 on. */
static bool slice_add(const pare_node *n, int start[2], bool seen[2])
{
    pare_slice_axis s[PARE_MAX_RANK];
    int count;
    if (!pare_slice_known(n, s, &count)) return false;
    for (int i = 0; i < count; i++) {
        const int64_t all = n->in[0]->shape.dim[s[i].axis];
        const int k = s[i].axis - 2;
        if (s[i].step == 1 && s[i].length == all) continue;
        if (k < 0 || seen[k] || s[i].step != 2 || s[i].start > 1 || all % 2 ||
            s[i].length != all / 2)
            return false;
        seen[k] = true;
        start[k] = (int)s[i].start;
    }
    return true;
}

/* The picture that a piece is cut from, in one or two Slices that may vanish; NULL: it is not. */
static pare_value *piece_source(const pare_fuse *f, pare_value *v, int *down, int *across)
{
    bool seen[2] = {false, false};
    int start[2] = {0, 0};
    for (int i = 0; i < 2 && !(seen[0] && seen[1]); i++) {
        if (!v || !v->producer || v->shape.rank != 4 || !pare_fuse_may_vanish(f, v) ||
            !slice_add(v->producer, start, seen))
            return NULL;
        v = v->producer->in[0];
    }
    *down = start[0], *across = start[1];
    return seen[0] && seen[1] ? v : NULL;
}

static bool is_join(const pare_node *n)
{
    const bool requantizes = !strcmp(n->op_type, "QConcat") && !strcmp(n->domain, PARE_DOMAIN);
    if (!pare_node_is(n, "Concat") && !requantizes) return false;
    if (n->in_count != PIECES || pare_node_axis(n, 1, 4) != 1) return false;
    for (int i = 0; i < PIECES && requantizes; i++)
        if (!pare_concat_is_copy(n, i)) return false;
    return true;
}

/* Do the four pieces hold each pixel of one picture once? */
static bool join_read(const pare_fuse *fuse, const pare_node *n, focus *f)
{
    unsigned seen = 0;
    if (!n || !is_join(n)) return false;
    for (int i = 0; i < PIECES; i++) {
        pare_value *x = piece_source(fuse, n->in[i], &f->down[i], &f->across[i]);
        if (!x || (i && x != f->x)) return false;
        f->x = x;
        seen |= 1u << (f->down[i] * 2 + f->across[i]);
    }
    return seen == 15 && f->x->shape.rank == 4 && f->x->shape.dim[1] >= 1 &&
           f->x->shape.dim[1] <= MOST_CHANNELS;
}

/* One scale for all, and the convolution alone reads it? */
static bool quantizer_fits(const pare_fuse *f, const pare_node *q, const pare_node *conv)
{
    return q->in_count >= 2 && q->in[1] && pare_shape_count(&q->in[1]->shape) == 1 &&
           pare_fuse_only_use(f, q->out[0]) == conv;
}

static bool conv_fits(const pare_fuse *f, pare_node *conv, focus *out)
{
    const pare_value *w = pare_node_in(conv, 1);
    if (!w || !w->data || w->shape.rank != 4 || pare_type(w->dtype)->bits % 8) return false;
    out->quantizer = pare_fuse_maker(conv, 0, "QuantizeLinear");
    if (out->quantizer && !quantizer_fits(f, out->quantizer, conv)) return false;
    const pare_node *last = out->quantizer ? out->quantizer : conv;
    const pare_value *joined = pare_node_in(last, 0);
    if (!joined || !pare_fuse_may_vanish(f, joined) || joined->user_count != 1 ||
        !join_read(f, joined->producer, out))
        return false;
    const bool read =
        pare_window_read(conv, &joined->shape, w->shape.dim + 2, &out->window) == PARE_OK;
    if (!read) pare_ctx_clear(conv->graph->model->ctx);
    const pare_window *win = &out->window;
    return read && win->group == 1 && win->dilation[1] == 1 && win->dilation[2] == 1 &&
           win->kernel[1] <= MOST_KERNEL && win->kernel[2] <= MOST_KERNEL && win->begin[1] >= 0 &&
           win->begin[2] >= 0 && w->shape.dim[1] == PIECES * out->x->shape.dim[1];
}

/* The weights of the larger window, a new constant. */
static pare_status weights_make(pare_node *conv, const focus *f, pare_value **out)
{
    const pare_value *w = conv->in[1];
    const int64_t *k = w->shape.dim, c = f->x->shape.dim[1];
    const int64_t dims[] = {k[0], c, 2 * k[2], 2 * k[3]};
    const size_t size = pare_type(w->dtype)->bits / 8;
    pare_arena *arena = &conv->graph->model->arena;
    const char *from = w->data->data, *name = pare_upgrade_name(conv, "weights");
    char *to = pare_arena_alloc(arena, (size_t)(k[0] * k[1] * k[2] * k[3]) + 1, size);
    if (!name || !to) return PARE_MEMORY;
    for (int64_t m = 0; m < k[0]; m++)
        for (int64_t all = 0; all < k[1]; all++)
            for (int64_t i = 0; i < k[2]; i++)
                for (int64_t j = 0; j < k[3]; j++, from += size) {
                    const int64_t p = all / c, h = 2 * i + f->down[p], l = 2 * j + f->across[p];
                    const int64_t at = ((m * c + all % c) * dims[2] + h) * dims[3] + l;
                    memcpy(to + (size_t)at * size, from, size);
                }
    return pare_init_new(conv->graph, out, name, w->dtype, 4, dims, to);
}

static pare_status window_write(pare_node *conv, const pare_window *w)
{
    int64_t stride[2], pads[4], kernel[2];
    for (int i = 0; i < 2; i++) {
        stride[i] = 2 * w->stride[1 + i], kernel[i] = 2 * w->kernel[1 + i];
        pads[i] = 2 * w->begin[1 + i], pads[2 + i] = 2 * w->end[1 + i];
    }
    pare_node_remove_attr(conv, "auto_pad");
    pare_node_remove_attr(conv, "kernel_shape");
    PARE_TRY(pare_node_set_ints(conv, "kernel_shape", kernel, 2));
    PARE_TRY(pare_node_set_ints(conv, "strides", stride, 2));
    return pare_node_set_ints(conv, "pads", pads, 4);
}

static pare_status focus_join(pare_fuse *f, pare_node *node, bool *changed)
{
    focus found;
    pare_value *weights, *x;
    pare_node *quantizer;
    const bool fused = !strcmp(node->op_type, "FusedConv") && !strcmp(node->domain, PARE_DOMAIN);
    if ((!fused && !pare_node_is(node, "Conv")) || !conv_fits(f, node, &found)) return PARE_OK;
    x = found.x;
    PARE_TRY(weights_make(node, &found, &weights));
    if (found.quantizer) { /* of the picture */
        const pare_node *q = found.quantizer;
        pare_value *in[3] = {x, q->in[1], pare_node_in(q, 2)};
        PARE_TRY(pare_fuse_insert(node, "QuantizeLinear", q->domain, in,
                                  q->in_count > 3 ? 3 : q->in_count, &x->shape, &quantizer));
        for (int i = 0; i < q->attr_count; i++)
            PARE_TRY(pare_node_set_attr(quantizer, &q->attr[i]));
        x = quantizer->out[0];
        x->dtype = q->out[0]->dtype;
    }
    PARE_TRY(pare_node_set_in(node, 0, x));
    PARE_TRY(pare_node_set_in(node, 1, weights));
    *changed = true;
    return window_write(node, &found.window);
}

pare_status pare_pass_fuse_focus(pare_model *model, const char *const *keep, int keep_count)
{
    static const pare_fuse_fn rule[] = {focus_join};
    const pare_fuse f = {.keep = keep, .keep_count = keep_count};
    bool changed = false;
    return pare_fuse_run(model->graph, &f, rule, 1, &changed);
}
