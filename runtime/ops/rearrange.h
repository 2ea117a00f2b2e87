/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that put elements elsewhere: where. */
#ifndef PARE_RUNTIME_OPS_REARRANGE_H
#define PARE_RUNTIME_OPS_REARRANGE_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_COL2IM_AXES = PARE_MAX_RANK - 2 };

/* Col2Im (18). */
typedef struct pare_col2im {
    int axes;
    int64_t image[PARE_COL2IM_AXES], block[PARE_COL2IM_AXES], dilation[PARE_COL2IM_AXES],
        stride[PARE_COL2IM_AXES], begin[PARE_COL2IM_AXES];
    int64_t count[PARE_COL2IM_AXES]; /* of blocks along each axis */
    int64_t taps, places;            /* of a block; of blocks */
} pare_col2im;
PARE_NODISCARD pare_status pare_col2im_of(const pare_node *node, const int64_t *image,
                                          const int64_t *block, int axes, pare_col2im *out);

/* MaxUnpool (22): the shape that its indices count in, without output_shape. */
PARE_NODISCARD pare_status pare_max_unpool_shape(const pare_node *node, const pare_shape *x,
                                                 pare_shape *out);

#ifdef __cplusplus
}
#endif
#endif
