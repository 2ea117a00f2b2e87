/* SPDX-License-Identifier: Apache-2.0 */
/* Checks before the work, so that an hour's work is not lost at its last step. */
#ifndef PARE_TOOLS_CHECK_OUTPUT_H
#define PARE_TOOLS_CHECK_OUTPUT_H

#include "tools/options.h"

/* Can path become a file, and is it none of the inputs? Fails with what is wrong: it is a folder,
   its folder does not exist or cannot be written, it is an input. NULL path is fine. */
PARE_NODISCARD pare_status pare_check_output(pare_ctx *ctx, const char *path,
                                             const char *const *inputs, int input_count);

/* The same for every PARE_OPTION_OUTPUT of a command: none may be an argument, a file that another
   option names, or one of its NAME=FILE values. */
PARE_NODISCARD pare_status pare_check_outputs(pare_tool *tool, const void *options);

/* Does the command line hold this option? */
bool pare_is_given(const pare_tool *tool, const char *option);

/* Fails where one of the named options (NULL ends them) was given although it does nothing there:
   "data import: --resize does nothing with --npy; leave it out". */
PARE_NODISCARD pare_status pare_refuse_options(pare_tool *tool, const char *where,
                                               const char *const *names);

/* The options that PARE_SOURCE_ROWS adds but --data, for pare_refuse_options. */
extern const char *const pare_source_names[];

/* Fails where a needed option is missing: "pare bench: --data is needed: ...". */
PARE_NODISCARD pare_status pare_need_option(pare_tool *tool, const char *value, const char *name,
                                            const char *why);

/* Makes the folder for kernel timings where it is missing; a warning where it cannot be made. */
void pare_make_cache(pare_ctx *ctx, const char *folder);
#endif
