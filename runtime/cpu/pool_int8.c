/* SPDX-License-Identifier: Apache-2.0 */
/* QAveragePool and QGlobalAveragePool, any strides:
     v = ((float)sum of (x - z_x) * (s_x / s_y)) / count
   over taps inside the tensor; count is their number, or that of the window inside the padded
   tensor with count_include_pad (ONNX AveragePool-19: a pad holds the real value 0). Then
   epilogue.h. The innermost loop runs along channels, which are together in N, H, W, C order. */
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/cpu/ref.h"

typedef struct pool_args {
    pare_window win;
    pare_quant_args q;
    pare_epilogue epilogue;
    float factor;
} pool_args;

static pare_status pool_read(pare_prep *p, pool_args **out)
{
    pool_args *m = pare_arena_alloc(p->arena, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    pare_act act;
    PARE_TRY(pare_quant_read(p->node, &m->q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&m->epilogue, &m->q, &act, PARE_NOTYPE);
    m->factor = m->epilogue.real ? m->q.x_scale : m->q.x_scale / m->q.y_scale;
    p->state = *out = m;
    return PARE_OK;
}

static pare_status pool_prepare(pare_prep *p)
{
    pool_args *m;
    PARE_TRY(pool_read(p, &m));
    pare_shape x = {.rank = p->in[0].rank};
    for (int i = 0; i < x.rank; i++) x.dim[i] = p->in[0].dim[i];
    return pare_window_read(p->node, &x, NULL, &m->win);
}

/* The whole tensor is one window. */
static pare_status global_prepare(pare_prep *p)
{
    pool_args *m;
    PARE_TRY(pool_read(p, &m));
    const pare_view *x = &p->in[0];
    m->win = (pare_window){.nd = x->rank - 2, .group = 1};
    for (int i = 0; i < 3; i++) {
        int axis = i - (3 - m->win.nd);
        m->win.in[i] = m->win.kernel[i] = axis < 0 ? 1 : x->dim[2 + axis];
        m->win.stride[i] = m->win.dilation[i] = m->win.out[i] = 1;
    }
    return PARE_OK;
}

static bool pool_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && p->in[0].rank >= 3 && p->in[0].rank <= 5;
}

#define SUM(name, ctype)                                                                           \
    PARE_CLONES static void sum_##name(int32_t *acc, int64_t n, const ctype *x)                    \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) acc[i] += x[i];                                            \
    }
SUM(s8, int8_t)
SUM(u8, uint8_t)

static void sum_row(int32_t *acc, int64_t n, const void *x, pare_dtype type, int64_t stride)
{
    if (stride == 1 && type == PARE_s8)
        sum_s8(acc, n, x);
    else if (stride == 1)
        sum_u8(acc, n, x);
    else if (type == PARE_s8)
        for (int64_t i = 0; i < n; i++) acc[i] += ((const int8_t *)x)[i * stride];
    else
        for (int64_t i = 0; i < n; i++) acc[i] += ((const uint8_t *)x)[i * stride];
}

/* Channels c .. c + n of one output position. */
static void pool_point(const pare_call *c, int64_t batch, const int64_t *at, int64_t channel,
                       int64_t n)
{
    const pool_args *m = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int axes = m->win.nd;
    pare_taps taps[3];
    int64_t xs[3] = {0}, yi = batch * y->stride[0];
    for (int i = 0; i < 3; i++) {
        taps[i] = pare_window_taps(&m->win, i, at[i]);
        int axis = i - (3 - axes);
        if (axis >= 0) xs[i] = x->stride[2 + axis], yi += at[i] * y->stride[2 + axis];
    }
    int32_t acc[PARE_ROW] = {0};
    float v[PARE_ROW];
    int64_t count = 0;
    for (int64_t a = 0; a < taps[0].count; a++)
        for (int64_t b = 0; b < taps[1].count; b++)
            for (int64_t d = 0; d < taps[2].count; d++, count++) {
                int64_t k[3] = {a, b, d}, xi = batch * x->stride[0] + channel * x->stride[1];
                for (int i = 0; i < 3; i++)
                    xi += (taps[i].first + k[i] * m->win.dilation[i]) * xs[i];
                sum_row(acc, n, (const char *)x->data + xi, x->dtype, x->stride[1]);
            }
    int32_t zeros = (int32_t)count * m->q.x_zero;
    if (m->win.include_pad) count = taps[0].padded * taps[1].padded * taps[2].padded;
    for (int64_t i = 0; i < n; i++)
        v[i] = ((float)(acc[i] - zeros) * m->factor) / (float)(count > 0 ? count : 1);
    pare_row_store(&m->epilogue, n, v,
                   pare_element(y->data, m->epilogue.to, yi + channel * y->stride[1]),
                   y->stride[1]);
}

static void pool_batch(const pare_call *c, int64_t job)
{
    const pool_args *m = c->state;
    int64_t channels = c->in[0].dim[1], parts = (channels + PARE_ROW - 1) / PARE_ROW;
    int64_t batch = job / parts, from = job % parts * PARE_ROW;
    int64_t n = channels - from < PARE_ROW ? channels - from : PARE_ROW, at[3];
    for (at[0] = 0; at[0] < m->win.out[0]; at[0]++)
        for (at[1] = 0; at[1] < m->win.out[1]; at[1]++)
            for (at[2] = 0; at[2] < m->win.out[2]; at[2]++) pool_point(c, batch, at, from, n);
}

static pare_status pool_run(const pare_call *c)
{
    int64_t jobs = c->in[0].dim[0] * ((c->in[0].dim[1] + PARE_ROW - 1) / PARE_ROW);
    if (c->threads <= 1 || jobs <= 1 || pare_view_count(&c->in[0]) < 32768) {
        for (int64_t i = 0; i < jobs; i++) pool_batch(c, i);
        return PARE_OK;
    }
#pragma omp parallel for num_threads(c->threads) schedule(static)
    for (int64_t i = 0; i < jobs; i++) pool_batch(c, i);
    return PARE_OK;
}

static const pare_kernel average = {.name = "int8_average_pool",
                                    .can = pool_can,
                                    .prepare = pool_prepare,
                                    .run = pool_run,
                                    .flags = PARE_KERNEL_REF};
static const pare_kernel global = {.name = "int8_global_average_pool",
                                   .can = pool_can,
                                   .prepare = global_prepare,
                                   .run = pool_run,
                                   .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_q_average_pool[] = {&average, NULL};
const pare_kernel *const pare_cpu_q_global_average_pool[] = {&global, NULL};
