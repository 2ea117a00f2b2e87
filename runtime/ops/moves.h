/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that move elements and never compute: each is a few copies between parts of views. The
   parts are worked out here, once; a backend brings the copy. */
#ifndef PARE_RUNTIME_OPS_MOVES_H
#define PARE_RUNTIME_OPS_MOVES_H

#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dst = src: same type and dims, any strides. */
typedef pare_status (*pare_move_fn)(const pare_call *call, const pare_view *dst,
                                    const pare_view *src);

/* X(name): Transpose (1 to 21), Concat (4), Split (2 to 18), Slice (10), Expand (8), Tile (6),
   DepthToSpace (13), SpaceToDepth (13), pare.Reorder. */
#define PARE_MOVES(X)                                                                              \
    X(transpose)                                                                                   \
    X(concat)                                                                                      \
    X(split)                                                                                       \
    X(slice)                                                                                       \
    X(expand)                                                                                      \
    X(tile)                                                                                        \
    X(depth_to_space)                                                                              \
    X(space_to_depth)                                                                              \
    X(reorder)
#define X(op) pare_status pare_moves_##op(const pare_call *call, pare_move_fn move);
PARE_MOVES(X)
#undef X

/* The part of a view that starts at first on an axis and is n long. */
pare_view pare_view_part(const pare_view *view, int axis, int64_t first, int64_t n);

/* Axis i of the result is axis order[i] of view. */
pare_view pare_view_permute(const pare_view *view, const int *order);

/* What a Slice cuts from an axis. */
typedef struct pare_slice_axis {
    int axis;
    int64_t start, length, step; /* start: inside the input */
} pare_slice_axis;

/* Slice (10 to 13) as such axes, room for PARE_MAX_RANK; *count: -1 where a run computes them. */
PARE_NODISCARD pare_status pare_slice_axes(const pare_node *node, pare_slice_axis *out, int *count);
/* The same of any node; false: it is no Slice, or not all of it is known. */
bool pare_slice_known(const pare_node *node, pare_slice_axis *out, int *count);
/* Is it a Slice, with constant bounds, of a stretch of one axis at most? *axis: this one; *first:
   the index of the input where it begins. */
bool pare_slice_stretch(const pare_node *node, int *axis, int64_t *first);

/* Input i's bytes where the host can read them: always on the CPU, on a device where the input is
   constant; else NULL. */
const void *pare_call_host(const pare_call *call, int i);

#ifdef __cplusplus
}
#endif
#endif
