/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives, votes, barriers, atomics and scalar functions against values worked out by hand from
   the CUDA C++ Programming Guide's definitions. */
#include "testing.h"
#include "kernels.h"

enum { THREADS = 64 };

static void collectives_give_what_the_guide_says(void **state)
{
    (void)state;
    int out[SIMT_TEST_RESULTS][THREADS];
    void *device = device_copy(NULL, sizeof out);
    CUDA_OK(simt_test_collectives(device, THREADS, NULL));
    device_fetch(out, device, sizeof out);
    for (int t = 0; t < THREADS; t++) {
        int w = t / 32 * 32, lane = t % 32, first = w * 32 + 496;
        assert_int_equal(out[0][t], (w + 5) * 3);
        assert_int_equal(out[1][t], (t / 8 * 8 + (lane + 1) % 8) * 3);
        assert_int_equal(out[2][t], lane < 2 ? t : t - 2);
        assert_int_equal(out[3][t], t ^ 3);
        assert_int_equal(out[4][t], t % 4 == 3 ? t : t + 1);
        assert_int_equal(out[5][t], first);
        assert_int_equal(out[6][t], -(w + 31));
        assert_int_equal(out[7][t], w + 31);
        assert_int_equal(out[8][t], -1);
        assert_int_equal(out[9][t], (int)(0xffu << lane / 8 * 8));
        assert_int_equal(out[10][t], (w + 7) * 2 + 1);
        assert_int_equal(out[11][t], lane % 2 ? -(w + 5) : w + 4);
        assert_int_equal(out[12][t], lane < 3 ? 6 : out[11][t]);
    }
}

static void partial_warps_and_ended_lanes_take_part_as_they_are(void **state)
{
    (void)state;
    const int threads[] = {24, 56, 96};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        int n = threads[i], out[3 * 96];
        void *device = device_copy(NULL, sizeof out);
        CUDA_OK(simt_test_votes(device, n, 10, NULL));
        device_fetch(out, device, sizeof out);
        for (int t = 0; t < n; t++) {
            assert_int_equal(out[t], n - 10);
            assert_int_equal(out[n + t], 3);
            assert_int_equal(out[2 * n + t], t % 32 < 24 ? 0x249249 - 1 : 0);
        }
    }
}

static void atomics_add_up_over_blocks(void **state)
{
    (void)state;
    int out[9] = {0, 0, 100, -100, 0, -1, 0, 0, 0}, x = 0;
    unsigned long long wide[2] = {5, 0};
    float real = 1;
    void *o = device_copy(out, sizeof out), *w = device_copy(wide, sizeof wide),
         *r = device_copy(&real, sizeof real);
    CUDA_OK(simt_test_atomics(o, w, r, NULL));
    device_fetch(out, o, sizeof out);
    device_fetch(wide, w, sizeof wide);
    device_fetch(&real, r, sizeof real);
    for (int t = 0; t < 100; t++) x ^= t;
    const int wanted[9] = {4950, -4950, -92, 99, 0x7fffffff, INT32_MIN, x, 200, 41};
    assert_memory_equal(out, wanted, sizeof out);
    assert_true(wide[0] == (4950ull << 32) + 5);
    assert_true(wide[1] == 99ull << 33);
    assert_true(real == 51);
}

static void scalar_functions_round_and_saturate(void **state)
{
    (void)state;
    int out[12];
    void *device = device_copy(NULL, sizeof out);
    CUDA_OK(simt_test_scalar(device, NULL));
    device_fetch(out, device, sizeof out);
    /* dp4a: 2*3 + 1 + 128*128 + 127 - 1; bytes 7, 1, 5, 0 of the eight */
    const int wanted[12] = {240,        INT32_MAX, -2, 16517, 827,   0x77115500,
                            0x7f800000, 8,         6,  23,    21840, 21888};
    assert_memory_equal(out, wanted, sizeof out);
}

static void shared_memory_is_exchanged_in_warp_and_block(void **state)
{
    (void)state;
    int out[128];
    void *device = device_copy(NULL, sizeof out);
    CUDA_OK(simt_test_exchange(device, NULL));
    device_fetch(out, device, sizeof out);
    for (int t = 0; t < 128; t++) {
        int from = 127 - t, mate = from / 32 * 32 + (from + 1) % 32;
        assert_int_equal(out[t], 2 * mate);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(collectives_give_what_the_guide_says),
        device_test(partial_warps_and_ended_lanes_take_part_as_they_are),
        device_test(atomics_add_up_over_blocks),
        device_test(scalar_functions_round_and_saturate),
        device_test(shared_memory_is_exchanged_in_warp_and_block),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
