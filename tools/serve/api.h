/* SPDX-License-Identifier: Apache-2.0 */
/* The requests that a server answers: the KServe protocol, version 2, with the extensions for model
   repositories, configurations and statistics, and OpenMetrics. It knows no transport. */
#ifndef PARE_TOOLS_SERVE_API_H
#define PARE_TOOLS_SERVE_API_H

#include "tools/serve/repository.h"

/* Bytes of a body that is no request for inference, at most: what is parsed takes many times as
   many. */
enum { PARE_API_MOST_BODY = 1 << 20 };

typedef struct pare_api {
    pare_repository *repository;
    pare_regions *regions;        /* shared memory that clients registered; NULL: none is served */
    struct pare_shadows *shadows; /* NULL: none */
    const char *token;            /* that requests bring, but for those of health; NULL: none */
    bool draining; /* set atomically: the server is about to end: it is alive, but not ready */
} pare_api;

/* Does the request bring the token, where one is asked for? Else makes the reply. */
bool pare_api_admit(const pare_api *api, pare_exchange *x);
/* Memory for the body of a request to a model on a GPU; NULL: any will do, for what the model takes
   is not in the body as it is. */
pare_bodies *pare_api_bodies(pare_api *api, pare_exchange *x);
/* Makes the exchange's reply, now or later, by this thread or another. */
void pare_api_handle(pare_api *api, pare_exchange *x);
/* Makes the reply to a body of more than PARE_API_MOST_BODY. */
void pare_api_refuse_size(pare_exchange *x);

/* The same for a transport without paths: `path` is that of a row of the table of routes, as in
   "v2/models/{m}/config"; the others fill it, or are NULL, and last as long as the exchange. */
void pare_api_answer(pare_api *api, pare_exchange *x, const char *path, const char *model,
                     const char *version, const char *region);

/* The models' statistics as OpenMetrics text, from malloc; NULL: memory is out. */
char *pare_metrics_text(pare_served *const *served, int count, const struct pare_shadows *shadows,
                        size_t *bytes);
#endif
