// SPDX-License-Identifier: Apache-2.0
// One kernel for each row of selftest.inc that runs on every device. Sums of tensor
// cores: devices add the products of a row in an order and with a precision of their own, so
// operands are chosen whose sums are exact in float (integers times one power of two, below 2^24 of
// its unit).
#include "selftest.cuh"
#include "runtime/cuda/device/simt.h"
#include "runtime/cuda/device/simt_f8.cuh"

#ifdef SELFTEST_PLANT // three wrong wrappers, to see the program find them
#define __dp4a(a, b, c)              __dp4a((a), (b), (c) + ((a) == 0))
#define simt_ldmatrix_x4_trans(r, p) simt_ldmatrix_x4((r), (p))
#define __float2half_rn(v)           __float2half_rn((v) * (1 + 0x1p-12f))
#endif

typedef unsigned long long wide;
static const unsigned ALL = 0xffffffffu;
#define WIDE(high, low) ((wide)(high) << 32 | (low))
#define F(a)            __uint_as_float(a)
#define M(a)            __uint_as_float(((a)&0x83ffffffu) + 0x3c000000u)
#define S(a)            ((int)((a) >> 9 & 127u) - 64)
#define D(a, b)                                                                                    \
    __longlong_as_double((long long)((WIDE(a, b) & 0x83ffffffffffffffull) + 0x3c00000000000000ull))

SIMT_INLINE uint64_t word(int v) { return (unsigned)v; }
SIMT_INLINE uint64_t word(unsigned v) { return v; }
SIMT_INLINE uint64_t word(long long v) { return (uint64_t)v; }
SIMT_INLINE uint64_t word(wide v) { return v; }
SIMT_INLINE uint64_t word(float v) { return __float_as_uint(v); }
SIMT_INLINE uint64_t word(double v) { return (uint64_t)__double_as_longlong(v); }
SIMT_INLINE uint64_t word(__half v)
{
    uint16_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
SIMT_INLINE uint64_t word(__nv_bfloat16 v)
{
    uint16_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
SIMT_INLINE __half half_of(unsigned a)
{
    __half_raw raw;
    raw.x = (unsigned short)(a >> 16);
    return __half(raw);
}
SIMT_INLINE __nv_bfloat16 bfloat_of(unsigned a)
{
    __nv_bfloat16_raw raw;
    raw.x = (unsigned short)(a >> 16);
    return __nv_bfloat16(raw);
}

// Of any number, of two inside and around 0 to 255, and of the last inside or the first outside.
SIMT_INLINE unsigned saturated(unsigned a, unsigned b, unsigned c)
{
    const int edge = (int)(b & 1u);
    const int v[4] = {(int)a, S(b) * 6 + 128, (int)(c & 0x1ffu) - 128, c & 2 ? 255 + edge : -edge};
    return simt_saturate_u8x4(v);
}

// Four numbers of magnitude 2^-7 to 2, times `unit`, as codes of FP8; a number of a code.
template <bool E5M2> SIMT_INLINE unsigned f8_codes(unsigned a, unsigned b, unsigned c, float unit)
{
    const float v[4] = {M(a) * unit, M(b) * unit, M(c) * unit, M(a ^ b) * unit};
    return simt_floats_to_f8<E5M2>(v);
}

// The largest numbers, what is larger, infinities and NaN; which NaN a code is, is left out.
template <bool E5M2> SIMT_INLINE unsigned f8_ends(unsigned a)
{
    const float most = E5M2 ? 57344.0f : 448.0f;
    unsigned codes;
    float v[4];
    for (int i = 0; i < 4; i++) {
        const unsigned kind = a >> 4 * i & 7u, sign = (a >> 4 * i & 8u) << 28;
        const float size = kind < 4   ? most * (1 + (float)kind * 0.04f)
                           : kind < 5 ? most * 4
                           : kind < 6 ? F(0x7f7fffffu)
                                      : F(kind < 7 ? 0x7f800000u : 0x7fc00000u);
        v[i] = F(__float_as_uint(size) | sign);
    }
    codes = simt_floats_to_f8<E5M2>(v);
    for (int i = 0; i < 4; i++)
        if ((codes >> 8 * i & 0x7fu) > (E5M2 ? 0x7cu : 0x7eu)) codes |= 0xffu << 8 * i;
    return codes;
}

template <bool E5M2> SIMT_INLINE float f8_number(unsigned a, unsigned b)
{
    float v[4];
    simt_f8_to_floats<E5M2>(a, v);
    return v[0] == v[1] ? v[b & 3u] : v[b >> 1 & 3u];
}

// What every kernel below starts with.
#define THREAD                                                                                     \
    const int n = SELFTEST_THREADS, t = (int)(blockIdx.x * blockDim.x + threadIdx.x),              \
              lane = (int)threadIdx.x % 32;                                                        \
    const unsigned a = in[t * SELFTEST_INPUTS], b = in[t * SELFTEST_INPUTS + 1],                   \
                   c = in[t * SELFTEST_INPUTS + 2];                                                \
    (void)n, (void)lane, (void)a, (void)b, (void)c

#define ROW(name, kind, ...)                                                                       \
    static __global__ void row_##name(uint64_t *out, const unsigned *in)                           \
    {                                                                                              \
        THREAD;                                                                                    \
        out[t] = word(__VA_ARGS__);                                                                \
    }
#define ATOMIC(name, function, T, start, value)                                                    \
    static __global__ void row_atomic_##name(uint64_t *out, const unsigned *in)                    \
    {                                                                                              \
        SIMT_SHARED(T, room, [SELFTEST_BLOCK]);                                                    \
        THREAD;                                                                                    \
        T *own = (T *)&out[n + t];                                                                 \
        *own = start;                                                                              \
        out[t] = word(function(own, value));                                                       \
        (void)function((T *)&out[2 * n + t % 5], value);                                           \
        room[threadIdx.x] = start;                                                                 \
        __syncthreads();                                                                           \
        (void)function(&room[threadIdx.x / 3], value);                                             \
        __syncthreads();                                                                           \
        out[3 * n + t] = word(room[threadIdx.x]);                                                  \
    }
#define EXCHANGE(name, call, T, start)                                                             \
    static __global__ void row_atomic_##name(uint64_t *out, const unsigned *in)                    \
    {                                                                                              \
        SIMT_SHARED(T, room, [SELFTEST_BLOCK]);                                                    \
        THREAD;                                                                                    \
        T *own = (T *)&out[n + t];                                                                 \
        *own = start;                                                                              \
        out[t] = word(call);                                                                       \
        own = &room[threadIdx.x];                                                                  \
        *own = start;                                                                              \
        out[2 * n + t] = word(call);                                                               \
        out[3 * n + t] = word(*own);                                                               \
    }
#include "selftest.inc"

// --- tensor cores: a fragment a lane, straight from the random words ---

#define MMA_S8(name, mma)                                                                          \
    static __global__ void row_##name(uint64_t *out, const unsigned *in)                           \
    {                                                                                              \
        THREAD;                                                                                    \
        unsigned fa[4] = {a, b, c, a * 0x9e3779b1u}, fb[2] = {b * 0x85ebca6bu, c * 0xc2b2ae35u};   \
        int fd[4] = {(int)c, (int)b, S(a), (int)(a ^ c)};                                          \
        mma(fd, fa, fb);                                                                           \
        for (int i = 0; i < 4; i++) out[i * n + t] = word(fd[i]);                                  \
    }
MMA_S8(mma_s8s8, simt_mma_m16n8k32_s8s8)
MMA_S8(mma_u8s8, simt_mma_m16n8k32_u8s8)

// Two integers from -16 to 15 times `unit`, as halves.
SIMT_INLINE unsigned halves(unsigned a, float unit, bool bf16)
{
    float low = (float)((int)(a >> 3 & 31u) - 16) * unit;
    float high = (float)((int)(a >> 19 & 31u) - 16) * unit;
    return bf16 ? (unsigned)(word(__float2bfloat16(high)) << 16 | word(__float2bfloat16(low)))
                : (unsigned)(word(__float2half(high)) << 16 | word(__float2half(low)));
}

#define MMA_F16(name, mma, bf16, a_unit, b_unit)                                                   \
    static __global__ void row_##name(uint64_t *out, const unsigned *in)                           \
    {                                                                                              \
        THREAD;                                                                                    \
        unsigned fa[4] = {halves(a, a_unit, bf16), halves(b, a_unit, bf16),                        \
                          halves(c, a_unit, bf16), halves(a ^ b, a_unit, bf16)};                   \
        unsigned fb[2] = {halves(b ^ c, b_unit, bf16), halves(a ^ c, b_unit, bf16)};               \
        float fd[4];                                                                               \
        for (int i = 0; i < 4; i++) fd[i] = (float)S(a << i) * ((a_unit) * (b_unit));              \
        mma(fd, fa, fb);                                                                           \
        for (int i = 0; i < 4; i++) out[i * n + t] = word(fd[i]);                                  \
    }
MMA_F16(mma_f16, simt_mma_m16n8k16_f16, false, 0.125f, 4.0f)
MMA_F16(mma_f16_subnormal, simt_mma_m16n8k16_f16, false, 0x1p-24f, 2.0f)
MMA_F16(mma_bf16, simt_mma_m16n8k16_bf16, true, 0x1p-30f, 0x1p20f)

// An integer from -16 to 15 times `unit`, as TF32.
SIMT_INLINE unsigned tf32(unsigned a, float unit)
{
    return simt_to_tf32((float)((int)(a >> 3 & 31u) - 16) * unit);
}

static __global__ void row_mma_tf32(uint64_t *out, const unsigned *in)
{
    const float a_unit = 0x1p-40f, b_unit = 0x1p38f;
    THREAD;
    unsigned fa[4] = {tf32(a, a_unit), tf32(b, a_unit), tf32(c, a_unit), tf32(a ^ b, a_unit)};
    unsigned fb[2] = {tf32(b ^ c, b_unit), tf32(a ^ c, b_unit)};
    float fd[4];
    for (int i = 0; i < 4; i++) fd[i] = (float)S(a << i) * (a_unit * b_unit);
    simt_mma_m16n8k8_tf32(fd, fa, fb);
    for (int i = 0; i < 4; i++) out[i * n + t] = word(fd[i]);
}

// Four integers from -8 to 7 times `unit`, as codes of FP8.
template <bool E5M2> SIMT_INLINE unsigned f8_integers(unsigned a, float unit)
{
    float v[4];
    for (int i = 0; i < 4; i++) v[i] = (float)((int)(a >> (8 * i + 2) & 15u) - 8) * unit;
    return simt_floats_to_f8<E5M2>(v);
}

#define MMA_F8(name, mma, e5m2, a_unit, b_unit)                                                    \
    static __global__ void row_##name(uint64_t *out, const unsigned *in)                           \
    {                                                                                              \
        THREAD;                                                                                    \
        unsigned fa[4] = {f8_integers<e5m2>(a, a_unit), f8_integers<e5m2>(b, a_unit),              \
                          f8_integers<e5m2>(c, a_unit), f8_integers<e5m2>(a ^ b, a_unit)};         \
        unsigned fb[2] = {f8_integers<e5m2>(b ^ c, b_unit), f8_integers<e5m2>(a ^ c, b_unit)};     \
        float fd[4];                                                                               \
        for (int i = 0; i < 4; i++) fd[i] = (float)S(a << i) * ((a_unit) * (b_unit));              \
        mma(fd, fa, fb);                                                                           \
        for (int i = 0; i < 4; i++) out[i * n + t] = word(fd[i]);                                  \
    }
MMA_F8(mma_e4m3, simt_mma_m16n8k32_e4m3, false, 0x1p-9f, 16.0f)
MMA_F8(mma_e5m2, simt_mma_m16n8k32_e5m2, true, 0x1p-16f, 512.0f)

// --- sparse tensor cores: metadata of random pairs ---

#define MMA_SP_S8(name, mma)                                                                       \
    static __global__ void row_##name(uint64_t *out, const unsigned *in)                           \
    {                                                                                              \
        THREAD;                                                                                    \
        unsigned fa[4] = {a, b, c, a * 0x9e3779b1u};                                               \
        unsigned fb[4] = {b * 0x85ebca6bu, c * 0xc2b2ae35u, a ^ b >> 3, c ^ a >> 5};               \
        int fd[4] = {(int)c, (int)b, S(a), (int)(a ^ c)};                                          \
        mma(fd, fa, fb, ascending(a ^ c));                                                         \
        for (int i = 0; i < 4; i++) out[i * n + t] = word(fd[i]);                                  \
    }
MMA_SP_S8(mma_sp_s8s8, simt_mma_sp_m16n8k64_s8s8)
MMA_SP_S8(mma_sp_s8u8, simt_mma_sp_m16n8k64_s8u8)

#define MMA_SP_F16(name, mma, bf16, a_unit, b_unit)                                                \
    static __global__ void row_##name(uint64_t *out, const unsigned *in)                           \
    {                                                                                              \
        THREAD;                                                                                    \
        unsigned fa[4] = {halves(a, a_unit, bf16), halves(b, a_unit, bf16),                        \
                          halves(c, a_unit, bf16), halves(a ^ b, a_unit, bf16)};                   \
        unsigned fb[4] = {halves(b ^ c, b_unit, bf16), halves(a ^ c, b_unit, bf16),                \
                          halves(b ^ a >> 2, b_unit, bf16), halves(c ^ b >> 1, b_unit, bf16)};     \
        float fd[4];                                                                               \
        for (int i = 0; i < 4; i++) fd[i] = (float)S(a << i) * ((a_unit) * (b_unit));              \
        mma(fd, fa, fb, ascending(a ^ c));                                                         \
        for (int i = 0; i < 4; i++) out[i * n + t] = word(fd[i]);                                  \
    }
MMA_SP_F16(mma_sp_f16, simt_mma_sp_m16n8k32_f16, false, 0.125f, 4.0f)
MMA_SP_F16(mma_sp_bf16, simt_mma_sp_m16n8k32_bf16, true, 0x1p-30f, 0x1p20f)

// --- ldmatrix: each warp its own 32 rows ---

#define LDMATRIX(name, matrices)                                                                   \
    static __global__ void row_##name(uint64_t *out, const unsigned *in)                           \
    {                                                                                              \
        SIMT_SHARED(uint4, rows, [SELFTEST_BLOCK]);                                                \
        THREAD;                                                                                    \
        rows[threadIdx.x] = make_uint4(a, b, c, a ^ b << 1);                                       \
        __syncwarp();                                                                              \
        unsigned r[matrices];                                                                      \
        /* rows in another order than lanes */                                                     \
        simt_##name(r, &rows[(int)threadIdx.x - lane + (lane * 5 + 2) % 32]);                      \
        for (int i = 0; i < matrices; i++) out[i * n + t] = word(r[i]);                            \
    }
LDMATRIX(ldmatrix_x1, 1)
LDMATRIX(ldmatrix_x2, 2)
LDMATRIX(ldmatrix_x4, 4)
LDMATRIX(ldmatrix_x1_trans, 1)
LDMATRIX(ldmatrix_x2_trans, 2)
LDMATRIX(ldmatrix_x4_trans, 4)

// --- cp.async: two groups, waited for one after the other; some bytes absent ---

#define CP_ASYNC(name, bytes)                                                                      \
    static __global__ void row_##name(uint64_t *out, const unsigned *in)                           \
    {                                                                                              \
        SIMT_SHARED(uint4, room, [2][SELFTEST_BLOCK]);                                             \
        THREAD;                                                                                    \
        uint4 *first = &room[0][threadIdx.x], *second = &room[1][threadIdx.x];                     \
        *first = *second = make_uint4(1, 2, 3, 4);                                                 \
        const unsigned *from = in + t / 4 * 4; /* 16-byte aligned */                               \
        simt_##name(first, from, bytes);                                                           \
        simt_cp_async_commit();                                                                    \
        simt_##name(second, from + n, (int)(a % (bytes + 1)));                                     \
        simt_cp_async_commit();                                                                    \
        simt_cp_async_wait<1>();                                                                   \
        out[t] = WIDE(first->x, first->y);                                                         \
        out[n + t] = WIDE(first->z, first->w);                                                     \
        simt_cp_async_wait<0>();                                                                   \
        out[2 * n + t] = WIDE(second->x, second->y);                                               \
        out[3 * n + t] = WIDE(second->z, second->w);                                               \
    }
CP_ASYNC(cp_async4, 4)
CP_ASYNC(cp_async8, 8)
CP_ASYNC(cp_async16, 16)
CP_ASYNC(cp_async16_reused, 16)

// Lanes of a branch among themselves, then with those of the other.
static __global__ void row_partial_warps(uint64_t *out, const unsigned *in)
{
    THREAD;
    const unsigned low = 0x000fffffu;
    if (lane < 20) {
        unsigned sum = __reduce_add_sync(low, a);
        out[t] = WIDE(__ballot_sync(low, (int)(b & 1)), sum) ^ __shfl_sync(low, c, 11);
    } else
        out[t] = WIDE(__ballot_sync(~low, (int)(b & 1)), __shfl_sync(~low, c, 25));
    __syncwarp();
    out[n + t] = word(__shfl_xor_sync(ALL, a, 16));
}

// More shared memory than a kernel has without asking; each thread reads what another wrote.
enum { ROOM = 64 * 1024 / 4 };
static __global__ void row_dynamic_shared(uint64_t *out, const unsigned *in)
{
    SIMT_DYN_SHARED(unsigned, room);
    THREAD;
    for (int i = (int)threadIdx.x; i < ROOM; i += (int)blockDim.x) room[i] = a + (unsigned)i * b;
    __threadfence_block();
    __syncthreads();
    unsigned sum = 0;
    for (int i = (int)threadIdx.x; i < ROOM; i += (int)blockDim.x) sum += room[ROOM - 1 - i] * 31u;
    out[t] = sum;
}

// Every block adds up its words; the last to finish reads all sums. out[n..]: sums, counter
static __global__ void row_last_block(uint64_t *out, const unsigned *in)
{
    SIMT_SHARED(unsigned, seen, [1]);
    SIMT_SHARED(unsigned, sum, [1]);
    THREAD;
    unsigned *parts = (unsigned *)(out + n), *counter = (unsigned *)(out + 2 * n);
    if (threadIdx.x == 0) sum[0] = 0;
    __syncthreads();
    atomicAdd(&sum[0], a);
    __syncthreads();
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum[0];
        __threadfence();
        seen[0] = atomicAdd(counter, 1u);
    }
    __syncthreads();
    if (seen[0] == gridDim.x - 1) {
        simt_acquire_grid();
        unsigned total = 0;
        for (unsigned i = 0; i < gridDim.x; i++) total += parts[i] * (i + 1);
        out[threadIdx.x] = total;
    }
}

// --- launchers and the table ---

static cudaError_t launch(void (*kernel)(uint64_t *, const unsigned *), size_t shared,
                          uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    if (shared) {
        cudaError_t error = SIMT_ALLOW_SHARED(kernel, shared);
        if (error) return error;
    }
    SIMT_LAUNCH(kernel, dim3(SELFTEST_THREADS / SELFTEST_BLOCK), dim3(SELFTEST_BLOCK), shared,
                stream, out, in);
    return cudaGetLastError();
}

static bool is_wide(const char *name) { return !strcmp(name, "dynamic_shared"); }

#define LAUNCHER(name, shared)                                                                     \
    static cudaError_t launch_##name(uint64_t *out, const unsigned *in, cudaStream_t stream)       \
    {                                                                                              \
        return launch(row_##name, shared, out, in, stream);                                        \
    }
#define ROW(name, ...)            LAUNCHER(name, 0)
#define ATOMIC(name, ...)         LAUNCHER(atomic_##name, 0)
#define EXCHANGE(name, ...)       LAUNCHER(atomic_##name, 0)
#define KERNEL(name, kind, words) LAUNCHER(name, is_wide(#name) ? ROOM * 4 : 0)
#include "selftest.inc"

#define ENTRY(name, kind, words, launch, devices)                                                  \
    {name, SELFTEST_##kind, words, launch, SELFTEST_##devices},
#define ROW(name, kind, ...)      ENTRY(#name, kind, 1, launch_##name, ALL)
#define ATOMIC(name, ...)         ENTRY("atomic_" #name, BITS, 4, launch_atomic_##name, ALL)
#define EXCHANGE(name, ...)       ENTRY("atomic_" #name, BITS, 4, launch_atomic_##name, ALL)
#define KERNEL(name, kind, words) ENTRY(#name, kind, words, launch_##name, ALL)
#define SM90(name, kind, words)   ENTRY(#name, kind, words, selftest_##name, SM90)
#define WGMMA(name, kind, words)  ENTRY(#name, kind, words, selftest_##name, WGMMA)
#define TCGEN(name, kind, words)  ENTRY(#name, kind, words, selftest_##name, TCGEN)
static const selftest_row rows[] = {
#include "selftest.inc"
};

extern "C" const selftest_row *selftest_rows(int *count)
{
    *count = (int)(sizeof rows / sizeof *rows);
    return rows;
}
