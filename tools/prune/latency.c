/* SPDX-License-Identifier: Apache-2.0 */
/* pare prune --latency: the option's text, and what is said of the times of the smaller model. */
#include "tools/prune/structured.h"

#include "tools/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

pare_status pare_prune_parse_latency(pare_ctx *ctx, const char *text, double *fraction,
                                     double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } unit[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    char *end;
    double value = strtod(text, &end);
    bool number = end != text && value > 0 && isfinite(value);
    *fraction = *seconds = 0;
    for (int i = 0; number && i < 3; i++)
        if (!strcmp(end, unit[i].name)) *seconds = value * unit[i].seconds;
    if (number && !*end && value <= 1) *fraction = value;
    if (*seconds > 0 || *fraction > 0) return PARE_OK;
    return PARE_FAIL(ctx, USAGE,
                     "prune: --latency %s: expected the part of the time that is kept, above 0 and "
                     "at most 1, or a time as 3.2ms (us, ms, s)",
                     text);
}

static double number_of(const json_t *row, const char *what, const char *when)
{
    return json_number_value(json_object_get(json_object_get(row, what), when));
}

/* The layers that took most before. */
static void say_layers(const json_t *row)
{
    enum { TOLD = 8 };
    const json_t *layers = json_object_get(row, "layers"), *layer;
    double below = INFINITY;
    for (int told = 0; told < TOLD; told++) {
        const json_t *next = NULL;
        size_t i;
        json_array_foreach(layers, i, layer)
        {
            double ms = number_of(layer, "time_ms", "before");
            if (ms > 0 && ms < below && (!next || ms > number_of(next, "time_ms", "before")))
                next = layer;
        }
        if (!next) return;
        below = number_of(next, "time_ms", "before");
        pare_print(stderr, "  %-36s %9.2f -> %9.2f M multiply-adds, %8.1f -> %8.1f us\n",
                   json_string_value(json_object_get(next, "node")),
                   1e-6 * json_number_value(json_object_get(next, "before")),
                   1e-6 * json_number_value(json_object_get(next, "after")), 1e3 * below,
                   1e3 * number_of(next, "time_ms", "after"));
    }
}

void pare_prune_latency_log(const pare_structured *s, const json_t *row)
{
    const pare_pruner_latency *l = &s->facts->latency;
    if (!s->o->common.quiet) {
        pare_print(stderr,
                   "%.4g ms before, %.4g ms after: %.1f %% of the time (target %.1f %%, forecast "
                   "%.1f %%)\n",
                   l->before_ms, l->after_ms, 100 * l->measured, 100 * l->goal, 100 * l->forecast);
        say_layers(row);
    }
    if (!l->stable)
        pare_log(s->tool->ctx, PARE_LOG_WARNING,
                 "%s: medians of the runs say otherwise than the quickest tenth: other work shares "
                 "the cores, or the clock changes; prune again when it is quiet",
                 s->model->path);
    if (l->met) return;
    if (l->measured > l->goal && l->at_limit)
        pare_log(
            s->tool->ctx, PARE_LOG_WARNING,
            "%s: latency cannot come down to %.1f %% of the dense model's; %.1f %% is the "
            "least that single layers' times, --min-channels, --round, --keep and what is tied "
            "together allow, and is written; %.0f %% of the time goes into steps without channels "
            "to remove",
            s->model->path, 100 * l->goal, 100 * l->measured, 100 * l->fixed);
    else
        pare_log(s->tool->ctx, PARE_LOG_WARNING,
                 "%s: %.1f %% of the dense model's time, target %.1f %%: the nearest of %d "
                 "searches is written",
                 s->model->path, 100 * l->measured, 100 * l->goal, l->rounds);
}

void pare_prune_latency_layer(const pare_pruner *pruner, const pare_node *node, json_t *row)
{
    double before, after;
    if (!pare_pruner_step_seconds(pruner, node, &before, &after)) return;
    json_object_set_new(row, "time_ms",
                        json_pack("{s:f, s:f}", "before", 1e3 * before, "after", 1e3 * after));
}

json_t *pare_prune_latency_json(const pare_structured *s)
{
    const pare_pruner_latency *l = &s->facts->latency;
    return json_pack("{s:f, s:f, s:f, s:b, s:f, s:f, s:i, s:b, s:I, s:s}", "goal", l->goal,
                     "forecast", l->forecast, "measured", l->measured, "met", l->met, "before_ms",
                     l->before_ms, "after_ms", l->after_ms, "searches", l->rounds, "stable",
                     l->stable, "shapes_measured", (json_int_t)l->shapes_measured, "device",
                     s->options.device ? s->options.device->name : "cpu");
}
