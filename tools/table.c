/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as plain text, Markdown, HTML and CSV. */
#include "tools/table.h"

#include "runtime/base/text.h"
#include "tools/report/report.h"

#include <math.h>
#include <string.h>

void pare_table_init(pare_table *table, pare_arena *arena, const char *align)
{
    *table = (pare_table){.arena = arena, .align = align};
}

/* A row of cells, each ending with a NUL, in n bytes. */
static void add_row(pare_table *table, const char *cells, size_t n)
{
    char **cell = pare_arena_alloc(table->arena, PARE_TABLE_COLUMNS, sizeof *cell);
    char *text = pare_arena_alloc(table->arena, n + 1, 1);
    if (!cell || !text ||
        !pare_arena_grow(table->arena, &table->row, &table->capacity, table->count,
                         sizeof *table->row))
        return; /* the context says that memory is out */
    memcpy(text, cells, n);
    text[n] = 0;
    const char *stop = text + n;
    for (int c = 0; c < PARE_TABLE_COLUMNS && text <= stop; c++) {
        cell[c] = text;
        text += strlen(text) + 1;
    }
    table->row[table->count++] = cell;
}

void pare_table_add(pare_table *table, const char *format, ...)
{
    char line[4096] = {0};
    va_list args;
    va_start(args, format);
    const size_t n = pare_text_format(line, sizeof line, '|', format, args);
    va_end(args);
    add_row(table, line, n < sizeof line ? n : sizeof line - 1);
}

/* Characters of UTF-8 text: its bytes without the continuing ones. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += (*text & 0xc0) != 0x80;
    return n;
}

void pare_table_print(const pare_table *table, FILE *file)
{
    int width[PARE_TABLE_COLUMNS] = {0}, columns = (int)strlen(table->align);
    for (size_t r = 0; r < table->count; r++)
        for (int c = 0; c < columns; c++) {
            int w = table->row[r][c] ? width_of(table->row[r][c]) : 0;
            if (w > width[c]) width[c] = w;
        }
    for (size_t r = 0; r < table->count; r++) {
        for (int c = 0; c < columns; c++) {
            const char *text = table->row[r][c] ? table->row[r][c] : "";
            int gap = width[c] - width_of(text);
            bool right = table->align[c] == 'r', last = c + 1 == columns;
            fprintf(file, "%*s%s%*s", right ? gap : 0, "", text, right || last ? 0 : gap, "");
            fputs(last ? "\n" : "  ", file);
        }
    }
}

void pare_table_markdown(const pare_table *table, pare_text *text)
{
    pare_text_add(text, "\n");
    for (size_t r = 0; r < table->count; r++) {
        for (const char *a = table->align; *a; a++) {
            const char *cell = table->row[r][a - table->align];
            pare_text_put(text, PARE_MARKDOWN, "| %s ", cell ? cell : "");
        }
        pare_text_add(text, "|\n");
        if (r) continue;
        for (const char *a = table->align; *a; a++)
            pare_text_add(text, *a == 'r' ? "|--:" : "|---");
        pare_text_add(text, "|\n");
    }
}

/* --- cells --- */

double pare_cell_number(const pare_cell *cell)
{
    return pare_report_number(cell->row, cell->column->path, NAN);
}

const char *pare_cell_text(const pare_cell *cell)
{
    const char *words = json_string_value(pare_report_find(cell->row, cell->column->path));
    return words ? words : "";
}

void pare_cell_words(pare_cell *cell)
{
    pare_text_put(cell->text, cell->medium, "%s", pare_cell_text(cell));
}

static void add_unit(pare_cell *cell)
{
    if (cell->medium == PARE_HTML && cell->column->unit)
        pare_text_add(cell->text, "%s", cell->column->unit);
}

void pare_cell_fixed(pare_cell *cell)
{
    const double value = pare_cell_number(cell);
    if (isnan(value)) return;
    pare_text_add(cell->text, "%.*f", cell->column->digits, value);
    add_unit(cell);
}

void pare_cell_significant(pare_cell *cell)
{
    const double value = pare_cell_number(cell);
    if (isnan(value)) return;
    pare_text_add(cell->text, "%.*g", cell->column->digits, value);
    add_unit(cell);
}

void pare_cell_times(pare_cell *cell)
{
    const double value = pare_cell_number(cell);
    if (!isnan(value)) pare_text_add(cell->text, "%.2f%s", value, pare_number_times(cell->medium));
}

void pare_cell_signed(pare_cell *cell)
{
    const double value = pare_cell_number(cell);
    if (!isnan(value)) pare_number_signed(cell->text, cell->medium, value);
}

void pare_cell_bytes(pare_cell *cell)
{
    char size[24];
    const double value = pare_cell_number(cell);
    if (isnan(value)) return;
    cell->sort = value;
    pare_text_add(cell->text, "%s", pare_bytes_text(value, size, sizeof size));
}

void pare_cell_percent(pare_cell *cell, double value)
{
    if (!isnan(value))
        pare_text_add(cell->text, cell->medium == PARE_HTML ? "%.1f&nbsp;%%" : "%.1f", value);
}

void pare_cell_value(pare_cell *cell)
{
    const json_t *value = pare_report_find(cell->row, cell->column->path);
    if (json_is_string(value))
        pare_text_add_csv(cell->text, json_string_value(value));
    else if (json_is_integer(value))
        pare_text_add(cell->text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        pare_text_add(cell->text, "%.9g", json_real_value(value));
    else if (json_is_boolean(value))
        pare_text_add(cell->text, json_is_true(value) ? "true" : "false");
}

/* --- views --- */

static bool is_shown(const pare_grid *grid, const pare_column *column)
{
    const char *name = grid->medium == PARE_HTML ? column->head : column->title;
    return name && (column->when & grid->parts) == column->when;
}

void pare_grid_html(pare_grid *grid, pare_text *text, const pare_column *columns, unsigned parts,
                    const char *kind, const char *label)
{
    *grid = (pare_grid){PARE_HTML, columns, parts, text, .sorts = label != NULL};
    pare_text_add(text, "<div class=\"box\"");
    if (label) pare_text_html(text, " tabindex=\"0\" role=\"region\" aria-label=\"%s\"", label);
    pare_text_add(text, "><table class=\"%s\"><thead><tr>", kind);
    for (const pare_column *c = columns; c->cell; c++)
        if (is_shown(grid, c))
            pare_text_add(text, "<th%s>%s</th>", label ? " scope=\"col\"" : "", c->head);
    pare_text_add(text, "</tr></thead><tbody>\n");
}

void pare_grid_csv(pare_grid *grid, pare_text *text, const pare_column *columns)
{
    *grid = (pare_grid){PARE_CSV, columns, .text = text};
    for (const pare_column *c = columns; c->cell; c++)
        pare_text_add(text, "%s%s", c == columns ? "" : ",", c->title);
    pare_text_add(text, "\n");
}

void pare_grid_table(pare_grid *grid, pare_arena *arena, const pare_column *columns, unsigned parts)
{
    pare_text heads = {.ctx = arena->ctx};
    int n = 0;
    *grid = (pare_grid){.medium = PARE_PLAIN, .columns = columns, .parts = parts};
    for (const pare_column *c = columns; c->cell; c++) {
        if (!is_shown(grid, c)) continue;
        grid->align[n++] = c->left || c->cell == pare_cell_words ? 'l' : 'r';
        pare_text_add(&heads, "%s%c", c->title, 0);
    }
    pare_table_init(&grid->table, arena, grid->align);
    if (heads.data) add_row(&grid->table, heads.data, heads.size);
    pare_free(heads.data);
}

/* One cell into HTML, its attributes first. */
static void add_html(const pare_grid *grid, const pare_cell *cell)
{
    pare_text *t = grid->text;
    pare_text_add(t, "<td");
    if (cell->kind) pare_text_add(t, " class=\"%s\"", cell->kind);
    if (cell->title) pare_text_html(t, " title=\"%s\"", cell->title);
    if (grid->sorts && !isnan(cell->sort))
        pare_text_add(t, " data-v=\"%.*f\"", cell->sort_digits, cell->sort);
    pare_text_add(t, ">%s</td>", cell->text->data ? cell->text->data : "");
}

void pare_grid_row(pare_grid *grid, const json_t *row, const void *extra, const char *kind)
{
    pare_ctx *ctx = grid->text ? grid->text->ctx : grid->table.arena->ctx;
    pare_text words = {.ctx = ctx};
    const bool html = grid->medium == PARE_HTML;
    if (html && kind)
        pare_text_add(grid->text, "<tr class=\"%s\">", kind);
    else if (html)
        pare_text_add(grid->text, "<tr>");
    for (const pare_column *c = grid->columns; c->cell; c++) {
        pare_cell cell = {&words, grid->medium, c, row, extra, grid->rows, .sort = NAN};
        if (!is_shown(grid, c)) continue;
        if (html) words.size = 0;
        if (html && words.data) *words.data = 0;
        if (grid->medium == PARE_CSV && c != grid->columns) pare_text_add(&words, ",");
        c->cell(&cell);
        if (html) add_html(grid, &cell);
        if (grid->medium == PARE_PLAIN) pare_text_add(&words, "%c", 0);
    }
    grid->rows++;
    if (grid->text) grid->text->failed |= words.failed;
    if (html)
        pare_text_add(grid->text, "</tr>\n");
    else if (grid->text)
        pare_text_add(grid->text, "%s\n", words.data ? words.data : "");
    else if (words.data)
        add_row(&grid->table, words.data, words.size);
    pare_free(words.data);
}

void pare_grid_end(pare_grid *grid, const char *after)
{
    pare_text_add(grid->text, "</tbody></table></div>%s\n", after);
}

void pare_grid_html_all(pare_text *text, const pare_column *columns, unsigned parts,
                        const char *kind, const char *label, const json_t *rows)
{
    pare_grid grid;
    size_t i;
    json_t *row;
    pare_grid_html(&grid, text, columns, parts, kind, label);
    json_array_foreach((json_t *)rows, i, row) pare_grid_row(&grid, row, NULL, NULL);
    pare_grid_end(&grid, "");
}

/* --- numbers --- */

void pare_number_signed(pare_text *text, pare_medium medium, double value)
{
    const bool html = medium == PARE_HTML;
    if (fabs(value) < 0.005)
        pare_text_add(text, html ? "0.00" : "+0.00");
    else
        pare_text_add(text, "%s%.2f", value >= 0 ? "+" : html ? "&minus;" : "-", fabs(value));
}

const char *pare_number_times(pare_medium medium) { return medium == PARE_HTML ? "&times;" : "x"; }

static const char *scaled(double value, const char *const *unit, char *text, size_t size)
{
    int u = 0;
    while (value >= 999.5 && unit[u + 1]) {
        value /= 1000;
        u++;
    }
    snprintf(text, size, u && value < 99.95 ? "%.1f%s" : "%.0f%s", value, unit[u]);
    return text;
}

const char *pare_bytes_text(double bytes, char *text, size_t size)
{
    static const char *const unit[] = {" B", " kB", " MB", " GB", " TB", NULL};
    return scaled(bytes, unit, text, size);
}

const char *pare_count_text(double count, char *text, size_t size)
{
    static const char *const unit[] = {"", " k", " M", " G", " T", NULL};
    return scaled(count, unit, text, size);
}
