/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a name in every writer: messages, printed lines, tables, Markdown, CSV, HTML and
   JSON hold valid UTF-8 without control characters, and the name cannot end a cell. */
#include "formats/json.h"
#include "runtime/base/text.h"
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
    pare_table_add_line(&table, "name|other");
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
    pare_text_add_escaped(&text, name);
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
    try_cut(name, size);
    free(name);
    return 0;
}
