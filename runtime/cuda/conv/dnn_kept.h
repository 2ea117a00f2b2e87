/* SPDX-License-Identifier: Apache-2.0 */
/* What a device keeps of cuDNN's answers, and runs of its plans. An answer that no prepared node
   uses stays until there are PARE_DNN_UNUSED of them. */
#ifndef PARE_RUNTIME_CUDA_CONV_DNN_KEPT_H
#define PARE_RUNTIME_CUDA_CONV_DNN_KEPT_H

#include "runtime/cuda/conv/dnn_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_DNN_UNUSED = 64 };

/* An engine that was chosen for a node. */
typedef struct pare_dnn_chosen {
    pare_cuda_dnn *dnn;
    pare_device *device;
    pare_dnn_answers *answers; /* NULL: none was chosen */
    int rank;
    size_t scratch; /* where its workspace is in scratch */
} pare_dnn_chosen;

/* Addresses by PARE_DNN_X and so on. */
typedef struct pare_dnn_places {
    void *at[PARE_DNN_TENSORS], *workspace;
} pare_dnn_places;

/* What one runner has. */
typedef struct pare_dnn_bound {
    const pare_dnn_chosen *of;
    pare_dnn_plan *plan;
    void *handle, *pack;    /* pack: of the places below; NULL: none yet */
    pare_dnn_places places; /* of tensors that the graph has not NULL */
} pare_dnn_bound;

/* Is there an engine `rank` in the library's order? No where the library is absent, failed or
   refuses, or that engine failed. */
bool pare_dnn_has(const pare_prep *prep, const pare_dnn_conv *conv, int rank);
/* Takes engine `rank`; adds its workspace to the node's scratch. PARE_UNSUPPORTED: there are
   fewer. pare_dnn_leave ends it. */
PARE_NODISCARD pare_status pare_dnn_choose(pare_prep *prep, const pare_dnn_conv *conv, int rank,
                                           pare_dnn_chosen *out);
void pare_dnn_leave(const pare_dnn_chosen *s);

/* A plan of the call's stream, and the places as far as they are known; in the arena. Freed with
   pare_dnn_unbind. */
PARE_NODISCARD pare_status pare_dnn_bind(const pare_call *call, pare_arena *arena,
                                         const pare_dnn_chosen *s, void *const data[],
                                         pare_dnn_bound **out);
void pare_dnn_unbind(const pare_dnn_bound *b);
/* Places that are others than before are told the library first. */
PARE_NODISCARD pare_status pare_dnn_run(const pare_call *call, pare_dnn_bound *b,
                                        void *const data[]);

#ifdef __cplusplus
}
#endif
#endif
