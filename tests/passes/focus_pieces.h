/* SPDX-License-Identifier: Apache-2.0 */
/* The Slices and the Concat of YOLOv5's Focus. */
#ifndef PARE_TESTS_PASSES_FOCUS_PIECES_H
#define PARE_TESTS_PASSES_FOCUS_PIECES_H

#include "tests/passes/graph_case.h"

#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static inline void focus_slice(graph_case *g, const char *in, const char *out, int count,
                               const int64_t *axes, const int64_t *starts, int64_t step)
{
    static const int64_t ends[] = {INT64_MAX, INT64_MAX};
    const int64_t steps[] = {step, step};
    const char *const name[] = {"from", "to", "axes", "steps"};
    const int64_t *const v[] = {starts, ends, axes, steps};
    char all[200], one[40];
    int n = snprintf(all, sizeof all, "%s", in);
    for (int i = 0; i < 4; i++) {
        snprintf(one, sizeof one, "%s_%s", name[i], out);
        graph_ints(g, one, 1, (int64_t[]){count}, v[i]);
        n += snprintf(all + n, sizeof all - (size_t)n, " %s", one);
    }
    graph_node(g, "Slice", all, out);
}

/* Input x's four pieces (order: 2 dy + dx of each), "p0" to "p3", joined; nested: of lines "l0" to
   "l3", then of pixels. */
static inline void focus_pieces(graph_case *g, const int order[4], bool nested, int64_t step)
{
    for (int i = 0; i < 4; i++) {
        char piece[16], lines[16];
        const int64_t axes[] = {2, 3}, starts[] = {order[i] / 2, order[i] % 2};
        snprintf(piece, sizeof piece, "p%d", i), snprintf(lines, sizeof lines, "l%d", i);
        if (nested) {
            focus_slice(g, "x", lines, 1, axes, starts, step);
            focus_slice(g, lines, piece, 1, axes + 1, starts + 1, step);
        } else {
            focus_slice(g, "x", piece, 2, axes, starts, step);
        }
    }
    assert_int_equal(pare_node_set_int(graph_node(g, "Concat", "p0 p1 p2 p3", "joined"), "axis", 1),
                     PARE_OK);
}

#endif
