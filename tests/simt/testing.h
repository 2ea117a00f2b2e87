/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka, and what tests of device code need again and again. */
#ifndef PARE_SIMT_TESTING_H
#define PARE_SIMT_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include "emulation.h"

#define CUDA_OK(call)       assert_string_equal(cudaGetErrorName(call), "cudaSuccess")
#define CUDA_IS(code, call) assert_string_equal(cudaGetErrorName(call), #code)

/* Device memory with a copy of host's bytes (NULL: zeros). */
static inline void *device_copy(const void *host, size_t bytes)
{
    void *p;
    CUDA_OK(cudaMalloc(&p, bytes));
    if (host)
        CUDA_OK(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    else
        CUDA_OK(cudaMemset(p, 0, bytes));
    return p;
}

/* Waits, copies back and frees. */
static inline void device_fetch(void *host, void *device, size_t bytes)
{
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    CUDA_OK(cudaFree(device));
}

/* What n of an H200's 132 multiprocessors are of this device's. */
static inline int64_t scaled(int64_t n)
{
    int here = 0;
    CUDA_OK(cudaDeviceGetAttribute(&here, cudaDevAttrMultiProcessorCount, 0));
    return (n * here + 131) / 132;
}

/* For main: false, with the reason on stdout, where no device can be used. */
static inline bool device_is_present(void)
{
    int count;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error) printf("no device: %s\n", cudaGetErrorString(error));
    return !error && count > 0;
}

static inline uint32_t test_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Of tests with kernel_case.h, which keep a device open. */
void case_device_close(void) __attribute__((weak));

/* A teardown of every test: everything was released, the checker has nothing to say. */
static inline int device_is_clean(void **state)
{
    if (case_device_close) case_device_close();
    char text[256];
    (void)state;
    if (simt_live(text, sizeof text)) print_error("not released: %s\n", text);
    return simt_live(NULL, 0) != 0 || simt_reports() != 0;
}
#define device_test(f) cmocka_unit_test_teardown(f, device_is_clean)

#endif
