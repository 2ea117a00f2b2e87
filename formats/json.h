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
/* Writes and renames. */
PARE_NODISCARD pare_status pare_json_write(pare_ctx *ctx, const json_t *json, const char *path);

#ifdef __cplusplus
}
#endif
#endif
