/* SPDX-License-Identifier: Apache-2.0 */
/* A graph of f32 tensors, (rows, 16) the input x, and what is chosen to lie in other tensors. */
#ifndef PARE_TESTS_EXEC_PARTS_CASE_H
#define PARE_TESTS_EXEC_PARTS_CASE_H

#include "runtime/exec/parts.h"
#include "runtime/exec/plan.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

typedef struct parts_case {
    graph_case g;
    pare_arena arena;
    pare_parts parts;
    const char *refuses; /* a node of this operator */
} parts_case;

static inline void parts_open(parts_case *c, int64_t rows)
{
    memset(c, 0, sizeof *c);
    graph_open(&c->g, 17);
    pare_arena_init(&c->arena, &c->g.ctx);
    graph_input(&c->g, "x", PARE_f32, 2, (int64_t[]){rows, 16});
}

static inline void concat(parts_case *c, const char *in, const char *out, int axis)
{
    assert_int_equal(pare_node_set_int(graph_node(&c->g, "Concat", in, out), "axis", axis),
                     PARE_OK);
}

static inline bool takes(void *user, const pare_node *node, const pare_parts *parts)
{
    const parts_case *c = user;
    (void)parts;
    return !c->refuses || strcmp(node->op_type, c->refuses);
}

static inline void choose(parts_case *c, bool pitched)
{
    const pare_infer_options infer = {.fold = true};
    const pare_parts_rules rules = {64, pitched ? takes : NULL, c};
    assert_int_equal(pare_pass_infer(c->g.model, &infer), PARE_OK);
    assert_int_equal(pare_parts_choose(&c->g.ctx, &c->parts, &c->arena, c->g.model->graph, &rules),
                     PARE_OK);
}

static inline void parts_close(parts_case *c)
{
    pare_arena_free(&c->arena);
    graph_close(&c->g);
}

static inline void lies(const parts_case *c, const char *name, const char *whole, size_t at,
                        size_t pitch)
{
    const pare_concat_part *p = pare_parts_find(&c->parts, graph_value(&c->g, name));
    assert_non_null(p);
    assert_string_equal(p->whole->name, whole);
    assert_int_equal(p->at, at);
    assert_int_equal(p->pitch, pitch);
}

static inline void is_own(const parts_case *c, const char *name)
{
    assert_null(pare_parts_find(&c->parts, graph_value(&c->g, name)));
}

static inline bool is_whole(const parts_case *c, const char *name)
{
    return pare_parts_all_joined(&c->parts, graph_value(&c->g, name)->producer);
}

#endif
