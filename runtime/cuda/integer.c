/* SPDX-License-Identifier: Apache-2.0 */
/* QAdd, QMul, Table, Requantize, QuantizeLinear, DequantizeLinear (21). */
#include "runtime/cuda/integer.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/infer.h"

/* --- QAdd, QMul --- */

static bool pair_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->in[1].dtype);
}

static pare_status pair_prepare(pare_prep *p, bool product)
{
    pare_cuda_pair *m = pare_arena_alloc(p->arena, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    pare_quant_args q;
    pare_act act;
    PARE_TRY(pare_quant_read(p->node, &q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&m->epilogue, &q, &act, PARE_NOTYPE);
    float y_scale = m->epilogue.real ? 1 : q.y_scale;
    m->a_factor = (product ? q.x_scale * q.z_scale : q.x_scale) / y_scale;
    m->b_factor = q.z_scale / y_scale;
    m->a_zero = q.x_zero, m->b_zero = q.z_zero;
    m->a_type = p->in[0].dtype, m->b_type = p->in[1].dtype;
    m->product = product;
    p->state = m;
    return PARE_OK;
}

static pare_status add_prepare(pare_prep *p) { return pair_prepare(p, false); }
static pare_status mul_prepare(pare_prep *p) { return pair_prepare(p, true); }

static pare_status pair_run(const pare_call *c)
{
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 2);
    return PARE_CUDA_LAUNCH(c, pare_cuda_pair_launch, &w, c->state);
}

static const pare_kernel q_add = {
    .name = "cuda_int8_add", .can = pair_can, .prepare = add_prepare, .run = pair_run};
static const pare_kernel q_mul = {
    .name = "cuda_int8_mul", .can = pair_can, .prepare = mul_prepare, .run = pair_run};
const pare_kernel *const pare_cuda_q_add[] = {&q_add, NULL};
const pare_kernel *const pare_cuda_q_mul[] = {&q_mul, NULL};

/* --- Table --- */

static bool table_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && pare_view_rowmajor(&p->in[1]);
}

static pare_status table_run(const pare_call *c)
{
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, pare_cuda_table_launch, &w, c->in[1].data);
}

static const pare_kernel table = {.name = "cuda_table",
                                  .can = table_can,
                                  .run = table_run,
                                  .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_table[] = {&table, NULL};

/* --- Requantize: a table made here --- */

typedef struct requantize {
    pare_device *device;
    void *table;
} requantize;

static bool requantize_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->out[0].dtype);
}

static pare_status requantize_prepare(pare_prep *p)
{
    requantize *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_quant_args q;
    pare_act act;
    pare_epilogue e;
    uint8_t bytes[256];
    PARE_TRY(pare_quant_read(p->node, &q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&e, &q, &act, PARE_NOTYPE);
    float factor = e.real ? q.x_scale : q.x_scale / q.y_scale;
    for (int i = 0; i < 256; i++) {
        int32_t x = p->in[0].dtype == PARE_s8 ? (int8_t)i : i;
        pare_epilogue_store(&e, (float)(x - q.x_zero) * factor, bytes, i);
    }
    s->device = p->device;
    PARE_TRY(pare_device_copy(p->ctx, p->device, &s->table, bytes, sizeof bytes));
    p->state = s;
    return PARE_OK;
}

static void requantize_release(void *state)
{
    requantize *s = state;
    if (s) s->device->backend->free(s->device, s->table);
}

static pare_status requantize_run(const pare_call *c)
{
    const requantize *s = c->state;
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, pare_cuda_table_launch, &w, s->table);
}

static const pare_kernel requantize_kernel = {.name = "cuda_requantize",
                                              .can = requantize_can,
                                              .prepare = requantize_prepare,
                                              .run = requantize_run,
                                              .release = requantize_release,
                                              .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_requantize[] = {&requantize_kernel, NULL};

/* --- QuantizeLinear, DequantizeLinear: per tensor or along an axis --- */

static bool scaling_can(const pare_prep *p, bool quantize)
{
    const pare_view *x = &p->in[0], *y = &p->out[0], *s = &p->in[1];
    pare_dtype real = quantize ? x->dtype : y->dtype, codes = quantize ? y->dtype : x->dtype;
    bool zeroed = p->in_count > 2 && p->in[2].dtype;
    bool coded = pare_type_is_int8(codes) || (!quantize && codes == PARE_s32);
    return pare_cuda_is_float(real) && s->dtype == real && coded &&
           (!zeroed || p->in[2].dtype == codes) && !pare_node_int(p->node, "block_size", 0) &&
           (pare_view_count(s) == 1 || s->rank == 1);
}

static bool quantize_can(const pare_prep *p) { return scaling_can(p, true); }
static bool dequantize_can(const pare_prep *p) { return scaling_can(p, false); }

static pare_status scaling_prepare(pare_prep *p)
{
    int *axis = pare_arena_alloc(p->arena, 1, sizeof *axis);
    if (!axis) return PARE_MEMORY;
    if (pare_view_count(&p->in[1]) != 1)
        PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", 1), p->in[0].rank, axis));
    p->state = axis;
    return PARE_OK;
}

/* A scale or zero point seen with x's rank: one number everywhere, or a vector along the axis. */
static pare_view like_x(const pare_view *v, const pare_view *x, int axis)
{
    pare_view w = *x;
    w.dtype = v->dtype;
    w.data = v->data;
    for (int i = 0; i < x->rank; i++)
        w.stride[i] = i == axis && pare_view_count(v) != 1 ? v->stride[0] : 0;
    return w;
}

static void scaling_walk(const pare_call *c, bool zeroed, pare_cuda_walk *w)
{
    int axis = *(const int *)c->state;
    pare_view s = like_x(&c->in[1], &c->in[0], axis);
    pare_view z = like_x(&c->in[zeroed ? 2 : 1], &c->in[0], axis);
    const pare_view *all[4] = {&c->out[0], &c->in[0], &s, &z};
    pare_walk_init(&w->walk, all, 4);
    for (int i = 0; i < 4; i++) w->data[i] = all[i]->data;
}

static pare_status quantize_run(const pare_call *c)
{
    pare_cuda_walk w;
    bool zeroed = c->in_count > 2 && c->in[2].dtype;
    scaling_walk(c, zeroed, &w);
    return PARE_CUDA_LAUNCH(c, pare_cuda_quantize_launch, &w, c->out[0].dtype, c->in[0].dtype,
                            zeroed);
}

static pare_status dequantize_run(const pare_call *c)
{
    pare_cuda_walk w;
    bool zeroed = c->in_count > 2 && c->in[2].dtype;
    scaling_walk(c, zeroed, &w);
    return PARE_CUDA_LAUNCH(c, pare_cuda_dequantize_launch, &w, c->out[0].dtype, c->in[0].dtype,
                            zeroed);
}

static const pare_kernel quantize = {.name = "cuda_quantize",
                                     .can = quantize_can,
                                     .prepare = scaling_prepare,
                                     .run = quantize_run};
static const pare_kernel dequantize = {.name = "cuda_dequantize",
                                       .can = dequantize_can,
                                       .prepare = scaling_prepare,
                                       .run = dequantize_run};
const pare_kernel *const pare_cuda_quantize[] = {&quantize, NULL};
const pare_kernel *const pare_cuda_dequantize[] = {&dequantize, NULL};
