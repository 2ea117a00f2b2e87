/* SPDX-License-Identifier: Apache-2.0 */
/* A line of rows.inc: one node of an operator, in a type and a memory order, and every kernel of
   its row on it.

   Operands, separated by blanks: a letter, dims or values, ":type" where the type is not the one
   that is tried, "-" an absent one.
     d2x3 around 0   p2x3 in [0.5, 1.5]   u2x3 in [-0.9, 0.9]   b2x3 in [1.5, 2.5]
     integers: -4 .. 4, 1 .. 3, -1 .. 1, 2 .. 3; 8-bit types that are named: all values
     D P U B      the same, constants
     S4x8         a constant like D with two zeros in each four neighbours along axis 1 (2:4)
     i1,2  s1     s64 constants, a vector and a scalar
     W1,2  w1     constants of the tried type, a vector and a scalar; W32*0.5: 32 times 0.5
   Attributes, separated by blanks: alpha=f0.5 axis=i1 pads=l1,1 scales=g0.1,0.2 mode=sx
   activations=tTanh,Relu. */
#ifndef PARE_TESTS_OPS_ROW_CASE_H
#define PARE_TESTS_OPS_ROW_CASE_H

#include "runtime/ops/ops.h"

enum { ROW_OPERANDS = 12, ROW_OUTPUTS = 8 };

typedef struct row_line {
    const char *op, *operands, *attributes;
    int outputs;
} row_line;

typedef struct row_case {
    pare_ctx ctx;
    pare_arena arena;
    pare_model *model;
    pare_node *node;
    const pare_op *op;
    pare_view in[ROW_OPERANDS], out[ROW_OUTPUTS];
    bool constant[ROW_OPERANDS], tried[ROW_OPERANDS]; /* tried: of the type that is tried */
    bool refused;                                     /* an operand does not take the tried type */
    int in_count, out_count;
    uint64_t seed;
} row_case;

/* The node with operands in memory and outputs of known shape. False where the shape rule refuses
   the type. nhwc: what has rank 4 and is no constant is in N, H, W, C order. */
bool row_open(row_case *r, const row_line *line, pare_dtype type, bool nhwc);
void row_close(row_case *r);

/* Operands of r that are of the tried type get the values of `from`, which were rounded there. */
void row_copy_values(row_case *r, const row_case *from);

typedef enum row_result { ROW_REFUSED, ROW_RAN, ROW_FAILED } row_result;

/* Runs a kernel where it takes the node; device NULL: on the CPU. Outputs are in row_case.out. A
   failure prints its message. */
row_result row_run(row_case *r, const pare_kernel *kernel, pare_device *device);

/* Are got's outputs want's? Integers and bool equal but for `steps`; floats within unit of the
   tensor's largest value or 1. Where not, prints the first that differs; what: named there. */
bool row_compare(const row_case *want, const row_case *got, double unit, int steps,
                 const char *what);

#endif
