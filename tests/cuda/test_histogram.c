/* SPDX-License-Identifier: Apache-2.0 */
/* The device's histogram against calibration's: every count and both minmax_only equal, whatever
   the size, type, alignment, number of blocks and pieces. */
#include "tests/simt/testing.h"
#include <math.h>
#include "calib/histogram.h"
#include "runtime/cuda/calib/calib.h"

static float extreme(int ordered)
{
    int32_t bits = ordered ^ ((ordered >> 31) & 0x7fffffff);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value + 0.0f; /* -0 is 0 */
}

static void assert_counts(const pare_histogram_dev *d, const pare_histogram *h)
{
    assert_true(d->count == h->count && d->zero == h->zero);
    assert_true(d->nan == h->nan && d->inf == h->inf);
    bool empty = h->count == h->nan + h->inf;
    assert_true(extreme(empty ? 0 : d->low) == h->min && extreme(empty ? 0 : d->high) == h->max);
}

static void assert_same(const pare_histogram_dev_bins *bins_of, const pare_histogram *h)
{
    const pare_histogram_dev *d = &bins_of->histogram;
    assert_counts(d, h);
    assert_int_equal(d->top, h->top);
    assert_int_equal(d->first, h->first);
    for (int sign = 0; sign < 2; sign++) {
        const uint64_t *bins = pare_histogram_bins(h, sign);
        for (int i = -1; i < PARE_HISTOGRAM_BINS; i++) {
            uint64_t there = bins_of->slot[sign][1 + i], wanted = bins ? bins[i] : 0;
            if (there != wanted) print_error("sign %d bin %d\n", sign, i);
            assert_true(there == wanted);
        }
    }
}

typedef struct piece {
    const void *values;
    int64_t n;
    int skip; /* elements of misalignment */
} piece;

/* Adds the pieces to a device's histogram, to one without bins and to a host's, and compares after
   each. */
static void check_pieces(pare_dtype dtype, const piece *pieces, int count, int blocks)
{
    pare_ctx ctx;
    pare_histogram *h;
    pare_histogram_dev_bins *d, *copy = malloc(sizeof *copy);
    pare_histogram_dev *plain, plain_copy;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_histogram_new(&ctx, &h), PARE_OK);
    CUDA_OK(cudaMalloc((void **)&d, sizeof *d));
    CUDA_OK(pare_cuda_histogram_clear(d, sizeof *d, 1, NULL));
    CUDA_OK(cudaMalloc((void **)&plain, sizeof *plain));
    CUDA_OK(pare_cuda_histogram_clear(plain, sizeof *plain, 1, NULL));
    for (int i = 0; i < count; i++) {
        size_t size = (size_t)pare_type(dtype)->bits / 8;
        size_t bytes = (size_t)pieces[i].n * size, skip = (size_t)pieces[i].skip * size;
        unsigned char *values;
        CUDA_OK(cudaMalloc((void **)&values, bytes + skip + !bytes));
        CUDA_OK(cudaMemcpy(values + skip, pieces[i].values, bytes, cudaMemcpyHostToDevice));
        CUDA_OK(pare_cuda_histogram_add(&d->histogram, true, dtype, values + skip, pieces[i].n,
                                        blocks, NULL));
        CUDA_OK(
            pare_cuda_histogram_add(plain, false, dtype, values + skip, pieces[i].n, blocks, NULL));
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaFree(values));
        assert_int_equal(pare_histogram_add(&ctx, h, dtype, pieces[i].values, pieces[i].n),
                         PARE_OK);
        CUDA_OK(cudaMemcpy(copy, d, sizeof *d, cudaMemcpyDeviceToHost));
        assert_same(copy, h);
        CUDA_OK(cudaMemcpy(&plain_copy, plain, sizeof plain_copy, cudaMemcpyDeviceToHost));
        assert_counts(&plain_copy, h);
    }
    CUDA_OK(cudaFree(plain));
    CUDA_OK(cudaFree(d));
    free(copy);
    pare_histogram_free(h);
}

/* Values of a layer: half zeros, many sizes, some signs, a few that are not numbers. */
static float *make_values(int64_t n, uint32_t seed, float scale)
{
    float *x = malloc((size_t)(n + !n) * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        float u = (float)test_random(&seed) / 16777216.0f - 0.3f;
        uint32_t kind = test_random(&seed) % 1000;
        x[i] = kind < 400 ? 0.0f : u * u * u * scale;
        if (kind == 998) x[i] = seed & 64 ? NAN : -INFINITY;
        if (kind == 999) x[i] = seed & 64 ? -0.0f : u * 1e-41f;
        if (kind == 997) x[i] = u * scale * 1e-5f;
    }
    return x;
}

static void every_size_and_alignment_of_f32(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 2, 3, 31, 32, 33, 1021, 4099, 20011};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int skip = 0; skip < 4; skip++) {
            if (sizes[s] > 2000 && skip % 2 == 0 && skip) continue;
            float *x = make_values(sizes[s], (uint32_t)(s + 1), 8);
            check_pieces(PARE_f32, &(piece){x, sizes[s], skip}, 1, 3);
            free(x);
        }
}

static void halves_are_widened_first(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 7, 8, 9, 65, 5003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int type = 0; type < 2; type++) {
            int64_t n = sizes[s];
            float *x = make_values(n, (uint32_t)(s + 50), 600);
            uint16_t *y = malloc((size_t)n * sizeof *y);
            for (int64_t i = 0; i < n; i++)
                y[i] = type ? pare_f32_to_bf16(x[i]) : pare_f32_to_f16(x[i]);
            check_pieces(type ? PARE_bf16 : PARE_f16, &(piece){y, n, (int)(s % 3)}, 1, 2);
            free(x);
            free(y);
        }
}

static void doubles_are_rounded_first(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 3, 33, 2001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        float *x = make_values(sizes[s], (uint32_t)(s + 90), 3);
        double *y = malloc((size_t)sizes[s] * sizeof *y);
        for (int64_t i = 0; i < sizes[s]; i++) y[i] = (double)x[i] * (1 + 1e-9 * (double)(i % 100));
        y[0] = 1e300; /* infinite in f32 */
        check_pieces(PARE_f64, &(piece){y, sizes[s], (int)(s % 2)}, 1, 2);
        free(x);
        free(y);
    }
}

/* The window moves up by few octaves, by many, not at all; what falls out is counted below. */
static void pieces_of_growing_range_move_the_window(void **state)
{
    (void)state;
    const float scales[] = {1e-30f, 1e-29f, 3e-3f, 1, 9, 9, 5000, 1e30f, 1};
    enum { PIECES = sizeof scales / sizeof *scales };
    piece pieces[PIECES];
    for (int i = 0; i < PIECES; i++)
        pieces[i] = (piece){make_values(900, (uint32_t)(i + 7), scales[i]), 900, i % 4};
    check_pieces(PARE_f32, pieces, PIECES, 2);
    for (int i = 0; i < PIECES; i++) free((void *)pieces[i].values);
}

/* Values inside the window that an earlier addition left are read once: nothing is above what was
   counted before the window was looked at. */
static void a_known_window_is_counted_at_once(void **state)
{
    (void)state;
    pare_histogram_dev_bins *d;
    pare_histogram_dev seen;
    CUDA_OK(cudaMalloc((void **)&d, sizeof *d));
    CUDA_OK(pare_cuda_histogram_clear(d, sizeof *d, 1, NULL));
    for (int i = 0; i < 3; i++) {
        float *x = make_values(700, (uint32_t)(i + 1), i == 2 ? 9000 : 9);
        float *there = device_copy(x, 700 * sizeof *x);
        CUDA_OK(pare_cuda_histogram_add(&d->histogram, true, PARE_f32, there, 700, 2, NULL));
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaMemcpy(&seen, &d->histogram, sizeof seen, cudaMemcpyDeviceToHost));
        assert_true((seen.counted > seen.top) == (i == 1));
        CUDA_OK(cudaFree(there));
        free(x);
    }
    CUDA_OK(cudaFree(d));
}

static void special_values_alone(void **state)
{
    (void)state;
    const float zeros[40] = {0}, minus[3] = {-0.0f, 0, -0.0f}, none[2] = {NAN, INFINITY},
                one[1] = {-3}, small[2] = {1e-45f, -1e-45f}, high[2] = {3.4e38f, -3.4e38f};
    const piece all[] = {{none, 2, 0}, {minus, 3, 1}, {zeros, 40, 0},
                         {one, 1, 0},  {small, 2, 0}, {high, 2, 3}};
    check_pieces(PARE_f32, all, 6, 1);
    for (int i = 0; i < 6; i++) check_pieces(PARE_f32, &all[i], 1, 1);
}

static void other_types_are_refused(void **state)
{
    (void)state;
    pare_histogram_dev_bins *d;
    CUDA_OK(cudaMalloc((void **)&d, sizeof *d));
    CUDA_OK(pare_cuda_histogram_clear(d, sizeof *d, 1, NULL));
    CUDA_IS(cudaErrorInvalidValue,
            pare_cuda_histogram_add(&d->histogram, true, PARE_s8, d, 4, 1, NULL));
    CUDA_OK(cudaFree(d));
}

/* Each call that can fail, in turn: the error comes back and nothing is left over. */
static void failing_calls_are_passed_on(void **state)
{
    (void)state;
    if (!simt_emulated()) skip();
    pare_histogram_dev_bins *d;
    float *x;
    CUDA_OK(cudaMalloc((void **)&d, sizeof *d));
    x = device_copy(NULL, 100 * sizeof *x);
    bool failed = true;
    int turns = 0;
    for (uint64_t n = 1; failed; n++, turns++) {
        simt_fail_at(n, cudaErrorLaunchFailure, false);
        cudaError_t e = pare_cuda_histogram_clear(d, sizeof *d, 1, NULL);
        if (!e) e = pare_cuda_histogram_add(&d->histogram, true, PARE_f32, x, 100, 1, NULL);
        uint64_t calls = simt_calls();
        simt_fail_at(0, 0, false);
        failed = e != cudaSuccess;
        assert_true(!failed || e == cudaErrorLaunchFailure);
        assert_true(calls > 0);
        (void)cudaGetLastError();
    }
    assert_int_equal(turns,
                     12); /* memset, launch, error; attributes, three launches and errors; none */
    CUDA_OK(cudaFree(x));
    CUDA_OK(cudaFree(d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(every_size_and_alignment_of_f32),
        device_test(halves_are_widened_first),
        device_test(doubles_are_rounded_first),
        device_test(pieces_of_growing_range_move_the_window),
        device_test(a_known_window_is_counted_at_once),
        device_test(special_values_alone),
        device_test(other_types_are_refused),
        device_test(failing_calls_are_passed_on),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
