/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of GRPCInferenceService as requests of api.h: what a message asks for, and the
   message and status of its reply. It knows no transport. */
#ifndef PARE_TOOLS_SERVE_GRPC_METHODS_H
#define PARE_TOOLS_SERVE_GRPC_METHODS_H

#include "tools/serve/api.h"

/* Status codes of gRPC that replies have. */
enum {
    PARE_GRPC_OK = 0,
    PARE_GRPC_INVALID_ARGUMENT = 3,
    PARE_GRPC_DEADLINE_EXCEEDED = 4,
    PARE_GRPC_NOT_FOUND = 5,
    PARE_GRPC_RESOURCE_EXHAUSTED = 8,
    PARE_GRPC_UNIMPLEMENTED = 12,
    PARE_GRPC_INTERNAL = 13,
    PARE_GRPC_UNAVAILABLE = 14,
    PARE_GRPC_UNAUTHENTICATED = 16
};

typedef struct pare_grpc_method pare_grpc_method;
/* The method of a path as "/inference.GRPCInferenceService/ModelInfer"; NULL: there is none. */
const pare_grpc_method *pare_grpc_method_find(const char *path, size_t bytes);
/* Does it take and give any number of messages? */
bool pare_grpc_method_streams(const pare_grpc_method *method);
/* Are its messages requests for inference, which may be large, and their replies, too? */
bool pare_grpc_method_infers(const pare_grpc_method *method);

/* A message and its reply. */
typedef struct pare_grpc_request {
    pare_exchange x; /* first: the others know only this */
    const pare_grpc_method *method;
    const char *id; /* of an inference request; NULL: none */
} pare_grpc_request;

/* pare_exchange_init, and what the method says. */
void pare_grpc_request_init(pare_grpc_request *request, const pare_ctx *parent,
                            const pare_grpc_method *method);
/* Answers the message in the exchange's body, now or later. */
void pare_grpc_request_handle(pare_grpc_request *request, pare_api *api);
/* When done was called: the status of the reply. Its body is then the message, of no bytes where
   there is none, or the text of a status that is not PARE_GRPC_OK; of a stream it is a message that
   holds the error. */
int pare_grpc_request_finish(pare_grpc_request *request);
#endif
