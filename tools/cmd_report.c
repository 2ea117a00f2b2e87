/* SPDX-License-Identifier: Apache-2.0 */
/* pare report: tables and a page from the facts of any commands. */
#include "formats/json.h"
#include "tools/commands.h"
#include "tools/facts.h"
#include "tools/load/results.h"
#include "tools/prune/report.h"
#include "tools/report/report.h"
#include "tools/report/page.h"
#include "tools/results.h"

#include <string.h>

typedef struct report_options {
    pare_common common;
    const char *output, *csv, *markdown;
    double floor;
} report_options;

#define OPTIONS report_options
static const pare_option table[] = {
    PARE_OPT_SHORT('o', OUTPUT, "output", "report.html", output,
                   "HTML file to write; .svg: the picture alone"),
    PARE_OPT_OUTPUT("csv", "rows.csv", csv,
                    "write a row for each model, with the columns of --append"),
    PARE_OPT_OUTPUT("md", "report.md", markdown, "write verdicts and tables as Markdown"),
    PARE_OPT_REAL("floor", "PERCENT", floor, 0, 1000,
                  "how much of the first model's top-1 a verdict asks for (99)"),
    {0},
};

static const report_options defaults = {.floor = PARE_REPORT_FLOOR};

/* Facts of one pruning with its comparison have a page of their own. */
static bool is_pruning(const json_t *facts)
{
    const char *command = json_string_value(json_object_get(facts, "command"));
    return command && !strcmp(command, "prune") && pare_prune_fits(facts);
}

static pare_status read_all(pare_tool *tool, json_t *all)
{
    for (int i = 0; i < tool->arg_count; i++) {
        json_t *facts;
        PARE_TRY(pare_facts_read(tool->ctx, &facts, tool->arg[i]));
        if (!strcmp(pare_report_words(facts, "command"), "load"))
            json_object_set_new(facts, "source", pare_json_text(tool->arg[i]));
        if (json_array_append_new(all, facts)) return PARE_MEMORY;
    }
    return PARE_OK;
}

pare_status pare_report_csv(pare_ctx *ctx, const json_t *comparisons, const char *path)
{
    pare_text text = {.ctx = ctx};
    pare_results_table(&text, comparisons, "");
    return pare_page_write(&text, path);
}

static size_t print_loads(pare_tool *tool, const json_t *facts)
{
    size_t i, n = 0;
    json_t *one;
    json_array_foreach((json_t *)facts, i, one)
    {
        if (strcmp(pare_report_words(one, "command"), "load") != 0) continue;
        pare_print(stdout, "load  %s at %s\n", pare_report_words(one, "model"),
                   pare_report_words(one, "url"));
        pare_load_print(&tool->arena, one, tool->common->quiet);
        n++;
    }
    return n;
}

static void print_all(pare_tool *tool, const report_options *o, const json_t *facts,
                      const json_t *comparisons)
{
    size_t tables = json_array_size(comparisons);
    pare_report_print(&tool->arena, comparisons, stdout);
    tables += print_loads(tool, facts);
    tables += pare_report_print_shadows(&tool->arena, facts, stdout);
    if (!tables && !o->output && !o->csv && !o->markdown)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "%s: nothing here has a table; the page says what was done (-o report.html)",
                 tool->arg[0]);
}

static pare_status write_all(pare_tool *tool, const report_options *o, const json_t *facts,
                             const json_t *comparisons)
{
    const json_t *first = json_array_get(facts, 0);
    const bool pruning = json_array_size(facts) == 1 && is_pruning(first);
    if (o->csv) PARE_TRY(pare_report_csv(tool->ctx, comparisons, o->csv));
    if (o->markdown)
        PARE_TRY(pare_report_markdown(&tool->arena, comparisons, o->floor, o->markdown));
    if (pruning) return pare_prune_show(tool, first, stdout, o->output);
    print_all(tool, o, facts, comparisons);
    if (!o->output) return PARE_OK;
    return pare_report_write(tool->ctx, facts, comparisons, o->floor, o->output, NULL);
}

static pare_status run(pare_tool *tool, const void *options)
{
    json_t *facts = json_array(), *comparisons = NULL;
    pare_status st = read_all(tool, facts);
    if (st == PARE_OK) comparisons = pare_report_gather(facts);
    if (st == PARE_OK) st = write_all(tool, options, facts, comparisons);
    if (st == PARE_OK) json_object_set(tool->facts, "comparisons", comparisons);
    json_decref(comparisons);
    json_decref(facts);
    return st;
}

const pare_command pare_command_report = {
    .name = "report",
    .arguments = "FACTS.json... [-o report.html]",
    .min = 1,
    .max = -1,
    .summary = "show what commands wrote with --json as tables and one HTML file",
    .detail =
        "What validate compared is first; what others say of the same models (bench, "
        "inspect, quantize,\n"
        "prune, distill, and bench's --profile) is put beside it. The page holds all it "
        "needs, and reads\n"
        "without scripts. What load found has a picture of its own, serve's shadows a table.\n"
        "One 'prune --json' with a comparison, alone, has a page of its own.",
    .example = "pare report resnet.json vit.json -o report.html",
    .options = table,
    .size = sizeof(report_options),
    .defaults = &defaults,
    .run = run,
};
