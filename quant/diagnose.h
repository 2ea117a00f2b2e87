/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnosis: where a quantized model loses what its float model had, why, and what mends it. Both
   run on the same samples; any tool's QuantizeLinear/DequantizeLinear file will do, and one in
   FP16. */
#ifndef PARE_QUANT_DIAGNOSE_H
#define PARE_QUANT_DIAGNOSE_H

#include "quant/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is wrong, the worst first where several hold for one tensor. */
typedef enum pare_fault {
    PARE_FAULT_ZERO_SCALE,    /* a scale is 0, negative or no number */
    PARE_FAULT_WRONG_AXIS,    /* a weight's scales lie along another axis than its outputs */
    PARE_FAULT_BIAS_OVERFLOW, /* a bias is beyond int32 at its scale */
    PARE_FAULT_DEAD_CHANNEL,  /* all weights of an output became 0 */
    PARE_FAULT_SHARED_WEIGHT, /* a weight of several nodes was changed for one of them */
    PARE_FAULT_OTHER_WEIGHT,  /* a weight is not the float model's */
    PARE_FAULT_PREPROCESSING, /* the model's input is not what the ranges were made of */
    PARE_FAULT_STALE_RANGES,  /* nor are most tensors */
    PARE_FAULT_CLIPPED,       /* a range is too narrow */
    PARE_FAULT_WIDE,          /* a range is too wide */
    PARE_FAULT_OUTLIER,       /* few channels are much larger than the others */
    PARE_FAULT_F16_OVERFLOW,  /* a tensor is beyond f16 */
    PARE_FAULT_F16_UNDERFLOW, /* a tensor is below f16's normal numbers */
    PARE_FAULT_CONSTANT,      /* a tensor was one number in all samples */
    PARE_FAULT_WEIGHT,        /* rounding of weights alone */
    PARE_FAULT_ROUNDING,      /* rounding of a tensor alone */
    PARE_FAULT_COUNT
} pare_fault;

/* "zero-scale", "clipped-range", ... */
const char *pare_fault_name(pare_fault fault);

typedef struct pare_finding {
    pare_fault fault;
    const char *node, *tensor;
    const char *cause, *cure; /* sentences; cure NULL: there is none */
    double effect;            /* part of the outputs' energy that it alone makes wrong; NAN: they
                                 are no numbers any more, or it was not measured */
    double gain;  /* dB of the outputs' SQNR that the cure alone brings; NAN: not tried */
    bool applied; /* in the mended model */
} pare_finding;

/* A quantized tensor. Errors are parts of the tensor's energy on these samples. */
typedef struct pare_tensor_error {
    const char *tensor, *node; /* node: that makes it, "" of an input */
    float low, high;           /* that the file can say */
    float seen_low, seen_high;
    double clipping, rounding; /* of this tensor alone */
    double weight, bias;       /* of the node that makes it */
    double carried;            /* the rest: from the tensors before it */
    double total;              /* between the two models; NAN: no number */
    double effect;             /* of clipping and rounding, at the outputs, as of a finding */
} pare_tensor_error;

typedef struct pare_diagnosis {
    int64_t samples;
    double error, mended;  /* of the outputs, the file's and the mended model's; mended NAN: no cure
                              was asked for, or there is none */
    double exact;          /* of the file with all its numbers made float again: what is left is no
                              rounding */
    int outputs;           /* f32 outputs that are compared */
    pare_finding *finding; /* by their effect, gross faults first */
    int finding_count;
    pare_tensor_error *tensor; /* in the order of the graph */
    int tensor_count;
    const char **note;
    int note_count;
    pare_model *model; /* mended; NULL: not asked for, or nothing helps */
    pare_arena arena;
} pare_diagnosis;

/* Decibels of an error over so many outputs; INFINITY where there is none. */
double pare_diagnosis_db(double error, int outputs);

/* mend: applies cures, one after the other, where they help. Neither model changes. on: samples to
   run, up to 32 of them; its progress counts trials. PARE_INPUT: the two are not one net, or the
   second is not quantized. PARE_UNSUPPORTED: no output can be compared. */
PARE_NODISCARD pare_status pare_diagnose(pare_ctx *ctx, const pare_model *exact,
                                         const pare_model *quantized, const pare_quant_search *on,
                                         bool mend, pare_diagnosis **out);
void pare_diagnosis_free(pare_diagnosis *diagnosis);

#ifdef __cplusplus
}
#endif
#endif
