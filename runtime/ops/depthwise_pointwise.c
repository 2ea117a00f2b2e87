/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/depthwise_pointwise.h"
#include "runtime/ops/infer.h"

/* --- one node as two --- */

/* The node's attributes of the depthwise convolution, by their own names. */
static pare_status depthwise_node(const pare_node *node, pare_arena *arena, pare_node *out)
{
    const size_t prefix = strlen(PARE_DEPTHWISE_PREFIX);
    *out = *node;
    out->attr = pare_arena_alloc(arena, (size_t)node->attr_count + 1, sizeof *out->attr);
    if (!out->attr) return PARE_MEMORY;
    out->attr_count = 0;
    for (int i = 0; i < node->attr_count; i++) {
        if (strncmp(node->attr[i].name, PARE_DEPTHWISE_PREFIX, prefix) != 0) continue;
        out->attr[out->attr_count] = node->attr[i];
        out->attr[out->attr_count++].name += prefix;
    }
    return PARE_OK;
}

static pare_value *first_output(pare_value *made, const pare_node *node)
{
    *made = (pare_value){.name = node->name ? node->name : "", .graph = node->graph};
    made->shape.rank = -1;
    return made;
}

/* What must be there, and of rank 4: a picture, and weights of both. */
static const int needed[] = {0, 1, PARE_DEPTHWISE_WEIGHTS};
enum { NEEDED = sizeof needed / sizeof *needed };

static pare_status rank_check(const pare_node *node, int i, int rank)
{
    if (rank == 4) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "input %d, '%s', has rank %d, expected 4", i,
                          node->in[i]->name, rank);
}

static pare_status needed_check(const pare_node *node)
{
    pare_value *v;
    for (int i = 0; i < NEEDED; i++) {
        PARE_TRY(pare_infer_need(node, needed[i], &v));
        if (v->shape.rank >= 0) PARE_TRY(rank_check(node, needed[i], v->shape.rank));
    }
    return PARE_OK;
}

pare_status pare_infer_fused_depthwise_pointwise(pare_node *node)
{
    pare_value made, *to[] = {first_output(&made, node)};
    pare_value *in[] = {pare_node_in(node, 0), pare_node_in(node, PARE_DEPTHWISE_WEIGHTS),
                        pare_node_in(node, PARE_DEPTHWISE_BIAS), NULL,
                        pare_node_in(node, PARE_DEPTHWISE_SCALE)};
    pare_value *then[] = {&made, pare_node_in(node, 1), pare_node_in(node, 2),
                          pare_node_in(node, 3), pare_node_in(node, 4)};
    pare_node first, second = *node;
    PARE_TRY(needed_check(node));
    PARE_TRY(depthwise_node(node, &node->graph->model->arena, &first));
    first.in = in, first.in_count = 5, first.out = to, first.out_count = 1;
    second.in = then, second.in_count = 5;
    PARE_TRY(pare_infer_fused_conv(&first));
    return pare_infer_fused_conv(&second);
}

pare_status pare_depthwise_pointwise_set(pare_depthwise_pointwise *out, const pare_prep *depthwise,
                                         const pare_prep *pointwise)
{
    out->depthwise = *depthwise, out->pointwise = *pointwise;
    PARE_TRY(pare_conv_args_read(depthwise, &out->d));
    return pare_conv_args_read(pointwise, &out->p);
}

static void input_copy(const pare_prep *prep, int i, pare_view *out)
{
    *out = i < prep->in_count ? prep->in[i] : (pare_view){0};
}

/* What the depthwise convolution makes, in the order of X. */
static pare_status made_set(pare_depthwise_pointwise *s)
{
    const pare_conv_args *a = &s->d;
    PARE_TRY(pare_conv_args_read(&s->depthwise, &s->d));
    const pare_shape shape = {.rank = 4, .dim = {a->n, a->m, a->win.out[1], a->win.out[2]}};
    pare_view_set(&s->made, a->int8 ? a->q.to : s->depthwise_in[0].dtype, &shape,
                  pare_view_nhwc(&s->depthwise_in[0]));
    return PARE_OK;
}

pare_status pare_depthwise_pointwise_read(pare_depthwise_pointwise *s, const pare_prep *prep)
{
    static const int depthwise[] = {0, PARE_DEPTHWISE_WEIGHTS, PARE_DEPTHWISE_BIAS,
                                    PARE_DEPTHWISE_END, PARE_DEPTHWISE_SCALE};
    PARE_TRY(needed_check(prep->node));
    for (int i = 0; i < NEEDED; i++)
        PARE_TRY(rank_check(prep->node, needed[i], prep->in[needed[i]].rank));
    PARE_TRY(depthwise_node(prep->node, prep->arena, &s->node));
    for (int i = 0; i < 5; i++) input_copy(prep, depthwise[i], &s->depthwise_in[i]);
    for (int i = 1; i < 5; i++) input_copy(prep, i, &s->pointwise_in[i]);
    s->depthwise = s->pointwise = *prep;
    s->depthwise.node = &s->node;
    s->depthwise.in = s->depthwise_in, s->pointwise.in = s->pointwise_in;
    s->depthwise.in_count = s->pointwise.in_count = 5;
    s->depthwise.out = &s->made;
    PARE_TRY(made_set(s));
    s->pointwise_in[0] = s->made;
    return pare_conv_args_read(&s->pointwise, &s->p);
}

/* --- what the kernel takes --- */

enum { KERNEL = 3, MOST_STRIDE = 2, MOST_SIZE = 1 << 20, CHUNK = 16, LOT = 8 };

static bool windows_fit(const pare_conv_args *d, const pare_conv_args *p)
{
    const pare_window *w = &d->win, *one = &p->win;
    bool fit = w->nd == 2 && one->nd == 2 && one->group == 1 && d->cg == 1 && d->mg == 1 &&
               w->stride[1] == w->stride[2] && w->stride[1] <= MOST_STRIDE && p->c == d->m;
    for (int i = 1; i < 3; i++)
        fit = fit && w->kernel[i] == KERNEL && w->dilation[i] == 1 && w->begin[i] >= 0 &&
              w->begin[i] < KERNEL && w->in[i] >= 1 && w->in[i] <= MOST_SIZE && w->out[i] >= 1 &&
              w->out[i] <= MOST_SIZE && one->kernel[i] == 1 && one->stride[i] == 1 &&
              one->begin[i] == 0 && one->out[i] == w->out[i];
    /* strips of a launch */
    return fit && d->n >= 1 &&
           (double)d->n * (double)w->out[1] * (double)w->out[2] <= INT32_MAX / 16;
}

static bool bias_fits(const pare_prep *prep, const pare_conv_args *a)
{
    const pare_view *b = pare_operand(prep->in, prep->in_count, a->at.bias);
    if (!b) return true;
    const int64_t count = pare_view_count(b);
    return b->data && (count == 1 || count == a->m) &&
           (b->dtype == PARE_s32 || b->dtype == PARE_f32 || b->dtype == PARE_f16 ||
            b->dtype == PARE_bf16);
}

static bool act_fits(const pare_conv_args *a)
{
    const pare_act *act = &a->act;
    return act->kind == PARE_ACT_NONE || act->kind == PARE_ACT_RELU ||
           (act->kind == PARE_ACT_CLIP && act->alpha <= act->beta);
}

/* Of one of the two: from x to y. */
static bool types_fit(const pare_prep *prep, const pare_conv_args *a, pare_dtype x, pare_dtype y)
{
    const pare_dtype w = prep->in[1].dtype;
    if (!prep->in[1].data || !act_fits(a) || !bias_fits(prep, a)) return false;
    if (!a->int8) return (x == PARE_f16 || x == PARE_bf16) && w == x && y == x && a->at.w_scale < 0;
    return w == PARE_s8 && pare_type_is_int8(y) && !a->epilogue.real;
}

static bool residual_fits(const pare_depthwise_pointwise *s)
{
    const pare_prep *p = &s->pointwise;
    const pare_view *z = pare_operand(p->in, p->in_count, s->p.at.residual);
    if (!z) return true;
    return s->d.win.stride[1] == 1 &&
           (s->p.int8 ? pare_type_is_int8(z->dtype) : z->dtype == p->out[0].dtype);
}

/* Do 32 bits hold a place in X? Those in Y are of 64. */
static bool bytes_fit(const pare_conv_args *d, int size)
{
    return (double)d->n * (double)d->c * (double)d->win.in[1] * (double)d->win.in[2] * size <=
           UINT32_MAX;
}

bool pare_depthwise_pointwise_fits(const pare_depthwise_pointwise *s)
{
    const pare_dtype x = s->depthwise.in[0].dtype, made = s->depthwise.out[0].dtype;
    const int size = pare_type(x)->bits / 8;
    return size && made == x && bytes_fit(&s->d, size) && s->d.at.residual < 0 &&
           windows_fit(&s->d, &s->p) && types_fit(&s->depthwise, &s->d, x, made) &&
           types_fit(&s->pointwise, &s->p, made, s->pointwise.out[0].dtype) && residual_fits(s) &&
           s->d.m * size % CHUNK == 0 && s->p.m * size % LOT == 0 && s->d.m <= MOST_SIZE &&
           s->p.m <= MOST_SIZE;
}

/* --- where it is faster --- */

/* A block makes two strips of 8 pixels, of 8 lines or, two a step, of 4; and makes the depthwise
   part anew for each 128 columns. */
enum { STRIP = 8, STRIPS = 2, LEAST_BLOCKS = 56 };

/* Columns up to which one kernel is predicted to be faster than two (tests/eval/
   test_roofline_depthwise.c); with two a step four times as many pixels are brought for one of Y.
 */
static int64_t columns_most(const pare_conv_args *d, bool int8)
{
    if (d->win.stride[1] > 1) return int8 ? 96 : 24;
    return int8 ? 256 : 192;
}

/* Fewer blocks leave most of a device idle, where two kernels split their work finer. */
bool pare_depthwise_pointwise_pays(const pare_depthwise_pointwise *s, bool int8)
{
    const pare_window *w = &s->d.win;
    const int64_t lines = w->stride[1] > 1 ? 4 : 8;
    const int64_t strips =
        s->d.n * ((w->out[1] + lines - 1) / lines) * ((w->out[2] + STRIP - 1) / STRIP);
    return strips >= LEAST_BLOCKS * STRIPS && s->p.m <= columns_most(&s->d, int8);
}
