/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the scheme (which tensors and weights become int8, with
   which scales) that placement fills in and writing turns into Q/DQ nodes. */
#ifndef PARE_QUANT_INTERNAL_H
#define PARE_QUANT_INTERNAL_H

#include "quant/diagnose.h"
#include "quant/quant.h"
#include "quant/target.h"
#include "runtime/base/hash.h"
#include "runtime/base/ptr_map.h"
#include "runtime/ops/ops.h"

#include <string.h>

/* --- quantize.c: --skip and --only --- */

/* The nodes of the model and of all bodies in it, and which of them may be quantized. A pattern
   without a match is PARE_USAGE and lists names that are near. */
typedef struct pare_quant_nodes {
    pare_node **item;
    int count;
    bool *chosen;                         /* (count) */
    const char *const *keep;              /* (count) why a node stays float, or NULL; NULL: none */
    const char *const *float_for_latency; /* the same for its latency */
    pare_ptr_map at;                      /* node -> place */
} pare_quant_nodes;

PARE_NODISCARD pare_status pare_quant_select(pare_model *model, pare_arena *arena,
                                             const pare_quant_options *options,
                                             pare_quant_nodes *out);
/* Why a node stays float although it is chosen, for its accuracy or its latency; or NULL. */
const char *pare_quant_kept(const pare_quant_nodes *nodes, const pare_node *node);
const char *pare_quant_float_for_latency(const pare_quant_nodes *nodes, const pare_node *node);
/* Of a node that is not in the list: false. */
bool pare_quant_chosen(const pare_quant_nodes *nodes, const pare_node *node);
/* The name that notes give a node: its path, else "?" where memory is out. */
const char *pare_quant_node_name(const pare_node *node);

/* --- scheme: filled by place.c and scales.c, written by emit.c --- */

/* A float tensor that gets a Q/DQ pair. */
typedef struct pare_quant_point {
    pare_value *value;
    bool everyone; /* all its users read the pair; else those of its pare_quant_use entries */
    int group;     /* first point of those that share scale and zero point */
    bool unknown;  /* nothing is known of its range: it cannot become int8 */
    bool balanced; /* a range that begins below 0 gets the zero point in the middle */
    float low, high, scale;
    int zero;
    const float *divided; /* per channel: what the tensor was divided by to equalize it; or NULL */
} pare_quant_point;

typedef struct pare_quant_use {
    pare_node *node;
    int input, point;
} pare_quant_use;

/* A weighted node that becomes int8. */
typedef struct pare_quant_job {
    pare_node *node;
    pare_weighted part;
    int x;                /* its input's point */
    const float *divided; /* (output channels) what equalization divided its output by; or NULL */
} pare_quant_job;

/* QuantizeLinear, DequantizeLinear; node may be NULL. */
static inline bool pare_quant_is_q(const pare_node *node)
{
    return node && !strcmp(node->op_type, "QuantizeLinear");
}
static inline bool pare_quant_is_dq(const pare_node *node)
{
    return node && !strcmp(node->op_type, "DequantizeLinear");
}

static inline int pare_quant_weight_bits(const pare_quant_options *o)
{
    return o->weight_bits == 4 ? 4 : 8;
}

/* Iterations of AdaRound; 0: another rounding. */
static inline int pare_quant_iterations(const pare_quant_options *o)
{
    if (o->rounding != PARE_ROUNDING_ADAROUND) return 0;
    return o->iterations > 0 ? o->iterations : PARE_QUANT_ITERATIONS;
}

/* How the elements of a weight meet outputs and the input's channels: (outputs, inputs, taps), the
   first two in either order; inputs are those of a group. */
typedef struct pare_quant_layout {
    int64_t outputs, inputs, taps, groups;
    bool inputs_first;
} pare_quant_layout;

/* What equalization does to a weight that one node reads. It is done where the weight is read: all
   of a model's weights at once would take their size again. */
typedef struct pare_quant_rescale {
    const float *divide; /* what each channel along `axis` is divided by, or NULL */
    int axis;
    const float *multiply; /* what is taken of each input channel, or NULL; by `layout` */
    pare_quant_layout layout;
} pare_quant_rescale;

typedef struct pare_quant_inputs pare_quant_inputs;
typedef struct pare_quant_biases pare_quant_biases;

typedef struct pare_quant_scheme {
    pare_ctx *ctx;
    pare_model *model;
    pare_graph *graph;
    pare_arena *arena; /* dies with the call */
    const pare_ranges *ranges;
    const pare_quant_options *options;
    pare_quant_facts *facts;
    pare_quant_inputs *inputs; /* by which weights are rounded; NULL: to the nearest */
    pare_quant_biases *biases; /* what they are corrected by, layer after layer; NULL: weights */
    pare_hash shifts;          /* of the bias corrections made, order-free */
    int corrected;             /* biases */
    int equalized;             /* points */
    pare_quant_rescale *rescale;
    int rescale_count;
    size_t rescale_capacity;
    pare_ptr_map rescale_at; /* value -> its place */
    pare_quant_nodes nodes;  /* before anything is inserted */
    pare_ptr_map point_at;
    pare_ptr_map unknown; /* values without statistics, which stay float -> 1 */
    pare_quant_point *point;
    int point_count;
    size_t point_capacity;
    pare_quant_use *use;
    int use_count;
    size_t use_capacity;
    pare_quant_job *job;
    int job_count;
    size_t job_capacity;
    pare_node **weight_only; /* their constant weights become int8, their inputs stay float */
    int weight_only_count;
    size_t weight_only_capacity;
} pare_quant_scheme;

enum { PARE_QUANT_WEIGHT_FIRST = 1, PARE_QUANT_WEIGHT_LAST = 2, PARE_QUANT_WEIGHT_AXIS = 1 };

/* place.c: which tensors. */
PARE_NODISCARD pare_status pare_quant_place(pare_quant_scheme *s);

int pare_quant_point_find(const pare_quant_scheme *s, const pare_value *value);
/* The job of this node, or NULL. */
pare_quant_job *pare_quant_job_of(pare_quant_scheme *s, const pare_node *node);
/* The addition of a constant after a weighted node that only it reads, or NULL. */
pare_node *pare_quant_bias_node(const pare_node *node);

/* scales.c: a range per point, or `unknown` where calibration saw nothing of it; whether one scale
 * may serve two; scales and zero points per group.
 */
PARE_NODISCARD pare_status pare_quant_choose_ranges(pare_quant_scheme *s);
/* What the options' rule chooses for each tensor of the table: (pare_ranges_count), the caller's.
 */
PARE_NODISCARD pare_status pare_quant_rule(pare_ctx *ctx, const pare_ranges *ranges,
                                           const pare_quant_options *options, pare_range **out);
bool pare_quant_spans_agree(const pare_quant_scheme *s, int a, int b);
PARE_NODISCARD pare_status pare_quant_scales(pare_quant_scheme *s);

/* emit.c: the scheme into the graph. */
PARE_NODISCARD pare_status pare_quant_emit(pare_quant_scheme *s);

/* What dequantizes one tensor, a value in each graph that reads it. */
typedef struct pare_quant_views {
    pare_value **item;
    int count;
    size_t capacity;
} pare_quant_views;

/* The one of this graph, or NULL. */
pare_value *pare_quant_view_in(const pare_quant_views *views, const pare_graph *graph);
PARE_NODISCARD pare_status pare_quant_view_add(pare_quant_scheme *s, pare_quant_views *views,
                                               pare_value *value);

/* weights.c: scales of a weight, one per channel of axis (axis -1: one for all), that minimise the
   squared error; then its rounding. */
typedef struct pare_quant_weight_view {
    const void *data;               /* of f32, at any address */
    int64_t outer, channels, inner; /* data is (outer, channels, inner) */
} pare_quant_weight_view;

/* Number i of an f32 payload. A large one is in the file's map, at any address. */
static inline float pare_quant_number(const void *data, int64_t i)
{
    float value;
    memcpy(&value, (const char *)data + (size_t)i * sizeof value, sizeof value);
    return value;
}

/* A convolution's weight is (M, C / group, taps...), a matrix's (K, N) or (N, K). false: another
   form (transposed convolutions, where a tap serves some positions only; weights on the left), or
   an input whose channels are not what the weight sums over. */
bool pare_quant_lay_out(const pare_quant_job *job, const pare_tensor *w, int64_t channels,
                        pare_quant_layout *out);
/* Element of tap 0 between output o and channel c of the input, which are in one group. */
static inline int64_t pare_quant_element(const pare_quant_layout *l, int64_t o, int64_t c)
{
    const int64_t i = c % l->inputs;
    return (l->inputs_first ? i * l->outputs + o : o * l->inputs + i) * l->taps;
}

/* No scale fits NaN or Inf; a weight that holds one is damaged: PARE_INPUT. The second takes the
   constant inputs of a weighted node, bias included. */
PARE_NODISCARD pare_status pare_quant_check_finite(pare_model *model, const pare_value *value,
                                                   const pare_tensor *w);
PARE_NODISCARD pare_status pare_quant_check_weights(const pare_node *node);

/* The place to note what is done to a weight, a new one where there is none. */
PARE_NODISCARD pare_status pare_quant_rescale_note(pare_quant_scheme *s, const pare_value *value,
                                                   pare_quant_rescale **out);
/* A weight (t: its content, times alpha) as equalization leaves it; *own, to be freed, holds it
   where that is something else than t's. */
PARE_NODISCARD pare_status pare_quant_weight_read(const pare_quant_scheme *s,
                                                  const pare_value *value, const pare_tensor *t,
                                                  pare_tensor *out, float **own);

/* Do pairs get f16 scales? */
static inline bool pare_quant_f16_scales(const pare_quant_options *o)
{
    return o->float_fp16 && pare_target_of(o->target)->f16_scales;
}
/* May a scale be f16: are its steps, subnormal ones included, fine enough there, and 255 levels of
   it far from its largest number? */
static inline bool pare_quant_f16_takes(float scale) { return scale >= 0x1p-20f && scale <= 64; }
/* The least f16 number that is not below such a scale. */
float pare_quant_f16_scale(float scale);

/* Beside 8 and 4 bits: codes of FP8 (E4M3). */
enum { PARE_QUANT_FP8 = 0 };
/* Levels of weights. */
static inline int pare_quant_weight_low(int bits) { return bits == 4 ? -8 : -127; }
static inline int pare_quant_weight_high(int bits) { return bits == 4 ? 7 : 127; }

pare_quant_weight_view pare_quant_weight_look(const pare_tensor *w, int axis);
PARE_NODISCARD pare_status pare_quant_weight_scales(pare_ctx *ctx, const pare_quant_weight_view *w,
                                                    int bits, float *scale);
void pare_quant_weight_round(const pare_quant_weight_view *w, const float *scale, int bits,
                             int8_t *out);

/* rounding/inputs.c: weights by what their inputs are. Opens what scheme->inputs is, flows of the
   samples through the graph as it is written and through a copy of the float one. */
PARE_NODISCARD pare_status pare_quant_inputs_open(pare_quant_scheme *s);
void pare_quant_inputs_close(pare_quant_scheme *s);
/* level: of the weight of a job, whose content w is; scale: one, or one an output. shift (outputs):
   by how much the outputs' means are then off, which is taken from a bias; NULL: it is not.
   *done false, and both untouched: a form that second moments do not serve. Jobs come in the
   graph's order. */
PARE_NODISCARD pare_status pare_quant_round_by_inputs(pare_quant_scheme *s, int job,
                                                      const pare_tensor *w, int bits,
                                                      const float *scale, int64_t scales,
                                                      int8_t *level, double *shift, bool *done);

/* correct.c: biases by what the samples show, layer after layer. Opens what scheme->biases is, a
   copy of the float graph; then, once the scheme is in the graph, corrects. */
PARE_NODISCARD pare_status pare_quant_biases_open(pare_quant_scheme *s);
void pare_quant_biases_close(pare_quant_scheme *s);
PARE_NODISCARD pare_status pare_quant_correct_biases(pare_quant_scheme *s);

/* Levels of 4 bits, two a byte, the first one low (ONNX INT4). */
void pare_quant_pack_levels(const int8_t *level, int64_t count, uint8_t *to);

/* equalize.c: with method auto, tensors between weighted layers get channels of nearer ranges; the
   range is set again. */
PARE_NODISCARD pare_status pare_quant_equalize(pare_quant_scheme *s);

/* emit_weight.c */
PARE_NODISCARD pare_status pare_quant_emit_weights(pare_quant_scheme *s);
/* Gives a written node that takes a bias and has none this one: f32 (outputs), of its grid; s32
   where the target wants that. w_scale: of its weight, one or (outputs). */
PARE_NODISCARD pare_status pare_quant_add_bias(pare_quant_scheme *s, const pare_quant_job *job,
                                               const pare_tensor *bias, const pare_tensor *w_scale);

/* A constant operand's new content, of the old one's shape: in its own value where nothing else
   reads that. */
PARE_NODISCARD pare_status pare_quant_put(pare_node *node, int i, const float *data);

/* lowp.c */
PARE_NODISCARD pare_status pare_quant_to_lowp(pare_ctx *ctx, pare_model *model,
                                              const pare_ranges *ranges,
                                              const pare_quant_options *options,
                                              pare_quant_facts *facts);

/* lowp.c: what is not int8 of a model that has its pairs (options->float_fp16). */
PARE_NODISCARD pare_status pare_quant_rest_to_fp16(pare_quant_scheme *s);

/* weight_only.c */
PARE_NODISCARD pare_status pare_quant_to_weight_only(pare_ctx *ctx, pare_model *model,
                                                     const pare_quant_options *options,
                                                     pare_quant_facts *facts);

/* quantize.c: the manifest */
PARE_NODISCARD pare_status pare_quant_manifest(pare_model *model, const pare_quant_options *options,
                                               const char *ranges_hash);

/* forecast.c */
PARE_NODISCARD pare_status pare_quant_note(pare_model *model, pare_quant_facts *facts,
                                           const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* target/check.c: every byte of a constant is this one. */
bool pare_quant_all_bytes(const pare_tensor *t, uint8_t byte);
/* The DequantizeLinear of a weighted node's s32 bias whose scale is not that of its input times its
   weight's, or NULL. */
const pare_node *pare_quant_odd_bias(const pare_node *node);
/* The Relu whose only reader is this QuantizeLinear to FP8 or s4 with the zero point 0, or NULL. */
pare_node *pare_quant_lost_relu(const pare_node *q);

/* target/repair.c: a quantized model as check and repair read it: sorted, opset 13 or newer,
   constants folded but for what DequantizeLinear makes, types and shapes inferred. */
PARE_NODISCARD pare_status pare_quant_target_open(pare_model *model);

/* What people should know although all went well: what happens, and what helps. */
PARE_NODISCARD pare_status pare_quant_warn(pare_model *model, pare_quant_facts *facts,
                                           pare_fault fault, const pare_node *node,
                                           const char *tensor, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* The first output (along axis) of f32 weights w whose weights are all 0 in what was made of them
   (f32 or s8) and were not; -1: none. */
int64_t pare_quant_dead_channel(const pare_tensor *w, int axis, const pare_tensor *made);
/* Is a tensor whose largest magnitude this is below f16's normal numbers throughout? */
bool pare_quant_f16_small(double largest);
/* The largest magnitude that calibration saw of a tensor; NAN: nothing of it. */
double pare_quant_seen_largest(const pare_ranges *ranges, const char *name);
/* Does f16 take most bits of an f32 constant: is the error of its subnormal numbers 2^-6 of it? */
bool pare_quant_f16_loses(const pare_tensor *t);

/* Inserts a node at a position, named base_TYPE; node may be NULL. */
PARE_NODISCARD pare_status pare_quant_insert(pare_graph *graph, int at, pare_node **node,
                                             const char *op_type, const char *base,
                                             pare_value *const *in, int in_count, pare_value *out);
/* A new value, or constant, whose name begins with base. */
PARE_NODISCARD pare_status pare_quant_value(pare_graph *graph, pare_value **out, const char *base,
                                            const char *suffix);
PARE_NODISCARD pare_status pare_quant_constant(pare_graph *graph, pare_value **out,
                                               const char *base, const char *suffix,
                                               pare_dtype dtype, int rank, const int64_t *dims,
                                               const void *data);

#endif
