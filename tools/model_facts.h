/* SPDX-License-Identifier: Apache-2.0 */
/* What a model holds, for inspect and reports. */
#ifndef PARE_TOOLS_MODEL_FACTS_H
#define PARE_TOOLS_MODEL_FACTS_H

#include "runtime/base/types.h"
#include "runtime/graph/graph.h"

#include <jansson.h>

typedef struct pare_model_facts {
    int64_t nodes, parameters;         /* parameters: elements of initializers and Constant nodes */
    int64_t of_type[PARE_DTYPE_COUNT]; /* parameters by element type */
    double bytes;                      /* of their payloads */
    double macs;                  /* multiply-adds of one sample; negative: shapes are unknown */
    int64_t quantize, dequantize; /* QuantizeLinear, DequantizeLinear nodes */
} pare_model_facts;

/* Counts; payloads are not read. Unknown dims count as 1 for macs. */
PARE_NODISCARD pare_status pare_model_count(pare_ctx *ctx, const pare_model *model,
                                            pare_model_facts *out);

/* "int8", "fp16", "bf16", "fp32", "w4a16" (weights of 4 bits alone) ...: what most of the work is
   done in, judged by Q/DQ nodes and the types of parameters and inputs. */
const char *pare_model_precision(const pare_model_facts *facts);

/* Bytes of the file and of the files with external data beside it. */
int64_t pare_model_bytes(const pare_model *model);

/* [{name, type, shape}], symbols as text, unknown dims as "?". */
json_t *pare_values_json(const pare_values *values, bool without_initializers);
#endif
