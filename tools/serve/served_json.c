/* SPDX-License-Identifier: Apache-2.0 */
/* What a served model says of itself. */
#include "tools/serve/traffic/sequences.h"

#include "formats/json.h"

#include <string.h>

/* Free axes are -1; `skip` axes are left out in front. */
static json_t *shape_json(const pare_shape *shape, int skip)
{
    json_t *list = json_array();
    for (int i = skip; i < shape->rank; i++)
        json_array_append_new(list, json_integer(shape->dim[i] < 0 ? -1 : shape->dim[i]));
    return list;
}

static json_t *metadata_list(const pare_port *ports, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        const char *type = pare_infer_type_name(ports[i].dtype);
        if (ports[i].is_own) continue;
        json_array_append_new(
            list, json_pack("{s:o, s:s, s:o}", "name", pare_json_text(ports[i].name), "datatype",
                            type ? type : "", "shape", shape_json(&ports[i].shape, 0)));
    }
    return list;
}

json_t *pare_served_metadata(const pare_served *s, json_t *versions)
{
    return json_pack("{s:o, s:o, s:s, s:o, s:o}", "name", pare_json_text(s->name), "versions",
                     versions, "platform", s->ensemble ? "ensemble" : "pare_onnx", "inputs",
                     metadata_list(s->input, s->input_count), "outputs",
                     metadata_list(s->output, s->output_count));
}

static json_t *config_list(const pare_port *ports, int count, int skip)
{
    char type[32];
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        if (ports[i].is_own) continue;
        json_t *port =
            json_pack("{s:o, s:s, s:o}", "name", pare_json_text(ports[i].name), "data_type",
                      pare_infer_type_name(ports[i].dtype)
                          ? pare_config_type_name(ports[i].dtype, type, sizeof type)
                          : "TYPE_INVALID",
                      "dims", shape_json(&ports[i].shape, skip));
        if (ports[i].labels)
            json_object_set_new(port, "label_filename", pare_json_text(ports[i].labels->file));
        json_array_append_new(list, port);
    }
    return list;
}

static json_t *policy_json(const pare_serve_config *c)
{
    if (c->latest > 0)
        return json_pack("{s:{s:I}}", "latest", "num_versions", (json_int_t)c->latest);
    if (!c->latest) return json_pack("{s:{}}", "all");
    json_t *list = json_array();
    for (int i = 0; i < c->specific_count; i++)
        json_array_append_new(list, json_integer(c->specific[i]));
    return json_pack("{s:{s:o}}", "specific", "versions", list);
}

static json_t *batching_json(const pare_serve_config *c)
{
    json_t *preferred = json_array();
    for (int i = 0; i < c->preferred_count; i++)
        json_array_append_new(preferred, json_integer(c->preferred[i]));
    return json_pack("{s:o, s:I, s:I, s:I, s:{s:s, s:I, s:b, s:I}}", "preferred_batch_size",
                     preferred, "max_queue_delay_microseconds", (json_int_t)c->delay,
                     "priority_levels", (json_int_t)c->levels, "default_priority_level",
                     (json_int_t)c->level, "default_queue_policy", "timeout_action", "REJECT",
                     "default_timeout_microseconds", (json_int_t)c->timeout,
                     "allow_timeout_override", c->own_timeout, "max_queue_size",
                     (json_int_t)c->queue);
}

/* A group for each processor, or for those that have a stage each. */
static json_t *instances_json(const pare_served *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->site_count; i++) {
        const pare_site *p = &s->site[i];
        json_t *group =
            json_pack("{s:o, s:s, s:I}", "name", pare_json_text(s->name), "kind",
                      p->gpu ? "KIND_GPU" : "KIND_CPU", "count", (json_int_t)p->instances);
        json_t *gpus = json_array();
        for (int k = 0; k < p->stages; k++)
            json_array_append_new(gpus, json_integer(p->stage[k]->device->index));
        if (p->gpu) json_object_set(group, "gpus", gpus);
        json_decref(gpus);
        json_array_append_new(list, group);
    }
    return list;
}

static json_t *parameters_json(const pare_served *s)
{
    char shares[PARE_SHARES_TEXT];
    const pare_shares *traffic = &s->options.config.shares;
    json_t *parameters = json_object();
    if (traffic->count)
        json_object_set_new(parameters, "traffic_weight",
                            json_pack("{s:s}", "string_value", pare_shares_text(traffic, shares)));
    if (s->options.config.is_pipeline)
        json_object_set_new(parameters, "parallel", json_pack("{s:s}", "string_value", "pipeline"));
    if (s->preprocess)
        json_object_set_new(
            parameters, "preprocess",
            json_pack("{s:o}", "string_value", pare_json_text(s->preprocess->text)));
    return parameters;
}

static json_t *ensemble_config(const pare_served *s)
{
    const pare_serve_config *c = &s->options.config;
    const int skip = c->max_batch > 0;
    return json_pack("{s:o, s:s, s:o, s:I, s:o, s:o, s:o}", "name", pare_json_text(s->name),
                     "platform", "ensemble", "version_policy", policy_json(c), "max_batch_size",
                     (json_int_t)c->max_batch, "input", config_list(s->input, s->input_count, skip),
                     "output", config_list(s->output, s->output_count, skip), "ensemble_scheduling",
                     pare_ensemble_json(s->ensemble));
}

json_t *pare_served_config(const pare_served *s)
{
    if (s->ensemble) return ensemble_config(s);
    const pare_serve_config *c = &s->options.config;
    const int skip = c->max_batch > 0;
    const char *slash = strrchr(s->options.path, '/');
    json_t *config = json_pack(
        "{s:o, s:s, s:s, s:o, s:I, s:o, s:o, s:o, s:o}", "name", pare_json_text(s->name),
        "platform", "pare_onnx", "backend", "pare", "version_policy", policy_json(c),
        "max_batch_size", (json_int_t)c->max_batch, "input",
        config_list(s->input, s->input_count, skip), "output",
        config_list(s->output, s->output_count, skip), "instance_group", instances_json(s),
        "default_model_filename", pare_json_text(slash ? slash + 1 : s->options.path));
    json_t *parameters = parameters_json(s);
    if (json_object_size(parameters)) json_object_set(config, "parameters", parameters);
    json_decref(parameters);
    if (s->sequences)
        json_object_set_new(config, "sequence_batching",
                            pare_sequence_config_json(pare_sequences_config(s->sequences)));
    else if (c->merge)
        json_object_set_new(config, "dynamic_batching", batching_json(c));
    return config;
}
