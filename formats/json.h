/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through jansson: files in, files out. Written text depends only on the content: two-space
   indent, keys in insertion order, reals with 17 significant digits. */
#ifndef PARE_FORMATS_JSON_H
#define PARE_FORMATS_JSON_H

#include "runtime/base/ctx.h"
#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a file of at most 1 GiB; the message names file, line and column. Free with json_decref. */
PARE_NODISCARD pare_status pare_json_read(pare_ctx *ctx, json_t **out, const char *path);
/* A string of any bytes, escaped as runtime/base/text.h says (NULL: null); NULL: memory is out. */
json_t *pare_json_text(const char *bytes);
/* Appends such a string to a list, of at most 700 bytes. */
void pare_json_note(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes and renames. */
PARE_NODISCARD pare_status pare_json_write(pare_ctx *ctx, const json_t *json, const char *path);
/* Takes a log, one JSON object a line, back to where it was when `last` was the highest "step":
   it ends after the last line whose "step" is at most that. Lines before the first that has one
   stay; an unfinished line at the end goes. A file that is not there is no failure. PARE_INPUT, and
   the file is as it was: a whole line that is no object (this is no log). */
PARE_NODISCARD pare_status pare_json_lines_cut(pare_ctx *ctx, const char *path, int64_t last);

#ifdef __cplusplus
}
#endif
#endif
