/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/device/dcgm.h"
#include "runtime/cuda/device/dcgm_api.h"
#include "runtime/cuda/device/symbol.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct field {
    unsigned short id;
    size_t at; /* of its number in pare_telemetry */
} fields[] = {{PARE_DCGM_SM, offsetof(pare_telemetry, sm_active)},
              {PARE_DCGM_TENSOR, offsetof(pare_telemetry, tensor_active)},
              {PARE_DCGM_DRAM, offsetof(pare_telemetry, dram_active)},
              {PARE_DCGM_PCIE_TX, offsetof(pare_telemetry, pcie_tx)},
              {PARE_DCGM_PCIE_RX, offsetof(pare_telemetry, pcie_rx)},
              {PARE_DCGM_NVLINK_TX, offsetof(pare_telemetry, nvlink_tx)},
              {PARE_DCGM_NVLINK_RX, offsetof(pare_telemetry, nvlink_rx)}};
enum { FIELDS = sizeof fields / sizeof *fields };
enum { LOADED = RTLD_NOW | RTLD_NODELETE }; /* it stays, whatever its threads still do */

struct pare_dcgm {
    pare_dcgm_api api;
    void *library;
    uintptr_t handle;
    bool begun, connected;
    pare_dcgm_entity gpu;
    int64_t opened;       /* microseconds since 1970 */
    int64_t last[FIELDS]; /* time of the sample before; 0: none since the opening */
    pare_dcgm_value value[FIELDS];
};

/* --- opening --- */

static pare_status load(pare_ctx *ctx, pare_dcgm *d, const char *library)
{
    d->library = dlopen(library ? library : "libdcgm.so.4", LOADED);
    if (!d->library && !library) d->library = dlopen("libdcgm.so.3", LOADED);
    if (!d->library)
        return PARE_FAIL(ctx, UNSUPPORTED, "%s was not found", library ? library : "libdcgm.so.4");
#define FIND(name, symbol, parameters)                                                             \
    pare_symbol_find(d->library, #symbol, &d->api.name, sizeof d->api.name);                       \
    if (!d->api.name) return PARE_FAIL(ctx, UNSUPPORTED, "the installed DCGM lacks " #symbol);
    PARE_DCGM_FUNCTIONS(FIND)
#undef FIND
    return PARE_OK;
}

static pare_status connect_engine(pare_ctx *ctx, pare_dcgm *d)
{
    int code = d->api.init();
    if (code) return PARE_FAIL(ctx, UNSUPPORTED, "dcgmInit failed with %d", code);
    d->begun = true;
    code = d->api.connect("127.0.0.1", &d->handle);
    if (code) return PARE_FAIL(ctx, UNSUPPORTED, "DCGM's host engine does not run here (%d)", code);
    d->connected = true;
    return PARE_OK;
}

/* "00000000:65:00.0" and "0000:65:00.0" are the same place. */
static bool same_bus(const char *a, const char *b)
{
    unsigned x[3], y[3];
    return sscanf(a, "%x:%x:%x", &x[0], &x[1], &x[2]) == 3 &&
           sscanf(b, "%x:%x:%x", &y[0], &y[1], &y[2]) == 3 && !memcmp(x, y, sizeof x);
}

static bool is_at(pare_dcgm *d, unsigned id, const char *bus)
{
    unsigned short field = PARE_DCGM_BUS;
    pare_dcgm_entity gpu = {PARE_DCGM_GPU, id};
    pare_dcgm_value *v = &d->value[0];
    memset(v, 0, sizeof *v);
    if (d->api.values(d->handle, &gpu, 1, &field, 1, PARE_DCGM_LIVE, v)) return false;
    v->as.text[sizeof v->as.text - 1] = 0;
    return !v->status && v->type == PARE_DCGM_TEXT && same_bus(v->as.text, bus);
}

static pare_status find_gpu(pare_ctx *ctx, pare_dcgm *d, const char *bus)
{
    unsigned ids[PARE_DCGM_MOST_GPUS] = {0};
    int count = 0;
    const int code = d->api.gpus(d->handle, ids, &count);
    for (int i = 0; !code && i < count && i < PARE_DCGM_MOST_GPUS; i++)
        if (is_at(d, ids[i], bus)) {
            d->gpu = (pare_dcgm_entity){PARE_DCGM_GPU, ids[i]};
            return PARE_OK;
        }
    return PARE_FAIL(ctx, UNSUPPORTED, "DCGM knows no GPU on bus %s (%d)", bus, code);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

pare_status pare_dcgm_open(pare_ctx *ctx, pare_dcgm **out, const char *bus, const char *library)
{
    pare_dcgm *d = pare_alloc(ctx, 1, sizeof *d);
    if (!d) return PARE_MEMORY;
    pare_status st = load(ctx, d, library);
    if (st == PARE_OK) st = connect_engine(ctx, d);
    if (st == PARE_OK) st = find_gpu(ctx, d, bus);
    d->opened = now();
    if (st == PARE_OK)
        *out = d;
    else
        pare_dcgm_close(d);
    return st;
}

void pare_dcgm_close(pare_dcgm *d)
{
    if (!d) return;
    if (d->connected) (void)d->api.disconnect(d->handle);
    if (d->begun) (void)d->api.shutdown();
    if (d->library) dlclose(d->library);
    pare_free(d);
}

/* --- reading --- */

static double number_of(const pare_dcgm_value *v)
{
    if (v->type == PARE_DCGM_FLOAT && v->as.real < PARE_DCGM_FLOAT_BLANK) return v->as.real;
    if (v->type == PARE_DCGM_INTEGER && v->as.integer < PARE_DCGM_INTEGER_BLANK)
        return (double)v->as.integer;
    return (double)NAN;
}

/* A sample that is new, and whose interval began after the opening: where the one before ended. */
static bool is_whole(pare_dcgm *d, int field, int64_t time)
{
    const int64_t before = d->last[field];
    if (time <= d->opened || time == before) return false;
    d->last[field] = time;
    return before > 0;
}

void pare_dcgm_read(pare_dcgm *d, pare_telemetry *out)
{
    unsigned short ids[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        const double none = (double)NAN;
        ids[i] = fields[i].id;
        memcpy((char *)out + fields[i].at, &none, sizeof none);
    }
    memset(d->value, 0, sizeof d->value);
    if (d->api.values(d->handle, &d->gpu, 1, ids, FIELDS, 0, d->value)) return;
    for (int k = 0; k < FIELDS; k++) { /* in any order */
        const pare_dcgm_value *v = &d->value[k];
        for (int i = 0; i < FIELDS; i++)
            if (v->field == fields[i].id && !v->status && is_whole(d, i, v->time)) {
                const double number = number_of(v);
                memcpy((char *)out + fields[i].at, &number, sizeof number);
            }
    }
}
