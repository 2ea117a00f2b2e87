/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection's last inference request said in JSON, and what its reply did: clients repeat
   themselves, but for the tensors' data. A request of the same words is not parsed again, and a
   result of the same types and shapes gets the same words. */
#ifndef PARE_TOOLS_SERVE_MEMO_H
#define PARE_TOOLS_SERVE_MEMO_H

#include "tools/serve/protocol.h"

/* JSON of at most so many bytes is noted, where all tensors come as binary data, or a request's in
   shared memory, and are no strings. A connection whose requests are all different ones is not
   noted for long. */
enum { PARE_MEMO_JSON = 1024 };

void pare_memo_free(pare_memo *memo); /* or NULL */

/* The request in a body, whose first json_bytes are JSON, as pare_infer_read reads it. Its texts
   may be the memo's, which they are until it reads again. *memo NULL: there is none yet. */
PARE_NODISCARD pare_status pare_memo_read(pare_memo **memo, pare_arena *arena,
                                          pare_infer_request *out, const char *body, size_t bytes,
                                          size_t json_bytes);

/* The reply's body, as pare_infer_write makes it. memo NULL: there is none. */
PARE_NODISCARD pare_status pare_memo_write(pare_memo *memo, pare_arena *arena, pare_reply *reply,
                                           const pare_infer_result *result);
#endif
