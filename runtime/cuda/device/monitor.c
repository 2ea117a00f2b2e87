/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/device/monitor.h"
#include "runtime/cuda/device/dcgm.h"
#include "runtime/cuda/device/nvml.h"

struct pare_monitor {
    pare_nvml *nvml;
    pare_dcgm *dcgm; /* NULL: there is none */
};

static pare_status open_both(pare_ctx *ctx, pare_monitor *m, const char *bus)
{
    PARE_TRY(pare_nvml_open(ctx, &m->nvml, bus, NULL));
    const pare_status st = pare_dcgm_open(ctx, &m->dcgm, bus, NULL);
    if (st != PARE_UNSUPPORTED) return st;
    pare_log(ctx, PARE_LOG_INFO, "activity of SMs and memory is not read: %s", ctx->message);
    pare_ctx_clear(ctx);
    return PARE_OK;
}

pare_status pare_cuda_monitor_open(pare_ctx *ctx, pare_monitor **out, const char *bus)
{
    pare_monitor *m = pare_alloc(ctx, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    const pare_status st = open_both(ctx, m, bus);
    if (st == PARE_OK)
        *out = m;
    else
        pare_cuda_monitor_close(m);
    return st;
}

void pare_cuda_monitor_close(pare_monitor *m)
{
    if (!m) return;
    pare_dcgm_close(m->dcgm);
    pare_nvml_close(m->nvml);
    pare_free(m);
}

void pare_cuda_monitor_read(const pare_monitor *m, pare_telemetry *out)
{
    pare_nvml_read(m->nvml, out);
    if (m->dcgm) pare_dcgm_read(m->dcgm, out);
}

const char *pare_cuda_monitor_driver(const pare_monitor *m) { return pare_nvml_driver(m->nvml); }
