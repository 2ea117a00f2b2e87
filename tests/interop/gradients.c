/* SPDX-License-Identifier: Apache-2.0 */
/* gradients MODEL OUT LOSS RUNS plain|fast[-train] NAME=DIMS=FILE...: the gradient of the loss
   ("labels" or "top1") by every float initializer; with -train by the statistics of the batch.
   Input NAME has these dims (1x3x224x224) and its raw bytes in FILE; labels are s64 of that name.
   Writes OUT/N.bin and a line "N name" for gradient N, "loss L", and "seconds S": the fastest of
   RUNS runs. With -train each running mean and variance has a file, too: that of the batch. */
#include "formats/onnx.h"
#include "runtime/exec/exec.h"
#include "runtime/passes/train/gradient.h"
#include "runtime/passes/train/train_batchnorm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_INPUTS = 8 };

typedef struct input {
    const char *name, *file;
    pare_shape shape;
} input;

static bool input_parse(char *text, input *out)
{
    char *dims = strchr(text, '='), *file = dims ? strchr(dims + 1, '=') : NULL;
    if (!file) return false;
    *dims++ = *file++ = 0;
    *out = (input){.name = text, .file = file};
    for (char *at = dims; *at && out->shape.rank < PARE_MAX_RANK;) {
        out->shape.dim[out->shape.rank++] = strtoll(at, &at, 10);
        if (*at) at++;
    }
    return true;
}

static bool fill(const char *path, pare_view *to)
{
    FILE *file = fopen(path, "rb");
    size_t bytes = pare_view_bytes(to), got = file ? fread(to->data, 1, bytes, file) : 0;
    if (file) fclose(file);
    if (got != bytes) fprintf(stderr, "%s: %zu bytes, expected %zu\n", path, got, bytes);
    return got == bytes;
}

static bool store(const char *folder, int n, const pare_view *from)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%d.bin", folder, n);
    FILE *file = fopen(path, "wb");
    size_t bytes = pare_view_bytes(from);
    bool ok = file && fwrite(from->data, 1, bytes, file) == bytes;
    return file && !fclose(file) && ok;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pare_status run_often(pare_runner *runner, int runs, double *best)
{
    *best = 1e9;
    for (int i = 0; i < runs; i++) {
        double start = now();
        PARE_TRY(pare_runner_run(runner));
        if (now() - start < *best) *best = now() - start;
    }
    return PARE_OK;
}

static bool inputs_fill(pare_runner *runner, const pare_plan *plan, const input *in, int count)
{
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        pare_view to = pare_runner_input(runner, i);
        int k = 0;
        while (k < count && strcmp(in[k].name, pare_plan_input(plan, i)->name)) k++;
        if (k == count || !fill(in[k].file, &to)) return false;
    }
    return true;
}

static pare_status differentiate(pare_model *model, pare_gradient *out, pare_trained_norms *norms,
                                 const char *const *argv, const char ***names, int *count,
                                 const input *in, int inputs)
{
    pare_graph *g = model->graph;
    *names = pare_arena_alloc(&model->arena, (size_t)g->init.count + 1, sizeof **names);
    if (!*names) return PARE_MEMORY;
    for (int i = 0; i < g->init.count; i++)
        if (pare_type_is_float(g->init.item[i]->dtype))
            (*names)[(*count)++] = g->init.item[i]->name;
    for (int i = 0; i < inputs; i++) {
        pare_value *v = pare_graph_find_own(g, in[i].name);
        if (v && v->is_input) v->shape = in[i].shape;
    }
    pare_gradient_options options = {.loss = strcmp(argv[3], "labels") ? PARE_LOSS_TOP1
                                                                       : PARE_LOSS_LABELS,
                                     .by = *names,
                                     .by_count = *count};
    if (strstr(argv[5], "-train")) {
        options.keep_outputs = true;
        PARE_TRY(pare_pass_train_batchnorm(model, norms));
    }
    return pare_pass_gradient(model, out, &options);
}

/* The batch's mean and variance of every node that trains, from outputs `at` on. */
static bool report_norms(const pare_runner *runner, const pare_trained_norms *norms, int at,
                         const char *folder, int n)
{
    bool ok = true;
    for (int i = 0; i < norms->count && ok; i++) {
        const pare_trained_norm *norm = &norms->norm[i];
        pare_view sums = pare_runner_output(runner, at + i);
        int64_t c = sums.dim[1];
        double *moment = calloc(2 * (size_t)c + 1, sizeof *moment);
        if (!moment) return false;
        for (int64_t k = 0; k < c; k++) {
            const pare_tensor *t = norm->mean0;
            double mean0 = t->dtype == PARE_f64 ? ((const double *)t->data)[k]
                                                : (double)((const float *)t->data)[k];
            pare_trained_norm_moments(sums.data, c, k, mean0, &moment[k], &moment[c + k]);
        }
        pare_view view = {.dtype = PARE_f64, .rank = 1, .dim = {c}, .stride = {1}, .data = moment};
        ok = store(folder, n, &view);
        printf("%d %s\n", n++, norm->mean);
        view.data = moment + c;
        ok = ok && store(folder, n, &view);
        printf("%d %s\n", n++, norm->variance);
        free(moment);
    }
    return ok;
}

static pare_status report(const pare_runner *runner, const pare_gradient *g,
                          const pare_trained_norms *norms, const char *const *names, int count,
                          const char *folder)
{
    int first = 0, n = 1; /* the loss, after what was kept */
    const pare_plan *plan = pare_runner_plan(runner);
    while (strcmp(pare_plan_output(plan, first)->name, g->loss)) first++;
    pare_view loss = pare_runner_output(runner, first);
    printf("loss %.12g\n",
           loss.dtype == PARE_f64 ? *(const double *)loss.data : (double)*(const float *)loss.data);
    for (int i = 0; i < count; i++) {
        if (!g->gradient[i]) continue;
        pare_view view = pare_runner_output(runner, first + n);
        if (!store(folder, n, &view)) return PARE_IO;
        printf("%d %s\n", n++, names[i]);
    }
    return report_norms(runner, norms, first - norms->count, folder, n) ? PARE_OK : PARE_IO;
}

static void say(void *user, pare_log_level level, const char *line)
{
    (void)user;
    if (level == PARE_LOG_WARNING || getenv("GRADIENTS_VERBOSE")) fprintf(stderr, "%s\n", line);
}

static void profile(pare_runner *runner, const pare_plan *plan)
{
    int steps = pare_plan_step_count(plan);
    double *times = calloc((size_t)steps, sizeof *times);
    if (!times) return;
    pare_runner_profile(runner, times);
    for (int i = 0; i < 3; i++)
        if (pare_runner_run(runner) != PARE_OK) break;
    for (int i = 0; i < steps; i++) {
        pare_step_info step;
        char text[128];
        pare_plan_step(plan, i, &step);
        fprintf(stderr, "%9.1f us %-20s %-28s %s %s\n", times[i] * 1e6, step.op_type, step.kernel,
                pare_shape_text(&step.shape, text, sizeof text), step.node);
    }
    pare_runner_profile(runner, NULL);
    free(times);
}

static pare_status go(pare_ctx *ctx, pare_model **model, const char *const *argv, const input *in,
                      int inputs)
{
    const char **names;
    int count = 0;
    double best;
    pare_gradient gradient;
    pare_plan *plan = NULL;
    pare_runner *runner = NULL;
    pare_trained_norms norms = {0};
    const bool plain = !strncmp(argv[5], "plain", 5);
    PARE_TRY(pare_onnx_read(ctx, model, argv[1]));
    PARE_TRY(differentiate(*model, &gradient, &norms, argv, &names, &count, in, inputs));
    pare_plan_options options = {.threads = 1, .deterministic = true, .reference = plain};
    pare_status st = pare_plan_new(ctx, &plan, *model, NULL, 0, &options);
    if (st == PARE_OK) st = pare_runner_new(ctx, &runner, plan);
    if (st == PARE_OK && !inputs_fill(runner, plan, in, inputs)) st = PARE_INPUT;
    if (st == PARE_OK) st = run_often(runner, atoi(argv[4]), &best);
    if (st == PARE_OK) st = report(runner, &gradient, &norms, names, count, argv[2]);
    if (st == PARE_OK) printf("seconds %.6f\n", best);
    if (st == PARE_OK && getenv("GRADIENTS_VERBOSE")) profile(runner, plan);
    pare_runner_free(runner);
    pare_plan_free(plan);
    return st;
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    pare_model *model = NULL;
    input in[MOST_INPUTS];
    if (argc < 7 || argc - 6 > MOST_INPUTS) return 2;
    for (int i = 6; i < argc; i++)
        if (!input_parse(argv[i], &in[i - 6])) return 2;
    pare_ctx_init(&ctx);
    ctx.log = say;
    pare_status st = go(&ctx, &model, (const char *const *)argv, in, argc - 6);
    if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
    pare_model_free(model);
    return pare_status_exit_code(st);
}
