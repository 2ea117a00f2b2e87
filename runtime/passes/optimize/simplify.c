/* SPDX-License-Identifier: Apache-2.0 */
/* What exporters leave in a file and no result depends on goes: see passes.h. */
#include "runtime/passes/import/contrib.h"
#include "runtime/passes/optimize/fuse.h"
#include "runtime/passes/passes.h"

enum {
    OLDEST_OPSET = 13,    /* the rules read the forms of this opset or newer */
    FOLD_LIMIT = 1 << 16, /* bytes of a constant that the file has to hold in a node's place */
    MOST_ROUNDS = 8       /* three are enough for the exports that were looked at */
};

typedef struct work {
    pare_fuse fuse;
    bool changed;
} work;

static pare_status apply_rules(pare_graph *graph, void *user)
{
    static const pare_fuse_fn rule[] = {pare_fuse_noops, pare_fuse_targets, pare_fuse_shapes};
    work *w = user;
    return pare_fuse_run(graph, &w->fuse, rule, sizeof rule / sizeof *rule, &w->changed);
}

pare_status pare_pass_simplify(pare_model *model, const char *const *keep, int keep_count)
{
    const pare_infer_options infer = {.fold = true,
                                      .lenient = true,
                                      .keep_dequantize = true,
                                      .fold_bodies = true,
                                      .fold_limit = FOLD_LIMIT,
                                      .fold_smaller = true};
    work w = {.fuse = {.keep = keep, .keep_count = keep_count}, .changed = true};
    const int64_t opset = pare_model_opset(model, "");
    if (opset < OLDEST_OPSET || !pare_contrib_any(model->graph))
        PARE_TRY(pare_pass_version_convert(model, opset < OLDEST_OPSET ? OLDEST_OPSET : opset));
    pare_graph_clear_inputs(model->graph);
    for (int round = 0; w.changed && round < MOST_ROUNDS; round++) {
        bool merged = false;
        w.changed = false;
        PARE_TRY(pare_pass_infer(model, &infer));
        PARE_TRY(pare_pass_inline_control(model, &infer, keep, keep_count));
        pare_graph_sweep(model->graph);
        PARE_TRY(pare_pass_deduplicate(model, keep, keep_count, &merged));
        PARE_TRY(pare_graph_each(model->graph, apply_rules, &w));
        w.changed = w.changed || merged;
    }
    PARE_TRY(pare_graph_sort(model->graph));
    PARE_TRY(pare_graph_name_nodes_apart(model->graph));
    pare_model_raise_ir(model);
    return PARE_OK;
}
