/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization (15, inference form) into the linear operator before it:
     y = g (x - m) / sqrt(v + eps) + b = s x + t,  s = g / sqrt(v + eps),  t = b - m s
   so weights of output channel c are multiplied by s[c] and the bias becomes s bias + t. Factors
   are computed in double; the products are rounded once. */
#include "runtime/ops/infer.h"
#include "runtime/passes/passes.h"

#include <math.h>

/* How output channels are in a weight of dims [outer, channels, inner] seen flat; for ConvTranspose
   with groups, outer rows of group g own channels g * channels ... */
typedef struct layout {
    int64_t outer, channels, inner, groups;
} layout;

static pare_value *constant(const pare_node *node, int i, int64_t count)
{
    pare_value *v = pare_node_in(node, i);
    return v && v->data && pare_type_is_float(v->data->dtype) &&
                   (count < 0 || v->data->count == count)
               ? v
               : NULL;
}

static bool weight_layout(const pare_node *node, const pare_tensor *w, layout *out)
{
    if (w->rank < 2) return false;
    *out = (layout){1, w->dims[0], 1, 1};
    if (pare_node_is(node, "Gemm")) {
        if (w->rank != 2) return false;
        if (!pare_node_int(node, "transB", 0))
            *out = (layout){w->dims[0], w->dims[1], 1, 1};
        else
            out->inner = w->dims[1];
        return true;
    }
    int64_t taps = 1;
    for (int i = 2; i < w->rank; i++) taps *= w->dims[i];
    if (pare_node_is(node, "Conv")) {
        out->inner = w->dims[1] * taps;
        return true;
    }
    int64_t groups = pare_node_int(node, "group", 1);
    *out = (layout){w->dims[0], w->dims[1], taps, groups};
    return groups > 0 && w->dims[0] % groups == 0;
}

/* dst = src scaled channel by channel. */
static void scale_weight(pare_tensor *dst, const pare_tensor *src, const layout *l, const double *s)
{
    int64_t per_group = l->outer / l->groups ? l->outer / l->groups : 1, at = 0;
    void (*store)(void *, float) = pare_type(src->dtype)->from_f32_ref;
    size_t size = (size_t)pare_type(src->dtype)->bits / 8;
    char *out = (char *)dst->data;
    for (int64_t o = 0; o < l->outer; o++)
        for (int64_t c = 0; c < l->channels; c++) {
            const double f = s[(l->groups > 1 ? o / per_group * l->channels : 0) + c];
            if (src->dtype == PARE_f32 && (uintptr_t)src->data % sizeof(float) == 0) {
                const float *x = (const float *)src->data + at;
                for (int64_t i = 0; i < l->inner; i++)
                    ((float *)out)[at + i] = (float)((double)x[i] * f);
            } else
                for (int64_t i = at; i < at + l->inner; i++) {
                    double y = pare_tensor_number(src, i) * f;
                    if (src->dtype == PARE_f64)
                        ((double *)out)[i] = y;
                    else
                        store(out + (size_t)i * size, (float)y);
                }
            at += l->inner;
        }
}

/* Input i of the node becomes this tensor: in its own value where nothing else reads it. */
static pare_status put(pare_node *node, int i, pare_tensor *t, const char *suffix)
{
    pare_value *v = pare_node_in(node, i);
    if (v && v->user_count == 1 && !v->is_output && v->is_init && v->graph == node->graph &&
        v->data->rank == t->rank) {
        t->name = v->name;
        return pare_value_set_init(v, t);
    }
    const char *name = pare_upgrade_name(node, suffix);
    if (!name) return PARE_MEMORY;
    t->name = name;
    PARE_TRY(pare_value_new(node->graph, &v, name));
    PARE_TRY(pare_value_set_init(v, t));
    return pare_node_set_in(node, i, v);
}

/* The bias of channel c as the node adds it; Gemm's is scaled by its beta. */
static double bias_of(const pare_value *bias, int64_t c, double beta)
{
    if (!bias) return 0;
    return beta * pare_tensor_number(bias->data, bias->data->count == 1 ? 0 : c);
}

typedef struct batchnorm {
    pare_node *linear, *bn;
    pare_value *weight, *bias, *gamma, *beta, *mean, *variance;
    layout layout;
    int64_t channels;
} batchnorm;

/* Does this BatchNormalization follow an operator it can be folded into? */
static bool match(pare_node *bn, batchnorm *m)
{
    *m = (batchnorm){.bn = bn};
    pare_value *x = pare_node_in(bn, 0);
    if (!pare_node_is(bn, "BatchNormalization") || !x || pare_node_int(bn, "training_mode", 0))
        return false;
    for (int i = 1; i < bn->out_count; i++)
        if (bn->out[i] && (bn->out[i]->user_count || bn->out[i]->is_output)) return false;
    pare_node *n = x->producer;
    if (!n || n->graph != bn->graph || pare_value_only_user(x) != bn || !bn->out[0]) return false;
    bool gemm = pare_node_is(n, "Gemm");
    if (!gemm && !pare_node_is(n, "Conv") && !pare_node_is(n, "ConvTranspose")) return false;
    m->linear = n;
    m->weight = constant(n, 1, -1);
    if (!m->weight || !weight_layout(n, m->weight->data, &m->layout)) return false;
    m->channels = m->layout.channels * m->layout.groups;
    m->gamma = constant(bn, 1, m->channels);
    m->beta = constant(bn, 2, m->channels);
    m->mean = constant(bn, 3, m->channels);
    m->variance = constant(bn, 4, m->channels);
    if (!m->gamma || !m->beta || !m->mean || !m->variance) return false;
    if (!pare_node_in(n, 2)) return true;
    m->bias = constant(n, 2, m->channels);
    if (!m->bias && gemm) m->bias = constant(n, 2, 1);
    if (!m->bias) return false;
    /* a Gemm's C of [N, 1] would be one number a row */
    const pare_tensor *c = m->bias->data;
    return c->count == 1 || c->dims[c->rank - 1] == m->channels;
}

static pare_status fold(const batchnorm *m, double *s)
{
    pare_model *model = m->bn->graph->model;
    const pare_tensor *w = m->weight->data;
    pare_tensor *weight, *bias;
    double eps = (double)pare_node_float(m->bn, "epsilon", 1e-5f);
    double beta =
        pare_node_is(m->linear, "Gemm") ? (double)pare_node_float(m->linear, "beta", 1) : 1;
    PARE_TRY(pare_tensor_new(model, &weight, m->weight->name, w->dtype, w->rank, w->dims, NULL));
    PARE_TRY(pare_tensor_new(model, &bias, "", w->dtype, 1, &m->channels, NULL));
    for (int64_t c = 0; c < m->channels; c++) {
        s[c] = pare_tensor_number(m->gamma->data, c) /
               sqrt(pare_tensor_number(m->variance->data, c) + eps);
        double t = (bias_of(m->bias, c, beta) - pare_tensor_number(m->mean->data, c)) * s[c] +
                   pare_tensor_number(m->beta->data, c);
        char *at = (char *)bias->data + (size_t)c * ((size_t)pare_type(w->dtype)->bits / 8);
        if (w->dtype == PARE_f64)
            *(double *)(void *)at = t;
        else
            pare_type(w->dtype)->from_f32_ref(at, (float)t);
    }
    scale_weight(weight, w, &m->layout, s);
    PARE_TRY(put(m->linear, 1, weight, "weight"));
    PARE_TRY(put(m->linear, 2, bias, "bias"));
    if (beta != 1) PARE_TRY(pare_node_set_float(m->linear, "beta", 1));
    pare_value *y = m->bn->out[0], *x = m->linear->out[0];
    pare_node_remove(m->bn);
    pare_values_remove(&m->linear->graph->info, x);
    pare_node_set_out(m->linear, 0, y);
    pare_value *gone[] = {m->weight, m->bias, m->gamma, m->beta, m->mean, m->variance};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (gone[i] && gone[i]->is_init && !gone[i]->user_count && !gone[i]->is_output)
            pare_init_remove(gone[i]);
    return PARE_OK;
}

static pare_status fold_graph(pare_graph *graph, void *user)
{
    (void)user;
    for (int n = 0; n < graph->node_count; n++) {
        batchnorm m;
        if (!match(graph->node[n], &m)) continue;
        double *s = pare_alloc(graph->model->ctx, (size_t)m.channels + 1, sizeof *s);
        if (!s) return PARE_MEMORY;
        pare_status st = fold(&m, s);
        pare_free(s);
        PARE_TRY(st);
        n--;
    }
    return PARE_OK;
}

pare_status pare_pass_fold_batchnorm(pare_model *model)
{
    return pare_graph_each(model->graph, fold_graph, NULL);
}
