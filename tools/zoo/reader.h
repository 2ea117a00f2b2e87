/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of a zoo's file share. */
#ifndef PARE_TOOLS_ZOO_READER_H
#define PARE_TOOLS_ZOO_READER_H

#include "tools/yaml.h"
#include "tools/zoo/file.h"

/* --- the zoo (file.c, step.c) --- */

/* A zoo's file while it is read. */
typedef struct pare_zoo_reader {
    pare_arena *arena;
    const char *path;
    const char *folder; /* of path, with its '/'; "" where it names none */
    const pare_yaml *root;
    pare_zoo zoo; /* what the keys say, and more and more of the rest */
    const char *data, *test;
    const pare_yaml *models, *variants, *slurm; /* slurm NULL: it is not there */
} pare_zoo_reader;

/* Fills in what the keys of the root say. */
PARE_NODISCARD pare_status pare_zoo_read_keys(pare_zoo_reader *reader);

/* A path that is in the file, seen from where pare was started; it never begins with '-'. In
   the arena, NULL with the message set. */
const char *pare_zoo_path(const pare_zoo_reader *reader, const char *path);

/* PARE_INPUT where there is no such file. */
PARE_NODISCARD pare_status pare_zoo_need_file(const pare_zoo_reader *reader, int line,
                                              const char *key, const char *path);

/* One step (step.c). */
PARE_NODISCARD pare_status pare_zoo_read_step(const pare_zoo_reader *reader, pare_zoo_step *out,
                                              const char *text, int line);

/* Can the step do without data? It must have them where it measures something. */
bool pare_zoo_step_needs_data(const pare_zoo_step *step);
#endif
