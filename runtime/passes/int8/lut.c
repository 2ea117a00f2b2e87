/* SPDX-License-Identifier: Apache-2.0 */
/* A Q whose input is a function of one int8 tensor, element by element, becomes a table of 256
   entries, made in double. Between the leaf and the Q may be any tree of the functions of
   ops/unary.inc, Clip, arithmetic, scalar constants, earlier tables and inner Q/DQ pairs (SiLU and
   GELU spelled out, for example).
 */
#include "runtime/passes/int8/fold_qdq.h"
#include "runtime/ops/unary.h"

#include <math.h>
#include <string.h>

enum { DEPTH = 24 };

/* --- functions of one number --- */

#define real double

#define PARE_UNARY(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx)                         \
    case PARE_UNARY_##name: return f;
/* A row of ops/unary.inc. */
static double unary(pare_unary row, double x, double a, double b)
{
    switch (row) {
#include "runtime/ops/unary.inc"
    default: return NAN;
    }
}

static double clip(const pare_node *n, double x)
{
    const pare_value *low = pare_node_in(n, 1), *high = pare_node_in(n, 2);
    if (low) x = fmax(x, (double)*(const float *)low->data->data);
    if (high) x = fmin(x, (double)*(const float *)high->data->data);
    return x;
}

static bool is_function(const pare_node *n)
{
    if (*n->domain) return false;
    if (!strcmp(n->op_type, "Identity")) return true;
    if (!strcmp(n->op_type, "Dropout")) return !pare_node_drops(n);
    pare_unary row = pare_unary_of(n);
    if (row != PARE_UNARY_Clip) return row != PARE_UNARY_COUNT;
    for (int i = 1; i < n->in_count; i++)
        if (n->in[i] &&
            (!n->in[i]->data || n->in[i]->data->dtype != PARE_f32 || n->in[i]->data->count != 1))
            return false;
    return true;
}

static double apply(const pare_node *n, double x)
{
    pare_unary row = pare_unary_of(n);
    if (row == PARE_UNARY_COUNT) return x;
    if (row == PARE_UNARY_Clip) return clip(n, x);
    return unary(row, x, (double)pare_unary_attr(n, row, 0), (double)pare_unary_attr(n, row, 1));
}

static bool is_arithmetic(const pare_node *n)
{
    static const char *const names[] = {"Add", "Sub", "Mul", "Div", "Pow"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n->in_count == 2 && pare_node_is(n, names[i])) return true;
    return false;
}

bool pare_qdq_in_table(const pare_node *node) { return is_function(node) || is_arithmetic(node); }

static double combine(const char *type, double a, double b)
{
    switch (type[0] == 'P' ? 'P' : type[0]) {
    case 'A': return a + b;
    case 'S': return a - b;
    case 'M': return a * b;
    case 'D': return a / b;
    default: return pow(a, b);
    }
}

/* --- the tree --- */

static bool scalar_constant(const pare_value *v)
{
    return v->data && v->data->dtype == PARE_f32 && v->data->count == 1;
}

/* The int8 tensor an int8 value is a table of, or itself. */
static pare_value *leaf_of(pare_value *q)
{
    const pare_node *n = q->producer;
    bool is_table = n && !strcmp(n->domain, PARE_DOMAIN) && !strcmp(n->op_type, "Table");
    return is_table ? n->in[0] : q;
}

/* Finds the one leaf below a float value; false where there are two, or something else. */
static bool find_leaf(const pare_value *v, int depth, pare_value **leaf, pare_dtype *type)
{
    pare_qparam p;
    if (!v || depth == 0) return false;
    if (scalar_constant(v)) return true;
    pare_node *n = v->producer;
    if (!n) return false;
    pare_value *q = pare_qdq_after(v, &p);
    if (q) {
        if (q->data) return false;
        pare_value *found = leaf_of(q);
        if (*leaf && *leaf != found) return false;
        *leaf = found;
        *type = found->dtype;
        return true;
    }
    if (is_function(n)) return find_leaf(n->in[0], depth - 1, leaf, type);
    return is_arithmetic(n) && find_leaf(n->in[0], depth - 1, leaf, type) &&
           find_leaf(n->in[1], depth - 1, leaf, type);
}

/* The value for byte i of the leaf. */
static double eval(const pare_value *v, int i)
{
    pare_qparam p;
    if (scalar_constant(v)) return (double)*(const float *)v->data->data;
    const pare_node *n = v->producer;
    const pare_value *q = pare_qdq_after(v, &p);
    if (q) {
        const pare_node *table = q->producer;
        bool looked_up =
            table && !strcmp(table->domain, PARE_DOMAIN) && !strcmp(table->op_type, "Table");
        int byte = looked_up ? ((const uint8_t *)table->in[1]->data->data)[i] : i;
        int x = p.dtype == PARE_s8 ? (int8_t)byte : byte;
        return (double)(x - p.zero) * (double)p.scale;
    }
    if (is_function(n)) return apply(n, eval(n->in[0], i));
    return combine(n->op_type, eval(n->in[0], i), eval(n->in[1], i));
}

static uint8_t quantized(double y, const pare_qparam *p)
{
    double low = p->dtype == PARE_s8 ? -128 : 0, high = p->dtype == PARE_s8 ? 127 : 255;
    double q = rint(y / (double)p->scale) + p->zero;
    return (uint8_t)(int)(isnan(q) ? p->zero : fmin(fmax(q, low), high));
}

pare_status pare_qdq_lut(pare_node *q, bool *done)
{
    pare_qparam to, from;
    pare_value *leaf = NULL, *table, *y = q->out[0];
    pare_dtype type = PARE_NOTYPE;
    *done = false;
    if (!pare_qdq_is_q(q, &to) || !pare_qparam_is_int8(&to)) return PARE_OK;
    pare_value *behind = pare_qdq_after(q->in[0], &from);
    if (behind && leaf_of(behind) == behind) return PARE_OK; /* Requantize says that better */
    if (!find_leaf(q->in[0], DEPTH, &leaf, &type) || !leaf) return PARE_OK;
    if (leaf->dtype != PARE_s8 && leaf->dtype != PARE_u8) return PARE_OK;
    uint8_t entry[256];
    for (int i = 0; i < 256; i++) entry[i] = quantized(eval(q->in[0], i), &to);
    pare_graph *graph = q->graph;
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_table", y->name);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(graph, &table, name, to.dtype, 1, &(int64_t){256}, entry));
    int at = pare_node_index(q);
    pare_node_remove(q);
    pare_value *in[] = {leaf, table};
    *done = true;
    return pare_node_new(graph, NULL, at, "Table", PARE_DOMAIN, y->name, in, 2, &y, 1);
}
