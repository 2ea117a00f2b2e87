/* SPDX-License-Identifier: Apache-2.0 */
/* A library with the names of DCGM and its strictness: calls before dcgmInit or without a
   connection, unknown GPUs and fields are refused. It knows two GPUs. Of the first some fields are
   watched: each call has a new sample, every third the one before. FAKE_WITHOUT: no host engine
   runs. Readings are fixed: those that the tests expect. */
#include "runtime/cuda/device/dcgm_api.h"

#include <string.h>
#include <time.h>

enum { BAD = -1, UNINITIALIZED = -10, NOT_WATCHED = -16, NOT_CONNECTED = -21 };
enum { HANDLE = 77, FIRST = 3, SECOND = 5 }; /* ids of the GPUs */

static int begun, calls;
static int64_t last;

#define DECLARE(name, symbol, parameters) int symbol parameters;
PARE_DCGM_FUNCTIONS(DECLARE)
#undef DECLARE

int dcgmInit(void)
{
    begun++;
    return 0;
}

int dcgmShutdown(void)
{
    if (begun <= 0) return UNINITIALIZED;
    begun--;
    return 0;
}

int dcgmConnect(const char *address, uintptr_t *handle)
{
    if (begun <= 0) return UNINITIALIZED;
    if (!handle || strcmp(address, "127.0.0.1") != 0) return BAD;
#ifdef FAKE_WITHOUT
    return NOT_CONNECTED;
#else
    *handle = HANDLE;
    return 0;
#endif
}

static int refused(uintptr_t handle, const void *out)
{
    return begun <= 0 ? UNINITIALIZED : handle != HANDLE || !out ? BAD : 0;
}

int dcgmDisconnect(uintptr_t handle) { return refused(handle, &begun); }

int dcgmGetAllDevices(uintptr_t handle, unsigned *ids, int *count)
{
    const int code = refused(handle, ids);
    if (code || !count) return code ? code : BAD;
    ids[0] = FIRST;
    ids[1] = SECOND;
    *count = 2;
    return 0;
}

/* The value of a field that is asked of the driver. */
static void answer_live(pare_dcgm_value *v)
{
    v->type = PARE_DCGM_TEXT;
    strcpy(v->as.text, v->id == FIRST ? "00000000:01:00.0" : "00000000:41:00.0");
    if (v->field != PARE_DCGM_BUS) v->status = BAD;
}

/* The newest sample of what is watched. */
static void answer_watched(pare_dcgm_value *v)
{
    v->time = last;
    v->type = v->field < PARE_DCGM_PCIE_TX ? PARE_DCGM_FLOAT : PARE_DCGM_INTEGER;
    switch (v->field) {
    case PARE_DCGM_SM: v->as.real = 0.75; break;
    case PARE_DCGM_TENSOR: v->as.real = 0.5; break;
    case PARE_DCGM_DRAM: v->as.real = PARE_DCGM_FLOAT_BLANK + 2; break; /* not supported */
    case PARE_DCGM_PCIE_TX: v->as.integer = 12500000000; break;
    case PARE_DCGM_PCIE_RX: v->as.integer = 0; break;
    case PARE_DCGM_NVLINK_TX: v->as.integer = PARE_DCGM_INTEGER_BLANK + 2; break;
    default: v->status = NOT_WATCHED; break;
    }
}

int dcgmEntitiesGetLatestValues(uintptr_t handle, pare_dcgm_entity *entities, unsigned entity_count,
                                unsigned short *fields, unsigned field_count, unsigned flags,
                                pare_dcgm_value *values)
{
    struct timespec now;
    const int code = refused(handle, values);
    if (code || entity_count != 1) return code ? code : BAD;
    if (entities->kind != PARE_DCGM_GPU || (entities->id != FIRST && entities->id != SECOND))
        return BAD;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!(flags & PARE_DCGM_LIVE) && ++calls % 3)
        last = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    for (unsigned i = 0; i < field_count; i++) {
        pare_dcgm_value *v = &values[field_count - 1 - i];
        *v = (pare_dcgm_value){.version = sizeof *v | 2u << 24,
                               .kind = entities->kind,
                               .id = entities->id,
                               .field = fields[i]};
        if (flags & PARE_DCGM_LIVE)
            answer_live(v);
        else if (v->id == FIRST)
            answer_watched(v);
        else
            v->status = NOT_WATCHED;
    }
    return 0;
}
