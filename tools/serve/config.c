/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/config.h"

#include "formats/file.h"
#include "tools/serve/config_fields.h"
#include "tools/serve/pbtxt.h"
#include "tools/serve/protocol.h"

#include <string.h>

void pare_serve_config_init(pare_serve_config *out)
{
    *out = (pare_serve_config){.max_batch = 32,
                               .is_auto = true,
                               .merge = true,
                               .instances = 1,
                               .gpu_instances = 1,
                               .queue = 1024,
                               .own_timeout = true,
                               .latest = 1,
                               .file = "model.onnx"};
}

const char *pare_config_type_name(pare_dtype dtype, char *text, size_t size)
{
    snprintf(text, size, "TYPE_%s", dtype == PARE_string ? "STRING" : pare_infer_type_name(dtype));
    return text;
}

pare_dtype pare_config_type_find(const char *name)
{
    if (strncmp(name, "TYPE_", 5) != 0) return PARE_NOTYPE;
    return !strcmp(name + 5, "STRING") ? PARE_string : pare_infer_type_find(name + 5);
}

/* --- parts of a ModelConfig --- */

static pare_status read_identity(reader *r, const json_t *root)
{
    static const char *const served[] = {"pare", "pare_onnx", "onnxruntime", "onnxruntime_onnx"};
    static const char *const keys[] = {"platform", "backend"};
    const char *name = r->name;
    PARE_TRY(read_text(r, root, "name", &name));
    if (*name && strcmp(name, r->name) != 0)
        return PARE_FAIL(r->ctx, INPUT, "%s: name is '%s', the model's folder is '%s'", r->path,
                         name, r->name);
    for (int k = 0; k < 2; k++) {
        const char *word = "";
        PARE_TRY(read_text(r, root, keys[k], &word));
        bool known = !*word;
        for (int i = 0; i < 4; i++) known |= !strcmp(word, served[i]);
        known |= !k && r->config->step_count && !strcmp(word, "ensemble");
        if (!known && !k && !strcmp(word, "ensemble"))
            return PARE_FAIL(r->ctx, INPUT,
                             "%s: platform is 'ensemble', but ensemble_scheduling is missing",
                             r->path);
        if (!known)
            return PARE_FAIL(r->ctx, UNSUPPORTED, "%s: %s is '%s', only ONNX models are served",
                             r->path, keys[k], word);
    }
    PARE_TRY(read_text(r, root, "default_model_filename", &r->config->file));
    const char *file = r->config->file;
    if (!*file || strchr(file, '/') || file[0] == '.')
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: default_model_filename is '%s', expected a file in the version's "
                         "folder",
                         r->path, file);
    return PARE_OK;
}

static pare_status refuse_others(reader *r, const json_t *root)
{
    static const char *const alone[] = {"dynamic_batching", "sequence_batching", "instance_group",
                                        "parameters"};
    for (int i = 0; i < 4; i++)
        if (r->config->step_count && json_object_get(root, alone[i]))
            return PARE_FAIL(r->ctx, INPUT, "%s: %s is for a model of its own, not an ensemble",
                             r->path, alone[i]);
    return PARE_OK;
}

/* --- an ensemble --- */

/* input_map or output_map: entries of a key and a value. */
static pare_status read_map(reader *r, const json_t *step, const char *key, pare_config_link **out,
                            int *count)
{
    const json_t *list = json_object_get(step, key);
    const size_t n = json_array_size(list);
    *out = pare_arena_alloc(r->arena, n + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (size_t i = 0; i < n; i++) {
        pare_config_link *link = &(*out)[i];
        PARE_TRY(read_text(r, json_array_get(list, i), "key", &link->port));
        PARE_TRY(read_text(r, json_array_get(list, i), "value", &link->tensor));
        if (!link->port || !link->tensor || !*link->tensor)
            return PARE_FAIL(r->ctx, INPUT, "%s: %s: expected { key: ... value: ... }", r->path,
                             key);
    }
    *count = (int)n;
    return PARE_OK;
}

static pare_status read_step(reader *r, const json_t *step, pare_config_step *out)
{
    out->version = -1;
    PARE_TRY(read_text(r, step, "model_name", &out->model));
    if (!out->model || !*out->model)
        return PARE_FAIL(r->ctx, INPUT, "%s: ensemble_scheduling.step: no model_name", r->path);
    PARE_TRY(read_int(r, step, "model_version", -1, INT64_MAX, &out->version));
    PARE_TRY(read_map(r, step, "input_map", &out->input, &out->input_count));
    PARE_TRY(read_map(r, step, "output_map", &out->output, &out->output_count));
    warn_of_others(r, step, "ensemble_scheduling.step.",
                   " model_name model_version input_map output_map ");
    return PARE_OK;
}

static pare_status read_steps(reader *r, const json_t *root)
{
    const json_t *scheduling;
    pare_serve_config *c = r->config;
    PARE_TRY(read_message(r, root, "ensemble_scheduling", &scheduling));
    const json_t *list = json_object_get(scheduling, "step");
    const size_t n = json_array_size(list);
    if (!scheduling) return PARE_OK;
    if (n < 1 || n > PARE_MOST_STEPS)
        return PARE_FAIL(r->ctx, INPUT, "%s: ensemble_scheduling: has %zu steps, expected 1 to %d",
                         r->path, n, PARE_MOST_STEPS);
    c->step = pare_arena_alloc(r->arena, n, sizeof *c->step);
    if (!c->step) return PARE_MEMORY;
    c->step_count = (int)n;
    for (size_t i = 0; i < n; i++) PARE_TRY(read_step(r, json_array_get(list, i), &c->step[i]));
    return PARE_OK;
}

static pare_status read_timeout_action(reader *r, const json_t *policy)
{
    const char *action = "REJECT";
    PARE_TRY(read_text(r, policy, "timeout_action", &action));
    if (!strcmp(action, "DELAY"))
        pare_log(r->ctx, PARE_LOG_WARNING,
                 "%s: timeout_action DELAY is not read: a timeout rejects", r->path);
    else if (strcmp(action, "REJECT") != 0)
        return PARE_FAIL(r->ctx, INPUT, "%s: timeout_action is '%s', expected REJECT or DELAY",
                         r->path, action);
    return PARE_OK;
}

static pare_status read_queue_policy(reader *r, const json_t *batching)
{
    const json_t *policy;
    pare_serve_config *c = r->config;
    PARE_TRY(read_message(r, batching, "default_queue_policy", &policy));
    if (!policy) return PARE_OK;
    c->own_timeout = false; /* as ModelQueuePolicy says */
    PARE_TRY(read_bool(r, policy, "allow_timeout_override", &c->own_timeout));
    PARE_TRY(read_int(r, policy, "default_timeout_microseconds", 0, INT64_MAX, &c->timeout));
    PARE_TRY(read_int(r, policy, "max_queue_size", 0, INT32_MAX, &c->queue));
    warn_of_others(r, policy, "dynamic_batching.default_queue_policy.",
                   " allow_timeout_override default_timeout_microseconds max_queue_size "
                   "timeout_action ");
    return read_timeout_action(r, policy);
}

static pare_status read_preferred(reader *r, const json_t *batching)
{
    pare_serve_config *c = r->config;
    PARE_TRY(read_ints(r, batching, "preferred_batch_size", 1, PARE_MOST_PREFERRED, c->preferred,
                       &c->preferred_count));
    for (int i = 0; i < c->preferred_count; i++) {
        if (c->preferred[i] > c->max_batch)
            return PARE_FAIL(r->ctx, INPUT,
                             "%s: preferred_batch_size %lld is above max_batch_size %lld", r->path,
                             (long long)c->preferred[i], (long long)c->max_batch);
        for (int k = i; k > 0 && c->preferred[k] < c->preferred[k - 1]; k--) {
            const int64_t larger = c->preferred[k - 1];
            c->preferred[k - 1] = c->preferred[k];
            c->preferred[k] = larger;
        }
    }
    return PARE_OK;
}

static pare_status read_batching(reader *r, const json_t *root)
{
    const json_t *batching;
    pare_serve_config *c = r->config;
    const bool has_size = json_object_get(root, "max_batch_size") != NULL;
    PARE_TRY(read_int(r, root, "max_batch_size", 0, 65536, &c->max_batch));
    PARE_TRY(read_message(r, root, "dynamic_batching", &batching));
    c->is_auto &= !has_size;
    c->merge = c->max_batch > 0 && (batching || c->is_auto);
    if (!batching) return PARE_OK;
    c->asks_batches = true;
    if (!c->max_batch)
        pare_log(r->ctx, PARE_LOG_WARNING,
                 "%s: dynamic_batching makes no batches: max_batch_size is 0", r->path);
    c->delay = 0;
    PARE_TRY(read_int(r, batching, "max_queue_delay_microseconds", 0, 60000000, &c->delay));
    if (c->max_batch) PARE_TRY(read_preferred(r, batching));
    PARE_TRY(warn_of_order(r, batching, "dynamic_batching"));
    PARE_TRY(read_int(r, batching, "priority_levels", 0, INT32_MAX, &c->levels));
    c->level = c->levels ? 1 : 0;
    PARE_TRY(read_int(r, batching, "default_priority_level", c->level, c->levels, &c->level));
    warn_of_others(r, batching, "dynamic_batching.",
                   " preferred_batch_size max_queue_delay_microseconds priority_levels "
                   "default_priority_level default_queue_policy preserve_ordering ");
    return read_queue_policy(r, batching);
}

/* What a group says, or shows by its gpus. */
static pare_status read_kind(reader *r, const json_t *group, pare_instance_kind *out)
{
    static const char *const names[] = {"KIND_AUTO", "KIND_CPU", "KIND_GPU"};
    const char *word = names[PARE_KIND_AUTO];
    int kind = 0;
    if (!json_is_object(group))
        return PARE_FAIL(r->ctx, INPUT, "%s: instance_group: expected { ... }", r->path);
    PARE_TRY(read_text(r, group, "kind", &word));
    while (kind < 3 && strcmp(word, names[kind]) != 0) kind++;
    if (kind == 3)
        return PARE_FAIL(
            r->ctx, UNSUPPORTED,
            "%s: instance_group.kind is '%s', expected KIND_AUTO, KIND_CPU or KIND_GPU", r->path,
            word);
    const bool has_gpus = json_array_size(json_object_get(group, "gpus")) > 0;
    if (has_gpus && kind == PARE_KIND_CPU)
        return PARE_FAIL(r->ctx, INPUT, "%s: instance_group: KIND_CPU has no gpus", r->path);
    *out = has_gpus ? PARE_KIND_GPU : (pare_instance_kind)kind;
    return PARE_OK;
}

/* The kind of all groups; those that do not choose join the others. */
static pare_status read_kinds(reader *r, const json_t *list, pare_instance_kind *kind)
{
    *kind = PARE_KIND_AUTO;
    for (size_t i = 0; i < json_array_size(list); i++) {
        pare_instance_kind own = PARE_KIND_AUTO;
        PARE_TRY(read_kind(r, json_array_get(list, i), &own));
        if (own == PARE_KIND_AUTO) continue;
        if (*kind != PARE_KIND_AUTO && *kind != own)
            return PARE_FAIL(r->ctx, UNSUPPORTED,
                             "%s: instance_group: KIND_CPU and KIND_GPU together: a request's "
                             "results would depend on which computes it",
                             r->path);
        *kind = own;
    }
    return PARE_OK;
}

/* So many runs side by side on each GPU that the group names, or on the one that is there. */
static pare_status add_gpus(reader *r, const json_t *group, int number, int64_t count)
{
    int64_t index[PARE_MOST_GPUS] = {-1};
    int n = 0;
    pare_serve_config *c = r->config;
    PARE_TRY(read_ints(r, group, "gpus", 0, PARE_MOST_GPUS, index, &n));
    for (int i = 0; i < (n ? n : 1); i++) {
        if (c->gpu_count == PARE_MOST_GPUS || index[i] > 999)
            return PARE_FAIL(r->ctx, INPUT,
                             "%s: instance_group.gpus: expected at most %d from 0 to "
                             "999",
                             r->path, PARE_MOST_GPUS);
        c->gpu[c->gpu_count++] = (pare_gpu_group){(int)index[i], count, number};
    }
    return PARE_OK;
}

static pare_status read_instances(reader *r, const json_t *root)
{
    const json_t *list = json_object_get(root, "instance_group");
    int64_t all = 0;
    pare_instance_kind kind;
    pare_serve_config *c = r->config;
    PARE_TRY(read_kinds(r, list, &kind));
    if (kind != PARE_KIND_AUTO) {
        c->kind = kind;
        c->is_placed = true;
        c->is_pipeline = false;
        c->gpu_count = 0;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *group = json_array_get(list, i);
        int64_t count = 0;
        PARE_TRY(read_int(r, group, "count", 1, 1024, &count));
        warn_of_others(r, group, "instance_group.", " count name kind gpus ");
        if (kind == PARE_KIND_GPU) PARE_TRY(add_gpus(r, group, (int)i, count));
        all += count ? count : 1;
    }
    if (all) c->instances = c->gpu_instances = all;
    for (int i = 0; all && !c->is_placed && i < c->gpu_count; i++) c->gpu[i].instances = all;
    return PARE_OK;
}

static pare_status read_versions(reader *r, const json_t *root)
{
    const json_t *policy, *latest, *specific, *all;
    pare_serve_config *c = r->config;
    PARE_TRY(read_message(r, root, "version_policy", &policy));
    c->has_policy = policy != NULL;
    if (json_object_size(policy) > 1)
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: version_policy: expected one of latest, all and specific", r->path);
    warn_of_others(r, policy, "version_policy.", " latest all specific ");
    PARE_TRY(read_message(r, policy, "latest", &latest));
    PARE_TRY(read_message(r, policy, "specific", &specific));
    PARE_TRY(read_message(r, policy, "all", &all));
    if (latest) return read_int(r, latest, "num_versions", 1, INT32_MAX, &c->latest);
    if (all) c->latest = 0;
    if (!specific) return PARE_OK;
    c->latest = -1;
    return read_ints(r, specific, "versions", 1, PARE_MOST_VERSIONS, c->specific,
                     &c->specific_count);
}

static pare_status read_parameter(reader *r, const char *key, const char *text)
{
    pare_serve_config *c = r->config;
    const char *what = pare_arena_printf(r->arena, "%s: %s", r->path, key);
    const bool is_preprocess = !strcmp(key, "preprocess"), is_parallel = !strcmp(key, "parallel");
    if (!what) return PARE_MEMORY;
    if (!is_preprocess && !is_parallel && strcmp(key, "traffic_weight") != 0) {
        pare_log(r->ctx, PARE_LOG_WARNING, "%s: the parameter '%s' is not read", r->path, key);
        return PARE_OK;
    }
    if (!text)
        return PARE_FAIL(r->ctx, INPUT, "%s: parameters: '%s' has no string_value", r->path, key);
    if (is_parallel && strcmp(text, "pipeline") != 0)
        return PARE_FAIL(r->ctx, UNSUPPORTED,
                         "%s: parameters: 'parallel' is '%s', expected pipeline", r->path, text);
    if (is_parallel) {
        c->is_pipeline = true;
        return PARE_OK;
    }
    if (is_preprocess) return pare_preprocess_parse(r->arena, &c->preprocess, what, text);
    if (c->shares.count) return PARE_OK; /* the command line says it */
    return pare_shares_read(r->ctx, &c->shares, what, text);
}

/* parameters { key: "traffic_weight" value { string_value: "1:90 2:10" } } */
static pare_status read_parameters(reader *r, const json_t *root)
{
    const json_t *list = json_object_get(root, "parameters"), *value;
    r->config->preprocess = (pare_preprocess_config){0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *key = "", *text = NULL;
        if (!json_is_object(one))
            return PARE_FAIL(r->ctx, INPUT, "%s: parameters: expected { ... }", r->path);
        PARE_TRY(read_text(r, one, "key", &key));
        PARE_TRY(read_message(r, one, "value", &value));
        PARE_TRY(read_text(r, value, "string_value", &text));
        PARE_TRY(read_parameter(r, key, text));
    }
    return PARE_OK;
}

static pare_status read_tensor(reader *r, const json_t *message, const char *key,
                               pare_config_tensor *out)
{
    const char *type = "";
    if (!json_is_object(message))
        return PARE_FAIL(r->ctx, INPUT, "%s: %s: expected { ... }", r->path, key);
    out->name = "";
    PARE_TRY(read_text(r, message, "name", &out->name));
    PARE_TRY(read_text(r, message, "data_type", &type));
    PARE_TRY(read_text(r, message, "label_filename", &out->labels));
    if (out->labels && !*out->labels) out->labels = NULL;
    if (out->labels && !strcmp(key, "input")) {
        pare_log(r->ctx, PARE_LOG_WARNING, "%s: 'input.label_filename' is not read", r->path);
        out->labels = NULL;
    }
    if (!*out->name) return PARE_FAIL(r->ctx, INPUT, "%s: %s: a name is missing", r->path, key);
    warn_of_others(r, message, !strcmp(key, "input") ? "input." : "output.",
                   " name data_type dims label_filename ");
    out->dtype = pare_config_type_find(type);
    if (out->dtype == PARE_NOTYPE)
        return PARE_FAIL(r->ctx, INPUT, "%s: %s '%s': data_type is '%s', expected TYPE_FP32 or so",
                         r->path, key, out->name, type);
    return read_ints(r, message, "dims", -1, PARE_MAX_RANK, out->shape.dim, &out->shape.rank);
}

static pare_status read_tensors(reader *r, const json_t *root, const char *key,
                                pare_config_tensor **out, int *count)
{
    const json_t *list = json_object_get(root, key);
    const size_t n = json_array_size(list);
    *out = pare_arena_alloc(r->arena, n + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (size_t i = 0; i < n; i++)
        PARE_TRY(read_tensor(r, json_array_get(list, i), key, &(*out)[i]));
    *count = (int)n;
    return PARE_OK;
}

static pare_status read_root(reader *r, const json_t *root)
{
    pare_serve_config *c = r->config;
    PARE_TRY(read_steps(r, root));
    PARE_TRY(refuse_others(r, root));
    PARE_TRY(read_identity(r, root));
    PARE_TRY(read_batching(r, root));
    PARE_TRY(pare_sequence_config_read(r, root));
    PARE_TRY(read_instances(r, root));
    PARE_TRY(read_versions(r, root));
    PARE_TRY(read_parameters(r, root));
    PARE_TRY(read_tensors(r, root, "input", &c->input, &c->input_count));
    PARE_TRY(read_tensors(r, root, "output", &c->output, &c->output_count));
    warn_of_others(r, root, "",
                   " name platform backend default_model_filename max_batch_size dynamic_batching "
                   "sequence_batching instance_group version_policy input output parameters "
                   "ensemble_scheduling ");
    return PARE_OK;
}

pare_status pare_serve_config_parse(pare_arena *arena, pare_serve_config *config, const char *text,
                                    size_t bytes, const char *path, const char *name)
{
    reader r = {arena, arena->ctx, path, name, config};
    json_t *root;
    PARE_TRY(pare_pbtxt_parse(r.ctx, &root, text, bytes, path));
    pare_status st = read_root(&r, root);
    json_decref(root);
    return st;
}

pare_status pare_serve_config_read(pare_arena *arena, pare_serve_config *config, const char *path,
                                   const char *name)
{
    pare_map map;
    PARE_TRY(pare_map_read(arena->ctx, &map, path));
    pare_status st =
        pare_serve_config_parse(arena, config, (const char *)map.data, map.size, path, name);
    pare_map_close(&map);
    return st;
}
