/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/conv_pool.h"
#include "runtime/ops/infer.h"

#include <math.h>

/* --- attributes --- */

static pare_status ints_read(const pare_node *node, const char *name, int count, int64_t low,
                             const int64_t **out)
{
    int found;
    *out = pare_node_ints(node, name, &found);
    bool good = *out && found == count;
    for (int i = 0; good && i < count; i++) good = (*out)[i] >= low && (*out)[i] <= INT32_MAX / 4;
    return good ? PARE_OK
                : PARE_FAIL_NODE(node, INPUT, "%s must be %d numbers from %lld on", name, count,
                                 (long long)low);
}

pare_status pare_conv_pool_read(const pare_node *node, const pare_window *conv, pare_window *out)
{
    const int64_t *kernel, *strides, *pads;
    PARE_TRY(ints_read(node, "pool_kernel", 2, 1, &kernel));
    PARE_TRY(ints_read(node, "pool_strides", 2, 1, &strides));
    PARE_TRY(ints_read(node, "pool_pads", 4, 0, &pads));
    *out = (pare_window){.nd = 2, .group = 1};
    for (int i = 0; i < 3; i++) {
        const bool own = i > 0;
        out->in[i] = conv->out[i];
        out->kernel[i] = own ? kernel[i - 1] : 1, out->stride[i] = own ? strides[i - 1] : 1;
        out->begin[i] = own ? pads[i - 1] : 0, out->end[i] = own ? pads[i + 1] : 0;
        out->dilation[i] = 1;
        const int64_t room = out->in[i] + out->begin[i] + out->end[i] - out->kernel[i];
        if (out->in[i] >= 0 && room < 0)
            return PARE_FAIL_NODE(node, INPUT, "a pool's window of %lld does not fit into %lld",
                                  (long long)out->kernel[i], (long long)out->in[i]);
        out->out[i] = out->in[i] < 0 ? -1 : room / out->stride[i] + 1;
    }
    return PARE_OK;
}

pare_status pare_infer_fused_conv_pool(pare_node *node)
{
    pare_window conv, pool;
    pare_value *x = pare_node_in(node, 0), *w = pare_node_in(node, 1);
    PARE_TRY(pare_infer_fused_conv(node));
    pare_shape y = node->out[0]->shape;
    if (y.rank < 0) return PARE_OK;
    if (y.rank != 4)
        return PARE_FAIL_NODE(node, INPUT, "its input has rank %d, expected 4", x->shape.rank);
    PARE_TRY(pare_window_read(node, &x->shape, w->shape.dim + 2, &conv));
    PARE_TRY(pare_conv_pool_read(node, &conv, &pool));
    for (int i = 0; i < 2; i++) y.dim[2 + i] = pool.out[1 + i];
    pare_infer_out(node, 0, node->out[0]->dtype, &y);
    return PARE_OK;
}

/* --- what the kernel takes --- */

enum { MOST_CHANNELS = 4, MOST_WINDOW = 8, STRIDE = 2, FILTERS = 32, MOST_SIZE = 1 << 24 };

static bool windows_fit(const pare_conv_args *a, const pare_window *pool)
{
    const pare_window *w = &a->win;
    bool fit = w->nd == 2 && w->group == 1;
    for (int i = 1; i < 3; i++)
        fit = fit && w->kernel[i] <= MOST_WINDOW && w->stride[i] == STRIDE && w->dilation[i] == 1 &&
              w->in[i] >= 1 && w->in[i] <= MOST_SIZE && w->out[i] >= 1 && w->begin[i] >= 0 &&
              w->begin[i] <= MOST_SIZE && w->out[i] <= MOST_SIZE && pool->stride[i] == STRIDE &&
              (pool->kernel[i] == 2 || pool->kernel[i] == 3) && pool->begin[i] >= 0 &&
              pool->begin[i] < pool->kernel[i] && pool->end[i] >= 0 &&
              pool->end[i] < pool->kernel[i];
    /* blocks of a launch, and bytes of X's lines */
    return fit && (double)a->n * (double)w->in[1] * (double)w->in[2] <= INT32_MAX / 16;
}

/* In order: a constant bias that is finite. */
static bool bias_fits(const pare_prep *p, const pare_conv_args *a)
{
    const pare_view *b = pare_operand(p->in, p->in_count, a->at.bias);
    if (!b) return true;
    const int64_t count = pare_view_count(b);
    const pare_type_info *type = pare_type(b->dtype);
    const bool known = b->dtype == PARE_s32 || b->dtype == PARE_f32 || b->dtype == PARE_f16 ||
                       b->dtype == PARE_bf16;
    if (!b->data || !known || (count != 1 && count != a->m)) return false;
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(type->to_f32((const char *)b->data + i * (type->bits / 8)))) return false;
    return true;
}

static bool act_fits(const pare_conv_args *a)
{
    const pare_act *act = &a->act;
    if (act->kind == PARE_ACT_RELU) return true;
    if (act->kind == PARE_ACT_NONE) return a->int8;
    return act->kind == PARE_ACT_CLIP && act->alpha <= act->beta &&
           (a->int8 || (act->alpha >= 0 && !signbit(act->alpha)));
}

static bool types_fit(const pare_prep *p, const pare_conv_args *a)
{
    const pare_dtype x = p->in[0].dtype, w = p->in[1].dtype, y = p->out[0].dtype;
    if (!p->in[1].data || a->at.residual >= 0) return false;
    if (!a->int8) return (x == PARE_f16 || x == PARE_bf16) && w == x && y == x;
    if (w != PARE_s8 || !pare_type_is_int8(y) || a->epilogue.real) return false;
    for (int64_t i = 0; i < a->m; i++)
        if (!(a->scale[i] > 0 && isfinite(a->scale[i]))) return false;
    return true;
}

bool pare_conv_pool_fits(const pare_prep *prep, const pare_conv_args *a, const pare_window *pool)
{
    return a->n >= 1 && a->cg >= 1 && a->cg <= MOST_CHANNELS && a->m >= FILTERS &&
           a->m % FILTERS == 0 && a->m <= MOST_SIZE / FILTERS && windows_fit(a, pool) &&
           act_fits(a) && types_fit(prep, a) && bias_fits(prep, a);
}
