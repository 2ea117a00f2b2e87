/* SPDX-License-Identifier: Apache-2.0 */
/* Connections without TLS: they are accepted here, as many as there may be, and the library is
   given each. It would stop listening for good where descriptors are used up. */
#ifndef PARE_TOOLS_SERVE_GRPC_ACCEPT_H
#define PARE_TOOLS_SERVE_GRPC_ACCEPT_H
#ifdef PARE_GRPC

#include "tools/serve/grpc/call.h"

/* Takes the connections of grpc->listener, for a server that has started. PARE_MEMORY: there is no
   thread for it. */
PARE_NODISCARD pare_status pare_grpc_accept_start(pare_grpc *grpc);
/* Takes no more, and closes the listener. It may not have been started. */
void pare_grpc_accept_stop(pare_grpc *grpc);
#endif
#endif
