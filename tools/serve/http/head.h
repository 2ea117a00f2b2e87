/* SPDX-License-Identifier: Apache-2.0 */
/* The form of a request's lines, which is looked at before the parser sees them: parsers take more
   than the standard allows, and what two of them take in two ways is how requests are smuggled. */
#ifndef PARE_TOOLS_SERVE_HTTP_HEAD_H
#define PARE_TOOLS_SERVE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

/* What has been looked at of some lines that end with an empty one; zeros: nothing yet. */
typedef struct pare_head {
    size_t at, line; /* bytes, of all lines and of the one it is in */
    int lines;       /* that are whole, the empty one not among them */
    bool is_cr;      /* the last byte was a CR */
} pare_head;

enum { PARE_HEAD_WRONG = -1, PARE_HEAD_MORE, PARE_HEAD_WHOLE };
/* Looks at more of the lines, whose first byte is *text. Every line ends with CR LF, none begins
   with a space, and there are no other control characters than tabs. `at` is behind the empty line
   where they are whole. */
int pare_head_look(pare_head *h, const char *text, size_t bytes);

/* Is it the name of a header: letters, digits and some marks, at least one? */
bool pare_head_is_name(const char *text, size_t bytes);

/* What is between the data of chunks: the end of the last chunk's data, unless this is the first
   chunk, and the size of the next, at most 16 digits, with what may be behind a semicolon; behind
   the last, of size 0, also the trailers. */
bool pare_chunk_is_well_formed(const char *text, size_t bytes, bool is_first, bool is_last);

/* Decodes %XX in place; %00, %2F (a slash that parts no segments), and what is no such number, stay
   as they are. */
void pare_path_decode(char *path);
#endif
