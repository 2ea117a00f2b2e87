/* SPDX-License-Identifier: Apache-2.0 */
/* The order of training samples, and the stream that reads in it. */
#include "tests/formats/hdf5_files.h"

#include "distill/loader.h"

/* --- the order --- */

static pare_sampler *sampler_of(const pare_sampler_options *options)
{
    pare_sampler *s = NULL;
    assert_int_equal(pare_sampler_new(&ctx, &s, options), PARE_OK);
    return s;
}

/* Every third sample is left out; blocks of 7, windows of 3 blocks. */
enum { COUNT = 200, EPOCHS = 3 };

static void list_samples(int64_t *samples, bool backwards)
{
    for (int i = 0; i < COUNT; i++) samples[backwards ? COUNT - 1 - i : i] = i * 3 / 2;
}

static void test_an_epoch_is_a_permutation(void **state)
{
    (void)state;
    int64_t samples[COUNT];
    const int64_t windows[] = {1, 21, 100, 1000};
    list_samples(samples, false);
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        pare_sampler *s = sampler_of(&(pare_sampler_options){5, samples, COUNT, 7, windows[w]});
        int64_t same = 0, last[COUNT] = {0};
        for (int e = 0; e < EPOCHS; e++) {
            int seen[COUNT * 3 / 2] = {0};
            for (int i = 0; i < COUNT; i++) {
                int64_t x = pare_sampler_at(s, e * COUNT + i);
                assert_true(x >= 0 && x < COUNT * 3 / 2);
                seen[x]++;
                same += e > 0 && last[i] == x;
                last[i] = x;
            }
            for (int i = 0; i < COUNT; i++) assert_int_equal(seen[samples[i]], 1);
        }
        assert_true(same < 20); /* epochs differ; by chance 2 of 400 agree */
        pare_sampler_free(s);
    }
}

/* A position says it all: jumps, the list's order and another sampler change nothing; the seed
   does. */
static void test_a_position_is_enough(void **state)
{
    (void)state;
    int64_t samples[COUNT], backwards[COUNT], same = 0;
    list_samples(samples, false);
    list_samples(backwards, true);
    pare_sampler *a = sampler_of(&(pare_sampler_options){5, samples, COUNT, 7, 21});
    pare_sampler *b = sampler_of(&(pare_sampler_options){5, backwards, COUNT, 7, 21});
    pare_sampler *c = sampler_of(&(pare_sampler_options){6, samples, COUNT, 7, 21});
    for (int64_t i = 0; i < EPOCHS * COUNT; i++) {
        int64_t p = i * 211 % (EPOCHS * COUNT);
        int64_t x = pare_sampler_at(a, p);
        assert_int_equal(pare_sampler_at(b, EPOCHS * COUNT - 1 - i), /* another way about */
                         pare_sampler_at(a, EPOCHS * COUNT - 1 - i));
        assert_int_equal(pare_sampler_at(b, p), x);
        same += pare_sampler_at(c, p) == x;
    }
    assert_true(same < 20);
    pare_sampler_free(a);
    pare_sampler_free(b);
    pare_sampler_free(c);
}

/* Within a window no more chunks are touched than it has, and every chunk is in one window. */
static void test_windows_hold_whole_chunks(void **state)
{
    (void)state;
    enum { N = 1000, BLOCK = 10, WINDOW = 70 }; /* 100 blocks, 15 windows of 6 or 7 */
    int64_t samples[N];
    for (int i = 0; i < N; i++) samples[i] = i;
    pare_sampler *s = sampler_of(&(pare_sampler_options){1, samples, N, BLOCK, WINDOW});
    for (int e = 0; e < 2; e++) {
        int last[N / BLOCK], first[N / BLOCK];
        for (int b = 0; b < N / BLOCK; b++) first[b] = -1;
        for (int i = 0; i < N; i++) {
            int64_t b = pare_sampler_at(s, e * N + i) / BLOCK;
            last[b] = i;
            if (first[b] < 0) first[b] = i;
        }
        int neighbours = 0;
        for (int b = 0; b < N / BLOCK; b++) {
            assert_true(last[b] - first[b] < WINDOW);
            assert_true(last[b] - first[b] > BLOCK); /* mixed with others */
            neighbours += b > 0 && abs(first[b] - first[b - 1]) < WINDOW;
        }
        assert_true(neighbours < 40); /* the chunks are permuted, too */
    }
    pare_sampler_free(s);
}

/* Where all is one window every sample is as likely at every place (chi-squared, 49 degrees of
   freedom: above 94.6 once in 10,000). */
static void test_one_window_is_a_free_permutation(void **state)
{
    (void)state;
    enum { N = 50, ROUNDS = 5000 };
    int64_t samples[N], hits[N] = {0};
    double sum = 0;
    for (int i = 0; i < N; i++) samples[i] = i;
    pare_sampler *s = sampler_of(&(pare_sampler_options){9, samples, N, 8, N});
    for (int64_t e = 0; e < ROUNDS; e++) hits[pare_sampler_at(s, e * N + 7)]++;
    for (int i = 0; i < N; i++)
        sum += ((double)hits[i] - 100) * ((double)hits[i] - 100) / 100; /* ROUNDS / N */
    assert_true(sum > 15 && sum < 94.6);
    pare_sampler_free(s);
}

/* The first numbers of splitmix64 from state 0, as its reference code prints them; and a draw that
   is not biased. */
static void test_random_numbers(void **state)
{
    (void)state;
    pare_random r = {0};
    assert_true(pare_random_next(&r) == 0xe220a8397b1dcdafULL);
    assert_true(pare_random_next(&r) == 0x6e789e6aa1b965f4ULL);
    assert_true(pare_random_below(&r, 1) == 0);
    int64_t high = 0; /* of n = 3 * 2^62 the upper third; without drawing again it came at 1/4 */
    for (int i = 0; i < 3000; i++) high += pare_random_below(&r, 3ULL << 62) >= 1ULL << 63;
    assert_true(high > 900 && high < 1100);
    pare_random a = pare_random_of(1, PARE_RANDOM_WINDOW, 2, 3);
    pare_random b = pare_random_of(1, PARE_RANDOM_WINDOW, 3, 2);
    assert_true(a.state != b.state);
}

/* --- reading --- */

enum { ROWS = 60, ROW = 6, HELD = 12 };

static pare_data *open_rows(bool serial)
{
    make m = {serial ? H5T_IEEE_F32BE : H5T_IEEE_F32LE, 2, {ROWS, ROW}, {4, ROW}, .deflate = true};
    make y = {H5T_STD_I64LE, 1, {ROWS}, {0}, .name = "/labels"};
    pare_data *d = NULL;
    pare_data_input in = wants(PARE_f32, 2, ROW, 0, 0);
    m.name = "/input";
    hid_t file = file_new(false);
    dataset_fill(file, &m);
    dataset_fill(file, &y);
    H5Fclose(file);
    assert_int_equal(pare_data_open(&ctx, &d, path, &in, 1), PARE_OK);
    return d;
}

/* Reads positions from start to end into sample[], checking all that a batch says. */
static void read_stream(pare_data *d, pare_loader_options o, int64_t *sample)
{
    pare_loader *s = NULL;
    pare_loader_batch b;
    int64_t at = o.start;
    assert_int_equal(pare_loader_open(&ctx, &s, d, &o), PARE_OK);
    for (;; at += o.every ? o.every : b.count) {
        assert_int_equal(pare_loader_next(s, &b), PARE_OK);
        if (!b.count) break;
        assert_int_equal(b.position, at);
        assert_true(b.count == o.batch || at + b.count == o.end);
        for (int i = 0; i < b.count; i++) {
            assert_int_equal(b.epoch[i], (at + i) / o.count);
            assert_int_equal(b.label[i], element((size_t)b.sample[i]));
            for (size_t k = 0; k < ROW; k++)
                assert_true(((const float *)b.input[0])[(size_t)i * ROW + k] ==
                            (float)element((size_t)b.sample[i] * ROW + k));
            sample[at + i] = b.sample[i];
        }
    }
    assert_true(o.every ? at >= o.end : at == o.end);
    assert_true(pare_loader_bytes(s) > 0);
    pare_loader_close(s);
}

/* Batch, threads and where one starts change nothing, nor do three streams that share the batches;
   held-out samples never come. */
static void test_stream(void **state)
{
    (void)state;
    enum { N = ROWS - HELD, END = 2 * N + 17 };
    int64_t samples[N], want[END], got[END];
    for (int i = 0; i < N; i++) samples[i] = i * ROWS / N;
    for (int serial = 0; serial < 2; serial++)
        for (size_t window = 0; window < 2; window++) {
            pare_data *d = open_rows(serial);
            pare_loader_options o = {.seed = 3, .samples = samples, .count = N, .end = END};
            o.window = window * 4 * 4 * ROW * 4; /* 4 chunks of 4 rows; or all */
            o.batch = 5, o.threads = 1;
            read_stream(d, o, want);
            for (int start = 0; start < END; start += 31) {
                memset(got, -1, sizeof got);
                o.start = start, o.batch = 1 + start, o.threads = 3;
                read_stream(d, o, got);
                assert_memory_equal(got + start, want + start,
                                    sizeof got - (size_t)start * sizeof *got);
            }
            memset(got, -1, sizeof got);
            o.batch = 4, o.every = 12;
            for (o.start = 0; o.start < 12; o.start += 4) read_stream(d, o, got);
            assert_memory_equal(got, want, sizeof got);
            for (int e = 0; e < 2; e++) {
                int seen[ROWS] = {0};
                for (int i = 0; i < N; i++) seen[want[e * N + i]]++;
                for (int i = 0; i < N; i++) assert_int_equal(seen[samples[i]], 1);
            }
            pare_data_close(d);
        }
}

static void test_stream_refuses(void **state)
{
    (void)state;
    pare_data *d = open_rows(false);
    pare_loader *s = NULL;
    int64_t beyond[2] = {3, ROWS};
    pare_loader_options o = {.samples = beyond, .end = 10, .batch = 10, .threads = 1};
    assert_int_equal(pare_loader_open(&ctx, &s, d, &o), PARE_USAGE);
    assert_non_null(strstr(ctx.message, "no samples are left to train on"));
    pare_ctx_clear(&ctx);
    o.count = 2;
    assert_int_equal(pare_loader_open(&ctx, &s, d, &o), PARE_USAGE);
    assert_non_null(strstr(ctx.message, "t.h5: sample 60 was asked for, the file has 60"));
    pare_ctx_clear(&ctx);
    pare_data_close(d);
}

static void test_stream_allocations_may_fail(void **state)
{
    (void)state;
    pare_data *d = open_rows(false);
    int64_t samples[3] = {1, 5, 50};
    pare_loader_options o = {.samples = samples, .count = 3, .end = 9, .batch = 2, .threads = 2};
    pare_status st = PARE_MEMORY;
    for (long n = 0; st != PARE_OK; n++) {
        pare_loader *s = NULL;
        pare_loader_batch b;
        assert_true(n < 200);
        pare_ctx_clear(&ctx);
        ctx.fail_after = n;
        st = pare_loader_open(&ctx, &s, d, &o);
        for (int i = 0; st == PARE_OK && i < 5; i++) st = pare_loader_next(s, &b);
        if (st != PARE_OK) assert_int_equal(st, PARE_MEMORY);
        if (st != PARE_OK) assert_string_not_equal(ctx.message, "");
        pare_loader_close(s);
    }
    ctx.fail_after = -1;
    pare_ctx_clear(&ctx);
    pare_data_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_epoch_is_a_permutation),
        cmocka_unit_test(test_a_position_is_enough),
        cmocka_unit_test(test_windows_hold_whole_chunks),
        cmocka_unit_test(test_one_window_is_a_free_permutation),
        cmocka_unit_test(test_random_numbers),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_refuses),
        cmocka_unit_test(test_stream_allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
