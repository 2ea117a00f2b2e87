/* SPDX-License-Identifier: Apache-2.0 */
/* Models of a report: their verdicts, and their one table as text, Markdown and HTML. */
#include "tools/chart.h"
#include "tools/report/page.h"
#include "tools/report/report.h"
#include "tools/telemetry.h"

#include <math.h>
#include <string.h>

enum {
    SHOWN = 24,
    FEW = 6
}; /* verdicts of each kind that are not folded away; of more than SHOWN */

/* --- verdicts --- */

static size_t count_made(const json_t *comparisons, const char *made)
{
    size_t n = 0;
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);)
        n += m.k > 0 && !strcmp(pare_report_words(m.model, "made"), made);
    return n;
}

static void verdicts_of(pare_text *t, const json_t *comparisons, const char *made,
                        const char *heading, double floor)
{
    const size_t count = count_made(comparisons, made), most = count > SHOWN ? FEW : SHOWN;
    size_t shown = 0;
    if (!count) return;
    pare_text_add(t, "<h3>%s</h3>\n<ul class=\"verdicts\">\n", heading);
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        if (!m.k || strcmp(pare_report_words(m.model, "made"), made) != 0) continue;
        if (shown++ == most)
            pare_text_add(t, "</ul><details><summary>%zu more</summary><ul class=\"verdicts\">\n",
                          count - most);
        pare_text_add(t, "<li class=\"%s\">", pare_report_floor(m.model, floor));
        pare_report_verdict(t, PARE_HTML, json_array_get(json_object_get(m.one, "models"), 0),
                            m.model, floor);
        pare_text_add(t, "</li>\n");
    }
    pare_text_add(t, "</ul>%s\n", count > SHOWN ? "</details>" : "");
}

void pare_parts_verdicts(pare_text *t, const json_t *comparisons, double floor)
{
    verdicts_of(t, comparisons, "calibrated only", "Calibrated only", floor);
    verdicts_of(t, comparisons, "pruned or tuned", "Pruned or tuned", floor);
    verdicts_of(t, comparisons, "original", "Not made by pare", floor);
}

/* --- the table --- */

/* What a row's name is made of, beside its facts. */
typedef struct place {
    size_t group;
    bool whole; /* the file's name, which tells models apart */
} place;

static void stem_of(const json_t *model, char *text, size_t size)
{
    const char *name = json_string_value(json_object_get(model, "name"));
    pare_report_stem(name ? name : pare_report_words(model, "file"), text, size);
}

/* In text the network's name, which precisions tell apart; where they do not, the file's of all
   that are compared with the first. */
static void name_cell(pare_cell *cell)
{
    const place *at = cell->extra;
    char name[128];
    if (cell->medium == PARE_HTML) {
        cell->title = pare_report_words(cell->row, "file");
        pare_text_html(cell->text, "<span class=\"dot\" style=\"background:var(--c%zu)\"></span>%s",
                       at->group % PARE_CHART_COLOURS,
                       pare_report_name(cell->row, name, sizeof name));
        return;
    }
    if (at->whole)
        pare_report_name(cell->row, name, sizeof name);
    else
        stem_of(cell->row, name, sizeof name);
    for (char *c = name; *c; c++)
        if (*c == '|') *c = '/';
    pare_text_put(cell->text, PARE_PLAIN, "%s", name);
}

static void kept_cell(pare_cell *cell)
{
    const double kept = pare_cell_number(cell);
    if (isnan(kept)) return;
    pare_text_add(cell->text, "%.2f&nbsp;%%", kept);
    if (!isnan(pare_report_number(cell->row, "kept_interval.0", NAN)))
        pare_text_add(cell->text, " <span class=\"soft\">[%.2f, %.2f]</span>",
                      pare_report_number(cell->row, "kept_interval.0", 0),
                      pare_report_number(cell->row, "kept_interval.1", 0));
}

static void front_cell(pare_cell *cell)
{
    if (json_is_true(json_object_get(cell->row, "front"))) pare_text_add(cell->text, "yes");
}

/* Comparisons with labels and without have different columns. */
enum { LABELS = 1, BARE = 2 };

static const pare_column columns[] = {
    PARE_COLUMN("net", "model", NULL, name_cell, .left = true),
    PARE_COLUMN(NULL, "made", "made", pare_cell_words),
    PARE_COLUMN("precision", "precision", "precision", pare_cell_words),
    PARE_COLUMN("size", "size", "bytes", pare_cell_bytes),
    PARE_COLUMN("top-1 %", "top-1", "top1", pare_cell_fixed, 2, " %", LABELS),
    PARE_COLUMN("drop [95 %]", "drop, points [95&nbsp;%]", NULL, pare_cell_drop, .when = LABELS),
    PARE_COLUMN(NULL, "kept [95&nbsp;%]", "kept", kept_cell, .when = LABELS),
    PARE_COLUMN("McNemar p", "McNemar p", "mcnemar.p", pare_cell_significant, 2, "", LABELS),
    PARE_COLUMN("agree %", NULL, "agreement", pare_cell_fixed, 2, "", LABELS),
    PARE_COLUMN(NULL, "agreement", "agreement", pare_cell_fixed, 2, " %"),
    PARE_COLUMN("SQNR dB", "SQNR", "outputs.0.sqnr_db", pare_cell_fixed, 1, " dB"),
    PARE_COLUMN("cosine", "cosine", "outputs.0.cosine", pare_cell_fixed, 6, "", BARE),
    PARE_COLUMN("MSE", NULL, "outputs.0.mse", pare_cell_significant, 3, "", BARE),
    PARE_COLUMN("max error", NULL, "outputs.0.max_abs_error", pare_cell_significant, 3, "", BARE),
    PARE_COLUMN("latency ms", "latency", NULL, pare_cell_latency),
    PARE_COLUMN("speed-up", "speed-up", "speed_up", pare_cell_times),
    PARE_COLUMN(NULL, "front", NULL, front_cell),
    {0},
};

void pare_parts_models(pare_text *t, const json_t *comparisons, bool labels)
{
    pare_grid grid;
    if (!json_array_size(comparisons)) return;
    pare_text_add(t, "<h2>Every model</h2>\n");
    pare_grid_html(&grid, t, columns, labels ? LABELS : BARE, "sort dense", "Every model");
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);)
        pare_grid_row(&grid, m.model, &(place){.group = m.group}, m.k ? NULL : "first");
    pare_grid_end(&grid, "");
}

/* Are there two models of one network and precision? */
static bool look_alike(const json_t *models)
{
    char key[192];
    json_t *seen = json_object(), *model;
    size_t i;
    json_array_foreach((json_t *)models, i, model)
    {
        stem_of(model, key, 128);
        const size_t n = strlen(key);
        snprintf(key + n, sizeof key - n, "\n%s", pare_report_words(model, "precision"));
        json_object_set_new_nocheck(seen, key, json_true());
    }
    const bool alike = json_object_size(seen) < json_array_size(models);
    json_decref(seen);
    return alike;
}

static void fill(pare_grid *grid, pare_arena *arena, const json_t *comparisons, bool labels)
{
    bool alike = false;
    pare_grid_table(grid, arena, columns, labels ? LABELS : BARE);
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        if (isnan(pare_report_number(m.one, "models.0.top1", NAN)) == labels) continue;
        if (!m.k) alike = look_alike(json_object_get(m.one, "models"));
        pare_grid_row(grid, m.model, &(place){.whole = alike && m.k}, NULL);
    }
}

/* --- text --- */

static bool any_model(const json_t *comparisons, const char *key, bool value)
{
    const json_t *found;
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);)
        if ((found = json_object_get(m.model, key)) != NULL && json_is_true(found) == value)
            return true;
    return false;
}

/* A line for each GPU; the CPU is not named. */
static void print_devices(const json_t *comparisons, FILE *file)
{
    char name[320], last[320] = "", vitals[512];
    size_t i;
    json_t *facts;
    json_array_foreach((json_t *)comparisons, i, facts)
    {
        const json_t *device = json_object_get(facts, "device");
        if (!json_object_get(device, "cuda")) continue;
        pare_device_text(device, name, sizeof name);
        if (!strcmp(name, last)) continue;
        memcpy(last, name, sizeof last);
        pare_telemetry_text(device, vitals, sizeof vitals);
        pare_print(file, "on %s%s%s\n", name, *vitals ? ": " : "", vitals);
    }
}

static void print_marks(const json_t *comparisons, FILE *file)
{
    if (any_model(comparisons, "emulated", true))
        pare_print(file, "~ the CPU emulates this 16-bit arithmetic: the latency predicts no other "
                         "hardware\n");
    if (any_model(comparisons, "stable", false))
        pare_print(file,
                   "* unstable: other work shared the cores, or too few runs; 'notes' of --json "
                   "say why\n");
    if (pare_report_drifted(comparisons))
        pare_print(file,
                   "the first model's latency changed by more than 5 %% between comparisons: it "
                   "is shown as it was\nat first; each speed-up is against the one measured in "
                   "turns with that model\n");
}

void pare_report_print(pare_arena *arena, const json_t *comparisons, FILE *file)
{
    for (int labels = 1; labels >= 0; labels--) {
        pare_grid grid;
        fill(&grid, arena, comparisons, labels);
        if (grid.rows) pare_table_print(&grid.table, file);
    }
    print_devices(comparisons, file);
    print_marks(comparisons, file);
}

/* --- Markdown --- */

void pare_report_markdown_add(pare_text *t, pare_arena *arena, const json_t *comparisons,
                              double floor)
{
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        if (!m.k) continue;
        pare_text_add(t, "- ");
        pare_report_verdict(t, PARE_MARKDOWN, json_array_get(json_object_get(m.one, "models"), 0),
                            m.model, floor);
        pare_text_put(t, PARE_MARKDOWN, " (%s)\n", pare_report_words(m.model, "made"));
    }
    for (int labels = 1; labels >= 0; labels--) {
        pare_grid grid;
        fill(&grid, arena, comparisons, labels);
        if (grid.rows) pare_table_markdown(&grid.table, t);
    }
}

pare_status pare_report_markdown(pare_arena *arena, const json_t *comparisons, double floor,
                                 const char *path)
{
    pare_text t = {.ctx = arena->ctx};
    pare_text_add(&t, "# What smaller and faster cost\n\n");
    pare_report_markdown_add(&t, arena, comparisons, floor);
    return pare_page_write(&t, path);
}
