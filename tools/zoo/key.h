/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of nodes: hashes over what decides a result. */
#ifndef PARE_TOOLS_ZOO_KEY_H
#define PARE_TOOLS_ZOO_KEY_H

#include "runtime/base/hash.h"
#include "tools/zoo/file.h"

typedef struct pare_zoo_known_file pare_zoo_known_file;

/* Begins with the first four and zeros; files are read once. */
typedef struct pare_zoo_keys {
    pare_arena *arena;
    const char *version, *isa, *machine;
    pare_zoo_known_file *known;
    size_t count, capacity;
} pare_zoo_keys;

/* What all steps from a model have in common: program, machine, content of the model. */
PARE_NODISCARD pare_status pare_zoo_key_model(pare_zoo_keys *keys, pare_hash *out,
                                              const char *file);
/* From the key before a step the key after it; the same for the judgement at the end. */
PARE_NODISCARD pare_status pare_zoo_key_step(pare_zoo_keys *keys, pare_hash *key,
                                             const pare_zoo_step *step,
                                             const pare_zoo_model *model);
PARE_NODISCARD pare_status pare_zoo_key_judge(pare_zoo_keys *keys, pare_hash *key,
                                              const pare_zoo *zoo, const pare_zoo_model *model);
#endif
