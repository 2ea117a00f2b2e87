/* SPDX-License-Identifier: Apache-2.0 */
/* From a device's name to the device and its meter, and what there is of devices. */
#include "runtime/exec/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined PARE_CUDA && PARE_CUDA
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/device/monitor.h"

static pare_status gpu_open(pare_ctx *ctx, pare_device **out, int index, size_t memory_limit)
{
    return pare_cuda_open(ctx, out, index, memory_limit);
}

const char *pare_gpu_code(char *text, size_t bytes) { return pare_cuda_code(text, bytes); }

void pare_gpu_find(pare_gpu_facts *out)
{
    memset(out, 0, sizeof *out);
    pare_cuda_versions(&out->runtime, &out->driver);
    out->count = pare_cuda_count(out->why, sizeof out->why);
}

pare_status pare_gpu_name(pare_ctx *ctx, int index, char *text, size_t bytes, size_t *memory)
{
    return pare_cuda_name(ctx, index, text, bytes, memory);
}

pare_status pare_gpu_blas(pare_ctx *ctx, char *text, size_t bytes)
{
    return pare_cuda_blas_path(ctx, text, bytes);
}

pare_status pare_gpu_dnn(pare_ctx *ctx, char *text, size_t bytes)
{
    return pare_cuda_dnn_text(ctx, text, bytes);
}

void pare_gpu_allow_dnn(pare_device *device) { pare_cuda_allow_dnn(device); }
bool pare_gpu_allows_dnn(const pare_device *device) { return pare_cuda_allows_dnn(device); }

pare_status pare_gpu_nccl(pare_ctx *ctx, char *text, size_t bytes)
{
    return pare_cuda_nccl(ctx, text, bytes);
}

const char *pare_device_versions(pare_ctx *ctx, pare_device *device)
{
    if (!device->versions[0])
        pare_cuda_library_versions(ctx, device, device->versions, sizeof device->versions);
    return device->versions;
}

static pare_status meter_open(pare_ctx *ctx, pare_monitor **out, const pare_device *device)
{
    return pare_cuda_monitor_open(ctx, out, device->bus);
}

static void meter_close(pare_monitor *meter) { pare_cuda_monitor_close(meter); }
static void meter_read(const pare_monitor *meter, pare_telemetry *out)
{
    pare_cuda_monitor_read(meter, out);
}
static const char *meter_driver(const pare_monitor *meter)
{
    return pare_cuda_monitor_driver(meter);
}
#else
static const char without[] = "this build has no GPU code";

static pare_status gpu_open(pare_ctx *ctx, pare_device **out, int index, size_t memory_limit)
{
    (void)out, (void)index, (void)memory_limit;
    return PARE_FAIL(ctx, DEVICE, "%s: use --device cpu, or build with a CUDA 13 toolkit", without);
}

const char *pare_gpu_code(char *text, size_t bytes)
{
    (void)text, (void)bytes;
    return NULL;
}

void pare_gpu_find(pare_gpu_facts *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->why, sizeof out->why, "%s", without);
}

pare_status pare_gpu_name(pare_ctx *ctx, int index, char *text, size_t bytes, size_t *memory)
{
    (void)text, (void)bytes, (void)memory;
    return PARE_FAIL(ctx, DEVICE, "GPU %d: %s", index, without);
}

pare_status pare_gpu_blas(pare_ctx *ctx, char *text, size_t bytes)
{
    (void)text, (void)bytes;
    return PARE_FAIL(ctx, UNSUPPORTED, "%s", without);
}

pare_status pare_gpu_dnn(pare_ctx *ctx, char *text, size_t bytes)
{
    (void)text, (void)bytes;
    return PARE_FAIL(ctx, UNSUPPORTED, "%s", without);
}

void pare_gpu_allow_dnn(pare_device *device) { (void)device; }
bool pare_gpu_allows_dnn(const pare_device *device) { return (void)device, false; }

pare_status pare_gpu_nccl(pare_ctx *ctx, char *text, size_t bytes)
{
    (void)text, (void)bytes;
    return PARE_FAIL(ctx, UNSUPPORTED, "%s", without);
}

const char *pare_device_versions(pare_ctx *ctx, pare_device *device)
{
    (void)ctx;
    return device->versions;
}

static pare_status meter_open(pare_ctx *ctx, pare_monitor **out, const pare_device *device)
{
    (void)out;
    return PARE_FAIL(ctx, UNSUPPORTED, "%s has no meter", device->name);
}

static void meter_close(pare_monitor *meter) { (void)meter; }
static void meter_read(const pare_monitor *meter, pare_telemetry *out) { (void)meter, (void)out; }
static const char *meter_driver(const pare_monitor *meter) { return (void)meter, ""; }
#endif

/* The number after "cuda" or "cuda:N"; false for any other word. */
static bool index_of(const char *name, int *index)
{
    *index = 0;
    if (!strcmp(name, "cuda")) return true;
    if (strncmp(name, "cuda:", 5) != 0) return false;
    size_t digits = strspn(name + 5, "0123456789");
    *index = atoi(name + 5);
    return digits > 0 && digits < 4 && !name[5 + digits];
}

pare_status pare_device_check(pare_ctx *ctx, const char *name)
{
    int index;
    if (!strcmp(name, "auto") || !strcmp(name, "cpu") || index_of(name, &index)) return PARE_OK;
    return PARE_FAIL(ctx, USAGE, "expected auto, cpu, cuda or cuda:N");
}

/* auto: a GPU that is there but cannot be used is worth a warning, none is not. */
static pare_status open_auto(pare_ctx *ctx, pare_device **out, size_t memory_limit)
{
    pare_gpu_facts facts;
    pare_gpu_find(&facts);
    if (!facts.count) {
        bool old = facts.driver && facts.driver < facts.runtime / 1000 * 1000;
        pare_log(ctx, old ? PARE_LOG_WARNING : PARE_LOG_INFO, "on the CPU: %s",
                 facts.why[0] ? facts.why : "no GPU is visible");
        return PARE_OK;
    }
    if (gpu_open(ctx, out, 0, memory_limit) == PARE_OK) return PARE_OK;
    pare_log(ctx, PARE_LOG_WARNING, "on the CPU: %s", ctx->message);
    pare_ctx_clear(ctx);
    return PARE_OK;
}

pare_status pare_device_open_within(pare_ctx *ctx, pare_device **out, const char *name,
                                    size_t memory_limit)
{
    int index;
    *out = NULL;
    PARE_TRY(pare_device_check(ctx, name));
    if (index_of(name, &index)) return gpu_open(ctx, out, index, memory_limit);
    return strcmp(name, "cpu") ? open_auto(ctx, out, memory_limit) : PARE_OK;
}

pare_status pare_device_open(pare_ctx *ctx, pare_device **out, const char *name)
{
    return pare_device_open_within(ctx, out, name, 0);
}

void pare_device_close(pare_device *device)
{
    if (device) device->backend->close(device);
}

pare_status pare_monitor_open(pare_ctx *ctx, pare_monitor **out, const pare_device *device)
{
    *out = NULL;
    pare_status st = meter_open(ctx, out, device);
    if (st != PARE_UNSUPPORTED) return st;
    pare_log(ctx, PARE_LOG_INFO, "power and clocks are not read: %s", ctx->message);
    pare_ctx_clear(ctx);
    return PARE_OK;
}

void pare_monitor_close(pare_monitor *meter)
{
    if (meter) meter_close(meter);
}

void pare_monitor_read(const pare_monitor *meter, pare_telemetry *out)
{
    const double none = (double)NAN;
    *out = (pare_telemetry){.power_w = none,
                            .power_limit_w = none,
                            .sm_mhz = none,
                            .memory_mhz = none,
                            .temperature_c = none,
                            .memory_used = none,
                            .memory_total = none,
                            .sm_active = none,
                            .tensor_active = none,
                            .dram_active = none,
                            .pcie_tx = none,
                            .pcie_rx = none,
                            .nvlink_tx = none,
                            .nvlink_rx = none};
    if (meter) meter_read(meter, out);
}

const char *pare_monitor_driver(const pare_monitor *meter)
{
    return meter ? meter_driver(meter) : "";
}
