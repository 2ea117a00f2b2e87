/* SPDX-License-Identifier: Apache-2.0 */
/* A node on trial is a model of its own, whole or one part, that runs on random tensors: floats in
   [-1, 1), bytes of all values. With other numbers a kernel adds in the same order. */
#include "runtime/exec/gather.h"
#include "runtime/exec/shard.h"

#include <string.h>

typedef struct trial {
    pare_plan *plan;
    pare_runner *runner;
} trial;

static void close_trial(trial *t)
{
    pare_runner_free(t->runner);
    pare_plan_free(t->plan);
    *t = (trial){0};
}

/* The activations that the node reads, each once. */
static pare_status add_inputs(pare_graph *to, const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again |= node->in[k] == node->in[i];
        if (node->in[i] && !node->in[i]->data && !again)
            PARE_TRY(pare_part_ends(to, &to->in, &node->in[i], 1));
    }
    return PARE_OK;
}

/* shard -1: the whole node. */
static pare_status fill(pare_graph *to, const pare_shard_cut *cut, int shard, pare_arena *arena)
{
    pare_value *y;
    PARE_TRY(add_inputs(to, cut->node));
    if (shard < 0) {
        PARE_TRY(pare_part_copy(to, cut->node, arena));
        return pare_part_ends(to, &to->out, cut->node->out, 1);
    }
    PARE_TRY(pare_shard_add(to, cut, shard, arena, &y));
    y->is_output = true;
    return pare_values_add(to, &to->out, y);
}

static pare_status plan_node(trial *t, const pare_plan *of, const pare_shard_cut *cut, int shard)
{
    pare_plan *p = pare_alloc(of->ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    t->plan = p;
    *p = (pare_plan){.ctx = of->ctx, .as_made = true};
    p->options = (pare_plan_options){.threads = of->options.threads,
                                     .device = of->options.device,
                                     .deterministic = of->options.deterministic,
                                     .reference = of->options.reference};
    pare_arena_init(&p->arena, of->ctx);
    PARE_TRY(pare_part_new(&p->model, of->model));
    PARE_TRY(fill(p->model->graph, cut, shard, &p->arena));
    p->input = p->model->graph->in.item;
    p->input_count = p->model->graph->in.count;
    return pare_steps_make(p);
}

static void fill_random(pare_view *x, uint32_t seed)
{
    const pare_type_info *type = pare_type(x->dtype);
    const size_t size = (size_t)type->bits / 8, bytes = pare_view_bytes(x);
    uint32_t s = 2463534242u + seed; /* xorshift32, Marsaglia 2003 */
    for (size_t at = 0; at + size <= bytes; at += size) {
        s ^= s << 13;
        s ^= s >> 17;
        s ^= s << 5;
        if (pare_type_is_float(x->dtype))
            type->from_f32_ref((char *)x->data + at, (float)(s >> 8) * 0x1p-23f - 1);
        else
            memset((char *)x->data + at, (int)(s >> 16 & 0xff), size);
    }
}

static pare_status run_node(trial *t, const pare_plan *of, const pare_shard_cut *cut, int shard,
                            pare_view *y)
{
    PARE_TRY(plan_node(t, of, cut, shard));
    PARE_TRY(pare_runner_new(of->ctx, &t->runner, t->plan));
    for (int i = 0; i < t->plan->input_count; i++) {
        pare_view x = pare_runner_input(t->runner, i);
        fill_random(&x, (uint32_t)i);
    }
    PARE_TRY(pare_runner_run(t->runner));
    *y = pare_runner_output(t->runner, 0);
    return PARE_OK;
}

static bool equal(const pare_view *whole, const pare_view *part, int axis, int64_t first)
{
    const pare_part_rows rows = pare_part_rows_of(whole, axis, first, part->dim[axis]);
    for (int64_t k = 0; k < rows.rows; k++)
        if (memcmp((const char *)whole->data + rows.at + (size_t)k * rows.step,
                   (const char *)part->data + (size_t)k * rows.bytes, rows.bytes) != 0)
            return false;
    return true;
}

/* The whole node's output, in memory of its own: what it took is free while the parts run. */
static pare_status run_whole(const pare_plan *of, const pare_shard_cut *cut, pare_view *y)
{
    trial t = {0};
    pare_status st = run_node(&t, of, cut, -1, y);
    const size_t bytes = st == PARE_OK ? pare_view_bytes(y) : 0;
    void *copy = st == PARE_OK ? pare_alloc(of->ctx, bytes, 1) : NULL;
    if (copy) memcpy(copy, y->data, bytes);
    if (st == PARE_OK && !copy) st = PARE_MEMORY;
    y->data = copy;
    close_trial(&t);
    return st;
}

pare_status pare_shard_trial(const pare_plan *plan, const pare_shard_cut *cut, bool *same)
{
    pare_view y, part;
    int64_t first = 0;
    pare_status st = run_whole(plan, cut, &y);
    *same = true;
    for (int r = 0; st == PARE_OK && *same && r < cut->shards; first += cut->size[r++]) {
        trial one = {0};
        st = run_node(&one, plan, cut, r, &part);
        if (st == PARE_OK) *same = equal(&y, &part, cut->axis, first);
        close_trial(&one);
    }
    pare_free(y.data);
    return st;
}
