/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_OPS_PAD_H
#define PARE_RUNTIME_OPS_PAD_H

#include "runtime/ops/kernel.h"

typedef enum pare_pad_mode {
    PARE_PAD_CONSTANT,
    PARE_PAD_REFLECT,
    PARE_PAD_EDGE,
    PARE_PAD_WRAP
} pare_pad_mode;

typedef struct pare_pad {
    pare_pad_mode mode;
    bool known;                                       /* pads (and axes) are constant */
    int64_t begin[PARE_MAX_RANK], end[PARE_MAX_RANK]; /* negative ones cut */
} pare_pad;

/* Reads a Pad of ONNX 11 or newer on a tensor of this rank. */
PARE_NODISCARD pare_status pare_pad_read(const pare_node *node, int rank, pare_pad *out);

/* Constant: shrinks dst and src to what of src is in dst; false where nothing does. */
bool pare_pad_inside(const pare_pad *pad, pare_view *dst, pare_view *src);

/* The other modes: at[a][o] is the position on axis a of the input that output position o shows; in
   the plan's arena. */
PARE_NODISCARD pare_status pare_pad_positions(pare_prep *prep, const pare_pad *pad, int64_t **at);

#endif
