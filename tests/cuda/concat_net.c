/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cuda/concat_net.h"
#include "tests/passes/qdq_case.h"
#include "tests/simt/testing.h"

enum { IN = 16, SIDE = 8, MOST = 80000 };

static const float SCALE = 1 / 32.0f;

/* --- parts --- */

static void attr_ints(pare_node *node, const char *name, int count, const int64_t *values)
{
    const pare_attr a = {.name = name, .kind = PARE_ATTR_INTS, .count = count, .ints = values};
    assert_int_equal(pare_node_set_attr(node, &a), PARE_OK);
}

static void constant(concat_net *n, const char *name, int rank, const int64_t *dims)
{
    static unsigned seed = 7;
    static float w[MOST];
    static uint16_t short_w[MOST];
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        w[i] = (float)qdq_noise(&seed, -100, 100) / 1000;
        short_w[i] = pare_f32_to_f16(w[i]);
    }
    if (n->form == CONCAT_F16)
        qdq_bytes(&n->g, name, PARE_f16, rank, dims, short_w);
    else
        graph_floats(&n->g, name, rank, dims, w);
}

/* INT8: quantized by a scale, and as floats again. */
static void quantized(concat_net *n, const char *in, const char *out, float scale)
{
    char s[64], z[64], q[64], both[256];
    snprintf(s, sizeof s, "s_%s", out), snprintf(z, sizeof z, "z_%s", out);
    snprintf(q, sizeof q, "q_%s", out);
    graph_floats(&n->g, s, 0, NULL, &scale);
    qdq_bytes(&n->g, z, PARE_s8, 0, NULL, (int8_t[]){0});
    snprintf(both, sizeof both, "%s %s %s", in, s, z);
    graph_node(&n->g, "QuantizeLinear", both, q);
    snprintf(both, sizeof both, "%s %s %s", q, s, z);
    graph_node(&n->g, "DequantizeLinear", both, out);
}

/* An operator whose result is quantized in INT8. */
static pare_node *made_at(concat_net *n, const char *op, const char *in, const char *out,
                          float scale)
{
    char raw[64];
    snprintf(raw, sizeof raw, "raw_%s", out);
    pare_node *node = graph_node(&n->g, op, in, n->form == CONCAT_INT8 ? raw : out);
    if (n->form == CONCAT_INT8) quantized(n, raw, out, scale);
    return node;
}

static pare_node *made(concat_net *n, const char *op, const char *in, const char *out)
{
    return made_at(n, op, in, out, SCALE);
}

/* s8 weights by one scale. */
static void weights(concat_net *n, const char *name, const int64_t dims[4])
{
    static int8_t codes[MOST];
    static unsigned seed = 3;
    char q[64], s[64], both[128];
    if (n->form != CONCAT_INT8) {
        constant(n, name, 4, dims);
        return;
    }
    for (int i = 0; i < MOST; i++) codes[i] = (int8_t)qdq_noise(&seed, -127, 127);
    snprintf(q, sizeof q, "q_%s", name), snprintf(s, sizeof s, "s_%s", name);
    qdq_bytes(&n->g, q, PARE_s8, 4, dims, codes);
    graph_floats(&n->g, s, 0, NULL, (float[]){1 / 1024.0f});
    snprintf(both, sizeof both, "%s %s", q, s);
    graph_node(&n->g, "DequantizeLinear", both, name);
}

static void conv_at(concat_net *n, const char *in, const char *out, int from, int to, int window,
                    float scale)
{
    char name[64], both[128];
    snprintf(name, sizeof name, "w_%s", out);
    weights(n, name, (int64_t[]){to, from, window, window});
    snprintf(both, sizeof both, "%s %s", in, name);
    pare_node *node = made_at(n, "Conv", both, out, scale);
    const int64_t pad = window / 2;
    attr_ints(node, "pads", 4, (int64_t[]){pad, pad, pad, pad});
}

static void conv(concat_net *n, const char *in, const char *out, int from, int to, int window)
{
    conv_at(n, in, out, from, to, window, SCALE);
}

static void concat(concat_net *n, const char *in, const char *out)
{
    assert_int_equal(pare_node_set_int(made(n, "Concat", in, out), "axis", 1), PARE_OK);
}

/* --- nets --- */

void concat_inception(concat_net *n)
{
    conv(n, "x0", "a", IN, 32, 1);
    conv(n, "x0", "b1", IN, 16, 1);
    conv(n, "b1", "b", 16, 32, 3);
    conv(n, "x0", "c1", IN, 16, 1);
    conv(n, "c1", "c", 16, 16, 5);
    pare_node *pool = graph_node(&n->g, "MaxPool", "x0", "p");
    attr_ints(pool, "kernel_shape", 2, (int64_t[]){3, 3});
    attr_ints(pool, "pads", 4, (int64_t[]){1, 1, 1, 1});
    conv(n, "p", "d", IN, 16, 1);
    concat(n, "a b c d", "joined");
    conv(n, "joined", "y", 96, 32, 3);
    graph_output(&n->g, "y");
}

void concat_fire(concat_net *n)
{
    conv(n, "x0", "s", IN, 16, 1);
    made(n, "Relu", "s", "squeezed");
    conv(n, "squeezed", "e1", 16, 32, 1);
    conv(n, "squeezed", "e3", 16, 32, 3);
    concat(n, "e1 e3", "joined");
    conv(n, "joined", "y", 64, 16, 1);
    graph_output(&n->g, "y");
}

void concat_dense(concat_net *n)
{
    conv(n, "x0", "l0", IN, 32, 1);
    conv(n, "l0", "l1", 32, 16, 3);
    concat(n, "l0 l1", "c1");
    conv(n, "c1", "l2", 48, 16, 3);
    concat(n, "l0 l1 l2", "c2");
    conv(n, "c2", "l3", 64, 16, 3);
    concat(n, "l0 l1 l2 l3", "c3");
    conv(n, "c3", "y", 80, 16, 1);
    graph_output(&n->g, "y");
}

void concat_nested(concat_net *n)
{
    conv(n, "x0", "l0", IN, 32, 1);
    conv(n, "l0", "l1", 32, 16, 3);
    concat(n, "l0 l1", "c1");
    conv(n, "c1", "l2", 48, 16, 3);
    concat(n, "l2 c1", "c2");
    conv(n, "c2", "l3", 64, 16, 3);
    concat(n, "c2 l3", "c3");
    conv(n, "c3", "y", 80, 16, 1);
    graph_output(&n->g, "y");
}

void concat_odd(concat_net *n)
{
    conv(n, "x0", "a", IN, 8, 1);
    conv(n, "x0", "b", IN, 24, 3);
    conv(n, "x0", "c", IN, 32, 3);
    concat(n, "a b c", "joined");
    conv(n, "joined", "y", 64, 16, 1);
    graph_output(&n->g, "y");
}

void concat_twice(concat_net *n)
{
    conv(n, "x0", "a", IN, 32, 1);
    conv(n, "x0", "b", IN, 16, 3);
    concat(n, "a b a", "joined");
    conv(n, "joined", "y", 80, 16, 1);
    graph_output(&n->g, "y");
}

void concat_ends(concat_net *n)
{
    constant(n, "k", 4, (int64_t[]){1, 16, SIDE, SIDE});
    conv(n, "x0", "a", IN, 16, 1);
    conv(n, "x0", "b", IN, 16, 3);
    graph_node(&n->g, "Neg", "b", "seen");
    concat(n, "x0 a k seen", "joined");
    conv(n, "joined", "y", 64, 16, 1);
    graph_output(&n->g, "y");
    graph_output(&n->g, "seen");
}

void concat_two(concat_net *n)
{
    conv(n, "x0", "a", IN, 32, 1);
    conv(n, "x0", "b", IN, 16, 3);
    conv(n, "x0", "c", IN, 16, 3);
    concat(n, "a b", "c1");
    concat(n, "c a", "c2");
    conv(n, "c1", "d1", 48, 16, 1);
    conv(n, "c2", "d2", 48, 16, 3);
    made(n, "Add", "d1 d2", "y");
    graph_output(&n->g, "y");
}

/* Of 64 channels. */
static void halves(concat_net *n, const char *in, const char *out)
{
    char both[128];
    snprintf(both, sizeof both, "%s halves", in);
    graph_ints(&n->g, "halves", 1, (int64_t[]){2}, (int64_t[]){32, 32});
    assert_int_equal(pare_node_set_int(graph_node(&n->g, "Split", both, out), "axis", 1), PARE_OK);
}

void concat_split(concat_net *n)
{
    conv(n, "x0", "s", IN, 64, 1);
    halves(n, "s", "a b");
    conv(n, "b", "c", 32, 16, 3);
    conv(n, "c", "d", 16, 32, 3);
    made(n, "Add", "b d", "e");
    concat(n, "a b e", "joined");
    conv(n, "joined", "y", 96, 16, 1);
    graph_output(&n->g, "y");
}

void concat_halves(concat_net *n)
{
    conv(n, "x0", "s", IN, 64, 1);
    halves(n, "s", "a b");
    conv(n, "a", "c", 32, 16, 3);
    conv(n, "b", "d", 32, 16, 1);
    made(n, "Add", "c d", "y");
    graph_output(&n->g, "y");
}

/* Channels from:to. */
static void cut(concat_net *n, const char *in, const char *out, int64_t from, int64_t to)
{
    char first[64], last[64], all[256];
    snprintf(first, sizeof first, "from_%s", out), snprintf(last, sizeof last, "to_%s", out);
    graph_ints(&n->g, first, 1, (int64_t[]){1}, &from);
    graph_ints(&n->g, last, 1, (int64_t[]){1}, &to);
    snprintf(all, sizeof all, "%s %s %s channels", in, first, last);
    made(n, "Slice", all, out);
}

void concat_slices(concat_net *n)
{
    graph_ints(&n->g, "channels", 1, (int64_t[]){1}, (int64_t[]){1});
    conv(n, "x0", "s", IN, 64, 1);
    cut(n, "s", "a", 0, 32);
    cut(n, "s", "b", 16, 64);
    conv(n, "a", "c", 32, 16, 3);
    conv(n, "b", "d", 48, 16, 1);
    concat(n, "c d", "joined");
    cut(n, "joined", "e", 16, 32);
    conv(n, "e", "f", 16, 32, 3);
    made(n, "Add", "joined f", "y");
    graph_output(&n->g, "y");
}

void concat_shuffle(concat_net *n)
{
    graph_ints(&n->g, "channels", 1, (int64_t[]){1}, (int64_t[]){1});
    conv(n, "x0", "s", IN, 64, 1);
    cut(n, "s", "a", 0, 32);
    cut(n, "s", "b", 32, 64);
    conv(n, "b", "c", 32, 32, 3);
    concat(n, "a c", "joined");
    conv(n, "joined", "y", 64, 16, 1);
    graph_output(&n->g, "y");
}

void concat_scales(concat_net *n)
{
    conv(n, "x0", "a", IN, 32, 1);
    conv_at(n, "x0", "b", IN, 16, 3, 1 / 16.0f);
    concat(n, "a b", "joined");
    conv(n, "joined", "y", 48, 16, 1);
    graph_output(&n->g, "y");
}

void concat_chain(concat_net *n)
{
    conv(n, "x0", "a", IN, 32, 3);
    conv(n, "x0", "b", IN, 32, 1);
    made(n, "Add", "a b", "sum");
    concat(n, "a sum", "joined");
    conv(n, "joined", "c", 64, 16, 1);
    concat(n, "joined c", "all");
    conv(n, "all", "y", 80, 16, 1);
    graph_output(&n->g, "y");
}

void concat_rows(concat_net *n)
{
    graph_ints(&n->g, "line", 1, (int64_t[]){3}, (int64_t[]){0, -1, 32});
    constant(n, "m1", 2, (int64_t[]){SIDE, 32});
    constant(n, "m2", 2, (int64_t[]){SIDE, 32});
    graph_node(&n->g, "MatMul", "x0 m1", "a4");
    graph_node(&n->g, "MatMul", "x0 m2", "b4");
    graph_node(&n->g, "Reshape", "a4 line", "a");
    graph_node(&n->g, "Reshape", "b4 line", "b");
    graph_node(&n->g, "Neg", "b", "c");
    assert_int_equal(pare_node_set_int(graph_node(&n->g, "Concat", "a b c", "joined"), "axis", 1),
                     PARE_OK);
    graph_node(&n->g, "Exp", "joined", "y");
    graph_output(&n->g, "y");
}

void concat_operators(concat_net *n)
{
    enum { C = 64 };
    conv(n, "x0", "a", C, 128, 1);
    conv(n, "x0", "b", C, 128, 3);
    made(n, "Add", "a b", "sum");
    conv(n, "x0", "c", C, 64, 1);
    weights(n, "w_d", (int64_t[]){C, 1, 3, 3});
    pare_node *deep = made(n, "Conv", "c w_d", "d");
    attr_ints(deep, "pads", 4, (int64_t[]){1, 1, 1, 1});
    assert_int_equal(pare_node_set_int(deep, "group", C), PARE_OK);
    weights(n, "w_e", (int64_t[]){C, 2, 3, 3});
    pare_node *grouped = made(n, "Conv", "c w_e", "e");
    assert_int_equal(pare_node_set_int(grouped, "group", C / 2), PARE_OK);
    pare_node *pool = graph_node(&n->g, "MaxPool", "c", "f");
    attr_ints(pool, "kernel_shape", 2, (int64_t[]){3, 3});
    pool = made(n, "AveragePool", "c", "h");
    attr_ints(pool, "kernel_shape", 2, (int64_t[]){2, 2});
    made(n, "Sigmoid", "d", "i");
    graph_node(&n->g, "Mul", "c i", "j");
    made(n, "Mul", "j d", "k");
    static const char *const ends[] = {"sum", "e", "f", "h", "k"};
    for (int i = 0; i < 5; i++) graph_output(&n->g, ends[i]);
}

void concat_tiles(concat_net *n)
{
    conv(n, "x0", "a", n->channels, 128, 1);
    conv(n, "x0", "b", n->channels, 128, 1);
    made(n, "Add", "a b", "y");
    if (n->form == CONCAT_INT8) conv(n, "x0", "c", n->channels, 64, 3);
    graph_output(&n->g, "y");
    if (n->form == CONCAT_INT8) graph_output(&n->g, "c");
}

void concat_stem(concat_net *n)
{
    conv(n, "x0", "y", n->channels, 64, 7);
    graph_output(&n->g, "y");
    weights(n, "w_s", (int64_t[]){64, n->channels, 7, 7});
    pare_node *stem = graph_node(&n->g, "Conv", "x0 w_s", "s");
    attr_ints(stem, "pads", 4, (int64_t[]){3, 3, 3, 3});
    attr_ints(stem, "strides", 2, (int64_t[]){2, 2});
    made(n, "Relu", "s", "r");
    pare_node *pool = graph_node(&n->g, "MaxPool", "r", "pooled");
    attr_ints(pool, "kernel_shape", 2, (int64_t[]){3, 3});
    attr_ints(pool, "strides", 2, (int64_t[]){2, 2});
    attr_ints(pool, "pads", 4, (int64_t[]){1, 1, 1, 1});
    graph_output(&n->g, "pooled");
}

void concat_open(concat_net *n, concat_form form, concat_make make, int channels, int side)
{
    memset(n, 0, sizeof *n);
    n->form = form, n->channels = channels, n->side = side;
    graph_open(&n->g, 19);
    graph_input(&n->g, "x", form == CONCAT_F16 ? PARE_f16 : PARE_f32, 4,
                (int64_t[]){-1, channels, side, side});
    if (form == CONCAT_INT8)
        quantized(n, "x", "x0", SCALE);
    else
        conv(n, "x", "x0", channels, channels, 1);
    make(n);
}
