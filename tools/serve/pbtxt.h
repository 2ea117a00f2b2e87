/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol buffers in their text form, as far as config.pbtxt needs it: without a schema. */
#ifndef PARE_TOOLS_SERVE_PBTXT_H
#define PARE_TOOLS_SERVE_PBTXT_H

#include "runtime/base/ctx.h"

#include <jansson.h>

/* A message becomes an object whose members are arrays: the values of the field of this name, in
   order. Numbers, strings, true and false become JSON's; a name of an enum becomes a string.
   PARE_INPUT names file and line. Free with json_decref. */
PARE_NODISCARD pare_status pare_pbtxt_parse(pare_ctx *ctx, json_t **out, const char *text,
                                            size_t bytes, const char *path);
#endif
