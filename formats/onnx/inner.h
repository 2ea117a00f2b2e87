/* SPDX-License-Identifier: Apache-2.0 */
/* What the ONNX reader's and writer's files share. Private to formats/onnx*.c. */
#ifndef PARE_FORMATS_ONNX_INNER_H
#define PARE_FORMATS_ONNX_INNER_H

#include "formats/file.h"
#include "formats/onnx.h"
#include "formats/onnx.pb-c.h"
#include "formats/wire.h"
#include "runtime/graph/graph.h"

/* --- walks over protobuf's wire form (wire.c) --- */

enum { PARE_WIRE_DEPTH = 64 }; /* messages inside messages */

/* Kinds of messages that the walks look into. */
typedef enum pare_wire_kind {
    PARE_WIRE_MODEL = 1,
    PARE_WIRE_GRAPH,
    PARE_WIRE_NODE,
    PARE_WIRE_ATTRIBUTE,
    PARE_WIRE_TENSOR,
    PARE_WIRE_SPARSE,
    PARE_WIRE_VALUE_INFO,
    PARE_WIRE_TYPE,
    PARE_WIRE_TENSOR_TYPE,
    PARE_WIRE_SHAPE,
    PARE_WIRE_FUNCTION
} pare_wire_kind;

/* Copies a message into scratch, without its payloads: each field that onnx.proto marks as cut
   becomes a pare_bytes (16 bytes) that says where it is. Lengths, nesting, and messages that may
   occur only once are checked. path is for messages. */
PARE_NODISCARD pare_status pare_wire_cut(pare_ctx *ctx, pare_arena *scratch, pare_bytes *out,
                                         pare_wire_kind kind, pare_bytes message, const char *path);

/* The way back: how long the message is with everything spliced in, and writing it; or handing it,
   byte for byte, to a hash (output NULL). */
typedef struct pare_splice {
    pare_ctx *ctx;
    pare_bytes message; /* as pare_wire_cut makes it */
    pare_wire_kind kind;
    size_t *length; /* of the inner messages, in the order they begin */
    size_t count, capacity, next;
    size_t total;        /* bytes of the whole */
    pare_hasher *hasher; /* or NULL */
} pare_splice;
PARE_NODISCARD pare_status pare_splice_measure(pare_splice *splice);
PARE_NODISCARD pare_status pare_splice_write(pare_splice *splice, pare_output *output);
void pare_splice_free(pare_splice *splice);

/* --- shared --- */

enum {
    PARE_ONNX_IR_MAX = 13,
    PARE_ONNX_MANY = 4096 /* attributes of a node, opsets of a model: far more than models have */
};

/* Bits of `present`: what the file said although it could have been left out, or left out although
   it could have been said. A model made here has none of them and is written in the usual way. */
enum {
    PARE_HAS_NAME = 1,      /* node: a name of no letters */
    PARE_HAS_OP = 2,        /* node: an op_type of no letters */
    PARE_HAS_DOMAIN = 4,    /* node, opset: a domain of no letters */
    PARE_LONG_DOMAIN = 8,   /* node, opset: written as "ai.onnx" */
    PARE_HAS_VERSION = 16,  /* model: a model_version of 0 */
    PARE_NO_VERSION = 32,   /* opset: none */
    PARE_NO_TYPE = 64,      /* attribute: its kind follows from its content */
    PARE_NO_VALUE = 128,    /* attribute: a zero or empty content is left out */
    PARE_HAS_RAW = 256,     /* tensor: raw_data although empty */
    PARE_HAS_LOCATION = 512 /* tensor: data_location although in the model */
};

/* Where a type's numbers are in a TensorProto that does not use raw_data. */
typedef enum pare_onnx_typed {
    PARE_FLOAT_DATA,
    PARE_INT32_DATA,
    PARE_INT64_DATA,
    PARE_DOUBLE_DATA,
    PARE_UINT64_DATA,
    PARE_TYPED_FIELDS
} pare_onnx_typed;
pare_onnx_typed pare_onnx_typed_of(pare_dtype dtype);

/* Maps of external files; freed with the model. */
typedef struct pare_onnx_files {
    bool is_copy; /* the maps are copies in memory */
    pare_map model;
    char *folder; /* of the model, real path; NULL: no external data */
    struct pare_onnx_file {
        char *location; /* as the model names it */
        pare_map map;
    } * file;
    size_t count, capacity;
    pare_bytes *payload; /* external tensors in the order of reading */
    size_t payload_count, payload_capacity;
    uint64_t bytes; /* of the model and everything mapped */
} pare_onnx_files;
void pare_onnx_files_free(void *files);
PARE_NODISCARD pare_status pare_onnx_files_note(pare_ctx *ctx, pare_onnx_files *files,
                                                pare_bytes payload);
/* The map of a location inside the model's folder. title begins messages. */
PARE_NODISCARD pare_status pare_onnx_files_map(pare_ctx *ctx, pare_onnx_files *files, pare_map *out,
                                               const char *location, const char *title);

/* One reading. Where report is set, problems of the model go there, one by one, and reading
   continues without what could not be understood; else the first problem ends it. */
typedef struct pare_onnx_reader {
    pare_ctx *ctx;
    const char *path;
    pare_arena *arena;  /* of the model, or the caller's */
    pare_arena scratch; /* protobuf-c's structures; gone after reading */
    ProtobufCAllocator allocator;
    pare_onnx_files *files; /* NULL: no external data */
    pare_onnx_report report;
    void *report_user;
    size_t dense_left; /* bytes that sparse tensors may still take when made dense */
    char where[300];   /* "node 'x' (Op): " while inside one, else "" */
} pare_onnx_reader;

void pare_onnx_reader_init(pare_onnx_reader *r, pare_ctx *ctx, pare_arena *arena, const char *path);
void pare_onnx_reader_free(pare_onnx_reader *r);

/* A problem of the model: fails, or reports it and returns PARE_OK. The text follows
   "file: node 'x' (Op): ". */
pare_status pare_onnx_problem(pare_onnx_reader *r, pare_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Parses an encoded message after cutting its payloads. what: for the message on failure. */
PARE_NODISCARD pare_status pare_onnx_unpack(pare_onnx_reader *r, ProtobufCMessage **out,
                                            const ProtobufCMessageDescriptor *type,
                                            pare_wire_kind kind, pare_bytes bytes);

/* Text of a field in the reader's arena; NULL where absent. A NUL inside is a problem, for it
   cannot be kept in a C string. what: "node name". */
PARE_NODISCARD pare_status pare_onnx_text(pare_onnx_reader *r, const char **out, bool present,
                                          ProtobufCBinaryData text, const char *what);
PARE_NODISCARD pare_status pare_onnx_pairs(pare_onnx_reader *r, pare_pairs *out, size_t count,
                                           Onnx__Pair *const *pair);
/* The message's unknown fields as they were encoded. */
PARE_NODISCARD pare_status pare_onnx_unknown(pare_onnx_reader *r, pare_bytes *out,
                                             const ProtobufCMessage *message);
/* The ranges that stand for cut fields. */
PARE_NODISCARD pare_status pare_onnx_ranges(pare_onnx_reader *r, pare_bytes **out, size_t count,
                                            const ProtobufCBinaryData *field);
pare_bytes pare_onnx_range(ProtobufCBinaryData field);

/* *out is NULL after a problem that was only reported. */
PARE_NODISCARD pare_status pare_onnx_tensor(pare_onnx_reader *r, pare_tensor **out,
                                            const Onnx__Tensor *message);
/* The dense form of an encoded SparseTensorProto. */
PARE_NODISCARD pare_status pare_onnx_sparse(pare_onnx_reader *r, pare_tensor **out,
                                            pare_bytes bytes);

PARE_NODISCARD pare_status pare_onnx_attr(pare_onnx_reader *r, pare_graph *graph, pare_attr *out,
                                          const Onnx__Attribute *message);
/* One writing: messages in scratch, and what goes to the external file. */
typedef struct pare_onnx_builder {
    pare_ctx *ctx;
    const pare_model *model;
    pare_arena scratch;
    char *data_path, *location; /* of external data: path and file name; NULL: all stays inside */
    const char *old_data;       /* of the model that is written over; NULL: none */
    struct pare_onnx_external {
        pare_bytes payload;
        uint64_t offset;
    } * external;
    size_t external_count, external_capacity;
    uint64_t external_bytes;
} pare_onnx_builder;
PARE_NODISCARD pare_status pare_onnx_build(pare_onnx_builder *b, Onnx__Model **out);
PARE_NODISCARD pare_status pare_onnx_build_tensor(pare_onnx_builder *b, Onnx__Tensor **out,
                                                  const pare_tensor *t, const char *name,
                                                  bool is_init);
PARE_NODISCARD pare_status pare_onnx_stand_ins(pare_onnx_builder *b, size_t *out_count,
                                               ProtobufCBinaryData **out, const pare_bytes *range,
                                               int count);
ProtobufCBinaryData pare_onnx_put_text(const char *text);

/* external.c: chooses the data file's path, its content still unknown; puts the content's hash
   into it, once all external payloads are listed. */
PARE_NODISCARD pare_status pare_onnx_external_begin(pare_onnx_builder *b, const char *path);
PARE_NODISCARD pare_status pare_onnx_external_name(pare_onnx_builder *b);
/* Neither file may take the place of one that the model read from elsewhere needs. Written over its
   own source as a whole, a model replaces what it replaces. */
PARE_NODISCARD pare_status pare_onnx_external_check(const pare_onnx_builder *b, const char *path);
/* Locks the model's folder against others that replace a model and its data, until the descriptor
   is closed; -1 where that cannot be had. */
int pare_onnx_external_lock(const char *path);
/* Finds the data file of the model that is about to be replaced; removes it after that. */
PARE_NODISCARD pare_status pare_onnx_external_old(pare_onnx_builder *b, const char *path);
void pare_onnx_external_end(const pare_onnx_builder *b);
PARE_NODISCARD pare_status pare_onnx_put_pairs(pare_onnx_builder *b, size_t *out_count,
                                               Onnx__Pair ***out, const pare_pairs *pairs);
PARE_NODISCARD pare_status pare_onnx_put_unknown(pare_onnx_builder *b, ProtobufCMessage *message,
                                                 pare_bytes unknown);

PARE_NODISCARD pare_status pare_onnx_graph(pare_onnx_reader *r, pare_graph *graph,
                                           const Onnx__Graph *message);

/* function.c: every call of one of the model's own functions becomes the function's nodes.
   Functions that nothing calls stay as they were. */
PARE_NODISCARD pare_status pare_onnx_inline_functions(pare_onnx_reader *r, pare_model *model);

#endif
