/* SPDX-License-Identifier: Apache-2.0 */
/* Shadows: a model answers, and behind the reply another one runs the same request. Its answer is
   compared with the first one's and thrown away. */
#ifndef PARE_TOOLS_SERVE_SHADOW_H
#define PARE_TOOLS_SERVE_SHADOW_H

#include "tools/serve/infer_job.h"
#include "tools/serve/traffic/shadow_stats.h"

struct pare_repository;
typedef struct pare_shadow pare_shadow; /* a model and the one that shadows it */
typedef struct pare_shadows pare_shadows;

typedef struct pare_shadows_options {
    const char *const *rule; /* (count) "MODEL=OTHER", or "MODEL=OTHER/VERSION" */
    int count;
    double share;  /* of the requests that are compared, in [0, 1] */
    int64_t queue; /* requests that wait for a shadow, or run in it, at most */
} pare_shadows_options;

/* PARE_USAGE: a rule that cannot be read, or two for one model. */
PARE_NODISCARD pare_status pare_shadows_new(pare_ctx *ctx, pare_shadows **out,
                                            const pare_shadows_options *options);
/* The models that answer and shadow are in this repository. PARE_INPUT: it has no such model. */
PARE_NODISCARD pare_status pare_shadows_start(pare_shadows *shadows, pare_ctx *ctx,
                                              struct pare_repository *repository);
/* Waits until nothing is under way: the transport has ended. */
void pare_shadows_drain(pare_shadows *shadows);
void pare_shadows_free(pare_shadows *shadows); /* nothing is under way; NULL is fine */

/* The shadow of this model; NULL: it has none. shadows may be NULL. */
pare_shadow *pare_shadows_find(pare_shadows *shadows, const char *model);
/* Is the model one that shadows? */
bool pare_shadows_runs(const pare_shadows *shadows, const char *model);

int pare_shadows_count(const pare_shadows *shadows); /* shadows may be NULL */
pare_shadow *pare_shadows_at(const pare_shadows *shadows, int i);
const char *pare_shadow_model(const pare_shadow *shadow);
const char *pare_shadow_other(const pare_shadow *shadow); /* with its version, where it has one */
pare_shadow_stats *pare_shadow_stats_of(pare_shadow *shadow);
/* A row of "shadows" of the facts; NULL: memory is out. */
json_t *pare_shadow_json(pare_shadow *shadow);

/* --- one request --- */

/* Before the reply of a request whose outputs (job->wanted_count) are there: copies them and its
   inputs. NULL: it is not compared, by the share or because there is no room. */
pare_shadowed *pare_shadowed_new(pare_shadow *shadow, const pare_infer_job *job,
                                 const pare_infer_tensor *output);
void pare_shadowed_free(pare_shadowed *one); /* that was not started; NULL is fine */
/* The reply's times: (PARE_STAGES). Puts the copy in front of a list. */
void pare_shadowed_note(pare_shadowed *one, const double *seconds, pare_shadowed **list);
/* Behind the replies: hands the list to the other model. */
void pare_shadowed_start(pare_shadowed *list);
/* The other model's outputs, of the run of the copy. PARE_INPUT: they cannot be compared.
 */
PARE_NODISCARD pare_status pare_shadowed_compare(pare_shadowed *one, const pare_infer_job *job,
                                                 const pare_infer_tensor *output);
#endif
