/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load/target.h"

#include "tools/serve/protocol.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* A name as a part of a path (RFC 3986). */
static const char *escaped(pare_arena *arena, const char *name)
{
    static const char digits[] = "0123456789ABCDEF";
    char *text = pare_arena_alloc(arena, 3 * strlen(name) + 1, 1), *to = text;
    for (; text && *name; name++) {
        const unsigned char c = (unsigned char)*name;
        if (isalnum(c) || strchr("-._~", c)) {
            *to++ = (char)c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[c >> 4];
        *to++ = digits[c & 15];
    }
    return text;
}

static pare_status set_paths(pare_arena *arena, pare_load_target *t, int64_t version)
{
    const char *name = escaped(arena, t->model);
    if (!name) return PARE_MEMORY;
    t->path =
        version ? pare_arena_printf(arena, "/v2/models/%s/versions/%lld", name, (long long)version)
                : pare_arena_printf(arena, "/v2/models/%s", name);
    t->infer = t->path ? pare_arena_printf(arena, "%s/infer", t->path) : NULL;
    return t->infer ? PARE_OK : PARE_MEMORY;
}

/* --- metadata --- */

static pare_status no_metadata(pare_ctx *ctx, const pare_load_target *t, const char *what)
{
    return PARE_FAIL(ctx, INPUT,
                     "%s: model '%s': the metadata have no %s; is this a server of the "
                     "KServe protocol, version 2?",
                     t->url, t->model, what);
}

/* Name, type and shape of an entry of "inputs" or "outputs"; false: it has them not. */
static bool read_tensor(pare_arena *arena, const json_t *entry, pare_data_input *out)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *type = json_string_value(json_object_get(entry, "datatype"));
    const json_t *shape = json_object_get(entry, "shape");
    if (!name || !type || !json_is_array(shape) || json_array_size(shape) > PARE_MAX_RANK)
        return false;
    *out = (pare_data_input){.name = pare_arena_strdup(arena, name),
                             .dtype = pare_infer_type_find(type)};
    out->shape.rank = (int)json_array_size(shape);
    for (int i = 0; i < out->shape.rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim)) return false;
        out->shape.dim[i] = json_integer_value(dim) < 0 ? -1 : json_integer_value(dim);
    }
    return out->name != NULL;
}

static pare_status read_inputs(pare_arena *arena, pare_load_target *t, const json_t *list)
{
    const size_t count = json_array_size(list);
    if (!count) return no_metadata(arena->ctx, t, "inputs");
    t->input = pare_arena_alloc(arena, count, sizeof *t->input);
    if (!t->input) return PARE_MEMORY;
    for (; (size_t)t->input_count < count; t->input_count++) {
        const json_t *entry = json_array_get(list, (size_t)t->input_count);
        pare_data_input *input = &t->input[t->input_count];
        if (!read_tensor(arena, entry, input))
            return no_metadata(arena->ctx, t, "name, datatype and shape for an input");
        if (input->dtype == PARE_NOTYPE || input->dtype == PARE_string)
            return PARE_FAIL(arena->ctx, UNSUPPORTED,
                             "%s: model '%s': input '%s' is of type %s, which no data set has",
                             t->url, t->model, input->name,
                             json_string_value(json_object_get(entry, "datatype")));
    }
    return PARE_OK;
}

static pare_status read_output(pare_arena *arena, pare_load_target *t, const json_t *list)
{
    pare_data_input output;
    if (!read_tensor(arena, json_array_get(list, 0), &output))
        return no_metadata(arena->ctx, t, "name, datatype and shape for an output");
    const pare_shape *shape = &output.shape;
    t->output = output.name;
    t->classifies = shape->rank == 2 && (shape->dim[1] < 0 || shape->dim[1] > 1) &&
                    pare_type(output.dtype)->to_f32;
    t->classes = t->classifies && shape->dim[1] > 0 ? shape->dim[1] : 0;
    return PARE_OK;
}

pare_status pare_load_target_read(pare_arena *arena, pare_load_target *out, pare_client *client,
                                  const char *url, const char *model, int64_t version)
{
    char text[512];
    pare_client_reply reply;
    *out = (pare_load_target){.url = url, .model = model};
    PARE_TRY(set_paths(arena, out, version));
    PARE_TRY(pare_client_get(client, out->path, &reply));
    if (reply.status != 200)
        return PARE_FAIL(arena->ctx, INPUT, "%s: model '%s': %s", url, model,
                         pare_client_error(&reply, text, sizeof text));
    json_t *json = json_loadb(reply.body, reply.bytes, 0, NULL);
    pare_status st = read_inputs(arena, out, json_object_get(json, "inputs"));
    if (st == PARE_OK) st = read_output(arena, out, json_object_get(json, "outputs"));
    json_decref(json);
    return st;
}

/* --- statistics --- */

pare_load_work pare_load_work_between(const pare_load_work *before, const pare_load_work *after)
{
    pare_load_work work = {.samples = after->samples - before->samples,
                           .runs = after->runs - before->runs};
    for (int i = 0; i < PARE_LOAD_BINS; i++) work.bin[i] = after->bin[i] - before->bin[i];
    return work;
}

static void add_batches(const json_t *list, pare_load_work *sum)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *stats = json_array_get(list, i);
        const json_t *runs = json_object_get(json_object_get(stats, "compute_infer"), "count");
        const json_int_t size = json_integer_value(json_object_get(stats, "batch_size"));
        int bin = 0;
        while (bin < PARE_LOAD_BINS - 1 && size > (json_int_t)1 << bin) bin++;
        sum->bin[bin] += (double)json_integer_value(runs);
    }
}

/* Of all versions that are listed: which of them answers is the server's choice. */
static void add_versions(const json_t *list, pare_load_work *out)
{
    pare_load_work sum = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *stats = json_array_get(list, i);
        const json_t *samples = json_object_get(stats, "inference_count");
        const json_t *runs = json_object_get(stats, "execution_count");
        if (!json_is_integer(samples) || !json_is_integer(runs)) return;
        sum.samples += (double)json_integer_value(samples);
        sum.runs += (double)json_integer_value(runs);
        add_batches(json_object_get(stats, "batch_stats"), &sum);
    }
    if (json_array_size(list)) *out = sum;
}

pare_status pare_load_target_work(pare_arena *arena, const pare_load_target *t, pare_client *client,
                                  pare_load_work *out)
{
    pare_client_reply reply;
    *out = (pare_load_work){.samples = NAN, .runs = NAN};
    const char *path = pare_arena_printf(arena, "%s/stats", t->path);
    if (!path) return PARE_MEMORY;
    const pare_status st = pare_client_get(client, path, &reply);
    if (st == PARE_IO && !reply.refused) { /* an overloaded server: only the batch is not known */
        pare_ctx_clear(arena->ctx);
        return PARE_OK;
    }
    PARE_TRY(st);
    if (reply.status != 200) return PARE_OK;
    json_t *json = json_loadb(reply.body, reply.bytes, 0, NULL);
    add_versions(json_object_get(json, "model_stats"), out);
    json_decref(json);
    return PARE_OK;
}
