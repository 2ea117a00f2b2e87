/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes stay float for their latency: the search against all assignments there are, on times
   that a stopwatch of the test makes up. */
#include "calib/calib.h"
#include "formats/data.h"
#include "quant/latency/internal.h"
#include "tests/quant/quant_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { SAMPLES = 8, WIDTH = 16, BATCH = 4, GEMMS = 5, TRIALS = 40 };
static char data_path[64], folder[64];

static uint32_t next_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x >> 8;
}

/* --- the cut --- */

static int64_t cost_of(int n, const int64_t *source, const int64_t *sink, const pare_cut_edge *edge,
                       int edges, unsigned side)
{
    int64_t sum = 0;
    for (int v = 0; v < n; v++) sum += side >> v & 1 ? sink[v] : source[v];
    for (int e = 0; e < edges; e++) {
        const unsigned from = side >> edge[e].from & 1, to = side >> edge[e].to & 1;
        sum += from && !to ? edge[e].forth : to && !from ? edge[e].back : 0;
    }
    return sum;
}

static void no_cut_is_smaller(void **state)
{
    enum { N = 7, E = 12, GRAPHS = 300 };
    uint32_t x = 2463534242u;
    pare_ctx ctx;
    (void)state;
    pare_ctx_init(&ctx);
    for (int g = 0; g < GRAPHS; g++) {
        int64_t source[N], sink[N], least = INT64_MAX;
        pare_cut_edge edge[E];
        bool side[N];
        unsigned found = 0;
        for (int v = 0; v < N; v++) {
            source[v] = next_random(&x) % 100;
            sink[v] = next_random(&x) % 100;
        }
        for (int e = 0; e < E; e++)
            edge[e] = (pare_cut_edge){(int)(next_random(&x) % N), (int)(next_random(&x) % N),
                                      next_random(&x) % 50, next_random(&x) % 50};
        assert_int_equal(pare_min_cut(&ctx, N, source, sink, edge, E, side), PARE_OK);
        for (int v = 0; v < N; v++) found |= (unsigned)side[v] << v;
        for (unsigned s = 0; s < 1u << N; s++) {
            const int64_t cost = cost_of(N, source, sink, edge, E, s);
            least = cost < least ? cost : least;
        }
        assert_int_equal(cost_of(N, source, sink, edge, E, found), least);
    }
}

/* --- the search --- */

static void write_data(pare_ctx *ctx)
{
    float x[SAMPLES * WIDTH];
    for (int i = 0; i < SAMPLES * WIDTH; i++) x[i] = (float)(i * 37 % 255 - 127);
    write_rows(ctx, data_path, WIDTH, x, SAMPLES);
}

/* x -> g0 -> g1 -> g2 -> Add -> g4, and g0 -> g3 -> Add. */
static void build(graph_case *g)
{
    static const char *const in[GEMMS] = {"x", "r0", "r1", "r0", "sum"};
    static float weight[WIDTH * WIDTH];
    for (int i = 0; i < WIDTH * WIDTH; i++) weight[i] = (float)(i * 7 % 13 - 6) / 20;
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    for (int i = 0; i < GEMMS; i++) {
        char w[16], y[16], r[16], names[40];
        snprintf(w, sizeof w, "w%d", i);
        snprintf(y, sizeof y, "y%d", i);
        snprintf(r, sizeof r, "r%d", i);
        snprintf(names, sizeof names, "%s %s", in[i], w);
        graph_floats(g, w, 2, (int64_t[]){WIDTH, WIDTH}, weight);
        if (i == GEMMS - 1) graph_node(g, "Add", "r2 r3", "sum")->name = "add";
        graph_node(g, "Gemm", names, y)->name = pare_arena_strdup(&g->model->arena, w);
        graph_node(g, "Relu", y, r)->name = pare_arena_strdup(&g->model->arena, r);
    }
    graph_output(g, "r4");
}

/* Microseconds. The addition never is int8. */
typedef struct stopwatch {
    double in_float[GEMMS], in_int8[GEMMS], quantize, dequantize;
    int asked;
} stopwatch;

static double total(const stopwatch *w, unsigned int8)
{
    static const int edge[][2] = {{-1, 0}, {0, 1}, {1, 2}, {0, 3}, {2, -1}, {3, -1}, {-1, 4}};
    double sum = 1;
    for (int i = 0; i < GEMMS; i++) sum += int8 >> i & 1 ? w->in_int8[i] : w->in_float[i];
    for (size_t e = 0; e < sizeof edge / sizeof *edge; e++) {
        const bool from = edge[e][0] >= 0 && (int8 >> edge[e][0] & 1);
        const bool to = edge[e][1] >= 0 && (int8 >> edge[e][1] & 1);
        sum += BATCH * WIDTH * (!from && to ? w->quantize : from && !to ? w->dequantize : 0);
    }
    return sum;
}

static const pare_node *named(const pare_graph *g, const char *name)
{
    for (int n = 0; n < g->node_count; n++)
        if (!strcmp(g->node[n]->name, name)) return g->node[n];
    return NULL;
}

static pare_status look(void *user, const pare_model *float_model, const pare_model *candidate,
                        pare_quant_times *out)
{
    stopwatch *w = user;
    unsigned int8 = 0;
    w->asked++;
    for (int n = 0; n < out->count; n++) {
        const pare_node *node = float_model->graph->node[n];
        if (pare_node_is(node, "Relu")) out->head[n] = n - 1;
        if (!pare_node_is(node, "Gemm")) continue;
        const int i = node->name[1] - '0';
        const pare_node *now = named(candidate->graph, node->name);
        assert_non_null(now);
        out->integer[n] = now->in[1]->producer != NULL;
        out->seconds[n] = 1e-6 * (out->integer[n] ? w->in_int8[i] : w->in_float[i]);
        int8 |= (unsigned)out->integer[n] << i;
    }
    out->quantize = 1e-6 * w->quantize;
    out->dequantize = 1e-6 * w->dequantize;
    out->against =
        (pare_side_by_side){total(w, 0), total(w, int8), total(w, int8) / total(w, 0), false};
    return PARE_OK;
}

/* Which products become int8. */
static pare_status find(graph_case *g, stopwatch *w, const char *cache, unsigned *int8,
                        pare_quant_latency *found)
{
    const pare_input_shape shape = {"x", {2, {BATCH, WIDTH}, {0}}};
    const pare_quant_latency_options how = {.shapes = &shape,
                                            .shape_count = 1,
                                            .threads = 1,
                                            .cache_dir = cache,
                                            .measure = look,
                                            .measure_user = w};
    pare_data_input in = {"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
    pare_calib_options calib;
    pare_quant_options o;
    pare_quant_facts facts;
    pare_data *data = NULL;
    pare_ranges *ranges = NULL;
    int64_t samples[SAMPLES] = {0, 1, 2, 3, 4, 5, 6, 7};
    pare_quant_options_init(&o);
    pare_calib_options_init(&calib);
    calib.samples = samples;
    calib.sample_count = calib.batch = SAMPLES;
    calib.threads = 1;
    *int8 = 0;
    PARE_TRY(pare_quant_prepare(&g->ctx, g->model, &o, &facts));
    pare_status st = pare_data_open(&g->ctx, &data, data_path, &in, 1);
    if (st == PARE_OK) st = pare_calibrate(&g->ctx, &ranges, g->model, data, &calib);
    if (st == PARE_OK)
        st = pare_quant_find_fastest(&g->ctx, g->model, ranges, &o, &how, &o.float_for_latency,
                                     found);
    if (st == PARE_OK) st = pare_quantize(&g->ctx, g->model, ranges, &o, &facts);
    for (int i = 0; st == PARE_OK && i < GEMMS; i++) {
        const pare_node *node = named(g->model->graph, (char[]){'w', (char)('0' + i), 0});
        *int8 |= (unsigned)(node->in[1]->producer != NULL) << i;
        if (!(*int8 >> i & 1)) assert_non_null(strstr(facts.latency_nodes, node->name));
    }
    if (ranges) pare_ranges_free(ranges);
    pare_data_close(data);
    return st;
}

static void make_up(stopwatch *w, uint32_t *x)
{
    *w = (stopwatch){.quantize = (double)(next_random(x) % 100) / 1000,
                     .dequantize = (double)(next_random(x) % 100) / 1000};
    for (int i = 0; i < GEMMS; i++) {
        w->in_float[i] = 5 + (double)(next_random(x) % 20);
        w->in_int8[i] = 5 + (double)(next_random(x) % 20);
    }
}

/* Of all assignments with an int8 node none is faster by more than what a node must gain. */
static void no_assignment_is_faster(void **state)
{
    uint32_t x = 88172645u;
    int mixed = 0;
    (void)state;
    for (int t = 0; t < TRIALS; t++) {
        graph_case g;
        stopwatch w;
        unsigned int8;
        pare_quant_latency found;
        double least = INFINITY;
        make_up(&w, &x);
        build(&g);
        if (find(&g, &w, NULL, &int8, &found) != PARE_OK) fail_msg("%s", g.ctx.message);
        for (unsigned a = 1; a < 1u << GEMMS; a++) least = fmin(least, total(&w, a));
        assert_true(int8 != 0);
        assert_true(total(&w, int8) <= 1.03 * least);
        assert_true(fabs(found.chosen.b_ms - total(&w, int8)) < 1e-9);
        assert_true(fabs(found.int8.b_ms - total(&w, (1u << GEMMS) - 1)) < 1e-9);
        mixed += int8 != (1u << GEMMS) - 1;
        graph_close(&g);
    }
    assert_true(mixed > TRIALS / 4 && mixed < TRIALS);
}

static void the_table_chooses_again(void **state)
{
    uint32_t x = 11u;
    char file[96];
    (void)state;
    snprintf(file, sizeof file, "%s/placement.json", folder);
    for (int t = 0; t < 4; t++) {
        stopwatch w;
        unsigned first = 0, int8;
        pare_quant_latency found;
        make_up(&w, &x);
        for (int run = 0; run < 3; run++) {
            graph_case g;
            if (run == 2) assert_int_equal(truncate(file, 40), 0);
            build(&g);
            w.asked = 0;
            if (find(&g, &w, folder, &int8, &found) != PARE_OK) fail_msg("%s", g.ctx.message);
            if (run == 0) first = int8;
            assert_int_equal(int8, first);
            assert_int_equal(found.models, w.asked);
            if (run == 1)
                assert_int_equal(w.asked, 0);
            else
                assert_true(w.asked > 1);
            graph_close(&g);
        }
        remove(file);
    }
}

static void memory_that_runs_out_is_said(void **state)
{
    uint32_t x = 5u;
    stopwatch w;
    (void)state;
    make_up(&w, &x);
    w.in_int8[1] = w.in_int8[2] = 60;
    for (long after = 0;; after += 11) {
        graph_case g;
        unsigned int8;
        pare_quant_latency found;
        build(&g);
        g.ctx.fail_after = after;
        const pare_status st = find(&g, &w, NULL, &int8, &found);
        g.ctx.fail_after = -1;
        graph_close(&g);
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
        assert_true(after < 100000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cut_is_smaller),
        cmocka_unit_test(no_assignment_is_faster),
        cmocka_unit_test(the_table_chooses_again),
        cmocka_unit_test(memory_that_runs_out_is_said),
    };
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    snprintf(data_path, sizeof data_path, "latency.%d.h5", (int)getpid());
    snprintf(folder, sizeof folder, "latency.%d", (int)getpid());
    if (mkdir(folder, 0777)) return 1;
    write_data(&ctx);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(data_path);
    rmdir(folder);
    return failed;
}
