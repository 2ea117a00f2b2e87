/* SPDX-License-Identifier: Apache-2.0 */
/* pare prune --nm --advise: what N:M would gain in time on the device at hand, layer by layer. */
#ifndef PARE_TOOLS_ADVISE_H
#define PARE_TOOLS_ADVISE_H

#include "prune/plan.h"
#include "tools/options.h"

typedef struct pare_advice_layer {
    const char *node, *weight;
    const char *note; /* why N:M does not fit it, or NULL */
    double dense,
        sparse; /* seconds of its fastest kernels in f16; sparse negative: none takes it */
    bool pays;
} pare_advice_layer;

typedef struct pare_advice {
    const char *device; /* "cpu", or its name */
    pare_advice_layer *layer;
    int count, fit, paying; /* layers; of these N:M fits, and pays */
    double run;             /* seconds of the whole dense model; 0: was not timed */
    double best;            /* dense / sparse where that is greatest; 1: nowhere above */
    double gain;            /* of the whole model by the layers that pay: dense / pruned */
    double ceiling; /* the same if all that fits ran `best` times as fast: 1 / (1 - p + p / best)
                       for its part p of the time (Amdahl 1967, "Validity of the single processor
                       approach to achieving large scale computing capabilities") */
} pare_advice;

/* Times the layers of a model whose weights are of 2:4, and a whole run: fills in dense, sparse,
   run. */
typedef pare_status pare_advise_timer(pare_tool *tool, const pare_model *sparse, pare_advice *out);

/* On the tool's device, in f16, batch 1 where the model leaves it open. */
PARE_NODISCARD pare_status pare_advise_time(pare_tool *tool, const pare_model *sparse,
                                            pare_advice *out);

/* What would be gained by pruning a prepared model as `how` says. timer is called where there may
   be kernels: for 2:4 on a GPU. The list is in the tool's arena. */
PARE_NODISCARD pare_status pare_advise(pare_tool *tool, const pare_model *model,
                                       const pare_unstructured_options *how,
                                       pare_advise_timer *timer, pare_advice *out);

/* What follows from the times: pays where 2:4 takes at most 97 % of the dense time, counts, best,
   gain and ceiling. */
void pare_advice_judge(pare_advice *advice);

void pare_advice_print(const pare_advice *advice, const pare_unstructured_options *how,
                       pare_tool *tool, FILE *to);
json_t *pare_advice_json(const pare_advice *advice);
#endif
