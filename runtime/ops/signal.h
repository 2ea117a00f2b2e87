/* SPDX-License-Identifier: Apache-2.0 */
/* What shape rules and kernels of DFT (17, 20) and STFT (17) read of the node. */
#ifndef PARE_RUNTIME_OPS_SIGNAL_H
#define PARE_RUNTIME_OPS_SIGNAL_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_dft {
    int axis;       /* -1: not known */
    int64_t length; /* of the transform; -1: not known */
    bool inverse;
    bool onesided; /* forward: bins 0 .. length / 2 of a real signal; inverse: a real signal of them
                    */
} pare_dft;

/* Fails where inputs and attributes contradict each other or the first input's shape. */
PARE_NODISCARD pare_status pare_dft_of(const pare_node *node, pare_dft *out);

/* Sizes are -1 where they are not known. */
typedef struct pare_stft {
    int64_t length, step, frames; /* of a frame; from one to the next; how many */
    bool onesided;                /* bins 0 .. length / 2 */
} pare_stft;

PARE_NODISCARD pare_status pare_stft_of(const pare_node *node, pare_stft *out);

#ifdef __cplusplus
}
#endif
#endif
