/* SPDX-License-Identifier: Apache-2.0 */
/* pare version, pare completion */
#include "runtime/exec/exec.h"
#include "tools/commands.h"
#include "tools/text.h"

#include <string.h>

typedef struct version_options {
    pare_common common;
} version_options;

static pare_status run_version(pare_tool *tool, const void *options)
{
    char text[128];
    (void)options;
    const char *code = pare_gpu_code(text, sizeof text);
    pare_print(stdout, "pare %s\n%s%s\n", PARE_VERSION, code ? "GPU code: " : "no GPU code",
               code ? code : "");
    if (code) json_object_set_new(tool->facts, "gpu_code", json_string(code));
    return PARE_OK;
}

const pare_command pare_command_version = {
    .name = "version",
    .arguments = "",
    .summary = "print the version, and which GPUs this build has code for",
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
