/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a name in every writer: messages, printed lines, tables, Markdown, CSV, HTML, JSON,
   pages with their data island, pictures and traces hold valid UTF-8 without control characters,
   and the name cannot end a cell or begin an element. */
#include "formats/json.h"
#include "runtime/base/text.h"
#include "tools/prune/report.h"
#include "tools/report/page.h"
#include "tools/report/report.h"
#include "tools/results.h"
#include "tools/trace.h"
#include "tools/zoo/tables.h"
#include "tools/table.h"

#include <stdlib.h>
#include <string.h>

static void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* jansson's own decoder says whether text is UTF-8. */
static void expect_printable(const char *text, size_t size, const char *newlines)
{
    json_t *json = json_stringn(text, size);
    expect(json != NULL, "not UTF-8");
    json_decref(json);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)text[i], next = (unsigned char)text[i + 1];
        expect(c >= 32 || (c && strchr(newlines, c)), "a control character");
        expect(c != 127 && !(c == 0xc2 && next < 0xa0), "DEL or C1");
        expect(strncmp(text + i, "\xe2\x80\xae", 3) != 0, "text that is turned around");
    }
}

static void try_message(const char *name, const char *other)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    (void)PARE_FAIL(&ctx, INPUT, "%s: node '%s' (%.7s): %d%%", name, other, name, 5);
    expect_printable(ctx.message, strlen(ctx.message), "");
    (void)pare_fail_prefix(&ctx, PARE_INPUT, "%s", other);
    expect_printable(ctx.message, strlen(ctx.message), "");
}

static void try_print(const char *name)
{
    char *printed;
    size_t size;
    FILE *file = open_memstream(&printed, &size);
    pare_print(file, "%-20s %s\n", name, name);
    fclose(file);
    expect_printable(printed, size, "\n");
    expect(strchr(printed, '\n') == printed + size - 1, "a line of two");
    free(printed);
}

static int lines_of(const char *text, size_t size)
{
    int n = 0;
    for (size_t i = 0; i < size; i++) n += text[i] == '\n';
    return n;
}

/* Bars without a backslash before them. */
static int bars_of(const char *text)
{
    int n = 0;
    for (; *text; text++) {
        if (*text == '\\' && text[1])
            text++;
        else
            n += *text == '|';
    }
    return n;
}

static void try_table(pare_ctx *ctx, const char *name, const char *other)
{
    pare_arena arena;
    pare_table table;
    pare_text text = {.ctx = ctx};
    char *printed;
    size_t size;
    pare_arena_init(&arena, ctx);
    pare_table_init(&table, &arena, "lr");
    pare_table_add(&table, "name|other");
    pare_table_add(&table, "%.500s|%.500s", name, other);
    FILE *file = open_memstream(&printed, &size);
    pare_table_print(&table, file);
    fclose(file);
    expect_printable(printed, size, "\n");
    expect(lines_of(printed, size) == 2, "a table of other than two lines");
    free(printed);
    pare_table_markdown(&table, &text);
    expect_printable(text.data, text.size, "\n");
    expect(lines_of(text.data, text.size) == 4 && bars_of(text.data) == 9, "other cells");
    pare_free(text.data);
    pare_arena_free(&arena);
}

static void try_html(pare_ctx *ctx, const char *name)
{
    pare_text text = {.ctx = ctx};
    pare_text_html(&text, "%s", name);
    if (text.size) {
        expect_printable(text.data, text.size, "");
        expect(!strpbrk(text.data, "<>\"'"), "markup of a name");
    }
    pare_free(text.data);
}

/* The field that begins at text, read as RFC 4180 says; what follows it. */
static const char *read_field(const char *text, char *field)
{
    const int quoted = *text == '"';
    for (text += quoted; *text; text++) {
        if (quoted && *text == '"' && *++text != '"') break;
        if (!quoted && strchr(",\n", *text)) break;
        *field++ = *text;
    }
    *field = 0;
    return text;
}

static void try_csv(pare_ctx *ctx, const char *name, const char *other)
{
    static const pare_column columns[] = {
        PARE_COLUMN("name", NULL, "0", pare_cell_value),
        PARE_COLUMN("other", NULL, "1", pare_cell_value),
        {0},
    };
    pare_text text = {.ctx = ctx};
    pare_grid grid;
    json_t *row = json_pack("[o, o]", pare_json_text(name), pare_json_text(other));
    pare_grid_csv(&grid, &text, columns);
    pare_grid_row(&grid, row, NULL, NULL);
    expect_printable(text.data, text.size, "\n");
    char *field = malloc(text.size + 1), *stop;
    const char *at = text.data;
    for (int c = 0; c < 4; c++) {
        at = read_field(at, field);
        strtod(field, &stop);
        expect(!*field || !strchr("=+-@", *field) || !*stop, "a formula");
        expect(*at++ == ",\n"[c & 1], "other than two fields");
    }
    expect(!*at, "more than two lines");
    free(field);
    json_decref(row);
    pare_free(text.data);
}

static void try_json(const char *name)
{
    json_t *json = pare_json_text(name);
    expect(json != NULL, "no JSON");
    expect_printable(json_string_value(json), json_string_length(json), "");
    json_decref(json);
}

/* --- pages --- */

/* What the name is in: every text of the facts below, as a JSON file may hold it. */
static json_t *named(const char *name)
{
    json_t *text = json_string(name);
    return text ? text : pare_json_text(name);
}

/* model, what commands made of it, and its layers; with numbers enough for all parts of a page. */
static json_t *model_json(const char *name, double ms)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:I, s:f, s:[f, f], s:f, s:[f, f], s:f, s:[f, f], s:{s:f}, "
        "s:[f, f], s:f, s:[{s:o, s:o, s:o, s:o, s:o, s:[i, i], s:i, s:i, s:i, s:f}]}",
        "file", named(name), "hash", named(name), "recipe", named(name), "precision", named(name),
        "bytes", (json_int_t)(1000 * ms), "top1", 90 + ms, "top1_interval", 89.0, 92.0, "drop", 0.5,
        "drop_interval", 0.1, 0.9, "kept", 99.0, "kept_interval", 98.0, 99.5, "latency_ms",
        "median", ms, "latency_interval", 0.9 * ms, 1.1 * ms, "speed_up", ms, "steps", "node",
        named(name), "op_type", named(name), "kernel", named(name), "precision", named(name),
        "output", named(name), "shape", 2, 3, "bytes_in", 8, "bytes_out", 8, "live_bytes", 8,
        "time_ms", 0.5);
}

static json_t *compared_json(const char *name)
{
    return json_pack("{s:o, s:o, s:{s:o, s:i, s:o}, s:{s:o, s:i, s:o, s:o}, s:[o, o, o]}",
                     "command", json_string("validate"), "version", named(name), "data", "file",
                     named(name), "samples", 9, "range", named(name), "device", "name", named(name),
                     "cuda", 1, "driver", named(name), "processor", named(name), "models",
                     model_json(name, 2), model_json(name, 1), model_json(name, 1.5));
}

static json_t *facts_json(const char *name)
{
    json_t *calibrated = json_pack(
        "{s:s, s:o, s:{s:o}, s:[{s:o, s:f}], s:[{s:o, s:o, s:f, s:f, s:f, s:f, s:[i, i]}]}",
        "command", "calibrate", "version", named(name), "model", "file", named(name), "ranges",
        "name", named(name), "sqnr_db", 31.5, "histograms", "name", named(name), "method",
        named(name), "low", -1.0, "high", 1.0, "min", 0.0, "max", 2.0, "bins", 9, 4);
    json_t *profile = json_pack("{s:s, s:o, s:o, s:o, s:[], s:[{s:i, s:o, s:o, s:f, s:f}]}",
                                "command", "profile", "version", named(name), "model", named(name),
                                "device", named(name), "steps", "lanes", "stream", 0, "lane",
                                named(name), "name", named(name), "start_ms", 0.0, "time_ms", 1.0);
    return json_pack("[o, o, o]", compared_json(name), calibrated, profile);
}

/* One pruned model's row: channels, with training. */
static json_t *pruned_row(const char *name)
{
    return json_pack("{s:o, s:{s:f, s:f}, s:{s:f, s:f}, s:{s:f, s:f}, s:[{s:o, s:o, s:f, s:f}], "
                     "s:{s:o, s:f, s:[{s:f}]}}",
                     "file", named(name), "target", "before", 1.0, "goal", 0.5, "macs", "before",
                     2.0, "after", 1.0, "parameters", "before", 2.0, "after", 1.0, "layers", "node",
                     named(name), "note", named(name), "before", 2.0, "after", 1.0, "distilled",
                     "loss", named(name), "epochs", 1.0, "steps", "kept", 0.5);
}

static json_t *pruning_json(const char *name)
{
    return json_pack("{s:s, s:{s:o}, s:[o, o], s:o}", "command", "prune", "model", "file",
                     named(name), "smaller", pruned_row(name), pruned_row(name), "compared",
                     compared_json(name));
}

static json_t *task_json(const char *name, const char *class)
{
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:b, s:i}", "model", named(name), "variant",
                     named(name), "class", class, "message", named(name), "command", named(name),
                     "file", named(name), "best", !strcmp(class, "done"), "bytes", 9);
}

static json_t *summary_json(const char *name)
{
    return json_pack("{s:o, s:{}, s:[o, o], s:[{s:o, s:o, s:f, s:f}], s:[{s:o, s:n}]}", "name",
                     named(name), "goals", "tasks", task_json(name, "done"),
                     task_json(name, "crash"), "ranking", "variant", named(name), "worst_model",
                     named(name), "mean_drop", 0.1, "seconds", 1.0, "best", "model", named(name),
                     "best");
}

enum { PAGE, PICTURE, PRUNING, PRUNING_PICTURE, ZOO, MARKDOWN, ZOO_MARKDOWN, CSV, TRACE, WRITERS };
static const char *const writers[] = {"page", "picture",  "pruning",      "pruning picture",
                                      "zoo",  "Markdown", "zoo Markdown", "CSV",
                                      "trace"};

static void write_trace(pare_text *t, const char *name)
{
    pare_timeline *timeline;
    const pare_span span = {.name = name, .lane = PARE_LANE_COMPUTE, .step = -1, .bytes = 4};
    expect(pare_timeline_new(t->ctx, &timeline, NULL) == PARE_OK &&
               pare_timeline_begin(timeline, NULL, &span) == PARE_OK &&
               pare_timeline_end(timeline, NULL) == PARE_OK,
           "no timeline");
    json_t *json = pare_trace_json(name, timeline, NULL);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    expect(text != NULL, "no trace");
    pare_text_add(t, "%s", text);
    free(text);
    json_decref(json);
    pare_timeline_free(timeline);
}

static void write_with(pare_text *t, int writer, const char *name)
{
    pare_arena arena;
    json_t *facts = facts_json(name), *comparisons = pare_report_gather(facts);
    json_t *pruning = pruning_json(name), *summary = summary_json(name);
    pare_arena_init(&arena, t->ctx);
    expect(facts && pruning && summary, "no facts");
    switch (writer) {
    case PAGE: pare_report_page_add(t, facts, comparisons, 99, NULL); break;
    case PICTURE: expect(pare_parts_picture(t, comparisons), "no picture"); break;
    case PRUNING: pare_prune_page_add(t, pruning); break;
    case PRUNING_PICTURE: expect(pare_prune_picture_add(t, pruning), "no picture"); break;
    case ZOO:
        pare_zoo_section(t, summary);
        pare_zoo_failed_section(t, summary);
        break;
    case MARKDOWN: pare_report_markdown_add(t, &arena, comparisons, 99); break;
    case ZOO_MARKDOWN: pare_zoo_markdown(t, &arena, summary); break;
    case CSV:
        pare_results_table(t, comparisons, "");
        pare_zoo_csv(t, summary, name);
        break;
    default: write_trace(t, name);
    }
    json_decref(facts);
    json_decref(comparisons);
    json_decref(pruning);
    json_decref(summary);
    pare_arena_free(&arena);
}

/* Elements begun before the first script of ours; Markdown has a backslash before what is none. */
static int elements_of(pare_text *t, int writer)
{
    int n = 0;
    char *stop = strstr(t->data, "<script>");
    if (stop) {
        *stop = 0;
        t->size = (size_t)(stop - t->data);
    }
    for (const char *c = t->data; *c; c++)
        n += *c == '<' && (writer != MARKDOWN || c[-(c != t->data)] != '\\');
    return n;
}

/* Writers of markup make of a name as many elements as of a plain one; those after MARKDOWN show
   text as it is (a zoo's Markdown its commands, as code). */
static void try_writer(pare_ctx *ctx, int w, const char *name)
{
    static int elements[WRITERS];
    pare_text text = {.ctx = ctx}, plain = text;
    if (!elements[w]) {
        write_with(&plain, w, "plain");
        elements[w] = elements_of(&plain, w) + 1;
    }
    write_with(&text, w, name);
    expect(!text.failed && text.size, writers[w]);
    expect(elements_of(&text, w) + 1 == elements[w] || w > MARKDOWN, writers[w]);
    expect_printable(text.data, text.size, "\n");
    pare_free(text.data);
    pare_free(plain.data);
}

static void try_cut(const char *name, size_t room)
{
    char shown[32], again[256];
    const size_t n = strlen(name), all = pare_text_escape(shown, room % sizeof shown, name, n);
    if (room % sizeof shown) expect_printable(shown, strlen(shown), "");
    if (all >= sizeof shown) return;
    pare_text_escape(shown, sizeof shown, name, n);
    pare_text_escape(again, sizeof again, shown, strlen(shown));
    expect(!strcmp(shown, again), "escaped twice is another text");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    char *name = malloc(size + 1);
    memcpy(name, data, size);
    name[size] = 0;
    const char *other = name + strlen(name) / 2;
    try_message(name, other);
    try_print(name);
    try_table(&ctx, name, other);
    try_html(&ctx, name);
    try_csv(&ctx, name, other);
    try_json(name);
    if (*name && name[1]) try_writer(&ctx, data[0] % WRITERS, name + 1); /* one: they are slow */
    try_cut(name, size);
    free(name);
    return 0;
}
