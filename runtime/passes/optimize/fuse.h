/* SPDX-License-Identifier: Apache-2.0 */
/* What the fusing passes share: which tensors may vanish, small constants, replacing nodes. */
#ifndef PARE_RUNTIME_PASSES_OPTIMIZE_FUSE_H
#define PARE_RUNTIME_PASSES_OPTIMIZE_FUSE_H

#include "runtime/ops/ops.h"

typedef struct pare_fuse {
    pare_graph *graph;
    const char *const *keep; /* tensors that must survive */
    int keep_count;
} pare_fuse;

/* May the tensor vanish? It is no graph output, not kept, and no subgraph reads it. */
bool pare_fuse_may_vanish(const pare_fuse *f, const pare_value *v);

/* The one use of a tensor that may vanish, else NULL. */
pare_node *pare_fuse_only_use(const pare_fuse *f, const pare_value *v);

/* The same where that use is this ONNX operator. */
pare_node *pare_fuse_next(const pare_fuse *f, const pare_value *v, const char *op_type);

/* The node that makes input i of node where it is this ONNX operator, else NULL. */
pare_node *pare_fuse_maker(const pare_node *node, int i, const char *op_type);

/* The other input of a node with two (v itself where both are v); NULL where v is not read. */
pare_value *pare_fuse_other(const pare_node *node, const pare_value *v);

/* A constant of one element? Its value. */
bool pare_fuse_scalar(const pare_value *v, double *out);

/* Is it that scalar, to 5 parts in 10,000 (constants were written as f16, too)? */
bool pare_fuse_is(const pare_value *v, double wanted);

/* y = v * s or v / s with a constant scalar, by Mul or Div; the factor and the input v. */
bool pare_fuse_scaled(const pare_node *node, pare_value **v, double *factor);

/* A new node in place of last (whose output 0 it makes), which leaves the graph; nodes in front of
   last that nothing reads any more go with the next sweep. */
PARE_NODISCARD pare_status pare_fuse_replace(pare_node *last, const char *op_type,
                                             const char *domain, pare_value *const *in,
                                             int in_count, pare_node **out);

/* A new tensor of this type and shape, named after base, made by a new node before `before`. */
PARE_NODISCARD pare_status pare_fuse_insert(pare_node *before, const char *op_type,
                                            const char *domain, pare_value *const *in, int in_count,
                                            const pare_shape *shape, pare_node **out);

/* A constant with the data of another under a shape of one axis. */
PARE_NODISCARD pare_status pare_fuse_vector(pare_graph *graph, const pare_value *from,
                                            pare_value **out);

/* What reads the node's first output reads x; where that is a graph output and x may vanish, x's
   node makes it. The node is left to the sweep. *changed stays where neither can be. */
PARE_NODISCARD pare_status pare_fuse_bypass(pare_fuse *f, pare_node *node, pare_value *x,
                                            bool *changed);

/* A FusedConv as a kernel would be given it, row-major; false: some of its shapes or types are not
   known. in: room for 5. */
bool pare_fuse_prep(const pare_fuse *f, const pare_node *conv, pare_view *in, pare_view *out,
                    pare_prep *prep);

/* The passes, in the order they run; each takes one node and may remove it and nodes before it. */
typedef pare_status (*pare_fuse_fn)(pare_fuse *f, pare_node *node, bool *changed);
pare_status pare_fuse_noops(pare_fuse *f, pare_node *node, bool *changed);
pare_status pare_fuse_shapes(pare_fuse *f, pare_node *node, bool *changed);
pare_status pare_fuse_norm(pare_fuse *f, pare_node *node, bool *changed);
pare_status pare_fuse_gelu(pare_fuse *f, pare_node *node, bool *changed);
pare_status pare_fuse_attention(pare_fuse *f, pare_node *node, bool *changed);
pare_status pare_fuse_weighted(pare_fuse *f, pare_node *node, bool *changed);

/* Of simplify alone: fuse_targets.c. */
pare_status pare_fuse_targets(pare_fuse *f, pare_node *node, bool *changed);

/* Of the pass after them: distribute_concat.c. */
pare_status pare_fuse_concat(pare_fuse *f, pare_node *node, bool *changed);

/* Each rule over the nodes of the graph until it changes nothing more, in order; sweeps. *changed:
   did one change something? f's graph is set. */
PARE_NODISCARD pare_status pare_fuse_run(pare_graph *graph, const pare_fuse *f,
                                         const pare_fuse_fn *rule, size_t count, bool *changed);

#endif
