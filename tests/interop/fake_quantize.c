/* SPDX-License-Identifier: Apache-2.0 */
/* fake_quantize FILE F32|- OUT same|moved [DATA COUNT]: a QDQ file into a graph to train and back
   into OUT, untrained, or with all that training moves a little off (masters by 3 %, scales by 5
   %); how many masters came from F32. With DATA, outputs of the graph against those of OUT as the
   runtime runs it: same top-1, and the signal to noise ratio in decibels. */
#include "formats/data.h"
#include "formats/onnx.h"
#include "quant/quant.h"
#include "runtime/exec/exec.h"
#include "runtime/passes/train/fake_quantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    pare_ctx ctx;
    pare_model *file, *graph, *f32;
    pare_fakes fakes;
} job;

static pare_status open_all(job *j, const char *file, const char *f32)
{
    const pare_quant_options options = {0};
    PARE_TRY(pare_onnx_read(&j->ctx, &j->file, file));
    PARE_TRY(pare_model_clone(&j->ctx, &j->graph, j->file));
    if (strcmp(f32, "-")) {
        PARE_TRY(pare_onnx_read(&j->ctx, &j->f32, f32));
        PARE_TRY(pare_quant_prepare(&j->ctx, j->f32, &options, NULL));
    }
    return pare_pass_fake_quantize(j->graph, &j->fakes, j->f32);
}

static void tell(const job *j)
{
    int kind[3] = {0}, left = 0, rounded = 0, scales = 0;
    long long elements = 0, from = 0;
    for (int i = 0; i < j->fakes.count; i++) {
        const pare_fake *f = &j->fakes.item[i];
        kind[f->kind]++;
        rounded += f->kind == PARE_FAKE_BIAS && f->x_scale;
        scales += f->kind == PARE_FAKE_ACTIVATION && !strcmp(f->scale, f->file_scale);
        if (f->kind != PARE_FAKE_WEIGHT) continue;
        elements += pare_graph_find_own(j->graph->graph, f->tensor)->data->count;
        from += f->from_f32;
    }
    for (int i = 0; i < j->graph->graph->node_count; i++) {
        const char *op = j->graph->graph->node[i]->op_type;
        left += !strcmp(op, "QuantizeLinear") || !strcmp(op, "DequantizeLinear");
    }
    printf(
        "activations %d scales %d weights %d biases %d rounded %d left %d elements %lld from_f32 "
        "%lld\n",
        kind[0], scales, kind[1], kind[2], rounded, left, elements, from);
}

/* Every number times 1 - by .. 1 + by, by a fixed sequence. */
static pare_status move(pare_model *graph, const char *name, float by)
{
    static uint32_t seed = 1;
    pare_value *v = pare_graph_find_own(graph->graph, name);
    const pare_tensor *old = v->data;
    pare_tensor *t;
    float *x = malloc(old->bytes);
    if (!x) return PARE_MEMORY;
    memcpy(x, old->data, old->bytes);
    for (int64_t i = 0; i < old->count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] *= 1 + by * ((float)(seed >> 8) * 0x1p-23f - 1);
    }
    pare_status st = pare_tensor_new(graph, &t, name, PARE_f32, old->rank, old->dims, x);
    free(x);
    return st == PARE_OK ? pare_value_set_init(v, t) : st;
}

static pare_status move_all(job *j)
{
    for (int i = 0; i < j->fakes.count; i++) {
        const pare_fake *f = &j->fakes.item[i];
        if (f->kind != PARE_FAKE_ACTIVATION) PARE_TRY(move(j->graph, f->tensor, 0.03f));
        if (f->scale && !strcmp(f->scale, f->file_scale)) PARE_TRY(move(j->graph, f->scale, 0.05f));
    }
    return PARE_OK;
}

typedef struct scores {
    int64_t count, same;
    double signal, noise;
} scores;

static void add_rows(scores *s, const float *want, const float *got, int64_t rows, int64_t classes)
{
    for (int64_t r = 0; r < rows; r++, want += classes, got += classes) {
        int64_t a = 0, b = 0;
        for (int64_t i = 0; i < classes; i++) {
            const double d = (double)want[i] - (double)got[i];
            s->signal += (double)want[i] * (double)want[i];
            s->noise += d * d;
            if (want[i] > want[a]) a = i;
            if (got[i] > got[b]) b = i;
        }
        s->count++;
        s->same += a == b;
    }
}

static pare_status run(pare_session *session, const char *name, const pare_shape *shape,
                       const void *data, pare_view *out)
{
    pare_runner *runner;
    const pare_input_shape in = {name, *shape};
    PARE_TRY(pare_session_runner(session, &runner, &in, 1));
    pare_runner_set_input(runner, 0, data);
    PARE_TRY(pare_runner_run(runner));
    *out = pare_runner_output(runner, 0);
    return PARE_OK;
}

static pare_status compare(job *j, const char *path, int64_t count)
{
    const pare_value *input = j->file->graph->in.item[0];
    const pare_plan_options options = {.threads = 1, .deterministic = true};
    const pare_data_input in = {input->name, input->dtype, input->shape, NULL};
    pare_session *a = NULL, *b = NULL;
    pare_data *data = NULL;
    pare_reader *reader = NULL;
    scores s = {0};
    int64_t *sample = calloc((size_t)count, sizeof *sample);
    pare_status st = sample ? pare_data_open(&j->ctx, &data, path, &in, 1) : PARE_MEMORY;
    if (st == PARE_OK) {
        pare_data_spread(0, pare_data_count(data), count, sample);
        st = pare_reader_open(&j->ctx, &reader, data, sample, count, 50, 1);
    }
    if (st == PARE_OK) st = pare_session_new(&j->ctx, &a, j->file, &options);
    if (st == PARE_OK) st = pare_session_new(&j->ctx, &b, j->graph, &options);
    while (st == PARE_OK) {
        pare_batch batch;
        pare_view want, got;
        if ((st = pare_reader_next(reader, &batch)) || !batch.count) break;
        pare_shape shape = *pare_data_shape(data, 0);
        shape.dim[0] = batch.count;
        if ((st = run(a, input->name, &shape, batch.input[0], &want))) break;
        if ((st = run(b, input->name, &shape, batch.input[0], &got))) break;
        add_rows(&s, want.data, got.data, batch.count, pare_view_count(&want) / batch.count);
    }
    if (st == PARE_OK)
        printf("images %lld same_top1 %lld sqnr %.2f\n", (long long)s.count, (long long)s.same,
               10 * log10(s.signal / s.noise));
    if (reader) pare_reader_close(reader);
    if (data) pare_data_close(data);
    pare_session_free(a);
    pare_session_free(b);
    free(sample);
    return st;
}

static pare_status go(job *j, int argc, char **argv)
{
    PARE_TRY(open_all(j, argv[1], argv[2]));
    tell(j);
    if (!strcmp(argv[4], "moved")) PARE_TRY(move_all(j));
    PARE_TRY(pare_pass_qat_export(j->file, j->graph, &j->fakes));
    PARE_TRY(pare_onnx_write(&j->ctx, j->file, argv[3], NULL));
    return argc > 6 ? compare(j, argv[5], atoll(argv[6])) : PARE_OK;
}

int main(int argc, char **argv)
{
    job j = {0};
    if (argc != 5 && argc != 7) return 2;
    pare_ctx_init(&j.ctx);
    pare_status st = go(&j, argc, argv);
    if (st != PARE_OK) fprintf(stderr, "%s\n", j.ctx.message);
    pare_model_free(j.graph);
    pare_model_free(j.f32);
    pare_model_free(j.file);
    return pare_status_exit_code(st);
}
