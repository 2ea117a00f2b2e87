/* SPDX-License-Identifier: Apache-2.0 */
/* A net's first convolution and the MaxPool that alone reads it become one FusedConvPool, where a
   GPU's kernel takes it (conv_pool.h): the largest sums are found before what follows them, and the
   convolution's own output, which is large, is never in memory. */
#include "runtime/ops/conv_pool.h"
#include "runtime/passes/optimize/fuse.h"
#include "runtime/passes/passes.h"

#include <string.h>

/* The pool's attributes, with what ceil_mode adds as padding behind. */
static pare_status pool_write(pare_node *to, const pare_window *pool)
{
    int64_t pads[4];
    for (int i = 0; i < 2; i++) {
        const int64_t end = (pool->out[1 + i] - 1) * pool->stride[1 + i] + pool->kernel[1 + i] -
                            pool->in[1 + i] - pool->begin[1 + i];
        pads[i] = pool->begin[1 + i], pads[2 + i] = end > 0 ? end : 0;
    }
    PARE_TRY(pare_node_set_ints(to, "pool_kernel", pool->kernel + 1, 2));
    PARE_TRY(pare_node_set_ints(to, "pool_strides", pool->stride + 1, 2));
    return pare_node_set_ints(to, "pool_pads", pads, 4);
}

/* Does the kernel take both? *window: the pool's. A node that cannot be read is another's to
   refuse: the message is not kept. */
static bool kernel_takes(pare_fuse *f, const pare_node *conv, const pare_node *pool,
                         pare_window *window)
{
    pare_view in[5], out;
    pare_prep prep;
    pare_conv_args a;
    if (!pare_fuse_prep(f, conv, in, &out, &prep)) return false;
    const bool read = pare_window_read(pool, &conv->out[0]->shape, NULL, window) == PARE_OK &&
                      pare_conv_args_read(&prep, &a) == PARE_OK;
    if (!read) pare_ctx_clear(prep.ctx);
    return read && window->dilation[1] == 1 && window->dilation[2] == 1 &&
           pare_conv_pool_fits(&prep, &a, window);
}

static pare_status pool_join(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_window window;
    pare_node *made;
    pare_value *x = node->in_count ? node->in[0] : NULL;
    pare_node *conv = x ? x->producer : NULL;
    if (!pare_node_is(node, "MaxPool") || !conv || strcmp(conv->op_type, "FusedConv") ||
        strcmp(conv->domain, PARE_DOMAIN) || pare_fuse_only_use(f, x) != node ||
        (node->out_count > 1 && node->out[1]) || x->shape.rank != 4 ||
        !kernel_takes(f, conv, node, &window))
        return PARE_OK;
    const pare_node source = *conv; /* its attributes outlive it in the arena */
    PARE_TRY(
        pare_fuse_replace(node, "FusedConvPool", PARE_DOMAIN, source.in, source.in_count, &made));
    for (int i = 0; i < source.attr_count; i++) PARE_TRY(pare_node_set_attr(made, &source.attr[i]));
    *changed = true;
    return pool_write(made, &window);
}

pare_status pare_pass_fuse_pool(pare_model *model, const char *const *keep, int keep_count)
{
    static const pare_fuse_fn rule[] = {pool_join};
    const pare_fuse f = {.keep = keep, .keep_count = keep_count};
    bool changed = false;
    return pare_fuse_run(model->graph, &f, rule, 1, &changed);
}
