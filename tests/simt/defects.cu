// SPDX-License-Identifier: Apache-2.0
// Kernels with planted defects: BAD chooses the wrong form, and is the only difference to the twin.
#include "defects.h"
#include "runtime/cuda/device/simt.h"
#include <stdlib.h>

enum { N = 1000, BINS = 32 };
#define LAUNCH(kernel, planted, grid, block, ...)                                                  \
    do {                                                                                           \
        if (planted)                                                                               \
            SIMT_LAUNCH(kernel<true>, dim3(grid), dim3(block), 0, nullptr, __VA_ARGS__);           \
        else                                                                                       \
            SIMT_LAUNCH(kernel<false>, dim3(grid), dim3(block), 0, nullptr, __VA_ARGS__);          \
    } while (0)

// Words in device memory with host values around them.
struct words {
    int *p;
    int host[2048];
    int n;
    explicit words(int count) : p(nullptr), host(), n(count)
    {
        cudaMalloc((void **)&p, sizeof(int) * (size_t)n);
    }
    ~words() { cudaFree(p); }
    void put() { cudaMemcpy(p, host, sizeof(int) * (size_t)n, cudaMemcpyHostToDevice); }
    void get()
    {
        cudaDeviceSynchronize();
        cudaMemcpy(host, p, sizeof(int) * (size_t)n, cudaMemcpyDeviceToHost);
    }
};

static void make_input(words *x)
{
    for (int i = 0; i < x->n; i++) x->host[i] = (i * 7919 + 13) % 1000;
    x->put();
}

// --- histograms in shared memory ---

enum histogram_defect { H_RIGHT, H_NO_BARRIER, H_PAST_END, H_NOT_ATOMIC };

template <int BAD> static __global__ void histogram(const int *x, int n, unsigned *out)
{
    SIMT_DYN_SHARED(unsigned, bin);
    for (int i = (int)threadIdx.x; i < BINS; i += (int)blockDim.x) bin[BINS - 1 - i] = 0;
    if (BAD != H_NO_BARRIER) __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        int b = min(x[i] / 31, BAD == H_PAST_END ? BINS : BINS - 1);
        if (BAD == H_NOT_ATOMIC)
            bin[b] = bin[b] + 1;
        else
            atomicAdd(&bin[b], 1u);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < BINS; i += (int)blockDim.x) out[i] = bin[i];
}

template <int BAD> static int run_histogram(int planted)
{
    words x(N), y(BINS);
    make_input(&x);
    int wanted[BINS] = {};
    for (int i = 0; i < N; i++) wanted[min(x.host[i] / 31, BINS - 1)]++;
    size_t shared = BINS * sizeof(unsigned);
    if (planted)
        SIMT_LAUNCH(histogram<BAD>, dim3(1), dim3(128), shared, nullptr, x.p, N, (unsigned *)y.p);
    else
        SIMT_LAUNCH(histogram<H_RIGHT>, dim3(1), dim3(128), shared, nullptr, x.p, N,
                    (unsigned *)y.p);
    y.get();
    return memcmp(y.host, wanted, sizeof wanted) != 0;
}

int defect_barrier_after_zeroing(int planted) { return run_histogram<H_NO_BARRIER>(planted); }
int defect_shared_one_past_end(int planted) { return run_histogram<H_PAST_END>(planted); }
int defect_increment_not_atomic(int planted) { return run_histogram<H_NOT_ATOMIC>(planted); }

// --- largest value by shuffles in two stages ---

enum maximum_defect { M_RIGHT, M_PAST_END, M_LANE, M_STAGES, M_DIVERGENT };

template <int BAD> static __global__ void maximum(const int *x, int n, int *out)
{
    SIMT_SHARED(int, part, [8]);
    int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, m = INT32_MIN;
    for (int i = t; BAD == M_PAST_END ? i <= n : i < n; i += (int)blockDim.x) m = max(m, x[i]);
    if (BAD != M_LANE || lane < 31)
        for (int d = 16; d; d /= 2) m = max(m, __shfl_down_sync(0xffffffffu, m, (unsigned)d));
    if (lane == 0) part[7 - warp] = m;
    if (BAD != M_STAGES) __syncthreads();
    if (BAD == M_DIVERGENT && warp == 0) __syncthreads();
    if (warp) return;
    m = part[lane % 8];
    for (int d = 4; d; d /= 2) m = max(m, __shfl_xor_sync(0xffffffffu, m, d));
    if (lane == 0) *out = m;
}

template <int BAD> static int run_maximum(int planted)
{
    words x(N), y(1);
    make_input(&x);
    int wanted = INT32_MIN;
    x.host[N - 1] = 5000; // the last warp's
    x.put();
    for (int i = 0; i < N; i++) wanted = max(wanted, x.host[i]);
    if (planted)
        SIMT_LAUNCH(maximum<BAD>, dim3(1), dim3(256), 0, nullptr, x.p, N, y.p);
    else
        SIMT_LAUNCH(maximum<M_RIGHT>, dim3(1), dim3(256), 0, nullptr, x.p, N, y.p);
    y.get();
    return y.host[0] != wanted;
}

int defect_read_past_allocation(int planted) { return run_maximum<M_PAST_END>(planted); }
int defect_lane_missing_in_shuffle(int planted) { return run_maximum<M_LANE>(planted); }
int defect_barrier_between_stages(int planted) { return run_maximum<M_STAGES>(planted); }
int defect_barrier_in_divergent_code(int planted) { return run_maximum<M_DIVERGENT>(planted); }

// --- a pipeline of cp.async stages: out[row] = sum of a row's words, rows of 64 words in 4 parts
// ---

enum pipeline_defect { P_RIGHT, P_WAIT, P_OVERWRITE, P_ROWS };
enum { ROWS = 60, ROW_WORDS = 64, PART_WORDS = 16, BLOCK_ROWS = 64 };

SIMT_INLINE void load_part(int (*to)[PART_WORDS], const int *x, int part)
{
    for (int c = (int)threadIdx.x; c < BLOCK_ROWS * PART_WORDS / 4; c += (int)blockDim.x) {
        int row = c / 4, at = c % 4 * 4, there = row < ROWS;
        simt_cp_async16(&to[row][at], x + (there ? row : 0) * ROW_WORDS + part * PART_WORDS + at,
                        there ? 16 : 0);
    }
    simt_cp_async_commit();
}

template <int BAD> static __global__ void row_sums(const int *x, int *out)
{
    SIMT_SHARED(int, stage, [2][BLOCK_ROWS][PART_WORDS]);
    const int parts = ROW_WORDS / PART_WORDS;
    int row = (int)threadIdx.x ^ 33, sum = 0; // another thread's rows
    load_part(stage[0], x, 0);
    for (int p = 0; p < parts; p++) {
        if (p + 1 < parts) {
            load_part(stage[(p + 1) % 2], x, p + 1);
            if (BAD == P_WAIT)
                simt_cp_async_wait<2>();
            else
                simt_cp_async_wait<1>();
        } else
            simt_cp_async_wait<0>();
        __syncthreads();
        for (int i = 0; i < PART_WORDS; i++) sum += stage[p % 2][row][i];
        if (BAD != P_OVERWRITE) __syncthreads();
    }
    if (BAD == P_ROWS || row < ROWS) out[row] = sum;
}

template <int BAD> static int run_row_sums(int planted)
{
    words y(ROWS);
    int *big;
    static int host[ROWS * ROW_WORDS];
    int bad = 0;
    for (int i = 0; i < ROWS * ROW_WORDS; i++) host[i] = i * 31 % 257;
    cudaMalloc((void **)&big, sizeof host);
    cudaMemcpy(big, host, sizeof host, cudaMemcpyHostToDevice);
    if (planted)
        SIMT_LAUNCH(row_sums<BAD>, dim3(1), dim3(BLOCK_ROWS), 0, nullptr, big, y.p);
    else
        SIMT_LAUNCH(row_sums<P_RIGHT>, dim3(1), dim3(BLOCK_ROWS), 0, nullptr, big, y.p);
    y.get();
    for (int r = 0; r < ROWS; r++) {
        int sum = 0;
        for (int i = 0; i < ROW_WORDS; i++) sum += host[r * ROW_WORDS + i];
        bad |= y.host[r] != sum;
    }
    cudaFree(big);
    return bad;
}

int defect_wait_one_group_short(int planted) { return run_row_sums<P_WAIT>(planted); }
int defect_barrier_before_overwrite(int planted) { return run_row_sums<P_OVERWRITE>(planted); }
int defect_write_past_rows(int planted) { return run_row_sums<P_ROWS>(planted); }

// --- one kernel each ---

template <bool BAD> static __global__ void missing_syncwarp(int *out)
{
    SIMT_SHARED(int, room, [32]);
    int t = (int)threadIdx.x;
    room[t] = 5;
    __syncwarp();
    room[31 - t] = 100 + t;
    if (!BAD) __syncwarp();
    out[t] = room[t ^ 1];
}
int defect_missing_syncwarp(int planted)
{
    words y(32);
    int bad = 0;
    LAUNCH(missing_syncwarp, planted, 1, 32, y.p);
    y.get();
    for (int t = 0; t < 32; t++) bad |= y.host[t] != 100 + (31 - (t ^ 1));
    return bad;
}

// A collective in its place: it brings lanes together and orders nothing.
template <bool BAD> static __global__ void shuffle_for_syncwarp(int *out)
{
    SIMT_SHARED(int, room, [32]);
    int t = (int)threadIdx.x;
    room[t] = t + 3;
    int first = __shfl_sync(0xffffffffu, t, 0);
    if (!BAD) __syncwarp();
    out[t] = room[t ^ 1] + first;
}
int defect_shuffle_for_syncwarp(int planted)
{
    words y(32);
    int bad = 0;
    LAUNCH(shuffle_for_syncwarp, planted, 1, 32, y.p);
    y.get();
    for (int t = 0; t < 32; t++) bad |= y.host[t] != (t ^ 1) + 3;
    return bad;
}

template <bool BAD> static __global__ void return_before_barrier(int *out, int n)
{
    int t = (int)threadIdx.x;
    if (BAD && t >= n) return;
    if (t < n) out[t] = t;
    __syncthreads();
    if (t + 1 < n) atomicAdd(&out[t], 1);
}
int defect_return_before_barrier(int planted)
{
    words y(50);
    LAUNCH(return_before_barrier, planted, 1, 64, y.p, 50);
    y.get();
    return y.host[48] != 49;
}

template <bool BAD> static __global__ void blocks_share_a_cell(int *out)
{
    if (threadIdx.x) return;
    if (BAD)
        *out = *out + 1;
    else
        atomicAdd(out, 1);
}
int defect_blocks_share_a_cell(int planted)
{
    words y(1);
    y.put();
    LAUNCH(blocks_share_a_cell, planted, 6, 32, y.p);
    y.get();
    return y.host[0] != 6;
}

// In place: a block reads its neighbour's first element.
template <bool BAD> static __global__ void order_of_blocks(const int *x, int *y)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n = (int)(gridDim.x * blockDim.x);
    int next = (BAD ? y : x)[(i + 1) % n];
    __syncthreads();
    y[i] = next;
}
int defect_order_of_blocks(int planted)
{
    words x(256), y(256);
    int bad = 0;
    make_input(&x);
    make_input(&y);
    LAUNCH(order_of_blocks, planted, 4, 64, x.p, y.p);
    y.get();
    for (int i = 0; i < 256; i++) bad |= y.host[i] != x.host[(i + 1) % 256];
    return bad;
}

template <bool BAD> static __global__ void unwritten_device_memory(const int *x, int *y)
{
    int i = (int)threadIdx.x;
    y[i] = x[i] + 1;
}
int defect_unwritten_device_memory(int planted)
{
    words x(64), y(64);
    if (!planted) x.put();
    LAUNCH(unwritten_device_memory, planted, 1, 64, x.p, y.p);
    y.get();
    return y.host[3] != 1;
}

template <bool BAD> static __global__ void unwritten_shared_memory(int *y)
{
    SIMT_SHARED(int, sum, [1]);
    if (!BAD && threadIdx.x == 0) *sum = 0;
    __syncthreads();
    atomicAdd(sum, 1);
    __syncthreads();
    if (threadIdx.x == 0) *y = *sum;
}
int defect_unwritten_shared_memory(int planted)
{
    words y(1);
    LAUNCH(unwritten_shared_memory, planted, 1, 64, y.p);
    y.get();
    return y.host[0] != 64;
}

template <bool BAD> static __global__ void shuffle_from_absent_lane(int *y)
{
    int t = (int)threadIdx.x, v = 0;
    if (t < 16) v = __shfl_sync(0x0000ffffu, t, BAD ? 20 : 3);
    y[t] = v;
}
int defect_shuffle_from_absent_lane(int planted)
{
    words y(32);
    LAUNCH(shuffle_from_absent_lane, planted, 1, 32, y.p);
    y.get();
    return y.host[0] != 3;
}

template <bool BAD> static __global__ void lane_outside_its_mask(int *y)
{
    int t = (int)threadIdx.x, v = 0;
    if (t < (BAD ? 9 : 8)) v = (int)__ballot_sync(0xffu, t % 2);
    y[t] = v;
}
int defect_lane_outside_its_mask(int planted)
{
    words y(32);
    LAUNCH(lane_outside_its_mask, planted, 1, 32, y.p);
    y.get();
    return y.host[1] != 0xaa;
}

template <bool BAD> static __global__ void misaligned_vector_load(const int *x, int *y)
{
    int4 v = *(const int4 *)(x + (BAD ? 1 : 4));
    y[0] = v.x + v.w;
}
int defect_misaligned_vector_load(int planted)
{
    words x(64), y(1);
    for (int i = 0; i < 64; i++) x.host[i] = i / 4;
    x.put();
    LAUNCH(misaligned_vector_load, planted, 1, 1, x.p, y.p);
    y.get();
    return y.host[0] != (planted ? 1 : 2);
}

template <bool BAD> static __global__ void misaligned_cp_async(const int *x, int *y)
{
    SIMT_SHARED(int, room, [8]);
    simt_cp_async16(room + (BAD ? 2 : 4), x, 16);
    simt_cp_async_commit();
    simt_cp_async_wait<0>();
    *y = room[4];
}
int defect_misaligned_cp_async(int planted)
{
    words x(4), y(1);
    make_input(&x);
    LAUNCH(misaligned_cp_async, planted, 1, 1, x.p, y.p);
    y.get();
    return y.host[0] != x.host[0];
}

template <bool BAD> static __global__ void cp_async_never_waited_for(const int *x, int *y)
{
    SIMT_SHARED(int, room, [8]);
    simt_cp_async16(room, x, 16);
    simt_cp_async16(room + 4, x + 4, 16);
    simt_cp_async_commit();
    if (!BAD) simt_cp_async_wait<0>();
    *y = BAD ? 13 : room[0];
}
int defect_cp_async_never_waited_for(int planted)
{
    words x(8), y(1);
    make_input(&x);
    LAUNCH(cp_async_never_waited_for, planted, 1, 1, x.p, y.p);
    y.get();
    return y.host[0] != x.host[0];
}

template <bool BAD> static __global__ void cp_async_source_changes(int *x, int *y)
{
    SIMT_SHARED(int, room, [64][4]);
    int t = (int)threadIdx.x;
    simt_cp_async16(room[t], x + t * 4, 16);
    simt_cp_async_commit();
    if (!BAD) simt_cp_async_wait<0>();
    if (!BAD) __syncthreads();
    x[((t + 1) % 64) * 4] = -1;
    if (BAD) simt_cp_async_wait<0>();
    if (BAD) __syncthreads();
    y[t] = room[t][0];
}
int defect_cp_async_source_changes(int planted)
{
    words x(256), y(64);
    int bad = 0;
    make_input(&x);
    LAUNCH(cp_async_source_changes, planted, 1, 64, x.p, y.p);
    y.get();
    for (int t = 0; t < 64; t++) bad |= y.host[t] != x.host[t * 4];
    return bad;
}

template <bool BAD> static __global__ void ldmatrix_not_transposed(const uint4 *x, unsigned *y)
{
    SIMT_SHARED(uint4, room, [8]);
    unsigned r[1];
    int t = (int)threadIdx.x;
    if (t < 8) room[t] = x[t];
    __syncwarp();
    if (BAD)
        simt_ldmatrix_x1(r, &room[t % 8]);
    else
        simt_ldmatrix_x1_trans(r, &room[t % 8]);
    y[t] = r[0];
}
int defect_ldmatrix_not_transposed(int planted)
{
    words x(32), y(32);
    make_input(&x);
    LAUNCH(ldmatrix_not_transposed, planted, 1, 32, (const uint4 *)x.p, (unsigned *)y.p);
    y.get();
    return (y.host[0] & 0xffff) != (x.host[0] & 0xffff) ||
           (y.host[0] >> 16) != (x.host[4] & 0xffff);
}

// y[i] of row i, which keeps one 1, the second of the last four: place 61 in even rows, 63 in odd
// ones; of a column that is 1 at place 60 and 3 at 63: 0 and 3.
enum sparse_defect { S_RIGHT, S_DESCENDS, S_NEXT_ROW };
template <int BAD> static __global__ void sparse_row(int *y)
{
    const int lane = (int)threadIdx.x, g = lane / 4;
    const unsigned ones = lane % 4 == 3 ? 0x01000000u : 0; /* kept number 31 is a 1 */
    const unsigned a[4] = {0, 0, ones, ones};
    const unsigned b[4] = {0, 0, 0, lane % 4 == 3 ? 0x03000001u : 0};
    const int row = BAD == S_NEXT_ROW ? g + 1 : g;
    unsigned meta = row % 2 ? 0xccccccccu : 0x44444444u; /* g and g + 8 are odd together */
    if (BAD == S_DESCENDS) meta = row % 2 ? 0x3cccccccu : 0x14444444u;
    int d[4] = {0, 0, 0, 0};
    simt_mma_sp_m16n8k64_s8s8(d, a, b, meta);
    if (lane % 4 == 0) y[g] = d[0], y[g + 8] = d[2];
}

template <int BAD> static int run_sparse(int planted)
{
    words y(16);
    if (planted)
        SIMT_LAUNCH(sparse_row<BAD>, dim3(1), dim3(32), 0, nullptr, y.p);
    else
        SIMT_LAUNCH(sparse_row<S_RIGHT>, dim3(1), dim3(32), 0, nullptr, y.p);
    y.get();
    int bad = 0;
    for (int i = 0; i < 16; i++) bad += y.host[i] != (i % 2 ? 3 : 0);
    return bad > 0;
}
int defect_sparse_pair_descends(int planted) { return run_sparse<S_DESCENDS>(planted); }
int defect_sparse_metadata_of_next_row(int planted) { return run_sparse<S_NEXT_ROW>(planted); }

template <bool BAD> static __global__ void too_much_shared_memory(int *y)
{
    SIMT_SHARED(int, room, [BAD ? 13000 : 12000]);
    room[threadIdx.x] = 4;
    __syncthreads();
    y[threadIdx.x] = room[63 - threadIdx.x];
}
int defect_too_much_shared_memory(int planted)
{
    words y(64);
    LAUNCH(too_much_shared_memory, planted, 1, 64, y.p);
    y.get();
    return y.host[0] != 4;
}

template <bool BAD> static __global__ void far_out_of_bounds(const int *x, int n, int *y)
{
    int t = (int)threadIdx.x;
    y[t] = t < n || BAD ? x[t * 40] : 0;
}
int defect_far_out_of_bounds(int planted)
{
    words x(2048), y(64);
    make_input(&x);
    LAUNCH(far_out_of_bounds, planted, 1, 64, x.p, 50, y.p);
    y.get();
    return y.host[3] != x.host[120];
}

template <bool BAD> static __global__ void host_pointer_in_kernel(const int *x, int *y)
{
    *y = x[0] + x[1];
}
int defect_host_pointer_in_kernel(int planted)
{
    words x(2), y(1);
    int *copy = (int *)malloc(8);
    make_input(&x);
    memcpy(copy, x.host, 8);
    LAUNCH(host_pointer_in_kernel, planted, 1, 1, planted ? copy : x.p, y.p);
    y.get();
    int bad = y.host[0] != copy[0] + copy[1];
    free(copy);
    return bad;
}

template <bool BAD>
static __global__ void last_block_without_count(int *part, unsigned *counter, int *y)
{
    if (threadIdx.x) return;
    part[blockIdx.x] = (int)blockIdx.x;
    __threadfence();
    unsigned before = atomicAdd(counter, 1u);
    if (BAD ? blockIdx.x != gridDim.x - 1 : before != gridDim.x - 1) return;
    simt_acquire_grid();
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++) sum += part[i];
    *y = sum;
}
int defect_last_block_without_count(int planted)
{
    words part(8), counter(1), y(1);
    counter.put();
    LAUNCH(last_block_without_count, planted, 8, 32, part.p, (unsigned *)counter.p, y.p);
    y.get();
    return y.host[0] != 28;
}

// --- for host defects ---

static __global__ void fill(float *y, int n, float value)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = value;
}
static __global__ void add(float *y, const float *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] += x[i];
}
static __global__ void sized(float *y)
{
    SIMT_DYN_SHARED(float, room);
    room[threadIdx.x] = 3;
    y[threadIdx.x] = room[threadIdx.x];
}
void defect_fill(float *y, int n, float value, cudaStream_t stream)
{
    SIMT_LAUNCH(fill, dim3((unsigned)(n + 63) / 64), dim3(64), 0, stream, y, n, value);
}
void defect_add(float *y, const float *x, int n, cudaStream_t stream)
{
    SIMT_LAUNCH(add, dim3((unsigned)(n + 63) / 64), dim3(64), 0, stream, y, x, n);
}
void defect_launch(float *y, unsigned threads, unsigned shared)
{
    SIMT_LAUNCH(sized, dim3(1), dim3(threads), shared, nullptr, y);
}
