/* SPDX-License-Identifier: Apache-2.0 */
/* The part of DCGM, NVIDIA's Data Center GPU Manager, which pare calls: releases 3 and 4 have it
   alike. It is opened at run time. Names, numbers and layouts are those of dcgm_agent.h,
   dcgm_structs.h and dcgm_fields.h; a test compares them where these headers are. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_DCGM_API_H
#define PARE_RUNTIME_CUDA_DEVICE_DCGM_API_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_DCGM_OK = 0 };         /* dcgmReturn_t */
enum { PARE_DCGM_GPU = 1 };        /* dcgm_field_entity_group_t */
enum { PARE_DCGM_LIVE = 1 };       /* DCGM_FV_FLAG_LIVE_DATA: asks the driver */
enum { PARE_DCGM_MOST_GPUS = 32 }; /* DCGM_MAX_NUM_DEVICES */
enum { PARE_DCGM_FLOAT = 'd', PARE_DCGM_INTEGER = 'i', PARE_DCGM_TEXT = 's' }; /* DCGM_FT_... */

/* From these on a value says why there is none. */
#define PARE_DCGM_FLOAT_BLANK   140737488355328.0
#define PARE_DCGM_INTEGER_BLANK INT64_C(0x7ffffffffffffff0)

enum {                           /* DCGM_FI_... */
       PARE_DCGM_BUS = 57,       /* text: "00000000:65:00.0" */
       PARE_DCGM_SM = 1002,      /* part of the cycles in which an SM has a warp, mean over SMs */
       PARE_DCGM_TENSOR = 1004,  /* part of the cycles in which the tensor pipe is active */
       PARE_DCGM_DRAM = 1005,    /* part of the cycles in which device memory is read or written */
       PARE_DCGM_PCIE_TX = 1009, /* bytes a second that the GPU sends, headers included */
       PARE_DCGM_PCIE_RX = 1010,
       PARE_DCGM_NVLINK_TX = 1011,
       PARE_DCGM_NVLINK_RX = 1012
};

/* dcgmGroupEntityPair_t */
typedef struct pare_dcgm_entity {
    unsigned kind, id;
} pare_dcgm_entity;

/* dcgmFieldValue_v2 */
typedef struct pare_dcgm_value {
    unsigned version, kind, id;
    unsigned short field, type;
    int status;
    unsigned unused;
    int64_t time; /* microseconds since 1970 */
    union {
        int64_t integer;
        double real;
        char text[256], blob[4096];
    } as;
} pare_dcgm_value;

/* X(name, symbol, parameters): every function returns a status. */
#define PARE_DCGM_FUNCTIONS(X)                                                                     \
    X(init, dcgmInit, (void))                                                                      \
    X(shutdown, dcgmShutdown, (void))                                                              \
    X(connect, dcgmConnect, (const char *address, uintptr_t *handle))                              \
    X(disconnect, dcgmDisconnect, (uintptr_t handle))                                              \
    X(gpus, dcgmGetAllDevices, (uintptr_t handle, unsigned *ids, int *count))                      \
    X(values, dcgmEntitiesGetLatestValues,                                                         \
      (uintptr_t handle, pare_dcgm_entity * entities, unsigned entity_count,                       \
       unsigned short *fields, unsigned field_count, unsigned flags, pare_dcgm_value *values))

typedef struct pare_dcgm_api {
#define PARE_DCGM_FIELD(name, symbol, parameters) int(*name) parameters;
    PARE_DCGM_FUNCTIONS(PARE_DCGM_FIELD)
#undef PARE_DCGM_FIELD
} pare_dcgm_api;

#ifdef __cplusplus
}
#endif
#endif
