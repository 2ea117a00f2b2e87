/* SPDX-License-Identifier: Apache-2.0 */
/* distill --qat: a float student is calibrated and quantized as pare quantize does, or it came
   quantized; distill/qat.h does the rest. */
#ifndef PARE_TOOLS_DISTILL_QAT_H
#define PARE_TOOLS_DISTILL_QAT_H

#include "distill/qat.h"
#include "tools/quantize.h"

enum { PARE_QAT_FIXED, PARE_QAT_LEARNED }; /* the words of --qat-scales */

typedef struct pare_qat_options {
    int on; /* place in the words of --qat; -1: not given */
    int scales;
    int64_t samples; /* to calibrate on; -1: as many as quantize takes */
    pare_int8_options int8;
} pare_qat_options;

#define PARE_QAT_DEFAULTS                                                                          \
    {                                                                                              \
        .on = -1, .scales = PARE_QAT_LEARNED, .samples = -1, .int8 = PARE_INT8_DEFAULTS            \
    }

typedef struct pare_qat_job {
    pare_tool *tool;
    const pare_qat_options *options;
    bool came_quantized;
    pare_source_options of; /* the training's, with the samples to calibrate on: */
    pare_source source;     /* closed where nothing is calibrated */
    pare_qat *qat;          /* what is trained; NULL: no --qat */
    json_t *calibration;    /* what was calibrated on; NULL: nothing was */
} pare_qat_job;

/* Refuses options that do nothing without --qat. */
PARE_NODISCARD pare_status pare_qat_check(pare_tool *tool, const pare_qat_options *options);

/* Opens what a float student is calibrated on; to be called before the device is opened. source:
   the training's. PARE_INPUT: a quantized student without --qat. */
PARE_NODISCARD pare_status pare_qat_open(pare_tool *tool, pare_qat_job *out,
                                         const pare_model *student,
                                         const pare_source_options *source,
                                         const pare_qat_options *options);
/* Calibrates and quantizes a float student in place, and makes the graph that is trained; one that
   came quantized stays as it is. Without --qat it does nothing. */
PARE_NODISCARD pare_status pare_qat_make(pare_qat_job *qat, pare_model *student);
void pare_qat_close(pare_qat_job *qat);

/* Zeros and scales of the training; the other options stay. */
PARE_NODISCARD pare_status pare_qat_settle(const pare_qat_job *qat, pare_distill_options *training);

/* How the student was made, after the words of the quantization: recipe, of the training alone,
   becomes that of both. */
PARE_NODISCARD pare_status pare_qat_recipe(const pare_qat_job *qat, const pare_model *student,
                                           const char **recipe);

/* What is under "qat" in the facts. */
json_t *pare_qat_json(const pare_qat_job *qat, const pare_distill_options *training);
#endif
