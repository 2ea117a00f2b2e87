/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/tls.h"

#if PARE_GNUTLS

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ALERTS = 16 }; /* that are passed over at once: a client that sends more ends */

struct pare_tls_files {
    gnutls_certificate_credentials_t credentials;
};

struct pare_tls {
    gnutls_session_t session;
    bool is_stuck; /* the library has bytes of a write that the socket did not take */
};

pare_status pare_tls_files_new(pare_ctx *ctx, pare_tls_files **out, const char *certificate,
                               const char *key)
{
    const gnutls_datum_t c = {(unsigned char *)certificate, (unsigned)strlen(certificate)};
    const gnutls_datum_t k = {(unsigned char *)key, (unsigned)strlen(key)};
    pare_tls_files *files = calloc(1, sizeof *files);
    if (!files || gnutls_certificate_allocate_credentials(&files->credentials) < 0) {
        free(files);
        return PARE_FAIL(ctx, MEMORY, "out of memory for TLS");
    }
    const int code = gnutls_certificate_set_x509_key_mem2(files->credentials, &c, &k,
                                                          GNUTLS_X509_FMT_PEM, NULL, 0);
    if (code >= 0) {
        *out = files;
        return PARE_OK;
    }
    pare_tls_files_free(files);
    return PARE_FAIL(ctx, INPUT,
                     "the certificate and the key cannot be used (%s); expected PEM, and the key "
                     "of the certificate",
                     gnutls_strerror(code));
}

void pare_tls_files_free(pare_tls_files *files)
{
    if (!files) return;
    gnutls_certificate_free_credentials(files->credentials);
    free(files);
}

pare_tls *pare_tls_new(const pare_tls_files *files, int fd)
{
    pare_tls *tls = calloc(1, sizeof *tls);
    if (!tls) return NULL;
    if (gnutls_init(&tls->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        free(tls);
        return NULL;
    }
    if (gnutls_set_default_priority(tls->session) < 0 ||
        gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, files->credentials) < 0) {
        pare_tls_free(tls);
        return NULL;
    }
    gnutls_certificate_server_set_request(tls->session, GNUTLS_CERT_IGNORE);
    gnutls_transport_set_int(tls->session, fd);
    return tls;
}

void pare_tls_free(pare_tls *tls)
{
    if (!tls) return;
    gnutls_deinit(tls->session);
    free(tls);
}

/* The library's code as a system call's result. */
static ssize_t result(ssize_t code)
{
    if (code >= 0) return code;
    errno = code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED ? EAGAIN : ECONNABORTED;
    return -1;
}

static bool can_go_on(ssize_t code, int *alerts)
{
    return code == GNUTLS_E_INTERRUPTED ||
           (code == GNUTLS_E_WARNING_ALERT_RECEIVED && ++*alerts <= MOST_ALERTS);
}

int pare_tls_shake(pare_tls *tls)
{
    int code, alerts = 0;
    do code = gnutls_handshake(tls->session);
    while (can_go_on(code, &alerts));
    return (int)result(code);
}

/* A client that asks for another handshake ends: nothing here needs one. */
ssize_t pare_tls_read(pare_tls *tls, void *to, size_t bytes)
{
    ssize_t n;
    int alerts = 0;
    do n = gnutls_record_recv(tls->session, to, bytes);
    while (can_go_on(n, &alerts));
    return n == GNUTLS_E_PREMATURE_TERMINATION ? 0 : result(n);
}

ssize_t pare_tls_write(pare_tls *tls, const void *from, size_t bytes)
{
    ssize_t n;
    do
        n = tls->is_stuck ? gnutls_record_send(tls->session, NULL, 0)
                          : gnutls_record_send(tls->session, from, bytes);
    while (n == GNUTLS_E_INTERRUPTED);
    tls->is_stuck = n == GNUTLS_E_AGAIN;
    return result(n);
}

bool pare_tls_has_more(const pare_tls *tls)
{
    return gnutls_record_check_pending(tls->session) > 0;
}

void pare_tls_bye(pare_tls *tls) { (void)gnutls_bye(tls->session, GNUTLS_SHUT_WR); }

#else

pare_status pare_tls_files_new(pare_ctx *ctx, pare_tls_files **out, const char *certificate,
                               const char *key)
{
    (void)out;
    (void)certificate;
    (void)key;
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "this build has no TLS: install libgnutls28-dev and build again");
}

void pare_tls_files_free(pare_tls_files *files) { (void)files; }

pare_tls *pare_tls_new(const pare_tls_files *files, int fd)
{
    (void)files;
    (void)fd;
    return NULL;
}

void pare_tls_free(pare_tls *tls) { (void)tls; }

int pare_tls_shake(pare_tls *tls)
{
    (void)tls;
    return -1;
}

ssize_t pare_tls_read(pare_tls *tls, void *to, size_t bytes)
{
    (void)tls;
    (void)to;
    (void)bytes;
    return -1;
}

ssize_t pare_tls_write(pare_tls *tls, const void *from, size_t bytes)
{
    (void)tls;
    (void)from;
    (void)bytes;
    return -1;
}

bool pare_tls_has_more(const pare_tls *tls)
{
    (void)tls;
    return false;
}

void pare_tls_bye(pare_tls *tls) { (void)tls; }

#endif
