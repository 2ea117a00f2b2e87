/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, for reports: after a failed allocation calls do nothing and the context says
   why. And names from files as every writer shows them. */
#ifndef PARE_TOOLS_TEXT_H
#define PARE_TOOLS_TEXT_H

#include "runtime/base/ctx.h"

#include <stdio.h>

typedef struct pare_text {
    pare_ctx *ctx;
    char *data; /* NUL-terminated once something was added; freed with pare_free */
    size_t size, capacity;
    bool failed;
} pare_text;

/* Where text is shown, which decides how it is escaped and how signs of numbers look. */
typedef enum pare_medium { PARE_PLAIN, PARE_MARKDOWN, PARE_HTML, PARE_CSV } pare_medium;

void pare_text_add(pare_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Text arguments (%s; not NULL) are escaped, the format itself is not: as plain text by
   runtime/base/text.h; of that, as HTML text or attribute, & < > " '; as GitHub's Markdown what
   would format it gets a backslash before it; as CSV quotes are doubled. */
void pare_text_put(pare_text *text, pare_medium medium, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void pare_text_html(pare_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Does a file's name end so, with something before it? */
bool pare_ends_with(const char *path, const char *end);
/* fprintf with escaped text arguments (runtime/base/text.h); returns the bytes written. */
int pare_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As a CSV field (RFC 4180), in quotes where it needs them. A field that a spreadsheet would run as
   a formula (= + - @ first, and it is no number) gets a ' before it. */
void pare_text_add_csv(pare_text *text, const char *plain);
#endif
