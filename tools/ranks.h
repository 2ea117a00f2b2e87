/* SPDX-License-Identifier: Apache-2.0 */
/* A command in several processes: what they must have in common, the GPU of each, and --gpus, which
   starts them. */
#ifndef PARE_TOOLS_RANKS_H
#define PARE_TOOLS_RANKS_H

#include "tools/options.h"

/* The row of a command that ranks share. */
#define PARE_OPT_GPUS                                                                              \
    PARE_OPT_TEXT("gpus", "0-3|0,2", common.gpus,                                                  \
                  "share the work among these GPUs, a process on each (started by mpirun)")

enum { PARE_MOST_LISTED = 64 }; /* GPUs of a machine */
/* "0-3,6": numbers and ranges, each GPU once. gpu: (PARE_MOST_LISTED). PARE_USAGE, for --gpus. */
PARE_NODISCARD pare_status pare_gpus_parse(pare_ctx *ctx, const char *text, int *gpu, int *count);

/* Fails where ranks were started for a command that has none, or differ in command line, build or
   instruction set; with --gpus in one process this process becomes mpirun. words: the command line
   behind "pare". */
PARE_NODISCARD pare_status pare_ranks_begin(pare_tool *tool, const pare_common *common,
                                            char *const *words, int count);

/* Silences all but rank 0 and gives each its part of the cores. */
void pare_ranks_set(const pare_tool *tool, pare_common *common);

/* Tells mpirun, which will be started, that ranks share all cores, that there may be more of them
   than cores, and that a container's only user may start them. What the user says of it stays. */
void pare_ranks_environment(void);

/* The device's name for this rank: the machine's GPUs in turn, or those of --gpus; else `name`
   itself. text: at least 32 bytes. */
PARE_NODISCARD pare_status pare_ranks_device(const pare_tool *tool, const char *name, char *text,
                                             size_t size, const char **out);

/* Logs, in rank 0, where each rank computes: "rank 1 (host): on cuda:1, NVIDIA H100". */
PARE_NODISCARD pare_status pare_ranks_log_device(const pare_tool *tool, const char *name);
#endif
