/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: rows of words for standard output, and columns that say once how a row of facts is shown
   as text, Markdown, HTML and CSV. */
#ifndef PARE_TOOLS_TABLE_H
#define PARE_TOOLS_TABLE_H

#include "runtime/base/arena.h"
#include "tools/text.h"

#include <jansson.h>
#include <stdio.h>

enum { PARE_TABLE_COLUMNS = 13 };

typedef struct pare_table {
    pare_arena *arena;
    const char *align; /* one character per column: 'l' or 'r' */
    char ***row;
    size_t count, capacity;
} pare_table;

/* The first row added is the heading. */
void pare_table_init(pare_table *table, pare_arena *arena, const char *align);

/* One row from a format whose cells are separated by '|'. Text arguments are escaped and may hold
   '|'. */
void pare_table_add(pare_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void pare_table_print(const pare_table *table, FILE *file);
/* As a table of GitHub's Markdown, an empty line before it. */
void pare_table_markdown(const pare_table *table, pare_text *text);

/* --- columns --- */

struct pare_column;

/* One cell: a column's function adds its words to the text and may set the rest. */
typedef struct pare_cell {
    pare_text *text;
    pare_medium medium;
    const struct pare_column *column;
    const json_t *row;
    const void *extra; /* of pare_grid_row */
    size_t number;     /* of the row, from 0 */
    /* of HTML */
    const char *kind, *title;
    double sort; /* what a column is sorted by; NAN: the words */
    int sort_digits;
} pare_cell;

/* A list of columns ends with {0}. */
typedef struct pare_column {
    const char *title; /* of text, Markdown and CSV; NULL: not there */
    const char *head;  /* of HTML, as HTML; NULL: not there */
    const char *path;  /* of the value in the row (pare_report_find) */
    void (*cell)(pare_cell *cell);
    int digits;
    const char *unit; /* follows the number in HTML; in text the title has it */
    unsigned when;    /* shown where the grid has all these parts */
    bool left;        /* aligned so in text, as words are */
} pare_column;

/* Title, head, path and function; then the other members in their order or by name. */
#define PARE_COLUMN(t, h, p, ...)                                                                  \
    {                                                                                              \
        .title = t, .head = h, .path = p, .cell = __VA_ARGS__                                      \
    }

/* A value of CSV; and with the ends of its interval, of columns NAME_low and NAME_high. */
#define PARE_CSV_VALUE(name, path) PARE_COLUMN(name, NULL, path, pare_cell_value)
#define PARE_CSV_ENDS(name, path)                                                                  \
    PARE_CSV_VALUE(name "_low", path ".0"), PARE_CSV_VALUE(name "_high", path ".1")

/* Functions of columns; without a value the cell is empty. */
void pare_cell_words(pare_cell *cell);
void pare_cell_fixed(pare_cell *cell);       /* `digits` after the point */
void pare_cell_significant(pare_cell *cell); /* `digits` that count */
void pare_cell_times(pare_cell *cell);       /* "1.50x" */
void pare_cell_signed(pare_cell *cell);      /* "+0.50" */
void pare_cell_bytes(pare_cell *cell);       /* "1.2 MB" */
void pare_cell_value(pare_cell *cell);       /* of CSV: words, numbers with 9 digits, truths */
/* For a caller's own: the row's number (NAN: none), its words (""), and "49.8" or "49.8 %". */
double pare_cell_number(const pare_cell *cell);
const char *pare_cell_text(const pare_cell *cell);
void pare_cell_percent(pare_cell *cell, double value);

/* A table in the making. */
typedef struct pare_grid {
    pare_medium medium;
    const pare_column *columns;
    unsigned parts;
    pare_text *text;  /* of HTML and CSV */
    bool sorts;       /* HTML's cells carry what they are sorted by */
    pare_table table; /* of text and Markdown: to be printed */
    char align[PARE_TABLE_COLUMNS + 1];
    size_t rows;
} pare_grid;

/* The heading. kind: the table's class; label: what it shows, for those who hear the page, of a
   table that can be sorted, else NULL. */
void pare_grid_html(pare_grid *grid, pare_text *text, const pare_column *columns, unsigned parts,
                    const char *kind, const char *label);
void pare_grid_table(pare_grid *grid, pare_arena *arena, const pare_column *columns,
                     unsigned parts);
void pare_grid_csv(pare_grid *grid, pare_text *text, const pare_column *columns);
/* kind: class of HTML's row, or NULL. */
void pare_grid_row(pare_grid *grid, const json_t *row, const void *extra, const char *kind);
void pare_grid_end(pare_grid *grid, const char *after); /* of HTML */
/* All three for rows in an array. */
void pare_grid_html_all(pare_text *text, const pare_column *columns, unsigned parts,
                        const char *kind, const char *label, const json_t *rows);

/* --- numbers --- */

/* Two digits with a sign; in HTML a true minus, and no sign on what rounds to zero. */
void pare_number_signed(pare_text *text, pare_medium medium, double value);
/* "x", in HTML its sign. */
const char *pare_number_times(pare_medium medium);
/* "1.2 MB" (decimal units) into text (at least 16 bytes); returns text. */
const char *pare_bytes_text(double bytes, char *text, size_t size);
/* "1.2 M" likewise for counts. */
const char *pare_count_text(double count, char *text, size_t size);
#endif
