/* SPDX-License-Identifier: Apache-2.0 */
/* Reshape, Flatten, Squeeze, Unsqueeze and pare.View: the same bytes under another shape. AllGather
   and SliceSum. */
#include "runtime/cpu/copy.h"
#include "runtime/base/hash.h"
#include "runtime/cpu/random.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/all_gather.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/moves.h"

#include <inttypes.h>
#include <string.h>

/* A plan gives output and input one memory; elsewhere the elements are copied. */
static pare_status reshape_run(const pare_call *c)
{
    pare_copy_reshape(&c->out[0], &c->in[0], c->threads);
    return PARE_OK;
}

static pare_status view_run(const pare_call *c)
{
    if (c->out[0].data != c->in[0].data)
        memcpy(c->out[0].data, c->in[0].data, pare_view_bytes(&c->in[0]));
    return PARE_OK;
}

static const pare_kernel alias_reshape = {
    .name = "alias_reshape", .run = reshape_run, .flags = PARE_KERNEL_ALIAS | PARE_KERNEL_REF};
static const pare_kernel alias_view = {
    .name = "alias_view", .run = view_run, .flags = PARE_KERNEL_ALIAS | PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_reshape[] = {&alias_reshape, NULL};
const pare_kernel *const pare_cpu_view[] = {&alias_view, NULL};

/* Identity (21), and Dropout (13) outside training: the input as it is, the mask all true. */

static pare_status copy_run(const pare_call *c)
{
    if (c->out[0].data != c->in[0].data) pare_ref_copy(&c->out[0], &c->in[0], c->threads);
    return PARE_OK;
}

/* Packed types are moved as they are. */
static bool copy_can(const pare_prep *p)
{
    int bits = pare_type(p->in[0].dtype)->bits;
    return bits >= 8 ||
           (bits < 8 && pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->out[0]));
}

static const pare_kernel alias_identity = {.name = "alias_identity",
                                           .can = copy_can,
                                           .run = copy_run,
                                           .flags = PARE_KERNEL_ALIAS | PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_identity[] = {&alias_identity, NULL};

static void true_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) p[0][i * s[0]] = 1;
}

/* Dropout (12, 13, 22) in training mode: an element is kept with probability 1 - ratio and scaled
   so that the mean stays. Which are kept depends on the seed, without one on the output's name, and
   on an element's place: every run draws the same. */
static void dropout_draw(const pare_call *c, double ratio)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    const pare_view *mask = c->out_count > 1 && c->out[1].dtype ? &c->out[1] : NULL;
    const char *name = c->node->out[0] ? c->node->out[0]->name : c->node->name;
    const bool seeded = pare_node_attr(c->node, "seed") != NULL;
    const pare_philox_stream random = {
        .key = (uint64_t)pare_node_int(c->node, "seed", PARE_PHILOX_UNSEEDED),
        .stream = seeded ? 0 : pare_hash_bytes(name, strlen(name)).low};
    const double scale = ratio < 1 ? 1 / (1 - ratio) : 0;
    int64_t index[PARE_MAX_RANK] = {0}, i = 0;
    if (!pare_view_count(x)) return;
    do {
        const bool kept = pare_philox_unit(&random, i++) >= ratio;
        const double v = kept ? pare_ref_get(x, pare_ref_offset(x, index)) * scale : 0;
        pare_ref_set(y, pare_ref_offset(y, index), v);
        if (mask) pare_ref_set_int(mask, pare_ref_offset(mask, index), kept);
    } while (pare_ref_next(x, index));
}

/* Dropping nothing is the same in training. */
static pare_status dropout_run(const pare_call *c)
{
    bool training = c->in_count > 2 && c->in[2].dtype && pare_ref_get_int(&c->in[2], 0);
    double ratio = c->in_count > 1 && c->in[1].dtype ? pare_ref_get(&c->in[1], 0) : 0.5;
    if (training && !(ratio >= 0 && ratio <= 1))
        return PARE_FAIL_CALL(c, INPUT, "ratio is %g, which is no probability", ratio);
    if (training && ratio != 0) {
        if (!pare_type_is_float(c->in[0].dtype))
            return PARE_FAIL_CALL(c, INPUT, "'%s' has type %s, expected floats",
                                  c->node->in[0]->name, pare_type(c->in[0].dtype)->name);
        dropout_draw(c, ratio);
        return PARE_OK;
    }
    if (c->out_count > 1 && c->out[1].dtype)
        pare_ref_each(&c->out[1], NULL, 0, c->threads, true_row, NULL);
    return copy_run(c);
}

static const pare_kernel ref_dropout = {.name = "ref_dropout",
                                        .can = copy_can,
                                        .run = dropout_run,
                                        .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_dropout[] = {&ref_dropout, NULL};

/* The operators of ops/moves.h, copied by threads. */

static pare_status move(const pare_call *c, const pare_view *dst, const pare_view *src)
{
    pare_copy_view(dst, src, c->threads);
    return PARE_OK;
}

/* A part of a tensor may begin inside a byte of packed elements; Transpose takes no parts. */
static bool move_can(const pare_prep *p)
{
    return pare_copy_can(p) || pare_node_is(p->node, "Transpose");
}

#define MOVES(op)                                                                                  \
    static pare_status op##_run(const pare_call *c) { return pare_moves_##op(c, move); }           \
    static const pare_kernel copy_##op = {                                                         \
        .name = "copy_" #op, .can = move_can, .run = op##_run, .flags = PARE_KERNEL_REF};          \
    const pare_kernel *const pare_cpu_##op[] = {&copy_##op, NULL};
PARE_MOVES(MOVES)

/* AllGather of one process: its own part, and zeros. Where several share a run, exec/gather.c has
   all parts. */

static pare_status all_gather_run(const pare_call *c)
{
    pare_gather_args args;
    pare_view place = c->out[0];
    PARE_TRY(pare_gather_args_read(c->node, place.rank, &args));
    memset(place.data, 0, pare_view_bytes(&place));
    place.data = pare_ref_at(&place, args.first * place.stride[args.axis]);
    place.dim[args.axis] = args.size[args.part];
    pare_ref_copy(&place, &c->in[0], c->threads);
    return PARE_OK;
}

static const pare_kernel ref_all_gather = {.name = "ref_all_gather",
                                           .can = pare_ref_can_all,
                                           .run = all_gather_run,
                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_all_gather[] = {&ref_all_gather, NULL};

/* SliceSum of one slice, its own: a copy. pare_replicas runs no kernel but adds up. */

static pare_status slice_sum_run(const pare_call *c)
{
    for (int i = 0; i < c->out_count; i++)
        if (c->out[i].dtype) pare_ref_copy(&c->out[i], &c->in[i], c->threads);
    return PARE_OK;
}

static const pare_kernel ref_slice_sum = {.name = "ref_slice_sum",
                                          .can = pare_ref_can_f32_f64,
                                          .run = slice_sum_run,
                                          .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_slice_sum[] = {&ref_slice_sum, NULL};

/* Gradients of moves:
     GatherGrad (dY, indices) -> dX   slices of dY are added where Gather (1) took them, in order
     SliceGrad (dY, starts, ends, axes, steps) -> dX   dY where Slice (10) took it, zeros elsewhere
 */

#define ADD(type, ctype)                                                                           \
    static void add_##type(void *dst, const void *src, int64_t n)                                  \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) ((ctype *)dst)[i] += ((const ctype *)src)[i];              \
    }
ADD(f32, float)
ADD(f64, double)

/* dX [outer, n, inner], dY [outer, count, inner], row-major. */
static pare_status gather_run(const pare_call *c)
{
    const pare_view *dy = &c->in[0], *at = &c->in[1], *dx = &c->out[0];
    int64_t axis = pare_node_int(c->node, "axis", 0), outer = 1, inner = 1;
    if (axis < 0) axis += dx->rank;
    for (int i = 0; i < axis; i++) outer *= dx->dim[i];
    for (int i = (int)axis + 1; i < dx->rank; i++) inner *= dx->dim[i];
    const int64_t n = dx->dim[axis], count = pare_view_count(at);
    memset(dx->data, 0, pare_view_bytes(dx));
    for (int64_t t = 0; t < outer * count; t++) {
        int64_t i = pare_ref_get_int(at, t % count);
        if (i < -n || i >= n)
            return PARE_FAIL_CALL(c, INPUT,
                                  "index %" PRId64 " is outside an axis of length %" PRId64, i, n);
        if (i < 0) i += n;
        void *to = pare_ref_at(dx, (t / count * n + i) * inner);
        (dx->dtype == PARE_f64 ? add_f64 : add_f32)(to, pare_ref_at(dy, t * inner), inner);
    }
    return PARE_OK;
}

static bool gather_can(const pare_prep *p)
{
    return (p->in[0].dtype == PARE_f32 || p->in[0].dtype == PARE_f64) &&
           pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->in[1]) &&
           pare_view_rowmajor(&p->out[0]);
}

/* Slice's move, from its output to the part of its input. */
static pare_status put_back(const pare_call *c, const pare_view *dy, const pare_view *part)
{
    pare_copy_view(part, dy, c->threads);
    return PARE_OK;
}

static pare_status slice_grad_run(const pare_call *c)
{
    pare_view in[5] = {c->out[0]};
    for (int i = 1; i < c->in_count && i < 5; i++) in[i] = c->in[i];
    pare_call forward = *c;
    forward.in = in;
    forward.out = &c->in[0];
    forward.out_count = 1;
    memset(c->out[0].data, 0, pare_view_bytes(&c->out[0]));
    return pare_moves_slice(&forward, put_back);
}

static const pare_kernel ref_gather_grad = {
    .name = "ref_gather_grad", .can = gather_can, .run = gather_run, .flags = PARE_KERNEL_REF};
static const pare_kernel ref_slice_grad = {.name = "ref_slice_grad",
                                           .can = pare_ref_can_floats,
                                           .run = slice_grad_run,
                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_gather_grad[] = {&ref_gather_grad, NULL};
const pare_kernel *const pare_cpu_slice_grad[] = {&ref_slice_grad, NULL};
