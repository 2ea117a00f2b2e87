/* SPDX-License-Identifier: Apache-2.0 */
/* Fake-quantized constants: the floats that start a training from a file's integers, and their
   biases. A bias is added to sums of x q times w q, whose steps are s_x s_w[c]. Files of pare
   quantize hold it rounded to these, as floats or as s32; others may not, which is seen in the
   numbers. */
#include "runtime/passes/train/qat.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* --- weights --- */

/* The length of the name before "_quantized" (and a serial number after it); 0: it has none. */
static size_t base_length(const char *name)
{
    static const char mark[] = "_quantized";
    const size_t m = sizeof mark - 1;
    size_t n = strlen(name), at = n;
    while (at > 0 && isdigit((unsigned char)name[at - 1])) at--;
    if (at < n && at > 0 && name[at - 1] == '_') n = at - 1;
    return n > m && !memcmp(name + n - m, mark, m) ? n - m : 0;
}

const char *pare_qat_name(pare_qat_pass *p, const char *integers)
{
    const size_t n = base_length(integers);
    char *wanted = pare_arena_printf(&p->model->arena, "%.*s%s", n ? (int)n : 10000, integers,
                                     n ? "" : "_float");
    return wanted ? pare_graph_fresh_name(p->graph, wanted) : NULL;
}

/* The f32 model's constant of this name and size, or NULL. */
static const pare_tensor *source_of(const pare_qat_pass *p, const pare_value *q)
{
    const size_t n = base_length(q->name);
    if (!p->f32 || !n) return NULL;
    for (int i = 0; i < p->f32->graph->init.count; i++) {
        const pare_value *v = p->f32->graph->init.item[i];
        if (strlen(v->name) != n || memcmp(v->name, q->name, n)) continue;
        const pare_tensor *t = v->data;
        const bool fits = t->dtype == PARE_f32 && t->rank == q->data->rank &&
                          !memcmp(t->dims, q->data->dims, sizeof *t->dims * (size_t)t->rank);
        return fits ? t : NULL;
    }
    return NULL;
}

typedef struct master {
    const pare_fake *f;
    pare_qat_grid grid;
    const pare_tensor *q, *zero; /* zero NULL: absent */
    const float *scale, *source; /* source NULL: none */
    float *to;
} master;

static bool rounds_to(const master *m, int64_t i, int64_t c, float x)
{
    return pare_qat_level(x, m->scale[c], pare_qat_zero(m->zero, c), m->f->low, m->f->high) ==
           pare_qat_int(m->q, i);
}

/* What the channel was multiplied by before it was rounded, by least squares; 1 where all of it
   rounds as it is. */
static float factor_of(const master *m, int64_t c)
{
    double products = 0, squares = 0;
    bool all = true;
    for (int64_t o = 0; o < m->grid.outer; o++)
        for (int64_t k = 0, i = pare_fake_at(&m->grid, o, c); k < m->grid.inner; k++, i++) {
            all = all && rounds_to(m, i, c, m->source[i]);
            products += (double)m->source[i] * (double)m->to[i];
            squares += (double)m->source[i] * (double)m->source[i];
        }
    return all || !(squares > 0) ? 1 : (float)(products / squares);
}

/* Factors of a weight whose inputs were equalized as well: of each output channel and of each input
   ("column"). NULL: none are looked for. */
typedef struct factors {
    int64_t columns, taps;
    double *channel, *column, *low, *high; /* the last two are scratch: (the longer one) */
} factors;

static int64_t column_at(const master *m, const factors *f, int64_t o, int64_t k)
{
    return m->grid.outer > 1 ? o : k / f->taps;
}

/* One step of alternating least squares: the factors of channels, or of columns, for what the other
   ones are. */
static void fit_side(const master *m, const factors *f, bool columns)
{
    double *to = columns ? f->column : f->channel, *other = columns ? f->channel : f->column;
    const int64_t n = columns ? f->columns : m->grid.channels;
    memset(f->low, 0, (size_t)n * sizeof *f->low);
    memset(f->high, 0, (size_t)n * sizeof *f->high);
    for (int64_t o = 0; o < m->grid.outer; o++)
        for (int64_t c = 0; c < m->grid.channels; c++)
            for (int64_t k = 0, i = pare_fake_at(&m->grid, o, c); k < m->grid.inner; k++, i++) {
                const int64_t col = column_at(m, f, o, k), at = columns ? col : c;
                const double x = (double)m->source[i] * other[columns ? c : col];
                f->low[at] += x * (double)m->to[i] / (double)m->scale[c] / (double)m->scale[c];
                f->high[at] += x * x / (double)m->scale[c] / (double)m->scale[c];
            }
    for (int64_t i = 0; i < n; i++)
        if (f->high[i] > 0 && f->low[i] > 0) to[i] = f->low[i] / f->high[i];
}

/* Rounding moves nothing by more than half a step: the middle of the factors that agree with all
   integers, or that come nearest to it. */
static void centre_side(const master *m, const factors *f, bool columns)
{
    double *to = columns ? f->column : f->channel, *other = columns ? f->channel : f->column;
    const int64_t n = columns ? f->columns : m->grid.channels;
    for (int64_t i = 0; i < n; i++) f->low[i] = 0, f->high[i] = INFINITY;
    for (int64_t o = 0; o < m->grid.outer; o++)
        for (int64_t c = 0; c < m->grid.channels; c++)
            for (int64_t k = 0, i = pare_fake_at(&m->grid, o, c); k < m->grid.inner; k++, i++) {
                const int64_t col = column_at(m, f, o, k), at = columns ? col : c;
                const double x = fabs((double)m->source[i]) * other[columns ? c : col];
                const double y = fabs((double)m->to[i]), half = (double)m->scale[c] / 2;
                if (!(x > 0) || y > (double)m->scale[c] * 126.5) continue; /* clipped, maybe */
                f->low[at] = fmax(f->low[at], (y - half) / x);
                f->high[at] = fmin(f->high[at], (y + half) / x);
            }
    for (int64_t i = 0; i < n; i++)
        if (f->high[i] < INFINITY) to[i] = (f->low[i] + f->high[i]) / 2;
}

/* Rank-one factors of an (output, input, taps) or (input, output) weight. */
static pare_status fit_factors(pare_ctx *ctx, const master *m, factors *f)
{
    enum { SQUARES = 4, CENTRES = 8 };
    const pare_tensor *q = m->q;
    *f = (factors){0};
    if (q->rank < 2 || m->f->axis < 0 || m->f->axis > 1 || m->grid.channels != q->dims[m->f->axis])
        return PARE_OK;
    const int64_t columns = q->dims[1 - m->f->axis];
    if (columns < 2 || (m->f->axis == 1 && q->rank > 2)) return PARE_OK;
    const int64_t most = columns > m->grid.channels ? columns : m->grid.channels;
    double *room = pare_alloc(ctx, (size_t)(columns + m->grid.channels + 2 * most), sizeof *room);
    if (!room) return PARE_MEMORY;
    *f = (factors){columns, m->grid.inner / columns, room, room + m->grid.channels, NULL, NULL};
    if (m->f->axis == 1) f->taps = 1;
    f->low = f->column + columns;
    f->high = f->low + most;
    for (int64_t i = 0; i < columns + m->grid.channels; i++) room[i] = 1;
    for (int i = 0; i < SQUARES; i++) {
        fit_side(m, f, true);
        fit_side(m, f, false);
    }
    for (int i = 0; i < CENTRES; i++) {
        centre_side(m, f, true);
        centre_side(m, f, false);
    }
    return PARE_OK;
}

/* How many of a channel's elements are the float ones times these factors (f NULL: times `factor`
   all of them); `take` puts those in place. */
static int64_t match_channel(const master *m, int64_t c, float factor, const factors *f, bool take)
{
    int64_t taken = 0;
    for (int64_t o = 0; o < m->grid.outer; o++)
        for (int64_t k = 0, i = pare_fake_at(&m->grid, o, c); k < m->grid.inner; k++, i++) {
            if (f) factor = (float)(f->channel[c] * f->column[column_at(m, f, o, k)]);
            const float x = m->source[i] * factor;
            if (!rounds_to(m, i, c, x)) continue;
            if (take) m->to[i] = x;
            taken++;
        }
    return taken;
}

static pare_status take_source(pare_ctx *ctx, const master *m, int64_t *taken)
{
    const int64_t each = m->grid.outer * m->grid.inner;
    factors f = {0};
    bool all = true;
    for (int64_t c = 0; c < m->grid.channels && all; c++)
        all = match_channel(m, c, factor_of(m, c), NULL, false) * 100 >= each * 99;
    if (!all) PARE_TRY(fit_factors(ctx, m, &f));
    *taken = 0;
    for (int64_t c = 0; c < m->grid.channels; c++) {
        const float factor = factor_of(m, c);
        const bool both = f.channel && match_channel(m, c, 1, &f, false) >
                                           match_channel(m, c, factor, NULL, false);
        *taken += match_channel(m, c, factor, both ? &f : NULL, true);
    }
    pare_free(f.channel);
    return PARE_OK;
}

/* (q - z) s: DequantizeLinear (ONNX 13). */
static void dequantize(const master *m)
{
    for (int64_t o = 0; o < m->grid.outer; o++)
        for (int64_t c = 0; c < m->grid.channels; c++)
            for (int64_t k = 0, i = pare_fake_at(&m->grid, o, c); k < m->grid.inner; k++, i++)
                m->to[i] = (float)(pare_qat_int(m->q, i) - pare_qat_zero(m->zero, c)) * m->scale[c];
}

/* Symmetric weights leave the lowest level out; a file that uses it keeps it. */
static int lowest(const pare_tensor *q)
{
    if (q->dtype != PARE_s8) return 0;
    for (int64_t i = 0; i < q->count; i++)
        if (((const int8_t *)q->data)[i] == -128) return -128;
    return -127;
}

pare_status pare_qat_weight(pare_qat_pass *p, const pare_node *dq, pare_fake *f, pare_value **out)
{
    const pare_tensor *q = dq->in[0]->data, *zero = pare_node_in(dq, 2) ? dq->in[2]->data : NULL;
    const pare_tensor *source = source_of(p, dq->in[0]);
    const char *name = pare_qat_name(p, dq->in[0]->name);
    if (!name) return PARE_MEMORY;
    f->low = lowest(q);
    float *to = pare_alloc(p->model->ctx, (size_t)q->count, sizeof *to);
    float *copy = source ? pare_alloc(p->model->ctx, (size_t)q->count, sizeof *copy) : NULL;
    pare_status st = PARE_MEMORY;
    if (!to || (source && !copy)) goto done;
    if (source) memcpy(copy, source->data, source->bytes); /* a map's addresses are any */
    const master m = {f, pare_qat_grid_of(q, f->axis), q, zero, dq->in[1]->data->data, copy, to};
    dequantize(&m);
    st = source ? take_source(p->model->ctx, &m, &f->from_f32) : PARE_OK;
    if (st == PARE_OK) st = pare_init_new(p->graph, out, name, PARE_f32, q->rank, q->dims, to);
done:
    pare_free(to);
    pare_free(copy);
    return st;
}

/* --- biases --- */

typedef struct bias {
    pare_node *node; /* that reads it */
    int at;
    const pare_tensor *x_scale, *w_scale; /* and the constants' names: */
    const char *x_name, *w_name;
} bias;

static pare_node *fake_of(const pare_value *v)
{
    pare_node *n = v ? v->producer : NULL;
    return n && !strcmp(n->op_type, "FakeQuantize") ? n : NULL;
}

/* The sum after a product that alone reads it and adds a constant, or NULL. */
static pare_node *sum_of(const pare_value *y)
{
    pare_node *sum = pare_value_only_user(y);
    if (!sum || !pare_node_is(sum, "Add")) return NULL;
    return sum->in[sum->in[0] == y] && sum->in[sum->in[0] == y]->data ? sum : NULL;
}

/* Where a weighted node's bias is: its own input, else the sum's. */
static pare_status find(pare_node *node, bias *out, bool *found)
{
    pare_weighted part;
    *found = false;
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED) return PARE_OK;
    PARE_TRY(pare_op_of(node)->quant.weighted(node, &part));
    const pare_node *x = fake_of(pare_node_in(node, part.x));
    const pare_node *w = fake_of(pare_node_in(node, part.w));
    if (!x || !w || !w->in[0]->data || x->in[1]->data->count != 1) return PARE_OK;
    const bool own = part.bias >= 0 && pare_node_in(node, part.bias);
    pare_node *sum = own ? NULL : sum_of(node->out[0]);
    if (!own && !sum) return PARE_OK;
    out->node = own ? node : sum;
    out->at = own ? part.bias : sum->in[0]->data == NULL;
    out->x_scale = x->in[1]->data;
    out->w_scale = w->in[1]->data;
    out->x_name = x->in[1]->name;
    out->w_name = w->in[1]->name;
    *found = part.alpha == 1 && part.beta == 1;
    return PARE_OK;
}

/* The step of element c of a bias of `count`; false where there is not one for each. */
static bool step_of(const bias *b, int64_t count, int64_t c, float *out)
{
    const int64_t n = b->w_scale->count;
    if (n != 1 && n != count) return false;
    *out = ((const float *)b->x_scale->data)[0] * ((const float *)b->w_scale->data)[n == 1 ? 0 : c];
    return true;
}

static bool is_rounded(const bias *b, const pare_tensor *t)
{
    float step;
    for (int64_t c = 0; c < t->count; c++) {
        const float v = ((const float *)t->data)[c];
        if (!step_of(b, t->count, c, &step)) return false;
        const float again = (float)(rint((double)v / (double)step) * (double)step);
        if (memcmp(&again, &v, sizeof v)) return false;
    }
    return true;
}

static bool is_listed(const pare_qat_pass *p, const char *tensor)
{
    for (int i = 0; i < p->list.count; i++)
        if (!strcmp(p->list.item[i].tensor, tensor)) return true;
    return false;
}

static pare_status list_float(pare_qat_pass *p, const bias *b)
{
    const pare_value *v = b->node->in[b->at];
    if (!v->is_init || v->data->dtype != PARE_f32 || is_listed(p, v->name)) return PARE_OK;
    const bool rounded = is_rounded(b, v->data);
    return pare_fake_add(p, &(pare_fake){.kind = PARE_FAKE_BIAS,
                                         .tensor = v->name,
                                         .output = v->name,
                                         .file_tensor = v->name,
                                         .type = PARE_f32,
                                         .scales = v->data->count,
                                         .x_scale = rounded ? b->x_name : NULL,
                                         .w_scale = rounded ? b->w_name : NULL});
}

/* --- s32 --- */

static bool is_s32(const pare_node *dq, int64_t *scales)
{
    if (!dq || !pare_node_is(dq, "DequantizeLinear")) return false;
    const pare_value *q = pare_node_in(dq, 0), *s = pare_node_in(dq, 1), *z = pare_node_in(dq, 2);
    if (!q || !q->is_init || q->data->dtype != PARE_s32 || q->is_output || q->user_count != 1)
        return false;
    if (!s || !s->is_init || s->data->dtype != PARE_f32 || (z && !z->data)) return false;
    for (int64_t i = 0; z && i < z->data->count; i++)
        if (pare_qat_int(z->data, i)) return false;
    *scales = s->data->count;
    return q->data->rank == 1 && (*scales == 1 || *scales == q->data->count);
}

static bool scales_agree(const bias *b, const pare_tensor *scale, int64_t count)
{
    float step;
    for (int64_t c = 0; c < count; c++) {
        const float *s = &((const float *)scale->data)[scale->count == 1 ? 0 : c];
        if (!step_of(b, count, c, &step) || memcmp(s, &step, sizeof step)) return false;
    }
    return true;
}

static pare_status list_s32(pare_qat_pass *p, const bias *b, pare_node *dq)
{
    const pare_tensor *q = dq->in[0]->data, *scale = dq->in[1]->data;
    const char *name = pare_qat_name(p, dq->in[0]->name);
    pare_value *made;
    float *data = pare_alloc(p->model->ctx, (size_t)q->count, sizeof *data);
    pare_status st = name && data ? PARE_OK : PARE_MEMORY;
    for (int64_t c = 0; st == PARE_OK && c < q->count; c++)
        data[c] = (float)((const int32_t *)q->data)[c] *
                  ((const float *)scale->data)[scale->count == 1 ? 0 : c];
    if (st == PARE_OK) st = pare_init_new(p->graph, &made, name, PARE_f32, q->rank, q->dims, data);
    pare_free(data);
    PARE_TRY(st);
    const bool sums = scales_agree(b, scale, q->count);
    PARE_TRY(pare_fake_add(p, &(pare_fake){.kind = PARE_FAKE_BIAS,
                                           .tensor = made->name,
                                           .output = made->name,
                                           .dequantizer = dq->name[0] ? dq->name : NULL,
                                           .file_tensor = dq->in[0]->name,
                                           .file_scale = dq->in[1]->name,
                                           .type = PARE_s32,
                                           .scales = q->count,
                                           .x_scale = sums ? b->x_name : NULL,
                                           .w_scale = sums ? b->w_name : NULL}));
    return pare_value_replace(dq->out[0], made, false);
}

pare_status pare_qat_biases(pare_qat_pass *p)
{
    for (int n = 0; n < p->graph->node_count; n++) {
        bias b;
        bool found;
        int64_t scales;
        PARE_TRY(find(p->graph->node[n], &b, &found));
        if (!found) continue;
        pare_node *dq = b.node->in[b.at]->producer;
        if (dq && is_s32(dq, &scales) && !dq->out[0]->is_output)
            PARE_TRY(list_s32(p, &b, dq));
        else
            PARE_TRY(list_float(p, &b));
    }
    return PARE_OK;
}

/* --- floats between two levels --- */

/* splitmix64 (Steele, Lea, Flood 2014) as a number in (-0.5, 0.5). */
static float offset_of(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
    return ((float)(z >> 41) + 0.5f) * 0x1p-23f - 0.5f;
}

static void spread(const pare_fake *f, const pare_tensor *t, const pare_tensor *scale,
                   const pare_tensor *zero, uint64_t *state, float *to)
{
    const pare_qat_grid g = pare_qat_grid_of(t, f->axis);
    const float *from = t->data, *s = scale->data;
    for (int64_t o = 0; o < g.outer; o++)
        for (int64_t c = 0; c < g.channels; c++)
            for (int64_t k = 0, i = pare_fake_at(&g, o, c); k < g.inner; k++, i++) {
                const int z = pare_qat_zero(zero, c);
                const float moved = from[i] + offset_of(state) * s[c];
                const bool same = pare_qat_level(moved, s[c], z, f->low, f->high) ==
                                  pare_qat_level(from[i], s[c], z, f->low, f->high);
                to[i] = same && from[i] != 0 ? moved : from[i];
            }
}

static pare_status spread_weight(pare_model *model, const pare_fake *f, uint64_t *state)
{
    pare_value *v = pare_graph_find_own(model->graph, f->tensor);
    const pare_tensor *t = v->data, *zero = NULL;
    const pare_tensor *scale = pare_graph_find_own(model->graph, f->scale)->data;
    if (f->zero) zero = pare_graph_find_own(model->graph, f->zero)->data;
    float *to = pare_alloc(model->ctx, (size_t)t->count, sizeof *to);
    pare_tensor *made;
    if (!to) return PARE_MEMORY;
    spread(f, t, scale, zero, state, to);
    pare_status st = pare_tensor_new(model, &made, t->name, PARE_f32, t->rank, t->dims, to);
    pare_free(to);
    return st == PARE_OK ? pare_value_set_init(v, made) : st;
}

pare_status pare_pass_qat_init(pare_model *trained, const pare_fakes *fakes, uint64_t seed)
{
    uint64_t state = seed;
    for (int i = 0; i < fakes->count; i++) {
        const pare_fake *f = &fakes->item[i];
        const bool integers = f->kind == PARE_FAKE_WEIGHT && strcmp(f->tensor, f->file_tensor) != 0;
        if (integers && !f->from_f32) PARE_TRY(spread_weight(trained, f, &state));
    }
    return PARE_OK;
}
