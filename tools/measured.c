/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/measured.h"

#include "formats/json.h"
#include "tools/facts.h"
#include "tools/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double pare_measured_ratio(double predicted_ms, double measured_ms)
{
    return measured_ms > 0 ? predicted_ms / measured_ms : 0;
}

/* Of a profile's step, as the table of predicted steps says it. */
static const char *name_of(const json_t *step)
{
    const char *node = json_string_value(json_object_get(step, "node"));
    return node && *node ? node : json_string_value(json_object_get(step, "output"));
}

/* The first at or behind *from, then before it, that no other step has; NULL: there is none. Both
   lists have mostly the same order. */
static const json_t *step_find(const json_t *steps, bool *taken, const char *name, size_t *from)
{
    const size_t count = json_array_size(steps);
    for (size_t k = 0; k < count; k++) {
        const size_t i = (*from + k) % count;
        const json_t *step = json_array_get(steps, i);
        if (taken[i] || strcmp(name_of(step), name) != 0) continue;
        taken[i] = true;
        *from = i + 1;
        return step;
    }
    return NULL;
}

/* What the prediction does not know is equal. */
static bool shape_is(const json_t *measured, const pare_shape *shape)
{
    if (json_array_size(measured) != (size_t)shape->rank) return false;
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] >= 0 &&
            json_integer_value(json_array_get(measured, (size_t)d)) != shape->dim[d])
            return false;
    return true;
}

static pare_status shape_check(pare_tool *tool, const char *path, const json_t *step,
                               const pare_node *node)
{
    char here[256];
    const json_t *shape = json_object_get(step, "shape");
    if (!node->out_count || !node->out[0] || shape_is(shape, &node->out[0]->shape)) return PARE_OK;
    char *there = json_dumps(shape, JSON_COMPACT);
    const pare_status st =
        PARE_FAIL(tool->ctx, INPUT,
                  "%s: step '%s' made %s where it was measured, %s is predicted: give --batch or "
                  "--shapes of that run",
                  path, name_of(step), there ? there : "another shape",
                  pare_shape_text(&node->out[0]->shape, here, sizeof here));
    free(there);
    return st;
}

static pare_status join(pare_tool *tool, pare_measured *m, const json_t *steps,
                        const pare_roofline *r)
{
    const int count = pare_roofline_count(r);
    size_t from = 0;
    bool *taken = pare_arena_alloc(&tool->arena, json_array_size(steps) + 1, sizeof *taken);
    m->ms = pare_arena_alloc(&tool->arena, (size_t)count + 1, sizeof *m->ms);
    if (!taken || !m->ms) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        const pare_roofline_step *s = pare_roofline_at(r, i);
        json_t *name = pare_json_text(*s->node ? s->node : s->output);
        if (!name) return PARE_FAIL(tool->ctx, MEMORY, "%s: out of memory", m->file);
        const json_t *step = step_find(steps, taken, json_string_value(name), &from);
        json_decref(name);
        m->ms[i] = -1;
        if (!step) continue;
        PARE_TRY(shape_check(tool, m->file, step, pare_roofline_node(r, i)));
        m->ms[i] = fmax(0, json_number_value(json_object_get(step, "time_ms")));
        m->common++;
        m->common_ms += m->ms[i];
        m->predicted_ms += 1e3 * s->seconds;
    }
    return PARE_OK;
}

static pare_status fill(pare_tool *tool, pare_measured *m, const json_t *profile,
                        const pare_model *model, const pare_roofline *r)
{
    const char *command = json_string_value(json_object_get(profile, "command"));
    const json_t *steps = json_object_get(profile, "steps");
    if (strcmp(command, "profile") != 0)
        return PARE_FAIL(tool->ctx, INPUT,
                         "%s: facts of pare %s, expected what bench --profile writes", m->file,
                         command);
    m->steps = (int)json_array_size(steps);
    m->all_ms = json_number_value(json_object_get(profile, "time_ms"));
    m->device = pare_arena_printf(&tool->arena, "%s",
                                  json_string_value(json_object_get(profile, "device")));
    if (!m->device) return PARE_MEMORY;
    PARE_TRY(join(tool, m, steps, r));
    if (m->common) return PARE_OK;
    return PARE_FAIL(tool->ctx, INPUT, "%s: of its %d steps of %s none is one of %s", m->file,
                     m->steps, json_string_value(json_object_get(profile, "model")), model->path);
}

pare_status pare_measured_read(pare_tool *tool, pare_measured *out, const char *path,
                               const pare_model *model, const pare_roofline *r)
{
    json_t *profile;
    *out = (pare_measured){.file = path};
    PARE_TRY(pare_facts_read(tool->ctx, &profile, path));
    const pare_status st = fill(tool, out, profile, model, r);
    json_decref(profile);
    return st;
}

json_t *pare_measured_json(const pare_measured *m)
{
    json_t *json = json_pack("{s:o, s:s, s:i, s:f, s:i, s:f, s:f}", "file", pare_json_text(m->file),
                             "device", m->device, "steps", m->steps, "time_ms", m->all_ms, "common",
                             m->common, "common_ms", m->common_ms, "predicted_ms", m->predicted_ms);
    if (m->common_ms > 0)
        json_object_set_new(json, "ratio",
                            json_real(pare_measured_ratio(m->predicted_ms, m->common_ms)));
    return json;
}

void pare_measured_print(const pare_measured *m)
{
    char ratio[32] = "";
    if (m->common_ms > 0)
        snprintf(ratio, sizeof ratio, ", ratio %.2f",
                 pare_measured_ratio(m->predicted_ms, m->common_ms));
    pare_print(stdout, "%-14s%.4f ms in %d steps on %s (%s)\n", "measured", m->all_ms, m->steps,
               m->device, m->file);
    pare_print(stdout, "%-14s%d steps: %.4f ms predicted, %.4f ms measured%s\n", "in common",
               m->common, m->predicted_ms, m->common_ms, ratio);
}
