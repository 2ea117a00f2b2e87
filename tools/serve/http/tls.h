/* SPDX-License-Identifier: Apache-2.0 */
/* TLS of connections, by GnuTLS. */
#ifndef PARE_TOOLS_SERVE_TLS_H
#define PARE_TOOLS_SERVE_TLS_H

#include "runtime/base/ctx.h"

#include <sys/types.h>

typedef struct pare_tls_files pare_tls_files; /* certificate and key */
typedef struct pare_tls pare_tls;             /* a connection's */

/* PEM text. PARE_INPUT: they cannot be used. PARE_UNSUPPORTED: the build has no TLS. */
PARE_NODISCARD pare_status pare_tls_files_new(pare_ctx *ctx, pare_tls_files **out,
                                              const char *certificate, const char *key);
void pare_tls_files_free(pare_tls_files *files); /* or NULL */

/* The server's side. NULL: it cannot begin. */
pare_tls *pare_tls_new(const pare_tls_files *files, int fd);
void pare_tls_free(pare_tls *tls); /* or NULL */

/* As recv and send: -1 with errno EAGAIN where the socket has to be waited for, else another; the
   next send after EAGAIN has the same bytes, or these and more. pare_tls_shake: 0: it is done. */
int pare_tls_shake(pare_tls *tls);
ssize_t pare_tls_read(pare_tls *tls, void *to, size_t bytes);
ssize_t pare_tls_write(pare_tls *tls, const void *from, size_t bytes);
/* Is something of what came decrypted, and not read? */
bool pare_tls_has_more(const pare_tls *tls);
/* Says that nothing more is sent, if the socket takes it. */
void pare_tls_bye(pare_tls *tls);
#endif
