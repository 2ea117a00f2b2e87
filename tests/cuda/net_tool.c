/* SPDX-License-Identifier: Apache-2.0 */
/* net_tool NAME WORD...: what tests of commands on the emulated device need beside the program; the
   function of that name says its words. */
#include "formats/npy.h"
#include "formats/onnx.h"
#include "runtime/exec/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MODEL TENSOR OUT.onnx [BEHIND COUNT]: the model up to a tensor; of tensor BEHIND only the first
   COUNT entries of axis 1 continue. */
static pare_status cut(pare_ctx *ctx, char **word, int count)
{
    pare_model *m;
    PARE_TRY(pare_onnx_read(ctx, &m, word[0]));
    pare_graph *g = m->graph;
    pare_value *last = pare_graph_find_own(g, word[1]);
    pare_value *behind = count > 4 ? pare_graph_find_own(g, word[3]) : NULL;
    if (!last || (count > 4 && !behind)) return PARE_FAIL(ctx, INPUT, "no such tensor");
    if (behind) {
        int64_t one = 1, begin = 0, end = atoi(word[4]), axis = 1;
        const int64_t *from[] = {&begin, &end, &axis};
        static const char *const names[] = {"cut_from", "cut_to", "cut_axis"};
        pare_value *in[4] = {behind}, *out;
        pare_node *slice;
        PARE_TRY(pare_value_new(g, &out, "cut_tokens"));
        PARE_TRY(pare_value_replace(behind, out, false));
        for (int i = 0; i < 3; i++)
            PARE_TRY(pare_init_new(g, &in[i + 1], names[i], PARE_s64, 1, &one, from[i]));
        PARE_TRY(pare_node_new(g, &slice, pare_node_index(behind->producer) + 1, "Slice", "", "cut",
                               in, 4, &out, 1));
    }
    while (g->out.count) {
        g->out.item[0]->is_output = false;
        pare_values_remove(&g->out, g->out.item[0]);
    }
    pare_shape batch = {.rank = -1};
    pare_value_set_type(last, PARE_f32, &batch);
    last->is_output = true;
    PARE_TRY(pare_values_add(g, &g->out, last));
    pare_graph_sweep(g);
    pare_onnx_write_options options = {0};
    PARE_TRY(pare_onnx_write(ctx, m, word[2], &options));
    pare_model_free(m);
    return PARE_OK;
}

/* Repeatable values in [-1, 1), to be freed; NULL without memory. */
static float *random_values(pare_ctx *ctx, uint32_t seed, const pare_shape *shape)
{
    const int64_t n = pare_shape_count(shape);
    uint32_t x = seed * 2654435761u + 1;
    float *values = pare_alloc(ctx, (size_t)n, sizeof *values);
    for (int64_t i = 0; values && i < n; i++) {
        x ^= x << 13; /* xorshift32, Marsaglia 2003 */
        x ^= x >> 17;
        x ^= x << 5;
        values[i] = (float)(x >> 8) * 0x1p-23f - 1;
    }
    return values;
}

/* SEED OUT.npy DIM...: repeatable values. */
static pare_status input(pare_ctx *ctx, char **word, int count)
{
    pare_shape shape = {.rank = count - 2};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = atoi(word[2 + i]);
    float *values = random_values(ctx, (uint32_t)atoi(word[0]), &shape);
    if (!values) return PARE_MEMORY;
    pare_status st = pare_npy_save(ctx, word[1], PARE_f32, &shape, values);
    pare_free(values);
    return st;
}

/* *x becomes Gemm of it and weights (width, wide). */
static pare_status gemm(pare_graph *g, pare_value **x, int layer, int64_t width, int64_t wide)
{
    const pare_shape shape = {.rank = 2, .dim = {width, wide}};
    pare_value *in[2] = {*x};
    pare_node *node;
    char name[2][16];
    for (int i = 0; i < 2; i++) snprintf(name[i], sizeof name[i], "%c%d", "wy"[i], layer);
    float *values = random_values(g->model->ctx, (uint32_t)layer, &shape);
    if (!values) return PARE_MEMORY;
    pare_status st = pare_init_new(g, &in[1], name[0], PARE_f32, 2, shape.dim, values);
    pare_free(values);
    PARE_TRY(st);
    PARE_TRY(pare_value_new(g, x, name[1]));
    return pare_node_new(g, &node, g->node_count, "Gemm", "", name[1], in, 2, x, 1);
}

/* OUT.onnx WIDTH WIDTH...: Gemms of such widths, a Relu between two. */
static pare_status mlp(pare_ctx *ctx, char **word, int count)
{
    pare_model *m;
    pare_node *node;
    PARE_TRY(pare_model_new(ctx, &m, word[0]));
    PARE_TRY(pare_model_set_opset(m, "", 17));
    m->ir_version = 8;
    pare_graph *g = m->graph;
    g->name = "mlp";
    pare_value *x, *y;
    const pare_shape from = {.rank = 2, .dim = {-1, atoi(word[1])}};
    PARE_TRY(pare_value_new(g, &x, "input"));
    pare_value_set_type(x, PARE_f32, &from);
    x->is_input = true;
    PARE_TRY(pare_values_add(g, &g->in, x));
    for (int i = 2; i < count; i++) {
        PARE_TRY(gemm(g, &x, i - 1, atoi(word[i - 1]), atoi(word[i])));
        if (i == count - 1) break;
        PARE_TRY(pare_value_new(g, &y, word[i]));
        PARE_TRY(pare_node_new(g, &node, g->node_count, "Relu", "", word[i], &x, 1, &y, 1));
        x = y;
    }
    const pare_shape to = {.rank = 2, .dim = {-1, atoi(word[count - 1])}};
    pare_value_set_type(x, PARE_f32, &to);
    x->is_output = true;
    PARE_TRY(pare_values_add(g, &g->out, x));
    pare_onnx_write_options options = {0};
    PARE_TRY(pare_onnx_write(ctx, m, word[0], &options));
    pare_model_free(m);
    return PARE_OK;
}

/* A.npy B.npy BOUND: do they differ by at most BOUND of the greatest value? */
static pare_status near(pare_ctx *ctx, char **word, int count)
{
    (void)count;
    pare_dtype dtype[2];
    pare_shape shape[2];
    void *data[2];
    double most = 0, worst = 0;
    for (int k = 0; k < 2; k++)
        PARE_TRY(pare_npy_load(ctx, word[k], &dtype[k], &shape[k], &data[k]));
    if (dtype[0] != PARE_f32 || dtype[1] != PARE_f32 || !pare_shape_equal(&shape[0], &shape[1]))
        return PARE_FAIL(ctx, INPUT, "%s and %s are not both f32 of one shape", word[0], word[1]);
    for (int64_t i = 0; i < pare_shape_count(&shape[0]); i++) {
        double a = (double)((float *)data[0])[i], b = (double)((float *)data[1])[i];
        most = fmax(most, fabs(a));
        if (!(fabs(a - b) <= worst)) worst = fabs(a - b); /* NaN stays */
    }
    pare_free(data[0]);
    pare_free(data[1]);
    printf("differ by %.3g of %.3g: %.3g\n", worst, most, worst / most);
    return most > 0 && worst <= atof(word[2]) * most
               ? PARE_OK
               : PARE_FAIL(ctx, INPUT, "more than %s", word[2]);
}

/* --- codes --- */

enum { MOST = 512 };
typedef struct shown {
    struct {
        char name[96];
        int64_t count;
        signed char *codes;
        bool is_signed;
    } tensor[MOST];
    int count;
} shown;

static pare_status look(void *user, const pare_value *value, const pare_view *view)
{
    shown *s = user;
    if ((view->dtype != PARE_s8 && view->dtype != PARE_u8) || s->count == MOST) return PARE_OK;
    size_t bytes = pare_view_bytes(view);
    snprintf(s->tensor[s->count].name, sizeof s->tensor[0].name, "%s", value->name);
    s->tensor[s->count].count = (int64_t)bytes;
    s->tensor[s->count].is_signed = view->dtype == PARE_s8;
    s->tensor[s->count].codes = malloc(bytes + 1);
    memcpy(s->tensor[s->count++].codes, view->data, bytes);
    return PARE_OK;
}

static pare_status watch(pare_ctx *ctx, const char *path, pare_device *device,
                         const pare_shape *shape, const void *x, shown *out)
{
    pare_model *m;
    pare_plan *plan;
    pare_runner *runner;
    pare_plan_options options = {.threads = 1, .device = device};
    PARE_TRY(pare_onnx_read(ctx, &m, path));
    pare_input_shape given = {m->graph->in.item[0]->name, *shape};
    PARE_TRY(pare_plan_new(ctx, &plan, m, &given, 1, &options));
    PARE_TRY(pare_runner_new(ctx, &runner, plan));
    pare_runner_set_input(runner, 0, x);
    pare_runner_observe(runner, look, out);
    PARE_TRY(pare_runner_run(runner));
    pare_runner_free(runner);
    pare_plan_free(plan);
    pare_model_free(m);
    return PARE_OK;
}

static pare_status compare(pare_ctx *ctx, const shown *a, const shown *b)
{
    int64_t all = 0, apart = 0;
    if (a->count != b->count || !a->count)
        return PARE_FAIL(ctx, INPUT, "%d tensors of codes against %d", a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        if (strcmp(a->tensor[i].name, b->tensor[i].name) ||
            a->tensor[i].count != b->tensor[i].count)
            return PARE_FAIL(ctx, INPUT, "tensor '%s' against '%s'", a->tensor[i].name,
                             b->tensor[i].name);
        for (int64_t k = 0; k < a->tensor[i].count; k++) {
            int x = a->tensor[i].codes[k], y = b->tensor[i].codes[k];
            if (!a->tensor[i].is_signed) {
                x &= 255;
                y &= 255;
            }
            if (abs(x - y) > 1)
                return PARE_FAIL(ctx, INPUT, "tensor '%s', element %lld: %d against %d",
                                 a->tensor[i].name, (long long)k, x, y);
            apart += x != y;
        }
        all += a->tensor[i].count;
    }
    printf("%lld of %lld codes in %d tensors differ by 1\n", (long long)apart, (long long)all,
           a->count);
    return apart * 1000 <= all ? PARE_OK : PARE_FAIL(ctx, INPUT, "more than 1 of 1000");
}

/* MODEL X.npy: are its 8-bit tensors on the device and on the CPU at most 1 apart, in at most 1 of
   1000 entries? */
static pare_status codes(pare_ctx *ctx, char **word, int count)
{
    (void)count;
    static shown cpu, gpu;
    pare_dtype dtype;
    pare_shape shape;
    void *x;
    pare_device *device;
    PARE_TRY(pare_npy_load(ctx, word[1], &dtype, &shape, &x));
    PARE_TRY(watch(ctx, word[0], NULL, &shape, x, &cpu));
    PARE_TRY(pare_device_open(ctx, &device, "cuda"));
    PARE_TRY(watch(ctx, word[0], device, &shape, x, &gpu));
    pare_device_close(device);
    pare_free(x);
    pare_status st = compare(ctx, &cpu, &gpu);
    for (int i = 0; i < cpu.count; i++) free(cpu.tensor[i].codes);
    for (int i = 0; i < gpu.count; i++) free(gpu.tensor[i].codes);
    return st;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int least;
        pare_status (*run)(pare_ctx *ctx, char **word, int count);
    } tools[] = {{"cut", 3, cut},
                 {"mlp", 3, mlp},
                 {"input", 3, input},
                 {"near", 3, near},
                 {"codes", 2, codes}};
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (argc > 1 && !strcmp(argv[1], tools[i].name) && argc - 2 >= tools[i].least) {
            pare_status st = tools[i].run(&ctx, argv + 2, argc - 2);
            if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
            return st == PARE_OK ? 0 : 1;
        }
    fputs("usage: net_tool cut|mlp|input|near|codes ...\n", stderr);
    return 2;
}
