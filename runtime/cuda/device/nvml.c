/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/device/nvml.h"
#include "runtime/cuda/device/nvml_api.h"
#include "runtime/cuda/device/symbol.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

struct pare_nvml {
    pare_nvml_api api;
    void *library, *device;
    char driver[80]; /* NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE */
    bool begun;
};

static pare_status fill(pare_ctx *ctx, pare_nvml *m)
{
#define FIND(name, symbol, parameters)                                                             \
    pare_symbol_find(m->library, #symbol, &m->api.name, sizeof m->api.name);
    PARE_NVML_FUNCTIONS(FIND)
#undef FIND
    if (m->api.init && m->api.shutdown && m->api.driver && m->api.by_bus) return PARE_OK;
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "the installed NVML lacks functions: a newer driver is needed");
}

static pare_status begin(pare_ctx *ctx, pare_nvml *m, const char *bus)
{
    int code = m->api.init();
    if (code) return PARE_FAIL(ctx, UNSUPPORTED, "nvmlInit_v2 failed with %d", code);
    m->begun = true;
    if (m->api.driver(m->driver, sizeof m->driver)) m->driver[0] = 0;
    code = m->api.by_bus(bus, &m->device);
    if (code) return PARE_FAIL(ctx, UNSUPPORTED, "NVML knows no GPU on bus %s (%d)", bus, code);
    return PARE_OK;
}

pare_status pare_nvml_open(pare_ctx *ctx, pare_nvml **out, const char *bus, const char *library)
{
    const char *path = library ? library : "libnvidia-ml.so.1";
    pare_status st;
    pare_nvml *m = pare_alloc(ctx, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    m->library = dlopen(path, RTLD_NOW);
    if (!m->library) {
        st = PARE_FAIL(ctx, UNSUPPORTED, "%s was not found: it comes with NVIDIA's driver", path);
        goto done;
    }
    if ((st = fill(ctx, m))) goto done;
    if ((st = begin(ctx, m, bus))) goto done;
    *out = m;
    return PARE_OK;
done:
    pare_nvml_close(m);
    return st;
}

void pare_nvml_close(pare_nvml *meter)
{
    if (!meter) return;
    if (meter->begun) (void)meter->api.shutdown();
    if (meter->library) dlclose(meter->library);
    pare_free(meter);
}

static double told(int code, double value) { return code ? (double)NAN : value; }

static double clock_of(const pare_nvml *m, int which)
{
    unsigned mhz = 0;
    int code = m->api.clock ? m->api.clock(m->device, which, &mhz) : 1;
    return told(code, mhz);
}

static double milli(int (*function)(void *, unsigned *), void *device)
{
    unsigned value = 0;
    int code = function ? function(device, &value) : 1;
    return told(code, value / 1000.0);
}

void pare_nvml_read(const pare_nvml *m, pare_telemetry *out)
{
    const pare_nvml_api *api = &m->api;
    pare_nvml_memory memory = {0};
    unsigned celsius = 0;
    unsigned long long bits = 0;
    int code =
        api->temperature ? api->temperature(m->device, PARE_NVML_TEMPERATURE_GPU, &celsius) : 1;
    out->temperature_c = told(code, celsius);
    out->power_w = milli(api->power, m->device);
    out->power_limit_w = milli(api->power_limit, m->device);
    out->sm_mhz = clock_of(m, PARE_NVML_CLOCK_SM);
    out->memory_mhz = clock_of(m, PARE_NVML_CLOCK_MEMORY);
    code = api->memory ? api->memory(m->device, &memory) : 1;
    out->memory_used = told(code, (double)memory.used);
    out->memory_total = told(code, (double)memory.total);
    code = api->slowed ? api->slowed(m->device, &bits) : 1;
    out->slowed = code ? 0 : bits;
}

const char *pare_nvml_driver(const pare_nvml *meter) { return meter->driver; }
