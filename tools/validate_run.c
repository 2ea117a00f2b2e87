/* SPDX-License-Identifier: Apache-2.0 */
/* The models of a comparison and all samples through them. */
#include "formats/onnx.h"
#include "tools/memory.h"
#include "tools/progress.h"
#include "tools/validate.h"

pare_status pare_contest_open(pare_contest *c, const char *const *path)
{
    c->contender = pare_arena_alloc(&c->tool->arena, (size_t)c->count, sizeof *c->contender);
    if (!c->contender) return PARE_MEMORY;
    for (int k = 0; k < c->count; k++) {
        pare_contender *one = &c->contender[k];
        PARE_TRY(pare_onnx_read(c->tool->ctx, &one->model, path[k]));
        uint64_t bytes;
        PARE_TRY(pare_model_count(c->tool->ctx, one->model, &one->facts));
        PARE_TRY(pare_onnx_hash(c->tool->ctx, path[k], one->hash, &bytes));
        if (one->model->graph->out.count != c->contender[0].model->graph->out.count)
            return PARE_FAIL(c->tool->ctx, INPUT,
                             "%s: has %d outputs, %s has %d; models that are compared "
                             "need the same outputs",
                             one->model->path, one->model->graph->out.count,
                             c->contender[0].model->path, c->contender[0].model->graph->out.count);
    }
    return PARE_OK;
}

static pare_status open_predictors(pare_contest *c, const pare_source *source, int threads)
{
    pare_plan_options options = {.threads = threads, .device = c->tool->device};
    for (int k = 0; k < c->count; k++) {
        pare_contender *one = &c->contender[k];
        PARE_TRY(pare_predictor_new(c->tool->ctx, &one->predictor, one->model, source->data,
                                    source->inputs, source->input_count, &options));
        one->error = pare_arena_alloc(&c->tool->arena, (size_t)one->model->graph->out.count,
                                      sizeof *one->error);
        one->part = pare_arena_alloc(&c->tool->arena, PARE_CONTEST_PARTS, sizeof *one->part);
        if (!one->error || !one->part) return PARE_MEMORY;
    }
    return PARE_OK;
}

static pare_status prepare(pare_contest *c, int64_t all, int64_t batch, size_t *to_come)
{
    size_t one;
    *to_come = 0;
    for (int k = pare_reference_found(c->reference) ? 1 : 0; k < c->count; k++) {
        PARE_TRY(pare_predictor_prepare(c->contender[k].predictor, batch, all, &one));
        *to_come += one;
    }
    return PARE_OK;
}

static pare_status run_samples(pare_contest *c, const pare_source *source,
                               const pare_source_options *o, const pare_common *common)
{
    pare_reader *reader;
    pare_batch batch;
    pare_progress bar;
    size_t to_come;
    PARE_TRY(prepare(c, source->count, o->batch, &to_come));
    PARE_TRY(pare_reader_open(c->tool->ctx, &reader, source->data, source->samples, source->count,
                              (int)o->batch, (int)common->threads));
    pare_say_memory(c->tool, to_come + pare_reader_bytes(reader));
    pare_progress_begin(&bar, stderr, common->quiet, "validate", "samples");
    pare_status st = pare_reader_next(reader, &batch);
    while (st == PARE_OK && batch.count) {
        st = pare_contest_batch(c, &batch, pare_reader_hash(reader));
        pare_progress_step(&bar, batch.first + batch.count, source->count);
        if (st == PARE_OK) st = pare_reader_next(reader, &batch);
    }
    pare_progress_end(&bar);
    pare_reader_close(reader);
    return st;
}

pare_status pare_contest_run(pare_contest *c, const pare_source *source,
                             const pare_source_options *o, const pare_common *common)
{
    const pare_contender *first = c->contender;
    PARE_TRY(open_predictors(c, source, (int)common->threads));
    PARE_TRY(pare_reference_open(c->tool, &c->reference, c->cache, first->model, first->hash,
                                 source, o));
    const pare_status st = run_samples(c, source, o, common);
    pare_reference_close(c->reference, st == PARE_OK);
    return st == PARE_OK ? pare_contest_finish(c) : st;
}

void pare_contest_close(pare_contest *c)
{
    for (int k = 0; c->contender && k < c->count; k++) {
        pare_predictor_free(c->contender[k].predictor);
        if (c->contender[k].model) pare_model_free(c->contender[k].model);
        json_decref(c->contender[k].latency);
        json_decref(c->contender[k].steps);
    }
}
