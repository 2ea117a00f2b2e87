/* SPDX-License-Identifier: Apache-2.0 */
/* A device's first product by tcgen.h: its kernels were written without a device of their kind, so
   that each must give the right bytes once before products are given to it. */
#include "runtime/cuda/gemm/tcgen.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { PROOF_ROWS = 160, PROOF_DEPTH = 160, PROOF_COLUMNS = 64, PROOF_DEVICES = 64 };
typedef struct proof {
    int8_t x[PROOF_ROWS][PROOF_DEPTH], w[PROOF_COLUMNS][PROOF_DEPTH], y[PROOF_ROWS][PROOF_COLUMNS];
    pare_cuda_four_columns four[(PROOF_COLUMNS + PARE_WGMMA_WIDEST) / 4];
} proof;

static void proof_make(proof *p)
{
    for (int r = 0; r < PROOF_ROWS; r++)
        for (int k = 0; k < PROOF_DEPTH; k++) p->x[r][k] = (int8_t)((r * 31 + k * 7) % 251 - 125);
    for (int c = 0; c < PROOF_COLUMNS; c++) {
        for (int k = 0; k < PROOF_DEPTH; k++) p->w[c][k] = (int8_t)((c * 13 + k * 11) % 255 - 127);
        p->four[c / 4].shift[c % 4] = c * 97;
        p->four[c / 4].scale[c % 4] = 0x1p-11f;
        p->four[c / 4].bias[c % 4] = -0.0f;
    }
    memset(p->y, 0, sizeof p->y);
}

static bool proof_holds(const proof *p)
{
    bool right = true;
    for (int r = 0; r < PROOF_ROWS; r++)
        for (int c = 0; c < PROOF_COLUMNS; c++) {
            int sum = -c * 97;
            for (int k = 0; k < PROOF_DEPTH; k++) sum += p->x[r][k] * p->w[c][k];
            const float v = rintf((float)sum * 0x1p-11f);
            right = right && p->y[r][c] == (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
        }
    return right;
}

static cudaError_t proof_run(proof *host, proof *device, cudaStream_t stream)
{
    pare_cuda_gemm_args p = {0};
    p.x = device->x, p.w = device->w, p.y = device->y, p.four = device->four;
    p.x_type = p.y_type = PARE_s8;
    p.rows = PROOF_ROWS, p.columns = PROOF_COLUMNS, p.depth = PROOF_DEPTH;
    p.x_row = p.w_row = PROOF_DEPTH, p.y_row = PROOF_COLUMNS;
    p.epilogue.to = PARE_s8, p.epilogue.z_type = PARE_NOTYPE;
    p.epilogue.y_scale = p.epilogue.z_scale = 1;
    p.epilogue.low = -128, p.epilogue.high = 127;
    p.tile = PARE_CUDA_128X64;
    cudaError_t error = cudaMemcpyAsync(device, host, sizeof *host, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) error = pare_cuda_tcgen_launch(&p, stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(host, device, sizeof *host, cudaMemcpyDeviceToHost, stream);
    const cudaError_t waited = cudaStreamSynchronize(stream);
    return error == cudaSuccess ? waited : error;
}

/* On a stream of its own: others may be recorded. */
static bool proof_is_right(int device)
{
    static proof host; /* one at a time */
    int before = 0;
    void *memory = NULL;
    cudaStream_t stream = NULL;
    cudaError_t error = cudaGetDevice(&before);
    if (error == cudaSuccess) error = cudaSetDevice(device);
    if (error == cudaSuccess) error = cudaMalloc(&memory, sizeof host);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    proof_make(&host);
    if (error == cudaSuccess) error = proof_run(&host, memory, stream);
    if (stream) (void)cudaStreamDestroy(stream);
    (void)cudaFree(memory);
    (void)cudaSetDevice(before);
    (void)cudaGetLastError();
    return error == cudaSuccess && proof_holds(&host);
}

bool pare_cuda_tcgen_is_right(const pare_prep *prep)
{
    static atomic_int known[PROOF_DEVICES]; /* 1: right, -1: not */
    static atomic_flag busy = ATOMIC_FLAG_INIT;
    const int device = prep->device->index;
    if (device < 0 || device >= PROOF_DEVICES) return false;
    while (atomic_flag_test_and_set(&busy)) continue;
    if (!known[device]) {
        known[device] = proof_is_right(device) ? 1 : -1;
        if (known[device] < 0)
            pare_log(prep->ctx, PARE_LOG_WARNING,
                     "cuda:%d: a product by tcgen05 failed or is wrong: its kernels are left out",
                     device);
    }
    atomic_flag_clear(&busy);
    return known[device] > 0;
}
