/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/ensemble/ensemble.h"

#include "formats/json.h"
#include "tools/serve/served.h"

#include <string.h>

/* --- inputs and outputs --- */

/* Ports as config.pbtxt has them, with the axis of samples in front where there is one. */
static pare_status make_ports(pare_served *s, const pare_config_tensor *said, int count,
                              pare_port **out)
{
    const int skip = s->options.config.max_batch > 0;
    *out = pare_arena_alloc(&s->arena, (size_t)count + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        pare_port *port = &(*out)[i];
        port->name = pare_arena_strdup(&s->arena, said[i].name);
        if (!port->name) return PARE_MEMORY;
        for (int k = 0; k < i; k++)
            if (!strcmp((*out)[k].name, port->name))
                return PARE_FAIL(&s->ctx, INPUT, "%s: tensor '%s' is listed twice", s->options.path,
                                 port->name);
        if (said[i].shape.rank + skip > PARE_MAX_RANK)
            return PARE_FAIL(&s->ctx, INPUT, "%s: tensor '%s' has too many axes", s->options.path,
                             port->name);
        port->dtype = said[i].dtype;
        port->shape.rank = said[i].shape.rank + skip;
        if (skip) port->shape.dim[0] = -1;
        memcpy(port->shape.dim + skip, said[i].shape.dim,
               (size_t)said[i].shape.rank * sizeof *port->shape.dim);
        if (said[i].labels)
            PARE_TRY(
                pare_labels_read(&s->arena, &port->labels, said[i].labels_path, said[i].labels));
    }
    return PARE_OK;
}

/* --- tensors --- */

static int find_tensor(const pare_ensemble *e, const char *name)
{
    int i = 0;
    while (i < e->tensor_count && strcmp(e->tensor[i].name, name) != 0) i++;
    return i < e->tensor_count ? i : -1;
}

/* A tensor that comes with the request or is made by a step. name: of the arena. */
static pare_status add_tensor(pare_served *s, const char *name, int maker, int *out)
{
    pare_ensemble *e = s->ensemble;
    if (find_tensor(e, name) >= 0)
        return PARE_FAIL(&s->ctx, INPUT, "%s: step %d makes tensor '%s', which is there already",
                         s->options.path, maker, name);
    *out = e->tensor_count;
    e->tensor[e->tensor_count++] = (pare_ensemble_tensor){.name = name, .maker = maker};
    return PARE_OK;
}

/* --- steps --- */

static pare_status make_outputs(pare_served *s, int i, const pare_config_step *said)
{
    pare_ensemble_step *step = &s->ensemble->step[i];
    step->output = pare_arena_alloc(&s->arena, (size_t)said->output_count + 1, sizeof(int));
    step->output_name = pare_arena_alloc(&s->arena, (size_t)said->output_count + 1, sizeof(char *));
    if (!step->output || !step->output_name) return PARE_MEMORY;
    for (int k = 0; k < said->output_count; k++) {
        const char *name = pare_arena_strdup(&s->arena, said->output[k].tensor);
        step->output_name[k] = pare_arena_strdup(&s->arena, said->output[k].port);
        if (!name || !step->output_name[k]) return PARE_MEMORY;
        PARE_TRY(add_tensor(s, name, i, &step->output[k]));
    }
    step->output_count = said->output_count;
    return PARE_OK;
}

static pare_status make_inputs(pare_served *s, int i, const pare_config_step *said)
{
    pare_ensemble_step *step = &s->ensemble->step[i];
    step->input = pare_arena_alloc(&s->arena, (size_t)said->input_count + 1, sizeof(int));
    step->input_name = pare_arena_alloc(&s->arena, (size_t)said->input_count + 1, sizeof(char *));
    if (!step->input || !step->input_name) return PARE_MEMORY;
    for (int k = 0; k < said->input_count; k++) {
        step->input_name[k] = pare_arena_strdup(&s->arena, said->input[k].port);
        if (!step->input_name[k]) return PARE_MEMORY;
        step->input[k] = find_tensor(s->ensemble, said->input[k].tensor);
        if (step->input[k] < 0)
            return PARE_FAIL(&s->ctx, INPUT,
                             "%s: step %d (model '%s'): takes tensor '%s', which no step makes and "
                             "no request brings",
                             s->options.path, i, step->model, said->input[k].tensor);
    }
    step->input_count = said->input_count;
    return PARE_OK;
}

static pare_status make_steps(pare_served *s)
{
    const pare_serve_config *c = &s->options.config;
    pare_ensemble *e = s->ensemble;
    e->step = pare_arena_alloc(&s->arena, (size_t)c->step_count, sizeof *e->step);
    if (!e->step) return PARE_MEMORY;
    e->step_count = c->step_count;
    for (int i = 0; i < c->step_count; i++) {
        e->step[i].version = c->step[i].version < 1 ? 0 : c->step[i].version;
        e->step[i].model = pare_arena_strdup(&s->arena, c->step[i].model);
        if (!e->step[i].model) return PARE_MEMORY;
        PARE_TRY(make_outputs(s, i, &c->step[i]));
    }
    for (int i = 0; i < c->step_count; i++) PARE_TRY(make_inputs(s, i, &c->step[i]));
    return PARE_OK;
}

/* --- the ensemble --- */

static pare_status make_tensors(pare_served *s)
{
    const pare_serve_config *c = &s->options.config;
    pare_ensemble *e = s->ensemble;
    size_t count = (size_t)s->input_count;
    for (int i = 0; i < c->step_count; i++) count += (size_t)c->step[i].output_count;
    e->tensor = pare_arena_alloc(&s->arena, count + 1, sizeof *e->tensor);
    e->output = pare_arena_alloc(&s->arena, (size_t)s->output_count + 1, sizeof *e->output);
    if (!e->tensor || !e->output) return PARE_MEMORY;
    for (int i = 0, at; i < s->input_count; i++) PARE_TRY(add_tensor(s, s->input[i].name, -1, &at));
    PARE_TRY(make_steps(s));
    for (int i = 0; i < s->output_count; i++) {
        e->output[i] = find_tensor(e, s->output[i].name);
        if (e->output[i] < 0)
            return PARE_FAIL(&s->ctx, INPUT, "%s: no step makes output '%s'", s->options.path,
                             s->output[i].name);
    }
    return PARE_OK;
}

pare_status pare_ensemble_fill(pare_served *s)
{
    pare_serve_config *c = &s->options.config;
    const pare_batcher_options none = {.rows = 1, .limit = 1}; /* its steps wait, not it */
    if (c->is_auto) c->max_batch = 0;
    c->merge = false;
    if (!c->input_count || !c->output_count)
        return PARE_FAIL(&s->ctx, INPUT, "%s: an ensemble's config.pbtxt lists input and output",
                         s->options.path);
    s->ensemble = pare_arena_alloc(&s->arena, 1, sizeof *s->ensemble);
    if (!s->ensemble) return PARE_MEMORY;
    PARE_TRY(make_ports(s, c->input, c->input_count, &s->input));
    PARE_TRY(make_ports(s, c->output, c->output_count, &s->output));
    s->input_count = c->input_count;
    s->output_count = c->output_count;
    PARE_TRY(make_tensors(s));
    PARE_TRY(pare_ensemble_check(s));
    return pare_batcher_new(&s->ctx, &s->batcher, &none);
}

static json_t *map_json(const pare_ensemble *e, const char *const *names, const int *tensors,
                        int count)
{
    json_t *map = json_object();
    for (int i = 0; i < count; i++)
        json_object_set_new(map, names[i], pare_json_text(e->tensor[tensors[i]].name));
    return map;
}

json_t *pare_ensemble_json(const pare_ensemble *e)
{
    json_t *list = json_array();
    for (int i = 0; i < e->step_count; i++) {
        const pare_ensemble_step *step = &e->step[i];
        json_array_append_new(
            list,
            json_pack("{s:o, s:I, s:o, s:o}", "model_name", pare_json_text(step->model),
                      "model_version", (json_int_t)(step->version ? step->version : -1),
                      "input_map", map_json(e, step->input_name, step->input, step->input_count),
                      "output_map",
                      map_json(e, step->output_name, step->output, step->output_count)));
    }
    return json_pack("{s:o}", "step", list);
}
