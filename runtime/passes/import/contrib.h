/* SPDX-License-Identifier: Apache-2.0 */
/* Operators outside ONNX that are rewritten into standard ones (contrib.inc), and what a rewrite is
   written with. A rewrite puts standard nodes of opset PARE_CONTRIB_OPSET before the node; the
   nodes that make its results take over its outputs. The first failure stays in `status`: after it
   nothing is made, values are NULL, and the pass ends with it. */
#ifndef PARE_RUNTIME_PASSES_IMPORT_CONTRIB_H
#define PARE_RUNTIME_PASSES_IMPORT_CONTRIB_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PARE_DOMAIN_ONNX      ""
#define PARE_DOMAIN_MICROSOFT "com.microsoft"

/* A model with such an operator is lifted to it: blocked DequantizeLinear of 4-bit types. */
enum { PARE_CONTRIB_OPSET = 21 };

typedef struct pare_contrib {
    pare_node *node;    /* the node that is rewritten */
    pare_node *last;    /* the newest node */
    pare_value *like;   /* what it computes in has this tensor's type: input 0's, as a rule */
    const char *base;   /* names begin with it: the node's name */
    pare_status status; /* the first failure */
} pare_contrib;

typedef void (*pare_contrib_fn)(pare_contrib *c);

typedef struct pare_contrib_op {
    const char *domain, *name;
    pare_contrib_fn rewrite;
    int least, most; /* inputs: leading ones that must be there, and how many at most */
    const char *attrs;
} pare_contrib_op;

extern const pare_contrib_op pare_contrib_ops[];
extern const int pare_contrib_op_count;

/* The row of a node, or NULL. */
const pare_contrib_op *pare_contrib_op_of(const pare_node *node);

/* Is there a node with a row in the graph or its subgraphs? */
bool pare_contrib_any(pare_graph *graph);

/* Rewrites a node that has a row. */
PARE_NODISCARD pare_status pare_contrib_rewrite(pare_node *node);

/* Takes the imports of domains that no node has any more. */
void pare_contrib_drop_imports(pare_model *model);

/* --- for rewrites --- */

/* Is there output i, which something may read? */
bool pare_contrib_has_out(const pare_contrib *c, int i);

/* A node of ONNX's own domain; what it makes. to: it makes the node's output of this index; -1: a
   new tensor. Absent inputs are NULL. */
pare_value *pare_contrib_op_new(pare_contrib *c, int to, const char *op_type, pare_value *const *in,
                                int in_count, int out_count);
#define PARE_CONTRIB_IN(...)                                                                       \
    (pare_value *const[]){__VA_ARGS__},                                                            \
        (int)(sizeof((pare_value *const[]){__VA_ARGS__}) / sizeof(pare_value *))
#define OP(c, op_type, ...) pare_contrib_op_new((c), -1, (op_type), PARE_CONTRIB_IN(__VA_ARGS__), 1)
#define OP_TO(c, to, op_type, ...)                                                                 \
    pare_contrib_op_new((c), (to), (op_type), PARE_CONTRIB_IN(__VA_ARGS__), 1)

/* Output i of the newest node. */
pare_value *pare_contrib_made(const pare_contrib *c, int i);

/* Attributes of the newest node. */
void pare_contrib_int(pare_contrib *c, const char *name, int64_t i);
void pare_contrib_float(pare_contrib *c, const char *name, float f);
void pare_contrib_list(pare_contrib *c, const char *name, const int64_t *ints, int count);
/* Those of the rewritten node that are there; names separated by blanks. */
void pare_contrib_copy(pare_contrib *c, const char *names);

/* Constants: s64 list, s64 number, a number in the type of a tensor, any. */
pare_value *pare_contrib_ints(pare_contrib *c, const int64_t *ints, int count);
#define INTS(c, ...)                                                                               \
    pare_contrib_ints((c), (const int64_t[]){__VA_ARGS__},                                         \
                      (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
pare_value *pare_contrib_number(pare_contrib *c, const pare_value *like, double value);
pare_value *pare_contrib_constant(pare_contrib *c, const char *suffix, pare_dtype dtype, int rank,
                                  const int64_t *dims, const void *data);

/* Fails with the node's title before the words. */
#define CONTRIB_FAIL(c, code, ...) ((c)->status = PARE_FAIL_NODE((c)->node, code, __VA_ARGS__))

/* Moves. In a Reshape 0 keeps a length and -1 is what remains. */
pare_value *pare_contrib_transpose(pare_contrib *c, int to, pare_value *x, const int64_t *perm,
                                   int rank);
#define TRANSPOSE(c, to, x, ...)                                                                   \
    pare_contrib_transpose((c), (to), (x), (const int64_t[]){__VA_ARGS__},                         \
                           (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define RESHAPE(c, to, x, ...) OP_TO(c, to, "Reshape", (x), INTS(c, __VA_ARGS__))
/* Axis 1 to the end (channels last) or the last axis to 1; the rank must be known. */
pare_value *pare_contrib_channels_last(pare_contrib *c, int to, pare_value *x);
pare_value *pare_contrib_channels_first(pare_contrib *c, pare_value *x);
/* x[.., first:last, ..] along an axis. */
pare_value *pare_contrib_slice(pare_contrib *c, pare_value *x, int64_t axis, int64_t first,
                               int64_t last);

/* In several files. */
/* x after an activation that a fused operator names; NULL: none. */
pare_value *pare_contrib_activation(pare_contrib *c, int to, pare_value *x);
/* What inputs i (levels), i + 1 (scale) and i + 2 (zero point) say. axis: of scales that are a
 * list. */
pare_value *pare_contrib_dequantize(pare_contrib *c, pare_value *q, pare_value *scale,
                                    pare_value *zero, int64_t axis);

#define PARE_CONTRIB(domain, name, fn, least, most, attrs) void pare_contrib_##fn(pare_contrib *c);
#include "runtime/passes/import/contrib.inc"
#undef PARE_CONTRIB

#ifdef __cplusplus
}
#endif
#endif
