/* SPDX-License-Identifier: Apache-2.0 */
/* Which convolutions over a Concat are cut into one for each part; what they compute is compared in
   test_fuse.c. */
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* A sum of a part of the channels would be rounded, and could overflow. */
static void concat_of_halves_stays(void **state)
{
    static const pare_dtype types[] = {PARE_f32, PARE_f16, PARE_bf16};
    static const float zeros[8 * 16] = {0};
    static const int64_t x[] = {2, 8, 4, 3}, dims[] = {8, 16, 1, 1};
    (void)state;
    for (int t = 0; t < 3; t++) {
        graph_case g;
        pare_value *w;
        graph_open(&g, 17);
        graph_input(&g, "p", types[t], 4, x);
        graph_input(&g, "q", types[t], 4, x);
        assert_int_equal(pare_init_new(g.model->graph, &w, "w", types[t], 4, dims, zeros), PARE_OK);
        pare_node *concat = graph_node(&g, "Concat", "p q", "c"),
                  *conv = graph_node(&g, "FusedConv", "c w", "y");
        assert_int_equal(pare_node_set_int(concat, "axis", 1), PARE_OK);
        conv->domain = PARE_DOMAIN;
        graph_output(&g, "y");
        const pare_infer_options infer = {.fold = true};
        assert_int_equal(pare_pass_infer(g.model, &infer), PARE_OK);
        assert_int_equal(pare_pass_distribute_concat(g.model, NULL, 0), PARE_OK);
        assert_int_equal(graph_count(&g, "Concat"), t ? 1 : 0);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(concat_of_halves_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
