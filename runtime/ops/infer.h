/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers that shape rules (infer) and upgrade rules (up) share.

   Shape rules accept unknown dims (-1, with a name where the model gave one) and unknown ranks (-1)
   and hand on what they know. They read constants of their inputs where ONNX needs them. */
#ifndef PARE_RUNTIME_OPS_INFER_H
#define PARE_RUNTIME_OPS_INFER_H

#include "runtime/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- inputs and outputs --- */

/* Sets output i (if the node has it); its name and place in the graph stay. */
void pare_infer_out(pare_node *node, int i, pare_dtype dtype, const pare_shape *shape);

/* Fails where input i is absent; *out is the input. */
PARE_NODISCARD pare_status pare_infer_need(const pare_node *node, int i, pare_value **out);

/* Fails where inputs i and j are both there and both of known, different types. */
PARE_NODISCARD pare_status pare_infer_same_type(const pare_node *node, int i, int j);

/* Type of input i, PARE_NOTYPE where it is absent or unknown. */
pare_dtype pare_infer_dtype(const pare_node *node, int i);

/* --- shapes --- */

/* A shape of this rank with unknown dims; the shape [n]; the shape of unknown rank. */
pare_shape pare_shape_unknown(int rank);
pare_shape pare_shape_vector(int64_t n);

/* Numpy-style broadcast of both ways: *into becomes the broadcast of itself and other. A dim of 1
   against an unknown one gives the unknown one; a known dim above 1 against an unknown one gives
   the known one. Fails naming both shapes where they contradict. */
PARE_NODISCARD pare_status pare_infer_broadcast(const pare_node *node, pare_shape *into,
                                                const pare_shape *other);

/* Broadcast of all inputs first..last (absent ones skipped). */
PARE_NODISCARD pare_status pare_infer_broadcast_all(const pare_node *node, int first, int last,
                                                    pare_shape *out);

/* An axis in [-rank, rank - 1] counted from the end where negative; fails outside. */
PARE_NODISCARD pare_status pare_infer_axis(const pare_node *node, int64_t axis, int rank, int *out);

/* Axes as flags per dimension; fails outside the rank and where one is named twice. */
PARE_NODISCARD pare_status pare_infer_axes(const pare_node *node, const int64_t *axes, int count,
                                           int rank, bool out[PARE_MAX_RANK]);

/* Product of dims [first, last): -1 where one is unknown or the product overflows. */
int64_t pare_shape_product(const pare_shape *shape, int first, int last);

/* --- constants --- */

/* The constant content of input i: an initializer, folded, or made by a Constant node with a
   tensor; NULL where the input is absent or computed. */
const pare_tensor *pare_infer_constant(const pare_node *node, int i);

/* Constant input i as int64 (s64, s32 and the other integers, bool), in the model's arena. *out is
   NULL and *count 0 where the input is absent or not constant; *count is the element count. */
PARE_NODISCARD pare_status pare_infer_ints(const pare_node *node, int i, const int64_t **out,
                                           int *count);

/* The same as floats (f32, f64, f16, bf16, integers). */
PARE_NODISCARD pare_status pare_infer_floats(const pare_node *node, int i, const float **out,
                                             int *count);

/* Ints of input i, else of the attribute of this name (older forms); *known is false where the
   input is there but not constant. *out NULL where neither is there. */
PARE_NODISCARD pare_status pare_infer_ints_or_attr(const pare_node *node, int i, const char *attr,
                                                   const int64_t **out, int *count, bool *known);

/* One element of a constant tensor as a number (no strings; 4-bit types included). */
double pare_tensor_number(const pare_tensor *tensor, int64_t i);
int64_t pare_tensor_int(const pare_tensor *tensor, int64_t i);

/* --- up: attributes to inputs --- */

/* A name for something new beside the node: its first output's name and a suffix. */
const char *pare_upgrade_name(pare_node *node, const char *suffix);

/* A new constant of the node's graph becomes input i. */
PARE_NODISCARD pare_status pare_upgrade_constant(pare_node *node, int i, const char *suffix,
                                                 pare_dtype dtype, int rank, const int64_t *dims,
                                                 const void *data);

/* The attribute, where it is there, becomes constant input i (ints: s64 [count]; int: s64 scalar;
   float: scalar of dtype) and leaves the node. */
PARE_NODISCARD pare_status pare_upgrade_ints(pare_node *node, const char *attr, int i);
PARE_NODISCARD pare_status pare_upgrade_int(pare_node *node, const char *attr, int i);
PARE_NODISCARD pare_status pare_upgrade_float(pare_node *node, const char *attr, int i,
                                              pare_dtype dtype);

/* The node's newest form needs at least this opset: the model's import is raised to it. */
PARE_NODISCARD pare_status pare_upgrade_opset(pare_node *node, int64_t opset);

/* A new node before this one: it reads input i (and more inputs), the node reads its output. */
PARE_NODISCARD pare_status pare_upgrade_before(pare_node *node, int i, const char *op_type,
                                               pare_value *const *more, int more_count,
                                               pare_node **out);
/* A new node after this one: it reads what output i was computed to, and makes the value of that
   name. */
PARE_NODISCARD pare_status pare_upgrade_after(pare_node *node, int i, const char *op_type,
                                              pare_value *const *more, int more_count,
                                              pare_node **out);

/* All inputs broadcast together and share their type. */
pare_status pare_infer_broadcast_to(pare_node *node, pare_dtype dtype, bool same);
/* A shape given as a constant list; unknown dims where only its length is known. */
pare_status pare_infer_shape_input(const pare_node *node, int i, pare_shape *out);

#ifdef __cplusplus
}
#endif
#endif
