/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/tables.h"

#include "formats/json.h"
#include "tools/report/report.h"
#include "tools/table.h"
#include "tools/text.h"

#include <math.h>
#include <string.h>

/* In the order in which findings are listed. */
enum { CLASS, GOAL, DROP, SQNR, LATENCY, SIZE, KINDS };
static const char *const kinds[KINDS] = {"class", "goal", "drop", "sqnr_db", "latency_ms", "bytes"};

typedef struct comparing {
    const json_t *before, *after; /* summaries */
    json_t *worse[KINDS], *better[KINDS];
    json_t *notes;
    int found; /* of the task at hand */
} comparing;

/* --- findings --- */

static void find(comparing *c, bool worse, int kind, const json_t *task, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void find(comparing *c, bool worse, int kind, const json_t *task, const char *format, ...)
{
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_array_append_new(worse ? c->worse[kind] : c->better[kind],
                          json_pack("{s:O, s:O, s:s, s:o}", "model", json_object_get(task, "model"),
                                    "variant", json_object_get(task, "variant"), "what",
                                    kinds[kind], "text", pare_json_text(text)));
    c->found++;
}

static void note(comparing *c, const char *text)
{
    size_t i;
    json_t *one;
    json_array_foreach(c->notes, i, one)
    {
        if (!strcmp(json_string_value(one), text)) return;
    }
    json_array_append_new(c->notes, pare_json_text(text));
}

static double number_of(const json_t *row, const char *path)
{
    return pare_report_number(row, path, NAN);
}

/* --- what is compared --- */

static bool has_failed(const json_t *row)
{
    const char *class = pare_report_words(row, "class");
    return strcmp(class, "done") != 0 && strcmp(class, "goal missed") != 0;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool same_data(comparing *c, const json_t *a, const json_t *b)
{
    const char *x = name_of(pare_report_words(a, "data")),
               *y = name_of(pare_report_words(b, "data"));
    if (!strcmp(x, y) && number_of(a, "samples") == number_of(b, "samples")) return true;
    note(c, "accuracy is not compared where it was measured on other data");
    return false;
}

/* Was this goal set alike? Those of a pruning are part of the variant. */
static bool same_goal(comparing *c, const char *goal)
{
    const double x = number_of(json_object_get(c->before, "goals"), goal);
    const double y = number_of(json_object_get(c->after, "goals"), goal);
    if (!strncmp(goal, "prune", 5) || x == y) return true;
    note(c, "goals that were changed are not compared");
    return false;
}

static const json_t *find_goal(const json_t *row, const char *goal)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(row, "goals"), i, one)
    {
        if (!strcmp(pare_report_words(one, "goal"), goal)) return one;
    }
    return NULL;
}

/* Goals that one row misses and the other does not. */
static void compare_goals(comparing *c, const json_t *task, const json_t *misses,
                          const json_t *other, bool worse)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(misses, "goals"), i, one)
    {
        const char *goal = pare_report_words(one, "goal");
        char text[192];
        if (find_goal(other, goal) || !same_goal(c, goal)) continue;
        find(c, worse, GOAL, task, "%s: %s", worse ? "missed now" : "reached now, was",
             pare_zoo_goal_text(one, text, sizeof text));
    }
}

static void compare_drop(comparing *c, const json_t *a, const json_t *b)
{
    const double was = number_of(a, "drop"), is = number_of(b, "drop");
    const double low = number_of(a, "drop_interval.0"), high = number_of(a, "drop_interval.1");
    if (is > high || is < low)
        find(c, is > high, DROP, b, "%+.2f -> %+.2f points, outside [%+.2f, %+.2f]", was, is, low,
             high);
}

/* dB; null: no difference at all. */
static double db_of(const json_t *row)
{
    return json_is_null(json_object_get(row, "sqnr_db")) ? INFINITY : number_of(row, "sqnr_db");
}

static void compare_sqnr(comparing *c, const json_t *a, const json_t *b)
{
    enum { TENTHS = 10 }; /* without an interval: what tables show */
    const double was = db_of(a), is = db_of(b);
    const double low = pare_report_number(a, "sqnr_interval.0", was - 1.0 / TENTHS);
    const double high = pare_report_number(a, "sqnr_interval.1", was + 1.0 / TENTHS);
    if (was != is && (is < low || is > high))
        find(c, is < low, SQNR, b, "%.1f -> %.1f dB", was, is);
}

static void compare_latency(comparing *c, const json_t *a, const json_t *b)
{
    const double was = number_of(a, "latency_ms"), is = number_of(b, "latency_ms");
    const bool slower = number_of(b, "latency_interval.0") > number_of(a, "latency_interval.1");
    const bool faster = number_of(b, "latency_interval.1") < number_of(a, "latency_interval.0");
    if (!slower && !faster) return;
    if (strcmp(pare_report_words(a, "device"), pare_report_words(b, "device")) != 0)
        note(c, "latency is not compared where it was measured on another device");
    else
        find(c, slower, LATENCY, b, "%.3g -> %.3g ms (%+.0f %%), the intervals do not touch", was,
             is, 100 * (is / was - 1));
}

static void compare_size(comparing *c, const json_t *a, const json_t *b)
{
    const double was = number_of(a, "bytes"), is = number_of(b, "bytes");
    if (is > was || is < was)
        find(c, is > was, SIZE, b, "%.0f -> %.0f bytes (%+.1f %%)", was, is, 100 * (is / was - 1));
}

static void compare_task(comparing *c, const json_t *a, const json_t *b)
{
    const bool failed = has_failed(a), fails = has_failed(b);
    c->found = 0;
    if (failed != fails)
        find(c, fails, CLASS, b, "%s -> %s%s%.256s", pare_report_words(a, "class"),
             pare_report_words(b, "class"), fails ? ": " : "",
             fails ? pare_report_words(b, "message") : "");
    if (failed || fails) return;
    compare_goals(c, b, b, a, true);
    compare_goals(c, b, a, b, false);
    if (same_data(c, a, b)) {
        compare_drop(c, a, b);
        compare_sqnr(c, a, b);
    }
    compare_latency(c, a, b);
    compare_size(c, a, b);
}

/* --- all tasks --- */

/* Rows by "model\nvariant". */
static json_t *index_rows(const json_t *summary)
{
    json_t *index = json_object(), *row;
    size_t i;
    json_array_foreach(json_object_get(summary, "tasks"), i, row)
    {
        json_t *key = json_sprintf("%s\n%s", pare_report_words(row, "model"),
                                   pare_report_words(row, "variant"));
        json_object_set(index, json_string_value(key), row);
        json_decref(key);
    }
    return index;
}

static json_t *task_json(const json_t *row)
{
    return json_pack("{s:O, s:O}", "model", json_object_get(row, "model"), "variant",
                     json_object_get(row, "variant"));
}

/* The tasks that index does not have. */
static json_t *only_in(const json_t *summary, const json_t *index)
{
    json_t *list = json_array(), *row;
    size_t i;
    json_array_foreach(json_object_get(summary, "tasks"), i, row)
    {
        json_t *key = json_sprintf("%s\n%s", pare_report_words(row, "model"),
                                   pare_report_words(row, "variant"));
        if (!json_object_get(index, json_string_value(key)))
            json_array_append_new(list, task_json(row));
        json_decref(key);
    }
    return list;
}

static json_t *joined(json_t *const *lists)
{
    json_t *all = json_array();
    for (int k = 0; k < KINDS; k++) {
        json_array_extend(all, lists[k]);
        json_decref(lists[k]);
    }
    return all;
}

json_t *pare_zoo_compare(const json_t *before, const json_t *after)
{
    comparing c = {.before = before, .after = after, .notes = json_array()};
    json_t *was = index_rows(before), *is = index_rows(after), *row;
    json_int_t equal = 0, failing = 0;
    size_t i;
    for (int k = 0; k < KINDS; k++) c.worse[k] = json_array(), c.better[k] = json_array();
    json_array_foreach(json_object_get(after, "tasks"), i, row)
    {
        json_t *key = json_sprintf("%s\n%s", pare_report_words(row, "model"),
                                   pare_report_words(row, "variant"));
        const json_t *old = json_object_get(was, json_string_value(key));
        json_decref(key);
        if (!old) continue;
        compare_task(&c, old, row);
        equal += !c.found;
        failing += !c.found && has_failed(row);
    }
    json_t *diff = json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "regressions", joined(c.worse),
                             "improvements", joined(c.better), "only_before", only_in(before, is),
                             "only_after", only_in(after, was), "equal", equal, "failing", failing,
                             "notes", c.notes);
    json_decref(was);
    json_decref(is);
    return diff;
}

/* --- views --- */

static void print_findings(pare_arena *arena, const json_t *list, const char *what, FILE *file)
{
    pare_table table;
    size_t i;
    json_t *one;
    if (!json_array_size(list)) return;
    pare_table_init(&table, arena, "lll");
    json_array_foreach((json_t *)list, i, one)
    {
        pare_table_add(&table, "%.128s.%.128s|%s|%s", pare_report_words(one, "model"),
                       pare_report_words(one, "variant"), pare_report_words(one, "what"),
                       pare_report_words(one, "text"));
    }
    pare_print(file, "%zu %s%s:\n", json_array_size(list), what,
               json_array_size(list) == 1 ? "" : "s");
    pare_table_print(&table, file);
    fputc('\n', file);
}

static void print_only(const json_t *list, const char *folder, FILE *file)
{
    enum { MOST = 20 };
    const size_t count = json_array_size(list);
    size_t i;
    json_t *one;
    if (!count) return;
    pare_print(file, "only in %s: ", folder);
    json_array_foreach((json_t *)list, i, one)
    {
        if (i < MOST)
            pare_print(file, "%s%s.%s", i ? ", " : "", pare_report_words(one, "model"),
                       pare_report_words(one, "variant"));
    }
    if (count > MOST) pare_print(file, " and %zu more", count - MOST);
    fputc('\n', file);
}

void pare_zoo_diff_print(pare_arena *arena, const json_t *diff, const char *before,
                         const char *after, FILE *file)
{
    const json_int_t equal = json_integer_value(json_object_get(diff, "equal"));
    const json_int_t failing = json_integer_value(json_object_get(diff, "failing"));
    size_t i;
    json_t *note;
    print_findings(arena, json_object_get(diff, "regressions"), "regression", file);
    print_findings(arena, json_object_get(diff, "improvements"), "improvement", file);
    print_only(json_object_get(diff, "only_before"), before, file);
    print_only(json_object_get(diff, "only_after"), after, file);
    pare_print(file, "%lld task%s equal", (long long)equal, equal == 1 ? " is" : "s are");
    if (failing) pare_print(file, " (%lld of them fail in both)", (long long)failing);
    fputc('\n', file);
    json_array_foreach(json_object_get(diff, "notes"), i, note)
        pare_print(file, "%s\n", json_string_value(note));
}

static pare_status compare_folders(pare_tool *tool, const json_t *a, const json_t *b,
                                   const char *before, const char *after)
{
    json_t *diff = pare_zoo_compare(a, b);
    const size_t count = json_array_size(json_object_get(diff, "regressions"));
    if (!diff) return PARE_FAIL(tool->ctx, MEMORY, "out of memory");
    pare_zoo_diff_print(&tool->arena, diff, before, after, stdout);
    json_object_set_new(tool->facts, "before", pare_json_text(before));
    json_object_set_new(tool->facts, "after", pare_json_text(after));
    json_object_set_new(tool->facts, "diff", diff);
    if (!count) return PARE_OK;
    if (tool->common->json) PARE_TRY(pare_json_write(tool->ctx, tool->facts, tool->common->json));
    return PARE_FAIL(tool->ctx, INPUT, "%s: %zu regression%s against %s", after, count,
                     count == 1 ? "" : "s", before);
}

pare_status pare_zoo_diff(pare_tool *tool, const char *before, const char *after)
{
    json_t *a = NULL, *b = NULL;
    pare_status st = pare_zoo_summary_read(tool->ctx, &a, before);
    if (st == PARE_OK) st = pare_zoo_summary_read(tool->ctx, &b, after);
    if (st == PARE_OK) st = compare_folders(tool, a, b, before, after);
    json_decref(a);
    json_decref(b);
    return st;
}
