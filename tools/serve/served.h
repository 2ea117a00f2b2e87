/* SPDX-License-Identifier: Apache-2.0 */
/* A version of a model that is served: its plans, its queue, a thread for each instance, and what
   it has done. It lives as long as someone has a reference: the repository, and each request until
   its reply. */
#ifndef PARE_TOOLS_SERVE_SERVED_H
#define PARE_TOOLS_SERVE_SERVED_H

#include "runtime/eval/pipeline.h"
#include "tools/serve/config.h"
#include "tools/serve/plans.h"
#include "tools/serve/protocol.h"
#include "tools/serve/regions.h"
#include "tools/serve/stats.h"
#include "tools/serve/tasks.h"

#include <pthread.h>

/* An input or output of the model, as clients see it. */
typedef struct pare_port {
    const char *name;
    pare_dtype dtype;
    pare_shape shape;    /* rank -1: unknown; with the axis of samples */
    bool is_own;         /* the server's: clients neither send nor get it */
    pare_labels *labels; /* of classes of an output; NULL: none */
} pare_port;

typedef struct pare_served pare_served;
typedef struct pare_sequences pare_sequences;
struct pare_shadow;

typedef struct pare_served_options {
    const char *name, *path; /* path: of the ONNX file */
    int64_t version;
    pare_serve_config config;
    pare_gpus *gpus;            /* NULL: the CPU alone */
    struct pare_shadow *shadow; /* that its requests are compared by; NULL: none */
    bool is_background;         /* it computes with what others leave of the processor */
    /* For an ensemble, a reference to a model that is ready; version 0: the highest. `member` asks
       while the ensemble is opened, and may load the model. */
    pare_status (*find)(void *user, pare_ctx *ctx, pare_served **out, const char *name,
                        int64_t version);
    pare_status (*member)(void *user, pare_ctx *ctx, pare_served **out, const char *name,
                          int64_t version);
    /* The last reference is gone: the model can be closed, but not by this thread. */
    void (*idle)(void *user, pare_served *served);
    void *user;
} pare_served_options;

/* A processor that computes the model, or several GPUs with a stage of it each. */
typedef struct pare_site {
    pare_gpu *gpu;               /* that reads the inputs; NULL: the CPU */
    pare_gpu *last;              /* that makes the outputs: the same, or that of the last stage */
    pare_gpu **stage;            /* (stages) in the order of the stages */
    int stages;                  /* 0: the CPU */
    pare_pipeline_plan *planned; /* of several stages, for the largest batch; NULL: not known */
    pare_plans *plans;
    int64_t instances; /* runs side by side */
    bool is_lost;      /* a GPU of it failed and works no more; changed atomically */
} pare_site;

typedef struct pare_instance {
    pare_served *served;
    pare_site *site;
    int index; /* of those of the site */
    pthread_t thread;
} pare_instance;

struct pare_served {
    pare_ctx ctx; /* of opening and closing */
    pare_arena arena;
    pare_served_options options; /* max_batch is 0 where the model has no axis of samples */
    const char *name;
    pare_model *model;
    pare_port *input, *output;
    int input_count, output_count;
    bool fills_up; /* a sample's results are the same beside others: batches may be filled up */
    pare_preprocess *preprocess; /* NULL: no input takes pictures */
    pare_ensemble *ensemble; /* NULL: it has a model of its own; else no model, sites, instances */
    pare_site *site;         /* (site_count) of one kind: results do not depend on it */
    int site_count;
    int lost;          /* sites; changed atomically */
    char reason[2048]; /* why, once all are lost */
    bool is_lost;      /* and `reason` is there; changed atomically */
    pare_batcher *batcher;
    pare_sequences *sequences; /* NULL: requests do not belong together */
    pare_served_stats stats;
    pare_instance *instance;
    int running;       /* instances whose thread was started */
    int references;    /* changed atomically */
    pare_task closing; /* of the repository */
};

/* Reads the model, compares its results alone and beside other samples, and starts its threads.
   The caller has the one reference. PARE_INPUT, PARE_UNSUPPORTED: the model or its configuration
   cannot be served. */
PARE_NODISCARD pare_status pare_served_open(pare_ctx *ctx, pare_served **out,
                                            const pare_served_options *options);
/* Ends its threads; there are no references, or it was never given away. NULL is fine. */
void pare_served_close(pare_served *served);

void pare_served_keep(pare_served *served);    /* one reference more */
void pare_served_release(pare_served *served); /* one less */

/* Answers an inference request, now or later, and releases the caller's reference. request NULL: it
   is in the exchange's body. regions: those that it may name, which last until its reply; NULL:
   none. */
void pare_served_infer(pare_served *served, pare_exchange *x, const pare_infer_request *request,
                       pare_regions *regions);

/* The model's metadata, where `versions` is what "versions" lists, and its ModelConfig. NULL:
   memory is out. */
json_t *pare_served_metadata(const pare_served *served, json_t *versions);
json_t *pare_served_config(const pare_served *served);

/* NULL: it answers requests; else why it does so no more: its GPUs failed. */
const char *pare_served_reason(const pare_served *served);

/* served_run.c: what an instance's thread does. */
void *pare_instance_main(void *instance);

/* gpu/sites.c: chooses processors by the model's configuration, with plans for each. PARE_DEVICE,
   PARE_UNSUPPORTED: there is no such GPU, or they differ. */
PARE_NODISCARD pare_status pare_sites_open(pare_served *served);
void pare_sites_close(pare_served *served);
/* Notes what was planned for batches of so many samples, where the model is in stages. */
PARE_NODISCARD pare_status pare_site_note_stages(pare_served *served, pare_site *site,
                                                 const pare_planned *planned, int64_t rows);
/* A run failed on the site's GPU, with this message, and its plan was dropped: makes it anew for
   the next requests or, where the GPU fails again, gives the site up. */
void pare_site_recover(pare_served *served, pare_site *site, const pare_input_shape *shapes,
                       int count, const char *message);
/* Its GPUs, in the order of the stages: "GPU 1", "GPUs 2, 0, 1"; "CPU". Returns text. */
const char *pare_site_text(const pare_site *site, char *text, size_t size);
/* Is it given up, while others go on? */
bool pare_site_is_left(const pare_served *served, const pare_site *site);

/* probe.c: runs the model on made-up samples alone and beside others; *same: every output has a row
   for each sample, with the same bytes. Where it is not, or nothing could be run, `why` says so.
   Fills in types and ranks of outputs that the file does not give. */
PARE_NODISCARD pare_status pare_served_probe(pare_served *served, pare_site *site, bool *same,
                                             char *why, size_t size);
#endif
