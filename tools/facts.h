/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that come back from files: what commands wrote with --json. */
#ifndef PARE_TOOLS_FACTS_H
#define PARE_TOOLS_FACTS_H

#include "runtime/base/ctx.h"

#include <jansson.h>

/* Reads a file and checks its schema, its command, and type and presence of the keys that readers
   use; other keys are left alone, so that facts of a newer pare can be read. The message names the
   file, and the line of what is no JSON or the key of what is no fact: "a.json: models[1].bytes is
   of type string, expected integer". Free with json_decref. */
PARE_NODISCARD pare_status pare_facts_read(pare_ctx *ctx, json_t **out, const char *path);
#endif
