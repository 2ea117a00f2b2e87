/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization in training: gradients against finite differences (f64, plain kernels), fast
   kernels against plain ones, a batch in slices against the batch in one, the statistics. */
#include "runtime/passes/train/train_batchnorm.h"
#include "runtime/exec/batch.h"
#include "runtime/passes/train/gradient.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { INPUTS = 3, MOST = 1 << 16, SLICES = 4 };

/* y = BatchNormalization(x), after and before a Conv where `convs`; loss = sum y y w. */
typedef struct bench {
    graph_case g;
    pare_dtype dtype;
    pare_trained_norms norms;
    pare_gradient gradient;
    pare_device *device;
    pare_plan *plan;
    pare_runner *runner;
    double *x[INPUTS]; /* x, scale, bias */
    int64_t count[INPUTS], channels;
    uint64_t seed;
    double *sum[INPUTS]; /* gradients, added over slices */
    double sums[64];
} bench;

static const char *const names[INPUTS] = {"x", "scale", "bias"};

static double uniform(bench *b, double low, double high)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(b->seed >> 33) / (double)(1u << 31);
}

static void put(void *data, pare_dtype dtype, int64_t i, double v)
{
    if (dtype == PARE_f64)
        ((double *)data)[i] = v;
    else
        ((float *)data)[i] = (float)v;
}

static double get(const void *data, pare_dtype dtype, int64_t i)
{
    return dtype == PARE_f64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void constant(bench *b, const char *name, int rank, const int64_t *dims, double low,
                     double high)
{
    pare_value *v;
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    double *data = calloc((size_t)n + 1, sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) put(data, b->dtype, i, uniform(b, low, high));
    assert_int_equal(pare_init_new(b->g.model->graph, &v, name, b->dtype, rank, dims, data),
                     PARE_OK);
    free(data);
}

static void input(bench *b, int k, int rank, const int64_t *dims, int64_t slices)
{
    b->count[k] = slices;
    for (int i = 0; i < rank; i++) b->count[k] *= dims[i];
    b->x[k] = calloc((size_t)b->count[k] + 1, sizeof(double));
    b->sum[k] = calloc((size_t)b->count[k] + 1, sizeof(double));
    assert_non_null(b->x[k]);
    assert_non_null(b->sum[k]);
    for (int64_t i = 0; i < b->count[k]; i++)
        b->x[k][i] = (double)(float)uniform(b, k ? 0.5 : 1, k ? 1.5 : 4);
    graph_input(&b->g, names[k], b->dtype, rank, dims);
}

static void forward(bench *b, int rank, const int64_t *dims, bool convs, int64_t slices)
{
    int64_t c = b->channels = rank > 1 ? dims[1] : 1;
    graph_open(&b->g, 15);
    input(b, 0, rank, dims, slices);
    input(b, 1, 1, &c, 1);
    input(b, 2, 1, &c, 1);
    constant(b, "mean", 1, &c, 2, 3);
    constant(b, "spread", 1, &c, 1, 2);
    graph_node(&b->g, "Identity", "spread", "variance"); /* as exporters write it */
    if (convs) {
        constant(b, "before", 4, (int64_t[]){c, c, 1, 1}, 0, 1);
        constant(b, "after", 4, (int64_t[]){c, c, 1, 1}, -1, 1);
        graph_node(&b->g, "Conv", "x before", "x1");
    }
    pare_node *n = graph_node(&b->g, "BatchNormalization",
                              convs ? "x1 scale bias mean variance" : "x scale bias mean variance",
                              convs ? "y1" : "y");
    assert_int_equal(pare_node_set_float(n, "momentum", 0.75f), PARE_OK);
    assert_int_equal(pare_node_set_float(n, "epsilon", 1e-3f), PARE_OK);
    if (convs) graph_node(&b->g, "Conv", "y1 after", "y");
    graph_output(&b->g, "y");
}

static void build(bench *b, pare_dtype dtype, int rank, const int64_t *dims, bool convs,
                  int64_t slices)
{
    memset(b, 0, sizeof *b);
    b->dtype = dtype;
    b->seed = 7;
    forward(b, rank, dims, convs, slices);
    assert_int_equal(pare_pass_train_batchnorm(b->g.model, &b->norms), PARE_OK);
    assert_int_equal(graph_count(&b->g, "BatchNormalization"), 0);
    constant(b, "w", rank, dims, -1, 1);
    graph_node(&b->g, "Mul", "y y", "yy");
    graph_node(&b->g, "Mul", "yy w", "p");
    assert_int_equal(pare_node_set_int(graph_node(&b->g, "ReduceSum", "p", "loss"), "keepdims", 0),
                     PARE_OK);
    pare_gradient_options options = {.loss = PARE_LOSS_TENSOR,
                                     .of = "loss",
                                     .by = names,
                                     .by_count = INPUTS,
                                     .keep_outputs = true};
    if (pare_pass_gradient(b->g.model, &b->gradient, &options) != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
}

/* Kernels that are not plain are a device's where tests are built with one. */
static void plan(bench *b, bool plain)
{
    pare_plan_options run = {.threads = 1, .deterministic = true, .reference = plain};
#ifdef CASE_DEVICE
    if (!plain && pare_device_open(&b->g.ctx, &b->device, "cuda") != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
    run.device = b->device;
#endif
    if (pare_plan_new(&b->g.ctx, &b->plan, b->g.model, NULL, 0, &run) != PARE_OK ||
        pare_runner_new(&b->g.ctx, &b->runner, b->plan) != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
    for (int k = 0; k < INPUTS; k++) {
        pare_view to = pare_runner_input(b->runner, k);
        for (int64_t i = 0; i < pare_view_count(&to); i++) put(to.data, b->dtype, i, b->x[k][i]);
    }
}

static void unplan(bench *b)
{
    pare_runner_free(b->runner);
    pare_plan_free(b->plan);
    pare_device_close(b->device);
    b->device = NULL;
}

static void unbuild(bench *b)
{
    for (int k = 0; k < INPUTS; k++) {
        free(b->x[k]);
        free(b->sum[k]);
    }
    graph_close(&b->g);
}

/* Outputs: y, sums, loss, gradients. */
static double loss(bench *b)
{
    if (pare_runner_run(b->runner) != PARE_OK) fail_msg("%s", b->g.ctx.message);
    return get(pare_runner_output(b->runner, 2).data, b->dtype, 0);
}

static double gradient(const bench *b, int k, int64_t i)
{
    return get(pare_runner_output(b->runner, 3 + k).data, b->dtype, i);
}

typedef struct shape_case {
    int rank;
    int64_t dims[4];
    bool convs;
} shape_case;

/* Central differences of step h: errors h^2 f''' / 6 and 1e-16 / h, both below 1e-8. */
static void gradients_match_differences(void **state)
{
    static const shape_case cases[] = {{4, {2, 3, 2, 2}, false},
                                       {4, {2, 3, 2, 2}, true},
                                       {2, {5, 2}, false},
                                       {3, {3, 2, 3}, false},
                                       {1, {6}, false}};
    const double h = 5e-5;
    (void)state;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        bench b;
        build(&b, PARE_f64, cases[at].rank, cases[at].dims, cases[at].convs, 1);
        plan(&b, true);
        for (int k = 0; k < INPUTS; k++) {
            double top = 0, *got = calloc((size_t)b.count[k], sizeof *got);
            assert_non_null(got);
            (void)loss(&b);
            for (int64_t i = 0; i < b.count[k]; i++) {
                got[i] = gradient(&b, k, i);
                top = fmax(top, fabs(got[i]));
            }
            double *to = pare_runner_input(b.runner, k).data;
            for (int64_t i = 0; i < b.count[k]; i++) {
                to[i] = b.x[k][i] + h;
                double more = loss(&b);
                to[i] = b.x[k][i] - h;
                double want = (more - loss(&b)) / (2 * h);
                to[i] = b.x[k][i];
                if (!(fabs(got[i] - want) <= 1e-6 * top))
                    fail_msg("case %zu, %s, element %lld: %.12g, expected %.12g (largest %g)", at,
                             names[k], (long long)i, got[i], want, top);
            }
            free(got);
        }
        unplan(&b);
        unbuild(&b);
    }
}

static int kernels(const bench *b, const char *part)
{
    int count = 0;
    for (int i = 0; i < pare_plan_step_count(b->plan); i++) {
        pare_step_info info;
        pare_plan_step(b->plan, i, &info);
        count += strstr(info.kernel, part) != NULL && strstr(info.kernel, "ref_") == NULL;
    }
    return count;
}

/* Every output of the fast kernels is within 2e-5 of the largest of the plain ones'. */
static void fast_kernels_match_plain_ones(void **state)
{
    static const shape_case cases[] = {
        {4, {3, 17, 5, 7}, true},  {4, {2, 64, 9, 9}, true}, {4, {2, 3, 33, 31}, false},
        {4, {5, 40, 1, 1}, false}, {3, {4, 9, 16}, false},   {2, {300, 23}, false},
        {1, {37}, false},          {4, {2, 8, 4, 4}, false}, {4, {1, 1, 40, 40}, false},
        {2, {5000, 1}, false},     {4, {1, 33, 3, 3}, true}, {3, {2, 2, 1000}, false},
    };
    (void)state;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        bench b;
        static double want[6][MOST];
        int64_t count[6];
        build(&b, PARE_f32, cases[at].rank, cases[at].dims, cases[at].convs, 1);
        for (int plain = 1; plain >= 0; plain--) {
            plan(&b, plain);
            (void)loss(&b);
            assert_int_equal(kernels(&b, "batch_norm"), plain ? 0 : 4);
            for (int o = 0; o < pare_plan_output_count(b.plan); o++) {
                pare_view v = pare_runner_output(b.runner, o);
                double top = 1e-30;
                count[o] = pare_view_count(&v);
                assert_in_range(count[o], 1, MOST);
                for (int64_t i = 0; i < count[o]; i++) {
                    if (plain) want[o][i] = get(v.data, v.dtype, i);
                    top = fmax(top, fabs(want[o][i]));
                }
                for (int64_t i = 0; i < count[o]; i++)
                    if (!(fabs(get(v.data, v.dtype, i) - want[o][i]) <= 2e-5 * top))
                        fail_msg("case %zu, output %d, element %lld: %.9g, expected %.9g of %g", at,
                                 o, (long long)i, get(v.data, v.dtype, i), want[o][i], top);
            }
            unplan(&b);
        }
        unbuild(&b);
    }
}

/* --- slices --- */

static pare_status load(void *user, int64_t slice, pare_replica *replica)
{
    bench *b = user;
    pare_runner *runner = replica->runner;
    pare_view x = pare_runner_input(runner, 0);
    int64_t n = pare_view_count(&x);
    memcpy(x.data, b->x[0] + slice * n, (size_t)n * sizeof(double));
    pare_runner_set_input(runner, 1, b->x[1]);
    pare_runner_set_input(runner, 2, b->x[2]);
    return PARE_OK;
}

static pare_status take(void *user, int64_t slice, pare_replica *replica)
{
    bench *b = user;
    const pare_runner *runner = replica->runner;
    for (int k = 0; k < INPUTS; k++) {
        pare_view g = pare_runner_output(runner, 3 + k);
        int64_t n = pare_view_count(&g), from = k ? 0 : slice * n;
        for (int64_t i = 0; i < n; i++) b->sum[k][from + i] += ((const double *)g.data)[i];
    }
    memcpy(b->sums, pare_runner_output(runner, 1).data, 3 * (size_t)b->channels * sizeof(double));
    return PARE_OK;
}

/* The batch [8,3,2,2] in one run, w being that of a slice over and over. */
static void whole_batch(bench *b, double *sums, double *const *gradients)
{
    static const int64_t dims[] = {2 * SLICES, 3, 2, 2};
    bench whole;
    build(&whole, PARE_f64, 4, dims, false, 1);
    pare_value *w = graph_value(&whole.g, "w");
    const pare_tensor *slice = graph_value(&b->g, "w")->data;
    for (int s = 0; s < SLICES; s++)
        memcpy((char *)w->data->data + (size_t)s * slice->bytes, slice->data, slice->bytes);
    memcpy((void *)graph_value(&whole.g, "mean")->data->data,
           graph_value(&b->g, "mean")->data->data, 3 * sizeof(double));
    for (int k = 0; k < INPUTS; k++)
        memcpy(whole.x[k], b->x[k], (size_t)b->count[k] * sizeof(double));
    plan(&whole, true);
    (void)loss(&whole);
    memcpy(sums, pare_runner_output(whole.runner, 1).data, 9 * sizeof *sums);
    for (int k = 0; k < INPUTS; k++)
        for (int64_t i = 0; i < b->count[k]; i++) gradients[k][i] = gradient(&whole, k, i);
    unplan(&whole);
    unbuild(&whole);
}

static void slices_are_one_batch(void **state)
{
    static const int64_t dims[] = {2, 3, 2, 2};
    (void)state;
    bench b;
    pare_replicas *pool;
    const pare_batch_work work = {.load = load, .take = take, .user = &b};
    double sums[9], *want[INPUTS];
    build(&b, PARE_f64, 4, dims, false, SLICES);
    plan(&b, true);
    for (int k = 0; k < INPUTS; k++) want[k] = calloc((size_t)b.count[k], sizeof(double));
    whole_batch(&b, sums, want);
    const pare_replicas_options options = {.items = SLICES, .threads = 2};
    assert_int_equal(pare_replicas_new(&b.g.ctx, &pool, b.plan, &options), PARE_OK);
    if (pare_replicas_run(pool, 0, SLICES, &work) != PARE_OK) fail_msg("%s", b.g.ctx.message);
    for (int i = 0; i < 9; i++) assert_true(fabs(b.sums[i] - sums[i]) <= 1e-12 * fabs(sums[i]));
    for (int k = 0; k < INPUTS; k++) {
        double top = 0;
        for (int64_t i = 0; i < b.count[k]; i++) top = fmax(top, fabs(want[k][i]));
        for (int64_t i = 0; i < b.count[k]; i++)
            assert_true(fabs(b.sum[k][i] - want[k][i]) <= 1e-12 * top);
        free(want[k]);
    }
    pare_replicas_free(pool);
    unplan(&b);
    unbuild(&b);
}

/* --- statistics --- */

static void moments_are_the_batch_s(void **state)
{
    static const int64_t dims[] = {4, 3, 5, 5};
    (void)state;
    bench b;
    build(&b, PARE_f32, 4, dims, false, 1);
    plan(&b, false);
    (void)loss(&b);
    assert_int_equal(b.norms.count, 1);
    const pare_trained_norm *n = b.norms.norm;
    assert_string_equal(n->mean, "mean");
    assert_string_equal(n->variance, "variance");
    assert_true(n->momentum == 0.75f);
    assert_string_equal(n->sums, pare_plan_output(b.plan, 1)->name);
    const double *sums = pare_runner_output(b.runner, 1).data;
    for (int64_t c = 0; c < 3; c++) {
        double mean = 0, variance = 0, got, spread;
        for (int64_t i = 0; i < 100; i++) mean += b.x[0][(i / 25 * 3 + c) * 25 + i % 25] / 100;
        for (int64_t i = 0; i < 100; i++)
            variance += pow(b.x[0][(i / 25 * 3 + c) * 25 + i % 25] - mean, 2) / 100;
        pare_trained_norm_moments(sums, 3, c, (double)((const float *)n->mean0->data)[c], &got,
                                  &spread);
        assert_true(fabs(got - mean) < 1e-9);
        assert_true(fabs(spread - variance) < 1e-6 * variance);
    }
    unplan(&b);
    unbuild(&b);
}

static void heard(void *user, pare_log_level level, const char *line)
{
    char *text = user;
    (void)level;
    snprintf(text, 256, "%s", line);
}

static void computed_statistics_stay(void **state)
{
    static const int64_t dims[] = {2, 3}, three = 3;
    (void)state;
    graph_case g;
    pare_trained_norms norms;
    char line[256] = "";
    const float data[3] = {1, 1, 1};
    graph_open(&g, 15);
    g.ctx.log = heard;
    g.ctx.log_user = line;
    graph_input(&g, "x", PARE_f32, 2, dims);
    graph_input(&g, "mean", PARE_f32, 1, &three);
    graph_floats(&g, "ones", 1, &three, data);
    graph_node(&g, "BatchNormalization", "x ones ones mean ones", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_pass_train_batchnorm(g.model, &norms), PARE_OK);
    assert_int_equal(norms.count, 0);
    assert_int_equal(graph_count(&g, "BatchNormalization"), 1);
    assert_non_null(strstr(line, "m.onnx: node 'y' (BatchNormalization): "));
    graph_close(&g);
}

static void allocations_fail_cleanly(void **state)
{
    static const int64_t dims[] = {2, 3, 2, 2};
    (void)state;
    pare_status st = PARE_MEMORY;
    for (long n = 0; st != PARE_OK; n++) {
        bench b;
        memset(&b, 0, sizeof b);
        b.dtype = PARE_f32;
        forward(&b, 4, dims, false, 1);
        b.g.ctx.fail_after = n;
        st = pare_pass_train_batchnorm(b.g.model, &b.norms);
        b.g.ctx.fail_after = -1;
        if (st != PARE_OK) {
            assert_int_equal(st, PARE_MEMORY);
            assert_true(*b.g.ctx.message);
        }
        unbuild(&b);
        assert_in_range(n, 0, 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(fast_kernels_match_plain_ones),
        cmocka_unit_test(slices_are_one_batch),
        cmocka_unit_test(moments_are_the_batch_s),
        cmocka_unit_test(computed_statistics_stay),
        cmocka_unit_test(allocations_fail_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
