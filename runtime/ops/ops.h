/* SPDX-License-Identifier: Apache-2.0 */
/* The operator table. One row of ops.inc per operator makes the enum, the declarations, the lookup
   table, the list of kernel tests and the table that `pare ops` prints. quant, prune and distill
   read the row and never compare operator names. */
#ifndef PARE_RUNTIME_OPS_OPS_H
#define PARE_RUNTIME_OPS_OPS_H

#include "runtime/graph/graph.h"
#include "runtime/ops/kernel.h"
#include "runtime/ops/prune.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PARE_DOMAIN                                                                                \
    "pare" /* operators that passes make and the runtime runs; never written to a file */

/* What a pass must know about memory order (N, H, W, C inside, row-major at the edges). */
typedef enum pare_layout {
    PARE_ROWMAJOR, /* reads and writes row-major tensors only */
    PARE_ANYORDER, /* element by element or along logical axes: works on any strides */
    PARE_NHWC      /* fastest on N, H, W, C; its kernels take both */
} pare_layout;

/* Rewrites the node from any older form to the newest the row covers (attributes to inputs and so
   on). version: the opset the node is written for. A form that cannot be lifted is refused. */
typedef pare_status (*pare_upgrade_fn)(pare_node *node, int64_t version);

/* Sets dtype and shape of the node's outputs from its inputs' dtype, shape and constant data.
   Unknown dims in, unknown dims out; a contradiction is an error that names the node. */
typedef pare_status (*pare_infer_fn)(pare_node *node);

/* Emits the nodes that turn gradients of the node's outputs into those of its inputs (grad.h).
   PARE_UNSUPPORTED, and nothing given to inputs: there is no rule (pare_grad_none), or none for
   this form. */
typedef struct pare_grad pare_grad;
typedef pare_status (*pare_grad_fn)(pare_grad *grad, const pare_node *node);

/* How an operator is quantized. */
typedef enum pare_quant_kind {
    PARE_QUANT_NONE,     /* stays float */
    PARE_QUANT_WEIGHTED, /* a weight against an activation; weighted() says which */
    PARE_QUANT_OWN,      /* its output needs a range of its own */
    PARE_QUANT_FIXED,    /* its output lies in [low, high] (Sigmoid, Softmax, Tanh) */
    PARE_QUANT_PASS,     /* output keeps the first input's scale and zero point */
    PARE_QUANT_JOIN,     /* inputs and output can share a scale (Concat) */
    PARE_QUANT_CLAMP, /* Relu, Clip: fuses after a weighted node or a sum; the output has the range
                       */
    PARE_QUANT_SUM,   /* as OWN; adds two tensors: a bias, or a residual */
    PARE_QUANT_PRODUCT,     /* as OWN; multiplies two tensors */
    PARE_QUANT_MEAN,        /* as OWN; averages one tensor (AveragePool) */
    PARE_QUANT_WEIGHT_ONLY, /* inputs 1 and 2, (directions, channels, ...), are weights that can be
                               int8; it computes in float (LSTM, GRU, RNN) */
    PARE_QUANT_INTEGER      /* integer arithmetic or a Q/DQ node: the model is quantized already */
} pare_quant_kind;

/* The parts of a weighted node: y = alpha * (x . w) + beta * bias. */
typedef struct pare_weighted {
    int x, w, bias;    /* input positions; bias -1 where absent */
    int takes;         /* where a bias is, absent or not; -1: the operator takes none */
    int axis;          /* of w: the output channel */
    float alpha, beta; /* Gemm's; 1 elsewhere */
    bool constant;     /* w is constant; else it counts as a second activation */
} pare_weighted;

typedef pare_status (*pare_weighted_fn)(const pare_node *node, pare_weighted *out);

/* What FP16 and BF16 mean for an operator. */
typedef enum pare_lowp_kind {
    PARE_LOWP_YES,     /* computes in the short type */
    PARE_LOWP_REDUCES, /* stays f32 where one result sums more than 2,048 values */
    PARE_LOWP_NEVER,   /* stays f32: by ONNX's types, or because it overflows too easily (Pow) */
    PARE_LOWP_CAST     /* a type conversion: its result stays what the model says */
} pare_lowp_kind;

typedef struct pare_quant_role {
    pare_quant_kind kind;
    pare_weighted_fn weighted; /* WEIGHTED only */
    float low, high;           /* FIXED only */
    pare_lowp_kind half;
    unsigned f32_inputs; /* bit i: input i is a setting in f32 whatever the others are (Resize's
                            scales), and no weight */
} pare_quant_role;

typedef struct pare_op {
    const char *name, *domain;
    int first, last; /* opsets: oldest form `up` understands, newest version that is covered */
    pare_layout layout;
    pare_upgrade_fn up;
    pare_infer_fn infer;
    const pare_kernel *const *cpu;  /* ordered, fastest first, reference last; NULL-ended */
    const pare_kernel *const *cuda; /* empty: unsupported there */
    pare_grad_fn grad;
    pare_quant_role quant;
    pare_prune_role prune;
} pare_op;

typedef enum pare_op_id {
#define PARE_OP(op, dom, first, last, layout, up, infer, cpu, cuda, grad, quant, prune)            \
    PARE_OP_##op,
#include "runtime/ops/ops.inc"
#undef PARE_OP
    PARE_OP_COUNT
} pare_op_id;

extern const pare_op pare_ops[PARE_OP_COUNT];

/* The row of an operator, or NULL. */
const pare_op *pare_op_find(const char *domain, const char *op_type);
const pare_op *pare_op_of(const pare_node *node);

/* Is its output its input's bytes under another shape, so that nothing runs? */
bool pare_op_is_alias(const pare_node *node);

/* Does the row hold for a model of this opset? From its first form on, until ONNX redefines it. */
bool pare_op_covers(const pare_op *op, int64_t opset);

/* The row's shape rule on a node whose counts of inputs and outputs and types of attributes were
   checked before. */
PARE_NODISCARD pare_status pare_op_infer(pare_node *node);
/* These counts (forms.inc; INT_MAX: any number); false for operators that passes make. */
bool pare_op_form(const pare_op *op, int *fewest, int *most, int *outputs);

/* Multiply-adds of a node: of convolutions, matrix products and attention, quantized and fused ones
   among them; 0 of all others, -1 where a shape is unknown. */
double pare_node_macs(const pare_node *node);

/* What quantization does with a node: its row's, NULL and NONE where there is no row (or node). */
const pare_quant_role *pare_quant_role_of(const pare_node *node);
pare_quant_kind pare_quant_kind_of(const pare_node *node);

/* What a node is to a pass that trains, where no column says it. The tensor that a
   Constant holds; what an Identity copies; NULL of others. */
const pare_tensor *pare_node_constant(const pare_node *node);
pare_value *pare_node_copied(const pare_node *node);
bool pare_node_is_softmax(const pare_node *node);
/* Is this input a running mean (3) or variance (4), which no gradient trains? */
bool pare_node_reads_statistic(const pare_node *node, int input);
/* A Dropout that drops elements: its training mode is not known to be off, nor its ratio to be 0.
 */
bool pare_node_drops(const pare_node *node);
/* QuantizeLinear or DequantizeLinear of any domain. */
bool pare_node_is_qdq(const pare_node *node);

/* Declarations the rows need. Written once here from the same table. */
#define PARE_OP(op, dom, first, last, layout, up_, infer_, cpu_, cuda_, grad_, quant, prune)       \
    pare_status pare_upgrade_##up_(pare_node *node, int64_t version);                              \
    pare_status pare_infer_##infer_(pare_node *node);                                              \
    extern const pare_kernel *const pare_cpu_##cpu_[];                                             \
    extern const pare_kernel *const pare_cuda_##cuda_[];                                           \
    pare_status pare_grad_##grad_(pare_grad *grad, const pare_node *node);
#include "runtime/ops/ops.inc"
#undef PARE_OP

/* The kernels of operators that the interpreter runs, not a plan. */
extern const pare_kernel *const pare_cpu_interpreter[];

/* The prune column's functions, by the words of table.c: bind_NAME and cut_NAME (none: nothing to
   rewrite). */
#define PARE_RULES(bind_, cut_)                                                                    \
    pare_status pare_prune_bind_##bind_(const pare_node *node, const pare_prune_binder *binder);   \
    pare_status pare_prune_cut_##cut_(const pare_prune_cut *cut, pare_node *node);
#define PRUNE_STOPS            PARE_RULES(stops, none)
#define PRUNE_TIES             PARE_RULES(ties, none)
#define PRUNE_PASS             PARE_RULES(same, none)
#define PRUNE_MAKES(bind, cut) PARE_RULES(bind, cut)
#define PRUNE_JOINS(bind, cut) PARE_RULES(bind, cut)
#define PRUNE_MAPS(bind, cut)  PARE_RULES(bind, cut)
#define PRUNE_WORKS(bind, cut) PARE_RULES(bind, cut)
#define PARE_OP(op, dom, first, last, layout, up, infer, cpu, cuda, grad, quant, prune)            \
    PRUNE_##prune
#include "runtime/ops/ops.inc"
#undef PARE_OP
#undef PRUNE_STOPS
#undef PRUNE_TIES
#undef PRUNE_PASS
#undef PRUNE_MAKES
#undef PRUNE_JOINS
#undef PRUNE_MAPS
#undef PRUNE_WORKS
#undef PARE_RULES

/* Weighted operators' functions (the quant column). */
pare_status pare_weighted_conv(const pare_node *node, pare_weighted *out);           /* axis 0 */
pare_status pare_weighted_conv_transpose(const pare_node *node, pare_weighted *out); /* axis 1 */
pare_status pare_weighted_gemm(const pare_node *node, pare_weighted *out);   /* transB ? 0 : 1 */
pare_status pare_weighted_matmul(const pare_node *node, pare_weighted *out); /* last axis */

#ifdef __cplusplus
}
#endif
#endif
