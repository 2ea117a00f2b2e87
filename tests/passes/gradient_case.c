/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/passes/gradient_case.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_DIMS = 6 };

static double uniform(gradient_bench *b, double low, double high)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(b->seed >> 33) / (double)(1u << 31);
}

static int parse_dims(const char *text, int64_t *dims)
{
    int rank = 0;
    while (*text) {
        char *end;
        dims[rank++] = strtoll(text, &end, 10);
        text = *end ? end + 1 : end;
    }
    return rank;
}

/* Away from 0, +-1, +-3, where functions have ties, by 0.02 and more. */
static double draw(gradient_bench *b, char kind)
{
    static const double tie[] = {0, 1, -1, 3, -3};
    if (kind == 'p' || kind == 'c') return uniform(b, 0.5, 1.5);
    if (kind == 'u') return uniform(b, -0.9, 0.9);
    if (kind == 'b') return uniform(b, 1.5, 2.5);
    for (;;) {
        double v = uniform(b, -2, 2) + uniform(b, -2, 2);
        bool near = false;
        for (size_t i = 0; i < sizeof tie / sizeof *tie; i++)
            near = near || fabs(v - tie[i]) < 0.02;
        if (!near) return v;
    }
}

void gradient_add_floats(gradient_bench *b, const char *name, char kind, const char *text)
{
    int64_t dims[MOST_DIMS], count = 1;
    int rank = parse_dims(text, dims);
    for (int i = 0; i < rank; i++) count *= dims[i];
    double *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) x[i] = draw(b, kind);
    if (kind == 'k' || kind == 'c') {
        pare_value *v;
        float *narrow = malloc((size_t)count * sizeof *narrow);
        assert_non_null(narrow);
        for (int64_t i = 0; i < count; i++) x[i] = (double)(narrow[i] = (float)x[i]);
        const void *data = b->dtype == PARE_f64 ? (const void *)x : narrow;
        assert_int_equal(pare_init_new(b->g.model->graph, &v, name, b->dtype, rank, dims, data),
                         PARE_OK);
        free(narrow);
        free(x);
        return;
    }
    graph_input(&b->g, name, b->dtype, rank, dims);
    for (int64_t i = 0; i < count; i++) x[i] = (double)(float)x[i];
    b->by[b->by_count] = graph_value(&b->g, name)->name;
    b->x[b->by_count++] = x;
}

static void add_mask(gradient_bench *b, const char *name, const char *text)
{
    int64_t dims[MOST_DIMS], count = 1;
    bool mask[64];
    pare_value *v;
    int rank = parse_dims(text, dims);
    for (int i = 0; i < rank; i++) count *= dims[i];
    assert_in_range(count, 1, 64);
    for (int64_t i = 0; i < count; i++) mask[i] = i % 2 == 0;
    assert_int_equal(pare_init_new(b->g.model->graph, &v, name, PARE_bool, rank, dims, mask),
                     PARE_OK);
}

void gradient_add_operands(gradient_bench *b, const gradient_rule *c, char *names)
{
    char copy[256], *rest;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", c->operands);
    *names = 0;
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest), n++) {
        int64_t ints[16];
        char name[16] = "-";
        if (*w != '-') snprintf(name, sizeof name, "x%d", n);
        if (*w == 'i' || *w == 's')
            graph_ints(&b->g, name, *w == 'i', (int64_t[]){parse_dims(w + 1, ints)},
                       (parse_dims(w + 1, ints), ints));
        else if (*w == 'm')
            add_mask(b, name, w + 1);
        else if (*w != '-')
            gradient_add_floats(b, name, *w, w + 1);
        strcat(strcat(names, name), " ");
    }
}

void gradient_set_attribute(pare_node *node, char *text)
{
    char *value = strchr(text, '=');
    int64_t ints[16];
    *value++ = 0;
    pare_status st = *value == 'i'   ? pare_node_set_int(node, text, strtoll(value + 1, NULL, 10))
                     : *value == 'f' ? pare_node_set_float(node, text, strtof(value + 1, NULL))
                     : *value == 's'
                         ? pare_node_set_string(node, text, value + 1)
                         : pare_node_set_ints(node, text, ints, parse_dims(value + 1, ints));
    assert_int_equal(st, PARE_OK);
}

/* loss = the sum over outputs and elements of y * w, w constant in [0.5, 1.5] with a sign. */
static void add_loss(gradient_bench *b, int outputs)
{
    char all[64] = "";
    pare_infer_options options = {.fold = false};
    if (pare_pass_infer(b->g.model, &options) != PARE_OK) fail_msg("%s", b->g.ctx.message);
    for (int i = 0; i < outputs; i++) {
        char y[16], w[16], in[40], p[16], s[16];
        snprintf(y, sizeof y, "y%d", i);
        snprintf(w, sizeof w, "w%d", i);
        snprintf(p, sizeof p, "p%d", i);
        snprintf(s, sizeof s, "s%d", i);
        pare_shape shape = graph_value(&b->g, y)->shape;
        char text[128] = "";
        for (int k = 0; k < shape.rank; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", k ? "x" : "",
                     (long long)shape.dim[k]);
        gradient_add_floats(b, w, 'k', text);
        snprintf(in, sizeof in, "%s %s", y, w);
        graph_node(&b->g, "Mul", in, p);
        assert_int_equal(pare_node_set_int(graph_node(&b->g, "ReduceSum", p, s), "keepdims", 0),
                         PARE_OK);
        strcat(strcat(all, s), " ");
    }
    graph_node(&b->g, "Sum", all, "loss");
    graph_output(&b->g, "loss");
}

static void build(gradient_bench *b, const gradient_rule *c, pare_dtype dtype)
{
    char names[128], outs[64] = "", copy[256], *rest;
    memset(b, 0, sizeof *b);
    b->dtype = dtype;
    b->seed = 42;
    const pare_op *op = pare_op_find("", c->op);
    graph_open(&b->g, op && op->first > 21 ? op->first : 21);
    gradient_add_operands(b, c, names);
    for (int i = 0; i < c->outputs; i++) sprintf(outs + strlen(outs), "y%d ", i);
    pare_node *node = graph_node(&b->g, c->op, names, outs);
    if (!op) node->domain = PARE_DOMAIN;
    snprintf(copy, sizeof copy, "%s", c->attributes);
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        gradient_set_attribute(node, w);
    add_loss(b, c->outputs);
}

/* No step of the gradient's own operators may run on the host beside a device. */
static void expect_kernels_of_the_device(const gradient_bench *b)
{
    for (int i = 0; i < pare_plan_step_count(b->plan); i++) {
        pare_step_info step;
        pare_plan_step(b->plan, i, &step);
        if (!pare_op_find("", step.op_type) && strncmp(step.kernel, "cuda_", 5))
            fail_msg("%s runs %s", step.op_type, step.kernel);
    }
}

void gradient_open(gradient_bench *b, bool plain)
{
    pare_gradient_options options = {
        .loss = PARE_LOSS_TENSOR, .of = "loss", .by = b->by, .by_count = b->by_count};
    pare_plan_options run = {.threads = 1, .deterministic = true, .reference = plain};
#ifdef CASE_DEVICE
    if (!plain && pare_device_open(&b->g.ctx, &b->device, "cuda") != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
    run.device = b->device;
#endif
    if (pare_pass_gradient(b->g.model, &b->gradient, &options) != PARE_OK ||
        pare_plan_new(&b->g.ctx, &b->plan, b->g.model, NULL, 0, &run) != PARE_OK ||
        pare_runner_new(&b->g.ctx, &b->runner, b->plan) != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
    if (b->device) expect_kernels_of_the_device(b);
}

static void put(pare_view *to, int64_t i, double v)
{
    if (to->dtype == PARE_f64)
        ((double *)to->data)[i] = v;
    else
        ((float *)to->data)[i] = (float)v;
}

static double get(const pare_view *from, int64_t i)
{
    return from->dtype == PARE_f64 ? ((const double *)from->data)[i]
                                   : (double)((const float *)from->data)[i];
}

double gradient_loss(gradient_bench *b)
{
    if (pare_runner_run(b->runner) != PARE_OK) fail_msg("%s", b->g.ctx.message);
    pare_view out = pare_runner_output(b->runner, 0);
    return get(&out, 0);
}

void gradient_feed(gradient_bench *b)
{
    for (int k = 0; k < b->by_count; k++) {
        pare_view to = pare_runner_input(b->runner, k);
        for (int64_t i = 0; i < pare_view_count(&to); i++) put(&to, i, b->x[k][i]);
    }
}

double *gradient_of(gradient_bench *b, int k, int64_t *count)
{
    int at = 1;
    for (int i = 0; i < k; i++) at += b->gradient.gradient[i] != NULL;
    if (!b->gradient.gradient[k]) fail_msg("no gradient reaches input %d", k);
    pare_view out = pare_runner_output(b->runner, at);
    *count = pare_view_count(&out);
    double *all = malloc((size_t)*count * sizeof *all + 1);
    assert_non_null(all);
    for (int64_t i = 0; i < *count; i++) all[i] = get(&out, i);
    return all;
}

void gradient_close(gradient_bench *b)
{
    for (int k = 0; k < b->by_count; k++) free(b->x[k]);
    pare_runner_free(b->runner);
    pare_plan_free(b->plan);
    pare_device_close(b->device);
    graph_close(&b->g);
}

static void expect(const gradient_rule *c, int k, const double *got, const double *want,
                   int64_t count, double allowed)
{
    double top = 0;
    for (int64_t i = 0; i < count; i++) top = fmax(top, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= allowed * top + 1e-30))
            fail_msg("%s(%s; %s) input %d, element %lld: %.12g, expected %.12g (largest %g)", c->op,
                     c->operands, c->attributes, k, (long long)i, got[i], want[i], top);
}

/* Central differences of step h: errors h^2 f''' / 6 and 1e-16 / h, both below 1e-8. */
void gradient_expect_differences(gradient_bench *b, const gradient_rule *c, double *const *got,
                                 const int64_t *count)
{
    const double h = 5e-5;
    for (int k = 0; k < b->by_count; k++) {
        pare_view to = pare_runner_input(b->runner, k);
        double *want = malloc((size_t)count[k] * sizeof *want + 1);
        assert_non_null(want);
        for (int64_t i = 0; i < count[k]; i++) {
            put(&to, i, b->x[k][i] + h);
            double more = gradient_loss(b);
            put(&to, i, b->x[k][i] - h);
            want[i] = (more - gradient_loss(b)) / (2 * h);
            put(&to, i, b->x[k][i]);
        }
        expect(c, k, got[k], want, count[k], 1e-6);
        free(want);
    }
}

static bool checked[PARE_OP_COUNT];

bool gradient_was_checked(const pare_op *op) { return checked[op - pare_ops]; }

void gradient_check(const gradient_rule *c)
{
    gradient_bench exact, fast;
    double *want[GRADIENT_INPUTS];
    int64_t count[GRADIENT_INPUTS];
    build(&exact, c, PARE_f64);
    gradient_open(&exact, true);
    gradient_feed(&exact);
    gradient_loss(&exact);
    for (int k = 0; k < exact.by_count; k++) want[k] = gradient_of(&exact, k, &count[k]);
    gradient_expect_differences(&exact, c, want, count);
    build(&fast, c, PARE_f32);
    gradient_open(&fast, false);
    gradient_feed(&fast);
    gradient_loss(&fast);
    for (int k = 0; k < exact.by_count; k++) {
        double *got = gradient_of(&fast, k, &count[k]);
        expect(c, k, got, want[k], count[k], 2e-5);
        free(got);
        free(want[k]);
    }
    gradient_close(&exact);
    gradient_close(&fast);
    const pare_op *op = pare_op_find("", c->op);
    if (!op) op = pare_op_find(PARE_DOMAIN, c->op);
    assert_non_null(op);
    checked[op - pare_ops] = true;
}
