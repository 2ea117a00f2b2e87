/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load/requests.h"

#include "runtime/base/size.h"
#include "runtime/eval/stats.h"
#include "tools/serve/protocol.h"
#include "tools/telemetry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- bodies --- */

/* Bytes that input i takes in a request. */
static bool input_bytes(const pare_source *s, int i, int64_t batch, size_t *out)
{
    int64_t elements;
    const pare_shape shape = pare_data_run_shape(s->data, i, batch);
    return pare_count_dims(shape.dim, shape.rank, &elements) &&
           pare_type_bytes(s->inputs[i].dtype, elements, out);
}

static json_t *input_json(const pare_source *s, int i, int64_t batch, size_t bytes)
{
    json_t *dims = json_array();
    const pare_shape shape = pare_data_run_shape(s->data, i, batch);
    for (int d = 0; d < shape.rank; d++) json_array_append_new(dims, json_integer(shape.dim[d]));
    return json_pack("{s:s, s:s, s:o, s:{s:I}}", "name", s->inputs[i].name, "datatype",
                     pare_infer_type_name(s->inputs[i].dtype), "shape", dims, "parameters",
                     "binary_data_size", (json_int_t)bytes);
}

/* The JSON that all bodies begin with, freed with free(), and the bytes of a whole body. */
static pare_status make_head(pare_ctx *ctx, const pare_source *s, int64_t batch, char **out,
                             size_t *bytes)
{
    json_t *list = json_array();
    pare_status st = PARE_OK;
    *bytes = 0;
    for (int i = 0; i < s->input_count && st == PARE_OK; i++) {
        size_t n;
        if (!input_bytes(s, i, batch, &n) || !pare_add_size(*bytes, n, bytes))
            st = PARE_FAIL(ctx, INPUT, "input '%s': a request is too large", s->inputs[i].name);
        else if (json_array_append_new(list, input_json(s, i, batch, n)))
            st = PARE_FAIL(ctx, INPUT, "input '%s': the name is no UTF-8", s->inputs[i].name);
    }
    json_t *root =
        json_pack("{s:o, s:{s:b}}", "inputs", list, "parameters", "binary_data_output", 1);
    *out = st == PARE_OK ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (st == PARE_OK && !*out) return PARE_FAIL(ctx, MEMORY, "out of memory for a request");
    if (*out) *bytes += strlen(*out);
    return st;
}

/* Do the model's axes and the data allow so many samples in a request? */
static pare_status check_batch(pare_ctx *ctx, const pare_load_target *t, const pare_source *s,
                               int64_t batch)
{
    const bool alone = pare_data_runs_alone(s->data);
    if (alone && batch != 1)
        return PARE_FAIL(ctx, INPUT,
                         "%s: model '%s': --batch %lld: an input has no axis of samples, so that "
                         "each is a request of its own",
                         t->url, t->model, (long long)batch);
    for (int i = 0; !alone && i < t->input_count; i++) {
        const pare_shape *shape = &t->input[i].shape;
        if (shape->rank > 0 && shape->dim[0] > 0 && shape->dim[0] != batch)
            return PARE_FAIL(ctx, INPUT,
                             "%s: model '%s': input '%s' takes %lld samples in a request, --batch "
                             "is %lld",
                             t->url, t->model, t->input[i].name, (long long)shape->dim[0],
                             (long long)batch);
    }
    if (s->count >= batch) return PARE_OK;
    return PARE_FAIL(ctx, INPUT, "%s: %lld samples, --batch %lld needs more for a request",
                     pare_data_path(s->data), (long long)s->count, (long long)batch);
}

static pare_status note_labels(pare_ctx *ctx, pare_load_requests *r, const pare_source *s,
                               const pare_batch *batch, size_t request)
{
    const int64_t classes = r->target->classes;
    for (int i = 0; r->label && i < batch->count; i++) {
        const int64_t label = batch->label[i];
        if (label < 0 || (classes && label >= classes))
            return PARE_FAIL(ctx, INPUT,
                             "%s: /labels: sample %lld has label %lld, expected 0 to %lld: model "
                             "'%s' has %lld classes",
                             pare_data_path(s->data), (long long)batch->sample[i], (long long)label,
                             (long long)classes - 1, r->target->model, (long long)classes);
        r->label[request * (size_t)r->batch + (size_t)i] = label;
    }
    return PARE_OK;
}

static pare_status fill(pare_ctx *ctx, pare_load_requests *r, const pare_source *s,
                        const char *head, pare_reader *reader)
{
    pare_batch batch;
    for (size_t k = 0; k < r->count; k++) {
        char *to = r->body + k * r->bytes;
        PARE_TRY(pare_ctx_poll(ctx));
        PARE_TRY(pare_reader_next(reader, &batch));
        PARE_TRY(note_labels(ctx, r, s, &batch, k));
        memcpy(to, head, r->json_bytes);
        to += r->json_bytes;
        for (int i = 0; i < s->input_count; i++) {
            size_t n = 0;
            (void)input_bytes(s, i, r->batch, &n);
            if (n) memcpy(to, pare_data_run_input(s->data, batch.input, i, 0), n);
            to += n;
        }
    }
    return PARE_OK;
}

static pare_status allocate(pare_tool *tool, pare_load_requests *r, bool labels)
{
    size_t all;
    r->body = pare_mul_size(r->count, r->bytes, &all) ? pare_alloc(tool->ctx, all, 1) : NULL;
    if (!r->body) return PARE_FAIL(tool->ctx, MEMORY, "out of memory for %zu requests", r->count);
    if (labels) r->label = pare_alloc(tool->ctx, r->count * (size_t)r->batch, sizeof *r->label);
    if (labels && !r->label) return PARE_MEMORY;
    pare_log_memory(tool, all);
    return PARE_OK;
}

pare_status pare_load_requests_make(pare_tool *tool, pare_load_requests *out,
                                    const pare_load_target *target, const pare_source *s,
                                    int64_t batch)
{
    char *head = NULL;
    pare_reader *reader = NULL;
    pare_ctx *ctx = tool->ctx;
    *out = (pare_load_requests){.batch = batch, .target = target};
    PARE_TRY(check_batch(ctx, target, s, batch));
    out->count = (size_t)(s->count / batch);
    const int64_t taken = (int64_t)out->count * batch;
    const bool labels = pare_data_has_labels(s->data);
    if (labels && !target->classifies)
        pare_log(ctx, PARE_LOG_WARNING,
                 "the labels are not used: output '%s' has no single score per class",
                 target->output);
    pare_status st = make_head(ctx, s, batch, &head, &out->bytes);
    if (st == PARE_OK) out->json_bytes = strlen(head);
    if (st == PARE_OK) st = allocate(tool, out, labels && target->classifies);
    if (st == PARE_OK)
        st = pare_reader_open(ctx, &reader, s->data, s->samples, taken, (int)batch,
                              (int)tool->common->threads);
    if (st == PARE_OK) st = fill(ctx, out, s, head, reader);
    if (reader) pare_reader_close(reader);
    free(head);
    if (st != PARE_OK) pare_load_requests_free(out);
    return st;
}

void pare_load_requests_free(pare_load_requests *r)
{
    pare_free(r->body);
    pare_free(r->label);
    r->body = NULL;
    r->label = NULL;
}

const char *pare_load_requests_body(const pare_load_requests *r, size_t i)
{
    return r->body + i % r->count * r->bytes;
}

/* --- answers --- */

pare_status pare_load_top1_init(pare_ctx *ctx, pare_load_top1 *out, const pare_load_requests *r)
{
    *out = (pare_load_top1){0};
    if (!r->label) return PARE_OK;
    out->seen = pare_alloc(ctx, r->count * (size_t)r->batch, sizeof *out->seen);
    return out->seen ? PARE_OK : PARE_MEMORY;
}

void pare_load_top1_free(pare_load_top1 *top1)
{
    pare_free(top1->seen);
    top1->seen = NULL;
}

/* Scores of the target's output in a reply. */
typedef struct scores {
    const char *data;
    pare_dtype dtype;
    int64_t rows, classes;
} scores;

/* Where the binary data of an output begin: those of the ones before it are in front. */
static bool find_scores(const pare_load_requests *r, const pare_client_reply *reply,
                        const json_t *json, scores *out)
{
    size_t i, at = reply->json_bytes;
    json_t *entry;
    json_array_foreach(json_object_get(json, "outputs"), i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *type = json_string_value(json_object_get(entry, "datatype"));
        const json_t *shape = json_object_get(entry, "shape");
        const json_t *size =
            json_object_get(json_object_get(entry, "parameters"), "binary_data_size");
        const size_t bytes = (size_t)json_integer_value(size);
        if (!name || !type || !json_is_integer(size) || bytes > reply->bytes - at) return false;
        if (strcmp(name, r->target->output) != 0) {
            at += bytes;
            continue;
        }
        size_t needed;
        *out = (scores){.data = reply->body + at, .dtype = pare_infer_type_find(type)};
        out->rows = json_integer_value(json_array_get(shape, 0));
        out->classes = json_integer_value(json_array_get(shape, 1));
        const int64_t dims[] = {out->rows, out->classes};
        int64_t elements;
        return json_array_size(shape) == 2 && out->rows == r->batch && out->classes > 1 &&
               out->classes < INT32_MAX && pare_type(out->dtype)->to_f32 &&
               pare_count_dims(dims, 2, &elements) &&
               pare_type_bytes(out->dtype, elements, &needed) && needed == bytes;
    }
    return false;
}

/* The class of the highest score, as pare_stats_argmax has it; -1: that is NaN. */
static int64_t class_of(const scores *s, int64_t row)
{
    const size_t size = (size_t)pare_type(s->dtype)->bits / 8;
    const char *at = s->data + (size_t)(row * s->classes) * size;
    int64_t best = 0;
    float highest = NAN;
    for (int64_t i = 0; i < s->classes; i++) {
        const float value = pare_type(s->dtype)->to_f32(at + (size_t)i * size);
        if (!(value > highest) && !(isnan(highest) && !isnan(value))) continue;
        highest = value;
        best = i;
    }
    return isnan(highest) ? -1 : best;
}

void pare_load_top1_add(pare_load_top1 *top1, const pare_load_requests *r, size_t i,
                        const pare_client_reply *reply)
{
    scores s;
    if (!r->label) return;
    const size_t n = reply->json_bytes <= reply->bytes ? reply->json_bytes : 0;
    json_t *json = n ? json_loadb(reply->body, n, 0, NULL) : NULL;
    const bool found = json && find_scores(r, reply, json, &s);
    json_decref(json);
    if (!found) {
        top1->unread++;
        return;
    }
    for (int64_t row = 0; row < r->batch; row++) {
        const size_t sample = i % r->count * (size_t)r->batch + (size_t)row;
        const int64_t class = class_of(&s, row);
        const int32_t seen = (int32_t) class + 2;
        if (!top1->seen[sample]) {
            top1->seen[sample] = seen;
            top1->samples++;
            top1->hits += class == r->label[sample];
        } else {
            top1->changed += top1->seen[sample] != seen;
        }
    }
}
