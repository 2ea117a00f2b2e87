/* SPDX-License-Identifier: Apache-2.0 */
/* What tests and programs that are linked to the emulated device may set and ask. The settings are
   read from the environment before main:
     SIMT_SCHEDULE=fifo|newest|random|warp|reversed   which ready thread of a block runs next
     SIMT_STREAMS=lazy|eager|shuffled|others          when queued work runs
     SIMT_SEED=N  SIMT_PREEMPT=N                      of random choices; checker: switch after about
                                                      every N-th access
     SIMT_DEVICES=N  SIMT_MEMORY=BYTES                devices, and memory of each
     SIMT_CACHE=BYTES                                 L2 of each (1 MiB: emulated copies take time)
     SIMT_DRIVER=N  SIMT_ARCHITECTURE=N               the driver's version (13000; 0: none), sm_N
     SIMT_PROCESSORS=N  SIMT_SHARED=BYTES             multiprocessors, and a block's shared memory
     SIMT_POOLS=0                                     no memory pools
     SIMT_DEPENDENT=1                                 all kernels that may begin early do, behind
                                                      anything, which may have written all memory
     SIMT_PEERS=0                                     no device reaches another one's memory
     SIMT_MIXED=1                                     every other device has another name
     SIMT_BLAS_VERSION=N                              of cuBLAS and cuBLASLt (130100: 13.1.0)
     SIMT_BLAS=absent  SIMT_NCCL=absent               as where these libraries are not installed
     SIMT_DNN=present  SIMT_DNN_VERSION=N             cuDNN is installed; its version
   (91900: 9.19.0) SIMT_NCCL_VERSION=N                              of NCCL (22703: 2.27.3)
     SIMT_NCCL_LIMIT=SECONDS                          a message that waits longer is a fault
     SIMT_FAIL=[NAME/]N:CODE[:sticky]                 the N-th call (of that name) that can fail
                                                      returns CODE
     SIMT_CALLS=FILE                                  number and name of each such call
     SIMT_LEAKS=1                                     what was not released is an error at the end
   A fork after the first call is a fault (SIMT_FORKS=1: is not). A fault ends the process with
   status 66, reports of the checker with 67, leaks with 68. */
#ifndef PARE_SIMT_EMULATION_H
#define PARE_SIMT_EMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum simt_schedule {
    SIMT_FIFO,     /* in the order in which they became ready */
    SIMT_NEWEST,   /* the last one that became ready: one warp runs ahead */
    SIMT_RANDOM,   /* any; blocks and independent streams in random order too */
    SIMT_WARP,     /* stays in a warp while it can */
    SIMT_REVERSED, /* highest thread first, last block first */
    SIMT_SCHEDULES
} simt_schedule;

typedef enum simt_streams {
    SIMT_LAZY,     /* nothing runs before something waits for it */
    SIMT_EAGER,    /* everything runs at once where it may */
    SIMT_SHUFFLED, /* any stream may advance at any call */
    SIMT_OTHERS    /* as lazy, but all that may run elsewhere runs before what is waited for */
} simt_streams;

typedef struct simt_settings {
    simt_schedule schedule;
    simt_streams streams;
    uint64_t seed;
    unsigned preempt; /* 0: never */
    int devices, multiprocessors, major, minor;
    int driver; /* version of the driver: 13000 */
    size_t memory;
    int cache;      /* bytes of L2 */
    int shared;     /* bytes of shared memory of a block, at most */
    bool pools;     /* has the driver memory pools? */
    bool peers;     /* may devices reach each other's memory? */
    bool mixed;     /* has every other device another name? */
    bool dependent; /* does every stream say that a kernel is ahead? */
    int blas;       /* version of cuBLAS and cuBLASLt: 130100 is 13.1.0 */
    int nccl;       /* version of NCCL: 22703 is 2.27.3 */
    int dnn;        /* version of cuDNN: 91900 is 9.19.0 */
} simt_settings;

extern simt_settings simt_set;

enum { SIMT_STATUS_FAULT = 66, SIMT_STATUS_REPORTS = 67, SIMT_STATUS_LEAKS = 68 };

/* The N-th call from now (1: the next) that can fail returns `code`; calls of cuBLAS ALLOC_FAILED
   for cudaErrorMemoryAllocation, else EXECUTION_FAILED. sticky: and every one after it. 0 ends it.
 */
void simt_fail_at(uint64_t n, int code, bool sticky);
/* The N-th call of that name from now. */
void simt_fail_call(const char *name, uint64_t n, int code);
/* Calls that can fail, since the start. */
uint64_t simt_calls(void);
/* Of them, those of one name: "cudaMemcpyAsync"; kernels' launches are "launch". */
uint64_t simt_calls_of(const char *name);
/* Of those of cudaMemcpyAsync, those into streams of a device. */
uint64_t simt_copies_on(int device);

/* Allocations, streams, events, graphs, pools and library handles that were not released; text (may
   be NULL) lists kinds and numbers. */
int simt_live(char *text, size_t size);

bool simt_emulated(void);       /* false where tests are linked to a real device (on_device.c) */
bool simt_checks(void);         /* is the checker linked? */
uint64_t simt_reports(void);    /* of the checker */
uint64_t simt_launches(void);   /* of kernels that ran */
uint64_t simt_dependents(void); /* of them, those that might begin early */

#ifdef __cplusplus
}
#endif
#endif
