/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/source.h"
#include "formats/file.h"

#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

pare_value **pare_model_inputs(pare_arena *arena, const pare_model *model, int *count)
{
    const pare_values *in = &model->graph->in;
    pare_value **list = pare_arena_alloc(arena, (size_t)in->count, sizeof *list);
    *count = 0;
    for (int i = 0; list && i < in->count; i++)
        if (!in->item[i]->is_init) list[(*count)++] = in->item[i];
    return list;
}

/* The dataset that --map gives an input, or NULL. */
static const char *mapped(const pare_list *map, const char *input)
{
    size_t n = strlen(input);
    for (int i = 0; i < map->count; i++)
        if (!strncmp(map->item[i], input, n) && map->item[i][n] == '=') return map->item[i] + n + 1;
    return NULL;
}

static pare_status check_map(pare_ctx *ctx, const pare_list *map, const pare_data_input *inputs,
                             int count, const char *path)
{
    for (int m = 0; m < map->count; m++) {
        const char *equals = strchr(map->item[m], '=');
        bool known = false;
        if (!equals || !equals[1])
            return PARE_FAIL(ctx, USAGE, "--map %s: expected INPUT=/path", map->item[m]);
        size_t n = (size_t)(equals - map->item[m]);
        for (int i = 0; i < count; i++)
            known |= strlen(inputs[i].name) == n && !strncmp(inputs[i].name, map->item[m], n);
        if (!known)
            return PARE_FAIL(ctx, INPUT,
                             "%s: --map %s: the model has no input of this name; its first "
                             "is '%s'",
                             path, map->item[m], count ? inputs[0].name : "(none)");
    }
    return PARE_OK;
}

static pare_status inputs_of(pare_arena *arena, const pare_model *model, pare_data_input **out,
                             int *count)
{
    pare_value **inputs = pare_model_inputs(arena, model, count);
    if (!inputs) return PARE_MEMORY;
    *out = pare_arena_alloc(arena, (size_t)*count, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (int i = 0; i < *count; i++)
        (*out)[i] = (pare_data_input){
            .name = inputs[i]->name, .dtype = inputs[i]->dtype, .shape = inputs[i]->shape};
    return PARE_OK;
}

static pare_status parse_range(pare_ctx *ctx, const pare_source_options *options, int64_t all,
                               int64_t *first, int64_t *last)
{
    *first = 0;
    *last = all;
    if (!options->range) return PARE_OK;
    char *end;
    const char *text = options->range;
    *first = strtoll(text, &end, 10);
    if (end == text || *end != ':')
        return PARE_FAIL(ctx, USAGE, "--range %s: expected A:B, the samples from A to B-1", text);
    text = end + 1;
    if (*text)
        *last = strtoll(text, &end, 10);
    else
        end = (char *)text;
    if (*end)
        return PARE_FAIL(ctx, USAGE, "--range %s: expected A:B, the samples from A to B-1",
                         options->range);
    if (*first < 0 || *last > all || *first > *last)
        return PARE_FAIL(ctx, INPUT,
                         "%s: --range %s: expected 0 <= A < B <= %lld, the number of "
                         "samples in the file",
                         options->data, options->range, (long long)all);
    return PARE_OK;
}

/* Fisher and Yates with SplitMix64 (Steele, Lea, Flood 2014). */
static void shuffle(int64_t *item, int64_t n, uint64_t seed)
{
    for (int64_t i = n - 1; i > 0; i--) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        int64_t j = (int64_t)((z ^ (z >> 31)) % (uint64_t)(i + 1)), t = item[i];
        item[i] = item[j];
        item[j] = t;
    }
}

static pare_status refuse_none(pare_ctx *ctx, const pare_source_options *options, int64_t own)
{
    char advice[48] = "";
    if (own > 1) snprintf(advice, sizeof advice, ", %lld are advised", (long long)own);
    return PARE_FAIL(ctx, INPUT, "%s: 0 samples%s; at least one is needed%s", options->data,
                     options->samples == 0 ? " were asked for (--samples)"
                     : options->range      ? " are in this range (--range)"
                                           : " in the file",
                     advice);
}

/* own: how many a command takes where it is not told; below 0: all. */
static pare_status choose(pare_tool *tool, pare_source *out, const pare_source_options *options,
                          int64_t own)
{
    int64_t first, last, wanted = options->samples >= 0 ? options->samples : own;
    PARE_TRY(parse_range(tool->ctx, options, pare_data_count(out->data), &first, &last));
    if (options->samples > last - first && last > first)
        pare_log(tool->ctx, PARE_LOG_WARNING, "%s: has %lld samples%s, %lld were asked for",
                 options->data, (long long)(last - first), options->range ? " in this range" : "",
                 (long long)options->samples);
    if (wanted < 0 || wanted > last - first) wanted = last - first;
    if (!wanted) return refuse_none(tool->ctx, options, own);
    out->samples = pare_arena_alloc(&tool->arena, (size_t)wanted, sizeof *out->samples);
    if (!out->samples) return PARE_MEMORY;
    pare_data_spread(first, last, wanted, out->samples);
    if (options->shuffle >= 0) shuffle(out->samples, wanted, (uint64_t)options->shuffle);
    out->count = wanted;
    return PARE_OK;
}

pare_status pare_check_same_data(pare_tool *tool, const char *path)
{
    pare_hash content;
    if (!tool->comm) return PARE_OK;
    PARE_TRY(pare_file_hash_quick(tool->ctx, path, &content));
    const char *what = pare_arena_printf(&tool->arena, "data file '%s'", path);
    return what ? pare_comm_same(tool->comm, what, &content, sizeof content) : PARE_MEMORY;
}

pare_status pare_source_open_inputs(pare_tool *tool, pare_source *out, const char *path,
                                    pare_data_input *inputs, int count,
                                    const pare_source_options *options, int64_t own)
{
    *out = (pare_source){.inputs = inputs, .input_count = count, .ctx = tool->ctx};
    PARE_TRY(check_map(tool->ctx, &options->map, inputs, count, path));
    for (int i = 0; i < count; i++) inputs[i].dataset = mapped(&options->map, inputs[i].name);
    PARE_TRY(pare_data_open_isolated(tool->ctx, &out->data, options->data, inputs, count));
    pare_status st = choose(tool, out, options, own);
    if (st == PARE_OK) st = pare_check_same_data(tool, options->data);
    if (st != PARE_OK) pare_source_close(out);
    return st;
}

pare_status pare_source_open_first(pare_tool *tool, pare_source *out, const pare_model *model,
                                   const pare_source_options *options, int64_t own)
{
    pare_data_input *inputs;
    int count;
    *out = (pare_source){.ctx = tool->ctx};
    PARE_TRY(inputs_of(&tool->arena, model, &inputs, &count));
    return pare_source_open_inputs(tool, out, model->path, inputs, count, options, own);
}

pare_status pare_source_open(pare_tool *tool, pare_source *out, const pare_model *model,
                             const pare_source_options *options, int64_t own)
{
    PARE_TRY(pare_source_open_first(tool, out, model, options, own));
    pare_status st = pare_tool_open_device(tool);
    if (st != PARE_OK) pare_source_close(out);
    return st;
}

pare_status pare_check_samples(pare_ctx *ctx, const pare_model *model, const char *input,
                               const pare_shape *shape)
{
    char text[256];
    const pare_value *v = pare_graph_find_own(model->graph, input);
    if (shape->rank < 1 || shape->dim[0] != 0 || (v && v->shape.rank > 0 && v->shape.dim[0] == 0))
        return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "%s: input '%s' is given shape %s: 0 samples; at least one is needed",
                     model->path, input, pare_shape_text(shape, text, sizeof text));
}

static int ascending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void pare_source_sort(pare_source *source)
{
    qsort(source->samples, (size_t)source->count, sizeof *source->samples, ascending);
}

void pare_source_close(pare_source *source)
{
    if (source->data) pare_data_close(source->data);
    source->data = NULL;
}

json_t *pare_source_json(const pare_source *source, const pare_source_options *options)
{
    json_t *json = json_pack("{s:o, s:I}", "file", pare_json_text(options->data), "samples",
                             (json_int_t)source->count);
    if (options->range) json_object_set_new(json, "range", pare_json_text(options->range));
    return json;
}
