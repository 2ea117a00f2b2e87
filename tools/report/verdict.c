/* SPDX-License-Identifier: Apache-2.0 */
/* One sentence for each model. */
#include "runtime/eval/stats.h"
#include "tools/report/report.h"
#include "tools/report/gather.h"

#include <math.h>
#include <string.h>

const char *pare_report_name(const json_t *model, char *text, size_t size)
{
    const char *own = json_string_value(json_object_get(model, "name"));
    const char *path = json_string_value(json_object_get(model, "file"));
    if (own) {
        snprintf(text, size, "%s", own);
        return text;
    }
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
    const char *dot = name ? strrchr(name, '.') : NULL;
    snprintf(text, size, "%.*s", dot && dot != name ? (int)(dot - name) : (int)size - 1,
             name ? name : "a model");
    return text;
}

/* Is there an interval of what is kept? */
static bool kept_of(const json_t *model, pare_interval *out)
{
    *out = (pare_interval){pare_report_number(model, "kept_interval.0", NAN),
                           pare_report_number(model, "kept_interval.1", NAN)};
    return !isnan(out->low);
}

const char *pare_report_floor(const json_t *model, double floor)
{
    pare_interval kept;
    if (!kept_of(model, &kept)) return "";
    switch (pare_stats_floor(kept, floor)) {
    case PARE_FLOOR_MET: return "good";
    case PARE_FLOOR_MISSED: return "bad";
    default: return "";
    }
}

static void add_accuracy(pare_text *t, const json_t *model, const char *than, double floor)
{
    const double kept = pare_report_number(model, "kept", NAN);
    const double db = pare_report_number(model, "outputs.0.sqnr_db", NAN);
    const char *word = pare_report_floor(model, floor);
    pare_interval i;
    if (!isnan(kept) && kept_of(model, &i)) {
        pare_text_add(t, " keeps %.2f %% [%.2f, %.2f] of the top-1 of ", kept, i.low, i.high);
        pare_text_add_escaped(t, than);
        pare_text_add(t, ": the floor of %g %% is %s", floor,
                      !strcmp(word, "good")  ? "met"
                      : !strcmp(word, "bad") ? "missed"
                                             : "neither met nor missed on so few samples");
    } else if (!isnan(db)) {
        pare_text_add(t, " differs from ");
        pare_text_add_escaped(t, than);
        pare_text_add(t, " with an SQNR of %.1f dB", db);
    } else {
        pare_text_add(t, ": its accuracy was not measured");
    }
}

static void add_time(pare_text *t, const json_t *model)
{
    const double speed = pare_report_number(model, "speed_up", NAN);
    const double ms = pare_report_number(model, "latency_ms.median", NAN);
    if (isnan(ms)) {
        pare_text_add(t, "; its latency was not measured");
        return;
    }
    if (isnan(speed))
        pare_text_add(t, "; a run takes %.3g ms", ms);
    else
        pare_text_add(t, "; %.2f&times; as fast", speed);
    if (!isnan(pare_report_number(model, "speed_up_interval.0", NAN)))
        pare_text_add(t, " [%.2f, %.2f]", pare_report_number(model, "speed_up_interval.0", 0),
                      pare_report_number(model, "speed_up_interval.1", 0));
    if (json_is_true(json_object_get(model, "emulated"))) pare_text_add(t, " (emulated)");
    if (json_is_false(json_object_get(model, "stable"))) pare_text_add(t, " (unstable)");
}

void pare_report_verdict(pare_text *t, const json_t *first, const json_t *model, double floor)
{
    char name[128], than[128];
    const double smaller =
        pare_report_number(first, "bytes", NAN) / pare_report_number(model, "bytes", NAN);
    pare_text_add(t, "<b>");
    pare_text_add_escaped(t, pare_report_name(model, name, sizeof name));
    pare_text_add(t, "</b>");
    add_accuracy(t, model, pare_report_name(first, than, sizeof than), floor);
    if (isfinite(smaller)) pare_text_add(t, "; %.1f&times; smaller", smaller);
    add_time(t, model);
    pare_text_add(t, ".");
}
