/* SPDX-License-Identifier: Apache-2.0 */
/* Inference requests made of a data set before the load begins, with binary tensor data; and what
   the answers are worth where the data have labels. */
#ifndef PARE_TOOLS_LOAD_REQUESTS_H
#define PARE_TOOLS_LOAD_REQUESTS_H

#include "tools/load/target.h"
#include "tools/source.h"

typedef struct pare_load_requests {
    size_t count;
    int64_t batch;            /* samples of each */
    size_t bytes, json_bytes; /* of each body, and of the JSON it begins with */
    char *body;               /* (count * bytes) freed with pare_load_requests_free */
    int64_t *label;           /* (count * batch) of the samples; NULL: there are none */
    const pare_load_target *target;
} pare_load_requests;

/* The source's samples in their order, `batch` to a request; those that are left over are not sent.
   PARE_INPUT: there are fewer than a request takes, a label is out of range, or the model takes
   another number; messages name data, model and tensor. */
PARE_NODISCARD pare_status pare_load_requests_make(pare_tool *tool, pare_load_requests *out,
                                                   const pare_load_target *target,
                                                   const pare_source *source, int64_t batch);
void pare_load_requests_free(pare_load_requests *requests);
/* Body number i % count. */
const char *pare_load_requests_body(const pare_load_requests *requests, size_t i);

/* Top-1 of what was answered. A sample that is sent several times counts once: by its first
   answer. */
typedef struct pare_load_top1 {
    int32_t *seen; /* (count * batch) the class answered, plus 2; 1: NaN; 0: no answer yet */
    int64_t hits, samples;
    int64_t changed; /* answers of another class than the sample's first */
    int64_t unread;  /* replies without the scores that were expected */
} pare_load_top1;

/* All counts 0. */
PARE_NODISCARD pare_status pare_load_top1_init(pare_ctx *ctx, pare_load_top1 *out,
                                               const pare_load_requests *requests);
void pare_load_top1_free(pare_load_top1 *top1);
/* A reply of status 200 to request i. Without labels nothing is looked at. */
void pare_load_top1_add(pare_load_top1 *top1, const pare_load_requests *requests, size_t i,
                        const pare_client_reply *reply);
#endif
