/* SPDX-License-Identifier: Apache-2.0 */
/* The wrappers of runtime/cuda/simt.h, one kernel each: fed with the same random words on the
   emulation and on a GPU, they must leave the same results. */
#ifndef PARE_TESTS_GPU_SELFTEST_H
#define PARE_TESTS_GPU_SELFTEST_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SELFTEST_THREADS = 1024, /* of each kernel */
    SELFTEST_BLOCK = 256,
    SELFTEST_INPUTS = 3, /* words per thread */
    SELFTEST_WORDS = 4   /* most results per thread */
};

/* How results compare. Nothing else is tolerated. */
typedef enum selftest_kind {
    SELFTEST_BITS,
    SELFTEST_F32,  /* bits; every NaN equals every other (the payload is no one's promise) */
    SELFTEST_F64,  /* the same for doubles */
    SELFTEST_ZERO, /* as F32, and -0 equals +0 */
    SELFTEST_NEAR3 /* floats at most 3 units in the last place apart */
} selftest_kind;

/* Writes `words` blocks of SELFTEST_THREADS results: out (words, threads), zeroed before; in
   (threads, SELFTEST_INPUTS). */
typedef cudaError_t selftest_launch(uint64_t *out, const unsigned *in, cudaStream_t stream);

/* Devices that run a row, by compute capability. */
typedef enum selftest_devices {
    SELFTEST_ALL,
    SELFTEST_SM90,  /* 9.0 and 10.0 */
    SELFTEST_WGMMA, /* 9.0 */
    SELFTEST_TCGEN  /* 10.0 */
} selftest_devices;

typedef struct selftest_row {
    const char *name;
    selftest_kind kind;
    int words;
    selftest_launch *launch;
    selftest_devices devices;
} selftest_row;

const selftest_row *selftest_rows(int *count);

/* Of the rows outside selftest.cu. */
#define SM90(name, ...)  selftest_launch selftest_##name;
#define WGMMA(name, ...) selftest_launch selftest_##name;
#define TCGEN(name, ...) selftest_launch selftest_##name;
#include "selftest.inc"

#ifdef __cplusplus
}
#endif
#endif
