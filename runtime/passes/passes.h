/* SPDX-License-Identifier: Apache-2.0 */
/* Passes: graph -> graph. Each changes only what its comment says. */
#ifndef PARE_RUNTIME_PASSES_PASSES_H
#define PARE_RUNTIME_PASSES_PASSES_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lifts every node (subgraphs too) from the model's opset to at least `version`, by the table's up
   column, and sets the import. PARE_UNSUPPORTED names a node whose form has no rule. An opset newer
   than the table covers is refused for operators whose row does not cover it. */
PARE_NODISCARD pare_status pare_pass_version_convert(pare_model *model, int64_t version);

/* Operators outside ONNX that ONNX Runtime's optimizer and quantizer write (com.microsoft; the rows
   of import/contrib.inc) become standard nodes; their outputs keep their names. A model that has
   one is lifted to opset 21 at least, IR 10; another stays as it is. PARE_UNSUPPORTED names a node
   and what of it has no standard form. pare_pass_version_convert does this, too. */
PARE_NODISCARD pare_status pare_pass_expand_contrib(pare_model *model);

/* Infers dtype and shape of every tensor, in order. Constant results of shape arithmetic (Shape,
   Gather, Concat ... of known content) become constant data of their values when fold is true, and
   nodes that only made them leave the graph. Nodes without a row leave their outputs unknown when
   lenient, else PARE_UNSUPPORTED. */
typedef struct pare_infer_options {
    bool fold, lenient;
    bool keep_dequantize; /* DequantizeLinear of a constant (a quantized weight) is not folded */
    bool fold_bodies;     /* also in bodies of If, Loop and Scan */
    size_t fold_limit;    /* largest constant made by folding, bytes; 0: no limit */
    bool fold_smaller;    /* also a larger one where constants of as many bytes go with the node */
    int guesses;          /* 0; in trial runs of bodies: how many bodies around have one, too */
} pare_infer_options;

/* Shapes only, strict. */
void pare_infer_options_init(pare_infer_options *out);
PARE_NODISCARD pare_status pare_pass_infer(pare_model *model, const pare_infer_options *options);

/* Einsum of one or two float inputs becomes MatMul, Mul, ReduceSum, Transpose and Reshape where it
   is a product without diagonals and stretched axes; shapes must be inferred. Its output keeps its
   name. *changed: was there one? Then constants are to be folded again. */
PARE_NODISCARD pare_status pare_pass_expand_einsum(pare_model *model, bool *changed);

/* Folds BatchNormalization (inference form) into the Conv, ConvTranspose or Gemm before it where
   nothing else reads in between; value names of the BatchNormalization's output survive. */
PARE_NODISCARD pare_status pare_pass_fold_batchnorm(pare_model *model);

/* Merges equal constants, and nodes of equal operator, inputs and attributes. keep: names that must
   survive. *changed: was there anything? */
PARE_NODISCARD pare_status pare_pass_deduplicate(pare_model *model, const char *const *keep,
                                                 int keep_count, bool *changed);

/* What exporters leave and no result depends on goes, from the graph and the bodies of control
   flow: shape arithmetic, casts and reshapes that change nothing, transposes that cancel, constant
   subgraphs, equal constants and nodes, outputs that nothing reads. Lifts opsets below 13 to 13.
   Inputs and outputs stay; results stay equal. keep as above. */
PARE_NODISCARD pare_status pare_pass_simplify(pare_model *model, const char *const *keep,
                                              int keep_count);

/* Control flow that is decided already: the branch that an If with a constant condition takes, and
   the body of a Loop that makes exactly one turn, take the node's place; a Loop of no turn gives
   its initial states. Names of the body's tensors survive where the graph does not have them.
   Shapes are inferred again after a change. keep as above. */
PARE_NODISCARD pare_status pare_pass_inline_control(pare_model *model,
                                                    const pare_infer_options *infer,
                                                    const char *const *keep, int keep_count);

/* Conv/Gemm/MatMul + bias + activation + residual Add into one node of domain pare; LayerNorm, GELU
   and attention spelled out in small operators into one. keep: names that must survive. */
PARE_NODISCARD pare_status pare_pass_fuse(pare_model *model, const char *const *keep,
                                          int keep_count);

/* QLinearConv (ONNX 10) and QLinearMatMul (10) of the main graph become Conv and MatMul between
   DequantizeLinear and QuantizeLinear where scales are constant. */
PARE_NODISCARD pare_status pare_pass_expand_qlinear(pare_model *model);

/* Which weights of f32 matrix products stay in 4 or 8 bits; others become f32 constants. */
typedef enum pare_kept_weights {
    PARE_KEEP_NONE,
    PARE_KEEP_INTEGERS, /* what the CPU's kernels read */
    PARE_KEEP_ALL       /* and floats, E4M3 and MXFP4, as a GPU's do: but in bodies of control flow,
                           which the CPU interprets */
} pare_kept_weights;

/* Folds QuantizeLinear/DequantizeLinear around operators into integer nodes of domain pare. */
PARE_NODISCARD pare_status pare_pass_fold_qdq(pare_model *model, pare_kept_weights kept);

/* An integer product whose f32 result is read by a Cast to f16 or bf16 alone makes that type itself
   (FusedMatMul's `output_dtype`), and reads a residual of it before the Cast that widens it. All
   numbers stay the same. For GPUs, whose kernels do so. */
PARE_NODISCARD pare_status pare_pass_narrow_products(pare_model *model);

/* An operator that reads f16 or bf16 through Casts to f32, and whose f32 results Casts of that type
   alone read, computes in the short type; convolutions, their gradients, matrix products,
   normalizations, arithmetic and sums also where biases, vectors, constants or what they make stay
   f32. Numbers stay the same but for the order in which products and convolutions add up. For GPUs,
   whose kernels of short types sum in f32 on tensor cores and round once. */
PARE_NODISCARD pare_status pare_pass_fold_casts(pare_model *model);

/* Of a node that only moves or selects elements: does it give the same before QuantizeLinear as
   after it? Resize: nearest only. Pad: zeros only, which are the zero point. */
bool pare_node_commutes_with_q(const pare_node *node);

/* MaxPool and float FusedConv that alone read a Concat of channels work on its parts instead, where
   that moves fewer bytes. The convolutions' sums are added in another order. keep as above. */
PARE_NODISCARD pare_status pare_pass_distribute_concat(pare_model *model, const char *const *keep,
                                                       int keep_count);

/* A first convolution and the MaxPool that alone reads it become one node where the GPU's kernel
   takes them (runtime/ops/conv_pool.h). Bytes stay equal. Shapes must be known. keep as above. */
PARE_NODISCARD pare_status pare_pass_fuse_pool(pare_model *model, const char *const *keep,
                                               int keep_count);

/* A convolution over four Slices of every other pixel of one picture, joined over channels
   (YOLOv5's Focus), becomes one of twice the window and stride over the picture. Sums of floats
   have another order. Shapes must be known. keep as above. */
PARE_NODISCARD pare_status pare_pass_fuse_focus(pare_model *model, const char *const *keep,
                                                int keep_count);

/* A depthwise convolution and the pointwise one that alone reads it become one node where the GPU's
   kernel takes them and is faster (runtime/ops/depthwise_pointwise.h). The rest as above. */
PARE_NODISCARD pare_status pare_pass_fuse_depthwise(pare_model *model, const char *const *keep,
                                                    int keep_count);

/* Integer products around a softmax that makes codes become one node where the GPU's kernel takes
   them (pare_q_attention_fits). Bytes stay equal. Shapes must be known. keep as above. */
PARE_NODISCARD pare_status pare_pass_fuse_q_attention(pare_model *model, const char *const *keep,
                                                      int keep_count);

/* Chooses N, H, W, C order for rank-4 tensors between nodes that like it and inserts pare.Reorder
   at the edges; graph inputs and outputs stay row-major. */
PARE_NODISCARD pare_status pare_pass_layout(pare_model *model);

/* Reports every problem of a model that was read: undefined tensors, cycles, missing imports,
   operators outside the table, and where there are none of these, the first contradiction in types
   or shapes. A problem is one line that names node and tensor but not the file. *count: how many.
   The model is not changed. */
typedef void (*pare_check_report)(void *user, const char *problem);
PARE_NODISCARD pare_status pare_pass_check(pare_model *model, pare_check_report report, void *user,
                                           int *count);

#ifdef __cplusplus
}
#endif
#endif
