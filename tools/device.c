/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/exec.h"
#include "tools/options.h"

pare_status pare_tool_open_device(pare_tool *tool)
{
    const pare_common *common = tool->common;
    const char *name = common->device ? common->device : "auto";
    if (tool->device_chosen) return PARE_OK;
    tool->device_chosen = true;
    pare_status st =
        pare_device_open_within(tool->ctx, &tool->device, name, (size_t)common->memory_limit);
    if (st != PARE_OK) return pare_fail_prefix(tool->ctx, st, "--device %s", name);
    if (tool->device) pare_log(tool->ctx, PARE_LOG_INFO, "on %s", tool->device->name);
    return PARE_OK;
}
