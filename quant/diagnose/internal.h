/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share. A quantized model has parts: activations between a
   QuantizeLinear and its DequantizeLinear, and weights and biases after a DequantizeLinear. A trial
   chooses for each part what its readers read. */
#ifndef PARE_QUANT_DIAGNOSE_INTERNAL_H
#define PARE_QUANT_DIAGNOSE_INTERNAL_H

#include "calib/channels.h"
#include "calib/histogram.h"
#include "quant/diagnose.h"
#include "quant/internal.h"
#include "quant/output_error.h"

typedef enum pare_choice {
    PARE_CHOICE_FLOAT,     /* what the float model has, with the file's rescaling of channels */
    PARE_CHOICE_QUANTIZED, /* what the file has */
    PARE_CHOICE_CLIPPED,   /* activations: limited to the range, not rounded */
    PARE_CHOICE_CURED,
    PARE_CHOICES
} pare_choice;

typedef enum pare_part_kind {
    PARE_PART_ACTIVATION,
    PARE_PART_WEIGHT,
    PARE_PART_BIAS
} pare_part_kind;

/* An input of a node that reads a part. */
typedef struct pare_part_read {
    int node, input;                /* node: its place in the graph */
    const pare_tensor *exact;       /* weights and biases: its float form in f32; NULL: unknown */
    const char *name[PARE_CHOICES]; /* of the value that it reads; NULL: the file's */
} pare_part_read;

/* What the samples are in a quantized tensor. */
typedef struct pare_part_stats {
    double energy, clipping, rounding, total; /* sums of squares */
    float low, high;
    uint64_t count, clipped;
    float *largest; /* (channels) of |x| */
    int64_t channels;
    pare_histogram *histogram;
    float *exact; /* the float form's tensor in all runs; NULL: it took too much memory */
} pare_part_stats;

typedef struct pare_part {
    pare_part_kind kind;
    pare_part_read *read;
    int read_count;
    size_t read_capacity;
    int readers;              /* of the part itself; other reads are biases that were corrected */
    const pare_node *node;    /* of the master: that makes the activation (NULL: an input), or reads
                                 the weight */
    const pare_node *source;  /* activations: the weighted node whose result it is; or NULL */
    pare_value *value;        /* activations: the float tensor, after a clamp that the file left to
                                 the range; weights: the quantized constant */
    const char *name;         /* of the tensor in the file */
    pare_node *q, *dq;        /* q: activations only */
    const pare_tensor *scale; /* in f32 */
    /* activations */
    float step;
    int zero, least, most; /* levels */
    float low, high;
    pare_part_stats stats;
    /* weights and biases */
    const pare_tensor *exact, *made; /* f32: the float model's for its first reader, NULL: unknown;
                                        what the file's levels mean */
    /* measured */
    double effect, clip_effect, next_error; /* at the outputs, alone; next_error: of a weight or
                                         bias, at the next quantized tensor, sum of squares */
} pare_part;

typedef struct pare_diag {
    pare_ctx *ctx;
    pare_arena arena;
    pare_model *exact;  /* prepared */
    pare_model *master; /* the quantized model; what trials choose from is at its end */
    pare_model *folded; /* the master with its constants dequantized */
    pare_part *part;
    int count;
    size_t capacity;
    struct pare_diag_layer *layer; /* match.c */
    int layer_count;
    size_t layer_capacity;
    pare_choice *choice; /* scratch: (count) */
    pare_output_error outputs;
    const pare_quant_search *on;
    int64_t trials, done;
    double kept; /* bytes of tensors */
    bool mend;
    pare_diagnosis *out;
} pare_diag;

/* The node whose result, after functions of one tensor, the value is: a weighted one or a
   normalization; NULL: another one. */
const pare_node *pare_diag_source(const pare_value *value);

/* parts.c: the master and its parts. */
PARE_NODISCARD pare_status pare_diag_open(pare_diag *d, const pare_model *exact,
                                          const pare_model *quantized);
/* A model in which part i is read as choice[i] says. */
PARE_NODISCARD pare_status pare_diag_build(const pare_diag *d, const pare_choice *choice,
                                           pare_model **out);
/* Sets d->choice to one choice for all. */
void pare_diag_choose_all(pare_diag *d, pare_choice choice);
bool pare_diag_has(const pare_part *part, pare_choice choice);
/* A node at the master's end; *out: what it makes. */
PARE_NODISCARD pare_status pare_diag_append(pare_diag *d, const char *op_type, const char *base,
                                            pare_value *const *in, int in_count, pare_value **out);
const char *pare_diag_node_name(const pare_part *part);
const char *pare_diag_tensor_name(const pare_part *part);
PARE_NODISCARD pare_status pare_diag_note(pare_diag *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* types.c. Is it f32, f16 or bf16? */
bool pare_diag_takes(pare_dtype type);
/* The type that a reader reads in the file, one of these. */
pare_dtype pare_diag_read_type(const pare_diag *d, const pare_part_read *read);
/* A tensor's numbers in f32: itself, or a copy that lives with the master; *out NULL: the tensor is
   NULL, or not of f32, f16, bf16 or f8e8m0. */
PARE_NODISCARD pare_status pare_diag_floats(pare_diag *d, const pare_tensor *t,
                                            const pare_tensor **out);
/* An initializer of the master: an f32 tensor in f32, f16 or bf16. */
PARE_NODISCARD pare_status pare_diag_constant(pare_diag *d, const char *base, const char *suffix,
                                              pare_dtype dtype, const pare_tensor *t,
                                              pare_value **out);
/* The value in another type: itself, or a Cast of it at the master's end. */
PARE_NODISCARD pare_status pare_diag_cast(pare_diag *d, pare_value *v, pare_dtype dtype,
                                          pare_value **out);

/* match.c: what weights were in the float model. */
PARE_NODISCARD pare_status pare_diag_match(pare_diag *d);

/* measure.c: statistics of the activations and the effects of all parts. */
PARE_NODISCARD pare_status pare_diag_error(pare_diag *d, double *error); /* by d->choice */
PARE_NODISCARD pare_status pare_diag_measure(pare_diag *d);

/* findings.c */
PARE_NODISCARD pare_status pare_diag_find(pare_diag *d);

/* cure.c: gives a part what mends it (PARE_CHOICE_CURED); *words says what that is, NULL: there is
   nothing. */
PARE_NODISCARD pare_status pare_diag_cure(pare_diag *d, pare_part *part, pare_fault fault,
                                          const char **words);

/* half.c: tensors of a model in f16 that are beyond it. *is: does the model compute in f16? */
PARE_NODISCARD pare_status pare_diag_half(pare_diag *d, bool *is);
#endif
