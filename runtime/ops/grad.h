/* SPDX-License-Identifier: Apache-2.0 */
/* What gradient rules (the `grad` column) work with. A rule gets a node of the forward graph and
   emits the nodes that turn the gradients of its outputs into those of its inputs: ordinary nodes,
   appended to the same graph, with types and shapes inferred on the spot. Shapes are all known.

   Emitting functions keep the first failure in `status` and do nothing afterwards, so that a rule
   is a few expressions and returns `status` at its end; values they return are NULL from there on.
 */
#ifndef PARE_RUNTIME_OPS_GRAD_H
#define PARE_RUNTIME_OPS_GRAD_H

#include "runtime/base/ptr_map.h"
#include "runtime/ops/infer.h"

struct pare_grad {
    pare_graph *graph;
    pare_status status;
    pare_ptr_map wanted; /* tensor to differentiate by, or computed from one -> place in grad */
    pare_value **grad;   /* of the wanted tensors; NULL: none has reached it */
    int serial;          /* of emitted values, for their names */
    const char *base;
};

/* Is the gradient of this value of use? False for NULL. */
bool pare_grad_wants(const pare_grad *g, const pare_value *v);
/* The sum of all that was given to a value so far; NULL where nothing was. */
pare_value *pare_grad_of(const pare_grad *g, const pare_value *v);
/* Marks a value as wanted. */
void pare_grad_want(pare_grad *g, const pare_value *v);

/* Adds d, of v's shape, to the gradient of v; nothing where it is not wanted. */
void pare_grad_give(pare_grad *g, const pare_value *v, pare_value *d);
/* The same where v was broadcast to d's shape: sums over the axes that were stretched. */
void pare_grad_give_sum(pare_grad *g, const pare_value *v, pare_value *d);

/* A node of ONNX's operator of this name, else of domain pare; inputs may be NULL (absent). begin
   leaves room for attributes; end infers and returns output 0. */
pare_node *pare_grad_begin(pare_grad *g, const char *op, pare_value *const *in, int in_count,
                           int out_count);
pare_value *pare_grad_end(pare_grad *g, pare_node *node);
pare_value *pare_grad_emit(pare_grad *g, const char *op, pare_value *const *in, int in_count);
#define PARE_EMIT(g, op, ...)                                                                      \
    pare_grad_emit((g), (op), (pare_value *const[]){__VA_ARGS__},                                  \
                   (int)(sizeof(pare_value *[]){__VA_ARGS__} / sizeof(pare_value *)))

/* Attributes of a begun node (NULL: a failure came before). */
void pare_grad_int(pare_grad *g, pare_node *node, const char *name, int64_t i);
void pare_grad_float(pare_grad *g, pare_node *node, const char *name, float f);
void pare_grad_int_list(pare_grad *g, pare_node *node, const char *name, const int64_t *ints,
                        int count);
void pare_grad_string(pare_grad *g, pare_node *node, const char *name, const char *text);
/* All attributes of another node, and `shape`: the dims of what the gradient is of. */
void pare_grad_attrs(pare_grad *g, pare_node *node, const pare_node *from);
void pare_grad_shape(pare_grad *g, pare_node *node, const pare_shape *shape);

/* Constants: a scalar of a float type, a vector of s64, zeros like v. */
pare_value *pare_grad_number(pare_grad *g, pare_dtype dtype, double number);
pare_value *pare_grad_ints(pare_grad *g, const int64_t *ints, int count);
pare_value *pare_grad_zeros(pare_grad *g, const pare_value *v);

/* v times a number (v itself for 1); v under another shape of as many elements; v with its axes
   permuted; its sum over flagged axes, which keep length 1; v stretched to a shape. */
pare_value *pare_grad_scaled(pare_grad *g, pare_value *v, double factor);
pare_value *pare_grad_reshaped(pare_grad *g, pare_value *v, const pare_shape *shape);
pare_value *pare_grad_permuted(pare_grad *g, pare_value *v, const int *order);
pare_value *pare_grad_summed(pare_grad *g, pare_value *v, const bool axis[PARE_MAX_RANK]);
pare_value *pare_grad_expanded(pare_grad *g, pare_value *v, const pare_shape *shape);

pare_value *pare_grad_windowed(pare_grad *g, const pare_node *node, const char *op, pare_value *dy,
                               pare_value *other, const pare_shape *shape);
/* Part first .. first + n - 1 of an axis of v. */
pare_value *pare_grad_part(pare_grad *g, pare_value *v, int axis, int64_t first, int64_t n);

#endif
