/* SPDX-License-Identifier: Apache-2.0 */
/* The model of time by numbers that were worked out by hand, on a device of two SMs at 1 GHz; then
   that this build's counts have every kernel that the model asks for, and models with steps that it
   does not know. */
#include "runtime/eval/roofline/internal.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* Tensor cores of 8 bits: 10 multiply-adds a cycle and SM by mma.sync, whose share is 0.62. */
static const pare_gpu_spec two = {.name = "two",
                                  .sms = 2,
                                  .clock = 1e9,
                                  .hbm = 1e12,
                                  .host = 1e9,
                                  .macs_s8 = 2e10 / 0.62,
                                  .macs_f16 = 1e10 / 0.62,
                                  .macs_f32 = 1e9,
                                  .shared = 128,
                                  .reached = 1};
/* Four blocks, two an SM: 8 warps there. A step's instructions take 8 / 4 * 170 / 0.85 = 400
   cycles, what is around steps 8 / 4 * 85 / 0.85 = 200, a block's start 1500. */
static const pare_gpu_grid four = {.blocks = 4,
                                   .resident = 2,
                                   .warps = 4,
                                   .ahead = 34,
                                   .behind = 51,
                                   .steps = 10,
                                   .step = 170,
                                   .rate = 2e10,
                                   .reached = 1};

static void near(double a, double b)
{
    if (!(a > b * (1 - 1e-9) && a < b * (1 + 1e-9))) fail_msg("%.12g is not %.12g", a, b);
}

static void waves_are_counted(void **state)
{
    (void)state;
    pare_gpu_grid g = four;
    pare_roofline_step s = {0};
    near(pare_gpu_grid_seconds(&two, &g, &s), 5700e-9);
    assert_int_equal(s.bound, PARE_BOUND_ISSUE);
    assert_int_equal(s.occupancy, 2);
    near(s.waves, 1);
    g.blocks = 5;
    near(pare_gpu_grid_seconds(&two, &g, &s), 2 * 5700e-9);
    near(s.waves, 1.25);
    g.blocks = 24; /* many waves: half of one is lost */
    near(pare_gpu_grid_seconds(&two, &g, &s), 6.5 * 5700e-9);
    g.blocks = 1; /* a block alone: 4 warps, 200 cycles a step, 100 around */
    near(pare_gpu_grid_seconds(&two, &g, &s), 3600e-9);
    assert_int_equal(s.occupancy, 1);
}

static void the_longest_bounds_a_step(void **state)
{
    (void)state;
    pare_gpu_grid g = four;
    pare_roofline_step s = {0};
    g.step = 17; /* 40 cycles: a step waits 200 at least */
    near(pare_gpu_grid_seconds(&two, &g, &s), 3700e-9);
    assert_int_equal(s.bound, PARE_BOUND_LATENCY);
    g.tensor = 1000; /* 8 warps at 10 a cycle: 800 */
    near(pare_gpu_grid_seconds(&two, &g, &s), 9700e-9);
    assert_int_equal(s.bound, PARE_BOUND_TENSOR);
    g.shared = 64000; /* two blocks at 128 bytes a cycle: 1000 */
    near(pare_gpu_grid_seconds(&two, &g, &s), 11700e-9);
    assert_int_equal(s.bound, PARE_BOUND_SHARED);
}

static void memory_bounds_the_whole(void **state)
{
    (void)state;
    pare_roofline_step s = {.bound = PARE_BOUND_ISSUE}, bytes = {0};
    pare_step_close(&two, 5e-6, 4e6, &s); /* 4 us */
    near(s.seconds, 5e-6 + PARE_LAUNCH_SECONDS);
    assert_int_equal(s.bound, PARE_BOUND_ISSUE);
    pare_step_close(&two, 5e-6, 8e6, &s); /* 8 us: a second launch */
    near(s.seconds, 13e-6 + 2 * PARE_LAUNCH_SECONDS);
    assert_int_equal(s.bound, PARE_BOUND_MEMORY);
    assert_int_equal(s.launches, 2);
    near(s.bytes, 12e6);
    pare_bytes_add(&two, 1e3, &bytes);
    assert_int_equal(bytes.bound, PARE_BOUND_LATENCY);
    near(bytes.seconds, 1e-9 + PARE_LAUNCH_SECONDS);
}

/* Between two kernels that take part, and within a step of two of them. */
static void early_kernels_launch_sooner(void **state)
{
    (void)state;
    const double sooner = PARE_LAUNCH_SECONDS - PARE_OVERLAP_SECONDS;
    static const struct {
        const char *ahead, *kernel;
        int launches, overlaps;
    } cases[] = {{"conv_128x128", "conv_wgmma_128x64", 1, 1},
                 {"conv_stem", "max_pool", 1, 1},
                 {NULL, "conv_64x64", 1, 0},
                 {"cublaslt", "add", 1, 0},
                 {"add", "cublaslt", 1, 0},
                 {"add", "conv_split_4", 2, 2},
                 {"resize", "conv_split_2", 2, 1},
                 {"add", "matmul_64x64", 2, 0},
                 {"conv_f32_64x64", "add", 1, 0},
                 {"add", "conv_tile_64x64", 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pare_roofline_step ahead = {.launches = 1},
                           s = {.launches = cases[i].launches, .seconds = 1e-5};
        if (cases[i].ahead) snprintf(ahead.kernel, sizeof ahead.kernel, "%s", cases[i].ahead);
        snprintf(s.kernel, sizeof s.kernel, "%s", cases[i].kernel);
        pare_overlap_apply(cases[i].ahead ? &ahead : NULL, &s);
        near(s.seconds, 1e-5 - cases[i].overlaps * sooner);
    }
}

static const char counts[] =
    "_Z5other all=9 loop=8 mma=7 behind=6 blocks=5\n"
    "_Z9gemm_tileILi3E7tile_ofILi2ELi2ELi2ELi4EE15matrix_iteratorLi0EEv all=355 loop=340 mma=32 "
    "per_mma=1 behind=10 blocks=2\n";

/* 64 x 64 x 640 of 8 bits: one block of 4 warps, 10 steps of 64 bytes. A loop of 32 mma is two
   steps: 340 / 2 instructions, 200 cycles; 16 mma of 4096 at 10 a cycle: 4 * 6553.6. Around: 15 /
   0.85. */
static void a_product_is_tiles(void **state)
{
    (void)state;
    pare_roofline_step s = {0};
    pare_gpu_product p = {.type = PARE_s8,
                          .batches = 1,
                          .rows = 64,
                          .columns = 64,
                          .depth = 640,
                          .chunks = true,
                          .plain = true,
                          .bytes = 86016};
    pare_sass row;
    assert_true(pare_sass_find(counts, "_Z9gemm_tile", &row));
    near(row.all, 355), near(row.behind, 10), near(row.blocks, 2);
    assert_false(pare_sass_find(counts, "_Z9gemm_none", &row));
    pare_product_predict(&two, counts, "matmul", &p, &s);
    assert_string_equal(s.kernel, "matmul_64x64");
    assert_int_equal(s.bound, PARE_BOUND_TENSOR);
    near(s.seconds, (1500 + 15 / 0.85 + 10 * 26214.4) * 1e-9 + PARE_LAUNCH_SECONDS);
    s = (pare_roofline_step){0};
    p.residual = true; /* the counts have no such kernel */
    pare_product_predict(&two, counts, "matmul", &p, &s);
    assert_false(s.known);
}

/* By hand from runtime/cuda/gemm/prepack.c: 66 blocks fill a device. */
static void tiles_and_splits_are_the_backends(void **state)
{
    (void)state;
    pare_gpu_product p = {
        .type = PARE_s8, .batches = 1, .rows = 8448, .columns = 128, .depth = 4096, .chunks = true};
    assert_true(pare_tile_fits(&p, PARE_GPU_TILE_128X128)); /* 66 * 1 */
    p.rows = 8320;                                          /* 65 */
    assert_false(pare_tile_fits(&p, PARE_GPU_TILE_128X128));
    assert_true(pare_tile_fits(&p, PARE_GPU_TILE_128X64)); /* 130 */
    p.rows = 8448, p.columns = 64;
    assert_false(pare_tile_fits(&p, PARE_GPU_TILE_128X128));
    p.chunks = false;
    assert_false(pare_tile_fits(&p, PARE_GPU_TILE_128X64));
    assert_true(pare_tile_fits(&p, PARE_GPU_TILE_64X64));
    assert_int_equal(pare_splits_of(&p), 1); /* 132 blocks */
    p.rows = 64 * 33;
    assert_int_equal(pare_splits_of(&p), 4);
    p.rows = 64;
    assert_int_equal(pare_splits_of(&p), 16); /* 64 steps: 16 of 4 */
    p.depth = 512;
    assert_int_equal(pare_splits_of(&p), 2);
    p.type = PARE_f32;
    assert_int_equal(pare_splits_of(&p), 1);
}

/* Every kernel of a product that the model may ask for is among this build's counts. */
static void counts_have_the_kernels(void **state)
{
    (void)state;
    const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16, PARE_f32};
    for (int i = 0; i < 5 * 32; i++) {
        pare_roofline_step s = {0};
        pare_gpu_product p = {.type = types[i / 32],
                              .batches = 1,
                              .rows = i & 16 ? 20000 : 64,
                              .columns = 128,
                              .depth = 4096,
                              .picture = i & 1,
                              .chunks = i & 2,
                              .residual = i & 4,
                              .plain = i & 8};
        pare_product_predict(&two, pare_sass_counts, "conv", &p, &s);
        if (!s.known || !(s.seconds > 0)) fail_msg("case %d has no kernel", i);
        if (!pare_type_is_int8(p.type)) continue;
        p.bounds = true;
        s = (pare_roofline_step){0};
        pare_product_predict(&two, pare_sass_counts, "conv", &p, &s);
        if (!s.known) fail_msg("case %d with bounds has no kernel", i);
        p.pieces = p.chunks;
        s = (pare_roofline_step){0};
        pare_product_predict(&two, pare_sass_counts, "conv", &p, &s);
        if (!s.known) fail_msg("case %d by pieces has no kernel", i);
    }
}

/* One step of depth: the time is the epilogue's. */
static void bounds_take_instructions(void **state)
{
    (void)state;
    pare_roofline_step lean = {0}, bounds = {0};
    pare_gpu_product p = {.type = PARE_s8,
                          .batches = 1,
                          .rows = 401408,
                          .columns = 256,
                          .depth = 64,
                          .chunks = true,
                          .residual = true,
                          .plain = true};
    pare_product_predict(&two, pare_sass_counts, "conv", &p, &lean);
    p.bounds = true;
    pare_product_predict(&two, pare_sass_counts, "conv", &p, &bounds);
    assert_true(bounds.seconds > lean.seconds);
}

/* gemm/wgmma.cu: the widest tile is the best of this product, but not where bytes are added to f32;
   four groups of warps where the epilogue is most of it; smaller products than three in ten
   multiprocessors' tiles take other kernels. */
static void hopper_has_tiles(void **state)
{
    (void)state;
    pare_roofline_step s = {0};
    pare_gpu_product p = {.type = PARE_s8,
                          .batches = 1,
                          .rows = 128 * 132,
                          .columns = 192,
                          .depth = 1024,
                          .chunks = true,
                          .plain = true,
                          .y = PARE_s8,
                          .wgmma = true};
    const pare_gpu_spec *h200;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_gpu_spec_find(&ctx, &h200, "h200"), PARE_OK);
    pare_product_predict(h200, pare_sass_counts, "matmul", &p, &s);
    assert_string_equal(s.kernel, "matmul_wgmma_128x192");
    p.y = PARE_f32, p.z = PARE_s8, p.residual = true, p.plain = false;
    s = (pare_roofline_step){0};
    pare_product_predict(h200, pare_sass_counts, "matmul", &p, &s);
    assert_non_null(strstr(s.kernel, "matmul_wgmma_"));
    assert_null(strstr(s.kernel, "192"));
    p.y = PARE_s8, p.plain = true, p.depth = 64, p.columns = 256, p.rows = 401408;
    s = (pare_roofline_step){0};
    pare_product_predict(h200, pare_sass_counts, "conv", &p, &s);
    assert_string_equal(s.kernel, "conv_wgmma_256x128_4wg");
    p.y = PARE_f32, p.plain = false; /* floats of little depth: none */
    s = (pare_roofline_step){0};
    pare_product_predict(h200, pare_sass_counts, "conv", &p, &s);
    assert_null(strstr(s.kernel, "wgmma"));
    p.y = PARE_s8, p.plain = true;
    p.columns = 192, p.rows = 3413; /* 40 tiles of 128 x 128 have 192 * 3413.3 outputs */
    s = (pare_roofline_step){0};
    pare_product_predict(h200, pare_sass_counts, "matmul", &p, &s);
    assert_null(strstr(s.kernel, "wgmma_1"));
    assert_null(strstr(s.kernel, "wgmma_2"));
    p.columns = 256, p.rows = 196, p.depth = 2304; /* few tiles, deep: a cluster shares each */
    s = (pare_roofline_step){0};
    pare_product_predict(h200, pare_sass_counts, "conv", &p, &s);
    assert_non_null(strstr(s.kernel, "conv_wgmma_swap_"));
    p.columns = 254; /* not in fours */
    s = (pare_roofline_step){0};
    pare_product_predict(h200, pare_sass_counts, "conv", &p, &s);
    assert_null(strstr(s.kernel, "wgmma"));
    pare_ctx_clear(&ctx);
}

static void an_unknown_device_lists_the_known(void **state)
{
    (void)state;
    pare_ctx ctx;
    const pare_gpu_spec *spec;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_gpu_spec_find(&ctx, &spec, "h200"), PARE_OK);
    assert_int_equal(spec->sms, 132);
    assert_int_equal(pare_gpu_spec_find(&ctx, &spec, "h300"), PARE_USAGE);
    assert_non_null(strstr(ctx.message, "'h300'; known are: h200, h100"));
    pare_ctx_clear(&ctx);
}

static const pare_roofline_step *step_of(const pare_roofline *r, const char *op)
{
    for (int i = 0; i < pare_roofline_count(r); i++)
        if (!strcmp(pare_roofline_at(r, i)->op_type, op)) return pare_roofline_at(r, i);
    fail_msg("no step is a %s", op);
    return NULL;
}

/* A transposed convolution, a determinant that only the host computes, and a Relu that is fused. */
static void nothing_is_left_out(void **state)
{
    (void)state;
    graph_case g;
    pare_roofline *r;
    float w[64] = {0};
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){1, 4, 8, 8});
    graph_floats(&g, "w", 4, (int64_t[]){4, 4, 1, 1}, w);
    graph_floats(&g, "v", 4, (int64_t[]){4, 3, 2, 2}, w); /* channels that are no chunk */
    graph_node(&g, "Conv", "x w", "a");
    graph_node(&g, "Relu", "a", "b");
    graph_node(&g, "ConvTranspose", "b v", "c");
    graph_node(&g, "Det", "b", "d");
    graph_output(&g, "c");
    graph_output(&g, "d");
    assert_int_equal(pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, &two), PARE_OK);
    const pare_roofline_step *conv = step_of(r, "FusedConv"), *spread = step_of(r, "ConvTranspose"),
                             *det = step_of(r, "Det");
    assert_string_equal(conv->kernel, "conv_f32_64x64");
    assert_true(conv->known);
    near(conv->macs, 64 * 4 * 4);
    assert_string_equal(spread->kernel, "unknown");
    assert_false(spread->known);
    near(spread->bytes, 4.0 * (4 * 64 + 48 + 3 * 81)); /* x, w, y */
    assert_string_equal(det->kernel, "host");
    assert_int_equal(det->bound, PARE_BOUND_HOST);
    double sum = 0;
    for (int i = 0; i < pare_roofline_count(r); i++) sum += pare_roofline_at(r, i)->seconds;
    near(pare_roofline_seconds(r), sum);
    pare_roofline_free(r);
    graph_close(&g);
}

/* Two convolutions in a row beside one, n images of 8 x 8 pixels. */
static void fork_graph(graph_case *g, int64_t n, float *w)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 4, (int64_t[]){n, 64, 8, 8});
    graph_floats(g, "w", 4, (int64_t[]){64, 64, 3, 3}, w);
    graph_ints(g, "all", 1, (int64_t[]){4}, (int64_t[]){n, 64, 8, 8});
    graph_node(g, "Relu", "x", "stem");
    graph_node(g, "Conv", "stem w", "a");
    graph_node(g, "Conv", "a w", "b");
    graph_node(g, "Conv", "b w", "c");
    graph_node(g, "Reshape", "stem all", "under");
    graph_node(g, "Conv", "under w", "d");
    graph_output(g, "c");
    graph_output(g, "d");
}

/* A region takes the longer of its branches, or what all its blocks take of the SMs, and a fork. */
static void a_region_takes_its_longer_branch(void **state)
{
    (void)state;
    graph_case g;
    pare_roofline *r;
    double sum = 0, side = 0;
    static float w[64 * 64 * 9];
    pare_gpu_spec spec = two;
    spec.sms = 200; /* which no convolution here fills */
    fork_graph(&g, 1, w);
    assert_int_equal(pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, &spec), PARE_OK);
    for (int i = 0; i < pare_roofline_count(r); i++) {
        const pare_roofline_step *s = pare_roofline_at(r, i);
        if (!strcmp(s->op_type, "Conv")) assert_int_equal(s->region, 0);
        assert_int_equal(s->side, s->output[0] == 'd');
        sum += s->seconds;
        side += s->side ? s->seconds : 0;
    }
    assert_true(side > 2e-6);
    near(pare_roofline_saved(r), side - 2e-6);
    near(pare_roofline_seconds(r), sum - side + 2e-6);
    pare_roofline_free(r);
    spec.sms = 1; /* which one convolution fills: launches alone overlap */
    assert_int_equal(pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, &spec), PARE_OK);
    assert_true(pare_roofline_saved(r) < 6e-6);
    pare_roofline_free(r);
    graph_close(&g);
    fork_graph(&g, 4096, w); /* which fill it: no region */
    assert_int_equal(pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, &spec), PARE_OK);
    for (int i = 0; i < pare_roofline_count(r); i++)
        assert_int_equal(pare_roofline_at(r, i)->region, -1);
    assert_true(pare_roofline_saved(r) == 0);
    pare_roofline_free(r);
    graph_close(&g);
}

/* By hand from runtime/cuda/conv/conv.c and conv_stem.cu, of 3 channels and f16: windows of 8 are
   within 32 lines and 96 KiB of shared memory, of 17 lines 96320 bytes, of 18 100608. */
static void stems_are_the_backends(void **state)
{
    static const struct {
        int rank;
        int64_t kernel[2], dilation;
        const char *expect;
    } cases[] = {
        {4, {7, 7}, 1, "conv_stem"},    {4, {17, 8}, 1, "conv_stem"},
        {4, {18, 8}, 1, "conv_64x64"},  {3, {7}, 1, "conv_stem"},
        {3, {12}, 1, "conv_widened"},   {4, {7, 9}, 1, "conv_widened"},
        {4, {11, 12}, 1, "conv_64x64"}, {4, {3, 3}, 2, "conv_64x64"},
    };
    static const float w[64 * 3 * 18 * 8];
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int rank = cases[k].rank;
        const int64_t *kernel = cases[k].kernel,
                      dilations[] = {cases[k].dilation, cases[k].dilation};
        graph_case g;
        pare_roofline *r;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f16, rank, (int64_t[]){1, 3, 64, 64});
        graph_floats(&g, "w_", rank, (int64_t[]){64, 3, kernel[0], kernel[1]}, w);
        assert_int_equal(pare_node_set_int(graph_node(&g, "Cast", "w_", "w"), "to", PARE_f16),
                         PARE_OK);
        pare_node *node = graph_node(&g, "Conv", "x w", "y");
        assert_int_equal(pare_node_set_ints(node, "pads", (int64_t[]){1, 1, 1, 1}, rank * 2 - 4),
                         PARE_OK);
        assert_int_equal(pare_node_set_ints(node, "dilations", dilations, rank - 2), PARE_OK);
        graph_output(&g, "y");
        assert_int_equal(pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, &two), PARE_OK);
        const pare_roofline_step *s = step_of(r, "Conv");
        if (!s->known || strncmp(s->kernel, cases[k].expect, strlen(cases[k].expect)) != 0)
            fail_msg("case %zu: %s", k, s->kernel);
        pare_roofline_free(r);
        graph_close(&g);
    }
}

/* A first convolution of 3 channels with a pool behind it, whose windows are so far apart. */
static pare_roofline *pooled(graph_case *g, pare_dtype type, int64_t filters, int64_t apart)
{
    static const char w[64 * 3 * 49 * 2];
    const pare_gpu_spec *h200;
    pare_roofline *r;
    pare_value *weights;
    const bool int8 = type == PARE_u8;
    graph_open(g, 17);
    graph_input(g, "x", type, 4, (int64_t[]){8, 3, 224, 224});
    assert_int_equal(pare_init_new(g->model->graph, &weights, "w", int8 ? PARE_s8 : type, 4,
                                   (int64_t[]){filters, 3, 7, 7}, w),
                     PARE_OK);
    pare_node *conv = graph_node(g, "FusedConv", "x w", "c"),
              *pool = graph_node(g, "MaxPool", "c", "y");
    conv->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_ints(conv, "strides", (int64_t[]){2, 2}, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(conv, "pads", (int64_t[]){3, 3, 3, 3}, 4), PARE_OK);
    assert_int_equal(pare_node_set_string(conv, "activation", "relu"), PARE_OK);
    assert_int_equal(pare_node_set_ints(pool, "kernel_shape", (int64_t[]){3, 3}, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(pool, "strides", (int64_t[]){apart, apart}, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(pool, "pads", (int64_t[]){1, 1, 1, 1}, 4), PARE_OK);
    graph_output(g, "y");
    assert_int_equal(pare_gpu_spec_find(&g->ctx, &h200, "h200"), PARE_OK);
    if (pare_roofline_new(&g->ctx, &r, g->model, NULL, 0, h200) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    return r;
}

/* Y is (8, filters, 56, 56); a packed filter has 7 lines of 8 pixels of 4 channels. */
static void a_first_convolution_takes_its_pool(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_u8, PARE_f16, PARE_bf16};
    for (int i = 0; i < 6; i++) {
        graph_case one, two_steps;
        const double size = i % 3 ? 2 : 1, filters = i / 3 ? 64 : 32;
        pare_roofline *r = pooled(&one, types[i % 3], (int64_t)filters, 2),
                      *apart = pooled(&two_steps, types[i % 3], (int64_t)filters, 1);
        const pare_roofline_step *s = step_of(r, "FusedConvPool");
        assert_string_equal(s->kernel, "conv_stem_pool");
        assert_true(s->known && s->launches == 1 && s->seconds > 0);
        near(s->bytes, size * (8 * (3 * 224 * 224 + filters * 56 * 56) + filters * 7 * 32));
        near(s->macs, 8 * filters * 112 * 112 * 147);
        assert_int_equal(s->seconds_f16 > 0, i % 3 == 0);
        assert_string_equal(step_of(apart, "FusedConv")->kernel, "conv_stem");
        assert_true(s->seconds < step_of(apart, "FusedConv")->seconds);
        pare_roofline_free(r);
        pare_roofline_free(apart);
        graph_close(&one);
        graph_close(&two_steps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_convolution_takes_its_pool),
        cmocka_unit_test(waves_are_counted),
        cmocka_unit_test(the_longest_bounds_a_step),
        cmocka_unit_test(stems_are_the_backends),
        cmocka_unit_test(memory_bounds_the_whole),
        cmocka_unit_test(early_kernels_launch_sooner),
        cmocka_unit_test(a_product_is_tiles),
        cmocka_unit_test(tiles_and_splits_are_the_backends),
        cmocka_unit_test(counts_have_the_kernels),
        cmocka_unit_test(bounds_take_instructions),
        cmocka_unit_test(hopper_has_tiles),
        cmocka_unit_test(an_unknown_device_lists_the_known),
        cmocka_unit_test(nothing_is_left_out),
        cmocka_unit_test(a_region_takes_its_longer_branch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
