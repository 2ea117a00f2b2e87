/* SPDX-License-Identifier: Apache-2.0 */
/* Structured pruning: what can be removed from a model, what that saves, and the removal.

   Words. A channel axis (pare_channel_axis; fields and arguments `slot`) is one axis of one tensor.
   An index along it is a channel (pare_channel). Channels that can only be removed together are
   coupled channels, a coupled set (pare_coupled_channels): one output channel of a convolution with
   its bias, its BatchNormalization's four numbers and the slice of the next weight that reads it,
   or one attention head. Coupled channels on the same axes are a dependency group
   (pare_dependency_group, as in Torch-Pruning): all channels of that convolution. A pruning plan
   (pare_prune_plan) is a set of coupled channels to remove.

   Order of work: pare_prune_prepare, pare_groups_new, pare_prune_plan_new, pare_prune_plan_add ...,
   pare_prune_remove (the smaller model) or pare_prune_masked (the same numbers at the old size). */
#ifndef PARE_PRUNE_PLAN_H
#define PARE_PRUNE_PLAN_H

#include "formats/data.h"
#include "runtime/comm/comm.h"
#include "runtime/exec/exec.h"
#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pare_prunable;
struct pare_prunables;
/* The score of weight i of a layer, at least 0. */
typedef float (*pare_unstructured_score)(const struct pare_prunable *single, int64_t i,
                                         const void *user);

/* The model as pruning starts from it, in place: sorted, opset lifted to 13 where it is older,
   small constant expressions folded, Constant nodes made initializers. BatchNormalization stays.
   Names and outputs stay. PARE_INPUT for a quantized model. */
PARE_NODISCARD pare_status pare_prune_prepare(pare_ctx *ctx, pare_model *model);

/* --- what falls together --- */

/* What the channels of a slot are. */
typedef enum pare_channel_axis_role {
    PARE_AXIS_FLOWS, /* of an activation */
    PARE_AXIS_MAKES, /* of a constant: they make channels (output channels, biases, scales) */
    PARE_AXIS_READS  /* of a constant: a product sums over them; masking sets them to 0 */
} pare_channel_axis_role;

typedef struct pare_channel_axis {
    const pare_value *value; /* of the prepared model */
    int axis;
    int64_t parts; /* see pare_axis_span: 1 but for a weight of a convolution with groups, axis 1 */
    int64_t extent; /* channels: dim * parts */
    pare_channel_axis_role role;
    const pare_node *node; /* activations: what makes it; constants: what uses it first */
} pare_channel_axis;

typedef struct pare_channel {
    int32_t slot;
    int32_t index; /* below the slot's extent */
} pare_channel;

typedef struct pare_coupled_channels {
    int group;
    int part;                    /* of the group: see there */
    const pare_channel *channel; /* ascending by slot, then index */
    int channel_count;
} pare_coupled_channels;

/* Coupled sets first .. first + count - 1. parts above 1: equally many coupled sets must be removed
   of each part (channels of a convolution with groups). */
typedef struct pare_dependency_group {
    const char *name; /* the node that makes its channels, the first one in the graph */
    int first, count;
    int parts;
    const int32_t *slot; /* ascending: in order of the graph */
    int slot_count;
} pare_dependency_group;

/* Why channels stay. */
typedef struct pare_block {
    const pare_node *node; /* NULL: a graph input or output */
    const pare_value *value;
    int axis;
    const char *why; /* "computes along this axis" */
} pare_block;

typedef struct pare_groups {
    const pare_model *model; /* borrowed */
    const pare_channel_axis *slot;
    int slot_count;
    const pare_coupled_channels *coupled;
    int coupled_count;
    const pare_dependency_group *group;
    int group_count;
    const pare_block *block;
    int block_count;
    struct pare_groups_inner *inner;
} pare_groups;

typedef struct pare_groups_options {
    bool outputs; /* channels of graph outputs may be removed */
    /* What these nodes make stays (--keep); or NULL. */
    bool (*keep)(void *user, const pare_node *node);
    void *keep_user;
    /* Concrete shapes of inputs with unknown dims, for costs. Without one: batch (axis 0) 1, else
       128; 224 where these do not fit. */
    const pare_input_shape *shape;
    int shape_count;
} pare_groups_options;

/* Graph outputs keep their channels. */
void pare_groups_options_init(pare_groups_options *out);

/* The groups of a prepared model. options may be NULL. The model must outlive them, unchanged but
   for the contents of its weights. A graph where nothing can be pruned is no failure: group_count
   is 0 and blocks say why. */
PARE_NODISCARD pare_status pare_groups_new(pare_ctx *ctx, pare_groups **out,
                                           const pare_model *model,
                                           const pare_groups_options *options);
void pare_groups_free(pare_groups *groups);

/* The slot of an axis, or -1 (extent 1, unknown, not of the main graph). With parts above 1: the
   slot of a grouped convolution's weight; else the plain axis. */
int pare_groups_axis(const pare_groups *groups, const pare_value *value, int axis, int64_t parts);
/* The coupled set a channel belongs to, or -1 where it is blocked. */
int pare_groups_coupled(const pare_groups *groups, int slot, int64_t channel);
/* Why the channel stays, or NULL where it can be removed (or nothing would be gained). */
const pare_block *pare_groups_why(const pare_groups *groups, int slot, int64_t channel);
/* The shape the analysis assumed: unknown dims of inputs replaced (see options). */
PARE_NODISCARD pare_status pare_groups_shape(const pare_groups *groups, const pare_value *value,
                                             pare_shape *out);

/* --- removals and what they save --- */

typedef struct pare_prune_cost {
    double macs;   /* of Conv, ConvTranspose, Gemm, MatMul at the assumed shapes */
    double params; /* elements of floating-point initializers */
    double bytes;  /* of all initializers' payloads */
} pare_prune_cost;

typedef struct pare_prune_plan {
    const pare_groups *groups;
    bool *removed;        /* (coupled_count) */
    int64_t *kept;        /* (slot_count): channels that stay */
    pare_prune_cost cost; /* at these kept counts */
    int count;            /* coupled sets removed */
    struct pare_prune_plan_inner *inner;
} pare_prune_plan;

/* An empty one: cost is the dense model's. */
PARE_NODISCARD pare_status pare_prune_plan_new(pare_ctx *ctx, pare_prune_plan **out,
                                               const pare_groups *groups);
void pare_prune_plan_free(pare_prune_plan *removal);
/* Adds a coupled set; false, and nothing changed, where it is in already, its group would be left
   with fewer than `floor` coupled sets, one of the group's parts with none, or a slot with no
   channel. Takes time in proportion to its channels. */
bool pare_prune_plan_add(pare_prune_plan *removal, int coupled, int64_t floor);
/* Takes a coupled set out again. */
void pare_prune_plan_drop(pare_prune_plan *removal, int coupled);
/* Coupled sets removed of one part of a group. */
int64_t pare_prune_plan_of_part(const pare_prune_plan *removal, int group, int part);
/* PARE_INPUT naming the group where its parts are uneven. */
PARE_NODISCARD pare_status pare_prune_plan_check(pare_ctx *ctx, const pare_prune_plan *removal);

/* A node's multiply-adds at the kept counts; 0 for nodes without. */
double pare_prune_plan_macs(const pare_prune_plan *removal, const pare_node *node);
/* A tensor's shape at the kept counts (assumed shapes, see options). */
PARE_NODISCARD pare_status pare_prune_plan_shape(const pare_prune_plan *removal,
                                                 const pare_value *value, pare_shape *out);

/* --- models --- */

/* The dense model in which every weight that reads a removed channel is 0 there: what the smaller
   model's outputs equal. A clone of groups->model; the caller frees it, and the original later. */
PARE_NODISCARD pare_status pare_prune_masked(pare_ctx *ctx, pare_model **out,
                                             const pare_prune_plan *removal);

/* The smaller model: initializers sliced, extents in attributes and constants rewritten, shapes
   inferred again and checked against the kept counts; names stay. A clone as above. */
PARE_NODISCARD pare_status pare_prune_remove(pare_ctx *ctx, pare_model **out,
                                             const pare_prune_plan *removal);

/* --- in steps --- */

/* The sparsity that step 1 .. steps comes to, from `before`: s + (s0 - s) (1 - t / n)^3 (Zhu, Gupta
   2017, "To prune, or not to prune", arXiv 1710.01878). The last comes to `goal`; from above it
   there is one way only, and every step is the goal. */
double pare_prune_sparsity_at(double before, double goal, int64_t step, int64_t steps);
/* The cost that step 1 .. steps comes to, by equal factors; the last to `goal`. */
double pare_prune_cost_at(double before, double goal, int64_t step, int64_t steps);

/* The part of the weights that single-weight pruning counts (see there) that is 0 in a prepared
   model. */
PARE_NODISCARD pare_status pare_prune_sparsity(pare_ctx *ctx, pare_model *model, double *out);

/* The smaller model of the removal was trained: its weights become those of the removal's own
   model, in place, whose weights that read a removed channel are then 0. */
PARE_NODISCARD pare_status pare_prune_put_back(const pare_prune_plan *removal,
                                               const pare_model *smaller);

/* --- scores: how much a channel or a weight matters --- */

/* Those of scores.inc:
   L1          sum of |w| over the coupled set's weights; of single weights |w|
   L2          root of the sum of w^2; of single weights the same order as L1
   TAYLOR      mean |sum of w * dloss/dw|: what removal changes the loss by
   BN          sum of |scale| of BatchNormalization; channels only
   FPGM        sum of distances to the filters of the same part of the group; channels only
   ACTIVATION  what removal changes the readers' results by; of single weights |w| times the root
               mean square of the input it multiplies
   RANDOM      by the seed
   BEST is ACTIVATION of channels with data, L2 without; of single weights second order with data.
 */
typedef enum pare_score {
    PARE_SCORE_BEST,
#define PARE_SCORE(id, name, needs, weights, channels) PARE_SCORE_##id,
#include "prune/scores.inc"
#undef PARE_SCORE
    PARE_SCORE_COUNT
} pare_score;

typedef enum pare_score_needs {
    PARE_SCORE_NEEDS_WEIGHTS,
    PARE_SCORE_NEEDS_DATA,     /* samples that are run */
    PARE_SCORE_NEEDS_GRADIENTS /* samples and a classifier's loss */
} pare_score_needs;

/* What scores are measured on. */
typedef struct pare_score_data {
    pare_data *data;
    const int64_t *samples;
    int64_t sample_count;
    int threads;
    pare_device *device;
    pare_comm *comm; /* processes that share the samples, each with the same ones; NULL: one */
    bool refits;     /* what stays will be refitted */
    void (*progress)(void *user, int64_t done, int64_t all); /* groups; or NULL */
    void *progress_user;
} pare_score_data;

typedef struct pare_score_request {
    const pare_groups *groups;
    const pare_prune_plan *removal; /* ACTIVATION: gone already, without a score; or NULL */
    const pare_score_data *data;    /* or NULL */
    uint64_t seed;                  /* of RANDOM */
} pare_score_request;

/* One row of scores.inc. */
typedef struct pare_score_row {
    const char *name;
    pare_score_needs needs;
    /* Scores of single weights (private to prune/); NULL: this score ranks channels alone. */
    pare_status (*weights)(struct pare_prunables *all, pare_unstructured_score *score,
                           const void **user);
    pare_status (*channels)(pare_ctx *ctx, double *score, const pare_score_request *request);
} pare_score_row;

extern const pare_score_row pare_scores[PARE_SCORE_COUNT];
/* "|l1|l2|...": the names, without BEST. */
extern const char pare_score_names[];
/* The row of a name, or NULL. */
const pare_score_row *pare_score_find(const char *name);
/* What BEST means for channels; another score is itself. */
pare_score pare_score_of_channels(pare_score score, bool has_data);

/* score: (coupled_count of the groups), the least go first. PARE_USAGE: a score that needs data
   without them; PARE_INPUT: weights that are not finite, a group that the score does not fit. */
PARE_NODISCARD pare_status pare_score_channels(pare_ctx *ctx, double *score, pare_score kind,
                                               const pare_score_request *request);

/* --- single weights --- */

/* What became of one weight. */
typedef struct pare_unstructured_layer {
    const char *node, *weight;
    int64_t count, zeros;
    const char *note; /* why it stays dense, or was not refitted; NULL */
    bool refitted;
    double error; /* refitted: squared error of its result on held-out samples, as a part of the
                     result's variance; else negative */
    double masked, fitted; /* squared error on a held-out fifth as a part of the variance there, of
                              weights from the other samples: the dense ones that stay with means
                              corrected, and what was chosen; negative: not asked */
    double ridge;          /* refitted: of the mean diagonal */
    double
        csr; /* bytes as f32 values, their columns (2 bytes below 65,536, else 4) and row starts */
} pare_unstructured_layer;

typedef struct pare_unstructured_facts {
    pare_unstructured_layer *layer; /* in the model's arena */
    int layer_count;
    int64_t count, zeros;           /* of all weights counted */
    char data_hash[33];             /* of the samples seen; "": none */
    int reordered;                  /* N:M: groups of channels that were put into another order, */
    double kept_before, kept_after; /* and what N:M keeps of |w| in layers that read such groups */
} pare_unstructured_facts;

typedef struct pare_unstructured_options {
    double sparsity;  /* part of the weights of Conv, ConvTranspose, Gemm, MatMul that become 0 */
    int n, m;         /* m > 0: N:M in place of that: of M input channels side by side N stay */
    pare_score score; /* BEST: second order where data are given, else by magnitude */
    bool fixed_order; /* N:M: channels stay in their order */
    bool per_layer;   /* the sparsity in each layer; else over all */
    bool (*keep)(void *user, const pare_node *node); /* nodes whose weights stay; or NULL */
    void *keep_user;
    pare_data *data; /* NULL: by the weights alone */
    const int64_t *samples;
    int64_t sample_count;
    int threads;
    pare_device *device;
    pare_comm *comm; /* see pare_score_data */
    uint64_t seed;   /* of RANDOM */
    bool refit;      /* with data: what stays is fitted to the dense model's results */
    int64_t steps;   /* to the sparsity, see pare_prune_sparsity_at; 0: one */
    /* Trains what is left after step 1 .. steps, in place; kept: part of the weights that is not 0.
       NULL: nothing is trained. */
    pare_status (*train)(void *user, const pare_model *dense, pare_model *model, int64_t step,
                         double kept);
    void *train_user;
    /* A step's pruning begins (what: "prune", of unit "layers"), moves on, ends (NULL, NULL). */
    void (*phase)(void *user, const char *what, const char *unit);
    void (*progress)(void *user, int64_t done, int64_t all); /* layers; or NULL */
    void *progress_user;
} pare_unstructured_options;

/* No sparsity, over all layers, without data; the CPU. */
void pare_unstructured_options_init(pare_unstructured_options *out);

/* Prunes single weights of a prepared model in place. Without refit every weight that stays keeps
   its bits; with it BatchNormalization is folded into what is before it, biases may be added.
   PARE_INPUT: nothing to prune, data that do not fit. */
PARE_NODISCARD pare_status pare_prune_unstructured(pare_ctx *ctx, pare_model *model,
                                                   const pare_unstructured_options *options,
                                                   pare_unstructured_facts *facts);

/* Refit without training: after channels were removed the weights that stay are fitted to what the
   dense model computes, layer after layer from the input. */

/* Makes a prepared model one that can be refitted, before its groups are found: BatchNormalization
   is folded into what is before it, and every layer gets a bias of its own where it can take one.
   The model computes what it did. */
PARE_NODISCARD pare_status pare_refit_prepare(pare_ctx *ctx, pare_model *model);

/* Fits the layers of removal->groups->model (which is changed in place: weights that read what is
   removed become 0, the others and biases what was fitted) that read something removed or changed,
   to what `reference`, the dense model prepared in the same way, computes. facts: of layers that
   changed; in the model's arena. */
PARE_NODISCARD pare_status pare_refit_run(pare_ctx *ctx, const pare_prune_plan *removal,
                                          const pare_model *reference, const pare_score_data *data,
                                          pare_unstructured_facts *facts);

#ifdef __cplusplus
}
#endif
#endif
