/* SPDX-License-Identifier: Apache-2.0 */
/* Text tables for standard output: columns as wide as their widest cell. */
#ifndef PARE_TOOLS_TABLE_H
#define PARE_TOOLS_TABLE_H

#include "runtime/base/arena.h"
#include "tools/text.h"

#include <stdio.h>

enum { PARE_TABLE_COLUMNS = 12 };

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

/* A row of our own words, separated by '|'. */
void pare_table_add_line(pare_table *table, const char *line);

void pare_table_print(const pare_table *table, FILE *file);
/* As a table of GitHub's Markdown, an empty line before it. */
void pare_table_markdown(const pare_table *table, pare_text *text);

/* "1.2 MB" (decimal units) into text (at least 16 bytes); returns text. */
const char *pare_bytes_text(double bytes, char *text, size_t size);
/* "1.2 M" likewise for counts. */
const char *pare_count_text(double count, char *text, size_t size);
#endif
