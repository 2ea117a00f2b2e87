/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX files (IR up to 13) to graphs and back, losing nothing. */
#ifndef PARE_FORMATS_ONNX_H
#define PARE_FORMATS_ONNX_H

#include "runtime/base/hash.h"
#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a model. Payloads stay in the mapped file (external ones too). Nodes keep the file's order;
   shapes of initializers are checked against their sizes, external data must be in the model's own
   folder. Names are checked (missing, duplicate); order and cycles are pare_graph_sort's. */
PARE_NODISCARD pare_status pare_onnx_read(pare_ctx *ctx, pare_model **out, const char *path);

/* The same with the files' bytes copied into the model: whatever happens to them after that, it
   stays as it is. PARE_INPUT, too, where a file changes while it is read. */
PARE_NODISCARD pare_status pare_onnx_read_copy(pare_ctx *ctx, pare_model **out, const char *path);

/* The same from memory the caller keeps until the model is freed; path is for messages and for
   finding external data (NULL: none allowed). */
PARE_NODISCARD pare_status pare_onnx_read_memory(pare_ctx *ctx, pare_model **out, const void *data,
                                                 size_t bytes, const char *path);

/* One problem of a model, in a line that names node and tensor but not the file. */
typedef void (*pare_onnx_report)(void *user, const char *problem);

/* Reads what can be read and reports every problem that pare_onnx_read would stop at, one by one.
   *out, where it is not NULL, lacks what the problems were about: it is for checking only. Damage
   that hides the rest (a cut file) is a failure as in pare_onnx_read. */
PARE_NODISCARD pare_status pare_onnx_read_all(pare_ctx *ctx, pare_model **out, const char *path,
                                              pare_onnx_report report, void *user);

typedef struct pare_onnx_write_options {
    bool external_data; /* initializers of at least 1 KiB (but not those written as typed numbers)
                           and what was external go to FILE.<hash of them>.data; needed above
                           2 GiB. The data of a model that is replaced are removed at the end. */
} pare_onnx_write_options;

/* All in one file. */
void pare_onnx_write_options_init(pare_onnx_write_options *out);

/* Writes beside and renames. A model above protobuf's 2 GiB without external_data is PARE_INPUT
   with the hint. Tensors that were external stay so only with external_data. */
PARE_NODISCARD pare_status pare_onnx_write(pare_ctx *ctx, const pare_model *model, const char *path,
                                           const pare_onnx_write_options *options);

/* Does the model (any file: where it is no model, it does not) read this external file? */
PARE_NODISCARD pare_status pare_onnx_uses(pare_ctx *ctx, const char *model, const char *file,
                                          bool *out);

/* One TensorProto in a file of its own (test vectors, input_0.pb). Lives in the arena. */
PARE_NODISCARD pare_status pare_onnx_read_tensor(pare_ctx *ctx, pare_arena *arena,
                                                 pare_tensor **out, const char *path);

/* Writes into the model's metadata what its file was made from and how: version, hash of the file
   at model->path, recipe (the options in words) and data_hash, each where there is one. No clock:
   enough to make the same file again. */
PARE_NODISCARD pare_status pare_onnx_manifest(pare_ctx *ctx, pare_model *model, const char *recipe,
                                              const char *data_hash);

/* Notes the last step of a model's making. A recipe that was there is kept before it, unless
   this one begins with it. */
PARE_NODISCARD pare_status pare_onnx_recipe(pare_model *model, const char *recipe);
/* All of them in order, "; " between them: "prune macs=0.5; int8 activations=s8 ...". NULL: the
   model has none. The text lives in the model or the arena. */
const char *pare_onnx_recipes(const pare_model *model, pare_arena *arena);

/* The file's size with every external file counted, and the hash of the file and its external
   payloads that identifies a model in manifests. text NULL: no payload is touched; bytes may be
   NULL. */
PARE_NODISCARD pare_status pare_onnx_hash(pare_ctx *ctx, const char *path, char *text,
                                          uint64_t *bytes);

/* Hash of the bytes that pare_onnx_write would write without external data (above 2 GiB, too):
   equal models in memory have equal ones. */
PARE_NODISCARD pare_status pare_onnx_content_hash(pare_ctx *ctx, const pare_model *model,
                                                  pare_hash *out);

#ifdef __cplusplus
}
#endif
#endif
