/* SPDX-License-Identifier: Apache-2.0 */
/* RNN, GRU and LSTM (7, 14, 22). */
#include "runtime/ops/recurrent.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* --- activation functions --- */

/* alpha and beta where the node gives none (ONNX: those of the operators of these names). */
static const struct {
    const char *name;
    int parameters;
    float alpha, beta;
} functions[PARE_RECURRENT_ACTS] = {
    [PARE_RECURRENT_RELU] = {"Relu", 0, 0, 0},
    [PARE_RECURRENT_TANH] = {"Tanh", 0, 0, 0},
    [PARE_RECURRENT_SIGMOID] = {"Sigmoid", 0, 0, 0},
    [PARE_RECURRENT_AFFINE] = {"Affine", 2, 1, 0},
    [PARE_RECURRENT_LEAKY_RELU] = {"LeakyRelu", 1, 0.01f, 0},
    [PARE_RECURRENT_THRESHOLDED_RELU] = {"ThresholdedRelu", 1, 1, 0},
    [PARE_RECURRENT_SCALED_TANH] = {"ScaledTanh", 2, 1, 1},
    [PARE_RECURRENT_HARD_SIGMOID] = {"HardSigmoid", 2, 0.2f, 0.5f},
    [PARE_RECURRENT_ELU] = {"Elu", 1, 1, 0},
    [PARE_RECURRENT_SOFTSIGN] = {"Softsign", 0, 0, 0},
    [PARE_RECURRENT_SOFTPLUS] = {"Softplus", 0, 0, 0},
};

static pare_status function_find(const pare_node *node, const pare_bytes *name,
                                 pare_recurrent_function *out)
{
    for (int i = 0; i < PARE_RECURRENT_ACTS; i++) {
        size_t n = strlen(functions[i].name);
        if (name->size != n || strncasecmp((const char *)name->data, functions[i].name, n))
            continue;
        *out =
            (pare_recurrent_function){(pare_recurrent_act)i, functions[i].alpha, functions[i].beta};
        return PARE_OK;
    }
    return PARE_FAIL_NODE(node, INPUT, "activation '%.*s' is unknown", (int)name->size,
                          (const char *)name->data);
}

/* The lists of numbers are used up in order by the functions that have such a parameter. */
static const float *listed(const pare_node *node, const char *attr, int *count)
{
    const pare_attr *a = pare_node_attr(node, attr);
    bool floats = a && a->kind == PARE_ATTR_FLOATS;
    *count = floats ? a->count : 0;
    return floats ? a->floats : NULL;
}

static pare_status functions_read(const pare_node *node, pare_recurrent *r)
{
    static const pare_recurrent_act usual[3][PARE_RECURRENT_FUNCTIONS] = {
        [PARE_RECURRENT_RNN] = {PARE_RECURRENT_TANH},
        [PARE_RECURRENT_GRU] = {PARE_RECURRENT_SIGMOID, PARE_RECURRENT_TANH},
        [PARE_RECURRENT_LSTM] = {PARE_RECURRENT_SIGMOID, PARE_RECURRENT_TANH, PARE_RECURRENT_TANH}};
    const pare_attr *names = pare_node_attr(node, "activations");
    int each = 1 + (int)r->cell, alphas, betas, a = 0, b = 0;
    const float *alpha = listed(node, "activation_alpha", &alphas);
    const float *beta = listed(node, "activation_beta", &betas);
    if (names && (names->kind != PARE_ATTR_STRINGS || names->count != each * r->directions))
        return PARE_FAIL_NODE(node, INPUT, "activations must be %d names", each * r->directions);
    for (int i = 0; i < each * r->directions; i++) {
        pare_recurrent_function *f = &r->f[i / each][i % each];
        *f = (pare_recurrent_function){usual[r->cell][i % each], 0, 0};
        if (names) PARE_TRY(function_find(node, &names->strings[i], f));
        if (functions[f->act].parameters > 0 && a < alphas) f->alpha = alpha[a++];
        if (functions[f->act].parameters > 1 && b < betas) f->beta = beta[b++];
    }
    return PARE_OK;
}

/* --- shapes --- */

static pare_status meet(const pare_node *node, int input, int axis, int64_t *have, int64_t divisor,
                        const char *what)
{
    const pare_value *v = pare_node_in(node, input);
    if (!v || v->shape.rank < 0 || v->shape.dim[axis] < 0) return PARE_OK;
    int64_t n = v->shape.dim[axis];
    if (n % divisor == 0 && (*have < 0 || *have == n / divisor)) {
        *have = n / divisor;
        return PARE_OK;
    }
    char text[256];
    return PARE_FAIL_NODE(node, INPUT, "input '%s' has shape %s: axis %d does not fit %s %" PRId64,
                          v->name, pare_shape_text(&v->shape, text, sizeof text), axis, what,
                          *have);
}

static pare_status rank_check(const pare_node *node, int input, int rank)
{
    const pare_value *v = pare_node_in(node, input);
    if (!v || v->shape.rank < 0 || v->shape.rank == rank) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "input '%s' has %d axes, expected %d", v->name,
                          v->shape.rank, rank);
}

static pare_status types_check(const pare_node *node)
{
    for (int i = 1; i < node->in_count; i++)
        if (i != 4) PARE_TRY(pare_infer_same_type(node, 0, i));
    const pare_dtype lengths = pare_infer_dtype(node, 4);
    if (lengths && lengths != PARE_s32)
        return PARE_FAIL_NODE(node, INPUT, "sequence_lens '%s' must be int32", node->in[4]->name);
    return PARE_OK;
}

static pare_status sizes_read(const pare_node *node, pare_recurrent *r)
{
    static const int ranks[] = {3, 3, 3, 2, 1, 3, 3, 2};
    int64_t directions = r->directions, gates = r->gates;
    if (node->in_count > (r->cell == PARE_RECURRENT_LSTM ? 8 : 6))
        return PARE_FAIL_NODE(node, INPUT, "it has %d inputs", node->in_count);
    for (int i = 0; i < node->in_count; i++) PARE_TRY(rank_check(node, i, ranks[i]));
    PARE_TRY(types_check(node));
    r->length = r->batch = r->size = -1;
    r->hidden = pare_node_attr(node, "hidden_size") ? pare_node_int(node, "hidden_size", 0) : -1;
    const int lead = r->batch_first ? 1 : 0; /* of a state: the axis of directions */
    PARE_TRY(meet(node, 0, r->batch_first ? 1 : 0, &r->length, 1, "length"));
    PARE_TRY(meet(node, 0, r->batch_first ? 0 : 1, &r->batch, 1, "batch"));
    PARE_TRY(meet(node, 0, 2, &r->size, 1, "size"));
    PARE_TRY(meet(node, 1, 2, &r->size, 1, "the size of X,"));
    for (int i = 1; i < 4; i++) PARE_TRY(meet(node, i, 0, &directions, 1, "directions"));
    PARE_TRY(meet(node, 1, 1, &r->hidden, gates, "gates and hidden_size"));
    PARE_TRY(meet(node, 2, 1, &r->hidden, gates, "gates and hidden_size"));
    PARE_TRY(meet(node, 2, 2, &r->hidden, 1, "hidden_size"));
    PARE_TRY(meet(node, 3, 1, &r->hidden, 2 * gates, "gates and hidden_size"));
    PARE_TRY(meet(node, 4, 0, &r->batch, 1, "batch"));
    for (int i = 5; i < 7; i++) {
        PARE_TRY(meet(node, i, lead, &directions, 1, "directions"));
        PARE_TRY(meet(node, i, 1 - lead, &r->batch, 1, "batch"));
        PARE_TRY(meet(node, i, 2, &r->hidden, 1, "hidden_size"));
    }
    PARE_TRY(meet(node, 7, 0, &directions, 1, "directions"));
    return meet(node, 7, 1, &r->hidden, 3, "peepholes and hidden_size");
}

pare_status pare_recurrent_read(const pare_node *node, pare_recurrent *out)
{
    *out = (pare_recurrent){.cell = PARE_RECURRENT_RNN, .gates = 1, .directions = 1};
    if (pare_node_is(node, "GRU")) out->cell = PARE_RECURRENT_GRU, out->gates = 3;
    if (pare_node_is(node, "LSTM")) out->cell = PARE_RECURRENT_LSTM, out->gates = 4;
    const char *direction = pare_node_string(node, "direction", "forward");
    if (!strcmp(direction, "bidirectional"))
        out->directions = 2;
    else if (!strcmp(direction, "reverse"))
        out->backwards[0] = true;
    else if (strcmp(direction, "forward"))
        return PARE_FAIL_NODE(node, INPUT,
                              "direction is '%s', expected forward, reverse or bidirectional",
                              direction);
    out->backwards[1] = true;
    out->batch_first = pare_node_int(node, "layout", 0) == 1;
    out->coupled = pare_node_int(node, "input_forget", 0);
    out->linear_before = pare_node_int(node, "linear_before_reset", 0);
    out->clip = pare_node_float(node, "clip", 0);
    PARE_TRY(functions_read(node, out));
    return sizes_read(node, out);
}

/* Y (length, directions, batch, hidden), Y_h and Y_c (directions, batch, hidden); with layout 1 the
   batch is first. */
pare_status pare_infer_recurrent(pare_node *node)
{
    pare_recurrent r;
    pare_value *x;
    for (int i = 0; i < 3; i++) PARE_TRY(pare_infer_need(node, i, &x));
    PARE_TRY(pare_recurrent_read(node, &r));
    const int64_t d = r.directions;
    pare_shape y = {.rank = 4, .dim = {r.length, d, r.batch, r.hidden}};
    pare_shape state = {.rank = 3, .dim = {d, r.batch, r.hidden}};
    if (r.batch_first) {
        y = (pare_shape){.rank = 4, .dim = {r.batch, r.length, d, r.hidden}};
        state = (pare_shape){.rank = 3, .dim = {r.batch, d, r.hidden}};
    }
    const pare_dtype dtype = pare_infer_dtype(node, 0);
    pare_infer_out(node, 0, dtype, &y);
    pare_infer_out(node, 1, dtype, &state);
    if (r.cell == PARE_RECURRENT_LSTM) pare_infer_out(node, 2, dtype, &state);
    return PARE_OK;
}
