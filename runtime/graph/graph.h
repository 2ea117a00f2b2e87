/* SPDX-License-Identifier: Apache-2.0 */
/* The graph: an ONNX model in memory. It holds everything an ONNX file can say, so that reading and
   writing lose nothing; a pass changes only what it says it changes.

   Lifetime: all of it lives in the model's arena (names, nodes, values) or is borrowed from the
   mapped file (tensor payloads). Nothing is freed alone; pare_model_free frees all. */
#ifndef PARE_RUNTIME_GRAPH_GRAPH_H
#define PARE_RUNTIME_GRAPH_GRAPH_H

#include "runtime/base/arena.h"
#include "runtime/base/types.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_model pare_model;
typedef struct pare_graph pare_graph;
typedef struct pare_node pare_node;
typedef struct pare_value pare_value;
typedef struct pare_tensor pare_tensor;

typedef struct pare_bytes {
    const void *data;
    size_t size;
} pare_bytes;

static inline bool pare_bytes_equal(pare_bytes a, pare_bytes b)
{
    return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size));
}

/* One entry of metadata_props or of a tensor's external_data. */
typedef struct pare_pair {
    const char *key, *value; /* NULL where absent */
    pare_bytes unknown;
} pare_pair;

typedef struct pare_pairs {
    pare_pair *item;
    int count;
} pare_pairs;

/* A shape. rank -1: unknown. A dim of -1 is unknown; name is its symbol ("batch") or NULL. */
typedef struct pare_shape {
    int rank;
    int64_t dim[PARE_MAX_RANK];
    const char *name[PARE_MAX_RANK];
} pare_shape;

/* How the tensor's payload is written in the file; kept so that a copy is written the same way. */
typedef enum pare_encoding { PARE_RAW, PARE_TYPED, PARE_EXTERNAL } pare_encoding;

/* A constant tensor. data is row-major little-endian, packed for 4-bit types; for strings it is an
   array of pare_bytes. Up to 1 MiB data is aligned for its type; a larger payload is in the
   file's map at any address, so who computes with it copies it first or reads it by memcpy. */
struct pare_tensor {
    const char *name, *doc; /* doc NULL where absent */
    pare_dtype dtype;
    int rank;
    const int64_t *dims;
    int64_t count; /* product of dims */
    const void *data;
    size_t bytes;
    pare_encoding encoding;
    pare_pairs external; /* as in the file: location, offset, length, checksum */
    pare_pairs meta;
    pare_bytes unknown; /* fields this version does not know, as encoded */
    /* formats/onnx only; holds while data is read_data, that is as long as no one changed it */
    const void *read_data;
    const pare_bytes
        *typed; /* PARE_TYPED: the numbers as encoded in the file, typed_count pieces */
    int typed_count;
    unsigned present;
    bool mapped; /* read_data is in the map of a file */
};

/* Kinds of attributes; values are ONNX's AttributeProto.AttributeType. */
typedef enum pare_attr_kind {
    PARE_ATTR_FLOAT = 1,
    PARE_ATTR_INT,
    PARE_ATTR_STRING,
    PARE_ATTR_TENSOR,
    PARE_ATTR_GRAPH,
    PARE_ATTR_FLOATS,
    PARE_ATTR_INTS,
    PARE_ATTR_STRINGS,
    PARE_ATTR_TENSORS,
    PARE_ATTR_GRAPHS,
    PARE_ATTR_SPARSE_TENSOR,
    PARE_ATTR_SPARSE_TENSORS,
    PARE_ATTR_TYPE_PROTO,
    PARE_ATTR_TYPE_PROTOS
} pare_attr_kind;

typedef struct pare_attr {
    const char *name, *doc, *ref; /* doc, ref (ref_attr_name) NULL where absent */
    pare_attr_kind kind;
    int count; /* of the list kinds */
    union {
        float f;
        int64_t i;
        pare_bytes s;
        pare_tensor *tensor;
        pare_graph *graph;
        const float *floats;
        const int64_t *ints;
        const pare_bytes *strings;
        pare_tensor **tensors;
        pare_graph **graphs;
        const pare_bytes
            *raw; /* sparse tensors and type protos: count encoded messages (1 for single) */
    };
    pare_bytes unknown;
    unsigned present; /* formats/onnx only */
} pare_attr;

struct pare_node {
    const char *name, *op_type,
        *domain;                /* never NULL; "" where absent; domain "ai.onnx" reads as "" */
    const char *overload, *doc; /* NULL where absent */
    pare_value **in, **out;     /* NULL entries: absent optional ones */
    int in_count, out_count;
    pare_attr *attr;
    int attr_count;
    pare_pairs meta;
    pare_bytes unknown;
    unsigned present; /* which optional fields the file had (formats/onnx only) */
    int mark;         /* scratch of whoever walks the graph; means nothing between walks */
    int64_t opset; /* the opset it is written for where that is not the model's, else 0: a node of
                      a function with an import of its own, until the model is lifted */
    pare_graph *graph;
};

/* A tensor's place in the graph: input, initializer, or a node's output. */
struct pare_value {
    const char *name;
    pare_dtype dtype; /* PARE_NOTYPE: unknown, or not a tensor (then origin says what) */
    pare_shape shape;
    pare_node *producer;     /* NULL for inputs and initializers */
    const pare_tensor *data; /* constant content: an initializer, or folded; else NULL */
    pare_graph *graph;       /* where it is defined */
    pare_node **user;        /* nodes that read it, once per use, subgraphs' nodes among them */
    int user_count;
    size_t user_capacity;
    bool is_input, is_output, is_init;
    bool inferred; /* what a body is given or a loop makes: the shape is not the file's, inference
                      found it and may find another one */
    bool asked;    /* runtime: a shape rule wanted its content, which is not constant */
    bool nhwc;     /* runtime: a rank-4 tensor whose memory order is N, H, W, C */
    int mark;      /* scratch of whoever walks the graph; means nothing between walks */
    pare_bytes origin; /* its ValueInfoProto as read; emptied when type or shape are changed */
};

typedef struct pare_values {
    pare_value **item;
    int count;
    size_t capacity;
} pare_values;

/* A ValueInfoProto that differs from its value's origin: one more mention of the same tensor, as of
   an outer one that a subgraph returns. formats/onnx only. */
typedef struct pare_mention {
    const pare_values *list; /* of this graph: in, out or info */
    int index;               /* in it, as read */
    const char *name;
    pare_bytes origin;
} pare_mention;

struct pare_graph {
    pare_model *model;
    pare_graph *parent; /* of a subgraph (If, Loop bodies): the graph around it */
    const char *name, *doc;
    pare_node **node; /* in the file's order */
    int node_count;
    size_t node_capacity;
    pare_values in, out, init,
        info; /* each in the file's order; an older file lists init in in, too */
    pare_bytes *quantization_annotation, *sparse_init; /* encoded messages, kept */
    int quantization_annotation_count, sparse_init_count;
    pare_mention *mention;
    int mention_count;
    pare_pairs meta;
    pare_bytes unknown;
    unsigned present;
    struct pare_name_slot *slot; /* name -> value */
    size_t slot_count, name_count;
};

typedef struct pare_opset {
    const char *domain; /* never NULL; "ai.onnx" reads as "" */
    int64_t version;
    pare_bytes unknown;
    unsigned present; /* formats/onnx only */
} pare_opset;

struct pare_model {
    pare_ctx *ctx;
    pare_arena arena;
    const char *path; /* the file it came from; messages begin with it; never NULL */
    int64_t ir_version, model_version;
    const char *producer_name, *producer_version, *domain, *doc; /* NULL where absent */
    pare_opset *opset;
    int opset_count;
    pare_pairs meta;
    pare_bytes *function, *training_info; /* encoded messages, kept */
    int function_count, training_info_count;
    pare_bytes unknown;
    unsigned present;
    pare_graph *graph;
    pare_model *borrows;     /* a clone: the model whose strings and payloads it uses */
    int *references;         /* shared by a model and its clones */
    void (*release)(void *); /* unmaps files when the last of them goes; or NULL */
    void *release_user;
};

/* --- models --- */

/* An empty model with an empty main graph. */
PARE_NODISCARD pare_status pare_model_new(pare_ctx *ctx, pare_model **out, const char *path);
void pare_model_free(pare_model *model);

/* A copy whose nodes, values and lists may be edited freely; strings, attributes' lists and
   payloads are shared with the original, which may be freed before it. */
PARE_NODISCARD pare_status pare_model_clone(pare_ctx *ctx, pare_model **out,
                                            const pare_model *model);

/* The newest opset of ONNX that is known; a model of a newer one is read with a warning. */
enum { PARE_NEWEST_OPSET = 25 };

/* The version imported for a domain ("" is ONNX's own), 0 where it is not imported. */
int64_t pare_model_opset(const pare_model *model, const char *domain);
PARE_NODISCARD pare_status pare_model_set_opset(pare_model *model, const char *domain,
                                                int64_t version);
/* Raises the IR version to the one that came with the model's opset (ONNX's Versioning.md). */
void pare_model_raise_ir(pare_model *model);
/* Sets or replaces an entry of metadata_props; both texts are copied. */
PARE_NODISCARD pare_status pare_model_set_meta(pare_model *model, const char *key,
                                               const char *value);

/* An empty graph for an attribute of a node in parent. */
PARE_NODISCARD pare_status pare_graph_new(pare_model *model, pare_graph **out, pare_graph *parent);

/* --- looking --- */

/* The value of this name in this graph or, failing that, in the graphs around it; or NULL. */
pare_value *pare_graph_find(const pare_graph *graph, const char *name);
/* The same, this graph only. */
pare_value *pare_graph_find_own(const pare_graph *graph, const char *name);

const pare_attr *pare_node_attr(const pare_node *node, const char *name); /* or NULL */
int64_t pare_node_int(const pare_node *node, const char *name, int64_t missing);
/* The attribute axis of a tensor of this rank, counted from the front; it is not checked. */
int pare_node_axis(const pare_node *node, int64_t missing, int rank);
float pare_node_float(const pare_node *node, const char *name, float missing);
/* The ints and their count; NULL and 0 where the attribute is missing. */
const int64_t *pare_node_ints(const pare_node *node, const char *name, int *count);
/* A NUL-terminated string in the model's arena, or missing. */
const char *pare_node_string(const pare_node *node, const char *name, const char *missing);

bool pare_node_is(const pare_node *node, const char *op_type); /* in ONNX's own domain */
pare_value *pare_node_in(const pare_node *node, int i);        /* NULL where absent */
bool pare_node_has_graphs(const pare_node *node);              /* among its attributes */

/* "model.onnx: node 'conv1' (Conv)" for messages; text is the caller's. Unnamed nodes are called by
   their first output. */
const char *pare_node_title(const pare_node *node, char *text, size_t size);

/* Fails with "file: node 'name' (Op): ..." */
pare_status pare_fail_node(const pare_node *node, pare_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define PARE_FAIL_NODE(node, code, ...) pare_fail_node((node), PARE_##code, __VA_ARGS__)
/* The same into a context other than that of the node's model: of one of several that run it. */
pare_status pare_fail_node_in(pare_ctx *ctx, const pare_node *node, pare_status status,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The one non-constant user of a value that is not a graph output, else NULL. */
pare_node *pare_value_only_user(const pare_value *value);

/* Shapes: element count, -1 where unknown; equality of ranks and dims (names ignored). */
int64_t pare_shape_count(const pare_shape *shape);
bool pare_shape_equal(const pare_shape *a, const pare_shape *b);
bool pare_shape_known(const pare_shape *shape);
/* "[batch,3,224,224]", "?" for unknown; returns text. */
const char *pare_shape_text(const pare_shape *shape, char *text, size_t size);

/* --- editing --- */

/* A new value of this name; fails with PARE_INPUT where this graph has it already. */
PARE_NODISCARD pare_status pare_value_new(pare_graph *graph, pare_value **out, const char *name);

/* A name no value of the model has: base, else base_1, base_2, ... NULL with the message set. */
const char *pare_graph_fresh_name(pare_graph *graph, const char *base);

/* A new node, inserted before position at (node_count: last); in and out are copied; out values get
   it as producer. name is copied. */
PARE_NODISCARD pare_status pare_node_new(pare_graph *graph, pare_node **out, int at,
                                         const char *op_type, const char *domain, const char *name,
                                         pare_value *const *in, int in_count,
                                         pare_value *const *outputs, int out_count);

/* Position of a node in its graph, or -1. */
int pare_node_index(const pare_node *node);

/* Takes the node out of its graph (uses dropped, outputs lose their producer). */
void pare_node_remove(pare_node *node);

/* Replaces input i (value may be NULL), growing the list where i is the next one. */
PARE_NODISCARD pare_status pare_node_set_in(pare_node *node, int i, pare_value *value);
/* Makes a value the node's output i: its old producer, if any, must be gone. */
void pare_node_set_out(pare_node *node, int i, pare_value *value);

/* Gives a value another name, which its graph does not have. */
PARE_NODISCARD pare_status pare_value_rename(pare_value *value, const char *name);
/* Moves a value, under this name, into the names of another graph. Lists of both graphs stay. */
PARE_NODISCARD pare_status pare_value_move(pare_value *value, pare_graph *to, const char *name);

/* Every user of old (and the graph outputs, where outputs is true) reads fresh from now on. */
PARE_NODISCARD pare_status pare_value_replace(pare_value *old, pare_value *fresh, bool outputs);

/* Sets or replaces an attribute; lists are copied. */
PARE_NODISCARD pare_status pare_node_set_attr(pare_node *node, const pare_attr *attr);
PARE_NODISCARD pare_status pare_node_set_int(pare_node *node, const char *name, int64_t i);
PARE_NODISCARD pare_status pare_node_set_float(pare_node *node, const char *name, float f);
PARE_NODISCARD pare_status pare_node_set_ints(pare_node *node, const char *name,
                                              const int64_t *ints, int count);
PARE_NODISCARD pare_status pare_node_set_string(pare_node *node, const char *name,
                                                const char *text);
void pare_node_remove_attr(pare_node *node, const char *name);

/* A constant: a tensor in the model's arena (data copied), and an initializer that holds one. */
PARE_NODISCARD pare_status pare_tensor_new(pare_model *model, pare_tensor **out, const char *name,
                                           pare_dtype dtype, int rank, const int64_t *dims,
                                           const void *data);
PARE_NODISCARD pare_status pare_init_new(pare_graph *graph, pare_value **out, const char *name,
                                         pare_dtype dtype, int rank, const int64_t *dims,
                                         const void *data);
/* Its data leaves the process' memory until it is read again, where a file's map holds it and it is
   large. */
void pare_tensor_give_back(const pare_tensor *tensor);
/* Gives a value constant content and makes it an initializer (its producer must be gone). */
PARE_NODISCARD pare_status pare_value_set_init(pare_value *value, const pare_tensor *data);
/* An initializer nothing reads any more leaves the graph. */
void pare_init_remove(pare_value *value);
/* An initializer of an input, which is its default (ONNX IR 3), becomes an input without one. */
void pare_init_to_input(pare_value *value);

/* Sets type and shape (shape NULL: unknown) and forgets the text in the file. */
void pare_value_set_type(pare_value *value, pare_dtype dtype, const pare_shape *shape);

PARE_NODISCARD pare_status pare_values_add(pare_graph *graph, pare_values *list, pare_value *value);
void pare_values_remove(pare_values *list, const pare_value *value);

/* --- whole-graph helpers --- */

/* Puts nodes in topological order, stable (a sorted graph stays as it is); fails naming a node on a
   cycle or one that reads an undefined value. Subgraphs too. */
PARE_NODISCARD pare_status pare_graph_sort(pare_graph *graph);

/* Removes nodes whose outputs nothing reads, then initializers and value_info nothing reads.
   Graph inputs and outputs stay. Returns how many nodes went. */
int pare_graph_sweep(pare_graph *graph);

/* Takes out of the inputs what is an initializer, too (IR versions before 4 listed both). */
void pare_graph_clear_inputs(pare_graph *graph);

/* Calls fn for the graph and every subgraph in its attributes, outer first. */
PARE_NODISCARD pare_status pare_graph_each(pare_graph *graph,
                                           pare_status (*fn)(pare_graph *graph, void *user),
                                           void *user);

/* scope.c: the value of this name in the graph or, failing that, in a body inside it; or NULL. */
pare_value *pare_graph_find_any(pare_graph *graph, const char *name);
/* The nodes of the graph and of all bodies inside it, outer first; *out is in the arena. */
PARE_NODISCARD pare_status pare_graph_all_nodes(pare_graph *graph, pare_arena *arena,
                                                pare_node ***out, int *count);
/* pare_graph_sweep of the bodies, inner ones first, then of the graph. */
PARE_NODISCARD pare_status pare_graph_sweep_all(pare_graph *graph);
/* A node's name (else its first output's) after those of the nodes and attributes around it:
   "loop_1/body/conv_3"; in the main graph the name alone. In the model's arena; NULL: no memory. */
const char *pare_node_path(const pare_node *node);
/* Tensors of bodies whose name another graph of the model defines, too, get the path of their body
   before it: "if_1/then_branch/h". ONNX lets the branches of an If use the same names. */
PARE_NODISCARD pare_status pare_graph_name_apart(pare_graph *graph);
/* Of nodes of one graph that share a name, all but the first get a number behind it, in the graph
   and in its bodies: ONNX Runtime refuses equal names. */
PARE_NODISCARD pare_status pare_graph_name_nodes_apart(pare_graph *graph);

/* Do both say the same, names of tensors and graphs among it? A node: names of its inputs, not what
   these hold. A tensor: name, type, shape and content. */
bool pare_attr_equal(const pare_attr *a, const pare_attr *b);
bool pare_node_equal(const pare_node *a, const pare_node *b);
bool pare_tensor_equal(const pare_tensor *a, const pare_tensor *b);

/* NULL where both models say the same (order, names, attributes, payloads), else the first
   difference in words, in text. */
const char *pare_model_compare(const pare_model *a, const pare_model *b, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
