/* SPDX-License-Identifier: Apache-2.0 */
/* The model that a load is for, as its server describes it by the KServe protocol, version 2. */
#ifndef PARE_TOOLS_LOAD_TARGET_H
#define PARE_TOOLS_LOAD_TARGET_H

#include "formats/data.h"
#include "runtime/base/arena.h"
#include "tools/load/client.h"

typedef struct pare_load_target {
    const char *url, *model;
    const char *path;  /* "/v2/models/mlp" or "/v2/models/mlp/versions/1" */
    const char *infer; /* path of its inference requests */
    pare_data_input *input;
    int input_count;
    const char *output; /* name of the first one */
    bool classifies;    /* it has one score per class, after an axis of samples */
    int64_t classes;    /* of it; 0: not known */
} pare_load_target;

/* version 0: the one that the server chooses. Texts live in the arena. PARE_IO: no answer.
   PARE_INPUT: no such model, or the answer is none of the protocol. PARE_UNSUPPORTED: an input of a
   type that data sets do not have. Messages name url, model and tensor. */
PARE_NODISCARD pare_status pare_load_target_read(pare_arena *arena, pare_load_target *out,
                                                 pare_client *client, const char *url,
                                                 const char *model, int64_t version);

/* What the model has computed so far: samples, and runs, each of a batch. */
enum { PARE_LOAD_BINS = 32 };
typedef struct pare_load_work {
    double samples, runs;       /* NAN: the server does not say */
    double bin[PARE_LOAD_BINS]; /* runs of up to 2^i samples, and of more than 2^(i-1) */
} pare_load_work;
/* What came from one to the other. */
pare_load_work pare_load_work_between(const pare_load_work *before, const pare_load_work *after);
PARE_NODISCARD pare_status pare_load_target_work(pare_arena *arena, const pare_load_target *target,
                                                 pare_client *client, pare_load_work *out);
#endif
