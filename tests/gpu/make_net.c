/* SPDX-License-Identifier: Apache-2.0 */
/* make_net OUT.onnx [SIDE WIDTH]: ResNet-50 (He and others 2015, arXiv 1512.03385, table 1; strides
   in the 3x3 convolutions) with random weights, batch normalization folded in, for pictures of SIDE
   (224) and WIDTH (64) channels in its first stage. Its input is "input" (batch, 3, SIDE, SIDE). */
#include "formats/onnx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct net {
    pare_graph *graph;
    pare_value *last; /* what the next layer reads */
    int count;        /* names that are taken */
    uint32_t random;
} net;

static float random_between(net *n, float most)
{
    n->random ^= n->random << 13; /* xorshift32, Marsaglia 2003 */
    n->random ^= n->random >> 17;
    n->random ^= n->random << 5;
    return ((float)(n->random >> 8) * 0x1p-23f - 1) * most;
}

/* Uniform, of variance `gain` / fan-in; a bias that is small beside that. */
static pare_status weights_new(net *n, pare_value *out[2], int rank, const int64_t *dims,
                               float gain)
{
    char name[32];
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    const float most = sqrtf(3 * gain * (float)dims[0] / (float)count);
    float *data = malloc(sizeof *data * (size_t)count);
    if (!data) return PARE_MEMORY;
    for (int64_t i = 0; i < count; i++) data[i] = random_between(n, most);
    snprintf(name, sizeof name, "w%d", n->count);
    pare_status st = pare_init_new(n->graph, &out[0], name, PARE_f32, rank, dims, data);
    for (int64_t i = 0; i < dims[0]; i++) data[i] = random_between(n, 0.1f);
    snprintf(name, sizeof name, "b%d", n->count);
    if (st == PARE_OK) st = pare_init_new(n->graph, &out[1], name, PARE_f32, 1, dims, data);
    free(data);
    return st;
}

/* A node of these inputs, whose output is read next. */
static pare_status add(net *n, pare_node **out, const char *op, pare_value *const *in, int count)
{
    char name[32];
    pare_value *y;
    snprintf(name, sizeof name, "y%d", n->count++);
    PARE_TRY(pare_value_new(n->graph, &y, name));
    PARE_TRY(pare_node_new(n->graph, out, n->graph->node_count, op, "", name, in, count, &y, 1));
    n->last = y;
    return PARE_OK;
}

static pare_status relu(net *n)
{
    pare_node *node;
    return add(n, &node, "Relu", &n->last, 1);
}

static pare_status conv(net *n, int64_t channels, int64_t filters, int64_t taps, int64_t stride,
                        float gain)
{
    pare_node *node;
    pare_value *in[3] = {n->last};
    const int64_t dims[4] = {filters, channels, taps, taps}, pad = taps / 2;
    PARE_TRY(weights_new(n, in + 1, 4, dims, gain));
    PARE_TRY(add(n, &node, "Conv", in, 3));
    PARE_TRY(pare_node_set_ints(node, "strides", (int64_t[]){stride, stride}, 2));
    return pare_node_set_ints(node, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
}

/* 1x1, 3x3, 1x1, and what is added to it: the block's input, or a 1x1 of it, which stands behind
   them as in the graphs that PyTorch exports of torchvision's net. */
static pare_status block(net *n, int64_t channels, int64_t mid, int64_t stride, bool widens)
{
    pare_node *node;
    pare_value *x = n->last, *both[2];
    PARE_TRY(conv(n, channels, mid, 1, 1, 2));
    PARE_TRY(relu(n));
    PARE_TRY(conv(n, mid, mid, 3, stride, 2));
    PARE_TRY(relu(n));
    PARE_TRY(conv(n, mid, 4 * mid, 1, 1, 0.25f));
    both[0] = n->last;
    n->last = x;
    if (widens) PARE_TRY(conv(n, channels, 4 * mid, 1, stride, 1));
    both[1] = n->last;
    PARE_TRY(add(n, &node, "Add", both, 2));
    return relu(n);
}

static pare_status stages(net *n, int64_t width)
{
    static const int blocks[4] = {3, 4, 6, 3};
    int64_t channels = width;
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < blocks[s]; i++) {
            PARE_TRY(block(n, channels, width << s, s && !i ? 2 : 1, !i));
            channels = 4 * (width << s);
        }
    return PARE_OK;
}

static pare_status head(net *n, int64_t channels)
{
    pare_node *node;
    pare_value *in[3];
    PARE_TRY(add(n, &node, "GlobalAveragePool", &n->last, 1));
    PARE_TRY(add(n, &node, "Flatten", &n->last, 1));
    in[0] = n->last;
    PARE_TRY(weights_new(n, in + 1, 2, (int64_t[]){1000, channels}, 1));
    PARE_TRY(add(n, &node, "Gemm", in, 3));
    return pare_node_set_int(node, "transB", 1);
}

static pare_status resnet50(pare_ctx *ctx, const char *path, int64_t side, int64_t width)
{
    pare_model *m;
    pare_node *node;
    net n = {.random = 2463534242u};
    const pare_shape in = {.rank = 4, .dim = {-1, 3, side, side}},
                     out = {.rank = 2, .dim = {-1, 1000}};
    pare_onnx_write_options options;
    PARE_TRY(pare_model_new(ctx, &m, path));
    PARE_TRY(pare_model_set_opset(m, "", 17));
    m->ir_version = 8;
    n.graph = m->graph;
    n.graph->name = "resnet50";
    PARE_TRY(pare_value_new(n.graph, &n.last, "input"));
    pare_value_set_type(n.last, PARE_f32, &in);
    n.last->is_input = true;
    PARE_TRY(pare_values_add(n.graph, &n.graph->in, n.last));
    PARE_TRY(conv(&n, 3, width, 7, 2, 2));
    PARE_TRY(relu(&n));
    PARE_TRY(add(&n, &node, "MaxPool", &n.last, 1));
    PARE_TRY(pare_node_set_ints(node, "kernel_shape", (int64_t[]){3, 3}, 2));
    PARE_TRY(pare_node_set_ints(node, "strides", (int64_t[]){2, 2}, 2));
    PARE_TRY(pare_node_set_ints(node, "pads", (int64_t[]){1, 1, 1, 1}, 4));
    PARE_TRY(stages(&n, width));
    PARE_TRY(head(&n, 32 * width));
    pare_value_set_type(n.last, PARE_f32, &out);
    n.last->is_output = true;
    PARE_TRY(pare_values_add(n.graph, &n.graph->out, n.last));
    pare_onnx_write_options_init(&options);
    pare_status st = pare_onnx_write(ctx, m, path, &options);
    pare_model_free(m);
    return st;
}

int main(int count, char **word)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    const int side = count == 4 ? atoi(word[2]) : 224, width = count == 4 ? atoi(word[3]) : 64;
    if ((count != 2 && count != 4) || side < 32 || side > 4096 || width < 1 || width > 256) {
        fprintf(stderr, "usage: make_net OUT.onnx [SIDE WIDTH]\n");
        return 2;
    }
    if (resnet50(&ctx, word[1], side, width) == PARE_OK) return 0;
    fprintf(stderr, "make_net: %s\n", ctx.message);
    return 1;
}
