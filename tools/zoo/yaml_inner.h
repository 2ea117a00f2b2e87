/* SPDX-License-Identifier: Apache-2.0 */
/* What yaml.c and yaml_tree.c share. */
#ifndef PARE_TOOLS_ZOO_YAML_INNER_H
#define PARE_TOOLS_ZOO_YAML_INNER_H

#include "tools/zoo/yaml.h"

/* The values of a text; *out NULL: it holds none. PARE_INPUT with path and line: no YAML, or what a
   zoo's file has no use for: aliases, tags, a second document, deep nesting. */
PARE_NODISCARD pare_status pare_yaml_tree(pare_arena *arena, pare_yaml **out, const char *path,
                                          const char *data, size_t bytes);
#endif
