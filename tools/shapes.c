/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shapes.h"

#include "tools/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "in=32x1x28x28" or "in:32x1x28x28" up to `end`; a name may hold both, the last one counts. */
static pare_status parse_shape(pare_ctx *ctx, pare_arena *arena, const char *option,
                               const char *text, const char *end, pare_input_shape *out)
{
    const char *colon = end, *at;
    while (colon > text && *colon != ':' && *colon != '=') colon--;
    out->name = pare_arena_strndup(arena, text, (size_t)(colon - text));
    if (!out->name) return PARE_MEMORY;
    out->shape = (pare_shape){0};
    for (at = colon + 1; at < end || at == colon + 1;) {
        char *behind;
        errno = 0;
        long long dim = strtoll(at, &behind, 10);
        if (colon == text || behind == at || behind > end || dim < 0 || errno ||
            (behind < end && (*behind != 'x' || behind + 1 == end)) ||
            out->shape.rank == PARE_MAX_RANK)
            return PARE_FAIL(ctx, USAGE, "%s %s: expected NAME:AxBxC, up to %d dims", option, text,
                             PARE_MAX_RANK);
        out->shape.dim[out->shape.rank++] = dim;
        at = behind + (behind < end);
    }
    return PARE_OK;
}

/* Is it an input of the model, and the first time that it is given? */
static pare_status check_name(pare_tool *tool, const pare_model *model, const char *option,
                              const pare_input_shape *one, const pare_input_shape *before,
                              int before_count, const char *text)
{
    int count, i = 0;
    pare_value **inputs = pare_model_inputs(&tool->arena, model, &count);
    if (!inputs) return PARE_MEMORY;
    while (i < count && strcmp(inputs[i]->name, one->name) != 0) i++;
    if (i == count)
        return PARE_FAIL(tool->ctx, INPUT, "%s: has no input '%s' (%s); its first is '%s'",
                         model->path, one->name, option, count ? inputs[0]->name : "(none)");
    for (i = 0; i < before_count; i++)
        if (!strcmp(before[i].name, one->name))
            return PARE_FAIL(tool->ctx, USAGE, "%s %s: input '%s' is given twice", option, text,
                             one->name);
    return PARE_OK;
}

pare_status pare_shapes_parse(pare_tool *tool, const pare_model *model, const char *option,
                              const pare_list *list, pare_input_shape **out, int *count)
{
    size_t capacity = 0;
    *out = NULL;
    *count = 0;
    for (int s = 0; s < list->count; s++)
        for (const char *at = list->item[s]; *at;) {
            pare_input_shape one;
            const char *end = at + strcspn(at, ",");
            PARE_TRY(parse_shape(tool->ctx, &tool->arena, option, at, end, &one));
            PARE_TRY(check_name(tool, model, option, &one, *out, *count, list->item[s]));
            if (!pare_arena_grow(&tool->arena, out, &capacity, (size_t)*count, sizeof **out))
                return PARE_MEMORY;
            (*out)[(*count)++] = one;
            at = *end ? end + 1 : end;
        }
    return PARE_OK;
}

pare_status pare_shapes_choose(pare_tool *tool, const pare_model *model,
                               const pare_input_shape *given, int given_count,
                               pare_input_shape **out, int *count)
{
    pare_value **inputs = pare_model_inputs(&tool->arena, model, count);
    pare_input_shape *shapes = pare_arena_alloc(&tool->arena, (size_t)*count + 1, sizeof *shapes);
    if (!inputs || !shapes) return PARE_MEMORY;
    for (int i = 0; i < *count; i++) {
        const pare_shape *asked = pare_input_shape_find(given, given_count, inputs[i]->name);
        if (inputs[i]->dtype == PARE_NOTYPE)
            return PARE_FAIL(tool->ctx, INPUT,
                             "%s: input '%s' is a sequence or an optional; inputs are tensors",
                             model->path, inputs[i]->name);
        if (!asked && inputs[i]->shape.rank < 0)
            return PARE_FAIL(tool->ctx, INPUT,
                             "%s: input '%s' has no known rank; give --shapes %s:AxB", model->path,
                             inputs[i]->name, inputs[i]->name);
        shapes[i] = (pare_input_shape){inputs[i]->name, asked ? *asked : inputs[i]->shape};
        for (int d = 0; d < shapes[i].shape.rank; d++)
            if (shapes[i].shape.dim[d] < 0) shapes[i].shape.dim[d] = 1;
        PARE_TRY(pare_check_samples(tool->ctx, model, shapes[i].name, &shapes[i].shape));
    }
    *out = shapes;
    return PARE_OK;
}

int64_t pare_shapes_samples(const pare_model *model, const pare_plan *plan,
                            const pare_input_shape *shapes, int count)
{
    if (!count || shapes[0].shape.rank < 1) return 1;
    const int64_t n = shapes[0].shape.dim[0];
    const pare_value *x = pare_graph_find_own(model->graph, shapes[0].name);
    const pare_shape *y = &pare_plan_output(plan, 0)->shape;
    const bool fixed = x && x->shape.rank > 0 && x->shape.dim[0] > 0;
    return !fixed || (y->rank > 0 && y->dim[0] == n) ? n : 1;
}
