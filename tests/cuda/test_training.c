/* SPDX-License-Identifier: Apache-2.0 */
/* What a device does for training beside running graphs: sums over slices, alone and of a team, and
   the optimizer's step, whose elements have the host's bytes. */
#include "distill/optimizer.h"
#include "distill/weights.h"
#include "runtime/exec/batch.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <math.h>

static pare_ctx ctx;

static pare_device *open_device(void)
{
    pare_device *d;
    pare_ctx_init(&ctx);
    if (pare_device_open(&ctx, &d, "cuda") != PARE_OK) fail_msg("%s", ctx.message);
    return d;
}

static float number(uint32_t *seed) { return (float)test_random(seed) / 8388608.0f - 1; }

/* --- sums over slices --- */

enum { MOST = 150, WIDTH = 700 };

static union {
    float f[MOST][WIDTH];
    double d[MOST][WIDTH];
} slice_x, slice_y, slice_sum;

/* The sum of element i of the terms, in the tree of tree_sum.h. */
static double tree_sum(pare_dtype type, int first, int slices, int i)
{
    int left = 1;
    if (slices == 1) return type == PARE_f64 ? slice_x.d[first][i] : (double)slice_x.f[first][i];
    while (left * 2 < slices) left *= 2;
    const double a = tree_sum(type, first, left, i),
                 b = tree_sum(type, first + left, slices - left, i);
    return type == PARE_f64 ? a + b : (double)((float)a + (float)b);
}

static void expect_sums(pare_device *d, pare_dtype type, int slices, int64_t count)
{
    const size_t one = type == PARE_f64 ? sizeof slice_x.d[0] : sizeof slice_x.f[0];
    const size_t bytes = (size_t)count * (type == PARE_f64 ? 8 : 4);
    const void *from[MOST];
    void *to[MOST];
    uint32_t seed = (uint32_t)(slices + count);
    for (int s = 0; s < slices; s++)
        for (int i = 0; i < WIDTH; i++)
            if (type == PARE_f64)
                slice_x.d[s][i] = (double)number(&seed) / 3;
            else
                slice_x.f[s][i] = number(&seed) / 3;
    for (int i = 0; i < WIDTH; i++)
        if (type == PARE_f64)
            slice_sum.d[0][i] = tree_sum(type, 0, slices, i);
        else
            slice_sum.f[0][i] = (float)tree_sum(type, 0, slices, i);
    for (int s = 0; s < slices; s++) {
        from[s] = device_copy((char *)&slice_x + (size_t)s * one, one);
        to[s] = device_copy(NULL, one);
    }
    CUDA_OK(cudaDeviceSynchronize()); /* fills are in another stream */
    const pare_slice_sums sums = {type, count, from, to, slices};
    assert_int_equal(d->training->slices(&ctx, d->setup, &sums), PARE_OK);
    assert_int_equal(d->backend->sync(&ctx, d->setup), PARE_OK);
    for (int s = 0; s < slices; s++) {
        device_fetch((char *)&slice_y + (size_t)s * one, to[s], one);
        assert_memory_equal((char *)&slice_y + (size_t)s * one, &slice_sum, bytes);
        CUDA_OK(cudaFree((void *)from[s]));
    }
}

static void slices_are_added_in_a_tree(void **state)
{
    static const int slices[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 40, 130, 150};
    static const int64_t counts[] = {0, 1, 33, 700};
    pare_device *d = open_device();
    (void)state;
    for (size_t s = 0; s < sizeof slices / sizeof *slices; s++) {
        expect_sums(d, PARE_f32, slices[s], counts[s % 4]);
        expect_sums(d, PARE_f64, slices[s], counts[(s + 1) % 4]);
    }
    pare_device_close(d);
}

/* --- a replica pool --- */

enum { SLICES = 7, ROWS = 3, COLUMNS = 5, SIZE = ROWS * COLUMNS };

typedef struct bench {
    graph_case g;
    pare_device *device;
    pare_plan *plan;
    pare_replicas *pool;
    void *w; /* placed */
    float x[SLICES][SIZE], y[SLICES][SIZE], s[SLICES][COLUMNS];
    int taken;
    float seen[COLUMNS]; /* what came of s */
} bench;

/* z = x + w; s = the sum of z's rows, then over slices where there are sums; y = z - s; w and s
   stay on the device. */
static void build(bench *b, bool sums)
{
    static const int64_t zero = 0;
    float w[COLUMNS];
    memset(b, 0, sizeof *b);
    b->device = open_device();
    uint32_t seed = 5;
    for (int i = 0; i < SLICES * SIZE; i++) b->x[i / SIZE][i % SIZE] = number(&seed);
    for (int i = 0; i < COLUMNS; i++) w[i] = number(&seed);
    graph_open(&b->g, 21);
    graph_input(&b->g, "x", PARE_f32, 2, (int64_t[]){ROWS, COLUMNS});
    graph_input(&b->g, "w", PARE_f32, 1, (int64_t[]){COLUMNS});
    graph_ints(&b->g, "axes", 1, (int64_t[]){1}, &zero);
    graph_node(&b->g, "Add", "x w", "z");
    assert_int_equal(
        pare_node_set_int(graph_node(&b->g, "ReduceSum", "z axes", "own"), "keepdims", 0), PARE_OK);
    pare_value *own = graph_value(&b->g, "own"), *made;
    if (sums) {
        assert_int_equal(pare_value_new(b->g.model->graph, &made, "s"), PARE_OK);
        assert_int_equal(pare_node_new(b->g.model->graph, NULL, b->g.model->graph->node_count,
                                       "SliceSum", "pare", "sum", &own, 1, &made, 1),
                         PARE_OK);
    } else
        graph_node(&b->g, "Neg", "own", "s");
    graph_node(&b->g, "Sub", "z s", "y");
    graph_output(&b->g, "y");
    graph_output(&b->g, "s");
    assert_int_equal(pare_device_copy(&b->g.ctx, b->device, &b->w, w, sizeof w), PARE_OK);
    const pare_placed placed[] = {{"w", b->w}, {"s", NULL}};
    const pare_plan_options options = {
        .deterministic = true, .device = b->device, .placed = placed, .placed_count = 2};
    const pare_replicas_options shared = {.items = SLICES, .share = true};
    if (pare_plan_new(&b->g.ctx, &b->plan, b->g.model, NULL, 0, &options) != PARE_OK ||
        pare_replicas_new(&b->g.ctx, &b->pool, b->plan, &shared) != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
    assert_int_equal(pare_replicas_count(b->pool), sums ? SLICES : 1);
    for (int i = 0; i < SLICES; i++) /* what is expected */
        for (int c = 0; c < COLUMNS; c++) {
            double sum = 0;
            for (int r = 0; r < ROWS; r++) sum += (double)(b->x[i][r * COLUMNS + c] + w[c]);
            b->s[i][c] = sums ? (float)sum : -(float)sum;
        }
    for (int c = 0; c < COLUMNS && sums; c++)
        b->s[0][c] = ((b->s[0][c] + b->s[1][c]) + (b->s[2][c] + b->s[3][c])) +
                     ((b->s[4][c] + b->s[5][c]) + b->s[6][c]);
    for (int i = 0; i < SLICES; i++)
        for (int k = 0; k < SIZE; k++)
            b->y[i][k] = b->x[i][k] + w[k % COLUMNS] - b->s[sums ? 0 : i][k % COLUMNS];
}

static void finish(bench *b)
{
    pare_replicas_free(b->pool);
    pare_plan_free(b->plan);
    b->device->backend->free(b->device, b->w);
    graph_close(&b->g);
    pare_device_close(b->device);
}

static pare_status load(void *user, int64_t slice, pare_replica *replica)
{
    bench *b = user;
    pare_runner_set_input(replica->runner, 0, b->x[slice]);
    return PARE_OK;
}

static pare_status take(void *user, int64_t item, pare_replica *replica)
{
    bench *b = user;
    const int slice = (int)item;
    pare_runner *runner = replica->runner;
    const float *s = b->seen;
    const pare_view y = pare_runner_output(runner, 0), there = pare_runner_output(runner, 1);
    const float *got = y.data;
    for (int i = 0; i < SIZE; i++)
        if (fabsf(got[i] - b->y[slice][i]) > 2e-6f)
            fail_msg("slice %d, %d: %g, expected %g", slice, i, (double)got[i],
                     (double)b->y[slice][i]);
    assert_int_equal(b->taken++, slice);
    pare_stream *stream = pare_replicas_stream(b->pool);
    PARE_TRY(b->device->backend->download(pare_runner_ctx(runner), stream, b->seen, there.data,
                                          sizeof b->seen));
    PARE_TRY(b->device->backend->sync(pare_runner_ctx(runner), stream));
    for (int c = 0; c < COLUMNS; c++)
        assert_true(fabsf(s[c] - (pare_replicas_count(b->pool) > 1 ? b->s[0] : b->s[slice])[c]) <
                    2e-6f);
    return PARE_OK;
}

static pare_status run_slices(bench *b)
{
    const pare_batch_work work = {.load = load, .take = take, .user = b};
    return pare_replicas_run(b->pool, 0, SLICES, &work);
}

/* The first run goes step by step, the second is recorded, the third played. */
static void a_pool_runs_its_slices(void **state)
{
    (void)state;
    for (int sums = 0; sums < 2; sums++) {
        bench b;
        build(&b, sums);
        for (int run = 0; run < 3; run++) {
            b.taken = 0;
            if (run_slices(&b) != PARE_OK) fail_msg("%s", b.g.ctx.message);
            assert_int_equal(b.taken, SLICES);
        }
        finish(&b);
    }
}

/* Whatever call fails, the pool says so and can run again. */
static void a_pool_fails_cleanly(void **state)
{
    (void)state;
    if (!simt_emulated()) skip();
    bench b;
    build(&b, true);
    int failed = 0;
    for (uint64_t n = 1;; n += 5) {
        b.taken = 0;
        simt_fail_at(n, cudaErrorInvalidValue, false);
        pare_status st = run_slices(&b);
        simt_fail_at(0, 0, false);
        if (st == PARE_OK) break;
        assert_true(strlen(b.g.ctx.message) > 0);
        pare_ctx_clear(&b.g.ctx);
        failed++;
    }
    assert_true(failed > 10);
    finish(&b);
}

/* --- the optimizer --- */

enum { TENSORS = 6, STEPS = 3, BATCHES = 2, PER_BATCH = 3 };
static const int64_t sizes[TENSORS] = {1, 255, 4096, 4097, 9001, 6};

typedef struct model {
    pare_tensor tensor[TENSORS];
    float *data[TENSORS];
    pare_weights w;
} model;

/* Tensor 3 keeps zeros, 1 does not decay, 5 holds learned scales. */
static void make_model(model *m, pare_device *device, pare_optimizer_kind kind, double average)
{
    uint32_t seed = 11;
    memset(m, 0, sizeof *m);
    m->w.ctx = &ctx;
    m->w.item = pare_alloc(&ctx, TENSORS, sizeof *m->w.item);
    assert_non_null(m->w.item);
    for (int k = 0; k < TENSORS; k++) {
        m->data[k] = malloc((size_t)sizes[k] * sizeof(float));
        assert_non_null(m->data[k]);
        for (int64_t i = 0; i < sizes[k]; i++)
            m->data[k][i] = k == 5 ? 0.01f + fabsf(number(&seed)) : number(&seed);
        m->tensor[k] = (pare_tensor){.dtype = PARE_f32,
                                     .count = sizes[k],
                                     .data = m->data[k],
                                     .bytes = (size_t)sizes[k] * sizeof(float)};
        m->w.item[k] = (pare_weight){.name = "w", .tensor = &m->tensor[k], .decays = k != 1};
    }
    m->w.item[5].decays = false;
    m->w.item[5].gradient_scale = 0.125;
    m->w.item[3].zero = pare_alloc(&ctx, (size_t)sizes[3], 1);
    assert_non_null(m->w.item[3].zero);
    for (int64_t i = 0; i < sizes[3]; i += 3) m->w.item[3].zero[i] = 1, m->data[3][i] = 0;
    m->w.trained = m->w.count = TENSORS;
    m->w.microbatches = PER_BATCH;
    m->w.batches = BATCHES;
    const pare_distill_options options = {
        .optimizer = kind, .ema_decay = average, .device = device};
    if (pare_weights_open(&m->w, &options) != PARE_OK) fail_msg("%s", ctx.message);
}

static void free_model(model *m)
{
    pare_weights_free(&m->w);
    for (int k = 0; k < TENSORS; k++) free(m->data[k]);
}

/* The host's step, as distill/optimizer.c takes it. */
static double step_here(model *m, const pare_optimizer *o, int step, double keep)
{
    pare_weights *w = &m->w;
    double sum = 0;
    for (int k = 0; k < TENSORS; k++) {
        const pare_weight *item = &w->item[k];
        float *g = w->gradient + item->at;
        for (int64_t i = 0; i < sizes[k]; i++) {
            if (item->zero && item->zero[i]) g[i] = 0;
            if (k == 5) g[i] *= 0.125f;
        }
        sum += pare_square_sum(g, sizes[k]);
        const int64_t each = k == 5 ? 1 : sizes[k];
        for (int64_t i = 0; i < sizes[k]; i += each) {
            const size_t at = item->at + (size_t)i;
            const pare_update u = {.count = each,
                                   .value = w->value + at,
                                   .gradient = w->gradient + at,
                                   .exp_avg = w->exp_avg + at,
                                   .exp_avg_sq = w->exp_avg_sq ? w->exp_avg_sq + at : NULL,
                                   .zero = item->zero,
                                   .learning_rate =
                                       0.3 * (k == 5 ? fabs((double)m->data[5][i]) : 1),
                                   .weight_decay = item->decays ? 0.1 : 0,
                                   .scale = 0.5,
                                   .step = step + 1,
                                   .threads = 1};
            pare_optimizer_step(o, &u);
        }
        if (k == 5) pare_weights_hold(item, w->value + item->at);
        if (w->ema)
            pare_ema_step(w->ema + item->at, w->value + item->at, sizes[k], keep, item->zero);
    }
    return sum;
}

/* A term of the gradients' sum; x: NULL is the block of gradients. */
static void add_term(model *m, pare_device *d, pare_tree_term term, const float *x)
{
    const float *from[TENSORS], *const *table = NULL;
    float *there = NULL;
    if (x) {
        there = device_copy(x, m->w.floats * sizeof *x);
        for (int k = 0; k < TENSORS; k++) from[k] = there + m->w.item[k].at;
        table = device_copy(from, sizeof from);
    }
    assert_int_equal(d->training->gather(&ctx, d->setup, &m->w.on_device->blocks, table, term),
                     PARE_OK);
    assert_int_equal(d->backend->sync(&ctx, d->setup), PARE_OK);
    CUDA_OK(cudaFree((void *)table));
    CUDA_OK(cudaFree(there));
}

/* Gradients of two batches of three slices: ((x0 + x1) + x2) + ((x3 + x4) + x5). */
static void gather(model *m, pare_device *d, int step, float *here)
{
    float *x[BATCHES][PER_BATCH];
    uint32_t seed = 100u + (uint32_t)step;
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int slice = 0; slice < PER_BATCH; slice++) {
            float *to = x[batch][slice] = malloc(m->w.floats * sizeof *to);
            assert_non_null(to);
            for (size_t i = 0; i < m->w.floats; i++) to[i] = number(&seed) * 4;
            add_term(m, d, pare_tree_term_of(slice, PER_BATCH), to);
        }
        pare_tree_term term = pare_tree_term_of(batch, BATCHES);
        term.with <<= 2;
        if (term.to >= 0) term.to += 2;
        add_term(m, d, term, NULL);
    }
    for (size_t i = 0; i < m->w.floats; i++)
        here[i] =
            ((x[0][0][i] + x[0][1][i]) + x[0][2][i]) + ((x[1][0][i] + x[1][1][i]) + x[1][2][i]);
    for (int k = 0; k < BATCHES * PER_BATCH; k++) free(x[k / PER_BATCH][k % PER_BATCH]);
}

static void expect_steps(pare_optimizer_kind kind, double average)
{
    const pare_optimizer o = {kind, 0.9, 0.999, 1e-8, 0.9};
    pare_device *d = open_device();
    model here, there;
    make_model(&here, NULL, kind, average);
    make_model(&there, d, kind, average);
    assert_null(here.w.on_device);
    assert_int_equal(pare_device_weights_upload(there.w.on_device), PARE_OK);
    for (int step = 0; step < STEPS; step++) {
        double norm;
        const pare_train_rule rule = pare_optimizer_rule(&o, 0.3, 0.1, 0.5, step + 1);
        gather(&there, d, step, here.w.gradient);
        if (step % 2) {
            const double *each = NULL;
            assert_int_equal(pare_device_weights_chunk_squares(there.w.on_device, d->setup, &each),
                             PARE_OK);
            norm = pare_train_chunks_sum(each, there.w.on_device->blocks.chunks);
        } else
            assert_int_equal(pare_device_weights_squares(there.w.on_device, d->setup, &norm),
                             PARE_OK);
        assert_int_equal(
            pare_device_weights_step(there.w.on_device, d->setup, &rule, (float)(1 - 0.8)),
            PARE_OK);
        const double want = step_here(&here, &o, step, 0.8);
        assert_true(fabs(norm - want) <= 1e-12 * want);
    }
    assert_int_equal(pare_device_weights_download(there.w.on_device, true), PARE_OK);
    for (int k = 0; k < TENSORS; k++) {
        const size_t at = here.w.item[k].at, bytes = (size_t)sizes[k] * sizeof(float);
        assert_memory_equal(here.w.value + at, there.w.value + at, bytes);
        assert_memory_not_equal(here.w.value + at, here.data[k], bytes);
        assert_memory_equal(here.w.exp_avg + at, there.w.exp_avg + at, bytes);
        if (here.w.exp_avg_sq)
            assert_memory_equal(here.w.exp_avg_sq + at, there.w.exp_avg_sq + at, bytes);
        if (average > 0) assert_memory_equal(here.w.ema + at, there.w.ema + at, bytes);
    }
    free_model(&here);
    free_model(&there);
    pare_device_close(d);
}

static void steps_have_the_hosts_bytes(void **state)
{
    (void)state;
    expect_steps(PARE_OPTIMIZER_ADAMW, 0.9);
    expect_steps(PARE_OPTIMIZER_ADAMW, 0);
    expect_steps(PARE_OPTIMIZER_SGD, 0.9);
}

/* --- sums over chunks --- */

enum { MOST_CHUNKS = 700, SHORT = 3 }; /* elements of a chunk */

/* One tensor in chunks, and room for their sums: all in one allocation. */
static void expect_chunk_sums(pare_device *d, int chunks)
{
    struct {
        double sum[MOST_CHUNKS + 1];
        pare_train_tensor tensor;
        pare_train_chunk chunk[MOST_CHUNKS];
        float gradient[MOST_CHUNKS * SHORT];
    } here = {.tensor = {.zero = -1}}, *there;
    uint32_t seed = 5;
    void *memory;
    for (int i = 0; i < MOST_CHUNKS * SHORT; i++) here.gradient[i] = number(&seed);
    for (int i = 0; i < chunks; i++) here.chunk[i] = (pare_train_chunk){i * SHORT, SHORT, 0};
    assert_int_equal(pare_device_copy(&ctx, d, &memory, &here, sizeof here), PARE_OK);
    there = memory;
    const pare_train_blocks blocks = {.gradient = there->gradient,
                                      .tensor = &there->tensor,
                                      .chunk = there->chunk,
                                      .chunks = chunks,
                                      .sum = there->sum};
    assert_int_equal(d->training->squares(&ctx, d->setup, &blocks), PARE_OK);
    assert_int_equal(d->backend->download(&ctx, d->setup, here.sum, there->sum, sizeof here.sum),
                     PARE_OK);
    assert_int_equal(d->backend->sync(&ctx, d->setup), PARE_OK);
    for (int i = 0; i < chunks; i++) {
        const float *g = here.gradient + (size_t)i * SHORT;
        assert_true(fabs(here.sum[1 + i] - pare_square_sum(g, SHORT)) <= 1e-15);
    }
    const double sum = pare_train_chunks_sum(here.sum + 1, chunks);
    assert_memory_equal(&sum, here.sum, sizeof sum);
    d->backend->free(d, memory);
}

static void chunks_are_added_as_on_the_host(void **state)
{
    (void)state;
    static const int chunks[] = {0, 1, 2, 255, 256, 257, MOST_CHUNKS};
    pare_device *d = open_device();
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) expect_chunk_sums(d, chunks[i]);
    pare_device_close(d);
}

/* A stage may have none. */
static void no_weights_are_trained(void **state)
{
    (void)state;
    pare_device *d = open_device();
    pare_weights w = {.ctx = &ctx, .microbatches = PER_BATCH};
    const pare_distill_options options = {.ema_decay = 0.9, .device = d};
    const pare_optimizer o = {PARE_OPTIMIZER_ADAMW, 0.9, 0.999, 1e-8, 0.9};
    const pare_train_rule rule = pare_optimizer_rule(&o, 0.3, 0.1, 0.5, 1);
    double norm = 1;
    assert_int_equal(pare_weights_open(&w, &options), PARE_OK);
    assert_int_equal(pare_device_weights_upload(w.on_device), PARE_OK);
    for (int k = 0; k < PER_BATCH; k++)
        assert_int_equal(d->training->gather(&ctx, d->setup, &w.on_device->blocks, NULL,
                                             pare_tree_term_of(k, PER_BATCH)),
                         PARE_OK);
    assert_int_equal(pare_device_weights_squares(w.on_device, d->setup, &norm), PARE_OK);
    assert_true(norm == 0);
    assert_int_equal(pare_device_weights_step(w.on_device, d->setup, &rule, 0.1f), PARE_OK);
    assert_int_equal(pare_device_weights_download(w.on_device, true), PARE_OK);
    pare_weights_free(&w);
    pare_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(chunks_are_added_as_on_the_host),
        device_test(no_weights_are_trained),
        device_test(slices_are_added_in_a_tree),
        device_test(a_pool_runs_its_slices),
        device_test(a_pool_fails_cleanly),
        device_test(steps_have_the_hosts_bytes),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
