/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/json.h"
#include "tools/serve/config_fields.h"

static const char *const kinds[PARE_CONTROL_KINDS] = {
    "CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_END",
    "CONTROL_SEQUENCE_CORRID"};

/* A control's values, by the type they come in. */
static const struct {
    const char *key;
    pare_dtype dtype;
} value_types[] = {
    {"int32_false_true", PARE_s32}, {"fp32_false_true", PARE_f32}, {"bool_false_true", PARE_bool}};

/* --- control inputs --- */

static double number_of(const json_t *value)
{
    return json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
}

static pare_status read_values(reader *r, const json_t *control, pare_config_control *out)
{
    for (int i = 0; i < 3; i++) {
        const json_t *list = json_object_get(control, value_types[i].key);
        if (json_array_size(list) != 2) continue;
        out->dtype = value_types[i].dtype;
        for (size_t k = 0; k < 2; k++) out->value[k] = number_of(json_array_get(list, k));
        return PARE_OK;
    }
    return PARE_FAIL(r->ctx, INPUT,
                     "%s: control_input '%s': %s: expected int32_false_true, fp32_false_true or "
                     "bool_false_true with two values",
                     r->path, out->input, kinds[out->kind]);
}

static pare_status read_id_type(reader *r, const json_t *control, pare_config_control *out)
{
    const char *type = "";
    PARE_TRY(read_text(r, control, "data_type", &type));
    out->dtype = pare_config_type_find(type);
    if (out->dtype == PARE_u64 || out->dtype == PARE_s64 || out->dtype == PARE_u32 ||
        out->dtype == PARE_s32 || out->dtype == PARE_string)
        return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT,
                     "%s: control_input '%s': data_type is '%s', expected TYPE_UINT64, "
                     "TYPE_INT64, TYPE_UINT32, TYPE_INT32 or TYPE_STRING",
                     r->path, out->input, type);
}

static pare_status read_control(reader *r, const json_t *message, pare_config_control *out)
{
    const json_t *control;
    const char *kind = kinds[0];
    if (!json_is_object(message))
        return PARE_FAIL(r->ctx, INPUT, "%s: control_input: expected { ... }", r->path);
    out->input = "";
    PARE_TRY(read_text(r, message, "name", &out->input));
    PARE_TRY(read_message(r, message, "control", &control));
    if (!*out->input || !control)
        return PARE_FAIL(r->ctx, INPUT, "%s: control_input '%s': expected a name and a control",
                         r->path, out->input);
    PARE_TRY(read_text(r, control, "kind", &kind));
    int k = 0;
    while (k < PARE_CONTROL_KINDS && strcmp(kinds[k], kind) != 0) k++;
    if (k == PARE_CONTROL_KINDS)
        return PARE_FAIL(r->ctx, INPUT, "%s: control_input '%s': there is no kind '%s'", r->path,
                         out->input, kind);
    out->kind = (pare_control_kind)k;
    return out->kind == PARE_CONTROL_CORRID ? read_id_type(r, control, out)
                                            : read_values(r, control, out);
}

/* --- states --- */

static pare_status read_initial(reader *r, const json_t *message, pare_config_state *out)
{
    bool zero = true;
    const json_t *initial;
    PARE_TRY(read_message(r, message, "initial_state", &initial));
    out->initial = out->shape;
    if (!initial) return PARE_OK;
    PARE_TRY(read_bool(r, initial, "zero_data", &zero));
    if (!zero || json_object_get(initial, "data_file"))
        return PARE_FAIL(r->ctx, UNSUPPORTED,
                         "%s: state '%s': initial_state: only zero_data is served", r->path,
                         out->input);
    return read_ints(r, initial, "dims", 0, PARE_MAX_RANK, out->initial.dim, &out->initial.rank);
}

static pare_status check_initial(reader *r, const pare_config_state *s)
{
    bool fits = s->initial.rank == s->shape.rank;
    for (int d = 0; fits && d < s->shape.rank; d++)
        fits =
            s->initial.dim[d] >= 0 && (s->shape.dim[d] < 0 || s->shape.dim[d] == s->initial.dim[d]);
    if (fits) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT,
                     "%s: state '%s': expected the dims of its initial_state: those of the state, "
                     "with numbers in place of -1",
                     r->path, s->input);
}

static pare_status read_state(reader *r, const json_t *message, pare_config_state *out)
{
    const char *type = "";
    if (!json_is_object(message))
        return PARE_FAIL(r->ctx, INPUT, "%s: state: expected { ... }", r->path);
    out->input = out->output = "";
    PARE_TRY(read_text(r, message, "input_name", &out->input));
    PARE_TRY(read_text(r, message, "output_name", &out->output));
    PARE_TRY(read_text(r, message, "data_type", &type));
    PARE_TRY(read_ints(r, message, "dims", -1, PARE_MAX_RANK, out->shape.dim, &out->shape.rank));
    out->dtype = pare_config_type_find(type);
    if (!*out->input || !*out->output || out->dtype == PARE_NOTYPE || out->dtype == PARE_string)
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: state '%s': expected input_name, output_name and a data_type of "
                         "numbers, not '%s'",
                         r->path, out->input, type);
    PARE_TRY(read_initial(r, message, out));
    return check_initial(r, out);
}

/* --- all --- */

static pare_status read_strategy(reader *r, const json_t *batching)
{
    int64_t delay = 0;
    const json_t *direct, *oldest;
    pare_serve_config *c = r->config;
    PARE_TRY(read_message(r, batching, "direct", &direct));
    PARE_TRY(read_message(r, batching, "oldest", &oldest));
    if (direct && oldest)
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: sequence_batching: expected direct or oldest, not both", r->path);
    c->sequences.is_oldest = oldest != NULL;
    PARE_TRY(read_int(r, oldest, "max_candidate_sequences", 1, 1000000, &c->sequences.most));
    if (oldest && !c->sequences.most)
        return PARE_FAIL(r->ctx, INPUT, "%s: oldest needs max_candidate_sequences", r->path);
    PARE_TRY(
        read_int(r, oldest ? oldest : direct, "max_queue_delay_microseconds", 0, 60000000, &delay));
    c->delay = delay;
    c->merge = c->max_batch > 0;
    warn_of_others(r, direct, "sequence_batching.direct.",
                   " max_queue_delay_microseconds minimum_slot_utilization ");
    PARE_TRY(warn_of_order(r, oldest, "sequence_batching.oldest"));
    warn_of_others(r, oldest, "sequence_batching.oldest.",
                   " max_candidate_sequences max_queue_delay_microseconds preserve_ordering ");
    return PARE_OK;
}

static pare_status read_lists(reader *r, const json_t *batching)
{
    pare_sequence_config *s = &r->config->sequences;
    const json_t *controls = json_object_get(batching, "control_input");
    const json_t *states = json_object_get(batching, "state");
    s->control_count = (int)json_array_size(controls);
    s->state_count = (int)json_array_size(states);
    s->control = pare_arena_alloc(r->arena, (size_t)s->control_count + 1, sizeof *s->control);
    s->state = pare_arena_alloc(r->arena, (size_t)s->state_count + 1, sizeof *s->state);
    if (!s->control || !s->state) return PARE_MEMORY;
    for (int i = 0; i < s->control_count; i++)
        PARE_TRY(read_control(r, json_array_get(controls, (size_t)i), &s->control[i]));
    for (int i = 0; i < s->state_count; i++)
        PARE_TRY(read_state(r, json_array_get(states, (size_t)i), &s->state[i]));
    return PARE_OK;
}

pare_status pare_sequence_config_read(reader *r, const json_t *root)
{
    const json_t *batching;
    pare_sequence_config *s = &r->config->sequences;
    PARE_TRY(read_message(r, root, "sequence_batching", &batching));
    if (!batching) return PARE_OK;
    if (json_object_get(root, "dynamic_batching"))
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: expected dynamic_batching or sequence_batching, not both", r->path);
    *s = (pare_sequence_config){.is_used = true,
                                .idle = 1000000}; /* as ModelSequenceBatching says */
    PARE_TRY(
        read_int(r, batching, "max_sequence_idle_microseconds", 1, INT64_MAX / 1000, &s->idle));
    PARE_TRY(read_strategy(r, batching));
    warn_of_others(r, batching, "sequence_batching.",
                   " direct oldest max_sequence_idle_microseconds control_input state ");
    return read_lists(r, batching);
}

pare_status pare_sequence_config_copy(pare_arena *arena, pare_sequence_config *out,
                                      const pare_sequence_config *from)
{
    *out = *from;
    out->control = pare_arena_memdup(arena, from->control,
                                     ((size_t)from->control_count + 1) * sizeof *out->control);
    out->state =
        pare_arena_memdup(arena, from->state, ((size_t)from->state_count + 1) * sizeof *out->state);
    if (!out->control || !out->state) return PARE_MEMORY;
    for (int i = 0; i < out->control_count; i++) {
        out->control[i].input = pare_arena_strdup(arena, from->control[i].input);
        if (!out->control[i].input) return PARE_MEMORY;
    }
    for (int i = 0; i < out->state_count; i++) {
        out->state[i].input = pare_arena_strdup(arena, from->state[i].input);
        out->state[i].output = pare_arena_strdup(arena, from->state[i].output);
        if (!out->state[i].input || !out->state[i].output) return PARE_MEMORY;
    }
    return PARE_OK;
}

/* --- JSON --- */

static json_t *dims_json(const pare_shape *shape)
{
    json_t *list = json_array();
    for (int d = 0; d < shape->rank; d++) json_array_append_new(list, json_integer(shape->dim[d]));
    return list;
}

static json_t *control_json(const pare_config_control *c)
{
    char type[32];
    json_t *control = json_pack("{s:s}", "kind", kinds[c->kind]);
    if (c->kind == PARE_CONTROL_CORRID)
        json_object_set_new(control, "data_type",
                            json_string(pare_config_type_name(c->dtype, type, sizeof type)));
    for (int i = 0; i < 3 && c->kind != PARE_CONTROL_CORRID; i++)
        if (c->dtype == value_types[i].dtype)
            json_object_set_new(control, value_types[i].key,
                                c->dtype == PARE_f32 ? json_pack("[f, f]", c->value[0], c->value[1])
                                : c->dtype == PARE_bool
                                    ? json_pack("[b, b]", c->value[0] != 0, c->value[1] != 0)
                                    : json_pack("[i, i]", (int)c->value[0], (int)c->value[1]));
    return json_pack("{s:o, s:[o]}", "name", pare_json_text(c->input), "control", control);
}

static json_t *state_json(const pare_config_state *s)
{
    char type[32];
    (void)pare_config_type_name(s->dtype, type, sizeof type);
    return json_pack("{s:o, s:o, s:s, s:o, s:[{s:s, s:o, s:b}]}", "input_name",
                     pare_json_text(s->input), "output_name", pare_json_text(s->output),
                     "data_type", type, "dims", dims_json(&s->shape), "initial_state", "data_type",
                     type, "dims", dims_json(&s->initial), "zero_data", 1);
}

json_t *pare_sequence_config_json(const pare_sequence_config *config)
{
    json_t *controls = json_array(), *states = json_array();
    for (int i = 0; i < config->control_count; i++)
        json_array_append_new(controls, control_json(&config->control[i]));
    for (int i = 0; i < config->state_count; i++)
        json_array_append_new(states, state_json(&config->state[i]));
    json_t *json = json_pack("{s:I, s:o, s:o}", "max_sequence_idle_microseconds",
                             (json_int_t)config->idle, "control_input", controls, "state", states);
    json_object_set_new(
        json, config->is_oldest ? "oldest" : "direct",
        config->is_oldest ? json_pack("{s:I}", "max_candidate_sequences", (json_int_t)config->most)
                          : json_object());
    return json;
}
