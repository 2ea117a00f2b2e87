/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that are compressed: gzip, and deflate, which in HTTP is zlib's format (RFC 9110). */
#ifndef PARE_TOOLS_SERVE_ENCODING_H
#define PARE_TOOLS_SERVE_ENCODING_H

#include "tools/serve/exchange.h"

/* Replaces the exchange's body by what Content-Encoding says that it holds, at most x->limit bytes,
   aligned as the exchange's body is. PARE_UNSUPPORTED: another encoding. PARE_INPUT: it is damaged
   or too large. */
PARE_NODISCARD pare_status pare_encoding_decode(pare_exchange *x);
/* Compresses the reply's body where Accept-Encoding asks for it. */
PARE_NODISCARD pare_status pare_encoding_encode(pare_exchange *x);
#endif
