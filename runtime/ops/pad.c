/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of Pad and ReverseSequence. */
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/moves.h"
#include "runtime/ops/pad.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/resize.h"

#include <inttypes.h>
#include <string.h>

pare_status pare_pad_read(const pare_node *node, int rank, pare_pad *out)
{
    static const char *const mode[] = {"constant", "reflect", "edge", "wrap"};
    const char *text = pare_node_string(node, "mode", "constant");
    const int64_t *pads, *axes;
    int count, axes_count, m = 0;
    memset(out, 0, sizeof *out);
    while (m < 4 && strcmp(text, mode[m])) m++;
    if (m == 4) return PARE_FAIL_NODE(node, UNSUPPORTED, "mode '%s' is not known", text);
    out->mode = (pare_pad_mode)m;
    PARE_TRY(pare_infer_ints(node, 1, &pads, &count));
    PARE_TRY(pare_infer_ints(node, 3, &axes, &axes_count));
    out->known = pads && (axes || !pare_node_in(node, 3));
    if (!out->known) return PARE_OK;
    int n = axes ? axes_count : rank;
    bool seen[PARE_MAX_RANK];
    if (axes) PARE_TRY(pare_infer_axes(node, axes, n, rank, seen));
    if (count != 2 * n)
        return PARE_FAIL_NODE(node, INPUT, "pads has %d values, expected %d", count, 2 * n);
    for (int i = 0; i < n; i++) {
        int64_t a = axes ? (axes[i] < 0 ? axes[i] + rank : axes[i]) : i;
        out->begin[a] = pads[i];
        out->end[a] = pads[n + i];
    }
    return PARE_OK;
}

bool pare_pad_inside(const pare_pad *p, pare_view *dst, pare_view *src)
{
    for (int a = 0; a < src->rank; a++) {
        int64_t skip = p->begin[a] < 0 ? -p->begin[a] : 0, drop = p->end[a] < 0 ? -p->end[a] : 0;
        int64_t n = src->dim[a] - skip - drop;
        if (n <= 0) return false;
        *src = pare_view_part(src, a, skip, n);
        *dst = pare_view_part(dst, a, p->begin[a] > 0 ? p->begin[a] : 0, n);
    }
    return true;
}

/* Position in an axis of n that i, counted from its start, stands for. Reflection does not repeat
   the border. */
static int64_t source(pare_pad_mode mode, int64_t i, int64_t n)
{
    if (mode == PARE_PAD_EDGE || n == 1) return i < 0 ? 0 : i >= n ? n - 1 : i;
    int64_t period = mode == PARE_PAD_WRAP ? n : 2 * n - 2, r = i % period;
    if (r < 0) r += period;
    return r < n ? r : period - r;
}

pare_status pare_pad_positions(pare_prep *p, const pare_pad *pad, int64_t **at)
{
    for (int a = 0; a < p->in[0].rank; a++) {
        int64_t n = p->in[0].dim[a], out = p->out[0].dim[a];
        at[a] = pare_arena_alloc(p->arena, (size_t)out + 1, sizeof *at[a]);
        if (!at[a]) return PARE_MEMORY;
        for (int64_t o = 0; o < out && n; o++) at[a][o] = source(pad->mode, o - pad->begin[a], n);
    }
    return PARE_OK;
}

pare_status pare_infer_pad(pare_node *node)
{
    pare_value *x;
    pare_pad p;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape y = x->shape;
    if (y.rank >= 0) PARE_TRY(pare_pad_read(node, y.rank, &p));
    for (int i = 0; i < y.rank; i++) {
        int64_t n = x->shape.dim[i], total;
        if (p.known && !p.begin[i] && !p.end[i]) continue;
        y.name[i] = NULL;
        y.dim[i] = -1;
        if (n < 0 || !p.known) continue;
        if (__builtin_add_overflow(p.begin[i], p.end[i], &total) ||
            __builtin_add_overflow(n, total, &y.dim[i]) || y.dim[i] < 0)
            return PARE_FAIL_NODE(node, INPUT,
                                  "pads of %" PRId64 " and %" PRId64
                                  " leave nothing of an axis of %" PRId64,
                                  p.begin[i], p.end[i], n);
        if (p.mode != PARE_PAD_CONSTANT && n == 0 && y.dim[i])
            return PARE_FAIL_NODE(node, INPUT, "an empty axis has nothing to pad with");
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* Pad 2: paddings are called pads. 11: pads and value became inputs. */
pare_status pare_upgrade_pad(pare_node *node, int64_t version)
{
    if (version >= 11) return PARE_OK;
    PARE_TRY(pare_upgrade_ints(node, version < 2 ? "paddings" : "pads", 1));
    pare_dtype dtype = node->in[0] ? node->in[0]->dtype : PARE_NOTYPE;
    PARE_TRY(pare_upgrade_float(node, "value", 2, dtype));
    return pare_upgrade_opset(node, 11);
}

pare_status pare_infer_reverse_sequence(pare_node *node)
{
    pare_value *x, *lengths;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &lengths));
    int64_t batch = pare_node_int(node, "batch_axis", 1),
            time = pare_node_int(node, "time_axis", 0);
    if (batch < 0 || batch > 1 || time < 0 || time > 1 || batch == time ||
        (x->shape.rank >= 0 && x->shape.rank < 2))
        return PARE_FAIL_NODE(node, INPUT,
                              "batch_axis and time_axis must be 0 and 1 of an input of "
                              "rank 2 or more");
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}

/* Pad (2) with a constant: the middle of dY; negative pads leave edges without gradient. */
pare_status pare_grad_pad(pare_grad *g, const pare_node *node)
{
    const pare_value *x = node->in[0];
    const int64_t *pads, *axes;
    int count, axis_count;
    PARE_TRY(pare_infer_ints(node, 1, &pads, &count));
    PARE_TRY(pare_infer_ints(node, 3, &axes, &axis_count));
    int n = pare_node_in(node, 3) ? axis_count : x->shape.rank;
    if (!pads || count != 2 * n || strcmp(pare_node_string(node, "mode", "constant"), "constant"))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it has a gradient rule for mode constant with known pads only");
    pare_value *d = pare_grad_of(g, node->out[0]);
    for (int i = 0; i < n; i++) {
        int axis = axes ? (int)(axes[i] < 0 ? axes[i] + x->shape.rank : axes[i]) : i;
        if (pads[i] < 0 || pads[n + i] < 0)
            return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule for negative pads");
        if (pads[i] || pads[n + i]) d = pare_grad_part(g, d, axis, pads[i], x->shape.dim[axis]);
    }
    pare_grad_give(g, x, d);
    return g->status;
}

/* Pad (11 .. 19). Zeros around the channels (the short cut of a residual net) belong to the output.
 */
pare_status pare_prune_bind_pad(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    pare_pad pad;
    PARE_TRY(pare_pad_read(node, x->shape.rank, &pad));
    if (!pad.known) return pare_block_all(binder, node, "pads by what only a run says");
    for (int i = 0; i < x->shape.rank; i++) {
        bool none = !pad.begin[i] && !pad.end[i], cuts = pad.begin[i] < 0 || pad.end[i] < 0;
        pare_axis_span a = pare_axis_all(y, i), b = pare_axis_all(x, i);
        if (!none && (cuts || pad.mode != PARE_PAD_CONSTANT)) {
            PARE_TRY(pare_block_axis(binder, node, x, i, "pads it with what is beside"));
            PARE_TRY(pare_block_axis(binder, node, y, i, "pads it with what is beside"));
            continue;
        }
        a.start = pad.begin[i];
        a.length = a.count = b.count;
        PARE_TRY(binder->bind(binder->user, node, &a, &b));
    }
    return PARE_OK;
}

pare_status pare_prune_cut_pad(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0], *y = cut->before->out[0];
    int64_t to[2 * PARE_MAX_RANK] = {0};
    bool changed[2 * PARE_MAX_RANK] = {false}, any = false;
    const int64_t *axes;
    pare_pad pad;
    int count, rank = x->shape.rank, axis;
    PARE_TRY(pare_pad_read(cut->before, rank, &pad));
    PARE_TRY(pare_infer_ints(cut->before, 3, &axes, &count));
    int n = axes ? count : rank;
    for (int i = 0; i < n; i++) {
        PARE_TRY(pare_infer_axis(node, axes ? axes[i] : i, rank, &axis));
        if (pad.begin[axis] <= 0 && pad.end[axis] <= 0) continue;
        to[i] = cut->kept(cut->user, y, axis, 0, pad.begin[axis]);
        to[n + i] =
            cut->kept(cut->user, y, axis, pad.begin[axis] + x->shape.dim[axis], pad.end[axis]);
        changed[i] = to[i] != pad.begin[axis];
        changed[n + i] = to[n + i] != pad.end[axis];
        any = any || changed[i] || changed[n + i];
    }
    return any ? cut->set_ints(cut->user, node, 1, to, changed, 2 * n) : PARE_OK;
}
