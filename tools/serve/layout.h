/* SPDX-License-Identifier: Apache-2.0 */
/* How a model repository lies on the disk: FOLDER/MODEL/VERSION/model.onnx, and
   FOLDER/MODEL/config.pbtxt. Nothing outside FOLDER is read: a link that leads out of it is
   refused. */
#ifndef PARE_TOOLS_SERVE_LAYOUT_H
#define PARE_TOOLS_SERVE_LAYOUT_H

#include "runtime/base/arena.h"
#include "tools/serve/config.h"

/* Names of the models in a folder, ascending; of a path that ends in ".onnx" the name of the file
   without that. PARE_IO where it cannot be read. */
PARE_NODISCARD pare_status pare_layout_list(pare_arena *arena, const char *path, char ***out,
                                            int *count);

/* Reads config.pbtxt of a model's folder into the configuration, where there is one, and which
   versions are to be served, ascending. PARE_INPUT: there are none. */
PARE_NODISCARD pare_status pare_layout_read(pare_arena *arena, const char *folder, const char *name,
                                            pare_serve_config *config, int64_t **out, int *count);

/* The ONNX file of a version. PARE_INPUT: it is not there, or outside the repository. */
PARE_NODISCARD pare_status pare_layout_file(pare_arena *arena, const char *folder, int64_t version,
                                            const char *file, const char **out);
#endif
