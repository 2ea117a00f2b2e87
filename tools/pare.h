/* SPDX-License-Identifier: Apache-2.0 */
/* All of libpare for a C program, one header a room: cc $(pkg-config --cflags pare) app.c
   $(pkg-config --static --libs pare). The order is that of the work: files and data in, a graph, a
   run, ranges, a quantized or pruned graph, a trained one. */
#ifndef PARE_PARE_H
#define PARE_PARE_H

#include "calib/calib.h"
#include "distill/distill.h"
#include "formats/formats.h"
#include "prune/prune.h"
#include "quant/diagnose.h"
#include "quant/quant.h"
#include "quant/target.h"
#include "runtime/runtime.h"

#endif
