/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as plain text and as Markdown. */
#include "tools/table.h"

#include "runtime/base/text.h"

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

void pare_table_add_line(pare_table *table, const char *line)
{
    char cells[4096];
    const size_t n = strlen(line);
    if (n >= sizeof cells) return;
    for (size_t i = 0; i <= n; i++) cells[i] = line[i] == '|' ? 0 : line[i];
    add_row(table, cells, n);
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
            pare_text_add(text, "| ");
            const char *cell = table->row[r][a - table->align];
            if (cell) pare_text_add_markdown(text, cell);
            pare_text_add(text, " ");
        }
        pare_text_add(text, "|\n");
        if (r) continue;
        for (const char *a = table->align; *a; a++)
            pare_text_add(text, *a == 'r' ? "|--:" : "|---");
        pare_text_add(text, "|\n");
    }
}

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
