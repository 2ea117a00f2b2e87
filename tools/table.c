/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/table.h"

#include <string.h>

void pare_table_init(pare_table *table, pare_arena *arena, const char *align)
{
    *table = (pare_table){.arena = arena, .align = align};
}

void pare_table_add(pare_table *table, const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    char **cell = pare_arena_alloc(table->arena, PARE_TABLE_COLUMNS, sizeof *cell);
    char *text = pare_arena_strdup(table->arena, line);
    if (!cell || !text ||
        !pare_arena_grow(table->arena, &table->row, &table->capacity, table->count,
                         sizeof *table->row))
        return; /* the context says that memory is out */
    for (int c = 0; c < PARE_TABLE_COLUMNS && text; c++) {
        char *bar = strchr(text, '|');
        if (bar) *bar = 0;
        cell[c] = text;
        text = bar ? bar + 1 : NULL;
    }
    table->row[table->count++] = cell;
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

void pare_markdown_add(pare_text *text, const char *plain)
{
    for (; *plain; plain++) {
        const char c = (unsigned char)*plain < ' ' ? '?' : *plain;
        pare_text_add(text, strchr("\\`*_[]<>|~", c) ? "\\%c" : "%c", c);
    }
}

void pare_table_markdown(const pare_table *table, pare_text *text)
{
    pare_text_add(text, "\n");
    for (size_t r = 0; r < table->count; r++) {
        for (const char *a = table->align; *a; a++) {
            pare_text_add(text, "| ");
            const char *cell = table->row[r][a - table->align];
            if (cell) pare_markdown_add(text, cell);
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
