/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/group_facts.h"

#include "formats/json.h"
#include "runtime/ops/ops.h"
#include "tools/text.h"

#include <stdio.h>
#include <string.h>

/* --- facts --- */

static const char *name_of(const pare_node *node)
{
    if (*node->name) return node->name;
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i]) return node->out[i]->name;
    return "";
}

static bool lists(const json_t *list, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)list, i,
                       item) if (!strcmp(json_string_value(item), name)) return true;
    return false;
}

static void add_node(json_t *list, const pare_node *node)
{
    json_t *name = node ? pare_json_text(name_of(node)) : NULL;
    if (name && !lists(list, json_string_value(name)))
        json_array_append_new(list, name);
    else
        json_decref(name);
}

/* The nodes that use the group's constants, and those that hand its channels on. */
static void add_nodes(const pare_groups *g, const pare_dependency_group *group, json_t *makes,
                      json_t *reads, json_t *passes)
{
    for (int i = 0; i < group->slot_count; i++) {
        const pare_channel_axis *s = &g->slot[group->slot[i]];
        json_t *to = s->role == PARE_AXIS_MAKES ? makes : reads;
        for (int k = 0; s->role != PARE_AXIS_FLOWS && k < s->value->user_count; k++)
            add_node(to, s->value->user[k]);
    }
    for (int i = 0; i < group->slot_count; i++) {
        const pare_channel_axis *s = &g->slot[group->slot[i]];
        json_t *name =
            s->role == PARE_AXIS_FLOWS && s->node ? pare_json_text(name_of(s->node)) : NULL;
        if (name && !lists(makes, json_string_value(name))) add_node(passes, s->node);
        json_decref(name);
    }
}

static json_t *slots_json(const pare_groups *g, const pare_dependency_group *group)
{
    static const char *const role[] = {"flows", "makes", "reads"};
    const pare_coupled_channels *c = &g->coupled[group->first];
    json_t *list = json_array();
    for (int i = 0; i < c->channel_count;) {
        const pare_channel_axis *s = &g->slot[c->channel[i].slot];
        int n = 0, at = c->channel[i].slot;
        for (; i < c->channel_count && c->channel[i].slot == at; i++) n++;
        json_array_append_new(list, json_pack("{s:o, s:i, s:I, s:i, s:s}", "tensor",
                                              pare_json_text(s->value->name), "axis", s->axis,
                                              "units", (json_int_t)s->extent, "units_each", n,
                                              "role", role[s->role]));
    }
    return list;
}

static json_t *group_json(const pare_groups *g, const pare_dependency_group *group)
{
    json_t *makes = json_array(), *reads = json_array(), *passes = json_array();
    add_nodes(g, group, makes, reads, passes);
    return json_pack("{s:o, s:i, s:i, s:o, s:o, s:o, s:o}", "name", pare_json_text(group->name),
                     "components", group->count, "parts", group->parts, "makes", makes, "reads",
                     reads, "passes", passes, "slots", slots_json(g, group));
}

/* The rows of a node's first matrix: of operators that no rule describes. */
static int any_slot(const pare_groups *g, const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (!v || !v->is_init || !pare_type_is_float(v->dtype)) continue;
        if (v->shape.rank < 2) continue;
        int slot = pare_groups_axis(g, v, v->shape.rank - 2, 1);
        if (slot >= 0) return slot;
    }
    return -1;
}

/* The axis of its weight along which a node makes channels; -1 for nodes without a weight. */
static int made_slot(const pare_groups *g, const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    pare_weighted w;
    if (!op || op->prune.kind == PARE_PRUNE_STOPS) return any_slot(g, node);
    if (op->quant.kind != PARE_QUANT_WEIGHTED || op->quant.weighted(node, &w) != PARE_OK) return -1;
    const pare_value *weight = pare_node_in(node, w.w);
    if (!weight || !weight->is_init || weight->shape.rank < 2) return -1;
    int slot = pare_groups_axis(g, weight, w.axis, 1);
    return slot >= 0 ? slot : pare_groups_axis(g, weight, w.axis, pare_node_int(node, "group", 1));
}

/* A weighted node, all or some of whose output channels stay, and the first reason. */
static json_t *stays_json(const pare_groups *g, const pare_node *node, int slot)
{
    const pare_block *why = NULL;
    int64_t stay = 0;
    for (int64_t u = 0; u < g->slot[slot].extent; u++) {
        if (pare_groups_coupled(g, slot, u) >= 0) continue;
        if (!stay++) why = pare_groups_why(g, slot, u);
    }
    if (!stay) return NULL;
    return json_pack("{s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:i, s:s}", "node",
                     pare_json_text(name_of(node)), "operator", pare_json_text(node->op_type),
                     "channels", (json_int_t)g->slot[slot].extent, "stay", (json_int_t)stay, "by",
                     pare_json_text(why && why->node ? name_of(why->node) : NULL), "by_operator",
                     pare_json_text(why && why->node ? why->node->op_type : NULL), "tensor",
                     pare_json_text(why && why->value ? why->value->name : NULL), "axis",
                     why ? why->axis : 0, "why", why ? why->why : "no weight follows");
}

json_t *pare_groups_json(const pare_groups *groups)
{
    json_t *list = json_array(), *stays = json_array();
    const pare_graph *graph = groups->model->graph;
    for (int i = 0; i < groups->group_count; i++)
        json_array_append_new(list, group_json(groups, &groups->group[i]));
    for (int n = 0; n < graph->node_count; n++) {
        int slot = made_slot(groups, graph->node[n]);
        json_t *item = slot < 0 ? NULL : stays_json(groups, graph->node[n], slot);
        if (item) json_array_append_new(stays, item);
    }
    return json_pack("{s:i, s:o, s:o}", "components", groups->coupled_count, "group", list, "stays",
                     stays);
}

/* --- words --- */

enum { INDENT = 14, COLUMNS = 100, SHORT_LIST = 8 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long int_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void print_list(const char *title, const json_t *list, bool all)
{
    size_t count = json_array_size(list);
    size_t shown = all || count <= SHORT_LIST + 1 ? count : SHORT_LIST;
    int at = INDENT;
    if (!count) return;
    pare_print(stdout, "  %-*s", INDENT - 2, title);
    for (size_t i = 0; i < shown; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (at + (int)strlen(name) + 2 > COLUMNS && at > INDENT)
            at = pare_print(stdout, "\n%*s", INDENT, "") - 1;
        at += pare_print(stdout, "%s%s", name, i + 1 < count ? ", " : "");
    }
    if (shown < count) pare_print(stdout, "and %zu more", count - shown);
    pare_print(stdout, "\n");
}

/* How many channels of its first weight a coupled set holds: 64 of a head. */
static long long channels_each(const json_t *group)
{
    size_t i;
    json_t *slot;
    json_array_foreach(
        json_object_get(group, "slots"), i,
        slot) if (!strcmp(text_of(slot, "role"), "makes")) return int_of(slot, "units_each");
    return 1;
}

static void print_group(size_t number, const json_t *group, bool all)
{
    long long each = channels_each(group), parts = int_of(group, "parts");
    char title[32];
    snprintf(title, sizeof title, "group %zu", number);
    pare_print(stdout, "%-*s%lld %s", INDENT, title, int_of(group, "components"),
               each > 1 ? "parts" : "channels");
    if (each > 1) pare_print(stdout, " of %lld channels each", each);
    pare_print(stdout, ", from %s", text_of(group, "name"));
    if (parts > 1) pare_print(stdout, "; equally many of each of its %lld parts", parts);
    pare_print(stdout, "\n");
    print_list("made by", json_object_get(group, "makes"), all);
    print_list("pass", json_object_get(group, "passes"), all);
    print_list("read by", json_object_get(group, "reads"), all);
}

static void print_stays(const json_t *item)
{
    long long stay = int_of(item, "stay"), channels = int_of(item, "channels");
    const char *by = text_of(item, "by");
    pare_print(stdout, "  %s (%s): ", text_of(item, "node"), text_of(item, "operator"));
    if (stay == channels)
        pare_print(stdout, "all %lld channels, ", channels);
    else
        pare_print(stdout, "%lld of %lld channels, ", stay, channels);
    if (*by)
        pare_print(stdout, "%s (%s) %s\n", by, text_of(item, "by_operator"), text_of(item, "why"));
    else
        pare_print(stdout, "%s%s%s\n", text_of(item, "tensor"), *text_of(item, "tensor") ? " " : "",
                   text_of(item, "why"));
}

void pare_groups_print(const json_t *json, bool all)
{
    const json_t *list = json_object_get(json, "group"), *stays = json_object_get(json, "stays");
    size_t i;
    json_t *item;
    pare_print(stdout, "%-*s%zu, with %lld parts that can be removed\n", INDENT, "groups",
               json_array_size(list), int_of(json, "components"));
    json_array_foreach((json_t *)list, i, item) print_group(i + 1, item, all);
    if (!json_array_size(stays)) return;
    pare_print(stdout, "what stays\n");
    json_array_foreach((json_t *)stays, i, item) print_stays(item);
}
