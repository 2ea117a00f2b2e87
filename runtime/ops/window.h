/* SPDX-License-Identifier: Apache-2.0 */
/* The sliding window that convolutions and pools share: attributes read once, auto_pad resolved.
   Always three spatial axes: a node with fewer has leading axes of length 1 (kernel 1, stride 1).
 */
#ifndef PARE_RUNTIME_OPS_WINDOW_H
#define PARE_RUNTIME_OPS_WINDOW_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_window {
    int nd;                /* the node's own spatial axes: the last nd of the three */
    int64_t in[3], out[3]; /* spatial sizes; -1 unknown */
    int64_t kernel[3], stride[3], dilation[3];
    int64_t begin[3], end[3]; /* padding; 0 where auto_pad meets an unknown size */
    int64_t group;            /* of convolutions; 1 for pools */
    bool include_pad;         /* of average pools: count_include_pad */
} pare_window;

/* The window of a Conv or pool (strides, dilations, pads, auto_pad, ceil_mode) over x [N,C,...].
   kernel: the weight's spatial dims, or NULL for the attribute kernel_shape. Sizes follow ONNX
   (Conv 11, MaxPool 12, AveragePool 19); with ceil_mode a last window that would start in the
   right padding is dropped. PARE_INPUT: wrong ranks, or a window larger than the padded input. */
PARE_NODISCARD pare_status pare_window_read(const pare_node *node, const pare_shape *x,
                                            const int64_t *kernel, pare_window *out);

/* The same for a ConvTranspose (output_padding, output_shape): in is x's size, out y's. */
PARE_NODISCARD pare_status pare_window_read_transposed(const pare_node *node, const pare_shape *x,
                                                       const int64_t *kernel, pare_window *out);

/* The taps of output position `at` along one axis that are inside the input, in steps of the
   dilation, and how many are inside the padded input: what an average divides by that counts
   padding, but not what ceil_mode reaches after it. */
typedef struct pare_taps {
    int64_t first; /* index in the input */
    int64_t count, padded;
} pare_taps;

static inline pare_taps pare_window_taps(const pare_window *w, int axis, int64_t at)
{
    const int64_t start = at * w->stride[axis] - w->begin[axis], d = w->dilation[axis];
    const int64_t room = w->in[axis] - start, reach = room + w->end[axis];
    const int64_t skip = start < 0 ? (-start + d - 1) / d : 0;
    int64_t last = room <= 0 ? 0 : (room + d - 1) / d,
            padded = reach <= 0 ? 0 : (reach + d - 1) / d;
    if (last > w->kernel[axis]) last = w->kernel[axis];
    if (padded > w->kernel[axis]) padded = w->kernel[axis];
    return (pare_taps){start + skip * d, last > skip ? last - skip : 0, padded};
}

#ifdef __cplusplus
}
#endif
#endif
