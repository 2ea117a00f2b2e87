/* SPDX-License-Identifier: Apache-2.0 */
/* Constant (1 to 21), ConstantOfShape (9), and the operators of constant.cu. Most are folded before
   a plan is made; what is left costs one launch. NonZero has no kernel here: how long its output is
   can be planned only where its input is constant, and then it is folded; the host step checks the
   rest. */
#include "runtime/cuda/constant.h"
#include "runtime/cuda/element.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/constant.h"

#include <string.h>

/* --- Constant, ConstantOfShape: copies of what lies on the device --- */

static bool constant_can(const pare_prep *p)
{
    return pare_cuda_bytes(p->out[0].dtype) > 0 && pare_view_rowmajor(&p->out[0]);
}

static bool filled_can(const pare_prep *p) { return pare_cuda_bytes(p->out[0].dtype) > 0; }

static pare_status kept_prepare(pare_prep *p)
{
    const pare_tensor *t;
    PARE_TRY(pare_constant_tensor(p->node, p->arena, &t));
    return pare_cuda_keep(p, t->data, t->bytes);
}

static pare_status copy(const pare_call *c, const pare_view *from)
{
    pare_view kept = *from;
    kept.data = ((const pare_cuda_kept *)c->state)->data;
    return pare_cuda_copy(c, &c->out[0], &kept);
}

static pare_status constant_run(const pare_call *c) { return copy(c, &c->out[0]); }

static pare_status constant_of_shape_run(const pare_call *c)
{
    pare_view same = c->out[0];
    memset(same.stride, 0, sizeof same.stride);
    return copy(c, &same);
}

#define KEPT(stem, accepts)                                                                        \
    static const pare_kernel cuda_##stem = {.name = "cuda_" #stem,                                 \
                                            .can = accepts,                                        \
                                            .prepare = kept_prepare,                               \
                                            .run = stem##_run,                                     \
                                            .release = pare_cuda_kept_release};                    \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
KEPT(constant, constant_can)
KEPT(constant_of_shape, filled_can)

/* --- Shape, Size, Range --- */

static pare_status shape_run(const pare_call *c)
{
    int64_t rank = c->in[0].rank, start = pare_node_int(c->node, "start", 0);
    pare_cuda_numbers n = {.count = (int)c->out[0].dim[0]};
    if (start < 0) start += rank;
    start = start < 0 ? 0 : start;
    for (int i = 0; i < n.count; i++) n.value[i] = c->in[0].dim[start + i];
    return PARE_CUDA_LAUNCH(c, pare_cuda_numbers_launch, c->out[0].data, &n);
}

static pare_status size_run(const pare_call *c)
{
    pare_cuda_numbers n = {.count = 1, .value = {pare_view_count(&c->in[0])}};
    return PARE_CUDA_LAUNCH(c, pare_cuda_numbers_launch, c->out[0].data, &n);
}

static pare_status range_run(const pare_call *c)
{
    return PARE_CUDA_LAUNCH(c, pare_cuda_range_launch, c->out[0].data, c->out[0].dim[0],
                            c->out[0].dtype, c->in[0].data, c->in[2].data);
}

static bool range_can(const pare_prep *p) { return pare_cuda_is_number(p->in[0].dtype); }

/* --- EyeLike, Trilu --- */

/* Column minus row of the last two axes, as an operand without data. */
static pare_view distance(const pare_view *y)
{
    pare_view v = *y;
    memset(v.stride, 0, sizeof v.stride);
    v.stride[v.rank - 1] = 1;
    v.stride[v.rank - 2] = -1;
    v.data = NULL;
    return v;
}

static bool eye_like_can(const pare_prep *p)
{
    return pare_cuda_is_number(p->out[0].dtype) || p->out[0].dtype == PARE_bool;
}

static pare_status eye_like_run(const pare_call *c)
{
    const pare_view *y = &c->out[0], away = distance(y);
    const pare_view *all[2] = {y, &away};
    pare_cuda_walk w = {.data = {y->data}};
    pare_walk_init(&w.walk, all, 2);
    return PARE_CUDA_LAUNCH(c, pare_cuda_eye_launch, &w, y->dtype, pare_node_int(c->node, "k", 0));
}

static bool trilu_can(const pare_prep *p)
{
    bool given = p->in_count > 1 && p->in[1].dtype;
    return pare_cuda_bytes(p->in[0].dtype) > 0 && (!given || p->in[1].dtype == PARE_s64);
}

static pare_status trilu_run(const pare_call *c)
{
    const pare_view *y = &c->out[0], away = distance(y);
    const pare_view *all[3] = {y, &c->in[0], &away};
    bool given = c->in_count > 1 && c->in[1].dtype;
    pare_cuda_walk w = {.data = {y->data, c->in[0].data}};
    pare_walk_init(&w.walk, all, 3);
    return PARE_CUDA_LAUNCH(c, pare_cuda_trilu_launch, &w, pare_cuda_bytes(y->dtype),
                            pare_node_int(c->node, "upper", 1) != 0, given ? c->in[1].data : NULL,
                            PARE_s64);
}

#define PLAIN(stem, accepts)                                                                       \
    static const pare_kernel cuda_##stem = {                                                       \
        .name = "cuda_" #stem, .can = accepts, .run = stem##_run};                                 \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
PLAIN(shape, NULL)
PLAIN(size, NULL)
PLAIN(range, range_can)
PLAIN(eye_like, eye_like_can)
PLAIN(trilu, trilu_can)
