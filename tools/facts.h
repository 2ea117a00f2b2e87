/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that come back from files: what commands wrote with --json. */
#ifndef PARE_TOOLS_FACTS_H
#define PARE_TOOLS_FACTS_H

#include "runtime/base/ctx.h"

#include <jansson.h>

/* Reads a file and checks it against facts.schema.json; keys the schema does not know are left
   alone, so that facts of a newer pare can be read. The message names the file, and the line of
   what is no JSON or the place of what is no fact: "a.json: models[1].bytes is a string, expected
   integer". Free with json_decref. */
PARE_NODISCARD pare_status pare_facts_read(pare_ctx *ctx, json_t **out, const char *path);

/* The check alone. path: for the message. */
PARE_NODISCARD pare_status pare_facts_check(pare_ctx *ctx, const json_t *facts, const char *path);

/* The rules, read once for those who read many files. */
typedef struct pare_facts_rules pare_facts_rules;
PARE_NODISCARD pare_status pare_facts_rules_new(pare_ctx *ctx, pare_facts_rules **out);
void pare_facts_rules_free(pare_facts_rules *rules);
/* pare_facts_read by these rules. */
PARE_NODISCARD pare_status pare_facts_rules_read(const pare_facts_rules *rules, json_t **out,
                                                 const char *path);
#endif
