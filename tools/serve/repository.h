/* SPDX-License-Identifier: Apache-2.0 */
/* The models that are served: those in folders of the form FOLDER/MODEL/VERSION/model.onnx, with an
   optional FOLDER/MODEL/config.pbtxt, and single files. Versions are whole numbers from 1. Any
   thread may call. */
#ifndef PARE_TOOLS_SERVE_REPOSITORY_H
#define PARE_TOOLS_SERVE_REPOSITORY_H

#include "tools/serve/served.h"

typedef struct pare_repository pare_repository;

typedef struct pare_repository_options {
    const char *const *path; /* (count) folders and ONNX files; borrowed */
    int count;
    pare_serve_config config;   /* of models whose config.pbtxt does not say otherwise */
    pare_gpus *gpus;            /* that models may choose; NULL: none */
    const char *const *traffic; /* (traffic_count) "MODEL=1:90,2:10"; they go before config.pbtxt */
    int traffic_count;
    struct pare_shadows *shadows; /* outlive the repository; NULL: none */
} pare_repository_options;

/* Loads every model. A file's model is called as the file without ".onnx", and is version 1.
   PARE_INPUT, PARE_UNSUPPORTED, PARE_IO: a path or a model cannot be served. */
PARE_NODISCARD pare_status pare_repository_open(pare_ctx *ctx, pare_repository **out,
                                                const pare_repository_options *options);
/* Every request has its reply. NULL is fine. */
void pare_repository_close(pare_repository *repository);

/* A reference to the version of this number that is ready; 0: the highest. PARE_INPUT: there is
   none; PARE_DEVICE: its GPU failed. */
PARE_NODISCARD pare_status pare_repository_find(pare_repository *repository, pare_ctx *ctx,
                                                pare_served **out, const char *name,
                                                int64_t version);

/* PARE_DEVICE: the GPU of a model that was loaded, which the message names, failed. */
PARE_NODISCARD pare_status pare_repository_check(pare_repository *repository, pare_ctx *ctx);

/* Are requests that name no version shared between the model's versions? */
bool pare_repository_shares(pare_repository *repository, const char *name);
/* A reference to the version that has the next request, or those of this id (NULL: none).
   Fails as pare_repository_find. */
PARE_NODISCARD pare_status pare_repository_choose(pare_repository *repository, pare_ctx *ctx,
                                                  pare_served **out, const char *name,
                                                  const char *id);

/* Reads the model's folder again and serves what it holds now; requests that the versions before
   have are answered by them. On failure these go on. PARE_INPUT: there is no such model. */
PARE_NODISCARD pare_status pare_repository_load(pare_repository *repository, pare_ctx *ctx,
                                                const char *name);
/* Serves the model no more; requests that it has are answered. */
PARE_NODISCARD pare_status pare_repository_unload(pare_repository *repository, pare_ctx *ctx,
                                                  const char *name);
/* From now on no request waits for others to make a batch. */
PARE_NODISCARD pare_status pare_repository_hurry(pare_repository *repository, pare_ctx *ctx);
/* Does it by a thread of the repository's. */
void pare_repository_later(pare_repository *repository, pare_task *task, void (*work)(void *user),
                           void *user);

/* The index: every version with its state, or those that are ready. NULL: memory is out. */
json_t *pare_repository_index(pare_repository *repository, bool ready);
/* Versions of this model that are ready, as text, ascending. */
json_t *pare_repository_versions(pare_repository *repository, const char *name);
/* References to all that are ready, in order of name and version; a list from pare_alloc. */
PARE_NODISCARD pare_status pare_repository_all(pare_repository *repository, pare_ctx *ctx,
                                               pare_served ***out, int *count);
#endif
