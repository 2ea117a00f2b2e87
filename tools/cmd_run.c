/* SPDX-License-Identifier: Apache-2.0 */
/* pare run: tensors or a data set through a model. */
#include "formats/json.h"
#include "formats/npy.h"
#include "formats/onnx.h"
#include "runtime/eval/eval.h"
#include "runtime/eval/pipeline.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/telemetry.h"
#include "tools/parallel.h"
#include "tools/progress.h"
#include "tools/ranks.h"
#include "tools/source.h"
#include "tools/text.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct run_options {
    pare_common common;
    pare_source_options source;
    pare_list input;
    const char *output, *cache;
    bool reference, no_tune, tf32;
    int parallel; /* pare_parallel */
    int64_t stage_weights;
} run_options;

#define OPTIONS run_options
static const pare_option table[] = {
    PARE_OPT_LIST("input", "NAME=x.npy", input,
                  "tensor for an input; more may follow, or be given with --input again"),
    PARE_OPT_SHORT('o', FILE, "output", "DIR|F.h5", output,
                   "folder for NAME.npy files; with --data the HDF5 file to write"),
    PARE_OPT_FLAG("reference", reference,
                  "use the plain C kernels only, which define what is correct"),
    PARE_OPT_FOLDER("cache", "DIR", cache,
                    "time the kernels that can, once per shape, and keep the times here; without "
                    "it the first that can is taken"),
    PARE_OPT_FLAG("no-tune", no_tune, "only read the times of --cache"),
    PARE_OPT_TF32,
    PARE_OPT_PARALLEL(parallel, "with --data, "),
    PARE_OPT_BYTES("stage-weights", "SIZE", stage_weights, 1, 1e15,
                   "with --parallel pipeline, most bytes of weights in a stage (no limit)"),
    PARE_OPT_GPUS,
    PARE_SOURCE_ROWS("samples to run, evenly spaced (all)"),
    {0},
};

static const run_options defaults = {.source = PARE_SOURCE_DEFAULTS,
                                     .parallel = PARE_PARALLEL_NONE};

static pare_plan_options plan_options(const pare_tool *tool, const run_options *o)
{
    return (pare_plan_options){.threads = (int)o->common.threads,
                               .reference = o->reference,
                               .tune = o->cache && !o->no_tune,
                               .cache_dir = o->cache,
                               .stage_weights = (size_t)o->stage_weights,
                               .device = tool->device};
}

/* A name for a file: at most 200 characters, of which all but letters, digits, '.', '_' and '-'
   become
   '_'; a name that was taken before gets _1, _2, ... */
static const char *file_name(pare_arena *arena, const char *name, const char *const *taken,
                             int count)
{
    enum { LONGEST = 200 }; /* file systems end at 255 with what is put behind it */
    char *text =
        pare_arena_strndup(arena, *name ? name : "_", strnlen(*name ? name : "_", LONGEST));
    for (char *c = text; c && *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c))
            *c = '_';
    const char *unique = text;
    for (int n = 1, i = 0; unique && i < count; i++)
        if (!strcmp(taken[i], unique)) {
            unique = pare_arena_printf(arena, "%s_%d", text, n++);
            i = -1;
        }
    return unique;
}

static const char **output_names(pare_tool *tool, const pare_graph *graph)
{
    const char **names = pare_arena_alloc(&tool->arena, (size_t)graph->out.count, sizeof *names);
    for (int i = 0; names && i < graph->out.count; i++)
        if (!(names[i] = file_name(&tool->arena, graph->out.item[i]->name, names, i))) return NULL;
    return names;
}

/* --- tensors --- */

typedef struct loaded {
    const char *name, *path;
    pare_dtype dtype;
    pare_shape shape;
    void *data;
} loaded;

static pare_status check_shape(pare_tool *tool, const pare_model *model, const pare_value *value,
                               const loaded *given)
{
    char have[256], takes[256];
    const pare_shape *want = &value->shape;
    bool fits = want->rank < 0 || want->rank == given->shape.rank;
    for (int i = 0; fits && i < want->rank; i++)
        fits = want->dim[i] < 0 || want->dim[i] == given->shape.dim[i];
    if (fits) return PARE_OK;
    return PARE_FAIL(tool->ctx, INPUT, "%s: has shape %s, input '%s' of %s takes %s", given->path,
                     pare_shape_text(&given->shape, have, sizeof have), value->name, model->path,
                     pare_shape_text(want, takes, sizeof takes));
}

/* NAME=FILE: a name may hold '=', too. */
static pare_status split(pare_tool *tool, pare_model *model, const char *text, loaded *out,
                         pare_value **value)
{
    const char *first = strchr(text, '=');
    if (!first || first == text || !first[1])
        return PARE_FAIL(tool->ctx, USAGE, "--input %s: expected NAME=FILE.npy", text);
    *value = NULL;
    for (const char *equals = first; equals && !*value; equals = strchr(equals + 1, '=')) {
        out->name = pare_arena_strndup(&tool->arena, text, (size_t)(equals - text));
        out->path = equals + 1;
        if (!out->name) return PARE_MEMORY;
        *value = pare_graph_find_own(model->graph, out->name);
        if (*value && !(*value)->is_input) *value = NULL;
    }
    if (*value) return PARE_OK;
    out->name = pare_arena_strndup(&tool->arena, text, (size_t)(first - text));
    return out->name ? PARE_OK : PARE_MEMORY;
}

static pare_status load_one(pare_tool *tool, pare_model *model, const char *text, loaded *out)
{
    pare_value *value;
    PARE_TRY(split(tool, model, text, out, &value));
    if (!value)
        return PARE_FAIL(tool->ctx, INPUT, "%s: has no input '%s'; 'pare inspect' lists its inputs",
                         model->path, out->name);
    PARE_TRY(pare_npy_load(tool->ctx, out->path, &out->dtype, &out->shape, &out->data));
    if (out->dtype != value->dtype)
        return PARE_FAIL(tool->ctx, INPUT, "%s: is %s, input '%s' of %s is %s", out->path,
                         pare_type(out->dtype)->onnx_name, out->name, model->path,
                         pare_type(value->dtype)->onnx_name);
    PARE_TRY(check_shape(tool, model, value, out));
    if (value->is_init) pare_init_to_input(value);
    return PARE_OK;
}

/* All tensors that --input and NAME=FILE arguments name; each input once, none missing. */
static pare_status load_all(pare_tool *tool, pare_model *model, const run_options *o, loaded *list,
                            int count)
{
    int needed;
    pare_value **inputs = pare_model_inputs(&tool->arena, model, &needed);
    if (!inputs) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        const char *text =
            i < o->input.count ? o->input.item[i] : tool->arg[1 + i - o->input.count];
        PARE_TRY(load_one(tool, model, text, &list[i]));
        for (int k = 0; k < i; k++)
            if (!strcmp(list[k].name, list[i].name))
                return PARE_FAIL(tool->ctx, USAGE, "--input %s is given twice", list[i].name);
    }
    for (int k = 0; k < needed; k++) {
        bool found = false;
        for (int i = 0; i < count; i++) found |= !strcmp(list[i].name, inputs[k]->name);
        if (!found)
            return PARE_FAIL(tool->ctx, INPUT,
                             "%s: input '%s' is missing; give --input %s=FILE.npy", model->path,
                             inputs[k]->name, inputs[k]->name);
    }
    return PARE_OK;
}

static pare_status save_outputs(pare_tool *tool, const pare_runner *runner, const pare_graph *graph,
                                const char *folder)
{
    const char **names = output_names(tool, graph);
    json_t *files = json_array();
    json_object_set_new(tool->facts, "outputs", files);
    if (!names) return PARE_MEMORY;
    bool made = !mkdir(folder, 0777);
    if (!made && errno != EEXIST)
        return PARE_FAIL(tool->ctx, IO, "%s: the folder cannot be made: %s", folder,
                         strerror(errno));
    for (int i = 0; i < graph->out.count; i++) {
        pare_view view = pare_runner_output(runner, i);
        pare_shape shape = {.rank = view.rank};
        memcpy(shape.dim, view.dim, sizeof shape.dim);
        const char *path = pare_arena_printf(&tool->arena, "%s/%s.npy", folder, names[i]);
        pare_status st =
            path ? pare_npy_save(tool->ctx, path, view.dtype, &shape, view.data) : PARE_MEMORY;
        if (st != PARE_OK) {
            if (made) (void)rmdir(folder); /* only where nothing is in it */
            return st;
        }
        json_array_append_new(files, pare_json_text(path));
        pare_print(stdout, "%s\n", path);
    }
    return PARE_OK;
}

/* Most models run on 0 samples; of one that cannot, the reason is that, and not its first node that
   objects. */
static pare_status say_samples(pare_tool *tool, const pare_model *model,
                               const pare_input_shape *shapes, int count, pare_status st)
{
    char reason[sizeof tool->ctx->message];
    memcpy(reason, tool->ctx->message, sizeof reason);
    pare_ctx_clear(tool->ctx);
    for (int i = 0; i < count; i++)
        PARE_TRY(pare_check_samples(tool->ctx, model, shapes[i].name, &shapes[i].shape));
    return pare_fail(tool->ctx, st, "%s", reason);
}

/* Outputs of an earlier run may be written over, but not those that are inputs of this one. */
static pare_status check_files(pare_tool *tool, const pare_graph *graph, const char *folder,
                               const loaded *list, int count)
{
    const char **names = output_names(tool, graph);
    const char **inputs = pare_arena_alloc(&tool->arena, (size_t)count + 1, sizeof *inputs);
    if (!names || !inputs) return PARE_MEMORY;
    for (int i = 0; i < count; i++) inputs[i] = list[i].path;
    inputs[count] = tool->arg[0];
    for (int i = 0; i < graph->out.count; i++) {
        const char *path = pare_arena_printf(&tool->arena, "%s/%s.npy", folder, names[i]);
        if (!path) return PARE_MEMORY;
        if (!access(path, F_OK)) PARE_TRY(pare_check_output(tool->ctx, path, inputs, count + 1));
    }
    return PARE_OK;
}

static pare_status run_loaded(pare_tool *tool, pare_model *model, const run_options *o,
                              loaded *list, int count)
{
    pare_session *session = NULL;
    pare_runner *runner;
    pare_input_shape *shapes = pare_arena_alloc(&tool->arena, (size_t)count, sizeof *shapes);
    if (!shapes) return PARE_MEMORY;
    PARE_TRY(load_all(tool, model, o, list, count));
    PARE_TRY(pare_tool_open_device(tool));
    if (o->tf32) pare_tool_allow_tf32(tool);
    pare_plan_options options = plan_options(tool, o);
    PARE_TRY(check_files(tool, model->graph, o->output, list, count));
    for (int i = 0; i < count; i++) shapes[i] = (pare_input_shape){list[i].name, list[i].shape};
    PARE_TRY(pare_session_new(tool->ctx, &session, model, &options));
    pare_status st = pare_session_runner(session, &runner, shapes, count);
    const pare_plan *plan = st == PARE_OK ? pare_runner_plan(runner) : NULL;
    for (int i = 0; plan && i < count; i++)
        for (int k = 0; k < pare_plan_input_count(plan); k++)
            if (!strcmp(pare_plan_input(plan, k)->name, list[i].name))
                pare_runner_set_input(runner, k, list[i].data);
    if (st == PARE_OK) st = pare_runner_run(runner);
    if (st != PARE_OK) st = say_samples(tool, model, shapes, count, st);
    if (st == PARE_OK) st = pare_ctx_poll(tool->ctx);
    if (st == PARE_OK) st = save_outputs(tool, runner, model->graph, o->output);
    pare_session_free(session);
    return st;
}

static pare_status run_tensors(pare_tool *tool, pare_model *model, const run_options *o)
{
    int count = o->input.count + tool->arg_count - 1;
    struct stat st;
    if (!stat(o->output, &st) && !S_ISDIR(st.st_mode))
        return PARE_FAIL(tool->ctx, IO, "%s: is a file, expected a folder for NAME.npy files",
                         o->output);
    loaded *list = pare_arena_alloc(&tool->arena, (size_t)count, sizeof *list);
    if (!list) return PARE_MEMORY;
    pare_status status = run_loaded(tool, model, o, list, count);
    for (int i = 0; i < count; i++) pare_free(list[i].data);
    return status;
}

/* --- a data set --- */

/* The HDF5 file of outputs, made when the first ones are there. */
typedef struct rows_file {
    pare_tool *tool;
    const pare_graph *graph;
    const char *path;
    pare_data_writer *writer;
    pare_progress bar;
    int64_t done, all; /* samples */
    pare_reader *reader;
    const pare_pipeline *pipeline;
} rows_file;

static pare_status create(rows_file *f, const pare_predictor *predictor)
{
    pare_tool *tool = f->tool;
    int count = pare_predictor_output_count(predictor);
    const char **names = output_names(tool, f->graph);
    pare_data_column *column = pare_arena_alloc(&tool->arena, (size_t)count, sizeof *column);
    if (!names || !column) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        pare_rows rows = pare_predictor_rows(predictor, i);
        column[i].name = names[i];
        column[i].dtype = rows.dtype;
        column[i].shape = rows.shape;
        column[i].varies = rows.shapes != NULL;
    }
    return pare_data_create(tool->ctx, &f->writer, f->path, column, count);
}

static pare_status append(rows_file *f, const pare_predictor *predictor, int64_t count)
{
    const int outputs = pare_predictor_output_count(predictor);
    const void **block = pare_alloc(f->tool->ctx, (size_t)outputs, sizeof *block);
    const pare_shape **shape = pare_alloc(f->tool->ctx, (size_t)outputs, sizeof *shape);
    pare_status st = block && shape ? pare_ctx_poll(f->tool->ctx) : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < outputs; i++) {
        const pare_rows rows = pare_predictor_rows(predictor, i);
        block[i] = rows.data;
        shape[i] = rows.shapes;
    }
    if (st == PARE_OK) st = pare_data_append_varied(f->writer, block, shape, count);
    pare_free(block);
    pare_free(shape);
    return st;
}

/* Puts the predictor's outputs of so many samples behind the others. */
static pare_status add_rows(rows_file *f, const pare_predictor *predictor, int count)
{
    if (!pare_tool_leads(f->tool)) return PARE_OK;
    if (!f->writer) PARE_TRY(create(f, predictor));
    PARE_TRY(append(f, predictor, count));
    f->done += count;
    pare_progress_step(&f->bar, f->done, f->all);
    return PARE_OK;
}

static pare_status close_rows(rows_file *f, pare_status st)
{
    pare_progress_end(&f->bar);
    if (st == PARE_OK && f->writer) return pare_data_commit(f->writer);
    pare_data_discard(f->writer);
    return st;
}

static pare_status open_reader(rows_file *f, const pare_source *source, const run_options *o)
{
    return pare_reader_open(f->tool->ctx, &f->reader, source->data, source->samples, source->count,
                            (int)o->source.batch, (int)o->common.threads);
}

static pare_status run_batches(rows_file *f, pare_predictor *predictor)
{
    pare_batch batch;
    pare_status st = pare_reader_next(f->reader, &batch);
    while (st == PARE_OK && batch.count) {
        st = pare_predict(predictor, &batch, f->reader);
        if (st == PARE_OK) st = add_rows(f, predictor, batch.count);
        if (st == PARE_OK) st = pare_reader_next(f->reader, &batch);
    }
    return st;
}

static pare_status show(rows_file *f, pare_shared_plan plan)
{
    pare_parallel_print(f->tool, &plan);
    return pare_parallel_facts(f->tool->facts, &plan);
}

/* By one process, or by all ranks in step. */
static pare_status prepare(rows_file *f, const pare_source *source, const run_options *o,
                           pare_predictor *predictor, size_t *to_come)
{
    PARE_TRY(pare_predictor_share(predictor, f->tool->comm, (pare_parallel)o->parallel));
    PARE_TRY(pare_predictor_prepare(predictor, o->source.batch, source->count, to_come));
    return show(f, pare_predictor_shared(predictor));
}

static pare_status run_whole(rows_file *f, const pare_source *source, const pare_model *model,
                             const run_options *o, const pare_plan_options *options)
{
    pare_predictor *predictor = NULL;
    size_t to_come = 0;
    pare_status st = pare_predictor_new(f->tool->ctx, &predictor, model, source->data,
                                        source->inputs, source->input_count, options);
    st = pare_comm_settle(f->tool->comm, st);
    if (st == PARE_OK) st = prepare(f, source, o, predictor, &to_come);
    if (st == PARE_OK) st = open_reader(f, source, o);
    if (st == PARE_OK) pare_log_memory(f->tool, to_come + pare_reader_bytes(f->reader));
    if (st == PARE_OK) {
        pare_progress_begin(&f->bar, stderr, o->common.quiet, "run", "samples");
        st = run_batches(f, predictor);
    }
    pare_predictor_free(predictor);
    return st;
}

/* --- several processes --- */

static pare_status read_batch(void *user, pare_batch *out)
{
    rows_file *f = user;
    return pare_reader_next(f->reader, out);
}

static pare_status write_rows(void *user, int count)
{
    rows_file *f = user;
    return add_rows(f, pare_pipeline_outputs(f->pipeline), count);
}

/* Rank 0 reads and writes. */
static pare_status lead_stages(rows_file *f, const pare_source *source, const run_options *o)
{
    const pare_pipeline_plan *plan = pare_pipeline_planned(f->pipeline);
    PARE_TRY(open_reader(f, source, o));
    PARE_TRY(show(f, (pare_shared_plan){.pipeline = plan}));
    pare_log_memory(f->tool, plan->to_come + pare_reader_bytes(f->reader));
    pare_progress_begin(&f->bar, stderr, o->common.quiet, "run", "samples");
    return PARE_OK;
}

static pare_status run_stages(rows_file *f, const pare_source *source, const pare_model *model,
                              const run_options *o, const pare_plan_options *options)
{
    pare_tool *tool = f->tool;
    pare_pipeline *pipeline = NULL;
    const pare_pipeline_work work = {.read = read_batch, .write = write_rows, .user = f};
    PARE_TRY(pare_pipeline_new(tool->ctx, &pipeline, tool->comm, model, source->data,
                               source->inputs, source->input_count, options, o->source.batch,
                               source->count));
    f->pipeline = pipeline;
    pare_status st = pare_tool_leads(tool) ? lead_stages(f, source, o) : PARE_OK;
    if (st == PARE_OK) st = pare_pipeline_run(pipeline, &work);
    pare_pipeline_free(pipeline);
    return st;
}

static pare_status run_data(pare_tool *tool, const pare_model *model, const run_options *o)
{
    pare_source source;
    rows_file f = {.tool = tool, .graph = model->graph, .path = o->output};
    const char *inputs[] = {tool->arg[0], o->source.data};
    PARE_TRY(pare_check_output(tool->ctx, o->output, inputs, 2));
    PARE_TRY(pare_source_open(tool, &source, model, &o->source, -1));
    f.all = source.count;
    const pare_plan_options options = plan_options(tool, o); /* the device is open by now */
    if (o->tf32) pare_tool_allow_tf32(tool);
    const bool stages = tool->comm && o->parallel == PARE_PIPELINE;
    if (o->parallel >= 0) pare_parallel_begin(tool);
    pare_status st = tool->comm ? pare_parallel_same(tool, tool->arg[0]) : PARE_OK;
    if (st == PARE_OK) st = (stages ? run_stages : run_whole)(&f, &source, model, o, &options);
    st = close_rows(&f, st);
    if (st == PARE_OK && pare_tool_leads(tool)) {
        pare_print(stdout, "%s\n", o->output);
        json_object_set_new(tool->facts, "data", pare_source_json(&source, &o->source));
        json_object_set_new(tool->facts, "outputs", json_pack("[o]", pare_json_text(o->output)));
    }
    if (f.reader) pare_reader_close(f.reader);
    pare_source_close(&source);
    return st;
}

/* Options that do not go together. */
static pare_status check_options(pare_tool *tool, const run_options *o)
{
    static const char *const of_tensors[] = {"reference", NULL};
    static const char *const of_one[] = {"cache", "no-tune", NULL};
    static const char *const of_stages[] = {"stage-weights", NULL};
    PARE_TRY(
        pare_need_option(tool, o->output, "-o", "a folder, or with --data a file for the outputs"));
    if (o->source.data && (o->input.count || tool->arg_count > 1))
        return PARE_FAIL(tool->ctx, USAGE, "run: --data and --input exclude each other");
    PARE_TRY(o->source.data ? pare_refuse_options(tool, "with --data", of_tensors)
                            : pare_refuse_options(tool, "without --data", pare_source_names));
    if (o->parallel >= 0) {
        if (!o->source.data)
            return PARE_FAIL(tool->ctx, USAGE, "run --parallel: needs samples: --data F.h5");
        PARE_TRY(pare_refuse_options(tool, "with --parallel", of_one));
    }
    if (o->parallel != PARE_PIPELINE)
        PARE_TRY(pare_refuse_options(tool, "without --parallel pipeline", of_stages));
    if (!tool->comm || o->parallel >= 0) return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE,
                     "run: %d processes were started, which share a model by --parallel pipeline "
                     "or --parallel tensor",
                     pare_comm_size(tool->comm));
}

static pare_status run(pare_tool *tool, const void *options)
{
    const run_options *o = options;
    pare_model *model;
    PARE_TRY(check_options(tool, o));
    PARE_TRY(pare_onnx_read(tool->ctx, &model, tool->arg[0]));
    json_object_set_new(tool->facts, "model",
                        json_pack("{s:o}", "file", pare_json_text(tool->arg[0])));
    if (o->cache) pare_make_cache(tool->ctx, o->cache);
    pare_status st = o->source.data ? run_data(tool, model, o) : run_tensors(tool, model, o);
    pare_model_free(model);
    return st;
}

const pare_command pare_command_run = {
    .name = "run",
    .arguments = "MODEL (--input NAME=x.npy ... -o DIR | --data F.h5 -o outputs.h5)",
    .min = 1,
    .max = -1,
    .summary = "run a model on tensors or on a data set and keep its outputs",
    .detail =
        "Outputs become DIR/NAME.npy, or datasets of outputs.h5; in names every character "
        "but letters,\n"
        "digits, '.', '_' and '-' is written as '_', and equal names are numbered. Where every "
        "sample runs\n"
        "alone (inputs without a batch axis) an output whose shape differs from sample to "
        "sample becomes\n"
        "a group with a dataset for each sample: /NAME/0, /NAME/1, ...\n"
        "mpirun -n N with --parallel shares the model among N processes, for one that a process or "
        "GPU\n"
        "does not hold; the outputs are the same bytes.",
    .example = "pare run resnet.onnx --input input=image.npy -o out/",
    .options = table,
    .size = sizeof(run_options),
    .ranks = true,
    .defaults = &defaults,
    .run = run,
};
