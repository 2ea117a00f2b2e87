/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions of attention of 8 bits: the bytes and multiply-adds of its operands, the kernel that
   serves, and that more keys, masks of queries and zero points take longer. */
#include "runtime/eval/roofline.h"
#include "runtime/ops/ops.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { HEADS = 12, QUERIES = 128, SIZE = 64 };

typedef struct predicted {
    pare_dtype type;
    int64_t keys;
    int mask_rows; /* 0: none */
    int64_t batch, queries;
    bool floats; /* Y is f32 */
} predicted;

/* The step; fails unless the kernel is known by its name and bytes. */
static pare_roofline_step step_of(const predicted *c)
{
    const int64_t queries[] = {c->batch, HEADS, c->queries, SIZE},
                  keys[] = {c->batch, HEADS, c->keys, SIZE},
                  mask[] = {c->batch, 1, c->mask_rows, c->keys};
    const pare_gpu_spec *h200;
    pare_roofline *r;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "q", c->type, 4, queries);
    graph_input(&g, "k", c->type, 4, keys);
    graph_input(&g, "v", c->type, 4, keys);
    if (c->mask_rows) graph_input(&g, "m", PARE_f32, 4, mask);
    pare_node *node = graph_node(&g, "QAttention", c->mask_rows ? "q k v m" : "q k v", "y");
    node->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_float(node, "p_scale", 1 / 255.0f), PARE_OK);
    if (c->floats) assert_int_equal(pare_node_set_int(node, "to", PARE_f32), PARE_OK);
    graph_output(&g, "y");
    assert_int_equal(pare_gpu_spec_find(&g.ctx, &h200, "h200"), PARE_OK);
    if (pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, h200) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    assert_int_equal(pare_roofline_count(r), 1);
    const pare_roofline_step s = *pare_roofline_at(r, 0);
    assert_string_equal(s.kernel, "attention_int8");
    assert_true(s.known && s.launches == 1);
    const double rows = (double)c->batch * HEADS * SIZE, n = (double)c->queries;
    assert_true(s.bytes == rows * (n * (c->floats ? 5 : 2) + 2 * (double)c->keys) +
                               4.0 * (double)c->batch * c->mask_rows * (double)c->keys);
    assert_true(s.macs == rows * 2 * n * (double)c->keys);
    pare_roofline_free(r);
    graph_close(&g);
    return s;
}

static double seconds_of(const predicted *c) { return step_of(c).seconds; }

static void attention_of_8_bits_is_one_kernel(void **state)
{
    (void)state;
    const double plain = seconds_of(&(predicted){PARE_s8, 128, 0, 8, QUERIES, false});
    assert_true(plain > 0);
    assert_true(seconds_of(&(predicted){PARE_s8, 512, 0, 8, QUERIES, false}) > plain);
    assert_true(seconds_of(&(predicted){PARE_s8, 128, QUERIES, 8, QUERIES, false}) > plain);
    assert_true(seconds_of(&(predicted){PARE_u8, 128, 0, 8, QUERIES, false}) > plain);
}

/* Few queries: shared memory, not registers, says how many blocks an SM holds. 16 queries and 128
   keys of 64 columns take 1,280 bytes for Q, 144 rows of 80 bytes each for K and V, 1,152 for a
   mask and zero points of keys, 192 for the queries', and 1,024 of CUDA's: 228 KiB hold 8. */
static void shared_memory_bounds_blocks(void **state)
{
    (void)state;
    assert_int_equal(step_of(&(predicted){PARE_s8, 128, 0, 128, 16, false}).occupancy, 8);
}

/* Floats go over shared memory to their rows: more instructions of a kernel that these bound. */
static void floats_take_longer(void **state)
{
    (void)state;
    const pare_roofline_step codes = step_of(&(predicted){PARE_s8, 128, 0, 8, QUERIES, false}),
                             floats = step_of(&(predicted){PARE_s8, 128, 0, 8, QUERIES, true});
    assert_int_not_equal(codes.bound, PARE_BOUND_MEMORY);
    assert_int_equal(floats.bound, codes.bound);
    assert_true(floats.seconds > codes.seconds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_8_bits_is_one_kernel),
        cmocka_unit_test(shared_memory_bounds_blocks),
        cmocka_unit_test(floats_take_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
