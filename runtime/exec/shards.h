/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, its column-parallel
   products): of a product with constant weights each of several processes has some of the output
   channels, with their weights. A pare.AllGather behind it gives every process all channels, so
   that what follows is the same in each. All run the same plan in step.

   Outputs keep their bytes. A library may sum floats in another order where a product has fewer
   columns: so each product is tried while planning, whole and in its parts, on the same random
   tensors, and stays whole where one byte differs. Depthwise and other grouped convolutions,
   products of few weights or channels, and those whose weight is on the left stay whole, too. */
#ifndef PARE_RUNTIME_EXEC_SHARDS_H
#define PARE_RUNTIME_EXEC_SHARDS_H

#include "runtime/base/hash.h"
#include "runtime/exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_MOST_SHARDS = 1024 };

/* What one of the processes has. */
typedef struct pare_plan_shard {
    size_t weights; /* bytes of the constants that its nodes read */
    size_t sent;    /* bytes that each of the others gets from it in a run */
} pare_plan_shard;

typedef struct pare_plan_sharding {
    int shards;
    int products, cut;      /* nodes with a constant weight; those of them that are shared */
    size_t weights;         /* bytes of the constants of the whole model */
    size_t largest;         /* bytes of the largest tensor whose parts are gathered */
    size_t cut_weights;     /* of them the weights that are shared */
    pare_plan_shard *shard; /* (shards) */
    pare_hash bounds;       /* of all cuts: two plans that agree in it fit together */
} pare_plan_sharding;

/* Of a plan that is one of several shards (pare_plan_options.shards); else NULL. */
const pare_plan_sharding *pare_plan_sharding_of(const pare_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
