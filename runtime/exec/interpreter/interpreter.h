/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter runs what a plan cannot hold: nodes whose shapes only a run knows, control flow
   (If, Loop, Scan, SequenceMap) and sequences. It walks the nodes in order. Each is given its
   inputs, its shape rule is asked with their shapes and, where the rule wants it, their content,
   and a kernel is chosen and prepared. What was prepared is kept for the next time the same shapes
   come, a few of them for each node. */
#ifndef PARE_RUNTIME_EXEC_INTERPRETER_INTERPRETER_H
#define PARE_RUNTIME_EXEC_INTERPRETER_INTERPRETER_H

#include "runtime/base/ptr_map.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/interpreter/object.h"
#include "runtime/ops/ops.h"

typedef struct pare_interpreter pare_interpreter;
typedef struct pare_scope pare_scope;
typedef struct pare_item pare_item;
typedef struct pare_prepared pare_prepared;

/* How an operator that is no kernel is run. */
typedef pare_status (*pare_handler)(pare_interpreter *it, pare_item *item);

/* Prepared forms of one node that are kept. */
enum { PARE_PREPARED_KEPT = 4 };

/* A node, with the slots of its tensors (-1: absent). */
struct pare_item {
    pare_node *node;
    const pare_op *op;
    pare_handler handler; /* NULL: by kernels */
    int *in, *out;
    int *last; /* slots that nothing reads after it */
    int last_count;
    pare_scope **body; /* of its attributes that are graphs, in their order */
    int body_count;
    pare_prepared *prepared[PARE_PREPARED_KEPT];
    const pare_kernel *kernel; /* the last that ran it; NULL: none, or a handler */
    double seconds;            /* of the last run, all turns */
    int64_t turns;             /* in the last run */
};

/* A graph: the model's, or a body. */
struct pare_scope {
    pare_graph *graph;
    pare_item *item;
    int item_count;
    int *in, *out; /* slots */
    int in_count, out_count;
};

struct pare_interpreter {
    pare_ctx *ctx;
    pare_arena arena;
    pare_model *model; /* its own copy */
    int threads;
    bool reference;
    pare_ptr_map index; /* slot of a value */
    pare_object *slot;
    int slot_count;
    pare_scope *main;
    void *scratch;
    size_t scratch_bytes;
    unsigned long long clock; /* counts runs of nodes */
    bool timed;
    pare_status (*made)(void *user, const pare_value *value, const pare_view *view);
    void *user; /* of made, which may be NULL */
};

/* For a copy of the model, whose inputs are all tensors. */
PARE_NODISCARD pare_status pare_interpreter_new(pare_ctx *ctx, pare_interpreter **out,
                                                const pare_model *model,
                                                const pare_plan_options *options);
void pare_interpreter_free(pare_interpreter *it);

/* Runs the model once; inputs: (graph inputs), which must stay until outputs were read. */
PARE_NODISCARD pare_status pare_interpreter_run(pare_interpreter *it, const pare_view *inputs);
/* What the last run made of graph output i. */
const pare_object *pare_interpreter_output(const pare_interpreter *it, int i);

/* profile.c: times are counted from zero, of every node and those of bodies; then all nodes, outer
   ones first. */
void pare_interpreter_reset(pare_interpreter *it);
int pare_interpreter_steps(const pare_interpreter *it, pare_inner_step *out, int most);

/* --- for handlers --- */

/* Runs a body once on what its input slots hold; its output slots are set. */
PARE_NODISCARD pare_status pare_scope_run(pare_interpreter *it, pare_scope *block);
/* Sets a slot, and takes the reference. */
void pare_slot_set(pare_interpreter *it, int slot, pare_object object);
/* The object of input i; NULL where it is absent. */
const pare_object *pare_item_in(const pare_interpreter *it, const pare_item *item, int i);
/* The same, which must be a tensor, or a sequence. */
PARE_NODISCARD pare_status pare_item_tensor(const pare_interpreter *it, const pare_item *item,
                                            int i, const pare_object **out);
PARE_NODISCARD pare_status pare_item_sequence(const pare_interpreter *it, const pare_item *item,
                                              int i, const pare_object **out);
/* The first element of input i as a number; missing where it is absent. */
PARE_NODISCARD pare_status pare_item_int(const pare_interpreter *it, const pare_item *item, int i,
                                         int64_t missing, int64_t *out);
/* Output i becomes the object, whose reference is taken. */
void pare_item_give(pare_interpreter *it, const pare_item *item, int i, pare_object object);
/* The body of this attribute, or NULL. */
pare_scope *pare_item_body(const pare_item *item, const char *attr);

/* control.c, sequence.c: the handler of a node; NULL: kernels run it. */
pare_handler pare_control_handler(const pare_node *node);
pare_handler pare_sequence_handler(const pare_node *node);

/* kernel.c: one node by a kernel, and what it keeps. */
PARE_NODISCARD pare_status pare_item_run(pare_interpreter *it, pare_item *item);
void pare_prepared_free(pare_prepared *prepared);

#endif
