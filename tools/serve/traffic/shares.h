/* SPDX-License-Identifier: Apache-2.0 */
/* How requests that name no version are shared between the versions of a model. */
#ifndef PARE_TOOLS_SERVE_SHARES_H
#define PARE_TOOLS_SERVE_SHARES_H

#include "runtime/base/ctx.h"

enum { PARE_MOST_SHARES = 64 };
typedef struct pare_share {
    int64_t version;
    int64_t weight; /* 0: none */
    int64_t given;  /* requests of the `given` below */
} pare_share;

typedef struct pare_shares {
    pare_share share[PARE_MOST_SHARES];
    int count;     /* 0: the highest version has all */
    int64_t sum;   /* of the weights */
    int64_t given; /* requests so far, modulo sum */
} pare_shares;

/* Reads "1:90 2:10", versions with their weights, by spaces or commas. what: begins a message.
   PARE_INPUT. */
PARE_NODISCARD pare_status pare_shares_read(pare_ctx *ctx, pare_shares *out, const char *what,
                                            const char *text);
/* PARE_INPUT with the path: a version has a weight that is none of the (count) that are served. */
PARE_NODISCARD pare_status pare_shares_check(pare_ctx *ctx, const pare_shares *shares,
                                             const char *path, const int64_t *version, int count);
/* The other way; text: PARE_SHARES_TEXT bytes. Returns text. */
enum { PARE_SHARES_TEXT = PARE_MOST_SHARES * 32 };
const char *pare_shares_text(const pare_shares *shares, char *text);

/* The version of the next request. Of any n in a row from the first each version gets its part to
   within less than one, and of every `sum` exactly its weight. */
int64_t pare_shares_next(pare_shares *shares);
/* The version of requests with this id, always the same. Where weights or versions change, ids move
   only to or from those that do. */
int64_t pare_shares_of(const pare_shares *shares, const char *id);
#endif
