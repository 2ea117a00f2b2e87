/* SPDX-License-Identifier: Apache-2.0 */
/* The body of an inference request and of its response: JSON as the KServe protocol, version 2, has
   it, with the extension for binary tensor data, which follow the JSON. */
#ifndef PARE_TOOLS_SERVE_PROTOCOL_H
#define PARE_TOOLS_SERVE_PROTOCOL_H

#include "runtime/graph/graph.h"
#include "tools/serve/exchange.h"

/* Where a tensor is in shared memory. */
typedef struct pare_infer_place {
    const char *region; /* its name; NULL: the tensor is not there */
    int64_t offset, bytes;
} pare_infer_place;

/* A tensor of a request or a response. */
typedef struct pare_infer_tensor {
    const char *name;
    pare_dtype dtype;
    int rank;
    int64_t dim[PARE_MAX_RANK];
    const void *data; /* dense, row-major; of strings a pare_bytes each; NULL: in `place` */
    size_t bytes;     /* of data */
    pare_infer_place place;
} pare_infer_tensor;

/* An output that is asked for. */
typedef struct pare_infer_wanted {
    const char *name;
    bool binary;
    int64_t classes;        /* so many of the largest values, as text; 0: the tensor */
    pare_infer_place place; /* that it is put to, or none */
} pare_infer_wanted;

/* The sequence that a request is of. */
typedef struct pare_infer_sequence {
    const char *id;  /* NULL: none */
    bool start, end; /* it is the first, the last */
} pare_infer_sequence;

typedef struct pare_infer_request {
    const char *id; /* NULL: none */
    pare_infer_tensor *input;
    int input_count;
    pare_infer_wanted *wanted; /* (wanted_count) */
    int wanted_count;          /* 0: all outputs of the model */
    bool binary;               /* how an output comes that is not listed */
    int64_t priority;          /* 1 is served first; 0: not given */
    int64_t timeout;           /* microseconds to wait at most; 0: not given */
    pare_infer_sequence sequence;
} pare_infer_request;

/* The protocol's word for a type ("FP32"), NULL where it has none; and the other way,
   PARE_NOTYPE where there is no such word. */
const char *pare_infer_type_name(pare_dtype dtype);
pare_dtype pare_infer_type_find(const char *name);

/* Reads the first json_bytes of the body as JSON and takes binary data from the rest. Tensors that
   come as binary data are borrowed from the body, all else lives in the arena. Of tensors in shared
   memory only the place is noted. PARE_INPUT with a message that names the tensor. */
PARE_NODISCARD pare_status pare_infer_read(pare_arena *arena, pare_infer_request *out,
                                           const char *body, size_t bytes, size_t json_bytes);

/* Makes a tensor of strings of its binary data, which it borrows. what: begins a message. */
PARE_NODISCARD pare_status pare_infer_strings(pare_arena *arena, pare_infer_tensor *tensor,
                                              const char *what, const char *data, size_t bytes);

/* What a response says. */
typedef struct pare_infer_result {
    const char *model, *id; /* id NULL: none */
    int64_t version;
    const pare_infer_tensor *output;
    const pare_infer_wanted *wanted; /* of each output */
    int count;
    bool batched; /* the first axis counts samples */
    /* Puts the binary data of output i to its place in shared memory; NULL: none has one. */
    pare_status (*put)(void *user, int i, const void *data, size_t bytes);
    void *user;
} pare_infer_result;

/* Makes the reply's body, type and json_bytes. PARE_INPUT: an output holds what JSON cannot. */
PARE_NODISCARD pare_status pare_infer_write(pare_arena *arena, pare_reply *reply,
                                            const pare_infer_result *result);
#endif
