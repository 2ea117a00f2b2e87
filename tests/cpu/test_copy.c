/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: pare_copy_view against element by element over many shapes and orders; the operators made
   of it against values worked out by hand or by NumPy. */
#include "runtime/cpu/copy.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define DIMS(...)                                                                                  \
    (const int64_t[]) { __VA_ARGS__ }
#define FLOATS(...)                                                                                \
    (const float[]) { __VA_ARGS__ }

static uint32_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* A view whose axes are in memory in a random order; returns its elements. */
static int64_t shuffled(pare_view *v, pare_dtype dtype, int rank, const int64_t *dims,
                        uint64_t *seed)
{
    int order[PARE_MAX_RANK];
    int64_t stride = 1;
    *v = (pare_view){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) {
        int at = (int)(next(seed) % (uint32_t)(i + 1));
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = rank - 1; i >= 0; i--) {
        v->dim[order[i]] = dims[order[i]];
        v->stride[order[i]] = stride;
        stride *= dims[order[i]];
    }
    return stride;
}

static void any_order_to_any_order(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_u8, PARE_f16, PARE_f32, PARE_s64};
    static const int64_t sizes[] = {1, 2, 3, 31, 33, 70, 0};
    uint64_t seed = 7;
    for (int round = 0; round < 400; round++) {
        int rank = (int)(next(&seed) % 5);
        int64_t dims[4];
        for (int i = 0; i < rank; i++) dims[i] = sizes[next(&seed) % (i < 2 ? 7 : 4)];
        pare_dtype type = types[round % 4];
        size_t bytes = (size_t)pare_type(type)->bits / 8;
        pare_view dst, src;
        int64_t n = shuffled(&dst, type, rank, dims, &seed);
        shuffled(&src, type, rank, dims, &seed);
        dst.data = calloc((size_t)n + 1, bytes);
        src.data = calloc((size_t)n + 1, bytes);
        for (int64_t i = 0; i < n; i++)
            pare_ref_set_int(&src, i, (int64_t)(next(&seed) & 0x3bff)); /* finite as f16, too */
        pare_copy_view(&dst, &src, 1 + round % 2);
        int64_t index[PARE_MAX_RANK] = {0};
        if (n) do {
                const void *a = pare_ref_at(&dst, pare_ref_offset(&dst, index));
                const void *b = pare_ref_at(&src, pare_ref_offset(&src, index));
                if (memcmp(a, b, bytes))
                    fail_msg("round %d: rank %d, %zu bytes", round, rank, bytes);
            } while (pare_ref_next(&dst, index));
        free(dst.data);
        free(src.data);
    }
}

static void check(graph_case *g, int rank, const int64_t *dims, const float *x, int64_t count,
                  const float *want)
{
    float y[32];
    graph_output(g, "y");
    graph_run(g, rank, dims, x, y, count);
    for (int64_t i = 0; i < count; i++)
        if (y[i] != want[i])
            fail_msg("element %d is %g, expected %g", (int)i, (double)y[i], (double)want[i]);
    graph_close(g);
}

static const float eight[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void begin(graph_case *g, int rank, const int64_t *dims)
{
    graph_open(g, 19);
    graph_input(g, "x", PARE_f32, rank, dims);
}

static void slices_run_backwards(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, 2, DIMS(2, 4)); /* x[:, 5:-9:-2] */
    graph_ints(&g, "s", 1, DIMS(1), DIMS(5));
    graph_ints(&g, "e", 1, DIMS(1), DIMS(-9));
    graph_ints(&g, "a", 1, DIMS(1), DIMS(-1));
    graph_ints(&g, "t", 1, DIMS(1), DIMS(-2));
    graph_node(&g, "Slice", "x s e a t", "y");
    check(&g, 2, DIMS(2, 4), eight, 4, FLOATS(3, 1, 7, 5));
    begin(&g, 2, DIMS(2, 4)); /* x[1:, 1:3], an end past the axis */
    graph_ints(&g, "s", 1, DIMS(2), DIMS(1, 1));
    graph_ints(&g, "e", 1, DIMS(2), DIMS(INT64_MAX, 3));
    graph_node(&g, "Slice", "x s e", "y");
    check(&g, 2, DIMS(2, 4), eight, 2, FLOATS(5, 6));
}

static void pads_in_every_mode(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, 1, DIMS(4));
    graph_ints(&g, "p", 1, DIMS(2), DIMS(3, 2));
    pare_node *n = graph_node(&g, "Pad", "x p", "y");
    assert_int_equal(pare_node_set_string(n, "mode", "reflect"), PARE_OK);
    check(&g, 1, DIMS(4), eight, 9, FLOATS(3, 2, 1, 0, 1, 2, 3, 2, 1));
    begin(&g, 1, DIMS(3));
    graph_ints(&g, "p", 1, DIMS(2), DIMS(4, 2));
    n = graph_node(&g, "Pad", "x p", "y");
    assert_int_equal(pare_node_set_string(n, "mode", "wrap"), PARE_OK);
    check(&g, 1, DIMS(3), eight, 9, FLOATS(2, 0, 1, 2, 0, 1, 2, 0, 1));
    begin(&g, 1, DIMS(4)); /* a negative pad cuts */
    graph_ints(&g, "p", 1, DIMS(2), DIMS(-1, 2));
    graph_floats(&g, "v", 0, NULL, FLOATS(9));
    graph_node(&g, "Pad", "x p v", "y");
    check(&g, 1, DIMS(4), eight, 5, FLOATS(1, 2, 3, 9, 9));
}

static void depth_goes_to_space_two_ways(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, 4, DIMS(1, 8, 1, 1));
    pare_node *n = graph_node(&g, "DepthToSpace", "x", "y");
    assert_int_equal(pare_node_set_int(n, "blocksize", 2), PARE_OK);
    check(&g, 4, DIMS(1, 8, 1, 1), eight, 8, FLOATS(0, 2, 4, 6, 1, 3, 5, 7));
    begin(&g, 4, DIMS(1, 8, 1, 1));
    n = graph_node(&g, "DepthToSpace", "x", "y");
    assert_int_equal(pare_node_set_int(n, "blocksize", 2), PARE_OK);
    assert_int_equal(pare_node_set_string(n, "mode", "CRD"), PARE_OK);
    check(&g, 4, DIMS(1, 8, 1, 1), eight, 8, eight);
}

static void gather_counts_from_the_end(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, 2, DIMS(2, 4));
    graph_ints(&g, "i", 2, DIMS(1, 2), DIMS(-1, 1));
    assert_int_equal(pare_node_set_int(graph_node(&g, "Gather", "x i", "y"), "axis", 1), PARE_OK);
    check(&g, 2, DIMS(2, 4), eight, 4, FLOATS(3, 1, 7, 5));
}

static void a_wild_index_is_named(void **state)
{
    (void)state;
    graph_case g;
    pare_plan *plan;
    pare_runner *runner;
    begin(&g, 2, DIMS(2, 4));
    graph_ints(&g, "i", 1, DIMS(1), DIMS(2));
    graph_node(&g, "Gather", "x i", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, NULL), PARE_OK);
    assert_int_equal(pare_runner_new(&g.ctx, &runner, plan), PARE_OK);
    assert_int_equal(pare_runner_run(runner), PARE_INPUT);
    assert_non_null(strstr(g.ctx.message, "(Gather): index 2 is outside an axis of length 2"));
    pare_runner_free(runner);
    pare_plan_free(plan);
    graph_close(&g);
}

/* numpy: x.copy(); x[1] += [1 1 1 1]; twice, for the index is listed twice. */
static void scatter_adds_up(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, 2, DIMS(2, 4));
    graph_ints(&g, "i", 2, DIMS(2, 1), DIMS(1, -1));
    graph_floats(&g, "u", 2, DIMS(2, 4), FLOATS(1, 1, 1, 1, 1, 1, 1, 1));
    pare_node *n = graph_node(&g, "ScatterND", "x i u", "y");
    assert_int_equal(pare_node_set_string(n, "reduction", "add"), PARE_OK);
    check(&g, 2, DIMS(2, 4), eight, 8, FLOATS(0, 1, 2, 3, 6, 7, 8, 9));
}

static void old_forms_are_lifted(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 9); /* Slice 1, Unsqueeze 1, Squeeze 1 and Split 2 keep lists in attributes */
    graph_input(&g, "x", PARE_f32, 2, DIMS(2, 4));
    pare_node *n = graph_node(&g, "Slice", "x", "a");
    assert_int_equal(pare_node_set_ints(n, "starts", DIMS(1), 1), PARE_OK);
    assert_int_equal(pare_node_set_ints(n, "ends", DIMS(-1), 1), PARE_OK);
    assert_int_equal(pare_node_set_ints(n, "axes", DIMS(1), 1), PARE_OK);
    n = graph_node(&g, "Unsqueeze", "a", "b");
    assert_int_equal(pare_node_set_ints(n, "axes", DIMS(0, 3), 2), PARE_OK);
    n = graph_node(&g, "Squeeze", "b", "c");
    assert_int_equal(pare_node_set_ints(n, "axes", DIMS(3), 1), PARE_OK);
    n = graph_node(&g, "Split", "c", "d y");
    assert_int_equal(pare_node_set_ints(n, "split", DIMS(1, 1), 2), PARE_OK);
    assert_int_equal(pare_node_set_int(n, "axis", 2), PARE_OK);
    check(&g, 2, DIMS(2, 4), eight, 2, FLOATS(2, 6));
}

/* Rows of every length around the pieces they are copied in, swapped over two outer axes, against
   single elements; the larger sizes are shared out over threads. */
static void rows_of_every_length(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_u8, PARE_f16, PARE_f32, PARE_s64};
    enum { LONGEST = 70, MOST = 64 * 40 * LONGEST };
    uint64_t *from = malloc(MOST * sizeof *from), *to = malloc((MOST + 1) * sizeof *to);
    assert_true(from && to);
    for (size_t i = 0; i < MOST; i++) from[i] = i * 0x9e3779b97f4a7c15u;
    for (int t = 0; t < 4; t++)
        for (int64_t n = 1; n <= LONGEST; n++) {
            size_t bytes = (size_t)pare_type(types[t])->bits / 8;
            int64_t a = n % 7 ? 3 : 64, b = n % 7 ? 5 : 40;
            pare_shape shape = {.rank = 3, .dim = {b, a, n}};
            pare_view dst, src;
            pare_view_set(&dst, types[t], &shape, false);
            src = dst;
            dst.data = to, src.data = from;
            src.stride[0] = n, src.stride[1] = b * n; /* from (a, b, n) */
            memset(to, 0, (MOST + 1) * sizeof *to);
            pare_copy_view(&dst, &src, 2);
            for (int64_t i = 0; i < a * b * n; i++) {
                int64_t row = i / n, at = (row % a * b + row / a) * n + i % n;
                if (memcmp((char *)to + (size_t)i * bytes, (char *)from + (size_t)at * bytes,
                           bytes))
                    fail_msg("type %d, rows of %d: element %d", (int)types[t], (int)n, (int)i);
            }
            assert_int_equal(((char *)to)[(size_t)(a * b * n) * bytes], 0); /* and nothing after */
        }
    free(from);
    free(to);
}

/* Cast, Transpose, Pad, Cast in a type of fewer than 8 bits. */
static void packed(pare_dtype type, bool reflect, const float *x, const float *want)
{
    graph_case g;
    float y[15];
    graph_open(&g, 25);
    graph_input(&g, "x", PARE_f32, 2, DIMS(2, 3));
    assert_int_equal(pare_node_set_int(graph_node(&g, "Cast", "x", "a"), "to", type), PARE_OK);
    graph_node(&g, "Transpose", "a", "b");
    graph_ints(&g, "pads", 1, DIMS(4), DIMS(0, 1, 2, 0));
    pare_node *pad = graph_node(&g, "Pad", "b pads", "c");
    if (reflect) assert_int_equal(pare_node_set_string(pad, "mode", "reflect"), PARE_OK);
    assert_int_equal(pare_node_set_int(graph_node(&g, "Cast", "c", "y"), "to", PARE_f32), PARE_OK);
    graph_output(&g, "y");
    graph_run(&g, 2, DIMS(2, 3), x, y, 15);
    assert_memory_equal(y, want, sizeof y);
    graph_close(&g);
}

static void packed_elements_are_moved(void **state)
{
    (void)state;
    const float small[] = {1, -2, 0, -1, 1, -2},
                small_padded[] = {0, 1, -1, 0, -2, 1, 0, 0, -2, 0, 0, 0, 0, 0, 0},
                small_mirrored[] = {-1, 1, -1, 1, -2, 1, -2, 0, -2, 1, -2, 1, -1, 1, -1};
    packed(PARE_s2, false, small, small_padded);
    packed(PARE_s4, false, small, small_padded);
    packed(PARE_s4, true, small, small_mirrored);
    packed(PARE_f4e2m1, false, FLOATS(0.5f, 6, -3, 1.5f, -0.5f, 4),
           FLOATS(0, 0.5f, 1.5f, 0, 6, -0.5f, 0, -3, 4, 0, 0, 0, 0, 0, 0));
    packed(PARE_u4, false, FLOATS(15, 1, 2, 3, 4, 5),
           FLOATS(0, 15, 3, 0, 1, 4, 0, 2, 5, 0, 0, 0, 0, 0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_to_any_order),
        cmocka_unit_test(slices_run_backwards),
        cmocka_unit_test(pads_in_every_mode),
        cmocka_unit_test(depth_goes_to_space_two_ways),
        cmocka_unit_test(gather_counts_from_the_end),
        cmocka_unit_test(a_wild_index_is_named),
        cmocka_unit_test(scatter_adds_up),
        cmocka_unit_test(old_forms_are_lifted),
        cmocka_unit_test(rows_of_every_length),
        cmocka_unit_test(packed_elements_are_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
