/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cuda/branch_net.h"
#include "tests/simt/testing.h"

enum { ROWS = 2, WIDTH = 16 };

static void weights(branch_net *n, const char *name, int rank, const int64_t *dims)
{
    static uint32_t seed = 5;
    float w[4096];
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    assert_true(count <= 4096);
    for (int64_t i = 0; i < count; i++) w[i] = (float)(test_random(&seed) % 1000) / 2000 - 0.25f;
    graph_floats(&n->g, name, rank, dims, w);
}

static void net_open(branch_net *n, int rank, const int64_t *dims)
{
    memset(n, 0, sizeof *n);
    graph_open(&n->g, 17);
    n->shape = (pare_input_shape){"x", {.rank = rank}};
    memcpy(n->shape.shape.dim, dims, (size_t)rank * sizeof *dims);
    graph_input(&n->g, "x", PARE_f32, rank, dims);
}

static void rows_open(branch_net *n) { net_open(n, 2, (int64_t[]){ROWS, WIDTH}); }

static void product(branch_net *n, const char *in, const char *out)
{
    char name[64], both[128];
    snprintf(name, sizeof name, "w_%s", out);
    weights(n, name, 2, (int64_t[]){WIDTH, WIDTH});
    snprintf(both, sizeof both, "%s %s", in, name);
    graph_node(&n->g, "MatMul", both, out);
}

/* Of 8 channels, over a window of so many pixels squared. */
static void convolution(branch_net *n, const char *in, const char *out, int channels, int window)
{
    char name[64], both[128];
    snprintf(name, sizeof name, "w_%s", out);
    weights(n, name, 4, (int64_t[]){8, channels, window, window});
    snprintf(both, sizeof both, "%s %s", in, name);
    pare_node *node = graph_node(&n->g, "Conv", both, out);
    const int64_t pads[4] = {window / 2, window / 2, window / 2, window / 2};
    const pare_attr pad = {.name = "pads", .kind = PARE_ATTR_INTS, .count = 4, .ints = pads};
    assert_int_equal(pare_node_set_attr(node, &pad), PARE_OK);
}

static void attribute(pare_node *node, const char *name, int64_t value)
{
    const pare_attr a = {.name = name, .kind = PARE_ATTR_INT, .i = value};
    assert_int_equal(pare_node_set_attr(node, &a), PARE_OK);
}

void make_shortcut(branch_net *n)
{
    rows_open(n);
    product(n, "x", "stem");
    product(n, "stem", "a1");
    product(n, "a1", "a2");
    product(n, "stem", "b");
    graph_node(&n->g, "Mul", "a2 b", "joined");
    product(n, "joined", "y");
    graph_output(&n->g, "y");
}

void make_inception(branch_net *n)
{
    net_open(n, 4, (int64_t[]){1, 3, 9, 9});
    convolution(n, "x", "stem", 3, 3);
    convolution(n, "stem", "a", 8, 1);
    convolution(n, "stem", "b1", 8, 1);
    convolution(n, "b1", "b2", 8, 3);
    convolution(n, "stem", "c1", 8, 1);
    convolution(n, "c1", "c2", 8, 5);
    pare_node *pool = graph_node(&n->g, "MaxPool", "stem", "p");
    const int64_t kernel[2] = {3, 3}, pads[4] = {1, 1, 1, 1};
    const pare_attr k = {.name = "kernel_shape",
                         .kind = PARE_ATTR_INTS,
                         .count = 2,
                         .ints = kernel},
                    p = {.name = "pads", .kind = PARE_ATTR_INTS, .count = 4, .ints = pads};
    assert_int_equal(pare_node_set_attr(pool, &k), PARE_OK);
    assert_int_equal(pare_node_set_attr(pool, &p), PARE_OK);
    convolution(n, "p", "d", 8, 1);
    attribute(graph_node(&n->g, "Concat", "a b2 c2 d", "y"), "axis", 1);
    graph_output(&n->g, "y");
}

void make_squeeze(branch_net *n)
{
    net_open(n, 4, (int64_t[]){1, 3, 9, 9});
    convolution(n, "x", "s", 3, 1);
    graph_node(&n->g, "Relu", "s", "stem");
    convolution(n, "stem", "a", 8, 1);
    graph_node(&n->g, "Relu", "a", "ra");
    convolution(n, "stem", "b", 8, 3);
    graph_node(&n->g, "Relu", "b", "rb");
    attribute(graph_node(&n->g, "Concat", "ra rb", "joined"), "axis", 1);
    convolution(n, "joined", "y", 16, 1);
    graph_output(&n->g, "y");
}

/* A fork in each of two branches. */
void make_nested(branch_net *n)
{
    rows_open(n);
    product(n, "x", "a");
    product(n, "x", "b");
    product(n, "a", "a1");
    product(n, "a", "a2");
    product(n, "b", "b1");
    product(n, "b", "b2");
    graph_node(&n->g, "Mul", "a1 a2", "a3");
    graph_node(&n->g, "Mul", "b1 b2", "b3");
    graph_node(&n->g, "Sub", "a3 b3", "y");
    graph_output(&n->g, "y");
}

/* What one branch makes is an output of the graph, and not read again. */
void make_ends(branch_net *n)
{
    rows_open(n);
    product(n, "x", "a1");
    product(n, "a1", "y");
    product(n, "x", "b1");
    product(n, "b1", "z");
    graph_output(&n->g, "y");
    graph_output(&n->g, "z");
    graph_output(&n->g, "b1");
}

/* Both branches read the same bytes, one under another shape. */
void make_alias(branch_net *n)
{
    rows_open(n);
    graph_ints(&n->g, "flat", 1, (int64_t[]){1}, (int64_t[]){-1});
    graph_ints(&n->g, "rows", 1, (int64_t[]){2}, (int64_t[]){-1, WIDTH});
    product(n, "x", "stem");
    graph_node(&n->g, "Reshape", "stem flat", "under");
    graph_node(&n->g, "Exp", "under", "a1");
    graph_node(&n->g, "Reshape", "a1 rows", "a2");
    product(n, "a2", "a3");
    product(n, "stem", "b1");
    product(n, "b1", "b2");
    graph_node(&n->g, "Sub", "a3 b2", "y");
    graph_output(&n->g, "y");
}

/* The last reader of the fork's tensor may take its memory, which the other branch reads. */
void make_in_place(branch_net *n)
{
    rows_open(n);
    product(n, "x", "stem");
    product(n, "stem", "a1");
    product(n, "a1", "a2");
    graph_node(&n->g, "Exp", "stem", "b1");
    product(n, "b1", "b2");
    product(n, "b2", "b3");
    graph_node(&n->g, "Sub", "a2 b3", "y");
    graph_output(&n->g, "y");
}

/* A root in f64, which the host computes, in one of the branches. */
void make_host(branch_net *n)
{
    rows_open(n);
    product(n, "x", "a1");
    product(n, "x", "b1");
    graph_node(&n->g, "Abs", "b1", "b2");
    attribute(graph_node(&n->g, "Cast", "b2", "b3"), "to", 11);
    graph_node(&n->g, "Sqrt", "b3", "b4");
    attribute(graph_node(&n->g, "Cast", "b4", "b5"), "to", 1);
    product(n, "a1", "a2");
    product(n, "b5", "b6");
    graph_node(&n->g, "Sub", "a2 b6", "y");
    graph_output(&n->g, "y");
}

/* Products that cuBLAS makes, by a handle of the first stream, beside a longer chain. */
void make_bound(branch_net *n)
{
    net_open(n, 3, (int64_t[]){2, WIDTH, WIDTH});
    product(n, "x", "a1");
    product(n, "a1", "a2");
    product(n, "a2", "a3");
    graph_node(&n->g, "MatMul", "x x", "b");
    graph_node(&n->g, "Mul", "a3 b", "y");
    graph_output(&n->g, "y");
}

/* Sums of more than four tensors are kept in scratch between launches. */
void make_scratch(branch_net *n)
{
    rows_open(n);
    product(n, "x", "stem");
    for (int b = 0; b < 2; b++) {
        char in[128], sum[16], out[16];
        for (int i = 0; i < 5; i++) {
            char name[32];
            snprintf(name, sizeof name, "c%d%d", b, i);
            weights(n, name, 2, (int64_t[]){ROWS, WIDTH});
        }
        snprintf(in, sizeof in, "stem c%d0 c%d1 c%d2 c%d3 c%d4", b, b, b, b, b);
        snprintf(sum, sizeof sum, "s%d", b);
        snprintf(out, sizeof out, "t%d", b);
        graph_node(&n->g, "Sum", in, sum);
        product(n, sum, out);
    }
    graph_node(&n->g, "Sub", "t0 t1", "y");
    graph_output(&n->g, "y");
}

/* Two long chains of tensors of 2.5 MB, which are all alive where the chains are side by side. */
void make_large(branch_net *n)
{
    char from[2][16] = {"x", "x"};
    net_open(n, 2, (int64_t[]){40000, WIDTH});
    for (int i = 0; i < 20; i++)
        for (int b = 0; b < 2; b++) {
            char to[32];
            snprintf(to, sizeof to, "%c%d", 'a' + b, i);
            product(n, from[b], to);
            memcpy(from[b], to, sizeof from[b]);
        }
    graph_node(&n->g, "Sub", "a19 b19", "y");
    graph_output(&n->g, "y");
}

/* --- runs --- */

void branch_check(branch_net *n, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", n->g.ctx.message);
}

void branch_input(pare_runner *r, int run)
{
    pare_view x = pare_runner_input(r, 0);
    for (int64_t i = 0; i < pare_view_count(&x); i++)
        ((float *)x.data)[i] = (float)((i + run) * 37 % 101) / 50 - 1;
}

bool branch_is_right(branch_net *n, pare_runner *r, pare_runner *plain, int run)
{
    bool right = true;
    branch_input(plain, run);
    branch_check(n, pare_runner_run(plain));
    branch_input(r, run);
    if (pare_runner_run(r) != PARE_OK) return pare_ctx_clear(&n->g.ctx), false;
    for (int i = 0; i < pare_plan_output_count(n->plan); i++) {
        const pare_view y = pare_runner_output(r, i), z = pare_runner_output(plain, i);
        right = right && !memcmp(y.data, z.data, pare_view_bytes(&y));
    }
    return right;
}
