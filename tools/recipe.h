/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: what a command was told, with every default that it took, and the hashes of what it
   wrote; enough to run it again and to know whether the same came out. A recipe is YAML; the facts
   of --json hold the same under "run". */
#ifndef PARE_TOOLS_RECIPE_H
#define PARE_TOOLS_RECIPE_H

#include "tools/options.h"

/* {"command", "arguments", "options", "defaults", "wrote"} of a command that ended. defaults: what
   options stand for that were not given. wrote: hashes of the models and tables that its options
   name. NULL with the message set. */
json_t *pare_recipe_json(pare_tool *tool, const void *options);
/* The same as YAML. */
PARE_NODISCARD pare_status pare_recipe_write(pare_ctx *ctx, const json_t *recipe, const char *path);

typedef struct pare_recipe {
    pare_list words;     /* "quantize", "net.onnx", "--data=train.h5", ... */
    pare_list file;      /* that were written, */
    pare_list hash;      /* and the hash of each */
    const char *version; /* that wrote it, or NULL */
} pare_recipe;

/* Reads a recipe, or facts that hold one. folder: where outputs go in place of their own folders;
   NULL: there. PARE_INPUT with line: no such command, no such key or option, or a value that is
   none. */
PARE_NODISCARD pare_status pare_recipe_read(pare_arena *arena, pare_recipe *out, const char *path,
                                            const char *folder);
/* Hash of a written file: of a model that of its manifest, of others that of their bytes. */
PARE_NODISCARD pare_status pare_recipe_hash(pare_ctx *ctx, const char *path, char text[33]);
#endif
