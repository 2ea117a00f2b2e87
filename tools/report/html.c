/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML file: verdicts, picture, tables, what was done and what was not measured. All of it is
   there without scripts; nothing is fetched. */
#include "tools/report/report.h"

#include "tools/embedded.h"
#include "tools/report/chart.h"
#include "tools/report/gather.h"
#include "tools/report/page.h"
#include "tools/report/parts.h"

#include <math.h>

static bool any_labels(const json_t *comparisons)
{
    size_t i, k;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
    {
        if (!isnan(pare_report_number(model, "top1", NAN))) return true;
    }
    return false;
}

static void headline(pare_text *t, const json_t *comparisons, const char *title)
{
    const size_t nets = json_array_size(comparisons);
    size_t models = 0, i;
    json_t *one;
    const json_t *first = NULL;
    json_array_foreach((json_t *)comparisons, i, one)
    {
        models += json_array_size(json_object_get(one, "models"));
        if (!first && json_object_get(one, "data")) first = one;
    }
    pare_text_add(t, "<h1>%s</h1>\n<p class=\"soft\">", title);
    pare_text_add(t, "%zu network%s, %zu model%s", nets, nets == 1 ? "" : "s", models,
                  models == 1 ? "" : "s");
    if (first) {
        pare_text_add(t, ", ");
        pare_page_samples(t, json_object_get(first, "data"));
    }
    pare_page_device(t, json_object_get(first, "device"));
    pare_text_add(t, "</p>\n");
}

static void notes(pare_text *t, const json_t *comparisons)
{
    const double threads = pare_report_number(comparisons, "0.models.0.threads", 1);
    const json_t *device = json_object_get(json_array_get(comparisons, 0), "device");
    char place[64];
    pare_text_add(t, "<h2>How to read it</h2>\n");
    if (any_labels(comparisons))
        pare_text_add(
            t,
            "<p class=\"soft\">Drop: top-1 of the first model minus that of this one, in points, "
            "on the same samples, with Newcombe&#39;s paired 95&nbsp;%% interval (method 10, "
            "1998). An interval that holds zero means that no loss was measured. Kept: this "
            "top-1 over the first model&#39;s, with the interval of Bonett and Price (2006); a "
            "floor is met or missed where the whole interval says so. McNemar p: how likely such a "
            "difference is "
            "where both are equally good. Agreement: same first class as the first model.</p>\n");
    pare_text_add(
        t,
        "<p class=\"soft\">SQNR: power of the first model&#39;s outputs over that of the "
        "difference. Latency: median of one sample on %s, all models of a network in "
        "turns, with bootstrap intervals over stretches of runs; * marks one that was unstable, "
        "&dagger; one whose 16-bit arithmetic the CPU emulates: its accuracy is that of hardware "
        "with such arithmetic, its latency is not. The dashed line joins the models that no other "
        "one beats in both; circles are fp32, squares int8, triangles fp16, diamonds bf16.</p>\n",
        pare_page_place(device, threads, place, sizeof place));
    if (pare_report_drifted(comparisons))
        pare_text_add(t, "<p class=\"soft\">The first model was timed with each other one in "
                         "turns, and its latency changed by more than 5&nbsp;%% in between: it is "
                         "shown as it was at first; each speed-up is against its own.</p>\n");
}

static void scripts(pare_text *t, const json_t *comparisons, bool picture)
{
    if (picture) {
        pare_chart_island(t, comparisons);
        if (*pare_embedded_chart)
            pare_text_add(t, "<script>%s</script>\n", (const char *)pare_embedded_chart);
    }
    pare_text_add(t, "<script>%s</script>\n", (const char *)pare_embedded_script);
}

pare_status pare_report_write_with(pare_ctx *ctx, const json_t *facts, const json_t *comparisons,
                                   double floor, const char *path, const pare_report_lead *lead)
{
    pare_text t = {.ctx = ctx};
    if (pare_page_is_picture(path)) return pare_chart_write(ctx, comparisons, path);
    pare_page_begin(&t, "pare report");
    headline(&t, comparisons, lead->title);
    pare_text_add(&t, "%s", lead->below ? lead->below : "");
    pare_parts_verdicts(&t, comparisons, floor);
    pare_text_add(&t, "%s", lead->behind ? lead->behind : "");
    const bool picture = pare_chart_add(&t, comparisons);
    pare_parts_models(&t, comparisons, any_labels(comparisons));
    pare_parts_layers(&t, comparisons);
    if (json_array_size(comparisons) <= 1) pare_parts_histograms(&t, facts);
    pare_parts_memory(&t, comparisons);
    pare_parts_lanes(&t, facts);
    pare_parts_done(&t, facts);
    pare_parts_missing(&t, comparisons);
    notes(&t, comparisons);
    scripts(&t, comparisons, picture);
    return pare_page_end(&t, path);
}

pare_status pare_report_write(pare_ctx *ctx, const json_t *facts, const json_t *comparisons,
                              double floor, const char *path)
{
    return pare_report_write_with(ctx, facts, comparisons, floor, path,
                                  &(pare_report_lead){.title = "What smaller and faster cost"});
}
