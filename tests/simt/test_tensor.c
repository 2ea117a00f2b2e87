/* SPDX-License-Identifier: Apache-2.0 */
/* mma, ldmatrix and cp.async against plain loops over whole matrices. */
#include "testing.h"
#include "kernels.h"
#include "runtime/base/types.h"

static void mma_s8_and_u8_multiply_16x8x32(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (int is_unsigned = 0; is_unsigned < 2; is_unsigned++) {
        int8_t a[16][32], b[8][32];
        int32_t d[16][8], wanted[16][8];
        for (int i = 0; i < 16 * 32; i++) a[i / 32][i % 32] = (int8_t)test_random(&seed);
        for (int i = 0; i < 8 * 32; i++) b[i / 32][i % 32] = (int8_t)test_random(&seed);
        memset(a[3], -128, sizeof a[3]);
        memset(b[5], -128, sizeof b[5]);
        for (int i = 0; i < 16 * 8; i++) d[i / 8][i % 8] = (int32_t)test_random(&seed) - 9000;
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                wanted[i][j] = d[i][j];
                for (int k = 0; k < 32; k++)
                    wanted[i][j] += (is_unsigned ? (uint8_t)a[i][k] : a[i][k]) * b[j][k];
            }
        void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
             *dd = device_copy(d, sizeof d);
        CUDA_OK(simt_test_mma_s8(dd, da, db, is_unsigned, NULL));
        device_fetch(d, dd, sizeof d);
        CUDA_OK(cudaFree(da));
        CUDA_OK(cudaFree(db));
        assert_memory_equal(d, wanted, sizeof d);
    }
}

/* Small integers: every product and sum is exact. */
static void mma_f16_and_bf16_multiply_16x8x16(void **state)
{
    (void)state;
    uint32_t seed = 5;
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        uint16_t a[16][16], b[8][16];
        float d[16][8], wanted[16][8], fa[16][16], fb[8][16];
        uint16_t (*shorten)(float) = is_bf16 ? pare_f32_to_bf16 : pare_f32_to_f16;
        for (int i = 0; i < 16 * 16; i++)
            a[i / 16][i % 16] = shorten(fa[i / 16][i % 16] = (float)(test_random(&seed) % 33) - 16);
        for (int i = 0; i < 8 * 16; i++)
            b[i / 16][i % 16] =
                shorten(fb[i / 16][i % 16] = ((float)(test_random(&seed) % 33) - 16) / 8);
        for (int i = 0; i < 16 * 8; i++) d[i / 8][i % 8] = (float)(i - 60);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                wanted[i][j] = d[i][j];
                for (int k = 0; k < 16; k++) wanted[i][j] += fa[i][k] * fb[j][k];
            }
        void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
             *dd = device_copy(d, sizeof d);
        CUDA_OK(simt_test_mma_float(dd, da, db, is_bf16, NULL));
        device_fetch(d, dd, sizeof d);
        CUDA_OK(cudaFree(da));
        CUDA_OK(cudaFree(db));
        assert_memory_equal(d, wanted, sizeof d);
    }
}

/* The same of one number a word. */
static void mma_tf32_multiplies_16x8x8(void **state)
{
    float a[16][8], b[8][8], d[16][8], wanted[16][8];
    uint32_t seed = 6;
    (void)state;
    for (int i = 0; i < 16 * 8; i++) a[i / 8][i % 8] = (float)(test_random(&seed) % 1025) - 512;
    for (int i = 0; i < 8 * 8; i++)
        b[i / 8][i % 8] = ((float)(test_random(&seed) % 33) - 16) * 0x1p-9f;
    for (int i = 0; i < 16 * 8; i++) {
        wanted[i / 8][i % 8] = d[i / 8][i % 8] = (float)(i - 60);
        for (int k = 0; k < 8; k++) wanted[i / 8][i % 8] += a[i / 8][k] * b[i % 8][k];
    }
    void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
         *dd = device_copy(d, sizeof d);
    CUDA_OK(simt_test_mma_float(dd, da, db, 2, NULL));
    device_fetch(d, dd, sizeof d);
    CUDA_OK(cudaFree(da));
    CUDA_OK(cudaFree(db));
    assert_memory_equal(d, wanted, sizeof d);
}

/* Places of two of four neighbours, the first below the second. */
static const uint8_t pairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};

/* For each group of four in 16 rows of `depth`: which pair is kept; and the word of metadata that
   each lane hands over, as the PTX ISA draws it for 8-bit (depth 64) and 16-bit (32) numbers. */
static void pairs_make(uint32_t *seed, int depth, uint8_t kept[16][16], unsigned meta[32])
{
    const int groups = depth / 4;
    for (int i = 0; i < 16 * groups; i++)
        kept[i / groups][i % groups] = (uint8_t)(test_random(seed) % 6);
    for (int lane = 0; lane < 32; lane++) {
        meta[lane] = 0;
        for (int i = 0; i < 8; i++) {
            int row = depth == 64 ? lane / 4 + lane % 2 * 8 : lane / 4 + i / 4 * 8;
            int group = depth == 64 ? lane % 4 / 2 * 8 + i : lane % 2 * 4 + i % 4;
            const uint8_t *pair = pairs[kept[row][group]];
            meta[lane] |= (unsigned)(pair[0] | pair[1] << 2) << 4 * i;
        }
        if (depth == 32 && lane % 4 > 1) meta[lane] = 0; /* no one looks at it */
    }
}

static void sparse_mma_s8_multiplies_16x8x64(void **state)
{
    (void)state;
    uint32_t seed = 11;
    for (int is_unsigned = 0; is_unsigned < 2; is_unsigned++) {
        int8_t a[16][32], b[8][64];
        uint8_t kept[16][16];
        unsigned meta[32];
        int32_t d[16][8], wanted[16][8];
        pairs_make(&seed, 64, kept, meta);
        for (int i = 0; i < 16 * 32; i++) a[i / 32][i % 32] = (int8_t)test_random(&seed);
        for (int i = 0; i < 8 * 64; i++) b[i / 64][i % 64] = (int8_t)test_random(&seed);
        memset(b[5], -128, sizeof b[5]);
        for (int i = 0; i < 16 * 8; i++) {
            int row = i / 8, column = i % 8, sum = d[row][column] = 1000 - 31 * i;
            for (int k = 0; k < 32; k++) {
                int8_t x = b[column][k / 2 * 4 + pairs[kept[row][k / 2]][k % 2]];
                sum += a[row][k] * (is_unsigned ? (uint8_t)x : x);
            }
            wanted[row][column] = sum;
        }
        void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
             *dm = device_copy(meta, sizeof meta), *dd = device_copy(d, sizeof d);
        CUDA_OK(simt_test_mma_sp_s8(dd, da, db, dm, is_unsigned, NULL));
        device_fetch(d, dd, sizeof d);
        CUDA_OK(cudaFree(da));
        CUDA_OK(cudaFree(db));
        CUDA_OK(cudaFree(dm));
        assert_memory_equal(d, wanted, sizeof d);
    }
}

/* Small integers: every product and sum is exact. */
static void sparse_mma_f16_and_bf16_multiply_16x8x32(void **state)
{
    (void)state;
    uint32_t seed = 13;
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        uint16_t a[16][16], b[8][32];
        uint8_t kept[16][16];
        unsigned meta[32];
        float d[16][8], wanted[16][8], fa[16][16], fb[8][32];
        uint16_t (*shorten)(float) = is_bf16 ? pare_f32_to_bf16 : pare_f32_to_f16;
        pairs_make(&seed, 32, kept, meta);
        for (int i = 0; i < 16 * 16; i++)
            a[i / 16][i % 16] = shorten(fa[i / 16][i % 16] = (float)(test_random(&seed) % 33) - 16);
        for (int i = 0; i < 8 * 32; i++)
            b[i / 32][i % 32] =
                shorten(fb[i / 32][i % 32] = ((float)(test_random(&seed) % 33) - 16) / 8);
        for (int i = 0; i < 16 * 8; i++) {
            int row = i / 8, column = i % 8;
            float sum = d[row][column] = (float)(60 - i);
            for (int k = 0; k < 16; k++)
                sum += fa[row][k] * fb[column][k / 2 * 4 + pairs[kept[row][k / 2]][k % 2]];
            wanted[row][column] = sum;
        }
        void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
             *dm = device_copy(meta, sizeof meta), *dd = device_copy(d, sizeof d);
        CUDA_OK(simt_test_mma_sp_f16(dd, da, db, dm, is_bf16, NULL));
        device_fetch(d, dd, sizeof d);
        CUDA_OK(cudaFree(da));
        CUDA_OK(cudaFree(db));
        CUDA_OK(cudaFree(dm));
        assert_memory_equal(d, wanted, sizeof d);
    }
}

static void ldmatrix_hands_out_1_2_and_4_matrices(void **state)
{
    (void)state;
    uint16_t tile[32][8];
    for (int i = 0; i < 32 * 8; i++) tile[i / 8][i % 8] = (uint16_t)(i * 7 + 1);
    for (int n = 1; n <= 4; n *= 2)
        for (int transposed = 0; transposed < 2; transposed++) {
            unsigned r[32][4];
            void *dt = device_copy(tile, sizeof tile), *dr = device_copy(NULL, sizeof r);
            CUDA_OK(simt_test_ldmatrix(dr, dt, n, transposed, NULL));
            device_fetch(r, dr, sizeof r);
            CUDA_OK(cudaFree(dt));
            for (int lane = 0; lane < 32; lane++)
                for (int m = 0; m < 4; m++) {
                    int i = lane / 4, j = lane % 4 * 2, base = m * 8;
                    unsigned low = transposed ? tile[base + j][i] : tile[base + i][j];
                    unsigned high = transposed ? tile[base + j + 1][i] : tile[base + i][j + 1];
                    assert_int_equal(r[lane][m], m < n ? high << 16 | low : 0);
                }
        }
}

static void cp_async_copies_what_is_present_and_zeros_the_rest(void **state)
{
    (void)state;
    int from[32][4], to[3][32];
    for (int i = 0; i < 32 * 4; i++) from[i / 4][i % 4] = i * i + 1;
    for (int present = 0; present <= 16; present += 4) {
        int *df = device_copy(from, sizeof from), *dt = device_copy(NULL, sizeof to);
        CUDA_OK(simt_test_cp_async(dt, df, present, NULL));
        device_fetch(to, dt, sizeof to);
        CUDA_OK(cudaFree(df));
        for (int i = 0; i < 3 * 32; i++) {
            int words = 1 << i / 32, wanted = 0;
            for (int w = 0; w < words && w * 4 < present; w++) wanted += from[i % 32][w];
            assert_int_equal(to[i / 32][i % 32], wanted);
        }
    }
}

static void gemm_of_any_size_is_exact(void **state)
{
    (void)state;
    const int sizes[][3] = {{1, 1, 64}, {31, 33, 64}, {32, 32, 128}, {70, 45, 192}};
    uint32_t seed = 9;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
        int8_t *a = malloc((size_t)(m * k)), *b = malloc((size_t)(n * k));
        size_t bytes = (size_t)(m * n) * sizeof(int32_t);
        int32_t *c = malloc(bytes), *wanted = calloc((size_t)(m * n), sizeof *wanted);
        for (int i = 0; i < m * k; i++) a[i] = (int8_t)test_random(&seed);
        for (int i = 0; i < n * k; i++) b[i] = (int8_t)test_random(&seed);
        for (int i = 0; i < m * n; i++)
            for (int x = 0; x < k; x++) wanted[i] += a[i / n * k + x] * b[i % n * k + x];
        void *da = device_copy(a, (size_t)(m * k)), *db = device_copy(b, (size_t)(n * k)),
             *dc = device_copy(NULL, bytes);
        CUDA_OK(simt_test_gemm_s8(dc, da, db, m, n, k, NULL));
        device_fetch(c, dc, bytes);
        CUDA_OK(cudaFree(da));
        CUDA_OK(cudaFree(db));
        assert_memory_equal(c, wanted, bytes);
        free(a);
        free(b);
        free(c);
        free(wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(mma_s8_and_u8_multiply_16x8x32),
        device_test(mma_f16_and_bf16_multiply_16x8x16),
        device_test(mma_tf32_multiplies_16x8x8),
        device_test(sparse_mma_s8_multiplies_16x8x64),
        device_test(sparse_mma_f16_and_bf16_multiply_16x8x32),
        device_test(ldmatrix_hands_out_1_2_and_4_matrices),
        device_test(cp_async_copies_what_is_present_and_zeros_the_rest),
        device_test(gemm_of_any_size_is_exact),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
