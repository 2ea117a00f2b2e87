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

/* Microseconds. The addition never is int8, and takes no time. */
typedef struct stopwatch {
    double in[PARE_IN_COUNT][GEMMS], quantize, dequantize, cast;
    double joined; /* of products 1 and 2 in one step where both have one float format; 0: they
                      never are */
    bool f16;      /* float nodes can be FP16 */
    int asked;
} stopwatch;

/* The products, and the addition. */
enum { ADD = GEMMS, NODES };

static double conversion(const stopwatch *w, pare_quant_format from, pare_quant_format to)
{
    if (from == to) return 0;
    if (to == PARE_IN_INT8) return fmin(w->quantize, w->f16 ? w->cast + w->quantize : INFINITY);
    if (from == PARE_IN_INT8) return w->dequantize;
    return fmin(w->cast, w->quantize + w->dequantize);
}

static bool joins(const stopwatch *w, const pare_quant_format *place)
{
    return w->joined > 0 && place[1] == place[2] && place[1] != PARE_IN_INT8;
}

static double total(const stopwatch *w, const pare_quant_format *place)
{
    static const int edge[][2] = {{0, 1}, {1, 2}, {0, 3}, {2, ADD}, {3, ADD}, {ADD, 4}};
    double sum = 1, each = conversion(w, PARE_IN_F32, place[0]);
    for (int i = 0; i < GEMMS; i++) sum += w->in[place[i]][i];
    if (joins(w, place)) sum += w->joined - w->in[place[1]][1] - w->in[place[2]][2];
    for (size_t e = 0; e < sizeof edge / sizeof *edge; e++)
        each += conversion(w, place[edge[e][0]], place[edge[e][1]]);
    if (place[4] == PARE_IN_F16) each += w->cast;
    return sum + BATCH * WIDTH * each;
}

static const pare_node *named(const pare_graph *g, const char *name)
{
    for (int n = 0; n < g->node_count; n++)
        if (!strcmp(g->node[n]->name, name)) return g->node[n];
    return NULL;
}

static pare_quant_format place_of(const pare_graph *g, int i)
{
    const pare_node *node = named(g, i == ADD ? "add" : (char[]){'w', (char)('0' + i), 0});
    assert_non_null(node);
    if (i != ADD && node->in[1]->producer) return PARE_IN_INT8;
    return node->out[0]->dtype == PARE_f16 ? PARE_IN_F16 : PARE_IN_F32;
}

/* The second product's nodes, and what is between, become the first one's step. */
static void join(const stopwatch *w, const pare_graph *g, pare_quant_times *out)
{
    const int first = pare_node_index(named(g, "w1")), second = pare_node_index(named(g, "w2"));
    out->seconds[first] = 1e-6 * w->joined;
    out->seconds[second] = 0;
    for (int n = 0; n < out->count; n++)
        if (out->head[n] == second) out->head[n] = first;
}

static pare_status look(void *user, const pare_model *float_model, const pare_model *candidate,
                        pare_quant_times *out)
{
    stopwatch *w = user;
    pare_quant_format place[NODES], all[NODES];
    w->asked++;
    for (int i = 0; i < NODES; i++) {
        place[i] = place_of(candidate->graph, i);
        all[i] = w->f16 ? PARE_IN_F16 : PARE_IN_F32;
    }
    for (int n = 0; n < out->count; n++) {
        const pare_node *node = float_model->graph->node[n];
        const bool gemm = pare_node_is(node, "Gemm");
        if (pare_node_is(node, "Relu")) out->head[n] = n - 1;
        if (!gemm && !pare_node_is(node, "Add")) continue;
        const int i = gemm ? node->name[1] - '0' : ADD;
        out->place[n] = place[i];
        out->seconds[n] = gemm ? 1e-6 * w->in[place[i]][i] : 0;
    }
    if (joins(w, place)) join(w, float_model->graph, out);
    out->quantize = 1e-6 * w->quantize;
    out->dequantize = 1e-6 * w->dequantize;
    out->cast = 1e-6 * w->cast;
    out->against =
        (pare_side_by_side){total(w, all), total(w, place), total(w, place) / total(w, all), false};
    return PARE_OK;
}

/* What the nodes become. */
static pare_status find(graph_case *g, stopwatch *w, const char *cache, pare_quant_format *place,
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
    o.float_fp16 = w->f16;
    calib.samples = samples;
    calib.sample_count = calib.batch = SAMPLES;
    calib.threads = 1;
    PARE_TRY(pare_quant_prepare(&g->ctx, g->model, &o, &facts));
    pare_status st = pare_data_open(&g->ctx, &data, data_path, &in, 1);
    if (st == PARE_OK) st = pare_calibrate(&g->ctx, &ranges, g->model, data, &calib);
    if (st == PARE_OK) st = pare_quant_find_fastest(&g->ctx, g->model, ranges, &o, &how, found);
    if (st == PARE_OK) st = pare_quantize(&g->ctx, g->model, ranges, &o, &facts);
    for (int i = 0; st == PARE_OK && i < NODES; i++) {
        place[i] = place_of(g->model->graph, i);
        const char *name = i == ADD ? "add" : (char[]){'w', (char)('0' + i), 0};
        if (i != ADD && place[i] != PARE_IN_INT8)
            assert_non_null(strstr(facts.latency_nodes, name));
        if (w->f16 && place[i] == PARE_IN_F32)
            assert_non_null(strstr(facts.f32_latency_nodes, name));
    }
    if (ranges) pare_ranges_free(ranges);
    pare_data_close(data);
    return st;
}

static void make_up(stopwatch *w, bool f16, uint32_t *x)
{
    *w = (stopwatch){.quantize = (double)(next_random(x) % 100) / 1000,
                     .dequantize = (double)(next_random(x) % 100) / 1000,
                     .f16 = f16};
    if (f16) w->cast = (double)(next_random(x) % 50) / 1000;
    for (int p = 0; p < PARE_IN_COUNT; p++)
        for (int i = 0; i < GEMMS; i++) w->in[p][i] = 5 + (double)(next_random(x) % 20);
}

/* The least total of all assignments with an int8 node. */
static double least_of(const stopwatch *w)
{
    double least = INFINITY;
    for (int a = 0; a < 729; a++) { /* 3 to the power of NODES */
        pare_quant_format place[NODES];
        bool int8 = false, can = true;
        for (int i = 0, rest = a; i < NODES; i++, rest /= PARE_IN_COUNT) {
            place[i] = (pare_quant_format)(rest % PARE_IN_COUNT);
            can = can && (place[i] != PARE_IN_INT8 || i != ADD) &&
                  (place[i] != PARE_IN_F16 || w->f16);
            int8 = int8 || place[i] == PARE_IN_INT8;
        }
        if (int8 && can) least = fmin(least, total(w, place));
    }
    return least;
}

/* None is faster by more than what a node must gain for each longer format. */
static void no_assignment_is_faster(bool f16, double gain)
{
    uint32_t x = 88172645u;
    int with[PARE_IN_COUNT] = {0};
    for (int t = 0; t < TRIALS; t++) {
        graph_case g;
        stopwatch w;
        pare_quant_format place[NODES], first[NODES];
        bool has[PARE_IN_COUNT] = {false};
        pare_quant_latency found;
        make_up(&w, f16, &x);
        build(&g);
        if (find(&g, &w, NULL, place, &found) != PARE_OK) fail_msg("%s", g.ctx.message);
        for (int i = 0; i < GEMMS; i++) has[place[i]] = true;
        for (int i = 0; i < NODES; i++) first[i] = PARE_IN_INT8;
        first[ADD] = f16 ? PARE_IN_F16 : PARE_IN_F32;
        for (int p = 0; p < PARE_IN_COUNT; p++) with[p] += has[p];
        assert_true(has[PARE_IN_INT8]);
        assert_true(total(&w, place) <= gain * least_of(&w));
        assert_true(fabs(found.chosen.b_ms - total(&w, place)) < 1e-9);
        assert_true(fabs(found.int8.b_ms - total(&w, first)) < 1e-9);
        graph_close(&g);
    }
    assert_true(with[PARE_IN_F32] > TRIALS / 4 && with[PARE_IN_F32] < TRIALS);
    assert_true(f16 ? with[PARE_IN_F16] > TRIALS / 4 : with[PARE_IN_F16] == 0);
}

static void no_assignment_of_two_formats_is_faster(void **state)
{
    (void)state;
    no_assignment_is_faster(false, 1.03);
}

static void no_assignment_of_three_formats_is_faster(void **state)
{
    (void)state;
    no_assignment_is_faster(true, 1.05);
}

/* Each of the two is faster as int8, and both in one float step are faster than that. */
static void products_of_one_step_change_together(void **state)
{
    (void)state;
    for (int f16 = 0; f16 < 2; f16++)
        for (int slow = 0; slow < 2; slow++) {
            graph_case g;
            pare_quant_format place[NODES];
            pare_quant_latency found;
            stopwatch w = {.joined = slow ? 17 : 9, .f16 = f16};
            for (int i = 0; i < GEMMS; i++) {
                w.in[PARE_IN_F32][i] = 12;
                w.in[PARE_IN_F16][i] = 10;
                w.in[PARE_IN_INT8][i] = 8;
            }
            build(&g);
            if (find(&g, &w, NULL, place, &found) != PARE_OK) fail_msg("%s", g.ctx.message);
            for (int i = 0; i < GEMMS; i++)
                assert_int_equal(place[i] == PARE_IN_INT8, slow || (i != 1 && i != 2));
            assert_true(fabs(found.chosen.b_ms - total(&w, place)) < 1e-9);
            graph_close(&g);
        }
}

static void the_table_chooses_again(void **state)
{
    uint32_t x = 11u;
    char file[96];
    (void)state;
    snprintf(file, sizeof file, "%s/placement.json", folder);
    for (int t = 0; t < 4; t++) {
        stopwatch w;
        pare_quant_format first[NODES], place[NODES];
        pare_quant_latency found;
        make_up(&w, t % 2, &x);
        for (int run = 0; run < 3; run++) {
            graph_case g;
            if (run == 2) assert_int_equal(truncate(file, 40), 0);
            build(&g);
            w.asked = 0;
            if (find(&g, &w, folder, place, &found) != PARE_OK) fail_msg("%s", g.ctx.message);
            if (run == 0) memcpy(first, place, sizeof first);
            assert_memory_equal(place, first, sizeof first);
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
    make_up(&w, true, &x);
    w.in[PARE_IN_INT8][1] = w.in[PARE_IN_INT8][2] = 60;
    for (long after = 0;; after += 23) {
        graph_case g;
        pare_quant_format place[NODES];
        pare_quant_latency found;
        build(&g);
        g.ctx.fail_after = after;
        const pare_status st = find(&g, &w, NULL, place, &found);
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
        cmocka_unit_test(no_assignment_of_two_formats_is_faster),
        cmocka_unit_test(no_assignment_of_three_formats_is_faster),
        cmocka_unit_test(products_of_one_step_change_together),
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
