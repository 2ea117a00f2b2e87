/* SPDX-License-Identifier: Apache-2.0 */
/* An inference request and its response: what they hold, whatever form a transport gives them, and
   their form in HTTP: JSON as the KServe protocol, version 2, has it, with the extension for binary
   tensor data, which follow the JSON. */
#ifndef PARE_TOOLS_SERVE_PROTOCOL_H
#define PARE_TOOLS_SERVE_PROTOCOL_H

#include "runtime/graph/graph.h"
#include "tools/serve/exchange.h"
#include "tools/serve/labels.h"

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
    const pare_labels *labels; /* of an output's classes; NULL: none */
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

/* The parts of reading that do not depend on the request's form; what: begins a message. NULL
   parameters: none are given. */
PARE_NODISCARD pare_status pare_infer_request_parameters(pare_arena *arena, pare_infer_request *out,
                                                         const json_t *parameters);
PARE_NODISCARD pare_status pare_infer_wanted_parameters(pare_arena *arena, pare_infer_wanted *out,
                                                        const char *what, const json_t *parameters);
PARE_NODISCARD pare_status pare_infer_place_parameters(pare_arena *arena, pare_infer_place *out,
                                                       const char *what, const json_t *parameters);
/* Makes room for so many inputs and outputs; PARE_INPUT: more than are read. */
PARE_NODISCARD pare_status pare_infer_request_lists(pare_arena *arena, pare_infer_request *out,
                                                    size_t inputs, size_t outputs);
/* The elements and bytes of the tensor's type and shape. PARE_INPUT: they are too many. */
PARE_NODISCARD pare_status pare_infer_tensor_size(pare_ctx *ctx, pare_infer_tensor *tensor,
                                                  const char *what, int64_t *count);
/* Does an integer type hold the value? */
bool pare_infer_in_range(pare_dtype dtype, int64_t value);

/* The parts of writing that do not depend on the response's form. */
int64_t pare_infer_count(const pare_infer_tensor *tensor);
/* What is sent for output i: the tensor, or its classes. PARE_INPUT: it has none. */
PARE_NODISCARD pare_status pare_infer_sent(pare_arena *arena, pare_infer_tensor *out,
                                           const pare_infer_result *result, int i);
/* Puts what is sent for output i into shared memory. */
PARE_NODISCARD pare_status pare_infer_share(pare_arena *arena, const pare_infer_result *result,
                                            int i, const pare_infer_tensor *sent, size_t *bytes);
/* Bytes of the tensor as binary data; false: more than a size_t. */
bool pare_infer_binary_bytes(const pare_infer_tensor *tensor, size_t *out);
/* Writes them and returns their end. */
char *pare_infer_binary_put(char *at, const pare_infer_tensor *tensor);

/* Makes the reply's body, type and json_bytes. PARE_INPUT: an output holds what JSON cannot. */
PARE_NODISCARD pare_status pare_infer_write(pare_arena *arena, pare_reply *reply,
                                            const pare_infer_result *result);

/* How requests are read and replies are written for a transport. */
struct pare_exchange_form {
    /* The inference request that the body holds. */
    pare_status (*read)(pare_exchange *x, pare_infer_request *out);
    /* The reply's body for a result. */
    pare_status (*write)(pare_exchange *x, const pare_infer_result *result);
    /* The reply's code and its body for an object or, where the code is not PARE_HTTP_OK, for
       {"error": message}. Takes the reference; NULL: memory is out. */
    void (*put)(pare_exchange *x, int code, json_t *json);
};
extern const pare_exchange_form pare_form_json; /* that of HTTP */
#endif
