/* SPDX-License-Identifier: Apache-2.0 */
/* From a device's name to the device. */
#include "runtime/exec/exec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#if defined PARE_CUDA && PARE_CUDA
#include "runtime/cuda/cuda.h"

static int gpus(char *why, size_t bytes) { return pare_cuda_count(why, bytes); }

static pare_status gpu_open(pare_ctx *ctx, pare_device **out, int index)
{
    return pare_cuda_open(ctx, out, index, 0);
}
#else
static int gpus(char *why, size_t bytes)
{
    const char text[] = "this build has no GPU code";
    if (bytes >= sizeof text) memcpy(why, text, sizeof text);
    return 0;
}

static pare_status gpu_open(pare_ctx *ctx, pare_device **out, int index)
{
    (void)out, (void)index;
    return PARE_FAIL(ctx, DEVICE, "this build computes on the CPU only: use auto or cpu");
}
#endif

pare_status pare_device_open(pare_ctx *ctx, pare_device **out, const char *name)
{
    char why[256] = "";
    *out = NULL;
    if (!strcmp(name, "cpu")) return PARE_OK;
    if (!strcmp(name, "auto")) {
        if (gpus(why, sizeof why)) return gpu_open(ctx, out, 0);
        pare_log(ctx, PARE_LOG_INFO, "on the CPU: %s", why[0] ? why : "no GPU is visible");
        return PARE_OK;
    }
    const char *index = name + 5;
    if (!strcmp(name, "cuda")) return gpu_open(ctx, out, 0);
    if (!strncmp(name, "cuda:", 5) && isdigit((unsigned char)*index) && strlen(index) < 4 &&
        strspn(index, "0123456789") == strlen(index))
        return gpu_open(ctx, out, atoi(index));
    return PARE_FAIL(ctx, USAGE, "expected auto, cpu, cuda or cuda:N");
}

void pare_device_close(pare_device *device)
{
    if (device) device->backend->close(device);
}
