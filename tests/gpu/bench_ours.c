/* SPDX-License-Identifier: Apache-2.0 */
/* One product as a node of the runtime, on every kernel of the device that takes it: ReLU and a
   bias after it, weights packed before, activations N, H, W, C. Then a convolution as a training
   has it, whose weights are computed, and its gradients, each on the kernel that a plan takes. */
#include "runtime/ops/ops.h"
#include "tests/gpu/bench.h"

#include <string.h>

enum { INPUTS = 5 }; /* X, W, B, Z, w_scale */

typedef struct ours {
    pare_model *model;
    pare_node *node;
    pare_arena arena;
    pare_view in[INPUTS], out;
    void *x[BENCH_SETS], *y[BENCH_SETS], *scratch;
    void *second; /* input 1 where it is no constant, or NULL */
    int in_count, sets;
    const pare_kernel *kernel;
    pare_prep prep;
    pare_call call;
    pare_view call_in[INPUTS], call_out;
} ours;

static pare_status input_add(bench *b, ours *o, pare_dtype type, int rank, const int64_t *dims,
                             bool constant)
{
    pare_value *value;
    pare_view *v = &o->in[o->in_count];
    char name[8] = "x0";
    name[1] = (char)('0' + o->in_count);
    pare_shape shape = {.rank = rank};
    memcpy(shape.dim, dims, (size_t)rank * sizeof *dims);
    pare_view_set(v, type, &shape, rank == 4 && !constant);
    PARE_TRY(pare_value_new(o->model->graph, &value, name));
    pare_value_set_type(value, type, &shape);
    PARE_TRY(pare_node_set_in(o->node, o->in_count++, value));
    if (!constant) return PARE_OK;
    v->data = pare_arena_alloc(&o->arena, pare_view_bytes(v), 1);
    if (!v->data) return PARE_MEMORY;
    if (pare_type(type)->bits == 8 || rank > 1) bench_fill(b, v->data, type, pare_view_bytes(v));
    return PARE_OK;
}

/* Two of each four weights along depth, of a window's positions along channels, become 0, which
   pair changes from four to four. W: (depth, columns), or (columns, channels, taps). */
static void weights_thin(const bench_product *p, pare_dtype type, char *w)
{
    const size_t bytes = (size_t)pare_type(type)->bits / 8;
    const int64_t taps = p->side ? p->kernel * p->kernel : 1, depth = p->depth / taps;
    for (int64_t i = 0; i < p->columns * p->depth; i++) {
        const int64_t k = p->side ? i / taps % depth : i / p->columns,
                      c = p->side ? i / p->depth : i % p->columns;
        if (((k + c + k / 4) & 3) < 2) memset(w + (size_t)i * bytes, 0, bytes);
    }
}

static pare_status attributes_set(ours *o, const bench_product *p, pare_dtype type)
{
    const int64_t pads[4] = {p->kernel / 2, p->kernel / 2, p->kernel / 2, p->kernel / 2},
                  strides[2] = {p->stride, p->stride};
    if (p->side) {
        PARE_TRY(pare_node_set_ints(o->node, "pads", pads, 4));
        PARE_TRY(pare_node_set_ints(o->node, "strides", strides, 2));
    }
    PARE_TRY(pare_node_set_string(o->node, "activation", "relu"));
    if (pare_type(type)->bits != 8) return PARE_OK;
    PARE_TRY(pare_node_set_float(o->node, "x_scale", 0.02f));
    PARE_TRY(pare_node_set_float(o->node, "y_scale", 0.05f));
    return pare_node_set_int(o->node, "to", type);
}

static pare_status node_make(bench *b, ours *o, const bench_product *p, pare_dtype type)
{
    const bool codes = pare_type(type)->bits == 8;
    const pare_dtype bias = type == PARE_s8 ? PARE_s32 : codes ? PARE_f32 : type;
    const int64_t x[4] = {p->batch, p->channels, p->side, p->side},
                  w[4] = {p->columns, p->channels, p->kernel, p->kernel}, one = 1,
                  a[2] = {p->rows, p->depth}, m[2] = {p->depth, p->columns};
    pare_value *y;
    PARE_TRY(pare_model_new(&b->ctx, &o->model, "bench"));
    PARE_TRY(pare_model_set_opset(o->model, "", 20));
    PARE_TRY(pare_value_new(o->model->graph, &y, "y"));
    PARE_TRY(pare_node_new(o->model->graph, &o->node, 0, p->side ? "FusedConv" : "FusedMatMul",
                           PARE_DOMAIN, p->name, NULL, 0, &y, 1));
    PARE_TRY(input_add(b, o, type, p->side ? 4 : 2, p->side ? x : a, false));
    PARE_TRY(input_add(b, o, type, p->side ? 4 : 2, p->side ? w : m, true));
    if (p->sparse) weights_thin(p, type, o->in[1].data);
    PARE_TRY(input_add(b, o, bias, 1, &p->columns, true));
    if (codes) {
        PARE_TRY(pare_node_set_in(o->node, o->in_count++, NULL));
        PARE_TRY(input_add(b, o, PARE_f32, 1, &one, true));
        *(float *)o->in[4].data = 0.01f;
    }
    PARE_TRY(attributes_set(o, p, type));
    PARE_TRY(pare_op_of(o->node)->infer(o->node));
    pare_view_set(&o->out, y->dtype, &y->shape, p->side != 0);
    return PARE_OK;
}

static pare_status memory_make(bench *b, ours *o)
{
    size_t each = pare_view_bytes(&o->in[0]) + pare_view_bytes(&o->out);
    o->sets = each < 32 << 20 ? BENCH_SETS : 2;
    for (int s = 0; s < o->sets; s++) {
        PARE_TRY(bench_random(b, &o->x[s], o->in[0].dtype, pare_view_bytes(&o->in[0])));
        BENCH_CUDA(b, cudaMalloc(&o->y[s], pare_view_bytes(&o->out)));
    }
    return PARE_OK;
}

static void ours_close(ours *o)
{
    for (int s = 0; s < BENCH_SETS; s++) {
        (void)cudaFree(o->x[s]);
        (void)cudaFree(o->y[s]);
    }
    (void)cudaFree(o->second);
    pare_arena_free(&o->arena);
    pare_model_free(o->model);
}

static pare_status once(bench *b, void *user, int run)
{
    ours *o = user;
    (void)b;
    o->call_in[0].data = o->x[run % o->sets];
    o->call_out.data = o->y[run % o->sets];
    return o->kernel->run(&o->call);
}

/* Constants that the kernel did not pack are on the device. */
static pare_status constants_place(bench *b, ours *o)
{
    memcpy(o->call_in, o->in, sizeof o->in);
    o->call_out = o->out;
    if (o->second) o->call_in[1].data = o->second;
    for (int i = 1; i < o->in_count; i++)
        if (o->in[i].data && !(o->prep.packed & 1u << i))
            PARE_TRY(pare_device_copy(&b->ctx, b->device, &o->call_in[i].data, o->in[i].data,
                                      pare_view_bytes(&o->in[i])));
    if (o->prep.scratch) BENCH_CUDA(b, cudaMalloc(&o->scratch, o->prep.scratch));
    return PARE_OK;
}

static void constants_free(bench *b, ours *o)
{
    for (int i = 1; i < o->in_count; i++)
        if (o->call_in[i].data != o->in[i].data && o->call_in[i].data != o->second)
            b->device->backend->free(b->device, o->call_in[i].data);
    (void)cudaFree(o->scratch);
    o->scratch = NULL;
}

static pare_status kernel_measure(bench *b, ours *o, bench_times *times)
{
    pare_status st = o->kernel->prepare ? o->kernel->prepare(&o->prep) : PARE_OK;
    if (st == PARE_OK) st = constants_place(b, o);
    o->call = (pare_call){.ctx = &b->ctx,
                          .node = o->node,
                          .in = o->call_in,
                          .out = &o->call_out,
                          .in_count = o->in_count,
                          .out_count = 1,
                          .threads = 1,
                          .state = o->prep.state,
                          .scratch = o->scratch,
                          .stream = b->device->setup};
    if (st == PARE_OK && o->kernel->bind) st = o->kernel->bind(&o->call, &o->arena);
    if (st == PARE_OK) st = bench_measure(b, once, o, times);
    if (o->kernel->unbind && o->call.bound) o->kernel->unbind(o->call.bound);
    if (o->kernel->release) o->kernel->release(o->prep.state);
    constants_free(b, o);
    return st;
}

static bool is_dnn(const pare_kernel *k) { return !strncmp(k->name, "cudnn", 5); }

/* cuDNN's plans, which are kernels of the runtime like the others, are a rival to them. first: of
   our own only the first that takes the node. */
static void kernels_run(bench *b, ours *o, const char *suite, const bench_product *p,
                        const char *name, bool first)
{
    bool ran = false;
    for (const pare_kernel *const *it = pare_op_of(o->node)->cuda; *it; it++) {
        bench_times times;
        char who[96];
        o->kernel = *it;
        o->prep = (pare_prep){.ctx = &b->ctx,
                              .node = o->node,
                              .in = o->in,
                              .out = &o->out,
                              .in_count = o->in_count,
                              .out_count = 1,
                              .threads = 1,
                              .arena = &o->arena,
                              .device = b->device,
                              .share = -1};
        if (first && ran && !is_dnn(*it)) continue;
        if ((*it)->can && !(*it)->can(&o->prep)) continue;
        ran = ran || !is_dnn(*it);
        snprintf(who, sizeof who, "%s%s", is_dnn(*it) ? "" : "pare:", (*it)->name);
        if (kernel_measure(b, o, &times))
            bench_failed(b, suite, p->name, p->batch, name, who);
        else
            bench_line(b, suite, p->name, p->batch, name, who, &times,
                       2.0 * (double)(p->rows * p->depth * p->columns), false);
    }
}

void bench_ours(bench *b, const char *suite, const bench_product *p, pare_dtype type)
{
    ours o = {0};
    pare_arena_init(&o.arena, &b->ctx);
    pare_status st = node_make(b, &o, p, type);
    if (st == PARE_OK) st = memory_make(b, &o);
    if (st == PARE_OK)
        kernels_run(b, &o, suite, p, pare_type(type)->name, false);
    else
        bench_failed(b, suite, p->name, p->batch, pare_type(type)->name, "pare");
    ours_close(&o);
}

/* --- convolutions of a training --- */

static const char *const train_ops[] = {"Conv", "ConvGradInput", "ConvGradWeight"};
enum { CONV, GRAD_INPUT, GRAD_WEIGHT, TRAIN_OPS };

/* (x, w) -> y, (dy, w) -> dx, (dy, x) -> dw */
static pare_status train_make(bench *b, ours *o, const bench_product *p, pare_dtype type, int op)
{
    const int64_t side = p->side, out = (side + p->kernel / 2 * 2 - p->kernel) / p->stride + 1,
                  pad = p->kernel / 2;
    const int64_t x[4] = {p->batch, p->channels, side, side},
                  w[4] = {p->columns, p->channels, p->kernel, p->kernel},
                  y[4] = {p->batch, p->columns, out, out};
    pare_value *made;
    PARE_TRY(pare_model_new(&b->ctx, &o->model, "bench"));
    PARE_TRY(pare_model_set_opset(o->model, "", 20));
    PARE_TRY(pare_value_new(o->model->graph, &made, "y"));
    PARE_TRY(pare_node_new(o->model->graph, &o->node, 0, train_ops[op], op ? PARE_DOMAIN : "",
                           p->name, NULL, 0, &made, 1));
    PARE_TRY(input_add(b, o, type, 4, op == CONV ? x : y, false));
    PARE_TRY(input_add(b, o, type, 4, op == GRAD_WEIGHT ? x : w, op != GRAD_WEIGHT));
    PARE_TRY(pare_node_set_ints(o->node, "pads", (int64_t[]){pad, pad, pad, pad}, 4));
    PARE_TRY(pare_node_set_ints(o->node, "strides", (int64_t[]){p->stride, p->stride}, 2));
    if (op) PARE_TRY(pare_node_set_ints(o->node, "shape", op == GRAD_WEIGHT ? w : x, 4));
    PARE_TRY(pare_op_of(o->node)->infer(o->node));
    pare_view_set(&o->out, made->dtype, &made->shape, op != GRAD_WEIGHT);
    o->in[1].data = NULL; /* computed */
    return bench_random(b, &o->second, type, pare_view_bytes(&o->in[1]));
}

void bench_train(bench *b, const char *suite, const bench_product *p, pare_dtype type, bool tf32)
{
    const char *kind = tf32 ? "tf32" : pare_type(type)->name;
    b->device->tf32 = tf32;
    for (int op = 0; op < TRAIN_OPS; op++) {
        ours o = {0};
        char name[96];
        bench_product of = *p;
        of.name = name;
        snprintf(name, sizeof name, "%s %s", train_ops[op], p->name);
        pare_arena_init(&o.arena, &b->ctx);
        pare_status st = train_make(b, &o, &of, type, op);
        if (st == PARE_OK) st = memory_make(b, &o);
        if (st == PARE_OK)
            kernels_run(b, &o, suite, &of, kind, true);
        else
            bench_failed(b, suite, name, p->batch, kind, "pare");
        ours_close(&o);
    }
    b->device->tf32 = false;
}
