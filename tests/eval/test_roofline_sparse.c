/* SPDX-License-Identifier: Apache-2.0 */
/* The model of products with weights of 2:4, by numbers that were worked out by hand. */
#include "runtime/eval/roofline/internal.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* One SM at 1 GHz that multiplies 4,096 numbers of 8 bits a cycle and reads 128 bytes of shared
   memory, as an H200's does. */
static const pare_gpu_spec one = {.name = "one",
                                  .sms = 1,
                                  .clock = 1e9,
                                  .hbm = 1e15,
                                  .host = 1e9,
                                  .macs_s8 = 4096e9,
                                  .macs_f16 = 2048e9,
                                  .macs_f32 = 1e9,
                                  .shared = 128,
                                  .reached = 1};
/* The kernels of 256 x 128, and of 256 x 64, alone, without an epilogue. */
static const char counts[] =
    "_Z18wgmma_sparse_tilesI14sparse_variantILi3ELi3ELb0ELi0ELi0ELi256ELi128ELi4ELi1ELi2EE all=1 "
    "loop=1 mma=1 behind=0 blocks=1\n"
    "_Z18wgmma_sparse_tilesI14sparse_variantILi3ELi3ELb0ELi0ELi0ELi128ELi64ELi5ELi1ELi2EE all=1 "
    "loop=1 mma=1 behind=0 blocks=1\n";

static pare_gpu_product product_of(double rows, double columns, double depth)
{
    return (pare_gpu_product){.type = PARE_s8,
                              .y = PARE_s8,
                              .batches = 1,
                              .rows = rows,
                              .columns = columns,
                              .depth = depth,
                              .chunks = true,
                              .plain = true,
                              .wgmma = true,
                              .sparse = true,
                              .bytes = rows * (depth + columns) + columns * depth};
}

static void near(double a, double b)
{
    if (!(a > b * (1 - 1e-9) && a < b * (1 + 1e-9))) fail_msg("%.12g is not %.12g", a, b);
}

/* A tile of depth 1,024 has eight steps of two instructions for each of two groups, which read 64 x
   32 + 256 x 64 bytes: 144 cycles each, longer than the 128 of their multiply-adds. Dense tiles'
   share is 1 / 1.08. Ahead and behind: 1.43 us. L2 would give the stages in less time. */
static void shared_memory_bounds_instructions(void **state)
{
    (void)state;
    pare_roofline_step s = {0};
    pare_gpu_product p = product_of(256, 128, 1024);
    pare_wgmma_predict(&one, counts, "matmul", &p, NULL, &s);
    assert_string_equal(s.kernel, "matmul_sparse_wgmma_256x128");
    near(s.seconds, 8 * 2 * 2 * 144e-9 * 1.08 + 1.43e-6 + PARE_LAUNCH_SECONDS);
    assert_int_equal(s.bound, PARE_BOUND_SHARED);
    near(s.bytes, 256 * (1024 + 128) + 128 * 1024 * (0.5 + 1.0 / 8));
    p.depth = 1025; /* a step more, most of it nothing */
    s = (pare_roofline_step){0};
    pare_wgmma_predict(&one, counts, "matmul", &p, NULL, &s);
    near(s.seconds, 9 * 2 * 2 * 144e-9 * 1.08 + 1.43e-6 + PARE_LAUNCH_SECONDS);
    p.rows = 257, p.depth = 1024; /* two tiles, one after the other */
    s = (pare_roofline_step){0};
    pare_wgmma_predict(&one, counts, "matmul", &p, NULL, &s);
    near(s.seconds, 2 * 8 * 2 * 2 * 144e-9 * 1.08 + 1.43e-6 + PARE_LAUNCH_SECONDS);
}

/* With 132 SMs at an H200's clock L2 gives a stage of 43,008 bytes in 43,008 x 132 / 11.5e12
   seconds: longer than the instructions. */
static void l2_feeds_tiles(void **state)
{
    (void)state;
    pare_roofline_step s = {0};
    pare_gpu_spec spec = one;
    spec.sms = 132, spec.clock = 1.755e9, spec.macs_s8 = 132 * 1.755e9 * 4096;
    const pare_gpu_product p = product_of(256 * 132, 128, 1024);
    pare_wgmma_predict(&spec, counts, "matmul", &p, NULL, &s);
    near(s.seconds, 8 * 43008 * 132 / 11.5e12 + 1.43e-6 + PARE_LAUNCH_SECONDS);
    assert_int_equal(s.bound, PARE_BOUND_MEMORY);
}

/* Tiles of 64 columns read as much of X for half of them: a stage has 256 x 128 + 64 x (64 + 16)
   bytes, 37,888, at 8.8e12 a second. */
static void l2_feeds_narrow_tiles_less(void **state)
{
    (void)state;
    pare_roofline_step s = {0};
    pare_gpu_spec spec = one;
    spec.sms = 132, spec.clock = 1.755e9, spec.macs_s8 = 132 * 1.755e9 * 4096;
    const pare_gpu_product p = product_of(256 * 132, 64, 1024);
    pare_wgmma_predict(&spec, counts, "matmul", &p, NULL, &s);
    assert_string_equal(s.kernel, "matmul_sparse_wgmma_256x64");
    near(s.seconds, 8 * 37888 * 132 / 8.8e12 + 1.43e-6 + PARE_LAUNCH_SECONDS);
    assert_int_equal(s.bound, PARE_BOUND_MEMORY);
}

static bool is_sparse(const pare_gpu_spec *spec, const char *stem, const pare_gpu_product *p,
                      const char *tile)
{
    pare_roofline_step s = {0};
    pare_product_predict(spec, pare_sass_counts, stem, p, &s);
    return strstr(s.kernel, tile) != NULL;
}

/* This build's kernels on an H200: dense weights, little depth and small products take none. Dense
   products of halves are the library's. */
static void the_backends_kernels_are_found(void **state)
{
    (void)state;
    pare_ctx ctx;
    const pare_gpu_spec *h200;
    static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
    pare_ctx_init(&ctx);
    assert_int_equal(pare_gpu_spec_find(&ctx, &h200, "h200"), PARE_OK);
    for (int t = 0; t < 4; t++) {
        pare_gpu_product p = product_of(4096, 4096, 4096);
        pare_roofline_step dense = {0}, sparse = {0};
        const double size = t < 2 ? 1 : 2;
        p.type = p.y = types[t];
        p.library = size == 2;
        p.bytes *= size;
        pare_product_predict(h200, pare_sass_counts, "matmul", &p, &sparse);
        assert_non_null(strstr(sparse.kernel, "matmul_sparse_wgmma_"));
        p.sparse = false;
        pare_product_predict(h200, pare_sass_counts, "matmul", &p, &dense);
        assert_non_null(strstr(dense.kernel, size == 2 ? "cublaslt" : "matmul_wgmma_"));
        assert_true(sparse.seconds < dense.seconds && sparse.seconds > dense.seconds / 2);
        p = product_of(1e5, 256, size == 1 ? 64 : 32);
        p.type = p.y = types[t];
        p.library = size == 2;
        assert_false(is_sparse(h200, "matmul", &p, "sparse"));
        p = product_of(100, 256, 4096);
        p.type = p.y = types[t];
        p.library = size == 2;
        assert_false(is_sparse(h200, "matmul", &p, "sparse"));
        p = product_of(401408, 64, 576); /* windows of 64 channels */
        p.type = p.y = types[t];
        p.picture = p.narrow = true;
        assert_true(is_sparse(h200, "conv", &p, "conv_sparse_wgmma_256x64"));
    }
    pare_ctx_clear(&ctx);
}

/* Of every form of an epilogue that the dense kernels have. */
static void epilogues_are_found(void **state)
{
    (void)state;
    pare_ctx ctx;
    const pare_gpu_spec *h200;
    static const pare_dtype to[] = {PARE_f32, PARE_f16, PARE_bf16};
    pare_ctx_init(&ctx);
    assert_int_equal(pare_gpu_spec_find(&ctx, &h200, "h200"), PARE_OK);
    pare_gpu_product p = product_of(4096, 4096, 4096);
    p.plain = false, p.gelu = true;
    assert_true(is_sparse(h200, "matmul", &p, "matmul_sparse_wgmma_"));
    p.gelu = false;
    for (int i = 0; i < 3; i++) {
        p.y = to[i], p.residual = false;
        assert_true(is_sparse(h200, "matmul", &p, "matmul_sparse_wgmma_"));
        p.residual = true, p.z = to[i];
        assert_true(is_sparse(h200, "matmul", &p, "matmul_sparse_wgmma_"));
    }
    p.y = PARE_f32, p.z = PARE_s8; /* no room for them beside the larger tile */
    assert_false(is_sparse(h200, "matmul", &p, "matmul_sparse_wgmma_256x128"));
    pare_ctx_clear(&ctx);
}

/* The step of a model's only product, with weights of 1, or of 1, 1, 0 and 0 along depth. */
static pare_roofline_step step_of(pare_dtype type, bool sparse)
{
    enum { ROWS = 4096, SIDE = 1024 };
    const bool int8 = type == PARE_s8;
    const size_t bytes = int8 ? 1 : 2, row = SIDE * bytes;
    const pare_gpu_spec *h200;
    graph_case g;
    pare_roofline *r;
    pare_value *weights;
    pare_roofline_step step = {0};
    char *w = calloc(SIDE, row);
    assert_non_null(w);
    for (size_t i = 0; i < SIDE; i++)
        if (!sparse || i % 4 < 2) memset(w + i * row, 1, row);
    graph_open(&g, 17);
    graph_input(&g, "x", type, 2, (int64_t[]){ROWS, SIDE});
    assert_int_equal(
        pare_init_new(g.model->graph, &weights, "w", type, 2, (int64_t[]){SIDE, SIDE}, w), PARE_OK);
    pare_node *node = graph_node(&g, int8 ? "FusedMatMul" : "MatMul", "x w", "y");
    if (int8) node->domain = PARE_DOMAIN;
    graph_output(&g, "y");
    assert_int_equal(pare_gpu_spec_find(&g.ctx, &h200, "h200"), PARE_OK);
    if (pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, h200) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    for (int i = 0; i < pare_roofline_count(r); i++)
        if (pare_roofline_at(r, i)->macs > 0) step = *pare_roofline_at(r, i);
    pare_roofline_free(r);
    graph_close(&g);
    free(w);
    return step;
}

/* Of a model's nodes: halves, whose dense products are the library's; and what a product of
   integers is compared with. */
static void models_have_them(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const pare_dtype type = t ? PARE_bf16 : PARE_f16;
        const pare_roofline_step dense = step_of(type, false), sparse = step_of(type, true);
        assert_string_equal(dense.kernel, "cublaslt");
        assert_non_null(strstr(sparse.kernel, "matmul_sparse_wgmma_"));
        assert_true(sparse.seconds < dense.seconds);
    }
    const pare_roofline_step dense = step_of(PARE_s8, false), sparse = step_of(PARE_s8, true);
    assert_non_null(strstr(sparse.kernel, "matmul_sparse_wgmma_"));
    assert_true(sparse.seconds < dense.seconds);
    assert_true(sparse.seconds_f16 > 0 && sparse.seconds_f16 < dense.seconds_f16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_bounds_instructions),
        cmocka_unit_test(l2_feeds_tiles),
        cmocka_unit_test(l2_feeds_narrow_tiles_less),
        cmocka_unit_test(the_backends_kernels_are_found),
        cmocka_unit_test(epilogues_are_found),
        cmocka_unit_test(models_have_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
