/* SPDX-License-Identifier: Apache-2.0 */
/* What falls together when a model is pruned, and what stays and why: for inspect and prune. */
#ifndef PARE_TOOLS_GROUP_FACTS_H
#define PARE_TOOLS_GROUP_FACTS_H

#include "prune/plan.h"

#include <jansson.h>

/* {group: [...], stays: [...]} as tools/facts.schema.json says. */
json_t *pare_groups_json(const pare_groups *groups);

/* The same in words on standard output; all: no list of names is shortened. */
void pare_groups_print(const json_t *json, bool all);
#endif
