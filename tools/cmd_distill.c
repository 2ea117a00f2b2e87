/* SPDX-License-Identifier: Apache-2.0 */
/* pare distill: read both nets, train the student, write it. */
#include "formats/file.h"
#include "formats/json.h"
#include "formats/onnx.h"
#include "tools/parallel.h"
#include "tools/ranks.h"
#include "tools/scaling_facts.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/distill/training.h"
#include "tools/distill/log.h"
#include "tools/distill/qat.h"
#include "tools/telemetry.h"
#include "tools/source.h"
#include "tools/text.h"

#include <string.h>

typedef struct distill_options {
    pare_common common;
    pare_source_options source;
    pare_qat_options qat;
    pare_training_options training;
    const char *teacher, *student, *output, *held_out, *log, *tensorboard;
    double epochs;
    int64_t steps, validate_every, patience, seed;
    int zeros, precision, parallel;
    pare_checkpoint_options checkpoint;
    bool external_data, tf32, cudnn;
} distill_options;

#define OPTIONS distill_options
static const pare_option table[] = {
    PARE_OPT_FILE("teacher", "T.onnx", teacher, "float model whose outputs are to be learned"),
    PARE_OPT_FILE(
        "student", "S.onnx", student,
        "float model that learns: pruned, or another one with the same inputs and outputs"),
    PARE_OPT_SHORT('o', OUTPUT, "output", "OUT", output,
                   "model to write: the student with new weights"),
    PARE_OPT_FILE("data", "F.h5", source.data,
                  "data set to train on: HDF5, one dataset per model input; labels are not needed"),
    PARE_OPT_FILE("val", "F.h5", held_out,
                  "data set that decides which weights are best (2 % of --data, not trained on)"),
    PARE_OPT_REAL("epochs", "N", epochs, 1e-6, 1e6, "passes over the data (1)"),
    PARE_OPT_INT("steps", "N", steps, 1, 1e12, "steps of the optimizer, in place of --epochs"),
    PARE_TRAINING_ROWS(training, "kl:2; with --qat kl:2,mse",
                       "1e-3, with attention 3e-4; with --qat 3e-5",
                       "train; with --qat half, of those that quantization does not fold"),
    PARE_OPT_GPUS,
    PARE_OPT_CHOICE("parallel", "data|pipeline", parallel,
                    "what processes started by mpirun share: the samples of each batch, or the "
                    "layers of both models (data)"),
    PARE_OPT_CHOICE("zeros", "keep|train", zeros,
                    "zeros of weights that have at least 20 % of them stay zeros, or are trained "
                    "(keep; train where the student is quantized)"),
    PARE_OPT_CHOICE("precision", "f32|bf16|fp16", precision,
                    "what tensors between operators are rounded to in training; weights and sums "
                    "stay f32 (f32); fp16 needs a GPU, and scales the loss"),
    PARE_OPT_TF32,
    PARE_OPT_FLAG("cudnn", cudnn,
                  "let cuDNN compute what a GPU's own kernels are slow at in training's "
                  "convolutions: results depend on its version, and on the GPU"),
    PARE_OPT_CHOICE("qat", "int8", qat.on,
                    "quantize the student as 'pare quantize' does, or take one that is quantized, "
                    "and train it so"),
    PARE_OPT_CHOICE(
        "qat-scales", "fixed|learned", qat.scales,
        "--qat: steps of the integers stay what calibration chose, or are learned (learned)"),
    PARE_OPT_INT("qat-samples", "N", qat.samples, 1, 1e15,
                 "--qat: samples of --data to calibrate on, evenly spaced (512)"),
    PARE_INT8_ROWS(qat.int8, "--qat: "),
    PARE_OPT_INT("validate-every", "N", validate_every, 1, 1e12,
                 "steps between two looks at the held-out samples (a quarter of an epoch)"),
    PARE_OPT_INT("patience", "N", patience, 1, 1e9,
                 "end after so many looks without a better one (none)"),
    PARE_OPT_INT("seed", "N", seed, 0, 9e15, "of the order of samples (1)"),
    PARE_OPT_OUTPUT("log", "F.jsonl", log,
                    "write a line of JSON for every step; with --resume it continues, too"),
    PARE_TENSORBOARD_ROW("a new file in DIR"),
    PARE_CHECKPOINT_ROWS("DIR/checkpoint.pare"),
    PARE_OPT_FLAG("external-data", external_data,
                  "write weights to OUT.<hash>.data beside it; needed above 2 GiB"),
    PARE_OPT_INT("samples", "N", source.samples, 0, 1e15, "samples to use, evenly spaced (all)"),
    PARE_OPT_TEXT("range", "A:B", source.range, "take samples from A to B-1 only"),
    PARE_OPT_LIST("map", "INPUT=/path", source.map,
                  "dataset in the file for a model input (the one of its name)"),
    {0},
};

static const distill_options defaults = {.source = PARE_SOURCE_DEFAULTS,
                                         .training = PARE_TRAINING_DEFAULTS,
                                         .qat = PARE_QAT_DEFAULTS,
                                         .seed = -1};

/* What one training holds. */
typedef struct job {
    double began; /* the training, as pare_seconds */
    pare_tool *tool;
    const distill_options *o;
    pare_model *teacher, *student;
    pare_source source;
    pare_data *held_out;
    pare_qat_job qat;
    const char *loss; /* its words */
    pare_distill_options options;
    pare_distill_log log;
    pare_distill_result result;
} job;

static pare_status check(pare_tool *tool, const void *options)
{
    const distill_options *o = options;
    PARE_TRY(pare_need_option(tool, o->teacher, "--teacher T.onnx", "the model to learn from"));
    PARE_TRY(pare_need_option(tool, o->student, "--student S.onnx", "the model that learns"));
    PARE_TRY(pare_need_option(tool, o->output, "-o OUT", "the model to write"));
    PARE_TRY(pare_need_option(tool, o->source.data, "--data F.h5", "what to train on"));
    PARE_TRY(pare_training_check(tool, &o->training, false));
    PARE_TRY(pare_qat_check(tool, &o->qat));
    if (o->qat.on >= 0 && o->precision != PARE_TRAIN_F32)
        return PARE_FAIL(tool->ctx, USAGE,
                         "distill: --qat and --precision exclude each other: between the steps of "
                         "integers, training computes in f32, as the INT8 file does");
    if (o->qat.on >= 0 && o->tf32)
        return PARE_FAIL(tool->ctx, USAGE,
                         "distill: --qat and --tf32 exclude each other: TF32 does not hold what "
                         "integers stand for");
    if (o->parallel && o->tensorboard)
        return PARE_FAIL(tool->ctx, USAGE,
                         "distill: --tensorboard and --parallel pipeline exclude each other: no "
                         "process has all tensors that its histograms are made of");
    if (o->parallel) pare_parallel_begin(tool);
    if (o->epochs > 0 && o->steps)
        return PARE_FAIL(tool->ctx, USAGE, "distill: --epochs and --steps exclude each other");
    return PARE_OK;
}

static void planned(void *user, size_t bytes, size_t device_bytes)
{
    pare_log_memory(user, bytes);
    if (device_bytes) pare_log_device_memory(user, device_bytes);
}

static pare_status planned_stages(void *user, const pare_pipeline_plan *plan)
{
    pare_tool *tool = user;
    const pare_shared_plan shared = {.pipeline = plan};
    pare_parallel_print(tool, &shared);
    return pare_parallel_facts(tool->facts, &shared);
}

static pare_status read_options(job *j)
{
    const distill_options *o = j->o;
    pare_distill_options *d = &j->options;
    if (o->qat.on >= 0)
        pare_distill_options_init_qat(d);
    else
        pare_distill_options_init(d);
    PARE_TRY(pare_training_read(j->tool, &o->training,
                                o->qat.on >= 0 ? PARE_DISTILL_QAT_LOSS : "kl:2", d, &j->loss));
    if (o->epochs > 0) d->epochs = o->epochs;
    if (o->seed >= 0) d->seed = (uint64_t)o->seed;
    d->steps = o->steps;
    d->precision = (pare_train_precision)o->precision;
    d->train_zeros = o->zeros == 1;
    d->validate_every = o->validate_every;
    d->patience = (int)o->patience;
    d->threads = (int)o->common.threads;
    d->planned = planned;
    d->stages = planned_stages;
    d->planned_user = j->tool;
    d->pipeline = o->parallel == 1;
    d->comm = j->tool->comm;
    d->event = pare_tool_leads(j->tool) ? pare_distill_log_event : NULL;
    d->event_user = &j->log;
    d->event_tensors = o->tensorboard != NULL;
    return PARE_OK;
}

static void warn_same_data(const job *j)
{
    if (j->o->held_out && pare_file_same(j->o->held_out, j->o->source.data))
        pare_log(j->tool->ctx, PARE_LOG_WARNING,
                 "%s: --val and --data name the same file: the validation data is also "
                 "training data; without --val 2 %% are held out",
                 j->o->held_out);
}

/* Data sets are opened before anything starts a thread, or the device; calibration does both. */
static pare_status open_all(job *j)
{
    pare_ctx *ctx = j->tool->ctx;
    PARE_TRY(pare_onnx_read(ctx, &j->teacher, j->o->teacher));
    PARE_TRY(pare_onnx_read(ctx, &j->student, j->o->student));
    if (j->o->qat.on < 0 && j->o->training.learning_rate < 0)
        j->options.learning_rate = pare_distill_learning_rate(j->student);
    PARE_TRY(pare_qat_open(j->tool, &j->qat, j->student, &j->o->source, &j->o->qat));
    PARE_TRY(pare_source_open_first(j->tool, &j->source, j->student, &j->o->source, -1));
    j->options.samples = j->source.samples;
    j->options.sample_count = j->source.count;
    if (j->o->held_out)
        PARE_TRY(pare_data_open_isolated(ctx, &j->held_out, j->o->held_out, j->source.inputs,
                                         j->source.input_count));
    if (j->o->held_out) PARE_TRY(pare_check_same_data(j->tool, j->o->held_out));
    j->options.held_out = j->held_out;
    warn_same_data(j);
    PARE_TRY(pare_distill_check_ranks(ctx, j->teacher, j->student, j->source.data, &j->options));
    PARE_TRY(pare_tool_open_device(j->tool));
    j->options.device = j->tool->device;
    if (j->o->tf32) pare_tool_allow_tf32(j->tool);
    if (j->o->cudnn) PARE_TRY(pare_tool_allow_cudnn(j->tool));
    PARE_TRY(pare_qat_make(&j->qat, j->student));
    PARE_TRY(pare_qat_settle(&j->qat, &j->options));
    pare_distill_log_open(&j->log, j->tool, j->o->log, j->o->tensorboard);
    return PARE_OK;
}

/* The options that decide, in words. */
static const char *recipe_of(job *j)
{
    const pare_distill_options *d = &j->options;
    pare_arena *arena = &j->tool->arena;
    const char *text =
        pare_training_recipe(arena, "distill", j->loss, &j->o->training, d, &j->result);
    if (text && j->qat.qat)
        text = pare_arena_printf(arena, "%s qat=int8 scales=%s", text,
                                 d->scale_count ? "learned" : "fixed");
    if (text && d->precision != PARE_TRAIN_F32)
        text = pare_arena_printf(arena, "%s precision=%s", text,
                                 d->precision == PARE_TRAIN_BF16 ? "bf16" : "fp16");
    if (text && d->device && d->device->tf32) text = pare_arena_printf(arena, "%s tf32", text);
    const json_t *cudnn = json_object_get(j->tool->facts, "cudnn");
    if (text && cudnn) {
        const char *version = json_string_value(cudnn);
        text = pare_arena_printf(arena, "%s cudnn=%.*s", text, (int)strcspn(version, ","), version);
    }
    if (text && d->train_zeros) text = pare_arena_printf(arena, "%s zeros=train", text);
    return text;
}

static pare_status write(job *j)
{
    pare_onnx_write_options writing = {.external_data = j->o->external_data};
    const char *recipe = recipe_of(j);
    if (j->qat.qat) PARE_TRY(pare_qat_export(j->qat.qat, j->student));
    PARE_TRY(pare_qat_recipe(&j->qat, j->student, &recipe));
    PARE_TRY(pare_onnx_manifest(j->tool->ctx, j->student, recipe, j->result.data_hash));
    return pare_onnx_write(j->tool->ctx, j->student, j->o->output, &writing);
}

static pare_status file_facts(job *j, const char *name, const char *path)
{
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_onnx_hash(j->tool->ctx, path, hash, &bytes));
    json_object_set_new(j->tool->facts, name,
                        json_pack("{s:o, s:s, s:I}", "file", pare_json_text(path), "hash", hash,
                                  "bytes", (json_int_t)bytes));
    return PARE_OK;
}

/* The file's facts, and one line for people. */
static pare_status report(job *j)
{
    static const char *const ends[] = {"", " (nothing better came)", " (interrupted)"};
    const pare_distill_result *r = &j->result;
    json_t *facts = j->tool->facts;
    char before[120], after[120];
    PARE_TRY(file_facts(j, "teacher", j->o->teacher));
    PARE_TRY(file_facts(j, "student", j->o->student));
    PARE_TRY(file_facts(j, "output", j->o->output));
    json_object_set_new(facts, "data", pare_source_json(&j->source, &j->o->source));
    if (j->qat.qat) json_object_set_new(facts, "qat", pare_qat_json(&j->qat, &j->options));
    json_object_update_new(facts, pare_training_json(r));
    json_object_update_new(
        facts, json_pack("{s:I, s:I, s:I, s:i, s:f, s:[o]}", "batch", (json_int_t)r->batch,
                         "train_samples", (json_int_t)r->train_samples, "held_out",
                         (json_int_t)r->held_out, "weights", r->weights, "samples_per_s",
                         j->log.seconds > 0 ? (double)j->log.samples / j->log.seconds : 0.0,
                         "outputs", pare_json_text(j->o->output)));
    json_object_set_new(facts, "peak_memory_bytes", json_integer(pare_peak_memory()));
    if (j->options.precision == PARE_TRAIN_FP16)
        json_object_set_new(facts, "skipped_steps", json_integer(r->skipped));
    if (r->scaling.steps && !j->tool->comm) {
        pare_scaling_job scaling = r->scaling;
        scaling.start = j->log.start - j->began;
        json_object_set_new(facts, "scaling", pare_scaling_json(&scaling));
    }
    if (r->transport[0]) json_object_set_new(facts, "transport", json_string(r->transport));
    if (r->estimated) json_object_set_new(facts, "estimated_norms", json_integer(r->estimated));
    pare_print(stdout, "%s\n", j->o->output);
    if (!j->o->common.quiet)
        pare_print(
            stderr,
            "%lld step%s%s, best after %lld; on %lld held-out samples: %s before, %s after\n",
            (long long)r->steps, r->steps == 1 ? "" : "s", ends[r->end], (long long)r->best_step,
            (long long)r->held_out, pare_distill_score_text(&r->before, before, sizeof before),
            pare_distill_score_text(&r->after, after, sizeof after));
    if (!r->best_step && r->steps && !j->o->common.quiet)
        pare_print(stderr,
                   "no step was better than the student as it came: a lower --lr may help\n");
    pare_checkpoint_report(j->tool, &j->options.checkpoint, r);
    return PARE_OK;
}

/* An interrupted training wrote its best so far, and is short of what was asked. */
static pare_status say_end(const job *j)
{
    if (j->result.end != PARE_DISTILL_INTERRUPTED) return PARE_OK;
    return PARE_FAIL(j->tool->ctx, MISSED, "%s: interrupted: it holds the best of %lld step%s",
                     j->o->output, (long long)j->result.steps, j->result.steps == 1 ? "" : "s");
}

/* An interruption before the first step: there is nothing to write. */
static pare_status log_untrained(job *j, pare_status st)
{
    if (st != PARE_INTERRUPTED || !pare_tool_leads(j->tool)) return st;
    pare_checkpoint_log(j->tool, &j->options.checkpoint, j->result.checkpoint);
    return pare_fail_prefix(j->tool->ctx, st, "%s: is not written, for nothing is trained yet",
                            j->o->output);
}

/* The training, with the device and a GPU's telemetry in the facts. */
static pare_status distill(job *j, pare_model *student)
{
    pare_ctx *ctx = j->tool->ctx;
    pare_watch *watch = NULL;
    PARE_TRY(pare_watch_start(ctx, &watch, j->options.device));
    j->began = pare_seconds();
    pare_status st =
        pare_distill(ctx, &j->result, j->teacher, student, j->source.data, &j->options);
    json_t *device = pare_watch_end(watch);
    if (!device && st == PARE_OK) st = PARE_MEMORY;
    if (device) json_object_set_new(j->tool->facts, "device", device);
    return st;
}

/* The disk may not be full once all is trained: the result has about the student's size, a float
   one that becomes INT8 a quarter of it. */
static pare_status reserve(job *j, pare_output **room)
{
    uint64_t bytes;
    PARE_TRY(pare_onnx_hash(j->tool->ctx, j->o->student, NULL, &bytes));
    if (j->qat.qat && !j->qat.came_quantized) bytes /= 4;
    return pare_output_reserve(j->tool->ctx, room, j->o->output, bytes);
}

/* What is trained stays in the checkpoint where it cannot be written. */
static pare_status write_or_log(job *j)
{
    const pare_status st = write(j);
    if (st == PARE_IO) pare_checkpoint_log(j->tool, &j->options.checkpoint, j->result.checkpoint);
    return st;
}

/* Where it keeps what it writes, and room for the result. */
static pare_status prepare(job *j, pare_output **room)
{
    const char *const outputs[] = {j->o->output, j->o->log, j->o->common.json};
    if (pare_tool_leads(j->tool)) {
        PARE_TRY(pare_tensorboard_prepare(j->tool->ctx, j->o->tensorboard));
        PARE_TRY(pare_checkpoint_prepare(j->tool, &j->o->checkpoint));
    }
    PARE_TRY(pare_checkpoint_at(j->tool, &j->o->checkpoint, "checkpoint.pare", outputs, 3,
                                &j->options.checkpoint));
    if (!pare_tool_leads(j->tool)) return PARE_OK;
    pare_checkpoint_log_none(j->tool, &j->options.checkpoint);
    return reserve(j, room);
}

static pare_status train(job *j)
{
    pare_output *room = NULL;
    pare_model *student = j->qat.qat ? pare_qat_graph(j->qat.qat) : j->student;
    PARE_TRY(prepare(j, &room));
    const pare_status st = distill(j, student);
    pare_output_discard(room);
    if (!pare_tool_leads(j->tool)) return st;
    PARE_TRY(log_untrained(j, st));
    if (j->result.end == PARE_DISTILL_INTERRUPTED)
        j->tool->ctx->interrupted = NULL; /* heard: what is left is to write the best */
    PARE_TRY(pare_distill_log_close(&j->log));
    PARE_TRY(write_or_log(j));
    PARE_TRY(report(j));
    return say_end(j);
}

static pare_status run(pare_tool *tool, const void *options)
{
    job j = {.tool = tool, .o = options, .result = {.checkpoint = -1}};
    PARE_TRY(check(tool, options));
    pare_status st = read_options(&j);
    if (st == PARE_OK) st = log_untrained(&j, open_all(&j));
    if (st == PARE_OK) st = train(&j);
    if (pare_distill_log_close(&j.log) != PARE_OK && st == PARE_OK) st = PARE_IO;
    pare_qat_close(&j.qat);
    pare_source_close(&j.source);
    pare_data_close(j.held_out);
    pare_model_free(j.student);
    pare_model_free(j.teacher);
    return st;
}

const pare_command pare_command_distill = {
    .name = "distill",
    .arguments = "",
    .min = 0,
    .max = 0,
    .summary = "train a small model to give what a large one gives, without labels",
    .detail =
        "Trains the weights of any float ONNX model on any inputs: what comes out is the\n"
        "student's file with other weights. Zeros of pruned weights stay. The weights that\n"
        "are best on held-out samples are the result; Ctrl-C ends the training and writes\n"
        "the best so far (exit status 3), before the first step nothing (1). Same options, same "
        "bytes, whatever\n"
        "--threads, and whatever the number of processes that mpirun starts. With --checkpoint\n"
        "a training that was stopped or killed continues by the same command with --resume, to\n"
        "the same bytes.",
    .example = "pare distill --teacher resnet.onnx --student resnet.half.onnx --data "
               "data/train.h5 -o resnet.tuned.onnx",
    .options = table,
    .size = sizeof(distill_options),
    .ranks = true,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
