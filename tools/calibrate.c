/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/calibrate.h"

#include "formats/onnx.h"
#include "tools/cache.h"
#include "tools/telemetry.h"
#include "tools/progress.h"
#include "tools/trace.h"

/* Where a trace goes. */
typedef struct trace_file {
    pare_ctx *ctx;
    const char *path, *model;
} trace_file;

static pare_status traced(void *user, const pare_timeline *timeline, const pare_plan *plan)
{
    const trace_file *t = user;
    return pare_trace_write(t->ctx, t->path, t->model, timeline, plan);
}

static void planned(void *user, size_t bytes) { pare_log_memory(user, bytes); }

/* --- the cache --- */

/* All that a table depends on; the order of the samples is not of it. */
static pare_status key_of(pare_tool *tool, pare_hash *key, const pare_cache *cache,
                          const pare_model *prepared, const pare_source *source,
                          const pare_calibrate_how *how)
{
    enum { LAYOUT = 1 };
    const int32_t kind[] = {LAYOUT, how->minmax_only};
    pare_hash model, samples = {0};
    PARE_TRY(pare_onnx_content_hash(tool->ctx, prepared, &model));
    for (int64_t i = 0; i < source->count; i++)
        samples = pare_hash_sum(samples, pare_hash_bytes(&source->samples[i], sizeof(int64_t)));
    pare_cache_key_begin(key, cache, tool->device);
    pare_cache_key_add(key, kind, sizeof kind);
    pare_cache_key_add_text(key, how->model_hash);
    pare_cache_key_add(key, &model, sizeof model);
    pare_cache_key_add(key, &source->count, sizeof source->count);
    pare_cache_key_add(key, &samples, sizeof samples);
    for (int i = 0; i < source->input_count; i++)
        pare_cache_key_add_text(key, source->inputs[i].dataset);
    return pare_cache_key_add_file(tool->ctx, key, pare_data_path(source->data));
}

/* Leaves *out NULL where there is no entry of use. */
static pare_status find_table(pare_tool *tool, pare_ranges **out, const pare_cache *cache,
                              const pare_hash *key)
{
    pare_cache_entry entry;
    if (!pare_cache_find(cache, key, &entry)) return PARE_OK;
    pare_status st = pare_ranges_unpack(tool->ctx, out, entry.data, entry.size);
    pare_cache_close(&entry);
    if (st == PARE_INPUT) {
        pare_ctx_clear(tool->ctx);
        pare_cache_drop(cache, key, "is no table of statistics");
        return PARE_OK;
    }
    if (st != PARE_OK) return st;
    pare_ranges_use_device(*out, tool->device);
    pare_ranges_warn(tool->ctx, *out);
    return PARE_OK;
}

static pare_status keep_table(pare_tool *tool, const pare_ranges *ranges, const pare_cache *cache,
                              const pare_hash *key)
{
    void *data;
    size_t bytes;
    PARE_TRY(pare_ranges_pack(tool->ctx, ranges, &data, &bytes));
    pare_cache_writer *writer = pare_cache_begin(cache, key);
    pare_cache_write(writer, data, bytes);
    pare_cache_commit(writer);
    pare_free(data);
    return PARE_OK;
}

/* --- the run --- */

static pare_status run(pare_tool *tool, pare_ranges **out, const pare_model *prepared,
                       const pare_source_options *options, const pare_source *source,
                       const pare_calibrate_how *how, pare_progress *bar)
{
    trace_file file = {tool->ctx, how->trace, prepared->path};
    pare_calib_options calib = {
        .samples = source->samples,
        .sample_count = source->count,
        .batch = (int)options->batch,
        .threads = (int)tool->common->threads,
        .comm = tool->comm,
        .device = tool->device,
        .model_hash = how->model_hash,
        .minmax_only = how->minmax_only,
        .progress = pare_progress_step,
        .progress_user = bar,
        .planned = planned,
        .planned_user = tool,
        .traced = how->trace && pare_tool_leads(tool) ? traced : NULL,
        .traced_user = &file,
    };
    return pare_calibrate(tool->ctx, out, prepared, source->data, &calib);
}

/* Rank 0 looks: its folder may be its own. The others have the table that it found. */
static pare_status find_shared(pare_tool *tool, pare_ranges **out, const pare_cache *cache,
                               const pare_hash *key)
{
    void *data = NULL;
    size_t bytes = 0;
    if (!tool->comm) return find_table(tool, out, cache, key);
    if (pare_tool_leads(tool)) {
        PARE_TRY(find_table(tool, out, cache, key));
        if (*out) PARE_TRY(pare_ranges_pack(tool->ctx, *out, &data, &bytes));
    }
    pare_status st = pare_comm_broadcast(tool->comm, &bytes, sizeof bytes, 0);
    if (st == PARE_OK && bytes && !data && !(data = pare_alloc(tool->ctx, bytes, 1)))
        st = PARE_MEMORY;
    st = pare_comm_settle(tool->comm, st);
    if (st == PARE_OK && bytes) st = pare_comm_broadcast(tool->comm, data, bytes, 0);
    if (st == PARE_OK && bytes && !pare_tool_leads(tool))
        st = pare_ranges_unpack(tool->ctx, out, data, bytes);
    pare_free(data);
    if (st != PARE_OK) {
        pare_ranges_free(*out);
        *out = NULL;
    }
    return st;
}

static pare_status find_or_run(pare_tool *tool, pare_ranges **out, const pare_model *prepared,
                               const pare_source_options *options, const pare_source *source,
                               const pare_calibrate_how *how, pare_progress *bar)
{
    const pare_cache cache = {.ctx = tool->ctx, .folder = how->cache, .kind = "statistics"};
    pare_hash key;
    *out = NULL;
    if (!how->cache) return run(tool, out, prepared, options, source, how, bar);
    PARE_TRY(key_of(tool, &key, &cache, prepared, source, how));
    if (!how->trace) PARE_TRY(find_shared(tool, out, &cache, &key));
    if (*out) return PARE_OK;
    PARE_TRY(run(tool, out, prepared, options, source, how, bar));
    if (!pare_tool_leads(tool)) return PARE_OK;
    const pare_status st = keep_table(tool, *out, &cache, &key);
    if (st != PARE_OK) pare_ranges_free(*out);
    return st;
}

/* Ranges of samples that say little of the others. */
static void warn_poor(pare_tool *tool, const pare_source *source)
{
    enum { FEW = 100, LEAST = 8 };
    const int64_t *label = pare_data_labels(source->data), n = source->count;
    int64_t same = 0;
    if (n < FEW)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "%lld sample%s: ranges may be too narrow; %d are advised", (long long)n,
                 n == 1 ? " is little" : "s are few", PARE_CALIBRATION_SAMPLES);
    while (label && same < n && label[source->samples[same]] == label[source->samples[0]]) same++;
    if (same == n && n >= LEAST)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "%s: all %lld samples have the label %lld: ranges may be too narrow; calibrate on "
                 "samples of all classes",
                 pare_data_path(source->data), (long long)n, (long long)label[source->samples[0]]);
}

pare_status pare_tool_calibrate_on(pare_tool *tool, pare_ranges **out, const pare_model *prepared,
                                   const pare_source_options *options, const pare_source *source,
                                   const pare_calibrate_how *how)
{
    pare_progress bar;
    if (!how->again) warn_poor(tool, source);
    pare_progress_begin(&bar, stderr, tool->common->quiet, "calibrate", "samples");
    pare_watch *watch = NULL;
    pare_ranges *ranges = NULL;
    pare_status st = pare_watch_start(tool->ctx, &watch, tool->device);
    if (st == PARE_OK) st = find_or_run(tool, &ranges, prepared, options, source, how, &bar);
    double seconds = pare_seconds() - bar.start;
    pare_progress_end(&bar);
    json_t *device = watch ? pare_watch_end(watch) : NULL;
    if (st != PARE_OK) return json_decref(device), st;
    *out = ranges;
    if (!device) return PARE_MEMORY;
    json_object_set_new(tool->facts, "device", device);
    json_t *data = pare_source_json(source, options);
    json_object_set_new(data, "seconds", json_real(seconds));
    json_object_set_new(tool->facts, "data", data);
    return PARE_OK;
}

pare_status pare_tool_calibrate(pare_tool *tool, pare_ranges **out, const pare_model *prepared,
                                const pare_source_options *options, const pare_calibrate_how *how)
{
    pare_source source;
    PARE_TRY(pare_source_open(tool, &source, prepared, options, PARE_CALIBRATION_SAMPLES));
    if (how->tf32) pare_tool_allow_tf32(tool);
    pare_status st = pare_tool_calibrate_on(tool, out, prepared, options, &source, how);
    pare_source_close(&source);
    return st;
}
