/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/passes/train/qat_weights.h"
#include "runtime/passes/train/qat_levels.h"

#include <ctype.h>
#include <string.h>

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

static int64_t take_channel(const master *m, int64_t c)
{
    const float factor = factor_of(m, c);
    int64_t taken = 0;
    for (int64_t o = 0; o < m->grid.outer; o++)
        for (int64_t k = 0, i = pare_fake_at(&m->grid, o, c); k < m->grid.inner; k++, i++) {
            const float x = m->source[i] * factor;
            if (!rounds_to(m, i, c, x)) continue;
            m->to[i] = x;
            taken++;
        }
    return taken;
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
    for (int64_t c = 0; source && c < m.grid.channels; c++) f->from_f32 += take_channel(&m, c);
    st = pare_init_new(p->graph, out, name, PARE_f32, q->rank, q->dims, to);
done:
    pare_free(to);
    pare_free(copy);
    return st;
}
