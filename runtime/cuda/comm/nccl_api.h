/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NCCL, NVIDIA's library for messages between GPUs, which pare calls. It is opened at
   run time, so that neither its header is needed to build nor the library to start. Types are those
   of the C calling convention: communicators and streams are pointers, enumerations int. A test
   compares all of it with NVIDIA's header where that is. */
#ifndef PARE_RUNTIME_CUDA_COMM_NCCL_API_H
#define PARE_RUNTIME_CUDA_COMM_NCCL_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { /* ncclResult_t */
       PARE_NCCL_SUCCESS = 0,
       PARE_NCCL_CUDA_ERROR = 1,
       PARE_NCCL_SYSTEM_ERROR = 2,
       PARE_NCCL_INVALID_ARGUMENT = 4,
       PARE_NCCL_INVALID_USAGE = 5,
       PARE_NCCL_REMOTE_ERROR = 6,
       PARE_NCCL_IN_PROGRESS = 7
};

enum { PARE_NCCL_F32 = 7, PARE_NCCL_F64 = 8 }; /* ncclDataType_t */

/* Calls that do not block, and their configuration, came with 2.14. */
enum { PARE_NCCL_OLDEST = 21400 };

typedef struct pare_nccl_id { /* ncclUniqueId */
    char bytes[128];
} pare_nccl_id;

/* ncclConfig_t as it was in 2.14; later members keep the library's defaults. */
typedef struct pare_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
    int later; /* no member of 2.14; INT_MIN leaves the one that came there as it is */
} pare_nccl_config;
#define PARE_NCCL_CONFIG_MAGIC 0xcafebeef

/* X(returns, name, symbol, parameters): int is a status; a call that does not block may return
   PARE_NCCL_IN_PROGRESS, and the communicator's state says when that is over. */
#define PARE_NCCL_FUNCTIONS(X)                                                                     \
    X(int, version, ncclGetVersion, (int *version))                                                \
    X(int, make_id, ncclGetUniqueId, (pare_nccl_id * id))                                          \
    X(int, init, ncclCommInitRankConfig,                                                           \
      (void **comm, int size, pare_nccl_id id, int rank, pare_nccl_config *config))                \
    X(int, finalize, ncclCommFinalize, (void *comm))                                               \
    X(int, destroy, ncclCommDestroy, (void *comm))                                                 \
    X(int, abort, ncclCommAbort, (void *comm))                                                     \
    X(int, state, ncclCommGetAsyncError, (void *comm, int *status))                                \
    X(const char *, text, ncclGetErrorString, (int status))                                        \
    X(int, group_start, ncclGroupStart, (void))                                                    \
    X(int, group_end, ncclGroupEnd, (void))                                                        \
    X(int, send, ncclSend,                                                                         \
      (const void *data, size_t count, int type, int to, void *comm, void *stream))                \
    X(int, receive, ncclRecv,                                                                      \
      (void *data, size_t count, int type, int from, void *comm, void *stream))

typedef struct pare_nccl_api {
#define PARE_NCCL_FIELD(returns, name, symbol, parameters) returns(*name) parameters;
    PARE_NCCL_FUNCTIONS(PARE_NCCL_FIELD)
#undef PARE_NCCL_FIELD
} pare_nccl_api;

#ifdef __cplusplus
}
#endif
#endif
