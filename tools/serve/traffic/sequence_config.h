/* SPDX-License-Identifier: Apache-2.0 */
/* Of config.pbtxt: `sequence_batching`, requests that belong together and what is kept between
   them. */
#ifndef PARE_TOOLS_SERVE_SEQUENCE_CONFIG_H
#define PARE_TOOLS_SERVE_SEQUENCE_CONFIG_H

#include "runtime/graph/graph.h"

#include <jansson.h>

/* What a model is told of a request by an input of its own. */
typedef enum pare_control_kind {
    PARE_CONTROL_START,  /* it is the sequence's first */
    PARE_CONTROL_READY,  /* it is there: always true */
    PARE_CONTROL_END,    /* it is the last */
    PARE_CONTROL_CORRID, /* the sequence's id */
    PARE_CONTROL_KINDS
} pare_control_kind;

typedef struct pare_config_control {
    const char *input;
    pare_control_kind kind;
    pare_dtype dtype;
    double value[2]; /* for false and true; CORRID has none */
} pare_config_control;

/* An output that becomes an input of the sequence's next request. */
typedef struct pare_config_state {
    const char *input, *output;
    pare_dtype dtype;
    pare_shape shape;   /* without the axis of samples where max_batch is not 0; -1: any length */
    pare_shape initial; /* of the zeros that the first request has */
} pare_config_state;

typedef struct pare_sequence_config {
    bool is_used;
    bool is_oldest; /* else direct */
    int64_t most;   /* sequences at work; 0: as many as the batches of all instances hold */
    int64_t idle;   /* microseconds after which a sequence without requests ends */
    pare_config_control *control;
    pare_config_state *state;
    int control_count, state_count;
} pare_sequence_config;

/* The same in memory of this arena. */
PARE_NODISCARD pare_status pare_sequence_config_copy(pare_arena *arena, pare_sequence_config *out,
                                                     const pare_sequence_config *from);
/* "sequence_batching" of a ModelConfig; NULL: memory is out. */
json_t *pare_sequence_config_json(const pare_sequence_config *config);
#endif
