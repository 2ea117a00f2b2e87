/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's library, opened when it is needed: it brings some fifty others, which would be loaded
   whatever pare is asked to do. */
#ifndef PARE_TOOLS_SERVE_GRPC_LIBRARY_H
#define PARE_TOOLS_SERVE_GRPC_LIBRARY_H
#ifdef PARE_GRPC

#include "runtime/base/ctx.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/log.h>

/* What is used of it. */
#define PARE_GRPC_FUNCTIONS(F)                                                                     \
    F(gpr_convert_clock_type)                                                                      \
    F(gpr_inf_future)                                                                              \
    F(gpr_now)                                                                                     \
    F(gpr_set_log_function)                                                                        \
    F(gpr_time_sub)                                                                                \
    F(grpc_byte_buffer_destroy)                                                                    \
    F(grpc_byte_buffer_length)                                                                     \
    F(grpc_call_details_destroy)                                                                   \
    F(grpc_call_details_init)                                                                      \
    F(grpc_call_start_batch)                                                                       \
    F(grpc_call_unref)                                                                             \
    F(grpc_completion_queue_create_for_next)                                                       \
    F(grpc_completion_queue_destroy)                                                               \
    F(grpc_completion_queue_next)                                                                  \
    F(grpc_completion_queue_shutdown)                                                              \
    F(grpc_init)                                                                                   \
    F(grpc_insecure_server_credentials_create)                                                     \
    F(grpc_metadata_array_destroy)                                                                 \
    F(grpc_metadata_array_init)                                                                    \
    F(grpc_raw_byte_buffer_create)                                                                 \
    F(grpc_resource_quota_arg_vtable)                                                              \
    F(grpc_resource_quota_create)                                                                  \
    F(grpc_resource_quota_resize)                                                                  \
    F(grpc_resource_quota_unref)                                                                   \
    F(grpc_server_add_channel_from_fd)                                                             \
    F(grpc_server_add_http2_port)                                                                  \
    F(grpc_server_cancel_all_calls)                                                                \
    F(grpc_server_create)                                                                          \
    F(grpc_server_credentials_release)                                                             \
    F(grpc_server_destroy)                                                                         \
    F(grpc_server_register_completion_queue)                                                       \
    F(grpc_server_request_call)                                                                    \
    F(grpc_server_shutdown_and_notify)                                                             \
    F(grpc_server_start)                                                                           \
    F(grpc_shutdown)                                                                               \
    F(grpc_slice_from_copied_string)                                                               \
    F(grpc_slice_new)                                                                              \
    F(grpc_slice_unref)                                                                            \
    F(grpc_ssl_server_credentials_create)

typedef struct pare_grpc_library {
#define PARE_GRPC_FIELD(name) __typeof__(name) *name;
    PARE_GRPC_FUNCTIONS(PARE_GRPC_FIELD)
#undef PARE_GRPC_FIELD
} pare_grpc_library;

/* PARE_UNSUPPORTED: it is not there, or lacks a function. It stays open until the program ends. */
PARE_NODISCARD pare_status pare_grpc_library_open(pare_ctx *ctx, pare_grpc_library *out);
#endif
#endif
