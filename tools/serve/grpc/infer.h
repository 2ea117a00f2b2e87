/* SPDX-License-Identifier: Apache-2.0 */
/* The messages ModelInferRequest and ModelInferResponse of grpc.proto. They are read and written
   without protobuf-c, which copies every tensor once more. */
#ifndef PARE_TOOLS_SERVE_GRPC_INFER_H
#define PARE_TOOLS_SERVE_GRPC_INFER_H

#include "tools/serve/grpc/message.h"
#include "tools/serve/protocol.h"

/* Texts of a request that are needed before it is read whole; NULL: empty, or not there. They live
   in the arena. */
typedef struct pare_grpc_names {
    const char *model, *version, *id;
} pare_grpc_names;
/* PARE_INPUT: the message is damaged. */
PARE_NODISCARD pare_status pare_grpc_names_read(pare_arena *arena, pare_grpc_names *out,
                                                const char *data, size_t bytes);

/* Tensors of numbers in raw_input_contents, and all strings, are borrowed from the message; all
   else lives in the arena. What typed contents take there counts for the exchange; NULL: nowhere.
   PARE_INPUT with a message that names the tensor. PARE_MEMORY, too, where they are too many. */
PARE_NODISCARD pare_status pare_grpc_infer_read(pare_arena *arena, pare_exchange *x,
                                                pare_infer_request *out, const char *data,
                                                size_t bytes);

/* Where the first tensor of raw_input_contents begins, as far as the first bytes of a message tell;
   0: they do not. */
size_t pare_grpc_first_tensor(const char *data, size_t bytes);

/* Makes the reply's body: a ModelInferResponse or, for a stream, the ModelStreamInferResponse that
   holds it. */
PARE_NODISCARD pare_status pare_grpc_infer_write(pare_arena *arena, pare_reply *reply,
                                                 const pare_infer_result *result, bool stream);
#endif
