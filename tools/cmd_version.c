/* SPDX-License-Identifier: Apache-2.0 */
/* pare version, pare completion */
#include "tools/commands.h"

#include <string.h>

typedef struct version_options {
    pare_common common;
} version_options;

static pare_status run_version(pare_tool *tool, const void *options)
{
    (void)tool;
    (void)options;
    printf("pare %s\n", PARE_VERSION);
    return PARE_OK;
}

const pare_command pare_command_version = {
    .name = "version",
    .arguments = "",
    .summary = "print the version",
    .example = "pare version",
    .size = sizeof(version_options),
    .run = run_version,
};

static pare_status run_completion(pare_tool *tool, const void *options)
{
    (void)options;
    if (strcmp(tool->arg[0], "bash") != 0)
        return PARE_FAIL(tool->ctx, USAGE, "completion %s: expected bash", tool->arg[0]);
    pare_completion_bash(stdout);
    return PARE_OK;
}

const pare_command pare_command_completion = {
    .name = "completion",
    .arguments = "bash",
    .min = 1,
    .max = 1,
    .summary = "print a script that completes commands and options",
    .example = "source <(pare completion bash)",
    .size = sizeof(version_options),
    .run = run_completion,
};
