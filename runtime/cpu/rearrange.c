/* SPDX-License-Identifier: Apache-2.0 */
/* Col2Im (18), MaxUnpool (22) and CenterCropPad (18). */
#include "runtime/ops/rearrange.h"
#include "runtime/cpu/copy.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/moves.h"

#include <inttypes.h>
#include <string.h>

/* --- Col2Im: pixels are summed over the blocks that hold them, in the order of the blocks --- */

static pare_status col2im_prepare(pare_prep *p)
{
    pare_col2im *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    const pare_view *y = &p->out[0];
    const int axes = y->rank - 2;
    int64_t pixels = 1;
    if (!s) return PARE_MEMORY;
    if (!p->in[1].data || !p->in[2].data)
        return PARE_FAIL_NODE(p->node, UNSUPPORTED, "its shapes must be constant");
    PARE_TRY(pare_col2im_of(p->node, p->in[1].data, p->in[2].data, axes, s));
    for (int i = 0; i < axes; i++) pixels *= s->image[i];
    p->state = s;
    p->scratch = (size_t)pixels * sizeof(double);
    return PARE_OK;
}

/* Splits a number into indices, the last axis fastest. */
static void split(int64_t n, const int64_t *dim, int axes, int64_t *index)
{
    for (int i = axes - 1; i >= 0; n /= dim[i--]) index[i] = n % dim[i];
}

/* The pixel that a tap of a block at a place holds, -1 in the padding. */
static int64_t pixel_of(const pare_col2im *s, const int64_t *tap, const int64_t *place)
{
    int64_t at = 0;
    for (int i = 0; i < s->axes; i++) {
        const int64_t p = place[i] * s->stride[i] - s->begin[i] + tap[i] * s->dilation[i];
        if (p < 0 || p >= s->image[i]) return -1;
        at = at * s->image[i] + p;
    }
    return at;
}

static pare_status col2im_run(const pare_call *c)
{
    const pare_col2im *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    double *sum = c->scratch;
    int64_t pixels = 1;
    for (int i = 0; i < s->axes; i++) pixels *= s->image[i];
    for (int64_t plane = 0; pixels && plane < y->dim[0] * y->dim[1]; plane++) {
        memset(sum, 0, (size_t)pixels * sizeof *sum);
        for (int64_t k = 0; k < s->taps; k++)
            for (int64_t l = 0; l < s->places; l++) {
                int64_t tap[PARE_COL2IM_AXES], place[PARE_COL2IM_AXES];
                split(k, s->block, s->axes, tap);
                split(l, s->count, s->axes, place);
                const int64_t at = pixel_of(s, tap, place);
                if (at >= 0) sum[at] += pare_ref_get(x, (plane * s->taps + k) * s->places + l);
            }
        for (int64_t i = 0; i < pixels; i++) pare_ref_set(y, plane * pixels + i, sum[i]);
    }
    return PARE_OK;
}

static const pare_kernel ref_col2im = {.name = "ref_col2im",
                                       .can = pare_ref_can_numbers,
                                       .prepare = col2im_prepare,
                                       .run = col2im_run,
                                       .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_col2im[] = {&ref_col2im, NULL};

/* --- MaxUnpool: each element goes to its index, which counts in the shape before output_shape ---
 */

static pare_status max_unpool_prepare(pare_prep *p)
{
    pare_shape *s = pare_arena_alloc(p->arena, 1, sizeof *s), x = {.rank = p->in[0].rank};
    if (!s) return PARE_MEMORY;
    memcpy(x.dim, p->in[0].dim, sizeof x.dim);
    p->state = s;
    return pare_max_unpool_shape(p->node, &x, s);
}

static pare_status max_unpool_run(const pare_call *c)
{
    const pare_shape *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    const int64_t count = pare_shape_count(s);
    if (pare_view_count(y)) memset(y->data, 0, pare_view_bytes(y));
    for (int64_t i = 0; i < pare_view_count(x); i++) {
        const int64_t to = pare_ref_get_int(&c->in[1], i);
        int64_t index[PARE_MAX_RANK];
        if (to < 0 || to >= count)
            return PARE_FAIL_CALL(
                c, INPUT, "index %" PRId64 " in '%s' is outside an output of %" PRId64 " elements",
                to, c->node->in[1]->name, count);
        split(to, s->dim, s->rank, index);
        pare_ref_set(y, pare_ref_offset(y, index), pare_ref_get(x, i));
    }
    return PARE_OK;
}

static const pare_kernel ref_max_unpool = {.name = "ref_max_unpool",
                                           .can = pare_ref_can_floats,
                                           .prepare = max_unpool_prepare,
                                           .run = max_unpool_run,
                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_max_unpool[] = {&ref_max_unpool, NULL};

/* --- CenterCropPad: the middle part of one is the middle part of the other; 0 around it --- */

static pare_status center_crop_pad_run(const pare_call *c)
{
    pare_view x = c->in[0], y = c->out[0];
    if (!pare_view_count(&y)) return PARE_OK;
    memset(y.data, 0, pare_view_bytes(&y));
    for (int i = 0; i < y.rank; i++) {
        const int64_t more = x.dim[i] - y.dim[i];
        if (more > 0)
            x = pare_view_part(&x, i, more / 2, y.dim[i]);
        else
            y = pare_view_part(&y, i, -more / 2, x.dim[i]);
    }
    if (pare_view_count(&x)) pare_copy_view(&y, &x, c->threads);
    return PARE_OK;
}

static const pare_kernel ref_center_crop_pad = {.name = "ref_center_crop_pad",
                                                .can = pare_ref_can_all,
                                                .run = center_crop_pad_run,
                                                .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_center_crop_pad[] = {&ref_center_crop_pad, NULL};
